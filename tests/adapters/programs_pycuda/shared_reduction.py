import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

BLOCK = 128

mod = SourceModule("""
#define BLOCK 128
__global__ void block_sums(const int *in, int *out, int n)
{
    __shared__ int sdata[BLOCK];
    int tid = threadIdx.x;
    int i = blockIdx.x * BLOCK * 2 + tid;

    sdata[tid] = (i < n ? in[i] : 0) + (i + BLOCK < n ? in[i + BLOCK] : 0);
    __syncthreads();

    for (int s = BLOCK / 2; s > 0; s >>= 1) {
        if (tid < s)
            sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = sdata[0];
}
""")
block_sums = mod.get_function("block_sums")

n = 3000
data = np.random.randint(0, 100, n).astype(np.int32)
blocks = (n + 2 * BLOCK - 1) // (2 * BLOCK)
partial = np.empty(blocks, np.int32)
block_sums(cuda.In(data), cuda.Out(partial), np.int32(n), block=(BLOCK, 1, 1), grid=(blocks, 1))
assert partial.sum() == data.sum()
assert partial[0] == data[: 2 * BLOCK].sum()
assert block_sums.shared_size_bytes >= 4 * BLOCK
