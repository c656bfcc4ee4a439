"""Events of emulated streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudakit.emulator.streams.order import order
from cudakit.errors import ArgumentError

if TYPE_CHECKING:
    from cudakit.emulator.streams.stream import EmulatedStream
    from cudakit.streams.order.segments import Use


class EmulatedEvent:
    """A point in the order of an emulated stream's work, made by `EmulatedStream.record`.

    ``b - a`` is the number of emulated steps from `a` to `b`; cuda.core's events give milliseconds.

    Attributes
    ----------
    step : int
        The step on the stream's clock.
    """

    __slots__ = ("_clocks", "_use", "step")

    def __init__(self, stream: EmulatedStream) -> None:
        self.record_on(stream)

    def record_on(self, stream: EmulatedStream) -> None:
        """Stand for all that `stream` was given so far."""
        self._use, self._clocks = order().record(stream)
        self.step = stream.clock

    def __repr__(self) -> str:
        return f"<EmulatedEvent at step {self.step}>"

    def __sub__(self, other: EmulatedEvent) -> int:
        if not isinstance(other, EmulatedEvent):
            raise ArgumentError(f"an emulated event has a time from another one only, not from {type(other).__name__}")
        return self.step - other.step

    @property
    def is_done(self) -> bool:
        """True, as all work is done when its call returns; to ask orders the host after the event, as `sync` does."""
        self.sync()
        return True

    def sync(self) -> None:
        """Let the host wait: whatever is asked for from now on comes after the event."""
        order().finish(self._current(), self.step)

    def be_waited_for(self, stream: EmulatedStream) -> None:
        """Let what `stream` is given from now on come after the event."""
        order().wait(stream, self._current(), self.step)

    def _current(self) -> Use | None:
        """The event's place in the order; None where all that was before has been forgotten, as it was over."""
        return self._use if self._clocks is order().clocks else None
