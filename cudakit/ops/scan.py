"""Running sums, products, minima and maxima along an axis, in one pass."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cudakit.arrays.layout import axis_of, one_axis, row_major
from cudakit.arrays.output import Target, as_dtype, as_number, cpp, overlaps, real_part, target
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.plans import PACKED, Array, Job, ScanTask, Writer, array_of, backward, plan_scan, views_or_none
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import Ints, delivered
from cudakit.types.checked import dtype_or_none, flag


@repeated("out")
def cumsum(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    initial: Any = None,
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
        Leave x[i] itself out: out[i] = x[0] + … + x[i-1], and out[0] = 0, or `initial`.
    reverse : bool
        Begin at the other end: out[i] = x[i] + … + x[n-1].
    keys : array, optional
        Of one dimension, as long as the axis, or of x's shape. Every run of equal neighbours is a segment, and is
        scanned for itself: a new one begins where a key differs from the one before (a NaN from any other).
    initial : number, optional
        What comes before the first element, and before that of each segment: out[i] = initial + x[0] + …, as
        CUB's scans have it. Of the result's dtype.
    dtype : dtype, optional
        Of the result; elements are converted to it first. Default: int64 or uint64 for integers and bool, else x's.
    out : array, optional
        Where the result goes: its shape, and its dtype or one that it is cast to within its kind; any strides.
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
        For an axis out of range, keys that do not fit, a dtype that does not add up, an `out` that does not fit.

    Notes
    -----
    Unlike NumPy's, dtype=bool for complex elements is refused. A view that is neither C-contiguous
    nor one-dimensional is copied first where axis is None.
    After Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back (2016).
    """
    return _CUMSUM(real_part(x, dtype), keys, axis, exclusive, reverse, initial, dtype, out, stream)


@repeated("out")
def cumprod(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    initial: Any = None,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = x[0] · … · x[i] along `axis`, as `numpy.cumprod` has it.

    Parameters, result dtype and errors are those of `cumsum`; exclusive ones begin with 1, or `initial`.
    """
    return _CUMPROD(real_part(x, dtype), keys, axis, exclusive, reverse, initial, dtype, out, stream)


@repeated("out")
def cummin(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    initial: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = min(x[0], …, x[i]) along `axis`, as `numpy.minimum.accumulate` has it: NaN from the first NaN on.

    Parameters and errors are those of `cumsum`; the result has x's dtype. Exclusive ones begin with `initial`, or
    +∞, or the greatest value of the dtype. Of zeros of both signs the result may be either.
    """
    return _CUMMIN(x, keys, axis, exclusive, reverse, initial, None, out, stream)


@repeated("out")
def cummax(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    initial: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = max(x[0], …, x[i]) along `axis`, as `numpy.maximum.accumulate` has it: NaN from the first NaN on.

    Parameters and errors are those of `cumsum`; the result has x's dtype. Exclusive ones begin with `initial`, or
    -∞, or the least value of the dtype. Of zeros of both signs the result may be either.
    """
    return _CUMMAX(x, keys, axis, exclusive, reverse, initial, None, out, stream)


class _NamedScan:
    """A scan of one array, or of one by keys.

    Parameters
    ----------
    op : str
        Its name.
    inclusive, exclusive : str
        What is combined, as the templates name it.
    widens : bool
        Whether sums of integers have 64 bits.
    """

    def __init__(self, op: str, inclusive: str, exclusive: str, widens: bool = False) -> None:
        self._op, self._inclusive, self._exclusive, self._widens = op, inclusive, exclusive, widens
        self._job_of = functools.lru_cache(4096)(self._job)

    def __call__(
        self,
        x: Any,
        keys: Any,
        axis: int | None,
        exclusive: bool,
        reverse: bool,
        initial: Any,
        dtype: Any,
        out: Any,
        stream: Any,
    ) -> Any:
        op = self._op
        place, arrays = array_place(op, stream, ("x", x), *(() if keys is None else (("keys", keys),)))
        shapes = tuple([each.shape for each in arrays])
        axis = one_axis(op, axis)
        if axis is None and any(each.ndim != 1 for each in arrays):
            arrays = [_flat(place, each) for each in arrays]
        kinds = tuple([(each.dtype, each.shape, each.strides) for each in arrays])
        exclusive, reverse = flag(f"{op}: exclusive", exclusive), flag(f"{op}: reverse", reverse)
        kind = shapes, kinds, axis, exclusive, reverse, initial is not None, dtype_or_none(f"{op}: dtype", dtype)
        job = self._job_of(*kind, None, place.device)
        number = None if initial is None else as_number(op, "initial", initial, job.dtypes[0])
        to = target(op, place, out, job.shape, job.dtypes[0], arrays[0], in_place=True)
        if out is not None and to.written is to.result and overlaps(to.result, *arrays[1:]):
            to = Target(place.empty(job.shape, job.dtypes[0]), to.result)
        if not to.written.flags.c_contiguous:
            job = self._job_of(*kind, to.written.strides, place.device)
        if job.kernel is not None:
            status = place.status(job.scratch_bytes) if job.scratch_bytes else None
            first = () if initial is None else (_kept(to.written.dtype).type(number),)
            place.launch(job.kernel, job.config, *job.operands([*arrays, to.written]), *first, status, *job.numbers)
        return delivered(place, to)

    def _job(
        self,
        shapes: tuple[Ints, ...],
        kinds: tuple[Any, ...],
        axis: int | None,
        exclusive: bool,
        reverse: bool,
        starts: bool,
        wanted: Any,
        out_strides: Ints | None,
        device: int | str,
    ) -> Job:
        """`shapes` are those of the inputs, `kinds` of what the kernel sees of them: with no axis, one dimension."""
        op, (dtype, shape, _) = self._op, kinds[0]
        result = _result(op, self._widens, dtype, wanted)
        at = 0 if axis is None else axis_of(op, axis, len(shape))
        for of_keys, _, _ in kinds[1:]:
            cpp(op, of_keys, "keys")
            if shapes[1] not in (shapes[0], (shape[at],)):
                raise ArgumentError(
                    f"{op}: keys have shape {shapes[1]}; give ({shape[at]},), as long as the axis, or x's {shapes[0]}"
                )
        if 0 in shape:
            return Job(shape, (result,))
        strides = out_strides or tuple(step * result.itemsize for step in row_major(shape))
        seen = [array_of(op, kinds[0], shape), array_of(op, (result, shape, strides), shape)]
        if len(kinds) > 1:
            seen.append(_keys_of(op, kinds[1], shape, at))
        if reverse:
            seen = [backward(array, at, shape[at]) for array in seen]
        x, to, *keys = seen
        kept = _kept(result)
        item_bytes = kept.itemsize * (1 + len(keys))
        launch = plan_scan(
            op, ScanTask([x], [Writer(to, PACKED)], item_bytes, device, keys[0] if keys else None), shape, at
        )
        combined = self._exclusive if exclusive and not starts else self._inclusive
        types = *(kind[0] for kind in kinds), result, kept, combined, bool(exclusive)
        name = "scanned_by_keys" if keys else "scanned"
        kernel = Kernel.from_template(f"scan/{name}{'_from' * starts}")[(*types, launch.how.format("results"))]
        views = views_or_none([each.view for each in (x, *keys, to)])
        return Job(shape, (result,), kernel, launch.config, launch.scratch_bytes, (launch.layout,), views)


def _kept(result: np.dtype) -> np.dtype:
    """What results of a dtype are combined in."""
    return result if result.kind in "biufc" and result != np.float16 else np.dtype(np.float32)


def _flat(place: ArrayPlace, array: Any) -> Any:
    """All elements in row-major order: a view where there is one."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    with place.inside():
        return array.reshape(-1)


def _keys_of(op: str, kind: tuple[Any, ...], shape: Ints, axis: int) -> Array:
    """Keys of all lines, where they have one dimension."""
    if len(kind[1]) == len(shape):
        return array_of(op, kind, shape)
    array = array_of(op, kind, (shape[axis],))
    return array._replace(steps=tuple(array.steps[0] if d == axis else 0 for d in range(len(shape))))


def _result(op: str, widens: bool, dtype: np.dtype, wanted: Any) -> np.dtype:
    """Dtype of a scan: as asked for, or NumPy's, where sums of integers have 64 bits."""
    cpp(op, dtype)
    if wanted is None:
        if not widens or dtype.kind not in "biu" or dtype.itemsize == 8:
            return dtype
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    result = as_dtype(op, wanted)
    cpp(op, result, "dtype")
    if result.kind == "b" and dtype.kind == "c":
        raise ArgumentError(f"{op}: dtype bool cannot hold a {op} of {dtype}; compare it with 0 first")
    return result


_CUMSUM = _NamedScan("cumsum", "cudakit::running_plus", "cudakit::plus", widens=True)
_CUMPROD = _NamedScan("cumprod", "cudakit::times", "cudakit::times", widens=True)
_CUMMIN = _NamedScan("cummin", "cudakit::minimum", "cudakit::minimum")
_CUMMAX = _NamedScan("cummax", "cudakit::maximum", "cudakit::maximum")
