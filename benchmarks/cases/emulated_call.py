"""What a call costs on the emulator beside a prepared plan of the same: both in one process, in turns; no GPU.

The kernel is a saxpy of 32 threads, so that what is not the machine's run shows.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from tables import table

TITLE = "A call on the emulator beside its plan"
SAXPY = """
template <typename T>
__global__ void saxpy(T a, const T* __restrict__ x, T* __restrict__ y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
WARM = 20


def microseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=400, help="calls of each")


def lines(options: argparse.Namespace) -> Iterator[str]:
    import cudakit as ck

    saxpy, stream, config = ck.Kernel(SAXPY), ck.emulator.stream(), ck.config(1, 32)
    x, y = np.linspace(0, 1, 32, dtype="f4"), np.zeros(32, "f4")
    calls = {
        "call": lambda: saxpy(stream, config, 2.0, x, y, x.size),
        "plan": saxpy.plan(stream, config, 2.0, x, y, x.size),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(options.repeats + WARM):
        for name, call in calls.items():
            took = microseconds(call)
            if turn >= WARM:
                times[name].append(took)
    called, planned = (statistics.median(times[name]) for name in ("call", "plan"))
    yield from table(
        ["what", "time", "over the plan", "aim"],
        [["plan", f"{planned:.1f} µs", "", ""], ["call", f"{called:.1f} µs", f"{called / planned:.3f}", "≤ 1.1"]],
    )
