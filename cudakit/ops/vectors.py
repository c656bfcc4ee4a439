"""Products of which one side is a vector: what they read or write is what they take."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.arrays.place import array_place, as_array, given_output
from cudakit.errors import ArgumentError
from cudakit.generate.reduction import reduction
from cudakit.generate.ufuncs import Ufunc
from cudakit.ops.target import delivered, target

_MATVEC = reduction("T a, T v", "T out", "a * v", "a + b", "0", name="matvec")
_OUTER = Ufunc("multiply")


def matvec(a: Any, v: Any, *, out: Any = None, stream: Any = None) -> Any:
    """out[…, i] = Σ a[…, i, k] · v[…, k], in one pass over both, as ``numpy.matvec`` has it: without conjugation.

    Parameters
    ----------
    a : array, shape (…, m, k)
        Any dtype but fp8, any strides: rows are read as rows, and columns as columns.
    v : array, shape (…, k)
        Of the dtype of `a`; dimensions before are broadcast.
    out : array, optional
        Of the result's shape, and its dtype or one that it is cast to within its kind.
    stream : stream, optional
        CuPy's current stream when left out.

    Returns
    -------
    array, shape (…, m)
        Of the dtype of `a`: integers modulo its range, bool as "both somewhere". Sums of float16 and bfloat16 are in
        float32.

    Raises
    ------
    ArgumentError
        For shapes and dtypes that do not fit.
    """
    (a, _), (v, _) = as_array("matvec", "a", a), as_array("matvec", "v", v)
    try:
        if a.ndim < 2 or v.ndim < 1 or a.shape[-1] != v.shape[-1]:
            raise ValueError
        around = np.broadcast_shapes(a.shape[:-2], v.shape[:-1])
    except ValueError:
        raise ArgumentError(
            f"matvec: shapes {a.shape} and {v.shape} do not fit; it takes (…, m, k) and (…, k)"
        ) from None
    if a.dtype != v.dtype:
        raise ArgumentError(f"matvec: a is {a.dtype} and v is {v.dtype}; cast one of them (ck.ops.cast)")
    if out is None:
        return _MATVEC(a, v[..., None, :], axis=-1, stream=stream)
    place, (a, v) = array_place("matvec", stream, ("a", a), ("v", v))
    to = target("matvec", place, out, (*around, a.shape[-2]), a.dtype, a, v)
    _MATVEC(a, v[..., None, :], axis=-1, out=to.written, stream=place.stream)
    return delivered(place, to)


def outer(x: Any, y: Any, *, out: Any = None, stream: Any = None) -> Any:
    """out[i, j] = x[i] · y[j], as ``numpy.outer`` has it.

    Parameters
    ----------
    x, y : array
        Of any shapes, which are flattened, any strides, any dtypes that NumPy multiplies.
    out : array, shape (x.size, y.size), optional
        Any strides. Of another dtype of the same kind: the result is cast to it.
    stream : stream, optional
        CuPy's current stream when left out.

    Returns
    -------
    array, shape (x.size, y.size)
        Of the dtype that NumPy promotes both to.

    Raises
    ------
    ArgumentError
        For dtypes that cannot be multiplied, and an `out` that does not fit.
    """
    (x, _), (y, _) = as_array("outer", "x", x), as_array("outer", "y", y)
    if out is not None:
        place, _ = array_place("outer", stream, ("x", x), ("y", y))
        given_output("outer", place, out, (x.size, y.size))
    return _OUTER(x.reshape(-1, 1), y.reshape(1, -1), out=out, stream=stream)
