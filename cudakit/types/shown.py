"""Printed and HTML views of objects, made of the same parts.

The HTML is small and runs no script; all text in it is escaped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TextIO, TypeAlias

from cudakit.records import NamedTuple

_MOST_ROWS = 50
_MOST_CHARACTERS = 200
_MOST_OF_A_TEXT = 500


class Table(NamedTuple):
    """A table of texts and numbers; None stands for a missing value.

    Attributes
    ----------
    heads : sequence of str
        Column heads.
    rows : sequence of sequences
        Cells by row.
    right : collection of int
        Columns that are aligned right, such as numbers.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    right: Collection[int] = ()


class Drawing(NamedTuple):
    """A picture for notebooks. `html` is a function that returns its HTML. Printed text leaves it out."""

    html: Callable[[], str]


#: Text of one or several lines, a table, or a picture.
Part: TypeAlias = str | Table | Drawing


class Reported:
    """A base class of objects that are printed, and shown in notebooks, from the same parts.

    If the first part is a line, it is the title. Otherwise the title is the object's ``repr``.
    """

    __slots__ = ()

    def _parts(self) -> Iterable[Part]:
        raise NotImplementedError

    def __str__(self) -> str:
        return text(*self._parts())

    def _repr_html_(self) -> str:
        """Return the parts as HTML, for a notebook."""
        first, *others = self._parts()
        return html(first, *others) if isinstance(first, str) else html(repr(self), first, *others)


def text(*parts: Part) -> str:
    """Return the parts as text, one below the other."""
    return "\n".join(line for part in parts for line in _lines(part))


def html(title: str, *parts: Part) -> str:
    """Return parts below a bold title, as HTML. Of many parts the first are shown, with the number of the others."""
    lines = [*map(_html, parts[:_MOST_ROWS])]
    if len(parts) > _MOST_ROWS:
        lines.append(f"<div>and {len(parts) - _MOST_ROWS} more</div>")
    return f'<div class="cudakit"><b>{escaped(title)}</b>{"".join(lines)}</div>'


def table_html(table: Table, most: int = _MOST_ROWS) -> str:
    """Return the first `most` rows of a table as HTML."""
    heads, rows, right = table

    def line(tag: str, cells: Sequence[object]) -> str:
        sides = ("right" if column in right else "left" for column in range(len(cells)))
        shown = zip(sides, cells, strict=True)
        return "".join(f'<{tag} style="text-align: {side}">{escaped(_cell(cell))}</{tag}>' for side, cell in shown)

    lines = [line("th", heads), *(line("td", row) for row in rows[:most])]
    if len(rows) > most:
        lines.append(f'<td colspan="{len(heads)}">and {len(rows) - most} more</td>')
    return f"<table>{''.join(f'<tr>{cells}</tr>' for cells in lines)}</table>" if rows else ""


def escaped(value: object, most: int = _MOST_CHARACTERS) -> str:
    """Return a value as text for HTML, with markup escaped. A text longer than `most` characters is cut."""
    from html import escape  # for a notebook alone

    whole = str(value)
    return escape(whole if len(whole) <= most else f"{whole[: most - 1]}…")


def words(value: object) -> str:
    """Describe an argument: dtype and shape of an array, a number, the class of any other object."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape and dtype is not None:
        return f"{dtype} array {tuple(shape)}"
    return repr(value) if dtype is not None or isinstance(value, int | float | complex) else type(value).__name__


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 kernel`` and ``2 kernels``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def byte_size(size_bytes: int) -> str:
    """Return a number of bytes with a unit, such as ``1.5 MiB``."""
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _cell(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if isinstance(value, float) else str(value)


def _html(part: Part) -> str:
    if isinstance(part, Drawing):
        return part.html()
    if isinstance(part, str):
        return f'<div style="white-space: pre-line">{escaped(part, _MOST_OF_A_TEXT)}</div>'
    return table_html(part)


def _lines(part: Part) -> list[str]:
    if not isinstance(part, Table):
        return [part] if isinstance(part, str) else []
    rows = [[_cell(cell) for cell in row] for row in (part.heads, *part.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in part.right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def is_coloured(stream: TextIO) -> bool:
    """Return whether text on a stream may have colours: on a terminal, unless ``NO_COLOR`` is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def red(words: str, stream: TextIO) -> str:
    """Return words in red for a stream that is a terminal, else unchanged."""
    return f"\x1b[31m{words}\x1b[0m" if is_coloured(stream) else words
