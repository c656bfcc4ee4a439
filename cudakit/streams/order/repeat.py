"""Launches that repeat an earlier one on one of several streams, with the waits they need and no other look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cudakit.streams.clocks import COLD, MANY
from cudakit.streams.order.stream_state import DUE, LOOK
from cudakit.streams.segments import Use

if TYPE_CHECKING:
    from cudakit.streams.order.order import Order
    from cudakit.streams.order.stream_state import Track
    from cudakit.streams.segments import Touched

#: After how many launches is looked whether the arrays of earlier ones are still in use.
_LOOK = 64


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
                if not used.count % _LOOK:
                    order.look(track)
                if needed is COLD and not sources:
                    cool()
                return
        finally:
            release()
        look(values, arguments)

    return again
