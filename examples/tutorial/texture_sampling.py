"""A texture: lookups between the texels, with interpolation and edges done by the hardware.

Prints::

    on the texels:      [[0. 1.]
     [2. 3.]]
    half way between:   1.5
    enlarged to 4 × 4:
    [[0.   0.25 0.75 1.  ]
     [0.5  0.75 1.25 1.5 ]
     [1.5  1.75 2.25 2.5 ]
     [2.   2.25 2.75 3.  ]]
"""

import numpy as np

import cudakit as ck

enlarge = ck.Kernel("""
__global__ void enlarge(cudaTextureObject_t image, float* out, int rows, int columns, float scale) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < rows && column < columns)  // a texel's centre is at its index + 0.5
        out[row * columns + column] = tex2D<float>(image, (column + 0.5f) * scale, (row + 0.5f) * scale);
}
""")

stream = ck.stream()
with ck.using(stream) as xp:
    image = xp.arange(4, dtype=xp.float32).reshape(2, 2)
    texture = ck.texture(image, filter="linear", address="clamp")
    same, one, large = (xp.empty((n, n), dtype=xp.float32) for n in (2, 1, 4))
    for out, scale in ((same, 1.0), (one, 2.0), (large, 0.5)):
        enlarge(stream, ck.cover(out.shape), texture, out, *out.shape, scale)
    print(f"on the texels:      {same}")
    print(f"half way between:   {float(one[0, 0])}")
    print("enlarged to 4 × 4:")
    print(large)
    lines = np.array([0, 0.25, 0.75, 1])
    np.testing.assert_allclose(ck.to_host(large, stream), 2 * lines[:, None] + lines, atol=1 / 256)
