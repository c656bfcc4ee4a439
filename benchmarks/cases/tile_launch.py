"""What a call of a tile kernel costs the host, beside one of threads and beside bare cuda.core, in turns; compiles.

Without a GPU, ``--make FILE`` makes the kernels, and tells how long compiles and reads from disk take;
``--kernels FILE`` takes them in on a GPU, and measures calls and the first use in a new process.
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
from typing import Any

import numpy as np
from tables import table

TITLE = "Launch cost of tile kernels"
ARCH = "sm_90"
PARAMETERS = "const float* x, const float* y, float* z, int n"
THREADS = f"__global__ void threads({PARAMETERS}) {{ if (n < 0) z[0] = x[0] + y[0]; }}"
TILES = f"""
#include "cuda_tile.h"
using namespace cuda::tiles::literals;
namespace ct = cuda::tiles;
__tile_global__ void plain({PARAMETERS}) {{ if (n < 0) z[0] = x[0] + y[0]; }}
__tile_global__ void promised({PARAMETERS}) {{
    x = ct::assume_aligned(x, 16_ic);
    y = ct::assume_aligned(y, 16_ic);
    z = ct::assume_aligned(z, 16_ic);
    n = ct::assume_divisible(n, 16_ic);
    if (n < 0) z[0] = x[0] + y[0];
}}
"""
#: The product of two matrices, as `cudakit.ops.matmul` has it for 512³ in float16.
PRODUCT = ("__half", "__half", "__half", "cudakit::identity", "int", 64, 64, 64, 4, 1, 16, 16, *[False] * 7)
SIZES = 1, 64, 64, 64, 64, 64, 64, 0, 0, 0
READ = """
import sys, time, numpy as np, cudakit as ck
kernel = ck.Kernel.from_template("tile/matmul/matmul")[eval(sys.argv[1])]
start = time.perf_counter()
code = kernel.compile(arch=sys.argv[2], target="cubin")
print((time.perf_counter() - start) * 1e3)
"""
FIRST_USE = """
import sys, time, numpy as np, cudakit as ck
stream = ck.stream()
with ck.using(stream) as xp:
    a = xp.ones((64, 64), "f2")
    c = xp.zeros((64, 64), "f2")
    stream.sync()
    start = time.perf_counter()
    kernel = ck.Kernel.from_template("tile/matmul/matmul")[eval(sys.argv[1])]
    kernel(stream, ck.config((1, 1)), a, a, c, c, c, 1.0, 1, 64, 64, 64, 64, 64, 64, 0, 0, 0)
    taken = time.perf_counter() - start
    assert float(c[0, 0]) == 64.0
    print(taken * 1e3)
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this family."""
    parser.add_argument("--make", type=Path, metavar="FILE", help="make the kernels and write them; no GPU is needed")
    parser.add_argument("--kernels", type=Path, metavar="FILE", help="kernels that --make wrote")
    parser.add_argument("--arch", default=ARCH, help="what --make is for")
    parser.add_argument("--repeats", type=int, default=60, help="measurements whose median is taken")


def kernels() -> dict[str, Any]:
    """The tile kernels by what the rows call them."""
    import cudakit as ck

    product = ck.Kernel.from_template("tile/matmul/matmul")[PRODUCT]
    return {"plain": ck.Kernel(TILES, "plain"), "promised": ck.Kernel(TILES, "promised"), "product": product}


def in_a_process(program: str, *arguments: str) -> float:
    """What a program prints: milliseconds. An installed package has its byte code, so it runs twice."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", program, repr(PRODUCT), *arguments]
    taken = [
        float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
        for _ in range(6)
    ]
    return statistics.median(taken[1:])


def made(options: argparse.Namespace) -> Iterator[tuple[str, str, str, str]]:
    """Compile the kernels and write them into a file."""
    from cudakit.jit.cache.cache import default_cache

    for name, kernel in kernels().items():
        start = time.perf_counter()
        kernel.compile(arch=options.arch, target="tileir")
        half = time.perf_counter()
        kernel.compile(arch=options.arch, target="cubin")
        parts = f"{half - start:.2f} s NVRTC, {time.perf_counter() - half:.2f} s assembler"
        yield f"compile, {name}", f"{time.perf_counter() - start:.2f} s", parts, "≤ 3 s" if name == "product" else ""
    yield "product from disk, in a new process", f"{in_a_process(READ, options.arch):.2f} ms", "", "≤ 4 ms"
    count, _ = default_cache().export_to(options.make)
    yield f"{count} entries in {options.make}", f"{options.make.stat().st_size >> 10} KiB", "", ""


def called(options: argparse.Namespace) -> Iterator[tuple[str, str, str, str]]:
    """Rows of calls: each beside the bare launch of the same kernel, all in turns."""
    import cupy
    from cuda.core import LaunchConfig, ObjectCode, launch

    import cudakit as ck
    from cases.timing import host_time

    stream: Any = ck.stream()
    with ck.using(stream):
        x, y, z = (cupy.zeros(4096, "f4") for _ in range(3))
        a = cupy.zeros((64, 64), "f2")
        found = kernels()
        threads = ck.Kernel(THREADS)
        arch = f"sm_{stream.device.arch}"

        def bare(kernel: Any) -> Any:
            compiled = kernel.compile(arch=arch)
            name = kernel.specialization(arch=arch).name_expression
            symbols: Any = {name: compiled.lowered[name].encode()}
            return ObjectCode.from_cubin(compiled.code, symbol_mapping=symbols).get_kernel(name)

        block, tile = LaunchConfig(grid=1, block=32), LaunchConfig(grid=1, block=1)
        one, four = ck.config(1, 32), ck.config(1)
        pointers, pa = tuple(each.data.ptr for each in (x, y, z)), a.data.ptr
        n, one_float = 4096, np.float32(1)
        cores = {name: bare(kernel) for name, kernel in {**found, "threads": threads}.items()}
        plain, promised, product = found.values()
        turn = [(x, y, z), (y, z, x)]

        def alternating(kernel: Any, config: Any) -> Any:
            def call() -> None:
                turn.reverse()
                kernel(stream, config, *turn[0], n)

            return call

        held = cores["product"]
        times = host_time(
            {
                "bare threads": lambda: launch(stream, block, cores["threads"], *pointers, n),
                "threads": lambda: threads(stream, one, x, y, z, n),
                "threads, other arrays": alternating(threads, one),
                "bare plain": lambda: launch(stream, tile, cores["plain"], *pointers, n),
                "plain": lambda: plain(stream, four, x, y, z, n),
                "plain, ck.cover(4096, tile=4096)": lambda: plain(stream, ck.cover(4096, tile=4096), x, y, z, n),
                "plain, other arrays": alternating(plain, four),
                "bare promised": lambda: launch(stream, tile, cores["promised"], *pointers, n),
                "promised": lambda: promised(stream, four, x, y, z, n),
                "promised, other arrays": alternating(promised, four),
                "promised, plan": promised.plan(stream, four, x, y, z, n),
                "bare product": lambda: launch(stream, tile, held, pa, pa, pa, pa, pa, one_float, *SIZES),
                "product": lambda: product(stream, four, a, a, a, a, a, 1.0, *SIZES),
            },
            stream.sync,
            options.repeats,
            200,
        )
    floor = ""
    for name, taken in times.items():
        floor = name if name.startswith("bare") else floor
        aim = "≤ 1.15" if name in ("plain", "promised", "product") else "≤ 1.10" if name == "threads" else ""
        yield name, f"{taken:.0f} ns", f"{taken / times[floor]:.3f}", aim
    yield "product, first use in a new process, from disk", f"{in_a_process(FIRST_USE):.2f} ms", "", ""


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The page."""
    from cudakit.jit.cache.cache import default_cache

    with tempfile.TemporaryDirectory(prefix="cudakit-tile-launch-") as folder:
        # A cache of its own: nothing of other programs is written, and nothing of them is used.
        os.environ["CUDAKIT_CACHE_DIR"] = folder
        if options.kernels:
            default_cache().import_from(options.kernels)
        rows = made(options) if options.make else called(options)
        yield from table(("what", "time", "ratio to bare, or parts", "aim"), rows)
