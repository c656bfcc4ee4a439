"""An adapter for kernels of Numba-CUDA, which Numba compiles to PTX without a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from cudakit.errors import ArgumentError, shortened
from cudakit.generate.declarations import CPP_WORDS
from cudakit.jit.launch.code_place import in_order, wrong_count
from cudakit.jit.launch.dispatch import MISSING
from cudakit.jit.load.config import Config, Cover
from cudakit.jit.specialise.options import CompileOptions
from cudakit.kernel.kernel import Kernel
from cudakit.places import place_of

#: Function that returns an array or record in the kernel's memory, and the kernel's argument for it.
View: TypeAlias = Callable[[Any], tuple[Any, Any]]
T = TypeVar("T")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")


#: Kernels' functions of CUDA's device runtime by which a grid of Numba's synchronises.
_GRID_SYNC = """
#include <cooperative_groups.h>
extern "C" __device__ unsigned long long cudaCGGetIntrinsicHandle(cudaCGScope) { return 1; }
extern "C" __device__ cudaError_t cudaCGSynchronize(unsigned long long, unsigned int) {
    cooperative_groups::this_grid().sync();
    return cudaSuccess;
}
"""


class NumbaKernel:
    """A kernel of Numba's, called as cudakit's are: arrays and numbers are converted to Numba's parameters.

    Attributes
    ----------
    kernels : dict
        Compiled kernels, by Numba's types of their arguments.
    """

    #: Whether the code takes arrays as MLIR's memrefs.
    _is_memref = False

    def __init__(self, function: Any) -> None:
        self._function = function
        self._defaults = {name: p.default for name, p in inspect.signature(function).parameters.items()}
        self.kernels: dict[Any, Kernel] = {}
        self._cooperative: set[Any] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._function.__name__}>"

    def __call__(self, stream: Any, config: Config | Cover, /, *arguments: Any, **named: Any) -> None:
        """Launch the kernel.

        Parameters
        ----------
        stream : stream
            Stream to launch on.
        config : Config or Cover
            Launch configuration.
        *arguments : array or number
            Numbers, C-contiguous arrays, and tuples of these.
        **named : array or number
            The same, by the names of the function's parameters. A parameter without an argument has its default.

        Raises
        ------
        ArgumentError
            For an unknown name, for two arguments of one parameter, and for too few or too many arguments.
        """
        if named or len(arguments) != len(self._defaults):
            arguments = self._in_order(arguments, named)
        types_of = tuple(map(self.type_of, arguments))
        self.launch(stream, config, types_of, arguments, lambda array: (array, array))

    def _in_order(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments of a call in the order of the function's parameters, with its defaults."""
        title, names = self._function.__name__, (*self._defaults,)
        ordered = in_order(title, names, arguments, named)
        values = [
            default if value is MISSING else value
            for value, default in zip(ordered, self._defaults.values(), strict=False)
        ]
        missing = [name for name, value in zip(names, values, strict=True) if value is inspect.Parameter.empty]
        if missing or len(ordered) > len(names):
            more = f": missing {', '.join(missing)}" if missing else ""
            raise wrong_count(title, len(names), len(arguments) + len(named), f" ({', '.join(names)})", more)
        return (*values,)

    def launch(self, stream: Any, config: Config | Cover, types_of: Sequence[Any], arguments: Any, view: View) -> None:
        """Launch the kernel with arguments of Numba's types; `view` is that of `append_parameters`."""
        kernel = self.kernels.get(types_of)
        if kernel is None:
            arch = place_of(stream).limits(stream).compute_capability
            text = self._compile(types_of, arch)
            names = self._function.__code__.co_varnames
            head = signature_of(self._function.__name__, types_of, names, self._is_memref)
            kernel = self.kernels[types_of] = from_ptx(text, head)
            if synchronises(text):
                self._cooperative.add(types_of)
        if types_of in self._cooperative and isinstance(config, Config):
            config = config._replace(cooperative=True)
        parameters: list[Any] = []
        for of_type, argument in zip(types_of, arguments, strict=True):
            append_parameters(parameters, of_type, argument, view, self._is_memref)
        kernel(stream, config, *parameters)

    def type_of(self, value: Any) -> Any:
        """Return Numba's type of an argument."""
        return _type_of(value)

    def _compile(self, types_of: Sequence[Any], arch: tuple[int, int]) -> str:
        from numba import cuda, types

        with _compiling_for(arch):
            compiled = functools.partial(cuda.compile_ptx, self._function, types.void(*types_of), cc=arch)
            text: str = with_lines(lambda lines: compiled(**lines))[0]
        return text


def with_lines(make: Callable[[dict[str, Any]], T]) -> T:
    """Return the result of a function that compiles with options, which have lines of Python if Numba can write these.

    It cannot for empty tuples, nor for a function of nothing but a docstring.
    """
    try:
        return make({"lineinfo": True})
    except (ArithmeticError, LookupError):
        return make({})


class MlirKernel(NumbaKernel):
    """A kernel of numba-cuda-mlir's, called as cudakit's are."""

    _is_memref = True

    def __init__(self, dispatcher: Any) -> None:
        super().__init__(dispatcher.py_func)
        self._dispatcher = dispatcher

    def type_of(self, value: Any) -> Any:
        return self._dispatcher.typeof_pyval(value)

    def _compile(self, types_of: Sequence[Any], arch: tuple[int, int]) -> str:
        from numba_cuda_mlir import cuda, tools

        former = vars(tools).get("_cached_cc")
        vars(tools)["_cached_cc"] = arch  # the compiler asks the GPU here, if it knows none
        try:
            options = {name: self._dispatcher.targetoptions.get(name) for name in ("fastmath", "opt")}
            options = {name: value for name, value in options.items() if value is not None}
            text: str = cuda.compile_ptx(self._function, tuple(types_of), cc=arch, lineinfo=True, **options)[0]
        finally:
            vars(tools)["_cached_cc"] = former
        return text


def from_numba(kernel: Any) -> NumbaKernel:
    """Convert a kernel of Numba-CUDA's to cudakit's.

    Parameters
    ----------
    kernel : function
        Function that is, or could be, decorated with ``numba.cuda.jit``, or one that is decorated with
        ``numba_cuda_mlir.cuda.jit``.

    Returns
    -------
    NumbaKernel
        The kernel, called as ``kernel(stream, config, *arguments)``, with arguments by position or by name. Numba
        compiles it for the types of the arguments.

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
    is_of_mlir = type(kernel).__module__.partition(".")[0] == "numba_cuda_mlir"
    return MlirKernel(kernel) if is_of_mlir else NumbaKernel(function)


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


def synchronises(text: str) -> bool:
    """Return whether PTX uses a grid as a group, for which its launches must be cooperative."""
    return "cudaCG" in text


def from_ptx(text: str, signature: str, links: Sequence[Any] = ()) -> Kernel:
    """Return the kernel of PTX that Numba has compiled, with the name of a signature in place of Numba's.

    `links` are linked to it.
    """
    linked = [*links, *([_GRID_SYNC] if synchronises(text) else ())]
    options = CompileOptions(link=linked) if linked else None
    match, name = _ENTRY.search(text), signature.partition("(")[0].rpartition(" ")[2]
    renamed = text.replace(match[1], name) if match is not None else text
    return Kernel.from_ptx(renamed, name, signature=signature, options=options)


def _type_of(value: Any) -> Any:
    """Return Numba's type of a kernel's argument."""
    from numba import types

    if isinstance(value, tuple):
        return types.BaseTuple.from_types([_type_of(part) for part in value], type(value))
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        if isinstance(value, bool):
            return types.boolean
        if isinstance(value, int):
            return types.int64 if -(2**63) <= value < 2**63 else types.uint64
        if isinstance(value, float | complex):
            return types.float64 if isinstance(value, float) else types.complex128
        raise ArgumentError(
            f"from_numba: an argument is an array, a number or a tuple, got {type(value).__name__}: {shortened(value)}"
        )
    from numba.np import numpy_support

    element = numpy_support.from_dtype(dtype)
    if isinstance(value, np.generic):
        return element
    flags = value.flags
    return types.Array(element, value.ndim, "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A")


#: C++ types of Numba's numbers, by the name of the type.
_NUMBERS = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short",
    "int32": "int", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long",
    "float16": "unsigned short", "float32": "float", "float64": "double",
}  # fmt: skip


def _integer(of_type: Any, value: Any) -> int:
    """Return an integer, of which an array of the type would have the same bits, as Numba passes it."""
    name = str(of_type)
    bits = int(name.lstrip("uint"))
    number = int(value) & (1 << bits) - 1
    return number - (1 << bits) if name[0] == "i" and number >> (bits - 1) else number


def _float(of_type: Any, value: Any) -> Any:
    return int(np.float16(value).view(np.uint16)) if str(of_type) == "float16" else float(value)


def _time(of_type: Any, value: Any) -> int:
    return int(value.view(np.int64))


#: For Numba's classes of types that are one number: the C++ type, and the function that converts a value.
_SCALARS: dict[str, tuple[Callable[[Any], str], Callable[[Any, Any], Any]]] = {
    "Boolean": (lambda of_type: "bool", lambda of_type, value: bool(value)),
    "Integer": (lambda of_type: _NUMBERS[str(of_type)], _integer),
    "Float": (lambda of_type: _NUMBERS[str(of_type)], _float),
    "NPDatetime": (lambda of_type: "long long", _time),
    "NPTimedelta": (lambda of_type: "long long", _time),
    "CPointer": (lambda of_type: "void*", lambda of_type, value: ctypes.c_void_p(value)),
}


def signature_of(function: str, types: Sequence[Any], names: Sequence[str], is_memref: bool = False) -> str:
    """Return the C++ signature of the code that Numba compiles for a kernel.

    Parameters
    ----------
    function : str
        Name of the kernel.
    types : sequence of numba.types.Type
        Numba's types of the arguments.
    names : sequence of str
        Names of the arguments; missing ones are numbered.
    is_memref : bool
        Whether the code takes arrays as MLIR's memrefs.
    """
    parameters: list[str] = []
    for place, of_type in enumerate(types):
        name = names[place] if place < len(names) and names[place].isascii() else f"argument{place}"
        _declare(parameters, of_type, f"{name}_" if name in CPP_WORDS else name, is_memref)
    return f"void {function}({', '.join(parameters)})"


def _declare(parameters: list[str], of_type: Any, name: str, is_memref: bool) -> None:
    """Append the declarations of the parameters that Numba's compiled code takes for an argument."""
    for base in _class_names(of_type.__class__):
        if base == "Array" and is_memref:
            parameters += (f"void* {name}", f"void* {name}__aligned", f"long long {name}__offset")
            parameters += (f"long long {name}__{part}{n}" for part in ("shape", "stride") for n in range(of_type.ndim))
        elif base == "Complex" and is_memref:
            parameters.append(f"{_NUMBERS[str(of_type.underlying_float)]}2 {name}")
        elif base == "Array":
            parameters += (f"unsigned long long {name}__{part}" for part in ("meminfo", "parent"))
            parameters += (f"long long {name}__size", f"long long {name}__itemsize", f"void* {name}")
            parameters += (f"long long {name}__{part}{n}" for part in ("shape", "stride") for n in range(of_type.ndim))
        elif base == "Record":
            parameters.append(f"void* {name}")
        elif base == "Complex":
            parameters += (f"{_NUMBERS[str(of_type.underlying_float)]} {name}__{part}" for part in ("real", "imag"))
        elif base == "BaseTuple":
            for place, element_type in enumerate(of_type):
                _declare(parameters, element_type, f"{name}__{place}", is_memref)
        elif base == "EnumMember":
            _declare(parameters, of_type.dtype, name, is_memref)
        elif base in _SCALARS:
            parameters.append(f"{_SCALARS[base][0](of_type)} {name}")
        else:
            continue
        return
    raise NotImplementedError(of_type)


def append_parameters(parameters: list[Any], of_type: Any, value: Any, view: View, is_memref: bool = False) -> None:
    """Append the parameters that Numba's compiled code takes for an argument.

    For an array: two zeros, its numbers of elements and of bytes an element, the array, its shape and strides
    in bytes.

    Parameters
    ----------
    parameters : list
        List to append to.
    of_type : numba.types.Type
        Numba's type of the argument.
    value : object
        Argument.
    view : callable
        Function that takes an array or record, and returns it with shape and strides, and as a kernel's argument.
    is_memref : bool
        Whether the code takes arrays as MLIR's memrefs: the array twice, an offset, its shape and strides in elements.

    Raises
    ------
    NotImplementedError
        For a type that Numba does not pass to kernels.
    """
    for base in _class_names(of_type.__class__):
        if base == "Array" and is_memref:
            array, argument = view(value)
            steps = (step // array.dtype.itemsize for step in array.strides)
            parameters += (argument, argument, 0, *map(int, array.shape), *map(int, steps))
        elif base == "Complex" and is_memref:
            parameters.append(np.array([value.real, value.imag], str(of_type.underlying_float)))
        elif base == "Array":
            array, argument = view(value)
            parameters += (0, 0, int(array.size), array.dtype.itemsize, argument)
            parameters += map(int, (*array.shape, *array.strides))
        elif base == "Record":
            parameters.append(view(value)[1])
        elif base == "Complex":
            parameters += (float(value.real), float(value.imag))
        elif base == "BaseTuple":
            for element_type, part in zip(of_type, value, strict=True):
                append_parameters(parameters, element_type, part, view, is_memref)
        elif base == "EnumMember":
            append_parameters(parameters, of_type.dtype, value.value, view, is_memref)
        elif base in _SCALARS:
            parameters.append(_SCALARS[base][1](of_type, value))
        else:
            continue
        return
    raise NotImplementedError(of_type, value)


@functools.cache
def _class_names(cls: Any) -> tuple[str, ...]:
    """Return the names of a class and its bases: Numba and numba-cuda have classes of types of their own."""
    return tuple(base.__name__ for base in cls.__mro__)
