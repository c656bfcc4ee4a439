// For kernels of this library and of its users.
#pragma once

namespace rowkit {

/// Scale value from low … high to 0 … 1; 0 if low equals high.
template <typename T>
__device__ T scaled(T value, T low, T high) {
    return high > low ? (value - low) / (high - low) : T(0);
}

}  // namespace rowkit
