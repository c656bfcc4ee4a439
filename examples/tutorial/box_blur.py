"""A box blur: each pixel becomes the mean of its neighbourhood, with two rules at the edges.

At an edge, part of the neighbourhood is missing. The kernel takes the mean of the pixels that exist, or repeats the
pixels of the edge; a template argument chooses. Look at the two printed corners. The ready-made op is
`ck.ops.box_blur`.

Prints::

    radius 1, a bright corner, the mean of the pixels that exist:
    [[9. 6. 0.]
     [6. 4. 0.]
     [0. 0. 0.]]
    radius 1, a bright corner, the edge repeated:
    [[16.  8.  0.]
     [ 8.  4.  0.]
     [ 0.  0.  0.]]
    random image of 61 × 83, radius 3 and 0, both rules: agree with NumPy
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


def blur(image: np.ndarray, radius: int, repeat_edge: bool) -> np.ndarray:
    """Return the blurred image; the radius is a template argument, so that its loops are unrolled."""
    x = ck.to_device(image, stream)
    with ck.using(stream) as xp:
        out = xp.empty_like(x)
        kernel = box_blur["RADIUS":radius, "REPEATED":repeat_edge]
        kernel(stream, ck.cover(image.shape, (16, 16)), x, out, *image.shape)
    return ck.to_host(out, stream)


def window_means(image: np.ndarray, radius: int) -> np.ndarray:
    """Return the mean of each whole neighbourhood, in float64."""
    width = 2 * radius + 1
    return np.lib.stride_tricks.sliding_window_view(image.astype(float), (width, width)).mean(axis=(2, 3))


def expected(image: np.ndarray, radius: int, repeat_edge: bool) -> np.ndarray:
    """Return the blurred image, by NumPy."""
    if repeat_edge:
        return window_means(np.pad(image, radius, mode="edge"), radius)
    shares = np.pad(np.ones_like(image), radius)  # zeros around: the mean is the share of pixels that exist
    return window_means(np.pad(image, radius), radius) / window_means(shares, radius)


corner = np.zeros((3, 3), np.float32)
corner[0, 0] = 36
print("radius 1, a bright corner, the mean of the pixels that exist:")
print(blur(corner, 1, repeat_edge=False))
print("radius 1, a bright corner, the edge repeated:")
print(blur(corner, 1, repeat_edge=True))

image = np.random.default_rng(3).random((61, 83), np.float32)
for radius in (3, 0):
    for repeat_edge in (False, True):
        np.testing.assert_allclose(blur(image, radius, repeat_edge), expected(image, radius, repeat_edge), rtol=1e-5)
print("random image of 61 × 83, radius 3 and 0, both rules: agree with NumPy")
