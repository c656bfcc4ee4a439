"""How far a pipeline has come, on one line of standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

#: Seconds between two changes of the line.
_INTERVAL = 0.1


class Progress:
    """A line that says how many items are done, of how many where that is known, and how many a second.

    Parameters
    ----------
    total : int
        0: not known.
    output : text file, optional
        Default: standard error.
    now : callable
        Seconds, of a clock that does not go back.
    """

    def __init__(self, total: int, output: TextIO | None = None, now: Callable[[], float] = time.perf_counter) -> None:
        self._total = total
        self._output = output if output is not None else sys.stderr
        self._now = now
        self._done = 0
        self._start = self._shown = now()
        self._closed = False

    def add(self) -> None:
        """One item more is done."""
        self._done += 1
        if self._now() - self._shown >= _INTERVAL:
            self._show("")

    def close(self) -> None:
        """Say the last word, and end the line."""
        if not self._closed:
            self._closed = True
            self._show("\n")

    def _show(self, end: str) -> None:
        self._shown = self._now()
        rate = self._done / max(self._shown - self._start, 1e-9)
        if self._total:
            filled = min(20, 20 * self._done // self._total)
            text = f"{'█' * filled}{'·' * (20 - filled)} {self._done}/{self._total}"
        else:
            text = f"{self._done} items"
        self._output.write(f"\r{text}  {rate:.1f}/s{end}")
        self._output.flush()
