"""What messages call places in shared memory: ``tile[3][5]`` where the source tells the array's extents."""

from __future__ import annotations

import re

import numpy as np

from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import plain

_EXTENT = re.compile(r"\s*\[([^\]]*)\]")


def in_shared(launch: Launch, offset: int, size: int) -> str:
    """Where `size` bytes at an offset in shared memory are."""
    symbols = launch.shared.offsets
    before = [(start, each) for each, start in symbols.items() if start <= offset]
    if not before:
        return f"byte {offset} of shared memory"
    start, symbol = max(before)
    name, offset = plain(symbol), offset - start
    extents = _extents(launch.source[1], name, symbol)
    held = next((f.variables[symbol] for f in launch.module.functions if symbol in f.variables), None)
    variable = launch.module.program.variables.get(symbol) or held
    total = variable.size if variable is not None else 0
    if not extents:
        # One number, or of a struct, a vector or a union some bytes.
        is_whole = extents is not None and total <= size
        return f"{name if is_whole else f'byte {offset} of {name}'} in shared memory"
    inner = [int(each) for each in extents[1:] if each is not None]
    if len(inner) < len(extents) - 1:
        inner, extents = [], extents[:1]
    if extents[0] is not None and total:
        size = max(1, total // int(np.prod([extents[0], *inner])))
    number, indices = offset // size, list[int]()
    for extent in reversed(inner):
        number, last = divmod(number, extent)
        indices.insert(0, last)
    return f"{name}{''.join(f'[{each}]' for each in (number, *indices))} in shared memory"


def _extents(text: str, name: str, symbol: str) -> list[int | None] | None:
    """Extents of a shared variable as the source declares it, None where they cannot be told; none of a single one."""
    declared = rf"__shared__\b[^;{{}}()]*?[\s*&,>]{re.escape(name)}\s*((?:\[[^\]]*\]\s*)*)\s*[;,=]"
    declaration = re.compile(declared).search(text, _begin(text, symbol)) or re.search(declared, text)
    if declaration is None:
        return None
    return [_number(text, extent) for extent in _EXTENT.findall(declaration[1])]


def _begin(text: str, symbol: str) -> int:
    """Where the function begins that a variable is in: others of the text may have one of that name."""
    length = re.match(r"_ZZ(\d+)", symbol)
    if length is None:
        return 0
    function = re.escape(symbol[length.end() : length.end() + int(length[1])])
    return max((head.start() for head in re.finditer(rf"\b{function}\s*\([^;{{}}]*\{{", text)), default=0)


def _number(text: str, given: str) -> int | None:
    """The value of an extent: of numbers, constants with one value in the text, and ``+ - *``."""

    def value(match: re.Match[str]) -> str:
        values = set(re.findall(rf"\b{match[0]}\b\s*=?\s*\(?(\d+)\b", text))
        return values.pop() if len(values) == 1 else "?"

    words = re.sub(r"[A-Za-z_]\w*", value, given)
    if re.fullmatch(r"\s*\d+(\s*[-+*]\s*\d+)*\s*", words) is None:
        return None
    total = 0
    for sign, product in re.findall(r"(^|[-+])\s*(\d+(?:\s*\*\s*\d+)*)", words.strip()):
        total += (-1 if sign == "-" else 1) * int(np.prod([int(each) for each in product.split("*")]))
    return total if total > 0 else None
