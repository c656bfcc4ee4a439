"""Sort within one block by CUB's radix sort: a header of NVIDIA's, found without your help.

Prints::

    512 floats, sorted: -2.80 to 3.13
    512 ints with their places: the order is stable
"""

import numpy as np

import cudakit as ck

SOURCE = """
#include <cub/block/block_radix_sort.cuh>

template <typename K, int THREADS, int ITEMS>
__global__ void sort_block(K* keys) {
    using Sort = cub::BlockRadixSort<K, THREADS, ITEMS>;
    __shared__ typename Sort::TempStorage storage;
    K own[ITEMS];  // ITEMS neighbours a thread
    for (int i = 0; i < ITEMS; ++i) own[i] = keys[threadIdx.x * ITEMS + i];
    Sort(storage).Sort(own);
    for (int i = 0; i < ITEMS; ++i) keys[threadIdx.x * ITEMS + i] = own[i];
}

template <typename K, int THREADS, int ITEMS>
__global__ void sort_pairs(K* keys, int* places) {
    using Sort = cub::BlockRadixSort<K, THREADS, ITEMS, int>;
    __shared__ typename Sort::TempStorage storage;
    K own[ITEMS];
    int place[ITEMS];
    for (int i = 0; i < ITEMS; ++i) {
        own[i] = keys[threadIdx.x * ITEMS + i];
        place[i] = threadIdx.x * ITEMS + i;
    }
    Sort(storage).Sort(own, place);
    for (int i = 0; i < ITEMS; ++i) {
        keys[threadIdx.x * ITEMS + i] = own[i];
        places[threadIdx.x * ITEMS + i] = place[i];
    }
}
"""
THREADS, ITEMS = 128, 4
sizes = {"THREADS": THREADS, "ITEMS": ITEMS}
sort_block, sort_pairs = (ck.Kernel(SOURCE, name)[sizes] for name in ("sort_block", "sort_pairs"))
rng = np.random.default_rng(6)
stream = ck.stream()

floats = rng.normal(size=THREADS * ITEMS).astype(np.float32)
result = floats.copy()
sort_block(stream, ck.config(1, THREADS), ck.InOut(result))
stream.sync()
np.testing.assert_array_equal(result, np.sort(floats))
print(f"{result.size} floats, sorted: {result[0]:.2f} to {result[-1]:.2f}")

ints = rng.integers(-5, 5, THREADS * ITEMS, np.int32)
keys, places = ints.copy(), np.empty(ints.size, np.int32)
sort_pairs(stream, ck.config(1, THREADS), ck.InOut(keys), ck.Out(places))
stream.sync()
np.testing.assert_array_equal(keys, np.sort(ints))
np.testing.assert_array_equal(places, np.argsort(ints, kind="stable"))
print(f"{keys.size} ints with their places: the order is stable")
