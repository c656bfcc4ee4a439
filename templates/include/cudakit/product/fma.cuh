// Products of tiles of matrices in shared memory by the threads' own arithmetic: exact in any type.
#pragma once

#include <cudakit/product/operand.cuh>

namespace cudakit {

namespace detail {
template <typename A>
__device__ __forceinline__ A multiplied_and_added(A a, A b, A c) {
    return a * b + c;
}
__device__ __forceinline__ float multiplied_and_added(float a, float b, float c) {
    return fmaf(a, b, c);
}
__device__ __forceinline__ double multiplied_and_added(double a, double b, double c) {
    return fma(a, b, c);
}
template <typename R>
__device__ __forceinline__ parts<R> multiplied_and_added(parts<R> a, parts<R> b, parts<R> c) {
    return {fma(a.real, b.real, fma(-a.imaginary, b.imaginary, c.real)),
            fma(a.real, b.imaginary, fma(a.imaginary, b.real, c.imaginary))};
}
}  // namespace detail

/// A block's share of C, ROWS × COLUMNS, as sums of type A in its threads' registers: TM × TN each, in runs of up to 16
/// bytes, so that 32 lanes read few and whole banks. Tiles of both operands lie depth after depth.
template <typename T, typename A, int ROWS, int COLUMNS, int DEPTH, int WARPS_M, int WARPS_N, int TM, int TN>
struct fma_product {
    using stored = T;
    static constexpr int HIGH = ROWS, WIDE = COLUMNS, DEEP = DEPTH, THREADS = 32 * WARPS_M * WARPS_N;
    static constexpr bool A_DEEP = false, B_DEEP = false;
    static constexpr int A_PAD = 16, B_PAD = 16;
    static constexpr int LANES_M = ROWS / (WARPS_M * TM), LANES_N = COLUMNS / (WARPS_N * TN);
    static_assert(LANES_M * LANES_N == 32, "the lanes of the warps make up the tile");
    static constexpr int MOST = 16 / static_cast<int>(sizeof(T));
    static constexpr int RUN_M = TM < MOST ? TM : MOST, RUN_N = TN < MOST ? TN : MOST;
    using sums = A;

    static constexpr int STEPS = DEPTH;
    struct fragments {
        A left[TM], right[TN];
    };

    A sum[TM][TN];
    int row, column;

    __device__ __forceinline__ fma_product() {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        row = warp / WARPS_N * (LANES_M * TM) + lane / LANES_N * RUN_M;
        column = warp % WARPS_N * (LANES_N * TN) + lane % LANES_N * RUN_N;
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] = A{};
    }

    template <typename ATile, typename BTile>
    __device__ __forceinline__ void read(fragments& to, const T* a, const T* b, int step) const {
        read<RUN_M, LANES_M>(to.left, a + ATile::place(row, step));
        read<RUN_N, LANES_N>(to.right, b + BTile::place(column, step));
    }

    __device__ __forceinline__ void add(const fragments& of) {
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] = detail::multiplied_and_added(of.left[i], of.right[j], sum[i][j]);
    }

    template <typename Epilogue>
    __device__ __forceinline__ void finish(const Epilogue& epilogue) const {
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; j += RUN_N) {
                few<A, RUN_N> run;
#pragma unroll
                for (int e = 0; e < RUN_N; ++e) run.values[e] = sum[i][j + e];
                epilogue.store(row + i / RUN_M * (LANES_M * RUN_M) + i % RUN_M, column + j * LANES_N, run);
            }
    }

private:
    template <int RUN, int LANES, int COUNT>
    __device__ static __forceinline__ void read(A (&values)[COUNT], const T* shared) {
#pragma unroll
        for (int i = 0; i < COUNT; i += RUN) {
            const pack<T, RUN> found = *reinterpret_cast<const pack<T, RUN>*>(shared + i * LANES);
#pragma unroll
            for (int e = 0; e < RUN; ++e) values[i + e] = convert<A>(found.values[e]);
        }
    }
};

}  // namespace cudakit
