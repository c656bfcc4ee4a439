"""Copies between host and device: host arrays in calls, and ``to_device`` and ``to_host`` beside CuPy's own.

On a GPU. Two floors, measured in the same run: the same kernel
with bare copies from and to pinned memory, and the rate of one bare copy of pinned memory. Times are of the host, from
the call until the stream is through; medians, the calls in turns, all arrays touched before.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

TITLE = "Copies between host and device"
SIZES = (4 << 10, 1 << 20, 256 << 20)
SCALE = """
__global__ void scale(const float4* x, float4* y, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        float4 v = x[i];
        y[i] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
    }
}
"""


def medians(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Median seconds of each call, in turns, for about so many seconds in all."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    gc.disable()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken[next(iter(calls))]) < 5:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - start)
    gc.enable()
    return {name: statistics.median(values) for name, values in taken.items()}


def words(size: int) -> str:
    """A size as people write it."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def call_rows(seconds: float) -> list[str]:
    """A call with host arrays over the bare copies and the same launch."""
    import cupy

    import cudakit as ck

    runtime = cupy.cuda.runtime
    lines = [
        "| in and out, each | bare, pinned | `In`, `Out` of pinned arrays | of pageable arrays | ratios |",
        "|---|---|---|---|---|",
    ]
    scale, stream = ck.Kernel(SCALE), ck.stream()
    handle = int(stream.handle)
    with ck.using(stream):
        for size in SIZES:
            count = size // 4
            x, y = (ck.empty(count, np.float32, kind="pinned") for _ in range(2))
            a, b = np.ones(count, np.float32), np.ones(count, np.float32)
            x[...], y[...] = 1, 0
            u, v = cupy.empty(count, np.float32), cupy.empty(count, np.float32)
            cover, vectors = ck.cover(count // 4), count // 4
            px, py, pu, pv = x.ctypes.data, y.ctypes.data, u.data.ptr, v.data.ptr

            def bare(
                px: int = px, py: int = py, pu: int = pu, pv: int = pv, u: object = u, v: object = v,
                size: int = size, cover: object = cover, vectors: int = vectors,
            ) -> None:  # fmt: skip
                runtime.memcpyAsync(pu, px, size, runtime.memcpyHostToDevice, handle)
                scale(stream, cover, u, v, vectors)
                runtime.memcpyAsync(py, pv, size, runtime.memcpyDeviceToHost, handle)
                stream.sync()

            def pinned(x: np.ndarray = x, y: np.ndarray = y, cover: object = cover, vectors: int = vectors) -> None:
                scale(stream, cover, ck.In(x), ck.Out(y), vectors)
                stream.sync()

            def pageable(a: np.ndarray = a, b: np.ndarray = b, cover: object = cover, vectors: int = vectors) -> None:
                scale(stream, cover, ck.In(a), ck.Out(b), vectors)
                stream.sync()

            found = medians({"bare": bare, "pinned": pinned, "pageable": pageable}, seconds)
            assert b[0] == y[0] == b[-1] == y[-1] == 2
            us = {name: taken * 1e6 for name, taken in found.items()}
            lines.append(
                f"| {words(size)} | {us['bare']:,.0f} µs | {us['pinned']:,.0f} µs | {us['pageable']:,.0f} µs | "
                f"{us['pinned'] / us['bare']:.2f}, {us['pageable'] / us['bare']:.2f} |"
            )
    return lines


def copy_rows(seconds: float) -> list[str]:
    """Rates of single copies, waited for."""
    import cupy

    import cudakit as ck

    lines = [
        "| GB/s | bare, pinned | cudakit, pinned | cudakit, pageable | CuPy, pageable | cudakit over CuPy |",
        "|---|---|---|---|---|---|",
    ]
    stream = ck.stream()
    runtime, handle = cupy.cuda.runtime, int(stream.handle)
    with ck.using(stream):
        for size in SIZES:
            a, out = np.ones(size, np.uint8), np.ones(size, np.uint8)
            p = ck.empty(size, np.uint8, kind="pinned")
            p[...] = 1
            x = cupy.ones(size, np.uint8)
            address, pointer = p.ctypes.data, x.data.ptr
            up, down = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost

            def waited(act: Callable[..., object], *given: object) -> Callable[[], None]:
                def both() -> None:
                    act(*given)
                    stream.sync()

                return both

            rows: dict[str, dict[str, Callable[[], object]]] = {
                "to device": {
                    "bare": waited(runtime.memcpyAsync, pointer, address, size, up, handle),
                    "pinned": waited(ck.to_device, p, stream),
                    "pageable": waited(ck.to_device, a, stream),
                    "cupy": waited(cupy.asarray, a),
                },
                "to host": {
                    "bare": waited(runtime.memcpyAsync, address, pointer, size, down, handle),
                    "pinned": waited(ck.to_host, x, stream, p),
                    "pageable": waited(ck.to_host, x, stream, out),
                    "cupy": waited(lambda x, out: x.get(out=out), x, out),
                },
                "to host, a new array": {
                    "bare": waited(runtime.memcpyAsync, address, pointer, size, down, handle),
                    "pageable": waited(ck.to_host, x, stream),
                    "cupy": waited(lambda x: x.get(), x),
                },
            }
            for what, calls in rows.items():
                found = medians(calls, seconds)
                rate = {name: f"{size / taken / 1e9:.2f}" for name, taken in found.items()}
                lines.append(
                    f"| {words(size)} {what} | {rate['bare']} | {rate.get('pinned', '')} | {rate['pageable']} | "
                    f"{rate['cupy']} | {found['cupy'] / found['pageable']:.2f} |"
                )
    return lines


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each row is measured")


def lines(options: argparse.Namespace) -> Iterator[str]:
    yield from ("## A call with host arrays", "")
    yield from call_rows(options.seconds)
    yield from ("", "## Copies", "")
    yield from copy_rows(options.seconds / 2)
