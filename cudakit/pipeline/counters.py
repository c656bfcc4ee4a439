"""How far a run has come: numbers of items and bytes, rates, and who waits for whom."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from cudakit.pipeline.in_flight import mapped


@dataclass(frozen=True)
class Counters:
    """How far a run of a pipeline has come.

    Attributes
    ----------
    items : int
        Results that were delivered.
    bytes : int
        Of their arrays.
    dropped : int
        Items that a stage made nothing of.
    failed : int
        Items that a stage failed on, or the source.
    under_way : int
        Items of the source that were read and have not come to their end.
    elapsed_s : float
        Seconds since the run was made; once it is closed, until then.
    waited_s : float
        Seconds that the consumer has been in the run, for results; the rest of `elapsed_s` is the consumer's own.
    over : bool
        Whether the run is closed.
    """

    items: int
    bytes: int
    dropped: int
    failed: int
    under_way: int
    elapsed_s: float
    waited_s: float
    over: bool

    @property
    def items_per_s(self) -> float:
        """Results a second."""
        return self.items / max(self.elapsed_s, 1e-9)

    @property
    def bytes_per_s(self) -> float:
        """Bytes of results a second."""
        return self.bytes / max(self.elapsed_s, 1e-9)


class Line:
    """Shows counters on one line: how many items are done, of how many where that is known, and how many a second.

    Parameters
    ----------
    total : int
        0: not known.
    output : text file, optional
        Default: standard error.
    """

    def __init__(self, total: int, output: TextIO | None = None) -> None:
        self._total = total
        self._output = output if output is not None else sys.stderr

    def __call__(self, counters: Counters) -> None:
        """Show them; for a run that is over, end the line."""
        done = counters.items + counters.dropped + counters.failed
        if self._total:
            filled = min(20, 20 * done // self._total)
            text = f"{'█' * filled}{'·' * (20 - filled)} {done}/{self._total}"
        else:
            text = f"{done} items"
        self._output.write(f"\r{text}  {counters.items_per_s:.1f}/s{chr(10) if counters.over else ''}")
        self._output.flush()


def size_of(item: Any) -> int:
    """Bytes of an item's arrays."""
    if type(item) is np.ndarray:
        return item.nbytes
    sizes: list[int] = []
    mapped(item, lambda part: sizes.append(part.nbytes) if isinstance(part, np.ndarray) else None)
    return sum(sizes)
