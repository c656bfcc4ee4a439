"""Raw pointers: an address as it is, for a part of an array, for an array of arrays, and for memory of others.

`ctypes.c_void_p` says that you mean it: there is no dtype, size or device to check. Keep the memory alive yourself.

Prints::

    from the eleventh element on: doubled
    an array of pointers to rows of three lengths: [  6. 105.   7.]
    a plain number: double_it: parameter x (float*) takes an array, got 94731126272592, a Python int; a raw address is
        ↳ given as ctypes.c_void_p(address)
"""

import ctypes
from typing import Any

import numpy as np

import cudakit as ck

double_it = ck.Kernel("""
__global__ void double_it(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
""")
sum_rows = ck.Kernel("""
__global__ void sum_rows(const unsigned long long* rows, const int* lengths, float* sums, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    const float* x = reinterpret_cast<const float*>(rows[row]);
    float sum = 0;
    for (int i = 0; i < lengths[row]; ++i) sum += x[i];
    sums[row] = sum;
}
""")
stream = ck.stream()


def address(array: Any) -> int:
    """Where a CuPy array begins, or a NumPy array where there is no GPU."""
    return array.data.ptr if ck.has_gpu() else array.ctypes.data


given = np.arange(1, 101, dtype=np.float32)
x = ck.to_device(given, stream)
part = ctypes.c_void_p(address(x) + 10 * x.itemsize)
double_it(stream, ck.cover(90), part, 90)
np.testing.assert_array_equal(ck.to_host(x, stream), np.where(np.arange(100) < 10, given, given + given))
print("from the eleventh element on: doubled")

ragged = [np.arange(1, 4), np.arange(15), np.array([7])]
rows = [ck.to_device(row.astype(np.float32), stream) for row in ragged]
pointers = ck.to_device(np.array([address(row) for row in rows], np.uint64), stream)
lengths = ck.to_device(np.array([row.size for row in rows], np.int32), stream)
sums = ck.to_device(np.zeros(3, np.float32), stream)
sum_rows(stream, ck.cover(3), pointers, lengths, sums, 3)
found = ck.to_host(sums, stream)
np.testing.assert_array_equal(found, [row.sum() for row in ragged])
print(f"an array of pointers to rows of three lengths: {found}")

said = ""
try:
    double_it(stream, ck.cover(90), address(x), 90)
except ck.ArgumentError as error:
    said = str(error)
assert "double_it: parameter x" in said
print(f"a plain number: {said}")
