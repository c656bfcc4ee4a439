"""Turning counters on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cudakit.emulator.counters.report import Report
from cudakit.emulator.counters.tally import Tally
from cudakit.emulator.streams.stream import EVERYWHERE, EmulatedStream
from cudakit.errors import ArgumentError


@contextlib.contextmanager
def counters(stream: EmulatedStream | None = None) -> Iterator[Report]:
    """Count what kernels do inside the block.

    Parameters
    ----------
    stream : EmulatedStream, optional
        Whose kernels are counted, and those of streams that are made like it meanwhile; default: of all the emulator's.

    Yields
    ------
    Report
        Whose counts grow with each launch. Kernels of tiles are not counted.

    Raises
    ------
    ArgumentError
        For a stream of a GPU, whose counters Nsight Compute reads.

    Examples
    --------
    >>> with ck.emulator.counters(stream) as report:
    ...     scale(stream, ck.cover(x.size), x, 2.0, x.size)
    >>> print(report)
    """
    if stream is not None and not isinstance(stream, EmulatedStream):
        raise ArgumentError(
            f"emulator.counters: stream is the emulator's, got {type(stream).__name__}; a GPU's counters are read by "
            "Nsight Compute (ncu)"
        )
    tally = Tally()
    if stream is None:
        EVERYWHERE.append(tally)
    else:
        stream.observers = (*stream.observers, tally)
    try:
        yield Report(tally)
    finally:
        if stream is None:
            EVERYWHERE.remove(tally)
        else:
            stream.observers = tuple(each for each in stream.observers if each is not tally)
