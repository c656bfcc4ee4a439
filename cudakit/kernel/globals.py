"""The global variables of a module, read and written as NumPy arrays."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.jit.compile.compiled import type_of
from cudakit.jit.compile.mangled import variable_name, variable_type
from cudakit.jit.load.variables import Variables
from cudakit.jit.signature.signature import Declarations
from cudakit.jit.specialise.specialise import resolved
from cudakit.types.arguments import passable, refuse_masked
from cudakit.types.cpp import CppType, Named, scalar_dtype, vector, without_const
from cudakit.types.packing import filled, struct_packer
from cudakit.types.structs import is_struct_type, struct_dtype


class UnknownVariable(TemplateError, KeyError):
    """The error for a name that no variable of the source has. It is a `KeyError` too, the error of mappings."""

    # KeyError would show the message in quotes.
    __str__ = Exception.__str__


class Globals(Mapping[str, np.ndarray]):
    """Variables by name: ``module.globals["table"]`` reads, ``module.globals["table"] = values`` writes.

    Both wait for all work on the device, so that no running kernel sees half a write. `write` and `read` with a stream
    wait for that stream only.
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
        """Return the address and the size in bytes of a variable: a device address, or a host address on the emulator.

        On a GPU, loading a further instance of a template moves the variable to another address.
        """
        with self._variable(name, None) as variable:
            return variable.variables.address(variable.lowered)

    def is_constant(self, name: str) -> bool:
        """Return whether a variable is in ``__constant__`` memory."""
        return self._symbols[name].constant

    def read(self, name: str, stream: Any = None) -> np.ndarray:
        """Return the value of a variable, as an array of its C++ type and extents.

        The array holds bytes if NumPy has no dtype for the C++ type. Waits for `stream`, or without one for all work on
        the device.
        """
        with self._variable(name, stream) as variable:
            out = variable.variables.read(variable.lowered, stream)
            return out.view(np.uint8 if variable.dtype is None else variable.dtype).reshape(variable.shape)

    def write(self, name: str, value: Any, stream: Any = None) -> None:
        """Set a variable.

        Parameters
        ----------
        name : str
            Name of the variable.
        value : array_like
            Value that the variable's elements can hold, broadcast to its shape. Structs are written from an array of
            records, from a dataclass, whose layout the compiler compares, or from their bytes.
        stream : object, optional
            Stream to order the write on. Default: wait for all work on the device.

        Raises
        ------
        ArgumentError
            If the variable cannot hold the value, or is const. The compiler may have put a const value into the code.
        """
        with self._variable(name, stream) as variable:
            if variable.is_const:
                raise ArgumentError(
                    f"variable {name} is const: the compiler may have put its value into the code; declare it without "
                    "const to write it"
                )
            data = self._stored(name, value, variable)
            variable.variables.write(variable.lowered, data.reshape(-1).view(np.uint8), stream)

    @contextlib.contextmanager
    def _variable(self, name: str, stream: Any) -> Iterator[_Variable]:
        """Yield the variable `name` of the code that kernels on `stream` use.

        Raises
        ------
        UnknownVariable
            If the source has no such variable.
        """
        if name not in self._symbols:
            near = difflib.get_close_matches(str(name), self._symbols, n=3)
            names = ", ".join(self._symbols) or "none"
            more = f"did you mean {' or '.join(near)}?" if near else f"the source has {names}"
            raise UnknownVariable(f"no __constant__, __device__ or __managed__ variable {shortened(name)}; {more}")
        with self._loaded(stream) as (variables, lowered):
            symbol = lowered.get(f"&{name}") or next(
                mangled for mangled in variables.names() if variable_name(mangled) == name
            )
            size = variables.address(symbol)[1]
            yield _Variable(variables, symbol, size, *self._layout(name, size, lowered.get(type_of(name))))

    def _layout(
        self, name: str, size: int, type_text: str | None
    ) -> tuple[np.dtype | None, tuple[int, ...], CppType, bool]:
        """Return dtype, shape, C++ type without const, and whether the variable is const.

        `size` is its bytes. `type_text` is its type as the compiler names it, or None to use the source's declaration.
        If NumPy has no dtype for the type, the dtype is None and the shape is (`size`,).
        """
        symbol = self._symbols[name]
        if type_text is not None:
            cpp, shape = variable_type(type_text)
        else:
            cpp, shape = symbol.type, tuple(int(extent) for extent in symbol.extents if extent.isdigit())
            cpp = resolved(cpp, self._declarations)
        qualified, cpp = cpp, without_const(cpp)
        is_const = qualified != cpp
        dtype = scalar_dtype(cpp)
        if dtype is None and isinstance(cpp, Named) and (parts := vector(cpp.name)) is not None:
            dtype, shape = parts[0], (*shape, parts[1])
        if dtype is None or dtype.itemsize * prod(shape) != size:
            return None, (size,), cpp, is_const
        return dtype, shape, cpp, is_const

    def _stored(self, name: str, value: Any, variable: _Variable) -> np.ndarray:
        where = f"variable {name}"
        refuse_masked(value)
        if variable.dtype is not None:
            if isinstance(value, np.ndarray) and value.dtype.kind == "V":
                raise ArgumentError(f"{where} ({variable.cpp}) takes {variable.dtype}, got {value.dtype}")
            return np.ascontiguousarray(filled(value, variable.dtype, variable.shape, where))
        if is_struct_type(type(value)):
            struct_type: Any = type(value)
            dtype = struct_dtype(struct_type)
            value = np.frombuffer(struct_packer(dtype, where)(value), dtype)
        if not isinstance(value, np.ndarray | np.generic):
            raise ArgumentError(
                f"{where} ({variable.cpp}) takes an array of {variable.size} bytes, or of records of "
                f"the same layout, got {type(value).__name__}; give numpy.array(…, dtype)"
            )
        passable(value.dtype, f"what is given for {where}")
        array = np.ascontiguousarray(value)
        if array.nbytes != variable.size:
            raise ArgumentError(f"{where} has {variable.size} bytes, got {array.nbytes} ({array.dtype}, {array.shape})")
        if array.dtype.names is not None:
            self._check(name, str(variable.cpp), array.dtype)
        return array


class _Variable(NamedTuple):
    """A variable of loaded code: its mangled name (`lowered`), its bytes, and its layout.

    `dtype` is None if NumPy has none for the C++ type; the shape is then the number of bytes.
    """

    variables: Variables
    lowered: str
    size: int
    dtype: np.dtype | None
    shape: tuple[int, ...]
    cpp: CppType
    is_const: bool
