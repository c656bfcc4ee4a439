// What both this library's kernels and those of its users may include.
#pragma once

namespace rowkit {

/// value brought from low … high to 0 … 1; 0 where there is nothing between the two.
template <typename T>
__device__ T scaled(T value, T low, T high) {
    return high > low ? (value - low) / (high - low) : T(0);
}

}  // namespace rowkit
