"""Modules of compiled code, their kernels, and the checked conversion of PyCUDA's arguments."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cudakit.adapters.emulated_device import resources_of
from cudakit.adapters.pycuda import copies
from cudakit.adapters.pycuda.allocations import (
    DeviceAllocation,
    address_of,
    address_of_array,
    mem_alloc,
    memory,
    rest_at,
    variable_at,
)
from cudakit.adapters.pycuda.enums import func_cache, function_attribute
from cudakit.adapters.pycuda.errors import LogicError, translated
from cudakit.adapters.pycuda.prepared import PreparedCall, converted, fits, letters_of
from cudakit.adapters.pycuda.streams import Event, finish_all, stream_of
from cudakit.adapters.pycuda.texture_references import SurfaceReference, TextureReference
from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.jit.compile.mangled import readable_name
from cudakit.jit.launch.launch import CallShape
from cudakit.jit.load.config import config
from cudakit.jit.specialise.specialise import resolved
from cudakit.kernel.kernel import Kernel
from cudakit.kernel.kernel import Module as Compiled
from cudakit.places import device_limits
from cudakit.streams import devices
from cudakit.streams.witnesses import warn_at_call
from cudakit.types.arguments import texture_handle
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

    prepared_call: Callable[..., None]
    prepared_async_call: Callable[..., None]
    kernel: Kernel

    def __init__(self, kernel: Kernel, module: Module) -> None:
        self.kernel, self._module = kernel, module
        self._dynamic_bytes: int | None = None
        #: By types and dtypes of arguments: the generated call, once a call with such arguments was checked.
        self._calls: dict[tuple[Any, ...], PreparedCall] = {}

    def __getattr__(self, name: str) -> Any:
        if name in ("prepared_call", "prepared_async_call"):
            raise LogicError(f"{self.kernel.name} is not prepared; call prepare('P…') before {name}")
        if name.startswith("_") or not hasattr(function_attribute, name.upper()):
            raise AttributeError(f"a pycuda.driver.Function has no {name!r}", name=name, obj=self)
        return self.get_attribute(getattr(function_attribute, name.upper()))

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
        if not time_kernel:
            forms = tuple([(type(arg), getattr(arg, "dtype", None)) for arg in args])
            repeated = self._calls.get(forms)
            if repeated is None and (letters := _letters(args)) is not None and fits(letters, self._parameters):
                repeated = self._calls[forms] = self._call_of(letters, self._values)
            if repeated is not None:
                if stream is None:
                    repeated.call(grid, block, *args, shared_size=shared)
                else:
                    repeated.async_call(grid, block, stream, *args, shared_size=shared)
                return None
        handlers = [arg for arg in args if isinstance(arg, ArgumentHandler)]
        values = self._values(args)
        for handler in handlers:
            handler.pre_call(stream)
        if time_kernel:
            finish_all()
        begun = time.perf_counter()
        self._launch(grid, block, stream, values, shared)
        after = [handler for handler in handlers if isinstance(handler, Out) or hasattr(handler, "post_call")]
        if (after and stream is None) or time_kernel:
            finish_all()
        seconds = time.perf_counter() - begun
        for handler in after:
            handler.post_call(stream)
        return seconds if time_kernel else None

    def _launch(self, grid: Any, block: Any, stream: Any, values: Sequence[Any], shared: Any) -> Any:
        """Launch with checked arguments, and return the configuration."""
        with translated():
            launch_config = config(_extents("grid", grid), _extents("block", block), int(shared or 0))
            self._module.write_references()
            self.kernel(stream_of(stream), launch_config, *values)
        return launch_config

    def prepare(self, arg_types: Any, texrefs: Any = ()) -> Function:
        """Say the arguments' types for `prepared_call` and its kin, and return the function.

        Parameters
        ----------
        arg_types : str or sequence
            Letters as of `struct` (``"PPi"``, P for memory), or a sequence of dtypes, of letters, and of other objects
            for memory.
        texrefs : sequence of TextureReference
            Texture references; each is bound to the kernel already.
        """
        letters = letters_of(arg_types)
        prepared = self._call_of(letters, lambda args: self._values(converted(letters, args)))
        self.prepared_call, self.prepared_async_call = prepared.call, prepared.async_call
        return self

    def _call_of(self, letters: tuple[str, ...], values_of: Callable[[Any], list[Any]]) -> PreparedCall:
        """Return the generated call for types of arguments; `values_of` checks the arguments of a call in full."""

        def check(grid: Any, block: Any, stream: Any, args: Any, shared: int) -> tuple[Any, ...] | None:
            values = values_of(args)
            launch_config = self._launch(grid, block, stream, values, shared)
            shape = self.kernel.dispatcher.shapes[0] if self.kernel.dispatcher.shapes else None
            if not isinstance(shape, CallShape) or self._module.references or not fits(letters, self._parameters):
                return None
            shape.loaded.holders.add(prepared)
            resolved = shape.loaded.launch_config(launch_config, shape.device_id)
            target = shape.target(stream_of(stream))
            return None if target is None else (shape.run, target.core, resolved, shape.loaded.kernel)

        prepared = PreparedCall(letters, check)
        return prepared

    def prepared_timed_call(self, grid: Any, block: Any, *args: Any, **keywords: Any) -> Callable[[], float]:
        """Make a prepared call, and return a function that waits for it and returns its seconds."""
        begin, end = Event().record(), Event()
        self.prepared_call(grid, block, *args, **keywords)
        end.record()
        return lambda: end.synchronize().time_since(begin) * 1e-3

    def get_attribute(self, attribute: Any) -> int:
        """Return an attribute of `function_attribute`: registers, shared memory and others."""
        name = function_attribute(int(attribute)).name
        with translated():
            limits = device_limits()
            resources = attributes_of(self.kernel)
        capability = 10 * limits.compute_capability[0] + limits.compute_capability[1]
        values = resources | {
            "PTX_VERSION": capability, "BINARY_VERSION": capability, "CACHE_MODE_CA": 0,
            "PREFERRED_SHARED_MEMORY_CARVEOUT": -1,
            "MAX_DYNAMIC_SHARED_SIZE_BYTES": 49152 - resources["SHARED_SIZE_BYTES"],
        }  # fmt: skip
        if self._dynamic_bytes is not None:
            values["MAX_DYNAMIC_SHARED_SIZE_BYTES"] = self._dynamic_bytes
        if name not in values:
            raise LogicError(f"cuFuncGetAttribute failed: invalid value: cudakit does not know {name}")
        return int(values[name])

    def set_attribute(self, attribute: Any, value: int) -> None:
        """Set an attribute; a launch raises the limit of dynamic shared memory by itself."""
        if int(attribute) == function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES:
            most = device_limits().shared_bytes
            if not 0 <= value <= most:
                raise LogicError(f"cuFuncSetAttribute failed: invalid value: {value} of {most} bytes of shared memory")
            self._dynamic_bytes = int(value)
        elif int(attribute) != function_attribute.PREFERRED_SHARED_MEMORY_CARVEOUT:
            raise LogicError(
                "cuFuncSetAttribute failed: invalid value: MAX_DYNAMIC_SHARED_SIZE_BYTES and "
                "PREFERRED_SHARED_MEMORY_CARVEOUT can be set"
            )

    def set_cache_config(self, fc: Any) -> None:
        """Do nothing: the preference between cache and shared memory changes no result."""
        func_cache(int(fc))

    def param_set_texref(self, texref: Any) -> None:
        """Do nothing: a texture reference is bound to all kernels of its module."""

    @functools.cached_property
    def _parameters(self) -> tuple[tuple[str, Any], ...] | None:
        """Names and types of the parameters, without aliases; None if the code does not tell them."""
        parameters, declarations = self.kernel.signature.parameters, self.kernel.module.declarations
        if parameters is None:
            return None
        return tuple((parameter.name, _plain(parameter.type, declarations)) for parameter in parameters)

    def _values(self, args: Any) -> list[Any]:
        """Return the arguments as cudakit's kernel takes them, checked against its parameters."""
        parameters = self._parameters
        if parameters is None:
            return [_value(f"{self.kernel.name}: argument {k}", None, arg) for k, arg in enumerate(args)]
        if len(parameters) != len(args):
            names = ", ".join(f"{cpp} {name}" for name, cpp in parameters)
            raise ArgumentError(f"{self.kernel.name} takes {len(parameters)} arguments ({names}), got {len(args)}")
        return [
            _value(f"{self.kernel.name}: parameter {name or k} ({cpp})", cpp, arg)
            for k, ((name, cpp), arg) in enumerate(zip(parameters, args, strict=True))
        ]


def _letters(args: Any) -> tuple[str, ...] | None:
    """Return the letters of arguments' types, as `prepare` takes them; None if one is neither memory nor a number."""
    letters = []
    for arg in args:
        if isinstance(arg, DeviceAllocation) or (hasattr(arg, "gpudata") and hasattr(arg, "dtype")):
            letters.append("P")
        elif isinstance(arg, np.number):
            letters.append(arg.dtype.char)
        else:
            return None
    return tuple(letters)


def _plain(cpp: Any, declarations: Any) -> Any:
    """Return a type without aliases of numbers and of pointers to them."""
    if isinstance(cpp, Pointer):
        return cpp._replace(target=_plain(cpp.target, declarations))
    return resolved(cpp, declarations)


def _extents(name: str, extents: Any) -> tuple[int, ...]:
    try:
        result = tuple(int(extent.__index__()) for extent in extents)
    except (TypeError, AttributeError):
        raise ArgumentError(f"{name} is a tuple of up to three ints, got {shortened(extents)}") from None
    if not all(extent > 0 for extent in result):
        raise LogicError(f"cuLaunchKernel failed: invalid value: {name} is {result}; give numbers from 1 up")
    return result


def attributes_of(kernel: Kernel) -> dict[str, int]:
    """Return the resources of a kernel, by their names in `function_attribute`."""
    if devices.has_gpu():
        device_attributes: Any = kernel.attributes()
        return {
            "NUM_REGS": device_attributes.registers, "SHARED_SIZE_BYTES": device_attributes.shared_bytes,
            "LOCAL_SIZE_BYTES": device_attributes.spill_bytes, "CONST_SIZE_BYTES": device_attributes.constant_bytes,
            "MAX_THREADS_PER_BLOCK": device_attributes.max_threads_per_block,
        }  # fmt: skip
    return {name.upper(): value for name, value in resources_of(kernel).items()}


def _value(where: str, cpp: Any, arg: Any) -> Any:
    """Return an argument as a kernel of cudakit takes it.

    Raises
    ------
    ArgumentError
        For an argument that PyCUDA would pass as wrong bytes, and one that it refuses.
    """
    dtype: Any = getattr(arg, "dtype", None)
    if isinstance(cpp, Pointer) or _is_memory(arg):
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
        if want is not None and want.itemsize != arg.itemsize:
            raise ArgumentError(
                f"{where} has {want.itemsize} bytes, got {arg.dtype} {arg}, which has {arg.itemsize}: "
                f"give numpy.{want.name}(…)"
            )
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


def _is_memory(arg: Any) -> bool:
    """Return whether an argument is device memory, by its class or protocols."""
    return isinstance(arg, DeviceAllocation | ArgumentHandler) or any(
        hasattr(arg, name) for name in ("gpudata", "get_pointer", "__cuda_array_interface__")
    )


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
            from cudakit.emulator.face import DeviceArray  # of programs that have run kernels it is loaded

            if isinstance(arg, DeviceArray):
                return arg  # CuPy's stand-in has made it
            raise ArgumentError(
                f"{where} takes device memory, got a NumPy array of {arg.dtype} with shape {arg.shape} in host memory; "
                "give drv.In(a), drv.Out(a), drv.InOut(a) or gpuarray.to_gpu(a)"
            )
        arg = np.uintp(address_of_array(arg))
    elif isinstance(arg, np.integer):
        dtype = None
        if arg.itemsize != 8:
            raise ArgumentError(f"{where} takes an address of 8 bytes, got {arg.dtype} {arg}; give numpy.uintp({arg})")
    elif not isinstance(arg, DeviceAllocation) and not hasattr(arg, "gpudata"):
        interface = getattr(arg, "__cuda_array_interface__", None)
        if interface is not None:
            dtype, arg = np.dtype(interface["typestr"]), np.uintp(interface["data"][0])
    if want is not None and dtype is not None and dtype != want and not _same_bytes(dtype, want):
        message = f"{where} takes elements of {want}, got an array of {dtype}"
        if dtype.itemsize != want.itemsize:
            raise ArgumentError(f"{message}; convert it with a.astype(numpy.{want.name})")
        warn_at_call(f"{message}: their bytes are passed as they are", UserWarning)
    address = address_of(arg)
    if target is None:
        return np.uint64(address)  # of compiled code, which tells the size of the parameter only
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
    """Compiled code: kernels and variables.

    Attributes
    ----------
    compiled : Module
        cudakit's module.
    references : dict
        Texture and surface references by name.
    """

    def __init__(self, compiled: Compiled, references: Mapping[str, Any] | None = None) -> None:
        self.compiled = compiled
        self.references: dict[str, Any] = dict(references or {})
        self._globals: dict[str, Any] = {}

    def get_function(self, name: str) -> Function:
        """Return the kernel with this name, which may be mangled.

        Raises
        ------
        LogicError
            If there is none.
        """
        try:
            return Function(self.compiled[readable_name(name)], self)
        except TemplateError as error:
            raise LogicError(f"cuModuleGetFunction failed: named symbol not found: {error}") from error

    def get_global(self, name: str) -> tuple[int, int]:
        """Return the address of a variable, and its bytes.

        Raises
        ------
        LogicError
            If there is none.
        """
        try:
            with translated():
                address, size = self.compiled.globals.address(name)
        except TemplateError as error:
            raise LogicError(f"cuModuleGetGlobal failed: named symbol not found: {error}") from error
        if name not in self._globals:
            self._globals[name] = variable_at(address, size)
        return int(address), int(size)

    def get_texref(self, name: str) -> TextureReference:
        """Return a texture reference of the source.

        Raises
        ------
        LogicError
            If there is none.
        """
        reference: TextureReference = self._reference("cuModuleGetTexRef", name, TextureReference)
        return reference

    def get_surfref(self, name: str) -> SurfaceReference:
        """Return a surface reference of the source.

        Raises
        ------
        LogicError
            If there is none.
        """
        reference: SurfaceReference = self._reference("cuModuleGetSurfRef", name, SurfaceReference)
        return reference

    def _reference(self, call: str, name: str, reference_class: Any) -> Any:
        reference = self.references.get(name)
        if not isinstance(reference, reference_class):
            names = ", ".join(name for name in self.references if isinstance(self.references[name], reference_class))
            raise LogicError(f"{call} failed: named symbol not found: no {name}; the source has {names or 'none'}")
        return reference

    def write_references(self) -> None:
        """Write the objects that references were bound to since the last launch."""
        for reference in self.references.values():
            if reference.is_new:
                handle = texture_handle(reference.bound())
                self.compiled.globals.write(reference.variable, np.array([handle], np.uint64).view(np.uint8))
