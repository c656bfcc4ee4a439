"""Softmax, log-softmax, log-sum-exp, layer and root-mean-square normalisation: fused, one read and one write."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.ops.layout import Axis, axes_of
from cudakit.ops.place import Place, _address, output, place_of
from cudakit.ops.row_jobs import LAYERNORM, LOG_SOFTMAX, LOGSUMEXP, PARAMETER_TYPES, RMSNORM, SOFTMAX, Op, job_of

__all__ = ["layernorm", "log_softmax", "logsumexp", "rmsnorm", "softmax"]


def softmax(x: Any, axis: Axis = -1, *, out: Any = None, stream: Any = None) -> Any:
    """Exponentials over their sum along `axis`: exp(x) / Σ exp(x).

    Parameters
    ----------
    x : array
        Of any shape and strides; float16, bfloat16, float32, float64, bool or integers.
    axis : int, tuple of int or None
        What the sum is over; None for everything.
    out : array, optional
        Where the result goes, of its shape and dtype, with any strides; it may be x itself.
    stream : stream, optional
        CuPy's current stream when left out.

    Returns
    -------
    array
        Of x's shape, and of its layout where x fills its memory; of x's dtype, float64 for bool and integers.

    Raises
    ------
    ArgumentError
        For an axis that is not there, a dtype without arithmetic, and an `out` that does not fit.

    Notes
    -----
    Computed in float for float16, bfloat16 and float32, in double for float64. The same bits on each run and stream. An
    element is wrong by at most (4 + |x − max x| / 2) units in the last place of the type that it is computed in, beside
    the sum's own rounding.

    One read and one write of contiguous rows of up to 256 KiB of such numbers (32 KiB before compute capability 9.0), and
    of slices along other axes of up to 256 elements; a second read of longer ones.

    Like SciPy's: NaN throughout a slice that holds NaN or ∞, or −∞ alone. Unlike SciPy's, `axis` is the last one unless
    it is given, and a slice of no elements gives none.

    Milakov and Gimelshein, Online normalizer calculation for softmax, 2018.
    """
    return _slices(SOFTMAX, x, axis, False, out, stream)


def log_softmax(x: Any, axis: Axis = -1, *, out: Any = None, stream: Any = None) -> Any:
    """Logarithm of `softmax`: x − log Σ exp(x), the sum being along `axis`.

    Parameters, result, dtypes, errors and speed as for `softmax`.

    Notes
    -----
    Like SciPy's: where a slice holds ∞, its finite elements give −∞ and those at ∞ NaN; NaN throughout a slice that
    holds NaN, or −∞ alone.
    """
    return _slices(LOG_SOFTMAX, x, axis, False, out, stream)


def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Any = None, stream: Any = None) -> Any:
    """Logarithm of the sum of exponentials along `axis`: log Σ exp(x).

    Parameters
    ----------
    x, out, stream
        As for `softmax`; `out` may not overlap x.
    axis : int, tuple of int or None
        What the sum is over; None, everything, when left out.
    keepdims : bool
        Whether the axes stay, with extent 1.

    Returns
    -------
    array
        C-contiguous; of x's dtype, float64 for bool and integers.

    Raises
    ------
    ArgumentError
        As for `softmax`.

    Notes
    -----
    Each element is read once. ∞ where a slice holds ∞, −∞ where it holds −∞ alone or nothing, NaN where it holds NaN,
    as SciPy gives them. Unlike SciPy's there are no weights and no complex numbers, and a sum just above 1 is not
    computed by log1p: the error is absolute, of some units in the last place of 1 + |result|.
    """
    return _slices(LOGSUMEXP, x, axis, keepdims, out, stream)


def layernorm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    axis: Axis = -1,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Mean 0 and variance 1 along `axis`: (x − mean) / √(variance + eps) · weight + bias.

    Parameters
    ----------
    x, out, stream
        As for `softmax`.
    weight, bias : array, optional
        Of the extents of `axis`, in ascending order of the axes; float16, bfloat16, float32 or float64. 1 and 0 when
        left out.
    eps : float
        Added to the variance.
    axis : int, tuple of int or None

    Returns
    -------
    array
        Of x's shape, and of its layout where x fills its memory; of x's dtype, float64 for bool and integers, whatever
        the dtype of weight and bias.

    Raises
    ------
    ArgumentError
        As for `softmax`, and for a weight or bias of another shape or dtype.

    Notes
    -----
    The variance is divided by n, as NumPy's `var` is, and computed from the distances to the mean, never as a
    difference of two large sums. Arithmetic, determinism and speed as for `softmax`.

    Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979; Ba, Kiros
    and Hinton, Layer normalization, 2016.
    """
    return _normalised(LAYERNORM, x, weight, bias, eps, axis, out, stream)


def rmsnorm(
    x: Any, weight: Any = None, eps: float = 1e-6, axis: Axis = -1, *, out: Any = None, stream: Any = None
) -> Any:
    """Mean square 1 along `axis`: x / √(mean of x² + eps) · weight.

    Parameters, result, dtypes, errors and speed as for `layernorm`.

    Notes
    -----
    Zhang and Sennrich, Root mean square layer normalization, 2019.
    """
    return _normalised(RMSNORM, x, weight, None, eps, axis, out, stream)


def _slices(op: Op, x: Any, axis: Axis, keepdims: bool, out: Any, stream: Any) -> Any:
    place, (x,) = place_of(op.name, stream, ("x", x))
    return _done(op, place, x, axis, keepdims, out, ())


def _normalised(op: Op, x: Any, weight: Any, bias: Any, eps: float, axis: Axis, out: Any, stream: Any) -> Any:
    named = [(name, value) for name, value in (("x", x), ("weight", weight), ("bias", bias)) if value is not None]
    place, arrays = place_of(op.name, stream, *named)
    found = dict(zip((name for name, _ in named), arrays, strict=True))
    if not isinstance(eps, float | int | np.floating | np.integer):
        raise ArgumentError(f"{op.name}: eps must be a number, got {type(eps).__name__}")
    weight, bias = (_parameter(op, name, found.get(name), place) for name in ("weight", "bias"))
    return _done(op, place, found["x"], axis, False, out, (weight, bias, float(eps)))


def _parameter(op: Op, name: str, given: Any, place: Place) -> Any:
    """A weight or bias as the kernels take it."""
    if given is None:
        return None
    if given.dtype.name not in PARAMETER_TYPES:
        raise ArgumentError(f"{op.name}: {name} has dtype {given.dtype}; expected {', '.join(PARAMETER_TYPES)}")
    return given if given.flags.c_contiguous else place.xp.ascontiguousarray(given)


def _done(op: Op, place: Place, x: Any, axis: Any, keepdims: bool, out: Any, parameters: tuple[Any, ...]) -> Any:
    """What all of them do: find the job, make the result, launch."""
    if type(axis) is not int and axis is not None:
        axis = axes_of(op.name, axis, x.ndim)
    given = parameters[:-1]
    dtypes = tuple([None if array is None else array.dtype for array in given])
    alignment = _alignment(x, *given)
    kind = (op, x.dtype, x.shape, x.strides, axis, keepdims, place.device)
    job = job_of(*kind, None, alignment, dtypes)
    for name, array in zip(("weight", "bias"), given, strict=False):
        if array is not None and array.shape != job.row_shape:
            raise ArgumentError(f"{op.name}: {name} has shape {array.shape}; x has {job.row_shape} along axis {axis}")
    if out is None and job.order:
        packed = place.empty(tuple([x.shape[d] for d in job.order]), job.dtype)
        result = packed.transpose(sorted(range(x.ndim), key=job.order.__getitem__))
    else:
        inputs = (x, *(array for array in given if array is not None))
        result = output(op.name, place, out, job.shape, job.dtype, *inputs, in_place=not op.per_row)
    if out is not None:
        job = job_of(*kind, result.strides, min(alignment, _alignment(result)), dtypes)
    job.launch(place, x, result, *parameters)
    return result


def _alignment(*arrays: Any) -> int:
    """Bytes that all addresses are a multiple of: a power of two, 16 at most."""
    bits = 16
    for array in arrays:
        if array is not None:
            bits |= _address(array)
    return bits & -bits
