#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "cuda_tile.h"

namespace cudakit {

namespace ct = cuda::tiles;

// Rows of D elements as tiles of ROWS of them: matrix after matrix, all of one length.
template <int ROWS, int D, typename T>
__tile__ auto rows_of(T* p, int matrices, int length) {
    using namespace ct::literals;
    p = ct::assume_aligned(p, 16_ic);
    return ct::partition_view{ct::tensor_span{p, ct::extents{matrices, length, ct::integral_constant<D>{}}},
                              ct::shape<1, ROWS, D>{}};
}
template <int ROWS, int D, typename View>
__tile__ auto rows_at(const View& view, int matrix, int row) {
    return ct::reshape(view.load_masked(matrix, row, 0), ct::shape<ROWS, D>{});
}

// What is known of a row's keys so far: the greatest product (times log2 e), the sum of exponentials, and of values.
template <int BQ, int D>
struct softmax_so_far {
    ct::tile<float, ct::shape<BQ, 1>> most, sum;
    ct::tile<float, ct::shape<BQ, D>> values;
};

// One tile of keys and values more; MASKED: keys beyond the last one, or after the query, count nothing.
template <bool MASKED, bool CAUSAL, int BQ, int BK, int D, typename Q, typename K, typename V>
__tile__ auto with_keys(softmax_so_far<BQ, D> far, Q q, const K& keys, const V& values, int head, int i, int query,
                        int length, float scale) {
    using Products = ct::tile<float, ct::shape<BQ, BK>>;
    auto products = ct::mma(q, ct::transpose(rows_at<BK, D>(keys, head, i)), ct::zeros<Products>());
    if constexpr (MASKED) {
        auto key = ct::reshape(ct::iota<ct::tile<int, ct::shape<BK>>>(), ct::shape<1, BK>{}) + i * BK;
        auto row = ct::reshape(ct::iota<ct::tile<int, ct::shape<BQ>>>(), ct::shape<BQ, 1>{}) + query * BQ;
        auto last = CAUSAL ? ct::min(row, row * 0 + (length - 1)) : row * 0 + (length - 1);
        products = ct::select(key <= last, products, ct::full<Products>(-1e30f));
    }
    auto most = ct::max(far.most, ct::reduce_max(products, ct::integral_constant<1>{}) * scale);
    auto weights = ct::exp2(products * scale - most, ct::round_subnormals_to_zero_t{});
    auto before = ct::exp2(far.most - most, ct::round_subnormals_to_zero_t{});
    auto cast = ct::element_cast<typename Q::element_type>(weights);
    return softmax_so_far<BQ, D>{most, far.sum * before + ct::sum(weights, ct::integral_constant<1>{}),
                                 ct::mma(cast, rows_at<BK, D>(values, head, i), far.values * before)};
}

// O = softmax(scale · Q Kᵀ) V, row by row and head by head; CAUSAL: query i sees keys 0 … i only. Sums in float.
// Shapes: Q and O are heads × length × D, K and V are heads / shared × length × D, C-contiguous: `shared` heads of Q,
//   neighbours, have the keys and values of one.
// Threads: a block has BQ queries of a head, and goes over the keys, BK at a time; WARPS do the products, others fetch.
//   Blocks with most keys begin first.
// Memory: Q and O are moved once; K and V once for each BQ queries, mostly from L2. The products are never in memory.
// Preconditions: all addresses are multiples of 16 bytes; D, BQ and BK are powers of two, D at least 16. `scale` is that
//   of the formula times log2 e.
// Launch: ⌈length / BQ⌉ blocks along x, heads along y.
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax (2018); Dao, FlashAttention-2 (2023).
template <typename T, int D, int BQ, int BK, int WARPS, bool CAUSAL>
[[cutile::hint(0, num_worker_warps_per_cta=WARPS)]]
__tile_global__ void attention(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                               T* __restrict__ o, float scale, int heads, int shared, int length) {
    using namespace ct::literals;
    q = ct::assume_aligned(q, 16_ic), k = ct::assume_aligned(k, 16_ic), v = ct::assume_aligned(v, 16_ic);
    o = ct::assume_aligned(o, 16_ic), heads = ct::assume_bounded_below(heads, 0_ic);
    length = ct::assume_bounded_below(length, 1_ic), shared = ct::assume_bounded_below(shared, 1_ic);
    auto keys = rows_of<BK, D>(k, heads / shared, length), values = rows_of<BK, D>(v, heads / shared, length);
    auto queries = rows_of<BQ, D>(q, heads, length);
    auto out = rows_of<BQ, D>(o, heads, length);
    const int query = (int)ct::num_blocks().x - 1 - (int)ct::bid().x, head = ct::bid().y, of = head / shared;

    auto rows = rows_at<BQ, D>(queries, head, query);
    softmax_so_far<BQ, D> far{ct::full<ct::tile<float, ct::shape<BQ, 1>>>(-1e30f),
                              ct::zeros<ct::tile<float, ct::shape<BQ, 1>>>(),
                              ct::zeros<ct::tile<float, ct::shape<BQ, D>>>()};
    // Tiles of keys that all queries see whole, and those of which they see a part.
    const int whole = CAUSAL ? ct::min(query * BQ, length) / BK : length / BK;
    const int end = ((CAUSAL ? ct::min((query + 1) * BQ, length) : length) + BK - 1) / BK;
    for (auto i : ct::irange(0, whole))
        far = with_keys<false, CAUSAL, BQ, BK>(far, rows, keys, values, of, i, query, length, scale);
    for (auto i : ct::irange(whole, end))
        far = with_keys<true, CAUSAL, BQ, BK>(far, rows, keys, values, of, i, query, length, scale);
    out.store_masked(ct::reshape(ct::element_cast<T>(far.values / far.sum), ct::shape<1, BQ, D>{}), head, query, 0);
}

}  // namespace cudakit
