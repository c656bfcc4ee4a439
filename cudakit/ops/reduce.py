"""Reductions by NumPy's names, over everything or along axes: sums, products, tests, extrema, variances, norms."""

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
    """Π x along `axis`, as `numpy.prod` has it: 1 where there are no elements.

    Parameters, result dtype, accumulation and errors are those of `sum`.
    """
    dtype = dtype_or_none("prod: dtype", dtype)
    option = _asked(x, dtype, out)
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
    """Σ x / n along `axis`, as `numpy.mean` has it.

    Parameters and errors are those of `sum`. The result is float64 for integers and bool, which are added up
    exactly (in double where they have 64 bits), else of x's dtype; NaN, without a warning, where there are no elements.
    An integer `dtype` has the quotient cut toward zero. There is no `initial`, as NumPy's has none.
    """
    dtype = dtype_or_none("mean: dtype", dtype)
    return _MEAN([real_part(x, dtype)], axis, keepdims, out, stream, dtype, where)


@repeated("out")
def any(
    x: Any, axis: Axis = None, *, keepdims: bool = False, where: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """Whether x ≠ 0 somewhere along `axis`, bool, as `numpy.any` has it: NaN is not 0.

    Parameters and errors are those of `sum`. Every element is read.
    """
    return _ANY([x], axis, keepdims, out, stream, None, where)


@repeated("out")
def all(
    x: Any, axis: Axis = None, *, keepdims: bool = False, where: Any = None, out: Any = None, stream: Any = None
) -> Any:
    """Whether x ≠ 0 everywhere along `axis`, bool, as `numpy.all` has it: NaN is not 0.

    Parameters and errors are those of `sum`. Every element is read.
    """
    return _ALL([x], axis, keepdims, out, stream, None, where)


@repeated("out")
def count_nonzero(x: Any, axis: Axis = None, *, keepdims: bool = False, out: Any = None, stream: Any = None) -> Any:
    """Number of elements x ≠ 0 along `axis`, int64, as `numpy.count_nonzero` has it: NaN is not 0.

    Parameters and errors are those of `sum`.
    """
    return _COUNT([x], axis, keepdims, out, stream)


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
    return _DOT([x, y], None, False, out, stream)


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
        return _tested(op, None, dtype, "either" if monoid == "plus" else "both")
    kept, size = accumulator(op, result)
    return Reducer(f"cudakit::folded<cudakit::{monoid}, {kept}, cudakit::itself, cudakit::{finish}>", result, size)


def _total(op: str, wanted: Any, dtype: np.dtype, monoid: str) -> Reducer:
    return _folded(op, dtype, _result(op, dtype, wanted), monoid)


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
    kept, size = accumulator(op, result)
    monoid = "plus"
    if result.kind == "b":
        kept, size, monoid = "int", 4, "either"
    elif result.kind in "iu" and result.itemsize <= 4:
        # The low bits are the same, at a fraction of the cost.
        kept, size = "unsigned int", 4
    return Reducer(f"cudakit::folded<cudakit::{monoid}, {kept}, cudakit::product>", result, size)


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
    """Greatest x along `axis`, as `numpy.max` has it: NaN where there is one.

    Parameters, result and errors are those of `min`.
    """
    return _MAX([x], axis, keepdims, out, stream, "maximum", where, initial)


@repeated("out")
def argmin(
    x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Index of the first least x along `axis`, int64, as `numpy.argmin` has it: of the first NaN where there is one.

    Parameters and errors are those of `min`; `dtype` is an integer one of the result, as CuPy has it. For several axes,
    which NumPy's does not take, and for None the index is
    of their elements in row-major order.
    """
    option = "minimum", dtype_or_none("argmin: dtype", dtype)
    return _ARGMIN([x], axis, keepdims, out, stream, option)


@repeated("out")
def argmax(
    x: Any, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False, out: Any = None, stream: Any = None
) -> Any:
    """Index of the first greatest x along `axis`, int64, as `numpy.argmax` has it: of the first NaN where there is one.

    Parameters and errors are those of `argmin`.
    """
    option = "maximum", dtype_or_none("argmax: dtype", dtype)
    return _ARGMAX([x], axis, keepdims, out, stream, option)


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
    """√(Σ |x − mean|² / (n − ddof)) along `axis`, as `numpy.std` has it.

    Parameters, result and errors are those of `var`.
    """
    option = _lessened("std", ddof), dtype_or_none("std: dtype", dtype)
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
    matrix = order is not None and _axes_in(x, axis) == 2
    if order in ("fro", "nuc") and not matrix:
        raise ArgumentError(f"norm: ord={shortened(ord)} is of matrices; give two axes, or leave ord out")
    if not matrix or order not in (1, -1, _INF, -_INF, 2, -2, "nuc"):
        option = 2 if order in (None, "fro") else order
        return _NORM([x], axis, keepdims, out, stream, option)
    place, (x,) = array_place("norm", stream, ("x", x))
    rows, columns = (0, 1) if axis is None else (axis_of("norm", each, x.ndim) for each in cast("Sequence[int]", axis))
    if rows == columns:
        raise ArgumentError(f"norm: axis {shortened(axis)} names one axis twice")
    if order in (2, -2, "nuc"):
        return _of_singular_values(place, x, (rows, columns), order, flag("norm: keepdims", keepdims), out)
    summed, among = (rows, columns) if order in (1, -1) else (columns, rows)
    sums = _NORM([x], summed, True, None, place.stream, 1)
    extreme = _INF if order in (1, _INF) else -_INF
    return _NORM([sums], (summed, among), keepdims, out, place.stream, extreme)


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


def _axes_in(x: Any, axis: Axis) -> int:
    """How many axes `axis` names of x."""
    if axis is None:
        return int(getattr(x, "ndim", len(getattr(x, "shape", ()))))
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


def _spread(op: str, option: tuple[float, Any], dtype: np.dtype, finish: str) -> Reducer:
    ddof, wanted = option
    kind = dtype if wanted is None else as_dtype(op, wanted)
    if wanted is not None and kind.kind not in "fc" and kind.name not in NARROW:
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


_VAR = NamedReduction("var", partial(_spread, finish="unchanged"))
_STD = NamedReduction("std", partial(_spread, finish="root"))
_NORM = NamedReduction("norm", _norm)
