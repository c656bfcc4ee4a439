"""Accesses of a vector to memory. Each access is checked: against a range that held before, else lane by lane.

The range of an access is kept with the access. If all lanes are in the range, nothing else is checked. Otherwise a
helper checks each lane, performs its access, and records an error if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.builder import (
    Builder,
    LaneAccess,
    Value,
    X,
    bits_of,
    constant,
    lanes_of,
    like,
)
from cudakit.emulator.compiled.emit.meanings import add_values
from cudakit.emulator.compiled.helpers import GENERIC, GLOBAL, NOWHERE, READ, SHARED, WRITE
from cudakit.emulator.compiled.layout import Slot
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine
from cudakit.emulator.instructions.access import space_of
from cudakit.emulator.isa.facts import is_widely_strong
from cudakit.emulator.machine import memory
from cudakit.emulator.ptx.program import Address, Instruction, Operand, Register, Symbol

# ── loads and stores once they are checked: in a row, or an address each ──


def load_row(b: Builder, pointer: X, element: str, count: int, size: int) -> list[X]:
    """Write loads of `count` elements for each lane, adjacent in memory; return a vector for each element of a lane.

    `pointer` is the first lane's address, and `size` the bytes of an element.
    """
    text, width = b.text, b.width
    if count == 1:
        type_ = b.vector(element)
        if b.mask is None:
            return [text.load(type_, pointer.name, f", align {size}")]
        if size < 4 and not b.layout.masks:
            return [gather(b, _apart(b, pointer, size), element, 0)]
        return [
            text.call(
                f"llvm.masked.load.v{width}{element}.p0",
                type_,
                pointer,
                X("i32", str(size)),
                b.mask,
                constant(type_, 0),
            )
        ]
    if _by_quarters(b, element, count):
        groups = []
        for first in range(0, width, 8):
            rows = []
            for lane in range(first, first + 4):
                halves = [
                    text.load(f"<4 x {element}>", _beyond(b, pointer, 16 * at), f", align {size}")
                    for at in (lane, lane + 4)
                ]
                rows.append(_joined(b, halves))
            groups.append(_turned(b, rows))
        return [_joined(b, group_parts) for group_parts in zip(*groups, strict=True)]
    whole = text.load(f"<{width * count} x {element}>", pointer.name, f", align {size}")
    return [b.text.shuffled(whole, range(number, width * count, count), whole) for number in range(count)]


def _by_quarters(b: Builder, element: str, count: int) -> bool:
    """Return whether four elements a lane are transposed by quarters of a vector.

    CPUs with masks transpose all at once.
    """
    return count == 4 and element == "i32" and b.width % 8 == 0 and not b.layout.masks


def _joined(b: Builder, parts: Sequence[X]) -> X:
    """Return the concatenation of vectors, made two by two."""
    lanes = lanes_of(parts[0].type)
    while len(parts) > 1:
        lanes *= 2
        parts = [b.text.shuffled(pair[0], range(lanes), pair[1]) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _turned(b: Builder, rows: list[X]) -> list[X]:
    """Return four vectors of eight, transposed within each half, by instructions that stay within a half."""
    low, high = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
    (a, c), (d, e) = ([b.text.shuffled(x, half, y) for half in (low, high)] for x, y in (rows[:2], rows[2:]))
    low, high = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
    return [b.text.shuffled(x, half, y) for x, y in ((a, d), (c, e)) for half in (low, high)]


def _beyond(b: Builder, pointer: X, offset: int) -> str:
    """Return the pointer `offset` bytes behind another."""
    return b.text.at(pointer, offset) if offset else pointer.name


def gather(b: Builder, pointers: X, element: str, offset: int) -> X:
    """Write a load of an element at each lane's pointer plus `offset` bytes; return the vector."""
    text, type_ = b.text, b.vector(element)
    if offset:
        pointers = text.make(f"getelementptr i8, {pointers}, {b.spread(constant('i64', offset))}", pointers.type)
    if b.layout.gathers and element in _GATHERS:
        return _by_fours(b, pointers, element)
    if not b.layout.masks:
        return _in_turns(b, pointers, element, None)
    size = int(element[1:]) // 8
    name = f"llvm.masked.gather.v{b.width}{element}.v{b.width}p0"
    return text.call(name, type_, pointers, X("i32", str(size)), b.all_lanes(), constant(type_, 0))


#: AVX2's loads from four places.
_GATHERS = {"i32": "llvm.x86.avx2.gather.q.d.256", "i64": "llvm.x86.avx2.gather.q.q.256"}


def _by_fours(b: Builder, pointers: X, element: str) -> X:
    """Write loads from four pointers at once; return the vector, with 0 for inactive lanes, which load nothing."""
    text, type_ = b.text, f"<4 x {element}>"
    places = text.cast("ptrtoint", pointers, "i64")
    taking = text.cast("sext", b.all_lanes(), element) if b.mask is not None else constant(b.vector(element), -1)
    quads = [
        text.call(
            _GATHERS[element], type_, constant(type_, 0), "null", b.text.shuffled(places, four, places),
            b.text.shuffled(taking, four, taking), X("i8", "1"),
        )
        for first in range(0, b.width, 4)
        for four in [range(first, first + 4)]
    ]  # fmt: skip
    return _joined(b, quads)


def _apart(b: Builder, pointer: X, size: int) -> X:
    """Return a vector of pointers that are `size` bytes apart, from `pointer` on."""
    return b.text.make(f"getelementptr i8, {pointer}, {b.iota('i64', size)}", b.vector("ptr"))


#: Lanes in a turn of a loop over lanes.
_AT_ONCE = 4


def _in_turns(b: Builder, pointers: X, element: str, value: X | None) -> X:
    """Write loads, or stores of `value`, lane after lane, for CPUs that cannot do them at once.

    Return the loaded vector, or `value` as it is. LLVM would write out all lanes one after the other, with a branch for
    each under a mask: long code that takes long to compile.
    """
    text = b.text
    if b.turns is None:
        b.turns = b.alloca("i64", "turns", b.width), b.alloca("i64", "nowhere", 2)
        b.starts.append(f"  store <2 x i64> zeroinitializer, ptr {b.turns[1]}")
    buffer, nowhere = b.turns
    if b.mask is not None:
        # Inactive lanes access a place that nobody reads.
        pointers = text.select(b.mask, pointers, b.spread(X("ptr", nowhere)))
    text.store(pointers, b.scratch_addresses)
    if value is not None:
        text.store(value, buffer)
    on = text.fresh("on")
    for lane in by_turns(b, on):
        place = text.load("ptr", text.at(b.scratch_addresses, lane, "ptr")).name
        own = text.at(buffer, lane, element)
        source, target = (place, own) if value is None else (own, place)
        text.store(text.load(element, source), target)
    text.label(on)
    return text.load(b.vector(element), buffer) if value is None else value


def store_row(b: Builder, pointer: X, values: list[X], size: int) -> None:
    """Write stores of a lane's elements, one of each vector in `values`, where the lanes are adjacent in memory.

    `pointer` is the first lane's address, and `size` the bytes of an element.
    """
    text, width, count = b.text, b.width, len(values)
    if count == 1:
        if b.mask is None:
            text.store(values[0], pointer.name, f", align {size}")
        elif size < 4 and not b.layout.masks:
            scatter(b, _apart(b, pointer, size), values[0], 0)
        else:
            text.run(
                f"llvm.masked.store.v{width}{values[0].element}.p0", values[0], pointer, X("i32", str(size)), b.mask
            )
        return
    element = values[0].element
    if _by_quarters(b, element, count):
        for first in range(0, width, 8):
            rows = _turned(b, [b.text.shuffled(value, range(first, first + 8), value) for value in values])
            for lane, row in enumerate(rows, first):
                for at, places in ((lane, range(4)), (lane + 4, range(4, 8))):
                    half = b.text.shuffled(row, places, row)
                    text.store(half, _beyond(b, pointer, 16 * at), f", align {size}")
        return
    whole = _joined(b, values)
    packed = b.text.shuffled(whole, [number * width + lane for lane in range(width) for number in range(count)], whole)
    text.store(packed, pointer.name, f", align {size}")


def scatter(b: Builder, pointers: X, value: X, offset: int) -> None:
    """Write a store of an element to each lane's pointer plus `offset` bytes."""
    text = b.text
    if offset:
        pointers = text.make(f"getelementptr i8, {pointers}, {b.spread(constant('i64', offset))}", pointers.type)
    size = int(value.element[1:]) // 8
    if not b.layout.masks:
        _in_turns(b, pointers, value.element, value)
        return
    name = f"llvm.masked.scatter.v{b.width}{value.element}.v{b.width}p0"
    text.run(name, value, pointers, X("i32", str(size)), b.all_lanes())


SPACES = {"global": GLOBAL, "const": GLOBAL, "shared": SHARED}


def address_of(b: Builder, operand: Operand, narrow: bool = False) -> Value:
    """Return an address in 64 bits; an offset is added in the register's own width, where it wraps around.

    With `narrow`, a vector of 32-bit addresses stays one: half the code, and gathers with 32-bit offsets.
    """
    if not isinstance(operand, Address) or operand.coordinates:
        raise Refusal("an address of another kind")
    base = operand.base
    type_name = "u64"
    if isinstance(base, Register) and bits_of(b.function.registers.get(base.name, "b64")) == 32:
        type_name = "u32"
    if b.checked is not None:
        offset = b.text.binary("add", b.checked.base, operand.offset)
        shape = b.shapes.shape(base)
        return Value(Affine(shape.stride) if isinstance(shape, Affine) else shape, offset)
    value = b.read(base, type_name)
    if operand.offset:
        value = add_values(b, value, Value(UNIFORM, constant(value.x.type, operand.offset)))
    return value if narrow and value.shape == VARYING else b.resized(value, 64, False)


@dataclass
class Way:
    """Pattern of a checked access: one address (uniform), adjacent lanes (row), or an address a lane (scattered).

    `x` is the address, the first lane's address, or the vector of addresses.
    """

    pattern: str
    x: X


#: Writer of an access once it is checked: from pattern and pointers, and values to store, to loaded values.
Fast = Callable[[Way, list[X]], list[X]]


class Access:
    """An access of a vector: its addresses, and the code that checks them."""

    def __init__(
        self, b: Builder, instr: Instruction, base: Operand, size: int, count: int, use: int, piece: int = 16
    ) -> None:
        self.b, self.instr, self.size, self.count, self.use = b, instr, size, count, use
        self.bytes = size * count
        self.space = space_of(instr)
        if self.space == "cluster":
            raise Refusal("shared memory of a cluster")
        self.code = SPACES.get(self.space, GENERIC)
        self.mark = mark_of(instr, use)
        self.lane_access = LaneAccess(self.space, size, count, self.mark, piece)
        #: Number of the access's site in a function that accesses share; None: not in one.
        self.site: X | None = None
        if self.space == "const" and use == WRITE:
            raise Refusal("a store to constant memory")
        self.address = address = address_of(b, base, self.code == SHARED)
        shape = address.shape
        alike = self.space != "generic" or not b.context.local
        if shape == UNIFORM and alike:
            self.pattern = "uniform"
        elif isinstance(shape, Affine) and shape.stride == self.bytes and (count == 1 or b.mask is None) and alike:
            self.pattern = "row"
        else:
            self.pattern = "scattered"
        if not alike or self.space == "local":
            self.address = Value(VARYING, b.lanes(address))
        #: Place of the range that the addresses are, or were, checked against.
        self.range = b.checked.range if b.checked is not None else ""
        if not self.range and self.code != SHARED and self.space != "local":
            self.range = new_range(b, (root_of(b, base), self.code, self.bytes, use))

    def run(self, fast: Fast, values: list[X]) -> list[X]:
        """Write the access: by `fast` if the check holds, else lane by lane; return the loaded values.

        `values` has the values to store, or nothing for a load. The result of a store is empty.
        """
        b = self.b
        if self.space == "local":
            return self._local(fast, values)
        if b.checked is not None:
            return self._near(fast, values)
        return self._by_call(fast, values) if b.shares else self._checked(fast, values)

    def _by_call(self, fast: Fast, values: list[X]) -> list[X]:
        """Write a call of the function that equal accesses share, and the function once; return the loaded values."""
        b, narrow = self.b, self.address.narrow
        arguments = {
            "%site": constant("i64", b.site(self.lane_access)),
            "%address": self.address.x,
            "%range": X("ptr", self.range),
            **({} if narrow is None else {"%narrow": narrow}),
            **{f"%value.{number}": value for number, value in enumerate(values)},
        }
        key = (self.pattern, self.address.shape, self.lane_access, self.code, self.use, not self.range, b.unlikely)

        def write(inner: dict[str, X]) -> list[X]:
            outer = self.address, self.range
            self.address = Value(self.address.shape, inner["%address"], inner.get("%narrow"))
            self.range, self.site = self.range and "%range", inner["%site"]
            loaded = self._checked(fast, [inner[f"%value.{number}"] for number in range(len(values))])
            self.address, self.range = outer
            return loaded

        return by_call(b, key, arguments, write)

    def _near(self, fast: Fast, values: list[X]) -> list[X]:
        """Write the access after its check; return the loaded values."""
        way = self._way()
        loaded = fast(way, values)
        if self.b.layout.watched and self.code != SHARED:
            self._note(way)
        return loaded

    def _checked(self, fast: Fast, values: list[X]) -> list[X]:
        """Write the access with its check; return the loaded values."""
        b, text = self.b, self.b.text
        if b.unlikely:
            return self._by_lanes(values)
        inside = self._inside()
        near, far, joined = (text.fresh(stem) for stem in ("near", "far", "joined"))
        text.do(f"br {inside}, label %{near}, label %{far}, !prof !2")
        text.label(near)
        near_values = self._near(fast, values)
        near = text.here
        text.jump(joined)
        text.label(far)
        slow = self._by_lanes(values)
        far = text.here
        text.jump(joined)
        text.label(joined)
        return [
            text.phi(near_value.type, (near_value, near), (other, far))
            for near_value, other in zip(near_values, slow, strict=True)
        ]

    def _way(self) -> Way:
        """Return the pattern and pointers of the access, after the check."""
        b, text = self.b, self.b.text
        x = b.lanes(self.address) if self.pattern == "scattered" else self.address.x
        if self.code == SHARED:
            return Way(self.pattern, text.make(f"getelementptr i8, ptr {b.shared_base.name}, {x}", like(x, "ptr")))
        if self.code == GENERIC:
            shift = held_range(b, self.range, 2)
            x = text.binary("add", x, b.spread(shift) if x.is_vector else shift)
        return Way(self.pattern, text.cast("inttoptr", x, "ptr"))

    def _inside(self) -> X:
        """Return the truth that all lanes are inside the range."""
        b, text = self.b, self.b.text
        shared = self.code == SHARED
        aligned = constant("i64", self.bytes - 1)
        zero = constant("i64", 0)
        if shared:
            span = text.binary("sub", b.shared_bytes, self.bytes)
            # A block with less shared memory than one access has an empty range.
            span = text.call("llvm.smax.i64", "i64", span, zero)
            enough = text.compare("uge", b.shared_bytes, self.bytes)
            low: X | None = None
        else:
            low, span = held_range(b, self.range, 0), held_range(b, self.range, 1)
            enough = None
        if self.pattern == "scattered":
            lanes = b.lanes(self.address)
            offsets = lanes if low is None else text.binary("sub", lanes, b.spread(low))
            # Less than 2³¹ bytes are shared: a 32-bit offset inside them has no sign.
            out = text.compare("ugt", offsets, b.spread(text.cast("trunc", span, lanes.element)))
            odd = text.binary("and", lanes, self.bytes - 1)
            bad = text.binary("or", out, text.compare("ne", odd, 0)) if self.bytes > 1 else out
            inside = text.compare("eq", b.bits(b.among(bad)), 0)
            return inside if enough is None else text.binary("and", inside, enough)
        first = last = self.address.x
        if self.pattern == "row":
            reach = b.width - 1
            start, end = constant("i64", 0), constant("i64", reach * self.bytes)
            if b.mask is not None:
                bits = b.bits(b.mask)
                low_bit = text.call(f"llvm.cttz.{bits.type}", bits.type, bits, X("i1", "true"))
                high_bit = text.call(f"llvm.ctlz.{bits.type}", bits.type, bits, X("i1", "true"))
                start = text.binary("mul", text.cast("zext", low_bit, "i64"), self.bytes)
                down = text.binary("mul", text.cast("zext", high_bit, "i64"), self.bytes)
                end = text.binary("sub", end, down)
            first, last = text.binary("add", self.address.x, start), text.binary("add", self.address.x, end)
        checks = []
        for address in (first,) if self.pattern == "uniform" else (first, last):
            offset = address if low is None else text.binary("sub", address, low)
            checks.append(text.compare("ule", offset, span))
        if self.bytes > 1:
            checks.append(text.compare("eq", text.binary("and", self.address.x, aligned), zero))
        return b.all_of([*checks, *filter(None, (b.valid(self.address), enough))])

    def _note(self, way: Way) -> None:
        """Write code that sets the flags of the accessed bytes, if they have flags."""
        b, text = self.b, self.b.text
        flags = held_range(b, self.range, 3)
        with text.when(text.compare("ne", flags, 0), "noting", "noted"):
            self._set(way, flags)

    def _set(self, way: Way, flags: X) -> None:
        """Write code that sets flags, which are `flags` bytes behind the accessed bytes."""
        b, text = self.b, self.b.text
        element = f"i{8 * self.size}"
        pattern = constant(element, int.from_bytes(bytes([self.mark]) * self.size, "little"))
        if way.pattern == "scattered":
            where = text.make(f"getelementptr i8, {way.x}, {b.spread(flags)}", way.x.type)
            for number in range(self.count):
                flag_bytes = gather(b, where, element, number * self.size)
                scatter(b, where, text.binary("or", flag_bytes, b.spread(pattern)), number * self.size)
        else:
            where = X("ptr", text.at(way.x, flags))
            if way.pattern == "row" and self.count == 1 and b.mask is not None:
                (flag_bytes,) = load_row(b, where, element, 1, self.size)
                store_row(b, where, [text.binary("or", flag_bytes, b.spread(pattern))], self.size)
            else:
                count = self.count * (b.width if way.pattern == "row" else 1)
                type_ = f"<{count} x {element}>"
                flag_bytes = text.load(type_, where.name, f", align {self.size}")
                text.store(text.binary("or", flag_bytes, int(pattern.name)), where.name, f", align {self.size}")

    def _by_lanes(self, values: list[X]) -> list[X]:
        """Write the call of a helper that performs the access lane by lane; return the loaded values."""
        b, text = self.b, self.b.text
        width, element = b.width, f"i{8 * self.size}"
        mask = b.lane_bits()
        if self.pattern == "uniform" and self.use == READ:
            # The first lane loads for all. All lanes store, and the last one's value stays.
            mask = text.binary("and", mask, text.binary("sub", constant("i64", 0), mask))
        text.store(text.cast("zext", b.lanes(self.address), "i64"), b.scratch_addresses)
        for number, value in enumerate(values):
            at = text.at(b.scratch_values, number * width * self.size)
            text.store(b.spread(value), at, ", align 1")
        failed = text.call(
            "lanes", "i1", "%ctx", self.site or b.site(self.lane_access), b.first_thread, b.block_number,
            mask, self.size, self.count, self.use,
            self.code, width, b.scratch_addresses,
            b.scratch_values, b.local_row, self.mark,
            self.range or "null",
        )  # fmt: skip
        b.fail_if(failed)
        if self.use != READ:
            return []
        results = []
        for number in range(self.count):
            at = text.at(b.scratch_values, number * width * self.size)
            if self.pattern == "uniform":
                lane = text.call("llvm.cttz.i64", "i64", mask, X("i1", "true"))
                lane = text.binary("mul", lane, self.size)
                results.append(text.load(element, text.at(at, lane), ", align 1"))
            else:
                results.append(text.load(b.vector(element), at, ", align 1"))
        return results

    def _local(self, fast: Fast, values: list[X]) -> list[X]:
        """Write an access to the lanes' own memory, rows of one length; return the loaded values."""
        b, text = self.b, self.b.text
        offsets = self.address.x
        span = constant("i64", b.local_row - self.bytes)
        bad = text.compare("ugt", offsets, b.spread(span))
        if self.bytes > 1:
            odd = text.binary("and", offsets, self.bytes - 1)
            bad = text.binary("or", bad, text.compare("ne", odd, 0))
        if b.mask is not None:
            bad = text.binary("and", bad, b.mask)
        b.stop_where(bad, offsets, self.lane_access)
        rows = text.binary("add", offsets, b.iota("i64", b.local_row))
        where = text.make(f"getelementptr i8, ptr {b.local_base.name}, {rows}", like(rows, "ptr"))
        return fast(Way("scattered", where), values)


def by_call(
    b: Builder, key: tuple[object, ...], arguments: dict[str, X], write: Callable[[dict[str, X]], list[X]]
) -> list[X]:
    """Write a call of the function that equal code shares, and the function once; return its results.

    `write` writes the function's body and returns the results. It is passed the function's parameters by the names of
    `arguments`. The types of the arguments, the mask and `key` decide the body.
    """
    arguments |= {
        "%ctx": X("ptr", "%ctx"),
        **({} if b.mask is None else {"%mask": b.bits(b.mask)}),
    }
    inner = {name: X(x.type, name) for name, x in arguments.items()}
    function = b.functions.get(whole := (key, *inner.values()))
    if function is None:
        with b.text.function(inner) as function, b.beside():
            b.mask = b.mask and b.from_bits(inner["%mask"])
            function.results += write(inner)
        b.functions[whole] = function
    # Other names are places on the kernel's stack.
    values = [arguments.get(name) or X("ptr", name) for name in function.parameters]
    *results, failed = b.text.call_parts(function, values)
    b.fail_if(failed)
    return results


def by_turns(b: Builder, done_label: str) -> Iterator[X]:
    """Write a loop over all lanes. Yield the index of each lane of one turn, one after the other.

    The caller writes the code for one lane after each yield. Several lanes share a turn. The loop ends at `done_label`.
    """
    text, turn, before = b.text, b.text.fresh("turn"), b.text.here
    text.jump(turn)
    text.label(turn)
    following = X("i64", f"%{text.fresh('lane')}")
    first = text.phi("i64", (constant("i64", 0), before), (following, turn))
    for number in range(_AT_ONCE):
        yield text.binary("add", first, number)
    text.do(f"{following.name} = add {first}, {_AT_ONCE}")
    text.branch(text.compare("ult", following, b.width), turn, done_label)


def next_lane(b: Builder, done_label: str) -> tuple[str, X]:
    """Begin a loop over the lanes of the mask; return the label that continues the loop, and the current lane's number.

    The caller writes the code for a lane and the jump to this label. After the last lane the loop jumps to
    `done_label`.
    """
    text = b.text
    left = b.left = b.left or b.alloca("i64", "left")
    text.store(b.lane_bits(), left)
    loop, body = text.fresh("lane"), text.fresh("body")
    text.jump(loop)
    text.label(loop)
    bits = text.load("i64", left)
    text.branch(text.compare("ne", bits, 0), body, done_label)
    text.label(body)
    lane = text.call("llvm.cttz.i64", "i64", bits, X("i1", "true"))
    text.store(text.binary("and", bits, text.binary("sub", bits, 1)), left)
    return loop, lane


def new_range(b: Builder, key: tuple[object, ...]) -> str:
    """Return the name of stack memory for the range that addresses were last checked against; equal keys share memory.

    The range has four words: low, span, shift and flags.
    """
    if key not in b.ranges:
        b.ranges[key] = place = b.alloca("i64", "range", 4)
        b.starts.append(f"  store <4 x i64> <i64 {NOWHERE}, i64 0, i64 0, i64 0>, ptr {place}")
    return b.ranges[key]


def held_range(b: Builder, place: str, number: int) -> X:
    """Return word `number` of a range, whose memory has the name `place`: 0 low, 1 span, 2 shift, 3 flags."""
    return b.text.load("i64", b.text.at(place, number, "i64"))


def remember(b: Builder, place: str) -> None:
    """Write code that copies the range that a helper has left in the launch's words to the memory named `place`."""
    words = b.text.load("<4 x i64>", b.slot(Slot.LOW), ", align 8")
    b.text.store(words, place)


def root_of(b: Builder, base: Operand | Register) -> object:
    """Return a key that addresses share which are computed from one parameter, variable or loaded pointer.

    Without a visible origin, the key is the name of the base register.
    """
    visited = set[str]()
    open_: list[object] = [base.base if isinstance(base, Address) else base]
    while open_:
        operand = open_.pop()
        if isinstance(operand, Symbol):
            return operand.name
        if (
            not isinstance(operand, Register)
            or operand.name in visited
            or bits_of(b.function.registers.get(operand.name, "b8")) < 64
        ):
            continue
        visited.add(operand.name)
        for instr in b.made_by.get(operand.name, ()):
            if instr.opcode == "ld":
                return str(instr.operands[1]) if "param" in instr.modifiers else operand.name
            open_ += instr.operands[1:]
    return base.name if isinstance(base, Register) else str(base)


def mark_of(instr: Instruction, use: int) -> int:
    """Return the flag by which memory records an access: `READ` or `WRITE` as `use` says, weak or strong."""
    strong = is_widely_strong(instr)
    if use == READ:
        return memory.STRONG_READ if strong else memory.READ
    return memory.STRONG_WRITE if strong else memory.WRITE
