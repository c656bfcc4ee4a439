"""What memory is on a GPU and on the emulator: one protocol, and the choice between its two modules."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from cudakit.memory.host_arrays import Callee, Kind
from cudakit.places import DEVICES, Place, default_place, emulator, place_of
from cudakit.types.arguments import as_numpy


class Backend(Protocol):
    """Arrays and copies of a place. Streams and arrays are those of the place; shapes and dtypes have been checked."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, kind: Kind, stream: Any) -> Any:
        """A new array of device or managed memory; `stream` None: the place's current one."""

    def handed_out(self, array: np.ndarray, stream: Any) -> np.ndarray:
        """A new array of pinned memory, as a program is given it."""

    def release(self, array: Any, stream: Any) -> None:
        """Leave an array of `empty`'s without memory, which is free once the stream has come so far."""

    def prefetch(self, array: Any, stream: Any, to: Literal["device", "host"]) -> None:
        """Move a managed array."""

    def to_device(self, host: np.ndarray, stream: Any, out: Any) -> Any:
        """A copy of a host array, in the stream's order; in `out`, where that is not None."""

    def across(self, array: Any, stream: Any, out: Any) -> Any:
        """A copy of a device array, which may be on another device, in the streams' order; in `out`, where given."""

    def to_host(self, array: Any, stream: Any, out: np.ndarray | None, wait: bool) -> np.ndarray:
        """A copy of a device array in host memory."""

    def copy(self, name: str, source: Any, target: Any, stream: Any) -> None:
        """Put a copy of pinned to device memory or back on the stream, which alone orders it; `name` tells of it."""

    def transfer(self, target: Any, source: Any, stream: Any) -> None:
        """Put the copy of arrays anywhere, and surfaces, on the stream, in the order between streams."""

    def call(self, kernel: Callee, stream: Any, config: Any, given: Sequence[Any]) -> None:
        """A kernel call with host arrays among its arguments."""

    def mark(self, stream: Any) -> Any | None:
        """An event after which pinned memory that the stream uses is free; None where it is already."""


def backend_of(stream: Any) -> Backend:
    """What has the memory for a stream; without one, that of the place where work runs that names none."""
    place: Any = default_place() if stream is None else place_of(stream)
    return _backend(place)


def stream_or_current(stream: Any, array: Any = None) -> Any:
    """`stream`, or where it is None that of work that names none, as `cudakit.ops` has it.

    Parameters
    ----------
    array : array, optional
        What work is about, in host memory the emulator's. Left out, or no array: the place of what names none.
    """
    if stream is not None:
        return stream
    if array is not None and as_numpy(array) is not None:
        return emulator().current()
    is_device_array = hasattr(array, "__cuda_array_interface__") or hasattr(array, "__dlpack__")
    return (DEVICES if is_device_array else default_place()).current()


@functools.cache
def _backend(place: Place) -> Backend:
    if place.unit == "steps":
        from cudakit.memory.on_emulator import OnEmulator

        return OnEmulator()
    from cudakit.memory.on_device import OnDevice  # needs CuPy

    return OnDevice()
