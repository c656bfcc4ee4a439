"""Philox4x32-10 and what is made of its words, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

_LOW = np.uint64(2**32 - 1)


def philox(counter: Any, key: tuple[int, int]) -> np.ndarray:
    """Four words for each counter, both of uint32."""
    x = [np.asarray(each, np.uint64) for each in np.moveaxis(np.asarray(counter), -1, 0)]
    for k in range(10):
        keys = [np.uint64((key[j] + k * step) % 2**32) for j, step in ((0, 0x9E3779B9), (1, 0xBB67AE85))]
        first, second = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        x = [
            second >> np.uint64(32) ^ x[1] ^ keys[0],
            second & _LOW,
            first >> np.uint64(32) ^ x[3] ^ keys[1],
            first & _LOW,
        ]
    return np.stack(x, -1).astype(np.uint32)


def words(state: dict[str, Any], count: int, attempt: int = 0) -> np.ndarray:
    """The words of a generator's next positions: (count, 4)."""
    positions = (state["position"] + np.arange(count, dtype=np.uint64)) & np.uint64(2**64 - 1)
    counter = np.empty((count, 4), np.uint64)
    counter[:, 0], counter[:, 1] = positions & _LOW, positions >> np.uint64(32)
    counter[:, 2], counter[:, 3] = state["stream"] % 2**32, (state["stream"] >> 32) + (attempt << 24)
    return philox(counter, (state["key"] % 2**32, state["key"] >> 32))
