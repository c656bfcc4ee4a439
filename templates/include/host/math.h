// <math.h> for NVRTC, which has the float and double overloads: the integer and mixed ones, and the macros.
#pragma once
extern "C++" {  // a program may include it in extern "C"
#ifndef INFINITY  // <cuda/std/cmath> defines these two
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define NAN __builtin_bit_cast(float, 0x7fc00000)
#endif
#define HUGE_VALF __builtin_bit_cast(float, 0x7f800000)
#define HUGE_VAL __builtin_bit_cast(double, 0x7ff0000000000000)
#ifndef M_PI  // other headers define it too
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif

namespace cudakit_host {  // names that no macro of a program has
template <typename _T> struct kind { static constexpr int value = 0; };  // 1: integer, 2: floating point
template <typename _T> struct kind<const _T> : kind<_T> {};
#define CUDAKIT_KIND(T, k) template <> struct kind<T> { static constexpr int value = k; };
CUDAKIT_KIND(bool, 1) CUDAKIT_KIND(char, 1) CUDAKIT_KIND(signed char, 1) CUDAKIT_KIND(unsigned char, 1)
CUDAKIT_KIND(short, 1) CUDAKIT_KIND(unsigned short, 1) CUDAKIT_KIND(int, 1) CUDAKIT_KIND(unsigned int, 1)
CUDAKIT_KIND(long, 1) CUDAKIT_KIND(unsigned long, 1) CUDAKIT_KIND(long long, 1) CUDAKIT_KIND(unsigned long long, 1)
CUDAKIT_KIND(float, 2) CUDAKIT_KIND(double, 2)
#undef CUDAKIT_KIND
template <bool> struct when {};
template <> struct when<true> { using type = double; };  // what an integer or a mixed pair is computed in
template <typename _A> using integer = typename when<kind<_A>::value == 1>::type;
template <typename _A, typename _B> using mixed = typename when<kind<_A>::value && kind<_B>::value>::type;
}

#define CUDAKIT_ONE(f) \
    template <typename _A> __device__ inline auto f(_A a) -> decltype(::f(cudakit_host::integer<_A>(a))) { \
        return ::f(double(a)); \
    }
CUDAKIT_ONE(acos) CUDAKIT_ONE(asin) CUDAKIT_ONE(atan) CUDAKIT_ONE(cos) CUDAKIT_ONE(sin) CUDAKIT_ONE(tan)
CUDAKIT_ONE(acosh) CUDAKIT_ONE(asinh) CUDAKIT_ONE(atanh) CUDAKIT_ONE(cosh) CUDAKIT_ONE(sinh) CUDAKIT_ONE(tanh)
CUDAKIT_ONE(exp) CUDAKIT_ONE(exp2) CUDAKIT_ONE(expm1) CUDAKIT_ONE(log) CUDAKIT_ONE(log10) CUDAKIT_ONE(log1p)
CUDAKIT_ONE(log2) CUDAKIT_ONE(logb) CUDAKIT_ONE(sqrt) CUDAKIT_ONE(cbrt) CUDAKIT_ONE(erf) CUDAKIT_ONE(erfc)
CUDAKIT_ONE(lgamma) CUDAKIT_ONE(tgamma) CUDAKIT_ONE(ceil) CUDAKIT_ONE(floor) CUDAKIT_ONE(trunc) CUDAKIT_ONE(round)
CUDAKIT_ONE(rint) CUDAKIT_ONE(nearbyint) CUDAKIT_ONE(fabs) CUDAKIT_ONE(lround) CUDAKIT_ONE(llround) CUDAKIT_ONE(lrint)
CUDAKIT_ONE(llrint) CUDAKIT_ONE(ilogb) CUDAKIT_ONE(isnan) CUDAKIT_ONE(isinf) CUDAKIT_ONE(isfinite)
CUDAKIT_ONE(signbit)
#undef CUDAKIT_ONE
#define CUDAKIT_TWO(f) \
    template <typename _A, typename _B> __device__ inline cudakit_host::mixed<_A, _B> f(_A a, _B b) { \
        return ::f(double(a), double(b)); \
    }
CUDAKIT_TWO(pow) CUDAKIT_TWO(atan2) CUDAKIT_TWO(fmod) CUDAKIT_TWO(remainder) CUDAKIT_TWO(hypot) CUDAKIT_TWO(fmax)
CUDAKIT_TWO(fmin) CUDAKIT_TWO(fdim) CUDAKIT_TWO(copysign) CUDAKIT_TWO(nextafter)
#undef CUDAKIT_TWO
}
