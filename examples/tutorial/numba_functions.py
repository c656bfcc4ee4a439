"""Functions of Numba and kernels of cudakit on the same arrays and the same stream.

On a GPU a kernel of numba.cuda is launched on cudakit's stream. Without a GPU a function that Numba compiles for the
host works on the emulator's arrays. Look at the order of the three calls: nothing waits in between.

Prints::

    Numba, cudakit, Numba: (2 x + 1)² - x of 1000 numbers
"""

import sys
from typing import Any

import numpy as np

import cudakit as ck

try:
    if ck.has_gpu():
        from numba import cuda
    else:
        import numba
except ImportError:
    print("Numba is not installed: pip install numba, or numba-cuda[cu13]")
    sys.exit()

square = ck.Kernel("""
template <typename T>
__global__ void square(T* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= x[i];
}
""")

stream = ck.stream()
if ck.has_gpu():

    @cuda.jit
    def combine(a: float, x: Any, b: float, y: Any, c: float, out: Any) -> None:
        """Write a x + b y + c, one thread for each element."""
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a * x[i] + b * y[i] + c

    numba_stream = cuda.external_stream(int(stream.handle))  # the same stream as an object of Numba
    numba_call = combine[-(-1000 // 128), 128, numba_stream]
else:

    @numba.njit
    def numba_call(a: float, x: Any, b: float, y: Any, c: float, out: Any) -> None:
        """Write a x + b y + c, element by element."""
        for i in range(out.size):
            out[i] = a * x[i] + b * y[i] + c


host_x = np.arange(1000, dtype=np.float64)
with ck.using(stream) as xp:
    x = ck.to_device(host_x, stream)
    y, z = xp.zeros_like(x), xp.zeros_like(x)
    numba_call(2.0, x, 0.0, x, 1.0, y)
    square(stream, ck.cover(y.size), y, y.size)
    numba_call(1.0, y, -1.0, x, 0.0, z)
    np.testing.assert_array_equal(ck.to_host(z, stream), (2 * host_x + 1) ** 2 - host_x)
print(f"Numba, cudakit, Numba: (2 x + 1)² - x of {host_x.size} numbers")
