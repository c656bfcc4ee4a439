"""Sort over the whole device: a bitonic network, whose steps are launches that all blocks have finished.

Prints::

    3000 random numbers, padded to 4096, 78 launches: as NumPy sorts them
    1 number, 5, and 8: as NumPy sorts them
    by keys, with where they came from: the same order as NumPy's
"""

import numpy as np

import cudakit as ck

compare = ck.Kernel("""
template <typename T>
__global__ void compare(T* keys, int* values, int n, int run, int distance) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ distance;
    if (i >= n || other < i) return;  // the lower one of two does it
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


def sort(given: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """The sorted keys, where each came from, and how many launches it took."""
    n = 1 << (given.size - 1).bit_length()  # a network has a power of two
    padded = np.full(n, np.inf, given.dtype)  # what is added ends up last
    padded[: given.size] = given
    keys, values = ck.to_device(padded, stream), ck.to_device(np.arange(n, dtype=np.int32), stream)
    launches, run = 0, 2
    while run <= n:
        distance = run // 2
        while distance:
            compare(stream, ck.cover(n, 256), keys, values, n, run, distance)
            launches, distance = launches + 1, distance // 2
        run *= 2
    return ck.to_host(keys, stream)[: given.size], ck.to_host(values, stream)[: given.size], launches


given = np.random.default_rng(11).permutation(3000).astype(np.float32)
keys, order, launches = sort(given)
np.testing.assert_array_equal(keys, np.sort(given))
print(f"{given.size} random numbers, padded to 4096, {launches} launches: as NumPy sorts them")
assert launches == 12 * 13 // 2  # a merge of 2, of 4 … of 4096, with 1, 2 … 12 steps

for few, steps in ((1, 0), (5, 6), (8, 6)):
    keys, _, launches = sort(given[:few])
    np.testing.assert_array_equal(keys, np.sort(given[:few]))
    assert launches == steps
print("1 number, 5, and 8: as NumPy sorts them")

np.testing.assert_array_equal(order, np.argsort(given))
print("by keys, with where they came from: the same order as NumPy's")
