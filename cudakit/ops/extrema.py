"""Least and greatest elements, and where they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.arrays.layout import Axis
from cudakit.arrays.output import as_dtype, cpp
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.generate.ufuncs import Ufunc
from cudakit.ops.reduction import NamedReduction, Reducer
from cudakit.types.checked import dtype_or_none

_INT64 = np.dtype(np.int64)


@repeated("out")
def min(
    x: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Least x along `axis`, as `numpy.min` has it: NaN where there is one.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integer, floating point or complex (by real part, then imaginary part).
    axis : int, several, or None
        None: all of them.
    keepdims : bool
        Whether reduced axes stay, with length 1.
    initial : number, optional
        What elements are compared with too, by one small kernel more: the result of no elements.
    where : array of bool, optional
        Broadcast to x's shape: which elements count.
    out : array, optional
        Where the result goes: its shape, and x's dtype or one that it is cast to within its kind.
    stream : stream, optional
        Default: CuPy's current one.

    Returns
    -------
    array
        Of x's dtype. Which NaN, and which of −0 and +0, is not said.

    Raises
    ------
    ArgumentError
        For no elements, an axis out of range, a dtype of no numbers, an `out` that does not fit.

    Notes
    -----
    With `where` there must be an `initial`, for results that no element is chosen for.
    """
    named: Any = {"initial": initial, "where": where, "combine": _MINIMUM}
    return _MIN(x, axis=axis, keepdims=keepdims, option="minimum", out=out, stream=stream, **named)


@repeated("out")
def max(
    x: Any,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Greatest x along `axis`, as `numpy.max` has it: NaN where there is one.

    Parameters, result and errors are those of `min`.
    """
    named: Any = {"initial": initial, "where": where, "combine": _MAXIMUM}
    return _MAX(x, axis=axis, keepdims=keepdims, option="maximum", out=out, stream=stream, **named)


@repeated("out")
def argmin(
    x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Index of the first least x along `axis`, int64, as `numpy.argmin` has it: of the first NaN where there is one.

    Parameters and errors are those of `min`; `dtype` is an integer one of the result, as CuPy has it. For several axes,
    which NumPy's does not take, and for None the index is
    of their elements in row-major order.
    """
    return _ARGMIN(
        x,
        axis=axis,
        keepdims=keepdims,
        option=("minimum", dtype_or_none("argmin: dtype", dtype)),
        out=out,
        stream=stream,
    )


@repeated("out")
def argmax(
    x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Index of the first greatest x along `axis`, int64, as `numpy.argmax` has it: of the first NaN where there is one.

    Parameters and errors are those of `argmin`.
    """
    return _ARGMAX(
        x,
        axis=axis,
        keepdims=keepdims,
        option=("maximum", dtype_or_none("argmax: dtype", dtype)),
        out=out,
        stream=stream,
    )


def _compared(op: str, dtype: np.dtype) -> tuple[str, int]:
    """What elements are compared in, which holds each of them, and its size in bytes."""
    spelled = cpp(op, dtype)
    if dtype.itemsize <= 2:
        return ("int" if dtype.kind in "biu" else "float"), 4
    return spelled, dtype.itemsize


def _extreme(op: str, monoid: str, dtype: np.dtype) -> Reducer:
    kept, size = _compared(op, dtype)
    return Reducer(f"cudakit::folded<cudakit::{monoid}, {kept}>", dtype, size, empty=False)


def _position(op: str, option: tuple[str, Any], dtype: np.dtype) -> Reducer:
    monoid, wanted = option
    result = _INT64 if wanted is None else as_dtype(op, wanted)
    if result.kind not in "iu":
        raise ArgumentError(f"{op}: dtype is {result}; indices are integers")
    kept, size = _compared(op, dtype)
    # Value, padded to the alignment of the index, then the index.
    state_bytes = 32 if size == 16 else 16
    return Reducer(f"cudakit::position<cudakit::{monoid}, {kept}>", result, state_bytes, empty=False, in_order=True)


_MINIMUM, _MAXIMUM = Ufunc("minimum"), Ufunc("maximum")
_MIN, _MAX = NamedReduction("min", _extreme), NamedReduction("max", _extreme)
_ARGMIN, _ARGMAX = NamedReduction("argmin", _position), NamedReduction("argmax", _position)
