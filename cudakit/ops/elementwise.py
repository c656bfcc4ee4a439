"""Arithmetic on elements."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cudakit.arrays.output import checked_output, number_of
from cudakit.arrays.place import as_array
from cudakit.errors import ArgumentError
from cudakit.generate.call import Given
from cudakit.generate.declarations import Parameter
from cudakit.generate.ufuncs import Ufunc


def add(x: Any, y: Any, *, out: Any = None, stream: Any = None) -> Any:
    """out[k] = x[k] + y[k]

    Parameters
    ----------
    x, y : array
        Of shapes that can be broadcast together; any strides; bool, integers, floating point (float16 and bfloat16 too)
        or complex.
    out : array, optional
        Of the broadcast shape; any strides. Of another dtype of the same kind: the result is cast to it. It may be `x`
        or `y` itself; where it overlaps them otherwise, they are copied first.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        Of the dtype that NumPy promotes both to (``numpy.result_type``). Integers wrap around; bool is `or`.

    Raises
    ------
    ArgumentError
        Also for numbers: give an array, whose dtype is certain.
    """
    return _ADD(x, y, out=out, stream=stream)


class _OfArrays(Ufunc):
    """One of NumPy's functions of two arrays, whose result has the dtype that NumPy promotes both to."""

    def _job(self, call: Given, outs: Sequence[Any], *rest: Any) -> Any:
        op = self.recipe.name
        x, y = (as_array(op, name, value)[0] for name, value in zip("xy", call.values, strict=True))
        shape = _shape(op, x.dtype, x.shape, y.dtype, y.shape)
        if outs[0] is not None:
            checked_output(op, call.place, outs[0], shape, None)
        return super()._job(call, outs, *rest)

    def _shown(self, p: Parameter) -> str:
        return self.recipe.name


@functools.lru_cache(4096)
def _shape(
    op: str, x_dtype: np.dtype, x_shape: tuple[int, ...], y_dtype: np.dtype, y_shape: tuple[int, ...]
) -> tuple[int, ...]:
    """The result's shape.

    Raises
    ------
    ArgumentError
        For dtypes that do not add up too.
    """
    try:
        shape = np.broadcast_shapes(x_shape, y_shape)
    except ValueError:
        raise ArgumentError(
            f"{op}: x has shape {x_shape} and y {y_shape}, which cannot be broadcast together"
        ) from None
    try:
        dtype = np.result_type(x_dtype, y_dtype)
    except TypeError as error:
        raise ArgumentError(f"{op}: x is of {x_dtype} and y of {y_dtype}: {error}") from None
    for each in (x_dtype, y_dtype, dtype):
        number_of(op, each)
    return shape


_ADD = _OfArrays("add")
