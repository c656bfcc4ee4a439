"""Raw pointers: pass an address for a part of an array, or an array of addresses.

`ctypes.c_void_p(address)` passes the address as it is: dtype, size and device are not checked, and you keep the memory
alive. Look at the last line: a plain number is refused. For a part of an array, a slice such as `x[10:]` is safer.

Prints::

    address of element 10: the elements from there on are doubled
    array of addresses of rows of three lengths: sums [  6. 105.   7.]
    a plain number: double_it: parameter x (float*) takes an array, got 94072224929152, a Python int; a raw address is
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
    """Return the address of the first element of a CuPy array, or of a NumPy array without a GPU."""
    return array.data.ptr if ck.has_gpu() else array.ctypes.data


host_x = np.arange(1, 101, dtype=np.float32)
x = ck.to_device(host_x, stream)
part = ctypes.c_void_p(address(x) + 10 * x.itemsize)
double_it(stream, ck.cover(90), part, 90)
np.testing.assert_array_equal(ck.to_host(x, stream), np.where(np.arange(100) < 10, host_x, host_x + host_x))
print("address of element 10: the elements from there on are doubled")

ragged = [np.arange(1, 4), np.arange(15), np.array([7])]
rows = [ck.to_device(row.astype(np.float32), stream) for row in ragged]
pointers = ck.to_device(np.array([address(row) for row in rows], np.uint64), stream)
lengths = ck.to_device(np.array([row.size for row in rows], np.int32), stream)
sums = ck.to_device(np.zeros(3, np.float32), stream)
sum_rows(stream, ck.cover(3), pointers, lengths, sums, 3)
host_sums = ck.to_host(sums, stream)
np.testing.assert_array_equal(host_sums, [row.sum() for row in ragged])
print(f"array of addresses of rows of three lengths: sums {host_sums}")

message = ""
try:
    double_it(stream, ck.cover(90), address(x), 90)
except ck.ArgumentError as error:
    message = str(error)
assert "double_it: parameter x" in message
print(f"a plain number: {message}")
