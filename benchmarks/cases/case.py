"""One op on one array, as `kernels` and `generate` measure it, and the arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cupy
import numpy as np

#: Elements; the first is launch cost, the second stays in L2.
SIZES = (1 << 10, 1 << 20, 1 << 24, 1 << 28)
CALL_SIZE = SIZES[0]


@dataclass(frozen=True)
class Case:
    """One op on one array.

    Attributes
    ----------
    op, dtype : str
    size : int
        Elements.
    bytes : int
        Read once and written once.
    run : callable
        cudakit's call, its output reused where the peers reuse theirs.
    peers : mapping
        The same work by others, by name.
    aim : str
        What the op should reach.
    """

    op: str
    dtype: str
    size: int
    bytes: int
    run: Callable[[], object]
    peers: dict[str, Callable[[], object]] = field(default_factory=dict)
    aim: str = ""


def random_array(size: int, dtype: str, seed: int = 1) -> Any:
    """Random elements on the device: the whole range of small integers, floating point from 0 to 1."""
    generator = cupy.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        raw = generator.integers(0, 2**31 - 1, -(-size * kind.itemsize // 4), dtype=cupy.int32)
        return raw.view(kind)[:size]
    out = cupy.empty(size, kind)
    for start in range(0, size, 1 << 24):
        part = out[start : start + (1 << 24)]
        part[...] = generator.random(part.size, dtype=cupy.float32).astype(kind)
    return out


def rate(ms: float, size: int, moved: int) -> str:
    """Microseconds of a call on so few elements that it is launch cost; else GB/s, where it moves `moved` bytes."""
    return f"{ms * 1e3:.2f} µs" if size <= CALL_SIZE else f"{moved / ms / 1e6:.0f}"
