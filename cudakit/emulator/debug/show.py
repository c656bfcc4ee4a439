"""A moment of a launch as text, and as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

import numpy as np

from cudakit.emulator.debug.stops import missing
from cudakit.emulator.debug.view import Lane, View, Where

#: Variables of more values are shown by their first ones.
_MOST: Final = 8
#: Characters in which the values of all lanes are shown, where not all are asked for.
_WIDTH: Final = 80
_STYLE: Final = (
    "<style>.cudakit-debug{font:13px sans-serif}.cudakit-debug pre{margin:4px 0}"
    ".cudakit-debug table{border-collapse:collapse;font:12px monospace}"
    ".cudakit-debug td,.cudakit-debug th{padding:1px 5px;text-align:right;border:1px solid #8884}"
    ".cudakit-debug .here{background:#fd06;font-weight:bold}.cudakit-debug .new{background:#f806}"
    ".cudakit-debug .off{opacity:.35}.cudakit-debug .wrong{color:#c22;font-weight:bold}"
    ".cudakit-debug div{overflow-x:auto}</style>"
)


def head_of(where: Where) -> str:
    """Block, warp, lanes and place in a line."""
    lanes = f", lanes {ranges(where.lanes)}" if where.lanes else ""
    at = f" at {where.file}:{where.line}" if where.line else ""
    inside = f" in {where.function}" if where.function else ""
    return f"block {where.block}, warp {where.warp}{lanes}{inside}{at} ({where.reason})"


def as_text(view: View) -> str:
    """The place, the error, the lines around, and the variables."""
    parts = [head_of(view.where)]
    parts += [f"error: {view.error}"] if view.error else []
    parts += lines_of(view)
    parts += [
        f"  {'*' if name in view.changed else ' '} {name} = {value_of(value, _WIDTH)}"
        for name, value in view.variables.items()
    ]
    return "\n".join(parts)


def lines_of(view: View) -> list[str]:
    """The source's lines, the one at hand marked."""
    return [f"{'->' if line.line == view.where.line else '  '} {line.line:4} {line.text}" for line in view.listing]


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in words: ``0-3, 8``."""
    found = list[list[int]]()
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def value_of(value: np.ma.MaskedArray, width: int = 1 << 20) -> str:
    """A value over the lanes: once where it is the same in all that have it, else of each, as far as the width goes."""
    held = ~missing(value)
    data = value.data[held]
    if not len(data):
        return "not set"
    raw = np.ascontiguousarray(data).view(np.uint8).reshape(len(data), -1)
    if (raw == raw[0]).all():
        return one(data[0])
    shown = ["-" if not known else one(each) for each, known in zip(value.data, held, strict=True)]
    first = next((k for k in range(1, len(shown)) if len(" ".join(shown[: k + 1])) > width), len(shown))
    return "[" + " ".join(shown[:first]) + (" …]" if first < len(shown) else "]")


def one(value: object) -> str:
    """The value of one lane."""
    if isinstance(value, np.void) and value.dtype.names is not None:
        return "{" + ", ".join(f"{name}: {one(value[name])}" for name in value.dtype.names) + "}"
    if isinstance(value, np.ndarray):
        if value.ndim == 0:
            return one(value[()])
        more = ", …" if len(value) > _MOST else ""
        return "{" + ", ".join(one(each) for each in value[:_MOST]) + more + "}"
    if isinstance(value, np.uint64) and value > 1 << 32:
        return hex(int(value))
    if isinstance(value, np.floating):
        return f"{float(value):.7g}"
    return str(value)


def as_html(view: View) -> str:
    """The same as a fragment of a page: the source with its current line, and a table of the lanes' variables."""
    wrong = f"<p class='wrong'>{escape(view.error)}</p>" if view.error else ""
    source = "\n".join(
        f"<span class='{'here' if line.line == view.where.line else ''}'>{line.line:4} {escape(line.text)}</span>"
        for line in view.listing
    )
    head = f"<b>{escape(head_of(view.where))}</b>"
    return f"<div class='cudakit-debug'>{_STYLE}{head}{wrong}<pre>{source}</pre>{_table(view)}</div>"


def _table(view: View) -> str:
    if not view.lanes:
        return ""
    lanes = "".join(f"<th{_off(lane)}>{lane.lane}</th>" for lane in view.lanes)
    rows = [f"<tr><th>lane</th>{lanes}</tr>"]
    at = "".join(f"<td{_off(lane)} title='{lane.state}'>{lane.line or '·'}</td>" for lane in view.lanes)
    rows.append(f"<tr><th>line</th>{at}</tr>")
    for name, value in view.variables.items():
        absent = missing(value)
        cells = "".join(
            "<td class='off'>·</td>" if absent[lane.lane] else f"<td>{escape(one(value.data[lane.lane]))}</td>"
            for lane in view.lanes
        )
        rows.append(f"<tr class='{'new' if name in view.changed else ''}'><th>{escape(name)}</th>{cells}</tr>")
    return f"<div><table>{''.join(rows)}</table></div>"


def _off(lane: Lane) -> str:
    return "" if lane.state == "active" else " class='off'"
