// Neighbours of array elements in registers, for kernels that `cudakit.stencil` generates: the cells of a thread, what lies
// beyond a border, and the window of an input that its cells see.
#pragma once

#include <cudakit/elementwise/values.cuh>
#include <cudakit/narrow.cuh>

namespace cudakit {

namespace detail {
template <typename T, bool IS_NARROW = is_narrow<T>>
struct seen_as {
    using type = T;
};
template <typename T>
struct seen_as<T, true> {
    using type = narrow<T>;
};
}  // namespace detail

/// What an expression sees of T: of half and bfloat16 a float that is rounded where it is set.
template <typename T>
using seen_t = typename detail::seen_as<T>::type;

/// What stands beyond the ends of an axis, by SciPy's names: … | a b c d | …
enum border {
    CONSTANT_BORDER,  // k k k k | a b c d | k k k k
    NEAREST_BORDER,   // a a a a | a b c d | d d d d
    REFLECT_BORDER,   // d c b a | a b c d | d c b a
    MIRROR_BORDER,    // . d c b | a b c d | c b a .
    WRAP_BORDER,      // a b c d | a b c d | a b c d
};

/// Where index i of an axis of n elements lies, once beyond an end; −1 for a constant. Always from −1 to n − 1: blocks
/// reach further than what they store.
template <int BORDER, typename Index>
__device__ Index bordered(Index i, Index n) {
    if constexpr (BORDER == CONSTANT_BORDER) return i < 0 || i >= n ? Index(-1) : i;
    if constexpr (BORDER == REFLECT_BORDER) i = i < 0 ? -1 - i : i >= n ? 2 * n - 1 - i : i;
    if constexpr (BORDER == MIRROR_BORDER) i = i < 0 ? -i : i >= n ? 2 * n - 2 - i : i;
    if constexpr (BORDER == WRAP_BORDER) i = i < 0 ? i + n : i >= n ? i - n : i;
    return min(max(i, Index(0)), n - 1);
}

/// The cells that a thread does, PLANES × ROWS × COUNT of an array of three dimensions: a warp's lie side by side, a block's
/// rows on each other. Arrays of fewer dimensions have extents of 1 first.
template <typename Index, int COUNT, int ROWS, int PLANES>
struct stencil_cells {
    Index depth, height, width, z, y, x;

    __device__ stencil_cells(Index depth, Index height, Index width) : depth(depth), height(height), width(width) {
        const Index across = blockDim.x * COUNT, down = blockDim.y * ROWS;
        const Index columns = (width + across - 1) / across, rows = (height + down - 1) / down;
        const Index block = blockIdx.x, row = block / columns;
        x = (block - row * columns) * across + threadIdx.x * COUNT;
        y = row % rows * down + threadIdx.y * ROWS;
        z = row / rows * PLANES;
    }
    __device__ bool is_empty() const { return x >= width || y >= height || z >= depth; }
    __device__ bool has(int plane, int row) const { return z + plane < depth && y + row < height; }

    /// A row of the thread's results; of more than one element each, `out` is aligned to all of them.
    template <typename T, typename V>
    __device__ void store(T* out, const few<V, COUNT>& values, int plane, int row) const {
        pack<T, COUNT> stored;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) stored.values[k] = as<T>(values.values[k]);
        store_pack(out + ((z + plane) * height + y + row) * width + x, stored);
    }
};

/// What a thread's cells see of an input: V, at most HZ, HY and HX away. What is not looked at is not loaded. Of all PLANES, or,
/// where a turn of the kernel's loop does fewer, of the planes around one, which move: then registers are those of few planes.
template <
    typename V, int ZBORDER, int YBORDER, int XBORDER, int HZ, int HY, int HX, int COUNT, int ROWS, int PLANES, int TURN,
    typename Index>
struct stencil_window {
    static constexpr bool IS_WHOLE = PLANES == TURN;
    static constexpr int HELD = IS_WHOLE ? PLANES + 2 * HZ : 2 * HZ + 1;
    static_assert(IS_WHOLE || TURN % HELD == 0, "where a plane is held is known for each plane of a turn");
    V values[HELD][ROWS + 2 * HY][COUNT + 2 * HX];
    /// Where the rows begin in a plane, and how far from a thread's first cell what is beside its own lies: −1 and `NOWHERE`
    /// beyond a border that is constant.
    Index rows[ROWS + 2 * HY], beside[2 * HX + 1];
    static constexpr Index NOWHERE = Index(1) << 30;

    template <typename S, typename Cells>
    __device__ stencil_window(const S* from, const Cells& cells, const V& constant) {
#pragma unroll
        for (int j = 0; j < ROWS + 2 * HY; ++j) {
            const Index y = bordered<YBORDER>(cells.y + j - HY, cells.height);
            rows[j] = y < 0 ? y : y * cells.width;
        }
#pragma unroll
        for (int k = 0; k < 2 * HX; ++k) {
            const Index x = bordered<XBORDER>(cells.x + at(k) - HX, cells.width);
            beside[k] = x < 0 ? NOWHERE : x - cells.x;
        }
        // All at once: so many loads are on their way together.
#pragma unroll
        for (int i = 0; i < (IS_WHOLE ? HELD : 2 * HZ); ++i) load(values[i], from, cells, cells.z + i - HZ, constant);
    }
    /// Go on to the next plane of cells, which is the kth of a turn.
    template <typename S, typename Cells>
    __device__ __forceinline__ void move(const S* from, const Cells& cells, int plane, int k, const V& constant) {
        if constexpr (!IS_WHOLE) load(values[(k + 2 * HZ) % HELD], from, cells, cells.z + plane + HZ, constant);
    }
    /// Where in a row of values the kth is that the thread has not as a cell of its own.
    static __device__ constexpr int at(int k) { return k < HX ? k : COUNT + k; }

    template <typename S, typename Cells>
    __device__ __forceinline__ void load(
        V (&plane)[ROWS + 2 * HY][COUNT + 2 * HX], const S* from, const Cells& cells, Index depth, const V& constant) {
        const Index z = bordered<ZBORDER>(depth, cells.depth);
        const S* const first = from + z * (cells.height * cells.width);
#pragma unroll
        for (int j = 0; j < ROWS + 2 * HY; ++j) {
            V(&row)[COUNT + 2 * HX] = plane[j];
            if ((ZBORDER == CONSTANT_BORDER && z < 0) || (YBORDER == CONSTANT_BORDER && rows[j] < 0)) {
#pragma unroll
                for (int k = 0; k < COUNT + 2 * HX; ++k) row[k] = constant;
                continue;
            }
            const S* const line = first + (rows[j] + cells.x);
            const pack<S, COUNT> own = load_pack<COUNT>(line);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) row[HX + k] = as<V>(own.values[k]);
#pragma unroll
            for (int k = 0; k < 2 * HX; ++k) {
                row[at(k)] = constant;
                if (XBORDER != CONSTANT_BORDER || beside[k] != NOWHERE) row[at(k)] = as<V>(stored(line)[beside[k]]);
            }
        }
    }

    /// A cell and its neighbours: u(dx), u(dy, dx) or u(dz, dy, dx).
    struct cell {
        const stencil_window& window;
        int plane, row, column;
        __device__ __forceinline__ V operator()(int dz, int dy, int dx) const {
            // Nothing is left of this where the offsets are constants. Behind the radius there is other memory.
            if (dz < -HZ || dz > HZ || dy < -HY || dy > HY || dx < -HX || dx > HX) __trap();
            return window.values[(plane + HZ + dz) % HELD][row + HY + dy][column + HX + dx];
        }
        __device__ __forceinline__ V operator()(int dy, int dx) const { return (*this)(0, dy, dx); }
        __device__ __forceinline__ V operator()(int dx) const { return (*this)(0, 0, dx); }
    };
    __device__ cell at(int plane, int row, int column) const { return {*this, plane, row, column}; }
};

}  // namespace cudakit
