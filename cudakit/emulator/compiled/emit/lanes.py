"""What the lanes of a vector load and store, once it is checked: in a row, or an address each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.text import X, constant, lanes_of


def load_row(b: Builder, pointer: X, element: str, count: int, size: int) -> list[X]:
    """Lanes that lie in a row, `count` elements each."""
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
                    text.load(f"<4 x {element}>", _beyond(b, pointer, 16 * at).name, f", align {size}")
                    for at in (lane, lane + 4)
                ]
                rows.append(_joined(b, halves))
            groups.append(_turned(b, rows))
        return [_joined(b, each) for each in zip(*groups, strict=True)]
    whole = text.load(f"<{width * count} x {element}>", pointer.name, f", align {size}")
    return [_picked(b, whole, whole, range(number, width * count, count)) for number in range(count)]


def _by_quarters(b: Builder, element: str, count: int) -> bool:
    """Whether four elements a lane are turned within quarters: other processors have instructions for all at once."""
    return count == 4 and element == "i32" and b.width % 8 == 0 and not b.layout.masks


def _picked(b: Builder, low: X, high: X, places: Iterable[int]) -> X:
    listed = list(places)
    mask = ", ".join(f"i32 {place}" for place in listed)
    return b.text.make(
        f"shufflevector {low}, {high}, <{len(listed)} x i32> <{mask}>", f"<{len(listed)} x {low.element}>"
    )


def _joined(b: Builder, parts: Sequence[X]) -> X:
    """All in a row, two by two."""
    lanes = lanes_of(parts[0].type)
    while len(parts) > 1:
        lanes *= 2
        parts = [_picked(b, *pair, range(lanes)) for pair in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _turned(b: Builder, rows: list[X]) -> list[X]:
    """Four rows of eight as the columns of both halves, by instructions that stay within a half."""
    low, high = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
    (a, c), (d, e) = ([_picked(b, x, y, half) for half in (low, high)] for x, y in (rows[:2], rows[2:]))
    low, high = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
    return [_picked(b, x, y, half) for x, y in ((a, d), (c, e)) for half in (low, high)]


def _beyond(b: Builder, pointer: X, offset: int) -> X:
    return b.text.make(f"getelementptr i8, {pointer}, i64 {offset}", "ptr") if offset else pointer


def gather(b: Builder, pointers: X, element: str, offset: int) -> X:
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
    """Load from four places at once; lanes that take no part load nothing, and have 0."""
    text, type_ = b.text, f"<4 x {element}>"
    places = text.cast("ptrtoint", pointers, "i64")
    taking = text.cast("sext", b.all_lanes(), element) if b.mask is not None else constant(b.vector(element), -1)
    found = [
        text.call(
            _GATHERS[element], type_, constant(type_, 0), X("ptr", "null"), _picked(b, places, places, four),
            _picked(b, taking, taking, four), X("i8", "1"),
        )
        for first in range(0, b.width, 4)
        for four in [range(first, first + 4)]
    ]  # fmt: skip
    return _joined(b, found)


def _apart(b: Builder, pointer: X, size: int) -> X:
    """The places of lanes that lie in a row."""
    return b.text.make(f"getelementptr i8, {pointer}, {b.iota('i64', size)}", b.vector("ptr"))


#: Lanes of a turn of the loop over them.
_AT_ONCE = 4


def _in_turns(b: Builder, pointers: X, element: str, value: X | None) -> X:
    """Load or store lane after lane, for processors that cannot do it at once.

    LLVM would write out all lanes one after the other, with a branch for each under a mask: long code that takes
    long to compile.
    """
    text = b.text
    if b.turns is None:
        b.turns = b.alloca("i64", "turns", b.width), b.alloca("i64", "nowhere", 2)
        b.starts.append(f"  store <2 x i64> zeroinitializer, ptr {b.turns[1]}")
    held, nowhere = b.turns
    if b.mask is not None:
        # Lanes that take no part go where it does not matter.
        pointers = text.select(b.mask, pointers, b.spread(X("ptr", nowhere)))
    text.store(pointers, b.scratch_addresses)
    if value is not None:
        text.store(value, held)
    around, on, before = text.fresh("turn"), text.fresh("on"), text.here
    text.jump(around)
    text.label(around)
    following = f"%{text.fresh('lane')}"
    first = text.phi("i64", (constant("i64", 0), before), (X("i64", following), around))
    for number in range(_AT_ONCE):
        lane = text.binary("add", first, constant("i64", number))
        place = text.load("ptr", text.make(f"getelementptr ptr, ptr {b.scratch_addresses}, {lane}", "ptr").name)
        own = text.make(f"getelementptr {element}, ptr {held}, {lane}", "ptr")
        source, target = (place, own) if value is None else (own, place)
        text.store(text.load(element, source.name), target.name)
    text.do(f"{following} = add {first}, {_AT_ONCE}")
    text.branch(text.compare("ult", X("i64", following), constant("i64", b.width)), around, on)
    text.label(on)
    return text.load(b.vector(element), held) if value is None else value


def store_row(b: Builder, pointer: X, values: list[X], size: int) -> None:
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
            rows = _turned(b, [_picked(b, value, value, range(first, first + 8)) for value in values])
            for lane, row in enumerate(rows, first):
                for at, places in ((lane, range(4)), (lane + 4, range(4, 8))):
                    half = _picked(b, row, row, places)
                    text.store(half, _beyond(b, pointer, 16 * at).name, f", align {size}")
        return
    whole = _joined(b, values)
    packed = _picked(b, whole, whole, [number * width + lane for lane in range(width) for number in range(count)])
    text.store(packed, pointer.name, f", align {size}")


def scatter(b: Builder, pointers: X, value: X, offset: int) -> None:
    text = b.text
    if offset:
        pointers = text.make(f"getelementptr i8, {pointers}, {b.spread(constant('i64', offset))}", pointers.type)
    size = int(value.element[1:]) // 8
    if not b.layout.masks:
        _in_turns(b, pointers, value.element, value)
        return
    name = f"llvm.masked.scatter.v{b.width}{value.element}.v{b.width}p0"
    text.run(name, value, pointers, X("i32", str(size)), b.all_lanes())
