"""Take compiled code out and link it: a PTX file that is loaded again, and LTO IR that another kernel calls.

`Kernel.ptx` and `Kernel.compile` return code for any arch. `ck.Kernel.from_file` loads it. LTO IR is linked, and
optimised, with the code of another source: the kernel `cubes` below calls a function that only the library defines.

Prints::

    PTX:    written to a file and loaded again, the same results
    LTO IR: without the library, the compiler does not find cube<float>
    LTO IR: linked with the library, x³ is right
"""

import tempfile
from pathlib import Path

import numpy as np

import cudakit as ck

ARCH = "sm_90"
stream = ck.stream()
numbers = np.linspace(1, 2, 1000, dtype=np.float32)


def run(kernel: ck.Kernel) -> np.ndarray:
    """Return what the kernel writes for the numbers."""
    x, y = ck.to_device(numbers, stream), ck.to_device(np.zeros_like(numbers), stream)
    kernel(stream, ck.cover(numbers.size), x, y, numbers.size)
    return ck.to_host(y, stream)


halve = ck.Kernel("""
__global__ void halve(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] / 2;
}
""")
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "halve.ptx"
    file.write_text(halve.ptx())  # for the GPU that is here, or for the emulator
    np.testing.assert_array_equal(run(ck.Kernel.from_file(file)), run(halve))
np.testing.assert_array_equal(run(halve), numbers / 2)
print("PTX:    written to a file and loaded again, the same results")

LIBRARY = """
template <typename T> __device__ T cube(T x) { return x * x * x; }
template __device__ float cube(float);
__global__ void unused() {}
"""
CUBES = """
template <typename T> __device__ T cube(T x);
__global__ void cubes(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = cube(x[i]);
}
"""
library = ck.Kernel(LIBRARY, "unused").compile(arch=None if ck.has_gpu() else ARCH, target="ltoir")
alone = ck.Kernel(CUBES, options=ck.CompileOptions(lto=True))
linked = ck.Kernel(CUBES, options=ck.CompileOptions(lto=True, link=(library,)))
message = ""
try:
    alone.compile(arch=ARCH)
except ck.CompileError as error:
    message = str(error)
assert "cube" in message
print("LTO IR: without the library, the compiler does not find cube<float>")
if ck.has_gpu():
    result = run(linked)
else:
    assert linked.compile(arch=ARCH).code  # the emulator runs PTX, which LTO IR does not have:
    result = run(ck.Kernel(LIBRARY + CUBES, "cubes"))  # it takes both sources as one
np.testing.assert_allclose(result, numbers.astype(float) ** 3, rtol=1e-6)
print("LTO IR: linked with the library, x³ is right")
