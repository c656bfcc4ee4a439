"""What a launch is that repeats an earlier one on one of several streams, with the waits it needs and no other look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cuda.core import LaunchConfig, Stream

    from cudakit.launch import CallShape
    from cudakit.segments import Touched
    from cudakit.tracks import Track


class Repeat(NamedTuple):
    """One shape with the same arrays, on one stream and configuration; see `cudakit.order.Order.repeating`.

    Attributes
    ----------
    shape : CallShape
    given : tuple
        Stream and configuration as the user gave them.
    core : cuda.core.Stream
    config : cuda.core.LaunchConfig
    run, kernel : callable, object
        ``run(core, config, kernel, *values)`` launches.
    track : Track
        What the order knows of the stream.
    touched : Touched
        The arrays' memory.
    foreign : tuple of int
        Streams that are waited for each time: CuPy's and torch's current ones, where they are others.
    middle : callable
        What launches where all must be looked at anew: ``middle(shape, stream, config, values, arguments)``.
    cool : callable
        Told when nothing needs to be waited for or recorded any more.
    """

    shape: CallShape
    given: tuple[Any, Any]
    core: Stream
    config: LaunchConfig
    run: Callable[..., None]
    kernel: Any
    track: Track
    touched: Touched
    foreign: tuple[int, ...]
    middle: Callable[..., None]
    cool: Callable[[], object]

    def straight(self, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Launch what has settled."""
        self.run(self.core, self.config, self.kernel, *values)
