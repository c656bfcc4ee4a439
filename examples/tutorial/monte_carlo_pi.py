"""π by random points: each thread draws its own sequence on the device.

cuRAND's Philox generator takes a seed and the number of the thread, so that no sequence is stored. Look at the error,
which must be within six standard deviations. The ready-made generator is `ck.random.default_rng`.

Prints::

    65536 points: π ≈ 3.141602
"""

import cudakit as ck

inside_circle = ck.Kernel("""
#include <curand_kernel.h>
__global__ void inside_circle(unsigned long long seed, int points, int* inside) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    curandStatePhilox4_32_10_t state;
    curand_init(seed, thread, 0, &state);  // a sequence of its own for each thread
    int count = 0;
    for (int i = 0; i < points; i += 2) {
        float4 u = curand_uniform4(&state);
        count += (u.x * u.x + u.y * u.y <= 1) + (u.z * u.z + u.w * u.w <= 1);
    }
    inside[thread] = count;
}
""")

stream = ck.stream()
threads, points = (1 << 16, 1024) if ck.has_gpu() else (1 << 10, 64)
with ck.using(stream) as xp:
    inside = xp.empty(threads, dtype=xp.int32)
    inside_circle(stream, ck.config(-(-threads // 256), 256), 2026, points, inside)
    total = int(ck.ops.sum(inside, stream=stream))
pi = 4 * total / (threads * points)
assert abs(pi - 3.14159) < 10 / (threads * points) ** 0.5  # six standard deviations
print(f"{threads * points} points: π ≈ {pi:.6f}")
