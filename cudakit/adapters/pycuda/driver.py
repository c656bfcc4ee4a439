"""PyCUDA's driver module: memory, copies, streams, events, kernels, textures, devices and contexts."""

from __future__ import annotations

from typing import NoReturn

from cudakit.adapters.pycuda.allocations import DeviceAllocation, PointerHolderBase, mem_alloc
from cudakit.adapters.pycuda.contexts import (
    Context,
    Device,
    get_driver_version,
    get_version,
    init,
    mem_get_info,
    start_profiler,
    stop_profiler,
)
from cudakit.adapters.pycuda.copies import (
    from_device,
    from_device_like,
    mem_alloc_like,
    mem_alloc_pitch,
    mem_get_address_range,
    memcpy_dtod,
    memcpy_dtod_async,
    memcpy_dtoh,
    memcpy_dtoh_async,
    memcpy_htod,
    memcpy_htod_async,
    memcpy_peer,
    memcpy_peer_async,
    memset_d2d8,
    memset_d2d8_async,
    memset_d2d16,
    memset_d2d16_async,
    memset_d2d32,
    memset_d2d32_async,
    memset_d8,
    memset_d8_async,
    memset_d16,
    memset_d16_async,
    memset_d32,
    memset_d32_async,
)
from cudakit.adapters.pycuda.copies import to_device_memory as to_device
from cudakit.adapters.pycuda.driver_arrays import (
    Array,
    ArrayDescriptor,
    ArrayDescriptor3D,
    Memcpy2D,
    Memcpy3D,
    Memcpy3DPeer,
    dtype_to_array_format,
    gpuarray_to_array,
    make_multichannel_2d_array,
    matrix_to_array,
    memcpy_atoa,
    memcpy_atod,
    memcpy_atoh,
    memcpy_dtoa,
    memcpy_htoa,
    np_to_array,
)
from cudakit.adapters.pycuda.enums import (
    TR_DEFAULT,
    TRSA_OVERRIDE_FORMAT,
    TRSF_NORMALIZED_COORDINATES,
    TRSF_READ_AS_INTEGER,
    address_mode,
    array3d_flags,
    array_cubemap_face,
    array_format,
    compute_mode,
    ctx_flags,
    device_attribute,
    event_flags,
    filter_mode,
    func_cache,
    function_attribute,
    graphics_register_flags,
    host_alloc_flags,
    ipc_mem_flags,
    jit_fallback,
    jit_input_type,
    jit_option,
    jit_target,
    limit,
    mem_attach_flags,
    mem_host_register_flags,
    memory_type,
    pointer_attribute,
    profiler_output_mode,
    shared_config,
)
from cudakit.adapters.pycuda.errors import CompileError, Error, LaunchError, LogicError, MemoryError, RuntimeError
from cudakit.adapters.pycuda.functions import ArgumentHandler, Function, In, InOut, Module, Out
from cudakit.adapters.pycuda.host_memory import (
    AlignedHostAllocation,
    HostPointer,
    ManagedAllocation,
    PagelockedHostAllocation,
    RegisteredHostMemory,
    aligned_empty,
    aligned_empty_like,
    aligned_zeros,
    aligned_zeros_like,
    managed_empty,
    managed_empty_like,
    managed_zeros,
    managed_zeros_like,
    pagelocked_empty,
    pagelocked_empty_like,
    pagelocked_zeros,
    pagelocked_zeros_like,
    register_host_memory,
)
from cudakit.adapters.pycuda.linking import Linker, module_from_buffer, module_from_file
from cudakit.adapters.pycuda.streams import Event, Stream
from cudakit.adapters.pycuda.texture_references import (
    SurfaceReference,
    TextureReference,
    bind_array_to_texref,
    matrix_to_texref,
)

#: Other names of PyCUDA's for the same.
HostAllocation = PagelockedHostAllocation
ManagedAllocationOrStub = ManagedAllocation
py_memcpy_htoa = memcpy_htoa
py_memcpy_atoh = memcpy_atoh
CUDA_DEBUGGING = False

#: Names of PyCUDA that are not here, and what to use.
ABSENT = {
    "IPCMemoryHandle": "cuda.core.Buffer.from_ipc_descriptor shares memory between processes",
    "mem_get_ipc_handle": "cuda.core.Buffer.ipc_descriptor shares memory between processes",
    "gl": "cuda.core.GraphicsResource shares buffers of OpenGL",
    "initialize_profiler": "CUDA 12 removed it; start_profiler and stop_profiler are here",
    "device_get_attributes": "Device.get_attributes() is the method",
}


def __getattr__(name: str) -> NoReturn:
    """Raise for a name that is not here, and say what to use."""
    use = f": {ABSENT[name]}" if name in ABSENT else ""
    raise AttributeError(f"cudakit's pycuda.driver has no {name!r}{use}", name=name)


def have_gl_ext() -> bool:
    """Return False: cudakit's PyCUDA has no OpenGL; cuda.core.GraphicsResource has."""
    return False


def set_debugging(flag: bool = True) -> None:
    """Do nothing: ``cudakit debug program.py`` steps through kernels of a program."""


__all__ = [
    "CUDA_DEBUGGING", "TRSA_OVERRIDE_FORMAT", "TRSF_NORMALIZED_COORDINATES", "TRSF_READ_AS_INTEGER", "TR_DEFAULT",
    "AlignedHostAllocation", "ArgumentHandler", "Array", "ArrayDescriptor", "ArrayDescriptor3D", "CompileError",
    "Context", "Device", "DeviceAllocation", "Error", "Event", "Function", "HostAllocation", "HostPointer", "In",
    "InOut", "LaunchError", "Linker", "LogicError", "ManagedAllocation", "ManagedAllocationOrStub", "Memcpy2D",
    "Memcpy3D", "Memcpy3DPeer", "MemoryError", "Module", "Out", "PagelockedHostAllocation", "PointerHolderBase",
    "RegisteredHostMemory", "RuntimeError", "Stream", "SurfaceReference", "TextureReference", "address_mode",
    "aligned_empty", "aligned_empty_like", "aligned_zeros", "aligned_zeros_like", "array3d_flags",
    "array_cubemap_face", "array_format", "bind_array_to_texref", "compute_mode", "ctx_flags", "device_attribute",
    "dtype_to_array_format", "event_flags", "filter_mode", "from_device", "from_device_like", "func_cache",
    "function_attribute", "get_driver_version", "get_version", "gpuarray_to_array", "graphics_register_flags",
    "have_gl_ext", "host_alloc_flags", "init", "ipc_mem_flags", "jit_fallback", "jit_input_type", "jit_option",
    "jit_target", "limit", "make_multichannel_2d_array", "managed_empty", "managed_empty_like", "managed_zeros",
    "managed_zeros_like", "matrix_to_array", "matrix_to_texref", "mem_alloc", "mem_alloc_like", "mem_alloc_pitch",
    "mem_attach_flags", "mem_get_address_range", "mem_get_info", "mem_host_register_flags", "memcpy_atoa",
    "memcpy_atod", "memcpy_atoh", "memcpy_dtoa", "memcpy_dtod", "memcpy_dtod_async", "memcpy_dtoh",
    "memcpy_dtoh_async", "memcpy_htoa", "memcpy_htod", "memcpy_htod_async", "memcpy_peer", "memcpy_peer_async",
    "memory_type", "memset_d2d8", "memset_d2d8_async", "memset_d2d16", "memset_d2d16_async", "memset_d2d32",
    "memset_d2d32_async", "memset_d8", "memset_d8_async", "memset_d16", "memset_d16_async", "memset_d32",
    "memset_d32_async", "module_from_buffer", "module_from_file", "np_to_array", "pagelocked_empty",
    "pagelocked_empty_like", "pagelocked_zeros", "pagelocked_zeros_like", "pointer_attribute", "profiler_output_mode",
    "py_memcpy_atoh", "py_memcpy_htoa", "register_host_memory", "set_debugging", "shared_config", "start_profiler",
    "stop_profiler", "to_device",
]  # fmt: skip
