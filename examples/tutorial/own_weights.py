"""Convolution with weights of one's own: a small table beside the image, flipped as mathematics has it, or not.

Prints::

    Sobel's weights, a convolution: as sums of shifted images have it
    weights of 5 × 7, a correlation: the convolution with the weights flipped
"""

import numpy as np

import cudakit as ck

convolve = ck.Kernel("""
template <bool FLIPPED>
__global__ void convolve(const float* __restrict__ image, const float* __restrict__ weights, float* __restrict__ out,
                         int rows, int columns, int height, int width) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    float sum = 0;
    for (int i = 0; i < height; ++i)
        for (int j = 0; j < width; ++j) {
            int y = FLIPPED ? row + height / 2 - i : row + i - height / 2;
            int x = FLIPPED ? column + width / 2 - j : column + j - width / 2;
            if (0 <= y && y < rows && 0 <= x && x < columns)  // zero outside
                sum += weights[i * width + j] * image[y * columns + x];
        }
    out[row * columns + column] = sum;
}
""")
stream = ck.stream()


def run(image: np.ndarray, weights: np.ndarray, flipped: bool) -> np.ndarray:
    """The image with the weights' middle put on each pixel."""
    x, w, out = (ck.to_device(array.astype(np.float32), stream) for array in (image, weights, np.zeros(image.shape)))
    convolve[flipped](stream, ck.cover(image.shape, (16, 16)), x, w, out, *image.shape, *weights.shape)
    return ck.to_host(out, stream)


def shifted_sums(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The convolution, as the sum of the image shifted by each weight's place."""
    (rows, columns), (height, width) = image.shape, weights.shape
    whole = np.zeros((rows + height - 1, columns + width - 1))
    for (i, j), weight in np.ndenumerate(weights):
        whole[i : i + rows, j : j + columns] += weight * image
    return whole[height // 2 :, width // 2 :][:rows, :columns]


rng = np.random.default_rng(10)
image = rng.integers(0, 256, (37, 50))  # whole numbers: sums are exact
sobel = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]])
np.testing.assert_array_equal(run(image, sobel, flipped=True), shifted_sums(image, sobel))
print("Sobel's weights, a convolution: as sums of shifted images have it")

weights = rng.integers(-9, 10, (5, 7))
np.testing.assert_array_equal(run(image, weights, flipped=True), shifted_sums(image, weights))
np.testing.assert_array_equal(run(image, weights, flipped=False), shifted_sums(image, weights[::-1, ::-1]))
print("weights of 5 × 7, a correlation: the convolution with the weights flipped")
