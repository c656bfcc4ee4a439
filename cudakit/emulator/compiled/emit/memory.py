"""Loads, stores, fences, atomic operations and moves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.builder import Builder, LaneAccess, Value, X, bits_of, constant, value_of
from cudakit.emulator.compiled.emit.access import (
    SPACES,
    Access,
    Way,
    address_of,
    by_call,
    by_turns,
    gather,
    held_range,
    load_row,
    mark_of,
    new_range,
    next_lane,
    remember,
    root_of,
    scatter,
    store_row,
)
from cudakit.emulator.compiled.emit.table import by_sources, emits, flushed, nan_kept, only, varies
from cudakit.emulator.compiled.helpers import GENERIC, READ, SHARED, WRITE
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Shape
from cudakit.emulator.instructions.access import parts, space_of, type_of
from cudakit.emulator.isa.facts import is_strong
from cudakit.emulator.machine import memory
from cudakit.emulator.machine.memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WIDEST
from cudakit.emulator.ptx.program import Address, Group, Instruction, Operand, Register, Symbol

# ── loads ──


def _load_shape(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the shape of a load."""
    source = instr.operands[1]
    space = space_of(instr)
    if space == "local" or not isinstance(source, Address) or shape(source.base, "") not in (UNIFORM, None):
        return VARYING
    # A generic address may lead to the lane's own memory.
    return VARYING if space == "generic" and shape(None, "local") else UNIFORM


@emits("ld", "ldu", transfer=_load_shape)
def ld(instr: Instruction, b: Builder) -> None:
    type_name = type_of(instr)
    target, source = instr.operands[:2]
    items = parts(target)
    size, text = bits_of(type_name) // 8, b.text
    element = f"i{8 * size}"
    if type_name == "b128":
        raise Refusal(f"instruction {instr}")
    if space_of(instr) == "param":
        if isinstance(source, Address) and isinstance(source.base, Register):
            for item, value in zip(items, _by_address(b, source, size, len(items)), strict=True):
                b.write(item, type_name, value_of(value))
            return
        if not isinstance(source, Address) or not isinstance(source.base, Symbol):
            raise Refusal(f"instruction {instr}")
        start = b.context.parameter_offsets.get(source.base.name)
        if start is None:
            raise Refusal("a parameter of a function")
        for number, item in enumerate(items):
            at = text.at(b.parameters, start + source.offset + number * size)
            value = text.load(element, at, ", !invariant.load !0")
            b.write(item, type_name, Value(UNIFORM, value))
        return
    for item, value in zip(items, load(b, instr, source, size, len(items)), strict=True):
        b.write(item, type_name, value_of(value))


def _by_address(b: Builder, source: Operand, size: int, count: int) -> list[X]:
    """Write loads of `count` parameters' elements at a computed address, such as an array's; return the values.

    An address beyond the parameters stops the kernel with an error.
    """
    text, element = b.text, f"i{8 * size}"
    address = address_of(b, source)
    end = max((b.context.parameter_offsets[v.name] + v.size for v in b.function.parameters), default=0)
    span = -(-end // WIDEST) * WIDEST - size * count
    x = address.x if address.shape == UNIFORM else b.lanes(address)
    bad = text.compare("ugt", x, span)
    odd = text.binary("and", x, size * count - 1)
    bad = b.spread(text.binary("or", bad, text.compare("ne", odd, 0)))
    b.stop_where(b.among(bad), b.spread(x), LaneAccess("param", size, count, memory.READ))
    if not x.is_vector:
        at = text.at(b.parameters, x)
        return [text.load(element, text.at(at, n * size), ", align 1") for n in range(count)]
    where = text.make(f"getelementptr i8, {b.parameters}, {x}", b.vector("ptr"))
    return [gather(b, where, element, number * size) for number in range(count)]


def load(b: Builder, instr: Instruction, source: Operand, size: int, count: int, piece: int = 16) -> list[X]:
    """Write the load of `count` elements of `size` bytes; return a vector for each element.

    If all lanes read one address, an element is one value. `piece` is the most bytes that an error reports as one
    access.
    """
    text, element = b.text, f"i{8 * size}"
    access = Access(b, instr, source, size, count, READ, piece)
    strong = is_strong(instr)
    if strong:
        text.fence()

    def fast(way: Way, values: list[X]) -> list[X]:
        if way.pattern == "uniform":
            return [text.load(element, text.at(way.x, number * size), f", align {size}") for number in range(count)]
        if way.pattern == "row":
            return load_row(b, way.x, element, count, size)
        return [gather(b, way.x, element, number * size) for number in range(count)]

    loaded = access.run(fast, [])
    if strong:
        text.fence()
    return loaded


# ── stores ──


@emits("st")
def st(instr: Instruction, b: Builder) -> None:
    type_name = type_of(instr)
    target, source = instr.operands[:2]
    size = bits_of(type_name) // 8
    if type_name == "b128" or space_of(instr) == "param":
        raise Refusal(f"instruction {instr}")
    values = [b.read(item, type_name) for item in parts(source)]
    store(b, instr, target, size, [value.x if value.shape == UNIFORM else b.lanes(value) for value in values])


def store(b: Builder, instr: Instruction, target: Operand, size: int, values: list[X], piece: int = 16) -> None:
    """Write the store of elements of `size` bytes, a value or vector for each, at each lane's address in `target`.

    `piece` is the most bytes that an error reports as one access.
    """
    text = b.text
    access = Access(b, instr, target, size, len(values), WRITE, piece)

    def fast(way: Way, values: list[X]) -> list[X]:
        if way.pattern == "uniform":
            for number, value in enumerate(values):
                at = text.at(way.x, number * size)
                text.store(_last(b, value), at, f", align {size}")
        elif way.pattern == "row":
            store_row(b, way.x, [b.spread(value) for value in values], size)
        else:
            for number, value in enumerate(values):
                scatter(b, way.x, b.spread(value), number * size)
        return []

    access.run(fast, values)
    if is_strong(instr):
        text.fence()


def _last(b: Builder, value: X) -> X:
    """Return the value that the last active lane has."""
    text = b.text
    if not value.is_vector:
        return value
    lane = constant("i64", b.width - 1)
    if b.mask is not None:
        bits = b.bits(b.mask)
        high = text.call(f"llvm.ctlz.{bits.type}", bits.type, bits, X("i1", "true"))
        lane = text.binary("sub", lane, text.cast("zext", high, "i64"))
    return text.make(f"extractelement {value}, {lane}", value.element)


@emits("prefetch", "prefetchu", "discard", "applypriority")
def hint(instr: Instruction, b: Builder) -> None:
    """Write no code for cache hints: the emulator has no caches."""


@emits("membar", "fence", "griddepcontrol", "setmaxnreg", "pmevent")
def fence(instr: Instruction, b: Builder) -> None:
    b.text.fence()


# ── atomic operations: lane after lane, in their order ──

#: Operations that take a few instructions a lane.
_SHORT = frozenset({"add", "min", "max", "and", "or", "xor", "exch"})
_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas")


@emits("atom", "red", transfer=varies)
def atom(instr: Instruction, b: Builder) -> None:
    """Write an atomic operation: lane after lane, in order."""
    type_name = type_of(instr)
    operation = next((modifier for modifier in instr.modifiers if modifier in _OPERATIONS), "")
    only(
        instr, operation, "global", "shared", "relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys",
        "noftz", "shared::cta",
    )  # fmt: skip
    if type_name not in ("u32", "s32", "b32", "u64", "s64", "b64", "f32", "f64") or not operation:
        raise Refusal(f"instruction {instr}")
    if type_name in ("f32", "f64") and operation not in ("add", "exch"):
        raise Refusal(f"instruction {instr}")
    target = instr.operands[0] if instr.opcode == "atom" else None
    address, *sources = instr.operands[1:] if target is not None else instr.operands
    code = SPACES.get(space_of(instr), GENERIC)
    size = bits_of(type_name) // 8
    lane_access = LaneAccess(space_of(instr), size, 1, mark_of(instr, WRITE))
    # An address of 32 bits is a shorter call, but slower where the loop's code is in place.
    operands = [address_of(b, address, b.shares and code == SHARED), *(b.read(source, type_name) for source in sources)]
    arguments = {
        "%site": constant("i64", b.site(lane_access)),
        "%range": X("ptr", new_range(b, (root_of(b, address), code, size, WRITE))),
    } | {f"%value.{n}": value.x if value.shape == UNIFORM else b.lanes(value) for n, value in enumerate(operands)}

    def write(inner: dict[str, X]) -> list[X]:
        return _atomic(b, operation, type_name, lane_access, target is not None, inner)

    b.text.fence()
    olds = (
        by_call(b, (operation, type_name, lane_access, target is not None), arguments, write)
        if b.shares
        else write(arguments)
    )
    b.text.fence()
    if target is not None and target != Register("_"):
        b.write(target, type_name, Value(VARYING, olds[0]))


def _atomic(
    b: Builder, operation: str, type_name: str, lane_access: LaneAccess, returns: bool, arguments: dict[str, X]
) -> list[X]:
    """Write an atomic operation, lane after lane; return the vector of former values if the code `returns` them.

    `arguments` has the number of the error's site, the place of the access's range, the address and the operands.
    """
    text, size = b.text, lane_access.size
    element, code = f"i{8 * size}", SPACES.get(lane_access.space, GENERIC)
    site, range_place, where, *values = (
        arguments["%site"],
        arguments["%range"].name,
        *(b.spread(x) for name, x in arguments.items() if name.startswith("%value")),
    )
    text.store(text.cast("zext", where, "i64"), b.scratch_addresses)
    for number, value in enumerate(values):
        text.store(value, text.at(b.scratch_values, number * b.width * size))
    olds = text.at(b.scratch_values, 2 * b.width * size)
    done_label = text.fresh("done")
    is_plain = size == 4 and operation in _SHORT and type_name[0] != "f" and not b.layout.watched
    if b.mask is None and is_plain:
        _all_lanes(
            b, operation, type_name, where, range_place if code != SHARED else None, olds if returns else "", done_label
        )
    near, far, found_label = (text.fresh(stem) for stem in ("near", "far", "found"))
    loop, lane = next_lane(b, done_label)
    place = text.load("i64", text.at(b.scratch_addresses, lane, "i64"))
    outside = text.compare(
        "ugt", text.binary("sub", place, held_range(b, range_place, 0)), held_range(b, range_place, 1)
    )
    odd = text.compare("ne", text.binary("and", place, size - 1), 0)
    text.do(f"br {text.binary('or', outside, odd)}, label %{far}, label %{near}, !prof !1")
    text.label(far)
    host = text.call(
        "locate", "i64", "%ctx", site,
        text.binary("add", b.first_thread, lane),
        b.block_number, place, size, WRITE, code,
        b.local_row,
    )  # fmt: skip
    b.fail_if(text.compare("eq", host, 0))
    remember(b, range_place)
    from_far = text.here
    text.jump(found_label)
    text.label(near)
    moved = text.binary("add", place, held_range(b, range_place, 2))
    text.jump(found_label)
    text.label(found_label)
    host_pointer = text.cast("inttoptr", text.phi("i64", (host, from_far), (moved, near)), "ptr")
    old = text.load(element, host_pointer)
    given_values = []
    for number in range(len(values)):
        row = text.at(b.scratch_values, number * b.width * size)
        given_values.append(text.load(element, text.at(row, lane, element)))
    if b.layout.watched and code != SHARED:
        far_off = held_range(b, range_place, 3)
        with text.when(text.compare("ne", far_off, 0), "noting", "noted"):
            flag, pattern = (
                text.at(host_pointer, far_off),
                int.from_bytes(bytes([lane_access.mark]) * size, "little"),
            )
            text.store(text.binary("or", text.load(element, flag), pattern), flag)
    text.store(_changed(b, operation, type_name, old, given_values, code == SHARED), host_pointer)
    if returns:
        text.store(old, text.at(olds, lane, element))
    text.jump(loop)
    text.label(done_label)
    return [text.load(b.vector(element), olds, ", align 4")] if returns else []


def _all_lanes(
    b: Builder, operation: str, type_name: str, places: X, range_place: str | None, olds: str, done_label: str
) -> None:
    """Apply all lanes without a check of each, where all are inside one range (none for shared memory)."""
    text, size = b.text, bits_of(type_name) // 8
    low, span, shift = (
        (constant("i64", 0), text.binary("sub", b.shared_bytes, size), b.shared_base)
        if range_place is None
        else (held_range(b, range_place, 0), held_range(b, range_place, 1), held_range(b, range_place, 2))
    )
    # Less than 2³¹ bytes are shared: a 32-bit offset inside them has no sign.
    low, most = (text.cast("trunc", x, places.element) for x in (low, span))
    outside = text.compare("ugt", text.binary("sub", places, b.spread(low)), b.spread(most))
    odd = text.binary("and", places, size - 1)
    bad = b.any_of(text.binary("or", outside, text.compare("ne", odd, 0)))
    if range_place is None:
        # Shared memory smaller than one access has no valid address.
        bad = text.binary("or", bad, text.compare("slt", span, 0))
    straight, otherwise = text.fresh("straight"), text.fresh("otherwise")
    text.do(f"br {bad}, label %{otherwise}, label %{straight}, !prof !1")
    text.label(straight)
    base = shift if range_place is None else text.cast("inttoptr", shift, "ptr")
    element = f"i{8 * size}"
    for lane in by_turns(b, done_label):
        place = text.load("i64", text.at(b.scratch_addresses, lane, "i64"))
        host_pointer = text.at(base, place)
        own = text.load(element, text.at(b.scratch_values, lane, element))
        old = text.load(element, host_pointer)
        text.store(_changed(b, operation, type_name, old, [own], range_place is None), host_pointer)
        if olds:
            text.store(old, text.at(olds, lane, element))
    text.label(otherwise)


def _changed(b: Builder, operation: str, type_name: str, old: X, values: list[X], shared: bool) -> X:
    """Return the value that an atomic operation leaves in memory, from the value `old` and a lane's operands `values`.

    `shared` says that the memory is shared memory, whose floats keep subnormal values.
    """
    text, value = b.text, values[0]
    if operation == "cas":
        return text.select(text.compare("eq", old, value), values[1], old)
    if operation == "exch":
        return value
    if type_name == "f32":
        x, y = (text.cast("bitcast", operand, "float") for operand in (old, value))
        if not shared:  # global memory flushes subnormal numbers
            x, y = flushed(b, x), flushed(b, y)
        total = text.binary("fadd", x, y)
        total = total if shared else flushed(b, total)
        nan = text.compare("uno", total, total)
        return text.select(nan, constant("i32", 0x7FFF_FFFF), text.cast("bitcast", total, "i32"))
    if type_name == "f64":
        x, y = (text.cast("bitcast", operand, "double") for operand in (old, value))
        # Global memory keeps a NaN as it is, the lane's before memory's.
        sources = (x, y) if shared else (y, x)
        return b.untyped(nan_kept(b, text.binary("fadd", x, y), *sources, quiet=shared))
    if operation in ("add", "and", "or", "xor"):
        return text.binary(operation, old, value)
    if operation in ("min", "max"):
        name = f"llvm.{'s' if type_name[0] == 's' else 'u'}{operation}.{old.type}"
        return text.call(name, old.type, old, value)
    zero, unit = constant(old.type, 0), constant(old.type, 1)
    if operation == "inc":
        return text.select(text.compare("uge", old, value), zero, text.binary("add", old, unit))
    past = text.binary("or", text.compare("eq", old, zero), text.compare("ugt", old, value))
    return text.select(past, value, text.binary("sub", old, unit))


# ── moves, and addresses in other state spaces ──

_WINDOWS = {"shared": SHARED_WINDOW, "cluster": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


def _moved(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the shape of ``mov``."""
    target, source = instr.operands
    if isinstance(target, Group) or isinstance(source, Group) or type_of(instr) == "pred":
        return by_sources(instr, shape)
    return shape(source, type_of(instr))


@emits("mov", transfer=_moved, makes_nan=True)
def mov(instr: Instruction, b: Builder) -> None:
    type_name = type_of(instr)
    target, source = instr.operands
    text = b.text
    if type_name == "b128":
        raise Refusal(f"instruction {instr}")
    if isinstance(target, Group):
        whole = bits_of(type_name)
        part = whole // len(target.items)
        value = b.read(source, f"b{whole}")
        x = value.x if value.shape == UNIFORM else b.lanes(value)
        for number, item in enumerate(target.items):
            piece = text.binary("lshr", x, number * part)
            b.write(item, f"b{part}", value_of(text.cast("trunc", piece, f"i{part}")))
        return
    if isinstance(source, Group):
        whole = bits_of(type_name)
        part = whole // len(source.items)
        pieces = [b.read(item, f"b{part}") for item in source.items]
        alike = all(piece.shape == UNIFORM for piece in pieces)
        moved = [
            text.binary("shl", text.cast("zext", piece.x if alike else b.lanes(piece), f"i{whole}"), number * part)
            for number, piece in enumerate(pieces)
        ]
        b.write(target, f"b{whole}", value_of(reduce(partial(text.binary, "or"), moved)))
        return
    raw = isinstance(target, Register) and target.name in b.raw
    b.write(target, type_name, b.read(source, type_name, raw=raw))


def _address_shape(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the shape of ``cvta``."""
    return shape(instr.operands[1], type_of(instr))


@emits("cvta", transfer=_address_shape)
def cvta(instr: Instruction, b: Builder) -> None:
    type_name = type_of(instr)
    shift = _WINDOWS.get(space_of(instr), 0)
    if type_name != "u64" and shift:
        raise Refusal(f"instruction {instr}")
    value = b.read(instr.operands[1], type_name)
    if shift:
        opcode = "sub" if "to" in instr.modifiers else "add"
        moved = constant(value.x.type, shift)
        value = Value(value.shape, b.text.binary(opcode, value.x, moved), value.narrow)
    b.write(instr.operands[0], type_name, value)
