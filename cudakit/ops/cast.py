"""Conversions between dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.arrays.place import array_place
from cudakit.arrays.repeated import repeated
from cudakit.ops.cast_plan import cast_job
from cudakit.ops.delivery import moved
from cudakit.types.checked import dtype_of, flag


@repeated("out")
def cast(x: Any, dtype: Any, saturate: bool = False, *, out: Any = None, stream: Any = None) -> Any:
    """out[k] = x[k] as a number of `dtype`.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integers, floating point (float16 and bfloat16 too) or complex.
    dtype : dtype
        Any of these too.
    saturate : bool
        To integers: a number out of range becomes the nearest in it, NaN becomes 0. Otherwise integers wrap around;
        floating point goes toward zero, and what is out of range is what the device's conversion makes of it: the low
        bits of the number clamped to 32 bits (to 64 for uint32 and wider; uint64 from 0 up to its own greatest), where
        NaN is 0 or the lowest. That is NumPy's result on x86-64 for numbers within 32 (64) bits, beyond which NumPy's
        is undefined. To other dtypes it does nothing.
    out : array, optional
        Of the shape of `x` and of `dtype`; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        C-contiguous; a copy, also where the dtype stays.

    Raises
    ------
    ArgumentError

    Notes
    -----
    To floating point: to the nearest, ties to even; too large a number is infinite. To bfloat16 by way of float32, as
    ml_dtypes has it. To bool: whether the number is not 0 (NaN is not). Complex to real drops the imaginary part; no
    warning is given.
    """
    saturate = flag("cast: saturate", saturate)
    place, (x,) = array_place("cast", stream, ("x", x))
    target = dtype if isinstance(dtype, np.dtype) else dtype_of("cast: dtype", dtype)
    source, shape, strides = x.dtype, x.shape, x.strides
    return moved("cast", place, x, out, lambda to: cast_job(source, target, saturate, shape, strides, to), target)
