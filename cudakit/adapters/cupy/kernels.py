"""A stand-in for CuPy's own kernels: CUDA C++ by cudakit, on the emulator."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudakit.adapters import emulated_device
from cudakit.adapters.compiler_options import compile_options
from cudakit.adapters.cupy.arrays import ndarray, plain, refuse_host_arrays, wrapped
from cudakit.adapters.cupy.capture import CAPTURE
from cudakit.adapters.cupy.device import current_stream
from cudakit.adapters.cupy.memory import BaseMemory, MemoryPointer
from cudakit.adapters.cupy.texture import SurfaceObject, TextureObject
from cudakit.emulator.face import EmulatorPlace, as_device
from cudakit.errors import ArgumentError, CudakitError
from cudakit.generate.elementwise import elementwise
from cudakit.generate.reduction import reduction
from cudakit.jit.load.config import config
from cudakit.jit.source.source import Source, from_file, from_text
from cudakit.jit.specialise.options import CompileOptions
from cudakit.kernel.kernel import Kernel, Module, module_of_source, of_source
from cudakit.types.cpp import CppType, Named, Pointer, spelling, vector, without_const

#: Types of C++ that take elements of any dtype, or of a complex dtype.
_OPEN_TYPES = ("void", "complex", "cuComplex", "cuFloatComplex", "cuDoubleComplex")


def _size(value: Any) -> tuple[int, ...]:
    return tuple(map(int, value)) if isinstance(value, tuple | list) else (int(value),)


def _pointed(array: Any, target: CppType) -> Any:
    """Return an array as the argument for a pointer to `target`, which CuPy passes with any strides and any dtype."""
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        array = array.T
    if not array.flags.c_contiguous:
        return ctypes.c_void_p(array.data.ptr)
    plain_target = without_const(target)
    named = plain_target if isinstance(plain_target, Named) and plain_target.arguments is not None else None
    if named is not None and array.dtype.names is None and named.name.rpartition("::")[2] not in _OPEN_TYPES:
        return array.reshape(-1).view(np.uint8)
    return array


class Function:
    """A kernel, called as CuPy's: ``kernel(grid, block, args)``. It runs on the emulator.

    The resources (``num_regs`` and its kin) are those that the compiler reports for an H100.

    Attributes
    ----------
    max_dynamic_shared_size_bytes : int
        Dynamic shared memory that a launch may have, in bytes. It limits nothing here.
    preferred_shared_memory_carveout : int
        Preferred part of the cache for shared memory, in percent. It changes nothing here.
    """

    enable_cooperative_groups: bool

    def __init__(self, kernel: Kernel, is_cooperative: bool = False) -> None:
        self._kernel, self.enable_cooperative_groups = kernel, is_cooperative
        self.max_dynamic_shared_size_bytes: int = 48 << 10
        self.preferred_shared_memory_carveout: int = -1

    def __call__(self, grid: Any, block: Any, args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None) -> None:
        launch = config(
            _size(grid), _size(block), shared_bytes=int(shared_mem), cooperative=self.enable_cooperative_groups
        )
        arguments = map(self._argument, range(len(args)), args)
        CAPTURE.do(functools.partial(self._kernel, current_stream(), launch, *arguments))

    def _argument(self, number: int, value: Any) -> Any:
        """Return an argument of CuPy's as one of cudakit's.

        An address is a ``ctypes.c_void_p``, a struct its bytes, and an array is what its pointer reaches.
        """
        if isinstance(value, SurfaceObject | TextureObject):
            return value.own
        if isinstance(value, MemoryPointer | BaseMemory):
            value = value.ptr
        parameters = self._kernel.signature.parameters or ()
        cpp = without_const(parameters[number].type) if number < len(parameters) else None
        if isinstance(cpp, Pointer):
            if isinstance(value, int | np.integer) and not isinstance(value, bool):
                return ctypes.c_void_p(int(value))
            return _pointed(value, cpp.target) if isinstance(value, ndarray) else value
        if isinstance(value, np.ndarray) and not isinstance(value, ndarray) and value.size == 1:
            value = value.reshape(-1)[0]
        if isinstance(value, np.void) and value.dtype.names is not None:
            is_vector = isinstance(cpp, Named) and vector(cpp.name) is not None
            return value.item() if is_vector else np.frombuffer(value.tobytes(), f"V{value.nbytes}")[0]
        return value

    def __getattr__(self, name: str) -> Any:
        if name in _ATTRIBUTES:
            return self.attributes[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @property
    def kernel(self) -> Function:
        """The kernel itself, as its compiled form."""
        return self

    @property
    def attributes(self) -> dict[str, int]:
        """Resources of the kernel, by CUDA's names."""
        own = ("max_dynamic_shared_size_bytes", "preferred_shared_memory_carveout")
        return emulated_device.resources_of(self._kernel) | {name: getattr(self, name) for name in own}


_ATTRIBUTES = (
    "binary_version", "cache_mode_ca", "const_size_bytes", "local_size_bytes", "max_threads_per_block",
    "num_regs", "ptx_version", "shared_size_bytes",
)  # fmt: skip


class RawKernel(Function):
    """A stand-in for ``cupy.RawKernel``.

    Parameters
    ----------
    code : str
        CUDA C++.
    name : str
        Name of the kernel.
    options : sequence of str
        Flags of the compiler.
    backend : str
        ``"nvrtc"`` or ``"nvcc"``. The compiler is NVRTC.
    translate_cucomplex, jitify : bool
        Options of CuPy's compile, which change nothing here.
    enable_cooperative_groups : bool
        Whether the kernel may wait for its whole grid.
    """

    def __init__(
        self,
        code: str,
        name: str,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        *,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
    ) -> None:
        self.code: str = code
        self.name: str = name
        self.options: tuple[str, ...] = tuple(options)
        self.backend: str = backend
        self.file_path: None = None
        super().__init__(_kernel_of(from_text(code, 2), name, compile_options(options)[0]), enable_cooperative_groups)

    def compile(self, log_stream: Any = None) -> None:
        """Compile the kernel now."""
        self._kernel.prepare(arch=EmulatorPlace().limits().arch)


def _kernel_of(source: Source, name: str, options: CompileOptions) -> Kernel:
    """Return a kernel of a source; the name may have template arguments, as in ``scale<float>``."""
    kernel = of_source(source, name.partition("<")[0], options)
    return kernel.module[name] if "<" in name else kernel


class RawModule:
    """A stand-in for ``cupy.RawModule``.

    Parameters
    ----------
    code, path : str, optional
        CUDA C++, or a file of it.
    options : sequence of str
        Flags of the compiler.
    backend, translate_cucomplex, jitify, enable_cooperative_groups :
        As for `RawKernel`.
    name_expressions : sequence of str, optional
        Kernels, with their template arguments. `get_function` finds others too.
    """

    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | None = None,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Sequence[str] | None = None,
        jitify: bool = False,
    ) -> None:
        if (code is None) == (path is None):
            raise CudakitError("RawModule takes code or a path")
        self.code: str | None = code
        self.file_path: str | None = path
        self.options: tuple[str, ...] = tuple(options)
        self.backend: str = backend
        self.name_expressions: Sequence[str] | None = name_expressions
        self.enable_cooperative_groups: bool = enable_cooperative_groups
        self._options = compile_options(options)[0]
        self._source = from_text(code, 2) if code is not None else from_file(str(path))
        self.module = self

    def get_function(self, name: str) -> Function:
        """Return the kernel with this name. The name may have template arguments, as in ``scale<float>``."""
        return Function(_kernel_of(self._source, name, self._options), self.enable_cooperative_groups)

    def get_global(self, name: str) -> MemoryPointer:
        """Return a pointer to a variable of the module."""
        address, size = self._module.globals.address(name)
        return MemoryPointer(BaseMemory(address, size, self._module), 0)

    def compile(self, log_stream: Any = None) -> None:
        """Compile the kernels that need no template arguments, and those of `name_expressions`."""
        self._module.prepare(*(self.name_expressions or ()), arch=EmulatorPlace().limits().arch)

    @functools.cached_property
    def _module(self) -> Module:
        return module_of_source(self._source, self._options)


def _computed(function: Callable[..., Any], inputs: Any, outputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Run a generated kernel, or record it; return its outputs."""

    def call(targets: tuple[Any, ...]) -> Any:
        out = targets[0] if len(targets) == 1 else targets or None
        return function(*inputs, out=out, stream=current_stream(), **options)

    if outputs:
        CAPTURE.do(lambda: call(outputs))
        return outputs[0] if len(outputs) == 1 else outputs
    result = wrapped(as_device(call(())))
    if CAPTURE.actions is not None:
        targets = result if isinstance(result, tuple) else (result,)
        CAPTURE.actions.append(lambda: call(targets))
    return result


def _count(parameters: str) -> int:
    return len([parameter for parameter in parameters.split(",") if parameter.strip()])


class _Generated:
    """A kernel of an expression. Where its preamble uses type variables, a kernel is made for each set of dtypes."""

    def __init__(self, declarations: Sequence[str], preamble: str, make: Callable[..., Any]) -> None:
        self._make, self._declarations, self.preamble = make, tuple(declarations), preamble
        parameters = [_DECLARED.match(text.strip()) for part in declarations for text in part.split(",")]
        self._types = [match[1] if match is not None else "" for match in parameters]
        self._open = {name for name in self._types if re.search(rf"\b{name}\b", preamble) and len(name) == 1}
        self._functions: dict[Any, Any] = {}

    def function(self, args: Sequence[Any]) -> Any:
        """Return cudakit's function for these arguments."""
        dtypes: dict[str, np.dtype] = {}
        for name, value in [*zip(self._types, args, strict=False)]:
            dtype = getattr(value, "dtype", None)
            if name in self._open and dtype is not None:
                dtypes[name] = dtype
        if self._open - dtypes.keys():
            numbers = [value for name, value in zip(self._types, args, strict=False) if name in self._open]
            dtypes |= dict.fromkeys(self._open - dtypes.keys(), np.result_type(*numbers, *dtypes.values()))
        key = tuple(sorted(dtypes.items()))
        if key not in self._functions:
            declarations, preamble = self._declarations, self.preamble
            for name, dtype in dtypes.items():
                declarations = tuple(re.sub(rf"\b{name}(?= +\w)", dtype.name, part) for part in declarations)
                preamble = f"typedef {spelling(dtype)} {name};\n{preamble}"
            self._functions[key] = self._make(*declarations, preamble)
        return self._functions[key]


_DECLARED = re.compile(r"(?:raw +)?(?:const +)?(\w+)")


class ElementwiseKernel:
    """A stand-in for ``cupy.ElementwiseKernel``, with its parameters."""

    return_tuple: bool

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
        *,
        options: Sequence[str] = (),
        loop_prep: str = "",
        after_loop: str = "",
        **keywords: Any,
    ) -> None:
        if after_loop:
            raise ArgumentError(f"{name}: after_loop has no counterpart on the emulator: write a RawKernel")
        self.operation: str = operation
        self.name: str = name
        self.preamble: str = preamble
        self.reduce_dims: bool = reduce_dims
        self.nin: int = _count(in_params)
        self.nout: int = _count(out_params)
        self.nargs: int = self.nin + self.nout
        self._returns, self.return_tuple = not no_return, return_tuple
        body = f"{loop_prep};\n{operation}" if loop_prep else operation
        chosen = compile_options(options)[0] if options else None

        def make(inputs: str, outputs: str, before: str) -> Any:
            return elementwise(inputs, outputs, body, name, preamble=before, options=chosen)

        self._generated = _Generated((in_params, out_params), preamble, make)

    def __call__(self, *args: Any, size: int | None = None, block_size: int = 128, stream: Any = None) -> Any:
        if len(args) not in (self.nin, self.nargs):
            raise ArgumentError(
                f"{self.name} takes {self.nin} arguments, or {self.nargs} with outputs, got {len(args)}"
            )
        refuse_host_arrays(self.name, args)
        result = _computed(self._generated.function(args), args[: self.nin], args[self.nin :], {"size": size})
        if self.return_tuple and not isinstance(result, tuple):
            result = (result,)
        return result if self._returns else None


class ReductionKernel:
    """A stand-in for ``cupy.ReductionKernel``, with its parameters."""

    name: str
    preamble: str
    identity: Any

    def __init__(
        self,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: Any,
        name: str = "reduce_kernel",
        reduce_type: str | None = None,
        reduce_dims: bool = True,
        preamble: str = "",
        options: Sequence[str] = (),
    ) -> None:
        self.name, self.preamble, self.identity, self._inputs = name, preamble, identity, _count(in_params)
        chosen, start = compile_options(options)[0] if options else None, str(identity) if identity is not None else ""

        def make(inputs: str, outputs: str, before: str) -> Any:
            return reduction(
                inputs, outputs, map_expr, reduce_expr, start or None, post_map_expr, name, preamble=before,
                acc=reduce_type, options=chosen,
            )  # fmt: skip

        self._generated = _Generated((in_params, out_params), preamble, make)

    def __call__(
        self, *args: Any, out: Any = None, axis: Any = None, keepdims: bool = False, stream: Any = None
    ) -> Any:
        refuse_host_arrays(self.name, args)
        outputs = args[self._inputs :] or (() if out is None else (out,))
        function = self._generated.function(args)
        return _computed(function, args[: self._inputs], outputs, {"axis": axis, "keepdims": keepdims})


def fuse(*args: Any, **kwargs: Any) -> Any:
    """Return a function that runs its operations one by one, in place of a fused kernel."""
    return args[0] if args and callable(args[0]) else lambda function: function


class vectorize:
    """A stand-in for ``cupy.vectorize``: the Python function, called on the host for each element.

    Parameters
    ----------
    pyfunc : callable
        Function of numbers.
    otypes : str or sequence of dtype, optional
        Dtypes of the results.
    doc : str, optional
        Docstring.
    excluded : set
        Not supported, as in CuPy.
    """

    pyfunc: Any
    otypes: Any

    def __init__(
        self, pyfunc: Any, otypes: Any = None, doc: str | None = None, excluded: Any = None, **keywords: Any
    ) -> None:
        self.pyfunc, self.otypes, self.__doc__ = pyfunc, otypes, doc or pyfunc.__doc__
        self._call = np.vectorize(pyfunc, otypes)

    def __call__(self, *args: Any) -> Any:
        refuse_host_arrays("vectorize", args)
        return wrapped(self._call(*map(plain, args)))
