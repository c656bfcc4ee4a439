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
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cudakit.streams import devices, process, streams
from cudakit.streams.clocks import COLD, MANY
from cudakit.streams.order.stream_state import DUE, Captured, FastPath, Reporter, Track, Tracks
from cudakit.streams.segments import NEVER, Range, Spell, Touched, Use, producers_of, span_of
from cudakit.streams.streams import Known, handle_of, known

if TYPE_CHECKING:
    from cuda.core import Stream


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
