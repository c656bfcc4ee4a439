"""The order between streams that access the same memory, and objects kept alive until work is done.

While the process launches on one stream only, and CuPy and torch work on that stream, too, launches are in order
without help: nothing is recorded and nothing waits. From the second stream on, `Clocks` computes which work a launch
must wait for. Three rules make this exact and cheap:

- Memory that has moved from stream to stream is warm for its next uses. An event is recorded right after each use, so
  that the next stream waits for this use and no more. A finished event is reused.
- A launch that accesses cold memory only may be replayed without the order (`settle`), until another stream needs the
  memory. Then the spell ends, and the other stream waits for an event recorded at its end.
- Arguments are kept alive until their use is done, so that no allocator reuses the memory too early. This holds for
  warm uses, and for uses after work of CuPy or torch on another stream.

`Tracks` has the streams, their events and the objects kept alive. `Order` adds the waits. `cudakit.streams.repeating`
replays a launch on one of several streams, with the waits that it needs and no other check.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from cudakit.errors import LaunchError
from cudakit.streams import devices, process, streams
from cudakit.streams.segments import COLD, MANY, NEVER, Range, Spell, Touched, Use, producers_of, span_of
from cudakit.streams.streams import DeviceStream, device_stream, handle_of

if TYPE_CHECKING:
    from cuda.core import Event, Stream

    from cudakit.streams.clocks import Clocks

_MOST_SEGMENTS = 65_536
#: Most remembered streams before idle ones are searched for.
_MANY = 64
#: Most remembered closed streams before the host waits for their work.
_MOST_CLOSED = 64
#: After how many events of a stream is looked whether its first ones are done, where the same arrays come again.
LOOK = 16
#: After how many such looks all streams are looked at.
_LOOK_AROUND = 4
#: Stands where an event is to be recorded.
DUE: Any = object()


class FastPath(Protocol):
    """A repeated launch that skips the checks of `Order` while no memory moves between streams.

    It is notified, by `unsettle`, when it must make these checks again.
    """

    def unsettle(self) -> None:
        """Make the checks of `Order` again at each launch."""


class Reporter(Protocol):
    """An observer of all dependencies between streams. See `cudakit.profile.hazards`."""

    def see(
        self, stream: Any, touched: Touched, clocks: Clocks, foreign: Sequence[int], ordered: bool, is_put: bool
    ) -> Any:
        """Observe that `stream` is about to access the memory, before the use is recorded in `clocks`.

        `foreign` are the driver's numbers of streams that may have unseen work on the memory. `ordered` says whether
        the work is put on the stream with the order's checks, `is_put` whether needed waits are added. The result
        becomes the use's `note`.
        """


class Track:
    """State of a stream in the order. `Clocks` has the rest, under the stream's name.

    Attributes
    ----------
    core : cuda.core.Stream
        The stream.
    handle, device_id : int
        Number of the stream in the driver, and its device.
    idle : list of cuda.core.Event
        Events of the device that nothing waits for, for reuse.
    holdings : deque
        Uses that have an event, in their order, each with the objects kept alive until the event is done.
    repeated : dict
        Uses that move on at each launch (see `repeating`), each with the objects kept alive until it is done.
    settled : set of FastPath
        Replays that have settled in the spell.
    spell : Spell or None
        Present spell of the stream.
    capture : Captured or None
        Capture of the stream, if it is captured.
    unmarked : list
        Arguments of launches in other programs' captures, without an event: kept until the stream's next event.
    """

    __slots__ = (
        "capture", "core", "device_id", "handle", "holdings", "idle", "repeated", "settled", "spell", "unmarked",
    )  # fmt: skip

    def __init__(self, core: Stream, handle: int, device_id: int, idle: list[Event]) -> None:
        self.core = core
        self.handle = handle
        self.device_id = device_id
        self.idle = idle
        self.holdings: deque[tuple[Use, Any]] = deque()
        self.repeated: dict[Use, Any] = {}
        self.settled: weakref.WeakSet[FastPath] = weakref.WeakSet()
        self.spell: Spell | None = None
        self.capture: Captured | None = None
        self.unmarked: list[Any] = []


class Captured:
    """Work put on a stream while it was captured, for the order of the graph's launches.

    Attributes
    ----------
    begun : Use
        All work of the stream before the capture, as one use.
    reads, writes : dict of range to None
        Address ranges that the graph reads, and address ranges that it may write.
    things : list
        Arguments that the graph must keep alive.
    """

    def __init__(self, begun: Use) -> None:
        self.begun = begun
        self.reads: dict[Range, None] = {}
        self.writes: dict[Range, None] = {}
        self.things: list[Any] = []


class Tracks:
    """All streams with launches, and the waits between them.

    Attributes
    ----------
    lock : threading.RLock
        Lock held from the waits of a piece of work until the work is on its stream, against other threads.
    single : bool
        Whether all launches so far were on one stream.
    by_handle, loose : dict of int to Track
        Streams with launches, and streams without launches that keep objects alive, by the driver's number.
    origin : Use or None
        Use that precedes the first launch of a new stream.
    fast_paths : WeakSet of FastPath
        Replays to notify when they may no longer skip the order.
    captures : int
        Number of open captures.
    """

    def __init__(self) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.single: bool = True
        self.by_handle: dict[int, Track] = {}
        self.loose: dict[int, Track] = {}
        self._closed: list[Track] = []
        self._idle: dict[int, list[Event]] = {}
        self.origin: Use | None = None
        self.fast_paths: weakref.WeakSet[FastPath] = weakref.WeakSet()
        self.captures = 0
        self._looks = 0
        self._most = _MANY

    @cached_property
    def clocks(self) -> Clocks:
        """Clocks of all streams."""
        from cudakit.streams.clocks import Clocks  # for the second stream: many programs have one

        return Clocks()

    def unsettle(self) -> None:
        """Stop all replays that skip the order. Each settles again at its next launch that needs no wait."""
        with self.lock:
            for track in self.by_handle.values():
                if track.spell is not None:
                    self._end_spell(track)
            for path in list(self.fast_paths):
                path.unsettle()

    def wait(self, track: Track, use: Use) -> None:
        """Make a stream wait for a use on another stream."""
        if use.spell is not None:
            use = self._end_spell(use.stream)  # type: ignore[arg-type]
        elif use.event is None or use.event is DUE:
            point = self.mark(use.stream)  # type: ignore[arg-type]
            if use.event is None:
                use.event = point.event
            use = point
        self.wait_until(track, use)

    def wait_until(self, track: Track, use: Use) -> None:
        if use.event is DUE:
            use = self.mark(use.stream)  # type: ignore[arg-type]
            if use.event is DUE:
                raise LaunchError(
                    "this stream must come after one that others capture, by cuda.core or CuPy; an event of that one "
                    "would draw this one into their graph. End the capture first, or capture with ck.capture"
                )
        if use.event is not None:
            track.core.wait(use.event)
        self.clocks.wait(track, use)

    def wait_on_host(self, track: Track, touched: Touched) -> None:
        """Wait on the host for all work of the other streams, because this stream cannot wait for them.

        Streams in other programs' captures are not waited for: they are recorded as writing the memory of `touched`.
        """
        for other in self.by_handle.values():
            if other is track or other.capture is not None or other.core.is_closed:
                continue
            if streams.is_captured(other.handle):  # by others: whoever touches this memory next must still wait
                self.clocks.use(other, touched._replace(read=(), written=touched.written + touched.read))
                continue
            with contextlib.suppress(Exception):  # the first error is told
                other.core.sync()
                self.clocks.finish(self.clocks.now(other))

    def wait_for_foreign(self, track: Track, handle: int) -> None:
        """Make a stream wait for all present work, recorded or not, of the stream with the number `handle`."""
        source = self.by_handle.get(handle)
        if source is None or source.core.is_closed:
            streams.wait_for(track.core, streams.of_handle(handle))
        else:
            self.wait_until(track, self.mark(source))

    def mark(self, track: Track) -> Use:
        """Record an event after all present work of a stream. Return this work as one use, with the event.

        The use's event is None if the work is done, and `DUE` if none can be recorded now. For a stream that cudakit
        captures, it is the work from before the capture.
        """
        if track.capture is not None:
            return track.capture.begun
        use = self.clocks.now(track)
        if track.core.is_closed:
            # What a closed stream was given goes on, but nothing can wait for it except the host.
            with devices.on_device(track.device_id):
                devices.current_device().sync()
            self.clocks.finish(use)
        elif streams.is_captured(track.handle):
            use.event = DUE  # by others: an event now would be a part of their graph
        else:
            self.record(use, None)
            if not len(track.holdings) % LOOK:
                self.look(track)
        return use

    def record(self, use: Use, things: Any) -> None:
        track: Any = use.stream
        idle = track.idle
        if devices.device_count() > 1:
            # An event belongs to the context that is current when it is made, and must be of its stream's.
            with devices.on_device(track.device_id):
                use.event = track.core.record(idle.pop() if idle else None)
        else:
            use.event = track.core.record(idle.pop() if idle else None)
        if track.unmarked:
            things, track.unmarked = (things, track.unmarked), []
        track.holdings.append((use, things))

    def look(self, track: Track) -> None:
        """Release the objects kept alive for finished work of a stream. Every few calls, do so for all streams."""
        self._looks += 1
        if self._looks % _LOOK_AROUND == 0:
            self.release()
        elif not self.captures:
            self._release(track)

    def release(self) -> None:
        """Release the objects kept alive for finished work."""
        with self.lock:
            if self.captures:
                return  # a query of an event would spoil the capture
            for track in (*self.by_handle.values(), *self.loose.values(), *self._closed):
                self._release(track)

    def _release(self, track: Track) -> None:
        """Release the objects kept alive for finished work of a stream.

        Few events are queried: work before a finished event is finished.
        """
        if not track.core.is_closed and streams.is_captured(track.handle):
            return  # by others, whose capture a question would break off
        holdings, last = track.holdings, None
        for count in (len(holdings), len(holdings) // 2, 1):
            while 0 < count <= len(holdings) and holdings[count - 1][0].event.is_done:
                for _ in range(count):
                    last = holdings.popleft()[0]
                    track.idle.append(last.event)
        if last is not None:
            self.clocks.finish(last)
        if track.repeated:
            recorded = [use for use in track.repeated if use.event is not None]
            for use in sorted(recorded, key=attrgetter("count")):
                if not use.event.is_done:
                    break
                self.clocks.finish(use)
                use.point = None
                del track.repeated[use]

    def _end_spell(self, track: Track) -> Use:
        """End the period in which a stream repeats launches without recording them.

        Its replays stop skipping the order. Return all work of the stream so far as one use with an event, for which
        other streams wait.
        """
        spell, track.spell = track.spell, None
        for path in list(track.settled):
            path.unsettle()
        track.settled.clear()
        end = self.mark(track)
        if spell is not None:
            spell.end = end
        return end

    def of(self, target: DeviceStream) -> Track:
        track = self.by_handle.get(target.handle)
        return track if track is not None and track.core is target.core else self._appear(target)

    def new(self, target: DeviceStream) -> Track:
        return Track(target.core, target.handle, target.device_id, self._idle.setdefault(target.device_id, []))

    def _appear(self, target: DeviceStream) -> Track:
        """Return a new `Track` of a stream, at its first launch.

        The stream waits for all launches that were not recorded. If the driver's stream is known by another object,
        return its track, with the object replaced.
        """
        former = self.by_handle.get(target.handle)
        if former is not None and not former.core.is_closed:
            former.core = target.core  # another object for the same stream
            return former
        gone = [] if former is None else [self.by_handle.pop(former.handle)]
        if self.single or len(self.by_handle) >= self._most:
            gone += [track for track in self.by_handle.values() if track.core.is_closed]
            self.by_handle = {handle: track for handle, track in self.by_handle.items() if not track.core.is_closed}
            if not (self.single or self.captures):
                self._retire()
        self._closed += gone
        others = list(self.by_handle.values())
        track = self.by_handle[target.handle] = self.new(target)
        if self.single and others:
            self.single = False
            for path in list(self.fast_paths):
                path.unsettle()
            self.origin = self.mark(others[0])
        if (self.single and gone) or len(self._closed) > _MOST_CLOSED:
            self._drop_closed()
        if self.origin is not None and not self.clocks.is_before(self.origin, track):
            self.wait_until(track, self.origin)
        return track

    def _retire(self) -> None:
        """Forget streams whose work is done. They are added again if they get more."""
        self.release()
        idle = []
        for track in self.by_handle.values():
            if track.spell is None and not track.holdings and not track.repeated and self.clocks.is_idle(track):
                idle.append(track)
            elif not (track.holdings and track.spell is None):
                self._end_spell(track)  # with an event: the next time it is seen whether the stream is there
        for track in idle:
            del self.by_handle[track.handle]
        if self.origin is not None and self.origin.stream in idle:
            self.origin = None
        for handle in [handle for handle, track in self.loose.items() if not track.holdings]:
            del self.loose[handle]
        self.clocks.drop(idle)
        self.clocks.prune([] if self.origin is None else [self.origin])
        self._most = max(_MANY, 2 * len(self.by_handle))

    def let_all_wait(self, track: Track) -> None:
        """Make all streams wait for the present work of `track`, whose stream was forgotten while it got work."""
        self.origin = self.mark(track)
        for other in self.by_handle.values():
            if not other.core.is_closed:
                self.wait_until(other, self.origin)

    def _drop_closed(self) -> None:
        """Wait on the host for the work of closed streams, and forget them."""
        for device_id in {track.device_id for track in self._closed}:
            with devices.on_device(device_id):
                devices.current_device().sync()
        for track in self._closed:
            self._release(track)
        self.clocks.drop(self._closed)
        self._closed.clear()

    def forget(self) -> None:
        """Forget finished work if too much memory is remembered. Waits on the host until enough is finished."""
        if len(self.clocks.segments) <= _MOST_SEGMENTS:
            return
        self.release()
        self.clocks.forget()
        if len(self.clocks.segments) > _MOST_SEGMENTS // 2 and not self.captures:
            self.unsettle()
            for track in self.by_handle.values():
                if not track.core.is_closed:
                    track.core.sync()
                    self.clocks.finish(self.clocks.now(track))
            self._drop_closed()
            self.release()
            self.clocks.forget()

    def after_fork(self) -> None:
        """Reset in a forked child: the parent's streams are invalid, and no launch may skip this check."""
        self.lock = threading.RLock()
        for path in list(self.fast_paths):
            path.unsettle()


class Order(Tracks):
    """The order of work over all streams of the process.

    Attributes
    ----------
    is_special : bool
        Whether anything is captured or reported.
    manual_blocks : int
        Number of open `manual` blocks, in which the user orders the streams.
    reporters : list of Reporter
        Reporters of open `reporting` blocks. The last one gets the work on a GPU.
    warmth : int
        Number of uses without a move between streams after which memory is cold.
    calls : EventCalls or None
        Calls of all repeated launches, after the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reporters: list[Reporter] = []
        self.is_special: bool = False
        self.manual_blocks: int = 0
        #: Streams whose order among each other the user alone knows.
        self._crossed: set[Track] = set()
        self.warmth = 16
        self.calls: streams.EventCalls | None = None

    # ── who skips the order ──────────────────────────────────────────────────────────────────────────────────────

    def watch(self, path: FastPath) -> None:
        """Notify `path` when it may no longer skip the order."""
        with self.lock:  # another thread may go through them
            self.fast_paths.add(path)

    def settle(self, use: Use | None, path: FastPath) -> bool:
        """Return whether a launch that was just put on its stream may be repeated without the order's checks.

        If True, `path` may skip the checks until it is notified by `unsettle`.

        Parameters
        ----------
        use : Use or None
            Return value of `before` for this launch. The caller has held the lock since `before`.
        path : FastPath
            Repeated launch to notify when it may no longer skip the checks.
        """
        if self.captures or (use is not None and use.event is not None):
            return False
        if not self.single:
            if use is None:
                return False
            track: Any = use.stream
            if track.spell is None:
                track.spell = Spell()
            use.spell = track.spell
            track.settled.add(path)
        return True

    def goes_on(
        self, target: DeviceStream, reads: tuple[Range, ...], writes: tuple[Range, ...], path: FastPath
    ) -> bool:
        """Return whether a stream already repeats uses of this memory without recording them.

        If so, `path` may skip the order too, until it is notified. Call this with several streams, and with the lock
        held.
        """
        track = self.by_handle.get(target.handle)
        if track is None or not self.clocks.goes_on(track, self.clocks.touch(reads, writes)):
            return False
        track.settled.add(path)
        return True

    # ── one piece of work ────────────────────────────────────────────────────────────────────────────────────────

    def before(
        self, target: DeviceStream, reads: tuple[Range, ...], writes: tuple[Range, ...], producers: Sequence[int] = ()
    ) -> Use | None:
        """Make a stream wait for all work that must come first, and record its new use.

        Parameters
        ----------
        target : DeviceStream
            Stream that the work is put on.
        reads, writes : tuple of (int, int)
            Address ranges that are read, and address ranges that may be written (read or not): first address, address
            after the last.
        producers : sequence of int
            Numbers of streams on which other libraries may have made or used the memory: the current streams of CuPy
            and torch, and streams that the arrays name.

        Returns
        -------
        Use or None
            Use for `after`. None if nothing needs to be recorded.
        """
        if self.single and producers == (target.handle,) and not (self.is_special or self.manual_blocks):
            track = self.by_handle.get(target.handle)
            if track is not None and track.core is target.core:
                return None  # the only stream orders all work; the lock is the caller's, who puts the work on it
        with self.lock:
            track = self.by_handle.get(target.handle)
            if track is None or track.core is not target.core or self.is_special or self.manual_blocks:
                return self._before_special(target, reads, writes, producers)
            foreign = False
            for producer in producers:
                if producer != target.handle:
                    foreign = True
                    self.wait_for_foreign(track, producer)
            if not self.single:
                return self._note(track, reads, writes, foreign)
            if not foreign:
                return None
            use = Use(track, 0, {})
            use.event = DUE
            return use

    def _before_special(
        self, target: DeviceStream, reads: tuple[Range, ...], writes: tuple[Range, ...], producers: Sequence[int]
    ) -> Use | None:
        """Do `before` for a new stream, and during captures, reports and `manual` blocks."""
        if self.captures and (capture := streams.current(target.core)) is not None:
            capture.join(target)  # it may have waited for a captured stream, and is one then
        track = self.of(target)
        if track.capture is not None:
            track.capture.reads.update(dict.fromkeys(reads))
            track.capture.writes.update(dict.fromkeys(writes))
            return Use(track, 0, {})
        foreign = [producer for producer in producers if producer != target.handle]
        if not self.manual_blocks:
            for producer in foreign:
                self.wait_for_foreign(track, producer)
        use: Use | None = None
        if not self.single or self._reporter is not None:
            note = None
            if self._reporter is not None:
                touched = self.clocks.touch(reads, writes)
                note = self._reporter.see(track, touched, self.clocks, foreign, True, not self.manual_blocks)
            use = self._note(track, reads, writes, bool(foreign))
            if note is not None:
                use.note, use.event = note, DUE
        elif foreign:
            use = Use(track, 0, {})
            use.event = DUE
        return use

    def _note(self, track: Track, reads: tuple[Range, ...], writes: tuple[Range, ...], foreign: bool) -> Use:
        self.forget()
        return self.take(track, self.clocks.touch(reads, writes), foreign)

    def take(self, track: Track, touched: Touched, foreign: bool) -> Use:
        """Make a stream wait for all work that must come first, and record its use of the memory. Return the use.

        Its event is `DUE` if `after` is to record one. `foreign` says whether other libraries' streams were waited for.
        """
        clocks = self.clocks
        if self.manual_blocks:
            self._cross(track, clocks.needed(track, touched))
            used, is_warm = clocks.use(track, touched), False
        else:
            used = Use(track, 0, {})
            result = clocks.step(track, touched, self.warmth)(used, True)
            is_warm = result is not COLD
            try:
                if result is MANY:
                    needed = clocks.needed(track, touched)
                    for use in needed:
                        self.wait(track, use)
                    is_warm = clocks.warm(track, touched, self.warmth if needed else 0)
                    used = clocks.use(track, touched)
                elif is_warm and result is not None:
                    if result.event is None or result.event is DUE:
                        self.wait(track, result)
                    else:
                        track.core.wait(result.event)
            except Exception:
                self.wait_on_host(track, touched)
                raise
        if is_warm or foreign:
            used.event = DUE
        return used

    def _cross(self, track: Track, needed: Sequence[Use]) -> None:
        """Record, under `manual`, that `track` takes memory from streams that repeat launches without recording them.

        `needed` are the uses that must come first. `_uncross` orders these streams after the last `manual` block.
        """
        unseen: list[Any] = [use.stream for use in needed if use.last == NEVER]
        if unseen:
            self._crossed.update(unseen, (track,))

    def _uncross(self) -> None:
        """Make all streams wait for the streams that `_cross` recorded. Does nothing inside `manual` and captures."""
        if self.manual_blocks or self.captures or not self._crossed:
            return
        marks = [self.mark(track) for track in self._crossed]
        for track in [track for track in self.by_handle.values() if not track.core.is_closed]:
            for mark in marks:
                if mark.stream is not track:
                    self.wait_until(track, mark)
            if track in self._crossed:
                self.origin = self.mark(track)
        self._crossed.clear()

    def repeatable(
        self, target: DeviceStream, reads: tuple[Range, ...], writes: tuple[Range, ...]
    ) -> tuple[Track, Touched] | None:
        """Return the arguments of `repeating` for this memory, or None if its use may not be repeated."""
        if self.is_special or self.single or streams.is_captured(target.handle):
            return None
        return self.of(target), self.clocks.touch(reads, writes)

    def source(self, handle: int) -> Stream:
        """Return cuda.core's object for the driver's number of a stream that may have unseen work."""
        track = self.by_handle.get(handle)
        return streams.of_handle(handle) if track is None or track.core.is_closed else track.core

    def after(self, use: Use | None, things: Any) -> None:
        """Record an event after the work of `use`, and keep `things` alive until the event is done.

        The work is on its stream already. Does only what is needed: nothing if `use` is None.
        """
        if use is None:
            return
        track: Any = use.stream
        if track.capture is not None:
            track.capture.things.append(things)
            return
        with self.lock:
            if use.count and self.clocks.postpone(use):
                # Another thread has put work on the stream since `before`: this comes after that, and what the thread
                # may have recorded before this.
                if use.event is not DUE:
                    use.event = None
                if self.by_handle.get(track.handle) is not track:
                    self.let_all_wait(track)
            if use.event is DUE and streams.is_captured(track.handle):
                track.unmarked.append(things)  # by others: an event now would be a part of their graph
            elif use.event is DUE:
                self.record(use, things)
                self.look(track)

    @contextlib.contextmanager
    def around(self, stream: Any, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> Iterator[None]:
        """Order the work that a ``with`` block puts on a stream: copies, fills, work of other libraries.

        Parameters
        ----------
        stream : stream
            Stream of a GPU, on which the block puts its work.
        reads, writes : sequence of arrays
            Memory that the work reads, and memory that it may write: CuPy or NumPy arrays, torch tensors, buffers, or
            address ranges ``(first, after the last)``. If another stream uses the memory too, the objects are kept
            alive until the work is done.
        """
        target = device_stream(stream)
        devices.make_current(target.device_id)
        arrays = (*reads, *writes)
        use = self.before(
            target,
            tuple(span_of(array) for array in reads),
            tuple(span_of(array) for array in writes),
            producers_of(arrays, target.device_id, target.handle),
        )
        yield
        self.after(use, arrays)

    # ── what streams were given, whatever it was ─────────────────────────────────────────────────────────────────

    def join(self, core: Stream, source: Stream, wait: bool = True) -> None:
        """Make `core` come after all present work of `source`. With ``wait=False`` only record that it does."""
        with self.lock:
            track, other = self.by_handle.get(handle_of(core)), self.by_handle.get(handle_of(source))
            # What waits for a captured stream is captured too, by the driver.
            joins = bool(self.captures) and streams.is_capturing(source)
            if joins or track is None or other is None or track.core.is_closed or other.core.is_closed:
                if wait:
                    streams.wait_for(core, source)
            elif wait:
                self.wait_until(track, self.mark(other))
            else:
                self.clocks.wait(track, self.clocks.now(other))

    def hold(self, core: Stream, things: Any) -> None:
        """Keep `things` alive until the present work of `core` is done."""
        with self.lock:
            handle = handle_of(core)
            track = self.by_handle.get(handle) or self.loose.get(handle)
            if track is None or track.core.is_closed:
                # Holding makes no second stream of it: launches alone do.
                track = self.loose[handle] = self.new(device_stream(core))
            if track.capture is not None:
                track.capture.things.append(things)
                return
            self.record(self.clocks.now(track), things)
            self.release()

    def hand_over(self, stream: Any, still: Callable[[Any], Any]) -> None:
        """Replace the arguments kept alive for a stream's work by what ``still(arguments)`` returns for them.

        The caller keeps the memory of the other arguments alive.
        """
        with self.lock:
            track = self.by_handle.get(device_stream(stream).handle)
            if track is None or track.capture is not None:
                return
            for k, (use, things) in enumerate(track.holdings):
                if things:
                    track.holdings[k] = use, still(things)
            for use, things in track.repeated.items():
                if things:
                    track.repeated[use] = still(things)

    @contextlib.contextmanager
    def capturing(self, stream: Any, begun: bool = False) -> Iterator[Captured]:
        """Capture the work that a ``with`` block puts on a stream. Inside, nothing waits, is recorded or is kept alive.

        Enter the block before the capture begins. The stream then waits once for all present work of all other streams.
        While the capture is open, other streams wait only for the stream's work from before the capture.

        Parameters
        ----------
        stream : stream
            Stream that is captured.
        begun : bool
            Whether other code has begun the capture and has ordered it: nothing waits.

        Yields
        ------
        Captured
            Memory that the graph touches, and objects that it must keep alive: for `around` at each launch of the
            graph.
        """
        target = device_stream(stream)
        with self.lock:
            track = self.by_handle.get(target.handle)
            within = begun or bool(self.captures)
            is_new = within and (track is None or track.core.is_closed)
            if within:
                # Within a capture: its stream is new, or has been brought into it, and events are part of the graph.
                if track is None or track.core.is_closed:
                    track = self.by_handle[target.handle] = self.new(target)
                captured = Captured(self.clocks.now(track))
            else:
                track = self.of(target)
                self.unsettle()
                for other in list(self.by_handle.values()):
                    if other is not track and not other.core.is_closed:
                        self.wait_until(track, self.mark(other))
                captured = Captured(self.mark(track))
            former, track.capture = track.capture, captured
            self.captures += 1
            self._change()
        try:
            yield captured
        finally:
            with self.lock:
                track.capture = former
                self.captures -= 1
                self._change()
                self._uncross()
                if is_new:
                    # It has not launched anything: when it does, it appears.
                    self.by_handle.pop(target.handle, None)

    @contextlib.contextmanager
    def manual(self) -> Iterator[None]:
        """Add no waits inside a ``with`` block: the user orders the streams, in all threads."""
        with self.lock:
            self.manual_blocks += 1
        try:
            yield
        finally:
            with self.lock:
                self.manual_blocks -= 1
                if not self.manual_blocks:
                    # What settled without the waits that it would have had may not go on so.
                    self.unsettle()
                    self._uncross()

    @contextlib.contextmanager
    def reporting(self, reporter: Reporter) -> Iterator[None]:
        """Report all dependencies inside a ``with`` block to `reporter`.

        If another such block is opened later, its reporter gets the dependencies until it is closed.
        """
        with self.lock:
            self.reporters.append(reporter)
            self._change()
            self.unsettle()
        try:
            yield
        finally:
            with self.lock:
                self.reporters.remove(reporter)  # which need not be the last: other threads have theirs
                self._change()

    @property
    def _reporter(self) -> Reporter | None:
        return self.reporters[-1] if self.reporters else None

    def _change(self) -> None:
        self.is_special = bool(self.captures or self.reporters)

    def see_unordered(self, stream: Any, reads: tuple[Range, ...], writes: tuple[Range, ...]) -> Use | None:
        """Report and record work that is put on a stream without the order.

        Return its use, for `after`, or None if nothing was recorded.
        """
        target = device_stream(stream)
        with self.lock:
            track = self.of(target)
            if self._reporter is None or track.capture is not None:
                return None
            touched = self.clocks.touch(reads, writes)
            use = self.clocks.use(track, touched, self._reporter.see(track, touched, self.clocks, (), False, False))
            use.event = DUE
            return use


_order = Order()
process.in_child(_order.after_fork)


def order() -> Order:
    """Return the process's order between streams."""
    return _order
