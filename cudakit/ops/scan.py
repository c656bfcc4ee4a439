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
    """out[i] = x[0] + … + x[i] along `axis`, as ``numpy.cumsum``.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool, integers, floating point (float16 and bfloat16 too) or complex.
    axis : int or None
        Axis of the sums. None: all elements in row-major order; the result is then one-dimensional.
    exclusive : bool
        Whether x[i] itself is left out: out[i] = x[0] + … + x[i-1], and out[0] = 0, or `initial`.
    reverse : bool
        Whether to begin at the other end: out[i] = x[i] + … + x[n-1].
    keys : array, optional
        Keys that mark segments: one dimension as long as the axis, or x's shape. Each run of equal neighbours is a
        segment, which is scanned by itself. A segment begins where a key differs from the key before it. A NaN differs
        from every key.
    initial : number, optional
        Value before the first element, and before the first element of each segment: out[i] = initial + x[0] + …, as
        in CUB. Its dtype is the result's.
    dtype : dtype, optional
        Dtype of the result, to which elements are converted first. Default: int64 or uint64 for integers and bool, else
        x's dtype.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        Running sums. Integers wrap around. Float16 and bfloat16 accumulate in float, all others in the result's
        dtype. Shape, strides, dtype and device fix the order in which floating point is added (not 0, 1, 2, …).
        Every run on every stream gives the same bits.

    Raises
    ------
    ArgumentError
        The axis is out of range, the keys do not fit, the dtype cannot be summed, or `out` does not fit.

    Notes
    -----
    Unlike NumPy's, dtype=bool is refused for complex elements.

    With axis None, a view that is neither C-contiguous nor one-dimensional is copied first.

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
    """out[i] = x[0] · … · x[i] along `axis`, as ``numpy.cumprod``.

    Parameters, result dtype and errors are as for `cumsum`. With `exclusive` the first element is `initial`, or 1.
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
    """out[i] = min(x[0], …, x[i]) along `axis`, as ``numpy.minimum.accumulate``: NaN from the first NaN on.

    Parameters and errors are as for `cumsum`. The result has x's dtype. With `exclusive` the first element is
    `initial`, or by default +∞, or the greatest value of the dtype. If zeros of both signs are equal least elements,
    the result may be either.
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
    """out[i] = max(x[0], …, x[i]) along `axis`, as ``numpy.maximum.accumulate``: NaN from the first NaN on.

    Parameters and errors are as for `cumsum`. The result has x's dtype. With `exclusive` the first element is
    `initial`, or by default −∞, or the least value of the dtype. If zeros of both signs are equal greatest elements,
    the result may be either.
    """
    return _CUMMAX(x, keys, axis, exclusive, reverse, initial, None, out, stream)


class _NamedScan:
    """A scan of one array, or of one array by keys.

    Parameters
    ----------
    op : str
        Its name.
    inclusive, exclusive : str
        C++ names of the combining functions, for inclusive and for exclusive scans.
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
        shapes = tuple([array.shape for array in arrays])
        axis = one_axis(op, axis)
        if axis is None and any(array.ndim != 1 for array in arrays):
            arrays = [_flat(place, array) for array in arrays]
        layouts = tuple([(array.dtype, array.shape, array.strides) for array in arrays])
        exclusive, reverse = flag(f"{op}: exclusive", exclusive), flag(f"{op}: reverse", reverse)
        key = shapes, layouts, axis, exclusive, reverse, initial is not None, dtype_or_none(f"{op}: dtype", dtype)
        job = self._job_of(*key, None, place.device)
        number = None if initial is None else as_number(op, "initial", initial, job.dtypes[0])
        to = target(op, place, out, job.shape, job.dtypes[0], arrays[0], in_place=True)
        if out is not None and to.written is to.result and overlaps(to.result, *arrays[1:]):
            to = Target(place.empty(job.shape, job.dtypes[0]), to.result)
        if not to.written.flags.c_contiguous:
            job = self._job_of(*key, to.written.strides, place.device)
        if job.kernel is not None:
            status = place.status(job.scratch_bytes) if job.scratch_bytes else None
            first = () if initial is None else (_accumulator_dtype(to.written.dtype).type(number),)
            place.launch(job.kernel, job.config, *job.operands([*arrays, to.written]), *first, status, *job.numbers)
        return delivered(place, to)

    def _job(
        self,
        shapes: tuple[Ints, ...],
        layouts: tuple[Any, ...],
        axis: int | None,
        exclusive: bool,
        reverse: bool,
        starts: bool,
        result_dtype: Any,
        out_strides: Ints | None,
        device: int | str,
    ) -> Job:
        """Return the job of a call, after checking axis, dtypes and keys.

        `shapes` are the shapes of x and of the keys. `layouts` are their layouts as the kernel sees them: one dimension
        if `axis` is None. `starts`: there is an initial value.
        """
        op, (dtype, shape, _) = self._op, layouts[0]
        result = _result(op, self._widens, dtype, result_dtype)
        at = 0 if axis is None else axis_of(op, axis, len(shape))
        for of_keys, _, _ in layouts[1:]:
            cpp(op, of_keys, "keys")
            if shapes[1] not in (shapes[0], (shape[at],)):
                raise ArgumentError(
                    f"{op}: keys have shape {shapes[1]}; give ({shape[at]},), as long as the axis, or x's {shapes[0]}"
                )
        if 0 in shape:
            return Job(shape, (result,))
        strides = out_strides or tuple(step * result.itemsize for step in row_major(shape))
        operands = [array_of(op, layouts[0], shape), array_of(op, (result, shape, strides), shape)]
        if len(layouts) > 1:
            operands.append(_keys_of(op, layouts[1], shape, at))
        if reverse:
            operands = [backward(array, at, shape[at]) for array in operands]
        x, to, *keys = operands
        sum_dtype = _accumulator_dtype(result)
        item_bytes = sum_dtype.itemsize * (1 + len(keys))
        launch = plan_scan(
            op, ScanTask([x], [Writer(to, PACKED)], item_bytes, device, keys[0] if keys else None), shape, at
        )
        combined = self._exclusive if exclusive and not starts else self._inclusive
        types = *(layout[0] for layout in layouts), result, sum_dtype, combined, bool(exclusive)
        name = "scanned_by_keys" if keys else "scanned"
        kernel = Kernel.from_template(f"scan/{name}{'_from' * starts}")[(*types, launch.how.format("results"))]
        views = views_or_none([array.view for array in (x, *keys, to)])
        return Job(shape, (result,), kernel, launch.config, launch.scratch_bytes, (launch.layout,), views)


def _accumulator_dtype(result: np.dtype) -> np.dtype:
    """Return the dtype in which results of a dtype are combined."""
    return result if result.kind in "biufc" and result != np.float16 else np.dtype(np.float32)


def _flat(place: ArrayPlace, array: Any) -> Any:
    """Return all elements in row-major order: a view where possible."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    with place.inside():
        return array.reshape(-1)


def _keys_of(op: str, layout: tuple[Any, ...], shape: Ints, axis: int) -> Array:
    """Return the keys as an array of x's `shape`. Keys of one dimension are repeated for each line along the axis."""
    if len(layout[1]) == len(shape):
        return array_of(op, layout, shape)
    array = array_of(op, layout, (shape[axis],))
    return array._replace(steps=tuple(array.steps[0] if d == axis else 0 for d in range(len(shape))))


def _result(op: str, widens: bool, dtype: np.dtype, result_dtype: Any) -> np.dtype:
    """Return the dtype of a scan: `result_dtype`, or NumPy's, where sums of integers have 64 bits."""
    cpp(op, dtype)
    if result_dtype is None:
        if not widens or dtype.kind not in "biu" or dtype.itemsize == 8:
            return dtype
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    result = as_dtype(op, result_dtype)
    cpp(op, result, "dtype")
    if result.kind == "b" and dtype.kind == "c":
        raise ArgumentError(f"{op}: dtype bool cannot hold a {op} of {dtype}; compare it with 0 first")
    return result


_CUMSUM = _NamedScan("cumsum", "cudakit::running_plus", "cudakit::plus", widens=True)
_CUMPROD = _NamedScan("cumprod", "cudakit::times", "cudakit::times", widens=True)
_CUMMIN = _NamedScan("cummin", "cudakit::minimum", "cudakit::minimum")
_CUMMAX = _NamedScan("cummax", "cudakit::maximum", "cudakit::maximum")
