"""Variance, standard deviation and norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from cudakit.arrays.layout import Axis, axis_of, without
from cudakit.arrays.output import accumulator, as_dtype, cpp, target
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, shortened
from cudakit.generate.ufuncs import assign
from cudakit.ops.delivery import delivered
from cudakit.ops.reduction import NamedReduction, Reducer
from cudakit.types.checked import dtype_or_none, flag, is_one_of, real

_INF = float("inf")
_FLOAT64 = np.dtype(np.float64)
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
    """Σ |x − mean|² / (n − ddof) along `axis`, as `numpy.var` has it.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integer, floating point or complex.
    axis : int, several, or None
        None: all of them.
    dtype : dtype, optional
        Floating point that is computed in, and the result's.
    ddof : float
        What the number of elements n is lessened by, to 0 at least.
    keepdims : bool
        Whether reduced axes stay, with length 1.
    where : array of bool, optional
        Broadcast to x's shape: which elements count.
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
    NumPy's there is no `mean`.
    """
    option = _lessened("var", ddof), dtype_or_none("var: dtype", dtype)
    return _VAR(x, axis=axis, keepdims=keepdims, option=option, out=out, stream=stream, where=where)


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
    """√(Σ |x − mean|² / (n − ddof)) along `axis`, as `numpy.std` has it.

    Parameters, result and errors are those of `var`.
    """
    option = _lessened("std", ddof), dtype_or_none("std: dtype", dtype)
    return _STD(x, axis=axis, keepdims=keepdims, option=option, out=out, stream=stream, where=where)


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
    """A norm of x along `axis`: √Σ |x|², or that of another order.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integer, floating point or complex.
    axis : int, several, or None
        None: all of them.
    ord : number, ±inf, "fro", "nuc" or None
        p: (Σ |x|^p)^(1/p); 0: the number of elements that are not 0; inf and −inf: the greatest and the least |x|.
        Along two axes, which are a matrix's rows and columns: 1 and −1, the greatest and the least sum |x| of a column;
        inf and −inf, those of a row; "fro", √Σ |x|²; 2, −2 and "nuc", the greatest, the least and the sum of the
        singular values; what is no matrix's norm is taken of all its elements.
    keepdims : bool
        Whether reduced axes stay, with length 1.
    out : array, optional
        Where the result goes: its shape, and its dtype or one that it is cast to within its kind.
    stream : stream, optional
        Default: CuPy's current one.

    Returns
    -------
    array
        float64 for integers and bool, real for complex x, else of x's dtype; accumulated as `sum` does it. Powers are
        not scaled: squares overflow where |x| is beyond the root of the largest number of the accumulator.

    Raises
    ------
    ArgumentError
        For another ord, "fro" and "nuc" of vectors, ±inf and −2 of no elements, singular values of float16 or bfloat16,
        an axis out of range, a dtype of no numbers, an `out` that does not fit.

    Notes
    -----
    Unlike `numpy.linalg.norm` it takes any number of axes, and float16 squares do not overflow. Singular values are
    CuPy's or NumPy's, with their precision; those of a matrix with a NaN or an infinity are NaN.
    """
    order = _order(ord)
    matrix = order is not None and (_dimensions(x) if axis is None else _count(axis)) == 2
    if order in ("fro", "nuc") and not matrix:
        raise ArgumentError(f"norm: ord={shortened(ord)} is of matrices; give two axes, or leave ord out")
    if not matrix or order not in (1, -1, _INF, -_INF, 2, -2, "nuc"):
        option = 2 if order in (None, "fro") else order
        return _NORM(x, axis=axis, keepdims=keepdims, option=option, out=out, stream=stream)
    place, (x,) = array_place("norm", stream, ("x", x))
    rows, columns = (0, 1) if axis is None else (axis_of("norm", each, x.ndim) for each in cast("Sequence[int]", axis))
    if rows == columns:
        raise ArgumentError(f"norm: axis {shortened(axis)} names one axis twice")
    if order in (2, -2, "nuc"):
        return _of_singular_values(place, x, (rows, columns), order, flag("norm: keepdims", keepdims), out)
    summed, among = (rows, columns) if order in (1, -1) else (columns, rows)
    sums = _NORM(x, axis=summed, keepdims=True, option=1, out=None, stream=place.stream)
    extreme = _GREATEST if order in (1, _INF) else _LEAST
    result = extreme(sums, axis=(summed, among), keepdims=keepdims, out=out, stream=place.stream)
    return result


def _of_singular_values(place: ArrayPlace, x: Any, axes: tuple[int, int], order: Any, keepdims: bool, out: Any) -> Any:
    """The greatest, the least or the sum of the singular values of x's matrices."""
    kind, xp = x.dtype if x.dtype.kind in "fc" else _real("norm", x.dtype), place.xp
    if kind.itemsize == 2:
        raise ArgumentError(f"norm: x has dtype {kind}, of which no library has singular values; give x.astype('f4')")
    if order == -2 and 0 in (x.shape[axes[0]], x.shape[axes[1]]):
        raise ArgumentError(f"norm: x has shape {x.shape}: a matrix of no elements has no least singular value")
    to = target("norm", place, out, without(x.shape, axes, keepdims), _real("norm", kind), x)
    moved = x.transpose([*(d for d in range(x.ndim) if d not in axes), *axes])
    matrices = place.empty(moved.shape, kind)
    assign(moved, out=matrices, stream=place.stream)
    with place.inside():
        if matrices.size:
            is_sound = xp.isfinite(matrices).all((-2, -1))
            values = xp.linalg.svd(xp.where(is_sound[..., None, None], matrices, 0), compute_uv=False)
            found = {2: xp.max, -2: xp.min, "nuc": xp.sum}[order](values, axis=-1)
            found = xp.where(is_sound, found, xp.nan)
        else:
            found = xp.zeros(moved.shape[:-2], to.written.dtype)
    assign(found.reshape(to.written.shape), out=to.written, stream=place.stream)
    return delivered(place, to)


def _order(given: Any) -> Any:
    """`ord` as None, a text or a number."""
    if is_one_of(given, (None, "fro", "nuc")) or given.__class__ is float:
        return given
    if given.__class__ is int and abs(given) < 2**1000:
        return given
    if isinstance(given, np.integer | np.floating):
        return given.item()
    raise ArgumentError(f"norm: ord must be a number, inf, -inf, 'fro' or None, got {shortened(given)}")


def _dimensions(x: Any) -> int:
    return int(getattr(x, "ndim", len(getattr(x, "shape", ()))))


def _count(axis: Axis) -> int:
    return len(axis) if isinstance(axis, list | tuple) else 1


def _lessened(op: str, ddof: float) -> float:
    if (ddof.__class__ is not int and ddof.__class__ is not float) or real(f"{op}: ddof", ddof) != ddof:
        raise ArgumentError(f"{op}: ddof must be a number, got {shortened(ddof)}")
    return ddof


def _real(op: str, dtype: np.dtype) -> np.dtype:
    """Real floating-point dtype of a result."""
    cpp(op, dtype)
    if dtype.kind in "biu":
        return _FLOAT64
    if dtype.kind == "c":
        return _FLOAT32 if dtype.itemsize == 8 else _FLOAT64
    return dtype


def _spread(op: str, dtype: np.dtype, option: tuple[float, Any], finish: str) -> Reducer:
    ddof, wanted = option
    kind = dtype if wanted is None else as_dtype(op, wanted)
    if kind.kind not in "fc" and (wanted is not None and kind.name != "bfloat16"):
        raise ArgumentError(f"{op}: dtype {kind} cannot hold a {op}; take a floating-point one")
    if dtype.kind == "c" and kind.kind != "c":
        raise ArgumentError(f"{op}: dtype {kind} cannot hold a {op} of {dtype}")
    if dtype.kind != "c":
        kind = _real(op, kind)
    cpp(op, dtype)
    result = _real(op, kind)
    if dtype.kind in "biu" and dtype.itemsize == 1:
        return Reducer(f"cudakit::byte_spread<cudakit::{finish}>", result, 24, ddof=float(ddof))
    real, size = accumulator(op, result)
    mean, mean_size = accumulator(op, kind) if dtype.kind == "c" else (real, size)
    # Mean, squares and count, each aligned to its size, 16 bytes at most.
    alignment = 16 if mean_size == 16 else 8
    state_bytes = -(-(-(-(mean_size + size) // 8) * 8 + 8) // alignment) * alignment
    return Reducer(f"cudakit::spread<{mean}, {real}, cudakit::{finish}>", result, state_bytes, ddof=float(ddof))


def _var(op: str, option: tuple[float, Any], dtype: np.dtype) -> Reducer:
    return _spread(op, dtype, option, "unchanged")


def _std(op: str, option: tuple[float, Any], dtype: np.dtype) -> Reducer:
    return _spread(op, dtype, option, "root")


def _norm(op: str, order: float, dtype: np.dtype) -> Reducer:
    result = _real(op, dtype)
    kept, size = accumulator(op, result)
    if order == 2:
        return Reducer(f"cudakit::folded<cudakit::plus, {kept}, cudakit::square, cudakit::root>", result, size)
    if order == 1:
        return Reducer(f"cudakit::folded<cudakit::plus, {kept}, cudakit::magnitude>", result, size)
    if order == 0:
        return Reducer("cudakit::folded<cudakit::plus, long long, cudakit::nonzero>", result, 8)
    if abs(order) == _INF:
        monoid = "maximum" if order > 0 else "minimum"
        return Reducer(f"cudakit::folded<cudakit::{monoid}, {kept}, cudakit::magnitude>", result, size, empty=False)
    if order != order:
        raise ArgumentError(f"{op}: ord must be a number, inf, -inf, 'fro' or None, got {shortened(order)}")
    bits = f"{int(np.float64(order).view(np.uint64))}ull"
    return Reducer(
        f"cudakit::folded<cudakit::plus, {kept}, cudakit::powered<{bits}>, cudakit::rooted<{bits}>>", result, size
    )


def _greatest(op: str, _: None, dtype: np.dtype) -> Reducer:
    return _norm(op, _INF, dtype)


def _least(op: str, _: None, dtype: np.dtype) -> Reducer:
    return _norm(op, -_INF, dtype)


_VAR, _STD, _NORM = NamedReduction("var", _var), NamedReduction("std", _std), NamedReduction("norm", _norm)
_GREATEST, _LEAST = NamedReduction("norm", _greatest), NamedReduction("norm", _least)
