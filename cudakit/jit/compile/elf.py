"""The symbols of a cubin, which is an ELF file: what it defines, and its kernels with their parameters and bounds."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import NamedTuple

from cudakit.errors import TemplateError
from cudakit.jit.compile.launch_bounds import LaunchBounds
from cudakit.jit.compile.symbol_names import is_shared

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
#: How an ELF file of 64 bits begins.
_ELF = b"\x7fELF\x02"
_SYMBOL_TABLE = 2
_GLOBAL, _OBJECT = 1, 1
#: A section of code whose blocks have shared memory that is the system's, and its bytes in each kernel's own section.
_RESERVES, _RESERVED = ".nv.shared.reserved.0", 1024
_VARIABLES = (".nv.global", ".nv.constant3")
#: What a symbol of a kernel has in ``st_other``.
_ENTRY = 0x10
#: Attributes in ``.nv.info``: a parameter's ordinal, offset and size; a kernel's stack and registers; each with a value
#: of as many bytes as are told.
_PARAMETER, _STACK, _REGISTERS, _SIZED = 0x17, 0x12, 0x2F, 4
#: Those that PTX has as directives: each of no number, or of some.
_BOUNDS = {
    0x05: "maxntid", 0x10: "reqntid", 0x3D: "reqnctapercluster", 0x3E: "explicitcluster", 0x3F: "maxclusterrank",
    0x5B: "blocksareclusters",
}  # fmt: skip


class Symbol(NamedTuple):
    """A symbol that a cubin defines.

    Attributes
    ----------
    name : str
        As the compiler mangled it.
    section : str
        Where it lies: ``.text.…``, ``.nv.global``, ``.nv.constant3`` …
    size : int
        Bytes.
    shared : bool
        Whether other code that it is linked with sees it, and may define no other one.
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
    """Say of what cannot be read that it is damaged."""
    try:
        yield
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise TemplateError(f"the cubin is damaged ({error})") from error


@_reading()
def symbols(cubin: bytes) -> list[Symbol]:
    """All symbols that a cubin defines.

    Raises
    ------
    TemplateError
        If it is damaged.
    """
    sections = _sections(cubin)
    found = []
    for _, header in sections:
        if header[1] != _SYMBOL_TABLE:
            continue
        texts = sections[header[6]][1]
        for name, info, other, index, _, size in _SYMBOL.iter_unpack(_content(cubin, header)):
            if 0 < index < len(sections) and name:
                text, section = _text(cubin, texts[4] + name), sections[index][0]
                variable = info & 15 == _OBJECT and section.startswith(_VARIABLES)
                found.append(Symbol(text, section, size, info >> 4 == _GLOBAL, bool(other & _ENTRY), variable))
    return found


def variables_of(code: bytes) -> tuple[str, ...]:
    """Names of the variables that the kernels of a cubin share, as the compiler gave them; none of other code."""
    if code[:5] != _ELF:
        return ()
    return tuple(symbol.name for symbol in symbols(code) if symbol.variable and is_shared(symbol.name))


def is_executable(cubin: bytes) -> bool:
    """Whether a cubin has been linked: ``e_type`` is not ``ET_REL``."""
    return cubin[16:18] != b"\x01\0"


@_reading()
def arch(cubin: bytes) -> int:
    """The compute capability that a cubin is for, as in 90; errors are those of `symbols`."""
    (flags,) = struct.unpack_from("<I", cubin, 48)
    # The byte that has it has moved with the ABI.
    return int(flags >> 8 & 0xFF if cubin[7] == 0x41 else flags & 0xFF)


class Resources(NamedTuple):
    """What a kernel uses: a thread's registers, its stack, to which registers are spilled, a block's shared memory.

    Shared memory is the static one, without the system's part: as ptxas counts it.
    """

    registers: int
    stack_bytes: int
    shared_bytes: int


@_reading()
def resources(cubin: bytes, kernel: str) -> Resources:
    """What a kernel uses, by its mangled name; errors are those of `symbols`."""
    sections = _sections(cubin)
    info = b"".join(_content(cubin, header) for name, header in sections if name == ".nv.info")
    names: list[str] = []
    for _, header in sections:
        if header[1] == _SYMBOL_TABLE:
            texts = sections[header[6]][1]
            names = [_text(cubin, texts[4] + row[0]) for row in _SYMBOL.iter_unpack(_content(cubin, header))]
    found = dict.fromkeys((_REGISTERS, _STACK), 0)
    for attribute, value in _attributes(info):
        if attribute in found and len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            if symbol < len(names) and names[symbol] == kernel:
                found[attribute] = number
    # Where the system has a part of a block's shared memory, it comes first.
    reserved = _RESERVED if any(name == _RESERVES for name, _ in sections) else 0
    shared = sum(header[5] - reserved for name, header in sections if name == f".nv.shared.{kernel}")
    return Resources(found[_REGISTERS], found[_STACK], shared)


@_reading()
def parameter_sizes(cubin: bytes, kernel: str) -> tuple[int, ...]:
    """Bytes of each parameter of a kernel, by its mangled name; errors are those of `symbols`."""
    content = next((_content(cubin, header) for name, header in _sections(cubin) if name == f".nv.info.{kernel}"), b"")
    return tuple(size for _, size in sorted(_parameters(content)))


@_reading()
def launch_bounds(code: bytes, kernel: str) -> LaunchBounds:
    """The bounds of a kernel's launches, by its mangled name; none in other code. Errors are those of `symbols`."""
    if code[:5] != _ELF:
        return LaunchBounds()
    content = next((_content(code, header) for name, header in _sections(code) if name == f".nv.info.{kernel}"), b"")
    return LaunchBounds.of(
        {
            _BOUNDS[attribute]: struct.unpack(f"<{len(value) // 4}I", value[: len(value) // 4 * 4])
            for attribute, value in _attributes(content)
            if attribute in _BOUNDS
        }
    )


def _parameters(info: bytes) -> Iterator[tuple[int, int]]:
    """Ordinal and size of each parameter that a kernel's ``.nv.info`` tells of."""
    for attribute, value in _attributes(info):
        if attribute == _PARAMETER:
            _, ordinal, _, flags = struct.unpack("<IHHI", value)
            yield ordinal, flags >> 18


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """Attributes and their values; those of a number that lies in the head have no bytes."""
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
