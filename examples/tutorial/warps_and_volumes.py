"""Warps and volumes: 32 threads that exchange registers, and a grid of three dimensions.

The first kernel gives each row of a matrix to a warp, whose lanes add up by `__shfl_down_sync` and vote by
`__ballot_sync`. The second one computes a Laplacian of a volume. Look at how a thread gets its row, and its place in
three dimensions. Ready-made are `ck.ops.sum` with `axis=`, and `ck.stencil`.

Prints::

    a warp for each row, sums of 15 rows of 100 numbers: agree with NumPy
    a vote of the lanes, first positive number of each row: agrees with NumPy
    a grid of three dimensions, Laplacian of 6 × 9 × 20 numbers: agrees with NumPy
"""

import numpy as np

import cudakit as ck

SOURCE = """
__global__ void rows(const float* x, float* sums, int* first_positive, int count, int length) {
    int lane = threadIdx.x % warpSize;
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize;  // the same for all lanes of a warp
    if (row >= count) return;
    float sum = 0;
    int first = -1;
    for (int start = 0; start < length; start += warpSize) {
        float value = start + lane < length ? x[(size_t)row * length + start + lane] : 0;
        sum += value;
        unsigned int positive = __ballot_sync(0xffffffff, value > 0);  // one bit for each lane
        if (first < 0 && positive) first = start + __ffs(positive) - 1;
    }
    for (int distance = warpSize / 2; distance; distance /= 2) sum += __shfl_down_sync(0xffffffff, sum, distance);
    if (lane == 0) {
        sums[row] = sum;
        first_positive[row] = first;
    }
}

__global__ void laplacian(const float* x, float* y, int depth, int height, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y * blockDim.y + threadIdx.y;
    int k = blockIdx.z * blockDim.z + threadIdx.z;
    if (i >= width || j >= height || k >= depth) return;
    auto at = [&](int k, int j, int i) {  // zero outside
        bool inside = 0 <= i && i < width && 0 <= j && j < height && 0 <= k && k < depth;
        return inside ? x[(k * height + j) * width + i] : 0.0f;
    };
    y[(k * height + j) * width + i] = at(k - 1, j, i) + at(k + 1, j, i) + at(k, j - 1, i) + at(k, j + 1, i)
                                    + at(k, j, i - 1) + at(k, j, i + 1) - 6 * at(k, j, i);
}
"""
rows, laplacian = ck.Kernel(SOURCE, "rows"), ck.Kernel(SOURCE, "laplacian")
stream = ck.stream()
rng = np.random.default_rng(9)

matrix = rng.integers(-50, 2, (3, 5, 100)).astype(np.float32)  # integers: sums are exact; few are positive
matrix[0, 0] = -1  # a row without a positive number
matrix[0, 1, [0, 99]] = 1  # a row that starts and ends with one
count, length = 15, matrix.shape[-1]
x = ck.to_device(matrix, stream)
sums = ck.to_device(np.zeros((3, 5), np.float32), stream)
first = ck.to_device(np.zeros((3, 5), np.int32), stream)
rows(stream, ck.cover(count * 32, 64), x, sums, first, count, length)
np.testing.assert_array_equal(ck.to_host(sums, stream), matrix.sum(axis=-1))
print("a warp for each row, sums of 15 rows of 100 numbers: agree with NumPy")
positive = matrix > 0
assert positive.any(axis=-1).sum() > 5
np.testing.assert_array_equal(ck.to_host(first, stream), np.where(positive.any(axis=-1), positive.argmax(axis=-1), -1))
print("a vote of the lanes, first positive number of each row: agrees with NumPy")

volume = rng.integers(0, 100, (6, 9, 20)).astype(np.float32)
y = ck.to_device(np.zeros_like(volume), stream)
laplacian(stream, ck.cover(volume.shape, (8, 4, 4)), ck.to_device(volume, stream), y, *volume.shape)
padded = np.pad(volume, 1)
core = (slice(1, -1),) * 3
neighbours = sum(np.roll(padded, step, axis)[core] for axis in range(3) for step in (-1, 1))
np.testing.assert_array_equal(ck.to_host(y, stream), neighbours - 6 * volume)
print("a grid of three dimensions, Laplacian of 6 × 9 × 20 numbers: agrees with NumPy")
