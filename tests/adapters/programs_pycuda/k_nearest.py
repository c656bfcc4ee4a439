import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule
from pycuda.reduction import ReductionKernel

mod = SourceModule(
    """
__global__ void distances(const float *points, const float *query, float *out, int n, int dims)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int d = 0; d < dims; ++d) {
        float diff = points[i * dims + d] - query[d];
        sum += diff * diff;
    }
    out[i] = sqrtf(sum);
}
""",
    options=["--use_fast_math", "-O3"],
)
distances = mod.get_function("distances")

points = np.random.rand(300, 3).astype(np.float32)
query = np.array([0.5, 0.5, 0.5], np.float32)
out_gpu = gpuarray.empty(300, np.float32)
distances(cuda.In(points), cuda.In(query), out_gpu, np.int32(300), np.int32(3), block=(64, 1, 1), grid=(5, 1))
expected = np.linalg.norm(points - query, axis=1)
assert np.allclose(out_gpu.get(), expected, atol=1e-5)
assert np.allclose(gpuarray.min(out_gpu).get(), expected.min(), atol=1e-5)

closer = ReductionKernel(
    np.int32, neutral="0", reduce_expr="a+b", map_expr="d[i] < limit", arguments="const float *d, const float limit"
)
assert abs(int(closer(out_gpu, np.float32(0.4)).get()) - (expected < 0.4).sum()) <= 1
