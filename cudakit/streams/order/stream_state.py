"""The streams that the order knows: their events, what is held until work is done, and how they come and go."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from cudakit.errors import LaunchError
from cudakit.streams import devices, streams
from cudakit.streams.clocks import Clocks
from cudakit.streams.segments import Range, Spell, Touched, Use
from cudakit.streams.streams import Known

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
        Uses that move on at each launch (see `cudakit.streams.order.repeat`), each with what is kept until it is done.
    settled : set of FastPath
        Those that have settled in the spell.
    spell : Spell or None
    capture : Captured or None
        Where the stream is being captured.
    unmarked : list
        What launches were given that others captured, without an event: kept with the stream's next one.
    """

    __slots__ = ("capture", "core", "device_id", "handle", "held", "idle", "repeated", "settled", "spell", "unmarked")

    def __init__(self, core: Stream, handle: int, device_id: int, idle: list[Event]) -> None:
        self.core: Stream = core
        self.handle: int = handle
        self.device_id: int = device_id
        self.idle: list[Event] = idle
        self.held: deque[tuple[Use, Any]] = deque()
        self.repeated: dict[Use, Any] = {}
        self.settled: weakref.WeakSet[FastPath] = weakref.WeakSet()
        self.spell: Spell | None = None
        self.capture: Captured | None = None
        self.unmarked: list[Any] = []


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
