"""Barriers, warp collectives, and products of small matrices.

A barrier may be for a part of the block. For each barrier, a block keeps the arrived threads and the count of
completions. A waiting vector continues once its barrier has completed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.builder import Builder, Value, X, bits_of, constant, value_of
from cudakit.emulator.compiled.emit.access import gather
from cudakit.emulator.compiled.emit.memory import load
from cudakit.emulator.compiled.emit.table import emits, intrinsic, nan_kept, uniform, varies
from cudakit.emulator.compiled.emit.words import narrowed, odd_float, widened
from cudakit.emulator.compiled.layout import Slot
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Shape
from cudakit.emulator.instructions.access import parts, space_of, type_of
from cudakit.emulator.instructions.matrix import Fragment, a_fragment, b_fragment, c_fragment, shape_of, types_of
from cudakit.emulator.isa.facts import facts_of
from cudakit.emulator.ptx.program import Group, Immediate, Instruction, Operand, Register

#: Barriers of a block.
_BARRIERS = 16


def barrier_of(instr: Instruction) -> int | None:
    """Return the number of an instruction's barrier; None if the number is in a register."""
    operands = _barrier_operands(instr)
    if not operands:
        return 0
    return operands[0].value if isinstance(operands[0], Immediate) else None


def is_counted(instr: Instruction) -> bool:
    """Return whether an instruction names the number of threads of its barrier."""
    return len(_barrier_operands(instr)) > 1


def _barrier_operands(instr: Instruction) -> tuple[Operand, ...]:
    """Return the operands that name a barrier and its number of threads."""
    return instr.operands[1:-1] if "red" in instr.modifiers else instr.operands


def begin_barriers(b: Builder) -> None:
    """Write code that resets the arrived threads and the completions of all barriers of a block to 0."""
    size = constant("i64", 16 * _BARRIERS)
    b.text.run("llvm.memset.p0.i64", b.slot(Slot.BARRIERS), X("i8", "0"), size, X("i1", "false"))


def barrier_turn(b: Builder, instr: Instruction) -> str:
    """Return the address of a barrier's count of completions."""
    number = barrier_of(instr)
    assert number is not None
    return b.slot(Slot.BARRIERS + 2 * number + 1)


def arrive_at_barrier(b: Builder, instr: Instruction) -> tuple[X, X]:
    """Write the arrival of a vector at a barrier.

    Return the completions before the arrival, and the truth that the barrier is complete now.
    """
    count = b.constant_value(_barrier_operands(instr)[1])
    number = barrier_of(instr)
    if "red" in instr.modifiers or number is None or number >= _BARRIERS or count is None or count % 32:
        raise Refusal(f"instruction {instr} with its operands")
    if b.width != 32 and not b.layout.full:
        raise Refusal(f"instruction {instr} in a block of no whole vectors")
    text, at = b.text, barrier_turn(b, instr)
    before = text.load("i64", at)
    arrived = b.slot(Slot.BARRIERS + 2 * number)
    now = text.binary("add", text.load("i64", arrived), b.width)
    met = text.compare("uge", now, count)
    text.store(text.select(met, constant("i64", 0), now), arrived)
    text.store(text.binary("add", before, text.cast("zext", met, "i64")), at)
    return before, met


# ── instructions that end a kernel with an error ──


@emits("trap")
def trap(instr: Instruction, b: Builder) -> None:
    b.stop_where(b.all_lanes(), b.iota("i64", 0))


@emits("call", transfer=varies)
def call(instr: Instruction, b: Builder) -> None:
    """Write a call back of a system function, with the arguments of all lanes."""
    text, (results, *sources) = b.text, instr.operands
    (target,) = results.items  # type: ignore[union-attr]
    for number, source in enumerate(sources):
        bits = bits_of(b.function.registers[source.name])  # type: ignore[union-attr]
        x = text.cast("zext", b.lanes(b.read(source, f"b{bits}")), "i64")
        text.store(x, text.at(b.scratch_values, number * b.width * 8))
    b.call_back(b.lane_bits(), b.scratch_values)
    if target != Register("_"):
        result = text.load(b.vector("i64"), b.scratch_values, ", align 8")
        bits = bits_of(b.function.registers[target.name])  # type: ignore[union-attr]
        b.write(target, f"b{bits}", Value(VARYING, text.cast("trunc", result, f"i{bits}")))


# ── lanes of a warp ──


@emits("activemask", transfer=uniform)
def activemask(instr: Instruction, b: Builder) -> None:
    b.write(instr.operands[0], "b32", Value(UNIFORM, b.bits(b.all_lanes())))


@emits("bar.warp", "barrier.warp")
def warp_barrier(instr: Instruction, b: Builder) -> None:
    b.text.fence()


def _pair(target: Operand) -> tuple[Operand, Operand | None]:
    """Return both parts of ``d|p``, or ``d`` and None."""
    if isinstance(target, Group) and target.notation == "pair":
        return target.items[0], target.items[1]
    return target, None


def exchanged(instr: Instruction) -> tuple[Operand, str] | None:
    """Return the operand whose value the lanes of a collective exchange, and its type; None if they exchange none."""
    if facts_of(instr).does == "converges" or len(instr.operands) < 3:
        return None
    return instr.operands[1], "pred" if instr.opcode == "vote" else type_of(instr)


def _exchanged(instr: Instruction, b: Builder) -> X:
    """Return the value that each lane of a collective exchanges, also of lanes that come from elsewhere."""
    operand = exchanged(instr)
    assert operand is not None
    value = b.lanes(b.read(*operand))
    if b.elsewhere is None or b.elsewhere.lanes is None:
        return value
    lanes = b.from_bits(b.elsewhere.lanes)
    return b.text.select(lanes, b.text.load(value.type, b.elsewhere.values(value.type)), value)


def _members(instr: Instruction, b: Builder, mask: Operand | None) -> X:
    """Return the active lanes in a member mask, as bits; all active lanes without a mask.

    Lanes that come from elsewhere are active too. The result is a vector with bits for each lane if the lanes' masks
    may differ.
    """
    active = b.bits(b.all_lanes())
    if b.elsewhere is not None and b.elsewhere.lanes is not None:
        active = b.text.binary("or", active, b.elsewhere.lanes)
    if mask is None or (b.constant_value(mask) or 0) & 0xFFFF_FFFF == 0xFFFF_FFFF:
        return active
    value = b.read(mask, "b32")
    if value.shape == UNIFORM:
        return b.text.binary("and", active, value.x)
    return b.text.binary("and", b.spread(active), b.lanes(value))


def _of_members(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the uniform shape if all lanes name the same member mask, else the varying shape."""
    return UNIFORM if "sync" not in instr.modifiers or shape(instr.operands[-1]) in (UNIFORM, None) else VARYING


@emits("shfl", transfer=varies)
def shfl(instr: Instruction, b: Builder) -> None:
    target, _, by, clamp, *rest = instr.operands
    mode = next(m for m in instr.modifiers if m in ("up", "down", "bfly", "idx"))
    text = b.text
    to, inside_to = _pair(target)
    members = _members(instr, b, rest[0] if rest else None)
    value = _exchanged(instr, b)
    steps, clamps = b.constant_value(by), b.constant_value(clamp)
    if steps is not None and clamps is not None:
        places, fits = zip(*(_source(lane, mode, steps & 31, clamps) for lane in range(b.width)), strict=True)
        moved = text.shuffled(value, places)
        if members.is_vector:
            part = _takes_part(b, members, b.lane_constants("i32", places))
        else:
            part = text.shuffled(b.from_bits(members), places)
        inside = b.lane_constants("i1", fits)
    else:
        at, inside = _places(b, mode, b.lanes(b.read(by, "b32")), b.lanes(b.read(clamp, "b32")))
        moved = _permuted(b, value, at)
        part = _takes_part(b, b.spread(members), at)
    # A lane that reads from a non-member gets an undefined value: zero here, so that runs are equal.
    b.write(to, "b32", Value(VARYING, text.select(part, moved, constant(value.type, 0))))
    if inside_to is not None:
        b.write(inside_to, "pred", Value(VARYING, inside))


def _takes_part(b: Builder, members: X, at: X) -> X:
    """Return, for each lane, whether lane number `at` is in the bits `members`."""
    bit = b.text.binary("and", b.text.binary("lshr", members, at), 1)
    return b.text.compare("ne", bit, 0)


def _source(lane: int, mode: str, distance: int, clamp: int) -> tuple[int, bool]:
    """Return the lane that a lane reads from in a shuffle, and whether that lane is in range; for constant operands."""
    low, segment = clamp & 31, clamp >> 8 & 31
    most = lane & segment | low & ~segment
    at = {
        "up": lane - distance,
        "down": lane + distance,
        "bfly": lane ^ distance,
        "idx": lane & segment | distance & ~segment,
    }[mode]
    fits = at >= most if mode == "up" else at <= most
    return (at if fits else lane), fits


def _places(b: Builder, mode: str, by: X, clamp: X) -> tuple[X, X]:
    """Return the lane that each lane reads from in a shuffle, and a flag for each: whether that lane is in range."""
    text = b.text
    lane = b.lanes(b.special("laneid"))
    distance = text.binary("and", by, 31)
    low = text.binary("and", clamp, 31)
    segment = text.binary("and", text.binary("lshr", clamp, 8), 31)
    free = text.binary("xor", segment, -1)
    segment_bits = text.binary("and", lane, segment)
    most = text.binary("or", segment_bits, text.binary("and", low, free))
    if mode == "up":
        at = text.binary("sub", lane, distance)
        inside = text.compare("sge", at, most)
    else:
        if mode == "idx":
            at = text.binary("or", segment_bits, text.binary("and", distance, free))
        else:
            at = text.binary("add" if mode == "down" else "xor", lane, distance)
        inside = text.compare("sle", at, most)
    return text.select(inside, at, lane), inside


def _permuted(b: Builder, value: X, at: X) -> X:
    """Return a vector in which each lane has the 32-bit value of the lane that `at` numbers for it."""
    text = b.text
    text.store(value, b.scratch_values)
    base = X("ptr", b.scratch_values)
    wide = text.cast("zext", text.binary("and", at, b.width - 1), "i64")
    pointers = text.make(f"getelementptr i32, {base}, {wide}", f"<{b.width} x ptr>")
    mask, b.mask = b.mask, None
    values = gather(b, pointers, "i32", 0)
    b.mask = mask
    return values


@emits("vote", transfer=_of_members)
def vote(instr: Instruction, b: Builder) -> None:
    target, predicate, *rest = instr.operands
    mode = next(m for m in instr.modifiers if m in ("all", "any", "uni", "ballot"))
    text = b.text
    members = _members(instr, b, rest[0] if rest else None)
    # The form without a member mask is of older archs, whose lanes exchange values at one place alone.
    bits = b.bits(_exchanged(instr, b) if rest else b.lanes(b.read(predicate, "pred")))
    bits = text.binary("and", b.spread(bits) if members.is_vector else bits, members)
    if mode == "ballot":
        b.write(target, "b32", value_of(bits))
        return
    zero = constant(bits.type, 0)
    every = text.compare("eq", bits, members)
    truth = {
        "any": lambda: text.compare("ne", bits, zero),
        "all": lambda: every,
        "uni": lambda: text.binary("or", every, text.compare("eq", bits, zero)),
    }[mode]()
    b.write(target, "pred", value_of(truth))


@emits("elect", transfer=varies)
def elect(instr: Instruction, b: Builder) -> None:
    """Write the election of the lowest lane in the member mask."""
    target, mask = instr.operands
    to, chosen_to = _pair(target)
    text = b.text
    members = b.spread(_members(instr, b, mask))
    lowest = text.call(f"llvm.cttz.v{b.width}i32", members.type, members, X("i1", "false"))
    b.write(to, "b32", Value(VARYING, lowest))
    if chosen_to is not None:
        b.write(chosen_to, "pred", Value(VARYING, text.compare("eq", lowest, b.lanes(b.special("laneid")))))


@emits("bar.arrive", "barrier.arrive", "barrier.cta.arrive")
def arrive(instr: Instruction, b: Builder) -> None:
    """Write an arrival at a barrier, without a wait."""
    if b.mask is not None:
        raise Refusal(f"instruction {instr} where lanes part")
    arrive_at_barrier(b, instr)


@emits("redux", transfer=_of_members)
def redux(instr: Instruction, b: Builder) -> None:
    target, _, mask = instr.operands
    type_name = type_of(instr)
    operation = next(m for m in instr.modifiers if m in ("add", "min", "max", "and", "or", "xor"))
    if type_name not in ("u32", "s32", "b32"):
        raise Refusal(f"instruction {instr}")
    text = b.text
    members = _members(instr, b, mask)
    value = _exchanged(instr, b)
    signed = type_name[0] == "s"
    name = operation if operation not in ("min", "max") else f"{'s' if signed else 'u'}{operation}"
    none = constant(
        value.type,
        {"add": 0, "or": 0, "xor": 0, "and": -1, "umin": -1, "umax": 0, "smin": 0x7FFF_FFFF, "smax": 0x8000_0000}[name],
    )
    if not members.is_vector:
        chosen = text.select(b.from_bits(members), value, none)
        total = text.call(f"llvm.vector.reduce.{name}.v{b.width}i32", "i32", chosen)
        b.write(target, type_name, Value(UNIFORM, total))
        return
    total = none
    for lane in range(b.width):
        lane_value = b.spread(text.make(f"extractelement {value}, i64 {lane}", value.element))
        lane_value = text.select(_takes_part(b, members, constant(value.type, lane)), lane_value, none)
        total = (
            intrinsic(b, name, total, lane_value)
            if name[1:] in ("min", "max")
            else text.binary(name, total, lane_value)
        )
    b.write(target, type_name, Value(VARYING, total))


@emits("match", transfer=varies)
def match(instr: Instruction, b: Builder) -> None:
    target, _, mask = instr.operands
    type_name = type_of(instr)
    text = b.text
    members = b.spread(_members(instr, b, mask))
    value = _exchanged(instr, b)
    if "all" in instr.modifiers:
        to, same_to = _pair(target)
        lowest = text.call(f"llvm.cttz.v{b.width}i32", members.type, members, X("i1", "false"))
        first = _permuted(b, text.cast("trunc", value, "i32"), lowest)
        if bits_of(type_name) == 64:
            high = text.cast("trunc", text.binary("lshr", value, 32), "i32")
            high = text.cast("zext", _permuted(b, high, lowest), "i64")
            first = text.binary("or", text.cast("zext", first, "i64"), text.binary("shl", high, 32))
        equal = b.spread(b.bits(text.compare("eq", value, first)))
        all_equal = text.compare("eq", text.binary("and", equal, members), members)
        b.write(to, "b32", Value(VARYING, text.select(all_equal, members, constant(members.type, 0))))
        if same_to is not None:
            b.write(same_to, "pred", Value(VARYING, all_equal))
        return
    result = constant(b.vector("i32"), 0)
    # For each lane, the lanes with an equal value.
    for lane in range(b.width):
        lane_value = text.make(f"extractelement {value}, i64 {lane}", value.element)
        all_equal = b.bits(text.compare("eq", value, b.spread(lane_value)))
        result = text.make(f"insertelement {result}, {all_equal}, i64 {lane}", result.type)
    b.write(target, "b32", Value(VARYING, text.binary("and", result, members)))


# ── small matrices in the registers of a warp: loads from shared memory, and products ──
# `instructions.matrix` has the places of the elements. An element reaches the lane that needs it by a shuffle with
# constant places. Sums go with k going up; sums of floats are in float64, rounded once.

_WARP = 32
_HALVES = ("f16", "bf16")
_BYTES = ("s8", "u8")
_FLOATS = (*_HALVES, "tf32")


def _whole_warp(b: Builder) -> None:
    """Write code that stops with an error if lanes of the warp are missing; later code runs for all lanes."""
    if b.mask is not None:
        text, bits = b.text, b.bits(b.mask)
        active_count = text.call("llvm.ctpop.i32", "i32", bits)
        whole = text.compare("eq", bits, -1)
        some = text.select(b.spread(whole), constant(b.mask.type, 0), b.mask)
        b.stop_where(some, b.spread(text.cast("zext", active_count, "i64")))
        b.mask = None


@emits("ldmatrix", transfer=varies)
def ldmatrix(instr: Instruction, b: Builder) -> None:
    """Load matrices of 8 × 8 halves: a lane names a row of 16 bytes and gets two halves."""
    target, source = instr.operands
    items, text = parts(target), b.text
    if space_of(instr) != "shared" or "m8n8" not in instr.modifiers or "b16" not in instr.modifiers:
        raise Refusal(f"instruction {instr}")
    _whole_warp(b)
    if len(items) < 4:
        b.mask = b.lane_constants("i1", (lane < 8 * len(items) for lane in range(_WARP)))
    words = [b.spread(word) for word in load(b, replace(instr, modifiers=("shared", "b32")), source, 4, 4, 8)]
    b.mask = None
    lane = np.arange(_WARP)
    group, member = lane // 4, lane % 4

    def picked(row: np.ndarray, word: np.ndarray) -> X:
        """Return word `word` of row `row` of the matrices, for each lane."""
        low, high = (text.shuffled(words[at], row + _WARP * (word & 1), words[at + 1]) for at in (0, 2))
        return text.shuffled(low, lane + _WARP * (word >> 1), high)

    for number, item in enumerate(items):
        first = 8 * number
        if "trans" not in instr.modifiers:
            b.write(item, "b32", Value(VARYING, picked(first + group, member)))
            continue
        shift = b.lane_constants("i32", (16 * (int(place) & 1) for place in group))
        both = []
        for part in (0, 1):
            word = text.binary("lshr", picked(first + 2 * member + part, group // 2), shift)
            both.append(text.binary("and", word, 0xFFFF))
        high = text.binary("shl", both[1], 16)
        b.write(item, "b32", Value(VARYING, text.binary("or", both[0], high)))


@emits("mma", transfer=varies)
def mma(instr: Instruction, b: Builder) -> None:
    types = types_of(instr.modifiers)
    to, type_name, other, of_c = types
    m, n, k = shape_of(instr.modifiers)
    supported = {"sync", "aligned", "row", "col", f"m{m}n{n}k{k}", *types}
    layouts = [modifier for modifier in instr.modifiers if modifier in ("row", "col")]
    if layouts != ["row", "col"] or (type_name == "f16" and m == 8) or not supported.issuperset(instr.modifiers):
        raise Refusal(f"instruction {instr}")
    if type_name not in ("f64", *_FLOATS, *_BYTES) or other not in (
        type_name,
        *(_BYTES if type_name in _BYTES else ()),
    ):
        raise Refusal(f"instruction {instr}")
    _whole_warp(b)
    text = b.text
    target, first, second, addend = instr.operands
    rows = _Matrix(b, first, type_name, a_fragment(m, k, type_name))
    columns = _Matrix(b, second, other, b_fragment(k, n, other))
    fragment = c_fragment(m, n)
    start = _elements(b, addend, of_c)
    results = []
    for number, places in enumerate(fragment.places.T):
        row, column = places // n, places % n
        start_value = start[number]
        if type_name in _BYTES or type_name == "f64":
            total = start_value
        else:
            total, start_value = constant(b.vector("double"), 0), text.cast("fpext", start_value, "double")
        for step in range(k):
            x, y = rows.at(row * k + step), columns.at(step * n + column)
            if type_name in _BYTES:
                total = text.binary("add", total, text.binary("mul", x, y))
                continue
            before, total = total, intrinsic(b, "fma", x, y, total)
            if type_name == "f64":
                total = nan_kept(b, total, y, before, x)
        results.append(total if type_name in _BYTES or type_name == "f64" else text.binary("fadd", total, start_value))
    for item, value in zip(parts(target), _packed(b, results, to), strict=True):
        b.write(item, "b64" if to == "f64" else "b32", Value(VARYING, value))


class _Matrix:
    """A factor of a product: its elements by number, one a lane, in float64 or 32 bits."""

    def __init__(self, b: Builder, operand: Operand, type_name: str, fragment: Fragment) -> None:
        self._b, self._fragment = b, fragment
        self._registers = _elements(b, operand, type_name)
        self._shuffled: dict[bytes, X] = {}

    def at(self, numbers: np.ndarray) -> X:
        """Return the elements with these numbers, one a lane."""
        key = numbers.tobytes()
        if key not in self._shuffled:
            lane, element = np.divmod(self._fragment.sources[numbers], len(self._registers))
            if (element != element[0]).any():
                raise Refusal("a matrix whose elements are spread over registers in another way")
            register = self._registers[int(element[0])]
            moved = self._b.text.shuffled(register, lane, register)
            self._shuffled[key] = self._b.text.cast("fpext", moved, "double") if register.element == "float" else moved
        return self._shuffled[key]


def _elements(b: Builder, operand: Operand, type_name: str) -> list[X]:
    """Return the elements of a fragment's registers in order, a vector over the lanes each.

    They are float32 for halves and tf32, float64, or 32-bit integers.
    """
    text, elements = b.text, list[X]()
    for item in parts(operand):
        word = b.lanes(b.read(item, "b64" if type_name == "f64" else "b32"))
        if type_name in _HALVES:
            for shift in (0, 16):
                half = text.cast("trunc", text.binary("lshr", word, shift), "i16")
                elements.append(widened(b, half, type_name))
        elif type_name in _BYTES:
            for byte in range(4):
                high = text.binary("shl", word, 24 - 8 * byte)
                elements.append(text.binary("ashr" if type_name == "s8" else "lshr", high, 24))
        elif type_name == "tf32":
            elements.append(text.cast("bitcast", text.binary("and", word, 0xFFFFE000), "float"))
        else:
            elements.append(
                text.cast("bitcast", word, "double" if type_name == "f64" else "float") if type_name != "s32" else word
            )
    return elements


def _packed(b: Builder, results: list[X], to: str) -> list[X]:
    """Return results of a matrix product as the integers that registers of the type `to` hold, two halves in one."""
    text = b.text
    if to == "s32":
        return results
    if to == "f64":
        return [b.untyped(result) for result in results]
    if to == "f32":
        rounded = [text.cast("fptrunc", result, "float") for result in results]
        nan = constant(b.vector("i32"), 0x7FFF_FFFF)
        return [text.select(text.compare("uno", value, value), nan, b.untyped(value)) for value in rounded]
    halves = [text.cast("zext", narrowed(b, odd_float(b, result), to), "i32") for result in results]
    shifted = [text.binary("shl", high, 16) for high in halves[1::2]]
    return [text.binary("or", low, high) for low, high in zip(halves[::2], shifted, strict=True)]
