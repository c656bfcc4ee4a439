"""IR of instructions whose meanings are in `isa.meanings`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.builder import FLOATS, Builder, Value, X, bits_of, constant
from cudakit.emulator.compiled.emit.table import EMITTERS, Entry, Transfer, by_sources, emits, is_integer, varies
from cudakit.emulator.compiled.emit.words import LaneWord
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape, resized
from cudakit.emulator.isa import meanings  # noqa: F401 (fills the table)
from cudakit.emulator.isa.meanings.integers import compared
from cudakit.emulator.isa.words import INTEGERS, MEANINGS, WORD_TYPES, bound, results_of, source_type
from cudakit.emulator.machine.decode import CARRY
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand, Register
from cudakit.errors import EmulationError

# ── verdicts: comparisons of an affine value with a uniform one ──
# The first and the last lane show whether the comparison holds in all lanes, or in none. A branch that checks these
# first goes on without masks. Nearly all branches on the bounds of an array do.

#: Canonical name of each comparison, without the sign.
_BELOW = {"lt": "lt", "lo": "lt", "le": "le", "ls": "le", "gt": "gt", "hi": "gt", "ge": "ge", "hs": "ge"}


class Verdict(NamedTuple):
    """Truth of a predicate over the lanes: true in all, or in none; both false if each lane must be checked."""

    all: X
    none: X


def verdict_of(b: Builder, how: str, type_name: str, x: Value, y: Value) -> Verdict | None:
    """Return the verdict on a comparison of integers; None if neither side is affine.

    The verdict is None too if blocks have a single body, since no code without masks exists then.
    """
    if b.single:
        return None
    if isinstance(y.shape, Affine) and x.shape == UNIFORM:
        mirrored = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "lo": "hi", "hi": "lo", "ls": "hs", "hs": "ls"}
        x, y, how = y, x, mirrored.get(how, how)
    if not isinstance(x.shape, Affine) or y.shape != UNIFORM:
        return None
    text, sign = b.text, "s" if type_name[0] == "s" else "u"
    first = x.x
    last = text.binary("add", first, x.shape.stride * (b.width - 1))
    low, high = (first, last) if x.shape.stride > 0 else (last, first)
    straight = text.compare(f"{sign}le", low, high)
    valid = b.valid(x)
    if valid is not None:
        straight = text.binary("and", straight, valid)
    if how in ("eq", "ne"):
        away = text.binary("or", text.compare(f"{sign}lt", y.x, low), text.compare(f"{sign}gt", y.x, high))
        away, never = text.binary("and", straight, away), X("i1", "false")
        return Verdict(never, away) if how == "eq" else Verdict(away, never)
    test = _BELOW[how]
    opposite = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}[test]
    hardest, easiest = (high, low) if test[0] == "l" else (low, high)
    every = text.binary("and", straight, text.compare(f"{sign}{test}", hardest, y.x))
    none = text.binary("and", straight, text.compare(f"{sign}{opposite}", easiest, y.x))
    return Verdict(every, none)


def keep_verdict(b: Builder, target: Operand, verdict: Verdict | None) -> None:
    """Keep the verdict on a predicate, to the end of its block or for as long as the predicate lives."""
    if not isinstance(target, Register) or verdict is None:
        return
    if target.name not in b.verdicts:
        b.verdicts[target.name] = (b.alloca("i1", "all"), b.alloca("i1", "none"))
    for x, place in zip(verdict, b.verdicts[target.name], strict=True):
        b.text.store(x, place)
    b.known_here.add(target.name)


def held_verdict(b: Builder, operand: Operand) -> Verdict | None:
    """Return the kept verdict on a predicate, or None."""
    if not isinstance(operand, Register):
        return None
    if operand.name in b.known_here or (operand.name in b.lasting and operand.name in b.verdicts):
        return Verdict(*(b.text.load("i1", place) for place in b.verdicts[operand.name]))
    if operand.name in b.function.registers and b.shapes.shape(operand) in (UNIFORM, None):
        x = b.read(operand, "pred").x
        return Verdict(x, opposite(b, x))
    return None


def opposite(b: Builder, x: X) -> X:
    """Negate a truth."""
    return b.text.binary("xor", x, X("i1", "true"))


def joined_verdict(b: Builder, opcode: str, first: Verdict | None, other: Verdict | None) -> Verdict | None:
    """Return the verdict on two predicates under ``and`` or ``or``."""
    if first is None or other is None or opcode not in ("and", "or"):
        return None
    opposite = "or" if opcode == "and" else "and"
    return Verdict(b.text.binary(opcode, first.all, other.all), b.text.binary(opposite, first.none, other.none))


# ── affine results of affine sources ──


def _times(shape: Shape, other: object) -> Shape:
    """Return the shape of a product: affine if `shape` is and `other` is a small constant but 0, else varying."""
    if isinstance(shape, Affine) and isinstance(other, Immediate) and 0 < abs(_signed(other.value)) < 1 << 20:
        return Affine(shape.stride * _signed(other.value), shape.narrow)
    return VARYING


def _signed(value: int) -> int:
    """Return a 64-bit constant as a signed integer."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _plus(a: Shape, b: Shape, sign: int = 1) -> Shape:
    """Return the shape of a sum; with `sign` -1 of a difference."""
    if a in (None, UNIFORM) and b in (None, UNIFORM):
        return UNIFORM
    if a in (None, UNIFORM) and isinstance(b, Affine):
        return Affine(sign * b.stride, b.narrow)
    if b in (None, UNIFORM) and isinstance(a, Affine):
        return a
    if isinstance(a, Affine) and isinstance(b, Affine) and a.stride + sign * b.stride and a.narrow is None is b.narrow:
        return Affine(a.stride + sign * b.stride)
    return VARYING


def _sum_shape(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the shape of ``add`` or ``sub``."""
    type_name = instr.modifiers[-1]
    if not is_integer(type_name) or len(instr.modifiers) > 1:
        return by_sources(instr, shape)
    a, b = (shape(operand, type_name) for operand in instr.operands[1:3])
    return _plus(a, b, -1 if instr.opcode == "sub" else 1)


def _product(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the shape of the product in ``mul`` and ``mad``, in the bits of the result."""
    type_name = instr.modifiers[-1]
    a, b = instr.operands[1:3]
    x, y = shape(a, type_name), shape(b, type_name)
    if x in (None, UNIFORM) and y in (None, UNIFORM):
        return UNIFORM
    product = _times(x, b) if isinstance(x, Affine) else _times(y, a)
    if not isinstance(product, Affine) or "wide" not in instr.modifiers:
        return product
    bits = bits_of(type_name)
    whole = resized(x if isinstance(x, Affine) else y, bits, 2 * bits, type_name[0] == "s")
    return _times(whole, b if isinstance(x, Affine) else a)


def _product_shape(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the shape of ``mul`` or ``mad``."""
    type_name = instr.modifiers[-1]
    if not is_integer(type_name) or not {"hi", "sat", "cc"}.isdisjoint(instr.modifiers) or type_name.endswith("16"):
        return by_sources(instr, shape)
    product = _product(instr, shape)
    if instr.opcode == "mul":
        return product
    return _plus(product, shape(instr.operands[3], f"{type_name[0]}64" if "wide" in instr.modifiers else type_name))


def add_values(b: Builder, x: Value, y: Value) -> Value:
    """Write the addition of two integers; return the sum, which is affine if possible."""
    shape = _plus(x.shape, y.shape)
    if shape == VARYING:
        return Value(VARYING, b.text.binary("add", b.lanes(x), b.lanes(y)))
    return Value(shape, b.text.binary("add", x.x, y.x), x.narrow or y.narrow)


def _mask_shape(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the shape of ``and``."""
    _, first, second = instr.operands
    if _keeps_steps(shape(first, instr.modifiers[-1]), second):
        return UNIFORM
    return by_sources(instr, shape)


def _keeps_steps(x: Shape, mask: Operand) -> bool:
    """Return whether a mask keeps only bits that are equal in all lanes: bits below the stride."""
    if not isinstance(x, Affine) or not isinstance(mask, Immediate):
        return False
    low = mask.value & 0xFFFF_FFFF_FFFF_FFFF
    return low < 1 << 31 and low < x.stride & -x.stride


def _shift_shape(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the shape of ``shl``."""
    x, by = shape(instr.operands[1], instr.modifiers[-1]), instr.operands[2]
    if isinstance(x, Affine) and isinstance(by, Immediate) and by.value < 20 and is_integer(instr.modifiers[-1]):
        return Affine(x.stride << by.value, x.narrow)
    return by_sources(instr, shape)


def _converted(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the shape of ``cvt``."""
    out, type_name = instr.modifiers[-2:]
    source_shape = shape(instr.operands[1], type_name)
    if not isinstance(source_shape, Affine) or not {out, type_name} <= INTEGERS.keys() or "sat" in instr.modifiers:
        return by_sources(instr, shape)
    if bits_of(type_name) < 32 or bits_of(out) < 32:
        return VARYING
    return resized(source_shape, bits_of(type_name), bits_of(out), type_name[0] == "s")


#: opcode → the shape of its result, where it may be affine.
TRANSFERS: Final[dict[str, Transfer]] = {
    "add": _sum_shape, "sub": _sum_shape, "mul": _product_shape, "mad": _product_shape,
    "and": _mask_shape, "shl": _shift_shape, "cvt": _converted,
    "add.cc": varies, "addc": varies, "sub.cc": varies, "subc": varies, "madc": varies,
}  # fmt: skip


# ── meanings ──


def emit(instr: Instruction, b: Builder) -> None:
    """Write an instruction by its meaning: on one value if it is uniform, or on the base of an affine value.

    Raises
    ------
    Refusal
    """
    entry = bound(instr, CARRY)
    if entry is None:
        raise Refusal(f"instruction {instr}")
    meaning, form, targets, sources = entry
    values: dict[int, Value] = {}
    shapes: dict[Operand, Shape] = {}
    for number, (source, operand) in enumerate(sources):
        if source != "int":
            values[number] = (
                _carry(b) if operand is CARRY else b.read(operand, source_type(form, source), meaning.takes_nan)
            )
            shapes[operand] = values[number].shape
    shape: Shape = UNIFORM if all(operand_shape == UNIFORM for operand_shape in shapes.values()) else VARYING
    if shape == VARYING and instr.opcode in TRANSFERS and CARRY not in shapes:
        shape = TRANSFERS[instr.opcode](instr, lambda operand, type_name="": shapes.get(operand, UNIFORM))
    words: list[Any] = []
    for number, (source, operand) in enumerate(sources):
        if source == "int":
            assert isinstance(operand, Immediate)
            words.append(operand.value)
            continue
        type_name = WORD_TYPES[source_type(form, source)]
        x = values[number].x if shape != VARYING else b.lanes(values[number])
        x = b.text.cast("bitcast", x, FLOATS[type_name]) if type_name in FLOATS else x
        words.append(LaneWord(b, x, type_name, b.width if shape == VARYING else 1, meaning.gives_nan))
    try:
        results = results_of(meaning.function(form, *words), len(targets))
    except EmulationError as error:
        raise Refusal(f"instruction {instr}: {error}") from None
    narrow = _narrow(values.values()) if isinstance(shape, Affine) and shape.narrow is not None else None
    for target, result in zip(targets, results, strict=True):
        if target is CARRY:
            _keep_carry(b, b.spread(result.x))
        else:
            value = Value(shape, b.untyped(result.x), narrow)
            if (
                meaning.gives_nan
                and result.type_name == "f32"
                and isinstance(target, Register)
                and target.name not in b.raw
            ):
                value = b.canonical(value)  # other instructions write the register too, with any NaN
            b.write(target, result.type_name, value)


def _narrow(values: Any) -> X | None:
    """Return the base in fewer bits of the first affine value, or its base; None if no value is affine."""
    rows = [value for value in values if isinstance(value.shape, Affine)]
    return next((value.narrow or value.x for value in rows), None)


def _carry(b: Builder) -> Value:
    """Return the lanes' carry flags."""
    return Value(VARYING, b.text.load(b.vector("i1"), b.carry()))


def _keep_carry(b: Builder, carry: X) -> None:
    """Write code that stores the lanes' carry flags; inactive lanes keep theirs."""
    flags = b.carry()
    if b.mask is not None:
        carry = b.text.select(b.mask, carry, b.text.load(carry.type, flags))
    b.text.store(carry, flags)


EMITTERS.update(
    {
        opcode: Entry(
            emit,
            TRANSFERS.get(opcode, by_sources),
            (opcode, "float") in MEANINGS and MEANINGS[opcode, "float"].gives_nan,
        )
        for opcode, _ in MEANINGS
    }
)


# ── instructions on predicates ──


@emits("and", transfer=TRANSFERS["and"])
@emits("or", "xor", transfer=by_sources)
def logic(instr: Instruction, b: Builder) -> None:
    target, first, second = instr.operands
    verdict = None
    if instr.modifiers[-1] == "pred" and not b.guarded:
        verdict = joined_verdict(b, instr.opcode, held_verdict(b, first), held_verdict(b, second))
    emit(instr, b)
    keep_verdict(b, target, verdict)


@emits("setp", transfer=by_sources)
def setp(instr: Instruction, b: Builder) -> None:
    target, first, second, *rest = instr.operands
    name, type_name = instr.modifiers[0], instr.modifiers[-1]
    rows = any(isinstance(b.shapes.shape(operand), Affine) for operand in (first, second))
    if rows and is_integer(type_name) and not rest and not b.guarded and isinstance(target, Register):
        x, y = b.read(first, type_name), b.read(second, type_name)
        verdict = verdict_of(b, name, type_name, x, y)
        if verdict is not None:

            def compare() -> X:
                left, other = (LaneWord(b, b.lanes(value), WORD_TYPES[type_name], b.width) for value in (x, y))
                truth = compared(name, left, other)
                assert isinstance(truth, LaneWord)
                return truth.x

            lazy = target.name not in b.for_branch
            b.write(target, "pred", Value(VARYING, _unless(b, verdict, compare) if lazy else compare()))
            keep_verdict(b, target, verdict)
            return
    emit(instr, b)


def _unless(b: Builder, verdict: Verdict, compare: Callable[[], X]) -> X:
    """Write a comparison of all lanes, by `compare`, and return the result.

    The code skips it where the verdict is true for all lanes or for none.
    """
    text, type_ = b.text, b.vector("i1")
    lane_by_lane, other, joined = text.fresh("each"), text.fresh("other"), text.fresh("joined")
    before = text.here
    text.branch(verdict.all, joined, other)
    text.label(other)
    text.branch(verdict.none, joined, lane_by_lane)
    text.label(lane_by_lane)
    compared_lanes = compare()
    at = text.here
    text.jump(joined)
    text.label(joined)
    return text.phi(type_, (constant(type_, 1), before), (constant(type_, 0), other), (compared_lanes, at))
