"""Blocks that work together: a cluster shares its shared memory, a cooperative grid waits for all of its blocks.

Clusters need compute capability 9.0, as a Hopper GPU or the emulator's sm_90 has it.

Prints::

    cluster of 4 blocks: each reads its neighbour's shared memory: [1 2 3 0]
    grid of 8 blocks, in two phases with a barrier between: 36.0
"""

import cudakit as ck

ring = ck.Kernel("""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void ring(int* seen) {
    __shared__ int own;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) own = cluster.block_rank();
    cluster.sync();  // every block's variable is written
    if (threadIdx.x == 0)
        seen[blockIdx.x] = *cluster.map_shared_rank(&own, (cluster.block_rank() + 1) % cluster.num_blocks());
    cluster.sync();  // no block is gone while another reads its memory
}
""")

two_phases = ck.Kernel("""
#include <cooperative_groups.h>
__global__ void two_phases(float* parts, float* total) {
    if (threadIdx.x == 0) parts[blockIdx.x] = blockIdx.x + 1;
    cooperative_groups::this_grid().sync();  // all blocks have come this far
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < gridDim.x; ++i) sum += parts[i];
        *total = sum;
    }
}
""")

stream = ck.stream()
with ck.using(stream) as xp:
    if ck.device_limits(stream).compute_capability >= (9, 0):
        seen = xp.zeros(4, dtype=xp.int32)
        ring(stream, ck.config(grid=4, block=32, cluster=4), seen)
        assert seen.tolist() == [1, 2, 3, 0]
        print(f"cluster of 4 blocks: each reads its neighbour's shared memory: {seen}")
    parts, total = xp.zeros(8, dtype=xp.float32), xp.zeros(1, dtype=xp.float32)
    two_phases(stream, ck.config(grid=8, block=64, cooperative=True), parts, total)
    assert float(total[0]) == sum(range(1, 9))
    print(f"grid of 8 blocks, in two phases with a barrier between: {float(total[0])}")
