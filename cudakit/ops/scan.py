"""Running sums, products, minima and maxima along an axis, in one pass."""

from __future__ import annotations

from typing import Any

from cudakit.arrays.place import Place, output, place_of
from cudakit.arrays.scanning import Job, job_of


def cumsum(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = x[0] + … + x[i] along `axis`, as `numpy.cumsum` has it.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integer, floating point (float16 and bfloat16 too) or complex.
    axis : int or None
        None: along all elements in row-major order; the result is then one-dimensional.
    exclusive : bool
        Leave x[i] itself out: out[i] = x[0] + … + x[i-1], and out[0] = 0.
    reverse : bool
        Begin at the other end: out[i] = x[i] + … + x[n-1].
    keys : array, optional
        Of one dimension, as long as the axis, or of x's shape. Every run of equal neighbours is a segment, and is
        scanned for itself: a new one begins where a key differs from the one before (a NaN from any other).
    dtype : dtype, optional
        Of the result; elements are converted to it first. Default: int64 or uint64 for integers and bool, else x's.
    out : array, optional
        Where the result goes: its shape and dtype. May be x itself.
    stream : stream, optional
        Default: CuPy's current one.

    Returns
    -------
    array
        Integers modulo their range; float16 and bfloat16 accumulate in float, all others in the result's dtype.
        Floating point is added in an order that shape, strides, dtype and device fix (and not in the order 0, 1, 2, …):
        the same bits on every run and stream.

    Raises
    ------
    ArgumentError
        For an axis out of range, keys that do not fit, a dtype that does not add up, an `out` that does not fit or
        overlaps an input without being x.

    Notes
    -----
    Unlike NumPy's, dtype=bool and a real dtype for complex elements are refused. A view that is neither C-contiguous
    nor one-dimensional is copied first where axis is None.
    After Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back (2016).
    """
    return _scanned("cumsum", x, axis, exclusive, reverse, keys, dtype, out, stream)


def cumprod(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = x[0] · … · x[i] along `axis`, as `numpy.cumprod` has it.

    Parameters, result dtype and errors are those of `cumsum`; exclusive ones begin with 1.
    """
    return _scanned("cumprod", x, axis, exclusive, reverse, keys, dtype, out, stream)


def cummin(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = min(x[0], …, x[i]) along `axis`, as `numpy.minimum.accumulate` has it: NaN from the first NaN on.

    Parameters and errors are those of `cumsum`; the result has x's dtype. Exclusive ones begin with +∞, or the
    greatest value of the dtype. Of zeros of both signs the result may be either.
    """
    return _scanned("cummin", x, axis, exclusive, reverse, keys, None, out, stream)


def cummax(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = max(x[0], …, x[i]) along `axis`, as `numpy.maximum.accumulate` has it: NaN from the first NaN on.

    Parameters and errors are those of `cumsum`; the result has x's dtype. Exclusive ones begin with -∞, or the
    least value of the dtype. Of zeros of both signs the result may be either.
    """
    return _scanned("cummax", x, axis, exclusive, reverse, keys, None, out, stream)


def _scanned(
    op: str, x: Any, axis: int | None, exclusive: bool, reverse: bool, keys: Any, dtype: Any, out: Any, stream: Any
) -> Any:
    """`x` scanned along `axis`."""
    of_keys = of_out = None
    if keys is None:
        place, (x,) = place_of(op, stream, ("x", x))
    else:
        place, (x, keys) = place_of(op, stream, ("x", x), ("keys", keys))
        of_keys = keys.dtype, keys.shape, keys.strides
    if out is not None:
        if type(out) is not type(x):
            _, (out,) = place_of(op, stream, ("out", out))
        of_out = out.strides
    job = job_of(op, x.dtype, x.shape, x.strides, axis, exclusive, reverse, of_keys, dtype, of_out, place.device)
    result = output(op, place, out, job.shape, job.dtype, x, in_place=True)
    if job.kernel is None:
        return result
    seen, target = (x, x if keys is None else keys), result
    if keys is not None and out is not None:
        output(op, place, out, job.shape, job.dtype, keys)
    if job.viewed:
        seen, target = _views(place, job, x, keys, result, reverse)
    if job.status_bytes:
        job.kernel(place.stream, job.config, *seen, target, place.status(job.status_bytes), *job.numbers)
    else:
        job.kernel(place.stream, job.config, *seen, target, *job.numbers)
    return result


def _views(place: Place, job: Job, x: Any, keys: Any, out: Any, reverse: bool) -> tuple[tuple[Any, Any], Any]:
    """What the kernel of a job sees of the arrays: x, keys, and out."""
    if job.flat:
        x = _flat(place, x)
        keys = None if keys is None else _flat(place, keys)
    elif keys is not None and keys.ndim == 1:
        keys = keys.reshape((-1,) + (1,) * (x.ndim - 1 - job.axis))
    keys = x if keys is None else place.xp.broadcast_to(keys, x.shape)
    if reverse:
        backward = (slice(None),) * job.axis + (slice(None, None, -1),)
        x, keys, out = x[backward], keys[backward], out[backward]
    return (x, keys), out


def _flat(place: Place, x: Any) -> Any:
    """All elements in row-major order: a view where there is one."""
    with place.inside():
        return x.reshape(-1)
