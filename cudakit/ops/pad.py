"""Arrays with elements added at their ends: by a map of indices, or one dimension after the other."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cudakit.arrays.layout import steps_of
from cudakit.arrays.output import as_number, target
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.plans import Job
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, shortened, told
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.ufuncs import Ufunc, assign
from cudakit.ops.delivery import delivered, moved
from cudakit.ops.extrema import max, min
from cudakit.ops.move_plan import Dimension, mapped_job
from cudakit.ops.reduce import mean
from cudakit.ops.transpose import copy
from cudakit.types.checked import text_of

#: The map of ``move.cuh`` for each mode that is one, and whether whole rows behave under it as their elements do.
_MAPS = {
    "constant": ("padded_constant", True),
    "edge": ("padded_edge", False),
    "reflect": ("padded_reflect", False),
    "symmetric": ("padded_symmetric", False),
    "wrap": ("padded_wrap", True),
}
_STATISTICS: dict[str, Any] = {"maximum": max, "minimum": min, "mean": mean, "median": None}
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
    """out[k] = x[m(k − before)], m making an index of x of those that are not, or out[k] = value there.

    Parameters
    ----------
    x : array
        Any shape and strides; elements of 1, 2, 4, 8 or 16 bytes, and numbers for the modes that compute.
    width : int, (before, after) or a sequence of such pairs, one a dimension
        Elements added at the ends of each dimension, as for NumPy's `pad`.
    mode : str
        ``constant``: `value`. ``edge``: the first or last element. ``reflect``: the array mirrored at these, without
        repeating them; ``symmetric``: repeating them. ``wrap``: the array repeated. ``linear_ramp``: evenly from
        `end_values`, outermost, to the first or last element. ``maximum``, ``minimum``, ``mean``, ``median``: of the
        dimension's first or last `stat_length` elements. ``empty``: not set.
    value : number, (before, after) or a sequence of such pairs, one a dimension
        Of mode constant, NumPy's `constant_values`; converted to x's dtype.
    end_values : as `value`
        Of mode linear_ramp.
    stat_length : int, (before, after), a sequence of such pairs, or None
        Of modes maximum, minimum, mean and median. None: all elements.
    out : array, optional
        Of the result's shape, and x's dtype or one that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        C-contiguous, of x's dtype. NumPy's `reflect_type` and functions as modes are not there.

    Raises
    ------
    ArgumentError
        Also for negative widths, and for an empty dimension that would be padded with its own elements.

    Notes
    -----
    One kernel, where the mode is a map of indices (the first five, with one `value`); else some for each dimension.
    Of mode median the library of the arrays sorts, CuPy or NumPy.
    """
    if text_of("pad: mode", mode) not in _MODES:
        raise ArgumentError(f"pad: mode {shortened(mode)}; there are {', '.join(_MODES)}")
    place, (x,) = array_place("pad", stream, ("x", x))
    dtype, shape, strides = x.dtype, x.shape, x.strides
    widths = width if width.__class__ is int else _pairs(width)
    if mode in _MAPS and not (mode == "constant" and isinstance(value, list | tuple | np.ndarray)):
        fill = b"" if value.__class__ is int and value == 0 else _bytes_of(value, dtype)
        return moved("pad", place, x, out, lambda to: pad_job(dtype, shape, strides, widths, mode, fill, to))
    ends = _widths(shape, widths)
    to = target(
        "pad", place, out, tuple(before + n + after for n, (before, after) in zip(shape, ends, strict=True)), dtype, x
    )
    inner = [slice(before, before + n) for n, (before, _) in zip(shape, ends, strict=True)]
    if x.size:
        copy(x, out=to.written[tuple(inner)], stream=place.stream)
    numbers = _each_end("value" if mode == "constant" else "end_values", value if mode == "constant" else end_values, x)
    lengths = _each_end("stat_length", stat_length, x) if stat_length is not None else [(None, None)] * x.ndim
    for d, (before, after) in enumerate(ends):
        # What was padded before is padded along, as NumPy does it.
        region = to.written[(slice(None),) * (d + 1) + tuple(inner[d + 1 :])]
        if before + after and not shape[d] and mode not in ("constant", "empty"):
            raise ArgumentError(f"pad: dimension {d} is empty, mode {mode} has nothing to fill it with; use constant")
        for side, count in enumerate((before, after)):
            if count and region.size and mode != "empty":
                _fill_end(place, mode, region, d, side, (before, shape[d], count), numbers[d][side], lengths[d][side])
    return delivered(place, to)


def _fill_end(
    place: ArrayPlace,
    mode: str,
    region: Any,
    axis: int,
    side: int,
    sizes: tuple[int, int, int],
    number: Any,
    length: int | None,
) -> None:
    """Set the elements before (`side` 0) or after (1) the own ones.

    `sizes`: elements before, own ones, and those to be set.
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
        found = _median(place, chunk, axis)
    else:
        found = _STATISTICS[mode](chunk, axis=axis, keepdims=True, stream=place.stream)
    if mode in ("mean", "median") and region.dtype.kind in "iu":
        found = _ROUND(found, stream=place.stream)
    assign(found, out=end, stream=place.stream)


def _median(place: ArrayPlace, chunk: Any, axis: int) -> Any:
    """The median along an axis, which stays: the mean of the middle two of an even number; NaN where there is one."""
    head, n = (slice(None),) * axis, chunk.shape[axis]
    with place.inside():
        # Libraries sort no bfloat16.
        ordered = place.xp.sort(chunk.astype(np.float32) if chunk.dtype.kind == "V" else chunk, axis)
    middle = ordered[(*head, slice((n - 1) // 2, n // 2 + 1))]
    found = mean(middle, axis=axis, keepdims=True, stream=place.stream)
    if chunk.dtype.kind in "biu":
        return found
    with place.inside():
        last = ordered[(*head, slice(n - 1, n))]  # NaNs are sorted there
        return place.xp.where(place.xp.isnan(last), last, found)


@functools.cache
def _ramp(axis: int, side: int, whole: bool) -> Elementwise:
    """From `outer`, outermost, to the element next to the own ones and not to that of theirs."""
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
            f"pad: width {shortened(width)}: {told(error)}; give an int, (before, after), or a pair a dimension"
        ) from None
    flat = numbers.tolist()
    return tuple(tuple(pair) for pair in flat) if numbers.ndim == 2 else tuple(flat) if numbers.ndim else flat


def _bytes_of(value: Any, dtype: np.dtype) -> bytes:
    return bytes(as_number("pad", "value", value, dtype).tobytes())


def _widths(shape: tuple[int, ...], width: Any) -> list[list[int]]:
    """Elements before and after each dimension."""
    try:
        widths: list[list[int]] = np.broadcast_to(np.array(width), (len(shape), 2)).tolist()
    except ValueError:
        raise ArgumentError(
            f"pad: width {shortened(width)} does not fit an array of {len(shape)} dimensions; give an int, (before, "
            "after), or a "
            "pair a dimension"
        ) from None
    for d, (before, after) in enumerate(widths):
        if before < 0 or after < 0:
            raise ArgumentError(f"pad: width {(before, after)} of dimension {d} is negative; slice the array instead")
        if before + shape[d] + after >= 2**62:
            raise ArgumentError(f"pad: width {shortened(width)} makes a dimension of more elements than an array has")
    return widths


def _each_end(name: str, given: Any, x: Any) -> list[Any]:
    """Numbers for both ends of each dimension."""
    try:
        found = np.broadcast_to(np.array(given), (x.ndim, 2))
        if found.dtype.kind not in "biufc" and found.dtype.name != "bfloat16":
            raise TypeError("numbers are wanted")
        if name != "end_values":
            dtype = np.dtype(np.int64) if name == "stat_length" else x.dtype
            numbers = [as_number("pad", name, each, dtype) for each in found.flat]
            found = np.array(numbers, dtype).reshape(found.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"pad: {name} {shortened(given)} does not fit: {told(error)}; give a number, (before, after), or a pair a "
            "dimension"
        ) from None
    pairs: list[Any] = found.tolist()
    return pairs


@functools.lru_cache(4096)
def pad_job(
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    width: Any,
    mode: str,
    fill: bytes,
    out_strides: tuple[int, ...] | None,
) -> Job:
    """What pads an array by `width`, pairs for each dimension, where the mode is a map of indices."""
    widths = _widths(shape, width)
    steps = steps_of("pad", dtype, strides)
    for d, (before, after) in enumerate(widths):
        if before + after and not shape[d] and mode != "constant":
            raise ArgumentError(f"pad: dimension {d} is empty, mode {mode} has nothing to fill it with; use constant")
    mapping, fuses = _MAPS[mode]
    dimensions = [
        Dimension(before + n + after, n, step, before)
        for n, step, (before, after) in zip(shape, steps, widths, strict=True)
    ]
    return mapped_job("pad", mapping, dtype, shape, steps, dimensions, out_strides, fuses=fuses, fill=fill)
