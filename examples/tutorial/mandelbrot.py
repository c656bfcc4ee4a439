"""The Mandelbrot set: how many steps z → z² + c takes to leave, a thread a pixel, with a picture.

Prints::

    ... pixels, ... of them inside
    picture: ...mandelbrot.png
"""

import numpy as np
from matplotlib import colormaps
from matplotlib.image import imsave
from tutorial_tools import picture_path

import cudakit as ck

mandelbrot = ck.Kernel("""
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
""")

rows, columns, most = (1200, 1800, 1000) if ck.has_gpu() else (40, 60, 40)
stream = ck.stream()
with ck.using(stream) as xp:
    steps = xp.empty((rows, columns), dtype=xp.int32)
    mandelbrot[np.float64](stream, ck.cover(steps.shape), steps, rows, columns, -2.1, 1.2, 3.0 / columns, most)
found = ck.to_host(steps, stream)

# Points that are inside or outside for sure: the main cardioid, and beyond radius 2.
c = (-2.1 + np.arange(columns) * 3.0 / columns) + 1j * (1.2 - np.arange(rows) * 3.0 / columns)[:, None]
assert (found[np.abs(1 - np.sqrt(1 - 4 * c)) < 0.99] == most).all()
assert (found[np.abs(c) > 2.01] <= 1).all()
print(f"{found.size} pixels, {(found == most).sum()} of them inside")
path = picture_path("mandelbrot.png")
imsave(path, colormaps["magma"](np.log1p(found) / np.log1p(most)))
print(f"picture: {path}")
