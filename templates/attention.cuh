#include <cudakit/product/mma.cuh>
#include <cudakit/warp.cuh>

namespace cudakit {

namespace detail {
// Two numbers, rounded, as one register of a fragment.
__device__ __forceinline__ unsigned int rounded_pair(const __half*, float low, float high) {
    unsigned int pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
__device__ __forceinline__ unsigned int rounded_pair(const __nv_bfloat16*, float low, float high) {
    unsigned int pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
// 2^x by one instruction, right to 2⁻²²; what is smaller than 2⁻¹²⁶ is 0.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
}  // namespace detail

// O = softmax(scale · Q Kᵀ) V, row by row and head by head; CAUSAL: query i sees keys 0 … i + keys − queries only, the
// last one all of them. Sums in float.
// Shapes: Q and O are heads × queries × D, K and V are heads / shared × keys × D, C-contiguous: `shared` heads of Q,
//   neighbours, have the keys and values of one.
// Threads: a block has 16 queries of a head for each of its WARPS, and goes over the keys, BK at a time. A warp has its
//   products, weights and sums in fragments of mma: lane l rows l / 4 and 8 + l / 4. Blocks with most keys begin first,
//   HEADS_FIRST of all heads.
// Memory: Q and O are moved once; K and V once for each block of queries, mostly from L2, by 16 bytes; two tiles of each
//   are in shared memory, rows padded by 16 bytes so that ldmatrix finds eight in different banks. The products are never
//   in memory.
// Preconditions: all addresses are multiples of 16 bytes; D is a multiple of 8, WIDTH the next power of two, 16 at least.
//   `scale`, positive, is that of the formula times log2 e. CAUSAL: no more queries than keys.
// Launch: ⌈queries / (16 · WARPS)⌉ · heads blocks along x, of 32 · WARPS threads; shared memory for 16 · WARPS + 4 · BK rows.
// Source: Milakov and Gimelshein, Online normalizer calculation for softmax (2018); Dao, FlashAttention-2 (2023).
template <typename T, int D, int WIDTH, int BK, int WARPS, bool CAUSAL, bool HEADS_FIRST>
__global__ void __launch_bounds__(32 * WARPS)
    attention(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ o, float scale,
              int heads, int shared, int queries, int keys) {
    constexpr int BQ = 16 * WARPS, THREADS = 32 * WARPS, COUNT = 8;
    constexpr bool HOLDS_QUERIES = WIDTH <= 128;  // in registers; more would not fit
    using QTile = operand_tile<T, BQ, WIDTH, true, true, COUNT, THREADS, 16>;
    using KTile = operand_tile<T, BK, WIDTH, true, true, COUNT, THREADS, 16>;
    using VTile = operand_tile<T, WIDTH, BK, false, false, COUNT, THREADS, 16>;

    const int along = (queries + BQ - 1) / BQ, block = static_cast<int>(blockIdx.x);
    const int query = (along - 1 - (HEADS_FIRST ? block / heads : block % along)) * BQ;
    const long long head = HEADS_FIRST ? block % heads : block / along, of = head / shared;
    const int ahead = keys - queries, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    q += (head * queries + query) * D, o += (head * queries + query) * D;
    k += of * keys * D, v += of * keys * D;

    extern __shared__ __align__(16) unsigned char memory[];
    T* const asked = reinterpret_cast<T*>(memory);
    T* const of_keys = asked + QTile::SIZE;
    T* const of_values = of_keys + 2 * KTile::SIZE;
    // Tiles of keys that all queries see whole, and those of which they see a part.
    const int seen = CAUSAL ? min(query + BQ + ahead, keys) : keys, end = (seen + BK - 1) / BK;
    const int whole = (CAUSAL ? min(query + ahead + 1, keys) : keys) / BK;
    const auto fetch = [&](int i) {
        const long long first = static_cast<long long>(i) * BK * D;
        const int left = keys - i * BK;
        KTile::load(of_keys + i % 2 * KTile::SIZE, k + first, D, 1, left, D);
        VTile::load(of_values + i % 2 * VTile::SIZE, v + first, 1, D, D, left);
    };
    QTile::load(asked, q, D, 1, queries - query, D);
    fetch(0);
    close_stage();

    unsigned int rows[HOLDS_QUERIES ? WIDTH / 16 : 1][4];
    float total[WIDTH / 8][4] = {}, most[2] = {-1e30f, -1e30f}, sum[2] = {};
    for (int i = 0; i < end; ++i) {
        wait_for_stages<0>();
        // All have read what is overwritten now, and see what others have fetched.
        __syncthreads();
        if (i + 1 < end) fetch(i + 1);
        close_stage();
        if constexpr (HOLDS_QUERIES)
            if (i == 0)
#pragma unroll
                for (int d = 0; d < WIDTH / 16; ++d)
                    detail::fragment<T, QTile, true, false>::read(rows[d], asked, 16 * warp, 16 * d);

        float products[BK / 8][4] = {};
        const T *const key = of_keys + i % 2 * KTile::SIZE, *const value = of_values + i % 2 * VTile::SIZE;
#pragma unroll
        for (int d = 0; d < WIDTH / 16; ++d) {
            unsigned int own[4];
            if constexpr (!HOLDS_QUERIES) detail::fragment<T, QTile, true, false>::read(own, asked, 16 * warp, 16 * d);
#pragma unroll
            for (int j = 0; j < BK / 8; j += 2) {
                unsigned int both[4];
                detail::fragment<T, KTile, true, true>::read(both, key, 8 * j, 16 * d);
                const unsigned int first[2] = {both[0], both[1]}, second[2] = {both[2], both[3]};
                const auto& left = HOLDS_QUERIES ? rows[HOLDS_QUERIES ? d : 0] : own;
                detail::mma(static_cast<const T*>(nullptr), products[j], left, first);
                detail::mma(static_cast<const T*>(nullptr), products[j + 1], left, second);
            }
        }
        if (i >= whole)
#pragma unroll
            for (int j = 0; j < BK / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int row = query + 16 * warp + lane / 4 + e / 2 * 8 + ahead;
                    const int at = i * BK + 8 * j + lane % 4 * 2 + e % 2;
                    if (at > (CAUSAL ? min(row, keys - 1) : keys - 1)) products[j][e] = -1e30f;
                }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float greatest = products[0][2 * half];
#pragma unroll
            for (int j = 0; j < BK / 8; ++j)
                greatest = fmaxf(greatest, fmaxf(products[j][2 * half], products[j][2 * half + 1]));
            greatest = fmaxf(greatest, shuffle_xor(greatest, 1));
            greatest = fmaxf(greatest, shuffle_xor(greatest, 2));
            const float now = fmaxf(most[half], greatest * scale), before = detail::power_of_two(most[half] - now);
            most[half] = now, sum[half] *= before;
#pragma unroll
            for (int j = 0; j < BK / 8; ++j)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; ++e) {
                    products[j][e] = detail::power_of_two(fmaf(products[j][e], scale, -now));
                    sum[half] += products[j][e];
                }
#pragma unroll
            for (int d = 0; d < WIDTH / 8; ++d) total[d][2 * half] *= before, total[d][2 * half + 1] *= before;
        }
#pragma unroll
        for (int j = 0; j < BK / 16; ++j) {
            unsigned int weights[4];
#pragma unroll
            for (int e = 0; e < 4; ++e)
                weights[e] = detail::rounded_pair(static_cast<const T*>(nullptr), products[2 * j + e / 2][e % 2 * 2],
                                                  products[2 * j + e / 2][e % 2 * 2 + 1]);
#pragma unroll
            for (int d = 0; d < WIDTH / 8; d += 2) {
                unsigned int both[4];
                detail::fragment<T, VTile, false, true>::read(both, value, 8 * d, 16 * j);
                const unsigned int first[2] = {both[0], both[1]}, second[2] = {both[2], both[3]};
                detail::mma(static_cast<const T*>(nullptr), total[d], weights, first);
                detail::mma(static_cast<const T*>(nullptr), total[d + 1], weights, second);
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        sum[half] += shuffle_xor(sum[half], 1);
        sum[half] += shuffle_xor(sum[half], 2);
        const float factor = 1.0f / sum[half];
        const int row = 16 * warp + lane / 4 + 8 * half;
        if (query + row >= queries) continue;
#pragma unroll
        for (int d = 0; d < WIDTH / 8; ++d) {
            const int column = 8 * d + lane % 4 * 2;
            const unsigned int pair = detail::rounded_pair(static_cast<const T*>(nullptr), total[d][2 * half] * factor,
                                                           total[d][2 * half + 1] * factor);
            if (column < D) *reinterpret_cast<unsigned int*>(o + row * D + column) = pair;
        }
    }
}

}  // namespace cudakit
