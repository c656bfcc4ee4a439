"""PTX programs as records: functions, instructions with resolved labels, variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class Register:
    """A register, by a name unique within its function; an undeclared register is a special one."""

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
    """An address operand, ``[base + offset]``, with the offset in bytes; for tensor copies also the coordinates."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Several operands as one: ``{a, b}`` (vector), ``(a, b)`` (arguments), ``d|p`` (pair).

    A modified operand is a group too: ``!p`` (not), ``-a`` (negative), or a part of a register such as ``a.b0`` (b0).
    The field `notation` has the word that stands in brackets here.
    """

    notation: str
    items: tuple[Operand, ...]


Operand: TypeAlias = Register | Immediate | Symbol | Address | Group


def _leaves(operand: Operand) -> Iterator[Operand]:
    """Yield an operand that has no parts, or the parts of an address or a group."""
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


def registers_in(operand: Operand) -> Iterable[Register]:
    """Return the registers in an operand, also in its addresses and groups."""
    if isinstance(operand, Register):
        return (operand,)
    return () if isinstance(operand, Immediate) else [leaf for leaf in _leaves(operand) if isinstance(leaf, Register)]


def symbols_in(operand: Operand) -> Iterator[Symbol]:
    """Yield the symbols in an operand, also in its addresses and groups."""
    return (leaf for leaf in _leaves(operand) if isinstance(leaf, Symbol))


class Source(NamedTuple):
    """A line of CUDA C++, and the line where it was inlined, if it was."""

    file: str
    line: int
    caller: Source | None = None

    def __str__(self) -> str:
        return self.shown(as_compiled)

    def chain(self) -> list[Source]:
        """Return the line and the lines where it is inlined, the innermost first."""
        chain, source = [self], self.caller
        while source is not None:
            chain.append(source)
            source = source.caller
        return chain

    def own(self) -> Source:
        """Return the innermost line in the kernel's file, not in a header."""
        chain = self.chain()
        return next(source for source in chain if source.file == chain[-1].file)

    def shown(self, placed: Callable[[str, int], str]) -> str:
        """Return the line as text for a message, with the outermost line where it was inlined.

        `placed` returns the text for a file and line of the compiler.
        """
        place = placed(self.file, self.line)
        # The levels between this line and the kernel's own are a library's.
        outermost = self.caller
        while outermost is not None and outermost.caller is not None:
            outermost = outermost.caller
        return place if outermost is None else f"{place}, inlined at {placed(outermost.file, outermost.line)}"


def as_compiled(file: str, line: int) -> str:
    """Return ``file:line`` as the compiler has it."""
    return f"{file}:{line}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """A PTX instruction.

    Attributes
    ----------
    opcode : str
        First part of the name, such as ``add``.
    modifiers : tuple of str
        Other parts of the name, such as ``("rn", "ftz", "f32")``.
    operands : tuple
        Operands in order.
    guard : (Register, bool) or None
        Predicate of the guard, and whether it is negated; None without a guard.
    line : int
        Number of the line in the PTX text.
    source : Source or None
        Line in the CUDA C++ source, if line information was compiled in.
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
    """An initialiser of `width` bytes that holds the address of `symbol`, or the bits of it under `mask`.

    The bits are shifted down by the mask's lowest bit. `line` is the number of the line in the PTX.
    """

    symbol: Symbol
    width: int
    line: int
    mask: int = 2**64 - 1

    def to_bytes(self, address: int) -> bytes:
        """Return the initialiser's bytes, lowest first; `address` is the symbol's address without its offset."""
        low = self.mask & -self.mask
        value = ((address + self.symbol.offset) & self.mask) // low
        return int.to_bytes(value & ((1 << 8 * self.width) - 1), self.width, "little")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter: state space, element type (``b32``), size and alignment in bytes, initial content."""

    name: str
    space: str
    type: str
    size: int
    align: int
    extern: bool = False
    data: tuple[tuple[int, bytes | Pointer], ...] = ()


@dataclass(slots=True)
class Function:
    """A kernel (entry) or a device function.

    `registers` has types by name, and `labels` the index in `code` of the instruction behind each label.
    `branch_targets` has the labels of each branch table, and `directives` the numbers of each directive, such as
    ``maxntid``.
    """

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
    """A program of one or more PTX modules: target, variables and functions by name, and digest of the text."""

    target: str
    variables: dict[str, Variable]
    functions: dict[str, Function]
    digest: str = ""
