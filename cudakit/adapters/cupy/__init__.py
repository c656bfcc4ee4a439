"""A stand-in for CuPy on a machine without a GPU: its arrays, kernels, memory, streams and devices.

Functions are NumPy's and SciPy's, in host memory. Kernels are compiled from CUDA C++ and run on the emulator. As on a
GPU, host arrays and device arrays do not mix. A name that is not here raises an `AttributeError` that says so.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np

from cudakit.adapters.cupy import arrays, cupyx, device, jit, kernels, memory, runtime, streams, texture
from cudakit.adapters.cupy.modules import Module
from cudakit.adapters.stand_ins import nothing
from cudakit.emulator.face import DeviceArray
from cudakit.errors import CompileError, LaunchError

__all__ = ["cupy_stand_in"]

#: Version of CuPy whose names these are.
_VERSION = "14.2.0"


def _memoize(for_each_device: bool = False) -> Any:
    return functools.cache


def _show_config(*, _full: bool = False) -> None:
    """Print what runs the program."""
    print(cupyx.get_runtime_info())


class _Capsule:
    """A DLPack capsule, as an object that NumPy imports."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def _from_dlpack(array: Any, **keywords: Any) -> Any:
    """Return another library's array as a device array of the same memory."""
    if hasattr(array, "device_array"):  # a Buffer of cuda.core's stand-in
        return arrays.wrapped(array.device_array())
    return arrays.wrapped(np.from_dlpack(arrays.plain(array)))


def _cuda() -> dict[str, Any]:
    """Return ``cupy.cuda`` and its modules, by name."""
    ranges: dict[str, Any] = dict.fromkeys(("RangePush", "RangePushC", "RangePop", "Mark", "MarkC"), nothing)
    nvtx = Module("cupy.cuda.nvtx", None, **ranges)
    profiler = Module("cupy.cuda.profiler", start=nothing, stop=nothing)
    compiler = Module("cupy.cuda.compiler", CompileException=CompileError)
    driver = Module("cupy.cuda.driver", CUDADriverError=LaunchError, get_build_version=lambda: 0)
    parts: dict[str, Any] = {
        "memory": Module("cupy.cuda.memory", **_public(memory)),
        "pinned_memory": Module("cupy.cuda.pinned_memory", **_public(memory)),
        "device": Module("cupy.cuda.device", **_public(device)),
        "stream": Module("cupy.cuda.stream", **_public(streams)),
        "graph": Module("cupy.cuda.graph", Graph=streams.Graph),
        "texture": Module("cupy.cuda.texture", **_public(texture)),
        "runtime": runtime.module(), "nvtx": nvtx, "profiler": profiler, "compiler": compiler, "driver": driver,
    }  # fmt: skip
    cuda = Module("cupy.cuda", **parts, **{
        name: value for part in (memory, device, streams) for name, value in _public(part).items() if name in _OF_CUDA
    }, profile=cupyx.profile, is_available=lambda: True, get_device_id=lambda: 0, get_cuda_path=lambda: None,
        get_nvcc_path=lambda: None, get_local_runtime_version=lambda: runtime.FUNCTIONS["runtimeGetVersion"](),
        Function=kernels.Function,
    )  # fmt: skip
    return {"cupy.cuda": cuda, **{f"cupy.cuda.{name}": module for name, module in parts.items()}}


_OF_CUDA = (
    "BaseMemory", "Device", "Event", "ExternalStream", "Graph", "ManagedMemory", "Memory", "MemoryAsync",
    "MemoryAsyncPool", "MemoryPointer", "MemoryPool", "PinnedMemoryPointer", "PinnedMemoryPool",
    "PythonFunctionAllocator", "Stream", "UnownedMemory", "alloc", "alloc_pinned_memory", "get_allocator",
    "get_current_stream", "get_elapsed_time", "malloc_async", "malloc_managed", "set_allocator",
    "set_pinned_memory_allocator", "using_allocator",
)  # fmt: skip


def _public(module: ModuleType) -> dict[str, Any]:
    """Return the public functions and classes that a module defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }


def cupy_stand_in() -> dict[str, ModuleType]:
    """Return the modules that stand in for CuPy's, by module name."""
    cuda = _cuda()
    config = cupyx.fft_config()
    parts: dict[str, Any] = {
        "linalg": Module("cupy.linalg", np.linalg), "fft": Module("cupy.fft", np.fft, config=config),
        "random": Module("cupy.random", np.random), "testing": Module("cupy.testing", np.testing),
        "cuda": cuda["cupy.cuda"],
    }  # fmt: skip
    cupy = Module("cupy", np, **parts)

    def get_array_module(*arguments: Any) -> Any:
        """Return this module if any argument is a device array, else NumPy."""
        return cupy if any(isinstance(argument, DeviceArray) for argument in arguments) else np

    cupy.__dict__.update(
        ndarray=arrays.ndarray, ufunc=arrays.ufunc, array=arrays.array, asarray=arrays.asarray,
        asanyarray=arrays.asarray, ascontiguousarray=arrays.ascontiguousarray, asnumpy=arrays.asnumpy,
        asfortranarray=arrays.asfortranarray, empty=arrays.new("empty"), empty_like=arrays.new("empty_like"),
        RawKernel=kernels.RawKernel, RawModule=kernels.RawModule, ElementwiseKernel=kernels.ElementwiseKernel,
        ReductionKernel=kernels.ReductionKernel, fuse=kernels.fuse, vectorize=kernels.vectorize,
        get_array_module=get_array_module, get_default_memory_pool=lambda: memory.POOL,
        get_default_pinned_memory_pool=lambda: memory.PINNED_POOL, is_available=lambda: True, memoize=_memoize,
        clear_memo=nothing, show_config=_show_config, from_dlpack=_from_dlpack,
        fromDlpack=lambda capsule: _from_dlpack(_Capsule(capsule)), __version__=_VERSION,
    )  # fmt: skip
    names = {f"cupy.{name}": module for name, module in parts.items()}
    return {"cupy": cupy, **names, "cupy.fft.config": config, **cuda, **cupyx.modules(cupy, jit.module())}
