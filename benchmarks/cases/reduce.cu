// CUB's device-wide reductions, for `cases.cub`.
#include <cub/cub.cuh>

extern "C" int cub_sum_f32(void* temp, size_t* bytes, const float* x, float* out, long long n, cudaStream_t stream) {
    return cub::DeviceReduce::Sum(temp, *bytes, x, out, n, stream);
}
