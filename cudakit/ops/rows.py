"""Softmax, log-softmax, log-sum-exp, layer and root-mean-square normalisation: fused, one read and one write."""

from __future__ import annotations

from typing import Any

from cudakit.arrays.layout import Axis, axes_of
from cudakit.arrays.output import Target, target
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.repeated import repeated
from cudakit.ops.delivery import delivered
from cudakit.ops.rows_plan import LAYERNORM, LOG_SOFTMAX, LOGSUMEXP, RMSNORM, SOFTMAX, Op, RowJob, job_of
from cudakit.types.checked import flag, real

__all__ = ["layernorm", "log_softmax", "logsumexp", "rmsnorm", "softmax"]


@repeated("out")
def softmax(x: Any, axis: Axis = -1, *, out: Any = None, stream: Any = None) -> Any:
    """Exponentials over their sum along `axis`: exp(x) / Σ exp(x).

    Parameters
    ----------
    x : array
        Of any shape and strides; float16, bfloat16, float32, float64, bool or integers.
    axis : int, tuple of int or None
        What the sum is over; None for everything.
    out : array, optional
        Where the result goes, of its shape, and its dtype or one that it is cast to within its kind, with any strides.
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
    element is wrong by at most 4 + |x − max x| / 2 units in the last place of the type that it is computed in, beside
    the sum's own rounding; for float16 and bfloat16 by 6 + 2 |x − max x| such units, which their own rounding hides.

    One read and one write of contiguous rows of up to 1 MiB of such numbers (128 KiB before compute capability
    9.0), and of slices along other axes of up to 256 elements; a second read of longer ones.

    Like SciPy's: NaN throughout a slice that holds NaN or ∞, or −∞ alone. Unlike SciPy's, `axis` is the last one unless
    it is given, and a slice of no elements gives none.

    Milakov and Gimelshein, Online normalizer calculation for softmax, 2018.
    """
    return _slices(SOFTMAX, x, axis, False, out, stream)


@repeated("out")
def log_softmax(x: Any, axis: Axis = -1, *, out: Any = None, stream: Any = None) -> Any:
    """Logarithm of `softmax`: x − log Σ exp(x), the sum being along `axis`.

    Parameters, result, dtypes, errors and speed as for `softmax`.

    Notes
    -----
    Like SciPy's: where a slice holds ∞, its finite elements give −∞ and those at ∞ NaN; NaN throughout a slice that
    holds NaN, or −∞ alone.
    """
    return _slices(LOG_SOFTMAX, x, axis, False, out, stream)


@repeated("out")
def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Any = None, stream: Any = None) -> Any:
    """Logarithm of the sum of exponentials along `axis`: log Σ exp(x).

    Parameters
    ----------
    x, out, stream
        As for `softmax`.
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
    return _slices(LOGSUMEXP, x, axis, flag("logsumexp: keepdims", keepdims), out, stream)


@repeated("out")
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


@repeated("out")
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


def _slices(op: Op, x: Any, axis: Any, keepdims: bool, out: Any, stream: Any) -> Any:
    place, (x,) = array_place(op.name, stream, ("x", x))
    if type(axis) is not int and axis is not None:
        axis = axes_of(op.name, axis, x.ndim)
    job = job_of(op, x.dtype, x.shape, x.strides, axis, keepdims, place.device, None, place.alignment(x))
    if out is None and job.order is None:
        result = place.empty(job.shape, job.dtype)
        job.launch(place, x, result)
        return result
    job, to = _placed(job, place, out, x)
    job.launch(place, x, to.written)
    return delivered(place, to)


def _normalised(op: Op, x: Any, weight: Any, bias: Any, eps: Any, axis: Any, out: Any, stream: Any) -> Any:
    place, (x,) = array_place(op.name, stream, ("x", x))
    kind = type(x)
    if (weight is not None and type(weight) is not kind) or (bias is not None and type(bias) is not kind):
        place, weight, bias = _together(op, stream, x, weight, bias)
    if type(eps) is not float:
        eps = _number(op, eps)
    if type(axis) is not int and axis is not None:
        axis = axes_of(op.name, axis, x.ndim)
    parameters = [array for array in (weight, bias) if array is not None]
    known = [None if array is None else (array.dtype, array.shape, array.strides) for array in (weight, bias)]
    alignment = place.alignment(x, *parameters)
    job = job_of(op, x.dtype, x.shape, x.strides, axis, False, place.device, None, alignment, *known)
    if out is None and job.order is None:
        made = place.empty(job.shape, job.dtype)
        to = Target(made, made)
    else:
        job, to = _placed(job, place, out, x, *parameters)
    if job.copies:
        weight, bias = _contiguous(place, weight), _contiguous(place, bias)
    job.launch(place, x, to.written, weight, bias, eps)
    return delivered(place, to)


def _placed(job: RowJob, place: ArrayPlace, out: Any, x: Any, *parameters: Any) -> tuple[RowJob, Target]:
    """The result where it was given, or is not to lie in C order, and the job that writes it."""
    key = job.key
    if out is None:
        assert job.order is not None
        packed = place.empty(tuple([job.shape[d] for d in job.order]), job.dtype)
        made = packed.transpose(sorted(range(x.ndim), key=job.order.__getitem__))
        return job, Target(made, made)
    to = target(key.op.name, place, out, job.shape, job.dtype, x, *parameters, in_place=not key.op.per_row)
    alignment = min(key.alignment, place.alignment(to.written))
    return job_of(*key._replace(out_strides=to.written.strides, alignment=alignment)), to


def _together(op: Op, stream: Any, x: Any, weight: Any, bias: Any) -> tuple[ArrayPlace, Any, Any]:
    """The place of all arrays, and weight and bias as its arrays."""
    named = [(name, given) for name, given in (("weight", weight), ("bias", bias)) if given is not None]
    place, (_, *arrays) = array_place(op.name, stream, ("x", x), *named)
    found = dict(zip((name for name, _ in named), arrays, strict=True))
    return place, found.get("weight"), found.get("bias")


def _number(op: Op, eps: Any) -> float:
    return real(f"{op.name}: eps", eps)


def _contiguous(place: ArrayPlace, array: Any) -> Any:
    """A weight or a bias of any strides as the kernels take it."""
    return None if array is None else place.contiguous(array)
