"""Sort a whole array by a bitonic network: each step is a launch of its own.

A step compares pairs of elements at one distance. The next step starts when all blocks are done, because launches of a
stream run one after the other. Look at the number of launches: 78 for 4096 elements. The ready-made ops are
`ck.ops.sort` and `ck.ops.sort_by_key`, which need far fewer.

Prints::

    3000 random numbers, padded to 4096, 78 launches: agree with NumPy
    1 number, 5 numbers and 8 numbers: agree with NumPy
    positions of the sorted keys: agree with NumPy
"""

import numpy as np

import cudakit as ck

compare = ck.Kernel("""
template <typename T>
__global__ void compare(T* keys, int* values, int n, int run, int distance) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ distance;
    if (i >= n || other < i) return;  // the lower thread of the pair does the work
    bool ascending = (i & run) == 0;
    if ((keys[i] > keys[other]) == ascending) {
        T key = keys[i];
        keys[i] = keys[other];
        keys[other] = key;
        int value = values[i];
        values[i] = values[other];
        values[other] = value;
    }
}
""")
stream = ck.stream()


def sort(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the sorted keys, the position that each had before, and the number of launches."""
    n = 1 << (numbers.size - 1).bit_length()  # the network needs a power of two
    padded = np.full(n, np.inf, numbers.dtype)  # the padding is sorted to the end
    padded[: numbers.size] = numbers
    keys, values = ck.to_device(padded, stream), ck.to_device(np.arange(n, dtype=np.int32), stream)
    launches, run = 0, 2
    while run <= n:
        distance = run // 2
        while distance:
            compare(stream, ck.cover(n, 256), keys, values, n, run, distance)
            launches, distance = launches + 1, distance // 2
        run *= 2
    return ck.to_host(keys, stream)[: numbers.size], ck.to_host(values, stream)[: numbers.size], launches


numbers = np.random.default_rng(11).permutation(3000).astype(np.float32)
keys, order, launches = sort(numbers)
np.testing.assert_array_equal(keys, np.sort(numbers))
print(f"{numbers.size} random numbers, padded to 4096, {launches} launches: agree with NumPy")
assert launches == 12 * 13 // 2  # a merge of 2, of 4 … of 4096, with 1, 2 … 12 steps

for count, steps in ((1, 0), (5, 6), (8, 6)):
    keys, _, launches = sort(numbers[:count])
    np.testing.assert_array_equal(keys, np.sort(numbers[:count]))
    assert launches == steps
print("1 number, 5 numbers and 8 numbers: agree with NumPy")

np.testing.assert_array_equal(order, np.argsort(numbers))
print("positions of the sorted keys: agree with NumPy")
