"""Cooperative groups: grids, tiles of warps, coalesced and labelled groups, and collective copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.places import capability
from support.programs import run

import cudakit as ck

RANDOM = np.random.default_rng(9)

GRID = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void mix(int* x, int* out, int rounds) {
    auto grid = cg::this_grid();
    int i = grid.thread_rank(), n = grid.num_threads(), v = x[i];
    for (int r = 0; r < rounds; r++) {
        x[i] = v;
        grid.sync();
        v += x[(i * 7 + r) % n];
        grid.sync();
    }
    out[i] = v;
}
"""


def mixed(x: np.ndarray, rounds: int) -> np.ndarray:
    at = np.arange(x.size)
    for r in range(rounds):
        x = x + x[(at * 7 + r) % x.size]
    return x


# The second is more than the emulator otherwise runs at once, and as much as the device holds.
@pytest.mark.slow
@pytest.mark.parametrize(("blocks", "threads"), [(96, 64), (132, 1024)])
def test_grid_sync(stream: Any, blocks: int, threads: int) -> None:
    x = RANDOM.integers(0, 100, blocks * threads).astype(np.int32)
    out = np.zeros_like(x)
    run(stream, ck.Kernel(GRID), ck.config(blocks, threads, cooperative=True), x.copy(), out, 3)
    assert (out == mixed(x, 3)).all()


def test_a_grid_that_cannot_synchronise_is_refused() -> None:
    x, out = np.zeros((2, 640_000), np.int32)
    kernel, stream = ck.Kernel(GRID), ck.emulator.stream()
    with pytest.raises(ck.EmulationError, match=r"block 0, thread 0 trapped; .* cooperative=True"):
        kernel(stream, ck.config(96, 64), x, out, 1)
    with pytest.raises(ck.LaunchError, match="cooperative grid is 10000 blocks"):
        kernel(stream, ck.config(10_000, 64, cooperative=True), x, out, 1)


TILES = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
template <int W> __device__ void tiles(const int* x, int* out) {
    auto tile = cg::tiled_partition<W>(cg::this_thread_block());
    int t = threadIdx.x, n = blockDim.x;
    out[t] = cg::reduce(tile, x[t], cg::plus<int>());
    out[n + t] = cg::reduce(tile, x[t] * 0.5f, cg::less<float>()) * 2;
    out[2 * n + t] = cg::inclusive_scan(tile, x[t], cg::plus<int>());
    out[3 * n + t] = cg::exclusive_scan(tile, x[t], cg::bit_xor<int>());
    out[4 * n + t] = tile.shfl(x[t], W - 1) * 100 + tile.meta_group_rank();
    out[5 * n + t] = tile.shfl_xor(x[t], W / 2) + 1000 * tile.any(x[t] > 40) + 5000 * tile.all(x[t] > 0);
    tile.sync();
}
__global__ void kernel(const int* x, int* out, int* wide) {
    int t = threadIdx.x, n = blockDim.x;
    tiles<32>(x, out); tiles<16>(x, out + 6 * n); tiles<8>(x, out + 12 * n);
    tiles<4>(x, out + 18 * n); tiles<2>(x, out + 24 * n); tiles<1>(x, out + 30 * n);
    auto block = cg::this_thread_block();
    auto big = cg::tiled_partition<64>(block);
    wide[t] = cg::reduce(big, x[t], cg::plus<int>());
    big.sync();
    auto dynamic = cg::tiled_partition(block, 8);
    wide[n + t] = dynamic.thread_rank();
    dynamic.sync();
}
"""


@pytest.mark.slow
def test_tiles(stream: Any) -> None:
    n = 128
    x = RANDOM.integers(1, 50, n).astype(np.int32)
    out, wide = np.zeros((6, 6, n), np.int32), np.zeros((2, n), np.int32)
    run(stream, ck.Kernel(TILES), ck.config(1, n), x, out, wide)
    for width, got in zip((32, 16, 8, 4, 2, 1), out.reshape(6, 6, n), strict=True):
        rows, got = x.reshape(-1, width), got.reshape(6, -1, width)
        assert (got[0] == rows.sum(1, keepdims=True)).all()
        assert (got[1] == rows.min(1, keepdims=True)).all()
        assert (got[2] == rows.cumsum(1)).all()
        assert (got[3] == np.bitwise_xor.accumulate(rows, 1) ^ rows).all()
        assert (got[4] == rows[:, -1:] * 100 + np.arange(n // width)[:, None]).all()
        partners = rows[:, np.arange(width) ^ width // 2]
        assert (got[5] == partners + 1000 * (rows > 40).any(1, keepdims=True) + 5000).all()
    assert (wide[0].reshape(2, 64) == x.reshape(2, 64).sum(1, keepdims=True)).all()
    assert (wide[1] == np.arange(n) % 8).all()


GROUPS = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
__global__ void kernel(const int* x, int* odd, int* out) {
    auto block = cg::this_thread_block();
    int t = threadIdx.x, n = blockDim.x;
    if (x[t] & 1) {
        auto group = cg::coalesced_threads();
        odd[t] = group.size() * 100 + group.thread_rank();
        odd[n + t] = group.shfl(t, 0);
        odd[2 * n + t] = cg::reduce(group, x[t], cg::greater<int>());
        auto third = cg::labeled_partition(group, x[t] % 3);
        odd[3 * n + t] = third.size() * 100 + third.thread_rank();
        odd[4 * n + t] = cg::exclusive_scan(third, x[t], cg::plus<int>());
    }
    auto warp = cg::tiled_partition<32>(block);
    out[t] = cg::reduce(cg::binary_partition(warp, x[t] > 20), x[t], cg::plus<int>());
    out[n + t] = cg::reduce(cg::labeled_partition(warp, x[t] % 5), 1, cg::plus<int>());
    out[2 * n + t] = cg::invoke_one_broadcast(warp, [&] { return 7 * (int)block.thread_rank(); });
    __shared__ int once, staged[128];
    if (t == 0) once = 0;
    block.sync();
    cg::invoke_one(block, [&] { atomicAdd(&once, 5); });
    block.sync();
    out[3 * n + t] = once;
    cg::memcpy_async(block, staged, x, sizeof(int) * n);
    cg::wait(block);
    out[4 * n + t] = staged[n - 1 - t];
    out[5 * n + t] = t;
    auto token = block.barrier_arrive();
    block.barrier_wait(cuda::std::move(token));
    out[6 * n + t] = out[5 * n + n - 1 - t];
}
"""


@pytest.mark.slow
def test_groups_of_those_that_came_together(stream: Any) -> None:
    n = 128
    x = RANDOM.integers(1, 50, n).astype(np.int32)
    odd, out = np.zeros((5, n), np.int32), np.zeros((7, n), np.int32)
    run(stream, ck.Kernel(GROUPS), ck.config(1, n), x, odd, out)
    for t in range(n):
        warp = range(t - t % 32, t - t % 32 + 32)
        group = [i for i in warp if x[i] % 2]
        third = [i for i in group if x[i] % 3 == x[t] % 3]
        expected = [0] * 5
        if x[t] % 2:
            expected = [
                100 * len(group) + group.index(t), group[0], max(x[i] for i in group),
                100 * len(third) + third.index(t), sum(x[i] for i in third if i < t),
            ]  # fmt: skip
        assert odd[:, t].tolist() == expected, t
        assert out[0, t] == sum(x[i] for i in warp if (x[i] > 20) == (x[t] > 20))
        assert out[1, t] == sum(x[i] % 5 == x[t] % 5 for i in warp)
        assert out[2, t] in [7 * i for i in warp]
        assert out[2, t] == out[2, warp[0]]
    assert (out[3] == 5).all()
    assert (out[4] == x[::-1]).all()
    assert (out[6] == np.arange(n)[::-1]).all()


CLUSTER = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void kernel(const int* x, int* out) {
    __shared__ int mine[64], sum;
    auto cluster = cg::this_cluster();
    int t = threadIdx.x, rank = cluster.block_rank(), next = (rank + 1) % cluster.num_blocks();
    mine[t] = x[blockIdx.x * 64 + t];
    if (t == 0) sum = 0;
    cluster.sync();
    int seen = *cluster.map_shared_rank(&mine[63 - t], next);
    atomicAdd(cluster.map_shared_rank(&sum, 0), seen);
    out[blockIdx.x * 64 + t] = seen;
    cluster.barrier_arrive();
    cluster.barrier_wait();
    if (t == 0 && rank == 0) out[gridDim.x * 64 + blockIdx.x / cluster.num_blocks()] = sum;
}
"""


@pytest.mark.slow
def test_clusters_share_memory(stream: Any) -> None:
    if capability(stream) < (9, 0):
        pytest.skip("clusters come with compute capability 9.0")
    blocks, size = 12, 4
    x = RANDOM.integers(0, 100, (blocks // size, size, 64)).astype(np.int32)
    out = np.zeros(blocks * 64 + blocks // size, np.int32)
    run(stream, ck.Kernel(CLUSTER), ck.config(blocks, 64, cluster=size), x.reshape(-1), out)
    assert (out[: x.size].reshape(x.shape) == np.roll(x, -1, axis=1)[:, :, ::-1]).all()
    assert (out[x.size :] == x.sum((1, 2))).all()
