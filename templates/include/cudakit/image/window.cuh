// What is done to the window around a pixel, in two halves: `along` a row, once for all windows that the row is in, and `across`
// the rows' results. Pixels of C channels that alternate have their neighbours C elements away.
#pragma once

#include <cudakit/image/border.cuh>
#include <cudakit/monoid.cuh>

namespace cudakit {

/// COUNT elements of a row with PAD more on each side.
template <typename T, int COUNT, int PAD>
struct row_part {
    pack<T, COUNT> own;
    T left[PAD == 0 ? 1 : PAD], right[PAD == 0 ? 1 : PAD];

    /// Element k, from −PAD to COUNT + PAD − 1, with which loops that are unrolled call this.
    template <typename V>
    __device__ V at(int k) const {
        return as<V>(k < 0 ? left[PAD + k] : k < COUNT ? own.values[k < 0 || k >= COUNT ? 0 : k] : right[k - COUNT]);
    }
};

/// The lines of a window, whose first is at `first` of a ring of LINES.
template <typename Line, int LINES>
struct window_lines {
    const Line (&lines)[LINES];
    int first;
    __device__ __forceinline__ const Line& operator[](int k) const { return lines[(first + k) % LINES]; }
};

/// scale Σ y[|j|] x[|i|] window[j, i] over |j| ≤ HY, |i| ≤ HX. For bytes V is int: sums of at most 2^24 − 2^16, and a scale in
/// 2^−24 that makes 255 of them at most.
template <typename V, int HY, int HX, int C>
struct smooth {
    static constexpr int DOWN = HY, RIGHT = HX;
    template <int COUNT>
    struct line {
        V sums[COUNT];
    };

    template <typename T, int COUNT, int PAD, typename Weights>
    static __device__ line<COUNT> along(const row_part<T, COUNT, PAD>& row, const Weights& weights) {
        line<COUNT> found;
        if constexpr (sizeof(T) == 1 && C == 1 && HX >= 1 && HX <= 3 && COUNT % 4 == 0) {
            // Four pixels a word: one instruction multiplies and adds four of them.
            unsigned words[COUNT / 4 + 2] = {};
            memcpy(words + 1, &row.own, COUNT);
#pragma unroll
            for (int k = 0; k < PAD; ++k) {
                words[0] |= static_cast<unsigned>(row.left[k]) << 8 * (4 - PAD + k);
                words[COUNT / 4 + 1] |= static_cast<unsigned>(row.right[k]) << 8 * k;
            }
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                unsigned sum = 0;
#pragma unroll
                for (int part = 0; part <= 2 * HX / 4; ++part) {
                    const int at = 4 + k - HX + 4 * part, word = at / 4;
                    const unsigned next = word + 1 < COUNT / 4 + 2 ? words[word + 1] : 0;
                    sum = __dp4a(__funnelshift_r(words[word], next, at % 4 * 8), static_cast<unsigned>(weights.bytes[part]), sum);
                }
                found.sums[k] = static_cast<V>(sum);
            }
        } else {
            V values[COUNT + 2 * PAD];
#pragma unroll
            for (int k = 0; k < COUNT + 2 * PAD; ++k) values[k] = row.template at<V>(k - PAD);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                V sum = weights.x[0] * values[PAD + k];
#pragma unroll
                for (int i = 1; i <= HX; ++i) sum += weights.x[i] * (values[PAD + k - i * C] + values[PAD + k + i * C]);
                found.sums[k] = sum;
            }
        }
        return found;
    }
    template <typename R, int COUNT, typename Lines, typename Weights>
    static __device__ pack<R, COUNT> across(const Lines& lines, const Weights& weights) {
        pack<R, COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            V sum = weights.y[0] * lines[HY].sums[k];
#pragma unroll
            for (int j = 1; j <= HY; ++j) sum += weights.y[j] * (lines[HY - j].sums[k] + lines[HY + j].sums[k]);
            if constexpr (V(1) / V(2) == V(0))
                found.values[k] = static_cast<R>((static_cast<unsigned>(sum) * static_cast<unsigned>(weights.scale) + (1u << 23)) >> 24);
            else
                found.values[k] = pixel<R>(sum * weights.scale);
        }
        return found;
    }
};

/// Σ weights.all[j, i] window[j, i].
template <typename V, int HY, int HX, int C>
struct weighed {
    static constexpr int DOWN = HY, RIGHT = HX;
    template <int COUNT>
    struct line {
        V values[COUNT + 2 * HX * C];
    };

    template <typename T, int COUNT, int PAD, typename Weights>
    static __device__ line<COUNT> along(const row_part<T, COUNT, PAD>& row, const Weights&) {
        line<COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT + 2 * PAD; ++k) found.values[k] = row.template at<V>(k - PAD);
        return found;
    }
    template <typename R, int COUNT, typename Lines, typename Weights>
    static __device__ pack<R, COUNT> across(const Lines& lines, const Weights& weights) {
        pack<R, COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            V sum = 0;
#pragma unroll
            for (int j = 0; j <= 2 * HY; ++j)
#pragma unroll
                for (int i = 0; i <= 2 * HX; ++i) sum += weights.all[j * (2 * HX + 1) + i] * lines[j].values[k + i * C];
            found.values[k] = pixel<R>(sum);
        }
        return found;
    }
};

/// The least or greatest of the window, by `minimum` or `maximum`.
template <typename V, typename Pick, int HY, int HX, int C>
struct picked {
    static constexpr int DOWN = HY, RIGHT = HX;
    template <int COUNT>
    struct line {
        V values[COUNT];
    };

    template <typename T, int COUNT, int PAD, typename Weights>
    static __device__ line<COUNT> along(const row_part<T, COUNT, PAD>& row, const Weights&) {
        line<COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            found.values[k] = row.template at<V>(k);
#pragma unroll
            for (int i = 1; i <= HX; ++i)
                found.values[k] = Pick()(found.values[k], Pick()(row.template at<V>(k - i * C), row.template at<V>(k + i * C)));
        }
        return found;
    }
    template <typename R, int COUNT, typename Lines, typename Weights>
    static __device__ pack<R, COUNT> across(const Lines& lines, const Weights&) {
        pack<R, COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            V value = lines[0].values[k];
#pragma unroll
            for (int j = 1; j <= 2 * HY; ++j) value = Pick()(value, lines[j].values[k]);
            found.values[k] = as<R>(value);
        }
        return found;
    }
};

/// What a window of 3 × 3 has in its middle when sorted: of the greatest least of its rows, the middle one of their middle ones
/// and the least greatest, the middle one.
template <typename V, int C>
struct median {
    static constexpr int DOWN = 1, RIGHT = 1;
    template <int COUNT>
    struct line {
        V least[COUNT], middle[COUNT], greatest[COUNT];
    };
    static __device__ V low(V a, V b) { return minimum()(a, b); }
    static __device__ V high(V a, V b) { return maximum()(a, b); }
    static __device__ V mid(V a, V b, V c) { return high(low(a, b), low(high(a, b), c)); }

    template <typename T, int COUNT, int PAD, typename Weights>
    static __device__ line<COUNT> along(const row_part<T, COUNT, PAD>& row, const Weights&) {
        line<COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const V a = row.template at<V>(k - C), b = row.template at<V>(k), c = row.template at<V>(k + C);
            found.least[k] = low(low(a, b), c);
            found.middle[k] = mid(a, b, c);
            found.greatest[k] = high(high(a, b), c);
        }
        return found;
    }
    template <typename R, int COUNT, typename Lines, typename Weights>
    static __device__ pack<R, COUNT> across(const Lines& lines, const Weights&) {
        pack<R, COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const V least = high(high(lines[0].least[k], lines[1].least[k]), lines[2].least[k]);
            const V middle = mid(lines[0].middle[k], lines[1].middle[k], lines[2].middle[k]);
            const V greatest = low(low(lines[0].greatest[k], lines[1].greatest[k]), lines[2].greatest[k]);
            found.values[k] = as<R>(mid(least, middle, greatest));
        }
        return found;
    }
};

/// Sobel's derivative down (AXIS 0) or to the right (1), or the length of both (2).
template <typename V, int AXIS, int C>
struct gradient {
    static constexpr int DOWN = 1, RIGHT = 1;
    template <int COUNT>
    struct line {
        V differences[COUNT], sums[COUNT];
    };

    template <typename T, int COUNT, int PAD, typename Weights>
    static __device__ line<COUNT> along(const row_part<T, COUNT, PAD>& row, const Weights&) {
        line<COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const V left = row.template at<V>(k - C), own = row.template at<V>(k), right = row.template at<V>(k + C);
            found.differences[k] = right - left;
            found.sums[k] = left + 2 * own + right;
        }
        return found;
    }
    template <typename R, int COUNT, typename Lines, typename Weights>
    static __device__ pack<R, COUNT> across(const Lines& lines, const Weights&) {
        pack<R, COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const V x = lines[0].differences[k] + 2 * lines[1].differences[k] + lines[2].differences[k];
            const V y = lines[2].sums[k] - lines[0].sums[k];
            if constexpr (AXIS == 0) {
                found.values[k] = as<R>(y);
            } else if constexpr (AXIS == 1) {
                found.values[k] = as<R>(x);
            } else if constexpr (sizeof(R) == 1) {
                // No square root of an integer lies so near to a half that this one would be on its other side.
                float length;
                asm("sqrt.approx.f32 %0, %1;" : "=f"(length) : "f"(static_cast<float>(x * x + y * y)));
                found.values[k] = static_cast<R>(static_cast<int>(min(length, 255.0f) + 0.5f));
            } else if constexpr (V(1) / V(2) == V(0)) {
                const double u = x, v = y;
                found.values[k] = pixel<R>(sqrt(u * u + v * v));
            } else {
                found.values[k] = as<R>(sqrt(x * x + y * y));
            }
        }
        return found;
    }
};

}  // namespace cudakit
