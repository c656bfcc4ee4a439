"""Options of the compiler: a macro, fast math, line numbers, debug information, and a limit on registers.

`ck.CompileOptions` holds them, and each kernel is compiled with its own. Look at the PTX: it can be printed for any
arch, also where there is no GPU, and shows what an option changed. In link_code.py code is taken out and linked.

Prints::

    macro:      x / DIVISOR is x / 3
    fast math:  div.approx in place of div.rn, the same to six digits
    lineinfo:   source lines in the code
    debug:      source lines and variables in the code, which is not optimised
    registers:  at most 24 make 9208 bytes of machine code, unlimited ones 5496
"""

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
numbers = np.linspace(1, 2, 1000, dtype=np.float32)


def run(kernel: ck.Kernel) -> np.ndarray:
    """Return what the kernel writes for the numbers."""
    x, y = ck.to_device(numbers, stream), ck.to_device(np.zeros_like(numbers), stream)
    kernel(stream, ck.cover(numbers.size), x, y, numbers.size)
    return ck.to_host(y, stream)


# 1. A macro, as -D sets it.
options = ck.CompileOptions(defines={"DIVISOR": "3.0f"})
divide = ck.Kernel(DIVIDE, options=options)
np.testing.assert_array_equal(run(divide), numbers / np.float32(3))  # rounded correctly, as by NumPy
print("macro:      x / DIVISOR is x / 3")

# 2. Fast math: approximate division, roots and functions.
fast = ck.Kernel(DIVIDE, options=options.replace(fast_math=True))
np.testing.assert_allclose(run(fast), numbers / 3, rtol=1e-6)
exact_code, fast_code = divide.ptx(arch=ARCH), fast.ptx(arch=ARCH)
assert [("div.rn" in code, "div.approx" in code) for code in (exact_code, fast_code)] == [(True, False), (False, True)]
print("fast math:  div.approx in place of div.rn, the same to six digits")

# 3. Line numbers, for profilers; debug information, for debuggers.
lines = ck.Kernel(DIVIDE, options=options.replace(lineinfo=True)).ptx(arch=ARCH)
debug = ck.Kernel(DIVIDE, options=options.replace(debug=True)).ptx(arch=ARCH)
contents = [(".loc" in code, ".debug_info" in code) for code in (exact_code, lines, debug)]
assert contents == [(False, False), (True, False), (True, True)]
print("lineinfo:   source lines in the code")
print("debug:      source lines and variables in the code, which is not optimised")

# 4. Registers. A thread that keeps 64 numbers needs as many registers. With fewer, numbers go to memory and back.
REVERSE = """
__global__ void reverse(const float* x, float* y) {
    float values[64];
    for (int k = 0; k < 64; ++k) values[k] = x[k * 32 + threadIdx.x];
    __syncthreads();  // keeps the compiler from making one loop of the two
    for (int k = 0; k < 64; ++k) y[(63 - k) * 32 + threadIdx.x] = values[k];
}
"""
unlimited, limited = (ck.Kernel(REVERSE, options=ck.CompileOptions(max_registers=limit)) for limit in (None, 24))
sizes = [len(kernel.compile(arch=ARCH).code) for kernel in (limited, unlimited)]
assert sizes[0] > sizes[1]
if ck.has_gpu():
    assert limited.attributes().registers <= 24 < unlimited.attributes().registers
rows = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
for kernel in (unlimited, limited):
    result = np.zeros_like(rows)
    kernel(stream, ck.config(1, 32), ck.In(rows), ck.Out(result))
    stream.sync()
    np.testing.assert_array_equal(result, rows[::-1])
print(f"registers:  at most 24 make {sizes[0]} bytes of machine code, unlimited ones {sizes[1]}")
