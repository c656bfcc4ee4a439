"""How many items are under way: a gate that they enter, and leave at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

#: Items among which the time that one takes is looked at; seconds for one that is brisk; what is let in at a time then.
_SAMPLE: Final = 64
_BRISK: Final = 1e-4
_BATCH: Final = 8


class Gate:
    """Lets `depth` items be between the source and the consumer at a time.

    Parameters
    ----------
    depth : int
    elastic : bool
        Let in `_BATCH - 1` more once items pass in less than `_BRISK` seconds each, and tell whoever waits at the gate
        of `_BATCH` that have left at a time: to wake a thread takes longer than such an item does. What takes so
        little time cannot take up much memory.
    now : callable
        Seconds, of a clock that does not go back.
    """

    def __init__(self, depth: int, elastic: bool = False, now: Callable[[], float] = time.perf_counter) -> None:
        self._room = depth
        self._elastic = elastic
        self._now = now
        self._since = -math.inf
        self._batch = 1
        self._left = 0
        #: How many may come in after those that have left.
        self._more: SimpleQueue[int] = SimpleQueue()
        self._stopped = False

    def enter(self, block: bool) -> bool:
        """Take room for one item; False where there is none, or the pipeline was stopped. For one thread at a time."""
        if not self._room:
            try:
                self._room = self._more.get(block)
            except Empty:
                return False
        self._room -= 1
        return not self._stopped

    def leave(self) -> None:
        """An item has reached the consumer. For one thread at a time."""
        self._left += 1
        if self._left % self._batch == 0:
            self._more.put(self._batch)
        if self._elastic and self._left % _SAMPLE == 0:
            since, self._since = self._since, self._now()
            if self._since - since < _SAMPLE * _BRISK:
                self._elastic = False
                self._batch = _BATCH
                self._more.put(_BATCH - 1)

    def stop(self) -> None:
        """Let nobody in any more, and nobody wait."""
        self._stopped = True
        self._more.put(1)
