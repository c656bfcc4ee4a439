#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_tf32.h>
#include "cuda_tile.h"

namespace cudakit {

namespace ct = cuda::tiles;

// What becomes of a product before it is stored as Out: each takes and gives a tile of accumulators.
struct identity {
    template <typename Out, typename Tile>
    static __tile__ Tile of(Tile x) { return x; }
};
struct relu {
    template <typename Out, typename Tile>
    static __tile__ Tile of(Tile x) { return ct::max(x, ct::zeros<Tile>()); }
};
template <typename Out>
inline constexpr bool is_bfloat16 = false;
template <>
inline constexpr bool is_bfloat16<__nv_bfloat16> = true;
// 2 x · sigmoid(2 z). For bfloat16 by the hardware's tanh, which is right to 2⁻¹¹: an eighth of what x itself is
// rounded by. Otherwise by exponentials, without the steps that make a division exact.
template <typename Out, typename Tile>
__tile__ Tile gated(Tile x, Tile z) {
    if constexpr (is_bfloat16<Out>) return x * ct::tanh(z, ct::round_approximate_t{}) + x;
    auto power = ct::exp2(z * -2.8853900817779268f, ct::round_subnormals_to_zero_t{});
    return ct::div(x + x, power + 1.0f, ct::round_approximate_t{}, ct::round_subnormals_to_zero_t{});
}
// x · sigmoid(x)
struct silu {
    template <typename Out, typename Tile>
    static __tile__ Tile of(Tile x) { return gated<Out>(x * 0.5f, x * 0.5f); }
};
// x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))
struct gelu {
    template <typename Out, typename Tile>
    static __tile__ Tile of(Tile x) {
        return gated<Out>(x * 0.5f, x * (x * x * 0.035677408136300125f + 0.7978845608028654f));
    }
};

// A count of elements T that is known to make up multiples of ALIGN bytes, and an address that is such a multiple.
template <int ALIGN, typename T, typename Index>
__tile__ Index aligned_count(Index count) {
    using namespace ct::literals;
    if constexpr (ALIGN > sizeof(T))
        count = ct::assume_divisible(count, ct::integral_constant<ALIGN / (int)sizeof(T)>{});
    return ct::assume_bounded_below(count, 0_ic);
}
template <int ALIGN, typename T>
__tile__ T* aligned(T* p) {
    if constexpr (ALIGN > sizeof(T)) return ct::assume_aligned(p, ct::integral_constant<ALIGN>{});
    else return p;
}

// Tiles of ROWS × COLUMNS of one matrix, or of a batch of them, whose rows are `pitch` elements apart. Tiles begin
// DOWN rows and ALONG columns apart.
template <int ROWS, int COLUMNS, bool BATCHED, int DOWN = ROWS, int ALONG = COLUMNS, typename Index, typename T>
__tile__ auto tiles_of(T* p, int batches, int rows, int columns, Index step, Index pitch) {
    using namespace ct::literals;
    if constexpr (BATCHED) {
        auto span = ct::tensor_span{p, ct::layout_strided_mapping{ct::extents{batches, rows, columns},
                                                                  ct::strides{step, pitch, 1_ic}}};
        if constexpr (DOWN == ROWS && ALONG == COLUMNS) return ct::partition_view{span, ct::shape<1, ROWS, COLUMNS>{}};
        else return ct::strided_view{span, ct::shape<1, ROWS, COLUMNS>{}, ct::strides<typename decltype(span)::index_type, 1, DOWN, ALONG>{}};
    } else {
        auto span = ct::tensor_span{p, ct::layout_strided_mapping{ct::extents{rows, columns}, ct::strides{pitch, 1_ic}}};
        if constexpr (DOWN == ROWS && ALONG == COLUMNS) return ct::partition_view{span, ct::shape<ROWS, COLUMNS>{}};
        else return ct::strided_view{span, ct::shape<ROWS, COLUMNS>{}, ct::strides<typename decltype(span)::index_type, DOWN, ALONG>{}};
    }
}
// The same of one row of `columns` elements.
template <int COLUMNS, int ALONG, typename T>
__tile__ auto strips_of(T* p, int columns) {
    auto span = ct::tensor_span{p, ct::extents{columns}};
    if constexpr (ALONG == COLUMNS) return ct::partition_view{span, ct::shape<COLUMNS>{}};
    else return ct::strided_view{span, ct::shape<COLUMNS>{}, ct::strides<typename decltype(span)::index_type, ALONG>{}};
}
template <int ROWS, int COLUMNS, bool BATCHED, typename View>
__tile__ auto tile_at(const View& view, int batch, int row, int column) {
    if constexpr (BATCHED) return ct::reshape(view.load_masked(batch, row, column), ct::shape<ROWS, COLUMNS>{});
    else return view.load_masked(row, column);
}

template <bool TURNED, typename Tile>
__tile__ auto turned_if(Tile x) {
    if constexpr (TURNED) return ct::transpose(x);
    else return x;
}
// As the tensor cores take it, and turned where it was stored the other way round.
template <typename Mma, bool TURNED, typename Tile>
__tile__ auto operand(Tile x) {
    return ct::element_cast<Mma>(turned_if<TURNED>(x));
}

// activation(scale · sum + bias) + residual as tile (row, column) of C, BM × BN; tiles begin ALONG columns apart.
template <typename Out, typename Activation, int BM, int BN, int ALONG, bool BATCHED, bool BIAS, bool RESIDUAL,
          typename Index, typename Sum>
__tile__ void store_tile(Sum sum, float scale, const Out* bias, const Out* residual, Out* c, int batches, int m, int n,
                         Index step_c, Index ldc, int batch, int row, int column) {
    auto x = sum * scale;
    if constexpr (BIAS) {
        auto all = strips_of<BN, ALONG>(bias, n);
        x = x + ct::reshape(ct::element_cast<float>(all.load_masked(column)), ct::shape<1, BN>{});
    }
    x = Activation::template of<Out>(x);
    if constexpr (RESIDUAL) {
        auto all = tiles_of<BM, BN, BATCHED, BM, ALONG>(residual, batches, m, n, step_c, ldc);
        x = x + ct::element_cast<float>(tile_at<BM, BN, BATCHED>(all, batch, row, column));
    }
    auto out = tiles_of<BM, BN, BATCHED, BM, ALONG>(c, batches, m, n, step_c, ldc);
    auto made = ct::element_cast<Out>(x);
    if constexpr (BATCHED) out.store_masked(ct::reshape(made, ct::shape<1, BM, BN>{}), batch, row, column);
    else out.store_masked(made, row, column);
}

// C = activation(scale · A B + bias) + residual, one matrix or a batch of them; sums in float.
// Shapes: A is m × k, B is k × n, C and the residual are m × n, the bias n; rows are lda, ldb and ldc elements apart,
//   matrices step_a, step_b and step_c. A_TURNED: A is stored k × m; B_TURNED: B is stored n × k.
// Threads: a block makes a tile of BM × BN of C or, PERSISTENT, several, num_blocks apart; WARPS do the products and
//   others fetch; a tile is shared by CTAS. Neighbouring blocks make tiles of GROUP rows of tiles, column after
//   column, so that what they read of A and B is in L2. SWAPPED: a tile is made as Bᵀ Aᵀ, and turned to be stored:
//   the tensor cores then take Bᵀ from registers, which they must where B is float and not B_TURNED, and tiles of few
//   rows of A, of which they take 16 or more, and 64 of the other. MORE: columns beside the BN that a block makes too, a
//   tile of their own, as extents are powers of two: with 128 + 64 and 128 + 32 fewer multiprocessors wait at the end.
// Memory: A is read n / BN times and B m / BM times, mostly from L2; C is written once, bias and residual are read once.
//   The compiler moves tiles by TMA where ALIGN is 16, those of C where OUT_ALIGN is; by threads, and what is read
//   far more slowly, where they are less.
// Preconditions: addresses, pitches and steps of A and B are multiples of ALIGN bytes; those of C, bias and residual,
//   and rows of C, of OUT_ALIGN. Tile extents are powers of two, and BN is a multiple of MORE. Mma is what `mma` takes and T is cast to: __nv_tf32
//   for float. Index, the type of pitches, holds each matrix's number of elements. What is not read (bias, residual)
//   may be any address; C overlaps nothing that is.
// Launch: as many blocks along x as there are tiles of all matrices or, PERSISTENT, as run at once.
// Source: the order of tiles is that of Tillet, Kung and Cox, Triton (2019).
template <typename T, typename Mma, typename Out, typename Activation, typename Index, int BM, int BN, int BK, int WARPS,
          int CTAS, int ALIGN, int OUT_ALIGN, bool A_TURNED, bool B_TURNED, bool BATCHED, bool BIAS, bool RESIDUAL,
          bool PERSISTENT, bool SWAPPED, int MORE = 0, int GROUP = 8>
[[cutile::hint(0, num_worker_warps_per_cta=WARPS, num_cta_in_cga=CTAS)]]
__tile_global__ void matmul(const T* __restrict__ a, const T* __restrict__ b, const Out* __restrict__ bias,
                            const Out* __restrict__ residual, Out* __restrict__ c, float scale, int batches, int m,
                            int n, int k, Index lda, Index ldb, Index ldc, Index step_a, Index step_b,
                            Index step_c) {
    using namespace ct::literals;
    a = aligned<ALIGN>(a), b = aligned<ALIGN>(b), c = aligned<OUT_ALIGN>(c);
    lda = aligned_count<ALIGN, T>(lda), ldb = aligned_count<ALIGN, T>(ldb), ldc = aligned_count<OUT_ALIGN, Out>(ldc);
    step_a = aligned_count<ALIGN, T>(step_a), step_b = aligned_count<ALIGN, T>(step_b);
    step_c = aligned_count<OUT_ALIGN, Out>(step_c);
    n = aligned_count<OUT_ALIGN, Out>(n), m = ct::assume_bounded_below(m, 0_ic);
    k = ct::assume_bounded_below(k, 0_ic), batches = ct::assume_bounded_below(batches, 0_ic);
    if constexpr (BIAS) bias = aligned<OUT_ALIGN>(bias);
    if constexpr (RESIDUAL) residual = aligned<OUT_ALIGN>(residual);

    constexpr int AR = A_TURNED ? BK : BM, AC = A_TURNED ? BM : BK, BR = B_TURNED ? BN : BK, BC = B_TURNED ? BK : BN;
    constexpr int WIDE = BN + MORE, BESIDE = MORE ? MORE : BN;
    constexpr int SIDE_R = B_TURNED ? BESIDE : BK, SIDE_C = B_TURNED ? BK : BESIDE;
    auto left = tiles_of<AR, AC, BATCHED>(a, batches, A_TURNED ? k : m, A_TURNED ? m : k, step_a, lda);
    auto right = tiles_of<BR, BC, BATCHED, B_TURNED ? WIDE : BK, B_TURNED ? BK : WIDE>(
        b, batches, B_TURNED ? n : k, B_TURNED ? k : n, step_b, ldb);
    auto beside = tiles_of<SIDE_R, SIDE_C, BATCHED>(b, batches, B_TURNED ? n : k, B_TURNED ? k : n, step_b, ldb);

    const int rows = (m + BM - 1) / BM, columns = (n + WIDE - 1) / WIDE, deep = (k + BK - 1) / BK, each = rows * columns;
    const int mine = ct::bid().x, end = PERSISTENT ? (BATCHED ? each * batches : each) : mine + 1;
    for (auto i : ct::irange(mine, end, PERSISTENT ? (int)ct::num_blocks().x : 1)) {
        const int batch = BATCHED ? i / each : 0, t = BATCHED ? i % each : i;
        const int group = GROUP * columns, first = t / group * GROUP, height = ct::min(rows - first, GROUP);
        const int row = first + t % group % height, column = t % group / height;
        // What lies beside a tile may be wholly outside: then it is made of the last there is, and not stored.
        const int side = column * (WIDE / BESIDE) + BN / BESIDE, near = ct::min(side, (n - 1) / BESIDE);
        auto sum = ct::zeros<ct::tile<float, ct::shape<SWAPPED ? BN : BM, SWAPPED ? BM : BN>>>();
        auto other = ct::zeros<ct::tile<float, ct::shape<SWAPPED ? BESIDE : BM, SWAPPED ? BM : BESIDE>>>();
        for (auto j : ct::irange(0, deep)) {
            auto x = tile_at<AR, AC, BATCHED>(left, batch, A_TURNED ? j : row, A_TURNED ? row : j);
            auto y = tile_at<BR, BC, BATCHED>(right, batch, B_TURNED ? column : j, B_TURNED ? j : column);
            if constexpr (SWAPPED) sum = ct::mma(operand<Mma, !B_TURNED>(y), operand<Mma, !A_TURNED>(x), sum);
            else sum = ct::mma(operand<Mma, A_TURNED>(x), operand<Mma, B_TURNED>(y), sum);
            if constexpr (MORE > 0) {
                auto z = tile_at<SIDE_R, SIDE_C, BATCHED>(beside, batch, B_TURNED ? near : j, B_TURNED ? j : near);
                if constexpr (SWAPPED) other = ct::mma(operand<Mma, !B_TURNED>(z), operand<Mma, !A_TURNED>(x), other);
                else other = ct::mma(operand<Mma, A_TURNED>(x), operand<Mma, B_TURNED>(z), other);
            }
        }
        store_tile<Out, Activation, BM, BN, WIDE, BATCHED, BIAS, RESIDUAL>(
            turned_if<SWAPPED>(sum), scale, bias, residual, c, batches, m, n, step_c, ldc, batch, row, column);
        if constexpr (MORE > 0)
            if (side == near)
                store_tile<Out, Activation, BM, MORE, MORE, BATCHED, BIAS, RESIDUAL>(
                    turned_if<SWAPPED>(other), scale, bias, residual, c, batches, m, n, step_c, ldc, batch, row, side);
    }
}

}  // namespace cudakit
