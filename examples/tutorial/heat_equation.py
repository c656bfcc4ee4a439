"""The heat equation in one dimension: a stencil, 2000 steps in time, and the exact solution.

u_t = u_xx on [0, 1], with u = 0 at both ends: a sine decays as exp(-π² t). Look at the middle of the rod, where the
result agrees with the exact solution. On a GPU two steps are captured as a graph, which saves launches. Without a
kernel, `ck.stencil` does the same (stencil.py).

Prints::

    129 points, 2000 steps: t = 0.0305
    middle: 0.7399, exact 0.7399
"""

import math

import numpy as np

import cudakit as ck

step = ck.Kernel("""
template <typename T>
__global__ void step(const T* now, T* next, int n, T ratio) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    next[i] = i == 0 || i == n - 1 ? T(0) : now[i] + ratio * (now[i - 1] - 2 * now[i] + now[i + 1]);
}
""")

n, steps = 129, 2000
dx = 1 / (n - 1)
ratio = 0.25  # dt / dx², at most 0.5
time = steps * ratio * dx**2
position = np.linspace(0, 1, n)

stream = ck.stream()
with ck.using(stream) as xp:
    now = ck.to_device(np.sin(np.pi * position), stream)
    following = xp.empty_like(now)
    if ck.has_gpu():  # two steps as a graph: it ends with the array that it began with
        with ck.capture(stream) as two_steps:
            step(stream, ck.cover(n), now, following, n, ratio)
            step(stream, ck.cover(n), following, now, n, ratio)
        for _ in range(steps // 2):
            two_steps.launch(stream)
    else:
        for _ in range(steps):
            step(stream, ck.cover(n), now, following, n, ratio)
            now, following = following, now
result = ck.to_host(now, stream)
exact = np.sin(np.pi * position) * math.exp(-(math.pi**2) * time)
assert np.abs(result - exact).max() < 1e-4
print(f"{n} points, {steps} steps: t = {time:.4f}")
print(f"middle: {result[n // 2]:.4f}, exact {exact[n // 2]:.4f}")
