"""y = a x + y: a number beside arrays.

The Python float is converted to the type of the parameter, here float or half, or refused if the type cannot hold it.
Look at the two dtypes: the same call serves both. Without a kernel, `ck.elementwise` does the same
(linear_combination.py).

Prints::

    y[:4] = [1. 3. 5. 7.]
    as float16: [1. 3. 5. 7.]
"""

import cudakit as ck

saxpy = ck.Kernel("""
template <typename T>
__global__ void saxpy(T a, const T* __restrict__ x, T* __restrict__ y, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        y[i] = a * x[i] + y[i];
}
""")

stream = ck.stream()
with ck.using(stream) as xp:
    # One block is enough: each thread goes on to further elements.
    for dtype, label, threads in (
        (xp.float32, "y[:4] =", ck.cover(1000)),
        (xp.float16, "as float16:", ck.config(1, 128)),
    ):
        x = xp.arange(1000, dtype=dtype)
        y = xp.ones(1000, dtype=dtype)
        saxpy(stream, threads, 2.0, x, y, x.size)
        expected = 2 * x + 1  # exact up to 2048 in float16
        assert bool((y == expected).all())
        print(label, y[:4])
