"""Words of lanes, the algebra in which meanings of instructions are written, and the table of meanings.

Each back-end provides the operations on words. A meaning computes each lane's result from the same lane's operands.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from cudakit.emulator.ptx.program import Group, Instruction, Operand

#: Types of words: integers, floats, truths. Half precision is its raw bits, and only converted.
INTEGERS: Final = {f"{sign}{bits}": bits for sign in "us" for bits in (8, 16, 32, 64)}
BITS: Final = {**INTEGERS, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "pred": 1}

Number: TypeAlias = "Word | int"


def _with(name: str, type_name: str = "") -> Callable[[Word, Number], Word]:
    """Return the `Word` method for the operation `name` with another word or an integer.

    An integer is a constant of the same type. `type_name` is the type of the result; empty for the word's own.
    """
    return lambda word, other: word.do(name, type_name or word.type_name, word.of(other))


def _alone(name: str) -> Callable[[Word], Word]:
    """Return the `Word` method for the operation `name` without other operands; the result has the word's type."""
    return lambda word: word.do(name, word.type_name)


class Word(ABC):
    """The values of all lanes, of one type. Operators are PTX's; integers wrap around.

    Shifts are total: a shift by the width or more leaves zero or the sign. A Python integer stands for a constant; for
    floats it is the constant's bits.

    Parameters
    ----------
    type_name : str
        A type of PTX without the ``b`` types, which are ``u``.
    """

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    # ── provided by a back-end ──

    @abstractmethod
    def do(self, name: str, type_name: str, *others: Any) -> Word:
        """Return the result, of type `type_name`, of an operation on this word and others.

        `others` are words of the same back-end, and integers. The operations are:

        - ``add sub mul and or xor not neg abs min max shl shr`` (total), ``eq ne lt le gt ge``, ``choose``, ``to``,
          ``view``;
        - ``clz popc brev``;
        - ``fshl fshr``: upper or lower word of this word and a lower one, shifted by an amount modulo the width;
        - ``mulhi``: upper half of a product;
        - ``div rem``: towards zero; undefined for a divisor of zero;
        - ``flush canonical``: of float32;
        - ``fma sqrt rint trunc floor ceil``: of floats; ``nan_from``;
        - ``directed``: of float64, by the names of an operation and of a rounding mode;
        - on pieces ``split join part pick repeat``.
        """

    @abstractmethod
    def constant(self, value: int, type_name: str) -> Word:
        """Return a word of type `type_name` that is the same in all lanes; `value` has its bits."""

    @property
    @abstractmethod
    def constant_value(self) -> int | None:
        """Integer that the word is in all lanes, or None if the word is not known to be a constant integer."""

    # ── types ──

    @property
    def bits(self) -> int:
        """Number of bits of the word's type."""
        return BITS[self.type_name]

    @property
    def signed(self) -> bool:
        """True for signed integers."""
        return self.type_name[0] == "s"

    def to(self, type_name: str) -> Word:
        """Convert the value to another type: cut, extended by its sign, rounded to nearest, or saturated."""
        return self if type_name == self.type_name else self.do("to", type_name)

    def view(self, type_name: str) -> Word:
        """Reinterpret the bits as another type of the same width."""
        return self if type_name == self.type_name else self.do("view", type_name)

    def of(self, value: Number, type_name: str = "") -> Word:
        """Return a word unchanged, or an integer's bits as a constant of `type_name`, by default this word's type."""
        return value if isinstance(value, Word) else self.constant(value, type_name or self.type_name)

    def constant_of(self, value: float) -> Word:
        """Return a constant of this word's floating-point type, from its value."""
        code = "<d" if self.type_name == "f64" else "<f"
        return self.constant(int.from_bytes(struct.pack(code, value), "little"), self.type_name)

    # ── arithmetic and logic ──

    __add__, __sub__, __mul__ = _with("add"), _with("sub"), _with("mul")
    __and__, __or__, __xor__ = _with("and"), _with("or"), _with("xor")
    min, max = _with("min"), _with("max")
    __invert__, __neg__, __abs__ = _alone("not"), _alone("neg"), _alone("abs")

    def __rsub__(self, other: int) -> Word:
        return self.of(other) - self

    def __lshift__(self, by: Number) -> Word:
        return self._shifted("shl", by)

    def __rshift__(self, by: Number) -> Word:
        return self._shifted("shr", by)

    def _shifted(self, name: str, by: Number) -> Word:
        """Return the word shifted by the operation `name`: ``shl`` or ``shr``.

        `by` is an unsigned amount: an integer, or a word of 32 bits or of this word's type.
        """
        by = self.of(by, self.type_name)
        if by.constant_value is None or by.constant_value < self.bits:
            return self.do(name, self.type_name, by)
        return self.do(name, self.type_name, self.of(self.bits - 1)) if name == "shr" and self.signed else self.of(0)

    def nan_from(self, *sources: Word) -> Word:
        """Return this float64, with each NaN given the payload of the sources' NaN; the first NaN source counts."""
        return self.do("nan_from", self.type_name, *sources)

    # ── comparisons ──

    eq, ne = _with("eq", "pred"), _with("ne", "pred")
    __lt__, __le__, __gt__, __ge__ = (_with(name, "pred") for name in ("lt", "le", "gt", "ge"))

    def test(self, name: str, other: Number) -> Word:
        """Return the truth of the comparison `name`, such as ``lt``, in each lane.

        With a NaN all comparisons but ``ne`` are false.
        """
        return self.do(name, "pred", self.of(other))

    def choose(self, first: Number, second: Number, type_name: str = "") -> Word:
        """Return the first word if this truth holds, else the second; two constants need `type_name`."""
        type_name = (
            type_name
            or (first.type_name if isinstance(first, Word) else "")
            or (second.type_name if isinstance(second, Word) else "")
        )
        return self.do("choose", type_name, self.of(first, type_name), self.of(second, type_name))

    # ── bits ──

    def zeros(self) -> Word:
        """Return the number of zero bits above the highest one bit."""
        return self.do("clz", "u32")

    # ── pieces of a word ──

    def split(self, type_name: str) -> Word:
        """Split into pieces of a narrower type, lowest first; operations then apply to all pieces of all lanes."""
        return self.do("split", type_name, self.bits // BITS[type_name])

    def join(self, type_name: str) -> Word:
        """Join pieces to a wider word."""
        return self.do("join", type_name, BITS[type_name] // self.bits)

    def part(self, number: int, count: int) -> Word:
        """Return piece `number` of a word in `count` pieces."""
        return self.do("part", self.type_name, number, count)

    def pick(self, other: Word, places: tuple[int, ...]) -> Word:
        """Return the pieces that `places` number: each lane's own pieces come first, then the other word's."""
        return self.do("pick", self.type_name, other, places)

    def repeat(self, count: int) -> Word:
        """Repeat the value for each of `count` pieces."""
        return self.do("repeat", self.type_name, count)


def bounds(signed: bool, bits: int) -> tuple[int, int]:
    """Return the least and the greatest integer of a type."""
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def low_ones(count: Word, bits: int) -> Word:
    """Return a mask of the `count` low bits in a word of `bits`."""
    return ~(count.constant(-1, f"u{bits}") << count)


# ── the table of meanings ──

#: function(form, *words) → the result, or results for the parts of the first operand and for the carry.
Function: TypeAlias = Callable[..., Any]

#: PTX's names for types, and the words that hold them.
WORD_TYPES: Final = {
    **{name: name for name in BITS},
    **{f"b{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "u16x2": "u32", "s16x2": "u32", "tf32": "u32", "e4m3x2": "u16", "e5m2x2": "u16",
    "f16": "u16", "bf16": "u16", "f16x2": "u32", "bf16x2": "u32",
}  # fmt: skip
HALVES: Final = frozenset({"f16", "bf16", "f16x2", "bf16x2"})


def _selected(operand: Operand) -> tuple[Operand, str]:
    """Return an operand's register and the selector of its part, empty for the whole."""
    part = ""
    while isinstance(operand, Group) and (operand.notation == "negative" or operand.notation[1:].isdigit()):
        part += operand.notation
        operand = operand.items[0]
    return operand, part


class Form:
    """Opcode and modifiers of an instruction, as meanings read them.

    Attributes
    ----------
    types : tuple of str
        Types among the modifiers, in order.
    name : str
        The last of the types, by PTX's name.
    word_type : str
        Type of the word that holds a value of the type `name`.
    parts : tuple of str
        Selector of each operand, such as ``b0``. ``negative`` stands before the selector of an operand with a minus.
    """

    def __init__(self, opcode: str, modifiers: tuple[str, ...], parts: tuple[str, ...]) -> None:
        self.opcode: str = opcode
        self.modifiers: tuple[str, ...] = modifiers
        self.parts: tuple[str, ...] = parts
        self.types: tuple[str, ...] = tuple(modifier for modifier in modifiers if modifier in WORD_TYPES)
        self.name: str = self.types[-1] if self.types else ""
        self.word_type: str = WORD_TYPES.get(self.name, "")
        self.bits: int = BITS.get(self.word_type, 0)
        self.signed: bool = self.name[:1] == "s"

    @property
    def mode(self) -> str:
        """Rounding mode of a float result; to nearest if the instruction names no mode."""
        return next((modifier for modifier in self.modifiers if modifier in ("rz", "rm", "rp")), "rn")

    def has(self, modifier: str) -> bool:
        """Return whether the form has a modifier."""
        return modifier in self.modifiers

    @property
    def family(self) -> str:
        """Family of the last type: half, float or integer."""
        return "half" if self.name in HALVES else "float" if self.name in ("f32", "f64") else "integer"


class Meaning(NamedTuple):
    """Meaning of an instruction: a function of words.

    `sources` has a type for each operand after the first: a PTX type, or one of these words.

    - ``T``: the instruction's last type
    - ``U``: unsigned with the bits of ``T``
    - ``S``: unsigned with the bits of the last type but one
    - ``W``: ``T``, twice as wide with ``.wide``
    - ``int``: the value of a constant
    - ``carry``: the carry flag

    With ``=`` behind a type, a constant operand is known while the meaning is evaluated.
    """

    function: Function
    sources: tuple[str, ...]
    #: Whether results do not depend on a source's NaN payload; and whether a float32 NaN result is canonical.
    takes_nan: bool = False
    gives_nan: bool = False


#: (opcode, with modifiers where it is another instruction with them; family of its last type) → its meaning
MEANINGS: Final[dict[tuple[str, str], Meaning]] = {}
_MOST_PARTS: Final = 4


def means(*opcodes: str, sources: str, families: str = "integer", nans: str = "") -> Callable[[Function], Function]:
    """Return a decorator that enters a function into `MEANINGS` as the meaning of opcodes.

    Parameters
    ----------
    opcodes : str
        Opcodes, with modifiers for a form of its own.
    sources : str
        Types of the operands after the first, separated by spaces, as in `Meaning.sources`.
    families : str
        Families of types that the meaning is for, separated by spaces: ``integer``, ``float``, ``half``.
    nans : str
        ``takes`` if results do not depend on the payload of a source's NaN; ``gives`` if a float32 NaN result is
        canonical too.
    """

    def enter(function: Function) -> Function:
        meaning = Meaning(function, tuple(sources.split()), bool(nans), nans == "gives")
        MEANINGS.update({(opcode, family): meaning for opcode in opcodes for family in families.split()})
        return function

    return enter


@cache
def _entry(opcode: str, modifiers: tuple[str, ...], parts: tuple[str, ...]) -> tuple[Meaning, Form] | None:
    """Return the meaning of the longest opcode that fits, with the instruction's form; None if there is no meaning.

    `parts` has the selector of each operand, as in `Form.parts`. Instructions with equal arguments share one form.
    """
    form = Form(opcode, modifiers, parts)
    if not form.types:
        return None
    names = (opcode, *modifiers[:_MOST_PARTS])
    for end in range(len(names), 0, -1):
        meaning = MEANINGS.get((".".join(names[:end]), form.family))
        if meaning is not None:
            return meaning, form
    return None


class Bound(NamedTuple):
    """An instruction with its meaning: operands that it writes, and operands that it reads with their types."""

    meaning: Meaning
    form: Form
    targets: list[Operand]
    sources: list[tuple[str, Operand]]


def bound(instruction: Instruction, carry: Operand) -> Bound | None:
    """Return an instruction's operands with its meaning; None for an instruction without a meaning.

    The operand `carry` stands for the carry flag: it is a source if the meaning reads the flag, and a target with
    ``.cc``.
    """
    whole, parts = instruction.operands, ("",) * len(instruction.operands)
    if Group in map(type, whole):
        whole, parts = zip(*map(_selected, whole), strict=True)
    entry = _entry(instruction.opcode, instruction.modifiers, parts)
    if entry is None:
        return None
    meaning, form = entry
    target, *operands = whole
    targets: list[Operand] = list(target.items) if isinstance(target, Group) else [target]
    sources = list(zip(meaning.sources, operands, strict=False))
    if "carry" in meaning.sources:
        sources.append(("carry", carry))
    return Bound(meaning, form, [*targets, carry] if form.has("cc") else targets, sources)


def results_of(results: Any, count: int) -> list[Any]:
    """Return the first `count` results of a meaning as a list; a single word is a list of one."""
    return [results] if isinstance(results, Word) else list(islice(results, count))


@cache
def source_type(form: Form, source: str) -> str:
    """Return the PTX type as which an operand is read, from the entry of the operand in `Meaning.sources`."""
    source = source.removesuffix("=")
    wide = f"{form.name[0]}{2 * form.bits}" if form.has("wide") else form.word_type
    other = BITS[WORD_TYPES[form.types[-2]]] if len(form.types) > 1 else 0
    own = {"carry": "pred", "T": form.word_type, "U": f"u{form.bits}", "S": f"u{other}", "W": wide}
    return own.get(source, source)
