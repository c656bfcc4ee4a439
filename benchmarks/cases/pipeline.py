"""Pipelines beside the bound that copies and kernel set, without overlap, and what a stage costs, in one run.

On a GPU. Host → kernel → host in chunks of float32. The bound of
a chunk is the largest of its copy-in, kernel and copy-out time, the copies at the rate that both directions reach side
by side between pinned memory and the device, measured before and after, over as much pinned memory as the pipeline
uses: one chunk each way over and over stays in the processor's cache, which is faster on some machines. Pinned rows:
the source gives arrays of a ring in pinned memory, each of which the pipeline reads where it is; results come in pinned
memory and are dropped. By hand: the same copies, events and launches for all chunks put on three streams at once, so
that the host is not in the way: what is missing to the bound there is the machine's, and the first copy in and the last
copy out. Pageable rows: NumPy arrays in and out, whose copies to and from pinned memory are the host's work.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tables import table

from cases.timing import seconds

TITLE = "Pipelines"

SCALE = """
__global__ void scale(const float* __restrict__ x, float* __restrict__ y, long long n, int rounds) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) {
        float value = x[i];
        for (int round = 0; round < rounds; ++round) value = value * 0.999f + 0.001f;
        y[i] = value;
    }
}
"""
EMPTY = "__global__ void empty(const float* x) {}"


#: Chunks of pinned memory that the source takes turns with; on the device by hand, as the pipeline has in flight; and
#: of results, one more, which the consumer has.
RING, IN_FLIGHT, RESULTS = 6, 4, 5


class Machine:
    """What a chunk's steps take without a pipeline, in seconds."""

    def __init__(self, chunk_bytes: int) -> None:
        import cupy

        import cudakit as ck

        self.into, self.compute, self.out = ck.stream(), ck.stream(), ck.stream()
        size = chunk_bytes // 4
        self.ring = [ck.empty(size, np.float32, kind="pinned") for _ in range(RING)]
        for number, array in enumerate(self.ring):
            array[:] = number
        self.device = [cupy.empty(size, np.float32) for _ in range(2)]

    def _results(self) -> list[np.ndarray]:
        # Given back after each measurement, so that the pipeline's results lie in the same memory.
        import cudakit as ck

        return [ck.empty(len(self.ring[0]), np.float32, kind="pinned") for _ in range(RESULTS)]

    def copies(self, both: bool, chunks: int = RING, count: int = 48) -> float:
        """Time of a copy in and a copy out, side by side or one after the other, over so many chunks of memory."""
        from cudakit.memory.memory import copy_in, copy_out

        results = self._results()

        def act() -> None:
            for number in range(count):
                copy_in(self.ring[number % chunks], self.device[0], self.into)
                result = results[number % min(chunks, RESULTS)]
                copy_out(self.device[1], result, self.out if both else self.into)
            self.into.sync()
            self.out.sync()

        return seconds(act) / count

    def by_hand(self, scale: Callable[[Any, Any], Any], count: int) -> float:
        """Time of all chunks, put on three streams at once."""
        import cupy

        import cudakit as ck
        from cudakit.memory.memory import copy_in, copy_out

        results = self._results()
        memory = [cupy.empty_like(self.device[0]) for _ in range(IN_FLIGHT)]
        events = [[stream.record() for stream in (self.into, self.compute, self.out)] for _ in memory]

        def act() -> None:
            kept = []
            with ck.using(self.compute):
                for number in range(count):
                    x, (arrived, computed, done) = memory[number % IN_FLIGHT], events[number % IN_FLIGHT]
                    self.into.wait(done)
                    copy_in(self.ring[number % RING], x, self.into)
                    self.into.record(arrived)
                    self.compute.wait(arrived)
                    if number >= IN_FLIGHT:
                        kept[number - IN_FLIGHT] = None
                    kept.append(scale(x, self.compute))
                    self.compute.record(computed)
                    self.out.wait(computed)
                    copy_out(kept[-1], results[number % RESULTS], self.out)
                    self.out.record(done)
            self.out.sync()

        return seconds(act)


def throughput_rows(total: int, chunk_bytes: int) -> list[tuple[str, ...]]:
    """Rows (what, seconds, GB/s each way, of the bound, against no overlap) for host → kernel → host."""
    import cupy

    import cudakit as ck

    count = total // chunk_bytes
    machine = Machine(chunk_bytes)
    ring = machine.ring
    cached = machine.copies(both=True, chunks=1)
    before = machine.copies(both=True)
    alone = machine.copies(both=False) / 2
    stream = ck.stream()
    kernel = ck.Kernel(SCALE)
    config = ck.config(132 * 8, 256)
    rows = []

    def stage_of(rounds: int) -> Callable[[Any, Any], Any]:
        def scale(x: Any, stream: Any) -> Any:
            y = cupy.empty_like(x)
            kernel(stream, config, x, y, x.size, rounds)
            return y

        return scale

    def kernel_seconds(rounds: int) -> float:
        scale, x = stage_of(rounds), machine.device[0]

        def act() -> None:
            for _ in range(20):
                scale(x, stream)
            stream.sync()

        with ck.using(stream):
            return seconds(act) / 20

    # Rounds after which the kernel takes about as long as a copy.
    heavy = int(1000 * before / kernel_seconds(1000))

    def source() -> Iterator[np.ndarray]:
        for number in range(count):
            yield ring[number % len(ring)]

    def drain(pipeline: Any) -> None:
        found = sum(1 for _ in pipeline(source()))
        assert found == count

    timed = {}
    for name, rounds in (("light kernel", 1), ("kernel as long as a copy", heavy)):
        overlapped = ck.Pipeline([stage_of(rounds)], stream=stream)
        lockstep = ck.Pipeline([stage_of(rounds)], stream=stream, depth=1)
        timed[name] = (
            kernel_seconds(rounds),
            machine.by_hand(stage_of(rounds), count),
            seconds(lambda p=overlapped: drain(p)),
            seconds(lambda p=lockstep: drain(p)),
        )
        result = next(iter(overlapped([ring[3]])))
        np.testing.assert_allclose(result[:3], [(3 - 1) * 0.999**rounds + 1] * 3, rtol=1e-4)
    after = machine.copies(both=True)
    copy = min(before, after)
    rows.append(
        ("copies alone, one after the other", f"{2 * alone * count:.3f}", f"{chunk_bytes / alone / 1e9:.1f}", "", "")
    )
    rows.append((
        f"copies alone, both directions side by side (again after: {chunk_bytes / after / 1e9:.1f}; one chunk each way "
        f"over and over: {chunk_bytes / cached / 1e9:.1f})",
        f"{before * count:.3f}", f"{chunk_bytes / before / 1e9:.1f}", "", "",
    ))  # fmt: skip
    for name, (kernel_time, hand_time, overlapped_time, lockstep_time) in timed.items():
        bound = count * max(copy, kernel_time)
        label = f"pinned, {name} ({kernel_time * 1e3:.2f} ms a chunk)"
        for what, taken in (
            (label, overlapped_time),
            ("… by hand, without a host", hand_time),
            ("… one item at a time (depth=1)", lockstep_time),
        ):
            rate, part = f"{total / taken / 1e9:.1f}", f"{bound / taken:.3f}"
            rows.append((what, f"{taken:.3f}", rate, part, f"{lockstep_time / taken:.2f} ×"))
    rows += pageable_rows(total, chunk_bytes, ck.Pipeline([stage_of(1)], stream=stream), copy * count)
    return rows


def pageable_rows(total: int, chunk_bytes: int, pipeline: Any, bound: float) -> list[tuple[str, ...]]:
    """Rows for one large NumPy array to another, and what the host's memory alone allows."""
    from cudakit.pipeline import transfers as strips

    size = chunk_bytes // 4
    array = np.ones((total // chunk_bytes, size), np.float32)
    out = np.zeros_like(array)
    piece = np.ones(size, np.float32)
    copied = seconds(lambda: [strips.copy(row, piece) for row in out])
    mapped = seconds(lambda: pipeline.map_array(array, out, chunk=1))
    fresh = seconds(lambda: sum(1 for _ in pipeline(array)))
    return [
        ("NumPy's memory alone: one copy of all, by threads", f"{copied:.3f}", f"{total / copied / 1e9:.1f}", "", ""),
        ("pageable, `map_array` of one array into another", f"{mapped:.3f}", f"{total / mapped / 1e9:.1f}", f"{bound / mapped:.3f}", ""),  # noqa: E501
        ("pageable in, results in pinned memory", f"{fresh:.3f}", f"{total / fresh / 1e9:.1f}", f"{bound / fresh:.3f}", ""),  # noqa: E501
    ]  # fmt: skip


def overhead_rows(items: int) -> list[tuple[str, ...]]:
    """Rows (what, µs an item, launches by themselves, the same by hand, beyond that a stage) for empty kernels."""
    import cudakit as ck

    stream, kernel, config = ck.stream(), ck.Kernel(EMPTY), ck.config(1, 32)
    small = [np.ones(256, np.float32) for _ in range(16)]
    rows = []

    def source() -> Iterator[np.ndarray]:
        for number in range(items):
            yield small[number % 16]

    def empty(x: Any, stream: Any) -> Any:
        kernel(stream, config, x)
        return x

    def microseconds(pipeline: Any) -> float:
        return seconds(lambda: sum(1 for _ in pipeline(source()))) / items * 1e6

    with ck.using(stream) as xp:
        x = xp.ones(256, np.float32)
        launch = seconds(lambda: [empty(x, stream) for _ in range(items)]) / items * 1e6
        stream.sync()
    for count in (1, 2, 4, 8):
        taken = microseconds(ck.Pipeline([empty] * count, stream=stream))
        bare = by_hand(items, kernel, config, count)
        beyond = f"{(taken - bare) / count:.1f}"
        rows.append((f"{count} device stages", f"{taken:.1f}", f"{count * launch:.1f}", f"{bare:.1f}", beyond))
    taken = microseconds(ck.Pipeline([empty] * 8, stream=stream, graph=True))
    rows.append(("8 device stages, graph=True", f"{taken:.1f}", "", f"{bare:.1f}", f"{(taken - bare) / 8:.1f}"))
    host = ck.pipeline.host(lambda item: item)
    for count in (1, 2, 4):
        taken = microseconds(ck.Pipeline([host] * count))
        rows.append((f"{count} host stages", f"{taken:.1f}", "", "", f"{taken / count:.1f}"))
    taken, bare = microseconds(ck.Pipeline([host, empty, host], stream=stream)), by_hand(items, kernel, config, 1)
    rows.append(("host, device, host", f"{taken:.1f}", f"{launch:.1f}", f"{bare:.1f}", f"{(taken - bare) / 3:.1f}"))
    return rows


def by_hand(items: int, kernel: Any, config: Any, count: int, depth: int = 16) -> float:
    """Microseconds an item of the same copies, events and launches in a loop, written for this one case."""
    import cupy
    from cupy.cuda import runtime

    import cudakit as ck

    into, compute, out = ck.stream(), ck.stream(), ck.stream()
    item = np.ones(256, np.float32)
    slots = []
    with ck.using(compute):
        for _ in range(depth):
            memory = [ck.empty(256, np.float32, kind="pinned") for _ in range(2)]
            events = [stream.record() for stream in (into, compute, out)]
            slots.append((cupy.empty(256, np.float32), *memory, *(m.ctypes.data for m in memory), *events))
    handles = [int(stream.handle) for stream in (into, out)]

    def act() -> None:
        with ck.using(compute):
            for number in range(items):
                device, staged, result, staged_at, result_at, arrived, computed, done = slots[number % depth]
                done.sync()
                result.copy()
                staged[:] = item
                runtime.memcpyAsync(device.data.ptr, staged_at, 1024, 1, handles[0])
                into.record(arrived)
                compute.wait(arrived)
                for _ in range(count):
                    kernel(compute, config, device)
                compute.record(computed)
                out.wait(computed)
                runtime.memcpyAsync(result_at, device.data.ptr, 1024, 2, handles[1])
                out.record(done)
        out.sync()

    return seconds(act) / items * 1e6


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gib", type=float, default=8, help="data in all, in GiB")
    parser.add_argument("--chunk-mib", type=int, default=64)
    parser.add_argument("--items", type=int, default=10_000, help="items for the cost of a stage")


def lines(options: argparse.Namespace) -> Iterator[str]:
    total, chunk = int(options.gib * 2**30), options.chunk_mib << 20
    yield f"Host → kernel → host, {options.gib:g} GiB of float32 in chunks of {options.chunk_mib} MiB."
    yield "The bound is the larger of the kernel's time and a copy's, both directions side by side. By hand: the"
    yield "same copies, events and launches, put on three streams all at once."
    yield ""
    head = ("what", "seconds", "GB/s each way", "of the bound", "against depth=1")
    yield from table(head, throughput_rows(total, chunk))
    yield ""
    yield f"Cost of a stage: {options.items:,} items of 1 KiB, empty kernels. By hand: a loop over slots with the same"
    yield "copies, events and launches, written for this one case."
    yield ""
    head = ("what", "µs an item", "launches alone, µs", "by hand, µs", "beyond by hand, µs a stage")
    yield from table(head, overhead_rows(options.items))
