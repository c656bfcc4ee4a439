"""The variables of a module, read and written as NumPy arrays."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.jit.compile.elf import variable_name, variable_type
from cudakit.jit.compile.nvrtc import type_of
from cudakit.jit.load.image import Variables
from cudakit.jit.signature.signature import Declarations
from cudakit.jit.specialise.specialise import resolved
from cudakit.types.arguments import passable, refuse_masked
from cudakit.types.cpp import CppType, Named, scalar_dtype, vector, without_const
from cudakit.types.scalars import filled, struct_packer
from cudakit.types.structs import is_struct_type, struct_dtype


class UnknownVariable(TemplateError, KeyError):
    """A variable that the source has not; a `KeyError` too, as of any mapping."""

    # KeyError would show the message in quotes.
    __str__ = Exception.__str__


class Globals(Mapping[str, np.ndarray]):
    """Variables by name: ``module.globals["table"]`` reads, ``module.globals["table"] = values`` writes.

    Both wait for all work on the device, so that no running kernel sees half a write; `write` and `read` with a
    stream wait for that stream only.
    """

    def __init__(
        self,
        declarations: Declarations,
        loaded: Callable[[Any], AbstractContextManager[tuple[Variables, Mapping[str, str]]]],
        check: Callable[[str, str, np.dtype], None],
    ) -> None:
        self._declarations = declarations
        self._symbols = {symbol.name: symbol for symbol in declarations.symbols}
        self._loaded, self._check = loaded, check

    def __iter__(self) -> Iterator[str]:
        return iter(self._symbols)

    def __len__(self) -> int:
        return len(self._symbols)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.read(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.write(name, value)

    def address(self, name: str) -> tuple[int, int]:
        """Device address and size in bytes of a variable; its host address on the emulator.

        On a GPU a variable moves when an instance of a template is loaded that was not among those loaded so far.
        """
        with self._found(name, None) as found:
            return found.variables.address(found.lowered)

    def read(self, name: str, stream: Any = None) -> np.ndarray:
        """Value of a variable: an array of its C++ type and extents, or of bytes where the type is none of NumPy's."""
        with self._found(name, stream) as found:
            out = found.variables.read(found.lowered, stream)
            return out.view(np.uint8 if found.dtype is None else found.dtype).reshape(found.shape)

    def write(self, name: str, value: Any, stream: Any = None) -> None:
        """Set a variable.

        Parameters
        ----------
        name : str
        value : array_like
            What its elements can hold, spread over its shape. Of structs an array of records, or a dataclass, whose
            layout the compiler compares; or their bytes.
        stream : object, optional

        Raises
        ------
        ArgumentError
            For what the variable cannot hold, and for a const one, whose value the compiler may have put into the code.
        """
        with self._found(name, stream) as found:
            if found.is_const:
                raise ArgumentError(
                    f"variable {name} is const: the compiler may have put its value into the code; declare it without "
                    "const to write it"
                )
            data = self._stored(name, value, found)
            found.variables.write(found.lowered, data.reshape(-1).view(np.uint8), stream)

    @contextlib.contextmanager
    def _found(self, name: str, stream: Any) -> Iterator[_Found]:
        """A variable where the kernels of a stream see it."""
        if name not in self._symbols:
            near = difflib.get_close_matches(str(name), self._symbols, n=3)
            known = ", ".join(self._symbols) or "none"
            more = f"did you mean {' or '.join(near)}?" if near else f"the source has {known}"
            raise UnknownVariable(f"no __constant__, __device__ or __managed__ variable {shortened(name)}; {more}")
        with self._loaded(stream) as (variables, lowered):
            symbol = lowered.get(f"&{name}") or next(
                known for known in variables.names() if variable_name(known) == name
            )
            size = variables.address(symbol)[1]
            yield _Found(variables, symbol, size, *self._layout(name, size, lowered.get(type_of(name))))

    def _layout(self, name: str, size: int, told: str | None) -> tuple[np.dtype | None, tuple[int, ...], CppType, bool]:
        """Dtype, shape and C++ type of a variable, whether it is const; no dtype where the type is none of NumPy's."""
        symbol = self._symbols[name]
        if told is not None:
            cpp, shape = variable_type(told)
        else:
            cpp, shape = symbol.type, tuple(int(extent) for extent in symbol.extents if extent.isdigit())
            cpp = resolved(cpp, self._declarations)
        given, cpp = cpp, without_const(cpp)
        is_const = given != cpp
        dtype = scalar_dtype(cpp)
        if dtype is None and isinstance(cpp, Named) and (parts := vector(cpp.name)) is not None:
            dtype, shape = parts[0], (*shape, parts[1])
        if dtype is None or dtype.itemsize * prod(shape) != size:
            return None, (size,), cpp, is_const
        return dtype, shape, cpp, is_const

    def _stored(self, name: str, value: Any, found: _Found) -> np.ndarray:
        where = f"variable {name}"
        refuse_masked(value)
        if found.dtype is not None:
            if isinstance(value, np.ndarray) and value.dtype.kind == "V":
                raise ArgumentError(f"{where} ({found.cpp}) takes {found.dtype}, got {value.dtype}")
            return np.ascontiguousarray(filled(value, found.dtype, found.shape, where))
        if is_struct_type(type(value)):
            kind: Any = type(value)
            dtype = struct_dtype(kind)
            value = np.frombuffer(struct_packer(dtype, where)(value), dtype)
        if not isinstance(value, np.ndarray | np.generic):
            raise ArgumentError(
                f"{where} ({found.cpp}) takes an array of its {found.size} bytes, or of records of "
                f"the same layout, got {type(value).__name__}; give numpy.array(…, dtype)"
            )
        passable(value.dtype, f"what is given for {where}")
        array = np.ascontiguousarray(value)
        if array.nbytes != found.size:
            raise ArgumentError(f"{where} has {found.size} bytes, got {array.nbytes} ({array.dtype}, {array.shape})")
        if array.dtype.names is not None:
            self._check(name, str(found.cpp), array.dtype)
        return array


class _Found(NamedTuple):
    """A variable where it is, and what it is; no dtype where its type is none of NumPy's."""

    variables: Variables
    lowered: str
    size: int
    dtype: np.dtype | None
    shape: tuple[int, ...]
    cpp: CppType
    is_const: bool
