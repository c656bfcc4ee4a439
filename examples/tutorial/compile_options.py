"""Options of the compiler: macros, fast math, line numbers, debugging, registers; PTX and LTO IR, out and in again.

Code can be looked at for any arch, also where there is no GPU.

Prints::

    macros: x / 3 where DIVISOR is 3
    fast math: div.approx for div.rn, equal to six digits
    lineinfo: lines; debug: lines and all else that a debugger wants
    at most 24 registers: ... bytes of machine code for ...
    PTX, out and in again: the same results
    LTO IR, out and linked to another kernel: cube<float> is found, and right
"""

import tempfile
from pathlib import Path

import numpy as np

import cudakit as ck

ARCH = "sm_90"
DIVIDE = """
__global__ void divide(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] / DIVISOR;
}
"""
stream = ck.stream()
given = np.linspace(1, 2, 1000, dtype=np.float32)


def run(kernel: ck.Kernel) -> np.ndarray:
    """What the kernel makes of the given numbers."""
    x, y = ck.to_device(given, stream), ck.to_device(np.zeros_like(given), stream)
    kernel(stream, ck.cover(given.size), x, y, given.size)
    return ck.to_host(y, stream)


plain = ck.CompileOptions(defines={"DIVISOR": "3.0f"})
divide = ck.Kernel(DIVIDE, options=plain)
np.testing.assert_array_equal(run(divide), given / np.float32(3))  # rounded correctly, as NumPy does
print("macros: x / 3 where DIVISOR is 3")

fast = ck.Kernel(DIVIDE, options=plain.replace(fast_math=True))
np.testing.assert_allclose(run(fast), given / 3, rtol=1e-6)
exact_code, fast_code = divide.ptx(arch=ARCH), fast.ptx(arch=ARCH)
assert [("div.rn" in code, "div.approx" in code) for code in (exact_code, fast_code)] == [(True, False), (False, True)]
print("fast math: div.approx for div.rn, equal to six digits")

lines = ck.Kernel(DIVIDE, options=plain.replace(lineinfo=True)).ptx(arch=ARCH)
debug = ck.Kernel(DIVIDE, options=plain.replace(debug=True)).ptx(arch=ARCH)
found = [(".loc" in code, ".debug_info" in code) for code in (exact_code, lines, debug)]
assert found == [(False, False), (True, False), (True, True)]
print("lineinfo: lines; debug: lines and all else that a debugger wants")

# A thread that holds 64 numbers wants as many registers. With fewer, numbers go to memory and back: more instructions.
HOLD = """
__global__ void hold(const float* x, float* y) {
    float held[64];
    for (int k = 0; k < 64; ++k) held[k] = x[k * 32 + threadIdx.x];
    __syncthreads();  // or the compiler would make one loop of both
    for (int k = 0; k < 64; ++k) y[(63 - k) * 32 + threadIdx.x] = held[k];
}
"""
free, capped = (ck.Kernel(HOLD, options=ck.CompileOptions(max_registers=most)) for most in (None, 24))
sizes = [len(kernel.compile(arch=ARCH).code) for kernel in (capped, free)]
assert sizes[0] > sizes[1]
if ck.has_gpu():
    assert capped.attributes().registers <= 24 < free.attributes().registers
many = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
for kernel in (free, capped):
    result = np.zeros_like(many)
    kernel(stream, ck.config(1, 32), ck.In(many), ck.Out(result))
    stream.sync()
    np.testing.assert_array_equal(result, many[::-1])
print(f"at most 24 registers: {sizes[0]} bytes of machine code for {sizes[1]}")

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "divide.ptx"
    file.write_text(divide.ptx())  # for the GPU that is here, or the emulator's arch
    np.testing.assert_array_equal(run(ck.Kernel.from_file(file)), run(divide))
print("PTX, out and in again: the same results")

# LTO IR is what the linker optimises across texts: the kernel below calls what is in the library only.
LIBRARY = """
template <typename T> __device__ T cube(T x) { return x * x * x; }
template __device__ float cube(float);
__global__ void of_the_library() {}
"""
library = ck.Kernel(LIBRARY, "of_the_library")
CUBES = """
template <typename T> __device__ T cube(T x);
__global__ void cubes(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = cube(x[i]);
}
"""
alone, linked = (
    ck.Kernel(CUBES, options=ck.CompileOptions(lto=True, link=link))
    for link in ((), (library.compile(arch=None if ck.has_gpu() else ARCH, target="ltoir"),))
)
missing = ""
try:
    alone.compile(arch=ARCH)
except ck.CompileError as error:
    missing = str(error)
assert "cube" in missing
if ck.has_gpu():
    found = run(linked)
else:
    assert linked.compile(arch=ARCH).code  # the emulator runs PTX, of which there is none in LTO IR
    found = run(ck.Kernel(LIBRARY + CUBES, "cubes"))  # one text of both
np.testing.assert_allclose(found, given.astype(float) ** 3, rtol=1e-6)
print("LTO IR, out and linked to another kernel: cube<float> is found, and right")
