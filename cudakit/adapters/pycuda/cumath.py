"""Functions of ``pycuda.cumath``: of each element of a GPUArray, with the array's dtype."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from cudakit.adapters.pycuda.array_arithmetic import calculate
from cudakit.adapters.pycuda.array_class import GPUArray
from cudakit.errors import ArgumentError

_Map: TypeAlias = Callable[..., GPUArray]
#: NumPy's names of the functions that are called otherwise there.
_NUMPY_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}


def _unary(name: str) -> _Map:
    """Return the function with this name."""

    def evaluate(
        array: GPUArray, stream_or_out: Any = None, *, out: GPUArray | None = None, stream: Any = None
    ) -> GPUArray:
        if stream_or_out is not None:
            warnings.warn(f"{name}: name the argument: out= or stream=", DeprecationWarning, stacklevel=2)
            if isinstance(stream_or_out, GPUArray):
                out = stream_or_out
            else:
                stream = stream_or_out
        return _evaluated(name, (array,), _output(name, array) if out is None else _check(name, array, out), stream)

    evaluate.__name__ = evaluate.__qualname__ = name
    evaluate.__doc__ = f"Return {name} of each element, in `out` or a new array of the same dtype."
    return evaluate


def _output(name: str, array: GPUArray) -> GPUArray:
    if not isinstance(array, GPUArray):
        raise ArgumentError(f"{name} takes a GPUArray, got {type(array).__name__}; call gpuarray.to_gpu")
    return array.new_like_me()


def _check(name: str, array: GPUArray, out: GPUArray) -> GPUArray:
    """Return `out`.

    Raises
    ------
    ArgumentError
        It has not the dtype, the shape and the strides of the array.
    """
    if (out.dtype, out.shape, out.strides) != (array.dtype, array.shape, array.strides):
        raise ArgumentError(
            f"{name}: out is {array.dtype} of shape {array.shape} and strides {array.strides}, got {out.dtype} of "
            f"{out.shape} and {out.strides}"
        )
    return out


def _evaluated(name: str, arrays: Any, out: GPUArray, stream: Any, part: int | None = None) -> GPUArray:
    """Store the function of arrays in `out`; `part` is the number of the result, of a function with two."""
    numpy_name = _NUMPY_NAMES.get(name, name)
    if part is None and name != "ldexp" and all(array.dtype.kind in "fc" for array in arrays):
        return calculate(name, numpy_name, arrays, out, stream)

    def function(xp: Any, *values: Any) -> Any:
        floats = [value.astype(np.float64) if value.dtype.kind in "iub" else value for value in values]
        if name == "ldexp":
            floats[1] = floats[1].astype(np.int32)
        result = getattr(xp, numpy_name)(*floats)
        return result if part is None else result[part]

    return calculate(name, function, arrays, out, stream)


fabs: _Map = _unary("fabs")
ceil: _Map = _unary("ceil")
floor: _Map = _unary("floor")
exp: _Map = _unary("exp")
log: _Map = _unary("log")
log10: _Map = _unary("log10")
sqrt: _Map = _unary("sqrt")
sin: _Map = _unary("sin")
cos: _Map = _unary("cos")
tan: _Map = _unary("tan")
asin: _Map = _unary("asin")
acos: _Map = _unary("acos")
atan: _Map = _unary("atan")
sinh: _Map = _unary("sinh")
cosh: _Map = _unary("cosh")
tanh: _Map = _unary("tanh")


def fmod(arg: GPUArray, mod: GPUArray, stream: Any = None) -> GPUArray:
    """Return the remainder of ``arg / mod``, with the sign of `arg`."""
    return _evaluated("fmod", (arg, mod), _output("fmod", arg), stream)


def ldexp(significand: GPUArray, exponent: GPUArray, stream: Any = None) -> GPUArray:
    """Return ``significand * 2**int(exponent)``."""
    return _evaluated("ldexp", (significand, exponent), _output("ldexp", significand), stream)


def frexp(arg: GPUArray, stream: Any = None) -> tuple[GPUArray, GPUArray]:
    """Return significands and exponents: ``arg = significand * 2**exponent``. Both have the dtype of `arg`."""
    significand, exponent = (_evaluated("frexp", (arg,), _output("frexp", arg), stream, part) for part in (0, 1))
    return significand, exponent


def modf(arg: GPUArray, stream: Any = None) -> tuple[GPUArray, GPUArray]:
    """Return the fractional and the integral parts; both have the dtype of `arg`."""
    fraction, integral = (_evaluated("modf", (arg,), _output("modf", arg), stream, part) for part in (0, 1))
    return fraction, integral
