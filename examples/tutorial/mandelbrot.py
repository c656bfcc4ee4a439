"""The Mandelbrot set: one thread for each pixel, compared with NumPy, and a picture.

A thread counts how many steps z → z² + c takes to leave the circle of radius 2. Look at the option `fma`: without fused
multiply-add each operation is rounded as in NumPy, and the result is equal bit for bit. The picture goes where
`--picture PATH` says.

Prints::

    1048576 pixels, 234454 of them in the set
    picture: /tmp/cudakit-tutorial/mandelbrot.png
"""

import numpy as np
from matplotlib import colormaps
from matplotlib.image import imread, imsave
from tutorial_tools import picture_path

import cudakit as ck

SOURCE = """
template <typename T>
__global__ void mandelbrot(int* steps, int rows, int columns, T left, T top, T pixel, int limit) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    T real = left + column * pixel, imaginary = top - row * pixel, x = 0, y = 0;
    int step = 0;
    while (step < limit && x * x + y * y <= 4) {
        T next = x * x - y * y + real;
        y = 2 * x * y + imaginary;
        x = next;
        ++step;
    }
    steps[row * columns + column] = step;
}
"""
mandelbrot = ck.Kernel(SOURCE, options=ck.CompileOptions(extra={"fma": False}))  # each operation is rounded

rows, columns, limit = 1024, 1024, 1000
stream = ck.stream()
with ck.using(stream) as xp:
    steps = xp.empty((rows, columns), dtype=xp.int32)
    mandelbrot[np.float64](stream, ck.cover(steps.shape), steps, rows, columns, -2.1, 1.3, 2.6 / columns, limit)
steps_of_pixels = ck.to_host(steps, stream)

# The same by NumPy, for a sample of the pixels.
sample = np.s_[::20, ::20]
real, imaginary = np.meshgrid(-2.1 + np.arange(columns) * (2.6 / columns), 1.3 - np.arange(rows) * (2.6 / columns))
real, imaginary = real[sample], imaginary[sample]
x, y, expected = np.zeros_like(real), np.zeros_like(real), np.zeros(real.shape, int)
assert expected.size >= 2400
for _ in range(limit):
    is_inside = x * x + y * y <= 4
    expected += is_inside
    x, y = np.where(is_inside, x * x - y * y + real, x), np.where(is_inside, 2 * x * y + imaginary, y)
np.testing.assert_array_equal(steps_of_pixels[sample], expected)
print(f"{steps_of_pixels.size} pixels, {(steps_of_pixels == limit).sum()} of them in the set")
path = picture_path("mandelbrot.png")
imsave(path, colormaps["magma"](np.log1p(steps_of_pixels) / np.log1p(limit)))
colors = imread(path)[..., :3].sum(axis=2)
brightest = colors.max()
assert colors[steps_of_pixels == limit].min() == brightest
assert colors[steps_of_pixels < limit].min() < brightest
print(f"picture: {path}")
