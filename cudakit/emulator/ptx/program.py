"""A PTX program as records: functions of instructions with resolved labels, and the variables around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class Register:
    """A register, named uniquely within its function; one that the function does not declare is a special one."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant: an int, or the bits of a float with its width in bits (32 or 64)."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable, function or label, plus an offset in bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``, in bytes; for tensor copies the coordinates follow."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Several operands as one: ``{a, b}`` (vector), ``(a, b)`` (arguments), ``d|p`` (pair).

    Or one that is changed: ``!p`` (not), ``-a`` (negative) or a part of a register such as ``a.b0`` (b0).
    """

    notation: str
    items: tuple[Operand, ...]


Operand: TypeAlias = Register | Immediate | Symbol | Address | Group


def _leaves(operand: Operand) -> Iterator[Operand]:
    """An operand, or the parts of an address or a group."""
    match operand:
        case Address(base=base, coordinates=parts):
            parts = (base, *parts)
        case Group(items=parts):
            pass
        case _:
            yield operand
            return
    for part in parts:
        yield from _leaves(part)


def registers_in(operand: Operand) -> Iterator[Register]:
    """The registers that an operand names, parts of addresses and groups included."""
    return (leaf for leaf in _leaves(operand) if isinstance(leaf, Register))


def symbols_in(operand: Operand) -> Iterator[Symbol]:
    """The names that stand in an operand, parts of addresses and groups included."""
    return (leaf for leaf in _leaves(operand) if isinstance(leaf, Symbol))


class Source(NamedTuple):
    """A line of CUDA C++, and the line that it was inlined at."""

    file: str
    line: int
    caller: Source | None = None

    def __str__(self) -> str:
        return self.shown(as_compiled)

    def shown(self, placed: Callable[[str, int], str]) -> str:
        """The line in words, where `placed` says what a file and line of the compiler are to the user."""
        place = placed(self.file, self.line)
        # Between the line at hand and the kernel's own lie only the levels of a library.
        outermost = self.caller
        while outermost is not None and outermost.caller is not None:
            outermost = outermost.caller
        return place if outermost is None else f"{place}, inlined at {placed(outermost.file, outermost.line)}"


def as_compiled(file: str, line: int) -> str:
    """A line as the compiler knows it."""
    return f"{file}:{line}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    opcode : str
        First part of the name, such as ``add``.
    modifiers : tuple of str
        The other parts, such as ``("rn", "ftz", "f32")``.
    operands : tuple
    guard : (Register, bool) or None
        Predicate, and whether it is negated.
    line : int
        Line in the PTX text.
    source : Source or None
        Line in the CUDA C++ source, where line information was compiled in.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: tuple[Register, bool] | None
    line: int
    source: Source | None

    def __str__(self) -> str:
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Pointer:
    """An initialiser that holds an address: the bits of it under `mask`, in `width` bytes; from a `line` of the PTX."""

    symbol: Symbol
    width: int
    line: int
    mask: int = 2**64 - 1

    def to_bytes(self, address: int) -> bytes:
        """The initialiser's bytes, the symbol's `address` known."""
        low = self.mask & -self.mask
        value = ((address + self.symbol.offset) & self.mask) // low
        return int.to_bytes(value & ((1 << 8 * self.width) - 1), self.width, "little")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter: its state space, element type (``b32``), size and alignment in bytes, and content."""

    name: str
    space: str
    type: str
    size: int
    align: int
    extern: bool = False
    data: tuple[tuple[int, bytes | Pointer], ...] = ()


@dataclass(slots=True)
class Function:
    """An entry or a device function."""

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...] = ()
    returns: tuple[Variable, ...] = ()
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    is_declaration: bool = False


@dataclass(slots=True)
class Program:
    """A PTX module, and the digest of the text that it was read from."""

    target: str
    variables: dict[str, Variable]
    functions: dict[str, Function]
    digest: str = ""
