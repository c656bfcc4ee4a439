// CUB's device-wide histograms, for `cases.peers.cub`.
#include <cub/cub.cuh>

#define HISTOGRAM(NAME, T, Level) \
    extern "C" int NAME( \
        void* temp, size_t* bytes, const T* x, int* counts, long long bins, long long low, long long high, \
        long long size, cudaStream_t stream) { \
        return cub::DeviceHistogram::HistogramEven( \
            temp, *bytes, x, counts, static_cast<int>(bins) + 1, static_cast<Level>(low), static_cast<Level>(high), \
            static_cast<int>(size), stream); \
    }
HISTOGRAM(cub_histogram_u8, unsigned char, int)
HISTOGRAM(cub_histogram_i32, int, int)
HISTOGRAM(cub_histogram_f32, float, float)
HISTOGRAM(cub_histogram_f64, double, double)

extern "C" int cub_histogram_edges_f32(
    void* temp, size_t* bytes, const float* x, int* counts, const float* edges, long long bins, long long size,
    cudaStream_t stream) {
    return cub::DeviceHistogram::HistogramRange(
        temp, *bytes, x, counts, static_cast<int>(bins) + 1, edges, static_cast<int>(size), stream);
}
