"""Launch cost beside the peers, in one run: host time a call, medians, nothing but empty kernels on the device.

On a GPU. The floor is ``cuda.core.launch`` with pointers in hand
(itself within 2 % of the driver's own time); each row is a ratio to it. The peers are CuPy's RawKernel and PyCUDA's
model, bare cuda.core. Compile rows are beside NVRTC's own time for the same source and options.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
from tables import table

from cases.timing import host_time

TITLE = "Launch cost"
EMPTY_4 = "__global__ void empty4(const float* x, const float* y, float* z, int n) { if (n < 0) z[0] = x[0] + y[0]; }"
PARAMETERS_16 = (
    "const float* a0, const float* a1, const float* a2, const float* a3, const float* a4, const float* a5, "
    "const float* a6, float* a7, float f0, float f1, double d0, double d1, int n0, int n1, "
    "unsigned long long u0, long long u1"
)
EMPTY_16 = f"__global__ void empty16({PARAMETERS_16}) {{ if (n0 < 0) a7[0] = a0[0] * f0; }}"
COLD = """
template <typename T>
__global__ void saxpy_{tag}(T a, const T* __restrict__ x, T* __restrict__ y, size_t n) {{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        y[i] += a * x[i];
}}
"""


def launch_rows(repeats: int) -> list[tuple[str, float, float, str]]:
    """Rows (what, nanoseconds, ratio to bare, aim)."""
    import cupy
    from cuda.core import LaunchConfig, Program, ProgramOptions, launch

    import cudakit as ck

    stream = ck.stream()
    rows = []
    with ck.using(stream):
        arch = f"sm_{stream.device.arch}"
        arrays = [cupy.zeros(1024, "f4") for _ in range(8)]
        x, y, z = arrays[:3]
        px, py, pz = (a.data.ptr for a in arrays[:3])
        config = LaunchConfig(grid=1, block=32)

        def bare(text: str, name: str) -> object:
            code = Program(text, "c++", ProgramOptions(arch=arch)).compile("cubin", name_expressions=[name])
            return code.get_kernel(name)

        k4, k16 = bare(EMPTY_4, "empty4"), bare(EMPTY_16, "empty16")
        kernel4, kernel16 = ck.Kernel(EMPTY_4), ck.Kernel(EMPTY_16)
        raw = cupy.RawKernel('extern "C" ' + EMPTY_4, "empty4")
        n32 = np.int32(1024)
        plan = kernel4.plan(stream, config, x, y, z, 1024)
        swap = [(x, y, z), (y, z, x)]
        state = [0]

        def alternating() -> None:
            state[0] ^= 1
            a, b, c = swap[state[0]]
            kernel4(stream, config, a, b, c, 1024)

        found = host_time(
            {
                "bare": lambda: launch(stream, config, k4, px, py, pz, 1024),
                "checked": lambda: kernel4(stream, config, x, y, z, 1024),
                "alternating": alternating,
                "plan": plan,
                "bare plan": lambda: launch(stream, config, k4, px, py, pz, 1024),
                "raw": lambda: raw((1,), (32,), (x, y, z, n32)),
            },
            stream.sync,
            repeats,
            200,
        )
        floor = found["bare"]
        rows += [
            ("bare cuda.core.launch, pointers in hand (floor)", floor, 1.0, ""),
            ("the same again, for the spread", found["bare plan"], found["bare plan"] / floor, ""),
            ("checked call, 3 arrays + 1 int", found["checked"], found["checked"] / floor, "≤ 1.10"),
            ("checked call, arrays taking turns", found["alternating"], found["alternating"] / floor, ""),
            ("prepared call (plan)", found["plan"], found["plan"] / floor, "≤ 1.02"),
            ("CuPy RawKernel, unchecked", found["raw"], found["raw"] / floor, ""),
            ("checked call over CuPy RawKernel", found["checked"], found["checked"] / found["raw"], "≤ 0.85"),
        ]
        scalars = (0.5, 0.25, 1.0, 2.0, 1, 2, 3, 4)
        pointers = tuple(a.data.ptr for a in arrays)
        p0, p1, p2, p3, p4, p5, p6, p7 = pointers
        a0, a1, a2, a3, a4, a5, a6, a7 = arrays
        f0, f1, d0, d1, i0, i1, u0, u1 = scalars
        found = host_time(
            {
                "bare": lambda: launch(
                    stream,
                    config,
                    k16,
                    p0,
                    p1,
                    p2,
                    p3,
                    p4,
                    p5,
                    p6,
                    p7,
                    np.float32(f0),
                    np.float32(f1),
                    d0,
                    d1,
                    i0,
                    i1,
                    u0,
                    u1,
                ),
                "held": lambda: launch(stream, config, k16, *pointers, *held),
                "checked": lambda: kernel16(
                    stream, config, a0, a1, a2, a3, a4, a5, a6, a7, f0, f1, d0, d1, i0, i1, u0, u1
                ),
            }
            if (held := (np.float32(f0), np.float32(f1), d0, d1, i0, i1, u0, u1))
            else {},
            stream.sync,
            repeats,
            200,
        )
        rows += [
            ("16 arguments, bare, pointers and NumPy scalars in hand", found["held"], 1.0, ""),
            ("16 arguments, bare, NumPy scalars made each time", found["bare"], found["bare"] / found["held"], ""),
            ("16 arguments, checked", found["checked"], found["checked"] / found["held"], "≤ 1.25"),
        ]
        second = ck.stream()
        kernel4(second, config, x, y, z, 1024)
        kernel4(stream, config, x, y, z, 1024)
        found = host_time(
            {
                "bare": lambda: launch(stream, config, k4, px, py, pz, 1024),
                "several": lambda: kernel4(stream, config, x, y, z, 1024),
            },
            stream.sync,
            repeats,
            200,
        )
        rows.append(
            ("checked call in a process with several streams", found["several"], found["several"] / found["bare"], "")
        )
    return rows


FIRST_USE = """
import sys, time
import cudakit as ck
ck.Kernel, ck.cover  # their modules load here
stream = ck.stream()
with ck.using(stream) as xp:
    x, y = xp.ones(1024, "f4"), xp.zeros(1024, "f4")
    stream.sync()
    text = sys.argv[1]
    start = time.perf_counter()
    kernel = ck.Kernel(text)
    kernel(stream, ck.cover(1024), 2.0, x, y, 1024)
    taken = time.perf_counter() - start
    assert float(y[0]) == 2.0
    print(taken * 1e3)
"""

IMPORT = "import numpy, cuda.core, time; s = time.perf_counter(); {}; print((time.perf_counter() - s) * 1e3)"
IMPORTED = {
    "import cudakit beyond cuda.core and NumPy": "import cudakit",
    "import cudakit and the modules of a first launch": "import cudakit as ck; ck.Kernel, ck.cover",
}


def process_rows() -> list[tuple[str, float, str, str]]:
    """Rows (what, milliseconds, beside, aim) that need processes of their own."""
    text = COLD.format(tag="first")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CUDAKIT_CACHE_DIR": folder}
        # An installed package has its byte code; a checkout on a machine that writes none would time Python's compiler.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        once_compiled = [sys.executable, "-m", "compileall", "-q", str(Path(__file__).parents[2] / "cudakit")]
        subprocess.run(once_compiled, env=environment, check=True)

        def once(program: str, *args: str) -> float:
            done = subprocess.run(
                [sys.executable, "-c", program, *args], env=environment, capture_output=True, text=True, check=True
            )
            return float(done.stdout)

        cold = once(FIRST_USE, text)
        warm = statistics.median(once(FIRST_USE, text) for _ in range(7))
        rows.append(
            ("first use in a new process, cubin on disk", warm, f"{cold:.1f} ms with nothing on disk", "≤ 3 ms")
        )
        for name, program in IMPORTED.items():
            imported = statistics.median(once(IMPORT.format(program)) for _ in range(7))
            rows.append((name, imported, "", "≤ 20 ms"))
    return rows


def compile_row(repeats: int, arch: str) -> tuple[str, float, float, str]:
    """Cold compile by cudakit over NVRTC's own time, same options, new sources each time, in turns."""
    from cuda.core import Program, ProgramOptions

    import cudakit as ck

    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, CUDAKIT_CACHE_DIR=folder):
        for number in range(repeats):
            for tag, taken in ((f"n{number}", theirs), (f"o{number}", ours)):
                text = COLD.format(tag=tag)
                start = time.perf_counter()
                if taken is theirs:
                    program = Program(text, "c++", ProgramOptions(arch=arch, std="c++17", name="<kernel text>"))
                    program.compile("cubin", name_expressions=[f"saxpy_{tag}<float>"])
                else:
                    ck.Kernel(text)[np.float32].compile(arch=arch)
                taken.append(time.perf_counter() - start)
    ratio = statistics.median(ours[2:]) / statistics.median(theirs[2:])
    return ("cold compile over NVRTC's own time", statistics.median(ours[2:]) * 1e3, ratio, "≤ 1.05")


def rows(repeats: int) -> Iterator[tuple[str, str, str, str]]:
    """Rows (what, time, ratio or beside, aim)."""
    import cudakit as ck

    if ck.has_gpu():
        for what, nanoseconds, ratio, aim in launch_rows(repeats):
            yield what, f"{nanoseconds:.0f} ns", f"{ratio:.3f}", aim
        for what, milliseconds, beside, aim in process_rows():
            yield what, f"{milliseconds:.2f} ms", beside, aim
    what, milliseconds, ratio, aim = compile_row(22, ck.device_limits().arch)
    yield what, f"{milliseconds:.1f} ms", f"{ratio:.3f}", aim


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=60, help="measurements whose median is taken")


def lines(options: argparse.Namespace) -> Iterator[str]:
    return table(("what", "time", "ratio or beside", "aim"), rows(options.repeats))
