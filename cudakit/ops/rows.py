"""Softmax, log-softmax, log-sum-exp, layer and root-mean-square normalisation: fused, one read and one write."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import Axis, axes_of, merged, without
from cudakit.arrays.output import Target, target
from cudakit.arrays.place import ArrayPlace, array_place, device_limits
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import Ints, delivered
from cudakit.types.checked import flag, real
from cudakit.types.cpp import NARROW

#: C++ type of a dtype, and the type of its arithmetic; integers are computed as float64.
_DOUBLE = ("double", "double")
_TYPES = {
    **{dtype: (name, "float") for dtype, name in NARROW.items()},
    "float32": ("float", "float"),
    "float64": _DOUBLE,
}

#: Threads of a block and packs of a thread for rows that a warp does not hold, the fastest for lengths from 256 to
#: 32768 on an H200: the first is taken that holds a row. The last is that of a cluster's largest blocks.
_ROW_SHAPES = ((64, 2), (128, 2), (256, 2), (256, 4), (512, 4), (512, 8), (1024, 8))
#: Blocks of a cluster that a device of compute capability 9.0 surely runs.
_CLUSTER = 8
#: Elements that a thread of the kernels for any layout takes at a time; half as many, and more threads, are faster
#: where that many do not hold a line.
_ITEMS = 16
#: Rows of at most so many elements that lie unaligned come by shared memory, a thread for so many of them, of 4 bytes
#: or of 8: what registers hold.
_SHORT, _STAGED, _STAGED_DOUBLES, _PACK = 64, 32, 20, 16
_WHOLE = "cudakit::ends::whole"


class Op(NamedTuple):
    """An operation on rows.

    Attributes
    ----------
    name : str
        Name of the struct in the template, also used in messages.
    template : str
        Name of the template.
    per_row : bool
        Whether the result is one value for each row.
    state_items : int
        Number of values in the op's state, of the type of the arithmetic.
    weighted : bool
        Whether the op takes a weight and a bias. Their elements are in the C order of a row's elements.
    """

    name: str
    template: str
    per_row: bool
    state_items: int
    weighted: bool


SOFTMAX = Op("softmax", "softmax", False, 2, False)
LOG_SOFTMAX = Op("log_softmax", "softmax", False, 2, False)
LOGSUMEXP = Op("logsumexp", "softmax", True, 2, False)
LAYERNORM = Op("layernorm", "norm", False, 3, True)
RMSNORM = Op("rmsnorm", "norm", False, 2, True)


class Parameter(NamedTuple):
    """A weight or a bias."""

    dtype: np.dtype
    shape: Ints
    strides: Ints


class Key(NamedTuple):
    """Everything on which a job depends.

    Attributes
    ----------
    strides, out_strides : tuple of int
        Strides in bytes. `out_strides` is None for a new result.
    alignment : int
        Common alignment of all addresses, in bytes: a power of two, at most 16.
    weight, bias : Parameter or None
        Weight and bias, or None.
    """

    op: Op
    dtype: np.dtype
    shape: Ints
    strides: Ints
    axis: Axis
    keepdims: bool
    device: int | str
    out_strides: Ints | None
    alignment: int
    weight: Parameter | None = None
    bias: Parameter | None = None


class RowJob(NamedTuple):
    """The result and the launch of a call with these dtypes, shapes and strides.

    Attributes
    ----------
    key : Key
        Everything on which the job depends.
    shape, dtype
        Shape and dtype of the result.
    order : tuple of int or None
        Axes of a new result from the slowest to the fastest, as they are in x. None: C order.
    copies : bool
        Whether weight or bias must be copied to contiguous memory.
    launch : callable
        Function ``launch(place, x, result, *parameters)``, which launches the kernels.
    """

    key: Key
    shape: Ints
    dtype: np.dtype
    order: Ints | None
    copies: bool
    launch: Callable[..., None]


@functools.lru_cache(4096)
def job_of(*fields: Any) -> RowJob:
    """Return the job for the fields of a `Key`.

    Raises
    ------
    ArgumentError
        The axis is out of range, the dtype has no arithmetic, or the weight or bias does not fit.
    """
    key = Key(*fields)
    op, dtype, shape = key.op, key.dtype, key.shape
    result_dtype = _result_dtype(op, dtype)
    axes = axes_of(op.name, key.axis, len(shape))
    result_shape = without(shape, axes, key.keepdims) if op.per_row else shape
    order = None if op.per_row or key.out_strides else _dense_order(key)
    out_strides = key.out_strides
    if out_strides is None:
        out_strides = _packed(result_shape, result_dtype.itemsize, order or range(len(result_shape)))
    if op.per_row:
        out_strides = _row_result_strides(out_strides, axes, len(shape), key.keepdims)
    copies = _check_parameters(key, tuple(shape[axis] for axis in axes))
    if 0 in result_shape:
        launch: Callable[..., None] = _do_nothing
    else:
        launch = _rows(key, axes, out_strides, result_dtype) or _lines(key, axes, out_strides, result_dtype)
    return RowJob(key, result_shape, result_dtype, order, copies, launch)


def _do_nothing(*arguments: Any) -> None:
    """Do nothing: the launch for an empty result."""


def _check_parameters(key: Key, expected: Ints) -> bool:
    """Return whether the weight or the bias must be copied because it is not C-contiguous.

    Raises
    ------
    ArgumentError
        The dtype of one of them is not supported, or its shape is not `expected`.
    """
    copies = False
    for name, parameter in (("weight", key.weight), ("bias", key.bias)):
        if parameter is None:
            continue
        dtype, shape, strides = parameter
        if dtype.name not in _TYPES:
            raise ArgumentError(f"{key.op.name}: {name} has dtype {dtype}; expected {', '.join(_TYPES)}")
        if shape != expected:
            raise ArgumentError(f"{key.op.name}: {name} has shape {shape}; x has {expected} along axis {key.axis}")
        copies = copies or strides != _packed(shape, dtype.itemsize, range(len(shape)))
    return copies


def _result_dtype(op: Op, dtype: np.dtype) -> np.dtype:
    if dtype.name in _TYPES:
        return dtype
    if dtype.kind in "biu":
        return np.dtype(np.float64)
    raise ArgumentError(
        f"{op.name}: x has dtype {dtype}; expected float16, bfloat16, float32, float64, bool or integers"
    )


def _dense_order(key: Key) -> Ints | None:
    """Return the axes from the slowest to the fastest if x fills its memory in another order than C's, else None."""
    extent = key.dtype.itemsize
    order = sorted(range(len(key.shape)), key=lambda axis: (-abs(key.strides[axis]), axis))
    for axis in reversed(order):
        if key.shape[axis] != 1 and key.strides[axis] != extent:
            return None
        extent *= key.shape[axis]
    return None if order == sorted(order) else tuple(order)


def _packed(shape: Sequence[int], itemsize: int, order: Sequence[int]) -> Ints:
    """Return the strides in bytes of a new array whose axes lie in `order` in memory."""
    strides = [0] * len(shape)
    for axis in reversed(order):
        strides[axis] = itemsize
        itemsize *= max(1, shape[axis])
    return tuple(strides)


def _row_result_strides(strides: Sequence[int], axes: Sequence[int], ndim: int, keepdims: bool) -> Ints:
    """Return strides of a result with one value for each row, along all `ndim` dimensions of x.

    They are 0 along `axes`, the reduced axes. `strides` are the result's own.
    """
    left = iter(stride for d, stride in enumerate(strides) if not keepdims or d not in axes)
    return tuple(0 if d in axes else next(left) for d in range(ndim))


class _Layout(NamedTuple):
    """Dimensions of x and of the result, with strides of both in elements. Dimensions across the lines come first."""

    outer: Ints
    inner: Ints
    x: Ints
    out: Ints
    axes: Ints


def _layout(key: Key, axes: Ints, out_strides: Sequence[int], result: np.dtype) -> _Layout:
    """Return x and the result with as few dimensions as possible.

    `axes` are the axes of the lines. They go from the greatest stride to the least, or in C order if there is a weight
    or bias.
    """
    x = [stride // key.dtype.itemsize for stride in key.strides]
    out = [stride // result.itemsize for stride in out_strides]

    def picked(dimensions: Sequence[int]) -> tuple[Ints, ...]:
        merged_axes = merged(*([values[d] for d in dimensions] for values in (key.shape, x, out)))
        return merged_axes if merged_axes[0] else ((1,), (0,), (0,))

    across = sorted((d for d in range(len(x)) if d not in axes), key=lambda d: -abs(x[d]))
    # A weight numbers the elements in C order; without one, any order will do.
    along = axes if key.weight or key.bias else tuple(sorted(axes, key=lambda d: -abs(x[d])))
    outer, inner = picked(across), picked(along)
    return _Layout(outer[0], inner[0], outer[1] + inner[1], outer[2] + inner[2], (*across, *along))


def _functor(key: Key, aligned: bool = False) -> list[Any]:
    """Return the kernel's last template arguments: C++ types of weight and bias if the op takes them, then the op's
    type.

    `aligned` says that neighbouring elements of weight and bias are read by one load.
    """
    cpp, arithmetic = _TYPES.get(key.dtype.name, _DOUBLE)
    if not key.op.weighted:
        return [f"cudakit::{key.op.name}<{cpp}, {arithmetic}>"]
    types = ["void" if parameter is None else _TYPES[parameter[0].name][0] for parameter in (key.weight, key.bias)]
    return [*types, f"cudakit::{key.op.name}<{arithmetic}, {', '.join(types)}, {str(aligned).lower()}>"]


def _rows(key: Key, axes: Ints, out_strides: Sequence[int], result: np.dtype) -> Callable[..., None] | None:
    """Return the launch of the kernel for contiguous rows. None if rows are not contiguous, or are too long."""
    outer, inner, x, out, axes_in_memory = _layout(key, axes, out_strides, result)
    if len(outer) > 1 or len(inner) > 1:
        return None
    (rows,), (length,) = outer, inner
    in_memory = [axis for axis in axes_in_memory if key.shape[axis] != 1]
    transposition = None if in_memory == sorted(in_memory) else axes_in_memory
    if key.op.per_row:
        fits = (out[0] == 1 or rows == 1) and not transposition
    else:
        fits = (out[1] == 1 or length == 1) and (out[0] == length or rows == 1)
    if not fits or not (x[1] == 1 or length == 1) or not (x[0] == length or rows == 1) or length >= 1 << 31:
        return None
    shape = _group(key, length, max(key.dtype.itemsize, result.itemsize))
    if shape is None:
        return None
    group, block, packs, count, ends = shape
    kernel = Kernel.from_template(f"{key.op.template}/rows")[
        key.dtype, result, *_functor(key, ends == _WHOLE), group, block, packs, count, ends
    ]
    blocks = -(-rows * group // block)
    where = config(blocks, block, cluster=group // block if group > block else None)

    def launch(place: Any, x: Any, out: Any, *parameters: Any) -> None:
        place.launch(kernel, where, x, out, rows, length, *parameters)

    def launch_transposed(place: Any, x: Any, out: Any, *parameters: Any) -> None:
        launch(place, x.transpose(transposition), out.transpose(transposition), *parameters)

    return launch_transposed if transposition else launch


def _pack(key: Key, result: np.dtype, outer: Ints, length: int, x: Ints, out: Ints) -> int:
    """Return the number of elements that one load takes along a line."""
    if x[-1] != 1 or (out[-1] != 1 and not key.op.per_row) or len(x) > len(outer) + 1:
        return 1
    across = (*x[: len(outer)], *(() if key.op.per_row else out[: len(outer)]))
    return math.gcd(max(1, key.alignment // max(key.dtype.itemsize, result.itemsize)), length, *across)


def _group(key: Key, length: int, itemsize: int) -> tuple[int, int, int, int, str] | None:
    """Return how a row of `length` elements is divided among threads, or None for a row that is too long.

    The result is: threads of a row, threads of a block, packs of a thread, elements of a pack, and C++ for the
    treatment of incomplete packs at the ends. A pack is what one load moves.
    """
    widest = max(1, key.alignment // itemsize)
    count = math.gcd(length, widest)
    # Loads of 8 bytes do as well as those of 16; a row of few packs is mostly its ends.
    ragged = count * itemsize < 8 and length >= 4 * widest > 4 * count
    is_double = _TYPES.get(key.dtype.name, _DOUBLE) == _DOUBLE
    if (count * itemsize < 8 or count == 1) and count < length <= _SHORT and key.alignment == _PACK:
        group = _power_of_two(-(-length // (_STAGED_DOUBLES if is_double else _STAGED)))
        return group, 128, -(-length // group), 1, "cudakit::ends::staged"
    if ragged:
        count = widest
    ends = "cudakit::ends::ragged" if ragged else _WHOLE
    packs = -(-max(1, length + (count - 1) * ragged) // count)
    most = (16 if is_double else 32) // count  # what registers hold
    thread_packs = max(1, 32 // (count * itemsize))
    if packs <= 32 * min(thread_packs, most):
        # Neighbouring threads take neighbouring packs of a row of few.
        group = max(_power_of_two(-(-packs // thread_packs)), min(2, packs))
        return group, 128, -(-packs // group), count, ends
    for threads, thread_packs in _ROW_SHAPES:
        if packs <= threads * min(thread_packs, most):
            return threads, threads, -(-packs // threads), count, ends
    block, thread_packs = _ROW_SHAPES[-1]
    group = _power_of_two(-(-packs // (block * min(thread_packs, most)))) * block
    if group <= _CLUSTER * block and device_limits(key.device).compute_capability >= (9, 0):
        # A multiprocessor has two blocks, perhaps of two rows, of which one loads while the other stores.
        return group, max(512, group // _CLUSTER), -(-packs // group), count, ends
    return None


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _lines(key: Key, axes: Ints, out_strides: Sequence[int], result: np.dtype) -> Callable[..., None]:
    """Return the launch of the kernels for lines of any layout and length."""
    outer, inner, x_strides, out_steps, _ = _layout(key, axes, out_strides, result)
    shape, rank = (*outer, *inner), len(outer) + len(inner)
    out_shape = (*outer, *[1] * len(inner)) if key.op.per_row else shape
    count, length = math.prod(outer), math.prod(inner)
    # Neighbouring threads take neighbouring elements: along the line, or those of lines side by side.
    beside = count > 1 and 0 < abs(x_strides[len(outer) - 1]) < (abs(x_strides[-1]) if length > 1 else 2)
    width = min(32, _power_of_two(count)) if beside else 1
    pack = 1 if beside else _pack(key, result, outer, length, x_strides, out_steps)
    items = _ITEMS if length <= 512 // width * _ITEMS or pack > 1 else _ITEMS // 2
    is_scaled = not key.op.weighted and not key.op.per_row
    if beside and is_scaled and length >= 256 and key.dtype.name != "float32":
        # Softmax of (256, 2^20) float64 on an H200: 2.12 ms with a second read, 2.50 with the registers that save it.
        items = 4
    if len(inner) > 1:
        items = 4  # an element's place takes a division for each dimension
    packs = max(1, items // pack)
    block = max(128, min(512, _power_of_two(-(-max(1, length) // (packs * pack))) * width))
    tail = (len(inner), width, block, packs, pack)
    template = Kernel.from_template
    blocks = -(-count // width)
    tiles = -(-length // (block // width * packs * pack))
    parts = min(tiles, -(-4 * device_limits(key.device).multiprocessors // blocks), 1024)
    x_bytes = tuple(step * key.dtype.itemsize for step in x_strides)
    out_bytes = tuple(step * result.itemsize for step in out_steps)
    functor = _functor(key)

    def views(place: Any, x: Any, out: Any) -> tuple[Any, Any]:
        strided = place.xp.lib.stride_tricks.as_strided
        return strided(x, shape, x_bytes), strided(out, out_shape, out_bytes)

    if parts < 4:
        kernel = template(f"{key.op.template}/lines")[key.dtype, result, rank, *functor, *tail]
        where = config(blocks, block)

        def launch(place: Any, x: Any, out: Any, *parameters: Any) -> None:
            place.launch(kernel, where, *views(place, x, out), *parameters)

        return launch

    first = template(f"{key.op.template}/parts")[key.dtype, rank, functor[-1], *tail]
    second = template(f"{key.op.template}/join")[key.dtype, result, rank, *functor, *tail]
    split, joined = config((blocks, parts), block), config((blocks, 1 if key.op.per_row else parts), block)
    state_bytes = count * parts * key.op.state_items * 8

    def launch_both(place: Any, x: Any, out: Any, *parameters: Any) -> None:
        x, out = views(place, x, out)
        states = place.workspace(state_bytes)
        place.launch(first, split, x, states)
        place.launch(second, joined, x, out, states, parts, *parameters)

    return launch_both


__all__ = ["layernorm", "log_softmax", "logsumexp", "rmsnorm", "softmax"]


@repeated("out")
def softmax(x: Any, axis: Axis = -1, *, out: Any = None, stream: Any = None) -> Any:
    """Exponentials divided by their sum: exp(x) / Σ exp(x), where the sum is along `axis`.

    Parameters
    ----------
    x : array
        Input of any shape and strides; float16, bfloat16, float32, float64, bool or integers.
    axis : int, tuple of int or None
        Axes of the sum. None: all axes.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        Array of x's shape, and of x's memory layout if x is dense. Its dtype is x's, or float64 for bool and
        integers.

    Raises
    ------
    ArgumentError
        The axis is out of range, the dtype has no arithmetic, or `out` does not fit.

    Notes
    -----
    float16, bfloat16 and float32 are computed in float, float64 in double. Every run on every stream gives the same
    bits.

    The error of an element has two parts. One part is the rounding of the sum. The other is at most 4 + |x − max x| / 2
    units in the last place of the computation's type. For float16 and bfloat16 it is at most 6 + 2 |x − max x| units of
    float. The rounding to float16 or bfloat16 hides it.

    Contiguous rows are read once and written once up to 1 MiB of numbers of that type (128 KiB before compute
    capability 9.0). The same holds for slices of up to 256 elements along other axes. Longer rows and slices are read
    twice.

    As in SciPy, a slice gives NaN throughout if it holds NaN or ∞, or only −∞.

    Differences from SciPy: the default of `axis` is the last axis, and a slice of no elements gives no elements.

    Milakov and Gimelshein, Online normalizer calculation for softmax, 2018.
    """
    return _applied(SOFTMAX, x, axis, out, stream)


@repeated("out")
def log_softmax(x: Any, axis: Axis = -1, *, out: Any = None, stream: Any = None) -> Any:
    """Logarithm of `softmax`: x − log Σ exp(x), where the sum is along `axis`.

    Parameters, result, dtypes, errors and speed are as for `softmax`.

    Notes
    -----
    As in SciPy, a slice with ∞ gives −∞ for its finite elements and NaN for its elements at ∞. A slice gives NaN
    throughout if it holds NaN, or only −∞.
    """
    return _applied(LOG_SOFTMAX, x, axis, out, stream)


@repeated("out")
def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False, *, out: Any = None, stream: Any = None) -> Any:
    """Logarithm of the sum of exponentials: log Σ exp(x), where the sum is along `axis`.

    Parameters
    ----------
    x, out, stream
        As for `softmax`.
    axis : int, tuple of int or None
        Axes of the sum. None: all axes.
    keepdims : bool
        Whether reduced axes stay, with length 1.

    Returns
    -------
    array
        C-contiguous array of x's dtype; float64 if x is bool or integer.

    Raises
    ------
    ArgumentError
        As for `softmax`.

    Notes
    -----
    Each element is read once.

    Special slices give the results of SciPy:

    - ∞ if the slice holds ∞;
    - −∞ if it holds only −∞, or nothing;
    - NaN if it holds NaN.

    Unlike SciPy's, there are no weights and no complex numbers. A sum just above 1 is not computed by log1p. The error
    is therefore absolute: some units in the last place of 1 + |result|.
    """
    return _applied(LOGSUMEXP, x, axis, out, stream, flag("logsumexp: keepdims", keepdims))


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
    """(x − mean) / √(variance + eps) · weight + bias, where mean and variance are along `axis`.

    Parameters
    ----------
    x, out, stream
        As for `softmax`.
    weight, bias : array, optional
        Factors and summands of the normalized elements: shape of the axes in ascending order; float16, bfloat16,
        float32 or float64. Default: 1 and 0.
    eps : float
        Number added to the variance.
    axis : int, tuple of int or None
        Axes of mean and variance. None: all axes.

    Returns
    -------
    array
        Array of x's shape, and of x's memory layout if x is dense. Its dtype is x's, or float64 for bool and
        integers. It does not depend on the dtypes of weight and bias.

    Raises
    ------
    ArgumentError
        As for `softmax`, or the weight or bias has another shape or dtype.

    Notes
    -----
    The variance is divided by n, as in NumPy's `var`. It is computed from the distances to the mean, never as a
    difference of two large sums. Arithmetic, determinism and speed are as for `softmax`.

    - Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979.
    - Ba, Kiros and Hinton, Layer normalization, 2016.
    """
    return _applied(LAYERNORM, x, axis, out, stream, normalised=(weight, bias, eps))


@repeated("out")
def rmsnorm(
    x: Any, weight: Any = None, eps: float = 1e-6, axis: Axis = -1, *, out: Any = None, stream: Any = None
) -> Any:
    """Root-mean-square normalization: x / √(mean of x² + eps) · weight, where the mean is along `axis`.

    Parameters, result, dtypes, errors and speed are as for `layernorm`.

    Notes
    -----
    Zhang and Sennrich, Root mean square layer normalization, 2019.
    """
    return _applied(RMSNORM, x, axis, out, stream, normalised=(weight, None, eps))


def _applied(
    op: Op, x: Any, axis: Any, out: Any, stream: Any, keepdims: bool = False, normalised: Sequence[Any] = (None,) * 3
) -> Any:
    """Run an op on rows and return its result.

    `normalised` are weight, bias and eps, for ops that take them.
    """
    weight, bias, eps = normalised
    place, (x,) = array_place(op.name, stream, ("x", x))
    array_type = type(x)
    if (weight is not None and type(weight) is not array_type) or (bias is not None and type(bias) is not array_type):
        place, weight, bias = _together(op, stream, x, weight, bias)
    if op.weighted and type(eps) is not float:
        eps = real(f"{op.name}: eps", eps)
    if type(axis) is not int and axis is not None:
        axis = axes_of(op.name, axis, x.ndim)
    parameters = [array for array in (weight, bias) if array is not None]
    layouts = [None if array is None else (array.dtype, array.shape, array.strides) for array in (weight, bias)]
    alignment = place.alignment(x, *parameters)
    job = job_of(op, x.dtype, x.shape, x.strides, axis, keepdims, place.device, None, alignment, *layouts)
    if job.copies:
        weight, bias = (None if array is None else place.contiguous(array) for array in (weight, bias))
    numbers = (weight, bias, eps) if op.weighted else ()
    if out is None and job.order is None:
        result = place.empty(job.shape, job.dtype)
        job.launch(place, x, result, *numbers)
        return result
    job, to = _placed(job, place, out, x, *parameters)
    job.launch(place, x, to.written, *numbers)
    return delivered(place, to)


def _placed(job: RowJob, place: ArrayPlace, out: Any, x: Any, *parameters: Any) -> tuple[RowJob, Target]:
    """Return the job of a call that needs an `out` or a new array in another order than C's, and its `Target`.

    `out` None: a new array in the order of `job`. Otherwise the job is made again for the strides of `out`.
    """
    key = job.key
    if out is None:
        assert job.order is not None
        packed = place.empty(tuple([job.shape[d] for d in job.order]), job.dtype)
        result = packed.transpose(sorted(range(x.ndim), key=job.order.__getitem__))
        return job, Target(result, result)
    to = target(key.op.name, place, out, job.shape, job.dtype, x, *parameters, in_place=not key.op.per_row)
    alignment = min(key.alignment, place.alignment(to.written))
    return job_of(*key._replace(out_strides=to.written.strides, alignment=alignment)), to


def _together(op: Op, stream: Any, x: Any, weight: Any, bias: Any) -> tuple[ArrayPlace, Any, Any]:
    """Return the execution place of all arrays, and weight and bias as arrays of this place."""
    parameters = [
        (name, parameter) for name, parameter in (("weight", weight), ("bias", bias)) if parameter is not None
    ]
    place, (_, *arrays) = array_place(op.name, stream, ("x", x), *parameters)
    by_name = dict(zip((name for name, _ in parameters), arrays, strict=True))
    return place, by_name.get("weight"), by_name.get("bias")
