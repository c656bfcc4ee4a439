"""A box blur in two dimensions: each pixel becomes the mean of its neighbourhood, edges repeated.

Prints::

    radius 1: a single bright pixel becomes nine
    [[ 0.  0.  0.  0.  0.]
     [ 0. 10. 10. 10.  0.]
     [ 0. 10. 10. 10.  0.]
     [ 0. 10. 10. 10.  0.]
     [ 0.  0.  0.  0.  0.]]
    a random image of 61 × 83, radius 3: as NumPy has it
"""

import numpy as np

import cudakit as ck

box_blur = ck.Kernel("""
template <typename T, int RADIUS>
__global__ void box_blur(const T* __restrict__ image, T* __restrict__ out, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    float sum = 0;
    for (int dy = -RADIUS; dy <= RADIUS; ++dy)
        for (int dx = -RADIUS; dx <= RADIUS; ++dx)
            sum += image[min(max(row + dy, 0), rows - 1) * columns + min(max(column + dx, 0), columns - 1)];
    out[row * columns + column] = sum / ((2 * RADIUS + 1) * (2 * RADIUS + 1));
}
""")

stream = ck.stream()


def blur(image: np.ndarray, radius: int) -> np.ndarray:
    """The blurred image; a radius is a template argument, so that its loops are unrolled."""
    x = ck.to_device(image, stream)
    with ck.using(stream) as xp:
        out = xp.empty_like(x)
        box_blur["RADIUS":radius](stream, ck.cover(image.shape, (16, 16)), x, out, *image.shape)
    return ck.to_host(out, stream)


dot = np.zeros((5, 5), np.float32)
dot[2, 2] = 90
print("radius 1: a single bright pixel becomes nine")
print(blur(dot, 1))

image = np.random.default_rng(3).random((61, 83), np.float32)
padded = np.pad(image, 3, mode="edge")
expected = np.lib.stride_tricks.sliding_window_view(padded, (7, 7)).mean(axis=(2, 3))
np.testing.assert_allclose(blur(image, 3), expected, rtol=1e-5)
print("a random image of 61 × 83, radius 3: as NumPy has it")
