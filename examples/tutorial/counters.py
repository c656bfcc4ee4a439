"""Counters: what a kernel asks of memory, counted exactly, with no GPU and no clock.

`ck.emulator.counters` counts sectors, bank conflicts, instructions and more, for each kernel and each source line. The
kernel below transposes a matrix by a tile in shared memory. Without padding, a column of the tile lies in one bank.
Look at the bank conflicts, and at the advice: it is given only where the counts leave no doubt.

Prints::

    padding of 0 floats:
        global memory: 1024 sectors, 1 × the least possible
        shared memory: 3968 bank conflicts
        advice: pad the rows by one word
    padding of 1 floats:
        global memory: 1024 sectors, 1 × the least possible
        shared memory: 0 bank conflicts
"""

import numpy as np

import cudakit as ck

transpose = ck.Kernel("""
template <int PADDING>
__global__ void transpose(const float* x, float* y, int n) {
    __shared__ float tile[32][32 + PADDING];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
    y[row * n + column] = tile[threadIdx.x][threadIdx.y];
}
""")
stream = ck.emulator.stream()  # also where there is a GPU: the emulator counts
n = 64
x = np.arange(n * n, dtype=np.float32).reshape(n, n)

conflicts = []
for padding in (0, 1):
    y = np.empty_like(x)
    with ck.emulator.counters(stream) as report:
        transpose[padding](stream, ck.config((n // 32, n // 32), (32, 32)), x, y, n)
    np.testing.assert_array_equal(y, x.T)
    conflicts.append(report.shared.bank_conflicts)
    print(f"padding of {padding} floats:")
    print(f"    global memory: {report.global_.sectors} sectors, {report.global_.coalescing:g} × the least possible")
    print(f"    shared memory: {report.shared.bank_conflicts} bank conflicts")
    for advice in report.advice:
        print(f"    advice: {advice.text.partition('; ')[2]}")
assert conflicts == [31 * (n * n // 32), 0]  # 32 lanes in one bank take 32 turns, 31 more than one
