"""Blocks that work together: a cluster, and a cooperative grid.

The blocks of a cluster read each other's shared memory. In a cooperative grid all blocks wait for each other. Look at
the two `sync()` of the cluster: no block reads before all have written, and none exits while another one reads.
Clusters need compute capability 9.0, which the emulator has.

Prints::

    cluster of 4 blocks, thread 0 reads the next block's last element: [131 231 331  31]
    grid of 8 blocks, a barrier between two phases: every thread has 16640
"""

import numpy as np

import cudakit as ck

ring = ck.Kernel("""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void ring(int* seen) {
    __shared__ int own[32];
    cg::cluster_group cluster = cg::this_cluster();
    own[threadIdx.x] = 100 * cluster.block_rank() + threadIdx.x;
    cluster.sync();  // all blocks have written
    int* next = cluster.map_shared_rank(own, (cluster.block_rank() + 1) % cluster.num_blocks());
    seen[blockIdx.x * blockDim.x + threadIdx.x] = next[31 - threadIdx.x];
    cluster.sync();  // all blocks have read: a block may exit
}
""")

two_phases = ck.Kernel("""
#include <cooperative_groups.h>
__global__ void two_phases(float* parts, float* totals) {
    atomicAdd(&parts[blockIdx.x], threadIdx.x + 1);
    cooperative_groups::this_grid().sync();  // all blocks have added their part
    float sum = 0;
    for (int i = 0; i < gridDim.x; ++i) sum += parts[i];
    totals[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
""")

stream = ck.stream()
with ck.using(stream) as xp:
    if ck.device_limits(stream).compute_capability >= (9, 0):
        seen = xp.full((4, 32), -1, dtype=xp.int32)
        ring(stream, ck.config(grid=4, block=32, cluster=4), seen)
        host_seen = ck.to_host(seen, stream)
        np.testing.assert_array_equal(host_seen, 100 * np.array([[1], [2], [3], [0]]) + np.arange(32)[::-1])
        print(f"cluster of 4 blocks, thread 0 reads the next block's last element: {host_seen[:, 0]}")
    parts, totals = xp.zeros(8, dtype=xp.float32), xp.zeros(8 * 64, dtype=xp.float32)
    two_phases(stream, ck.config(grid=8, block=64, cooperative=True), parts, totals)
    np.testing.assert_array_equal(ck.to_host(totals, stream), np.full(8 * 64, 8 * sum(range(65))))
    print(f"grid of 8 blocks, a barrier between two phases: every thread has {float(totals[0]):.0f}")
