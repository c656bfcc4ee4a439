// The elements that a thread of a generated elementwise kernel does: COUNT neighbours of a contiguous array, or of one with
// strides; how each argument's are loaded and stored. Those of a tile of two dimensions are a block's: <cudakit/elementwise/tile.cuh>.
#pragma once

#include <cudakit/elementwise/neighbours.cuh>
#include <cudakit/elementwise/tile.cuh>
#include <cudakit/elementwise/values.cuh>
#include <cudakit/elementwise/walk.cuh>

namespace cudakit {

/// Thread t does the t-th COUNT elements of contiguous arrays of `size`.
template <int COUNT, bool APART>
struct flat_run {
    long long first, left;

    __device__ explicit flat_run(long long size)
        : first((static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * COUNT), left(size - first) {}
    __device__ bool is_empty() const { return left <= 0; }
    __device__ bool has(int k) const { return k < left; }
    __device__ long long index(int k) const { return first + k; }
    __device__ int count() const { return left < COUNT ? static_cast<int>(left) : COUNT; }

    /// The elements of an array that lies as the result is counted.
    template <typename T, typename S>
    __device__ few<T, COUNT> load(const S* x) const {
        return as_few<T>(load_some<COUNT, APART>(stored(x) + first, left));
    }
    template <typename S, typename T>
    __device__ void store(S* out, const few<T, COUNT>& values) const {
        store_few(out + first, values, count());
    }
    /// Only those where `mask` holds.
    template <typename S, typename T>
    __device__ void store(S* out, const few<T, COUNT>& values, const few<bool, COUNT>& mask) const {
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            if (k < left && mask.values[k]) out[first + k] = as<S>(values.values[k]);
    }
};

/// Thread t does the t-th COUNT elements, in row-major order, of RANK dimensions. `Index` is int where every index fits
/// one, else long long.
template <int COUNT, bool APART, int RANK, typename Index>
struct strided_run : flat_run<COUNT, APART> {
    using Flat = flat_run<COUNT, APART>;
    using Flat::first;
    using Flat::left;
    using Flat::load;
    using Flat::store;
    const long long (&shape)[RANK];
    walk<RANK, Index> at;
    bool is_row;

    __device__ strided_run(long long size, const long long (&shape)[RANK])
        : Flat(size), shape(shape), at(static_cast<Index>(left > 0 ? first : 0), shape),
          is_row(at.at[RANK - 1] + COUNT <= static_cast<Index>(shape[RANK - 1])) {}

    /// The number of element `k` where elements are counted with other `steps`.
    __device__ long long index(int k, const long long (&steps)[RANK]) const {
        if (is_row) return at.offset(steps) + k * steps[RANK - 1];
        walk<RANK, Index> place = at;
#pragma unroll
        for (int j = 0; j < COUNT; ++j)
            if (j < k) place.next(shape);
        return place.offset(steps);
    }
    using Flat::index;

    /// The elements of an array of any strides, `steps` in elements.
    template <typename T, typename S>
    __device__ few<T, COUNT> load(const S* x, const long long (&steps)[RANK]) const {
        const long long step = steps[RANK - 1];
        few<T, COUNT> result;
        if (is_row) {
            const auto* const source = stored(x) + at.offset(steps);
            if (step == 1) return load_few<T, COUNT, APART>(source);
            if (step == 0) {
                const T value = as<T>(*source);
#pragma unroll
                for (int k = 0; k < COUNT; ++k) result.values[k] = value;
                return result;
            }
#pragma unroll
            for (int k = 0; k < COUNT; ++k) result.values[k] = as<T>(source[k * step]);
            return result;
        }
        walk<RANK, Index> place = at;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            if (k < left) result.values[k] = as<T>(stored(x)[place.offset(steps)]);
            place.next(shape);
        }
        return result;
    }
    /// The same where `steps` are 2 along a row, of elements of 1 or 2 bytes: by the words that hold them.
    template <typename T, typename S>
    __device__ few<T, COUNT> load_second(const S* x, const long long (&steps)[RANK]) const {
        const long long before = at.at[RANK - 1], after = shape[RANK - 1] - before;
        if constexpr (APART && sizeof(S) * COUNT == 16) {
            // Other words than the row's own may not be there.
            if (is_row && before >= COUNT && after >= 2 * COUNT) {
                const auto* const source = stored(x) + at.offset(steps);
                const uint4 words = every_second<sizeof(S)>(load_unaligned(source), load_unaligned(source + COUNT));
                few<stored_t<S>, COUNT> found;
                memcpy(&found, &words, 16);
                return as_few<T>(found);
            }
        }
        return load<T>(x, steps);
    }
    template <typename S, typename T>
    __device__ void store(S* out, const few<T, COUNT>& values, const long long (&steps)[RANK]) const {
        few<bool, COUNT> all;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) all.values[k] = true;
        if (is_row && steps[RANK - 1] == 1)
            store_few(out + at.offset(steps), values, COUNT);
        else
            store(out, values, all, steps);
    }
    template <typename S, typename T>
    __device__ void store(
        S* out, const few<T, COUNT>& values, const few<bool, COUNT>& mask, const long long (&steps)[RANK]) const {
        walk<RANK, Index> place = at;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            if (k < left && mask.values[k]) out[place.offset(steps)] = as<S>(values.values[k]);
            place.next(shape);
        }
    }
};

/// Distances in bytes, as CuPy's arrays have them.
struct byte_steps {
    const long long* steps;
    int size;
    __device__ long long operator[](int d) const { return steps[d] * size; }
};

/// A raw argument of any strides: x[j] is the element with row-major number j, x(j, k, …) the one at coordinates, which
/// may be an array too: x[at].
template <typename T, int RANK>
struct raw {
    static constexpr int ndim = RANK;
    T* data;
    const long long (&extents)[RANK];
    const long long (&steps)[RANK];

    __device__ T& operator[](long long index) const {
        unsigned long long rest = static_cast<unsigned long long>(index);
        long long offset = 0;
#pragma unroll
        for (int d = RANK - 1; d > 0; --d) {
            const unsigned long long extent = static_cast<unsigned long long>(extents[d]);
            offset += static_cast<long long>(rest % extent) * steps[d];
            rest /= extent;
        }
        return data[offset + static_cast<long long>(rest) * steps[0]];
    }
    template <typename Index>
    __device__ T& operator[](const Index* at) const {
        long long offset = 0;
#pragma unroll
        for (int d = 0; d < RANK; ++d) offset += static_cast<long long>(at[d]) * steps[d];
        return data[offset];
    }
    template <typename... Index>
    __device__ T& operator()(Index... index) const {
        static_assert(sizeof...(Index) == RANK, "one index for each dimension of the raw argument");
        const long long at[] = {static_cast<long long>(index)...};
        return (*this)[at];
    }
    __device__ long long shape(int d) const { return extents[d]; }
    __device__ const long long* shape() const { return extents; }
    __device__ byte_steps strides() const { return {steps, sizeof(T)}; }
    __device__ long long size() const {
        long long product = 1;
#pragma unroll
        for (int d = 0; d < RANK; ++d) product *= extents[d];
        return product;
    }
};

/// `_ind`: the coordinates of an element, with what CuPy's indexer has.
template <int NDIM>
struct coordinates {
    long long at[NDIM > 0 ? NDIM : 1];
    const long long* extents;
    long long count;

    __device__ coordinates(long long index, const long long* shape, long long size) : at{}, extents(shape), count(size) {
#pragma unroll
        for (int d = NDIM - 1; d >= 0; --d) {
            at[d] = static_cast<long long>(static_cast<unsigned long long>(index) % static_cast<unsigned long long>(shape[d]));
            index /= shape[d];
        }
    }
    __device__ long long operator[](int d) const { return at[d]; }
    __device__ const long long* get() const { return at; }
    __device__ const long long* shape() const { return extents; }
    __device__ long long size() const { return count; }
};

}  // namespace cudakit
