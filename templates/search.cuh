#include <cudakit/sort/order.cuh>

// out[k] = how many elements of the sorted a are less than v[k], or, where IS_RIGHT, not greater.
//
// Shapes: a (size), in Order; v, out (number); all contiguous.
// Threads: one a needle, which halves what is left of a at each step.
// Memory: log2(size) reads a needle, of which the first are in the cache.
// Preconditions: a is sorted; of one that is not, some index from 0 to size comes out.
// Launch: at least `number` threads.
// Source: Binary search.
template <typename Order, bool IS_RIGHT>
__global__ void bounds(
    const void* __restrict__ a, const void* __restrict__ v, long long* __restrict__ out, long long size,
    long long number) {
    using W = typename Order::word;
    const long long k = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k >= number) return;
    const W needle = Order::key(static_cast<const W*>(v)[k]);
    long long low = 0, high = size;
    while (low < high) {
        const long long middle = low + (high - low) / 2;
        const W key = Order::key(static_cast<const W*>(a)[middle]);
        if (IS_RIGHT ? key <= needle : key < needle) low = middle + 1;
        else high = middle;
    }
    out[k] = low;
}
