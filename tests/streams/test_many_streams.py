"""Streams by the thousand, each used once and never waited for: time and memory stay as they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.places import one_of

import cudakit as ck
from cudakit.emulator.streams import order as emulated
from cudakit.emulator.streams.stream import EmulatedStream
from cudakit.streams.order import order as streams_order


def sizes(order: emulated.Order) -> dict[str, int]:
    """How much is remembered of streams."""
    clocks = order.clocks
    return {
        "streams": len(order._named),
        "uses": len(order._history.uses),
        "counts": len(clocks.counts),
        "clocks": len(clocks.clocks),
        "done": len(clocks._finished),
        "widest": max(map(len, clocks.clocks.values()), default=0),
        "reads": max((len(segment.reads) for segment in clocks.segments), default=0),
    }


def time_of(work: Callable[[], Any], repeats: int) -> float:
    """Processor time of a call, in ms: the least of ten parts of the repeats."""
    found = []
    for _ in range(10):
        start = time.process_time()
        for _ in range(repeats // 10):
            work()
        found.append((time.process_time() - start) * 1e4 / repeats)
    return min(found)


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("memory", ["shared", "own", "read"])
def test_work_on_new_streams_stays_as_quick(stream: Any, memory: str) -> None:
    x, y = np.ones(8, "f4"), np.zeros(8, "f4")
    order = emulated.order()

    def copy() -> None:  # which is ordered and watched as launches are, and takes a tenth of the time
        own = np.zeros(8, "f4")
        first, second = {"shared": (x, y), "own": (own.copy(), own), "read": (x, own)}[memory]
        ck.to_device(first, EmulatedStream(), out=second)

    def check() -> None:
        ck.to_device(x, stream, out=y)
        first = time_of(copy, 1000)
        seen = sizes(order)
        for _ in range(18_000):
            copy()
        last = time_of(copy, 1000)
        assert not {name: size for name, size in sizes(order).items() if size > 2 * max(seen[name], 256)}
        assert last <= 1.5 * first

    one_of(3, check)


@pytest.mark.emulator
@pytest.mark.parametrize("memory", ["shared", "own", "read"])
def test_what_is_known_of_streams_that_are_kept_does_not_grow_with_each(stream: Any, memory: str) -> None:
    add = ck.Kernel("__global__ void add(const float* x, float* y) { y[threadIdx.x] += x[threadIdx.x]; }")
    x, y = np.ones(8, "f4"), np.zeros(8, "f4")
    kept = []
    for _ in range(600):
        kept.append(EmulatedStream())
        own = np.zeros(8, "f4")
        first, second = {"shared": (x, y), "own": (own.copy(), own), "read": (x, own)}[memory]
        add(kept[-1], ck.config(1, 8), first, second)
    known = sizes(emulated.order())
    assert known["widest"] <= 2 * 64 + 4
    assert known["clocks"] <= 2 * 64 + 4
    with ck.hazards.manual(), pytest.raises(ck.EmulationError, match="race: add on stream"):
        # Nobody has waited for the readers, however many: the last, at least, is still known.
        add(stream, ck.config(1, 8), second, first)


@pytest.mark.gpu
def test_streams_of_a_gpu_are_forgotten(stream: Any, xp: Any) -> None:
    add = ck.Kernel("__global__ void add(const float* x, float* y) { y[threadIdx.x] += x[threadIdx.x]; }")
    x, y, known = xp.ones(8, "f4"), xp.zeros(8, "f4"), []
    for number in range(2000):
        add(ck.stream(), ck.config(1, 8), x, y)
        if number % 50 == 0:
            stream.device.sync()
        known.append(len(streams_order().by_handle))
    assert (ck.to_host(y, stream) == 2000).all()
    assert max(known) <= 4 * 64
    assert max(known[:1000]) >= max(known[1000:])
