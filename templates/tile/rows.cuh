#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "cuda_tile.h"

namespace cudakit {

namespace ct = cuda::tiles;

// y = softmax(scale · x + bias), row by row: a softmax with what comes before it, in one pass. Computed in float.
// Shapes: x and y are rows × n, rows `pitch` elements apart; the bias n. N, a power of two, is n or more.
// Threads: a block takes ROWS rows at a time, num_blocks · ROWS apart; each is in the registers of all its threads.
// Memory: each element is read once and written once, by TMA where ALIGN is 16. What a row of N has beyond n is not read.
// Preconditions: addresses and the pitch are multiples of ALIGN bytes. N is at most some thousands, or registers spill.
// Launch: as many blocks along x as run at once, or fewer.
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax (2018), of which a row here needs no more
//   than the greatest element.
template <typename T, int N, int ROWS, int ALIGN, bool BIAS>
__tile_global__ void softmax(const T* __restrict__ x, const T* __restrict__ bias, T* __restrict__ y, float scale,
                             int rows, int n, int pitch) {
    using namespace ct::literals;
    if constexpr (ALIGN > sizeof(T)) {
        x = ct::assume_aligned(x, ct::integral_constant<ALIGN>{});
        y = ct::assume_aligned(y, ct::integral_constant<ALIGN>{});
        pitch = ct::assume_divisible(pitch, ct::integral_constant<ALIGN / (int)sizeof(T)>{});
    }
    rows = ct::assume_bounded_below(rows, 0_ic), n = ct::assume_bounded_below(n, 1_ic);
    pitch = ct::assume_bounded_below(pitch, 1_ic);
    ct::layout_strided_mapping lying{ct::extents{rows, n}, ct::strides{pitch, 1_ic}};
    auto in = ct::partition_view{ct::tensor_span{x, lying}, ct::shape<ROWS, N>{}};
    auto out = ct::partition_view{ct::tensor_span{y, lying}, ct::shape<ROWS, N>{}};
    auto before = ct::partition_view{ct::tensor_span{bias, ct::extents{n}}, ct::shape<N>{}};
    auto column = ct::reshape(ct::iota<ct::tile<int, ct::shape<N>>>(), ct::shape<1, N>{});
    for (auto i : ct::irange((int)ct::bid().x, (rows + ROWS - 1) / ROWS, (int)ct::num_blocks().x)) {
        auto row = ct::element_cast<float>(in.load_masked(i, 0)) * scale;
        if constexpr (BIAS)
            row = row + ct::reshape(ct::element_cast<float>(before.load_masked(0)), ct::shape<1, N>{});
        row = ct::select(column < n, row, ct::full<ct::tile<float, ct::shape<ROWS, N>>>(-1e30f));
        row = (row - ct::reduce_max(row, 1_ic)) * 1.4426950408889634f;
        auto powers = ct::exp2(row, ct::round_subnormals_to_zero_t{});
        out.store_masked(ct::element_cast<T>(powers / ct::sum(powers, 1_ic)), i, 0);
    }
}

}  // namespace cudakit
