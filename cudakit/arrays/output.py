"""The outputs of a call, checked and delivered, and the element types that kernels compute with."""

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
    """The template argument for numbers of a dtype; complex ones as pairs, for which no header is read.

    Raises
    ------
    ArgumentError
    """
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return f"cudakit::parts<{'float' if dtype.itemsize == 8 else 'double'}>"
    if is_real(dtype) and dtype.itemsize <= 8:
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
    spelled = spelling(dtype) if dtype.kind == "c" or is_real(dtype) else None
    if spelled is None:
        raise ArgumentError(f"{op}: {what} has dtype {dtype}; it takes bool, integers, floating point or complex")
    return spelled


def accumulator(op: str, dtype: np.dtype) -> tuple[str, int]:
    """What a sum of a result's dtype is kept in, and its size in bytes."""
    if dtype.kind in "biu":
        return ("unsigned long long" if dtype.kind == "u" else "long long"), 8
    return ("float", 4) if dtype.name in NARROW else (cpp(op, dtype), dtype.itemsize)


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


Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
#: Candidates that are tried to tell whether two views have an element in common.
_MOST_WORK = 10_000


class Target(NamedTuple):
    """What a call writes, and what the caller gets: the same, or it is brought there at the end."""

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
    """Where a result of `shape` and `dtype` goes: a new array, `out`, or a new array whose elements `out` is to have.

    Parameters
    ----------
    inputs : arrays
        What is read: where `out` overlaps them, the result is made elsewhere and copied there.
    in_place : bool
        Whether `out` may be one of the inputs itself (the same elements in the same order).
    casting : str
        What an `out` of another dtype must be to take the result, as `numpy.can_cast` has it.
    most : int, optional
        The greatest number that the result may have, of indices, which `out` must hold.
    contiguous : bool
        Whether the result is made C-contiguous.

    Raises
    ------
    ArgumentError
        As for `checked_output`, and for an `out` that does not hold all indices.
    """
    if out is None:
        made = place.empty(shape, dtype)
        return Target(made, made)
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
    """`out` as an array of the place, which takes a result of `shape` and `dtype`; None: of any dtype.

    Raises
    ------
    ArgumentError
        For an `out` of another shape or place or of a dtype that `casting` does not take, a read-only one, and one
        whose elements lie on each other.
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
    """Whether values of one dtype are cast to another, as `numpy.can_cast` has it."""
    try:
        return bool(np.can_cast(dtype, to, casting))
    except TypeError:
        return False


def check_holds(op: str, what: str, dtype: np.dtype, most: int) -> None:
    """Raise where an integer dtype does not hold all numbers from 0 to `most`.

    Raises
    ------
    ArgumentError
    """
    if dtype.kind in "iu" and most > np.iinfo(dtype).max:
        raise ArgumentError(f"{op}: {what} is {dtype}, which does not hold indices up to {most:,}; give a wider one")


def overlaps(out: Any, *inputs: Any, in_place: bool = False) -> bool:
    """Whether an output lies where one of the inputs does, so that writing it would change what is still to be read.

    `in_place`: it may be one of the inputs itself (the same elements in the same order).
    """
    start, end = _extent(out)
    for array in inputs:
        other, other_end = _extent(array)
        if start < other_end and other < end and _share(out, array) and not (in_place and _is_same(out, array)):
            return True
    return False


def check_apart(op: str, outs: Sequence[Any]) -> None:
    """Check that no two outputs of a call, those that were given, lie on each other.

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
    """First address of an array's memory, and the first after it; of all addresses, where it is not C-contiguous."""
    if isinstance(array, np.ndarray):
        contiguous, first = array.flags.c_contiguous, pointer_of(array)
    else:
        contiguous, first = array._c_contiguous, array.data.ptr  # flags would take five times as long
    return (first, first + array.nbytes) if contiguous else (0, 1 << 64)


class _Lying:
    """How an array lies in memory, for NumPy to look at; the memory itself is not."""

    def __init__(self, array: Any) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address_of(array), False),
            "shape": array.shape,
            "strides": array.strides,
            "typestr": f"|V{array.dtype.itemsize}",
        }


def _share(first: Any, second: Any) -> bool:
    """Whether two arrays have a byte in common; yes, where that would take long to find out."""
    if first.flags.c_contiguous and second.flags.c_contiguous:
        return True  # their extents have
    most: Any = _MOST_WORK  # NumPy's stubs know two numbers only
    return np.may_share_memory(np.asarray(_Lying(first)), np.asarray(_Lying(second)), max_work=most)


def _is_same(first: Any, second: Any) -> bool:
    if address_of(first) != address_of(second):
        return False
    return bool((first.shape, first.strides, first.dtype) == (second.shape, second.strides, second.dtype))
