"""Double an array in four ways: explicit copies, InOut, In and Out, and an expression of an array on the device.

Prints::

    explicit copies: [2. 4. 6. 8.] … 2097152
    InOut:           [2. 4. 6. 8.] … 2097152
    In and Out:      [2. 4. 6. 8.] … 2097152
    an expression:   [2. 4. 6. 8.] … 2097152
"""

import numpy as np

import cudakit as ck

multiply = ck.Kernel("""
template <typename T>
__global__ void multiply(const T* x, T* y, T factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
""")
multiply_in_place = ck.Kernel("""
template <typename T>
__global__ void multiply_in_place(T* x, T factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}
""")
stream = ck.stream()
n, factor = 1 << 20, 2.0
threads = ck.config(n // 256 + 1, 256)  # a block too many: the kernels leave its threads without work
given = np.arange(1, n + 1, dtype=np.float32)
expected = given + given


def check(words: str, found: np.ndarray) -> None:
    """Every element is doubled, and here are some."""
    np.testing.assert_array_equal(found, expected)
    print(f"{words:16} {found[:4]} … {found[-1]:.0f}")


# 1. Copy in, launch, copy back: each step is yours. Another array goes into the same memory.
x = ck.to_device(np.zeros_like(given), stream)
ck.to_device(given, stream, out=x)
multiply_in_place(stream, threads, x, factor, n)
check("explicit copies:", ck.to_host(x, stream))

# 2. InOut: a NumPy array, copied before and after the kernel.
both_ways = given.copy()
multiply_in_place(stream, threads, ck.InOut(both_ways), factor, n)
stream.sync()  # the copy back is queued too
check("InOut:", both_ways)

# 3. In and Out: each copied in its own direction only.
result = np.empty_like(given)
multiply(stream, threads, ck.In(given), ck.Out(result), factor, n)
stream.sync()
check("In and Out:", result)

# 4. An array on the device takes part in expressions, without a kernel of ours.
with ck.using(stream):
    doubled = factor * ck.to_device(given, stream)
    check("an expression:", ck.to_host(doubled, stream))
