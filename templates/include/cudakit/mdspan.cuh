// strided<T, RANK> as cuda::std::mdspan<T, dextents<long long, RANK>, layout_stride>: by .mdspan(), or implicitly.
//
// mdspan's own contract wants positive strides. Indexing one with a reversed or broadcast axis works all the same
// (libcu++ adds up index × stride), but required_span_size(), is_exhaustive() and is_unique() do not hold for it.
#pragma once

#include <cudakit/strided.cuh>

#include <cuda/std/array>
#include <cuda/std/mdspan>

namespace cudakit {

template <typename T, int RANK>
struct mdspan_of {
    using extents = ::cuda::std::dextents<long long, RANK>;
    using mapping = typename ::cuda::std::layout_stride::template mapping<extents>;
    using type = ::cuda::std::mdspan<T, extents, ::cuda::std::layout_stride>;

    template <typename U>
    __host__ __device__ static constexpr type of(const strided<U, RANK>& view) {
        if constexpr (RANK == 0) {
            return type(view.data, mapping());
        } else {
            ::cuda::std::array<long long, RANK> shape{}, strides{};
            for (int d = 0; d < RANK; ++d) {
                shape[d] = view.shape[d];
                strides[d] = view.strides[d];
            }
            return type(view.data, mapping(extents(shape), strides));
        }
    }
};

}  // namespace cudakit
