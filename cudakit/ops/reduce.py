"""Sums, products, tests and dot products, over everything or along axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.arrays.layout import Axis
from cudakit.arrays.output import accumulator, as_dtype, cpp, real_part
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.generate.ufuncs import Ufunc
from cudakit.ops.reduction import NamedReduction, Reducer
from cudakit.types.checked import dtype_or_none

_INT64, _FLOAT64, _BOOL = np.dtype(np.int64), np.dtype(np.float64), np.dtype(bool)


@repeated("out")
def sum(
    x: Any,
    axis: Axis = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Σ x along `axis`, as `numpy.sum` has it.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integer, floating point (float16 and bfloat16 too) or complex.
    axis : int, several, or None
        None: all of them.
    dtype : dtype, optional
        Of the result. Default: int64 or uint64 for integers and bool, else x's.
    keepdims : bool
        Whether reduced axes stay, with length 1.
    initial : number, optional
        What it begins with: added by one small kernel more.
    where : array of bool, optional
        Broadcast to x's shape: which elements count.
    out : array, optional
        Where the result goes: its shape, and its dtype or one that it is cast to within its kind. Without `dtype`
        integers are added up to it as they are.
    stream : stream, optional
        Default: CuPy's current one.

    Returns
    -------
    array
        Of 0 where there are no elements. Added up in 64 bits for integers, modulo 2^64; in float for float16 and
        bfloat16; in the result's dtype else: a tree over what a thread holds in registers, a running sum a thread, a
        tree over threads and blocks. The order depends on shape, strides and the number of multiprocessors alone (on
        the emulator 16, whatever device it stands for), so that every run on every stream of a device gives the same
        bits.

    Raises
    ------
    ArgumentError
        For an axis out of range, a dtype that does not add up, an `out` that does not fit.

    Notes
    -----
    As NumPy's, dtype=bool tells whether any element is not 0, and a real dtype takes the real parts of complex ones.
    After Harris, Optimizing parallel reduction in CUDA (2007).
    """
    dtype = dtype_or_none("sum: dtype", dtype)
    option = _asked(x, dtype, out)
    named: Any = {"initial": initial, "where": where, "combine": _ADD}
    return _SUM(real_part(x, dtype), axis=axis, keepdims=keepdims, option=option, out=out, stream=stream, **named)


@repeated("out")
def prod(
    x: Any,
    axis: Axis = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Π x along `axis`, as `numpy.prod` has it: 1 where there are no elements.

    Parameters, result dtype, accumulation and errors are those of `sum`.
    """
    dtype = dtype_or_none("prod: dtype", dtype)
    option = _asked(x, dtype, out)
    named: Any = {"initial": initial, "where": where, "combine": _MULTIPLY}
    return _PROD(real_part(x, dtype), axis=axis, keepdims=keepdims, option=option, out=out, stream=stream, **named)


@repeated("out")
def mean(
    x: Any,
    axis: Axis = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    where: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Σ x / n along `axis`, as `numpy.mean` has it.

    Parameters and errors are those of `sum`. The result is float64 for integers and bool, which are added up
    exactly (in double where they have 64 bits), else of x's dtype; NaN, without a warning, where there are no elements.
    An integer `dtype` has the quotient cut toward zero. There is no `initial`, as NumPy's has none.
    """
    dtype = dtype_or_none("mean: dtype", dtype)
    return _MEAN(real_part(x, dtype), axis=axis, keepdims=keepdims, option=dtype, out=out, stream=stream, where=where)


@repeated("out")
def any(
    x: Any, axis: Axis = None, *, keepdims: bool = False, where: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """Whether x ≠ 0 somewhere along `axis`, bool, as `numpy.any` has it: NaN is not 0.

    Parameters and errors are those of `sum`. Every element is read.
    """
    return _ANY(x, axis=axis, keepdims=keepdims, out=out, stream=stream, where=where)


@repeated("out")
def all(
    x: Any, axis: Axis = None, *, keepdims: bool = False, where: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """Whether x ≠ 0 everywhere along `axis`, bool, as `numpy.all` has it: NaN is not 0.

    Parameters and errors are those of `sum`. Every element is read.
    """
    return _ALL(x, axis=axis, keepdims=keepdims, out=out, stream=stream, where=where)


@repeated("out")
def count_nonzero(x: Any, axis: Axis = None, *, keepdims: bool = False, out: Any = None, stream: Any = None) -> Any:
    """Number of elements x ≠ 0 along `axis`, int64, as `numpy.count_nonzero` has it: NaN is not 0.

    Parameters and errors are those of `sum`.
    """
    return _COUNT(x, axis=axis, keepdims=keepdims, out=out, stream=stream)


@repeated("out")
def dot(x: Any, y: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Σ x[i] · y[i] of two vectors, in one pass over both, as `numpy.dot` has it: without conjugation.

    Parameters
    ----------
    x, y : array (n,)
        Any strides, any two dtypes that NumPy promotes to one that has a dot product here.
    out : array (), optional
    stream : stream, optional

    Returns
    -------
    array ()
        Of the promoted dtype: integers modulo its range, bool as "x and y somewhere". Accumulated as `sum` does it,
        integers in the result's own width.

    Raises
    ------
    ArgumentError
        For what is no pair of vectors of one length; other products are those of `matmul` and `matvec`.
    """
    return _DOT(x, y, out=out, stream=stream)


def _result(op: str, dtype: np.dtype, wanted: Any) -> np.dtype:
    """Dtype of a sum: as asked for, or NumPy's, which has 64 bits for integers."""
    cpp(op, dtype)
    if wanted is None:
        if dtype.kind in "bi":
            return _INT64
        return np.dtype(np.uint64) if dtype.kind == "u" else dtype
    result = as_dtype(op, wanted)
    cpp(op, result, "dtype")
    return result


def _asked(x: Any, dtype: Any, out: Any) -> Any:
    """The dtype of a sum: as asked for, or NumPy's for what goes to an `out`, which has that of both."""
    if dtype is not None or out is None:
        return dtype
    own, given = getattr(x, "dtype", None), getattr(out, "dtype", None)
    if not isinstance(own, np.dtype) or not isinstance(given, np.dtype) or own == given:
        return given
    try:
        found: np.dtype = np.promote_types(own, given)
    except TypeError:
        return None
    # What is not of a kind that takes it is for `out` to refuse.
    return found if np.can_cast(found, given, "same_kind") and own.kind != "b" else None


def _folded(op: str, dtype: np.dtype, result: np.dtype, monoid: str, finish: str = "unchanged") -> Reducer:
    if result.kind == "b":
        return _tested(op, dtype, "either" if monoid == "plus" else "both")
    kept, size = accumulator(op, result)
    return Reducer(f"cudakit::folded<cudakit::{monoid}, {kept}, cudakit::itself, cudakit::{finish}>", result, size)


def _sum(op: str, wanted: Any, dtype: np.dtype) -> Reducer:
    return _folded(op, dtype, _result(op, dtype, wanted), "plus")


def _prod(op: str, wanted: Any, dtype: np.dtype) -> Reducer:
    return _folded(op, dtype, _result(op, dtype, wanted), "times")


def _mean(op: str, wanted: Any, dtype: np.dtype) -> Reducer:
    if wanted is None and dtype.kind in "biu":
        # Exactly in 64 bits, where no number of elements that fits a device overflows them.
        kept = _result(op, dtype, None) if dtype.itemsize <= 4 else _FLOAT64
        return _folded(op, dtype, kept, "plus", "divided")._replace(dtype=_FLOAT64)
    result = _result(op, dtype, wanted)
    if result.kind == "b":
        raise ArgumentError(f"{op}: dtype bool cannot hold a mean; take a number's")
    # Of integers: added up as such, and cut toward zero once they are divided, as NumPy's.
    return _folded(op, dtype, result, "plus", "divided")


def _tested(op: str, dtype: np.dtype, monoid: str) -> Reducer:
    cpp(op, dtype)
    return Reducer(f"cudakit::folded<cudakit::{monoid}, int, cudakit::nonzero>", _BOOL, 4)


def _any(op: str, _: None, dtype: np.dtype) -> Reducer:
    return _tested(op, dtype, "either")


def _all(op: str, _: None, dtype: np.dtype) -> Reducer:
    return _tested(op, dtype, "both")


def _count(op: str, _: None, dtype: np.dtype) -> Reducer:
    cpp(op, dtype)
    return Reducer("cudakit::folded<cudakit::plus, long long, cudakit::nonzero>", _INT64, 8)


def _dot(op: str, _: None, first: np.dtype, second: np.dtype) -> Reducer:
    for dtype in (first, second):
        cpp(op, dtype)
    try:
        result: np.dtype = np.promote_types(first, second)
    except TypeError:
        raise ArgumentError(f"{op}: {first} and {second} have no dtype in common; convert one of them") from None
    kept, size = accumulator(op, result)
    monoid = "plus"
    if result.kind == "b":
        kept, size, monoid = "int", 4, "either"
    elif result.kind in "iu" and result.itemsize <= 4:
        # The low bits are the same, at a fraction of the cost.
        kept, size = "unsigned int", 4
    return Reducer(f"cudakit::folded<cudakit::{monoid}, {kept}, cudakit::product>", result, size)


_ADD, _MULTIPLY = Ufunc("add"), Ufunc("multiply")
_SUM, _PROD, _MEAN = NamedReduction("sum", _sum), NamedReduction("prod", _prod), NamedReduction("mean", _mean)
_ANY, _ALL, _COUNT = NamedReduction("any", _any), NamedReduction("all", _all), NamedReduction("count_nonzero", _count)
_DOT = NamedReduction("dot", _dot, ("x", "y"))
