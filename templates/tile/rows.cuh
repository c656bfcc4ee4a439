#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "cuda_tile.h"

namespace cudakit {

namespace ct = cuda::tiles;

// Rows of N elements, of which n are there, as tiles of ROWS of them.
template <int N, int ROWS, int ALIGN, typename T>
__tile__ auto rows_of(T* p, int rows, int n, int pitch) {
    using namespace ct::literals;
    if constexpr (ALIGN > sizeof(T)) {
        p = ct::assume_aligned(p, ct::integral_constant<ALIGN>{});
        pitch = ct::assume_divisible(pitch, ct::integral_constant<ALIGN / (int)sizeof(T)>{});
    }
    pitch = ct::assume_bounded_below(pitch, 1_ic);
    ct::layout_strided_mapping lying{ct::extents{rows, n}, ct::strides{pitch, 1_ic}};
    return ct::partition_view{ct::tensor_span{p, lying}, ct::shape<ROWS, N>{}};
}
template <int N, typename T>
__tile__ auto one_row(const T* p, int n) {
    auto all = ct::partition_view{ct::tensor_span{p, ct::extents{n}}, ct::shape<N>{}};
    return ct::reshape(ct::element_cast<float>(all.load_masked(0)), ct::shape<1, N>{});
}

// y = softmax(scale · x + bias), row by row: a softmax with what comes before it, in one pass. Computed in float.
// Shapes: x and y are rows × n, rows `pitch` elements apart; the bias n. N, a power of two, is n or more.
// Threads: a block takes ROWS rows at a time, num_blocks · ROWS apart; each is in the registers of all its threads;
//   BLOCKS run at once on a multiprocessor.
// Memory: each element is read once and written once, by TMA where ALIGN is 16. What a row of N has beyond n is not read.
// Preconditions: addresses and the pitch are multiples of ALIGN bytes. N is at most some thousands, or registers spill.
// Launch: as many blocks along x as there are rows / ROWS, or fewer.
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax (2018), of which a row here needs no more
//   than the greatest element.
template <typename T, int N, int ROWS, int BLOCKS, int ALIGN, bool BIAS>
[[cutile::hint(0, occupancy=BLOCKS)]]
__tile_global__ void softmax(const T* __restrict__ x, const T* __restrict__ bias, T* __restrict__ y, float scale,
                             int rows, int n, int pitch) {
    using namespace ct::literals;
    rows = ct::assume_bounded_below(rows, 0_ic), n = ct::assume_bounded_below(n, 1_ic);
    auto in = rows_of<N, ROWS, ALIGN>(x, rows, n, pitch);
    auto out = rows_of<N, ROWS, ALIGN>(y, rows, n, pitch);
    auto column = ct::reshape(ct::iota<ct::tile<int, ct::shape<N>>>(), ct::shape<1, N>{});
    for (auto i : ct::irange((int)ct::bid().x, (rows + ROWS - 1) / ROWS, (int)ct::num_blocks().x)) {
        auto row = ct::element_cast<float>(in.load_masked(i, 0)) * scale;
        if constexpr (BIAS) row = row + one_row<N>(bias, n);
        row = ct::select(column < n, row, ct::full<ct::tile<float, ct::shape<ROWS, N>>>(-1e30f));
        row = (row - ct::reduce_max(row, 1_ic)) * 1.4426950408889634f;
        auto powers = ct::exp2(row, ct::round_subnormals_to_zero_t{});
        out.store_masked(ct::element_cast<T>(powers * (1.0f / ct::sum(powers, 1_ic))), i, 0);
    }
}

// y = (x − mean) / √(variance + eps) · weight + bias, row by row; AFFINE: with weight and bias. Computed in float.
// Shapes: As `softmax`; the weight n, too.
// Threads: As `softmax`.
// Memory: As `softmax`.
// Preconditions: As `softmax`.
// Launch: As `softmax`.
// Source: Ba, Kiros and Hinton, Layer normalization (2016); the variance is that of what is left of the mean, not of squares.
template <typename T, int N, int ROWS, int BLOCKS, int ALIGN, bool AFFINE>
[[cutile::hint(0, occupancy=BLOCKS)]]
__tile_global__ void layernorm(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias,
                               T* __restrict__ y, float eps, int rows, int n, int pitch) {
    using namespace ct::literals;
    rows = ct::assume_bounded_below(rows, 0_ic), n = ct::assume_bounded_below(n, 1_ic);
    auto in = rows_of<N, ROWS, ALIGN>(x, rows, n, pitch);
    auto out = rows_of<N, ROWS, ALIGN>(y, rows, n, pitch);
    auto column = ct::reshape(ct::iota<ct::tile<int, ct::shape<N>>>(), ct::shape<1, N>{});
    for (auto i : ct::irange((int)ct::bid().x, (rows + ROWS - 1) / ROWS, (int)ct::num_blocks().x)) {
        auto row = ct::element_cast<float>(in.load_masked(i, 0));
        row = row - ct::sum(row, 1_ic) * (1.0f / n);
        row = ct::select(column < n, row, ct::zeros<ct::tile<float, ct::shape<ROWS, N>>>());
        row = row * ct::rsqrt(ct::sum(row * row, 1_ic) * (1.0f / n) + eps);
        if constexpr (AFFINE) row = row * one_row<N>(weight, n) + one_row<N>(bias, n);
        out.store_masked(ct::element_cast<T>(row), i, 0);
    }
}

}  // namespace cudakit
