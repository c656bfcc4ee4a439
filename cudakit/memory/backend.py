"""Protocol of memory on an execution place, and the choice between its two modules (GPU, emulator)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from cudakit.memory.host_arrays import Callee, Kind
from cudakit.places import DEVICES, Place, default_place, emulator, place_of
from cudakit.streams import streams
from cudakit.types.arguments import as_numpy, is_on_device


class Backend(Protocol):
    """Arrays and copies on an execution place.

    Streams and arrays belong to this place; shapes and dtypes are checked.
    """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, memory_kind: Kind, stream: Any) -> Any:
        """Return a new array of device or managed memory. `stream` None: the current stream of the execution place."""

    def handed_out(self, array: np.ndarray, stream: Any) -> np.ndarray:
        """Return a new pinned array as the array type that a program gets."""

    def release(self, array: Any, stream: Any) -> None:
        """Make an array from `empty` empty. Its memory is free once the stream has finished its present work."""

    def prefetch(self, array: Any, stream: Any, to: Literal["device", "host"]) -> None:
        """Move a managed array."""

    def to_device(self, host: np.ndarray, stream: Any, out: Any) -> Any:
        """Return a copy of a host array, ordered on the stream: in `out`, or a new array if `out` is None."""

    def across(self, array: Any, stream: Any, out: Any) -> Any:
        """Return a copy of a device array, which may be on another device, in `out` or a new array.

        The copy is ordered between streams.
        """

    def to_host(self, array: Any, stream: Any, out: np.ndarray | None, wait: bool) -> np.ndarray:
        """Return a copy of a device array in host memory."""

    def copy(self, name: str, source: Any, target: Any, stream: Any) -> None:
        """Enqueue a copy between pinned and device memory, ordered by the stream alone.

        `name` is its name in traces.
        """

    def transfer(self, target: Any, source: Any, stream: Any) -> None:
        """Enqueue a copy between arrays in any memory, and surfaces, ordered between streams."""

    def call(self, kernel: Callee, stream: Any, config: Any, arguments: Sequence[Any]) -> None:
        """Call a kernel that has host arrays among its arguments."""

    def mark(self, stream: Any) -> Any | None:
        """Return an event after which pinned memory that the stream uses is free. None: it is free already."""


def backend_of(stream: Any) -> Backend:
    """Return the memory of a stream's execution place, or without a stream of the default place."""
    place: Any = default_place() if stream is None else place_of(stream)
    return _backend(place)


def stream_or_current(stream: Any, array: Any = None) -> Any:
    """Return `stream`, or if it is None the current stream, as in `cudakit.ops`.

    Parameters
    ----------
    array : array, optional
        Array of the work; an array in host memory selects the emulator. Default: the default execution place.
    """
    if stream is not None:
        return stream
    if array is not None and as_numpy(array) is not None:
        return emulator().current()
    is_device_array = is_on_device(array) or hasattr(array, "__dlpack__")
    return (DEVICES if is_device_array else default_place()).current()


@functools.cache
def _backend(place: Place) -> Backend:
    if place.unit == "steps":
        from cudakit.memory.on_emulator import OnEmulator

        return OnEmulator()
    streams.cupy_module()
    from cudakit.memory.on_device import OnDevice  # which imports CuPy

    return OnDevice()
