"""Surfaces: memory in the layout of textures, which kernels write, too; x counts bytes there.

Prints::

    differences of neighbours, zero beyond the edge: as NumPy has them
    more threads than elements: what is written outside is dropped
    read by a texture, half way between: the means of neighbours
"""

import numpy as np

import cudakit as ck

SOURCE = """
__global__ void differences(cudaSurfaceObject_t from, cudaSurfaceObject_t to) {
    // No test for the edge: the hardware reads zero beyond it, and drops what is written there.
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float here = surf2Dread<float>(from, x * 4, y, cudaBoundaryModeZero);
    float next = surf2Dread<float>(from, (x + 1) * 4, y, cudaBoundaryModeZero);
    surf2Dwrite(next - here, to, x * 4, y, cudaBoundaryModeZero);
}

__global__ void between(cudaTextureObject_t image, float* out, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns) out[row * columns + column] = tex2D<float>(image, column + 1.0f, row + 0.5f);
}
"""
differences, between = ck.Kernel(SOURCE, "differences"), ck.Kernel(SOURCE, "between")
stream = ck.stream()
rows, columns = 5, 7
given = np.random.default_rng(6).integers(0, 100, (rows, columns)).astype(np.float32)
with ck.using(stream):
    image = ck.surface(ck.to_device(given, stream))
    result = ck.surface(ck.to_device(np.full_like(given, -1), stream))

differences(stream, ck.config((1, 1), (16, 16)), image, result)
found = np.full_like(given, -2)
ck.memory.copy(found, result, stream)
stream.sync()
expected = np.diff(given, axis=1, append=np.float32(0))
np.testing.assert_array_equal(found, expected)
print("differences of neighbours, zero beyond the edge: as NumPy has them")
print("more threads than elements: what is written outside is dropped")

out = ck.to_device(np.zeros_like(given), stream)
between(stream, ck.cover(given.shape, (16, 16)), ck.texture(result, filter="linear", address="border"), out, *out.shape)
means = (expected + np.pad(expected, ((0, 0), (0, 1)))[:, 1:]) / 2  # zero beyond the border
np.testing.assert_array_equal(ck.to_host(out, stream), means)  # exact: a half is one of the 256 weights
print("read by a texture, half way between: the means of neighbours")
