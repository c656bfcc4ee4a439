// Neighbours of array elements in registers, for kernels that `cudakit.stencil` generates: the cells of a thread, what lies
// beyond a border, and the window of an input that its cells see.
#pragma once

#include <cudakit/elementwise/values.cuh>
#include <cudakit/narrow.cuh>
#include <cudakit/stage.cuh>

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

/// half or bfloat16 with the float that it is read as, which is converted once for all cells that see it.
template <typename H>
struct read_narrow : narrow<H> {
    float number;

    read_narrow() = default;
    __device__ read_narrow(const narrow<H>& value) : narrow<H>(value), number(value) {}
    __device__ operator float() const { return number; }
};

namespace detail {
template <typename A, typename B>
inline constexpr bool is_same = false;
template <typename A>
inline constexpr bool is_same<A, A> = true;

template <typename V>
struct read_as {
    using type = V;
};
template <typename H>
struct read_as<narrow<H>> {
    using type = read_narrow<H>;
};
}  // namespace detail

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
    __device__ bool has(int plane, int row) const { return x < width && y + row < height && z + plane < depth; }

    /// The same, where `out` is the row's first element, if it `is_there`: the results are computed in any case.
    template <typename T, typename V>
    static __device__ __forceinline__ void store_if(bool is_there, T* out, const few<V, COUNT>& values) {
        pack<T, COUNT> stored;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) stored.values[k] = as<T>(values.values[k]);
        if constexpr (sizeof(stored) % 4 == 0) {
            unsigned int words[sizeof(stored) / 4];
            memcpy(words, &stored, sizeof(stored));
            // Rows in one block of code have what they share, such as conversions, once.
#pragma unroll
            for (const unsigned int word : words) asm volatile("" ::"r"(word));
        }
        if (is_there) store_pack(out, stored);
    }
    /// Where the thread's results of the first plane and row are.
    template <typename T>
    __device__ T* first(T* out) const {
        return out + ((z * height + y) * width + x);
    }

    /// A row of the thread's results; of more than one element each, `out` is aligned to all of them.
    template <typename T, typename V>
    __device__ void store(T* out, const few<V, COUNT>& values, int plane, int row) const {
        pack<T, COUNT> stored;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) stored.values[k] = as<T>(values.values[k]);
        store_pack(out + ((z + plane) * height + y + row) * width + x, stored);
    }
};

/// What a thread's cells see of an input: V, at most HZ, HY and HX away. What is not looked at is not loaded.
template <
    typename V, int ZBORDER, int YBORDER, int XBORDER, int HZ, int HY, int HX, int COUNT, int ROWS, int PLANES, typename Index>
struct stencil_window {
    V values[PLANES + 2 * HZ][ROWS + 2 * HY][COUNT + 2 * HX];
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
        for (int i = 0; i < PLANES + 2 * HZ; ++i) load(values[i], from, cells, cells.z + i - HZ, constant);
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
            const bool is_beyond = (ZBORDER == CONSTANT_BORDER && z < 0) || (YBORDER == CONSTANT_BORDER && rows[j] < 0);
            const S* const line = first + (rows[j] + cells.x);
            if (sizeof(S) == 4 && is_beyond) {  // the fastest way for this size
#pragma unroll
                for (int k = 0; k < COUNT + 2 * HX; ++k) row[k] = constant;
                continue;
            }
            if constexpr (detail::is_same<V, S> && sizeof(S) < 4 && COUNT * sizeof(S) % 4 == 0) {
                // Chosen by whole words: chosen one by one, a thread's elements are too many for its registers.
                pack<S, COUNT> own;
#pragma unroll
                for (int k = 0; k < COUNT; ++k) own.values[k] = constant;
                unsigned int words[sizeof(own) / 4];
                memcpy(words, &own, sizeof(own));
                if (!is_beyond) {
                    own = load_pack<COUNT>(line);
                    memcpy(words, &own, sizeof(own));
                }
                memcpy(&own, words, sizeof(own));
#pragma unroll
                for (int k = 0; k < COUNT; ++k) row[HX + k] = own.values[k];
            } else if (is_beyond) {
#pragma unroll
                for (int k = 0; k < COUNT; ++k) row[HX + k] = constant;
            } else {
                const pack<S, COUNT> own = load_pack<COUNT>(line);
#pragma unroll
                for (int k = 0; k < COUNT; ++k) row[HX + k] = as<V>(own.values[k]);
            }
#pragma unroll
            for (int k = 0; k < 2 * HX; ++k) {
                row[at(k)] = constant;
                if (!is_beyond && (XBORDER != CONSTANT_BORDER || beside[k] != NOWHERE))
                    row[at(k)] = as<V>(stored(line)[beside[k]]);
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
            return window.values[plane + HZ + dz][row + HY + dy][column + HX + dx];
        }
        __device__ __forceinline__ V operator()(int dy, int dx) const { return (*this)(0, dy, dx); }
        __device__ __forceinline__ V operator()(int dx) const { return (*this)(0, 0, dx); }
    };
    __device__ cell at(int plane, int row, int column) const { return {*this, plane, row, column}; }
};

/// What a thread's cells see of an input of three dimensions: the planes around one, which move down. A block's planes come
/// through shared memory, two of them on their way, ACROSS × DOWN threads. Rows and columns of a block have what lies around.
template <
    typename V, typename S, int ZBORDER, int YBORDER, int XBORDER, int HY, int HX, int COUNT, int ROWS, int PLANES, int ACROSS,
    int DOWN, typename Index>
struct staged_window {
    static constexpr int HELD = 3, TALL = DOWN * ROWS + 2 * HY, WIDE = ACROSS * COUNT, TURNS = (TALL + DOWN - 1) / DOWN;
    static_assert(HX <= COUNT, "what lies beside a block fits beside its words");
    struct planes {
        alignas(16) S values[HELD][TALL][WIDE + 2 * COUNT];
    };
    using Read = typename detail::read_as<V>::type;
    Read values[HELD][ROWS + 2 * HY][COUNT + 2 * HX];
    /// Bytes from a plane's first element to a thread's words, and to the element beside the block that it brings; where in
    /// shared memory both go.
    using Offset = decltype(Index() + 0u);
    Offset words[TURNS], beside;
    S *words_to, *beside_to;
    /// Elements that are copied beside the block: of those smaller than a word of the hardware's as many as have one, where the
    /// array has them.
    static constexpr int BESIDE = HX == 1 && sizeof(S) < 4 && COUNT * sizeof(S) % 4 == 0 ? 4 / sizeof(S) : 1;
    bool is_word;
    /// Whether the constant beyond a border is written where an element would be copied to: an element of the array is not
    /// always as precise as V.
    static constexpr bool IS_CONSTANT = ZBORDER == CONSTANT_BORDER || YBORDER == CONSTANT_BORDER || XBORDER == CONSTANT_BORDER;
    static constexpr bool IS_WRITTEN = IS_CONSTANT && detail::is_same<V, seen_t<S>>;
    /// Bits of the rows that a thread brings beyond a border that is constant; the last is of the element beside.
    unsigned int beyond = 0;

    template <typename Cells>
    __device__ staged_window(planes& shared, const S* from, const Cells& cells, const V& constant) {
        static_assert(2 * HX * TALL <= ACROSS * DOWN, "a thread brings one element beside the block at most");
        const Index left = cells.x - Index(threadIdx.x) * COUNT, top = cells.y - Index(threadIdx.y) * ROWS - HY;
#pragma unroll
        for (int i = 0; i < TURNS; ++i) {
            const Index y = top + Index(threadIdx.y) + i * DOWN;
            words[i] = sizeof(S) * (row_at(y, cells) + cells.x);
            if (bordered<YBORDER>(y, cells.height) < 0) beyond |= 1u << i;
        }
        words_to = cells.x < cells.width ? &shared.values[0][threadIdx.y][COUNT + threadIdx.x * COUNT] : nullptr;
        const int thread = threadIdx.y * ACROSS + threadIdx.x, row = HX > 0 ? thread / (2 * HX) : TALL;
        beside_to = nullptr;
        if (row < TALL) {
            const int k = thread - row * (2 * HX), end = static_cast<int>(min(Index(WIDE), cells.width - left));
            const int at = k < HX ? k - HX : end + k - HX, first = k < HX ? -BESIDE : end;
            is_word = BESIDE > 1 && left + first >= 0 && left + first + BESIDE <= cells.width;
            const Index column = is_word ? left + first : max(bordered<XBORDER>(left + at, cells.width), Index(0));
            beside_to = &shared.values[0][row][COUNT + (is_word ? first : at)];
            beside = sizeof(S) * (row_at(top + row, cells) + column);
            if (bordered<YBORDER>(top + row, cells.height) < 0 ||
                (!is_word && bordered<XBORDER>(left + at, cells.width) < 0))
                beyond |= 1u << TURNS;
        }
        bring(from, cells, 0, 0, constant);
        bring(from, cells, 1, 1, constant);
        next(shared, from, cells, 0, 0, constant);
        next(shared, from, cells, 1, 1, constant);
    }
    /// Where a row of a plane begins. Of rows beyond a border that is constant nothing is read.
    template <typename Cells>
    static __device__ Index row_at(Index y, const Cells& cells) {
        return max(bordered<YBORDER>(y, cells.height), Index(0)) * cells.width;
    }
    /// Go on to the next plane of cells, which is the kth of a turn.
    template <typename Cells>
    __device__ __forceinline__ void move(
        planes& shared, const S* from, const Cells& cells, int plane, int k, const V& constant) {
        next(shared, from, cells, plane + 2, (k + 2) % HELD, constant);
    }
    /// Begin to copy a plane, counted from the one above the cells, to the one of shared memory where it is held.
    template <typename Cells>
    __device__ __forceinline__ void bring(const S* from, const Cells& cells, int plane, int held, const V& constant) {
        constexpr int ROW = WIDE + 2 * COUNT, PLANE = TALL * ROW;
        const Index z = bordered<ZBORDER>(cells.z + plane - 1, cells.depth);
        const char* const first = reinterpret_cast<const char*>(from + max(z, Index(0)) * (cells.height * cells.width));
        const unsigned int left_out = z < 0 ? ~0u : beyond;
        if (plane < PLANES + 2) {
            if (words_to != nullptr)
#pragma unroll
                for (int i = 0; i < TURNS; ++i)
                    if ((i + 1) * DOWN <= TALL || threadIdx.y + i * DOWN < TALL)
                        bring_few<COUNT>(words_to + held * PLANE + i * DOWN * ROW, first + words[i], left_out >> i & 1, constant);
            if (beside_to != nullptr) {
                if (is_word)
                    bring_few<BESIDE>(beside_to + held * PLANE, first + beside, left_out >> TURNS & 1, constant);
                else
                    bring_few<1>(beside_to + held * PLANE, first + beside, left_out >> TURNS & 1, constant);
            }
        }
        close_stage();
    }
    /// Begin to copy N elements, or write as many constants if they are beyond a border.
    template <int N>
    static __device__ __forceinline__ void bring_few(S* to, const char* from, bool is_beyond, const V& constant) {
        if (IS_WRITTEN && is_beyond) {
            pack<S, N> constants;
#pragma unroll
            for (int k = 0; k < N; ++k) constants.values[k] = as<S>(constant);
            *reinterpret_cast<pack<S, N>*>(to) = constants;  // `store_pack` is of global memory
        } else {
            stage<N>(to, reinterpret_cast<const S*>(from), N);
        }
    }
    /// Read a plane that has come, and begin to copy the one after the next.
    template <typename Cells>
    __device__ __forceinline__ void next(
        planes& shared, const S* from, const Cells& cells, int plane, int held, const V& constant) {
        wait_for_stages<1>();
        __syncthreads();
        bring(from, cells, plane + 2, (held + 2) % HELD, constant);
        const Index z = cells.z + plane - 1;
#pragma unroll
        for (int j = 0; j < ROWS + 2 * HY; ++j) {
            Read(&row)[COUNT + 2 * HX] = values[held][j];
            const Index y = cells.y + j - HY;
            const S* const line = &shared.values[held][threadIdx.y * ROWS + j][COUNT + threadIdx.x * COUNT];
            const pack<S, COUNT> own = load_pack<COUNT>(line);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) row[HX + k] = as<V>(own.values[k]);
#pragma unroll
            for (int k = 0; k < HX; ++k) {
                row[k] = as<V>(stored(line)[k - HX]);
                row[HX + COUNT + k] = as<V>(stored(line)[COUNT + k]);
            }
            if constexpr (!IS_CONSTANT || IS_WRITTEN) continue;
            const bool is_beyond = (ZBORDER == CONSTANT_BORDER && (z < 0 || z >= cells.depth)) ||
                                   (YBORDER == CONSTANT_BORDER && (y < 0 || y >= cells.height));
#pragma unroll
            for (int k = 0; k < COUNT + 2 * HX; ++k) {
                const Index x = cells.x + k - HX;
                const bool is_beside = XBORDER == CONSTANT_BORDER && (k < HX || k >= HX + COUNT) && (x < 0 || x >= cells.width);
                if (is_beyond || is_beside) row[k] = constant;
            }
        }
    }

    /// A cell and its neighbours: u(dz, dy, dx).
    struct cell {
        const staged_window& window;
        int plane, row, column;
        __device__ __forceinline__ Read operator()(int dz, int dy, int dx) const {
            if (dz < -1 || dz > 1 || dy < -HY || dy > HY || dx < -HX || dx > HX) __trap();
            return window.values[(plane + 1 + dz) % HELD][row + HY + dy][column + HX + dx];
        }
    };
    __device__ cell at(int plane, int row, int column) const { return {*this, plane, row, column}; }
};

}  // namespace cudakit
