"""PyCUDA's driver module: memory, copies, streams, events, kernels, textures, devices and contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from cudakit.adapters.pycuda import contexts, copies, driver_arrays, enums, host_memory
from cudakit.adapters.pycuda.absent import missing
from cudakit.adapters.pycuda.allocations import DeviceAllocation, PointerHolderBase, mem_alloc
from cudakit.adapters.pycuda.contexts import *  # noqa: F403  # the names that it lists
from cudakit.adapters.pycuda.copies import *  # noqa: F403  # the names that it lists
from cudakit.adapters.pycuda.driver_arrays import *  # noqa: F403  # the names that it lists
from cudakit.adapters.pycuda.enums import *  # noqa: F403  # the names that it lists
from cudakit.adapters.pycuda.errors import CompileError, Error, LaunchError, LogicError, MemoryError, RuntimeError
from cudakit.adapters.pycuda.functions import ArgumentHandler, Function, In, InOut, Module, Out
from cudakit.adapters.pycuda.host_memory import *  # noqa: F403  # the names that it lists
from cudakit.adapters.pycuda.linking import Linker, module_from_buffer, module_from_file
from cudakit.adapters.pycuda.streams import Event, Stream
from cudakit.adapters.pycuda.texture_references import (
    SurfaceReference,
    TextureReference,
    bind_array_to_texref,
    matrix_to_texref,
)

CUDA_DEBUGGING = False

#: Names of PyCUDA that are not here, and what to use.
ABSENT = {
    "IPCMemoryHandle": "cuda.core.Buffer.from_ipc_descriptor shares memory between processes",
    "mem_get_ipc_handle": "cuda.core.Buffer.ipc_descriptor shares memory between processes",
    "gl": "cuda.core.GraphicsResource shares buffers of OpenGL",
    "initialize_profiler": "CUDA 12 removed it; start_profiler and stop_profiler are here",
    "device_get_attributes": "Device.get_attributes() is the method",
}
__getattr__: Callable[[str], NoReturn] = missing(__name__, ABSENT)


def have_gl_ext() -> bool:
    """Return False: cudakit's PyCUDA has no OpenGL; cuda.core.GraphicsResource has."""
    return False


def set_debugging(flag: bool = True) -> None:
    """Do nothing: ``cudakit debug program.py`` steps through kernels of a program."""


__all__ = [
    "CUDA_DEBUGGING", "ArgumentHandler", "CompileError", "DeviceAllocation", "Error", "Event", "Function", "In",
    "InOut", "LaunchError", "Linker", "LogicError", "MemoryError", "Module", "Out", "PointerHolderBase",
    "RuntimeError", "Stream", "SurfaceReference", "TextureReference", "bind_array_to_texref", "have_gl_ext",
    "matrix_to_texref", "mem_alloc", "module_from_buffer", "module_from_file", "set_debugging",
]  # fmt: skip
__all__ += contexts.__all__
__all__ += copies.__all__
__all__ += driver_arrays.__all__
__all__ += enums.__all__
__all__ += host_memory.__all__
