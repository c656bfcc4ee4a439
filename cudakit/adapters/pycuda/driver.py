"""PyCUDA's driver module: memory, copies, streams, events, kernels, devices and contexts."""

from __future__ import annotations

from cudakit.adapters.pycuda.allocations import DeviceAllocation, mem_alloc
from cudakit.adapters.pycuda.contexts import Context, Device, init
from cudakit.adapters.pycuda.copies import (
    memcpy_dtod,
    memcpy_dtod_async,
    memcpy_dtoh,
    memcpy_dtoh_async,
    memcpy_htod,
    memcpy_htod_async,
)
from cudakit.adapters.pycuda.errors import CompileError, Error, LaunchError, LogicError, MemoryError, RuntimeError
from cudakit.adapters.pycuda.functions import ArgumentHandler, Function, In, InOut, Module, Out
from cudakit.adapters.pycuda.streams import Event, Stream

__all__ = [
    "ArgumentHandler", "CompileError", "Context", "Device", "DeviceAllocation", "Error", "Event", "Function", "In",
    "InOut", "LaunchError", "LogicError", "MemoryError", "Module", "Out", "RuntimeError", "Stream", "init", "mem_alloc",
    "memcpy_dtod", "memcpy_dtod_async", "memcpy_dtoh", "memcpy_dtoh_async", "memcpy_htod", "memcpy_htod_async",
]  # fmt: skip
