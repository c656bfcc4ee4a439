"""Operations that flip, roll, pad and join arrays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.layout import (
    Axis,
    axes_of,
    axis_of,
    flat,
    integers,
    is_row_major,
    merged,
    one_axis,
    record,
    steps_of,
)
from cudakit.arrays.output import Casting, as_dtype, as_number, target
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.plans import Job
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, error_text, shortened
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.ufuncs import Ufunc, assign
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops import reduce
from cudakit.ops.copies import Dimension, Ints, cast, copy, delivered, mapped_job, moved, word_of
from cudakit.types.checked import CASTINGS, is_one_of, text_of
from cudakit.types.cpp import is_real


@repeated("out")
def flip(x: Any, axis: Axis = None, *, out: Any = None, stream: Any = None) -> Any:
    """out[…, k, …] = x[…, n − 1 − k, …] along each of the axes.

    Parameters
    ----------
    x : array
        Input of any shape and strides, with elements of 1, 2, 4, 8 or 16 bytes.
    axis : int or sequence of int, optional
        Axes to flip. Default: all axes.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        C-contiguous array. The result is a copy, never a view as in NumPy.

    Raises
    ------
    ArgumentError
        The axis is out of range, the elements have another size, or `out` does not fit.
    """
    place, (x,) = array_place("flip", stream, ("x", x))
    return moved("flip", place, x, out, _flip_job, integers("flip", "axis", axis))


@functools.lru_cache(4096)
def _flip_job(dtype: np.dtype, shape: Ints, strides: Ints, axis: Axis, out_strides: Ints | None) -> Job:
    axes = axes_of("flip", axis, len(shape))
    steps = steps_of("flip", dtype, strides)
    start = sum((shape[d] - 1) * steps[d] for d in axes if shape[d])
    dimensions = [
        Dimension(n, n, -step if d in axes else step) for d, (n, step) in enumerate(zip(shape, steps, strict=True))
    ]
    return mapped_job("flip", "identity", dtype, shape, steps, dimensions, out_strides, start=start)


@repeated("out")
def roll(x: Any, shift: int | Sequence[int], axis: Axis = None, *, out: Any = None, stream: Any = None) -> Any:
    """out[…, (k + shift) mod n, …] = x[…, k, …] along each of the axes.

    Parameters
    ----------
    x : array
        Input of any shape and strides, with elements of 1, 2, 4, 8 or 16 bytes.
    shift : int or sequence of int
        Number of places to move, negative toward the front: one number for all axes, or one number for each axis.
    axis : int or sequence of int, optional
        Axes to roll. An axis named twice is moved twice, as in NumPy. Default: `x` is rolled as if it had one
        dimension.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        C-contiguous array of x's dtype.

    Raises
    ------
    ArgumentError
        The numbers of shifts and axes differ, the axis is out of range, or `out` does not fit.
    """
    place, (x,) = array_place("roll", stream, ("x", x))
    shifts, axes = integers("roll", "shift", shift), integers("roll", "axis", axis)
    if axes is None:
        # Neighbours in the order of one dimension: only C-contiguous memory has them side by side.
        if out is not None and not getattr(out, "flags", x.flags).c_contiguous:
            return copy(roll(x, shift, stream=place.stream), out=out, stream=place.stream)
        if not x.flags.c_contiguous:
            x = copy(x, stream=place.stream)
    return moved("roll", place, x, out, _roll_job, shifts, axes)


@functools.lru_cache(4096)
def _roll_job(dtype: np.dtype, shape: Ints, strides: Ints, shift: Axis, axis: Axis, out_strides: Ints | None) -> Job:
    steps = steps_of("roll", dtype, strides)
    if shift is None:
        raise ArgumentError("roll: shift is None; give a number of places, or one for each axis")
    if axis is None:
        # Of C-contiguous memory as one dimension.
        if out_strides is not None:
            raise ArgumentError("roll: out must be C-contiguous where x is rolled as one dimension (no axis)")
        size, places = prod(shape), shift if isinstance(shift, int) else sum(shift)
        whole = Dimension(size, size, 1, places % size if size else 0)
        return mapped_job("roll", "rolled", dtype, (size,), (1,), [whole], None)._replace(shape=shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    axes = axes * len(shifts) if len(axes) == 1 else axes
    if len(shifts) != len(axes):
        raise ArgumentError(f"roll: {len(shifts)} shifts {shifts} for {len(axes)} axes {axes}; give one, or as many")
    total = [0] * len(shape)
    for dimension, places in zip(axes, shifts, strict=True):
        total[axis_of("roll", dimension, len(shape))] += places
    dimensions = [
        Dimension(n, n, step, places % n if n else 0) for n, step, places in zip(shape, steps, total, strict=True)
    ]
    return mapped_job("roll", "rolled", dtype, shape, steps, dimensions, out_strides, fuses=True)


# --- pad: by a map of indices, or one dimension after the other -------------------------------------------------------


#: The map of ``move.cuh`` for modes that are maps of indices, and whether it maps whole rows as it maps elements.
_MAPS = {
    "constant": ("padded_constant", True),
    "edge": ("padded_edge", False),
    "reflect": ("padded_reflect", False),
    "symmetric": ("padded_symmetric", False),
    "wrap": ("padded_wrap", True),
}
_STATISTICS: dict[str, Any] = {"maximum": reduce.max, "minimum": reduce.min, "mean": reduce.mean, "median": None}
_MODES = (*_MAPS, "linear_ramp", *_STATISTICS, "empty")
_ROUND = Ufunc("rint")


@repeated("out")
def pad(
    x: Any,
    width: Any,
    mode: str = "constant",
    value: Any = 0,
    *,
    end_values: Any = 0,
    stat_length: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[k] = x[m(k − before)] for a map m from indices outside x to indices of x, or out[k] = value outside x.

    Parameters
    ----------
    x : array
        Input of any shape and strides, with elements of 1, 2, 4, 8 or 16 bytes. Modes that compute need numbers.
    width : int, (before, after) or a sequence of such pairs, one a dimension
        Number of elements to add at the ends of each dimension, as for NumPy's `pad`.
    mode : str
        Rule for the added elements:

        - ``constant``: `value`.
        - ``edge``: the first or last element.
        - ``reflect``: the array mirrored at its first or last element, without repeating that element.
        - ``symmetric``: the array mirrored, with the first or last element repeated.
        - ``wrap``: the array repeated.
        - ``linear_ramp``: even steps from `end_values` (outermost) to the first or last element.
        - ``maximum``, ``minimum``, ``mean``, ``median``: of the dimension's first or last `stat_length` elements.
        - ``empty``: not set.
    value : number, (before, after) or a sequence of such pairs, one a dimension
        Fill value of mode constant (NumPy's `constant_values`), converted to x's dtype.
    end_values : as `value`
        Outermost values of mode linear_ramp.
    stat_length : int, (before, after), a sequence of such pairs, or None
        Number of elements that modes maximum, minimum, mean and median use. None: all elements.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        C-contiguous array of x's dtype.

    Raises
    ------
    ArgumentError
        The mode is unknown, a width is negative, or an empty dimension would be padded with its own elements.

    Notes
    -----
    Unlike NumPy's `pad`, there is no `reflect_type`, and a mode cannot be a function.

    The first five modes, with one `value`, are one kernel. Other modes are several kernels for each dimension. Mode
    median sorts with the library of the arrays, CuPy or NumPy.
    """
    if text_of("pad: mode", mode) not in _MODES:
        raise ArgumentError(f"pad: mode {shortened(mode)}; expected one of {', '.join(_MODES)}")
    place, (x,) = array_place("pad", stream, ("x", x))
    dtype, shape = x.dtype, x.shape
    widths = width if width.__class__ is int else _pairs(width)
    if mode in _MAPS and not (mode == "constant" and isinstance(value, list | tuple | np.ndarray)):
        is_zero = value.__class__ is int and value == 0
        fill = b"" if is_zero else bytes(as_number("pad", "value", value, dtype).tobytes())
        return moved("pad", place, x, out, pad_job, widths, mode, fill)
    ends = _widths(shape, widths, mode)
    padded = tuple(before + n + after for n, (before, after) in zip(shape, ends, strict=True))
    to = target("pad", place, out, padded, dtype, x)
    inner = [slice(before, before + n) for n, (before, _) in zip(shape, ends, strict=True)]
    if x.size:
        copy(x, out=to.written[tuple(inner)], stream=place.stream)
    numbers = _each_end("value" if mode == "constant" else "end_values", value if mode == "constant" else end_values, x)
    lengths = _each_end("stat_length", stat_length, x) if stat_length is not None else [(None, None)] * x.ndim
    for d, (before, after) in enumerate(ends):
        # What was padded before is padded along, as NumPy does it.
        region = to.written[(slice(None),) * (d + 1) + tuple(inner[d + 1 :])]
        for side, count in enumerate((before, after)):
            if count and region.size and mode != "empty":
                _fill_end(place, mode, region, d, side, (before, shape[d], count), numbers[d][side], lengths[d][side])
    return delivered(place, to)


def _fill_end(
    place: ArrayPlace, mode: str, region: Any, axis: int, side: int, sizes: Ints, number: Any, length: int | None
) -> None:
    """Set the elements before (`side` 0) or after (`side` 1) the array's own elements along an axis of `region`.

    `sizes`: number of elements before, of own elements, and of elements to set. `number` is the value for modes
    constant and linear_ramp. `length` is `stat_length` for the modes that use it.
    """
    before, extent, count = sizes
    head = (slice(None),) * axis
    end = region[(*head, slice(0, count) if side == 0 else slice(before + extent, None))]
    if mode == "constant":
        assign(np.array(number, region.dtype)[()], out=end, stream=place.stream)
        return
    if mode == "linear_ramp":
        if region.dtype.kind == "c":
            raise ArgumentError("pad: mode linear_ramp is of real numbers")
        first = before if side == 0 else before + extent - 1
        edge = region[(*head, slice(first, first + 1))]
        _ramp(axis, side, region.dtype.kind in "iu")(edge, float(number), out=end, stream=place.stream)
        return
    many = extent if length is None or length > extent else length
    if many < 1:
        raise ArgumentError(f"pad: stat_length {length} leaves no elements; give 1 at least")
    first = before if side == 0 else before + extent - many
    chunk = region[(*head, slice(first, first + many))]
    if mode == "median":
        fill = _median(place, chunk, axis)
    else:
        fill = _STATISTICS[mode](chunk, axis=axis, keepdims=True, stream=place.stream)
    if mode in ("mean", "median") and region.dtype.kind in "iu":
        fill = _ROUND(fill, stream=place.stream)
    assign(fill, out=end, stream=place.stream)


def _median(place: ArrayPlace, chunk: Any, axis: int) -> Any:
    """Return the median along an axis, keeping the axis. For an even number of elements: the mean of the middle two.

    A line that holds a NaN gives NaN.
    """
    head, n = (slice(None),) * axis, chunk.shape[axis]
    with place.inside():
        # Libraries sort no bfloat16.
        ordered = place.xp.sort(chunk.astype(np.float32) if chunk.dtype.kind == "V" else chunk, axis)
    middle = ordered[(*head, slice((n - 1) // 2, n // 2 + 1))]
    median = reduce.mean(middle, axis=axis, keepdims=True, stream=place.stream)
    if chunk.dtype.kind in "biu":
        return median
    with place.inside():
        last = ordered[(*head, slice(n - 1, n))]  # NaNs are sorted there
        return place.xp.where(place.xp.isnan(last), last, median)


@functools.cache
def _ramp(axis: int, side: int, whole: bool) -> Elementwise:
    """Return the kernel that fills the elements before (`side` 0) or after (`side` 1) an array with a ramp along
    `axis`.

    The ramp goes from `outer`, at the outermost element, toward the edge of the array. `whole`: it is rounded down to
    integers.
    """
    place = f"_ind[{axis}]" if side == 0 else f"_shape[{axis}] - 1 - _ind[{axis}]"
    value = f"outer + ({place}) * ((cudakit::as<double>(edge) - outer) / _shape[{axis}])"
    body = f"y = cudakit::as<Y>({f'floor({value})' if whole else value})"
    return elementwise("X edge, float64 outer", "Y y", body, name="pad_ramp")


def _pairs(width: Any) -> Any:
    try:
        numbers = np.asarray(width)
        if numbers.dtype.kind not in "iu" or numbers.ndim > 2:
            raise ValueError("whole numbers are wanted")
    except (ValueError, OverflowError) as error:
        raise ArgumentError(
            f"pad: width {shortened(width)}: {error_text(error)}; give an int, (before, after), or a pair a dimension"
        ) from None
    flat = numbers.tolist()
    return tuple(tuple(pair) for pair in flat) if numbers.ndim == 2 else tuple(flat) if numbers.ndim else flat


def _widths(shape: Ints, width: Any, mode: str) -> list[list[int]]:
    """Return [before, after] for each dimension: the numbers of elements that `pad` adds.

    Raises
    ------
    ArgumentError
        The width does not fit the shape or is negative, or an empty dimension would be padded with its own elements.
    """
    try:
        widths: list[list[int]] = np.broadcast_to(np.array(width), (len(shape), 2)).tolist()
    except ValueError:
        raise ArgumentError(
            f"pad: width {shortened(width)} does not fit an array of {len(shape)} dimensions; give an int, (before, "
            "after), or a pair a dimension"
        ) from None
    for d, (before, after) in enumerate(widths):
        if before < 0 or after < 0:
            raise ArgumentError(f"pad: width {(before, after)} of dimension {d} is negative; slice the array instead")
        if before + shape[d] + after >= 2**62:
            raise ArgumentError(f"pad: width {shortened(width)} makes a dimension of more elements than an array has")
        if before + after and not shape[d] and mode not in ("constant", "empty"):
            raise ArgumentError(f"pad: dimension {d} is empty, mode {mode} has nothing to fill it with; use constant")
    return widths


def _each_end(name: str, value: Any, x: Any) -> list[Any]:
    """Return the argument `value` of `pad` as a pair (before, after) of numbers for each dimension of `x`.

    Raises
    ------
    ArgumentError
        The value does not fit. The message names the argument `name`.
    """
    try:
        ends = np.broadcast_to(np.array(value), (x.ndim, 2))
        if ends.dtype.kind != "c" and not is_real(ends.dtype):
            raise TypeError("numbers are wanted")
        if name != "end_values":
            dtype = np.dtype(np.int64) if name == "stat_length" else x.dtype
            numbers = [as_number("pad", name, number, dtype) for number in ends.flat]
            ends = np.array(numbers, dtype).reshape(ends.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"pad: {name} {shortened(value)} does not fit: {error_text(error)}; give a number, (before, after), or a "
            "pair a dimension"
        ) from None
    pairs: list[Any] = ends.tolist()
    return pairs


@functools.lru_cache(4096)
def pad_job(
    dtype: np.dtype, shape: Ints, strides: Ints, width: Any, mode: str, fill: bytes, out_strides: Ints | None
) -> Job:
    """Return the job that pads an array by `width`, a pair for each dimension. The mode must be a map of indices."""
    widths = _widths(shape, width, mode)
    steps = steps_of("pad", dtype, strides)
    mapping, fuses = _MAPS[mode]
    dimensions = [
        Dimension(before + n + after, n, step, before)
        for n, step, (before, after) in zip(shape, steps, widths, strict=True)
    ]
    return mapped_job("pad", mapping, dtype, shape, steps, dimensions, out_strides, fuses=fuses, fill=fill)


# --- concatenate ------------------------------------------------------------------------------------------------------


_ITEMS, _BLOCK, _PACK = 4, 256, 16
#: Most arrays of one launch; more are joined by several launches.
_MOST = 64
#: Dtype, shape and strides of an array.
_ArrayLayout: TypeAlias = tuple[np.dtype, Ints, Ints]


class _Piece(NamedTuple):
    kernel: Kernel
    config: Config
    numbers: tuple[Any, ...]
    chosen: slice
    nulls: int


class _Joining(NamedTuple):
    """Plan of a `concatenate` call: arrays to copy to C-contiguous memory first, flat views of arrays, and launches."""

    shape: Ints
    dtype: np.dtype
    copied: Ints
    views: tuple[tuple[int, int], ...]
    launches: tuple[_Piece, ...]


@repeated("out")
def concatenate(
    arrays: Sequence[Any],
    axis: int | None = 0,
    *,
    dtype: Any = None,
    casting: Casting = "same_kind",
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[…, n₀ + … + n_{j−1} + k, …] = arrays[j][…, k, …] along the axis.

    Parameters
    ----------
    arrays : sequence of array
        At least one array. All have the same shape except along the axis; any strides; elements of 1, 2, 4, 8 or 16
        bytes. Arrays of different dtypes must be numbers, which are converted first.
    axis : int, optional
        Axis along which the arrays are joined. None: each array is flattened first.
    dtype : dtype, optional
        Dtype of the result; not together with `out`.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
        Casts that are allowed from the arrays to `dtype`, or from the result to `out`.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        C-contiguous array. Dtype: `dtype`, or NumPy's promotion of all dtypes (``numpy.result_type``).

    Raises
    ------
    ArgumentError
        The shapes do not fit, a cast is not allowed, or `out` does not fit.

    Notes
    -----
    One kernel joins up to 64 arrays. An array is copied by another kernel first if the dimensions before the axis, or
    the dimensions from the axis on, cannot be merged into one dimension.
    """
    if not isinstance(arrays, list | tuple) or not arrays:
        raise ArgumentError(
            f"concatenate: arrays must be a list or tuple of arrays, one at least, got {shortened(arrays)}"
        )
    place, operands = array_place("concatenate", stream, *[(f"arrays[{j}]", array) for j, array in enumerate(arrays)])
    if dtype is not None and out is not None:
        raise ArgumentError("concatenate: dtype is out's; give one of the two")
    result_dtype = None if dtype is None else as_dtype("concatenate", dtype)
    if not is_one_of(casting, CASTINGS):
        raise ArgumentError(f"concatenate: casting is {shortened(casting)}; expected one of {', '.join(CASTINGS)}")
    layouts = tuple([(array.dtype, array.shape, array.strides) for array in operands])
    job = _job(layouts, one_axis("concatenate", axis), result_dtype, casting)
    to = target("concatenate", place, out, job.shape, job.dtype, *operands, casting=casting, contiguous=True)
    for j in job.copied:
        same = operands[j].dtype == job.dtype
        operands[j] = (
            copy(operands[j], stream=place.stream) if same else cast(operands[j], job.dtype, stream=place.stream)
        )
    for j, count in job.views:
        operands[j] = flat(operands[j], 0, count)
    for kernel, shape, numbers, chosen, nulls in job.launches:
        place.launch(kernel, shape, to.written, *numbers, *operands[chosen], *[None] * nulls)
    return delivered(place, to)


@functools.lru_cache(4096)
def _job(
    layouts: tuple[_ArrayLayout, ...], axis: int | None, result_dtype: np.dtype | None, casting: Casting
) -> _Joining:
    try:
        dtype = np.result_type(*[layout[0] for layout in layouts]) if result_dtype is None else result_dtype
    except TypeError as error:
        raise ArgumentError(f"concatenate: {error}") from None
    for j, (own, _, _) in enumerate(layouts):
        if result_dtype is not None and not np.can_cast(own, result_dtype, casting):
            raise ArgumentError(
                f"concatenate: arrays[{j}] is of {own}, which casting={shortened(casting)} does not take to "
                f"{result_dtype}"
            )
    word = word_of("concatenate", dtype)
    ndim = len(layouts[0][1])
    if axis is not None and ndim == 0:
        raise ArgumentError("concatenate: arrays of no dimensions have no axis; give axis=None")
    along = 0 if axis is None else axis_of("concatenate", axis, ndim)
    columns, rows, sizes, copied, views = [], [], [], [], []
    shape = layouts[0][1]
    for j, (own, extents, strides) in enumerate(layouts):
        if axis is not None and not _fits(shape, extents, along):
            raise ArgumentError(
                f"concatenate: arrays[0] has shape {shape} and arrays[{j}] {extents}; only axis {along} may differ"
            )
        steps = steps_of("concatenate", own, strides)
        across = prod(extents[along:])
        step = _row_step(extents, steps, along)
        if own != dtype or (step is None and not is_row_major(extents, steps)):
            copied.append(j)
            step = None
        columns.append(across)
        rows.append(across if step is None else step)
        before = prod(extents[:along])
        sizes.append((before - 1) * rows[-1] + across if before * across else 0)
        if j not in copied and not is_row_major(extents, steps):
            views.append((j, sizes[-1]))
    lengths = [extents[along] if axis is not None else prod(extents) for _, extents, _ in layouts]
    result = (sum(lengths),) if axis is None else (*shape[:along], sum(lengths), *shape[along + 1 :])
    height = prod(shape[:along])
    launches = tuple(
        _launch(word, dtype, height, columns, rows, sizes, slice(first, min(first + _MOST, len(layouts))))
        for first in range(0, len(layouts), _MOST)
        if height * sum(columns[first : first + _MOST])
    )
    return _Joining(result, dtype, tuple(copied), tuple(views), launches)


def _fits(shape: Ints, other: Ints, along: int) -> bool:
    return len(shape) == len(other) and all(
        n == m for d, (n, m) in enumerate(zip(shape, other, strict=True)) if d != along
    )


def _row_step(shape: Ints, steps: Ints, along: int) -> int | None:
    """Return the step from row to row in elements, if the array is seen as rows: axis `along` and later axes are a row.

    Return None if a row is not contiguous, or if rows are not evenly spaced.
    """
    if not is_row_major(shape[along:], steps[along:]):
        return None
    (_, outer) = merged(shape[:along], steps[:along])
    if len(outer) > 1 or min((*outer, 0)) < 0:
        return None
    return outer[0] if outer else prod(shape[along:])


def _launch(
    word: str, dtype: np.dtype, height: int, columns: list[int], rows: list[int], sizes: list[int], chosen: slice
) -> _Piece:
    own = columns[chosen]
    count = 1 << (len(own) - 1).bit_length()
    nulls = count - len(own)
    starts = [0, *np.cumsum(own).tolist(), *[sum(own)] * nulls]
    layout = record(start=starts, step=rows[chosen] + [0] * nulls, size=sizes[chosen] + [0] * nulls)
    size = height * sum(own)
    index = "unsigned int" if size < 2**32 - _PACK else "unsigned long long"
    names = {"W": word, "N": count, "Index": index, "ITEMS": _ITEMS, "BLOCK": _BLOCK, "X": ("void",) * count}
    kernel = Kernel.from_template("concatenate/joined")[names]
    numbers = (sum(columns[: chosen.start]), sum(columns), size, layout)
    return _Piece(
        kernel, config(-(-size * dtype.itemsize // (_PACK * _BLOCK * _ITEMS)), _BLOCK), numbers, chosen, nulls
    )
