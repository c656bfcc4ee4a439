"""Surfaces: images in texture memory that a kernel reads and writes.

A surface names a pixel by its row and the byte offset in the row, so x is multiplied by 4 for floats. Beyond the edges
the hardware reads zero and drops what is written. Look at the last line: a texture then reads the surface, and
interpolates.

Prints::

    differences of neighbours, zero beyond the edge: agree with NumPy
    more threads than elements: writes outside are dropped
    read by a texture, half way between pixels: the means of neighbours
"""

import numpy as np

import cudakit as ck

SOURCE = """
__global__ void differences(cudaSurfaceObject_t from, cudaSurfaceObject_t to) {
    // No check for the edge: the hardware reads zero beyond it, and drops what is written there.
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float here = surf2Dread<float>(from, x * 4, y, cudaBoundaryModeZero);
    float next = surf2Dread<float>(from, (x + 1) * 4, y, cudaBoundaryModeZero);
    surf2Dwrite(next - here, to, x * 4, y, cudaBoundaryModeZero);
}

__global__ void sample_between(cudaTextureObject_t image, float* out, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) out[row * columns + column] = tex2D<float>(image, column + 1.0f, row + 0.5f);
}
"""
differences, sample_between = ck.Kernel(SOURCE, "differences"), ck.Kernel(SOURCE, "sample_between")
stream = ck.stream()
rows, columns = 5, 7
host_image = np.random.default_rng(6).integers(0, 100, (rows, columns)).astype(np.float32)
with ck.using(stream):
    image = ck.surface(ck.to_device(host_image, stream))
    result = ck.surface(ck.to_device(np.full_like(host_image, -1), stream))

differences(stream, ck.config((1, 1), (16, 16)), image, result)
host_result = np.full_like(host_image, -2)
ck.memory.copy(host_result, result, stream)
stream.sync()
expected = np.diff(host_image, axis=1, append=np.float32(0))
np.testing.assert_array_equal(host_result, expected)
print("differences of neighbours, zero beyond the edge: agree with NumPy")
print("more threads than elements: writes outside are dropped")

out = ck.to_device(np.zeros_like(host_image), stream)
texture = ck.texture(result, filter="linear", address="border")
sample_between(stream, ck.cover(host_image.shape, (16, 16)), texture, out, *out.shape)
means = (expected + np.pad(expected, ((0, 0), (0, 1)))[:, 1:]) / 2  # zero beyond the border
np.testing.assert_array_equal(ck.to_host(out, stream), means)  # exact: 1/2 is one of a texture's 256 weights
print("read by a texture, half way between pixels: the means of neighbours")
