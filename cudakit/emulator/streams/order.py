"""Which work of emulated streams comes before which, at which step it begins, and what races.

Work runs when it is asked for, to its end, one piece at a time. What a GPU would have been free to run in another
order or at the same time, clocks tell (`cudakit.streams.order.clocks`). While there is one stream there is nothing to
tell: work is watched from the time that there are two, and what ran before counts as done.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import READ, WRITE
from cudakit.emulator.resources.allocations import room
from cudakit.emulator.resources.sampler import TextureObject
from cudakit.emulator.resources.surface import SurfaceObject
from cudakit.emulator.resources.tensor_map import EmulatedTensorMap
from cudakit.emulator.streams.arrivals import Arrivals
from cudakit.emulator.streams.watch import Touch, Watch, touch_of
from cudakit.emulator.streams.watch_history import Doer, History
from cudakit.streams import forks
from cudakit.streams.call_site import call_site
from cudakit.streams.order.clocks import Clocks, Conflict
from cudakit.streams.order.order import order as streams_order
from cudakit.streams.order.segments import Range, Touched, Use
from cudakit.streams.witnesses import Work, watched
from cudakit.types.host import as_numpy

if TYPE_CHECKING:
    from cudakit.emulator.tile.machine import TileLaunch

#: Bytes that a copy moves in a step.
COPY_BYTES = 16
#: Pieces of memory after which those are forgotten that nobody need wait for.
_MANY = 1024
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
    conflicts : tuple of Conflict
        While somebody watches (`cudakit.streams.witnesses`): what must come before the work that is on, as it was
        found before waits were put in.
    is_put : bool
        Whether waits for them were put in.
    now_on : Use or None
        The work that is on, where nothing else may run meanwhile.
    arrivals : Arrivals
        What work wrote to memory of the host and nobody has waited for.
    names_lines : bool
        Whether `awaited` tells which line of the program asked for that.
    """

    lock: threading.RLock

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.clocks: Clocks = Clocks()
        self.step: int = 0
        self.conflicts: tuple[Conflict, ...] = ()
        self.is_put: bool = False
        self.now_on: Use | None = None
        self.arrivals: Arrivals = Arrivals()
        self.names_lines: bool = False
        self._history = History()
        self._streams: weakref.WeakValueDictionary[int, Ordered] = weakref.WeakValueDictionary()
        self._handles = itertools.count(1)
        self._named: set[int] = set()
        self._memory: dict[int, _Memory] = {}
        self._gone: deque[_Memory] = deque()
        self._watched = False
        self._is_over = False
        self.depth = 0
        self._limit = _MANY
        self._most_named = self._most_clocks = _MANY_STREAMS

    def _locked(self) -> _Held:
        return _Held(self)

    def forked(self) -> None:
        """Begin again in a forked child, where no other thread holds the lock."""
        self.lock, self.depth = threading.RLock(), 0

    def add(self, stream: Ordered) -> int:
        """Know a new stream; its handle."""
        with self._locked():
            handle = next(self._handles)
            self._streams[handle] = stream
            return handle

    @property
    def watches(self) -> bool:
        """Whether work can race, so that it is watched: there are two streams, or what one that is gone did."""
        return len(self._streams) > 1 or bool(self._history)

    @property
    def asks_for_arrays(self) -> bool:
        """Whether it matters which arrays work reads and writes."""
        return self.watches or room().has_host_memory or bool(self.arrivals)

    # ── the host and the streams ──

    def record(self, stream: Ordered) -> tuple[Use | None, Clocks]:
        """All that `stream` was given so far; None while nothing is watched."""
        with self._locked():
            self._tidy()
            return self.clocks.now(stream.handle) if self.watches else None, self.clocks

    def wait(self, stream: Ordered, use: Use | None, step: int) -> None:
        """Let what `stream` is given from now on come after `use`, which ends at `step`."""
        with self._locked():
            stream.pass_time(until=step)
            if use is not None:
                self.clocks.wait(stream.handle, use)

    def finish_all(self) -> None:
        """Let the host wait for all streams."""
        with self._locked():
            for stream in list(self._streams.values()):
                stream.sync()  # which a stream that is captured refuses
            for handle in self._named.difference(self._streams.keys()):
                self.finish(self.clocks.now(handle), 0)

    def finish(self, use: Use | None, step: int) -> None:
        """Let everything that is asked for from now on come after `use`, which ends at `step`: the host has waited."""
        with self._locked():
            self.step = max(self.step, step)
            if use is not None:
                self.clocks.finish(use)
                self._is_over = True
            self.arrivals.deliver(lambda after: self.comes_before(after, None, step))

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
        with self._locked():
            self.arrivals.hold(target, values, self.after(stream, stream.clock + 1, name))

    def awaited(self, array: np.ndarray, part: Callable[[np.ndarray], Any]) -> After | None:
        """What the host would have to wait for before it uses elements of an array; None where it may.

        Parameters
        ----------
        array : numpy.ndarray
        part : callable
            Gives, of flags in the array's shape, those of the elements that are used.
        """
        with self._locked():
            return next((after for after, flags in self.arrivals.flags_of(array) if np.any(part(flags))), None)

    @contextlib.contextmanager
    def shown(self, stream: Ordered, name: str, reads: Sequence[Any], written: Sequence[Any]) -> Iterator[None]:
        """A block of work on `stream` that reads and writes memory as earlier work left it, not as the host sees it."""
        with self._locked():
            self.arrivals.settle((*reads, *written))
            with self.arrivals.shown(written, lambda: self.after(stream, stream.clock, name)):
                yield

    def after(self, stream: Ordered, step: int, name: str) -> After:
        """What stands for the work that is on, or for all that a stream was given; it ends at `step` or later."""
        use = self.now_on
        if use is None and self.watches:
            use = self.clocks.now(stream.handle)
        return After(use, self.clocks, step, Doer(name, stream.handle, call_site() if self.names_lines else ""))

    def comes_before(self, after: After, stream: Ordered | None, step: int) -> bool:
        """Whether work comes before what a stream, or the host, does from now on; it ends at `step`."""
        if after.use is None or after.clocks is not self.clocks:
            return after.step <= step
        return self.clocks.is_before(after.use, None if stream is None else stream.handle)

    # ── a piece of work ──

    def turn(
        self,
        stream: Ordered,
        name: str,
        reads: Sequence[Any],
        writes: Sequence[Any],
        put_in: bool = True,
        alone: bool = True,
    ) -> Turn:
        """For a ``with``: a block in which a piece of work runs on `stream`, at its place in the order.

        Parameters
        ----------
        stream : Ordered
        name : str
            Of the kernel or operation.
        reads, writes : iterable
            Arrays that it declares to read and to write.
        put_in : bool
            Whether it waits for earlier work on other streams that conflicts by what both declared.
        alone : bool
            Whether nothing else may run meanwhile.
        """
        return Turn(self, stream, name, reads, writes, put_in, alone)

    def begin(self, stream: Ordered, reads: Sequence[Any], writes: Sequence[Any], put_in: bool) -> Use | None:
        """Find the place in the order of what `stream` does now; None while nothing is watched."""
        self._tidy()
        if not self.watches:
            return None
        self._watched = True
        self._named.add(stream.handle)
        self.is_put = put_in and not streams_order().is_manual
        touched = self._touched(reads, writes)
        if watched():
            self.conflicts = tuple(self.clocks.conflicts(stream.handle, touched))
        if self.is_put:
            self._put_in(stream, touched)
        use = self.clocks.use(stream.handle, touched)
        use.event = stream.clock
        return use

    def end(self, stream: Ordered, use: Use | None) -> None:
        """What `begin` began is over."""
        self.conflicts = ()
        if use is None:
            self.step = max(self.step, stream.clock)
        else:
            use.event = stream.clock

    def put_in(self, stream: Ordered, reads: Sequence[Any], writes: Sequence[Any]) -> None:
        """As of now, let `stream` wait for what must come before it reads and writes that, by what was declared."""
        with self._locked():
            self._tidy()
            if self.watches and not streams_order().is_manual:
                self._put_in(stream, self._touched(reads, writes))

    def _put_in(self, stream: Ordered, touched: Touched) -> None:
        for use in self.clocks.needed(stream.handle, touched):
            self.wait(stream, use, use.event)

    def note(self, doer: Doer, use: Use, touches: list[Touch]) -> None:
        """Remember what a piece of work touches.

        Raises
        ------
        EmulationError
            If it races with an earlier one.
        """
        with self._locked():
            for touch in touches:
                self._know(touch.owner, touch.address, touch.stop)
                touch.owner = None
            race = self._history.add(doer, use, touches, lambda earlier: self.clocks.is_before(earlier, doer.stream))
        if race is not None:
            raise race

    def _touched(self, reads: Sequence[Any], writes: Sequence[Any]) -> Touched:
        return self.clocks.touch(list(self._ranges(reads)), list(self._ranges(writes)))

    def _ranges(self, values: Iterable[Any]) -> Iterator[Range]:
        for value in values:
            array = memory_of(value)
            if array is not None and array.size:
                low, high = np.lib.array_utils.byte_bounds(array)
                self._know(array, low, high)
                yield low, high

    # ── forgetting ──

    def _know(self, array: np.ndarray, low: int, high: int) -> None:
        """Be told when the memory of `array` is gone: another array may lie there then."""
        owner = _owner(array)
        known = self._memory.get(id(owner))
        if known is None or known() is not owner:
            known = self._memory[id(owner)] = _Memory(owner, self._gone.append)
            known.low, known.high, known.key = low, high, id(owner)
        known.low, known.high = min(known.low, low), max(known.high, high)

    def _tidy(self) -> None:
        """Forget memory that is gone, and what is over; everything, where nothing can race any more."""
        # A finalizer, which may sync a stream, comes in the middle of anything here.
        if not self._watched or self.depth > 1:
            return
        while self._gone:
            gone = self._gone.popleft()
            if self._memory.get(gone.key) is gone:
                del self._memory[gone.key]
            for low, high in self._without_owner(gone.low, gone.high):
                self._history.forget_memory(low, high)
                for segment in self.clocks.touch(writes=[(low, high)]).written:
                    segment.write, segment.reads = None, {}
        is_wide = len(self._named) > self._most_named or self.clocks.breadth > self._most_clocks
        if (
            self._is_over
            or is_wide
            or self._history.is_long
            or len(self.clocks) > self._limit
            or len(self._streams) < 2
        ):
            self._forget()
        if not self.watches:
            self._watched = False
            self.clocks = Clocks()
            self._memory.clear()
            self._gone.clear()
            self._named.clear()

    def _without_owner(self, low: int, high: int) -> Iterator[Range]:
        """The parts of a range that no other array is known to have: of DLPack's say, which shows another's memory."""
        living = [
            known for known in self._memory.values() if known.low < high and low < known.high and known() is not None
        ]
        for known in sorted(living, key=attrgetter("low")):
            if low < known.low:
                yield low, known.low
            low = max(low, known.high)
        if low < high:
            yield low, high

    def _awaited(self) -> Iterator[Use]:
        for after in self.arrivals.awaited:
            if after.use is not None and after.clocks is self.clocks:
                yield after.use

    def _forget(self) -> None:
        self._is_over = False
        gone = sorted(handle for handle in self._named if handle not in self._streams)
        for handle in gone[:-_MOST_GONE]:
            self.clocks.finish(self.clocks.now(handle))
        only = next(iter(self._streams.keys())) if len(self._streams) == 1 else None
        self._history.forget(lambda use: self.clocks.is_before(use, only))
        uses = [*self._history.uses, *self._awaited()]
        idle = self._named.difference(use.stream for use in uses)
        self._named -= idle
        self.clocks.drop(idle.intersection(gone))
        self.clocks.forget()
        self.clocks.prune(uses)
        self._limit = max(_MANY, 2 * len(self.clocks))
        self._most_named = max(_MANY_STREAMS, 2 * len(self._named))
        self._most_clocks = max(_MANY_STREAMS, 2 * self.clocks.breadth)


class After(NamedTuple):
    """What the host waits for before it sees what work wrote.

    Attributes
    ----------
    use : Use or None
        All that its stream was given; None while nothing is watched.
    clocks : Clocks
    step : int
        No later than the step at which the work ends.
    doer : Doer
        The work.
    """

    use: Use | None
    clocks: Clocks
    step: int
    doer: Doer


class _Held:
    """For a ``with``: the order's lock, and how often its thread holds it."""

    __slots__ = ("_order",)

    def __init__(self, order: Order) -> None:
        self._order = order

    def __enter__(self) -> None:
        self._order.lock.acquire()
        self._order.depth += 1

    def __exit__(self, *_: object) -> None:
        self._order.depth -= 1
        self._order.lock.release()


class Turn:
    """A piece of work that is on: what it took and what it touches is told here."""

    def __init__(
        self, order: Order, stream: Ordered, name: str, reads: Sequence[Any], writes: Sequence[Any],
        put_in: bool, alone: bool,
    ) -> None:  # fmt: skip
        self._order, self._stream, self._name = order, stream, name
        self._given, self._alone = (reads, writes, put_in), alone
        self._held = _Held(order)
        self._use: Use | None = None
        self._doer: Doer | None = None
        self._shown = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._held.__enter__()
        try:
            self._use = self._order.begin(self._stream, *self._given)
            if self._use is not None:
                self._doer = Doer(self._name, self._stream.handle, call_site())
            self._show()
        except BaseException:
            self._held.__exit__()
            raise
        if not self._alone:
            self._held.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._order.end(self._stream, self._use)
        finally:
            if self._alone:
                self._shown.close()
                self._order.now_on = None
                self._held.__exit__()

    def _show(self) -> None:
        """Let the work see memory of the host as earlier work left it."""
        order, stream, (reads, writes, _) = self._order, self._stream, self._given
        if not self._alone:
            order.arrivals.deliver(lambda after: order.comes_before(after, stream, stream.clock))
            return
        order.now_on = self._use
        if order.arrivals or room().has_host_memory:
            self._shown.enter_context(order.shown(stream, self._name, reads, writes))

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
            self._note([touch for touch in watch.touches() if touch.address != launch.own_address])

    def move(self, work: Work) -> None:
        """Check a copy, a fill or work of the host on a stream.

        Raises
        ------
        EmulationError
            Where it races with earlier work.
        """
        if self._doer is None:
            return
        found = [("its source", READ, value) for value in work.reads]
        found += [("its target", WRITE, value) for value in work.writes]
        touches = [touch_of(array, name, use) for name, use, value in found if (array := memory_of(value)) is not None]
        self._note([touch for touch in touches if touch is not None])

    def _note(self, touches: list[Touch]) -> None:
        assert self._doer is not None
        assert self._use is not None
        self._order.note(self._doer, self._use, touches)


class _Memory(weakref.ref[Any]):
    """What an array's memory belongs to, and the bytes of it that were used."""

    __slots__ = ("high", "key", "low")
    low: int
    high: int
    key: int


def memory_of(value: Any) -> np.ndarray | None:
    """The host array whose memory an argument is of; None for what has none."""
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
        inner = getattr(owner, "tensor", None) if held is None else held
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
forks.in_child(_order.forked)


def order() -> Order:
    """The order of the process's emulated streams."""
    return _order
