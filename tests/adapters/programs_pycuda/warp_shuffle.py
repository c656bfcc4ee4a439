import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule(
    """
__inline__ __device__ float warp_sum(float v)
{
    for (int offset = 16; offset > 0; offset /= 2)
        v += __shfl_down_sync(0xffffffff, v, offset);
    return v;
}
__global__ void sum(float *in, float *total, int *positive, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? in[i] : 0;
    unsigned vote = __ballot_sync(0xffffffff, v > 0);
    float s = warp_sum(v);
    if (threadIdx.x % warpSize == 0) {
        atomicAdd(total, s);
        atomicAdd(positive, __popc(vote));
    }
}
""",
    options=["-lineinfo"],
)
x = np.random.randint(-5, 6, 500).astype(np.float32)
total = np.zeros(1, np.float32)
positive = np.zeros(1, np.int32)
mod.get_function("sum")(
    cuda.In(x), cuda.InOut(total), cuda.InOut(positive), np.int32(x.size), block=(128, 1, 1), grid=(4, 1)
)
assert total[0] == x.sum()
assert positive[0] == (x > 0).sum()
