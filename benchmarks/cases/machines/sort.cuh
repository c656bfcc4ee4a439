#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_store.cuh>

// Each 1,024 in order, by CUB.
__global__ void sort(unsigned* out, const unsigned* keys) {
    using Sort = cub::BlockRadixSort<unsigned, 128, 8>;
    __shared__ Sort::TempStorage room;
    unsigned own[8];
    cub::LoadDirectBlocked(threadIdx.x, keys + blockIdx.x * 1024, own);
    Sort(room).Sort(own);
    cub::StoreDirectBlocked(threadIdx.x, out + blockIdx.x * 1024, own);
}
