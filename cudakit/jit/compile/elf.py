"""Contents of a cubin, which is an ELF file: symbols, kernels, parameters, launch bounds."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping
from math import prod
from typing import Self

from cudakit.errors import TemplateError
from cudakit.records import NamedTuple

Sides = tuple[int, int, int]


class LaunchBounds(NamedTuple):
    """The bounds on a kernel's launches, as in PTX (PTX ISA 11.4, 11.7).

    Attributes
    ----------
    threads : int or None
        Maximum of threads in a block: ``__launch_bounds__``.
    block : tuple of int or None
        Block of every launch: ``__block_size__``.
    cluster : tuple of int or None
        Cluster of every launch, in blocks: ``__cluster_dims__``.
    needs_cluster : bool
        Whether a launch must name a cluster: ``__cluster_dims__`` without numbers.
    most_blocks : int or None
        Maximum of blocks in a cluster: the third number of ``__launch_bounds__``.
    counts_clusters : bool
        Whether a grid counts clusters: ``__block_size__`` with a cluster.
    """

    threads: int | None = None
    block: Sides | None = None
    cluster: Sides | None = None
    needs_cluster: bool = False
    most_blocks: int | None = None
    counts_clusters: bool = False

    @classmethod
    def of(cls, directives: Mapping[str, tuple[int, ...]]) -> Self:
        """Return the bounds that an entry's directives set, by their names without the dot."""
        threads, rank = directives.get("maxntid"), directives.get("maxclusterrank")
        cluster = _sides(directives.get("reqnctapercluster"))
        return cls(
            prod(threads) if threads else None,
            _sides(directives.get("reqntid")),
            cluster,
            "explicitcluster" in directives and cluster is None,
            rank[0] if rank else None,
            "blocksareclusters" in directives and cluster not in (None, (1, 1, 1)),
        )


def _sides(numbers: tuple[int, ...] | None) -> Sides | None:
    """Return x, y and z of a block or cluster, with 1 for numbers left out; None for no numbers, or if one is 0."""
    if not numbers or not all(numbers):
        return None
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
#: First bytes of a 64-bit ELF file.
_ELF = b"\x7fELF\x02"
_SYMBOL_TABLE = 2
_GLOBAL, _OBJECT = 1, 1
#: Section of code whose blocks have shared memory for the system, or the begin of symbols in linked code, and that
#: memory's size in each kernel's section.
_RESERVES, _RESERVES_LINKED, _RESERVED = ".nv.shared.reserved.0", ".nv.reservedSmem.", 1024
_VARIABLES = (".nv.global", ".nv.constant3")
#: Bit of a kernel's symbol in ``st_other``.
_ENTRY = 0x10
#: Attributes in ``.nv.info``: a parameter's ordinal, offset and size; a kernel's stack and registers. The last number
#: marks values with an explicit size.
_PARAMETER, _STACK, _REGISTERS, _SIZED = 0x17, 0x12, 0x2F, 4
#: Attributes that PTX has as directives.
_BOUNDS = {
    0x05: "maxntid", 0x10: "reqntid", 0x3D: "reqnctapercluster", 0x3E: "explicitcluster", 0x3F: "maxclusterrank",
    0x5B: "blocksareclusters",
}  # fmt: skip


class Symbol(NamedTuple):
    """A symbol that a cubin defines.

    Attributes
    ----------
    name : str
        Mangled name.
    section : str
        Section: ``.text.…``, ``.nv.global``, ``.nv.constant3`` …
    size : int
        Size in bytes.
    shared : bool
        Whether other linked code sees it, and may not define it too.
    kernel, variable : bool
        Whether it is a kernel, or a variable in global or constant memory.
    """

    name: str
    section: str
    size: int
    shared: bool
    kernel: bool
    variable: bool


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Report errors in the block as a damaged cubin."""
    try:
        yield
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise TemplateError(f"the cubin is damaged ({error})") from error


@_reading()
def symbols(cubin: bytes) -> list[Symbol]:
    """Return all symbols that a cubin defines.

    Raises
    ------
    TemplateError
        If the cubin is damaged.
    """
    sections = _sections(cubin)
    result = []
    for _, header in sections:
        if header[1] != _SYMBOL_TABLE:
            continue
        texts = sections[header[6]][1]
        for name, info, other, index, _, size in _SYMBOL.iter_unpack(_content(cubin, header)):
            if 0 < index < len(sections) and name:
                text, section = _text(cubin, texts[4] + name), sections[index][0]
                variable = info & 15 == _OBJECT and section.startswith(_VARIABLES)
                result.append(Symbol(text, section, size, info >> 4 == _GLOBAL, bool(other & _ENTRY), variable))
    return result


def variables_of(code: bytes) -> tuple[str, ...]:
    """Return the mangled names of the variables that the kernels of a cubin share; empty for code that is no cubin."""
    if code[:5] != _ELF:
        return ()
    names = [symbol.name for symbol in symbols(code) if symbol.variable]
    if not names:
        return ()
    from cudakit.jit.compile.mangled import is_shared  # most kernels have no variables

    return tuple(filter(is_shared, names))


def is_executable(cubin: bytes) -> bool:
    """Return whether a cubin has been linked: ``e_type`` is not ``ET_REL``."""
    return cubin[16:18] != b"\x01\0"


@_reading()
def arch(cubin: bytes) -> int:
    """Return the compute capability of a cubin, such as 90. Raises the errors of `symbols`."""
    (flags,) = struct.unpack_from("<I", cubin, 48)
    # The byte depends on the ABI version.
    return int(flags >> 8 & 0xFF if cubin[7] == 0x41 else flags & 0xFF)


class Resources(NamedTuple):
    """The resources of a kernel: registers of a thread, stack of a thread, static shared memory of a block.

    The stack holds spilled registers. Shared memory is without the system's part, as ptxas counts it.
    """

    registers: int
    stack_bytes: int
    shared_bytes: int


@_reading()
def resources(cubin: bytes, kernel: str) -> Resources:
    """Return the resources of a kernel, by its mangled name. Raises the errors of `symbols`."""
    sections = _sections(cubin)
    names: list[str] = []
    for _, header in sections:
        if header[1] == _SYMBOL_TABLE:
            texts = sections[header[6]][1]
            names = [_text(cubin, texts[4] + row[0]) for row in _SYMBOL.iter_unpack(_content(cubin, header))]
    numbers = dict.fromkeys((_REGISTERS, _STACK), 0)
    for attribute, value in _attributes(cubin, ".nv.info"):
        if attribute in numbers and len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            if symbol < len(names) and names[symbol] == kernel:
                numbers[attribute] = number
    # The system's part of the shared memory comes first.
    is_linked = any(name.startswith(_RESERVES_LINKED) for name in names)
    is_reserved = is_linked or any(name == _RESERVES for name, _ in sections)
    reserved = _RESERVED if is_reserved else 0
    shared = sum(header[5] - reserved for name, header in sections if name == f".nv.shared.{kernel}")
    return Resources(numbers[_REGISTERS], numbers[_STACK], shared)


@_reading()
def parameter_sizes(cubin: bytes, kernel: str) -> tuple[int, ...]:
    """Return the size in bytes of each parameter of a kernel, by its mangled name. Raises the errors of `symbols`."""
    attributes = _attributes(cubin, f".nv.info.{kernel}")
    rows = (struct.unpack("<IHHI", value) for attribute, value in attributes if attribute == _PARAMETER)
    return tuple(flags >> 18 for _, _, _, flags in sorted(rows, key=lambda row: row[1]))


@_reading()
def launch_bounds(code: bytes, kernel: str) -> LaunchBounds:
    """Return the bounds on a kernel's launches, by its mangled name. Raises the errors of `symbols`.

    Code that is no cubin has no bounds.
    """
    if code[:5] != _ELF:
        return LaunchBounds()
    return LaunchBounds.of(
        {
            _BOUNDS[attribute]: struct.unpack(f"<{len(value) // 4}I", value[: len(value) // 4 * 4])
            for attribute, value in _attributes(code, f".nv.info.{kernel}")
            if attribute in _BOUNDS
        }
    )


def _attributes(cubin: bytes, section: str) -> Iterator[tuple[int, bytes]]:
    """Yield the attributes in a section of a cubin, as pairs of number and value.

    The value is in bytes. It is empty if the attribute has its value in its own header.
    """
    info = b"".join(_content(cubin, header) for name, header in _sections(cubin) if name == section)
    position = 0
    while position + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, position)
        position += 4
        if form == _SIZED:
            yield attribute, info[position : position + size]
            position += size
        else:
            yield attribute, b""


def _sections(cubin: bytes) -> list[tuple[str, tuple[int, ...]]]:
    offset, size, count, names = *struct.unpack_from("<Q", cubin, 40), *struct.unpack_from("<HHH", cubin, 58)
    headers = [_SECTION.unpack_from(cubin, offset + size * number) for number in range(count)]
    return [(_text(cubin, headers[names][4] + header[0]), header) for header in headers]


def _content(cubin: bytes, header: tuple[int, ...]) -> bytes:
    return cubin[header[4] : header[4] + header[5]]


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode(errors="replace")
