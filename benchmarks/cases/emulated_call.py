"""What a call costs on the emulator beside a prepared plan of the same: both in one process, in turns.

``python benchmarks/cases/emulated_call.py``. The kernel is a saxpy of 32 threads, so that what is not the machine's run
shows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

import cudakit as ck

SAXPY = """
template <typename T>
__global__ void saxpy(T a, const T* __restrict__ x, T* __restrict__ y, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
TIMES = 400


def microseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def main() -> None:
    saxpy, stream, config = ck.Kernel(SAXPY), ck.emulator.stream(), ck.config(1, 32)
    x, y = np.linspace(0, 1, 32, dtype="f4"), np.zeros(32, "f4")
    plan = saxpy.plan(stream, config, 2.0, x, y, x.size)
    calls = {"call": lambda: saxpy(stream, config, 2.0, x, y, x.size), "plan": plan}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(TIMES + 20):
        for name, call in calls.items():
            took = microseconds(call)
            if turn >= 20:
                times[name].append(took)
    called, planned = (statistics.median(times[name]) for name in ("call", "plan"))
    print(f"call {called:.1f} µs, plan {planned:.1f} µs, ratio {called / planned:.3f} (aim ≤ 1.1)")


if __name__ == "__main__":
    main()
