"""CUB's block and warp primitives, and the agents of its device-wide algorithms, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.programs import run

import cudakit as ck

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(7)
BLOCK, ITEMS = 128, 4
TILE = BLOCK * ITEMS

REDUCE_SCAN = """
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
constexpr int B = 128, I = 4, N = B * I;
template <cub::BlockReduceAlgorithm A> __device__ void reduce(const int* x, int* out) {
    using Block = cub::BlockReduce<int, B, A>;
    __shared__ typename Block::TempStorage storage;
    int items[I], t = threadIdx.x;
    for (int i = 0; i < I; i++) items[i] = x[t * I + i];
    int sum = Block(storage).Sum(items);
    __syncthreads();
    if (t == 0) out[0] = sum;
    if constexpr (A != cub::BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC) {  // which only adds whole blocks
        int most = Block(storage).Reduce(items[0], cuda::maximum<>{});
        __syncthreads();
        int part = Block(storage).Sum(items[0], 77);
        __syncthreads();
        if (t == 0) out[1] = most, out[2] = part;
    }
}
template <cub::BlockScanAlgorithm A> __device__ void scan(const int* x, int* sums, int* least, int* total) {
    using Block = cub::BlockScan<int, B, A>;
    __shared__ typename Block::TempStorage storage;
    int a[I], b[I], all, t = threadIdx.x;
    for (int i = 0; i < I; i++) a[i] = x[t * I + i];
    Block(storage).ExclusiveSum(a, b, all);
    __syncthreads();
    for (int i = 0; i < I; i++) sums[t * I + i] = b[i];
    Block(storage).InclusiveScan(a, b, cuda::minimum<>{});
    __syncthreads();
    for (int i = 0; i < I; i++) least[t * I + i] = b[i];
    total[0] = all;
}
__global__ void kernel(const int* x, int* reduced, int* sums, int* least, int* totals) {
    reduce<cub::BLOCK_REDUCE_RAKING>(x, reduced);
    reduce<cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY>(x, reduced + 3);
    reduce<cub::BLOCK_REDUCE_WARP_REDUCTIONS>(x, reduced + 6);
    reduce<cub::BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC>(x, reduced + 9);
    scan<cub::BLOCK_SCAN_RAKING>(x, sums, least, totals);
    scan<cub::BLOCK_SCAN_RAKING_MEMOIZE>(x, sums + N, least + N, totals + 1);
    scan<cub::BLOCK_SCAN_WARP_SCANS>(x, sums + 2 * N, least + 2 * N, totals + 2);
}
"""


def test_block_reduce_and_scan(stream: Any) -> None:
    x = RANDOM.integers(-1000, 1000, TILE).astype(np.int32)
    reduced, totals = np.zeros((4, 3), np.int32), np.zeros(3, np.int32)
    sums, least = np.zeros((3, TILE), np.int32), np.zeros((3, TILE), np.int32)
    run(stream, ck.Kernel(REDUCE_SCAN), ck.config(1, BLOCK), x, reduced, sums, least, totals)
    assert reduced[:3].tolist() == [[x.sum(), x[::4].max(), x[: 77 * 4 : 4].sum()]] * 3
    assert reduced[3, 0] == x.sum()
    assert (totals == x.sum()).all()
    assert (sums == np.cumsum(x) - x).all()
    assert (least == np.minimum.accumulate(x)).all()


SORTS = """
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_store.cuh>
constexpr int B = 128, I = 4;
using word = unsigned long long;
struct Less { __device__ bool operator()(int a, int b) const { return a < b; } };
__global__ void kernel(const int* x, const float* y, const word* z, int* keys, int* order, float* down, word* part,
                       int* merged, int* merged_order) {
    int base = threadIdx.x * I, a[I], v[I];
    for (int i = 0; i < I; i++) a[i] = x[base + i], v[i] = base + i;
    {
        using Sort = cub::BlockRadixSort<int, B, I, int>;
        __shared__ typename Sort::TempStorage storage;
        Sort(storage).Sort(a, v);
        for (int i = 0; i < I; i++) keys[base + i] = a[i], order[base + i] = v[i];
    }
    {
        using Sort = cub::BlockRadixSort<float, B, I>;
        __shared__ typename Sort::TempStorage storage;
        float f[I];
        for (int i = 0; i < I; i++) f[i] = y[base + i];
        Sort(storage).SortDescendingBlockedToStriped(f);
        cub::StoreDirectStriped<B>(threadIdx.x, down, f);
    }
    {
        using Sort = cub::BlockRadixSort<word, B, I, cub::NullType, 6>;
        __shared__ typename Sort::TempStorage storage;
        word w[I];
        for (int i = 0; i < I; i++) w[i] = z[base + i];
        Sort(storage).Sort(w, 5, 23);
        for (int i = 0; i < I; i++) part[base + i] = w[i];
    }
    {
        using Sort = cub::BlockMergeSort<int, B, I, int>;
        __shared__ typename Sort::TempStorage storage;
        for (int i = 0; i < I; i++) a[i] = x[base + i], v[i] = base + i;
        Sort(storage).StableSort(a, v, Less{});
        for (int i = 0; i < I; i++) merged[base + i] = a[i], merged_order[base + i] = v[i];
    }
}
"""


def test_block_sorts(stream: Any) -> None:
    x = RANDOM.integers(-50, 50, TILE).astype(np.int32)
    y = RANDOM.standard_normal(TILE).astype(np.float32)
    y[:4] = [0.0, -0.0, np.inf, -np.inf]
    z = RANDOM.integers(0, 2**63, TILE).astype(np.uint64)
    keys, order, merged, merged_order = np.zeros((4, TILE), np.int32)
    down, part = np.zeros(TILE, np.float32), np.zeros(TILE, np.uint64)
    run(stream, ck.Kernel(SORTS), ck.config(1, BLOCK), x, y, z, keys, order, down, part, merged, merged_order)
    expected = np.argsort(x, kind="stable")
    assert (keys == x[expected]).all()
    assert (order == expected).all()
    assert (merged == x[expected]).all()
    assert (merged_order == expected).all()
    assert (down == np.sort(y)[::-1]).all()
    bits = z >> np.uint64(5) & np.uint64(2**18 - 1)
    assert (part == z[np.argsort(bits, kind="stable")]).all()


MOVES = """
#include <cub/block/block_load.cuh>
#include <cub/block/block_store.cuh>
#include <cub/block/block_exchange.cuh>
#include <cub/block/block_shuffle.cuh>
constexpr int B = 128, I = 4, N = B * I;
template <cub::BlockLoadAlgorithm L, cub::BlockStoreAlgorithm S> __device__ void copy(const int* x, int* out, int n) {
    using Load = cub::BlockLoad<int, B, I, L>;
    using Store = cub::BlockStore<int, B, I, S>;
    __shared__ typename Load::TempStorage load;
    __shared__ typename Store::TempStorage store;
    int a[I];
    Load(load).Load(x, a);
    for (int i = 0; i < I; i++) a[i] = a[i] * 3 + threadIdx.x;
    Store(store).Store(out, a);
    __syncthreads();
    Load(load).Load(x, a, n, -7);
    for (int i = 0; i < I; i++) a[i] = a[i] * 3 + threadIdx.x;
    Store(store).Store(out + N, a, n + 1);
    __syncthreads();
}
__global__ void kernel(const int* x, int n, int* copies, int* shuffled, int* exchanged) {
    copy<cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_DIRECT>(x, copies, n);
    copy<cub::BLOCK_LOAD_VECTORIZE, cub::BLOCK_STORE_VECTORIZE>(x, copies + 2 * N, n);
    copy<cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_TRANSPOSE>(x, copies + 4 * N, n);
    copy<cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE>(x, copies + 6 * N, n);
    copy<cub::BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED, cub::BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED>(x, copies + 8 * N, n);
    copy<cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED>(x, copies + 10 * N, n);
    int t = threadIdx.x, base = t * I, a[I], b[I], rank[I];
    for (int i = 0; i < I; i++) a[i] = x[base + i], rank[i] = (base + i) * 5 % N;
    {
        using Shuffle = cub::BlockShuffle<int, B>;
        __shared__ typename Shuffle::TempStorage storage;
        Shuffle(storage).Up(a, b);
        __syncthreads();
        for (int i = 0; i < I; i++) shuffled[base + i] = base + i ? b[i] : 0;
        int other = 0;
        Shuffle(storage).Offset(x[t], other, 5);
        __syncthreads();
        shuffled[N + t] = t < B - 5 ? other : 0;
        Shuffle(storage).Rotate(x[t], other, 9);
        shuffled[N + B + t] = other;
    }
    {
        using Exchange = cub::BlockExchange<int, B, I>;
        __shared__ typename Exchange::TempStorage storage;
        auto keep = [&](int* out) { __syncthreads(); for (int i = 0; i < I; i++) out[base + i] = b[i]; };
        Exchange(storage).BlockedToStriped(a, b); keep(exchanged);
        Exchange(storage).StripedToBlocked(a, b); keep(exchanged + N);
        Exchange(storage).BlockedToWarpStriped(a, b); keep(exchanged + 2 * N);
        Exchange(storage).ScatterToBlocked(a, b, rank); keep(exchanged + 3 * N);
    }
}
"""


def test_block_moves(stream: Any) -> None:
    x = RANDOM.integers(-50, 50, TILE).astype(np.int32)
    copies = np.full((6, 2, TILE), -1, np.int32)
    shuffled, exchanged = np.zeros(TILE + 2 * BLOCK, np.int32), np.zeros((4, TILE), np.int32)
    valid, at = 333, np.arange(TILE)
    run(stream, ck.Kernel(MOVES), ck.config(1, BLOCK), x, valid, copies, shuffled, exchanged)
    for case in range(6):
        thread = at // ITEMS if case < 5 else at % BLOCK
        assert (copies[case, 0] == x * 3 + thread).all()
        guarded = np.where(at < valid, x, -7) * 3 + thread
        assert (copies[case, 1] == np.where(at <= valid, guarded, -1)).all()
    assert (shuffled[1:TILE] == x[:-1]).all()
    assert (shuffled[TILE : TILE + BLOCK - 5] == x[5:BLOCK]).all()
    assert (shuffled[TILE + BLOCK :] == np.roll(x[:BLOCK], -9)).all()
    assert (exchanged[0] == x.reshape(ITEMS, BLOCK).T.reshape(-1)).all()
    assert (exchanged[1] == x.reshape(BLOCK, ITEMS).T.reshape(-1)).all()
    assert (exchanged[2] == x.reshape(4, ITEMS, 32).transpose(0, 2, 1).reshape(-1)).all()
    scattered = np.empty(TILE, np.int32)
    scattered[at * 5 % TILE] = x
    assert (exchanged[3] == scattered).all()


COUNTS = """
#include <cub/block/block_histogram.cuh>
#include <cub/block/block_discontinuity.cuh>
#include <cub/block/block_adjacent_difference.cuh>
#include <cub/block/block_run_length_decode.cuh>
constexpr int B = 128, I = 4, N = B * I;
using byte = unsigned char;
template <cub::BlockHistogramAlgorithm A> __device__ void histogram(const byte* y, unsigned* out) {
    using Histogram = cub::BlockHistogram<byte, B, I, 256, A>;
    __shared__ typename Histogram::TempStorage storage;
    __shared__ unsigned bins[256];
    byte a[I];
    for (int i = 0; i < I; i++) a[i] = y[threadIdx.x * I + i];
    Histogram(storage).Histogram(a, bins);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += B) out[i] = bins[i];
    __syncthreads();
}
__global__ void kernel(const byte* y, const int* runs, unsigned* bins, int* heads, int* tails, int* steps,
                       int* decoded) {
    histogram<cub::BLOCK_HISTO_SORT>(y, bins);
    histogram<cub::BLOCK_HISTO_ATOMIC>(y, bins + 256);
    int base = threadIdx.x * I, a[I], f[I], g[I];
    for (int i = 0; i < I; i++) a[i] = y[base + i] >> 6;
    {
        using Flags = cub::BlockDiscontinuity<int, B>;
        __shared__ typename Flags::TempStorage storage;
        Flags(storage).FlagHeadsAndTails(f, g, a, cuda::std::not_equal_to<>{});
        for (int i = 0; i < I; i++) heads[base + i] = f[i], tails[base + i] = g[i];
    }
    {
        using Difference = cub::BlockAdjacentDifference<int, B>;
        __shared__ typename Difference::TempStorage storage;
        Difference(storage).SubtractLeft(a, f, cuda::std::minus<>{});
        for (int i = 0; i < I; i++) steps[base + i] = f[i];
    }
    {
        using Decode = cub::BlockRunLengthDecode<int, B, 1, I>;
        __shared__ typename Decode::TempStorage storage;
        int value[1] = {(int)threadIdx.x * 10}, length[1] = {runs[threadIdx.x]};
        unsigned total;
        Decode decode(storage, value, length, total);
        for (unsigned at = 0; at < total; at += N) {
            unsigned place[I];
            decode.RunLengthDecode(a, place, at);
            for (int i = 0; i < I; i++) if (at + base + i < total) decoded[at + base + i] = a[i] + place[i];
        }
    }
}
"""


def test_block_counts(stream: Any) -> None:
    y = RANDOM.integers(0, 256, TILE).astype(np.uint8)
    runs = RANDOM.integers(1, 10, BLOCK).astype(np.int32)
    bins, decoded = np.zeros((2, 256), np.uint32), np.zeros(runs.sum(), np.int32)
    heads, tails, steps = np.zeros((3, TILE), np.int32)
    run(stream, ck.Kernel(COUNTS), ck.config(1, BLOCK), y, runs, bins, heads, tails, steps, decoded)
    assert (bins == np.bincount(y, minlength=256)).all()
    level = (y >> 6).astype(int)
    changes = np.diff(level) != 0
    assert (heads == [True, *changes]).all()
    assert (tails == [*changes, True]).all()
    assert (steps == np.diff(level, prepend=0)).all()
    expected = [10 * thread + place for thread, length in enumerate(runs) for place in range(length)]
    assert decoded.tolist() == expected


WARPS = """
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cub/warp/warp_exchange.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_load.cuh>
#include <cub/warp/warp_store.cuh>
#include <cub/thread/thread_reduce.cuh>
#include <cub/thread/thread_sort.cuh>
struct Less { template <class T> __device__ bool operator()(T a, T b) const { return a < b; } };
template <int W> __device__ void reduce(const float* x, const int* head, float* out) {
    using Warp = cub::WarpReduce<float, W>;
    __shared__ typename Warp::TempStorage storage[128 / W];
    int t = threadIdx.x, w = t / W;
    float sum = Warp(storage[w]).Sum(x[t]); __syncwarp();
    float most = Warp(storage[w]).Reduce(x[t], cuda::maximum<>{}); __syncwarp();
    float segment = Warp(storage[w]).HeadSegmentedSum(x[t], head[t]); __syncwarp();
    float part = Warp(storage[w]).Sum(x[t], W / 2 + 1); __syncwarp();
    if (t % W == 0) out[t] = sum, out[128 + t] = most, out[256 + t] = part;
    if (t % W == 0 || head[t]) out[384 + t] = segment;
}
template <class T, int W> __device__ void scan(const T* x, T* out) {
    using Warp = cub::WarpScan<T, W>;
    __shared__ typename Warp::TempStorage storage[128 / W];
    int t = threadIdx.x, w = t / W;
    Warp(storage[w]).InclusiveSum(x[t], out[t], out[128 + t]); __syncwarp();
    Warp(storage[w]).ExclusiveScan(x[t], out[256 + t], T(-5), cuda::maximum<>{}); __syncwarp();
    out[384 + t] = Warp(storage[w]).Broadcast(x[t], W - 1);
}
__global__ void kernel(const float* x, const int* h, const long long* z, const short* q, float* reduced,
                       long long* wide, short* narrow, int* moved, int* in_threads) {
    reduce<32>(x, h, reduced); reduce<16>(x, h, reduced + 512); reduce<8>(x, h, reduced + 1024);
    reduce<4>(x, h, reduced + 1536); reduce<1>(x, h, reduced + 2048);
    scan<long long, 32>(z, wide); scan<long long, 8>(z, wide + 512); scan<short, 32>(q, narrow);
    int t = threadIdx.x, w = t / 32, a[4], b[4];
    {
        using Load = cub::WarpLoad<int, 4, cub::WARP_LOAD_TRANSPOSE>;
        using Store = cub::WarpStore<int, 4, cub::WARP_STORE_VECTORIZE>;
        __shared__ typename Load::TempStorage load[4];
        __shared__ typename Store::TempStorage store[4];
        Load(load[w]).Load(h + w * 128, a);
        Store(store[w]).Store(moved + w * 128, a);
    }
    {
        using Exchange = cub::WarpExchange<int, 4>;
        __shared__ typename Exchange::TempStorage storage[4];
        Exchange(storage[w]).BlockedToStriped(a, b);
        for (int i = 0; i < 4; i++) moved[512 + 4 * t + i] = b[i];
    }
    {
        using Sort = cub::WarpMergeSort<int, 4, 32>;
        __shared__ typename Sort::TempStorage storage[4];
        Sort(storage[w]).Sort(a, Less{});
        for (int i = 0; i < 4; i++) moved[1024 + 4 * t + i] = a[i];
    }
    int c[8], n[8];
    for (int i = 0; i < 8; i++) c[i] = h[(t * 8 + i) % 512], n[i] = i;
    in_threads[t] = cub::ThreadReduce(c, cuda::std::plus<>{});
    cub::StableOddEvenSort(c, n, Less{});
    for (int i = 0; i < 8; i++) in_threads[128 + 8 * t + i] = c[i] * 10 + n[i];
}
"""


def test_warps_and_threads(stream: Any) -> None:
    x = RANDOM.integers(-50, 50, BLOCK).astype(np.float32)
    h = RANDOM.integers(-9, 9, TILE).astype(np.int32)
    h[:BLOCK] = RANDOM.integers(0, 2, BLOCK)
    z = RANDOM.integers(-(2**60), 2**60, BLOCK)
    q = RANDOM.integers(-30000, 30000, BLOCK).astype(np.int16)
    reduced, wide = np.zeros((5, 4, BLOCK), np.float32), np.zeros((2, 4, BLOCK), np.int64)
    narrow, moved = np.zeros((4, BLOCK), np.int16), np.zeros((3, TILE), np.int32)
    in_threads = np.zeros(9 * BLOCK, np.int32)
    run(stream, ck.Kernel(WARPS), ck.config(1, BLOCK), x, h, z, q, reduced, wide, narrow, moved, in_threads)
    for width, got in zip((32, 16, 8, 4, 1), reduced, strict=True):
        rows = x.reshape(-1, width)
        assert (got[0, ::width] == rows.sum(1)).all()
        assert (got[1, ::width] == rows.max(1)).all()
        assert (got[2, ::width] == rows[:, : width // 2 + 1].sum(1)).all()
        starts = np.flatnonzero((np.arange(BLOCK) % width == 0) | (h[:BLOCK] != 0))
        assert (got[3, starts] == np.add.reduceat(x, starts)).all()
    for width, values, got in ((32, z, wide[0]), (8, z, wide[1]), (32, q, narrow)):
        rows = values.reshape(-1, width)
        sums = np.cumsum(rows, 1, dtype=values.dtype)
        assert (got[0] == sums.reshape(-1)).all()
        assert (got[1].reshape(rows.shape) == sums[:, -1:]).all()
        before = np.concatenate([np.full((len(rows), 1), -5, values.dtype), rows[:, :-1]], 1)
        assert (got[2].reshape(rows.shape) == np.maximum.accumulate(before, 1)).all()
        assert (got[3].reshape(rows.shape) == rows[:, -1:]).all()
    assert (moved[0] == h).all()
    assert (moved[1] == h.reshape(4, 4, 32).transpose(0, 2, 1).reshape(-1)).all()
    assert (moved[2].reshape(4, 128) == np.sort(h.reshape(4, 128), 1)).all()
    own = np.resize(h, (BLOCK, 8))
    order = np.argsort(own, 1, kind="stable")
    assert (in_threads[:BLOCK] == own.sum(1)).all()
    assert (in_threads[BLOCK:].reshape(BLOCK, 8) == np.take_along_axis(own, order, 1) * 10 + order).all()
