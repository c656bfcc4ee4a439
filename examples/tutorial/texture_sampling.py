"""A texture: values between the pixels of an image, interpolated by the hardware.

`ck.texture` takes an array, a filter and a rule for the edges. Look at the enlarged image: a texel's centre is at its
index + 0.5, and beyond the outer centres the edge's value is repeated. The ready-made op is `ck.ops.resize`.

Prints::

    on the texels:      [[0. 1.]
     [2. 3.]]
    in the middle:      1.5
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
    texels, middle, enlarged = (xp.empty((n, n), dtype=xp.float32) for n in (2, 1, 4))
    for out, scale in ((texels, 1.0), (middle, 2.0), (enlarged, 0.5)):
        enlarge(stream, ck.cover(out.shape), texture, out, *out.shape, scale)
    print(f"on the texels:      {texels}")
    print(f"in the middle:      {float(middle[0, 0])}")
    print("enlarged to 4 × 4:")
    print(enlarged)
    lines = np.array([0, 0.25, 0.75, 1])
    np.testing.assert_allclose(ck.to_host(enlarged, stream), 2 * lines[:, None] + lines, atol=1 / 256)
