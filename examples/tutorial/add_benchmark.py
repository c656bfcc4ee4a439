"""How fast does an addition run? Timed by events on the stream, after a warm-up, as a median.

Every element is read twice and written once. On a GPU the rate should come near that of a copy: a kernel that does so
little is as fast as the memory. (The emulator counts steps, not time: a rate means nothing there.)

Prints::

    16384 elements: the sum is right, also by one block
    no GPU here: nothing to time
"""

import numpy as np

import cudakit as ck
from cudakit.demo import median_ms

add = ck.Kernel("""
template <typename T>
__global__ void add(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ sum, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        sum[i] = a[i] + b[i];
}
""")

stream = ck.stream()
size = 1 << (26 if ck.has_gpu() else 14)
with ck.using(stream) as xp:
    a = xp.arange(size, dtype=xp.float32)
    b = xp.ones(size, dtype=xp.float32)
    total = xp.empty_like(a)
    launch = add.plan(stream, ck.cover(size), a, b, total, size)  # checked and decided once
    launch()  # the first launch loads the code
    by_one_block = xp.zeros_like(a)
    add(stream, ck.config(1, 1024), a, b, by_one_block, size)  # which goes on until all is done
    for found in (total, by_one_block):
        np.testing.assert_array_equal(ck.to_host(found, stream), np.arange(size, dtype=np.float32) + 1)
    print(f"{size} elements: the sum is right, also by one block")
    if ck.has_gpu():
        median = median_ms(stream, launch, repeats=11)
        print(f"{median * 1e3:.1f} µs, {3 * a.nbytes / median / 1e6:.0f} GB/s")
    else:
        print("no GPU here: nothing to time")
