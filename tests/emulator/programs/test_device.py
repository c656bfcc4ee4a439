"""The agents of CUB's device-wide algorithms: many blocks, decoupled look-back, tickets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.programs import run

import cudakit as ck

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(8)
BLOCK = 128

# The names of agents and policies are CUB's own detail; these have been the same since CCCL 3.0.
BEGIN = """
#define CCCL_IGNORE_DEPRECATED_API
#define CUB_IGNORE_DEPRECATED_API
#define CCCL_DISABLE_PDL
"""

REDUCE = """
#include <cub/agent/agent_reduce.cuh>
template <int B> __global__ void reduce(const int* x, int* out, int share, int n) {
    using Policy = cub::AgentReducePolicy<B, 4, int, 4, cub::BLOCK_REDUCE_WARP_REDUCTIONS, cub::LOAD_LDG>;
    using Agent = cub::detail::reduce::AgentReduce<Policy, const int*, int, cuda::std::plus<>, int>;
    __shared__ typename Agent::TempStorage storage;
    int sum = Agent(storage, x, {}).ConsumeRange(blockIdx.x * share, min(n, (blockIdx.x + 1) * share));
    if (threadIdx.x == 0) atomicAdd(out, sum);
}
"""

SCAN = """
#include <cub/agent/agent_scan.cuh>
template <class T, int B> __global__ void scan(const T* x, T* out, void* temporary, int n, int tiles, bool begin) {
    using Policy = cub::AgentScanPolicy<B, 4, T, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::LOAD_DEFAULT,
                                        cub::BLOCK_STORE_WARP_TRANSPOSE, cub::BLOCK_SCAN_WARP_SCANS>;
    using Agent = cub::detail::scan::AgentScan<Policy, const T*, T*, cuda::std::plus<>, cub::NullType, int, T>;
    cub::ScanTileState<T> state;
    state.Init(tiles, temporary, 1 << 20);
    if (begin) return state.InitializeStatus(tiles);
    __shared__ typename Agent::TempStorage storage;
    Agent(storage, x, out, {}, {}).ConsumeRange(n, state, 0);
}
"""

SELECT = """
#include <cub/agent/agent_select_if.cuh>
struct Odd { __device__ bool operator()(int x) const { return x & 1; } };
struct Whole {  // one partition, which begins at 0
    using total_num_items_t = int;
    __device__ int input_offset() const { return 0; }
    __device__ bool is_first_partition() const { return true; }
    __device__ int num_previously_selected() const { return 0; }
    __device__ int num_previously_rejected() const { return 0; }
    template <class N> __device__ int num_total_items(N n) const { return n; }
    template <class P, class N> __device__ void update_num_selected(P to, N n) const { *to = n; }
};
template <int B> __global__ void select(const int* x, int* out, int* count, void* temporary, int n, int tiles,
                                        bool begin) {
    using Policy =
        cub::AgentSelectIfPolicy<B, 4, cub::BLOCK_LOAD_DIRECT, cub::LOAD_DEFAULT, cub::BLOCK_SCAN_WARP_SCANS>;
    using Agent = cub::detail::select::AgentSelectIf<Policy, const int*, cub::NullType*, int*, Odd, cub::NullType, int,
                                                     Whole, cub::SelectImpl::Select>;
    cub::ScanTileState<int> state;
    state.Init(tiles, temporary, 1 << 20);
    if (begin) return state.InitializeStatus(tiles);
    __shared__ typename Agent::TempStorage storage;
    Whole whole;
    Agent(storage, x, nullptr, out, {}, {}, n, whole).ConsumeRange(tiles, state, count);
}
"""

HISTOGRAM = """
#include <cub/agent/agent_histogram.cuh>
struct Bin {
    template <cub::CacheLoadModifier M, class S> __device__ void BinSelect(S sample, int& bin, bool valid) const {
        if (valid) bin = int(sample);
    }
};
template <int B> __global__ void histogram(const unsigned char* x, int* out, int* own, int* work, int n) {
    using Policy = cub::AgentHistogramPolicy<B, 4, cub::BLOCK_LOAD_DIRECT, cub::LOAD_LDG, true, cub::BLEND, false, 4>;
    using Agent =
        cub::detail::histogram::AgentHistogram<Policy, 256, 1, 1, const unsigned char*, int, Bin, Bin, int>;
    __shared__ typename Agent::TempStorage storage;
    int bins[1] = {256}, *outs[1] = {out}, *owns[1] = {own};
    Bin bin[1];
    Agent agent(storage, x, bins, bins, outs, owns, bin, bin);
    agent.InitBinCounters();
    agent.ConsumeTiles(n, 1, n, 0, cub::GridQueue<int>(work));
    agent.StoreOutput();
}
"""

DIGITS = """
#include <cub/agent/agent_radix_sort_histogram.cuh>
using word = unsigned;
template <int B> __global__ void digits(const word* x, word* bins, int n) {
    using Policy = cub::AgentRadixSortHistogramPolicy<B, 4, 1, word, 8>;
    using Agent = cub::detail::radix_sort::AgentRadixSortHistogram<Policy, false, word, word>;
    __shared__ typename Agent::TempStorage storage;
    Agent(storage, bins, x, n, 0, 32).Process();
}
"""

ONESWEEP = """
#include <cub/block/block_load.cuh>
#include <cub/agent/agent_radix_sort_onesweep.cuh>
using word = unsigned;
template <int B> __global__ void onesweep(int* look_back, int* ticket, word* bins_out, const word* bins, word* out,
                                          const word* x, word* values_out, const word* values, int n, int bit) {
    using Policy = cub::AgentRadixSortOnesweepPolicy<B, 4, word, 1, cub::RADIX_RANK_MATCH_EARLY_COUNTS_ANY,
                                                     cub::BLOCK_SCAN_RAKING_MEMOIZE, cub::RADIX_SORT_STORE_DIRECT, 8>;
    using Agent = cub::detail::radix_sort::AgentRadixSortOnesweep<Policy, false, word, word, word, int>;
    __shared__ typename Agent::TempStorage storage;
    Agent(storage, look_back, ticket, bins_out, bins, out, x, values_out, values, n, bit, 8).Process();
}
"""


def agent(text: str, *given: Any) -> ck.Kernel:
    return ck.Kernel(BEGIN + text)[(*given, BLOCK)]


def test_reduce(stream: Any) -> None:
    x, out = RANDOM.integers(-1000, 1000, 200_001).astype(np.int32), np.zeros(1, np.int32)
    run(stream, agent(REDUCE), ck.config(37, BLOCK), x, out, 5500, x.size)
    assert out[0] == x.sum()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_scan_looks_back(stream: Any, dtype: Any) -> None:
    x = RANDOM.integers(-1000, 1000, 100_001).astype(dtype)
    # The policy gives a thread 16 bytes.
    tiles = -(-x.size // (BLOCK * 16 // x.itemsize))
    out, temporary = np.zeros_like(x), np.zeros(64 * (tiles + 64), np.uint8)
    kernel = agent(SCAN, dtype)
    run(stream, kernel, ck.config(-(-tiles // BLOCK), BLOCK), x, out, temporary, x.size, tiles, True)
    run(stream, kernel, ck.config(tiles, BLOCK), x, out, temporary, x.size, tiles, False)
    assert (out == np.cumsum(x)).all()


def test_select(stream: Any) -> None:
    x = RANDOM.integers(-1000, 1000, 100_001).astype(np.int32)
    tiles = -(-x.size // (BLOCK * 4))
    out, count, temporary = np.zeros_like(x), np.zeros(1, np.int32), np.zeros(64 * (tiles + 64), np.uint8)
    kernel = agent(SELECT)
    run(stream, kernel, ck.config(-(-tiles // BLOCK), BLOCK), x, out, count, temporary, x.size, tiles, True)
    run(stream, kernel, ck.config(tiles, BLOCK), x, out, count, temporary, x.size, tiles, False)
    odd = x[x % 2 == 1]
    assert count[0] == odd.size
    assert (out[: odd.size] == odd).all()
    assert not out[odd.size :].any()


def test_histogram(stream: Any) -> None:
    # Every other block counts in shared memory, the rest in global memory; runs of equal samples are counted at once.
    x = np.repeat(RANDOM.integers(0, 256, 20_001), RANDOM.integers(1, 9, 20_001)).astype(np.uint8)
    out, own, work = np.zeros(256, np.int32), np.zeros(16 * 256, np.int32), np.zeros(8, np.int32)
    run(stream, agent(HISTOGRAM), ck.config(16, BLOCK), x, out, own, work, x.size)
    assert (out == np.bincount(x, minlength=256)).all()


def test_radix_sort_in_one_sweep_a_digit(stream: Any) -> None:
    n = 20_001
    keys, values = RANDOM.integers(0, 2**32, n, np.uint32), np.arange(n, dtype=np.uint32)
    keys[::3] &= 0xFF00FF
    bins = np.zeros((4, 256), np.uint32)
    run(stream, agent(DIGITS), ck.config(20, BLOCK), keys, bins, n)
    expected = np.array(
        [np.bincount(keys >> np.uint32(shift) & np.uint32(255), minlength=256) for shift in (0, 8, 16, 24)]
    )
    # The last tile is filled up with the largest key.
    expected[:, 255] += -n % (4 * BLOCK)
    assert (bins == expected).all()
    starts = (np.cumsum(bins, 1) - bins).astype(np.uint32)
    tiles, order = -(-n // (4 * BLOCK)), np.argsort(keys, kind="stable")
    sorted_keys, sorted_values = keys, values
    for digit in range(4):
        look_back, ticket, after = np.zeros(256 * tiles, np.int32), np.zeros(1, np.int32), np.zeros(256, np.uint32)
        keys_out, values_out = np.zeros_like(keys), np.zeros_like(values)
        run(
            stream, agent(ONESWEEP), ck.config(tiles, BLOCK),
            look_back, ticket, after, starts[digit], keys_out, sorted_keys, values_out, sorted_values, n, 8 * digit,
        )  # fmt: skip
        sorted_keys, sorted_values = keys_out, values_out
    assert (sorted_keys == keys[order]).all()
    assert (sorted_values == order).all()
