"""The emulator's two machines beside loops of C for the same work, on one core and on all, in one run.

With ``gcc`` for the loops (``-O3 -march=native``) and llvmlite for machine code. Times of a processor say something as
ratios only: each row is measured in turns.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tables import table_head

import cudakit as ck
from cudakit import system

TITLE = "The emulator's machines beside C"
HERE = Path(__file__).parent


class Work(NamedTuple):
    """A kernel, and the arrays and numbers that it and the loop of C take alike."""

    name: str
    what: str
    config: Any
    arguments: tuple[Any, ...]
    #: What it should reach, of C's.
    aim: float
    #: What is zero before each run.
    fresh: tuple[np.ndarray[Any, Any], ...] = ()
    file: str = "kernels.cuh"


def works() -> list[Work]:
    rng, one = np.random.default_rng(0), 1 << 20
    x, y = (rng.random(one, np.float32) for _ in range(2))
    octets, counts = rng.integers(0, 256, 4 * one).astype(np.uint8), np.zeros(256, np.int32)
    escapes, places = np.zeros((1024, 1024), np.int32), rng.random((4, 4096), np.float32)
    image = rng.random((2048, 2048), np.float32)
    a, b = (rng.random((512, 512), np.float32) for _ in range(2))
    n = 4096
    state, wholes = np.zeros(1024, np.uint64), rng.integers(0, 99, one).astype(np.int32)
    keys = rng.integers(0, 2**32, one, np.uint32)
    solid = rng.random((192, 192, 192), np.float32)
    # Few vertices have most of the edges.
    degrees = np.minimum(rng.pareto(1.5, one).astype(np.int32) + 1, 4096)
    starts = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    ends = rng.integers(0, one, starts[-1]).astype(np.int32)
    depth = rng.choice([3, 4, 99], one).astype(np.int32)
    cover = ck.config(one // 256, 256)
    square = ck.config((2048 // 32, 2048 // 8), (32, 8))
    return [
        Work("saxpy", "1 Mi", cover, (y, x, one), 0.9),
        Work("blur", "5 × 5 of 2048²", square, (np.zeros_like(image), image, 2048, 2048), 0.8),
        Work("product", "512³, tiles of 16", ck.config((32, 32), (16, 16)), (np.zeros_like(a), a, b, 512), 1.0),
        Work("bodies", "4,096", ck.config(16, 256), (np.zeros((3, n), np.float32), places, n), 0.5),
        Work("mandelbrot", "1024², 200 turns", ck.config((32, 128), (32, 8)), (escapes, 1024), 0.5),
        Work("options", "1 Mi", cover, (np.zeros_like(x), 60 + 80 * x, one), 0.5),
        Work("total", "1 Mi", ck.config(128, 256), (np.zeros(1, np.float32), x, one), 0.25),
        Work("histogram", "4 Mi bytes", ck.config(64, 256), (counts, octets, 4 * one), 0.25),
        Work("collatz", "1 Mi", cover, (np.zeros(one, np.int32), one), 0.2),
        Work("stencil", "7 points of 192³", ck.config((6, 24, 192), (32, 8)), (np.zeros_like(solid), solid, 192), 0.8),
        Work("sums", "1 Mi, of 1,024 each", ck.config(1024, 256), (np.zeros(1024, np.float32), x), 0.25),
        Work("scan", "1 Mi, look-back", ck.config(1024, 256), (np.zeros_like(wholes), wholes, state), 0.25, (state,)),
        Work("sort", "1 Mi, 1,024 each, CUB", ck.config(1024, 128), (np.zeros_like(keys), keys), 0.25, file="sort.cuh"),
        Work("level", "1 Mi vertices", cover, (np.zeros(one, np.int32), depth, starts, ends, 4, one), 0.2),
        Work("march", "512²", ck.config((16, 64), (32, 8)), (np.zeros((512, 512), np.float32), 512), 0.2),
    ]  # fmt: skip


def loops() -> Any:
    """The loops of C, compiled."""
    source = HERE / "loops.c"
    target = Path(tempfile.gettempdir()) / f"cudakit-loops-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if not target.exists():
        subprocess.run(["gcc", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", target, "-lm"], check=True)
    return ctypes.CDLL(str(target))


class Taken(NamedTuple):
    """Median seconds: by the clock, and of the processor, which others that run do not change."""

    clock: float
    processor: float


def in_turns(acts: dict[str, Callable[[], object]], repeats: int) -> dict[str, Taken]:
    """What each takes, measured in turns, after some seconds in which machine code has come to be optimised."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in acts}
    for name, act in acts.items():
        until = time.perf_counter() + (0 if name == "numpy" else 3)
        act()
        while time.perf_counter() < until:
            act()
    for turn in range(repeats):
        for name, act in acts.items():
            if name == "numpy" and turn > 1:
                continue
            start, used = time.perf_counter(), time.process_time()
            act()
            taken[name].append((time.perf_counter() - start, time.process_time() - used))
    return {name: Taken(*map(statistics.median, zip(*each, strict=True))) for name, each in taken.items()}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", default="", help="names, by commas")


def lines(options: argparse.Namespace) -> Iterator[str]:
    library, all_cores = loops(), system.cores
    yield "One core: C's time over ours (above 1: faster), the aim, NumPy's machine over ours, in the processor's time."
    yield "Then all cores over one, by the clock, which says little where other programs run."
    yield ""
    yield from table_head(("kernel", "C / ours", "aim", "NumPy / ours", f"{all_cores()} cores"))
    # One stream: from the second on, all that kernels touch is noted.
    stream = ck.emulator.stream(machine="compiled")
    for work in works():
        if options.only and work.name not in options.only.split(","):
            continue
        kernel = ck.Kernel.from_file(HERE / work.file, work.name)
        given = [
            each.ctypes.data_as(ctypes.c_void_p) if isinstance(each, np.ndarray) else each for each in work.arguments
        ]

        def ours(machine: str, cores: int, work: Work = work, kernel: Any = kernel, stream: Any = stream) -> None:
            stream.machine = machine
            system.cores = lambda: cores
            for array in work.fresh:
                array.fill(0)
            kernel(stream, work.config, *work.arguments)

        ours("numpy", 1)  # which compiles by NVRTC
        found = in_turns(
            {
                "c": lambda work=work, given=given: getattr(library, work.name)(*given),
                "one": lambda: ours("compiled", 1),
                "all": lambda: ours("compiled", all_cores()),
                "numpy": lambda: ours("numpy", 1),
            },
            options.repeats,
        )
        system.cores = all_cores
        yield (
            f"| {work.name}, {work.what} | {found['c'].processor / found['one'].processor:.2f} | {work.aim} "
            f"| {found['numpy'].processor / found['one'].processor:.0f} "
            f"| {found['one'].clock / found['all'].clock:.2f} |"
        )
    yield ""
    yield _one_warp(stream)


def _one_warp(stream: Any) -> str:
    x, y = np.zeros(32, np.float32), np.zeros(32, np.float32)
    kernel = ck.Kernel.from_file(HERE / "kernels.cuh", "saxpy")

    def launches(machine: str) -> None:
        stream.machine = machine
        for _ in range(200):
            kernel(stream, ck.config(1, 32), y, x, 32)

    found = in_turns({machine: lambda machine=machine: launches(machine) for machine in ("compiled", "numpy")}, 5)
    return (
        f"A launch of one warp, repeated: {found['compiled'].processor / 200 * 1e6:.0f} µs; NumPy's machine takes "
        f"{found['numpy'].processor / found['compiled'].processor:.1f} times as long."
    )
