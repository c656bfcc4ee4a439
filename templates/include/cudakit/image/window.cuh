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

    /// Bytes as words of four: those of `own`, and as many on each side as have PAD more, of which others are 0.
    template <int WORDS>
    __device__ __forceinline__ void words(unsigned (&words)[WORDS]) const {
        static_assert(sizeof(T) == 1 && COUNT % 4 == 0, "words of four bytes");
        constexpr int BEFORE = (PAD + 3) / 4, AFTER = BEFORE + COUNT / 4;
        static_assert(WORDS == BEFORE + AFTER, "as many words on both sides");
#pragma unroll
        for (int k = 0; k < BEFORE; ++k) words[k] = words[AFTER + k] = 0;
        memcpy(words + BEFORE, &own, COUNT);
#pragma unroll
        for (int k = 0; k < PAD; ++k) {
            const int at = 4 * BEFORE - PAD + k;
            words[at / 4] |= static_cast<unsigned>(left[k]) << at % 4 * 8;
            words[AFTER + k / 4] |= static_cast<unsigned>(right[k]) << k % 4 * 8;
        }
    }

    /// Its elements as numbers, from −PAD on.
    template <typename V>
    __device__ __forceinline__ void numbers(V (&values)[COUNT + 2 * PAD]) const {
#pragma unroll
        for (int k = 0; k < PAD; ++k) {
            values[k] = as<V>(left[k]);
            values[PAD + COUNT + k] = as<V>(right[k]);
        }
        if constexpr (sizeof(T) == 1 && COUNT % 4 == 0) {
            unsigned words[COUNT / 4];
            memcpy(words, &own, COUNT);
#pragma unroll
            for (int k = 0; k < COUNT; ++k)  // one instruction a byte, where a shift and a mask would be two
                values[PAD + k] = static_cast<V>(static_cast<int>(__byte_perm(words[k / 4], 0, 0x4440 + k % 4)));
        } else {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) values[PAD + k] = as<V>(own.values[k]);
        }
    }
};

/// The lines of a window, whose first is at `first` of a ring of LINES.
template <typename Line, int LINES>
struct window_lines {
    const Line (&lines)[LINES];
    int first;
    __device__ __forceinline__ const Line& operator[](int k) const { return lines[(first + k) % LINES]; }
};

/// Σ x[|i|] of the bytes around byte k of the words after the first. weights.bytes: x four to a word, for windows that begin at byte 0, 1,
/// 2, 3 of one.
template <int HX, int WORDS, typename Weights>
__device__ __forceinline__ unsigned dot(const unsigned (&words)[WORDS], int k, const Weights& weights) {
    const int first = 4 + k - HX;
    unsigned sum = 0;
#pragma unroll
    for (int word = first / 4; word <= (first + 2 * HX) / 4; ++word)
        sum = __dp4a(words[word], weights.bytes[first % 4 * 3 + word - first / 4], sum);
    return sum;
}

/// Σ y[|j|] x[|i|] window[j, i] over |j| ≤ HY, |i| ≤ HX. For bytes V is unsigned: x in whole numbers that add up to 256 at most, y in
/// 2^−24 of such that the sum of all is at most 255. bytes: as in `dot`.
template <typename V, int HY, int HX, int C>
struct smooth {
    static constexpr int DOWN = HY, RIGHT = HX;
    static constexpr bool IS_WHOLE = V(1) / V(2) == V(0);
    template <int COUNT>
    struct line {
        V sums[COUNT];
    };

    template <typename T, int COUNT, int PAD, typename Weights>
    static __device__ line<COUNT> along(const row_part<T, COUNT, PAD>& row, const Weights& weights) {
        line<COUNT> found;
        if constexpr (sizeof(T) == 1 && C == 1 && HX >= 1 && HX <= 3 && COUNT % 4 == 0) {
            // Four pixels a word: one instruction multiplies and adds four of them. Words are taken as they lie, and the weights
            // shifted.
            unsigned words[COUNT / 4 + 2];
            row.words(words);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                found.sums[k] = static_cast<V>(dot<HX>(words, k, weights));
            }
        } else {
            V values[COUNT + 2 * PAD];
            row.numbers(values);
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
        V sums[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            sums[k] = weights.y[0] * lines[HY].sums[k];
            if constexpr (IS_WHOLE) sums[k] += V(1) << 23;
#pragma unroll
            for (int j = 1; j <= HY; ++j) sums[k] += weights.y[j] * (lines[HY - j].sums[k] + lines[HY + j].sums[k]);
            if constexpr (!IS_WHOLE) found.values[k] = pixel<R>(sums[k]);
        }
        if constexpr (IS_WHOLE && COUNT % 4 == 0) {
#pragma unroll
            for (int k = 0; k < COUNT; k += 4) {  // the first bytes of four sums
                const unsigned low = __byte_perm(sums[k], sums[k + 1], 0x0073), high = __byte_perm(sums[k + 2], sums[k + 3], 0x0073);
                const unsigned word = __byte_perm(low, high, 0x5410);
                memcpy(found.values + k, &word, 4);
            }
        } else if constexpr (IS_WHOLE) {
#pragma unroll
            for (int k = 0; k < COUNT; ++k) found.values[k] = static_cast<R>(sums[k] >> 24);
        }
        return found;
    }
};

/// Bytes of words as pairs of 16 bits: i and i + 2, with `upper` as the upper byte of both.
template <int WORDS>
struct byte_pairs {
    unsigned parts[WORDS][2];

    byte_pairs() = default;
    __device__ __forceinline__ byte_pairs(const unsigned (&words)[WORDS], unsigned upper) {
#pragma unroll
        for (int k = 0; k < WORDS; ++k) {
            parts[k][0] = __byte_perm(words[k], upper, 0x4240);
            parts[k][1] = __byte_perm(words[k], upper, 0x4341);
        }
    }
    __device__ __forceinline__ unsigned operator()(int i) const {
        const unsigned from = parts[i / 4][i % 2];
        return i % 4 < 2 ? from : __funnelshift_r(from, parts[i / 4 + 1][i % 2], 16);
    }
};

/// `smooth` of bytes whose whole weights add up to 257 at most: two sums of 16 bits a word, which one instruction adds or multiplies.
/// They add up to 256, and the upper byte of a sum is the result. BOX: all are 1, and weights.scale is 2^24 by their number. UNIT: the
/// outermost of a column are 1. weights.bytes: as in `dot`.
template <int HY, int HX, int C, bool BOX, bool UNIT = BOX>
struct halves {
    static constexpr int DOWN = HY, RIGHT = HX;
    /// Four neighbours' products at once take fewer instructions than pairs only if pairs need two shifts.
    static constexpr bool DOTS = !BOX && C == 1 && HX == 2;
    /// Of four neighbours the first and the third, then the second and the fourth.
    template <int COUNT>
    struct line {
        unsigned sums[COUNT / 2];
    };
    template <typename Weights>
    static __device__ unsigned weight(const Weights& weights, int k) {
        return BOX ? 1 : weights[k];
    }

    template <typename T, int COUNT, int PAD, typename Weights>
    static __device__ line<COUNT> along(const row_part<T, COUNT, PAD>& row, const Weights& weights) {
        static_assert(sizeof(T) == 1 && COUNT % 4 == 0, "words of four pixels");
        constexpr int BEFORE = (PAD + 3) / 4, WORDS = 2 * BEFORE + COUNT / 4;
        unsigned words[WORDS];
        row.words(words);
        line<COUNT> found;
        if constexpr (DOTS) {
#pragma unroll
            for (int k = 0; k < COUNT / 2; ++k) {
                const int own = k / 2 * 4 + k % 2;
                found.sums[k] = __byte_perm(dot<HX>(words, own, weights), dot<HX>(words, own + 2, weights), 0x5410);
            }
        } else {
            const byte_pairs<WORDS> pair(words, 0);
#pragma unroll
            for (int k = 0; k < COUNT / 2; ++k) {
                const int own = 4 * BEFORE + k / 2 * 4 + k % 2;
                unsigned sum = weight(weights.x, 0) * pair(own);
#pragma unroll
                for (int i = 1; i <= HX; ++i) sum += weight(weights.x, i) * (pair(own - i * C) + pair(own + i * C));
                found.sums[k] = sum;
            }
        }
        return found;
    }
    template <typename R, int COUNT, typename Lines, typename Weights>
    static __device__ pack<R, COUNT> across(const Lines& lines, const Weights& weights) {
        pack<R, COUNT> found;
#pragma unroll
        for (int word = 0; word < COUNT / 4; ++word) {
            unsigned sums[2];
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                sums[k] = weight(weights.y, 0) * lines[HY].sums[2 * word + k] + (BOX ? 0 : 0x00800080);
#pragma unroll
                for (int j = 1; j <= HY; ++j)
                    sums[k] += (UNIT && j == HY ? 1 : weight(weights.y, j)) * (lines[HY - j].sums[2 * word + k] + lines[HY + j].sums[2 * word + k]);
            }
            unsigned bytes;
            if constexpr (!BOX) {
                bytes = __byte_perm(sums[0], sums[1], 0x7351);
            } else {
                const auto mean = [&](unsigned sum) { return weights.scale * sum + (1u << 23); };
                const unsigned low = __byte_perm(mean(sums[0] & 0xffff), mean(sums[1] & 0xffff), 0x0073);
                const unsigned high = __byte_perm(mean(sums[0] >> 16), mean(sums[1] >> 16), 0x0073);
                bytes = __byte_perm(low, high, 0x5410);
            }
            memcpy(found.values + 4 * word, &bytes, 4);
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
        row.numbers(found.values);
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
        V values[COUNT + 2 * PAD];
        row.numbers(values);
        line<COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            found.values[k] = values[PAD + k];
#pragma unroll
            for (int i = 1; i <= HX; ++i)
                found.values[k] = Pick()(found.values[k], Pick()(values[PAD + k - i * C], values[PAD + k + i * C]));
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
        V values[COUNT + 2 * PAD];
        row.numbers(values);
        line<COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const V a = values[k], b = values[PAD + k], c = values[2 * PAD + k];
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
        V values[COUNT + 2 * PAD];
        row.numbers(values);
        line<COUNT> found;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const V left = values[k], own = values[PAD + k], right = values[2 * PAD + k];
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
            } else if constexpr (V(1) / V(2) == V(0)) {
                const float u = x, v = y;
                found.values[k] = pixel<R>(sqrt(u * u + v * v));
            } else {
                found.values[k] = as<R>(sqrt(x * x + y * y));
            }
        }
        return found;
    }
};

namespace detail {
// Two numbers of 16 bits, as <cuda_fp16.h> computes them, which takes longer to compile than all of this.
__device__ inline unsigned plus(unsigned a, unsigned b) {
    asm("add.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
}
__device__ inline unsigned minus(unsigned a, unsigned b) {
    asm("sub.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
}
/// a + 2 b + c.
__device__ inline unsigned weighed_121(unsigned a, unsigned b, unsigned c) {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(a) : "r"(b), "r"(0x40004000));
    return plus(a, c);
}
__device__ inline float2 floats(unsigned halves) {
    float2 result;
    asm("{.reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
        : "=f"(result.x), "=f"(result.y)
        : "r"(halves));
    return result;
}
}  // namespace detail

/// The length of Sobel's gradient of bytes: derivatives of two pixels a word, as float16. A byte's bits are the denormal of 2^−24 of it,
/// and sums of these stay exact.
template <int C>
struct gradient_halves {
    static constexpr int DOWN = 1, RIGHT = 1;
    template <int COUNT>
    using line = byte_pairs<2 * ((C + 3) / 4) + COUNT / 4>;

    template <typename T, int COUNT, int PAD, typename Weights>
    static __device__ line<COUNT> along(const row_part<T, COUNT, PAD>& row, const Weights&) {
        static_assert(sizeof(T) == 1 && COUNT % 4 == 0, "words of four pixels");
        unsigned words[2 * ((C + 3) / 4) + COUNT / 4];
        row.words(words);
        return {words, 0};
    }
    template <typename R, int COUNT, typename Lines, typename Weights>
    static __device__ pack<R, COUNT> across(const Lines& lines, const Weights&) {
        line<COUNT> sums, differences;
#pragma unroll
        for (int k = 0; k < sizeof(sums.parts) / 8; ++k)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const auto row = [&](int line) { return lines[line].parts[k][half]; };
                sums.parts[k][half] = detail::weighed_121(row(0), row(1), row(2));
                differences.parts[k][half] = detail::minus(row(2), row(0));
            }
        pack<R, COUNT> found;
#pragma unroll
        for (int word = 0; word < COUNT / 4; ++word) {
            unsigned bits[4];
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const int own = ((C + 3) / 4 + word) * 4 + k;
                const float2 x = detail::floats(detail::minus(sums(own + C), sums(own - C)));
                const float2 y = detail::floats(detail::weighed_121(differences(own - C), differences(own), differences(own + C)));
                bits[k] = root(x.x * x.x + y.x * y.x);
                bits[k + 2] = root(x.y * x.y + y.y * y.y);
            }
            unsigned bytes;
            asm("{.reg .b32 high; cvt.pack.sat.u8.s32.b32 high, %4, %3, 0; cvt.pack.sat.u8.s32.b32 %0, %2, %1, high;}"
                : "=r"(bytes)
                : "r"(bits[0]), "r"(bits[1]), "r"(bits[2]), "r"(bits[3]));
            memcpy(found.values + 4 * word, &bytes, 4);
        }
        return found;
    }
    /// The root to the nearest.
    static __device__ unsigned root(float square) {
        // No square root of an integer lies so near to a half that this one would be on its other side.
        float length;
        asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(length) : "f"(square));
        // As a denormal of 2^−149 it is rounded, and its bits are the number.
        return __float_as_uint(length * 0x1p-125f);
    }
};

}  // namespace cudakit
