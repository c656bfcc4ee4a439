"""The kernels of `emulator` in Numba's Python; apart, as its simulator replaces `cuda` in a module's globals."""

from __future__ import annotations

from typing import Any

from numba import cuda, float32


@cuda.jit
def add(x: Any, y: Any, z: Any) -> None:
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    z[i] = x[i] + y[i]


@cuda.jit
def matmul(a: Any, b: Any, c: Any) -> None:
    # Two lines, for the simulator tells shared arrays apart by the line that makes them.
    left = cuda.shared.array((16, 16), float32)
    right = cuda.shared.array((16, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * 16 + y, cuda.blockIdx.x * 16 + x
    total = float32(0)
    for k in range(0, a.shape[1], 16):
        left[y, x] = a[row, k + x]
        right[y, x] = b[k + y, column]
        cuda.syncthreads()
        for i in range(16):
            total += left[y, i] * right[i, x]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def scan(x: Any, y: Any) -> None:
    sums = cuda.shared.array((2, 256), float32)
    i, now, distance = cuda.threadIdx.x, 0, 1
    sums[0, i] = x[cuda.blockIdx.x * 256 + i]
    cuda.syncthreads()
    while distance < 256:
        before = sums[now, i - distance] if i >= distance else float32(0)
        sums[1 - now, i] = sums[now, i] + before
        now, distance = 1 - now, 2 * distance
        cuda.syncthreads()
    y[cuda.blockIdx.x * 256 + i] = sums[now, i]
