// An array that a tile kernel takes whole: any NumPy or CuPy view, without a copy.
//
// Tile C++ passes no structs to kernels. So cudakit compiles such a kernel with the address, RANK extents and RANK
// strides in the place of its parameter, and lets the body begin with the `tensor` that they make. What the compiler can
// use of the layout is in the type: it is that of the arrays of the call.
#pragma once

#include "cuda_tile.h"

namespace cudakit {

/// What is known of a layout: elements along axis UNIT lie side by side (-1: along none); the address and all other
/// strides are multiples of ALIGN bytes and, where rows are WHOLE, the extent of that axis is too; Index holds all
/// counts of elements.
template <int UNIT, int ALIGN, bool WHOLE, typename Index>
struct tensor_layout;

template <typename T, int RANK, typename Layout = tensor_layout<-1, 1, false, int>>
struct tensor;

namespace detail {

template <int ALIGN, typename T>
__tile__ T* known_address(T* address) {
    if constexpr (ALIGN > (int)sizeof(T))
        address = cuda::tiles::assume_aligned(address, cuda::tiles::integral_constant<ALIGN>{});
    return address;
}

/// Elements, no fewer than none, and of a multiple of PART.
template <int PART, typename Index>
__tile__ Index known_count(Index elements) {
    if constexpr (PART > 1) elements = cuda::tiles::assume_divisible(elements, cuda::tiles::integral_constant<PART>{});
    return cuda::tiles::assume_bounded_below(elements, cuda::tiles::integral_constant<0>{});
}

template <int, typename T>
using repeated = T;

template <typename Layout, typename T, typename Axes>
struct tensor_maker;

template <int UNIT, int ALIGN, bool WHOLE, typename Index, typename T, auto... AXIS>
struct tensor_maker<tensor_layout<UNIT, ALIGN, WHOLE, Index>, T, cuda::tiles::detail::index_sequence<AXIS...>> {
    using made = tensor<T, sizeof...(AXIS), tensor_layout<UNIT, ALIGN, WHOLE, Index>>;
    static constexpr int PART = ALIGN > (int)sizeof(T) ? ALIGN / (int)sizeof(T) : 1;

    __tile__ static made of(T* address, repeated<AXIS, int>... extents, repeated<AXIS, Index>... strides) {
        return {known_address<ALIGN>(address),
                {known_count<WHOLE && (int)AXIS == UNIT ? PART : 1>(extents)...},
                {known_count<(int)AXIS == UNIT ? 1 : PART>(strides)...}};
    }
    __tile__ static auto span(const made& whole) {
        namespace ct = cuda::tiles;
        using Extents = ct::extents<Index, (AXIS, ct::dynamic_extent)...>;
        using Strides = ct::strides<Index, ((int)AXIS == UNIT ? 1 : ct::dynamic_stride)...>;
        return ct::tensor_span{whole.address, ct::layout_strided_mapping<Extents, Strides>{
                                                  Extents{Index(whole.extents[AXIS])...},
                                                  Strides{whole.strides[AXIS]...}}};
    }
};

}  // namespace detail

template <typename T, int RANK, int UNIT, int ALIGN, bool WHOLE, typename Index>
struct tensor<T, RANK, tensor_layout<UNIT, ALIGN, WHOLE, Index>> {
    static_assert(RANK > 0, "one element is a pointer's");

    using element_type = T;

    T* address;
    int extents[RANK];
    Index strides[RANK];

    using maker = detail::tensor_maker<tensor_layout<UNIT, ALIGN, WHOLE, Index>, T,
                                       cuda::tiles::detail::make_index_sequence<RANK>>;

    __tile__ T* data() const { return address; }
    /// Elements along an axis.
    __tile__ int extent(int axis) const { return extents[axis]; }
    /// Elements from one to the next along an axis.
    __tile__ Index stride(int axis) const { return strides[axis]; }
    /// The array as cuda::tiles has it.
    __tile__ auto span() const { return maker::span(*this); }
};

/// An array as tiles of these extents, side by side: what `load_masked` and `store_masked` take tiles from.
template <int... TILE, typename T, int RANK, typename Layout>
__tile__ auto view(const tensor<T, RANK, Layout>& array) {
    static_assert(sizeof...(TILE) == RANK, "a tile has an extent for each axis");
    return cuda::tiles::partition_view{array.span(), cuda::tiles::shape<TILE...>{}};
}

}  // namespace cudakit
