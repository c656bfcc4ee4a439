"""How a count runs: for a kind of values and bins, the kernel and the launch that fills the device."""

from __future__ import annotations

import functools
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.place import device_limits, multiprocessors_of
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.types.cpp import spelling

#: Threads a block, packs in flight a thread.
_BLOCK, _ITEMS = 1024, 4
_SMALL_BLOCK = 512
#: Bytes of counters that leave room for two blocks and for L1, and that one block has at most.
_FEW_BYTES, _MOST_BYTES = 32 << 10, 64 << 10
#: Most often that the values are read for the sake of more bins than a block has room for.
_MOST_PARTS = 8
#: Of <cudakit/count/bins.cuh>: any_bins::SHARED_BYTES, on a multiple of 16; and edges that are copied to shared memory.
_CELL_BYTES, _NEAR_EDGES = 8208, 4096
#: Bins whose counts templates/count.cuh sums without being given zeros.
GATHERED = 500

#: How a value finds its bin, by a struct of <cudakit/count/bins.cuh>.
Policy: TypeAlias = Literal["even", "any", "whole"]


class Pass(NamedTuple):
    """What a call of one kind launches."""

    kernel: Kernel
    config: Config
    table_at: int = 0
    own_edges: bool = False


def _view(dtype: np.dtype, rank: int | None) -> str:
    return f"const {spelling(dtype)}*" if rank is None else f"cudakit::strided<const {spelling(dtype)}, {rank}>"


def compared(dtype: np.dtype) -> np.dtype:
    """The dtype that values of `dtype` are compared as."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def _struct(policy: Policy, dtype: np.dtype, edge: np.dtype, bins: int, cells: int = 2048) -> str:
    """The struct of <cudakit/count/bins.cuh>."""
    value, key = spelling(dtype), spelling(compared(edge))
    if policy == "whole":
        return f"cudakit::whole_numbers<{value}>"
    if policy == "any":
        return f"cudakit::any_bins<{value}, {key}, {spelling(edge)}, {cells}>"
    # Of values whose guess is a float, bins in 2^21 are near an edge: few, up to here.
    guess = "float" if dtype.itemsize <= 4 and bins <= 4096 else "double"
    return f"cudakit::even_bins<{value}, {key}, {spelling(edge)}, {guess}>"


def _blocks(size: int, rank: int | None, itemsize: int, block: int, most: int) -> int:
    """Blocks of a launch: a pack a thread at least."""
    return max(1, min(-(-size // (block * (16 // itemsize if rank is None else 1))), most))


def _table_bytes(policy: Policy, edge: np.dtype, bins: int) -> tuple[int, bool]:
    """Shared memory for finding bins, and whether the edges are copied there."""
    if policy != "any":
        return 0, False
    own = bins < _NEAR_EDGES
    return _CELL_BYTES + own * (bins + 1) * edge.itemsize, own


def _copies(bytes_each: int) -> int:
    """Copies of all counters that `_FEW_BYTES` have room for: a power of two, at most a lane's."""
    return 1 << max(0, min(32, _FEW_BYTES // bytes_each).bit_length() - 1)


@functools.lru_cache(4096)
def byte_pass(dtype: np.dtype, rank: int | None, size: int, policy: Policy, edge: np.dtype, device: int | str) -> Pass:
    """Counts of 8-bit values by their bits, of which bins are made at the end."""
    # 256 values are looked up, fewer than a table of cells has.
    struct = _struct("whole" if policy == "whole" else "any", dtype, edge, 256, cells=1)
    kernel = Kernel.from_template("count/bytes")[_view(dtype, rank), struct, edge, _BLOCK, _ITEMS]
    blocks = _blocks(size, rank, 1, _BLOCK, multiprocessors_of(device))
    return Pass(kernel, config(blocks, _BLOCK, 256 * 32 * 4))


@functools.lru_cache(4096)
def range_pass(dtype: np.dtype, rank: int | None, size: int, edge: np.dtype, device: int | str) -> Pass:
    """Least and greatest finite value, and the even edges between them."""
    template = Kernel.from_template("count/range")
    kernel = template[_view(dtype, rank), compared(dtype), edge, _SMALL_BLOCK, _ITEMS]
    blocks = _blocks(size, rank, dtype.itemsize, _SMALL_BLOCK, 4 * multiprocessors_of(device))
    return Pass(kernel, config(blocks, _SMALL_BLOCK))


@functools.lru_cache(4096)
def value_pass(
    dtype: np.dtype, rank: int | None, size: int, policy: Policy, edge: np.dtype, bins: int, device: int | str
) -> Pass:
    """Counts of values in bins, in shared memory where they fit."""
    parts, counter_bytes = 1, 0
    table_bytes, own_edges = _table_bytes(policy, edge, bins)
    halves = (
        device_limits(device).shared_bytes - 1024 - table_bytes
    ) // 2  # bins that one block counts; the rest is for tickets
    if 4 * bins <= _MOST_BYTES:
        copies = _copies(4 * bins)
        counters, counter_bytes = f"cudakit::word_counters<{copies}>", 4 * copies * (bins + 1)
    elif bins <= halves * _MOST_PARTS:
        parts = -(-bins // halves)
        counters, counter_bytes = "cudakit::half_counters", 2 * -(-bins // parts)
    else:
        counters = "cudakit::global_counters"
    # One block a multiprocessor leaves a thread 64 registers, and most of L1 to values on their way; two are better
    # where threads wait for something else, too.
    resident = 2 if policy == "any" or counter_bytes == 0 else 1
    table_at = -(-counter_bytes // 16) * 16
    kernel = Kernel.from_template("count/values")[
        _view(dtype, rank), _struct(policy, dtype, edge, bins), counters, edge, _BLOCK, _ITEMS, resident
    ]
    blocks = _blocks(size, rank, dtype.itemsize, _BLOCK, resident * multiprocessors_of(device))
    return Pass(kernel, config((blocks, parts), _BLOCK, table_at + table_bytes), table_at, own_edges)


@functools.lru_cache(4096)
def weighing_passes(
    dtype: np.dtype,
    weight: np.dtype,
    rank: int | None,
    size: int,
    policy: Policy,
    edge: np.dtype,
    bins: int,
    out: np.dtype,
    device: int | str,
) -> tuple[Pass, Pass]:
    """The launch that adds up, and the one that rounds the sums."""
    sum, limbs = ("cudakit::whole_sum", 1) if weight.kind in "biu" else ("cudakit::fixed_sum", 2)
    near = 8 * limbs * bins <= _MOST_BYTES
    copies = _copies(8 * limbs * bins) if near else 1
    sums = f"cudakit::{'shared' if near else 'global'}_sums<{limbs}, {copies}>"
    sum_bytes = -(-8 * limbs * copies * bins // 16) * 16 if near else 0
    table_bytes = _CELL_BYTES if policy == "any" else 0
    kernel = Kernel.from_template("count/weigh")[
        _view(dtype, rank),
        _view(weight, rank),
        _struct(policy, dtype, edge, bins),
        sum,
        sums,
        edge,
        _SMALL_BLOCK,
        _ITEMS,
    ]
    blocks = _blocks(size, 1, 1, _SMALL_BLOCK, 4 * multiprocessors_of(device))
    settle = Kernel.from_template("count/settle")[sum, weight, out]
    return (
        Pass(kernel, config(blocks, _SMALL_BLOCK, sum_bytes + table_bytes), sum_bytes),
        Pass(settle, config(-(-bins // _SMALL_BLOCK), _SMALL_BLOCK)),
    )
