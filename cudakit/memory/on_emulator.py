"""Memory of the emulator: NumPy arrays, counted and limited as a device's. Copies to the host arrive as on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from cudakit.emulator.face import SurfaceObject, as_device, handed_out, order
from cudakit.errors import ArgumentError
from cudakit.memory import host_arrays
from cudakit.memory.accounting import emulated_array
from cudakit.memory.host_arrays import Callee, HostArray, Kind
from cudakit.memory.staging import is_direct
from cudakit.places import emulator
from cudakit.streams.witnesses import doing
from cudakit.types.arguments import as_numpy


class OnEmulator:
    """`cudakit.memory.backend.Backend` of the emulator."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, memory_kind: Kind, stream: Any) -> np.ndarray:
        array = emulated_array(shape, dtype, memory_kind)
        return as_device(array) if (stream or emulator().current()).strict else array

    def handed_out(self, array: np.ndarray, stream: Any) -> np.ndarray:
        return handed_out(array, stream or emulator().current())

    def prefetch(self, array: Any, stream: Any, to: Literal["device", "host"]) -> None:
        """Do nothing: all memory is the host's."""
        host_arrays.host_array("prefetch", "array", array)

    def to_device(self, host: np.ndarray, stream: Any, out: Any) -> Any:
        if not is_direct(host):
            host_arrays.refuse_captured_copy("to_device", stream)
        copied = self.empty(host.shape, host.dtype, "device", stream) if out is None else as_numpy(out)
        if copied is None:
            raise ArgumentError(f"to_device: out must be a NumPy array, got {type(out).__name__}")
        host_arrays.check_host_output("to_device", copied, host.shape, host.dtype)
        self._copy("to_device", host, copied, stream)
        return copied if out is None else out

    def across(self, array: Any, stream: Any, out: Any) -> Any:
        """Raise: no array is on a GPU."""
        return self.to_device(host_arrays.host_array("to_device", "array", array), stream, out)

    def to_host(self, array: Any, stream: Any, out: np.ndarray | None, wait: bool) -> np.ndarray:
        if wait or out is None or not is_direct(out):
            host_arrays.refuse_captured_copy("to_host", stream)
        host = host_arrays.host_array("to_host", "array", array)
        result = host_arrays.output(out, host.shape, host.dtype)
        if out is None and not wait:
            result = handed_out(result, stream)
        captured = self._copy("to_host", host, result, stream, not wait)
        if wait and not captured:
            stream.sync()
        return result

    def _copy(self, name: str, source: np.ndarray, target: np.ndarray, stream: Any, later: bool = False) -> bool:
        """Copy elements now, or with `later` read the source now and fill the target when the host waits.

        Return True if the stream is being captured: then the copy became a node of the graph, and nothing is copied.
        """
        if stream.recorder is not None:
            stream.recorder.capture.copy(stream, source, target)
            return True
        with doing("copy", name, stream, (source,), (target,), source.nbytes):
            if later:
                order().arrive(stream, name, target, source.copy())
            else:
                np.copyto(target, source)
        return False

    def release(self, array: Any, stream: Any) -> None:
        """Do nothing: the owner drops a NumPy array. See `cudakit.memory.memory.allocated`."""

    def copy(self, name: str, source: Any, target: Any, stream: Any) -> None:
        with doing("copy", name, stream, (source,), (target,), source.nbytes):
            np.copyto(target, source.reshape(target.shape))

    def transfer(self, target: Any, source: Any, stream: Any) -> None:
        source_array, written = (
            host_arrays.host_array("copy", name, side.values if isinstance(side, SurfaceObject) else side)
            for name, side in (("source", source), ("target", target))
        )
        host_arrays.check_copy(written, source_array)
        self._copy("copy", source_array, written, stream)

    def mark(self, stream: Any) -> None:
        """Return None: the stream has finished its work."""

    def call(self, kernel: Callee, stream: Any, config: Any, arguments: Sequence[Any]) -> None:
        host_arrays.check(kernel, arguments)
        host_arrays.refuse_captured_call(kernel, stream, arguments)
        values = list(arguments)
        back, copies = [], []
        for position, value in enumerate(arguments):
            if not isinstance(value, HostArray):
                continue
            host = value.array
            copied = emulated_array(host.shape, host.dtype)
            if value.copied_in:
                with doing("copy", type(value).__name__, stream, (host,), (copied,), host.nbytes):
                    np.copyto(copied, host)
            else:
                with doing("fill", "Out", stream, (), (copied,), host.nbytes):
                    copied[...] = np.zeros((), host.dtype)
            copied.flags.writeable = value.copied_out or value.const
            values[position] = copied
            if value.copied_out:
                back.append((type(value).__name__, copied, host))
            elif value.const:
                copies.append((position, copied, copied.tobytes()))
        kernel(stream, config, *values)
        for position, copied, before in copies:
            host_arrays.refuse_written(kernel, position, copied, before)
        for name, copied, host in back:
            with doing("copy", name, stream, (copied,), (host,), host.nbytes):
                order().arrive(stream, name, host, copied.copy())  # which counts as no memory of the device
