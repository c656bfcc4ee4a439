"""The order between streams that touch the same memory, and what is held until work is done.

While the process has launched on one stream only, and CuPy and torch work on that stream too, launches are in order by
themselves: nothing is recorded and nothing waits. From the second stream on, `Clocks` tells what a launch must wait
for. Three things make that exact and cheap:

- Memory that has passed from stream to stream is warm for its next uses: an event is recorded right after each, so
  that the next stream waits for that and no more. An event that is done goes back to be used again.
- What touches cold memory only may be repeated without asking (`settle`), until another stream needs that memory: then
  the spell is over, and an event recorded at its end is what is waited for.
- Arguments of warm uses, and of those after work of CuPy or torch on another stream, are held until they are done, so
  that no allocator hands the memory out again too early.

`Tracks` has the streams, their events and what is held. `Order` puts the waits in. `Repeat` is a launch that comes
again on one of several streams, with the waits that it needs and no other look.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cudakit.errors import LaunchError
from cudakit.streams import devices, process, streams
from cudakit.streams.clocks import COLD, MANY, Clocks
from cudakit.streams.segments import NEVER, Range, Spell, Touched, Use, producers_of, span_of
from cudakit.streams.streams import Known, handle_of, known

if TYPE_CHECKING:
    from cuda.core import Event, Stream


_MOST_SEGMENTS = 65_536
#: Streams that are remembered, before it is looked which of them have done all that they were given.
_MANY = 64
#: Closed streams that are remembered, before the host waits for what they were given.
_MOST_CLOSED = 64
#: After how many events of a stream is looked whether its first ones are done, where the same arrays come again.
LOOK = 16
#: After how many such looks all streams are looked at.
_LOOK_AROUND = 4
#: Stands where an event is to be recorded.
DUE: Any = object()


class FastPath(Protocol):
    """Something that skips the ordering while nothing moves between streams, and must stop when something does."""

    def unsettle(self) -> None:
        """Forget what needed no ordering."""


class Reporter(Protocol):
    """Is told of all dependencies; see `cudakit.profile.hazards`."""

    def see(
        self, stream: Any, touched: Touched, clocks: Clocks, foreign: Sequence[int], ordered: bool, is_put: bool
    ) -> Any:
        """`stream`, by its name in the clocks, is about to touch that; what this returns is the note of the use."""


@dataclass(slots=True, eq=False, repr=False)
class Track:
    """What the order knows of a stream; `Clocks` has it for the stream's name.

    Attributes
    ----------
    core : cuda.core.Stream
    handle, device_id : int
    idle : list of cuda.core.Event
        Events of the device that nothing waits for.
    held : deque
        Uses that have an event, in their order, each with what is kept until it is done.
    repeated : dict
        Uses that move on at each launch (see `repeating`), each with what is kept until it is done.
    settled : set of FastPath
        Those that have settled in the spell.
    spell : Spell or None
    capture : Captured or None
        Where the stream is being captured.
    unmarked : list
        What launches were given that others captured, without an event: kept with the stream's next one.
    """

    core: Stream
    handle: int
    device_id: int
    idle: list[Event]
    held: deque[tuple[Use, Any]] = field(default_factory=deque)
    repeated: dict[Use, Any] = field(default_factory=dict)
    settled: weakref.WeakSet[FastPath] = field(default_factory=weakref.WeakSet)
    spell: Spell | None = None
    capture: Captured | None = None
    unmarked: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Captured:
    """What was put on a stream while it was captured: for the order of the graph's launches.

    Attributes
    ----------
    begun : Use
        The stream before the capture.
    reads, writes : dict of range to None
        Memory that the graph touches.
    things : list
        Arguments, which the graph must keep alive.
    """

    begun: Use
    reads: dict[Range, None] = field(default_factory=dict)
    writes: dict[Range, None] = field(default_factory=dict)
    things: list[Any] = field(default_factory=list)


class Tracks:
    """All streams that were launched on, and the waits between them.

    Attributes
    ----------
    lock : threading.RLock
        Held from the waits of a piece of work until it is on its stream, where other threads must not come between.
    single : bool
        Whether all launches so far were on one stream.
    clocks : Clocks
    by_handle, loose : dict of int to Track
        Those that were launched on, and those that hold things without it, by the driver's number.
    origin : Use or None
        What a stream comes after that launches for the first time.
    fast_paths : WeakSet of FastPath
        Those that must be told when they may not skip the order any more.
    captures : int
        How many captures are open.
    """

    def __init__(self) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.single: bool = True
        self.clocks: Clocks = Clocks()
        self.by_handle: dict[int, Track] = {}
        self.loose: dict[int, Track] = {}
        self._closed: list[Track] = []
        self._idle: dict[int, list[Event]] = {}
        self.origin: Use | None = None
        self.fast_paths: weakref.WeakSet[FastPath] = weakref.WeakSet()
        self.captures = 0
        self._looks = 0
        self._most = _MANY

    def unsettle(self) -> None:
        """Nobody may skip the order; each settles again at its next launch that needs nothing."""
        with self.lock:
            for track in self.by_handle.values():
                if track.spell is not None:
                    self._end_spell(track)
            for path in list(self.fast_paths):
                path.unsettle()

    def wait(self, track: Track, use: Use) -> None:
        """Make a stream wait for a use on another one."""
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
                    "would draw this one into their graph. End the capture first, or capture by ck.graph"
                )
        if use.event is not None:
            track.core.wait(use.event)
        self.clocks.wait(track, use)

    def wait_on_host(self, track: Track, touched: Touched) -> None:
        """Where a stream cannot wait, as in a capture that others began: let the host do it, since it is noted."""
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
        """Wait for all that a stream was given, some of it unseen."""
        source = self.by_handle.get(handle)
        if source is None or source.core.is_closed:
            streams.wait_for(track.core, streams.of_handle(handle))
        else:
            self.wait_until(track, self.mark(source))

    def mark(self, track: Track) -> Use:
        """All that a stream was given so far, with an event; without one where it is done, `DUE` where none can be."""
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
            if not len(track.held) % LOOK:
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
        track.held.append((use, things))

    def look(self, track: Track) -> None:
        """Drop what is done on a stream, at times on all."""
        self._looks += 1
        if self._looks % _LOOK_AROUND == 0:
            self.release()
        elif not self.captures:
            self._release(track)

    def release(self) -> None:
        """Drop what is held for work that is done."""
        with self.lock:
            if self.captures:
                return  # a query of an event would spoil the capture
            for track in (*self.by_handle.values(), *self.loose.values(), *self._closed):
                self._release(track)

    def _release(self, track: Track) -> None:
        """Drop what is done; few questions, since what comes before something that is done is done."""
        if not track.core.is_closed and streams.is_captured(track.handle):
            return  # by others, whose capture a question would break off
        held, last = track.held, None
        for count in (len(held), len(held) // 2, 1):
            while 0 < count <= len(held) and held[count - 1][0].event.is_done:
                for _ in range(count):
                    last = held.popleft()[0]
                    track.idle.append(last.event)
        if last is not None:
            self.clocks.finish(last)
        if track.repeated:
            recorded = [use for use in track.repeated if use.event is not None]
            for use in sorted(recorded, key=attrgetter("count")):
                if not use.event.is_done:
                    break
                self.clocks.finish(use)
                del track.repeated[use]

    def _end_spell(self, track: Track) -> Use:
        """Nothing on that stream is repeated unseen any more; what has been counts as of now."""
        spell, track.spell = track.spell, None
        for path in list(track.settled):
            path.unsettle()
        track.settled.clear()
        end = self.mark(track)
        if spell is not None:
            spell.end = end
        return end

    def of(self, target: Known) -> Track:
        track = self.by_handle.get(target.handle)
        return track if track is not None and track.core is target.core else self._appear(target)

    def new(self, target: Known) -> Track:
        return Track(target.core, target.handle, target.device_id, self._idle.setdefault(target.device_id, []))

    def _appear(self, target: Known) -> Track:
        """A stream launches for the first time: it comes after everything that was launched unrecorded."""
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
        """Forget streams that have done all they were given, and may never be given more; else they appear again."""
        self.release()
        idle = []
        for track in self.by_handle.values():
            if track.spell is None and not track.held and not track.repeated and self.clocks.is_idle(track):
                idle.append(track)
            elif not (track.held and track.spell is None):
                self._end_spell(track)  # with an event: the next time it is seen whether the stream is there
        for track in idle:
            del self.by_handle[track.handle]
        if self.origin is not None and self.origin.stream in idle:
            self.origin = None
        for handle in [handle for handle, track in self.loose.items() if not track.held]:
            del self.loose[handle]
        self.clocks.drop(idle)
        self.clocks.prune([] if self.origin is None else [self.origin])
        self._most = max(_MANY, 2 * len(self.by_handle))

    def let_all_wait(self, track: Track) -> None:
        """Let all streams come after what one was given that was forgotten meanwhile."""
        self.origin = self.mark(track)
        for other in self.by_handle.values():
            if not other.core.is_closed:
                self.wait_until(other, self.origin)

    def _drop_closed(self) -> None:
        """Wait on the host for what closed streams were given, and forget them."""
        for device_id in {track.device_id for track in self._closed}:
            with devices.on_device(device_id):
                devices.current_device().sync()
        for track in self._closed:
            self._release(track)
        self.clocks.drop(self._closed)
        self._closed.clear()

    def forget(self) -> None:
        """Where too much memory is remembered, forget what is done; wait on the host until enough of it is."""
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
        """In a forked child: the parent's streams mean nothing, and no launch may skip the check for that."""
        self.lock = threading.RLock()
        for path in list(self.fast_paths):
            path.unsettle()


class Order(Tracks):
    """What must come before a piece of work on a stream, over all streams of the process.

    Attributes
    ----------
    is_special : bool
        Whether anything is captured or reported.
    manual_blocks : int
        How many `manual` blocks are open, in which the user orders the streams.
    reporters : list of Reporter
        Of `reporting` blocks that are open. Of work on a GPU the last is told.
    warmth : int
        After how many uses without a crossing memory is cold again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reporters: list[Reporter] = []
        self.is_special: bool = False
        self.manual_blocks: int = 0
        #: Streams whose order among each other the user alone knows.
        self._crossed: set[Track] = set()
        self.warmth = 16

    # ── who skips the order ──────────────────────────────────────────────────────────────────────────────────────

    def watch(self, path: FastPath) -> None:
        """Tell `path` when it may not skip the order any more."""
        self.fast_paths.add(path)

    def settle(self, use: Use | None, path: FastPath) -> bool:
        """Whether a launch that has just been put on its stream may be repeated unseen, until `path` is told.

        Parameters
        ----------
        use : Use or None
            What `before` gave; the lock is held since then.
        path : FastPath
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

    def goes_on(self, target: Known, reads: tuple[Range, ...], writes: tuple[Range, ...], path: FastPath) -> bool:
        """Whether a stream repeats unseen what touches that memory: then `path` may too, until it is told.

        With several streams, and the lock held.
        """
        track = self.by_handle.get(target.handle)
        if track is None or not self.clocks.goes_on(track, self.clocks.touch(reads, writes)):
            return False
        track.settled.add(path)
        return True

    # ── one piece of work ────────────────────────────────────────────────────────────────────────────────────────

    def before(
        self, target: Known, reads: tuple[Range, ...], writes: tuple[Range, ...], producers: Sequence[int] = ()
    ) -> Use | None:
        """Make a stream wait for whatever must come first, and note what it is given now.

        Parameters
        ----------
        target : Known
            The stream.
        reads, writes : tuple of (int, int)
            Memory that is read, and that may be written (read or not).
        producers : sequence of int
            Streams on which others, of whom nothing is known, may have made or used it: CuPy's and torch's current
            streams, and those that arrays name.

        Returns
        -------
        Use or None
            For `after`; None where nothing need be noted.
        """
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
        self, target: Known, reads: tuple[Range, ...], writes: tuple[Range, ...], producers: Sequence[int]
    ) -> Use | None:
        """The same, for a new stream, and while something is captured, reported or ordered by the user."""
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
        """Wait for what must come first, and note the use; its event is `DUE` where one is to be recorded."""
        clocks = self.clocks
        if self.manual_blocks:
            self._cross(track, clocks.needed(track, touched))
            used, is_warm = clocks.use(track, touched), False
        else:
            used = Use(track, 0, {})
            found = clocks.step(track, touched, self.warmth)(used, True)
            is_warm = found is not COLD
            try:
                if found is MANY:
                    needed = clocks.needed(track, touched)
                    for use in needed:
                        self.wait(track, use)
                    is_warm = clocks.warm(track, touched, self.warmth if needed else 0)
                    used = clocks.use(track, touched)
                elif is_warm and found is not None:
                    if found.event is None or found.event is DUE:
                        self.wait(track, found)
                    else:
                        track.core.wait(found.event)
            except Exception:
                self.wait_on_host(track, touched)
                raise
        if is_warm or foreign:
            used.event = DUE
        return used

    def _cross(self, track: Track, needed: Sequence[Use]) -> None:
        """Under `manual`, memory comes from streams that may go on with it unseen: see `_uncross`."""
        unseen: list[Any] = [use.stream for use in needed if use.last == NEVER]
        if unseen:
            self._crossed.update(unseen, (track,))

    def _uncross(self) -> None:
        """Let all streams come after those between which memory went to and fro unseen under `manual`."""
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
        self, target: Known, reads: tuple[Range, ...], writes: tuple[Range, ...]
    ) -> tuple[Track, Touched] | None:
        """What `repeating` takes of that; None where it may not be repeated so."""
        if self.is_special or self.single or streams.is_captured(target.handle):
            return None
        return self.of(target), self.clocks.touch(reads, writes)

    def source(self, handle: int) -> Stream:
        """cuda.core's object for a stream on which there is unseen work."""
        track = self.by_handle.get(handle)
        return streams.of_handle(handle) if track is None or track.core.is_closed else track.core

    def after(self, use: Use | None, things: Any) -> None:
        """The work is on its stream: record its event and hold `things` until then, where that is wanted."""
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
    def around(self, given: Any, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> Iterator[None]:
        """Put the block's work on a stream in order: copies, fills, work of other libraries.

        Parameters
        ----------
        given : stream
            A GPU's, where the block puts its work.
        reads, writes : sequence of arrays
            What it reads, and what it may write: CuPy or NumPy arrays, torch tensors, buffers, or ranges of addresses
            ``(first, after the last)``. They are held until the work is done, where another stream has to do with
            them.
        """
        target = known(given)
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
        """Make `core` come after all that `source` was given so far; without `wait`, only note that it does."""
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
        """Keep `things` alive until what was put on `core` so far is done."""
        with self.lock:
            handle = handle_of(core)
            track = self.by_handle.get(handle) or self.loose.get(handle)
            if track is None or track.core.is_closed:
                # Holding makes no second stream of it: launches alone do.
                track = self.loose[handle] = self.new(known(core))
            if track.capture is not None:
                track.capture.things.append(things)
                return
            self.record(self.clocks.now(track), things)
            self.release()

    def hand_over(self, given: Any, still: Callable[[Any], Any]) -> None:
        """Hold no more than `still` gives of the arguments that are held on a stream: another keeps their memory."""
        with self.lock:
            track = self.by_handle.get(known(given).handle)
            if track is None or track.capture is not None:
                return
            for k, (use, things) in enumerate(track.held):
                if things:
                    track.held[k] = use, still(things)
            for use, things in track.repeated.items():
                if things:
                    track.repeated[use] = still(things)

    @contextlib.contextmanager
    def capturing(self, given: Any, begun: bool = False) -> Iterator[Captured]:
        """Let what is put on a stream inside the block go into a graph: nothing waits, is recorded or is held.

        Enter it before the capture begins: the stream waits for all that other streams were given, once. What other
        streams need of this one meanwhile is what it was given before.

        Parameters
        ----------
        given : stream
        begun : bool
            Whether others have begun the capture, and seen to it that it comes after what it needs: nothing waits.

        Yields
        ------
        Captured
            What the graph touches and must keep: for `around` at each of its launches.
        """
        target = known(given)
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
        """Put in no waits inside the block: the user orders the streams, in all threads."""
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
        """Tell `reporter` of all dependencies inside the block, but where a later one begins, which is told then."""
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

    def see_unordered(self, given: Any, reads: tuple[Range, ...], writes: tuple[Range, ...]) -> Use | None:
        """Tell the reporter of work that is put on a stream past the order, and note it; for `after`."""
        target = known(given)
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
    """The process's order between streams."""
    return _order


#: After how many launches that repeat is looked whether the arrays of earlier ones are still in use.
_REPEATS = 64


class Repeat(NamedTuple):
    """One shape with the same arrays, on one stream and configuration; see `repeating`.

    Attributes
    ----------
    launch : callable
        ``launch(*values)``
    look : callable
        What launches where all must be looked at anew: ``look(values, arguments)``.
    cool : callable
        Told when nothing needs to be waited for or recorded any more.
    track : Track
        What the order knows of the stream.
    touched : Touched
        The arrays' memory.
    foreign : tuple of int
        Streams that are waited for each time: CuPy's and torch's current ones, where they are others.
    """

    launch: Callable[..., None]
    look: Callable[[Sequence[Any], Sequence[Any]], None]
    cool: Callable[[], object]
    track: Track
    touched: Touched
    foreign: tuple[int, ...]


def repeating(order: Order, repeat: Repeat) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """``again(values, arguments)``: `Order.before`, launch and `Order.after` of what was launched before.

    It needs one `Use` and one event: each launch touches the same segments, and takes the place of the last there.
    """
    launch, look, cool, track, touched, foreign = repeat
    # Acquired and released by hand, which costs half of what a `with` does.
    acquire, release, clocks, version = order.lock.acquire, order.lock.release, order.clocks, touched.version
    wait, record, repeated, held = track.core.wait, track.core.record, track.repeated, track.held
    used, step, event = Use(track, 0, {}), clocks.step(track, touched, order.warmth), None
    sources = [(order.source(handle), track.core.record()) for handle in foreign]

    def again(values: Sequence[Any], arguments: Sequence[Any]) -> None:
        nonlocal event
        acquire()
        try:
            manual = order.manual_blocks
            # Where the user orders, what waits for nobody need not come by here again: `look` sees to that.
            if version == clocks.version and not order.is_special and (sources or not manual):
                needed = step(used, not manual)
                if sources and not manual:
                    for source, reached in sources:
                        wait(source.record(reached))
                if needed is MANY:
                    other = order.take(track, touched, bool(sources))
                    launch(*values)
                    if other.event is not DUE:
                        cool()
                        return
                    order.record(other, arguments)
                    if not len(held) % LOOK:
                        order.look(track)
                    return
                if needed is not None and needed is not COLD and not manual and needed.stream.handle not in foreign:
                    reached = needed.event
                    try:
                        if reached is None or reached is DUE:
                            order.wait(track, needed)
                        else:
                            wait(reached)
                    except Exception:
                        order.wait_on_host(track, touched)
                        raise
                launch(*values)
                used.event = event = record(event)
                repeated[used] = arguments
                if not used.count % _REPEATS:
                    order.look(track)
                if needed is COLD and not sources:
                    cool()
                return
        finally:
            release()
        look(values, arguments)

    return again
