"""What the pipelines' tests share."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import cudakit as ck
from cudakit.memory import pinned
from cudakit.streams import witnesses as work

ADD = """
__global__ void add(const float* x, float* y, float what, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] + what;
}
"""


def adding(xp: Any, what: float) -> Any:
    kernel = ck.Kernel(ADD)

    def add(x: Any, stream: Any) -> Any:
        y = xp.empty_like(x)
        kernel(stream, ck.config(1, 64), x, y, what, x.size)
        return y

    return add


def items(count: int, size: int = 8) -> list[np.ndarray]:
    return [np.full(size, number, np.float32) for number in range(count)]


class Listener(work.Witness):
    """Hears of all work."""

    def __init__(self) -> None:
        self.heard: list[work.Work] = []

    def begin(self, told: work.Work) -> None:
        self.heard.append(told)


def threads_of_pipelines() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("cudakit pipeline")]


def nothing_left() -> Iterator[None]:
    """A fixture. After every test: no thread of a pipeline, and no pinned memory that a pipeline still holds."""
    used = pinned.pool().use().used
    yield
    deadline = time.monotonic() + 10
    while (threads_of_pipelines() or pinned.pool().use().used > used) and time.monotonic() < deadline:
        gc.collect()  # only where something is left: with much in memory it takes long
        time.sleep(0.01)
    assert threads_of_pipelines() == []
    assert pinned.pool().use().used <= used


def held(xp: Any) -> int:
    """Bytes in the pools of device and pinned memory, and what the process has of host memory, in steps of 32 MiB."""
    statm = Path("/proc/self/statm")
    pages = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 25 if statm.exists() else 0
    device = xp.get_default_memory_pool().total_bytes() if xp is not np else 0
    use = pinned.pool().use()
    return int(pages + device + use.used + use.free)
