"""What orders the blocks of a cluster: the two halves of its barrier, and mbarriers that its threads share."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.machine.memory import Index

#: Arrivals of a lane that has exited.
_ALL = np.iinfo(np.int64).max


class Clusters:
    """The clusters of a machine.

    A block has passed a barrier when one of its threads has, which may have told the others.

    Parameters
    ----------
    block_of : numpy.ndarray
        Of each lane.
    size : int
        Blocks of a cluster.

    Attributes
    ----------
    floor : int
        No lane is ordered after fewer accesses of its cluster.
    """

    floor: int

    def __init__(self, block_of: np.ndarray, size: int) -> None:
        self._block_of, self._cluster_of, self._everybody = block_of, block_of // size, np.arange(block_of.size)
        #: How many barriers each lane has arrived at, and each block passed.
        self._arrived = np.zeros(block_of.size, np.int64)
        self._passed = np.zeros(int(block_of[-1]) + 1, np.int64)
        #: Up to which access each lane has published, with its last arrival at an even and at an odd one.
        self._published = np.zeros((2, block_of.size), np.int64)
        self._waited = np.zeros(self._passed.size, np.int64)
        self.floor = 0

    def arrive(self, lanes: Index, upto: int | np.ndarray) -> None:
        """Lanes arrive, having published so much."""
        each = self._everybody if lanes is None else lanes
        before = self._published[self._arrived[each] % 2, each]
        self._arrived[each] += 1
        self._published[self._arrived[each] % 2, each] = np.maximum(before, upto)

    def join(self, lanes: Index) -> None:
        """Lanes come to where they go on when all have arrived."""
        each = self._everybody if lanes is None else lanes
        np.maximum.at(self._passed, self._block_of[each], self._arrived[each])
        self.floor = int(self._of_barriers(self._everybody, self._passed.min()).min())

    def exit(self, lanes: Index, now: int) -> None:
        """Lanes exit, and count as having arrived from then on."""
        each = self._everybody if lanes is None else lanes
        self._published[:, each], self._arrived[each] = now, _ALL

    def waited(self, lanes: Index, now: int) -> None:
        """Lanes have waited at an mbarrier."""
        self._waited[self._block_of[slice(None) if lanes is None else lanes]] = now

    def known(self, others: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Number of the access before which all that each of `others` did comes before what each of `lanes` does."""
        blocks = self._block_of[lanes]
        same = self._cluster_of[others] == self._cluster_of[lanes]
        return np.where(same, np.maximum(self._of_barriers(others, self._passed[blocks]), self._waited[blocks]), 0)

    def _of_barriers(self, others: np.ndarray, passed: np.ndarray) -> np.ndarray:
        """What others had published when barriers were passed, of which the last may still lack some of them."""
        at = np.minimum(passed, self._arrived[others])
        return np.where(at > 0, self._published[at % 2, others], 0)
