"""A box blur in two dimensions: each pixel becomes the mean of its neighbourhood, which at an edge is in part missing.

Beyond an edge there are no pixels. One takes the mean of those that exist, or repeats those of the edge.

Prints::

    radius 1, a bright corner, the mean of the pixels that exist:
    [[9. 6. 0.]
     [6. 4. 0.]
     [0. 0. 0.]]
    radius 1, a bright corner, the edge repeated:
    [[16.  8.  0.]
     [ 8.  4.  0.]
     [ 0.  0.  0.]]
    random images of 61 × 83, radius 3 and 0: as NumPy has them, both ways
"""

import numpy as np

import cudakit as ck

box_blur = ck.Kernel("""
template <typename T, int RADIUS, bool REPEATED>
__global__ void box_blur(const T* __restrict__ image, T* __restrict__ out, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    float sum = 0;
    int count = 0;
    for (int y = row - RADIUS; y <= row + RADIUS; ++y)
        for (int x = column - RADIUS; x <= column + RADIUS; ++x) {
            int nearest_y = min(max(y, 0), rows - 1), nearest_x = min(max(x, 0), columns - 1);
            if (!REPEATED && (nearest_y != y || nearest_x != x)) continue;
            sum += image[nearest_y * columns + nearest_x];
            ++count;
        }
    out[row * columns + column] = sum / count;
}
""")

stream = ck.stream()


def blur(image: np.ndarray, radius: int, repeated: bool) -> np.ndarray:
    """The blurred image; a radius is a template argument, so that its loops are unrolled."""
    x = ck.to_device(image, stream)
    with ck.using(stream) as xp:
        out = xp.empty_like(x)
        kernel = box_blur["RADIUS":radius, "REPEATED":repeated]
        kernel(stream, ck.cover(image.shape, (16, 16)), x, out, *image.shape)
    return ck.to_host(out, stream)


def means(image: np.ndarray, radius: int) -> np.ndarray:
    """The mean of each whole neighbourhood, in float64."""
    width = 2 * radius + 1
    return np.lib.stride_tricks.sliding_window_view(image.astype(float), (width, width)).mean(axis=(2, 3))


def expected(image: np.ndarray, radius: int, repeated: bool) -> np.ndarray:
    """The blurred image by NumPy."""
    if repeated:
        return means(np.pad(image, radius, mode="edge"), radius)
    exists = np.pad(np.ones_like(image), radius)  # zeros around: the share of each neighbourhood that exists
    return means(np.pad(image, radius), radius) / means(exists, radius)


corner = np.zeros((3, 3), np.float32)
corner[0, 0] = 36
print("radius 1, a bright corner, the mean of the pixels that exist:")
print(blur(corner, 1, repeated=False))
print("radius 1, a bright corner, the edge repeated:")
print(blur(corner, 1, repeated=True))

image = np.random.default_rng(3).random((61, 83), np.float32)
for radius in (3, 0):
    for repeated in (False, True):
        np.testing.assert_allclose(blur(image, radius, repeated), expected(image, radius, repeated), rtol=1e-5)
print("random images of 61 × 83, radius 3 and 0: as NumPy has them, both ways")
