// Products of tiles of matrices in shared memory by the tensor cores, a warp at a time (mma.sync; sm_80, fp8 from sm_89).
#pragma once

#include <cudakit/product/operand.cuh>

struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace cudakit {

namespace detail {
// C += A B of 16 × 8, along 32 bytes of half, bfloat16, fp8, int8 or float (as TF32), along 64 of double.
template <typename T>
struct mma_instruction {
    using word = unsigned int;
    using sum = float;
};
template <>
struct mma_instruction<signed char> {
    using word = unsigned int;
    using sum = int;
};
template <>
struct mma_instruction<double> {
    using word = double;
    using sum = double;
};

#define CUDAKIT_MMA(T, C, FORM) \
    __device__ __forceinline__ void mma(const T*, C (&c)[4], const unsigned int (&a)[4], const unsigned int (&b)[2]) { \
        asm("mma.sync.aligned." FORM " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
            : CUDAKIT_C(c[0]), CUDAKIT_C(c[1]), CUDAKIT_C(c[2]), CUDAKIT_C(c[3]) \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }
#define CUDAKIT_C "+f"
CUDAKIT_MMA(__half, float, "m16n8k16.row.col.f32.f16.f16.f32")
CUDAKIT_MMA(__nv_bfloat16, float, "m16n8k16.row.col.f32.bf16.bf16.f32")
CUDAKIT_MMA(__nv_fp8_e4m3, float, "m16n8k32.row.col.f32.e4m3.e4m3.f32")
CUDAKIT_MMA(__nv_fp8_e5m2, float, "m16n8k32.row.col.f32.e5m2.e5m2.f32")
CUDAKIT_MMA(float, float, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef CUDAKIT_C
#define CUDAKIT_C "+r"
CUDAKIT_MMA(signed char, int, "m16n8k32.row.col.s32.s8.s8.s32")
#undef CUDAKIT_C
#undef CUDAKIT_MMA

__device__ __forceinline__ void mma(const double*, double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                : "+d"(c[2 * half]), "+d"(c[2 * half + 1])
                : "d"(a[2 * k + half]), "d"(b[k]));
#endif
}

/// Four matrices of 8 × 16 bytes; the lanes of each eight give the rows of one. TURNED: of 8 × 8 halves, turned.
template <bool TURNED>
__device__ __forceinline__ void load_matrices(unsigned int (&words)[4], const void* row) {
    const unsigned int from = static_cast<unsigned int>(__cvta_generic_to_shared(row));
    if constexpr (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(from)
                     : "memory");
}

__device__ __forceinline__ unsigned int as_tf32(unsigned int word) {
    asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(word));
    return word;
}

/// 16 lines of an operand, 32 bytes deep (64 of double), as registers of mma: of A those of one fragment; of B, whose
/// fragments have 8 columns and two registers, side by side for the hardware, those of two. MIXED tiles (bytes that lie depth
/// after depth) hold line 2i where others hold line i, and 2i + 1 where others hold 8 + i.
template <typename T, typename Tile, bool DEEP, bool IS_B>
struct fragment {
    static constexpr bool MIXED = sizeof(T) == 1 && !DEEP;
    using word = typename mma_instruction<T>::word;

    // Which half of the lines, and of the depth, register i has.
    __device__ static constexpr int high(int i) { return IS_B ? i / 2 : i % 2; }
    __device__ static constexpr int deep(int i) { return IS_B ? i % 2 : i / 2; }

    __device__ static __forceinline__ void read(word (&words)[4], const T* tile, int line, int depth) {
        const int lane = threadIdx.x % 32, row = lane % 8, which = lane / 8;
        if constexpr (sizeof(T) == 8) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                words[i] = tile[Tile::place(line + high(i) * 8 + lane / 4, depth + deep(i) * 4 + lane % 4)];
        } else if constexpr (DEEP) {
            load_matrices<false>(words, tile + Tile::place(line + high(which) * 8 + row,
                                                           depth + deep(which) * (16 / static_cast<int>(sizeof(T)))));
        } else if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                words[i] = __float_as_uint(
                    tile[Tile::place(line + high(i) * 8 + lane / 4, depth + deep(i) * 4 + lane % 4)]);
        } else if constexpr (sizeof(T) == 2) {
            load_matrices<true>(words, tile + Tile::place(line + high(which) * 8, depth + deep(which) * 8 + row));
        } else {
            // Pairs of lines for halves: two matrices have four neighbours in depth of each, and bytes are sorted here.
            unsigned int pairs[4];
            load_matrices<true>(
                pairs, tile + Tile::place(line, depth + which / 2 * 16 + which % 2 * 2 + row / 2 * 4 + row % 2));
#pragma unroll
            for (int i = 0; i < 4; ++i)
                words[i] = __byte_perm(pairs[deep(i) * 2], pairs[deep(i) * 2 + 1], high(i) ? 0x7531 : 0x6420);
        }
        if constexpr (sizeof(T) == 4)
#pragma unroll
            for (int i = 0; i < 4; ++i) words[i] = as_tf32(words[i]);
    }
};
}  // namespace detail

/// As `fma_product`, in fragments of mma: a warp has ROWS / WARPS_M rows and COLUMNS / WARPS_N columns. A_DEEP, B_DEEP: how
/// the operand's tiles lie in shared memory.
template <typename T, int ROWS, int COLUMNS, int DEPTH, int WARPS_M, int WARPS_N, bool A_IS_DEEP, bool B_IS_DEEP>
struct mma_product {
    using stored = T;
    static constexpr int HIGH = ROWS, WIDE = COLUMNS, DEEP = DEPTH, THREADS = 32 * WARPS_M * WARPS_N;
    static constexpr bool A_DEEP = A_IS_DEEP, B_DEEP = B_IS_DEEP;
    // Lines of 8 depths, or depths of 8 lines, that are read at once lie 16 bytes apart in the 128 of the banks; words of
    // 4 depths and 8 lines, or of 8-byte elements, 32.
    static constexpr int A_PAD = sizeof(T) == 8 || (sizeof(T) == 4 && !A_DEEP) ? 32 : 16;
    static constexpr int B_PAD = sizeof(T) == 8 || (sizeof(T) == 4 && !B_DEEP) ? 32 : 16;
    static constexpr int DEEP_STEP = (sizeof(T) == 8 ? 64 : 32) / static_cast<int>(sizeof(T));
    static constexpr int STEPS = DEPTH / DEEP_STEP;
    static constexpr int TM = ROWS / (16 * WARPS_M), TN = COLUMNS / (8 * WARPS_N);
    static_assert(DEPTH % DEEP_STEP == 0 && ROWS % (16 * WARPS_M) == 0 && COLUMNS % (16 * WARPS_N) == 0,
                  "fragments make up the tile");
    using word = typename detail::mma_instruction<T>::word;
    using sums = typename detail::mma_instruction<T>::sum;

    struct fragments {
        word left[TM][4], right[TN][2];
    };

    sums sum[TM][TN][4];
    int row, column;

    __device__ __forceinline__ mma_product() {
        const int warp = threadIdx.x / 32;
        row = warp / WARPS_N * (16 * TM), column = warp % WARPS_N * (8 * TN);
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) sum[i][j][e] = 0;
    }

    template <typename ATile, typename BTile>
    __device__ __forceinline__ void read(fragments& to, const T* a, const T* b, int step) const {
#pragma unroll
        for (int i = 0; i < TM; ++i)
            detail::fragment<T, ATile, A_DEEP, false>::read(to.left[i], a, row + 16 * i, step * DEEP_STEP);
#pragma unroll
        for (int j = 0; j < TN; j += 2) {
            word both[4];
            detail::fragment<T, BTile, B_DEEP, true>::read(both, b, column + 8 * j, step * DEEP_STEP);
            to.right[j][0] = both[0], to.right[j][1] = both[1];
            to.right[j + 1][0] = both[2], to.right[j + 1][1] = both[3];
        }
    }

    __device__ __forceinline__ void add(const fragments& of) {
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j)
                detail::mma(static_cast<const T*>(nullptr), sum[i][j], of.left[i], of.right[j]);
    }

    template <typename Epilogue>
    __device__ __forceinline__ void finish(const Epilogue& epilogue) const {
        const int lane = threadIdx.x % 32, high = lane / 4, wide = lane % 4;
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const bool is_mixed = sizeof(T) == 1 && !A_DEEP;
                const int line = row + 16 * i + (is_mixed ? 2 * high + half : high + 8 * half);
                if constexpr (sizeof(T) == 1 && !B_DEEP) {
#pragma unroll
                    for (int j = 0; j < TN; j += 2) {
                        const sums *first = sum[i][j] + 2 * half, *second = sum[i][j + 1] + 2 * half;
                        epilogue.store(line, column + 8 * j + 4 * wide,
                                       few<sums, 4>{{first[0], second[0], first[1], second[1]}});
                    }
                } else {
#pragma unroll
                    for (int j = 0; j < TN; ++j)
                        epilogue.store(line, column + 8 * j + 2 * wide,
                                       few<sums, 2>{{sum[i][j][2 * half], sum[i][j][2 * half + 1]}});
                }
            }
    }
};

}  // namespace cudakit
