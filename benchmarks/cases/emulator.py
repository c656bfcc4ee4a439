"""The emulator beside Numba's CUDA simulator, in one run on the same kernels: how many times as long Numba takes.

With ``numba`` and ``numba-cuda`` installed (nothing else here needs them). Both run on the host, in one process, on the
same arrays. Numba takes minutes, so it may be given the first part of a grid only, and its time scaled by the blocks;
the table says where that was done. Ours is the median of launches before and after Numba's; the first call, which
compiles, parses and decodes too, is a column of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tables import table_head

TITLE = "The emulator beside Numba's CUDA simulator"

ADD = """
__global__ void add(const float* x, const float* y, float* z) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    z[i] = x[i] + y[i];
}"""

MATMUL = """
__global__ void matmul(const float* a, const float* b, float* c) {
    __shared__ float left[16][16], right[16][16];
    int x = threadIdx.x, y = threadIdx.y, n = gridDim.x * 16;
    int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}"""

SCAN = """
__global__ void scan(const float* x, float* y) {
    __shared__ float sums[2][256];
    int i = threadIdx.x, now = 0;
    sums[0][i] = x[blockIdx.x * 256 + i];
    __syncthreads();
    for (int distance = 1; distance < 256; distance *= 2) {
        sums[1 - now][i] = i >= distance ? sums[now][i] + sums[now][i - distance] : sums[now][i];
        now = 1 - now;
        __syncthreads();
    }
    y[blockIdx.x * 256 + i] = sums[now][i];
}"""


@dataclass(frozen=True)
class Case:
    """One kernel in both languages, with its launch, its inputs, and the check of what it wrote."""

    name: str
    source: str
    grid: tuple[int, int]
    block: tuple[int, int]
    inputs: tuple[np.ndarray, ...]
    expected: np.ndarray
    tolerance: float

    @property
    def lanes(self) -> int:
        return self.grid[0] * self.grid[1] * self.block[0] * self.block[1]

    def check(self, output: np.ndarray, part: int) -> None:
        """Compare the first `part` elements (rows, of a matrix) with NumPy's."""
        np.testing.assert_allclose(output[:part], self.expected[:part], rtol=self.tolerance)


def cases() -> list[Case]:
    random = np.random.default_rng(0)
    x, y, z = (random.random(size, np.float32) for size in (1 << 20, 1 << 20, 1 << 16))
    a, b = random.random((256, 256), np.float32), random.random((256, 256), np.float32)
    # Sums of 256 terms in float32, in any order: within 256 eps.
    close = 256 * float(np.finfo(np.float32).eps)
    product = (a.astype(np.float64) @ b).astype(np.float32)
    sums = np.cumsum(z.reshape(-1, 256), axis=1, dtype=np.float64).reshape(-1).astype(np.float32)
    return [
        Case("vector add, 1 Mi floats", ADD, (4096, 1), (256, 1), (x, y), x + y, 0.0),
        Case("matmul, 256³ floats, tiles in shared memory", MATMUL, (16, 16), (16, 16), (a, b), product, close),
        Case("scan of blocks (Hillis and Steele), 64 Ki floats", SCAN, (256, 1), (256, 1), (z,), sums, close),
    ]  # fmt: skip


def numba_kernels() -> list[Any]:
    """The same kernels in Numba's Python, in the order of `cases`.

    Raises
    ------
    SystemExit
        Where Numba is not installed.
    """
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    if importlib.util.find_spec("numba") is None:
        raise SystemExit("numba is not installed, and it is what this compares with: pip install numba numba-cuda")
    from cases import numba_kernels as found

    return [found.add, found.matmul, found.scan]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def steps_of(case: Case) -> int:
    """Instructions that the emulator steps through, each for many lanes at once."""
    import cudakit as ck
    from cudakit import emulator

    program = emulator.parse(ck.Kernel(case.source)[()].ptx(arch="sm_90"))
    memory = emulator.Memory()
    pointers = [memory.add(array, "array") for array in (*case.inputs, np.empty_like(case.expected))]
    entry = next(function for function in program.functions.values() if function.is_entry)
    geometry = emulator.Geometry((*case.grid, 1), (*case.block, 1))
    parameters = struct.pack(f"<{len(pointers)}Q", *pointers)
    launch = emulator.Launch(emulator.Module(program, memory), entry, geometry, parameters)
    emulator.run(launch)
    return launch.steps


def row(case: Case, numba_kernel: Any, fraction: float, repeats: int) -> str:
    """A line of the table; what both wrote is compared with NumPy's."""
    import cudakit as ck

    kernel, stream, config = ck.Kernel(case.source), ck.emulator.stream(), ck.config(case.grid, case.block)
    output = np.zeros_like(case.expected)
    run = lambda: kernel(stream, config, *case.inputs, output)  # noqa: E731
    first = seconds(run)
    case.check(output, len(output))
    ours = [seconds(run) for _ in range(repeats)]
    # Whole rows of blocks, so that the part that is done is the first part of the result.
    outer = 1 if case.grid[1] > 1 else 0
    part = max(1, round(case.grid[outer] * fraction))
    grid = (part, case.grid[1]) if outer == 0 else (case.grid[0], part)
    output[:] = 0
    numbas = seconds(lambda: numba_kernel[grid, case.block](*case.inputs, output)) * case.grid[outer] / part
    case.check(output, len(output) * part // case.grid[outer])
    ours += [seconds(run) for _ in range(repeats)]
    unit = "rows of blocks" if outer else "blocks"
    how = "the whole grid" if part == case.grid[outer] else f"{part} of {case.grid[outer]} {unit}, scaled"
    ratio = numbas / statistics.median(ours)
    return f"| {case.name} | {case.lanes} | {steps_of(case)} | {ratio:.0f} | {numbas / first:.0f} | {how} |"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=5, help="our launches before Numba's, and again after it")
    parser.add_argument("--only", type=int, choices=(0, 1, 2), action="append", help="number of a kernel; default: all")
    parser.add_argument(
        "--numba-fraction",
        type=float,
        nargs="+",
        default=[1.0],
        help="part of each grid that Numba runs",
    )


def lines(options: argparse.Namespace) -> Iterator[str]:
    kernels = numba_kernels()
    fractions = options.numba_fraction * (len(kernels) if len(options.numba_fraction) == 1 else 1)
    yield f"numba {importlib.metadata.version('numba')}, numpy {np.__version__}; both sides use one core."
    yield ""
    yield from table_head(
        ("kernel", "threads", "steps", "Numba's time over ours", "over our first call, which compiles", "Numba ran")
    )
    for number, (case, kernel) in enumerate(zip(cases(), kernels, strict=True)):
        if not options.only or number in options.only:
            yield row(case, kernel, fractions[number], options.repeats)
