"""The cores of the processor, and threads that run on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from cudakit.streams import process


def cores() -> int:
    """Cores that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: Stack of a thread that runs code, of which as much is taken as is used: large kernels that are made quickly have a
#: place for each value, some megabytes.
_STACK = 256 << 20


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), "cudakit emulator")


process.in_child(_pool.cache_clear)  # it has none of the threads


def begun(work: Callable[[int], None], core: int) -> Future[None]:
    """Work in a thread of the pool, which may be begun for it."""
    former = threading.stack_size(_STACK)
    try:
        return _pool().submit(work, core)
    finally:
        threading.stack_size(former)
