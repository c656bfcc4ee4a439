"""A photograph to gray: three values of a pixel become one, by a kernel and by a packaged template.

The template `image/gray` computes four pixels in each thread, in fixed point. Look at the difference between the two:
at most one gray level, by rounding. The ready-made op is `ck.ops.rgb_to_gray`.

Prints::

    (75, 64, 3) uint8 → (75, 64) uint8
    own and packaged kernel: at most 1 gray level apart
    mean brightness 77.4
"""

import numpy as np

import cudakit as ck
from cudakit.demo import read_photo

to_gray = ck.Kernel("""
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
    gray, packaged_gray = (xp.zeros(picture.shape[:2], dtype=xp.uint8) for _ in range(2))
    to_gray(stream, ck.cover(gray.size), rgb, gray, gray.size)
    packaged(stream, ck.cover(-(-packaged_gray.size // 4)), rgb, packaged_gray, packaged_gray.size)
print(f"{picture.shape} {picture.dtype} → {gray.shape} {gray.dtype}")
gray, packaged_gray = (ck.to_host(image, stream).astype(int) for image in (gray, packaged_gray))
expected = picture @ np.array([0.299, 0.587, 0.114])
assert np.abs(gray - expected).max() <= 0.51
assert np.abs(gray - packaged_gray).max() <= 1
print(f"own and packaged kernel: at most {np.abs(gray - packaged_gray).max()} gray level apart")
print(f"mean brightness {gray.mean():.1f}")
