"""Counting: histogram, bincount."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cudakit.config import Config, config
from cudakit.errors import ArgumentError
from cudakit.kernel import Kernel
from cudakit.ops.layout import element_strides, merged
from cudakit.ops.place import Place, multiprocessors_of, output, place_of
from cudakit.streams import as_stream, order
from cudakit.types import spelling

_BLOCK, _ITEMS, _RESIDENT = 1024, 4, 2
_RANGE_BLOCK = 512
_MOST_BINS = 1 << 30
_COUNT = np.dtype(np.int64)


class _Job(NamedTuple):
    """What a call of one kind launches, besides finding a range."""

    kernel: Kernel
    config: Config
    counter_bytes: int
    own_edges: bool


def histogram(
    x: Any,
    bins: Any = 10,
    range: tuple[float, float] | None = None,
    weights: Any = None,
    density: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """counts[b] = number of values with edges[b] ≤ x < edges[b + 1]; the last bin has its right edge too."""
    place, (x,) = place_of("histogram", stream, ("x", x))
    if isinstance(bins, int):
        if range is None:
            edges, found = place.empty(bins + 1, _edge_dtype(x.dtype)), False
        else:
            edges, found = _even_edges(place, bins, float(range[0]), float(range[1]), _edge_dtype(x.dtype)).copy(), True
        policy = "even"
    else:
        edges, found = _given_edges("histogram", place, bins), True
        bins = edges.size - 1
        policy = "any"
    counts = output("histogram", place, out, (bins,), _COUNT, x)
    _count(place, _flat(x), policy, edges, found, counts, bins)
    return counts, edges


def bincount(x: Any, weights: Any = None, minlength: int = 0, length: int | None = None, *, out: Any = None, stream: Any = None) -> Any:
    """counts[v] = number of times that v is in x, a whole number."""
    place, (x,) = place_of("bincount", stream, ("x", x))
    if x.dtype.kind not in "biu":
        raise ArgumentError(f"bincount: x has dtype {x.dtype}; whole numbers are counted, convert it")
    flat = _flat(x)
    bins = _length(place, flat, minlength) if length is None else length
    counts = output("bincount", place, out, (bins,), _COUNT, x)
    _count(place, flat, "whole", None, True, counts, bins)
    return counts


def _count(place: Place, x: Any, policy: str, edges: Any, found: bool, counts: Any, bins: int) -> None:
    """Count the values of `x` (C-contiguous, or merged) into `counts`, by `edges`, which are made here where not `found`."""
    size = x.size
    view = "" if x.flags.c_contiguous else x.ndim
    edge = edges.dtype if edges is not None else counts.dtype
    if edges is None:
        edges = counts
    if x.dtype.itemsize == 1:
        job = _byte_job(x.dtype, view, size, policy, edge, place.device)
        job.kernel(place.stream, job.config, x, edges, counts, place.workspace(0), bins, not found, size)
        return
    if not found:
        kernel, launch = _range_job(x.dtype, view, size, edge, place.device)
        kernel(place.stream, launch, x, edges, place.workspace(16 * launch.grid[0]), bins, size)
    _clear(place, counts)
    job = _job(x.dtype, view, size, policy, edge, bins, place.device)
    job.kernel(place.stream, job.config, x, edges, counts, bins, job.counter_bytes, job.own_edges, size)


def _length(place: Place, x: Any, minlength: int) -> int:
    if x.size == 0:
        return minlength
    kernel, launch = _range_job(x.dtype, "" if x.flags.c_contiguous else x.ndim, x.size, x.dtype, place.device)
    found = place.empty(2, x.dtype)
    kernel(place.stream, launch, x, found, place.workspace(16 * launch.grid[0]), 0, x.size)
    low, high = (int(v) for v in (found.get() if place.xp is not np else found))
    if low < 0:
        raise ArgumentError(f"bincount: x has a negative value, {low}")
    return max(high + 1, minlength)


# --- kinds of calls ---------------------------------------------------------------------------------------------------


def _wide(dtype: np.dtype) -> np.dtype:
    """What values are compared as."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "biu" else dtype


def _view_name(dtype: np.dtype, rank: int | str) -> str:
    element = spelling(dtype)
    return f"const {element}*" if rank == "" else f"cudakit::strided<const {element}, {rank}>"


def _policy_name(policy: str, dtype: np.dtype, edge: np.dtype, bins: int) -> str:
    element, key = spelling(dtype), spelling(_wide(edge))
    if policy == "whole":
        return f"cudakit::whole_numbers<{element}>"
    if policy == "any":
        return f"cudakit::any_bins<{element}, {key}, {spelling(edge)}>"
    real = "float" if dtype.itemsize <= 4 and bins <= 4096 else "double"
    return f"cudakit::even_bins<{element}, {key}, {spelling(edge)}, {real}>"


def _blocks(size: int, rank: int | str, itemsize: int, most: int, block: int) -> int:
    each = block * (16 // itemsize if rank == "" else 1)
    return max(1, min(-(-size // each), most))


@functools.lru_cache(4096)
def _byte_job(dtype: np.dtype, rank: int | str, size: int, policy: str, edge: np.dtype, device: int | str) -> _Job:
    name = _policy_name("whole" if policy == "whole" else "any", dtype, edge, 256)
    kernel = Kernel.from_template("count/bytes")[_view_name(dtype, rank), name, edge, _BLOCK, _ITEMS]
    blocks = _blocks(size, rank, 1, multiprocessors_of(device), _BLOCK)
    return _Job(kernel, config(blocks, _BLOCK, 256 * 32 * 4), 0, False)


@functools.lru_cache(4096)
def _range_job(dtype: np.dtype, rank: int | str, size: int, edge: np.dtype, device: int | str) -> tuple[Kernel, Config]:
    kernel = Kernel.from_template("count/range")[_view_name(dtype, rank), _wide(dtype), edge, _RANGE_BLOCK, _ITEMS]
    return kernel, config(_blocks(size, rank, dtype.itemsize, 4 * multiprocessors_of(device), _RANGE_BLOCK), _RANGE_BLOCK)


@functools.lru_cache(4096)
def _job(dtype: np.dtype, rank: int | str, size: int, policy: str, edge: np.dtype, bins: int, device: int | str) -> _Job:
    multiprocessors = multiprocessors_of(device)
    parts, resident = 1, _RESIDENT
    if bins <= 16384:
        copies = min(32, 1 << (32768 // (4 * bins)).bit_length() - 1) if bins <= 8192 else 1
        counters, counter_bytes = f"cudakit::word_counters<{copies}>", -(-4 * copies * bins // 16) * 16
    elif bins <= 8 * 100_000:
        parts = -(-bins // 100_000)
        counters, counter_bytes = "cudakit::half_counters", -(-(-(-bins // parts)) // 8) * 16
        resident = max(1, min(2, 200 * 1024 // counter_bytes))
    else:
        counters, counter_bytes = "cudakit::global_counters", 0
    edge_bytes = 0
    if policy == "any":
        edge_bytes = (bins + 1) * edge.itemsize if bins <= 4096 else 0
    shared = counter_bytes + (8208 if policy == "any" else 0) + edge_bytes
    kernel = Kernel.from_template("count/values")[
        _view_name(dtype, rank), _policy_name(policy, dtype, edge, bins), counters, edge, _BLOCK, _ITEMS, _RESIDENT
    ]
    blocks = _blocks(size, rank, dtype.itemsize, resident * multiprocessors, _BLOCK)
    return _Job(kernel, config((blocks, parts), _BLOCK, shared), counter_bytes, edge_bytes > 0)


# --- arrays -----------------------------------------------------------------------------------------------------------


def _edge_dtype(dtype: np.dtype) -> np.dtype:
    """Of even edges: the values' own for floating point, else float64, as in NumPy."""
    return np.dtype(np.float64) if dtype.kind in "biu" else dtype


def _even_edges(place: Place, bins: int, low: float, high: float, dtype: np.dtype) -> Any:
    if low == high:
        low, high = low - 0.5, high + 0.5
    return place.upload(np.linspace(low, high, bins + 1, dtype=dtype))


def _given_edges(op: str, place: Place, bins: Any) -> Any:
    if hasattr(bins, "get"):
        return bins
    edges = np.asarray(bins)
    return place.upload(edges)


def _clear(place: Place, array: Any) -> None:
    if place.xp is np:
        array.fill(0)
    elif place.current:
        array.data.memset_async(0, array.nbytes, place.stream)
    else:
        with order().cupy_stream(as_stream(place.stream)):
            array.data.memset_async(0, array.nbytes)


def _flat(x: Any) -> Any:
    """The elements of `x` in any order, in few dimensions."""
    if x.flags.c_contiguous or x.size == 0:
        return x
    steps = x.strides
    x = x.transpose(sorted(range(x.ndim), key=lambda d: -abs(steps[d])))
    x = x[tuple(slice(None, None, -1 if step < 0 else 1) for step in x.strides)]
    if x.flags.c_contiguous:
        return x
    shape, strides = merged(x.shape, element_strides(x))
    stride_tricks = np.lib.stride_tricks if isinstance(x, np.ndarray) else __import__("cupy").lib.stride_tricks
    return stride_tricks.as_strided(x, shape, [s * x.dtype.itemsize for s in strides])
