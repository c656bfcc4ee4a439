"""What ends a kernel with an error, and the instructions by which lanes of a warp talk to each other."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.barriers import come
from cudakit.emulator.compiled.builder import Builder, Value, bits_of
from cudakit.emulator.compiled.emit.common import intrinsic, type_of
from cudakit.emulator.compiled.emit.lanes import gather
from cudakit.emulator.compiled.emit.table import emits, uniform, varies
from cudakit.emulator.compiled.layout import Slot
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Shape
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.ptx.program import Group, Instruction, Operand, Register


@emits("trap")
def trap(given: Instruction, b: Builder) -> None:
    b.stop_where(b.all_lanes(), b.iota("i64", 0))


@emits("call", transfer=varies)
def call(given: Instruction, b: Builder) -> None:
    """What the system gives a kernel: called back, with the arguments of all lanes."""
    text, (results, *sources) = b.text, given.operands
    (target,) = results.items  # type: ignore[union-attr]
    for number, source in enumerate(sources):
        bits = bits_of(b.function.registers[source.name])  # type: ignore[union-attr]
        x = text.cast("zext", b.lanes(b.read(source, f"b{bits}")), "i64")
        text.store(x, text.at(b.scratch_values, constant("i64", number * b.width * 8)).name)
    mask = b.bits(b.all_lanes())
    mask = text.cast("zext", mask, "i64") if b.width < 64 else mask
    back = text.load("ptr", b.slot(Slot.CALL))
    arguments = ", ".join(
        map(
            str,
            (
                X("ptr", "%ctx"),
                constant("i64", b.site()),
                b.first_thread,
                b.block_number,
                mask,
                X("ptr", b.scratch_values),
            ),
        )
    )
    failed = text.make(f"call i64 {back.name}({arguments})", "i64")
    b.fail_if(text.compare("ne", failed, constant("i64", 0)))
    if target != Register("_"):
        result = text.load(b.vector("i64"), b.scratch_values, ", align 8")
        bits = bits_of(b.function.registers[target.name])  # type: ignore[union-attr]
        b.write(target, f"b{bits}", Value(VARYING, text.cast("trunc", result, f"i{bits}")))


# ── lanes of a warp ──


@emits("activemask", transfer=uniform)
def activemask(given: Instruction, b: Builder) -> None:
    b.write(given.operands[0], "b32", Value(UNIFORM, b.bits(b.all_lanes())))


@emits("bar.warp", "barrier.warp")
def warp_barrier(given: Instruction, b: Builder) -> None:
    b.text.do('fence syncscope("singlethread") seq_cst')


def _pair(target: Operand) -> tuple[Operand, Operand | None]:
    if isinstance(target, Group) and target.kind == "pair":
        return target.items[0], target.items[1]
    return target, None


def _members(given: Instruction, b: Builder, mask: Operand | None) -> X:
    """The lanes that take part, as bits: those of the mask that are here; for each lane, where masks may differ."""
    here = b.bits(b.all_lanes())
    if mask is None or (b.known(mask) or 0) & 0xFFFF_FFFF == 0xFFFF_FFFF:
        return here
    value = b.read(mask, "b32")
    if value.shape == UNIFORM:
        return b.text.binary("and", here, value.x)
    return b.text.binary("and", b.spread(here), b.lanes(value))


def _of_members(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    """The same for all lanes that name the same lanes."""
    return UNIFORM if "sync" not in given.modifiers or shape(given.operands[-1]) in (UNIFORM, None) else VARYING


def _shape_of(x: X) -> Shape:
    return VARYING if x.is_vector else UNIFORM


@emits("shfl", transfer=varies)
def shfl(given: Instruction, b: Builder) -> None:
    target, source, by, clamp, *rest = given.operands
    mode = next(m for m in given.modifiers if m in ("up", "down", "bfly", "idx"))
    text = b.text
    to, inside_to = _pair(target)
    members = _members(given, b, rest[0] if rest else None)
    value = b.lanes(b.read(source, "b32"))
    steps, clamps = b.known(by), b.known(clamp)
    if steps is not None and clamps is not None:
        places = [_source(lane, mode, steps & 31, clamps) for lane in range(b.width)]
        order = f"<{b.width} x i32> <{', '.join(f'i32 {place}' for place, _ in places)}>"
        moved = _ordered(b, value, order)
        if members.is_vector:
            items = ", ".join(f"i32 {place}" for place, _ in places)
            part = _takes_part(b, members, X(members.type, f"<{items}>"))
        else:
            part = _ordered(b, b.from_bits(members), order)
        inside = X(b.vector("i1"), f"<{', '.join('i1 ' + ('true' if fits else 'false') for _, fits in places)}>")
    else:
        at, inside = _places(b, mode, b.lanes(b.read(by, "b32")), b.lanes(b.read(clamp, "b32")))
        moved = _permuted(b, value, at)
        part = _takes_part(b, b.spread(members), at)
    # What a lane reads that takes no part is undefined; zero here, so that runs are alike.
    b.write(to, "b32", Value(VARYING, text.select(part, moved, constant(value.type, 0))))
    if inside_to is not None:
        b.write(inside_to, "pred", Value(VARYING, inside))


def _takes_part(b: Builder, members: X, at: X) -> X:
    """Whether the lane that each reads from is among its members."""
    bit = b.text.binary("and", b.text.binary("lshr", members, at), constant(at.type, 1))
    return b.text.compare("ne", bit, constant(at.type, 0))


def _source(lane: int, mode: str, distance: int, clamp: int) -> tuple[int, bool]:
    """The lane that one reads from, and whether it is within bounds; `_places` of what is known."""
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
    """The lanes that each reads from, and whether they are within bounds."""
    text = b.text
    lane = b.lanes(b.special("laneid"))
    distance = text.binary("and", by, constant(lane.type, 31))
    low = text.binary("and", clamp, constant(lane.type, 31))
    segment = text.binary("and", text.binary("lshr", clamp, constant(lane.type, 8)), constant(lane.type, 31))
    free = text.binary("xor", segment, constant(lane.type, -1))
    kept = text.binary("and", lane, segment)
    most = text.binary("or", kept, text.binary("and", low, free))
    if mode == "up":
        at = text.binary("sub", lane, distance)
        inside = text.compare("sge", at, most)
    else:
        if mode == "idx":
            at = text.binary("or", kept, text.binary("and", distance, free))
        else:
            at = text.binary("add" if mode == "down" else "xor", lane, distance)
        inside = text.compare("sle", at, most)
    return text.select(inside, at, lane), inside


def _ordered(b: Builder, value: X, order: str) -> X:
    """The values of other lanes, in an order that is known."""
    return b.text.make(f"shufflevector {value}, {value.type} poison, {order}", value.type)


def _permuted(b: Builder, value: X, at: X) -> X:
    """The values of other lanes, by their numbers."""
    text = b.text
    text.store(value, b.scratch_values)
    base = X("ptr", b.scratch_values)
    wide = text.cast("zext", text.binary("and", at, constant(at.type, b.width - 1)), "i64")
    pointers = text.make(f"getelementptr i32, {base}, {wide}", f"<{b.width} x ptr>")
    held, b.mask = b.mask, None
    found = gather(b, pointers, "i32", 0)
    b.mask = held
    return found


@emits("vote", transfer=_of_members)
def vote(given: Instruction, b: Builder) -> None:
    target, predicate, *rest = given.operands
    mode = next(m for m in given.modifiers if m in ("all", "any", "uni", "ballot"))
    text = b.text
    members = _members(given, b, rest[0] if rest else None)
    held = b.bits(b.lanes(b.read(predicate, "pred")))
    held = text.binary("and", b.spread(held) if members.is_vector else held, members)
    if mode == "ballot":
        b.write(target, "b32", Value(_shape_of(held), held))
        return
    zero = constant(held.type, 0)
    every = text.compare("eq", held, members)
    found = {
        "any": lambda: text.compare("ne", held, zero),
        "all": lambda: every,
        "uni": lambda: text.binary("or", every, text.compare("eq", held, zero)),
    }[mode]()
    b.write(target, "pred", Value(_shape_of(found), found))


@emits("elect", transfer=varies)
def elect(given: Instruction, b: Builder) -> None:
    """The lowest lane of those that are named."""
    target, mask = given.operands
    to, chosen_to = _pair(target)
    text = b.text
    members = b.spread(_members(given, b, mask))
    lowest = text.call(f"llvm.cttz.v{b.width}i32", members.type, members, X("i1", "false"))
    b.write(to, "b32", Value(VARYING, lowest))
    if chosen_to is not None:
        b.write(chosen_to, "pred", Value(VARYING, text.compare("eq", lowest, b.lanes(b.special("laneid")))))


@emits("bar.arrive", "barrier.arrive", "barrier.cta.arrive")
def arrive(given: Instruction, b: Builder) -> None:
    """Come to a barrier, and go on."""
    if b.mask is not None:
        raise Refusal(f"instruction {given} where lanes part")
    come(b, given)


@emits("redux", transfer=_of_members)
def redux(given: Instruction, b: Builder) -> None:
    target, source, mask = given.operands
    kind = type_of(given)
    operation = next(m for m in given.modifiers if m in ("add", "min", "max", "and", "or", "xor"))
    if kind not in ("u32", "s32", "b32"):
        raise Refusal(f"instruction {given}")
    text = b.text
    members = _members(given, b, mask)
    value = b.lanes(b.read(source, kind))
    signed = kind[0] == "s"
    name = operation if operation not in ("min", "max") else f"{'s' if signed else 'u'}{operation}"
    none = constant(
        value.type,
        {"add": 0, "or": 0, "xor": 0, "and": -1, "umin": -1, "umax": 0, "smin": 0x7FFF_FFFF, "smax": 0x8000_0000}[name],
    )
    if not members.is_vector:
        chosen = text.select(b.from_bits(members), value, none)
        found = text.call(f"llvm.vector.reduce.{name}.v{b.width}i32", "i32", chosen)
        b.write(target, kind, Value(UNIFORM, found))
        return
    found = none
    for lane in range(b.width):
        one = b.spread(text.make(f"extractelement {value}, i64 {lane}", value.element))
        one = text.select(_takes_part(b, members, constant(value.type, lane)), one, none)
        found = intrinsic(b, name, found, one) if name[1:] in ("min", "max") else text.binary(name, found, one)
    b.write(target, kind, Value(VARYING, found))


@emits("match", transfer=varies)
def match(given: Instruction, b: Builder) -> None:
    target, source, mask = given.operands
    kind = type_of(given)
    text = b.text
    members = b.spread(_members(given, b, mask))
    value = b.lanes(b.read(source, kind))
    if "all" in given.modifiers:
        to, same_to = _pair(target)
        lowest = text.call(f"llvm.cttz.v{b.width}i32", members.type, members, X("i1", "false"))
        first = _permuted(b, text.cast("trunc", value, "i32"), lowest)
        if bits_of(kind) == 64:
            high = text.cast("trunc", text.binary("lshr", value, constant(value.type, 32)), "i32")
            high = text.cast("zext", _permuted(b, high, lowest), "i64")
            first = text.binary(
                "or", text.cast("zext", first, "i64"), text.binary("shl", high, constant(high.type, 32))
            )
        held = b.spread(b.bits(text.compare("eq", value, first)))
        same = text.compare("eq", text.binary("and", held, members), members)
        b.write(to, "b32", Value(VARYING, text.select(same, members, constant(members.type, 0))))
        if same_to is not None:
            b.write(same_to, "pred", Value(VARYING, same))
        return
    found = constant(b.vector("i32"), 0)
    # Lane after lane: those that hold what it holds.
    for lane in range(b.width):
        one = text.make(f"extractelement {value}, i64 {lane}", value.element)
        same = b.bits(text.compare("eq", value, b.spread(one)))
        found = text.make(f"insertelement {found}, {same}, i64 {lane}", found.type)
    b.write(target, "b32", Value(VARYING, text.binary("and", found, members)))
