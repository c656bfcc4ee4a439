"""``__constant__`` and ``__device__`` variables of a loaded specialization: read and written as NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cudakit.errors import ArgumentError, LaunchError, TemplateError
from cudakit.jit.load.load import Loaded
from cudakit.jit.signature.signature import Symbol
from cudakit.types.cpp import scalar_dtype

if TYPE_CHECKING:
    from cudakit.emulator.launch import Emulated
    from cudakit.kernel.place import Ready


class UnknownVariable(TemplateError, KeyError):
    """A variable that the source has not; a `KeyError` too, as of any mapping."""

    # KeyError would show the message in quotes.
    __str__ = Exception.__str__


class Globals(Mapping[str, np.ndarray]):
    """Variables by name: ``kernel.globals["table"]`` reads, ``kernel.globals["table"] = values`` writes.

    Both wait for all work on the device, so that no running kernel sees half a write; `write` and `read` with a
    stream wait for that stream only. Each specialization has variables of its own, as each C++ module has.
    """

    def __init__(self, ready_for: Callable[[Any], Ready], symbols: tuple[Symbol, ...]) -> None:
        self._ready_for = ready_for
        self._symbols = {symbol.name: symbol for symbol in symbols}

    def __iter__(self) -> Iterator[str]:
        return iter(self._symbols)

    def __len__(self) -> int:
        return len(self._symbols)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.read(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.write(name, value)

    def address(self, name: str) -> tuple[int, int]:
        """Device address and size in bytes of a variable; its host address on the emulator."""
        ready = self._ready_for(None)
        if isinstance(ready, Loaded):
            return self._on_device(ready, name)
        data = self._on_host(ready, name)
        return int(data.__array_interface__["data"][0]), data.size

    def read(self, name: str, stream: Any = None) -> np.ndarray:
        """Value of a variable: an array of its C++ type and extents, or of bytes where the type is a struct."""
        ready = self._ready_for(stream)
        if isinstance(ready, Loaded):
            pointer, size = self._on_device(ready, name)
            out = np.empty(size, np.uint8)
            self._copy("cuMemcpyDtoH", stream, out.ctypes.data, pointer, size)
        else:
            _wait_for_emulated(stream)
            out = self._on_host(ready, name).copy()
        dtype, shape = self._layout(name, out.size)
        return out.view(dtype).reshape(shape)

    def write(self, name: str, value: Any, stream: Any = None) -> None:
        """Set a variable.

        Raises
        ------
        ArgumentError
            If the value has not the variable's size.
        """
        ready = self._ready_for(stream)
        if isinstance(ready, Loaded):
            pointer, size = self._on_device(ready, name)
            array = self._as_stored(name, value, size)
            self._copy("cuMemcpyHtoD", stream, pointer, array.ctypes.data, size)
        else:
            _wait_for_emulated(stream)
            data = self._on_host(ready, name)
            data[:] = self._as_stored(name, value, data.size).reshape(-1).view(np.uint8)

    def _as_stored(self, name: str, value: Any, size: int) -> np.ndarray:
        dtype, shape = self._layout(name, size)
        array = np.asarray(value)
        if array.dtype.names is None and dtype != np.uint8:
            try:
                array = np.broadcast_to(array.astype(dtype, casting="same_kind"), shape)
            except (TypeError, ValueError) as error:
                raise ArgumentError(f"variable {name} is {dtype} with shape {shape}: {error}") from error
        array = np.ascontiguousarray(array)
        if array.nbytes != size:
            raise ArgumentError(f"variable {name} has {size} bytes, got {array.nbytes} ({array.dtype}, {array.shape})")
        return array

    def _lowered(self, ready: Ready, name: str) -> str:
        if name not in self._symbols:
            known = ", ".join(self._symbols) or "none"
            raise UnknownVariable(f"no __constant__ or __device__ variable {name!r}; the source has {known}")
        return ready.compiled.lowered[f"&{name}"]

    def _on_host(self, ready: Emulated, name: str) -> np.ndarray:
        return ready.variable(self._lowered(ready, name))

    def _on_device(self, ready: Loaded, name: str) -> tuple[int, int]:
        from cuda.bindings import driver

        lowered = self._lowered(ready, name)
        library = driver.CUlibrary(int(ready.code.handle))
        status, pointer, size = driver.cuLibraryGetGlobal(library, lowered.encode())
        if int(status) != 0:
            raise LaunchError(f"the driver does not find variable {name} ({lowered}): {status.name}")
        return int(pointer), int(size)

    def _layout(self, name: str, size: int) -> tuple[np.dtype, tuple[int, ...]]:
        symbol = self._symbols[name]
        dtype = scalar_dtype(symbol.type)
        if dtype is None:
            return np.dtype(np.uint8), (size,)
        if symbol.extents and all(extent.isdigit() for extent in symbol.extents):
            return dtype, tuple(map(int, symbol.extents))
        return dtype, (size // dtype.itemsize,) if symbol.extents else ()

    def _copy(self, function: str, stream: Any, target: int, source: int, size: int) -> None:
        from cuda.bindings import driver

        from cudakit.streams.streams import as_stream

        if stream is None:
            # A copy from pageable memory may be under way when the driver returns, and is for all streams.
            copy = functools.partial(getattr(driver, function), target, source, size)
            statuses = [step()[0] for step in (driver.cuCtxSynchronize, copy, driver.cuCtxSynchronize)]
        else:
            core = as_stream(stream)
            handle = driver.CUstream(int(core.handle))
            statuses = [getattr(driver, f"{function}Async")(target, source, size, handle)[0]]
            # The host memory is this function's own: it must not go before the copy has been made.
            core.sync()
        for status in statuses:
            if int(status) != 0:
                raise LaunchError(f"copying a variable failed: {status.name}")


def _wait_for_emulated(stream: Any) -> None:
    """Let the host wait for an emulated stream; for all where none is named."""
    from cudakit.emulator.streams.order import order

    if stream is None:
        order().finish_all()
    else:
        stream.sync()
