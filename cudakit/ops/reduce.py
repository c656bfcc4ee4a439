"""Reductions: sum, …"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from cudakit.config import Config, config
from cudakit.kernel import Kernel
from cudakit.ops.place import output, place_of

_BLOCK, _ITEMS = 512, 4


class _Job(NamedTuple):
    """What a call of one kind launches."""

    kernel: Kernel
    config: Config
    bytes: int


@functools.lru_cache(4096)
def _whole(dtype: np.dtype, size: int, op: str, multiprocessors: int) -> _Job:
    kernel = Kernel.from_template("reduce/whole")[dtype, dtype, dtype, op, _BLOCK, _ITEMS]
    blocks = max(1, min(-(-size * dtype.itemsize // (16 * _BLOCK * _ITEMS)), 2 * multiprocessors))
    return _Job(kernel, config(blocks, _BLOCK), blocks * 16)


def sum(x: Any, *, out: Any = None, stream: Any = None) -> Any:
    place, (x,) = place_of("sum", stream, ("x", x))
    job = _whole(x.dtype, x.size, "cudakit::plus", place.multiprocessors)
    result = output("sum", place, out, (), x.dtype, x)
    job.kernel(place.stream, job.config, x, result, place.workspace(job.bytes), x.size)
    return result
