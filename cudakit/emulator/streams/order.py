"""The order of work on emulated streams, the step at which each piece begins, and the check for races.

Work runs to its end at the call, one piece at a time. Clocks (`cudakit.streams.clocks`) say which work a GPU could run
in another order or at the same time. With one stream nothing can race: work is watched from the second stream on, and
earlier work counts as done.

A stream's writes to host memory arrive once the host has waited, as on a GPU. The writes are taken out again when the
work ends, and put in when the host or other work waits for the work. Later work on a stream reads and writes the memory
as earlier work left it.
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


#: Most pending writes: one more makes the oldest arrive, so that a program that never waits holds no more.
_MOST = 256


@dataclass(slots=True, eq=False)
class Arrival:
    """Elements that work wrote to host memory.

    Attributes
    ----------
    target : numpy.ndarray
        Host memory.
    values : numpy.ndarray
        Elements written to `target`, of the same shape and dtype.
    mask : numpy.ndarray or None
        Whether each element was written, of bool; None: all were.
    after : object
        Work for which the host must wait before the elements arrive, as `Order` represents it.
    former : numpy.ndarray or None
        Elements that the host sees, while work reads and writes the later ones.
    has_arrived : bool
        Whether the host sees the elements.
    """

    target: np.ndarray
    values: np.ndarray
    mask: np.ndarray | None
    after: Any
    former: np.ndarray | None = None
    has_arrived: bool = False

    def show(self) -> None:
        """Put the elements into host memory for work, until `hide`."""
        self.former = self.target.copy()
        self._put(self.values)

    def hide(self) -> None:
        """Restore the elements that the host sees, unless the host has waited since `show`."""
        if self.former is not None and not self.has_arrived:
            self._put(self.former)
        self.former = None

    def arrive(self) -> None:
        """Put the elements into host memory for good."""
        if self.former is None:
            self._put(self.values)
        self.has_arrived = True

    def overlaps(self, array: np.ndarray) -> bool:
        """Return whether the target and an array share memory."""
        # The array may be of a class that is no host array to its own functions.
        return np.may_share_memory(self.target, array.view(np.ndarray))

    def flags_of(self, array: np.ndarray) -> np.ndarray:
        """Return a flag for each element of an overlapping array: whether any of its bytes is among those to arrive."""
        lows, highs = zip(*map(np.lib.array_utils.byte_bounds, (self.target, array)), strict=True)
        flags = np.zeros(max(highs) - min(lows), bool)
        _flags_at(self.target, flags, min(lows))[...] = True if self.mask is None else self.mask[..., np.newaxis]
        return np.asarray(_flags_at(array, flags, min(lows)).any(axis=-1))

    def _put(self, values: np.ndarray) -> None:
        np.copyto(self.target, values, where=True if self.mask is None else self.mask)


class Arrivals:
    """Writes of emulated streams to host memory for which the host has not waited.

    Attributes
    ----------
    pending : list of Arrival
        Pending writes, in the order of the work.
    """

    def __init__(self) -> None:
        self.pending: list[Arrival] = []

    def flags_of(self, array: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield each piece of work for which the host must wait before it uses an array.

        With the work, yield flags of the array's elements that the work wrote.
        """
        for arrival in self.pending:
            if array.size and arrival.overlaps(array):
                yield arrival.after, arrival.flags_of(array)

    @property
    def awaited(self) -> list[Any]:
        """Work for which the host must wait, for each pending write."""
        return [arrival.after for arrival in self.pending]

    def hold(self, target: np.ndarray, values: np.ndarray, after: Any, mask: np.ndarray | None = None) -> None:
        """Hold elements until `after` is over, then let them arrive in `target`.

        `values` belong to this object from the call on.
        """
        if len(self.pending) >= _MOST:
            self.pending.pop(0).arrive()
        # Hold a view: the array may lose its memory before others have read it.
        self.pending.append(Arrival(target.view(np.ndarray), values, mask, after))

    def deliver(self, is_over: Callable[[Any], bool]) -> None:
        """Deliver the pending writes whose work is over, in the order of the work.

        `is_over` takes the `after` of an `Arrival`, and returns whether the host may see its elements.
        """
        pending, self.pending = self.pending, []
        for arrival in pending:
            if is_over(arrival.after):
                arrival.arrive()
            else:
                self.pending.append(arrival)

    def settle(self, arrays: Iterable[Any]) -> None:
        """Deliver the pending writes to pageable host arrays among `arrays`, the arguments of work that begins.

        On a GPU the call waits for these writes too.
        """
        if self.pending:
            pageable = [array for array in arrays if isinstance(array, np.ndarray) and not room().is_of_the_host(array)]
            due = [arrival for arrival in self.pending if any(arrival.overlaps(array) for array in pageable)]
            for arrival in due:
                arrival.arrive()
            self.pending = [arrival for arrival in self.pending if not arrival.has_arrived]

    @contextlib.contextmanager
    def shown(self, written: Iterable[Any], after: Callable[[], Any]) -> Iterator[None]:
        """Return a context in which work runs with all memory as earlier work left it.

        Parameters
        ----------
        written : iterable
            Arrays that the work may write. Its writes to host memory arrive later.
        after : callable
            Function that returns, once the work is done, the work for which the host must wait.
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
    """Return a view of the bytes from an array's first to its last in memory, with any gaps between elements."""
    if array.flags.c_contiguous:
        return bytes_of(array)
    low, high = host_span(array)
    return bytes_at(array, low, high - low)


def _flags_at(array: np.ndarray, flags: np.ndarray, address: int) -> np.ndarray:
    """Return the flags of an array's bytes, as a view of shape (*array.shape, bytes of an element).

    `flags` has one flag for each byte of memory from `address` on.
    """
    return np.ndarray(
        (*array.shape, array.itemsize), bool, flags, pointer_of(array) - address, (*array.strides, flags.itemsize)
    )


#: Bytes that a copy moves in a step.
COPY_BYTES = 16
#: Pieces of memory after which the order drops those that no work must wait for.
_MANY = 64
#: Streams, or streams ordered after others, after which the order drops what no work needs.
_MANY_STREAMS = 64
#: Most closed streams whose last work is remembered. The work of others counts as done, as if the host had waited.
_MOST_GONE = 256


class Ordered(Protocol):
    """The methods of a stream that the order needs."""

    handle: int

    @property
    def clock(self) -> int:
        """Current step of the stream."""

    def pass_time(self, steps: int = 0, until: int = 0) -> None:
        """Advance the clock by some steps, and then to the step `until` if that is later."""

    def sync(self) -> None:
        """Make the host wait for all work of the stream."""


class Order:
    """The order of all work on the process's emulated streams.

    Attributes
    ----------
    lock : threading.RLock
        Lock held while work runs: there is one emulated device.
    clocks : Clocks
        Clocks of the streams, since there are two.
    step : int
        Step up to which the host has waited: no work begins earlier.
    running : Use or None
        The running work, if nothing else may run meanwhile.
    arrivals : Arrivals
        Writes to host memory for which the host has not waited.
    names_lines : bool
        Whether `awaited` names the program's line that asked for the work.
    busy : bool
        Whether work runs in the thread that holds the lock: nothing may be forgotten meanwhile.
    """

    def __init__(self) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.clocks: Clocks = Clocks()
        self.step: int = 0
        self.running: Use | None = None
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
        """Reset the lock in a forked child, where no other thread holds it."""
        self.lock, self.busy = threading.RLock(), False

    def add(self, stream: Ordered) -> int:
        """Register a new stream and return its handle."""
        handle = next(self._handles)
        self._streams[handle] = weakref.ref(stream, lambda _: self._streams.pop(handle, None))
        return handle

    @property
    def watches(self) -> bool:
        """True if work can race and is watched: there are two streams, or touches of a stream that no longer exists."""
        return len(self._streams) > 1 or bool(self._history.touches)

    @property
    def asks_for_arrays(self) -> bool:
        """True if calls must say which arrays their work reads and writes."""
        return self.watches or room().has_host_memory or bool(self.arrivals.pending)

    # ── the host and the streams ──

    def record(self, stream: Ordered) -> Mark:
        """Return a mark of all work that `stream` has so far."""
        with self.lock:
            self.tidy()
            return self._mark(stream, stream.clock)

    def wait(self, stream: Ordered, mark: Mark) -> None:
        """Order later work of `stream` after a mark."""
        with self.lock:
            stream.pass_time(until=mark.step)
            if mark.use is not None and mark.clocks is self.clocks:
                self.clocks.wait(stream.handle, mark.use)

    def finish(self, mark: Mark) -> None:
        """Order all later work after a mark, since the host has waited for the marked work."""
        with self.lock:
            self.step = max(self.step, mark.step)
            if mark.use is not None and mark.clocks is self.clocks:
                self.clocks.finish(mark.use)
            if self.arrivals.pending:
                self.arrivals.deliver(lambda after: self._is_before(after, None, mark.step))

    def finish_all(self) -> None:
        """Make the host wait for all streams."""
        with self.lock:
            for reference in list(self._streams.values()):
                if (stream := reference()) is not None:
                    stream.sync()  # which a stream that is captured refuses
            for handle in self._named.difference(self._streams):
                self.finish(Mark(self.clocks.now(handle), self.clocks, 0))

    def _mark(self, stream: Ordered, step: int) -> Mark:
        return Mark(self.clocks.now(stream.handle) if self.watches else None, self.clocks, step)

    def _is_before(self, mark: Mark, stream: int | None, step: int) -> bool:
        """Return whether marked work is ordered before later work of a stream that is at `step`; None: of the host."""
        if mark.use is None or mark.clocks is not self.clocks:
            return mark.step <= step
        return self.clocks.is_before(mark.use, stream)

    # ── memory of the host ──

    def bring(self, stream: Ordered) -> None:
        """Put pending writes into host memory, if their work is ordered before host work that runs next on `stream`."""
        if self.arrivals.pending:
            self.arrivals.deliver(lambda after: self._is_before(after, stream.handle, stream.clock))

    def arrive(self, stream: Ordered, name: str, target: np.ndarray, values: np.ndarray) -> None:
        """Let a copy to host memory arrive once the host has waited for the stream.

        Parameters
        ----------
        stream : Ordered
            Stream of the copy.
        name : str
            Name of the operation that copies.
        target : numpy.ndarray
            Host memory.
        values : numpy.ndarray
            New elements of `target`, of the same shape. They belong to the order from the call on.
        """
        with self.lock:
            self.arrivals.hold(target, values, self._after(stream, stream.clock + 1, name))

    def awaited(self, array: np.ndarray, part: Callable[[np.ndarray], Any]) -> Mark | None:
        """Return the work for which the host must wait before it uses elements of an array, or None.

        Parameters
        ----------
        array : numpy.ndarray
            Host array.
        part : callable
            Function that takes flags in the array's shape and returns the flags of the used elements.
        """
        with self.lock:
            return next((after for after, flags in self.arrivals.flags_of(array) if np.any(part(flags))), None)

    @contextlib.contextmanager
    def shown(self, stream: Ordered, name: str, reads: Sequence[Any], written: Sequence[Any]) -> Iterator[None]:
        """Return a context for work on `stream`, with memory as earlier work left it, not as the host sees it.

        In the end, the work's writes to host memory are hidden until the host waits. `name` is the operation's name.
        `reads` and `written` are the arrays that the work reads and writes.
        """
        with self.lock:
            self.arrivals.settle((*reads, *written))
            with self.arrivals.shown(written, lambda: self._after(stream, stream.clock, name)):
                yield

    def _after(self, stream: Ordered, step: int, name: str) -> Mark:
        """Return a mark of the work for which the host must wait, with `name` as the operation's name.

        It is the running work, or if none runs, all work of a stream. The mark ends at `step` or later.
        """
        mark = self._mark(stream, step) if self.running is None else Mark(self.running, self.clocks, step)
        return mark._replace(doer=Doer(name, stream.handle, call_site() if self.names_lines else ""))

    # ── a piece of work ──

    def begin(
        self,
        stream: Ordered,
        reads: Iterable[np.ndarray],
        writes: Iterable[np.ndarray],
        insert_waits: bool,
        noted: bool,
    ) -> Use:
        """Enter work that begins on `stream` into the order; return its position.

        With `insert_waits`, the stream first waits for earlier work that conflicts with `reads` and `writes`. With
        `noted`, later conflicting work waits for this work.
        """
        self._watched = True
        self._named.add(stream.handle)
        touched, streams, note = self._touched(reads, writes), streams_order(), None
        insert_waits = insert_waits and not streams.manual_blocks
        for reporter in streams.reporters:
            note = reporter.see(stream.handle, touched, self.clocks, (), True, insert_waits)
        if insert_waits:
            self._insert_waits(stream, touched)
        if noted or note is not None:
            use = self.clocks.use(stream.handle, touched, note)
        else:
            use = self.clocks.now(stream.handle)
        use.event = stream.clock
        return use

    def insert_waits(self, stream: Ordered, reads: Sequence[Any], writes: Sequence[Any], noted: bool = False) -> None:
        """Make `stream` wait now for earlier work that conflicts with declared reads and writes.

        With `noted`, later conflicting work waits once for all work that the stream has by then, as on a GPU.
        """
        with self.lock:
            self.tidy()
            former, self.busy = self.busy, True
            try:
                if self.watches:
                    touched = self._touched(memories_of(reads), memories_of(writes))
                    if not streams_order().manual_blocks:
                        self._insert_waits(stream, touched)
                    if noted:
                        self._watched = True
                        self._named.add(stream.handle)
                        self.clocks.use(stream.handle, touched)
            finally:
                self.busy = former

    def _insert_waits(self, stream: Ordered, touched: Touched) -> None:
        for use in self.clocks.needed(stream.handle, touched):
            if use.event is None:  # of a plan, which others wait for now
                handle: Any = use.stream
                reference, point = self._streams.get(handle), self.clocks.now(handle)
                other = None if reference is None else reference()
                use.count, use.clock, use.event = point.count, point.clock, other.clock if other else self.step
            stream.pass_time(until=use.event)
            self.clocks.wait(stream.handle, use)

    def _touched(self, reads: Iterable[np.ndarray], writes: Iterable[np.ndarray]) -> Touched:
        spans: dict[int, Range] = {}
        for array in (*reads, *writes):
            if id(array) not in spans:
                low, high = spans[id(array)] = host_span(array)
                self._track(array, low, high)
        return self.clocks.touch([spans[id(array)] for array in reads], [spans[id(array)] for array in writes])

    def note(self, doer: Doer, use: Use, touches: list[Touch]) -> None:
        """Record the touches of a piece of work.

        Raises
        ------
        EmulationError
            If the work races with earlier work.
        """
        for touch in touches:
            if touch.owner is not None:
                self._track(touch.owner, touch.address, touch.stop)
                touch.owner = None
        if device_limits().has_heap:
            renewed = device_limits().heap.renewed
            while renewed:
                self._history.forget_bytes(*renewed.popitem())
        race = self._history.add(doer, use, touches, partial(self.clocks.is_before, stream=doer.stream))
        if race is not None:
            raise race

    # ── forgetting ──

    def _track(self, array: np.ndarray, low: int, high: int) -> None:
        """Note the memory of `array`, from address `low` to `high`, so that its touches are forgotten once it is freed.

        Another array may then get the same addresses.
        """
        owner = array if type(array) is np.ndarray and array.base is None else _owner(array)
        memory = self._memory.get(id(owner))
        if memory is None or memory() is not owner:
            memory = self._memory[id(owner)] = _Memory(owner, self._gone.append)
            memory.low, memory.high, memory.key = low, high, id(owner)
        elif low < memory.low or memory.high < high:
            memory.low, memory.high = min(memory.low, low), max(memory.high, high)

    def tidy(self) -> None:
        """Forget freed memory and finished work; forget everything once nothing can race."""
        # A finalizer, which may sync a stream, can run in the middle of any code here.
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
        """Forget the touches of freed memory, except in parts that a living array has, as one shared by DLPack."""
        if self._memory.get(gone.key) is gone:
            del self._memory[gone.key]
        low = gone.low
        living = [
            (memory.low, memory.high)
            for memory in self._memory.values()
            if memory.low < gone.high and low < memory.high and memory() is not None
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
    """A position in a stream's work: all work that the stream had when the mark was made.

    Attributes
    ----------
    use : Use or None
        Last use of the stream; None while nothing is watched.
    clocks : Clocks
        Clocks of `use`. The order has new clocks once all earlier work is over.
    step : int
        Step at which the work ends, or an earlier step.
    doer : Doer or None
        The work, if the mark is of one piece.
    """

    use: Use | None
    clocks: Clocks
    step: int
    doer: Doer | None = None


class Turn:
    """A context in which a piece of work runs on a stream, at its position in the order.

    Parameters
    ----------
    order : Order
        Order of all streams.
    stream : Ordered
        Stream on which the work runs.
    name : str
        Name of the kernel or operation.
    reads, writes : sequence
        Arrays that the work declares to read and to write.
    insert_waits : bool
        Whether the work waits for earlier work on other streams that conflicts by the declared arrays.
    noted : bool
        Whether later work waits for this work if it conflicts by the declared arrays.
    move : Work, optional
        A copy, a fill or work of the host, which touches the arrays that it declares. While the host works, other
        threads may run.

    Raises
    ------
    EmulationError
        If the work races with earlier work: for a kernel after it has run, for other work before it is done.
    """

    def __init__(
        self, order: Order, stream: Ordered, name: str, reads: Sequence[Any], writes: Sequence[Any],
        insert_waits: bool = True, noted: bool = True, move: Work | None = None,
    ) -> None:  # fmt: skip
        self._order, self._stream, self._name = order, stream, name
        self._reads, self._writes, self._insert_waits, self._noted = reads, writes, insert_waits, noted
        self._move, self._alone = move, move is None or move.kind != "host"
        self._steps = 0 if move is None else -(-move.size // COPY_BYTES)
        self._use: Use | None = None
        self._doer: Doer | None = None
        self._shown: contextlib.AbstractContextManager[None] | None = None

    def __enter__(self) -> Self:
        order = self._order
        order.lock.acquire()
        self._is_held, self._former = True, (order.busy, order.running)
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
        """Advance the stream's clock by the steps of a copy, a fill or work of the host."""
        self._stream.pass_time(self._steps)
        self._steps = 0

    def _begin(self) -> None:
        order, stream = self._order, self._stream
        if order.watches:
            reads, writes = memories_of(self._reads), memories_of(self._writes)
            self._doer = Doer(self._name, stream.handle, call_site())
            self._use = order.begin(stream, reads, writes, self._insert_waits, self._noted)
            if self._move is not None:
                touches = [touch_of(array, "its source", READ) for array in reads]
                touches += [touch_of(array, "its target", WRITE) for array in writes]
                order.note(self._doer, self._use, touches)
        if not self._alone:
            order.bring(stream)
            return
        order.running = self._use
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
        self._order.busy, self._order.running = self._former
        self._is_held = False
        self._order.lock.release()

    def launch(self, launch: Launch | TileLaunch) -> None:
        """Run a kernel.

        Raises
        ------
        EmulationError
            For errors of `cudakit.emulator.machine.machine.run`, and for a race with earlier work.
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
    """A reference to the owner of an array's memory, with the range of bytes that were used."""

    __slots__ = ("high", "key", "low")
    low: int
    high: int
    key: int


def memories_of(values: Iterable[Any]) -> list[np.ndarray]:
    """Return the host array of each argument that has memory."""
    arrays = []
    for value in values:
        array = memory_of(value)
        if array is not None and array.size:
            arrays.append(array)
    return arrays


def memory_of(value: Any) -> np.ndarray | None:
    """Return the host array whose memory an argument of a call uses, or None if the argument has no memory."""
    if type(value) is np.ndarray and value.shape:
        return value
    if isinstance(value, EmulatedTensorMap | SurfaceObject):
        return value.array
    if isinstance(value, ctypes.c_void_p):
        # As on a GPU, a pointer names the allocation that it points into.
        return room().at(value.value or 0)
    return value.texels if isinstance(value, TextureObject) else as_numpy(value)


def _owner(array: np.ndarray) -> Any:
    """Return the object that lives as long as the memory of `array`, as far as it can be found."""
    owner: Any = array
    while True:
        # The memory of a torch tensor, or of `as_strided`, is shown by a temporary object, which holds the owner.
        base = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
        inner = owner.owner if isinstance(owner, Exported) else base
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
    """Return the order of the process's emulated streams."""
    return _order
