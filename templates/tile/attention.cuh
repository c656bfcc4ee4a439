#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "cuda_tile.h"

namespace cudakit {

namespace ct = cuda::tiles;

// Rows of D elements as tiles of ROWS × WIDTH: matrix after matrix, all of one length.
template <int ROWS, int WIDTH, int D, typename T>
__tile__ auto rows_of(T* p, int matrices, int length) {
    using namespace ct::literals;
    p = ct::assume_aligned(p, 16_ic);
    return ct::partition_view{ct::tensor_span{p, ct::extents{matrices, length, ct::integral_constant<D>{}}},
                              ct::shape<1, ROWS, WIDTH>{}};
}
template <int ROWS, int WIDTH, typename View>
__tile__ auto rows_at(const View& view, int matrix, int row) {
    return ct::reshape(view.load_masked(matrix, row, 0), ct::shape<ROWS, WIDTH>{});
}

// Products of queries with a tile of keys.
template <int BQ, int BK, int WIDTH, typename Q, typename K>
__tile__ auto products_of(Q q, const K& keys, int head, int i) {
    return ct::mma(q, ct::transpose(rows_at<BK, WIDTH>(keys, head, i)), ct::zeros<ct::tile<float, ct::shape<BQ, BK>>>());
}
// Those with keys beyond the last one, or after the query, count nothing: the first query sees `ahead` keys before its
// own.
template <bool CAUSAL, int BQ, int BK, typename Products>
__tile__ Products masked(Products products, int i, int query, int ahead, int keys) {
    auto key = ct::reshape(ct::iota<ct::tile<int, ct::shape<BK>>>(), ct::shape<1, BK>{}) + i * BK;
    auto row = ct::reshape(ct::iota<ct::tile<int, ct::shape<BQ>>>(), ct::shape<BQ, 1>{}) + (query * BQ + ahead);
    auto last = CAUSAL ? ct::min(row, row * 0 + (keys - 1)) : row * 0 + (keys - 1);
    return ct::select(key <= last, products, ct::full<Products>(-1e30f));
}

// What is known of rows so far: the greatest product (times log2 e) and the sum of exponentials; and, of the last tile
// of keys, the exponentials and what sums before it are multiplied by.
template <typename T, int BQ, int BK>
struct weighed {
    ct::tile<float, ct::shape<BQ, 1>> most, sum, before;
    ct::tile<T, ct::shape<BQ, BK>> weights;
};
template <typename T, int BQ, int BK, typename Products, typename Rows>
__tile__ auto weigh(Products products, Rows most_so_far, Rows sum, float scale) {
    using namespace ct::literals;
    auto most = ct::max(most_so_far, ct::reduce_max(products, 1_ic) * scale);
    auto weights = ct::exp2(products * scale - most, ct::round_subnormals_to_zero_t{});
    auto before = ct::exp2(most_so_far - most, ct::round_subnormals_to_zero_t{});
    return weighed<T, BQ, BK>{most, sum * before + ct::sum(weights, 1_ic), before, ct::element_cast<T>(weights)};
}

// O = softmax(scale · Q Kᵀ) V, row by row and head by head; CAUSAL: query i sees keys 0 … i + keys − queries only, the
// last one all of them. Sums in float.
// Shapes: Q and O are heads × queries × D, K and V are heads / shared × keys × D, C-contiguous: `shared` heads of Q,
//   neighbours, have the keys and values of one.
// Threads: a block has BQ queries of a head, and goes over the keys, BK at a time; WARPS do the products, others fetch;
//   BLOCKS run at once on a multiprocessor. BEHIND: values are summed a tile of keys later, so that the tensor cores
//   have work while exponentials are taken. Blocks with most keys begin first, HEADS_FIRST of all heads. WHOLE: every
//   tile of keys is seen whole, and no code is there for others.
// Memory: Q and O are moved once; K and V once for each BQ queries, mostly from L2. The products are never in memory.
// Preconditions: all addresses are multiples of 16 bytes; D is a multiple of 8, WIDTH the next power of two, as BQ and
//   BK are. `scale`, positive, is that of the formula times log2 e. CAUSAL: no more queries than keys. WHOLE:
//   not CAUSAL, and keys is a multiple of BK.
// Launch: ⌈queries / BQ⌉ blocks along x, heads along y; HEADS_FIRST the other way round.
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax (2018); Dao, FlashAttention-2 (2023); Shah
//   and others, FlashAttention-3 (2024), for what is summed later.
template <typename T, int D, int WIDTH, int BQ, int BK, int WARPS, int BLOCKS, bool CAUSAL, bool BEHIND,
          bool HEADS_FIRST, bool WHOLE = false>
[[cutile::hint(0, num_worker_warps_per_cta=WARPS, occupancy=BLOCKS)]]
__tile_global__ void attention(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                               T* __restrict__ o, float scale, int heads, int shared, int queries, int keys) {
    using namespace ct::literals;
    heads = ct::assume_bounded_below(heads, 0_ic), shared = ct::assume_bounded_below(shared, 1_ic);
    queries = ct::assume_bounded_below(queries, 1_ic), keys = ct::assume_bounded_below(keys, 1_ic);
    auto all_keys = rows_of<BK, WIDTH, D>(k, heads / shared, keys);
    auto values = rows_of<BK, WIDTH, D>(v, heads / shared, keys);
    auto asked = rows_of<BQ, WIDTH, D>(q, heads, queries);
    auto out = rows_of<BQ, WIDTH, D>(o, heads, queries);
    const int count = HEADS_FIRST ? ct::num_blocks().y : ct::num_blocks().x;
    const int query = count - 1 - (int)(HEADS_FIRST ? ct::bid().y : ct::bid().x);
    const int head = HEADS_FIRST ? ct::bid().x : ct::bid().y, of = head / shared, ahead = keys - queries;

    using Row = ct::tile<float, ct::shape<BQ, 1>>;
    auto most = ct::full<Row>(-1e30f), sum = ct::zeros<Row>();
    auto total = ct::zeros<ct::tile<float, ct::shape<BQ, WIDTH>>>();
    auto rows = rows_at<BQ, WIDTH>(asked, head, query);
    // Tiles of keys that all queries see whole, and those of which they see a part.
    const int whole = (CAUSAL ? ct::min(query * BQ + ahead, keys) : keys) / BK;
    const int end = ((CAUSAL ? ct::min((query + 1) * BQ + ahead, keys) : keys) + BK - 1) / BK;
    if constexpr (BEHIND) {
        auto products = products_of<BQ, BK, WIDTH>(rows, all_keys, of, 0);
        if (!WHOLE && whole == 0) products = masked<CAUSAL, BQ, BK>(products, 0, query, ahead, keys);
        auto last = weigh<T, BQ, BK>(products, most, sum, scale);
        for (auto i : ct::irange(1, whole)) {
            auto next = products_of<BQ, BK, WIDTH>(rows, all_keys, of, i);
            total = ct::mma(last.weights, rows_at<BK, WIDTH>(values, of, i - 1), total * last.before);
            last = weigh<T, BQ, BK>(next, last.most, last.sum, scale);
        }
        if constexpr (!WHOLE) {
            for (auto i : ct::irange(ct::max(whole, 1), end)) {
                auto all = products_of<BQ, BK, WIDTH>(rows, all_keys, of, i);
                auto next = masked<CAUSAL, BQ, BK>(all, i, query, ahead, keys);
                total = ct::mma(last.weights, rows_at<BK, WIDTH>(values, of, i - 1), total * last.before);
                last = weigh<T, BQ, BK>(next, last.most, last.sum, scale);
            }
        }
        total = ct::mma(last.weights, rows_at<BK, WIDTH>(values, of, end - 1), total * last.before);
        sum = last.sum;
    } else {
        for (auto i : ct::irange(0, whole)) {
            auto next = products_of<BQ, BK, WIDTH>(rows, all_keys, of, i);
            auto last = weigh<T, BQ, BK>(next, most, sum, scale);
            total = ct::mma(last.weights, rows_at<BK, WIDTH>(values, of, i), total * last.before);
            most = last.most, sum = last.sum;
        }
        if constexpr (!WHOLE) {
            for (auto i : ct::irange(whole, end)) {
                auto all = products_of<BQ, BK, WIDTH>(rows, all_keys, of, i);
                auto next = masked<CAUSAL, BQ, BK>(all, i, query, ahead, keys);
                auto last = weigh<T, BQ, BK>(next, most, sum, scale);
                total = ct::mma(last.weights, rows_at<BK, WIDTH>(values, of, i), total * last.before);
                most = last.most, sum = last.sum;
            }
        }
    }
    auto made = ct::element_cast<T>(total * (1.0f / sum));  // one quotient a row
    out.store_masked(ct::reshape(made, ct::shape<1, BQ, WIDTH>{}), head, query, 0);
}

}  // namespace cudakit
