"""A struct as an argument: a dataclass of Python, passed to the kernel by value.

The compiler compares the dataclass with the C++ struct: size, offsets and types of the fields. A difference is a
`CompileError` that names the field. An array of structs is a NumPy array with a structured dtype. Look at the types: an
`int` of a dataclass has 64 bits, so write `np.int32` for a C++ `int`.

Prints::

    [1.  0.5 0. ] → x = 0, y = 0, visible: True
    [5. 2. 0.] → x = 100, y = 37.5, visible: True
    [-8.  1.  0.] → x = -225, y = 12.5, visible: False
    [ 1.5  1.  -1.5] → x = 50, y = 50, visible: True
    [ 2.  1. -4.] → x = -25, y = -12.5, visible: False
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

import cudakit as ck


@dataclass
class Camera:
    """Where the camera is, and how many pixels a unit has at distance 1."""

    position: Annotated[np.float32, (3,)]
    zoom: np.float32
    width: np.int32


project = ck.Kernel("""
struct Camera { float position[3]; float zoom; int width; };
struct Pixel { float x, y; int is_visible; };

__global__ void project(Camera camera, const float* points, Pixel* pixels, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float distance = points[3 * i + 2] - camera.position[2];
    float x = (points[3 * i] - camera.position[0]) * camera.zoom / distance;
    float y = (points[3 * i + 1] - camera.position[1]) * camera.zoom / distance;
    pixels[i] = {x, y, distance > 0 && fabsf(x) <= camera.width / 2};
}
""")
camera = Camera(position=[1, 0.5, -2], zoom=50, width=200)
points = np.array([[1, 0.5, 0], [5, 2, 0], [-8, 1, 0], [1.5, 1, -1.5], [2, 1, -4]], np.float32)
pixel = np.dtype([("x", np.float32), ("y", np.float32), ("is_visible", np.int32)])

stream = ck.stream()
pixels = np.zeros(len(points), pixel)
project(stream, ck.cover(len(points)), camera, ck.In(points), ck.Out(pixels), len(points))
stream.sync()
for point, result in zip(points, pixels, strict=True):
    print(f"{point} → x = {result['x']:g}, y = {result['y']:g}, visible: {bool(result['is_visible'])}")

difference = points - np.float32(camera.position)
expected = difference[:, :2] * camera.zoom / difference[:, 2:]
np.testing.assert_allclose(pixels["x"], expected[:, 0], rtol=1e-6)
np.testing.assert_allclose(pixels["y"], expected[:, 1], rtol=1e-6)
np.testing.assert_array_equal(pixels["is_visible"], (difference[:, 2] > 0) & (np.abs(expected[:, 0]) <= 100))
