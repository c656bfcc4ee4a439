"""Variance, standard deviation and norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.arrays.elements import accumulator, cpp
from cudakit.arrays.layout import Axis
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.ops.reduction import NamedReduction, Reducer

_FLOAT64 = np.dtype(np.float64)
_FLOAT32 = np.dtype(np.float32)


@repeated("out")
def var(
    x: Any, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Σ |x − mean|² / (n − ddof) along `axis`, as `numpy.var` has it.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integer, floating point or complex.
    axis : int, several, or None
        None: all of them.
    ddof : float
        What the number of elements n is lessened by, to 0 at least.
    keepdims : bool
        Whether reduced axes stay, with length 1.
    out : array, optional
        Where the result goes: its shape, and its dtype or one that it is cast to within its kind.
    stream : stream, optional
        Default: CuPy's current one.

    Returns
    -------
    array
        float64 for integers and bool, real for complex x, else of x's dtype. Computed in double for integers, in float
        for float16 and bfloat16, else in x's precision; infinite or NaN, without a warning, where n ≤ ddof. The same
        bits on each run, as for `sum`.

    Raises
    ------
    ArgumentError
        For an axis out of range, a dtype of no numbers, an `out` that does not fit.

    Notes
    -----
    One pass: mean and squares about it for the elements in a thread's registers, put together by the formulae of Chan,
    Golub and LeVeque (1979); for 8 bits from exact sums. Nothing cancels, however far the mean is from 0. Unlike
    NumPy's there is no `dtype`, `mean` or `where`.
    """
    return _VAR(x, axis=axis, keepdims=keepdims, option=_lessened("var", ddof), out=out, stream=stream)


@repeated("out")
def std(
    x: Any, axis: Axis = None, *, ddof: float = 0, keepdims: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """√(Σ |x − mean|² / (n − ddof)) along `axis`, as `numpy.std` has it.

    Parameters, result and errors are those of `var`.
    """
    return _STD(x, axis=axis, keepdims=keepdims, option=_lessened("std", ddof), out=out, stream=stream)


@repeated("out")
def norm(
    x: Any,
    axis: Axis = None,
    *,
    ord: float = 2,
    keepdims: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """√Σ |x|² along `axis`, or Σ |x| for ord=1, max |x| for ord=inf.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integer, floating point or complex.
    axis : int, several, or None
        None: all of them.
    ord : {2, 1, inf}
    keepdims : bool
        Whether reduced axes stay, with length 1.
    out : array, optional
        Where the result goes: its shape, and its dtype or one that it is cast to within its kind.
    stream : stream, optional
        Default: CuPy's current one.

    Returns
    -------
    array
        float64 for integers and bool, real for complex x, else of x's dtype; accumulated as `sum` does it. Squares are
        not scaled: they overflow where |x| is beyond the root of the largest number of the accumulator.

    Raises
    ------
    ArgumentError
        For another ord, ord=inf of no elements, an axis out of range, a dtype of no numbers, an `out` that does
        not fit.

    Notes
    -----
    Unlike `numpy.linalg.norm` these are vector norms over any number of axes, never a matrix's, and float16 squares do
    not overflow.
    """
    if ord.__class__ is not int and ord.__class__ is not float:
        raise ArgumentError(f"norm: ord must be 2, 1 or inf, got {ord!r}")
    return _NORM(x, axis=axis, keepdims=keepdims, option=ord, out=out, stream=stream)


def _lessened(op: str, ddof: float) -> float:
    if (ddof.__class__ is not int and ddof.__class__ is not float) or ddof != ddof:
        raise ArgumentError(f"{op}: ddof must be a number, got {ddof!r}")
    return ddof


def _real(op: str, dtype: np.dtype) -> np.dtype:
    """Real floating-point dtype of a result."""
    cpp(op, dtype)
    if dtype.kind in "biu":
        return _FLOAT64
    if dtype.kind == "c":
        return _FLOAT32 if dtype.itemsize == 8 else _FLOAT64
    return dtype


def _spread(op: str, dtype: np.dtype, ddof: float, finish: str) -> Reducer:
    result = _real(op, dtype)
    if dtype.kind in "biu" and dtype.itemsize == 1:
        return Reducer(f"cudakit::byte_spread<cudakit::{finish}>", result, 24, ddof=float(ddof))
    real, size = accumulator(op, result)
    mean, mean_size = accumulator(op, dtype) if dtype.kind == "c" else (real, size)
    # Mean, squares and count, each aligned to its size, 16 bytes at most.
    alignment = 16 if mean_size == 16 else 8
    state_bytes = -(-(-(-(mean_size + size) // 8) * 8 + 8) // alignment) * alignment
    return Reducer(f"cudakit::spread<{mean}, {real}, cudakit::{finish}>", result, state_bytes, ddof=float(ddof))


def _var(op: str, ddof: float, dtype: np.dtype) -> Reducer:
    return _spread(op, dtype, ddof, "unchanged")


def _std(op: str, ddof: float, dtype: np.dtype) -> Reducer:
    return _spread(op, dtype, ddof, "root")


def _norm(op: str, order: float, dtype: np.dtype) -> Reducer:
    result = _real(op, dtype)
    kept, size = accumulator(op, result)
    if order == 2:
        return Reducer(f"cudakit::folded<cudakit::plus, {kept}, cudakit::square, cudakit::root>", result, size)
    if order == 1:
        return Reducer(f"cudakit::folded<cudakit::plus, {kept}, cudakit::magnitude>", result, size)
    if order == float("inf"):
        return Reducer(f"cudakit::folded<cudakit::maximum, {kept}, cudakit::magnitude>", result, size, empty=False)
    raise ArgumentError(f"{op}: ord must be 2, 1 or inf, got {order!r}")


_VAR, _STD, _NORM = NamedReduction("var", _var), NamedReduction("std", _std), NamedReduction("norm", _norm)
