// Products of tiles of float32 in shared memory by the threads' own multiply-adds, a warpgroup at a time.
#pragma once

#include <cudakit/product/wgmma.cuh>

namespace cudakit {

/// Sums of a warpgroup's tile of 64 × WIDE in float32. A warp has all rows and a quarter of the columns, a thread 8 rows and
/// WIDE / 16 columns. Each product is added to its sum after those of smaller k.
template <int WIDE>
struct warpgroup_sums<float, WIDE> {
    static_assert(WIDE % 128 == 0, "the columns of a warp are whole boxes");
    static constexpr int TM = 8, TN = WIDE / 16;
    float sum[TM][TN];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] = 0;
    }
    template <typename A, typename B>
    __device__ __forceinline__ void add(const unsigned char* a, const unsigned char* b, int line, bool) {
        const int high = threadIdx.x % 32 / 4, wide = threadIdx.x % 4, first = threadIdx.x / 32 % 4 * (WIDE / 4);
        a += line * 128, b += first * 128;
        // Eight elements along k at a time: more code would not stay in the instruction cache.
#pragma unroll 1
        for (int begin = 0; begin < 32; begin += 8)
#pragma unroll
            for (int four = 0; four < 8; four += 4) {
                float left[4][TM], right[4][TN];
                read<A::IS_DEEP, true>(left, a, high, begin + four);
                read<B::IS_DEEP, false>(right, b, wide, begin + four);
#pragma unroll
                for (int k = 0; k < 4; ++k)
#pragma unroll
                    for (int i = 0; i < TM; ++i)
#pragma unroll
                        for (int j = 0; j < TN; ++j) sum[i][j] = fmaf(left[k][i], right[k][j], sum[i][j]);
            }
    }
    template <int LATER>
    __device__ __forceinline__ void wait() {
        __syncwarp();
    }

    /// Store the sums. PARTS is 1: the sums of a cluster are not added.
    template <int PARTS, bool A_DEEP, typename Epilogue>
    __device__ __forceinline__ void store(const Epilogue& epilogue, int) const {
        const int high = threadIdx.x % 32 / 4, wide = threadIdx.x % 4, warp = threadIdx.x / 32 - 4;
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; j += 4) {
                few<float, 4> run;
#pragma unroll
                for (int e = 0; e < 4; ++e) run.values[e] = sum[i][j + e];
                epilogue.store(warp / 4 * 64 + line_of<A_DEEP, true>(high, i),
                               warp % 4 * (WIDE / 4) + line_of<false, false>(wide, j), run);
            }
    }

private:
    /// The line of a thread's element i. Lanes read different chunks of 16 bytes, of 8 in a row of a box.
    template <bool DEEP, bool IS_A>
    __device__ static __forceinline__ int line_of(int lane, int i) {
        if constexpr (!IS_A) return i / 4 * 16 + lane * 4 + i % 4;
        else return DEEP ? i * 8 + lane : i / 4 * 32 + lane * 4 + i % 4;
    }
    template <bool DEEP, bool IS_A, int COUNT>
    __device__ static __forceinline__ void read(float (&values)[4][COUNT], const unsigned char* tile, int lane, int depth) {
        if constexpr (DEEP) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const int line = line_of<true, IS_A>(lane, i);
                const int chunk = depth / 4 ^ line % 8;
                const pack<float, 4> four = *reinterpret_cast<const pack<float, 4>*>(tile + line * 128 + chunk * 16);
#pragma unroll
                for (int k = 0; k < 4; ++k) values[k][i] = four.values[k];
            }
        } else {
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int i = 0; i < COUNT; i += 4) {
                    const int line = line_of<false, IS_A>(lane, i), chunk = line % 32 / 4 ^ (depth + k) % 8;
                    const unsigned char* const row = tile + line / 32 * 4096 + (depth + k) * 128;
                    const pack<float, 4> four = *reinterpret_cast<const pack<float, 4>*>(row + chunk * 16);
#pragma unroll
                    for (int e = 0; e < 4; ++e) values[k][i + e] = four.values[e];
                }
        }
    }
};

}  // namespace cudakit
