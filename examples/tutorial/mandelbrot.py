"""The Mandelbrot set: how many steps z → z² + c takes to leave, a thread a pixel, with a picture.

Prints::

    4194304 pixels, 937507 of them inside
    picture: /tmp/cudakit-tutorial/mandelbrot.png
"""

import numpy as np
from matplotlib import colormaps
from matplotlib.image import imread, imsave
from tutorial_tools import picture_path

import cudakit as ck

SOURCE = """
template <typename T>
__global__ void mandelbrot(int* steps, int rows, int columns, T left, T top, T pixel, int most) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || column >= columns) return;
    T real = left + column * pixel, imaginary = top - row * pixel, x = 0, y = 0;
    int step = 0;
    while (step < most && x * x + y * y <= 4) {
        T next = x * x - y * y + real;
        y = 2 * x * y + imaginary;
        x = next;
        ++step;
    }
    steps[row * columns + column] = step;
}
"""
mandelbrot = ck.Kernel(SOURCE, options=ck.CompileOptions(extra={"fma": False}))  # each operation rounded, as NumPy does

rows, columns, most = 2048, 2048, 1000
stream = ck.stream()
with ck.using(stream) as xp:
    steps = xp.empty((rows, columns), dtype=xp.int32)
    mandelbrot[np.float64](stream, ck.cover(steps.shape), steps, rows, columns, -2.1, 1.3, 2.6 / columns, most)
found = ck.to_host(steps, stream)

# The same by NumPy, of some pixels: bit for bit, as nothing is rounded otherwise.
some = np.s_[::40, ::40]
real, imaginary = np.meshgrid(-2.1 + np.arange(columns) * (2.6 / columns), 1.3 - np.arange(rows) * (2.6 / columns))
real, imaginary = real[some], imaginary[some]
x, y, expected = np.zeros_like(real), np.zeros_like(real), np.zeros(real.shape, int)
assert expected.size >= 2400
for _ in range(most):
    stays = x * x + y * y <= 4
    expected += stays
    x, y = np.where(stays, x * x - y * y + real, x), np.where(stays, 2 * x * y + imaginary, y)
np.testing.assert_array_equal(found[some], expected)
print(f"{found.size} pixels, {(found == most).sum()} of them inside")
path = picture_path("mandelbrot.png")
imsave(path, colormaps["magma"](np.log1p(found) / np.log1p(most)))
colors = imread(path)[..., :3].sum(axis=2)
assert colors[found == most].min() == colors.max() > colors[found < most].min()
print(f"picture: {path}")
