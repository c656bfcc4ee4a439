"""A first kernel: square each element of an array, one thread an element.

Prints::

    [0. 1. 2. 3. 4.]
    [ 0.  1.  4.  9. 16.]
"""

import cudakit as ck

square = ck.Kernel("""
template <typename T>
__global__ void square(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // this thread's element
    if (i < n) y[i] = x[i] * x[i];                  // the last block may have threads to spare
}
""")

stream = ck.stream()
with ck.using(stream) as xp:  # CuPy on this stream, NumPy where there is no GPU
    x = xp.arange(5, dtype=xp.float32)
    y = xp.empty_like(x)
    square(stream, ck.cover(x.size), x, y, x.size)
    print(x)
    print(y)
