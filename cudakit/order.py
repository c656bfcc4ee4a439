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
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cudakit import capturing, devices, spans, streams
from cudakit.clocks import Clocks, Range, Spell, Touched, Use
from cudakit.streams import Known, handle_of, known

if TYPE_CHECKING:
    from cuda.core import Event, Stream

#: Uses without a crossing after which memory is cold again.
_WARM = 16
_MOST_SEGMENTS = 65_536
#: Closed streams that are remembered, before the host waits for what they were given.
_MOST_CLOSED = 64
#: Uses after which all streams' held things are looked at, rather than the stream's own.
_LOOK_AROUND = 16
#: Stands where an event is to be recorded.
_DUE: Any = object()


class FastPath(Protocol):
    """Something that skips the ordering while nothing moves between streams, and must stop when something does."""

    def unsettle(self) -> None:
        """Forget what needed no ordering."""


class Reporter(Protocol):
    """Is told of all dependencies; see `cudakit.hazards`."""

    def see(
        self, stream: Track, touched: Touched, clocks: Clocks, foreign: Sequence[int], ordered: bool, is_put: bool
    ) -> Any:
        """`stream` is about to touch that; what this returns is the note of the use."""


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
    settled : set of FastPath
        Those that have settled in the spell.
    spell : Spell or None
    capture : Captured or None
        Where the stream is being captured.
    """

    __slots__ = ("capture", "core", "device_id", "handle", "held", "idle", "settled", "spell")

    def __init__(self, core: Stream, handle: int, device_id: int, idle: list[Event]) -> None:
        self.core = core
        self.handle = handle
        self.device_id = device_id
        self.idle = idle
        self.held: deque[tuple[Use, Any]] = deque()
        self.settled: weakref.WeakSet[FastPath] = weakref.WeakSet()
        self.spell: Spell | None = None
        self.capture: Captured | None = None


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

    def __init__(self, begun: Use) -> None:
        self.begun = begun
        self.reads: dict[Range, None] = {}
        self.writes: dict[Range, None] = {}
        self.things: list[Any] = []


class Order:
    """What must come before a piece of work on a stream, over all streams of the process."""

    def __init__(self) -> None:
        #: Held from `before` to `after` where other threads must not come between.
        self.lock = threading.RLock()
        self._clocks = Clocks()
        self._tracks: dict[int, Track] = {}
        #: Those that hold things without having been launched on, and those that were closed.
        self._loose: dict[int, Track] = {}
        self._closed: list[Track] = []
        self._idle: dict[int, list[Event]] = {}
        self._origin: Use | None = None
        self._fast_paths: weakref.WeakSet[FastPath] = weakref.WeakSet()
        self._reporter: Reporter | None = None
        self._manual = 0
        self._captures = 0
        self._looks = 0
        self._single = True

    # ── who skips the order ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def single(self) -> bool:
        """Whether all launches so far were on one stream."""
        return self._single

    @property
    def is_manual(self) -> bool:
        """Whether the user orders the streams."""
        return bool(self._manual)

    def watch(self, path: FastPath) -> None:
        """Tell `path` when it may not skip the order any more."""
        self._fast_paths.add(path)

    def settle(self, use: Use | None, path: FastPath) -> bool:
        """Whether a launch that has just been put on its stream may be repeated unseen, until `path` is told.

        Parameters
        ----------
        use : Use or None
            What `before` gave; the lock is held since then.
        path : FastPath
        """
        if self._captures or (use is not None and use.event is not None):
            return False
        if not self._single:
            if use is None:
                return False
            track: Any = use.stream
            if track.spell is None:
                track.spell = Spell()
            use.spell = track.spell
            track.settled.add(path)
        return True

    def unsettle(self) -> None:
        """Nobody may skip the order; each settles again at its next launch that needs nothing."""
        with self.lock:
            for track in self._tracks.values():
                if track.spell is not None:
                    self._end_spell(track)
            for path in list(self._fast_paths):
                path.unsettle()

    # ── one piece of work ────────────────────────────────────────────────────────────────────────────────────────

    def before(
        self, target: Known, reads: tuple[Range, ...], writes: tuple[Range, ...], producers: Iterable[int] = ()
    ) -> Use | None:
        """Make a stream wait for whatever must come first, and note what it is given now.

        Parameters
        ----------
        target : Known
            The stream.
        reads, writes : tuple of (int, int)
            Memory that is read, and that may be written (read or not).
        producers : iterable of int
            Streams on which others, of whom nothing is known, may have made or used it: CuPy's and torch's current
            streams, and those that arrays name.

        Returns
        -------
        Use or None
            For `after`; None where nothing need be noted.
        """
        with self.lock:
            if self._captures and (capture := capturing.current(target.core)) is not None:
                capture.join(target)  # it may have waited for a captured stream, and is one then
            track = self._track(target)
            foreign = [other for other in producers if other != target.handle]
            if track.capture is not None:
                track.capture.reads.update(dict.fromkeys(reads))
                track.capture.writes.update(dict.fromkeys(writes))
                return Use(track, 0, {})
            if foreign and not self._manual:
                for handle in foreign:
                    self._wait_for_foreign(track, handle)
            if not self._single or self._reporter is not None:
                return self._note(track, reads, writes, foreign)
            if not foreign:
                return None
            use = Use(track, 0, {})
            use.event = _DUE
            return use

    def _note(self, track: Track, reads: tuple[Range, ...], writes: tuple[Range, ...], foreign: Sequence[int]) -> Use:
        clocks = self._clocks
        if len(clocks) > _MOST_SEGMENTS:
            self._forget()
        touched = clocks.touch(reads, writes)
        needed = clocks.needed(track, touched)
        note = None
        if self._reporter is not None:
            note = self._reporter.see(track, touched, clocks, foreign, True, not self._manual)
        for use in needed:
            self._wait(track, use)
        warm = bool(needed or foreign)
        for segments in (touched.written, touched.read):
            for segment in segments:
                if needed and _crosses(segment, track):
                    segment.warmth = _WARM
                elif segment.warmth:
                    segment.warmth -= 1
                    warm = True
        used = clocks.use(track, touched, note)
        if warm or note is not None:
            used.event = _DUE
        return used

    def after(self, use: Use | None, things: Any) -> None:
        """The work is on its stream: record its event and hold `things` until then, where that is wanted."""
        if use is None or use.event is not _DUE:
            if use is not None and (capture := _capture_of(use)) is not None:
                capture.things.append(things)
            return
        with self.lock:
            track: Any = use.stream
            self._record(track, use, things)
            self._looks += 1
            if not self._captures:
                if self._looks % _LOOK_AROUND:
                    self._release(track)
                else:
                    self.release()

    @contextlib.contextmanager
    def around(self, given: Any, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> Iterator[None]:
        """Put the block's work on a stream in order: copies, fills, work of other libraries.

        Parameters
        ----------
        given : stream
            Where the block puts its work; on one of the emulator's nothing is done, which keeps its own order.
        reads, writes : sequence of arrays
            What it reads, and what it may write: CuPy or NumPy arrays, torch tensors, buffers, or ranges of addresses
            ``(first, after the last)``. They are held until the work is done, where another stream has to do with
            them.
        """
        if streams.is_emulated(given):
            yield
            return
        target = known(given)
        devices.make_current(target.device_id)
        arrays = (*reads, *writes)
        use = self.before(
            target,
            tuple(spans.span_of(array) for array in reads),
            tuple(spans.span_of(array) for array in writes),
            spans.producers_of(arrays, target.device_id, target.handle),
        )
        yield
        self.after(use, arrays)

    # ── what streams were given, whatever it was ─────────────────────────────────────────────────────────────────

    def join(self, core: Stream, source: Stream, wait: bool = True) -> None:
        """Make `core` come after all that `source` was given so far; without `wait`, only note that it does."""
        with self.lock:
            track, other = self._tracks.get(handle_of(core)), self._tracks.get(handle_of(source))
            # What waits for a captured stream is captured too, by the driver.
            joins = bool(self._captures) and capturing.is_capturing(source)
            if joins or track is None or other is None or track.core.is_closed or other.core.is_closed:
                if wait:
                    streams.wait_for(core, source)
            elif wait:
                self._wait_until(track, self._mark(other))
            else:
                self._clocks.wait(track, self._clocks.now(other))

    def cupy_stream(self, core: Stream) -> Any:
        """CuPy's object for a cuda.core stream."""
        return streams.cupy_stream(core)

    def hold(self, core: Stream, things: Any) -> None:
        """Keep `things` alive until what was put on `core` so far is done."""
        with self.lock:
            handle = handle_of(core)
            track = self._tracks.get(handle) or self._loose.get(handle)
            if track is None or track.core.is_closed:
                # Holding makes no second stream of it: launches alone do.
                track = self._loose[handle] = self._new_track(core, handle, core.device.device_id)
            if track.capture is not None:
                track.capture.things.append(things)
                return
            self._record(track, self._clocks.now(track), things)
            self.release()

    def release(self) -> None:
        """Drop what is held for work that is done."""
        with self.lock:
            if self._captures:
                return  # a query of an event would spoil the capture
            for track in (*self._tracks.values(), *self._loose.values(), *self._closed):
                self._release(track)

    @contextlib.contextmanager
    def capturing(self, given: Any) -> Iterator[Captured]:
        """Let what is put on a stream inside the block go into a graph: nothing waits, is recorded or is held.

        Enter it before the capture begins: the stream waits for all that other streams were given, once. What other
        streams need of this one meanwhile is what it was given before.

        Parameters
        ----------
        given : stream

        Yields
        ------
        Captured
            What the graph touches and must keep: for `around` at each of its launches.
        """
        target = known(given)
        with self.lock:
            track = self._tracks.get(target.handle)
            is_new = bool(self._captures) and (track is None or track.core.is_closed)
            if self._captures:
                # Within a capture: its stream is new, or has been brought into it, and events are part of the graph.
                if track is None or track.core.is_closed:
                    track = self._tracks[target.handle] = self._new_track(*_identity(target))
                captured = Captured(self._clocks.now(track))
            else:
                track = self._track(target)
                self.unsettle()
                for other in list(self._tracks.values()):
                    if other is not track and not other.core.is_closed:
                        self._wait_until(track, self._mark(other))
                captured = Captured(self._mark(track))
            former, track.capture = track.capture, captured
            self._captures += 1
        try:
            yield captured
        finally:
            with self.lock:
                track.capture = former
                self._captures -= 1
                if is_new:
                    # It has not launched anything: when it does, it appears.
                    self._tracks.pop(target.handle, None)

    @contextlib.contextmanager
    def manual(self) -> Iterator[None]:
        """Put in no waits inside the block: the user orders the streams, in all threads."""
        with self.lock:
            self._manual += 1
        try:
            yield
        finally:
            with self.lock:
                self._manual -= 1
                # What settled without the waits that it would have had may not go on so.
                self.unsettle()

    @contextlib.contextmanager
    def reporting(self, reporter: Reporter) -> Iterator[None]:
        """Tell `reporter` of all dependencies inside the block; one at a time."""
        with self.lock:
            former, self._reporter = self._reporter, reporter
            self.unsettle()
        try:
            yield
        finally:
            with self.lock:
                self._reporter = former

    def see_unordered(self, given: Any, reads: tuple[Range, ...], writes: tuple[Range, ...]) -> Use | None:
        """Tell the reporter of work that is put on a stream past the order, and note it; for `after`."""
        target = known(given)
        with self.lock:
            track = self._track(target)
            if self._reporter is None or track.capture is not None:
                return None
            touched = self._clocks.touch(reads, writes)
            use = self._clocks.use(track, touched, self._reporter.see(track, touched, self._clocks, (), False, False))
            use.event = _DUE
            return use

    # ── waits and events ─────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self, track: Track, use: Use) -> None:
        """Make a stream wait for a use on another one."""
        source: Any = use.stream
        if use.spell is not None:
            use = self._end_spell(source)
        elif self._manual:
            return
        elif use.event is None or use.event is _DUE:
            point = self._mark(source)
            use.event = point.event
            use = point
        if not self._manual:
            self._wait_until(track, use)

    def _wait_until(self, track: Track, use: Use) -> None:
        if use.event is not None:
            track.core.wait(use.event)
        self._clocks.wait(track, use)

    def _wait_for_foreign(self, track: Track, handle: int) -> None:
        """Wait for all that a stream was given, some of it unseen."""
        source = self._tracks.get(handle)
        if source is None or source.core.is_closed:
            streams.wait_for(track.core, streams.of_handle(handle))
        else:
            self._wait_until(track, self._mark(source))

    def _mark(self, track: Track) -> Use:
        """All that a stream was given so far, with an event; without one where it is done."""
        if track.capture is not None:
            return track.capture.begun
        use = self._clocks.now(track)
        if track.core.is_closed:
            # What a closed stream was given goes on, but nothing can wait for it except the host.
            with devices.on_device(track.device_id):
                devices.current_device().sync()
            self._clocks.finish(use)
        else:
            self._record(track, use, None)
        return use

    def _record(self, track: Track, use: Use, things: Any) -> None:
        if devices.device_count() > 1:
            # An event belongs to the context that is current when it is made, and must be of its stream's.
            with devices.on_device(track.device_id):
                use.event = track.core.record(track.idle.pop() if track.idle else None)
        else:
            use.event = track.core.record(track.idle.pop() if track.idle else None)
        track.held.append((use, things))

    def _release(self, track: Track) -> None:
        held, last = track.held, None
        while held and held[0][0].event.is_done:
            last = held.popleft()[0]
            track.idle.append(last.event)
        if last is not None:
            self._clocks.finish(last)

    def _end_spell(self, track: Track) -> Use:
        """Nothing on that stream is repeated unseen any more; what has been counts as of now."""
        spell, track.spell = track.spell, None
        for path in list(track.settled):
            path.unsettle()
        track.settled.clear()
        end = self._mark(track)
        if spell is not None:
            spell.end = end
        return end

    # ── streams that come and go ─────────────────────────────────────────────────────────────────────────────────

    def _track(self, target: Known) -> Track:
        track = self._tracks.get(target.handle)
        return track if track is not None and track.core is target.core else self._appear(target)

    def _new_track(self, core: Stream, handle: int, device_id: int) -> Track:
        return Track(core, handle, device_id, self._idle.setdefault(device_id, []))

    def _appear(self, target: Known) -> Track:
        """A stream launches for the first time: it comes after everything that was launched unrecorded."""
        former = self._tracks.get(target.handle)
        if former is not None and not former.core.is_closed:
            former.core = target.core  # another object for the same stream
            return former
        gone = [track for track in self._tracks.values() if track.core.is_closed]
        self._tracks = {handle: track for handle, track in self._tracks.items() if not track.core.is_closed}
        self._closed += gone
        others = list(self._tracks.values())
        track = self._tracks[target.handle] = self._new_track(*_identity(target))
        if self._single and others:
            self._single = False
            for path in list(self._fast_paths):
                path.unsettle()
            self._origin = self._mark(others[0])
        if (self._single and gone) or len(self._closed) > _MOST_CLOSED:
            self._drop_closed()
        if self._origin is not None:
            self._wait_until(track, self._origin)
        return track

    def _drop_closed(self) -> None:
        """Wait on the host for what closed streams were given, and forget them."""
        for device_id in {track.device_id for track in self._closed}:
            with devices.on_device(device_id):
                devices.current_device().sync()
        for track in self._closed:
            self._release(track)
            self._clocks.drop(track)
        self._closed.clear()

    def _forget(self) -> None:
        """Forget memory whose uses are done; wait on the host until enough of it is."""
        self.release()
        self._clocks.forget()
        if len(self._clocks) > _MOST_SEGMENTS // 2 and not self._captures:
            self.unsettle()
            for track in self._tracks.values():
                if not track.core.is_closed:
                    track.core.sync()
                    self._clocks.finish(self._clocks.now(track))
            self._drop_closed()
            self.release()
            self._clocks.forget()

    def after_fork(self) -> None:
        """In a forked child: the parent's streams mean nothing, and no launch may skip the check for that."""
        self.lock = threading.RLock()
        for path in list(self._fast_paths):
            path.unsettle()


def _identity(target: Known) -> tuple[Stream, int, int]:
    return target.core, target.handle, target.device_id


def _crosses(segment: Any, track: Track) -> bool:
    """Whether a segment was last written, or is read, on another stream."""
    if segment.write is not None and segment.write.stream is not track:
        return True
    return any(stream is not track for stream in segment.reads)


def _capture_of(use: Use) -> Captured | None:
    track: Any = use.stream
    captured: Captured | None = track.capture
    return captured


_order = Order()
os.register_at_fork(after_in_child=_order.after_fork)


def order() -> Order:
    """The process's order between streams."""
    return _order
