"""Checks: find mistakes in a kernel that its result does not show.

Under `ck.check` the emulator follows every access of every thread. Each kernel below has one mistake, and two of the
three give the right result all the same. Look at what each finding names: the kernel, the line and the threads. On a
stream that is made with `check="raise"` the first finding is an error, which a test wants.

Prints::

    shift: the result is right
        if (i < 63) x[i] = x[i + 1];
        race: block 0, thread 1 writes x[1], which has 64 elements, which block 0, thread 0 reads at checks.py:31, and
        ↳ nothing orders the two
    sum: the result is wrong
        atomicAdd(&total, x[threadIdx.x]);
        block 0, thread 0 reads total in shared memory, which nobody wrote
    reverse: the result is right
        __syncthreads();
        a barrier of the whole block, which block 0, thread 60 exits without reaching
    check="raise": the first finding is an EmulationError
"""

from pathlib import Path

import numpy as np

import cudakit as ck

SOURCE = """
__global__ void shift(int* x) {                // a race: thread i + 1 may have written x[i + 1] already
    int i = threadIdx.x;
    if (i < 63) x[i] = x[i + 1];
}

__global__ void sum(const int* x, int* y) {    // total is never set to 0
    __shared__ int total;
    atomicAdd(&total, x[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) *y = total;
}

__global__ void reverse(const int* x, int* y, int n) {  // threads that return do not come to the barrier
    __shared__ int values[64];
    if (threadIdx.x >= n) return;
    values[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = values[n - 1 - threadIdx.x];
}
"""
shift, total, reverse = (ck.Kernel(SOURCE, name) for name in ("shift", "sum", "reverse"))
block = ck.config(1, 64)
stream = ck.emulator.stream()  # also where there is a GPU: the checks are the emulator's
host_x = np.arange(64, dtype=np.int32)
shifted, y, z = host_x.copy(), np.zeros(1, np.int32), np.full(60, -1, np.int32)

for kernel, arguments, result, expected in (
    (shift, (shifted,), shifted, np.append(host_x[1:], 63)),
    (total, (host_x, y), y, [host_x.sum()]),
    (reverse, (host_x, z, 60), z, host_x[59::-1]),
):
    with ck.check() as report:
        kernel(stream, block, *arguments)
    finding = report.findings[0]
    print(f"{finding.kernel}: the result is {'right' if (result == expected).all() else 'wrong'}")
    print(f"    {Path(finding.file).read_text().splitlines()[finding.line - 1].strip()}")
    print(f"    {finding.text.replace(f'{Path(__file__).parent}/', '')}")

message = ""
try:
    total(ck.emulator.stream(check="raise"), block, host_x, y)
except ck.EmulationError as error:
    message = str(error)
assert "total" in message
print('check="raise": the first finding is an EmulationError')
