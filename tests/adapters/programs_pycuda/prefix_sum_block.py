import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void hillis_steele(double *x)
{
    __shared__ double now[256];
    int t = threadIdx.x;
    now[t] = x[t];
    __syncthreads();
    for (int reach = 1; reach < 256; reach <<= 1) {
        double sum = t >= reach ? now[t] + now[t - reach] : now[t];
        __syncthreads();
        now[t] = sum;
        __syncthreads();
    }
    x[t] = now[t];
}

__global__ void blelloch(int *x, int n)
{
    extern __shared__ int tree[];
    int t = threadIdx.x;
    tree[2 * t] = x[2 * t];
    tree[2 * t + 1] = x[2 * t + 1];
    int span = 1;
    for (int pairs = n / 2; pairs > 0; pairs /= 2, span *= 2) {
        __syncthreads();
        if (t < pairs)
            tree[span * (2 * t + 2) - 1] += tree[span * (2 * t + 1) - 1];
    }
    if (t == 0)
        tree[n - 1] = 0;
    for (int pairs = 1; pairs < n; pairs *= 2) {
        span /= 2;
        __syncthreads();
        if (t < pairs) {
            int left = span * (2 * t + 1) - 1, right = span * (2 * t + 2) - 1, sum = tree[left];
            tree[left] = tree[right];
            tree[right] += sum;
        }
    }
    __syncthreads();
    x[2 * t] = tree[2 * t];
    x[2 * t + 1] = tree[2 * t + 1];
}
""")
x = np.random.randn(256)
sums = np.cumsum(x)
mod.get_function("hillis_steele")(drv.InOut(x), block=(256, 1, 1), grid=(1, 1))
assert np.allclose(x, sums)

y = np.random.randint(0, 50, 128).astype(np.int32)
before = np.cumsum(y) - y
mod.get_function("blelloch")(drv.InOut(y), np.int32(128), block=(64, 1, 1), shared=128 * 4)
assert np.array_equal(y, before)
