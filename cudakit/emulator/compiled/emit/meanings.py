"""Instructions whose meanings stand in `isa.meanings`, as IR."""

from __future__ import annotations

from typing import Any

from cudakit.emulator.compiled.builder import FLOATS, Builder, Value
from cudakit.emulator.compiled.emit.affine import TRANSFERS
from cudakit.emulator.compiled.emit.table import EMITTERS, Entry, by_sources
from cudakit.emulator.compiled.emit.words import LaneWord
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape
from cudakit.emulator.compiled.text import X
from cudakit.emulator.isa import meanings  # noqa: F401 (fills the table)
from cudakit.emulator.isa.meanings.table import KINDS, MEANINGS, SECTIONS, bound, results_of, source_kind
from cudakit.emulator.machine.decode import CARRY
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand, Register
from cudakit.errors import EmulationError


def emit(given: Instruction, b: Builder) -> None:
    """Write an instruction by its meaning: of one value where that is the same in all lanes, or of the base of a row.

    Raises
    ------
    Refusal
    """
    entry = bound(given, CARRY)
    if entry is None:
        raise Refusal(f"instruction {given}")
    meaning, form, targets, sources = entry
    values: dict[int, Value] = {}
    shapes: dict[Operand, Shape] = {}
    for number, (source, operand) in enumerate(sources):
        if source != "int":
            values[number] = (
                _carry(b) if operand is CARRY else b.read(operand, source_kind(form, source), meaning.takes_nan)
            )
            shapes[operand] = values[number].shape
    shape: Shape = UNIFORM if all(held == UNIFORM for held in shapes.values()) else VARYING
    if shape == VARYING and given.opcode in TRANSFERS and CARRY not in shapes:
        shape = TRANSFERS[given.opcode](given, lambda operand, kind="": shapes.get(operand, UNIFORM))
    words: list[Any] = []
    for number, (source, operand) in enumerate(sources):
        if source == "int":
            assert isinstance(operand, Immediate)
            words.append(operand.value)
            continue
        kind = KINDS[source_kind(form, source)]
        x = values[number].x if shape != VARYING else b.lanes(values[number])
        x = b.text.cast("bitcast", x, FLOATS[kind]) if kind in FLOATS else x
        words.append(LaneWord(b, x, kind, b.width if shape == VARYING else 1, meaning.gives_nan))
    try:
        results = results_of(meaning.function(form, *words), len(targets))
    except EmulationError as error:
        raise Refusal(f"instruction {given}: {error}") from None
    narrow = _narrow(values.values()) if isinstance(shape, Affine) and shape.of is not None else None
    for target, result in zip(targets, results, strict=True):
        if target is CARRY:
            _keep_carry(b, b.spread(result.x))
        else:
            value = Value(shape, b.untyped(result.x), narrow)
            if meaning.gives_nan and result.kind == "f32" and isinstance(target, Register) and target.name not in b.raw:
                value = b.canonical(value)  # others write it too, what no arithmetic has made
            b.write(target, result.kind, value)


def _narrow(values: Any) -> X | None:
    """What the base of an affine result was in fewer bits: that of a source, or the source itself."""
    rows = [value for value in values if isinstance(value.shape, Affine)]
    return next((value.narrow or value.x for value in rows), None)


def _carry(b: Builder) -> Value:
    return Value(VARYING, b.text.load(b.vector("i1"), b.carry()))


def _keep_carry(b: Builder, carry: X) -> None:
    flags = b.carry()
    if b.mask is not None:
        carry = b.text.select(b.mask, carry, b.text.load(carry.type, flags))
    b.text.store(carry, flags)


def _enter(opcode: str) -> None:
    of_floats = MEANINGS.get((opcode, "float"))
    makes_nan = of_floats is not None and of_floats.gives_nan
    EMITTERS[opcode] = Entry(emit, TRANSFERS.get(opcode, by_sources), makes_nan)


for _opcode in SECTIONS:
    _enter(_opcode)
