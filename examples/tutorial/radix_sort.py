"""Sort within one block by a radix sort of CUB.

cudakit finds the headers of CUB by itself. Each thread holds four neighbouring keys, and `cub::BlockRadixSort` sorts
the keys of the block. Look at the second kernel: it sorts keys together with their positions. The ready-made op for
whole arrays is `ck.ops.sort`.

Prints::

    512 floats, sorted: -2.80 to 3.13
    512 ints with their positions: equal keys keep their order
"""

import numpy as np

import cudakit as ck

SOURCE = """
#include <cub/block/block_radix_sort.cuh>

template <typename K, int THREADS, int ITEMS>
__global__ void sort_block(K* keys) {
    using Sort = cub::BlockRadixSort<K, THREADS, ITEMS>;
    __shared__ typename Sort::TempStorage storage;
    K keys_of_thread[ITEMS];  // ITEMS neighbouring keys
    for (int i = 0; i < ITEMS; ++i) keys_of_thread[i] = keys[threadIdx.x * ITEMS + i];
    Sort(storage).Sort(keys_of_thread);
    for (int i = 0; i < ITEMS; ++i) keys[threadIdx.x * ITEMS + i] = keys_of_thread[i];
}

template <typename K, int THREADS, int ITEMS>
__global__ void sort_pairs(K* keys, int* positions) {
    using Sort = cub::BlockRadixSort<K, THREADS, ITEMS, int>;
    __shared__ typename Sort::TempStorage storage;
    K keys_of_thread[ITEMS];
    int position[ITEMS];
    for (int i = 0; i < ITEMS; ++i) {
        keys_of_thread[i] = keys[threadIdx.x * ITEMS + i];
        position[i] = threadIdx.x * ITEMS + i;
    }
    Sort(storage).Sort(keys_of_thread, position);
    for (int i = 0; i < ITEMS; ++i) {
        keys[threadIdx.x * ITEMS + i] = keys_of_thread[i];
        positions[threadIdx.x * ITEMS + i] = position[i];
    }
}
"""
THREADS, ITEMS = 128, 4
template_arguments = {"THREADS": THREADS, "ITEMS": ITEMS}
sort_block, sort_pairs = (ck.Kernel(SOURCE, name)[template_arguments] for name in ("sort_block", "sort_pairs"))
rng = np.random.default_rng(6)
stream = ck.stream()

floats = rng.normal(size=THREADS * ITEMS).astype(np.float32)
result = floats.copy()
sort_block(stream, ck.config(1, THREADS), ck.InOut(result))
stream.sync()
np.testing.assert_array_equal(result, np.sort(floats))
print(f"{result.size} floats, sorted: {result[0]:.2f} to {result[-1]:.2f}")

ints = rng.integers(-5, 5, THREADS * ITEMS, np.int32)
keys, positions = ints.copy(), np.empty(ints.size, np.int32)
sort_pairs(stream, ck.config(1, THREADS), ck.InOut(keys), ck.Out(positions))
stream.sync()
np.testing.assert_array_equal(keys, np.sort(ints))
np.testing.assert_array_equal(positions, np.argsort(ints, kind="stable"))
print(f"{keys.size} ints with their positions: equal keys keep their order")
