// An array view that a kernel takes by value: any NumPy or CuPy view, without a copy.
//
// Layout, which the Python side packs byte for byte: pointer, then shape, then strides, each extent and stride a
// long long and each stride in elements (negative for a reversed axis, 0 for a broadcast one). RANK 0 is the pointer
// alone. <cudakit/mdspan.cuh> adds the conversion to cuda::std::mdspan, which costs the compiler half a second.
#pragma once

namespace cudakit {

template <typename T, int RANK>
struct strided;

/// What strided<T, RANK> converts to; <cudakit/mdspan.cuh> defines it.
template <typename T, int RANK>
struct mdspan_of;

namespace detail {
template <typename To, typename From>
struct adds_const {};
template <typename T>
struct adds_const<const T, T> {
    using type = int;
};

template <typename A, typename B>
struct same {};
template <typename A>
struct same<A, A> {
    using type = int;
};
template <typename Span, int RANK>
using if_mdspan = typename same<Span, typename mdspan_of<typename Span::element_type, RANK>::type>::type;
}  // namespace detail

template <typename T, int RANK>
struct strided {
    static_assert(RANK > 0, "a rank is never negative (RANK 0 is specialised below)");

    T* data;
    long long shape[RANK];
    long long strides[RANK];

    /// The element at (i, j, …); indices are not checked.
    template <typename... Index>
    __host__ __device__ constexpr T& operator()(Index... index) const {
        static_assert(sizeof...(Index) == RANK, "one index for each of the RANK dimensions");
        const long long at[] = {static_cast<long long>(index)...};
        long long offset = 0;
#pragma unroll
        for (int d = 0; d < RANK; ++d) offset += at[d] * strides[d];
        return data[offset];
    }

    /// The element with row-major number `index`, 0 ≤ index < size(), whatever the strides.
    __host__ __device__ constexpr T& element(long long index) const {
        // Unsigned: the division is cheaper, and a zero-length axis has no element to ask for.
        unsigned long long rest = static_cast<unsigned long long>(index);
        long long offset = 0;
#pragma unroll
        for (int d = RANK - 1; d > 0; --d) {
            const unsigned long long length = static_cast<unsigned long long>(shape[d]);
            offset += static_cast<long long>(rest % length) * strides[d];
            rest /= length;
        }
        return data[offset + static_cast<long long>(rest) * strides[0]];
    }

    __host__ __device__ constexpr long long extent(int dimension) const { return shape[dimension]; }
    __host__ __device__ constexpr long long stride(int dimension) const { return strides[dimension]; }

    __host__ __device__ constexpr long long size() const {
        long long product = 1;
#pragma unroll
        for (int d = 0; d < RANK; ++d) product *= shape[d];
        return product;
    }

    template <typename U, typename detail::adds_const<U, T>::type = 0>
    __host__ __device__ constexpr operator strided<U, RANK>() const {
        strided<U, RANK> view{data, {}, {}};
#pragma unroll
        for (int d = 0; d < RANK; ++d) {
            view.shape[d] = shape[d];
            view.strides[d] = strides[d];
        }
        return view;
    }

    // Templates, so that mdspan_of may stay undefined until someone asks.
    template <typename U = T>
    __host__ __device__ constexpr typename mdspan_of<U, RANK>::type mdspan() const {
        return mdspan_of<U, RANK>::of(*this);
    }
    template <typename Span, detail::if_mdspan<Span, RANK> = 0>
    __host__ __device__ constexpr operator Span() const {
        return mdspan<typename Span::element_type>();
    }
};

template <typename T>
struct strided<T, 0> {
    T* data;

    __host__ __device__ constexpr T& operator()() const { return *data; }
    __host__ __device__ constexpr T& element(long long) const { return *data; }
    __host__ __device__ constexpr long long size() const { return 1; }

    template <typename U, typename detail::adds_const<U, T>::type = 0>
    __host__ __device__ constexpr operator strided<U, 0>() const {
        return {data};
    }
    template <typename U = T>
    __host__ __device__ constexpr typename mdspan_of<U, 0>::type mdspan() const {
        return mdspan_of<U, 0>::of(*this);
    }
    template <typename Span, detail::if_mdspan<Span, 0> = 0>
    __host__ __device__ constexpr operator Span() const {
        return mdspan<typename Span::element_type>();
    }
};

namespace detail {
template <typename T, int RANK>
__host__ __device__ constexpr bool has_packed_layout() {
    using Strided = strided<T, RANK>;
    bool packed = sizeof(Strided) == sizeof(T*) + 2 * RANK * sizeof(long long);
    if constexpr (RANK > 0)
        packed = packed && __INTADDR__(&((Strided*)0)->shape) == sizeof(T*)
                 && __INTADDR__(&((Strided*)0)->strides) == sizeof(T*) + RANK * sizeof(long long);
    return packed && __is_standard_layout(Strided) && __is_trivially_copyable(Strided) && __is_trivial(Strided);
}
static_assert(
    has_packed_layout<char, 0>() && has_packed_layout<char, 1>() && has_packed_layout<double, 3>(),
    "the host packs pointer, shape and strides with nothing between them");
}  // namespace detail

}  // namespace cudakit
