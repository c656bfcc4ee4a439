// CUB's device-wide scans, for `cases.peers.cub`.
#include <cub/cub.cuh>
#include <cuda_fp16.h>

#define CUMSUM(name, T, Out, Acc) \
    extern "C" int cub_cumsum_##name(void* temp, size_t* bytes, const T* x, Out* out, long long n, cudaStream_t stream) { \
        return cub::DeviceScan::InclusiveScanInit( \
            temp, *bytes, x, out, cuda::std::plus<Acc>(), static_cast<Acc>(0), n, stream); \
    }
CUMSUM(float16, __half, __half, float)
CUMSUM(int8, signed char, long long, long long)
CUMSUM(float64, double, double, double)
extern "C" int cub_cumsum_float32(
    void* temp, size_t* bytes, const float* x, float* out, long long n, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSum(temp, *bytes, x, out, n, stream);
}
extern "C" int cub_cumsum_by_key_float32(
    void* temp, size_t* bytes, const int* keys, const float* x, float* out, long long n, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSumByKey(temp, *bytes, keys, x, out, n, cuda::std::equal_to<>(), stream);
}
