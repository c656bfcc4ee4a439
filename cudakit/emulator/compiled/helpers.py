"""Helper functions that compiled kernels call if an access leaves the fast path.

Each helper is written as IR once, when the first kernel is loaded, with Python's operators and `with` blocks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from cudakit.emulator.compiled.builder import Text, X, constant
from cudakit.emulator.compiled.layout import Slot
from cudakit.emulator.machine.memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW_BITS

# ── writing helpers ──


def _binary(opcode: str) -> Callable[[Word, Word | int], Word]:
    return lambda left, right: left.word(left.text.binary(opcode, left.x, _value(right)))


def _compare(how: str) -> Callable[[Word, Word | int], Word]:
    return lambda left, right: left.word(left.text.compare(how, left.x, _value(right)))


def _value(word: Word | int) -> X | int:
    return word if isinstance(word, int) else word.x


class Word:
    """An unsigned number of 64 bits, or a truth, that a routine computes. ``address[n]`` is a word in memory."""

    def __init__(self, text: Text, x: X) -> None:
        self.text, self.x = text, x

    def word(self, x: X) -> Word:
        """Return the IR value `x` as a word of the same routine."""
        return Word(self.text, x)

    __add__, __sub__, __mul__ = _binary("add"), _binary("sub"), _binary("mul")
    __and__, __or__, __xor__ = _binary("and"), _binary("or"), _binary("xor")
    __lshift__, __rshift__, signed_shift = _binary("shl"), _binary("lshr"), _binary("ashr")
    __lt__, __le__, __ge__ = _compare("ult"), _compare("ule"), _compare("uge")
    equals, differs = _compare("eq"), _compare("ne")

    def select(self, then: Word | int, otherwise: Word | int) -> Word:
        """Return the word `then` where this truth holds, else `otherwise`."""
        words = [constant("i64", word) if isinstance(word, int) else word.x for word in (then, otherwise)]
        return self.word(self.text.select(self.x, *words))

    def load(self, bits: int) -> Word:
        """Load an unsigned number of `bits` bits from memory at this address, extended to 64 bits."""
        value = self.text.load(f"i{bits}", self.pointer, ", align 1")
        return self.word(self.text.cast("zext", value, "i64"))

    def store(self, value: Word, bits: int) -> None:
        """Store the lower bits of a number to memory at this address."""
        self.text.store(self.text.cast("trunc", value.x, f"i{bits}"), self.pointer, ", align 1")

    def __getitem__(self, number: Word | int) -> Word:
        return self.word(self.text.load("i64", (self + number * 8).pointer))

    def __setitem__(self, number: Word | int, value: Word | int) -> None:
        word = constant("i64", value) if isinstance(value, int) else value.x
        self.text.store(word, (self + number * 8).pointer)

    @property
    def pointer(self) -> X:
        """The address as a pointer."""
        return self.text.make(f"inttoptr {self.x} to ptr", "ptr")


class Variable:
    """A word that changes; `now` is its current value."""

    def __init__(self, text: Text, place: str) -> None:
        self._text, self._place = text, place

    @property
    def now(self) -> Word:
        return Word(self._text, self._text.load("i64", self._place))

    @now.setter
    def now(self, value: Word | int) -> None:
        self._text.store(constant("i64", value) if isinstance(value, int) else value.x, self._place)


class Routine:
    """A function of IR, to which code is appended.

    Parameters
    ----------
    name, result : str
        Name, and LLVM type of the result.
    parameters : dict of str to str
        LLVM types of the parameters, by name.
    """

    def __init__(self, name: str, result: str, parameters: dict[str, str]) -> None:
        self.name, self.result, self.parameters = name, result, parameters
        self.text = Text()
        self._allocas: list[str] = []
        self._has_left = False

    def arguments(self) -> list[Word]:
        """Return the arguments as words."""
        return [
            Word(
                self.text,
                self.text.make(f"ptrtoint ptr %{name} to i64", "i64") if type_ == "ptr" else X(type_, f"%{name}"),
            )
            for name, type_ in self.parameters.items()
        ]

    def source(self, attributes: str) -> str:
        """Return the function in LLVM assembly."""
        parameters = ", ".join(f"{type_} %{name}" for name, type_ in self.parameters.items())
        body = "\n".join(["entry:", *self._allocas, *self.text.lines])
        return f"define {self.result} @{self.name}({parameters}) {attributes} {{\n{body}\n}}"

    def variable(self, value: Word | int) -> Variable:
        """Return a variable of 64 bits on the stack, set to `value`."""
        result = Variable(self.text, self._room())
        result.now = value
        return result

    def room(self) -> Word:
        """Reserve eight bytes on the stack, and return their address."""
        return Word(self.text, self.text.make(f"ptrtoint ptr {self._room()} to i64", "i64"))

    def _room(self) -> str:
        """Reserve eight bytes on the stack, and return the name of the pointer to them."""
        name = f"%{self.text.fresh('room')}"
        self._allocas.append(f"  {name} = alloca i64")
        return name

    def give(self, value: Word | int | None = None) -> None:
        """Append a return from the function, with `value` if there is one."""
        x = constant(self.result, value) if isinstance(value, int) else value and value.x
        self.text.do(f"ret {x or 'void'}")
        self._has_left = True

    def call(self, callee: Routine | Word, *arguments: Word | int) -> Word:
        """Append a call of a routine, or of the function at an address; return its result.

        The function at an address takes a pointer first, and returns a number.
        """
        pointer = callee.pointer if isinstance(callee, Word) else None
        types = callee.parameters.values() if isinstance(callee, Routine) else ["ptr", *["i64"] * (len(arguments) - 1)]
        words = [
            word if isinstance(word, int) else word.pointer if type_ == "ptr" else word.x
            for word, type_ in zip(arguments, types, strict=True)
        ]
        if isinstance(callee, Routine) and callee.result == "void":
            self.text.run(callee.name, *words)
            return Word(self.text, constant("i64", 0))
        if isinstance(callee, Routine):
            return Word(self.text, self.text.call(callee.name, callee.result, *words))
        assert pointer is not None
        return Word(self.text, self.text.call_through(pointer, *words))

    def move(self, to: Word, source: Word, size: Word) -> None:
        """Copy `size` bytes; the ranges may overlap."""
        self.text.run("llvm.memmove.p0.p0.i64", to.pointer, source.pointer, size.x, X("i1", "false"))

    def first_lane(self, mask: Word) -> Word:
        """Return the number of a mask's lowest lane."""
        return Word(self.text, self.text.call("llvm.cttz.i64", "i64", mask.x, X("i1", "false")))

    @contextmanager
    def when(self, condition: Word, holds: bool = True) -> Iterator[None]:
        """Append a branch: code written in the block runs if the condition is true.

        With `holds` False the code runs if the condition is false.
        """
        inside, behind = self.text.fresh("inside"), self.text.fresh("behind")
        self.text.branch(condition.x, *((inside, behind) if holds else (behind, inside)))
        self.text.label(inside)
        yield
        self._end(behind)
        self.text.label(behind)

    @contextmanager
    def loop(self, condition: Callable[[], Word] | None = None) -> Iterator[None]:
        """Append a loop around the code written in the block, which runs while a condition holds.

        Without a condition the loop runs until the code returns from the function.
        """
        again, inside, behind = (self.text.fresh(stem) for stem in ("again", "inside", "behind"))
        self.text.jump(again)
        self.text.label(again)
        self.text.branch(condition().x if condition else X("i1", "true"), inside, behind)
        self.text.label(inside)
        yield
        self._end(again)
        self.text.label(behind)
        if condition is None:
            self.text.do("unreachable")

    @contextmanager
    def repeat(self, count: Word) -> Iterator[Word]:
        """Append a loop around the code written in the block; yield the number of the turn, from 0 to below `count`."""
        number = self.variable(0)
        with self.loop(lambda: number.now < count):
            yield number.now
            number.now += 1

    @contextmanager
    def each_lane(self, mask: Word) -> Iterator[Word]:
        """Append a loop around the code written in the block; yield the number of each lane of a mask, lowest first."""
        left = self.variable(mask)
        with self.loop(lambda: left.now.differs(0)):
            lane = self.first_lane(left.now)
            left.now &= left.now - 1
            yield lane

    def _end(self, following: str) -> None:
        """End a block: jump to the following one, unless the block has returned."""
        if not self._has_left:
            self.text.jump(following)
        self._has_left = False


READ, WRITE = 0, 1
#: Begin of an empty range, which has a span of 0: an address that no pointer has.
NOWHERE = -(1 << 63) + 1
GLOBAL, GENERIC, SHARED = 0, 1, 2
#: Parameters that are pointers; all others are numbers of 64 bits.
_POINTERS = frozenset({"ctx", "addresses", "values", "range", "token"})
#: Helpers with the functions that write them; and the declarations of helpers that kernels call.
_TABLE: dict[str, tuple[Routine, Callable[..., None]]] = {}
_KNOWN: list[str] = []


def _helper(result: str, attributes: str = "") -> Callable[[Callable[..., None]], Routine]:
    """Return a decorator that registers a helper, whose name and parameters are those of the decorated function.

    `result` is the LLVM type of the result. `attributes` are for the declaration in kernels that call the helper.
    They are empty if no kernel calls it.
    """

    def enter(write: Callable[..., None]) -> Routine:
        name, (_, *names) = write.__name__.strip("_"), inspect.signature(write).parameters
        types = {parameter: "ptr" if parameter in _POINTERS else "i64" for parameter in names}
        routine = Routine(name, result, types)
        _TABLE[name] = routine, write
        if attributes:
            _KNOWN.append(f"declare {result} @{name}({', '.join(types.values())}) {attributes}")
        return routine

    return enter


@cache
def helpers() -> str:
    """Return the IR module of all helpers."""
    declared = set[str]()
    for routine, write in _TABLE.values():
        write(routine, *routine.arguments())
        declared |= routine.text.declared
    sources = [routine.source("noinline nounwind") for routine, _ in _TABLE.values()]
    return "\n".join([*sources, *sorted(declared)])


@_helper("void", "cold nounwind")
def blame(f: Routine, ctx: Word, site: Word, first: Word, block: Word, mask: Word, addresses: Word) -> None:
    """Record an error of a mask's first lane; `addresses` has each lane's address, and `first` is lane 0's thread."""
    lane = f.first_lane(mask)
    _record_error(ctx, site, addresses[lane], first + lane, block)
    f.give()


def _record_error(ctx: Word, site: Word, address: Word, thread: Word, block: Word) -> None:
    """Write an error's site, address, thread and block to the launch's words."""
    slots = Slot.SITE, Slot.ADDRESS, Slot.THREAD, Slot.AT_BLOCK
    for slot, word in zip(slots, (site, address, thread, block), strict=True):
        ctx[slot] = word


@_helper("i64")
def _row_of(f: Routine, ctx: Word, address: Word, size: Word) -> None:
    """Return the address of an access's row in the table of allocations, or 0.

    A row has start, end, whether the allocation is read-only, and flags.
    """
    number = f.variable(ctx[Slot.TABLE_COUNT])
    with f.loop(lambda: number.now.differs(0)):
        number.now -= 1
        row = ctx[Slot.TABLE] + number.now * 32
        with f.when((row[0] <= address) & (address + size <= row[1])):
            f.give(row)
    f.give(0)


@_helper("i64")
def _find(f: Routine, ctx: Word, thread: Word, address: Word, size: Word, use: Word, space: Word, row: Word) -> None:
    """Return the host address of an access; 0 if the access is refused.

    LOW, HIGH (the span), SHIFT and FLAGS (0: none) of the launch's words are set to the range of addresses for which
    the answer holds. For an empty range the span is 0 and LOW is an address that no pointer has.
    """
    low, span, shift, flags = range(Slot.LOW, Slot.FLAGS + 1)
    ctx[low], ctx[span], ctx[shift], ctx[flags] = NOWHERE, 0, 0, 0
    with f.when((address & (size - 1)).differs(0)):
        f.give(0)
    generic, window = space.equals(GENERIC), address >> WINDOW_BITS
    with f.when(generic & window.equals(PARAM_WINDOW >> WINDOW_BITS)):
        at = address - PARAM_WINDOW
        inside = (at + size <= ctx[Slot.PARAMETER_BYTES]) & use.equals(READ)
        f.give(inside.select(ctx[Slot.PARAMETERS] + at, 0))
    with f.when(generic & window.equals(LOCAL_WINDOW >> WINDOW_BITS)):
        at = address - LOCAL_WINDOW
        f.give((at + size <= row).select(ctx[Slot.LOCAL] + thread * row + at, 0))
    in_window = generic & window.equals(SHARED_WINDOW >> WINDOW_BITS)
    with f.when(in_window | space.equals(SHARED)):
        base, whole = in_window.select(SHARED_WINDOW, 0), ctx[Slot.SHARED_BYTES]
        at = address - base
        with f.when((at + size <= whole) & (at < at + size)):
            ctx[low], ctx[span], ctx[shift] = base, whole - size, ctx[Slot.SHARED] - base
            f.give(ctx[Slot.SHARED] + at)
        f.give(0)
    with f.loop():
        allocation = f.call(_row_of, ctx, address, size)
        with f.when(allocation.differs(0)):
            with f.when((allocation[2] & use).differs(0)):
                f.give(0)
            start = allocation[0]
            ctx[low], ctx[span], ctx[flags] = start, allocation[1] - start - size, allocation[3]
            f.give(address)
        reached = f.call(ctx[Slot.REACH], ctx, address, size, use)
        with f.when(reached.equals(2)):
            f.give(address)
        with f.when(reached.differs(1)):
            f.give(0)


@_helper("i64", "cold nounwind")
def locate(
    f: Routine, ctx: Word, site: Word, thread: Word, block: Word, address: Word, size: Word, use: Word, space: Word,
    row: Word,
) -> None:  # fmt: skip
    """Return the host address of a lane's access, with its range in the launch's words.

    If the access is invalid, record the error and return 0.
    """
    host = f.call(_find, ctx, thread, address, size, use, space, row)
    with f.when(host.equals(0)):
        _record_error(ctx, site, address, thread, block)
    f.give(host)


@_helper("i64", "nounwind")
def met(f: Routine, waiting: Word, alive: Word, values: Word) -> None:
    """Return the lanes, of those that wait, whose members have exited or wait with the same member mask.

    `values` has the member mask of each lane, in a word each.
    """
    ready = f.variable(0)
    with f.each_lane(waiting) as lane:
        members, complete = values[lane], f.variable(1)
        with f.each_lane(members & alive) as member:
            comes = ((waiting >> member) & 1).differs(0) & values[member].equals(members)
            complete.now = comes.select(complete.now, 0)
        ready.now |= complete.now << lane
    f.give(ready.now)


@_helper("void")
def _copy(f: Routine, to: Word, source: Word, size: Word) -> None:
    """Copy an element."""
    for bits in (8, 16, 32, 64):
        with f.when(size.equals(bits // 8)):
            to.store(source.load(bits), bits)
            f.give()
    f.move(to, source, size)
    f.give()


@_helper("void")
def _note(f: Routine, host: Word, flags: Word, count: Word, mark: Word) -> None:
    """Set `mark` in the flags of `count` bytes at `host`; the flags are `flags` bytes behind them, 0 for no flags."""
    with f.when(flags.differs(0)), f.repeat(count) as number:
        flag = host + flags + number
        flag.store(flag.load(8) | mark, 8)
    f.give()


@_helper("i1", "nounwind")
def lanes(
    f: Routine, ctx: Word, site: Word, first: Word, block: Word, mask: Word, size: Word, count: Word, use: Word,
    space: Word, width: Word, addresses: Word, values: Word, row: Word, mark: Word, range: Word,
) -> None:  # fmt: skip
    """Perform an access of elements lane by lane; return whether one has failed, with its error recorded.

    `range` is the place of the range that addresses were last checked against, or null.
    """
    whole, keeps = size * count, range.differs(0)
    low, span, shift, flags = range_words = [f.variable(word) for word in (NOWHERE, 0, 0, 0)]
    with f.when(space.equals(SHARED) & (ctx[Slot.SHARED_BYTES] >= whole)):
        low.now, span.now, shift.now = 0, ctx[Slot.SHARED_BYTES] - whole, ctx[Slot.SHARED]
    with f.when(space.differs(SHARED) & keeps):
        for number, word in enumerate(range_words):
            word.now = range[number]
    with f.each_lane(mask) as lane:
        address = addresses[lane]
        host = f.variable(address + shift.now)
        inside = (address - low.now <= span.now) & (address & (whole - 1)).equals(0)
        with f.when(inside, False):
            host.now = f.call(locate, ctx, site, first + lane, block, address, whole, use, space, row)
            with f.when(host.now.equals(0)):
                f.give(1)
            for number, word in enumerate(range_words):
                word.now = ctx[Slot.LOW + number]
            with f.when(keeps):
                for number, word in enumerate(range_words):
                    range[number] = word.now
        with f.repeat(count) as part:
            value, place = values + (part * width + lane) * size, host.now + part * size
            reads = use.equals(READ)
            f.call(_copy, reads.select(value, place), reads.select(place, value), size)
        f.call(_note, host.now, flags.now, whole, mark)
    f.give(0)


@_helper("i1", "cold nounwind")
def place(f: Routine, ctx: Word, range: Word, address: Word, need: Word, extent: Word, use: Word, space: Word) -> None:
    """Return whether `need` bytes from an address are in one allocation that allows the access `use`.

    If they are, `range` is set to the addresses from which `extent` bytes are inside.
    """
    low, end, shift, flags = (f.variable(0) for _ in "1234")
    in_window = space.equals(GENERIC) & (address >> WINDOW_BITS).equals(SHARED_WINDOW >> WINDOW_BITS)
    with f.when(in_window):
        low.now, end.now = SHARED_WINDOW, ctx[Slot.SHARED_BYTES] + SHARED_WINDOW
        shift.now = ctx[Slot.SHARED] - SHARED_WINDOW
    with f.when(in_window, False):
        row = f.call(_row_of, ctx, address, 1)
        with f.when(row.equals(0)):
            f.give(0)
        with f.when((row[2] & use).differs(0)):
            f.give(0)
        low.now, end.now, flags.now = row[0], row[1], row[3]
    length = end.now - low.now
    fits = (need <= length) & (address - low.now <= length - need)
    with f.when(fits):
        range[0], range[1], range[2], range[3] = low.now, length - extent, shift.now, flags.now
    f.give(fits)


#: Bits of a count in an mbarrier's word, its valid mark, and its phase.
_COUNT, _MADE, _PHASE = (1 << 20) - 1, 1 << 62, -(1 << 63)


@_helper("i1", "nounwind")
def arrive(f: Routine, ctx: Word, space: Word, address: Word, comes: Word, owed: Word, gone: Word, token: Word) -> None:
    """Change an mbarrier's word: count arrivals, add owed bytes, and remove exited threads; return false for an error.

    `comes` is the number of arrivals, `owed` the bytes, and `gone` the threads that exit. The old word is stored at
    `token`. Fields of a word: expected threads, 20 bits; pending threads, 20 bits; owed bytes, 22 bits with a sign.
    """
    at, whole = address - space.equals(SHARED).select(0, SHARED_WINDOW), ctx[Slot.SHARED_BYTES]
    with f.when((at & 7).equals(0) & (at < whole) & (at + 8 <= whole), False):
        f.give(0)
    barrier = ctx[Slot.SHARED] + at
    word = barrier[0]
    expected, pending = (word & _COUNT) - gone, ((word >> 20) & _COUNT) - comes
    owes = (word << 2).signed_shift(42) + owed
    with f.when((word & _MADE).differs(0) & (pending < _MADE) & (owes + _COUNT <= 2 * _COUNT), False):
        f.give(0)
    complete = (pending | owes).equals(0)
    phase = (word & _PHASE) ^ complete.select(_PHASE, 0)
    counts = expected | complete.select(expected, pending) << 20 | (owes & ((1 << 22) - 1)) << 40
    barrier[0], token[0] = counts | _MADE | phase, word
    f.give(1)


@_helper("i64")
def _bytes(
    f: Routine, ctx: Word, thread: Word, block: Word, address: Word, count: Word, use: Word, space: Word
) -> None:
    """Return the host address of `count` bytes; 0 if they are not in one allocation."""
    host = f.call(locate, ctx, 0, thread, block, address, 16, use, space, 0)
    inside = address - ctx[Slot.LOW] + count - 16 <= ctx[Slot.HIGH]
    f.give((host.differs(0) & inside).select(host, 0))


@_helper("i1", "nounwind")
def bulk(
    f: Routine, ctx: Word, thread: Word, block: Word, tospace: Word, ofspace: Word, to: Word, source_address: Word,
    count: Word, barrier: Word, tomark: Word, ofmark: Word,
) -> None:  # fmt: skip
    """Copy `count` bytes, and subtract them from the bytes owed at an mbarrier; return false for an error.

    `barrier` is the mbarrier's address, -1 for none. `tospace` and `ofspace` are the state spaces of target and source,
    `tomark` and `ofmark` the flags that record the accesses.
    """
    with f.when(((to | source_address | count) & 15).equals(0) & count.differs(0), False):
        f.give(0)
    source = f.call(_bytes, ctx, thread, block, source_address, count, READ, ofspace)
    source_flags = ctx[Slot.FLAGS]
    with f.when(source.equals(0)):
        f.give(0)
    target = f.call(_bytes, ctx, thread, block, to, count, WRITE, tospace)
    target_flags = ctx[Slot.FLAGS]
    with f.when(target.equals(0)):
        f.give(0)
    f.move(target, source, count)
    f.call(_note, source, source_flags, count, ofmark)
    f.call(_note, target, target_flags, count, tomark)
    with f.when((barrier >> 63).equals(0)):
        f.give(f.call(arrive, ctx, SHARED, barrier, 0, count * -1, 0, f.room()))
    f.give(1)


#: Declarations of the helpers that kernels call.
DECLARED = "\n".join(_KNOWN)
