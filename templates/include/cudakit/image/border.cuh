// What images have beyond their rims, by a mode that is known when the kernel runs, and how numbers become pixels.
#pragma once

#include <cudakit/stencil/window.cuh>

namespace cudakit {

/// A mode beside those of `border`: what lies outside is left out of an average.
inline constexpr int VALID_BORDER = 5;

/// The element that stands at i of an axis of n, however far outside; −1 for none.
__device__ inline int beyond(int mode, int i, int n) {
    if (i >= 0 && i < n) return i;
    const int period = mode == MIRROR_BORDER ? max(2 * n - 2, 1) : mode == REFLECT_BORDER ? 2 * n : n;
    switch (mode) {
    case NEAREST_BORDER: return i < 0 ? 0 : n - 1;
    case REFLECT_BORDER:
        i = (i % period + period) % period;
        return i < n ? i : period - 1 - i;
    case MIRROR_BORDER:
        i = (i % period + period) % period;
        return i < n ? i : period - i;
    case WRAP_BORDER: return (i % period + period) % period;
    default: return -1;
    }
}

/// The same for at most n elements outside, without a branch; never outside, also where a constant stands there.
struct near_border {
    int before, after, slope, n;

    __device__ near_border(int mode, int n) : before(0), after(n - 1), slope(0), n(n) {
        if (mode == REFLECT_BORDER) before = -1, after = 2 * n - 1, slope = -1;
        if (mode == MIRROR_BORDER) before = 0, after = 2 * n - 2, slope = -1;
        if (mode == WRAP_BORDER) before = n, after = -n, slope = 1;
    }
    __device__ int operator()(int i) const {
        const bool is_out = i < 0 || i >= n;
        const int start = i < 0 ? before : after;
        return min(max((is_out ? start : 0) + (is_out ? slope : 1) * i, 0), n - 1);
    }
    __device__ bool has(int i) const { return i >= 0 && i < n; }
};

namespace detail {
template <typename T>
inline constexpr int most_of = 0;  // of integers that pixels are
template <>
inline constexpr int most_of<unsigned char> = 255;
template <>
inline constexpr int most_of<unsigned short> = 65535;
}  // namespace detail

/// A number as a pixel: for unsigned char and unsigned short to the nearest, a half upward, and within their range.
template <typename T, typename V>
__device__ T pixel(V value) {
    if constexpr (detail::most_of<T> != 0 && V(1) / V(2) != V(0)) {
        // Added to 2^23 and rounded down, it has the number in its last bits: conversions take four times as long.
        const float within = min(max(static_cast<float>(value) + 0.5f, 0.0f), detail::most_of<T> + 0.5f);
        return static_cast<T>(__float_as_uint(__fadd_rd(within, 8388608.0f)));
    } else {
        return as<T>(value);
    }
}

}  // namespace cudakit
