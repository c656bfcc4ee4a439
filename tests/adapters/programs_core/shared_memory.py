"""Dynamic shared memory, and blocks in clusters, which a grid of cuda.core counts."""

import cupy as cp
import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

code = r"""
extern "C" __global__ void reverse(float* x) {
    extern __shared__ float s[];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void ranks(unsigned int* x) {
    unsigned int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) x[blockIdx.x] = 10 * gridDim.x + rank;
}
"""
device = Device()
device.set_current()
stream = device.create_stream()
module = Program(code, "c++", options=ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin")
x = cp.arange(64, dtype=cp.float32)
device.sync()
launch(stream, LaunchConfig(grid=1, block=64, shmem_size=256), module.get_kernel("reverse"), x.data.ptr)
stream.sync()
assert (cp.asnumpy(x) == np.arange(64)[::-1]).all()
if device.compute_capability >= (9, 0):
    ranks = cp.zeros(4, dtype=cp.uint32)
    device.sync()
    launch(stream, LaunchConfig(grid=2, cluster=2, block=32), module.get_kernel("ranks"), ranks.data.ptr)
    stream.sync()
    assert cp.asnumpy(ranks).tolist() == [40, 41, 40, 41]
print("done!")
