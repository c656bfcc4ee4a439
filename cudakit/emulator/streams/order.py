"""Which work of emulated streams comes before which, at which step it begins, and what races.

Work runs when it is asked for, to its end, one piece at a time. What a GPU would have been free to run in another
order or at the same time, clocks tell (`cudakit.streams.clocks`). While there is one stream there is nothing to
tell: work is watched from the time that there are two, and what ran before counts as done.

What a stream writes to host memory arrives once the host has waited, as on a GPU: it is taken out again when the work
ends, and is put in when something waits for it. Work that comes later on a stream reads and writes the memory as
earlier work left it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from cudakit.emulator.machine.heap import device_limits
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import READ, WRITE, bytes_at, bytes_of
from cudakit.emulator.resources.allocations import room
from cudakit.emulator.resources.texture import EmulatedTensorMap, SurfaceObject, TextureObject
from cudakit.emulator.streams.watch import Doer, History, Touch, Watch, touch_of
from cudakit.streams import process
from cudakit.streams.clocks import Clocks
from cudakit.streams.order import order as streams_order
from cudakit.streams.segments import Range, Touched, Use, host_span
from cudakit.streams.witnesses import Work, call_site
from cudakit.types.arguments import Exported, as_numpy, pointer_of

if TYPE_CHECKING:
    from cudakit.emulator.tile.machine import TileLaunch


#: Writes that have not arrived at which the oldest one does: a program that never waits holds no more.
_MOST = 256


@dataclass(slots=True, eq=False)
class Arrival:
    """Elements that work wrote to memory of the host.

    Attributes
    ----------
    target, values : numpy.ndarray
        Of one shape and dtype.
    mask : numpy.ndarray or None
        Which elements were written, of bool; None: all.
    after : object
        What the host waits for before they are there, as `Order` has it.
    former : numpy.ndarray or None
        The target's elements for the host, while work reads and writes the later ones.
    has_arrived : bool
    """

    target: np.ndarray
    values: np.ndarray
    mask: np.ndarray | None
    after: Any
    former: np.ndarray | None = None
    has_arrived: bool = False

    def show(self) -> None:
        """Put the elements in for work, until `hide`."""
        self.former = self.target.copy()
        self._put(self.values)

    def hide(self) -> None:
        """Put back what the host sees, unless it has waited meanwhile."""
        if self.former is not None and not self.has_arrived:
            self._put(self.former)
        self.former = None

    def arrive(self) -> None:
        """Put the elements in for the host."""
        if self.former is None:
            self._put(self.values)
        self.has_arrived = True

    def overlaps(self, array: np.ndarray) -> bool:
        """Whether the target and an array share memory."""
        return np.may_share_memory(self.target, array)

    def flags_of(self, array: np.ndarray) -> np.ndarray:
        """Of an array that overlaps the target: which of its elements have bytes that arrive."""
        lows, highs = zip(*map(np.lib.array_utils.byte_bounds, (self.target, array)), strict=True)
        flags = np.zeros(max(highs) - min(lows), bool)
        _flags_at(self.target, flags, min(lows))[...] = True if self.mask is None else self.mask[..., np.newaxis]
        return np.asarray(_flags_at(array, flags, min(lows)).any(axis=-1))

    def _put(self, values: np.ndarray) -> None:
        np.copyto(self.target, values, where=True if self.mask is None else self.mask)


class Arrivals:
    """What the emulated streams wrote to memory of the host and nobody has waited for.

    Attributes
    ----------
    pending : list of Arrival
        In the order of the work.
    """

    def __init__(self) -> None:
        self.pending: list[Arrival] = []

    def flags_of(self, array: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        """What the host waits for before it uses an array, and which of the array's elements that brings."""
        for arrival in self.pending:
            if array.size and arrival.overlaps(array):
                yield arrival.after, arrival.flags_of(array)

    @property
    def awaited(self) -> list[Any]:
        """What the host waits for, of all that has not arrived."""
        return [arrival.after for arrival in self.pending]

    def hold(self, target: np.ndarray, values: np.ndarray, after: Any, mask: np.ndarray | None = None) -> None:
        """Let elements arrive in `target` after `after`; `values` are this object's from now on."""
        if len(self.pending) >= _MOST:
            self.pending.pop(0).arrive()
        # A view: the array may be left without its memory before, which others still read.
        self.pending.append(Arrival(target.view(np.ndarray), values, mask, after))

    def deliver(self, is_over: Callable[[Any], bool]) -> None:
        """Let arrive, in the order of the work, what `is_over` is true of."""
        pending, self.pending = self.pending, []
        for arrival in pending:
            if is_over(arrival.after):
                arrival.arrive()
            else:
                self.pending.append(arrival)

    def settle(self, arrays: Iterable[Any]) -> None:
        """Let arrive what is for memory that work is given and that no device reads: as on a GPU, the call waits."""
        if self.pending:
            pageable = [array for array in arrays if isinstance(array, np.ndarray) and not room().is_of_the_host(array)]
            held = [arrival for arrival in self.pending if any(arrival.overlaps(array) for array in pageable)]
            for arrival in held:
                arrival.arrive()
            self.pending = [arrival for arrival in self.pending if not arrival.has_arrived]

    @contextlib.contextmanager
    def shown(self, written: Iterable[Any], after: Callable[[], Any]) -> Iterator[None]:
        """A block in which work runs: all memory is as earlier work left it.

        Parameters
        ----------
        written : iterable
            Arrays that the work may write: what it writes to memory of the host arrives later.
        after : callable
            Gives, when the work is done, what the host waits for.
        """
        shown = [arrival for arrival in self.pending if room().is_of_the_host(arrival.target)]
        for arrival in shown:
            arrival.show()
        targets = [
            _extent(array) for array in written if isinstance(array, np.ndarray) and room().is_of_the_host(array)
        ]
        before = [target.copy() for target in targets]
        try:
            yield
        finally:
            for target, former in zip(targets, before, strict=True):
                mask = target != former
                if mask.any():
                    self.hold(target, target.copy(), after(), mask)
                    np.copyto(target, former, where=mask)
            for arrival in reversed(shown):
                arrival.hide()


def _extent(array: np.ndarray) -> np.ndarray:
    """The bytes from an array's first to its last element."""
    if array.flags.c_contiguous:
        return bytes_of(array)
    low, high = host_span(array)
    return bytes_at(array, low, high - low)


def _flags_at(array: np.ndarray, flags: np.ndarray, address: int) -> np.ndarray:
    """The flags of each element's bytes; `flags` are those of the bytes from `address` on."""
    return np.ndarray(
        (*array.shape, array.itemsize), bool, flags, pointer_of(array) - address, (*array.strides, flags.itemsize)
    )


#: Bytes that a copy moves in a step.
COPY_BYTES = 16
#: Pieces of memory after which those are forgotten that nobody need wait for.
_MANY = 64
#: Streams, or streams that come after others, after which it is looked of which nothing need be known.
_MANY_STREAMS = 64
#: Streams that are gone whose last work is remembered; that of others counts as done, as if the host had waited for it.
_MOST_GONE = 256


class Ordered(Protocol):
    """A stream, as far as its place in the order goes."""

    handle: int

    @property
    def clock(self) -> int:
        """The step that it has come to."""

    def pass_time(self, steps: int = 0, until: int = 0) -> None:
        """Move the clock on by some steps, and then to the step `until` if that is later."""

    def sync(self) -> None:
        """Let the host wait for all that it was given."""


class Order:
    """All emulated streams of the process, and what each has done.

    Attributes
    ----------
    lock : threading.RLock
        Held while work runs: there is one emulated device.
    clocks : Clocks
        Of the time since there are two streams.
    step : int
        The step that the host has come to by waiting: no work begins before it.
    now_on : Use or None
        The work that is on, where nothing else may run meanwhile.
    arrivals : Arrivals
        What work wrote to memory of the host and nobody has waited for.
    names_lines : bool
        Whether `awaited` tells which line of the program asked for that.
    busy : bool
        Whether a piece of work is on in the thread that holds the lock: nothing may be forgotten meanwhile.
    """

    def __init__(self) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.clocks: Clocks = Clocks()
        self.step: int = 0
        self.now_on: Use | None = None
        self.arrivals: Arrivals = Arrivals()
        self.names_lines: bool = False
        self.busy: bool = False
        self._history = History()
        self._streams: dict[int, weakref.ref[Ordered]] = {}
        self._handles = itertools.count(1)
        self._named: set[int] = set()
        self._memory: dict[int, _Memory] = {}
        self._gone: deque[_Memory] = deque()
        self._watched = False
        self._limit = _MANY
        self._most_named = self._most_clocks = _MANY_STREAMS

    def forked(self) -> None:
        """Begin again in a forked child, where no other thread holds the lock."""
        self.lock, self.busy = threading.RLock(), False

    def add(self, stream: Ordered) -> int:
        """Know a new stream; its handle."""
        handle = next(self._handles)
        self._streams[handle] = weakref.ref(stream, lambda _: self._streams.pop(handle, None))
        return handle

    @property
    def watches(self) -> bool:
        """Whether work can race, so that it is watched: there are two streams, or what one that is gone did."""
        return len(self._streams) > 1 or bool(self._history.touches)

    @property
    def asks_for_arrays(self) -> bool:
        """Whether it matters which arrays work reads and writes."""
        return self.watches or room().has_host_memory or bool(self.arrivals.pending)

    # ── the host and the streams ──

    def record(self, stream: Ordered) -> Mark:
        """All that `stream` was given so far."""
        with self.lock:
            self.tidy()
            return self._mark(stream, stream.clock)

    def wait(self, stream: Ordered, mark: Mark) -> None:
        """Let what `stream` is given from now on come after that."""
        with self.lock:
            stream.pass_time(until=mark.step)
            if mark.use is not None and mark.clocks is self.clocks:
                self.clocks.wait(stream.handle, mark.use)

    def finish(self, mark: Mark) -> None:
        """Let everything that is asked for from now on come after that: the host has waited."""
        with self.lock:
            self.step = max(self.step, mark.step)
            if mark.use is not None and mark.clocks is self.clocks:
                self.clocks.finish(mark.use)
            if self.arrivals.pending:
                self.arrivals.deliver(lambda after: self._is_before(after, None, mark.step))

    def finish_all(self) -> None:
        """Let the host wait for all streams."""
        with self.lock:
            for known in list(self._streams.values()):
                if (stream := known()) is not None:
                    stream.sync()  # which a stream that is captured refuses
            for handle in self._named.difference(self._streams):
                self.finish(Mark(self.clocks.now(handle), self.clocks, 0))

    def _mark(self, stream: Ordered, step: int) -> Mark:
        return Mark(self.clocks.now(stream.handle) if self.watches else None, self.clocks, step)

    def _is_before(self, mark: Mark, stream: int | None, step: int) -> bool:
        """Whether work comes before what a stream, or the host, does from now on; it ends at `step`."""
        if mark.use is None or mark.clocks is not self.clocks:
            return mark.step <= step
        return self.clocks.is_before(mark.use, stream)

    # ── memory of the host ──

    def bring(self, stream: Ordered) -> None:
        """Let arrive what comes before work of the host on `stream`."""
        if self.arrivals.pending:
            self.arrivals.deliver(lambda after: self._is_before(after, stream.handle, stream.clock))

    def arrive(self, stream: Ordered, name: str, target: np.ndarray, values: np.ndarray) -> None:
        """Let a copy to memory of the host arrive once the host has waited for the stream.

        Parameters
        ----------
        stream : Ordered
        name : str
            Of what copies.
        target, values : numpy.ndarray
            Of one shape; `values` belong to the order from now on.
        """
        with self.lock:
            self.arrivals.hold(target, values, self._after(stream, stream.clock + 1, name))

    def awaited(self, array: np.ndarray, part: Callable[[np.ndarray], Any]) -> Mark | None:
        """What the host would have to wait for before it uses elements of an array; None where it may.

        Parameters
        ----------
        array : numpy.ndarray
        part : callable
            Gives, of flags in the array's shape, those of the elements that are used.
        """
        with self.lock:
            return next((after for after, flags in self.arrivals.flags_of(array) if np.any(part(flags))), None)

    @contextlib.contextmanager
    def shown(self, stream: Ordered, name: str, reads: Sequence[Any], written: Sequence[Any]) -> Iterator[None]:
        """A block of work on `stream` that reads and writes memory as earlier work left it, not as the host sees it."""
        with self.lock:
            self.arrivals.settle((*reads, *written))
            with self.arrivals.shown(written, lambda: self._after(stream, stream.clock, name)):
                yield

    def _after(self, stream: Ordered, step: int, name: str) -> Mark:
        """What stands for the work that is on, or for all that a stream was given; it ends at `step` or later."""
        mark = self._mark(stream, step) if self.now_on is None else Mark(self.now_on, self.clocks, step)
        return mark._replace(doer=Doer(name, stream.handle, call_site() if self.names_lines else ""))

    # ── a piece of work ──

    def begin(
        self, stream: Ordered, reads: Iterable[np.ndarray], writes: Iterable[np.ndarray], put_in: bool, noted: bool
    ) -> Use:
        """Find the place in the order of what `stream` does now; where it is `noted`, others wait for it."""
        self._watched = True
        self._named.add(stream.handle)
        touched, streams, note = self._touched(reads, writes), streams_order(), None
        put_in = put_in and not streams.manual_blocks
        for reporter in streams.reporters:
            note = reporter.see(stream.handle, touched, self.clocks, (), True, put_in)
        if put_in:
            self._put_in(stream, touched)
        if noted or note is not None:
            use = self.clocks.use(stream.handle, touched, note)
        else:
            use = self.clocks.now(stream.handle)
        use.event = stream.clock
        return use

    def put_in(self, stream: Ordered, reads: Sequence[Any], writes: Sequence[Any], noted: bool = False) -> None:
        """As of now, let `stream` wait for what must come before it reads and writes that, by what was declared.

        Where it is `noted`, others wait for all that the stream is given until they come to it, as on a GPU: once.
        """
        with self.lock:
            self.tidy()
            former, self.busy = self.busy, True
            try:
                if self.watches:
                    touched = self._touched(memories_of(reads), memories_of(writes))
                    if not streams_order().manual_blocks:
                        self._put_in(stream, touched)
                    if noted:
                        self._watched = True
                        self._named.add(stream.handle)
                        self.clocks.use(stream.handle, touched)
            finally:
                self.busy = former

    def _put_in(self, stream: Ordered, touched: Touched) -> None:
        for use in self.clocks.needed(stream.handle, touched):
            if use.event is None:  # of a plan, which others wait for now
                handle: Any = use.stream
                known, point = self._streams.get(handle), self.clocks.now(handle)
                other = None if known is None else known()
                use.count, use.clock, use.event = point.count, point.clock, other.clock if other else self.step
            stream.pass_time(until=use.event)
            self.clocks.wait(stream.handle, use)

    def _touched(self, reads: Iterable[np.ndarray], writes: Iterable[np.ndarray]) -> Touched:
        spans: dict[int, Range] = {}
        for array in (*reads, *writes):
            if id(array) not in spans:
                low, high = spans[id(array)] = host_span(array)
                self._know(array, low, high)
        return self.clocks.touch([spans[id(array)] for array in reads], [spans[id(array)] for array in writes])

    def note(self, doer: Doer, use: Use, touches: list[Touch]) -> None:
        """Remember what a piece of work touches.

        Raises
        ------
        EmulationError
            If it races with an earlier one.
        """
        for touch in touches:
            if touch.owner is not None:
                self._know(touch.owner, touch.address, touch.stop)
                touch.owner = None
        if device_limits().has_heap:
            renewed = device_limits().heap.renewed
            while renewed:
                self._history.forget_bytes(*renewed.popitem())
        race = self._history.add(doer, use, touches, partial(self.clocks.is_before, stream=doer.stream))
        if race is not None:
            raise race

    # ── forgetting ──

    def _know(self, array: np.ndarray, low: int, high: int) -> None:
        """Be told when the memory of `array` is gone: another array may lie there then."""
        owner = array if type(array) is np.ndarray and array.base is None else _owner(array)
        known = self._memory.get(id(owner))
        if known is None or known() is not owner:
            known = self._memory[id(owner)] = _Memory(owner, self._gone.append)
            known.low, known.high, known.key = low, high, id(owner)
        elif low < known.low or known.high < high:
            known.low, known.high = min(known.low, low), max(known.high, high)

    def tidy(self) -> None:
        """Forget memory that is gone, and what is over; everything, where nothing can race any more."""
        # A finalizer, which may sync a stream, comes in the middle of anything here.
        if not self._watched or self.busy:
            return
        self.busy = True
        try:
            while self._gone:
                self._forget_memory(self._gone.popleft())
            if (
                len(self._history.touches) + len(self.clocks.segments) > self._limit
                or len(self._named) > self._most_named
                or len(self.clocks.clocks) > self._most_clocks
                or len(self._streams) < 2
            ):
                self._forget()
        finally:
            self.busy = False
        if len(self._streams) < 2 and not self._history.touches:
            self._watched = False
            self.clocks = Clocks()
            self._memory.clear()
            self._gone.clear()
            self._named.clear()

    def _forget_memory(self, gone: _Memory) -> None:
        """Forget memory that is gone, but for parts that another array has: of DLPack's say, which shows another's."""
        if self._memory.get(gone.key) is gone:
            del self._memory[gone.key]
        low = gone.low
        living = [
            (known.low, known.high)
            for known in self._memory.values()
            if known.low < gone.high and low < known.high and known() is not None
        ]
        for start, stop in (*sorted(living), (gone.high, 0)):
            if low < start:
                self._history.forget_memory(low, start)
                self.clocks.forget_range(low, start)
            low = max(low, stop)

    def _forget(self) -> None:
        gone = sorted(handle for handle in self._named if handle not in self._streams)
        for handle in gone[:-_MOST_GONE]:
            self.clocks.finish(self.clocks.now(handle))
        only = next(iter(self._streams)) if len(self._streams) == 1 else None
        self._history.forget(partial(self.clocks.is_before, stream=only))
        awaited = [mark.use for mark in self.arrivals.awaited if mark.use is not None and mark.clocks is self.clocks]
        uses = [*self._history.uses, *awaited]
        idle = self._named.difference(use.stream for use in uses)
        self._named -= idle
        self.clocks.drop(idle.intersection(gone))
        self.clocks.forget()
        self.clocks.prune(uses)
        self._limit = max(_MANY, 2 * (len(self._history.touches) + len(self.clocks.segments)))
        self._most_named = max(_MANY_STREAMS, 2 * len(self._named))
        self._most_clocks = max(_MANY_STREAMS, 2 * len(self.clocks.clocks))


class Mark(NamedTuple):
    """A place in the order of a stream's work: all that it was given until then.

    Attributes
    ----------
    use : Use or None
        None while nothing is watched.
    clocks : Clocks
        In which `use` counts. Those of the order are new once all that was before is over.
    step : int
        The step at which the work ends, or an earlier one.
    doer : Doer or None
        The work, where it is one piece.
    """

    use: Use | None
    clocks: Clocks
    step: int
    doer: Doer | None = None


class Turn:
    """For a ``with``: a block in which a piece of work runs on a stream, at its place in the order.

    Parameters
    ----------
    order : Order
    stream : Ordered
    name : str
        Of the kernel or operation.
    reads, writes : sequence
        Arrays that it declares to read and to write.
    put_in : bool
        Whether it waits for earlier work on other streams that conflicts by what both declared.
    noted : bool
        Whether later work waits for it by what both declare.
    move : Work, optional
        A copy, a fill or work of the host, which touches what it declares. While the host is busy, other threads may
        go on.

    Raises
    ------
    EmulationError
        Where it races with earlier work: a kernel when it has run, other work before it is done.
    """

    def __init__(
        self, order: Order, stream: Ordered, name: str, reads: Sequence[Any], writes: Sequence[Any],
        put_in: bool = True, noted: bool = True, move: Work | None = None,
    ) -> None:  # fmt: skip
        self._order, self._stream, self._name = order, stream, name
        self._reads, self._writes, self._put_in, self._noted = reads, writes, put_in, noted
        self._move, self._alone = move, move is None or move.kind != "host"
        self._steps = 0 if move is None else -(-move.size // COPY_BYTES)
        self._use: Use | None = None
        self._doer: Doer | None = None
        self._shown: contextlib.AbstractContextManager[None] | None = None

    def __enter__(self) -> Self:
        order = self._order
        order.lock.acquire()
        self._is_held, self._former = True, (order.busy, order.now_on)
        try:
            order.tidy()
            order.busy = True
            self._begin()
        except BaseException:
            self._end()
            raise
        if not self._alone:
            self._release()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None and self._steps:
            self.pass_time()
        self._end()

    def pass_time(self) -> None:
        """A copy, fill or work of the host is done, and has taken its steps."""
        self._stream.pass_time(self._steps)
        self._steps = 0

    def _begin(self) -> None:
        order, stream = self._order, self._stream
        if order.watches:
            reads, writes = memories_of(self._reads), memories_of(self._writes)
            self._doer = Doer(self._name, stream.handle, call_site())
            self._use = order.begin(stream, reads, writes, self._put_in, self._noted)
            if self._move is not None:
                touches = [touch_of(array, "its source", READ) for array in reads]
                touches += [touch_of(array, "its target", WRITE) for array in writes]
                order.note(self._doer, self._use, touches)
        if not self._alone:
            order.bring(stream)
            return
        order.now_on = self._use
        if order.arrivals.pending or room().has_host_memory:
            self._shown = order.shown(stream, self._name, self._reads, self._writes)
            self._shown.__enter__()

    def _end(self) -> None:
        order, use = self._order, self._use
        if use is None:
            order.step = max(order.step, self._stream.clock)
        else:
            use.event = self._stream.clock
        try:
            if self._shown is not None:
                self._shown.__exit__(None, None, None)
        finally:
            if self._is_held:
                self._release()

    def _release(self) -> None:
        self._order.busy, self._order.now_on = self._former
        self._is_held = False
        self._order.lock.release()

    def launch(self, launch: Launch | TileLaunch) -> None:
        """Run a kernel.

        Raises
        ------
        EmulationError
            As `cudakit.emulator.machine.machine.run` does, and where it raced with earlier work.
        """
        memory, begun = launch.memory, launch.steps
        watch = memory.watcher = Watch() if self._doer is not None else None
        try:
            launch.run()
        finally:
            memory.watcher = None
            self._stream.pass_time(launch.steps - begun)
        if watch is not None:
            assert self._doer is not None
            assert self._use is not None
            touches = [touch for touch in watch.touches() if touch.address != launch.own_address]
            self._order.note(self._doer, self._use, touches)


class _Memory(weakref.ref[Any]):
    """What an array's memory belongs to, and the bytes of it that were used."""

    __slots__ = ("high", "key", "low")
    low: int
    high: int
    key: int


def memories_of(values: Iterable[Any]) -> list[np.ndarray]:
    """The host arrays of arguments that have memory."""
    arrays = []
    for value in values:
        array = memory_of(value)
        if array is not None and array.size:
            arrays.append(array)
    return arrays


def memory_of(value: Any) -> np.ndarray | None:
    """The host array whose memory an argument is of; None for what has none."""
    if type(value) is np.ndarray and value.shape:
        return value
    if isinstance(value, EmulatedTensorMap | SurfaceObject):
        return value.array
    if isinstance(value, ctypes.c_void_p):
        # As on a GPU, where it stands for the allocation that it points into.
        return room().at(value.value or 0)
    return value.texels if isinstance(value, TextureObject) else as_numpy(value)


def _owner(array: np.ndarray) -> Any:
    """What lives as long as the memory of `array` does, as far as that can be seen."""
    owner: Any = array
    while True:
        # A torch tensor's memory, and that of `as_strided`, is shown by an object of the moment, which holds the owner.
        held = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
        inner = owner.owner if isinstance(owner, Exported) else held
        if inner is None or not _can_be_watched(inner):
            return owner
        owner = inner


def _can_be_watched(thing: Any) -> bool:
    try:
        weakref.ref(thing)
    except TypeError:
        return False
    return True


_order = Order()
process.in_child(_order.forked)


def order() -> Order:
    """The order of the process's emulated streams."""
    return _order
