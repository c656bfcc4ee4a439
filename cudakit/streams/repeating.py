"""Replayed launches on one of several streams, with the waits that they need and no other check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cudakit.records import NamedTuple
from cudakit.streams import streams
from cudakit.streams.order import DUE, LOOK, Order, Track
from cudakit.streams.segments import COLD, MANY, Segment, Touched, Use

#: After how many launches that repeat is looked whether the arrays of earlier ones are still in use.
_REPEATS = 64


class Repeat(NamedTuple):
    """A launch with the same arrays on one stream and configuration. See `repeating`.

    Attributes
    ----------
    launch : callable
        ``launch(*values)``: the launch alone.
    cool : callable
        Function that is called once launches need no wait and no record any more.
    track : Track
        State of the stream in the order.
    touched : Touched
        Memory of the arrays.
    foreign : tuple of int
        Streams to wait for at each launch: current streams of CuPy and torch, if they are other streams.
    """

    launch: Callable[..., None]
    cool: Callable[[], object]
    track: Track
    touched: Touched
    foreign: tuple[int, ...]


def repeating(order: Order, repeat: Repeat) -> Callable[..., bool]:
    """Return ``again(bound, arguments, values)``, which repeats the launch of `repeat` with the waits that it needs.

    `bound` is the launch as a function without arguments, or None: then the launch has these `values`. The result is
    False, and nothing is launched, if the order has changed so that the launch needs all checks.

    It does `Order.before`, the launch and `Order.after`. All launches share one `Use` and one event: each launch
    touches the same segments, and replaces the launch before. While two streams take turns on the memory, `again` waits
    for the other stream's last write, and skips the search for what must come first.
    """
    launch, cool, track, touched, foreign = repeat
    # Acquired and released by hand, which costs half of what a `with` does.
    acquire, release, clocks, version = order.lock.acquire, order.lock.release, order.clocks, touched.version
    repeated, holdings, warmth = track.repeated, track.holdings, order.warmth
    used, step = Use(track, 0, {}), clocks.step(track, touched, warmth)
    calls = order.calls = order.calls or streams.event_calls(track.core)
    wait, record, stream = calls.wait, calls.record, track.handle if calls.by_number else track.core
    clock_of, counts, read = clocks.clocks, clocks.counts, touched.read
    sources = [(order.source(handle), track.core.record()) for handle in foreign]
    first, *others = touched.written or (Segment(0, 0),)
    is_alone = not (others or read)
    # Of the last launch: its event, and the event's form for `calls`; the stream's clock after it. Of the last launch
    # that went all the way: the stream that it waited for.
    event, point, partner = None, None, None
    clock: Mapping[Any, int] = used.clock

    def again(bound: Callable[[], object] | None, arguments: Sequence[Any], values: Sequence[Any] = ()) -> bool:
        nonlocal clock
        acquire()
        try:
            former = first.write
            if (
                former is not None
                and former.stream is partner
                and (reached := former.point) is not None
                and bound is not None
                and version == clocks.version
                and not (order.is_special or order.manual_blocks or first.reads)
                and clock_of.get(track) is clock
                and ((len(before := former.clock) == 1 and track in before) or _is_known(before, track, clock))
                and (is_alone or _is_turn(former, track, clock, others, read))
            ):
                try:
                    try:
                        wait(stream, reached)
                    except Exception:
                        order.wait_on_host(track, touched)
                        raise
                    bound()
                    record(point, stream)
                except BaseException:
                    step(used, True)  # the stream may have got the launch
                    raise
                used.count = count = counts[track] = counts[track] + 1
                clock_of[track] = used.clock = clock = {**clock, partner: former.count}
                used.event, used.point = event, point
                first.write, first.warmth = used, warmth
                if not is_alone:
                    for segment in others:
                        segment.write, segment.warmth = used, warmth
                    for segment in read:
                        segment.reads[track] = used
                repeated[used] = arguments
                if not count % _REPEATS:
                    order.look(track)
                return True
        finally:
            release()
        return in_full(bound, arguments, values)

    def in_full(bound: Callable[[], object] | None, arguments: Sequence[Any], values: Sequence[Any]) -> bool:
        nonlocal event, point, partner, clock
        with order.lock:
            manual = order.manual_blocks
            # Where the user orders, what waits for nobody need not come by here again: the full check sees to that.
            if version != clocks.version or order.is_special or (manual and not sources):
                return False
            needed = step(used, not manual)
            if sources and not manual:
                for source, reached in sources:
                    track.core.wait(source.record(reached))
            if needed is MANY:
                other = order.take(track, touched, bool(sources))
                if bound is None:
                    launch(*values)
                else:
                    bound()
                if other.event is not DUE:
                    cool()
                    return True
                order.record(other, arguments)
                if not len(holdings) % LOOK:
                    order.look(track)
                return True
            if (
                needed is not None
                and needed is not COLD
                and not manual
                and (not sources or needed.stream.handle not in foreign)
            ):
                try:
                    if needed.point is None:
                        order.wait(track, needed)
                    else:
                        wait(stream, needed.point)
                except Exception:
                    order.wait_on_host(track, touched)
                    raise
            if bound is None:
                launch(*values)
            else:
                bound()
            if event is None:
                event = track.core.record()
                point = int(event.handle) if calls.by_number else event
            else:
                record(point, stream)
            used.event, used.point = event, point
            if used.clock is not clock and not sources:
                clock, partner = used.clock, needed.stream if needed is not None and needed is not COLD else None
            repeated[used] = arguments
            if not used.count % _REPEATS:
                order.look(track)
            if needed is COLD and not sources:
                cool()
            return True

    return again


def _is_known(before: Mapping[Any, int], track: Track, clock: Mapping[Any, int]) -> bool:
    """Return whether a stream with a `clock` comes after all that is `before`, except for its own work."""
    for other, count in before.items():  # noqa: SIM110  all() takes twice as long
        if count > clock.get(other, 0) and other is not track:
            return False
    return True


def _is_turn(
    former: Use, track: Track, clock: Mapping[Any, int], written: Sequence[Segment], read: Sequence[Segment]
) -> bool:
    """Return whether `former` is all that the next use of some memory by a stream must wait for.

    `clock` is the stream's clock.
    """
    for segment in written:
        if segment.write is not former or segment.reads:
            return False
    for segment in read:
        use = segment.write
        if use is not None and (
            use.spell is not None or (use.stream is not track and use.count > clock.get(use.stream, 0))
        ):
            return False
    return True
