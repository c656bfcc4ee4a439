"""What objects are in a notebook: small HTML without scripts, in which all that is said is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

_MOST_ROWS = 50
_MOST_CHARACTERS = 200


def shown(text: object, most: int = _MOST_CHARACTERS) -> str:
    """A text, escaped; the end of a long one is left out."""
    whole = str(text)
    return escape(whole if len(whole) <= most else f"{whole[: most - 1]}…")


def titled(title: str, *parts: str) -> str:
    """Pieces of HTML under a title."""
    return f'<div class="cudakit"><b>{shown(title)}</b>{"".join(parts)}</div>'


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """A table, of whose `count` rows the first are shown."""
    lines = [f"<tr>{_cells('th', heads)}</tr>"]
    lines += [f"<tr>{_cells('td', row)}</tr>" for row in islice(rows, _MOST_ROWS)]
    if count > _MOST_ROWS:
        lines.append(f'<tr><td colspan="{len(heads)}">and {count - _MOST_ROWS} more</td></tr>')
    return f"<table>{''.join(lines)}</table>" if count else ""


def words(value: object) -> str:
    """An argument: an array's dtype and shape, a number, the class of anything else."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape and dtype is not None:
        return f"{dtype} array {tuple(shape)}"
    return repr(value) if dtype is not None or isinstance(value, int | float | complex) else type(value).__name__


def _cells(tag: str, cells: Iterable[object]) -> str:
    return "".join(f'<{tag} style="text-align: left">{shown(cell)}</{tag}>' for cell in cells)
