// Several steps of a stencil in one launch: a block has its tile, and as much around it as the steps need, in shared memory.
#pragma once

#include <cudakit/stencil/window.cuh>

namespace cudakit {

/// A tile of ROWS × COLUMNS cells after STEPS steps, of an array of two dimensions (of one: ROWS and HY say so). Each step is
/// right for HY and HX cells less on each side; beyond borders that repeat, cells are looked up inside, where they are of
/// the same step. In two halves: one step is read, the next is written.
template <typename V, int YBORDER, int XBORDER, int HY, int HX, int ROWS, int COLUMNS, int STEPS>
struct stencil_tile {
    static constexpr int HIGH = ROWS + 2 * HY * STEPS, WIDE = COLUMNS + 2 * HX * STEPS;
    static_assert(2 * HIGH * WIDE * sizeof(V) <= 48 << 10, "both halves fit static shared memory");
    V halves[2][HIGH * WIDE];

    /// A cell and its neighbours in one half. INNER: no border is near.
    template <bool INNER, typename Index>
    struct cell {
        const V* half;
        int row, column;
        Index top, left, height, width;

        __device__ __forceinline__ V operator()(int dy, int dx) const {
            // Nothing is left of this where the offsets are constants. Behind the radius there is other memory.
            if (dy < -HY || dy > HY || dx < -HX || dx > HX) __trap();
            int r = row + dy, c = column + dx;
            if constexpr (!INNER && YBORDER != CONSTANT_BORDER && YBORDER != WRAP_BORDER)
                r = static_cast<int>(bordered<YBORDER>(top + r, height) - top);
            if constexpr (!INNER && XBORDER != CONSTANT_BORDER && XBORDER != WRAP_BORDER)
                c = static_cast<int>(bordered<XBORDER>(left + c, width) - left);
            return half[r * WIDE + c];
        }
        __device__ __forceinline__ V operator()(int dx) const { return (*this)(0, dx); }
    };

    /// Whether a coordinate is a cell: one that lies in the array, or in what repeats it.
    template <int BORDER, typename Index>
    static __device__ bool is_cell(Index i, Index n) {
        return BORDER == WRAP_BORDER || (i >= 0 && i < n);
    }

    /// All of it, by a block of any size. `each(cell, next)` sets the next value of a cell.
    template <typename S, typename T, typename Index, typename Each>
    __device__ void run(const S* from, T* out, Index height, Index width, const V& constant, const Each& each) {
        const Index across = (width + COLUMNS - 1) / COLUMNS, block = blockIdx.x;
        const Index top = block / across * ROWS - HY * STEPS, left = block % across * COLUMNS - HX * STEPS;
        for (int k = threadIdx.x; k < HIGH * WIDE; k += blockDim.x) {
            Index y = top + k / WIDE, x = left + k % WIDE;
            if constexpr (YBORDER == WRAP_BORDER) y = (y % height + height) % height;
            if constexpr (XBORDER == WRAP_BORDER) x = (x % width + width) % width;
            const bool is_inside = y >= 0 && y < height && x >= 0 && x < width;
            halves[0][k] = is_inside ? as<V>(stored(from)[y * width + x]) : constant;
            halves[1][k] = constant;
        }
        __syncthreads();
        if (top >= 0 && left >= 0 && top + HIGH <= height && left + WIDE <= width)
            steps<true>(out, top, left, height, width, each);
        else
            steps<false>(out, top, left, height, width, each);
    }

    template <bool INNER, typename T, typename Index, typename Each>
    __device__ void steps(T* out, Index top, Index left, Index height, Index width, const Each& each) {
#pragma unroll
        for (int step = 1; step <= STEPS; ++step) {
            const V* const now = halves[(step - 1) % 2];
            V* const next = halves[step % 2];
            const int high = HIGH - 2 * HY * step, wide = WIDE - 2 * HX * step;
            for (int k = threadIdx.x; k < high * wide; k += blockDim.x) {
                const int row = k / wide + HY * step, column = k % wide + HX * step;
                const Index y = top + row, x = left + column;
                if (!INNER && !(is_cell<YBORDER>(y, height) && is_cell<XBORDER>(x, width))) continue;
                V value;
                each(cell<INNER, Index>{now, row, column, top, left, height, width}, value);
                if (step < STEPS)
                    next[row * WIDE + column] = value;
                else if (y < height && x < width)
                    out[y * width + x] = as<T>(value);
            }
            if (step < STEPS) __syncthreads();
        }
    }
};

}  // namespace cudakit
