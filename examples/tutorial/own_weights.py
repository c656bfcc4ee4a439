"""A convolution with weights of your own: a small table of numbers that weighs the neighbours of a pixel.

A convolution flips the weights, a correlation does not; a template argument chooses. Zeros stand for pixels outside.
Look at how the kernel's two indices change sign. The ready-made op is `ck.ops.convolve2d`.

Prints::

    convolution with Sobel's weights: agrees with a sum of shifted images
    correlation with 5 × 7 weights: agrees with a convolution with flipped weights
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


def weigh(image: np.ndarray, weights: np.ndarray, flipped: bool) -> np.ndarray:
    """Return the weighted sum around each pixel, by the kernel."""
    x, w, out = (ck.to_device(array.astype(np.float32), stream) for array in (image, weights, np.zeros(image.shape)))
    convolve[flipped](stream, ck.cover(image.shape, (16, 16)), x, w, out, *image.shape, *weights.shape)
    return ck.to_host(out, stream)


def shifted_sums(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the convolution, as a sum of shifted images, by NumPy."""
    (rows, columns), (height, width) = image.shape, weights.shape
    full = np.zeros((rows + height - 1, columns + width - 1))
    for (i, j), weight in np.ndenumerate(weights):
        full[i : i + rows, j : j + columns] += weight * image
    return full[height // 2 :, width // 2 :][:rows, :columns]


rng = np.random.default_rng(10)
image = rng.integers(0, 256, (37, 50))  # integers: sums are exact
sobel = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]])
np.testing.assert_array_equal(weigh(image, sobel, flipped=True), shifted_sums(image, sobel))
print("convolution with Sobel's weights: agrees with a sum of shifted images")

weights = rng.integers(-9, 10, (5, 7))
np.testing.assert_array_equal(weigh(image, weights, flipped=True), shifted_sums(image, weights))
np.testing.assert_array_equal(weigh(image, weights, flipped=False), shifted_sums(image, weights[::-1, ::-1]))
print("correlation with 5 × 7 weights: agrees with a convolution with flipped weights")
