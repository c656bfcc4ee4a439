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
struct tensor_layout {};

template <typename T, int RANK, typename Layout = tensor_layout<-1, 1, false, int>>
struct tensor;

template <typename T, int RANK, int UNIT, int ALIGN, bool WHOLE, typename Index>
struct tensor<T, RANK, tensor_layout<UNIT, ALIGN, WHOLE, Index>> {
    static_assert(RANK > 0, "one element is a pointer's");

    using element_type = T;

    T* address;
    int extents[RANK];
    Index strides[RANK];

    __tile__ T* data() const { return address; }
    /// Elements along an axis.
    __tile__ int extent(int axis) const { return extents[axis]; }
    /// Elements from one to the next along an axis.
    __tile__ Index stride(int axis) const { return strides[axis]; }

    /// The array as cuda::tiles has it, with all that is known of its layout.
    __tile__ auto span() const { return span_of(cuda::tiles::detail::make_index_sequence<RANK>{}); }

   private:
    static constexpr int PART = ALIGN > (int)sizeof(T) ? ALIGN / (int)sizeof(T) : 1;

    template <bool IS_PART>
    __tile__ static Index count(Index elements) {
        namespace ct = cuda::tiles;
        if constexpr (IS_PART && PART > 1) elements = ct::assume_divisible(elements, ct::integral_constant<PART>{});
        return ct::assume_bounded_below(elements, ct::integral_constant<0>{});
    }

    template <auto... AXIS>
    __tile__ auto span_of(cuda::tiles::detail::index_sequence<AXIS...>) const {
        namespace ct = cuda::tiles;
        using Extents = ct::extents<Index, (AXIS, ct::dynamic_extent)...>;
        using Strides = ct::strides<Index, ((int)AXIS == UNIT ? 1 : ct::dynamic_stride)...>;
        T* aligned = address;
        if constexpr (PART > 1) aligned = ct::assume_aligned(address, ct::integral_constant<ALIGN>{});
        return ct::tensor_span{aligned, ct::layout_strided_mapping<Extents, Strides>{
                                            Extents{count<WHOLE && (int)AXIS == UNIT>(extents[AXIS])...},
                                            Strides{count<(int)AXIS != UNIT>(strides[AXIS])...}}};
    }
};

/// An array as tiles of these extents, side by side: what `load_masked` and `store_masked` take tiles from.
template <int... TILE, typename T, int RANK, typename Layout>
__tile__ auto view(const tensor<T, RANK, Layout>& array) {
    static_assert(sizeof...(TILE) == RANK, "a tile has an extent for each axis");
    return cuda::tiles::partition_view{array.span(), cuda::tiles::shape<TILE...>{}};
}

}  // namespace cudakit
