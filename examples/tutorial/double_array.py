"""Double an array in four ways: explicit copies, InOut, In and Out, and an expression of arrays.

Explicit copies keep the array on the device between kernels. `ck.In`, `ck.Out` and `ck.InOut` copy around one call.
Look at which copies each way makes; an expression of an array on the device needs no kernel of your own.

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
config = ck.config(n // 256 + 1, 256)  # one block more than needed: its threads find no element
host_x = np.arange(1, n + 1, dtype=np.float32)
expected = host_x + host_x


def check(label: str, result: np.ndarray) -> None:
    """Check that every element is doubled, and print some of them."""
    np.testing.assert_array_equal(result, expected)
    print(f"{label:16} {result[:4]} … {result[-1]:.0f}")


# 1. Copy in, launch, copy back. With out=, an array goes into memory that is there already.
x = ck.to_device(np.zeros_like(host_x), stream)
ck.to_device(host_x, stream, out=x)
multiply_in_place(stream, config, x, factor, n)
check("explicit copies:", ck.to_host(x, stream))

# 2. InOut: a NumPy array, copied to the device before the kernel and back after it.
both_ways = host_x.copy()
multiply_in_place(stream, config, ck.InOut(both_ways), factor, n)
stream.sync()  # the copy back is queued too
check("InOut:", both_ways)

# 3. In and Out: one array is copied to the device, the other one back.
result = np.empty_like(host_x)
multiply(stream, config, ck.In(host_x), ck.Out(result), factor, n)
stream.sync()
check("In and Out:", result)

# 4. An expression of an array on the device.
with ck.using(stream):
    doubled = factor * ck.to_device(host_x, stream)
    check("an expression:", ck.to_host(doubled, stream))
