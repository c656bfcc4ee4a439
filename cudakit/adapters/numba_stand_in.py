"""Numba-CUDA where there is no GPU: its kernels run on the emulator, and its device arrays are the host's.

It is for programs under ``cudakit check``, ``inspect`` and ``debug``. Numba compiles the kernels as ever.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from cudakit.adapters.numba_kernels import NumbaKernel, from_numba
from cudakit.adapters.replaced import Put
from cudakit.emulator.face import MARKS, EmulatorPlace
from cudakit.jit.load.config import Config, config


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


def _device_array(shape: Any, dtype: Any = np.float64, *given: Any, **named: Any) -> Array:
    made = np.empty(shape, dtype, named.get("order", "C"))
    if made.flags.c_contiguous:
        MARKS.mark(made)
    return made.view(Array)


def _device_array_like(ary: Any, *given: Any, **named: Any) -> Array:
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


def _made(*given: Any, **named: Any) -> _Stream:
    return _Stream()


def _nothing(*given: Any, **named: Any) -> None:
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
    def found(func_or_sig: Any = None, *given: Any, **named: Any) -> Any:
        return jit(func_or_sig if isinstance(func_or_sig, FunctionType) else None, *given, **named)

    return found


def replace(module: Any, put: Put) -> None:
    """Let ``numba.cuda`` do without a GPU; its own simulator is left alone."""
    if not hasattr(module, "compile_ptx"):
        return
    dispatcher = type(module.jit(lambda: None))
    put(dispatcher, "configure", _configure)
    put(dispatcher, "forall", _forall)
    put(module, "jit", _without_signatures(module.jit))
    for name, made in _REPLACED.items():
        put(module, name, made)
