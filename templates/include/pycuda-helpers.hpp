// <pycuda-helpers.hpp> for programs of PyCUDA: textures and surfaces of doubles and complex numbers, as pairs of words.
#pragma once

#include <pycuda-complex.hpp>
#include <pycuda-references.hpp>

extern "C++" {

typedef float fp_tex_float;
typedef int2 fp_tex_double;
typedef uint2 fp_tex_cfloat;
typedef int4 fp_tex_cdouble;

namespace pycuda {

// `number`: what the program reads; `words`: what the texture has. Other types are themselves.
template <typename T> struct stored { typedef T number; };
template <> struct stored<fp_tex_double> { typedef double number; };
template <> struct stored<fp_tex_cfloat> { typedef complex<float> number; };
template <> struct stored<fp_tex_cdouble> { typedef complex<double> number; };
template <typename T> struct in_words { typedef T words; };
template <> struct in_words<double> { typedef fp_tex_double words; };
template <> struct in_words<complex<float>> { typedef fp_tex_cfloat words; };
template <> struct in_words<complex<double>> { typedef fp_tex_cdouble words; };

template <typename To, typename From>
__device__ __forceinline__ To of_same_bytes(const From& value) {
    static_assert(sizeof(To) == sizeof(From), "the words of a number have its size");
    To result;
    memcpy(&result, &value, sizeof(To));
    return result;
}

}  // namespace pycuda

#define CUDAKIT_LOOKUP(NAME, TYPE, PLACE, ...) \
    template <typename T, cudaTextureReadMode MODE> \
    __device__ __forceinline__ typename pycuda::stored<T>::number fp_##NAME( \
        const pycuda::texture<T, TYPE, MODE>& t, PLACE) { \
        return pycuda::of_same_bytes<typename pycuda::stored<T>::number>(NAME(t, __VA_ARGS__)); \
    }
#define CUDAKIT_PLACE(...) __VA_ARGS__
CUDAKIT_LOOKUP(tex1Dfetch, cudaTextureType1D, CUDAKIT_PLACE(int x), x)
CUDAKIT_LOOKUP(tex2D, cudaTextureType2D, CUDAKIT_PLACE(int x, int y), x, y)
CUDAKIT_LOOKUP(tex3D, cudaTextureType3D, CUDAKIT_PLACE(int x, int y, int z), x, y, z)
CUDAKIT_LOOKUP(tex2DLayered, cudaTextureType2DLayered, CUDAKIT_PLACE(float x, float y, int layer), x, y, layer)
#undef CUDAKIT_LOOKUP

#define CUDAKIT_SURFACE(NAME, TYPE, PLACE, ...) \
    template <typename T> \
    __device__ __forceinline__ void fp_##NAME##write( \
        T value, const pycuda::surface<void, TYPE>& s, int x, PLACE, cudaSurfaceBoundaryMode mode) { \
        typedef typename pycuda::in_words<T>::words words; \
        NAME##write(pycuda::of_same_bytes<words>(value), s, x * int(sizeof(T)), __VA_ARGS__, mode); \
    } \
    template <typename T> \
    __device__ __forceinline__ void fp_##NAME##read( \
        T* value, const pycuda::surface<void, TYPE>& s, int x, PLACE, cudaSurfaceBoundaryMode mode) { \
        typename pycuda::in_words<T>::words words; \
        NAME##read(&words, s, x * int(sizeof(T)), __VA_ARGS__, mode); \
        *value = pycuda::of_same_bytes<T>(words); \
    }
CUDAKIT_SURFACE(surf3D, cudaSurfaceType3D, CUDAKIT_PLACE(int y, int z), y, z)
CUDAKIT_SURFACE(surf2DLayered, cudaSurfaceType2DLayered, CUDAKIT_PLACE(int y, int layer), y, layer)
#undef CUDAKIT_SURFACE
#undef CUDAKIT_PLACE

}  // extern "C++"
