"""Modules of compiled code, their kernels, and the checked conversion of PyCUDA's arguments."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np

from cudakit.adapters.pycuda import copies
from cudakit.adapters.pycuda.allocations import (
    DeviceAllocation,
    address_of,
    address_of_array,
    array_at,
    mem_alloc,
    memory,
    rest_at,
)
from cudakit.adapters.pycuda.errors import LogicError, translated
from cudakit.adapters.pycuda.streams import finish_all, stream_of
from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.jit.compile.elf import bare_name, demangle
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.kernel.kernel import Module as Compiled
from cudakit.types.cpp import Named, Pointer, scalar_dtype, vector


class ArgumentHandler:
    """A host array as an argument: it gets device memory for the call."""

    def __init__(self, ary: Any) -> None:
        self.array = ary
        self.dev_alloc: Any = None

    def get_device_alloc(self) -> Any:
        """Return the device memory of the array, allocated at the first call."""
        if self.dev_alloc is None:
            if not hasattr(self.array, "nbytes"):
                raise ArgumentError(f"{type(self).__name__} takes a NumPy array, got {shortened(self.array)}")
            self.dev_alloc = mem_alloc(max(int(self.array.nbytes), 1))
        return self.dev_alloc

    def pre_call(self, stream: Any) -> None:
        """Prepare the device memory before the kernel: nothing to do."""


class In(ArgumentHandler):
    """A host array that a kernel reads."""

    def pre_call(self, stream: Any) -> None:
        """Copy the array to the device."""
        copies.memcpy_htod(self.get_device_alloc(), self.array)


class Out(ArgumentHandler):
    """A host array that a kernel writes. The device memory is not cleared before."""

    def post_call(self, stream: Any) -> None:
        """Wait for the kernel, and copy the array back."""
        if stream is not None:
            stream_of(stream).sync()
        copies.memcpy_dtoh(self.array, self.get_device_alloc())


class InOut(In, Out):
    """A host array that a kernel reads and writes."""


class Function:
    """A kernel, called as ``function(*arguments, block=(x, y, z), grid=(x, y))``.

    Attributes
    ----------
    kernel : Kernel
        cudakit's kernel.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __repr__(self) -> str:
        return f"<pycuda.driver.Function {self.kernel.name}>"

    def __call__(
        self,
        *args: Any,
        grid: Any = (1, 1),
        block: Any = None,
        shared: Any = 0,
        stream: Any = None,
        texrefs: Any = (),
        time_kernel: bool = False,
        **keywords: Any,
    ) -> float | None:
        """Launch the kernel.

        Parameters
        ----------
        *args : object
            NumPy scalars, device memory, GPUArrays, or host arrays in `In`, `Out`, `InOut`.
        grid, block : tuple of int
            Numbers of blocks, and of threads in a block.
        shared : int
            Bytes of dynamic shared memory.
        stream : Stream, optional
            Default: the default stream.
        texrefs : sequence of TextureReference
            Texture references; each is bound to the kernel already.
        time_kernel : bool
            Whether to wait for the kernel, and return its seconds.
        """
        if keywords:
            raise ValueError(f"extra keyword arguments: {','.join(keywords)}")
        if block is None:
            raise ValueError("must specify block size: give block=(x, y, z)")
        if time_kernel and stream is not None:
            raise AssertionError("time_kernel waits for the kernel: leave out stream=")
        handlers = [arg for arg in args if isinstance(arg, ArgumentHandler)]
        values = self._values(args)
        for handler in handlers:
            handler.pre_call(stream)
        if time_kernel:
            finish_all()
        begun = time.perf_counter()
        with translated():
            self.kernel(stream_of(stream), config(_extents(grid), _extents(block), int(shared or 0)), *values)
        after = [handler for handler in handlers if isinstance(handler, Out) or hasattr(handler, "post_call")]
        if (after and stream is None) or time_kernel:
            finish_all()
        seconds = time.perf_counter() - begun
        for handler in after:
            handler.post_call(stream)
        return seconds if time_kernel else None

    def _values(self, args: Any) -> list[Any]:
        """Return the arguments as cudakit's kernel takes them, checked against its parameters."""
        parameters = self.kernel.signature.parameters
        if parameters is None:
            return [_value(f"{self.kernel.name}: argument {k}", None, arg) for k, arg in enumerate(args)]
        if len(parameters) != len(args):
            names = ", ".join(f"{parameter.type} {parameter.name}" for parameter in parameters)
            raise ArgumentError(f"{self.kernel.name} takes {len(parameters)} arguments ({names}), got {len(args)}")
        return [
            _value(f"{self.kernel.name}: parameter {parameter.name or k} ({parameter.type})", parameter.type, arg)
            for k, (parameter, arg) in enumerate(zip(parameters, args, strict=True))
        ]


def _extents(extents: Any) -> tuple[int, ...]:
    try:
        return tuple(int(extent.__index__()) for extent in extents)
    except (TypeError, AttributeError):
        raise ArgumentError(f"block and grid are tuples of ints, got {shortened(extents)}") from None


def _value(where: str, cpp: Any, arg: Any) -> Any:
    """Return an argument as a kernel of cudakit takes it.

    Raises
    ------
    ArgumentError
        For an argument that PyCUDA would pass as wrong bytes, and one that it refuses.
    """
    dtype: Any = getattr(arg, "dtype", None)
    if isinstance(cpp, Pointer) or (cpp is None and not isinstance(arg, np.number | np.bool_ | np.void)):
        return _pointer(where, cpp, arg, dtype)
    if isinstance(arg, np.number | np.bool_):
        want = scalar_dtype(cpp) if cpp is not None else None
        if (
            want is not None
            and want != arg.dtype
            and want.itemsize == arg.itemsize
            and {want.kind, arg.dtype.kind} <= {*"iub"}
        ):
            return arg.view(want)  # the same bytes, as PyCUDA passes them
        return arg
    if isinstance(arg, np.void) or (isinstance(arg, np.ndarray) and arg.dtype.names is not None and arg.size == 1):
        return arg.reshape(())[()] if isinstance(arg, np.ndarray) else arg
    if isinstance(arg, bool | int | float | complex):
        want = scalar_dtype(cpp) if cpp is not None else None
        use = f"numpy.{want.name}({shortened(arg)})" if want is not None else "a NumPy scalar"
        raise ArgumentError(
            f"{where} takes a NumPy scalar, got {shortened(arg)}, a Python {type(arg).__name__}; give {use}"
        )
    return arg


def _pointer(where: str, cpp: Any, arg: Any, dtype: Any) -> Any:
    """Return a pointer argument as an array of the parameter's element type."""
    target = cpp.target if isinstance(cpp, Pointer) else None
    want = element_dtype(target)
    if isinstance(arg, ArgumentHandler):
        dtype, arg = getattr(arg.array, "dtype", None), arg.get_device_alloc()
    if arg is None:
        return None
    if isinstance(arg, bool | float | int | str | list | tuple) and type(arg) is not int:
        raise ArgumentError(f"{where} takes device memory, got {shortened(arg)}; give gpuarray.to_gpu(…) or drv.In(…)")
    if type(arg) is int:
        raise ArgumentError(
            f"{where} takes device memory, got {arg}, a Python int; give numpy.uintp({arg}) for an address"
        )
    if isinstance(arg, np.ndarray):
        if memory.at(address_of_array(arg)) is None:
            raise ArgumentError(
                f"{where} takes device memory, got a NumPy array of {arg.dtype} with shape {arg.shape} in host memory; "
                "give drv.In(a), drv.Out(a), drv.InOut(a) or gpuarray.to_gpu(a)"
            )
        arg = np.uintp(address_of_array(arg))
    elif isinstance(arg, np.integer):
        dtype = None
        if arg.itemsize != 8:
            raise ArgumentError(f"{where} takes an address of 8 bytes, got {arg.dtype} {arg}; give numpy.uintp({arg})")
    elif (
        not isinstance(arg, DeviceAllocation)
        and hasattr(arg, "__cuda_array_interface__")
        and not hasattr(arg, "gpudata")
    ):
        return arg
    if want is not None and dtype is not None and dtype != want and not _same_bytes(dtype, want):
        raise ArgumentError(
            f"{where} takes elements of {want}, got an array of {dtype}; convert it with a.astype(numpy.{want.name})"
        )
    address = address_of(arg)
    if not address:
        return None
    if want is None:
        return ctypes.c_void_p(address)
    return rest_at(address, want)


def _same_bytes(dtype: np.dtype, want: np.dtype) -> bool:
    """Return whether elements of `dtype` may be passed as `want`: integers of one size, and vectors of their parts."""
    if want.names is not None or want.kind == "c" or dtype.names is not None:
        return dtype.itemsize == want.itemsize or (want.names is not None and dtype == want[0])
    return dtype.itemsize == want.itemsize and {dtype.kind, want.kind} <= {*"iub"}


def element_dtype(cpp: Any) -> np.dtype | None:
    """Return the dtype of a C++ type: of a number, or of a vector such as float4; None for other types."""
    dtype = scalar_dtype(cpp) if cpp is not None else None
    if dtype is None and isinstance(cpp, Named) and (parts := vector(cpp.name)) is not None:
        return np.dtype([(name, parts[0]) for name in "xyzw"[: parts[1]]])
    return dtype


class Module:
    """Compiled code: kernels and variables."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled

    def get_function(self, name: str) -> Function:
        """Return the kernel with this name, which may be mangled.

        Raises
        ------
        LogicError
            If there is none.
        """
        try:
            return Function(self.compiled[bare_name(demangle(name)) if name.startswith("_Z") else name])
        except TemplateError as error:
            raise LogicError(f"cuModuleGetFunction failed: named symbol not found: {error}") from error


__all__ = ["ArgumentHandler", "Function", "In", "InOut", "Module", "Out", "array_at"]
