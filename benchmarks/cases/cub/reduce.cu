// CUB's device-wide reductions, for `cases.peers.cub`.
#include <cub/cub.cuh>
#include <cuda_fp16.h>

// Adds in the sum's type: half and float have no operator of their own between them.
template <typename Sum>
struct cub_plus {
    template <typename A, typename B>
    __host__ __device__ Sum operator()(A a, B b) const {
        return static_cast<Sum>(a) + static_cast<Sum>(b);
    }
};

#define CUDAKIT_REDUCTIONS(suffix, T, Sum) \
    extern "C" int cub_sum_##suffix(void* temp, size_t* bytes, const T* x, Sum* out, long long n, cudaStream_t stream) { \
        return cub::DeviceReduce::Reduce(temp, *bytes, x, out, n, cub_plus<Sum>(), static_cast<Sum>(0), stream); \
    } \
    extern "C" int cub_max_##suffix(void* temp, size_t* bytes, const T* x, T* out, long long n, cudaStream_t stream) { \
        return cub::DeviceReduce::Max(temp, *bytes, x, out, n, stream); \
    }

CUDAKIT_REDUCTIONS(float32, float, float)
CUDAKIT_REDUCTIONS(float64, double, double)
CUDAKIT_REDUCTIONS(int8, signed char, long long)
CUDAKIT_REDUCTIONS(float16, __half, float)
