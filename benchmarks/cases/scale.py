"""Pipelines over several GPUs, what Dask and Ray add to a chunk, and chunks that are lost with their workers.

On GPUs: host → kernel → host in chunks of 64 MiB of float32, through one pipeline over one, two … of the devices that
are here (`devices=`), pinned and pageable. The bound is what the same copies reach on those devices with nothing else,
put on two streams of each by a thread of its own: the buses, and the host's memory, which all of them share. Gain is
the rate beside that of one device; of the bound, beside what the copies reach on as many devices.

With ``--engines``, on workers of this machine, with no GPU needed: the time a chunk takes more than its function does.
Bare: the engine's own call for the same function and chunks, as many in flight (`Client.submit`, an actor's method).
The function takes no time; chunks are arrays of 1 MiB, which go there and come back.

With ``--lost 1000``: so many chunks while a worker is killed after every 50th result: how many are missing, and how
many came twice.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tables import table

from cases.timing import seconds

TITLE = "Scale"

SCALE = """
__global__ void scale(const float* __restrict__ x, float* __restrict__ y, long long n) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) y[i] = 2.0f * x[i];
}
"""
#: Chunks in flight, for each device.
DEPTH = 6


# ── several GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────


@functools.cache
def kernel() -> Any:
    """The kernel, made once."""
    import cudakit as ck

    return ck.Kernel(SCALE)


def stage(x: Any, stream: Any) -> Any:
    """The device stage."""
    import cupy

    import cudakit as ck

    y = cupy.empty_like(x)
    kernel()(stream, ck.config(132 * 8, 256), x, y, x.size)
    return y


def copied(device: int, ring: list[np.ndarray], count: int) -> None:
    """The copies of `count` chunks in and out, on two streams of a device, as fast as they go."""
    import cupy
    from cuda.core import Device

    import cudakit as ck
    from cudakit.memory.memory import copy_in, copy_out

    Device(device).set_current()
    into, out = ck.stream(), ck.stream()
    with cupy.cuda.Device(device):
        here, there = (cupy.empty_like(ring[0]) for _ in range(2))
        results = [ck.empty(ring[0].size, np.float32, kind="pinned") for _ in range(4)]
        for number in range(count):
            copy_in(ring[number % len(ring)], here, into)
            copy_out(there, results[number % 4], out)
        into.sync()
        out.sync()


def together(acts: list[Callable[[], None]]) -> None:
    """Each in a thread of its own."""
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def device_rows(total: int, chunk_bytes: int) -> Iterator[tuple[str, ...]]:
    """Rows (memory, devices, GB/s each way, gain, of the bound, bound GB/s)."""
    from cudakit.streams.devices import device_count

    for memory in ("pinned", "pageable"):
        one = 0.0
        for count in [number for number in (1, 2, 4, 8) if number <= device_count()]:
            rate, bound = rates(memory, count, count * total // chunk_bytes, chunk_bytes)
            one = one or rate
            cells = f"{rate:.1f}", f"{rate / one:.2f}", f"{rate / bound:.2f}", f"{bound:.1f}"
            yield memory, str(count), *(cells if memory == "pinned" else (*cells[:2], "", ""))


def rates(memory: str, count: int, chunks: int, chunk_bytes: int) -> tuple[float, float]:
    """GB/s each way of a pipeline over `count` devices, and of the copies alone, from pinned memory."""
    import cudakit as ck

    size, depth = chunk_bytes // 4, DEPTH * count
    # A ring of pinned memory is longer than what is in flight.
    ring: list[np.ndarray] = [
        ck.empty(size, np.float32, kind="pinned") if memory == "pinned" else np.empty(size, np.float32)
        for _ in range(depth + 1)
    ]
    for number, array in enumerate(ring):
        array[:] = number
    moved = chunks * chunk_bytes / 1e9
    with ck.Pipeline([stage], devices=list(range(count)), depth=depth) as pipeline:
        rate = moved / seconds(lambda: deque(pipeline(ring[number % len(ring)] for number in range(chunks)), maxlen=0))
    if memory != "pinned":
        return rate, rate
    acts = [functools.partial(copied, device, ring, chunks // count) for device in range(count)]
    return rate, moved / seconds(lambda: together(acts))


# ── engines ──────────────────────────────────────────────────────────────────────────────────────────────────────


def same(x: np.ndarray) -> np.ndarray:
    """A function that takes no time."""
    return x


def where(x: np.ndarray) -> tuple[int, int]:
    """Which process has a chunk, and the chunk's number."""
    return os.getpid(), int(x[0])


@contextlib.contextmanager
def engine_of(name: str, workers: int) -> Iterator[Any]:
    """Dask's client or Ray's module, with workers of this machine alone."""
    if name == "dask":
        import dask
        from dask.distributed import Client, LocalCluster

        # A LocalCluster gives a worker up that is away this long after it was lost, be it for another loss.
        dask.config.set({"distributed.scheduler.allowed-failures": 50, "distributed.deploy.lost-worker-timeout": "1 h"})
        options = {"n_workers": workers, "threads_per_worker": 1, "host": "127.0.0.1"}
        with LocalCluster(**options, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as client:
            yield client
    else:
        import ray

        ray.init(num_cpus=workers, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
        yield ray
        ray.shutdown()


def bare_on_dask(client: Any, chunks: list[np.ndarray], depth: int) -> None:
    """The same graph by Dask's own calls, as many in flight."""
    under_way: deque[Any] = deque()
    for chunk in chunks:
        under_way.append(client.submit(same, chunk, pure=False))
        if len(under_way) == depth:
            under_way.popleft().result()
    for future in under_way:
        future.result()


def bare_on_ray(ray: Any, chunks: list[np.ndarray], depth: int) -> None:
    """The same calls of Ray's actors, which are started for them."""
    actors = [ray.remote(num_cpus=1)(Bare).remote() for _ in range(depth // 2)]
    under_way: deque[Any] = deque()
    for number, chunk in enumerate(chunks):
        under_way.append(actors[number % len(actors)].run.remote(chunk))
        if len(under_way) == depth:
            ray.get(under_way.popleft())
    for reference in under_way:
        ray.get(reference)
    for actor in actors:
        ray.kill(actor)


class Bare:
    """An actor of Ray's that does nothing."""

    def run(self, chunk: np.ndarray) -> np.ndarray:
        return chunk


def overhead_row(name: str, workers: int, count: int) -> tuple[str, ...]:
    """(engine, ms a chunk bare, ms a chunk by ck.scale, ratio)."""
    import cudakit as ck

    chunks = [np.full(1 << 18, number, np.float32) for number in range(count)]
    with engine_of(name, workers) as engine:
        depth = 2 * workers
        bare = seconds(lambda: (bare_on_dask if name == "dask" else bare_on_ray)(engine, chunks, depth))
        with_it = seconds(lambda: deque(ck.scale.map(same, chunks, engine=engine, depth=depth), maxlen=0))
    return name, f"{bare / count * 1e3:.2f}", f"{with_it / count * 1e3:.2f}", f"{with_it / bare:.2f}"


def lost_row(name: str, workers: int, count: int, every: int) -> tuple[str, ...]:
    """(engine, chunks, workers killed, chunks lost, chunks twice, seconds)."""
    import cudakit as ck

    chunks = (np.full(1024, number, np.float32) for number in range(count))
    killed, found, start = 0, list[int](), time.perf_counter()
    with engine_of(name, workers) as engine, ck.scale.map(where, chunks, engine=engine, ordered=False) as results:
        for number, (process, chunk) in enumerate(results, 1):
            found.append(chunk)
            if number % every == 0 and number < count:
                with contextlib.suppress(ProcessLookupError):  # the last one's, which is gone already
                    os.kill(process, signal.SIGKILL)
                    killed += 1
    missing, twice = count - len(set(found)), len(found) - len(set(found))
    return name, f"{count:,}", str(killed), str(missing), str(twice), f"{time.perf_counter() - start:.0f}"


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gib", type=float, default=4, help="what goes through each device")
    parser.add_argument("--engines", nargs="*", default=[], help="of dask and ray: what they add to a chunk")
    parser.add_argument("--lost", type=int, default=0, help="of how many chunks workers are killed")
    parser.add_argument("--every", type=int, default=50, help="after how many results one is")
    parser.add_argument("--workers", type=int, default=2)


def lines(options: argparse.Namespace) -> Iterator[str]:
    if not options.engines:
        yield from ("", "## Pipelines of 64 MiB chunks", "")
        head = ("memory", "devices", "GB/s each way", "gain", "of the bound", "bound, GB/s")
        yield from table(head, list(device_rows(int(options.gib * 2**30), 64 << 20)))
        return
    if options.lost:
        yield from ("", f"## A worker killed after every {options.every} chunks", "")
        head = ("engine", "chunks", "killed", "lost", "twice", "seconds")
        rows = [lost_row(name, options.workers, options.lost, options.every) for name in options.engines]
        yield from table(head, rows)
        return
    yield from ("", "## What a chunk costs beside its function", "")
    head = ("engine", "bare, ms", "ck.scale.map, ms", "ratio")
    yield from table(head, [overhead_row(name, options.workers, 200) for name in options.engines])
