// CUB's device-wide selection, for `cases.peers.cub`.
#include <cub/cub.cuh>

extern "C" int cub_flagged_f32(
    void* temp, size_t* bytes, const float* x, const bool* where, float* out, long long* count, long long n,
    cudaStream_t stream) {
    return cub::DeviceSelect::Flagged(temp, *bytes, x, where, out, count, n, stream);
}
