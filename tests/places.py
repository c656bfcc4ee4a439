"""The two places where kernel tests run: a GPU with CuPy, the emulator with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import cudakit as ck
from cudakit.devices import limits
from cudakit.emulator import EmulatedStream
from cudakit.emulator.call import limits_of


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
