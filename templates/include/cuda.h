// <cuda.h> for NVRTC, which refuses the driver's own (host functions): the types that a kernel can take.
#pragma once
#define CUDA_VERSION CUDART_VERSION
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef struct CUtensorMap_st {
    alignas(CUDART_VERSION >= 13000 ? 128 : 64) unsigned long long opaque[16];
} CUtensorMap;
