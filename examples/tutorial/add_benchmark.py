"""The speed of an addition: its traffic to memory, counted, and its time on a GPU.

Each addition reads two elements and writes one: 12 bytes of memory for one operation. Memory is then the limit, and on
a GPU the rate should be near that of a copy. Look at the bytes and operations that the emulator counts; a time is
measured only on a GPU, by events on the stream, after a warm-up, as a median. The ready-made op is `ck.ops.add`.

Prints::

    all blocks: 4096 additions, 32768 bytes read, 16384 bytes written
        sectors: 1 × the least possible
    one block:  4096 additions, 32768 bytes read, 16384 bytes written
        sectors: 1 × the least possible
    time: needs a GPU
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

# 1. The traffic, counted on the emulator. One block is enough: its threads go on to further elements.
emulator = ck.emulator.stream()
a, b = np.arange(4096, dtype=np.float32), np.ones(4096, np.float32)
for label, threads in (("all blocks:", ck.cover(a.size)), ("one block: ", ck.config(1, 1024))):
    total = np.zeros_like(a)
    with ck.emulator.counters(emulator) as report:
        add(emulator, threads, a, b, total, a.size)
    np.testing.assert_array_equal(total, a + b)
    loads, stores = report.global_.loads, report.global_.stores
    additions = report.flops["single"]
    print(f"{label} {additions} additions, {loads.bytes} bytes read, {stores.bytes} bytes written")
    print(f"    sectors: {report.global_.coalescing:g} × the least possible")

# 2. The time on a GPU.
if ck.has_gpu():
    stream, n = ck.stream(), 1 << 26
    with ck.using(stream) as xp:
        a, b, total = xp.arange(n, dtype=xp.float32), xp.ones(n, dtype=xp.float32), xp.empty(n, dtype=xp.float32)
        launch = add.plan(stream, ck.cover(n), a, b, total, n)  # checked and decided once
        milliseconds = median_ms(stream, launch, repeats=11)
        assert bool((total == a + b).all())
    print(f"time: {milliseconds * 1e3:.1f} µs for {n} sums, {3 * a.nbytes / milliseconds / 1e6:.0f} GB/s")
else:
    print("time: needs a GPU")
