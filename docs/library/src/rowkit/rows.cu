#include <cudakit/block.cuh>
#include <cudakit/monoid.cuh>
#include <rowkit/scale.cuh>

// out[r, c] = (x[r, c] − min of row r) / (max − min of row r)
// A NaN makes its whole row NaN.
//
// Shapes: x and out (gridDim.x, columns), of T, C-contiguous; both may be the same array.
// Launch: a block of BLOCK threads for each row.
template <typename T, int BLOCK>
__global__ void rescale(const T* x, T* out, long long columns) {
    __shared__ cudakit::block_reduce_storage<T, BLOCK> storage;
    const T* row = x + blockIdx.x * columns;
    T low = row[0], high = row[0];
    for (long long c = threadIdx.x; c < columns; c += BLOCK) {
        low = cudakit::minimum()(low, row[c]);
        high = cudakit::maximum()(high, row[c]);
    }
    low = cudakit::block_reduce<BLOCK>(low, cudakit::minimum(), storage);
    high = cudakit::block_reduce<BLOCK>(high, cudakit::maximum(), storage);
    for (long long c = threadIdx.x; c < columns; c += BLOCK)
        out[blockIdx.x * columns + c] = rowkit::scaled(row[c], low, high);
}
