"""``__constant__`` and ``__device__`` variables of a loaded specialization: read and written as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, TemplateError
from cudakit.jit.launch.code_place import Ready
from cudakit.jit.signature.signature import Symbol
from cudakit.jit.specialise.names import Names
from cudakit.jit.specialise.parameters import resolved
from cudakit.types.arguments import passable
from cudakit.types.cpp import Opaque, scalar_dtype
from cudakit.types.host import refuse_masked
from cudakit.types.values import filled


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
        return ready.variables.address(self._lowered(ready, name))

    def read(self, name: str, stream: Any = None) -> np.ndarray:
        """Value of a variable: an array of its C++ type and extents, or of bytes where the type is a struct."""
        ready = self._ready_for(stream)
        out = ready.variables.read(self._lowered(ready, name), stream)
        dtype, shape = self._layout(name, out.size)
        return out.view(np.uint8 if dtype is None else dtype).reshape(shape)

    def write(self, name: str, value: Any, stream: Any = None) -> None:
        """Set a variable.

        Raises
        ------
        ArgumentError
            If the value has not the variable's size.
        """
        ready = self._ready_for(stream)
        lowered = self._lowered(ready, name)
        array = self._as_stored(name, value, ready.variables.address(lowered)[1])
        ready.variables.write(lowered, array.reshape(-1).view(np.uint8), stream)

    def _as_stored(self, name: str, value: Any, size: int) -> np.ndarray:
        dtype, shape = self._layout(name, size)
        refuse_masked(value)
        array = np.asarray(value)
        if dtype is not None and array.dtype.names is None and array.dtype.kind != "V":
            array = filled(value, dtype, shape, f"variable {name}")
        elif isinstance(value, np.ndarray | np.generic):
            passable(array.dtype, f"what is given for variable {name}")
        else:
            raise ArgumentError(
                f"variable {name} ({self._symbols[name].type}) takes an array of its {size} bytes, or of records of "
                f"the same layout, got {type(value).__name__}; give numpy.array(…, dtype)"
            )
        array = np.ascontiguousarray(array)
        if array.nbytes != size:
            raise ArgumentError(f"variable {name} has {size} bytes, got {array.nbytes} ({array.dtype}, {array.shape})")
        return array

    def _lowered(self, ready: Ready, name: str) -> str:
        if name not in self._symbols:
            known = ", ".join(self._symbols) or "none"
            raise UnknownVariable(f"no __constant__ or __device__ variable {name!r}; the source has {known}")
        return ready.compiled.lowered[f"&{name}"]

    def _layout(self, name: str, size: int) -> tuple[np.dtype | None, tuple[int, ...]]:
        """Dtype and shape of a variable; no dtype where its type is none of NumPy's."""
        symbol = self._symbols[name]
        dtype = scalar_dtype(symbol.type)
        if dtype is None:
            return None, (size,)
        if symbol.extents and all(extent.isdigit() for extent in symbol.extents):
            return dtype, tuple(map(int, symbol.extents))
        return dtype, (size // dtype.itemsize,) if symbol.extents else ()


def understood(symbols: Iterable[Symbol], names: Names) -> tuple[Symbol, ...]:
    """Variables with the types that the source's aliases stand for; one that could mean two things is left open."""
    return tuple(
        replace(symbol, type=Opaque(str(symbol.type)))
        if names.unsure(symbol.type, ())
        else replace(symbol, type=resolved(symbol.type, names.declarations))
        for symbol in symbols
    )
