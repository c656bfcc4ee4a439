"""Arrays and copies on the emulator, where all memory is the host's; see `cudakit.memory.memory`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cudakit.memory import accounting, pinned
from cudakit.memory.copy_operands import host_array, not_capturable, output
from cudakit.places import is_capturing, place_of
from cudakit.streams.witnesses import doing


def empty(shape: tuple[int, ...], dtype: np.dtype, kind: str, stream: Any) -> np.ndarray:
    """A new array, not initialised; it counts as memory of its kind."""
    if kind == "pinned":
        return pinned.lend(pinned.take(math.prod(shape) * dtype.itemsize), shape, dtype)
    return accounting.emulated_array(shape, dtype, kind)


def to_device(host: np.ndarray, stream: Any) -> np.ndarray:
    """A copy that the stream's kernels may use."""
    copied = accounting.emulated_array(host.shape, host.dtype)
    if (capture := place_of(stream).capture(stream)) is not None:
        capture.copy(stream, host, copied)
        return copied
    with doing("copy", "to_device", stream, (host,), (copied,), host.nbytes):
        np.copyto(copied, host)
    return copied


def to_host(array: Any, stream: Any, out: np.ndarray | None, wait: bool) -> np.ndarray:
    """A copy of an array that the stream's kernels have used."""
    if (wait or not isinstance(out, np.ndarray)) and is_capturing(stream):
        raise not_capturable("to_host")
    given = host_array("to_host", array)
    made = output(out, given.shape, given.dtype)
    if (capture := place_of(stream).capture(stream)) is not None:
        capture.copy(stream, given, made)
        return made
    with doing("copy", "to_host", stream, (given,), (made,), given.nbytes):
        np.copyto(made, given)
    if wait:
        stream.sync()
    return made


def prefetch(array: Any, stream: Any, to: str) -> None:
    """Nothing moves."""


def event_after(stream: Any) -> None:
    """Streams have done what they were given: there is nothing to wait for."""
