"""The two places where kernel tests run: a GPU with CuPy, the emulator with NumPy."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

import cudakit as ck
from cudakit.emulator import EmulatedStream
from cudakit.emulator.launch import limits_of
from cudakit.streams.devices import limits
from cudakit.streams.order import order

Found = TypeVar("Found")

#: Keeps its stream busy for so many cycles.
SLOW = """
__global__ void slow(float* x, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    x[threadIdx.x] += 1;
}
"""


def to_host(array: Any) -> np.ndarray:
    """A copy of an array in host memory, wherever it is."""
    return np.asarray(array.get()) if hasattr(array, "get") else np.array(array)


def capability(stream: Any) -> tuple[int, int]:
    """Compute capability of the device that a stream's kernels run on."""
    if isinstance(stream, EmulatedStream):
        return limits_of(stream.arch).compute_capability
    return limits(stream.device.device_id).compute_capability


def another(stream: Any) -> Any:
    """A new stream in the same place as `stream`."""
    return ck.emulator.stream() if isinstance(stream, EmulatedStream) else ck.stream()


def gone(seen: Iterable[weakref.ref[Any]]) -> bool:
    """Whether all that `seen` refers to is let go, once the driver says that the work that used it is done."""
    deadline = time.monotonic() + 2
    while any(each() is not None for each in seen) and time.monotonic() < deadline:
        order().release()
    return all(each() is None for each in seen)


def one_of(attempts: int, check: Callable[[], Found]) -> Found:
    """What `check` returns once its assertions hold: of times, which other work on the machine stretches at times."""
    for _ in range(attempts - 1):
        try:
            return check()
        except AssertionError:
            continue
    return check()
