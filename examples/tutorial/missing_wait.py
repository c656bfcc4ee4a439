"""A missing wait between two streams: cudakit adds it, or reports it where you order the streams yourself.

A kernel on the first stream writes an array, and a kernel on the second stream reads it. cudakit makes the second
stream wait. Inside `ck.hazards.manual` it adds no waits: a wait that is missing is then an error on the emulator, and
on a GPU an entry of the report of `ck.hazards.trace`.

Prints::

    ordered by cudakit: right, no wait in the program
    ordered by hand:    right, one wait in the program
    without the wait:   race: double_it on stream 2 (missing_wait.py:43) reads bytes 0 … 3999 of x (elements 0 … 999),
        ↳ which double_it on stream 1 (missing_wait.py:40) writes as bytes 0 … 3999 of y (elements 0 … 999), and neither
        ↳ comes first. After double_it, record an event on stream 1; before double_it, let stream 2 wait for it:
        ↳ stream.wait(event)
"""

from pathlib import Path

import numpy as np

import cudakit as ck

double_it = ck.Kernel("""
__global__ void double_it(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
""")
first, second = ck.stream(), ck.stream()
n = 1000
host_x = np.arange(n, dtype=np.float32)
x = ck.to_device(host_x, first)
y, z = (ck.to_device(np.full(n, -1, np.float32), first) for _ in range(2))
second.wait(first)  # y and z are there
expected = 4 * host_x


def double_twice(wait: bool) -> np.ndarray:
    """Double x on the first stream and the result on the second one; return the second result."""
    double_it(first, ck.cover(n), x, y, n)
    if wait:
        second.wait(first.record())
    double_it(second, ck.cover(n), y, z, n)
    return ck.to_host(z, second)


np.testing.assert_array_equal(double_twice(wait=False), expected)
print("ordered by cudakit: right, no wait in the program")

with ck.hazards.manual():
    np.testing.assert_array_equal(double_twice(wait=True), expected)
print("ordered by hand:    right, one wait in the program")

with ck.hazards.trace() as report, ck.hazards.manual():
    try:
        double_twice(wait=False)
        error = str(report.missing[0])
    except ck.EmulationError as raised:
        error = str(raised)
assert "double_it" in error
print(f"without the wait:   {' '.join(error.split()).replace(f'{Path(__file__).parent}/', '')}")
