"""An adapter for kernels of Numba-CUDA, which Numba compiles to PTX without a GPU.

In programs under ``cudakit check``, ``inspect`` and ``debug``, the kernels run on the emulator, and device arrays are
host arrays.
"""

from __future__ import annotations

import contextlib
import functools
import re
import struct
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from cudakit.emulator.face import MARKS, EmulatorPlace
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import Config, Cover, config
from cudakit.kernel.kernel import Kernel
from cudakit.places import place_of

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")


class NumbaKernel:
    """A kernel of Numba's, called as cudakit's are: arrays and numbers are converted to Numba's parameters.

    Attributes
    ----------
    kernels : dict
        Compiled kernels, by Numba's types of their arguments.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self.kernels: dict[Any, Kernel] = {}

    def __repr__(self) -> str:
        return f"<NumbaKernel {self._function.__name__}>"

    def __call__(self, stream: Any, config: Config | Cover, *arguments: Any) -> None:
        """Launch the kernel.

        Parameters
        ----------
        stream : stream
            Stream to launch on.
        config : Config or Cover
            Launch configuration.
        *arguments : array or number
            Numbers, and C-contiguous arrays.
        """
        from numba import cuda, types

        types_of = tuple(_type_of(argument) for argument in arguments)
        kernel = self.kernels.get(types_of)
        if kernel is None:
            arch = place_of(stream).limits(stream).compute_capability
            with _compiling_for(arch):
                text, _ = cuda.compile_ptx(self._function, types.void(*types_of), cc=arch, lineinfo=True)
            # The kernel's own name in place of the one that Numba made of it.
            match = _ENTRY.search(text)
            renamed = text.replace(match[1], self._function.__name__) if match is not None else text
            kernel = self.kernels[types_of] = Kernel.from_ptx(renamed)
        kernel(stream, config, *(parameter for argument in arguments for parameter in _parameters(argument)))


def from_numba(kernel: Any) -> NumbaKernel:
    """Convert a kernel of Numba-CUDA's to cudakit's.

    Parameters
    ----------
    kernel : function
        Function that is, or could be, decorated with ``numba.cuda.jit``.

    Returns
    -------
    NumbaKernel
        The kernel, called as ``kernel(stream, config, *arguments)``. Numba compiles it for the types of the arguments.

    Raises
    ------
    ArgumentError
        For an object that is no function.
    """
    function = getattr(kernel, "py_func", kernel)
    if not callable(function) or not hasattr(function, "__code__"):
        raise ArgumentError(
            f"from_numba takes a function, decorated with numba.cuda.jit or not, got {shortened(kernel)}"
        )
    return NumbaKernel(function)


@contextlib.contextmanager
def _compiling_for(arch: tuple[int, int]) -> Iterator[None]:
    """Return a context in which Numba compiles kernels and device functions for an arch, not for a GPU here."""
    from numba import cuda

    asks = sys.modules[type(cuda.jit(lambda: None)).__module__].__dict__
    former = asks.get("get_current_device")
    asks["get_current_device"] = lambda: SimpleNamespace(compute_capability=arch)
    try:
        yield
    finally:
        asks["get_current_device"] = former


def _type_of(value: Any) -> Any:
    """Return Numba's type of a kernel's argument."""
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
    """Convert an argument to the list of parameters that Numba's compiled code takes for it.

    For an array: two zeros, its numbers of elements and of bytes an element, the array, its shape and strides in bytes.
    """
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


class Array(np.ndarray):
    """A host array with the methods of Numba's device arrays."""

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """Return the elements as a new NumPy array, or copy them to `ary` and return it."""
        if ary is None:
            return np.array(self, copy=True, order="K", subok=False)
        ary[...] = self
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Copy the elements of an array into this array."""
        self[...] = ary


def _to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
    if to is not None:
        to[...] = obj
        return to
    return np.array(obj, copy=copy or None, order="K").view(Array)


def _device_array(shape: Any, dtype: Any = np.float64, *arguments: Any, **keywords: Any) -> Array:
    array = np.empty(shape, dtype, keywords.get("order", "C"))
    if array.flags.c_contiguous:
        MARKS.mark(array)
    return array.view(Array)


def _device_array_like(ary: Any, *arguments: Any, **keywords: Any) -> Array:
    return _device_array(ary.shape, ary.dtype)


class _Stream:
    """A stream or event of Numba's; all work on it is done already."""

    handle = 0

    def synchronize(self) -> None:
        """Do nothing: all work is done."""

    def record(self, stream: Any = 0) -> None:
        """Do nothing: all work is done."""

    def wait(self, stream: Any = 0) -> None:
        """Do nothing: all work is done."""

    def elapsed_time(self, other: Any) -> float:
        """Return 0: no time passes."""
        return 0.0

    @contextlib.contextmanager
    def auto_synchronize(self) -> Iterator[_Stream]:
        """Yield the stream; all work is done after the block."""
        yield self


def _new_stream(*arguments: Any, **keywords: Any) -> _Stream:
    return _Stream()


def _nothing(*arguments: Any, **keywords: Any) -> None:
    """Do nothing, in place of a function of Numba's that needs a GPU."""


_DEVICE = SimpleNamespace(
    id=0, name=b"cudakit's emulator", compute_capability=(9, 0), WARP_SIZE=32, MAX_THREADS_PER_BLOCK=1024,
    MULTIPROCESSOR_COUNT=132, MAX_SHARED_MEMORY_PER_BLOCK=48 << 10,
)  # fmt: skip
_REPLACED: dict[str, Any] = {
    "to_device": _to_device, "device_array": _device_array, "pinned_array": _device_array,
    "mapped_array": _device_array, "managed_array": _device_array, "device_array_like": _device_array_like,
    "pinned_array_like": _device_array_like, "mapped_array_like": _device_array_like,
    "as_cuda_array": lambda obj, sync=True: np.asarray(obj).view(Array), "is_cuda_array": lambda obj: True,
    "synchronize": _nothing, "select_device": lambda number: _DEVICE, "close": _nothing,
    "stream": _new_stream, "default_stream": _new_stream, "external_stream": _new_stream, "event": _new_stream,
    "event_elapsed_time": lambda begun, ended: 0.0, "is_available": lambda: True, "detect": lambda: True,
    "get_current_device": lambda: _DEVICE,
}  # fmt: skip


def _launches(dispatcher: Any, launch: Config) -> Callable[..., None]:
    """Return a function of the arguments that launches a kernel of Numba's on the emulator, with a configuration."""
    kernel: NumbaKernel = dispatcher.__dict__.setdefault("_cudakit", from_numba(dispatcher))
    return lambda *arguments: kernel(EmulatorPlace().current(), launch, *arguments)


def _configure(self: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> Callable[..., None]:
    return _launches(self, config(griddim, blockdim, shared_bytes=sharedmem))


def _forall(self: Any, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Callable[..., None]:
    return _launches(self, config(-(-ntasks // (tpb or 128)), tpb or 128, shared_bytes=sharedmem))


def _without_signatures(jit: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Numba's ``jit`` so that it ignores signatures, for which it would compile at once, for the GPU here."""

    @functools.wraps(jit)
    def jit_without_signatures(func_or_sig: Any = None, *arguments: Any, **keywords: Any) -> Any:
        return jit(func_or_sig if isinstance(func_or_sig, FunctionType) else None, *arguments, **keywords)

    return jit_without_signatures


def replace(module: Any, put: Callable[[Any, str, Any], None]) -> None:
    """Replace the parts of ``numba.cuda`` that need a GPU. Numba's own simulator is left alone.

    `put` is called as ``put(owner, name, value)`` for each part.
    """
    if not hasattr(module, "compile_ptx"):
        return
    dispatcher = type(module.jit(lambda: None))
    put(dispatcher, "configure", _configure)
    put(dispatcher, "forall", _forall)
    put(module, "jit", _without_signatures(module.jit))
    for name, value in _REPLACED.items():
        put(module, name, value)
