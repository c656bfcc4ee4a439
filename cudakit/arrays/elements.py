"""Element types that kernels compute with."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.types.checked import dtype_of
from cudakit.types.cpp import spelling
from cudakit.types.scalars import converter, to_bytes


def number_of(op: str, dtype: np.dtype) -> Any:
    """The template argument for numbers of a dtype; complex ones as pairs, for which no header is read.

    Raises
    ------
    ArgumentError
    """
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return f"cudakit::parts<{'float' if dtype.itemsize == 8 else 'double'}>"
    if (dtype.kind in "?biuf" and dtype.itemsize <= 8) or dtype.name == "bfloat16":
        return dtype
    raise ArgumentError(
        f"{op}: {dtype} is not a number that it takes: bool, integers, floating point up to 64 bits, complex"
    )


def as_dtype(op: str, given: Any) -> np.dtype:
    """The dtype that a caller asks for.

    Raises
    ------
    ArgumentError
    """
    return dtype_of(f"{op}: dtype", given)


def real_part(x: Any, dtype: Any) -> Any:
    """`x`, or the real parts of its complex elements where a real `dtype` is asked for, as NumPy takes them."""
    own = getattr(x, "dtype", None)
    if dtype is None or getattr(own, "kind", "") != "c" or not hasattr(x, "real"):
        return x
    try:
        return x if np.dtype(dtype).kind in "cb" else x.real
    except TypeError:
        return x  # which is told where the dtype is read


def cpp(op: str, dtype: np.dtype, what: str = "x") -> str:
    """The C++ type of numbers of a dtype.

    Raises
    ------
    ArgumentError
        For a dtype that is no number's, or not in the device's byte order.
    """
    spelled = spelling(dtype) if dtype.kind in "biufc" or dtype.name == "bfloat16" else None
    if spelled is None:
        raise ArgumentError(f"{op}: {what} has dtype {dtype}; it takes bool, integers, floating point or complex")
    return spelled


def accumulator(op: str, dtype: np.dtype) -> tuple[str, int]:
    """What a sum of a result's dtype is kept in, and its size in bytes."""
    if dtype.kind in "biu":
        return ("unsigned long long" if dtype.kind == "u" else "long long"), 8
    return ("float", 4) if dtype.itemsize == 2 else (cpp(op, dtype), dtype.itemsize)


def as_number(op: str, name: str, value: Any, dtype: np.dtype) -> Any:
    """A number that a call is given beside its arrays, as one of `dtype`; taken as a kernel's argument is.

    Raises
    ------
    ArgumentError
        For what is no number, and one that the dtype does not take.
    """
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    return np.frombuffer(to_bytes(converter(dtype, f"{op}: {name}")(value), dtype), dtype)[0]
