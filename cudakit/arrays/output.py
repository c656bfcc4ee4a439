"""Outputs of a call, checked and delivered, and the element types that kernels compute with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.place import ArrayPlace, address_of, aligned, as_array
from cudakit.errors import ArgumentError, shortened
from cudakit.types.arguments import pointer_of
from cudakit.types.checked import dtype_of
from cudakit.types.cpp import NARROW, is_real, spelling
from cudakit.types.scalars import converter, to_bytes


def number_of(op: str, dtype: np.dtype) -> Any:
    """Return the template argument of a kernel for numbers of a dtype: the dtype itself, or C++ text.

    A complex dtype becomes a struct of two parts, ``cudakit::parts<float>`` or ``<double>``, which needs no header.

    Raises
    ------
    ArgumentError
        For other dtypes.
    """
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return f"cudakit::parts<{'float' if dtype.itemsize == 8 else 'double'}>"
    if is_real(dtype) and dtype.itemsize <= 8:
        return dtype
    raise ArgumentError(
        f"{op}: {dtype} is not supported; expected bool, integers, floating point up to 64 bits or complex"
    )


def as_dtype(op: str, dtype: Any) -> np.dtype:
    """Return the dtype that a caller requests.

    Raises
    ------
    ArgumentError
    """
    return dtype_of(f"{op}: dtype", dtype)


def real_part(x: Any, dtype: Any) -> Any:
    """Return ``x.real`` if `x` is complex and the requested `dtype` is neither complex nor bool. Else return `x`."""
    own = getattr(x, "dtype", None)
    if dtype is None or getattr(own, "kind", "") != "c" or not hasattr(x, "real"):
        return x
    try:
        return x if np.dtype(dtype).kind in "cb" else x.real
    except TypeError:
        return x  # the error is raised where the dtype is read


def cpp(op: str, dtype: np.dtype, name: str = "x") -> str:
    """Return the C++ type of numbers of a dtype. `name` is the array's name, for the error.

    Raises
    ------
    ArgumentError
        For a dtype of something else than numbers, or in another byte order than the device's.
    """
    spelled = spelling(dtype) if dtype.kind == "c" or is_real(dtype) else None
    if spelled is None:
        raise ArgumentError(f"{op}: {name} has dtype {dtype}; expected bool, integers, floating point or complex")
    return spelled


def accumulator(op: str, dtype: np.dtype) -> tuple[str, int]:
    """Return the C++ type in which a sum adds up, and its size in bytes. `dtype` is the dtype of the result.

    Integers and bools add up in 64 bits, half and narrower floats in float.
    """
    if dtype.kind in "biu":
        return ("unsigned long long" if dtype.kind == "u" else "long long"), 8
    return ("float", 4) if dtype.name in NARROW else (cpp(op, dtype), dtype.itemsize)


def as_number(op: str, name: str, value: Any, dtype: np.dtype) -> Any:
    """Convert a scalar argument of a call to a NumPy scalar of `dtype`, by the rules for kernel arguments.

    Raises
    ------
    ArgumentError
        For something else than a number, or a number that the dtype cannot hold.
    """
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    return np.frombuffer(to_bytes(converter(dtype, f"{op}: {name}")(value), dtype), dtype)[0]


Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
#: Maximum of candidates that NumPy tries to find an element that two views share.
_MOST_WORK = 10_000


class Target(NamedTuple):
    """The array that a call writes, and the array that the caller gets: the same array, or the second is a copy."""

    written: Any
    result: Any


def target(
    op: str,
    place: ArrayPlace,
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype,
    *inputs: Any,
    in_place: bool = False,
    casting: Casting = "same_kind",
    most: int | None = None,
    contiguous: bool = False,
) -> Target:
    """Choose where a result of `shape` and `dtype` goes: a new array, `out`, or a new array that is copied to `out`.

    Parameters
    ----------
    inputs : arrays
        Arrays that the call reads. If `out` overlaps an input, the result is made elsewhere and copied.
    in_place : bool
        Whether `out` may be one of the inputs (the same elements in the same order).
    casting : str
        Casting rule for an `out` of another dtype, as for `numpy.can_cast`.
    most : int, optional
        Greatest index in the result, which `out` must be able to hold.
    contiguous : bool
        Whether the result must be written C-contiguous.

    Raises
    ------
    ArgumentError
        As for `checked_output`, and for an `out` that cannot hold all indices.
    """
    if out is None:
        new = place.empty(shape, dtype)
        return Target(new, new)
    result = checked_output(op, place, out, shape, dtype, casting)
    if result.dtype != dtype:
        if most is not None:
            check_holds(op, "out", result.dtype, most)
    elif not (contiguous and not result.flags.c_contiguous) and not overlaps(result, *inputs, in_place=in_place):
        return Target(result, result)
    return Target(place.empty(shape, dtype), result)


def checked_output(
    op: str, place: ArrayPlace, out: Any, shape: tuple[int, ...], dtype: np.dtype | None, casting: Casting = "no"
) -> Any:
    """Return `out` as an array of the place, checked for a result of `shape` and `dtype` (None: any dtype).

    Raises
    ------
    ArgumentError
        For an `out` of another shape or place, of a dtype that `casting` refuses, read-only, or with overlapping
        elements.
    """
    array, on_host = as_array(op, "out", out)
    if on_host != (place.xp is np):
        raise ArgumentError(f"{op}: out is in {'host' if on_host else 'device'} memory, the inputs are not")
    if array.shape != shape:
        raise ArgumentError(f"{op}: out has shape {array.shape}, the result has {shape}")
    if on_host and not array.flags.writeable:
        raise ArgumentError(f"{op}: out is read-only")
    if on_host:
        aligned(op, "out", array)
    start, _ = _extent(array)
    if start == 0 and array.size and any(step == 0 < n - 1 for n, step in zip(array.shape, array.strides, strict=True)):
        raise ArgumentError(f"{op}: out repeats elements (strides {array.strides}); give an array that does not")
    if dtype is not None and array.dtype != dtype and not can_cast(dtype, array.dtype, casting):
        raise ArgumentError(
            f"{op}: out has dtype {array.dtype}, the result has {dtype}, which casting={shortened(casting)} does not "
            f"take to it; give out of {dtype}, or cast the result"
        )
    return array


def can_cast(dtype: np.dtype, to: np.dtype, casting: Casting = "safe") -> bool:
    """Return whether `numpy.can_cast` allows the cast; False for dtypes that NumPy does not know."""
    try:
        return bool(np.can_cast(dtype, to, casting))
    except TypeError:
        return False


def check_holds(op: str, name: str, dtype: np.dtype, most: int) -> None:
    """Raise if an integer dtype cannot hold all numbers from 0 to `most`.

    Raises
    ------
    ArgumentError
    """
    if dtype.kind in "iu" and most > np.iinfo(dtype).max:
        raise ArgumentError(f"{op}: {name} is {dtype}, which does not hold indices up to {most:,}; give a wider one")


def overlaps(out: Any, *inputs: Any, in_place: bool = False) -> bool:
    """Return whether an output shares memory with an input, so that writing it would change elements still to be read.

    `in_place`: the output may be one of the inputs (the same elements in the same order).
    """
    start, end = _extent(out)
    for array in inputs:
        other, other_end = _extent(array)
        if start < other_end and other < end and _share(out, array) and not (in_place and _is_same(out, array)):
            return True
    return False


def check_apart(op: str, outs: Sequence[Any]) -> None:
    """Check that no two outputs of a call share memory.

    Raises
    ------
    ArgumentError
    """
    arrays = [as_array(op, "out", out)[0] for out in outs if out is not None] if len(outs) > 1 else []
    for first, second in combinations(arrays, 2):
        if first is second:
            raise ArgumentError(f"{op}: one array is given for two outputs")
        if overlaps(first, second):
            raise ArgumentError(f"{op}: two outputs overlap; give each an array of its own")


def _extent(array: Any) -> tuple[int, int]:
    """Return the byte range of an array's memory: first address and end; all addresses if it is not C-contiguous."""
    if isinstance(array, np.ndarray):
        contiguous, first = array.flags.c_contiguous, pointer_of(array)
    else:
        contiguous, first = array._c_contiguous, array.data.ptr  # flags would take five times as long
    return (first, first + array.nbytes) if contiguous else (0, 1 << 64)


class _MemoryLayout:
    """The layout of an array for `numpy.may_share_memory`, which does not read the memory."""

    def __init__(self, array: Any) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address_of(array), False),
            "shape": array.shape,
            "strides": array.strides,
            "typestr": f"|V{array.dtype.itemsize}",
        }


def _share(first: Any, second: Any) -> bool:
    """Return whether two arrays have a byte in common; True if the answer would take long."""
    if first.flags.c_contiguous and second.flags.c_contiguous:
        return True  # their extents have
    most: Any = _MOST_WORK  # NumPy's type stubs allow two values only
    return np.may_share_memory(np.asarray(_MemoryLayout(first)), np.asarray(_MemoryLayout(second)), max_work=most)


def _is_same(first: Any, second: Any) -> bool:
    if address_of(first) != address_of(second):
        return False
    return bool((first.shape, first.strides, first.dtype) == (second.shape, second.strides, second.dtype))
