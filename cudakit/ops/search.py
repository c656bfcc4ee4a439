"""Where elements belong in an array that is sorted."""

from __future__ import annotations

import functools
from math import prod
from typing import Any, Literal

import numpy as np

from cudakit.arrays.output import target
from cudakit.arrays.place import array_place
from cudakit.arrays.plans import Job
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.cast import cast
from cudakit.ops.delivery import delivered
from cudakit.ops.sort_plan import order_of
from cudakit.ops.take import take
from cudakit.ops.transpose import copy
from cudakit.types.checked import is_one_of, text_of

_INT64 = np.dtype(np.int64)
_SIDES = {"left": False, "right": True}
_BLOCK = 256


@repeated("out")
def searchsorted(
    a: Any,
    v: Any,
    side: Literal["left", "right"] = "left",
    sorter: Any = None,
    *,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[k] = where v[k] goes in the sorted a: a[out − 1] < v ≤ a[out] (left), a[out − 1] ≤ v < a[out] (right).

    Parameters
    ----------
    a : array
        Of one dimension, in the order that `sort` makes; bool, integers, float16, bfloat16, float32 or float64. That it
        is sorted is not checked.
    v : array or number
        Any shape and strides; compared with `a` in NumPy's common dtype of both.
    side : {"left", "right"}
        Before elements that are equal, or after them.
    sorter : array of integers, optional
        Of the length of `a`: indices that sort it, as `argsort` gives them. Those out of range are clipped.
    out : array, optional
        Of the shape of `v`; int64, or another that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        int64, of the shape of `v`.

    Raises
    ------
    ArgumentError
        For dtypes that are not sorted or have no common one, an `a` or a `sorter` of another shape, an unknown side.
    """
    op = "searchsorted"
    side = text_of(f"{op}: side", side)  # type: ignore[assignment]
    if not is_one_of(side, _SIDES):
        raise ArgumentError(f"{op}: side {shortened(side)}; there are left, right")
    if isinstance(v, int | float | np.number):
        v = array_place(op, stream, ("a", a))[0].upload(np.asarray(v))
    named = [("a", a), ("v", v), *([] if sorter is None else [("sorter", sorter)])]
    place, (a, v, *rest) = array_place(op, stream, *named)
    if a.ndim != 1:
        raise ArgumentError(f"{op}: a has shape {a.shape}; it takes one dimension")
    common = _common(op, a.dtype, v.dtype)
    order = order_of(op, common)
    to = target(op, place, out, v.shape, _INT64, a, v, most=a.size, contiguous=True)
    if rest:
        (by,) = rest
        if by.dtype.kind not in "iu" or by.shape != a.shape:
            raise ArgumentError(f"{op}: sorter is {by.dtype} of shape {by.shape}; give integers of a's shape {a.shape}")
        a = take(a, by, 0, "clip", stream=place.stream) if a.size else a
    if v.size:
        arrays = [_ready(each, common, place.stream) for each in (a, v)]
        _job(order, a.size, v.shape, _SIDES[side]).run(place, *arrays, to.written)
    return delivered(place, to)


def _ready(x: Any, dtype: np.dtype, stream: Any) -> Any:
    if x.dtype != dtype:
        return cast(x, dtype, stream=stream)
    return x if x.flags.c_contiguous else copy(x, stream=stream)


def _common(op: str, a: np.dtype, v: np.dtype) -> np.dtype:
    order_of(op, a, name="a")
    order_of(op, v, name="v")
    try:
        return np.promote_types(a, v)
    except TypeError:
        raise ArgumentError(
            f"{op}: a is {a} and v is {v}, which have no common dtype; cast one (ck.ops.cast)"
        ) from None


@functools.lru_cache(1024)
def _job(order: str, size: int, shape: tuple[int, ...], is_right: bool) -> Job:
    number = prod(shape)
    kernel = Kernel.from_template("search/bounds")[order, is_right]
    return Job(shape, (), kernel, config(-(-number // _BLOCK), _BLOCK), numbers=(size, number))
