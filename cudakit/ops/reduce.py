"""Reductions by NumPy's names, over all elements or along axes: sums, products, tests, extrema, variances, norms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from cudakit.arrays.layout import Axis, axis_of, without
from cudakit.arrays.output import accumulator, as_dtype, cpp, real_part, target
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, shortened
from cudakit.generate.ufuncs import Ufunc, assign
from cudakit.ops.copies import delivered
from cudakit.ops.reduction import NamedReduction, Reducer
from cudakit.types.checked import dtype_or_none, flag, is_one_of, real
from cudakit.types.cpp import NARROW

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
    """Σ x along `axis`, as ``numpy.sum``.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool, integers, floating point (float16 and bfloat16 too) or complex.
    axis : int, several, or None
        Axes to reduce. None: all axes.
    dtype : dtype, optional
        Dtype of the result. Default: int64 or uint64 for integers and bool, else x's dtype.
    keepdims : bool
        Whether reduced axes stay, with length 1.
    initial : number, optional
        Value added to the sum, by one more small kernel.
    where : array of bool, optional
        Mask of the elements that count, broadcast to x's shape.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast). Without `dtype`, integers are added up before the cast.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        The sum; 0 for no elements. Integers are summed in 64 bits, modulo 2^64. Float16 and bfloat16 are summed in
        float32, other dtypes in the result's dtype.

        The sum is a tree over a thread's registers, a running sum of each thread, and a tree over threads and
        blocks. The order depends only on shape, strides, the number of multiprocessors and the tuned points of the
        card. Every run on every stream of a device therefore gives the same bits. The emulator always has 16
        multiprocessors, and no tuned points.

    Raises
    ------
    ArgumentError
        The axis is out of range, the dtype cannot be summed, or `out` does not fit.

    Notes
    -----
    As in NumPy, dtype=bool returns whether any element is not 0, and a real dtype sums the real parts of complex
    elements.

    After Harris, Optimizing parallel reduction in CUDA (2007).
    """
    dtype = dtype_or_none("sum: dtype", dtype)
    option = _sum_dtype(x, dtype, out)
    return _SUM([real_part(x, dtype)], axis, keepdims, out, stream, option, where, initial)


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
    """Π x along `axis`, as ``numpy.prod``: 1 for no elements.

    Parameters, result dtype, accumulation and errors are as for `sum`.
    """
    dtype = dtype_or_none("prod: dtype", dtype)
    option = _sum_dtype(x, dtype, out)
    return _PROD([real_part(x, dtype)], axis, keepdims, out, stream, option, where, initial)


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
    """Σ x / n along `axis`, as ``numpy.mean``.

    Parameters and errors are as for `sum`, without `initial`. The result is float64 for integers and bool, else of
    x's dtype. Integers and bool are added up exactly (64-bit integers in double). For no elements the result is NaN,
    without a warning. With an integer `dtype` the quotient is rounded toward zero.
    """
    dtype = dtype_or_none("mean: dtype", dtype)
    return _MEAN([real_part(x, dtype)], axis, keepdims, out, stream, dtype, where)


@repeated("out")
def any(
    x: Any, axis: Axis = None, *, keepdims: bool = False, where: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """Return whether x ≠ 0 for any element along `axis`, as a bool, like ``numpy.any``: NaN is not 0.

    Parameters and errors are as for `sum`. Every element is read.
    """
    return _ANY([x], axis, keepdims, out, stream, None, where)


@repeated("out")
def all(
    x: Any, axis: Axis = None, *, keepdims: bool = False, where: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """Return whether x ≠ 0 for all elements along `axis`, as a bool, like ``numpy.all``: NaN is not 0.

    Parameters and errors are as for `sum`. Every element is read.
    """
    return _ALL([x], axis, keepdims, out, stream, None, where)


@repeated("out")
def count_nonzero(x: Any, axis: Axis = None, *, keepdims: bool = False, out: Any = None, stream: Any = None) -> Any:
    """Return the number of elements x ≠ 0 along `axis`, as int64, like ``numpy.count_nonzero``: NaN is not 0.

    Parameters and errors are as for `sum`.
    """
    return _COUNT([x], axis, keepdims, out, stream)


@repeated("out")
def dot(x: Any, y: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Σ x[i] · y[i] of two vectors, in one pass over both. As ``numpy.dot``: without conjugation.

    Parameters
    ----------
    x, y : array (n,)
        Vectors of the same length; any strides; dtypes with a common NumPy dtype that has a dot product here.
    out : array (), optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array ()
        Dot product, of NumPy's promotion of both dtypes. Integers wrap around. For bool: whether x and y are both
        true anywhere. The order of the sum is as for `sum`. Integers are summed in the result's own width.

    Raises
    ------
    ArgumentError
        The operands are not two vectors of one length. For other products use `matmul` and `matvec`.
    """
    return _DOT([x, y], None, False, out, stream)


def _result(op: str, dtype: np.dtype, result_dtype: Any) -> np.dtype:
    """Return the dtype of a sum: `result_dtype`, or NumPy's, which has 64 bits for integers."""
    cpp(op, dtype)
    if result_dtype is None:
        if dtype.kind in "bi":
            return _INT64
        return np.dtype(np.uint64) if dtype.kind == "u" else dtype
    result = as_dtype(op, result_dtype)
    cpp(op, result, "dtype")
    return result


def _sum_dtype(x: Any, dtype: Any, out: Any) -> Any:
    """Return the dtype in which `sum` computes: `dtype` if passed, else a dtype that follows from `out`.

    This is NumPy's promotion of the dtypes of `x` and `out`. None: there is no `out`, or the default applies.
    """
    if dtype is not None or out is None:
        return dtype
    own, out_dtype = getattr(x, "dtype", None), getattr(out, "dtype", None)
    if not isinstance(own, np.dtype) or not isinstance(out_dtype, np.dtype) or own == out_dtype:
        return out_dtype
    try:
        common: np.dtype = np.promote_types(own, out_dtype)
    except TypeError:
        return None
    # What is not of a kind that takes it is for `out` to refuse.
    return common if np.can_cast(common, out_dtype, "same_kind") and own.kind != "b" else None


def _folded(op: str, dtype: np.dtype, result: np.dtype, monoid: str, finish: str = "unchanged") -> Reducer:
    if result.kind == "b":
        return _tested(op, None, dtype, "either" if monoid == "plus" else "both")
    sum_type, size = accumulator(op, result)
    return Reducer(f"cudakit::folded<cudakit::{monoid}, {sum_type}, cudakit::itself, cudakit::{finish}>", result, size)


def _total(op: str, result_dtype: Any, dtype: np.dtype, monoid: str) -> Reducer:
    return _folded(op, dtype, _result(op, dtype, result_dtype), monoid)


def _mean(op: str, result_dtype: Any, dtype: np.dtype) -> Reducer:
    if result_dtype is None and dtype.kind in "biu":
        # Exactly in 64 bits, where no number of elements that fits a device overflows them.
        sum_dtype = _result(op, dtype, None) if dtype.itemsize <= 4 else _FLOAT64
        return _folded(op, dtype, sum_dtype, "plus", "divided")._replace(dtype=_FLOAT64)
    result = _result(op, dtype, result_dtype)
    if result.kind == "b":
        raise ArgumentError(f"{op}: dtype bool cannot hold a mean; take a number's")
    # Of integers: added up as such, and cut toward zero once they are divided, as NumPy's.
    return _folded(op, dtype, result, "plus", "divided")


def _tested(op: str, _: None, dtype: np.dtype, monoid: str) -> Reducer:
    cpp(op, dtype)
    return Reducer(f"cudakit::folded<cudakit::{monoid}, int, cudakit::nonzero>", _BOOL, 4)


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
    sum_type, size = accumulator(op, result)
    monoid = "plus"
    if result.kind == "b":
        sum_type, size, monoid = "int", 4, "either"
    elif result.kind in "iu" and result.itemsize <= 4:
        # The low bits are the same, at a fraction of the cost.
        sum_type, size = "unsigned int", 4
    return Reducer(f"cudakit::folded<cudakit::{monoid}, {sum_type}, cudakit::product>", result, size)


_SUM = NamedReduction("sum", partial(_total, monoid="plus"), combine=Ufunc("add"))
_PROD = NamedReduction("prod", partial(_total, monoid="times"), combine=Ufunc("multiply"))
_ANY = NamedReduction("any", partial(_tested, monoid="either"))
_ALL = NamedReduction("all", partial(_tested, monoid="both"))
_MEAN, _COUNT = NamedReduction("mean", _mean), NamedReduction("count_nonzero", _count)
_DOT = NamedReduction("dot", _dot, ("x", "y"))


# --- extrema and their positions --------------------------------------------------------------------------------------


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
    """Return the least x along `axis`, as ``numpy.min``: NaN if any element is NaN.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool, integers, floating point or complex (compared by real part, then
        imaginary part).
    axis : int, several, or None
        Axes to reduce. None: all axes.
    keepdims : bool
        Whether reduced axes stay, with length 1.
    initial : number, optional
        Number with which the result is also compared, by one more small kernel. It is the result for no elements.
    where : array of bool, optional
        Mask of the elements that count, broadcast to x's shape.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        Least elements, of x's dtype. Which NaN is returned, and which of −0 and +0, is not specified.

    Raises
    ------
    ArgumentError
        There are no elements, the axis is out of range, the dtype is not numeric, or `out` does not fit.

    Notes
    -----
    `where` requires `initial`, because the mask may select no element.
    """
    return _MIN([x], axis, keepdims, out, stream, "minimum", where, initial)


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
    """Return the greatest x along `axis`, as ``numpy.max``: NaN if any element is NaN.

    Parameters, result and errors are as for `min`.
    """
    return _MAX([x], axis, keepdims, out, stream, "maximum", where, initial)


@repeated("out")
def argmin(
    x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Return the int64 index of the first least x along `axis`, as ``numpy.argmin``: of the first NaN if there is one.

    Parameters and errors are as for `min`. `dtype` is an integer dtype of the result, as in CuPy. For several axes
    or None the index is into their elements in row-major order. NumPy's does not take several axes.
    """
    option = "minimum", dtype_or_none("argmin: dtype", dtype)
    return _ARGMIN([x], axis, keepdims, out, stream, option)


@repeated("out")
def argmax(
    x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Return the int64 index of the first greatest x along `axis`, as ``numpy.argmax``: of the first NaN if there is
    one.

    Parameters and errors are as for `argmin`.
    """
    option = "maximum", dtype_or_none("argmax: dtype", dtype)
    return _ARGMAX([x], axis, keepdims, out, stream, option)


def _compared(op: str, dtype: np.dtype) -> tuple[str, int]:
    """Return the C++ type in which elements are compared without loss, and its size in bytes."""
    spelled = cpp(op, dtype)
    if dtype.itemsize <= 2:
        return ("int" if dtype.kind in "biu" else "float"), 4
    return spelled, dtype.itemsize


def _extreme(op: str, monoid: str, dtype: np.dtype) -> Reducer:
    value_type, size = _compared(op, dtype)
    return Reducer(f"cudakit::folded<cudakit::{monoid}, {value_type}>", dtype, size, empty=False)


def _position(op: str, option: tuple[str, Any], dtype: np.dtype) -> Reducer:
    monoid, index_dtype = option
    result = _INT64 if index_dtype is None else as_dtype(op, index_dtype)
    if result.kind not in "iu":
        raise ArgumentError(f"{op}: dtype is {result}; indices are integers")
    value_type, size = _compared(op, dtype)
    # Value, padded to the alignment of the index, then the index.
    state_bytes = 32 if size == 16 else 16
    return Reducer(
        f"cudakit::position<cudakit::{monoid}, {value_type}>", result, state_bytes, empty=False, in_order=True
    )


_MIN = NamedReduction("min", _extreme, combine=Ufunc("minimum"))
_MAX = NamedReduction("max", _extreme, combine=Ufunc("maximum"))
_ARGMIN, _ARGMAX = NamedReduction("argmin", _position), NamedReduction("argmax", _position)


# --- variance, standard deviation, norms ------------------------------------------------------------------------------


_INF = float("inf")
_FLOAT32 = np.dtype(np.float32)


@repeated("out")
def var(
    x: Any,
    axis: Axis = None,
    *,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Σ |x − mean|² / (n − ddof) along `axis`, as ``numpy.var``.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool, integers, floating point or complex.
    axis : int, several, or None
        Axes to reduce. None: all axes.
    dtype : dtype, optional
        Floating-point dtype of the computation and of the result.
    ddof : float
        Delta degrees of freedom: the divisor is n − ddof, at least 0.
    keepdims : bool
        Whether reduced axes stay, with length 1.
    where : array of bool, optional
        Mask of the elements that count, broadcast to x's shape.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        Variance: float64 for integers and bool, real for complex x, else of x's dtype. Integers are computed in
        double, float16 and bfloat16 in float, other dtypes in x's precision. The result is infinite or NaN, without
        a warning, if n ≤ ddof. Every run gives the same bits, as for `sum`.

    Raises
    ------
    ArgumentError
        The axis is out of range, the dtype is not numeric, or `out` does not fit.

    Notes
    -----
    The computation is one pass. Each thread computes mean and squared deviations of the elements in its registers. They
    are combined by the formulae of Chan, Golub and LeVeque (1979). For 8-bit integers the variance is computed from
    exact sums. No digits cancel, however far the mean is from 0.

    Unlike NumPy's `var`, there is no parameter `mean`.
    """
    option = _checked_ddof("var", ddof), dtype_or_none("var: dtype", dtype)
    return _VAR([x], axis, keepdims, out, stream, option, where)


@repeated("out")
def std(
    x: Any,
    axis: Axis = None,
    *,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """√(Σ |x − mean|² / (n − ddof)) along `axis`, as ``numpy.std``.

    Parameters, result and errors are as for `var`.
    """
    option = _checked_ddof("std", ddof), dtype_or_none("std: dtype", dtype)
    return _STD([x], axis, keepdims, out, stream, option, where)


@repeated("out")
def norm(
    x: Any,
    axis: Axis = None,
    *,
    ord: float | str | None = None,
    keepdims: bool = False,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Return the norm of x along `axis`: √Σ |x|², or the norm of another order.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool, integers, floating point or complex.
    axis : int, several, or None
        Axes to reduce. None: all axes.
    ord : number, ±inf, "fro", "nuc" or None
        Order of the norm:

        - p: (Σ |x|^p)^(1/p).
        - 0: the number of elements that are not 0.
        - inf and −inf: the greatest and the least |x|.

        Two axes are the rows and columns of a matrix, and these orders are norms of the matrix:

        - 1 and −1: the greatest and the least sum of |x| in a column.
        - inf and −inf: the greatest and the least sum of |x| in a row.
        - "fro": √Σ |x|².
        - 2, −2 and "nuc": the greatest, the least and the sum of the singular values.
        - Other orders: the norm of all elements of the matrix.
    keepdims : bool
        Whether reduced axes stay, with length 1.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        Norm: float64 for integers and bool, real for complex x, else of x's dtype. It is accumulated as in `sum`.
        Powers are not scaled: squares overflow if |x| is greater than the root of the accumulator's greatest
        number.

    Raises
    ------
    ArgumentError
        One of these:

        - `ord` is unknown, or the axis is out of range.
        - "fro" or "nuc" of vectors; ±inf or −2 of no elements.
        - Singular values of float16 or bfloat16.
        - The dtype is not numeric, or `out` does not fit.

    Notes
    -----
    Unlike ``numpy.linalg.norm``, it takes any number of axes, and float16 squares do not overflow. Singular values are
    computed by CuPy or NumPy, with their precision. Singular values of a matrix with a NaN or an infinity are NaN.
    """
    order = _order(ord)
    matrix = order is not None and _axes_in(x, axis) == 2
    if order in ("fro", "nuc") and not matrix:
        raise ArgumentError(f"norm: ord={shortened(ord)} is of matrices; give two axes, or leave ord out")
    if not matrix or order not in (1, -1, _INF, -_INF, 2, -2, "nuc"):
        option = 2 if order in (None, "fro") else order
        return _NORM([x], axis, keepdims, out, stream, option)
    place, (x,) = array_place("norm", stream, ("x", x))
    rows, columns = (
        (0, 1) if axis is None else (axis_of("norm", dimension, x.ndim) for dimension in cast("Sequence[int]", axis))
    )
    if rows == columns:
        raise ArgumentError(f"norm: axis {shortened(axis)} names one axis twice")
    if order in (2, -2, "nuc"):
        return _of_singular_values(place, x, (rows, columns), order, flag("norm: keepdims", keepdims), out)
    summed, among = (rows, columns) if order in (1, -1) else (columns, rows)
    sums = _NORM([x], summed, True, None, place.stream, 1)
    extreme = _INF if order in (1, _INF) else -_INF
    return _NORM([sums], (summed, among), keepdims, out, place.stream, extreme)


def _of_singular_values(place: ArrayPlace, x: Any, axes: tuple[int, int], order: Any, keepdims: bool, out: Any) -> Any:
    """Return the greatest (`order` 2), the least (−2) or the sum ("nuc") of the singular values of x's matrices.

    `axes` are the axes of rows and columns.
    """
    dtype, xp = x.dtype if x.dtype.kind in "fc" else _real("norm", x.dtype), place.xp
    if dtype.itemsize == 2:
        raise ArgumentError(f"norm: x has dtype {dtype}, which has no singular values; give x.astype('f4')")
    if order == -2 and 0 in (x.shape[axes[0]], x.shape[axes[1]]):
        raise ArgumentError(f"norm: x has shape {x.shape}: a matrix of no elements has no least singular value")
    to = target("norm", place, out, without(x.shape, axes, keepdims), _real("norm", dtype), x)
    moved = x.transpose([*(d for d in range(x.ndim) if d not in axes), *axes])
    matrices = place.empty(moved.shape, dtype)
    assign(moved, out=matrices, stream=place.stream)
    with place.inside():
        if matrices.size:
            is_sound = xp.isfinite(matrices).all((-2, -1))
            values = xp.linalg.svd(xp.where(is_sound[..., None, None], matrices, 0), compute_uv=False)
            result = {2: xp.max, -2: xp.min, "nuc": xp.sum}[order](values, axis=-1)
            result = xp.where(is_sound, result, xp.nan)
        else:
            result = xp.zeros(moved.shape[:-2], to.written.dtype)
    assign(result.reshape(to.written.shape), out=to.written, stream=place.stream)
    return delivered(place, to)


def _order(order: Any) -> Any:
    """Return the argument `ord` of `norm` as None, a text or a Python number.

    Raises
    ------
    ArgumentError
        It is none of these.
    """
    if is_one_of(order, (None, "fro", "nuc")) or order.__class__ is float:
        return order
    if order.__class__ is int and abs(order) < 2**1000:
        return order
    if isinstance(order, np.integer | np.floating):
        return order.item()
    raise ArgumentError(f"norm: ord must be a number, inf, -inf, 'fro' or None, got {shortened(order)}")


def _axes_in(x: Any, axis: Axis) -> int:
    """Return the number of axes of x that `axis` names."""
    if axis is None:
        return int(getattr(x, "ndim", len(getattr(x, "shape", ()))))
    return len(axis) if isinstance(axis, list | tuple) else 1


def _checked_ddof(op: str, ddof: float) -> float:
    if (ddof.__class__ is not int and ddof.__class__ is not float) or real(f"{op}: ddof", ddof) != ddof:
        raise ArgumentError(f"{op}: ddof must be a number, got {shortened(ddof)}")
    return ddof


def _real(op: str, dtype: np.dtype) -> np.dtype:
    """Return the real floating-point dtype of a result: float64 for integers and bool, the components' for complex.

    Other dtypes stay as they are.
    """
    cpp(op, dtype)
    if dtype.kind in "biu":
        return _FLOAT64
    if dtype.kind == "c":
        return _FLOAT32 if dtype.itemsize == 8 else _FLOAT64
    return dtype


def _variance(op: str, option: tuple[float, Any], dtype: np.dtype, finish: str) -> Reducer:
    ddof, result_dtype = option
    compute_dtype = dtype if result_dtype is None else as_dtype(op, result_dtype)
    if result_dtype is not None and compute_dtype.kind not in "fc" and compute_dtype.name not in NARROW:
        raise ArgumentError(f"{op}: dtype {compute_dtype} cannot hold a {op}; take a floating-point one")
    if dtype.kind == "c" and compute_dtype.kind != "c":
        raise ArgumentError(f"{op}: dtype {compute_dtype} cannot hold a {op} of {dtype}")
    if dtype.kind != "c":
        compute_dtype = _real(op, compute_dtype)
    cpp(op, dtype)
    result = _real(op, compute_dtype)
    if dtype.kind in "biu" and dtype.itemsize == 1:
        return Reducer(f"cudakit::byte_spread<cudakit::{finish}>", result, 24, ddof=float(ddof))
    real, size = accumulator(op, result)
    mean, mean_size = accumulator(op, compute_dtype) if dtype.kind == "c" else (real, size)
    # Mean, squares and count, each aligned to its size, 16 bytes at most.
    alignment = 16 if mean_size == 16 else 8
    state_bytes = -(-(-(-(mean_size + size) // 8) * 8 + 8) // alignment) * alignment
    return Reducer(f"cudakit::spread<{mean}, {real}, cudakit::{finish}>", result, state_bytes, ddof=float(ddof))


def _norm(op: str, order: float, dtype: np.dtype) -> Reducer:
    result = _real(op, dtype)
    sum_type, size = accumulator(op, result)
    if order == 2:
        return Reducer(f"cudakit::folded<cudakit::plus, {sum_type}, cudakit::square, cudakit::root>", result, size)
    if order == 1:
        return Reducer(f"cudakit::folded<cudakit::plus, {sum_type}, cudakit::magnitude>", result, size)
    if order == 0:
        return Reducer("cudakit::folded<cudakit::plus, long long, cudakit::nonzero>", result, 8)
    if abs(order) == _INF:
        monoid = "maximum" if order > 0 else "minimum"
        return Reducer(f"cudakit::folded<cudakit::{monoid}, {sum_type}, cudakit::magnitude>", result, size, empty=False)
    if order != order:
        raise ArgumentError(f"{op}: ord must be a number, inf, -inf, 'fro' or None, got {shortened(order)}")
    bits = f"{int(np.float64(order).view(np.uint64))}ull"
    return Reducer(
        f"cudakit::folded<cudakit::plus, {sum_type}, cudakit::powered<{bits}>, cudakit::rooted<{bits}>>", result, size
    )


_VAR = NamedReduction("var", partial(_variance, finish="unchanged"))
_STD = NamedReduction("std", partial(_variance, finish="root"))
_NORM = NamedReduction("norm", _norm)
