"""Double an array in four ways: explicit copies, InOut, In and Out, and an array that stays on the device.

Prints::

    explicit copies: [ 2.  4.  6.  8. 10.]
    InOut:           [ 2.  4.  6.  8. 10.]
    In and Out:      [ 2.  4.  6.  8. 10.]
    on the device:   [ 2.  4.  6.  8. 10.]
"""

import numpy as np

import cudakit as ck

double_it = ck.Kernel("""
template <typename T>
__global__ void double_it(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
""")
double_in_place = ck.Kernel("""
template <typename T>
__global__ void double_in_place(T* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
""")
stream = ck.stream()
threads = ck.cover(5)
given = np.arange(1, 6, dtype=np.float32)

# 1. Copy in, launch, copy back: each step is yours.
x = ck.to_device(given, stream)
double_in_place(stream, threads, x, x.size)
copied = ck.to_host(x, stream)
print(f"explicit copies: {copied}")

# 2. InOut: a NumPy array, copied before and after the kernel.
both_ways = given.copy()
double_in_place(stream, threads, ck.InOut(both_ways), both_ways.size)
stream.sync()  # the copy back is queued too
print(f"InOut:           {both_ways}")

# 3. In and Out: each copied in its own direction only.
result = np.empty_like(given)
double_it(stream, threads, ck.In(given), ck.Out(result), result.size)
stream.sync()
print(f"In and Out:      {result}")

# 4. On the device from the start: nothing is copied until it is read.
with ck.using(stream) as xp:
    resident = xp.arange(1, 6, dtype=xp.float32)
    double_in_place(stream, threads, resident, resident.size)
    print(f"on the device:   {resident}")

for found in (copied, both_ways, result, ck.to_host(resident, stream)):
    np.testing.assert_array_equal(found, 2 * given)
