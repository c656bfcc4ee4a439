"""The stack of a thread: as large as a device's, where kernels recurse."""

from __future__ import annotations

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import Module

pytestmark = pytest.mark.emulator

#: A call keeps 64 bytes of variables, and a few registers.
DEEP = """
__device__ __noinline__ int deep(int n, int* keep) {
    int own[16];
    for (int i = 0; i < 16; i++) own[i] = keep[i & 3] + n;
    if (n <= 1) return own[n & 15];
    int below = deep(n - 1, keep);
    return own[below & 15] + below;
}
__global__ void f(int* x, int* keep) {
    if (threadIdx.x == 2) x[threadIdx.x] = deep(x[threadIdx.x], keep);
}"""


def deep(depth: int) -> None:
    x, keep = np.full(4, depth, "i4"), np.zeros(4, "i4")
    ck.Kernel(DEEP, "f")(emulator.stream(), ck.config(1, 4), x, keep)
    assert x[2] == depth * (depth + 1) // 2


def test_a_recursion_has_the_device_s_stack() -> None:
    deep(8)
    message = (
        r"""^f.*: call.*test_stack.py.*: stack overflow: block 0, thread 2, \d+ calls deep, takes 1\d\d\d bytes """
    )
    message += r"""of stack, and the device gives a thread 1024; .* ck.memory.limit\(bytes, "stack"\)"""
    with pytest.raises(ck.EmulationError, match=message):
        deep(16)


def test_the_stack_is_set_for_the_device() -> None:
    with ck.memory.limit(4096, "stack"):
        deep(30)
        with pytest.raises(ck.EmulationError, match="the device gives a thread 4096"):
            deep(70)
    with pytest.raises(ck.EmulationError, match="the device gives a thread 1024"):
        deep(30)
    with ck.memory.limit(1 << 15, "stack"):
        deep(250)


def test_a_kernel_that_does_not_recurse_has_what_it_needs() -> None:
    """Its depth is known before it runs, and the driver gives it as much."""
    kernel = ck.Kernel("""
        __device__ __noinline__ int inner(int* x) {
            int own[2000];
            for (int i = 0; i < 2000; i++) own[i] = x[i & 3] + i;
            return own[x[0]] + own[x[1]];
        }
        __global__ void f(int* x) { x[3] = inner(x); }""")
    x = np.array([1999, 1000, 0, 0], "i4")
    kernel(emulator.stream(), ck.config(1, 1), x)
    assert x[3] == (0 + 1999) + (1999 + 1000)


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        ("int f(int n) { return n < 2 ? 1 : f(n - 1) + f(n - 2); }", 40),
        ("int f(int n) { int a[8]; for (int i = 0; i < 8; i++) a[i] = n * i; "
         "return n < 1 ? a[n & 7] : a[(n * 3) & 7] + f(n - 1) + a[n & 7]; }", 64),
        ("int f(int n) { double a = n * 1.5, b = n * 2.5, c = n / 3.; if (n < 1) return 1; int r = f(n - 1); "
         "return r + (int)(a * b * c + r); }", 48),
        ("int f(int n) { int a[64]; for (int i = 0; i < 64; i++) a[i] = n * i; if (n < 1) return a[n & 63]; "
         "int r = f(n - 1); return a[r & 63] + r; }", 320),
        ("int g(int n) { return n < 2 ? 1 : n * f(n - 1); }\n"
         "__device__ __noinline__ int f(int n) { return n < 2 ? 1 : n + g(n - 1); }", 16),
    ],
)  # fmt: skip
def test_a_frame_is_about_what_machine_code_takes(body: str, taken: int) -> None:
    """Beside the frames that NVRTC 13.5 makes for sm_90 (the first subtraction from R1)."""
    text = f"""__device__ int f(int n);
        __device__ __noinline__ {body}
        __global__ void k(int* x) {{ *x = f(*x); }}"""
    program = emulator.parse(ck.Kernel(text)[()].ptx(arch="sm_90"))
    module = Module(program, Memory())
    frame = next(module.context(given).frame_bytes for name, given in program.functions.items() if "1fi" in name)
    assert 0.8 * taken <= frame <= 1.25 * taken
