"""Kernels of Numba-CUDA: Numba compiles them to PTX, with no GPU.

In programs under ``cudakit check``, ``inspect`` and ``debug`` they run on the emulator, and device arrays are the
host's.
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


class Array(np.ndarray):
    """A host array with the methods of Numba's device arrays."""

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """Its elements, as NumPy's array."""
        if ary is None:
            return np.array(self, copy=True, order="K", subok=False)
        ary[...] = self
        return ary

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Take over the elements of an array."""
        self[...] = ary


def _to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
    if to is not None:
        to[...] = obj
        return to
    return np.array(obj, copy=copy or None, order="K").view(Array)


def _device_array(shape: Any, dtype: Any = np.float64, *arguments: Any, **named: Any) -> Array:
    made = np.empty(shape, dtype, named.get("order", "C"))
    if made.flags.c_contiguous:
        MARKS.mark(made)
    return made.view(Array)


def _device_array_like(ary: Any, *arguments: Any, **named: Any) -> Array:
    return _device_array(ary.shape, ary.dtype)


class _Stream:
    """A stream or event of Numba's: all work is done when it is asked for."""

    handle = 0

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    def record(self, stream: Any = 0) -> None:
        """Nothing is left to wait for."""

    def wait(self, stream: Any = 0) -> None:
        """Nothing is left to wait for."""

    def elapsed_time(self, other: Any) -> float:
        """No time passes."""
        return 0.0

    @contextlib.contextmanager
    def auto_synchronize(self) -> Iterator[_Stream]:
        """A block, after which nothing is left to wait for."""
        yield self


def _made(*arguments: Any, **named: Any) -> _Stream:
    return _Stream()


def _nothing(*arguments: Any, **named: Any) -> None:
    """Nothing is left to do."""


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
    "stream": _made, "default_stream": _made, "external_stream": _made, "event": _made,
    "event_elapsed_time": lambda begun, ended: 0.0, "is_available": lambda: True, "detect": lambda: True,
    "get_current_device": lambda: _DEVICE,
}  # fmt: skip


def _launches(dispatcher: Any, launch: Config) -> Callable[..., None]:
    """What launches a kernel of Numba's."""
    kernel: NumbaKernel = dispatcher.__dict__.setdefault("_cudakit", from_numba(dispatcher))
    return lambda *arguments: kernel(EmulatorPlace().current(), launch, *arguments)


def _configure(self: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0) -> Callable[..., None]:
    return _launches(self, config(griddim, blockdim, shared_bytes=sharedmem))


def _forall(self: Any, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0) -> Callable[..., None]:
    return _launches(self, config(-(-ntasks // (tpb or 128)), tpb or 128, shared_bytes=sharedmem))


def _without_signatures(jit: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's ``jit``, which compiles for signatures at once, for the GPU at hand."""

    @functools.wraps(jit)
    def found(func_or_sig: Any = None, *arguments: Any, **named: Any) -> Any:
        return jit(func_or_sig if isinstance(func_or_sig, FunctionType) else None, *arguments, **named)

    return found


def replace(module: Any, put: Callable[[Any, str, Any], None]) -> None:
    """Let ``numba.cuda`` do without a GPU; its own simulator is left alone."""
    if not hasattr(module, "compile_ptx"):
        return
    dispatcher = type(module.jit(lambda: None))
    put(dispatcher, "configure", _configure)
    put(dispatcher, "forall", _forall)
    put(module, "jit", _without_signatures(module.jit))
    for name, made in _REPLACED.items():
        put(module, name, made)
