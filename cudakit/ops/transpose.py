"""Copies and transpositions."""

from __future__ import annotations

import functools
from typing import Any

from cudakit.arrays.layout import Axis, axes_in_order, integers
from cudakit.arrays.place import array_place
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.ops.delivery import moved
from cudakit.ops.move_plan import copy_job


@repeated("out")
def copy(x: Any, *, out: Any = None, stream: Any = None) -> Any:
    """out[k] = x[k], C-contiguous, at the speed of the memory.

    Parameters
    ----------
    x : array
        Any shape and strides; elements of 1, 2, 4, 8 or 16 bytes.
    out : array, optional
        Of the shape of `x`, and its dtype or one that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError
        For elements of another size, and an `out` that does not fit.
    """
    place, (x,) = array_place("copy", stream, ("x", x))
    dtype, shape, strides = x.dtype, x.shape, x.strides
    return moved("copy", place, x, out, lambda to: copy_job("copy", dtype, shape, strides, None, to))


@repeated("out")
def transpose(x: Any, axes: Any = None, *, out: Any = None, stream: Any = None) -> Any:
    """out[…] = x with dimension d of the result being dimension axes[d] of `x`; a new, C-contiguous array.

    Parameters
    ----------
    x : array
        Any shape and strides; elements of 1, 2, 4, 8 or 16 bytes.
    axes : sequence of int, optional
        A permutation of x's dimensions, negative ones counted from the last. Left out: reversed.
    out : array, optional
        Of the result's shape, and x's dtype or one that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError
        For axes that are no permutation, elements of another size, and an `out` that does not fit.

    Notes
    -----
    Unlike NumPy's, the result is a copy and never a view. Dimensions that stay neighbours are merged; what then is left
    is a copy; a transposition by tiles in shared memory (Ruetsch and Micikevicius, 2009), or in registers where a side
    is less than 8, as of pixels and planes, repeated over the other dimensions; or, where neither end has neighbouring
    elements, a copy one element at a time.
    """
    place, (x,) = array_place("transpose", stream, ("x", x))
    dtype, shape, strides = x.dtype, x.shape, x.strides
    order = _permutation(integers("transpose", "axes", axes), len(shape))
    return moved("transpose", place, x, out, lambda to: copy_job("transpose", dtype, shape, strides, order, to))


@functools.lru_cache
def _permutation(axes: Axis, ndim: int) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(ndim))[::-1]
    order = axes_in_order("transpose", "axes", axes, ndim)
    if len(order) != ndim:
        raise ArgumentError(f"transpose: axes {axes} name {len(order)} of {ndim} dimensions; name each once")
    return order
