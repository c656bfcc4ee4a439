// What becomes of a product of matrices before it is stored.
#pragma once

#include <cudakit/elementwise/values.cuh>

namespace cudakit {

struct identity {
    template <typename Out, typename V>
    __device__ static V of(V x) { return x; }
};
struct relu {
    template <typename Out, typename V>
    __device__ static V of(V x) { return x < V(0) ? V(0) : x; }
};
// x · sigmoid(x)
struct silu {
    template <typename Out, typename V>
    __device__ static V of(V x) {
        if constexpr (sizeof(V) == 8) return x / (V(1) + exp(-x));
        else return __fdividef(x, 1.0f + __expf(-x));
    }
};
// x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), which is x · sigmoid of twice that
struct gelu {
    template <typename Out, typename V>
    __device__ static V of(V x) {
        const V twice = x * (x * x * V(0.0713548162726002527) + V(1.5957691216057307117));
        if constexpr (sizeof(V) == 8) return x / (V(1) + exp(-twice));
        else return __fdividef(x, 1.0f + __expf(-twice));
    }
};

namespace detail {
template <typename V>
__device__ __forceinline__ V plus(V x, V y) {
    return x + y;
}
template <typename R>
__device__ __forceinline__ parts<R> plus(parts<R> x, parts<R> y) {
    return {x.real + y.real, x.imaginary + y.imaginary};
}
template <typename V, typename Scale>
__device__ __forceinline__ V scaled(V x, Scale scale) {
    if constexpr (is_floating<Scale>) return x * scale;
    else return x;
}
template <typename R>
__device__ __forceinline__ parts<R> scaled(parts<R> x, R scale) {
    return {x.real * scale, x.imaginary * scale};
}
}  // namespace detail

/// activation(scale · sum + bias) + residual as Out, computed as V, whose parts have the type Scale; integers are not scaled.
/// IS_ALIGNED: addresses and rows are so to 16 bytes. `row` and `column` count from the block's tile, of which `rows` and
/// `columns` are inside the matrix.
template <typename V, typename Scale, typename Out, typename Activation, bool BIAS, bool RESIDUAL, bool IS_ALIGNED>
struct product_epilogue {
    const Out *bias, *residual;
    Out* out;
    long long pitch;
    Scale scale;
    int rows, columns;

    template <typename Sum, int COUNT>
    __device__ __forceinline__ void store(int row, int column, const few<Sum, COUNT>& sums) const {
        if (row >= rows || column >= columns) return;
        const long long at = row * pitch + column;
        constexpr int MOST = 16 / static_cast<int>(sizeof(Out)), RUN = COUNT < MOST ? COUNT : MOST;
#pragma unroll
        for (int begin = 0; begin < COUNT; begin += RUN) {
            const int left = columns - column - begin;
            const bool is_whole = IS_ALIGNED && left >= RUN;
            pack<Out, RUN> made{}, added{}, more{};
            if constexpr (BIAS) read(added, bias + column + begin, left, is_whole);
            if constexpr (RESIDUAL) read(more, residual + at + begin, left, is_whole);
#pragma unroll
            for (int e = 0; e < RUN; ++e) {
                V x = detail::scaled(convert<V>(sums.values[begin + e]), scale);
                if constexpr (BIAS) x = detail::plus(x, convert<V>(added.values[e]));
                x = Activation::template of<Out>(x);
                if constexpr (RESIDUAL) x = detail::plus(x, convert<V>(more.values[e]));
                made.values[e] = convert<Out>(x);
            }
            if (is_whole)
                store_pack(out + at + begin, made);
            else
#pragma unroll
                for (int e = 0; e < RUN; ++e)
                    if (e < left) out[at + begin + e] = made.values[e];
        }
    }

private:
    template <int RUN>
    __device__ static __forceinline__ void read(pack<Out, RUN>& values, const Out* from, int left, bool is_whole) {
        if (is_whole)
            values = load_pack<RUN>(from);
        else
#pragma unroll
            for (int e = 0; e < RUN; ++e)
                if (e < left) values.values[e] = from[e];
    }
};

}  // namespace cudakit
