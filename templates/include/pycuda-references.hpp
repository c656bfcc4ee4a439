// Texture and surface references for programs of PyCUDA, which CUDA 12 removed: constant variables with a texture object.
//
// cudakit rewrites `texture<float, 2> t;` to `__constant__ pycuda::texture<float, 2> t;`, and writes the object before a
// launch. The functions below have the names of CUDA 11's, and take such a variable.
#pragma once

#ifndef cudaTextureType1D
#define cudaTextureType1D 0x01
#define cudaTextureType2D 0x02
#define cudaTextureType3D 0x03
#define cudaTextureTypeCubemap 0x0C
#define cudaTextureType1DLayered 0xF1
#define cudaTextureType2DLayered 0xF2
#define cudaTextureTypeCubemapLayered 0xFC
#endif
#ifndef cudaSurfaceType1D
#define cudaSurfaceType1D 0x01
#define cudaSurfaceType2D 0x02
#define cudaSurfaceType3D 0x03
#define cudaSurfaceTypeCubemap 0x0C
#define cudaSurfaceType1DLayered 0xF1
#define cudaSurfaceType2DLayered 0xF2
#define cudaSurfaceTypeCubemapLayered 0xFC
#endif

extern "C++" {
namespace pycuda {

template <typename T, int TYPE = cudaTextureType1D, cudaTextureReadMode MODE = cudaReadModeElementType>
struct texture {
    cudaTextureObject_t object;
};

template <typename T, int TYPE = cudaSurfaceType1D>
struct surface {
    cudaSurfaceObject_t object;
};

// The type of a lookup: the texel's, or floats for fractions of a type's range.
template <typename T, cudaTextureReadMode MODE> struct lookup { typedef T type; };
#define CUDAKIT_FRACTIONS(NAME) \
    template <> struct lookup<NAME, cudaReadModeNormalizedFloat> { typedef float type; }; \
    template <> struct lookup<NAME##1, cudaReadModeNormalizedFloat> { typedef float1 type; }; \
    template <> struct lookup<NAME##2, cudaReadModeNormalizedFloat> { typedef float2 type; }; \
    template <> struct lookup<NAME##4, cudaReadModeNormalizedFloat> { typedef float4 type; };
typedef unsigned char uchar;
typedef unsigned short ushort;
CUDAKIT_FRACTIONS(char)
CUDAKIT_FRACTIONS(uchar)
CUDAKIT_FRACTIONS(short)
CUDAKIT_FRACTIONS(ushort)
#undef CUDAKIT_FRACTIONS

}  // namespace pycuda

#define CUDAKIT_LOOKUP(NAME, TYPE, PARAMETERS, ...) \
    template <typename T, cudaTextureReadMode MODE> \
    __device__ __forceinline__ typename pycuda::lookup<T, MODE>::type NAME PARAMETERS { \
        return ::NAME<typename pycuda::lookup<T, MODE>::type>(t.object, __VA_ARGS__); \
    }
#define CUDAKIT_TEXTURE(TYPE) const pycuda::texture<T, TYPE, MODE>& t
CUDAKIT_LOOKUP(tex1Dfetch, 1, (CUDAKIT_TEXTURE(cudaTextureType1D), int x), x)
CUDAKIT_LOOKUP(tex1D, 1, (CUDAKIT_TEXTURE(cudaTextureType1D), float x), x)
CUDAKIT_LOOKUP(tex2D, 2, (CUDAKIT_TEXTURE(cudaTextureType2D), float x, float y), x, y)
CUDAKIT_LOOKUP(tex3D, 3, (CUDAKIT_TEXTURE(cudaTextureType3D), float x, float y, float z), x, y, z)
CUDAKIT_LOOKUP(tex1DLayered, 1, (CUDAKIT_TEXTURE(cudaTextureType1DLayered), float x, int layer), x, layer)
CUDAKIT_LOOKUP(tex2DLayered, 2, (CUDAKIT_TEXTURE(cudaTextureType2DLayered), float x, float y, int layer), x, y, layer)
CUDAKIT_LOOKUP(texCubemap, 3, (CUDAKIT_TEXTURE(cudaTextureTypeCubemap), float x, float y, float z), x, y, z)
#undef CUDAKIT_LOOKUP
#undef CUDAKIT_TEXTURE

// Reads return the element, or write it to a pointer; a mode says what happens outside.
#define CUDAKIT_SURFACE(NAME, TYPE, PLACE, ...) \
    template <typename T, typename S> \
    __device__ __forceinline__ void NAME##write( \
        T value, const pycuda::surface<S, TYPE>& s, PLACE, cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) { \
        ::NAME##write(value, s.object, __VA_ARGS__, mode); \
    } \
    template <typename T, typename S> \
    __device__ __forceinline__ void NAME##read( \
        T* value, const pycuda::surface<S, TYPE>& s, PLACE, cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) { \
        ::NAME##read(value, s.object, __VA_ARGS__, mode); \
    } \
    template <typename T, typename S> \
    __device__ __forceinline__ T NAME##read( \
        const pycuda::surface<S, TYPE>& s, PLACE, cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) { \
        return ::NAME##read<T>(s.object, __VA_ARGS__, mode); \
    }
#define CUDAKIT_PLACE(...) __VA_ARGS__
CUDAKIT_SURFACE(surf1D, cudaSurfaceType1D, CUDAKIT_PLACE(int x), x)
CUDAKIT_SURFACE(surf2D, cudaSurfaceType2D, CUDAKIT_PLACE(int x, int y), x, y)
CUDAKIT_SURFACE(surf3D, cudaSurfaceType3D, CUDAKIT_PLACE(int x, int y, int z), x, y, z)
CUDAKIT_SURFACE(surf1DLayered, cudaSurfaceType1DLayered, CUDAKIT_PLACE(int x, int layer), x, layer)
CUDAKIT_SURFACE(surf2DLayered, cudaSurfaceType2DLayered, CUDAKIT_PLACE(int x, int y, int layer), x, y, layer)
#undef CUDAKIT_SURFACE
#undef CUDAKIT_PLACE

}  // extern "C++"
