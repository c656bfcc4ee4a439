"""``ck.Timer``: how long a stream's work takes, by events, without waiting until it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cudakit.errors import CudakitError, raise_launch_error
from cudakit.places import place_of, refuse_capture

if TYPE_CHECKING:
    pass


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
        self._place = place_of(stream)
        self.stream: Any = self._place.check(stream)
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
        refuse_capture(self.stream, "a timer's mark", "what is captured does not run yet", "time the graph's launches")
        self._marks.append(self._place.mark(self.stream, self._free.pop() if self._free else None))

    @property
    def is_done(self) -> bool:
        """Whether the stream has come to the stop, so that reading does not wait."""
        return bool(self._measured()[-1].is_done)

    @property
    def laps_ms(self) -> tuple[float, ...]:
        """Milliseconds of each lap, the last one until the stop; waits for the stream to come there."""
        marks = self._measured()
        try:
            marks[-1].sync()
            return tuple(self._place.elapsed_ms(*ends) for ends in pairwise(marks))
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
        if self._place.unit != "steps":
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

    def __repr__(self) -> str:
        """Without the time, for which it would have to wait."""
        if self._running or not self._marks:
            return f"<cudakit.Timer {'running' if self._running else 'not started'}>"
        return f"<cudakit.Timer stopped; laps: {len(self._marks) - 1}>"

    def __str__(self) -> str:
        if self._running or not self._marks:
            return "a timer, running" if self._running else "a timer, not started"
        return f"{self.elapsed_steps} steps" if self._place.unit == "steps" else f"{self.elapsed_ms:.4f} ms"
