"""The variables of a cubin: the objects in its symbol table that lie in global or constant memory (ELF-64)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from cudakit.jit.compile.demangle import is_shared

_SYMBOLS, _OBJECT = 2, 1


class _Section(NamedTuple):
    name: int
    kind: int
    offset: int
    size: int
    link: int


def variables_of(cubin: bytes) -> tuple[str, ...]:
    """Names of the variables that a module's kernels share, as the compiler gave them; none where it is no ELF file."""
    if cubin[:5] != b"\x7fELF\x02":
        return ()
    table, size, count, names_at = *struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<3H", cubin, 0x3A)
    sections = []
    for number in range(count):
        name, kind, _, _, offset, length, link = struct.unpack_from("<IIQQQQI", cubin, table + number * size)
        sections.append(_Section(name, kind, offset, length, link))

    def text(strings: _Section, offset: int) -> str:
        start = strings.offset + offset
        return cubin[start : cubin.index(b"\0", start)].decode()

    titles = [text(sections[names_at], section.name) for section in sections]
    found = []
    for section in (each for each in sections if each.kind == _SYMBOLS):
        for place in range(section.offset, section.offset + section.size, 24):
            name, info, _, where = struct.unpack_from("<IBBH", cubin, place)
            if info & 15 == _OBJECT and where < count and titles[where].startswith((".nv.global", ".nv.constant3")):
                found.append(text(sections[section.link], name))
    return tuple(name for name in found if is_shared(name))
