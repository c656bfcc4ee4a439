// Products of tiles of matrices in shared memory by the tensor cores, a warpgroup at a time, and the tiles (wgmma and copies
// of boxes of a tensor; sm_90a).
#pragma once

#include <cuda.h>
#include <cudakit/elementwise/values.cuh>
#include <cudakit/mbarrier.cuh>

struct __half;
struct __nv_bfloat16;

namespace cudakit {

namespace detail {
// C += A B of 64 × N along 16 elements, or C = A B without `keeps`. Descriptors name A and B; TURNED: not along k.
#define CUDAKIT_TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define CUDAKIT_FOUR(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define CUDAKIT_SIXTEEN(i) CUDAKIT_FOUR(i), CUDAKIT_FOUR(i + 4), CUDAKIT_FOUR(i + 8), CUDAKIT_FOUR(i + 12)
#define CUDAKIT_32(i) CUDAKIT_SIXTEEN(i), CUDAKIT_SIXTEEN(i + 16)
#define CUDAKIT_SIXTY CUDAKIT_TEN() CUDAKIT_TEN(1) CUDAKIT_TEN(2) CUDAKIT_TEN(3) CUDAKIT_TEN(4) CUDAKIT_TEN(5)
#define CUDAKIT_WGMMA(T, FORM, N, NAMES, A, B, KEEPS, A_LIES, B_LIES, ...) \
    template <bool A_TURNED, bool B_TURNED> \
    __device__ __forceinline__ void wgmma(const T*, float (&c)[N / 2], unsigned long long a, unsigned long long b, int keeps) { \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " KEEPS ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." FORM "." \
                     FORM " {" NAMES "}, " A ", " B ", p, 1, 1, " A_LIES ", " B_LIES "; }" \
                     : __VA_ARGS__ \
                     : "l"(a), "l"(b), "r"(keeps), "n"(A_TURNED ? 1 : 0), "n"(B_TURNED ? 1 : 0)); \
    }
#define CUDAKIT_WGMMAS(T, FORM) \
    CUDAKIT_WGMMA(T, FORM, 128, CUDAKIT_SIXTY "%60,%61,%62,%63", "%64", "%65", "%66", "%67", "%68", CUDAKIT_32(0), CUDAKIT_32(32)) \
    CUDAKIT_WGMMA(T, FORM, 192, CUDAKIT_SIXTY CUDAKIT_TEN(6) CUDAKIT_TEN(7) CUDAKIT_TEN(8) "%90,%91,%92,%93,%94,%95", "%96", "%97", \
                  "%98", "%99", "%100", CUDAKIT_32(0), CUDAKIT_32(32), CUDAKIT_32(64)) \
    CUDAKIT_WGMMA(T, FORM, 256, \
                  CUDAKIT_SIXTY CUDAKIT_TEN(6) CUDAKIT_TEN(7) CUDAKIT_TEN(8) CUDAKIT_TEN(9) CUDAKIT_TEN(10) CUDAKIT_TEN(11) \
                  "%120,%121,%122,%123,%124,%125,%126,%127", \
                  "%128", "%129", "%130", "%131", "%132", CUDAKIT_32(0), CUDAKIT_32(32), CUDAKIT_32(64), CUDAKIT_32(96))
CUDAKIT_WGMMAS(__half, "f16")
CUDAKIT_WGMMAS(__nv_bfloat16, "bf16")
#undef CUDAKIT_WGMMAS
#undef CUDAKIT_WGMMA
#undef CUDAKIT_SIXTY
#undef CUDAKIT_32
#undef CUDAKIT_SIXTEEN
#undef CUDAKIT_FOUR
#undef CUDAKIT_TEN

/// Copy the box of a tensor of three axes that begins at x (the contiguous axis), y, z. By one thread; `barrier` counts the
/// bytes.
__device__ __forceinline__ void load_box(void* shared, const CUtensorMap& map, int x, int y, int z, mbarrier& barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
            shared_address(shared)),
        "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(&barrier))
        : "memory");
}

/// The warpgroup's threads may keep so many registers each from now on.
template <int COUNT, bool IS_MORE>
__device__ __forceinline__ void set_registers() {
    if constexpr (IS_MORE) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
}  // namespace detail

/// Tiles of LINES rows of A (columns of B) and 64 elements of 2 bytes along k, as copies of boxes with a swizzle of 128 bytes
/// leave them. DEEP: memory is contiguous along k, and the tile is a box of LINES rows. Else the tile is boxes of 64 rows
/// along k, for 64 lines each.
template <int LINES, bool DEEP>
struct boxed_tile {
    static constexpr int DEPTH = 64, BYTES = LINES * DEPTH * 2;
    // From one product along 16 elements of k to the next, in units of 16 bytes.
    static constexpr int STEP = (DEEP ? 32 : 16 * 128) / 16;

    __device__ static __forceinline__ void load(unsigned char* tile, const CUtensorMap& map, int line, int depth, int batch,
                                                mbarrier& barrier) {
        if constexpr (DEEP)
            detail::load_box(tile, map, depth, line, batch, barrier);
        else
#pragma unroll
            for (int i = 0; i < LINES; i += 64) detail::load_box(tile + i * 128, map, line + i, depth, batch, barrier);
    }

    /// The matrix descriptor from a line on, which is a multiple of 64.
    __device__ static __forceinline__ unsigned long long descriptor(const unsigned char* tile, int line) {
        // Eight rows of 128 bytes are an atom. Boxes of 64 rows follow each other.
        constexpr unsigned long long FORM = 1ull << 62 | 1024ull >> 4 << 32 | (DEEP ? 1ull : 8192ull >> 4) << 16;
        return FORM | detail::shared_address(tile + line * 128) >> 4;
    }
};

/// Sums of a warpgroup's tile of 64 × WIDE. Products are on their way until `wait` says that they are not.
template <typename T, int WIDE>
struct warpgroup_sums {
    float sum[WIDE / 2];

    /// C += A B along the tiles' depth, or C = A B without `keeps`.
    template <typename A, typename B, bool A_DEEP, bool B_DEEP>
    __device__ __forceinline__ void add(unsigned long long a, unsigned long long b, bool keeps) {
        fix();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < A::DEPTH / 16; ++i)
            detail::wgmma<!A_DEEP, !B_DEEP>(static_cast<const T*>(nullptr), sum, a + i * A::STEP, b + i * B::STEP,
                                            keeps || i > 0);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        fix();
    }
    /// Until all products but those of the last LATER calls of `add` are made.
    template <int LATER>
    __device__ __forceinline__ void wait() {
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
        fix();
    }
    /// Eight neighbours of C: columns `wide` + 8 (lane % 4) on, of row lane / 4 of the warp's 16, or 8 further (`half`).
    __device__ __forceinline__ few<float, 8> neighbours(int wide, int half) const {
        // A thread has two columns of each of four eights, and gets one eight from the four lanes of its row.
        const int lane = threadIdx.x % 4;
        float pairs[4][2];
#pragma unroll
        for (int i = 0; i < 8; ++i) pairs[i / 2][i % 2] = sum[wide / 2 + i / 2 * 4 + half * 2 + i % 2];
#pragma unroll
        for (int apart = 1; apart < 4; apart *= 2)
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int low = i / 2;
                if (low & apart) continue;
                float &x = pairs[low][i % 2], &y = pairs[low + apart][i % 2];
                const bool is_high = lane & apart;
                const float other = __shfl_xor_sync(~0u, is_high ? x : y, apart);
                if (is_high) x = other;
                else y = other;
            }
        few<float, 8> result;
#pragma unroll
        for (int i = 0; i < 8; ++i) result.values[i] = pairs[i / 2][i % 2];
        return result;
    }

private:
    /// The compiler moves no use of a sum over this.
    __device__ __forceinline__ void fix() {
#pragma unroll
        for (int i = 0; i < WIDE / 2; ++i) asm volatile("" : "+f"(sum[i])::"memory");
    }
};

}  // namespace cudakit
