// Floats that are computed as float and rounded where they are stored: those that `NARROW` of cudakit/types/cpp.py names.
#pragma once

struct __half;
struct __nv_bfloat16;

namespace cudakit {

template <typename T>
inline constexpr bool is_narrow = false;
template <>
inline constexpr bool is_narrow<__half> = true;
template <>
inline constexpr bool is_narrow<__nv_bfloat16> = true;

}  // namespace cudakit
