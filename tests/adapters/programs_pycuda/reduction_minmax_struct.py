import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.reduction import ReductionKernel
from pycuda.tools import dtype_to_ctype, get_or_register_dtype

extent = np.dtype([("low", np.float32), ("high", np.float32), ("count", np.int32)])
get_or_register_dtype("extent", extent)
assert dtype_to_ctype(extent) == "extent"

code = """
struct extent
{
    float low, high;
    int count;

    __device__ extent() {}
    __device__ extent(float l, float h, int c) : low(l), high(h), count(c) {}
    __device__ extent(const extent &e) : low(e.low), high(e.high), count(e.count) {}
    __device__ extent(const volatile extent &e) : low(e.low), high(e.high), count(e.count) {}
    __device__ extent &operator=(const extent &e) { low = e.low; high = e.high; count = e.count; return *this; }
    __device__ volatile extent &operator=(const extent &e) volatile
    {
        low = e.low; high = e.high; count = e.count;
        return *this;
    }
};
__device__ extent both(extent a, extent b)
{
    return extent(fminf(a.low, b.low), fmaxf(a.high, b.high), a.count + b.count);
}
"""
extent_of = ReductionKernel(
    extent,
    neutral="extent(1e30f, -1e30f, 0)",
    reduce_expr="both(a, b)",
    map_expr="extent(values[i], values[i], 1)",
    arguments="float *values",
    preamble=code,
)

values = np.random.randn(1500).astype(np.float32)
result = extent_of(gpuarray.to_gpu(values)).get()
assert result["low"] == values.min()
assert result["high"] == values.max()
assert result["count"] == values.size
