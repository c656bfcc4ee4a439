"""Graphs of small kernels beside streams and beside the peers' graphs, in one run.

On a GPU. A graph has 100 kernels of one warp each; the time is the
wall time of many launches until the device is done, over the number of kernels. The peers are bare cuda.core, whose
graph is launched with nothing beside it, and CuPy's graph of its RawKernel. The rows of one kernel tell what a launch
costs the host.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tables import table

TITLE = "Graphs"
TEXT = """
extern "C" __global__ void step(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
KERNELS, SIZE, LAUNCHES = 100, 32, 50


def wall(calls: dict[str, Callable[[], object]], sync: Callable[[], None], repeats: int) -> dict[str, float]:
    """Median seconds of a call, with the device's time; the calls take turns."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            sync()
            start = time.perf_counter()
            for _ in range(LAUNCHES):
                call()
            sync()
            if turn:
                taken[name].append((time.perf_counter() - start) / LAUNCHES)
    return {name: statistics.median(values) for name, values in taken.items()}


def rows(repeats: int) -> list[tuple[str, str, str, str]]:
    """Rows (what, time, ratio, aim)."""
    import cupy
    from cuda.core import LaunchConfig, Program, ProgramOptions, launch

    import cudakit as ck

    stream: Any = ck.stream()
    kernel = ck.Kernel(TEXT)
    raw = cupy.RawKernel(TEXT, "step")
    config = LaunchConfig(grid=1, block=SIZE)
    found: list[tuple[str, str, str, str]] = []
    with ck.using(stream):
        code = Program(TEXT, "c++", ProgramOptions(arch=f"sm_{stream.device.arch}")).compile("cubin")
        bare = code.get_kernel("step")
        x, other, y = (cupy.ones(SIZE, "f4") for _ in range(3))
        a = np.float32(2)

        def calls(count: int, first: Any = x) -> None:
            for number in range(count):
                kernel(stream, config, first if number == 0 else x, y, 2.0, SIZE)

        def of_bare(count: int) -> Any:
            builder = stream.create_graph_builder().begin_building()
            for _ in range(count):
                launch(stream, config, bare, x.data.ptr, y.data.ptr, a, SIZE)
            return builder.end_building().complete()

        def of_cupy(count: int) -> Any:
            on = cupy.cuda.Stream(non_blocking=True)
            with on:
                on.begin_capture()
                for _ in range(count):
                    raw((1,), (SIZE,), (x, y, a, np.int32(SIZE)))
                return on.end_capture()

        def of_cudakit(count: int, **named: Any) -> Any:
            with ck.capture(stream, **named) as graph:
                calls(count, named.get("first", x))
            return graph

        calls(1)
        stream.sync()
        captured: list[float] = []
        captured_bare: list[float] = []
        first: list[float] = []
        first_bare: list[float] = []
        for _ in range(7):
            for make, making, launching in ((of_cudakit, captured, first), (of_bare, captured_bare, first_bare)):
                start = time.perf_counter()
                graph = make(KERNELS)
                making.append(time.perf_counter() - start)
                start = time.perf_counter()
                graph.launch(stream)
                stream.sync()
                launching.append(time.perf_counter() - start)
        graph = of_cudakit(KERNELS)

        turn = [0]

        def changing(graph: Any, name: str) -> Callable[[], None]:
            arrays = (x, other) if name == "x" else (cupy.ones(SIZE, "f4"), other)

            def call() -> None:
                turn[0] += 1
                graph(stream, **{name: arrays[turn[0] % 2]})

            return call

        plan = kernel.plan(stream, config, x, y, 2.0, SIZE)
        own = cupy.cuda.Stream.from_external(stream)
        bare_graph, cupy_graph = of_bare(KERNELS), of_cupy(KERNELS)
        one_use = of_cudakit(KERNELS, first=cupy.ones(SIZE, "f4"))
        measured = wall(
            {
                "bare": lambda: bare_graph.launch(stream),
                "graph": lambda: graph.launch(stream),
                "one": changing(one_use, "first"),
                "all": changing(of_cudakit(KERNELS, x=x), "x"),
                "cupy": lambda: cupy_graph.launch(own),
                "calls": lambda: calls(KERNELS),
                "plans": lambda: [plan() for _ in range(KERNELS)],
            },
            stream.sync,
            repeats,
        )
        for name, what, aim in (
            ("bare", "graph of bare cuda.core", ""),
            ("graph", "`ck.capture` graph", "≤ 1.0 µs"),
            ("one", "the same, one argument of one kernel changed at each launch", ""),
            ("all", "the same, an argument of all kernels changed at each launch", ""),
            ("cupy", "CuPy's graph of RawKernel", ""),
            ("plans", "plans on a stream", ""),
            ("calls", "checked calls on a stream", ""),
        ):
            each = measured[name] / KERNELS * 1e6
            found.append(
                (f"{what}, a kernel of {KERNELS}", f"{each:.3f} µs", f"{measured[name] / measured['bare']:.2f}", aim)
            )
        single = of_cudakit(1)
        bare_single, cupy_single = of_bare(1), of_cupy(1)
        changing_single = changing(of_cudakit(1, first=cupy.ones(SIZE, "f4")), "first")
        measured = wall(
            {
                "bare": lambda: bare_single.launch(stream),
                "graph": lambda: single.launch(stream),
                "changing": changing_single,
                "cupy": lambda: cupy_single.launch(own),
            },
            stream.sync,
            repeats,
        )
        for name, what in (
            ("bare", "graph of bare cuda.core"),
            ("graph", "`ck.capture` graph"),
            ("changing", "the same, an array changed at each launch"),
            ("cupy", "CuPy's graph"),
        ):
            ratio = f"{measured[name] / measured['bare']:.2f}"
            found.append((f"{what}, one kernel: a launch", f"{measured[name] * 1e6:.2f} µs", ratio, ""))
        for what, ours, theirs in (
            (f"capture of {KERNELS} calls, until it can be launched", captured, captured_bare),
            ("its first launch, until it is done", first, first_bare),
        ):
            taken, beside = statistics.median(ours), statistics.median(theirs)
            found.append((what, f"{taken * 1e6:.0f} µs", f"{taken / beside:.2f}", ""))
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=15, help="measurements whose median is taken")


def lines(options: argparse.Namespace) -> Iterator[str]:
    return table(("what", "time", "ratio to bare", "aim"), rows(options.repeats))
