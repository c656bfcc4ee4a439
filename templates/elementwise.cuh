#include <cudakit/elementwise/convert.cuh>
#include <cudakit/pack.cuh>
#include <cudakit/elementwise/walk.cuh>

namespace cudakit {

/// a + b, both as R first; bool: a or b, as NumPy has it.
template <typename R>
struct adding {
    template <typename A, typename B>
    __device__ R operator()(A a, B b) const {
        const R left = convert<R>(a), right = convert<R>(b);
        if constexpr (detail::number<R>::is_complex) {
            return {left.real + right.real, left.imaginary + right.imaginary};
        } else if constexpr (!detail::number<R>::is_wide) {
            // A sum in float, rounded once more, is the sum rounded once: 24 bits are at least 2 · 11 + 2.
            return static_cast<R>(static_cast<float>(left) + static_cast<float>(right));
        } else if constexpr (detail::is_one_type<R, bool>) {
            return left || right;
        } else {
            return static_cast<R>(left + right);
        }
    }
};

template <int FIRST, int... OTHERS>
struct greatest_of {
    static constexpr int value = FIRST;
};
template <int FIRST, int SECOND, int... OTHERS>
struct greatest_of<FIRST, SECOND, OTHERS...> {
    static constexpr int value = greatest_of<(FIRST > SECOND ? FIRST : SECOND), OTHERS...>::value;
};

}  // namespace cudakit

// out[i] = op(x[i], y[i])
//
// Shapes: x, y and out (size), contiguous; A, B and R are their elements' types.
// Threads: thread t does the t-th 16 bytes (of the widest type).
// Memory: sizeof(A) + sizeof(B) + sizeof(R) bytes an element, by accesses of 16 bytes of the widest type where the array is
//   aligned; one element at a time at the end. What is written is not kept in the cache.
// Preconditions: out overlaps neither x nor y; or it is one of them, where not APART.
// Launch: BLOCK threads, one for each 16 bytes of the widest type.
// Source: Luitjens, Increase performance with vectorized memory access, NVIDIA technical blog (2013).
template <typename A, typename B, typename R, typename Op, bool APART = false, int BLOCK = 128>
__global__ void __launch_bounds__(BLOCK) binary(const void* x, const void* y, void* out, long long size) {
    constexpr int COUNT = 16 / cudakit::greatest_of<sizeof(A), sizeof(B), sizeof(R)>::value;
    const Op op;
    const long long first = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * COUNT;
    const A* const a = static_cast<const A*>(x) + first;
    const B* const b = static_cast<const B*>(y) + first;
    R* const r = static_cast<R*>(out) + first;
    if (first + COUNT <= size) {
        const auto left = cudakit::load_spaced<COUNT, APART>(a, 1);
        const auto right = cudakit::load_spaced<COUNT, APART>(b, 1);
        cudakit::pack<R, COUNT> result;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) result.values[k] = op(left.values[k], right.values[k]);
        if (cudakit::is_aligned<cudakit::pack<R, COUNT>>(r))
            cudakit::store_pack_once(r, result);
        else
            cudakit::store_some(r, result, COUNT);
        return;
    }
    for (int k = 0; first + k < size; ++k) r[k] = op(a[k], b[k]);
}

// out[k₀, k₁, …] = op(x[k₀, k₁, …], y[k₀, k₁, …])
//
// Shapes: layout.shape, RANK dimensions, at distances layout.x, layout.y and layout.out in elements (0 where an array is
//   repeated) from elements x_start, y_start and out_start. Index is int where all indices fit it, else long long.
// Threads: thread t does the t-th 16 bytes (of the widest type) of the result.
// Memory: as `binary` along the last dimension where the array has neighbours there.
// Preconditions: out does not overlap x or y.
// Launch: BLOCK threads, ceil(size / elements of a thread) in all.
// Source: Luitjens, Increase performance with vectorized memory access, NVIDIA technical blog (2013).
template <typename A, typename B, typename R, typename Op, int RANK, typename Index, typename Layout, int BLOCK = 256>
__global__ void __launch_bounds__(BLOCK) binary_strided(
    const void* x, const void* y, void* out, long long x_start, long long y_start, long long out_start, long long size,
    Layout layout) {
    constexpr int COUNT = 16 / cudakit::greatest_of<sizeof(A), sizeof(B), sizeof(R)>::value;
    const Op op;
    const A* const a = static_cast<const A*>(x) + x_start;
    const B* const b = static_cast<const B*>(y) + y_start;
    R* const r = static_cast<R*>(out) + out_start;
    const long long first = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * COUNT;
    if (first >= size) return;
    cudakit::walk<RANK, Index> walk(static_cast<Index>(first), layout.shape);
    if (walk.at[RANK - 1] + COUNT <= static_cast<Index>(layout.shape[RANK - 1]) && layout.out[RANK - 1] == 1) {
        const auto left = cudakit::load_spaced<COUNT>(a + walk.offset(layout.x), layout.x[RANK - 1]);
        const auto right = cudakit::load_spaced<COUNT>(b + walk.offset(layout.y), layout.y[RANK - 1]);
        cudakit::pack<R, COUNT> result;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) result.values[k] = op(left.values[k], right.values[k]);
        cudakit::store_some(r + walk.offset(layout.out), result, COUNT);
        return;
    }
    for (int k = 0; k < COUNT && first + k < size; ++k) {
        r[walk.offset(layout.out)] = op(a[walk.offset(layout.x)], b[walk.offset(layout.y)]);
        walk.next(layout.shape);
    }
}
