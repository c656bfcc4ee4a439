"""Kernels of Numba-CUDA: Numba compiles them to PTX, with no GPU."""

from __future__ import annotations

import contextlib
import re
import struct
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import Config, Cover
from cudakit.kernel.kernel import Kernel
from cudakit.places import place_of

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")


class NumbaKernel:
    """A kernel of Numba's, called as cudakit's are: arrays and numbers become the parameters that Numba gave it.

    Attributes
    ----------
    kernels : dict
        Those that were compiled, by Numba's types of their arguments.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self.kernels: dict[Any, Kernel] = {}

    def __repr__(self) -> str:
        return f"<NumbaKernel {self._function.__name__}>"

    def __call__(self, stream: Any, config: Config | Cover, *arguments: Any) -> None:
        """Launch it.

        Parameters
        ----------
        stream : stream
        config : Config or Cover
        *arguments : array or number
            C-contiguous arrays.
        """
        from numba import cuda, types

        types_of = tuple(_type_of(each) for each in arguments)
        kernel = self.kernels.get(types_of)
        if kernel is None:
            arch = place_of(stream).limits(stream).compute_capability
            with _compiling_for(arch):
                text, _ = cuda.compile_ptx(self._function, types.void(*types_of), cc=arch, lineinfo=True)
            # The kernel's own name in place of the one that Numba made of it.
            made = _ENTRY.search(text)
            named = text.replace(made[1], self._function.__name__) if made is not None else text
            kernel = self.kernels[types_of] = Kernel.from_ptx(named)
        kernel(stream, config, *(each for given in arguments for each in _parameters(given)))


def from_numba(kernel: Any) -> NumbaKernel:
    """A kernel of Numba-CUDA's as cudakit's.

    Parameters
    ----------
    kernel : function
        Decorated with ``numba.cuda.jit``, or as it would be.

    Returns
    -------
    NumbaKernel
        Called as ``kernel(stream, config, *arguments)``; compiled for the types of the arguments, by Numba.

    Raises
    ------
    ArgumentError
        For what is no function.
    """
    function = getattr(kernel, "py_func", kernel)
    if not callable(function) or not hasattr(function, "__code__"):
        raise ArgumentError(
            f"from_numba takes a function, decorated with numba.cuda.jit or not, got {shortened(kernel)}"
        )
    return NumbaKernel(function)


@contextlib.contextmanager
def _compiling_for(arch: tuple[int, int]) -> Iterator[None]:
    """A block in which Numba compiles the device functions of kernels, too, for an arch and not for a GPU at hand."""
    from numba import cuda

    asks = sys.modules[type(cuda.jit(lambda: None)).__module__].__dict__
    former = asks.get("get_current_device")
    asks["get_current_device"] = lambda: SimpleNamespace(compute_capability=arch)
    try:
        yield
    finally:
        asks["get_current_device"] = former


def _type_of(value: Any) -> Any:
    """Numba's type of an argument."""
    from numba import types
    from numba.np import numpy_support

    dtype = getattr(value, "dtype", None)
    if dtype is not None and value.ndim:
        return types.Array(numpy_support.from_dtype(dtype), value.ndim, "C")
    if isinstance(value, bool):
        return types.boolean
    if isinstance(value, int):
        return types.int64
    if isinstance(value, float):
        return types.float64
    if dtype is None:
        raise ArgumentError(
            f"from_numba: an argument is an array or a number, got {type(value).__name__}: {shortened(value)}"
        )
    return numpy_support.from_dtype(dtype)


def _parameters(value: Any) -> list[Any]:
    """An argument as Numba passes it: of an array its owner, sizes, address, shape and strides."""
    if isinstance(value, np.ndarray) and value.ndim:
        whole = [np.int64(0), np.int64(0), np.int64(value.size), np.int64(value.itemsize), value]
        return [*whole, *map(np.int64, value.shape), *map(np.int64, value.strides)]
    if isinstance(value, bool | np.bool_):
        return [np.int8(value)]
    if isinstance(value, int):
        return [np.int64(value)]
    if isinstance(value, complex | np.complexfloating):
        half = "f" if isinstance(value, np.complex64) else "d"
        return [np.frombuffer(struct.pack(f"<2{half}", value.real, value.imag), f"<{half}")]
    return [np.float64(value) if isinstance(value, float) and not isinstance(value, np.generic) else value]
