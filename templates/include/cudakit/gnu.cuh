// Words that GCC takes beside C++17's, for programs that nvcc compiled with it: typeof, __const__, register.
#pragma once
namespace cudakit { namespace detail {
template <typename T> struct bare { using type = T; };
template <typename T> struct bare<T&> : bare<T> {};
template <typename T> struct bare<const T> : bare<T> {};
}}
#define __typeof__(...) cudakit::detail::bare<decltype((__VA_ARGS__))>::type
#define __typeof __typeof__
#define typeof __typeof__
#define __const__ const
#define __const const
#define register
