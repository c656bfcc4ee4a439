"""``ck.Timer``: how long a stream's work takes, by events, without waiting until it is asked."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cudakit.errors import CudakitError
from cudakit.jit.launch.launch import raise_launch_error
from cudakit.streams import devices
from cudakit.streams.capture_state import refuse
from cudakit.streams.streams import as_stream, is_emulated

if TYPE_CHECKING:
    from cuda.core import Event, EventOptions, Stream


class Timer:
    """Time between two points of a stream: ``with ck.Timer(stream) as timer: …``, then ``timer.elapsed_ms``.

    It may be used again; the last measurement counts. It measures from when the stream comes to the start until it
    comes to the stop: where the stream is idle at the start, the host's way to the first launch is in it.

    Parameters
    ----------
    stream : stream
        ``ck.stream()``, a cuda.core, CuPy or torch stream, or the emulator's.

    Raises
    ------
    ArgumentError
        `stream` is not a stream.

    Notes
    -----
    The emulator has no time. It counts steps, as `elapsed_steps` gives them, and `elapsed_ms` takes a step for a
    microsecond: such numbers compare with each other, and say nothing about a GPU. ``print(timer)`` has the unit.

    Examples
    --------
    >>> with ck.Timer(stream) as timer:
    ...     kernel(stream, config, x, y, n)
    ...     timer.lap()
    ...     kernel(stream, config, y, x, n)
    >>> timer.elapsed_ms, timer.laps_ms
    """

    def __init__(self, stream: Any) -> None:
        self.stream: Any = stream if is_emulated(stream) else as_stream(stream)
        self._marks: list[Any] = []
        self._free: list[Any] = []
        self._running = False

    def __enter__(self) -> Timer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trail: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            # What the block raised says more than what a second look at a broken stream would.
            self._running, self._marks = False, []

    def start(self) -> None:
        """Begin to measure where the stream is now; what was measured before is forgotten.

        Raises
        ------
        LaunchError
            The stream is being captured into a graph.
        """
        self._free, self._marks = self._marks + self._free, []
        self._mark()
        self._running = True

    def lap(self) -> None:
        """End a lap where the stream is now, and begin the next.

        Raises
        ------
        CudakitError
            The timer was not started.
        """
        if not self._running:
            raise CudakitError("the timer is not running: lap() and stop() come after start(), or inside its block")
        self._mark()

    def stop(self) -> None:
        """End the measurement where the stream is now.

        Raises
        ------
        CudakitError
            The timer was not started.
        """
        self.lap()
        self._running = False

    def _mark(self) -> None:
        refuse(self.stream, "a timer's mark", "what is captured does not run yet", "time the graph's launches")
        if is_emulated(self.stream):
            self._marks.append(self.stream.clock)
            return
        with devices.on_device(self.stream.device.device_id):
            self._marks.append(timing_event(self.stream, self._free.pop() if self._free else None))

    @property
    def is_done(self) -> bool:
        """Whether the stream has come to the stop, so that reading does not wait."""
        marks = self._measured()
        return is_emulated(self.stream) or bool(marks[-1].is_done)

    @property
    def laps_ms(self) -> tuple[float, ...]:
        """Milliseconds of each lap, the last one until the stop; waits for the stream to come there."""
        if is_emulated(self.stream):
            return tuple(steps / 1000 for steps in self.laps_steps)
        marks = self._measured()
        try:
            marks[-1].sync()
            return tuple(float(end - start) for start, end in pairwise(marks))
        except Exception as error:
            raise_launch_error(error)
            raise

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds from start to stop; waits for the stream to come there. On the emulator, see the notes.

        Raises
        ------
        CudakitError
            The timer has not been stopped.
        LaunchError
            The driver reports an error of the stream's work.
        """
        return sum(self.laps_ms)

    @property
    def laps_steps(self) -> tuple[int, ...]:
        """Steps of each lap on the emulator."""
        if not is_emulated(self.stream):
            raise CudakitError("steps are the emulator's; a GPU's stream has elapsed_ms and laps_ms")
        marks = self._measured()
        return tuple(end - start for start, end in pairwise(marks))

    @property
    def elapsed_steps(self) -> int:
        """Steps from start to stop on the emulator.

        Raises
        ------
        CudakitError
            The stream is a GPU's, or the timer has not been stopped.
        """
        return sum(self.laps_steps)

    def _measured(self) -> Sequence[Any]:
        if self._running or not self._marks:
            state = "still running" if self._running else "not started"
            raise CudakitError(f"the timer is {state}: read it after stop(), or after its block")
        return self._marks

    def __str__(self) -> str:
        if self._running or not self._marks:
            return "a timer, running" if self._running else "a timer, not started"
        return f"{self.elapsed_steps} steps" if is_emulated(self.stream) else f"{self.elapsed_ms:.4f} ms"


def timing_event(stream: Stream, event: Event | None = None) -> Event:
    """Record an event that has a time; `event`, where one is given to be used again."""
    return stream.record(event) if event is not None else stream.record(options=_timed())


@functools.cache
def _timed() -> EventOptions:
    from cuda.core import EventOptions

    return EventOptions(timing_enabled=True)
