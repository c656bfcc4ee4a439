// CUB's device-wide radix sorts, for `cases.peers.cub`.
#include <cub/cub.cuh>

#define SORT(name, K) \
    extern "C" int cub_sort_##name(void* temp, size_t* bytes, const K* x, K* out, long long n, cudaStream_t stream) { \
        return cub::DeviceRadixSort::SortKeys(temp, *bytes, x, out, n, 0, int(sizeof(K) * 8), stream); \
    }
SORT(uint8, unsigned char)
SORT(int16, short)
SORT(uint32, unsigned int)
SORT(float32, float)
SORT(int64, long long)
SORT(float64, double)

#define PAIRS(name, K, V) \
    extern "C" int cub_pairs_##name( \
        void* temp, size_t* bytes, const K* keys, K* keys_out, const V* values, V* values_out, long long n, \
        cudaStream_t stream) { \
        return cub::DeviceRadixSort::SortPairs( \
            temp, *bytes, keys, keys_out, values, values_out, n, 0, int(sizeof(K) * 8), stream); \
    }
PAIRS(uint32, unsigned int, unsigned int)
PAIRS(float32, float, unsigned int)
PAIRS(int64, long long, long long)
