"""A photograph to gray: three values a pixel become one, by a packaged template and by a kernel of our own.

Prints::

    (75, 64, 3) uint8 → (75, 64) uint8
    our own and the packaged kernel: at most 1 apart
    mean brightness 77.4
"""

import numpy as np

import cudakit as ck
from cudakit.demo import read_photo

own = ck.Kernel("""
__global__ void gray(const unsigned char* rgb, unsigned char* out, int pixels) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p < pixels) out[p] = 0.299f * rgb[3 * p] + 0.587f * rgb[3 * p + 1] + 0.114f * rgb[3 * p + 2] + 0.5f;
}
""")
packaged = ck.Kernel.from_template("image/gray")  # templates/image.cuh: four pixels a thread

picture = read_photo(None)
if not ck.has_gpu():
    picture = np.ascontiguousarray(picture[::8, ::8])  # a small one for the emulator
stream = ck.stream()
rgb = ck.to_device(picture, stream)
with ck.using(stream) as xp:
    first, second = (xp.zeros(picture.shape[:2], dtype=xp.uint8) for _ in range(2))
    own(stream, ck.cover(first.size), rgb, first, first.size)
    packaged(stream, ck.cover(-(-second.size // 4)), rgb, second, second.size)
gray, other = (ck.to_host(image, stream).astype(int) for image in (first, second))
print(f"{picture.shape} {picture.dtype} → {first.shape} {first.dtype}")
expected = picture @ np.array([0.299, 0.587, 0.114])
assert np.abs(gray - expected).max() <= 0.51
assert np.abs(gray - other).max() <= 1
print(f"our own and the packaged kernel: at most {np.abs(gray - other).max()} apart")
print(f"mean brightness {gray.mean():.1f}")
