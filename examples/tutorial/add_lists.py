"""Add two Python lists on the device.

The lists become arrays. `ck.In` copies an array to the device before the kernel, and `ck.Out` copies one back after it.
Look at `stream.sync()`: the result is there only after it. The ready-made op is `ck.ops.add`.

Prints::

    [1, 2, 3, 4] + [10, 20, 30, 40] = [11, 22, 33, 44]
"""

import numpy as np

import cudakit as ck

add = ck.Kernel("""
template <typename T>
__global__ void add(const T* a, const T* b, T* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}
""")


def add_lists(a: list[int], b: list[int]) -> list[int]:
    """Return the sums of the elements of `a` and `b`."""
    if len(a) != len(b):
        raise ValueError(f"the lists have {len(a)} and {len(b)} elements")
    stream = ck.stream()
    total = np.empty(len(a), np.int64)
    # In: copied to the device before the kernel. Out: copied back after it.
    add(stream, ck.cover(len(a)), ck.In(np.array(a, np.int64)), ck.In(np.array(b, np.int64)), ck.Out(total), len(a))
    stream.sync()
    return total.tolist()


a, b = [1, 2, 3, 4], [10, 20, 30, 40]
total = add_lists(a, b)
assert total == [x + y for x, y in zip(a, b, strict=True)]
print(f"{a} + {b} = {total}")
