"""A missing barrier: how ck.check finds a race between the threads of a block.

Each thread writes one element of shared memory, then reads an element that another thread wrote. Without
`__syncthreads()` in between, the result may still be right, so that a test of the result alone finds nothing.
Look at what `ck.check` reports: the line that reads too early, and the line of the write that it did not wait for.

Prints::

    with the barrier:    96 of 96 elements are right, 0 races found
    without the barrier: 96 of 96 elements are right, 1 race found
    reverse<false>: missing_synchronisation.py:26: race: block 0, thread 0 reads values[95] in shared memory, which
        ↳ block 0, thread 95 writes at missing_synchronisation.py:24, and nothing orders the two
    without the barrier, the last warp first: 64 of 96 elements are right
"""

import numpy as np

import cudakit as ck

reverse = ck.Kernel("""
template <bool BARRIER>
__global__ void reverse(const int* x, int* y) {
    __shared__ int values[96];
    values[threadIdx.x] = x[threadIdx.x];
    if (BARRIER) __syncthreads();
    y[threadIdx.x] = values[95 - threadIdx.x];
}
""")

stream = ck.emulator.stream()  # also where there is a GPU: the check runs on the emulator
block = ck.config(1, 96)
x = np.arange(96, dtype=np.int32)
expected = x[::-1]

for barrier, label in ((True, "with the barrier:   "), (False, "without the barrier:")):
    y = np.full(96, -1, np.int32)
    with ck.check() as report:
        reverse[barrier](stream, block, x, y)
    races = len(report.findings)
    assert races == (0 if barrier else 1)
    right = int((y == expected).sum())
    assert right == 96
    print(f"{label} {right} of 96 elements are right, {races} race{'' if races == 1 else 's'} found")

print(report.findings[0])

# A GPU may run the warps in another order. The emulator runs them in an order that it draws with the seed.
y = np.full(96, -1, np.int32)
reverse[False](ck.emulator.stream(schedule=2), block, x, y)
right = int((y == expected).sum())
assert right == 64
print(f"without the barrier, the last warp first: {right} of 96 elements are right")
