"""The table of instructions that compute each lane's result from the same lane's operands, and the meaning of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from cudakit.emulator.isa.words import BITS, Word
from cudakit.emulator.ptx.program import Group, Instruction, Operand

#: The result, or several one after the other: those of the parts of the first operand, and last the carry.
Function: TypeAlias = Callable[..., Any]

#: PTX's names for types, and the words that hold them.
KINDS: Final = {
    **{kind: kind for kind in BITS},
    **{f"b{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "u16x2": "u32", "s16x2": "u32", "tf32": "u32", "e4m3x2": "u16", "e5m2x2": "u16",
    "f16": "u16", "bf16": "u16", "f16x2": "u32", "bf16x2": "u32",
}  # fmt: skip
HALVES: Final = frozenset({"f16", "bf16", "f16x2", "bf16x2"})


def _selected(operand: Operand) -> tuple[Operand, str]:
    """A register, and which part of it an operand takes."""
    part = ""
    while isinstance(operand, Group) and (operand.kind == "negative" or operand.kind[1:].isdigit()):
        part += operand.kind
        operand = operand.items[0]
    return operand, part


class Form:
    """An instruction's opcode and modifiers, as meanings ask for them.

    Attributes
    ----------
    types : tuple of str
        Its types, in order.
    name, kind : str
        The last of them by PTX's name, and the word that holds it.
    parts : tuple of str
        For each operand its selector, such as ``b0``; after a minus with ``negative`` before it.
    """

    def __init__(self, opcode: str, modifiers: tuple[str, ...], parts: tuple[str, ...]) -> None:
        self.opcode, self.modifiers, self.parts = opcode, modifiers, parts
        self.types = tuple(modifier for modifier in modifiers if modifier in KINDS)
        self.name = self.types[-1] if self.types else ""
        self.kind = KINDS.get(self.name, "")
        self.bits, self.signed = BITS.get(self.kind, 0), self.name[:1] == "s"

    @property
    def mode(self) -> str:
        """The direction of rounding of a float result, to nearest where none is named."""
        return next((modifier for modifier in self.modifiers if modifier in ("rz", "rm", "rp")), "rn")

    def has(self, modifier: str) -> bool:
        return modifier in self.modifiers

    @property
    def family(self) -> str:
        return "half" if self.name in HALVES else "float" if self.name in ("f32", "f64") else "integer"


class Meaning(NamedTuple):
    """What an instruction means.

    `sources` has a type for each operand after the first: one of PTX's, ``T`` the instruction's last, ``U`` the bits
    of that, ``S`` those of the last but one, ``W`` the last or twice as wide with ``.wide``. ``int`` is the value of a
    constant, ``carry`` the carry flag. With ``=`` behind a type, a constant is known while the meaning is asked.
    """

    function: Function
    sources: tuple[str, ...]
    #: Whether its results are the same whatever NaN it is given; whether, too, it gives the canonical NaN of float32.
    takes_nan: bool = False
    gives_nan: bool = False


#: (opcode, with modifiers where it is another instruction with them; family of its last type) → its meaning
MEANINGS: Final[dict[tuple[str, str], Meaning]] = {}
#: opcode → sections of the PTX ISA
SECTIONS: Final[dict[str, str]] = {}
_MOST_PARTS: Final = 4


def means(*opcodes: str, sources: str, families: str = "integer", nans: str = "") -> Callable[[Function], Function]:
    """Enter a meaning into the table: each opcode with its section of the PTX ISA behind it.

    `nans` is ``takes`` or ``gives``, as `Meaning` has them.
    """

    def enter(function: Function) -> Function:
        for text in opcodes:
            opcode, section = text.split()
            SECTIONS[opcode] = ", ".join([*filter(None, [SECTIONS.get(opcode)]), section])
            for family in families.split():
                MEANINGS[opcode, family] = Meaning(function, tuple(sources.split()), bool(nans), nans == "gives")
        return function

    return enter


@cache
def _entry(opcode: str, modifiers: tuple[str, ...], parts: tuple[str, ...]) -> tuple[Meaning, Form] | None:
    """The meaning under the longest name that fits an instruction, and the one form of all that are so."""
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
    """An instruction with a meaning: operands that it writes, and those that it reads with their types."""

    meaning: Meaning
    form: Form
    targets: list[Operand]
    sources: list[tuple[str, Operand]]


def bound(instruction: Instruction, carry: Operand) -> Bound | None:
    """The operands of an instruction beside its meaning; the carry flag is the operand `carry`."""
    selected = [_selected(operand) for operand in instruction.operands]
    entry = _entry(instruction.opcode, instruction.modifiers, tuple(part for _, part in selected))
    if entry is None:
        return None
    meaning, form = entry
    target, *operands = (operand for operand, _ in selected)
    targets: list[Operand] = list(target.items) if isinstance(target, Group) else [target]
    sources = list(zip(meaning.sources, operands, strict=False))
    if "carry" in meaning.sources:
        sources.append(("carry", carry))
    return Bound(meaning, form, [*targets, carry] if form.has("cc") else targets, sources)


def results_of(made: Any, count: int) -> list[Any]:
    """The first results of a meaning: those that something is made of."""
    return [made] if isinstance(made, Word) else list(islice(made, count))


@cache
def source_kind(form: Form, source: str) -> str:
    """The type, by PTX's name, that an operand is read as."""
    source = source.removesuffix("=")
    wide = f"{form.name[0]}{2 * form.bits}" if form.has("wide") else form.kind
    other = BITS[KINDS[form.types[-2]]] if len(form.types) > 1 else 0
    own = {"carry": "pred", "T": form.kind, "U": f"u{form.bits}", "S": f"u{other}", "W": wide}
    return own.get(source, source)
