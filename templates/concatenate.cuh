#include <cudakit/elementwise/neighbours.cuh>

namespace cudakit {

/// The last of N arrays, a power of two, that starts at or before a column.
template <int N, typename Starts>
__device__ int last_start(const Starts& start, long long column) {
    int found = 0;
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2)
        if (column >= start[found + half]) found += half;
    return found;
}

}  // namespace cudakit

// out[r, first + start[j] + c] = x_j[r, c]
//
// Shapes: x_j (rows, start[j + 1] − start[j]) with neighbours along a row, rows layout.step[j] apart, layout.size[j] elements
//   in all; N of them, of which the last may be null and empty; out (rows, pitch), contiguous. W is an unsigned word of the
//   elements' size: 1, 2, 4, 8 or 16 bytes; Index is unsigned int where `size` fits it, else unsigned long long.
// Threads: of the rows · layout.start[N] = `size` elements that this launch moves, thread t of a block does its t-th 16 bytes,
//   then those BLOCK further on, ITEMS in all.
// Memory: 2 sizeof(W) bytes an element, by loads of 16 bytes within a row of x_j, wherever they start; stores of 16 bytes
//   where the place in out is aligned. Shared: the addresses of the x_j, which registers could not be indexed for.
// Preconditions: out overlaps no x_j.
// Launch: BLOCK threads, each with ITEMS · 16 bytes.
// Source: Luitjens, Increase performance with vectorized memory access, NVIDIA technical blog (2013).
template <typename W, int N, typename Index, typename Layout, int ITEMS, int BLOCK, typename... X>
__global__ void __launch_bounds__(BLOCK)
    joined(void* __restrict__ out, long long first, long long pitch, long long size, const __grid_constant__ Layout layout, const X*... x) {
    constexpr int COUNT = 16 / sizeof(W);
    __shared__ const W* addresses[N];
    if (threadIdx.x == 0) {
        int j = 0;
        ((addresses[j++] = static_cast<const W*>(x)), ...);
    }
    __syncthreads();
    const Index width = static_cast<Index>(layout.start[N]);
    const long long begin = static_cast<long long>(blockIdx.x) * BLOCK * ITEMS * COUNT;
    const int thread = threadIdx.x;

    long long row = static_cast<Index>(begin) / width, column = static_cast<Index>(begin) - static_cast<Index>(row) * width;
    int j = cudakit::last_start<N>(layout.start, column);
    if (column + BLOCK * ITEMS * COUNT <= layout.start[j + 1]) {
        // The block's elements are neighbours in one array.
        const W* const from = addresses[j];
        const W* const element = from + row * layout.step[j] + column - layout.start[j] + thread * COUNT;
        W* const to = static_cast<W*>(out) + row * pitch + first + column + thread * COUNT;
        uint4 words[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            words[i] = cudakit::load_neighbours(element + i * BLOCK * COUNT, from, from + layout.size[j]);
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) cudakit::store_neighbours(to + i * BLOCK * COUNT, words[i], COUNT);
        return;
    }
    for (int i = 0; i < ITEMS; ++i) {
        const long long at = begin + (i * BLOCK + thread) * COUNT;
        if (at >= size) return;
        row = static_cast<Index>(at) / width;
        column = static_cast<Index>(at) - static_cast<Index>(row) * width;
        j = cudakit::last_start<N>(layout.start, column);
        W* const to = static_cast<W*>(out) + row * pitch + first + column;
        if (column + COUNT <= layout.start[j + 1]) {
            const W* const from = addresses[j];
            const W* const element = from + row * layout.step[j] + column - layout.start[j];
            cudakit::store_neighbours(to, cudakit::load_neighbours(element, from, from + layout.size[j]), COUNT);
            continue;
        }
        for (int k = 0; k < COUNT && at + k < size; ++k) {
            while (column >= layout.start[j + 1]) {
                if (++j < N) continue;
                j = 0;
                column = 0;
                ++row;
            }
            static_cast<W*>(out)[row * pitch + first + column] = addresses[j][row * layout.step[j] + column - layout.start[j]];
            ++column;
        }
    }
}
