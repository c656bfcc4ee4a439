// Products of tiles of matrices in shared memory by the tensor cores, a warpgroup at a time (wgmma; sm_90a).
#pragma once

#include <cudakit/cluster.cuh>
#include <cudakit/elementwise/values.cuh>
#include <cudakit/product/boxed.cuh>

struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace cudakit {

namespace detail {
/// Type of the sums of products of T.
template <typename T>
struct wgmma_sum {
    using type = float;
};
template <>
struct wgmma_sum<signed char> {
    using type = int;
};

// C += A B of 64 × N along 32 bytes, or C = A B without `keeps`. A descriptor names B, and A, or A is in registers; TURNED: not along
// k. float is TF32, of which the lower 13 bits are ignored.
#define CUDAKIT_TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define CUDAKIT_FOUR(i) CUDAKIT_C(c[i]), CUDAKIT_C(c[i + 1]), CUDAKIT_C(c[i + 2]), CUDAKIT_C(c[i + 3])
#define CUDAKIT_SIXTEEN(i) CUDAKIT_FOUR(i), CUDAKIT_FOUR(i + 4), CUDAKIT_FOUR(i + 8), CUDAKIT_FOUR(i + 12)
#define CUDAKIT_32(i) CUDAKIT_SIXTEEN(i), CUDAKIT_SIXTEEN(i + 16)
#define CUDAKIT_SIXTY CUDAKIT_TEN() CUDAKIT_TEN(1) CUDAKIT_TEN(2) CUDAKIT_TEN(3) CUDAKIT_TEN(4) CUDAKIT_TEN(5)
// The names after those of C: B, whether C is kept, how both lie, and A's last.
#define CUDAKIT_WGMMA(T, FORM, N, NAMES, B, KEEPS, A_LIES, B_LIES, A, A1, A2, A3, ...) \
    template <bool A_TURNED, bool B_TURNED> \
    __device__ __forceinline__ void wgmma(const T*, wgmma_sum<T>::type (&c)[N / 2], CUDAKIT_A, unsigned long long b, int keeps) { \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " KEEPS ", 0; wgmma.mma_async.sync.aligned.m64n" #N FORM " {" NAMES \
                     "}, " CUDAKIT_A_NAMES(A, A1, A2, A3) ", " B ", p" CUDAKIT_SIGNS(A_LIES, B_LIES) "; }" \
                     : __VA_ARGS__ \
                     : "l"(b), "r"(keeps), "n"(A_TURNED ? 1 : 0), "n"(B_TURNED ? 1 : 0), CUDAKIT_A_VALUES); \
    }
#define CUDAKIT_WGMMAS(T, FORM) \
    CUDAKIT_WGMMA(T, FORM, 64, CUDAKIT_TEN() CUDAKIT_TEN(1) CUDAKIT_TEN(2) "%30,%31", "%32", "%33", "%34", "%35", "%36", "%37", \
                  "%38", "%39", CUDAKIT_32(0)) \
    CUDAKIT_WGMMA(T, FORM, 128, CUDAKIT_SIXTY "%60,%61,%62,%63", "%64", "%65", "%66", "%67", "%68", "%69", "%70", "%71", \
                  CUDAKIT_32(0), CUDAKIT_32(32)) \
    CUDAKIT_WGMMA(T, FORM, 144, CUDAKIT_SIXTY CUDAKIT_TEN(6) "%70,%71", "%72", "%73", "%74", "%75", "%76", "%77", "%78", "%79", \
                  CUDAKIT_32(0), CUDAKIT_32(32), CUDAKIT_FOUR(64), CUDAKIT_FOUR(68)) \
    CUDAKIT_WGMMA(T, FORM, 192, CUDAKIT_SIXTY CUDAKIT_TEN(6) CUDAKIT_TEN(7) CUDAKIT_TEN(8) "%90,%91,%92,%93,%94,%95", "%96", "%97", \
                  "%98", "%99", "%100", "%101", "%102", "%103", CUDAKIT_32(0), CUDAKIT_32(32), CUDAKIT_32(64)) \
    CUDAKIT_WGMMA(T, FORM, 256, \
                  CUDAKIT_SIXTY CUDAKIT_TEN(6) CUDAKIT_TEN(7) CUDAKIT_TEN(8) CUDAKIT_TEN(9) CUDAKIT_TEN(10) CUDAKIT_TEN(11) \
                  "%120,%121,%122,%123,%124,%125,%126,%127", \
                  "%128", "%129", "%130", "%131", "%132", "%133", "%134", "%135", CUDAKIT_32(0), CUDAKIT_32(32), CUDAKIT_32(64), \
                  CUDAKIT_32(96))
#define CUDAKIT_A const unsigned int (&a)[4]
#define CUDAKIT_A_NAMES(A, A1, A2, A3) "{" A ", " A1 ", " A2 ", " A3 "}"
#define CUDAKIT_A_VALUES "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define CUDAKIT_C "+f"
#define CUDAKIT_SIGNS(A_LIES, B_LIES) ", 1, 1"
CUDAKIT_WGMMAS(float, "k8.f32.tf32.tf32")
#undef CUDAKIT_A
#undef CUDAKIT_A_NAMES
#undef CUDAKIT_A_VALUES
#define CUDAKIT_A unsigned long long a
#define CUDAKIT_A_NAMES(A, A1, A2, A3) A
#define CUDAKIT_A_VALUES "l"(a)
CUDAKIT_WGMMAS(float, "k8.f32.tf32.tf32")
CUDAKIT_WGMMAS(__nv_fp8_e4m3, "k32.f32.e4m3.e4m3")
CUDAKIT_WGMMAS(__nv_fp8_e5m2, "k32.f32.e5m2.e5m2")
#undef CUDAKIT_SIGNS
#define CUDAKIT_SIGNS(A_LIES, B_LIES) ", 1, 1, " A_LIES ", " B_LIES
CUDAKIT_WGMMAS(__half, "k16.f32.f16.f16")
CUDAKIT_WGMMAS(__nv_bfloat16, "k16.f32.bf16.bf16")
#undef CUDAKIT_C
#undef CUDAKIT_SIGNS
#define CUDAKIT_C "+r"
#define CUDAKIT_SIGNS(A_LIES, B_LIES) ""
CUDAKIT_WGMMAS(signed char, "k32.s32.s8.s8")
#undef CUDAKIT_A
#undef CUDAKIT_A_NAMES
#undef CUDAKIT_A_VALUES
#undef CUDAKIT_C
#undef CUDAKIT_SIGNS
#undef CUDAKIT_WGMMAS
#undef CUDAKIT_WGMMA
#undef CUDAKIT_SIXTY
#undef CUDAKIT_32
#undef CUDAKIT_SIXTEEN
#undef CUDAKIT_FOUR
#undef CUDAKIT_TEN

/// The warpgroup's threads may keep so many registers each from now on.
template <int COUNT, bool IS_MORE>
__device__ __forceinline__ void set_registers() {
    if constexpr (IS_MORE) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
}  // namespace detail

/// Steps of 128 bytes along k whose products tensor cores sum alone, or 0 for all. Of sums of fp8 they keep 14 bits: a result of float
/// has the error of sums of 128 products, and one of 16 bits that of 256, which its rounding covers.
template <typename T, typename Out>
constexpr int fold_steps = sizeof(T) > 1 || !detail::is_floating<typename detail::wgmma_sum<T>::type> ? 0 : sizeof(Out) == 4 ? 1 : 2;

/// Sums of a warpgroup's tile of 64 × WIDE. Products are on their way until `wait` says that they are not. FOLDED: products are
/// summed apart until `fold` adds their sums.
template <typename T, int WIDE, bool FOLDED = false>
struct warpgroup_sums {
    using type = typename detail::wgmma_sum<T>::type;
    type sum[WIDE / 2], part[FOLDED ? WIDE / 2 : 1];

    /// C += A B along the tiles' depth, or C = A B without `keeps`, of the 64 rows of A from `line` on. In one group of products,
    /// or in four where A is read to registers.
    template <typename A, typename B>
    __device__ __forceinline__ void add(const unsigned char* a_tile, const unsigned char* b_tile, int line, bool keeps) {
        const unsigned long long b = B::descriptor(b_tile, 0);
        if constexpr (A::IS_READ) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                // The product of the former call that reads these registers has been made.
                wait<3>();
                unsigned int words[4];
                A::read(words, a_tile, line, i);
                begin();
                detail::wgmma<false, !B::IS_DEEP>(static_cast<const T*>(nullptr), target(), words, b + i * B::STEP, keeps || i > 0);
                commit();
            }
        } else {
            const unsigned long long a = A::descriptor(a_tile, line);
            begin();
#pragma unroll
            for (int i = 0; i < 4; ++i)
                detail::wgmma<!A::IS_DEEP, !B::IS_DEEP>(static_cast<const T*>(nullptr), target(), a + i * A::STEP, b + i * B::STEP,
                                                        keeps || i > 0);
            commit();
        }
    }
    /// Add the sums of products to the sums.
    __device__ __forceinline__ void fold() {
#pragma unroll
        for (int i = 0; i < (FOLDED ? WIDE / 2 : 0); ++i) sum[i] += part[i];
    }
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < WIDE / 2; ++i) sum[i] = 0;
    }
    /// Until all products but those of the last LATER groups are made.
    template <int LATER>
    __device__ __forceinline__ void wait() {
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
        fix();
    }
    /// Add the sums of the same thread in the other blocks of a cluster of BLOCKS, in the order of their ranks. The block of
    /// rank r then has the totals of parts r, r + BLOCKS, …; a part is 8 sums. All threads of the cluster call it, or arrive and wait
    /// twice. `parts` is memory of the block that no copy writes: 32 bytes a thread for each part of each block.
    template <int BLOCKS, bool TURNED>
    __device__ __forceinline__ void total(void* parts, unsigned int rank, int thread, int threads) {
        using Four = pack<type, 4>;
        constexpr int PARTS = WIDE / 16;
        const auto at = [&](int part, int block, int quarter) {
            return static_cast<Four*>(parts) + ((part / BLOCKS * BLOCKS + block) * 2 + quarter) * threads + thread;
        };
        // Other blocks may still read their tiles, which are in the memory of the parts.
        cluster_arrive_relaxed();
        cluster_wait();
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
            if (part % BLOCKS != rank)
#pragma unroll
                for (int quarter = 0; quarter < 2; ++quarter) {
                    Four four;
#pragma unroll
                    for (int i = 0; i < 4; ++i) four.values[i] = sum[index<TURNED>(part, quarter * 4 + i)];
                    *cluster_shared(at(part, rank, quarter), part % BLOCKS) = four;
                }
        cluster_arrive();
        cluster_wait();
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
            if (part % BLOCKS == rank)
#pragma unroll
                for (int quarter = 0; quarter < 2; ++quarter) {
                    type all[4]{};
#pragma unroll
                    for (int block = 0; block < BLOCKS; ++block) {
                        Four four;
                        if (block != rank) four = *at(part, block, quarter);
#pragma unroll
                        for (int i = 0; i < 4; ++i)
                            all[i] += block == rank ? sum[index<TURNED>(part, quarter * 4 + i)] : four.values[i];
                    }
#pragma unroll
                    for (int i = 0; i < 4; ++i) sum[index<TURNED>(part, quarter * 4 + i)] = all[i];
                }
    }

    /// Store parts `first`, `first` + PARTS, … of the sums of the warpgroup's 64 rows, which lie as A says. A part of a warp is 8 rows
    /// and 32 columns; TURNED: 16 rows and 16 columns, which are columns and rows of C.
    template <typename A, int PARTS, bool TURNED, typename Epilogue>
    __device__ __forceinline__ void store(const Epilogue& epilogue, int first, int line) const {
        const int warp = threadIdx.x / 32 % 4, high = threadIdx.x / 4 % 8, wide = threadIdx.x % 4;
#pragma unroll
        for (int part = 0; part < WIDE / 16; ++part)
            if (part % PARTS == first) {
                if constexpr (TURNED && !A::IS_READ)
                    epilogue.store(part * 16 + high % 4 / 2 * 8 + wide * 2 + high % 2, line + warp * 16 + high / 4 * 8, turned(part));
                else if constexpr (TURNED)
                    epilogue.store(part * 16 + high % 4 / 2 * 8 + wide * 2 + high % 2, line + A::line(warp, high / 4 * 4, 0),
                                   neighbours<true>(part));
                else
                    epilogue.store(line + A::line(warp, high, part % 2), part / 2 * 32 + wide * 8, neighbours<false>(part));
            }
    }

private:
    /// Number of the sum i of a part.
    template <bool TURNED>
    __device__ static constexpr int index(int part, int i) {
        return TURNED ? part * 8 + i / 4 * 4 + i % 2 * 2 + i / 2 % 2 : part / 2 * 16 + i / 2 * 4 + part % 2 * 2 + i % 2;
    }
    /// Eight neighbours along a row of C, from the four lanes that have two each.
    template <bool TURNED>
    __device__ __forceinline__ few<type, 8> neighbours(int part) const {
        // A thread has a pair of each of four eights, and gets one eight.
        constexpr int STEP = TURNED ? 4 : 1;
        const int lane = threadIdx.x / STEP % 4;
        type pairs[4][2];
#pragma unroll
        for (int i = 0; i < 8; ++i) pairs[i / 2][i % 2] = sum[index<TURNED>(part, i)];
#pragma unroll
        for (int apart = 1; apart < 4; apart *= 2)
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int low = i / 2;
                if (low & apart) continue;
                type &x = pairs[low][i % 2], &y = pairs[low + apart][i % 2];
                const bool is_high = lane & apart;
                const type other = __shfl_xor_sync(~0u, is_high ? x : y, apart * STEP);
                if (is_high) x = other;
                else y = other;
            }
        few<type, 8> result;
#pragma unroll
        for (int i = 0; i < 8; ++i) result.values[i] = TURNED ? pairs[i % 4][i / 4] : pairs[i / 2][i % 2];
        return result;
    }

    /// Eight neighbours along a column of the tile, from the eight lanes that have eight values of a row each: lane `high` gets half
    /// high / 4, columns high / 2 % 2 * 8 + high % 2.
    __device__ __forceinline__ few<type, 8> turned(int part) const {
        const int high = threadIdx.x / 4 % 8;
        few<type, 8> result;
#pragma unroll
        for (int i = 0; i < 8; ++i) result.values[i] = sum[part * 8 + i % 4 / 2 * 4 + i / 4 * 2 + i % 2];
#pragma unroll
        for (int apart = 1; apart < 8; apart *= 2)
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                if (i & apart) continue;
                type &x = result.values[i], &y = result.values[i + apart];
                const bool is_high = high & apart;
                const type other = __shfl_xor_sync(~0u, is_high ? x : y, apart * 4);
                if (is_high) x = other;
                else y = other;
            }
        return result;
    }

    __device__ __forceinline__ auto& target() {
        if constexpr (FOLDED) return part;
        else return sum;
    }
    __device__ __forceinline__ void begin() {
        fix();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    }
    __device__ __forceinline__ void commit() {
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        fix();
    }
    /// The compiler moves no use of a sum over this.
    __device__ __forceinline__ void fix() {
#pragma unroll
        for (int i = 0; i < WIDE / 2; ++i) {
            if constexpr (detail::is_floating<type>) asm volatile("" : "+f"(target()[i])::"memory");
            else asm volatile("" : "+r"(target()[i])::"memory");
        }
    }
};

}  // namespace cudakit
