"""The bytes of structs and of arrays of numbers, each number checked."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.records import NamedTuple
from cudakit.types.scalars import converter, integer_range, to_bytes
from cudakit.types.structs import fields_of, innermost

#: Types whose values Python's `struct` accepts and refuses exactly as `converter` does.
_PLAIN = frozenset([int, float, bytes, *(np.dtype(code).type for code in "efd" + np.typecodes["AllInteger"])])


#: Dtypes that have the same code in Python's `struct` (with fixed sizes, after `<`) and in NumPy.
_CODES = {np.dtype(letter): letter for letter in "bBhHiIqQefd"}


class _Leaf(NamedTuple):
    """A field of a struct that is no struct itself: attribute path, offset in bytes, dtype and shape."""

    path: str
    offset: int
    base: np.dtype
    shape: tuple[int, ...]


def struct_packer(dtype: np.dtype, where: str) -> Callable[[Any], bytes]:
    """Return a function that packs a Python struct into bytes with the layout of `dtype`.

    Parameters
    ----------
    dtype : numpy.dtype
        Structured dtype.
    where : str
        Kernel and parameter, for the error.

    Returns
    -------
    callable
        Function that checks each field of a dataclass, and raises ArgumentError naming the field that does not fit.
    """
    leaves = tuple(_leaves(dtype, "", 0))
    fields = attrgetter(*(leaf.path for leaf in leaves)) if leaves else None
    pieces = [_piece(leaf, f"{where}, field {leaf.path},") for leaf in leaves]
    odd = [(index, pieces[index]) for index, leaf in enumerate(leaves) if leaf.shape or leaf.base not in _CODES]
    layout = _layout(leaves, dtype.itemsize)

    def pack(value: Any) -> bytes:
        if isinstance(value, np.generic | np.ndarray):
            return value.tobytes()
        if isinstance(value, ctypes.Structure):
            return bytes(value)
        if layout is not None and fields is not None:
            try:
                values = list(fields(value)) if len(leaves) > 1 else [fields(value)]
                for index, piece in odd:
                    values[index] = piece(values[index])
                if _PLAIN.issuperset(map(type, values)):
                    return layout.pack(*values)
            except (struct.error, OverflowError, AttributeError):
                pass  # one_by_one raises the error
        return one_by_one(value)

    def one_by_one(value: Any) -> bytes:
        data = bytearray(dtype.itemsize)
        for leaf, piece in zip(leaves, pieces, strict=True):
            try:
                item = attrgetter(leaf.path)(value)
            except AttributeError as error:
                raise ArgumentError(f"{where}, field {leaf.path}, is missing: {error}") from None
            item_bytes = piece(item)
            data[leaf.offset : leaf.offset + len(item_bytes)] = item_bytes
        return bytes(data)

    return pack


def _piece(leaf: _Leaf, where: str) -> Callable[[Any], bytes]:
    """Return a function that checks the value of the field `leaf`, and converts it to the field's bytes.

    `where` names kernel and parameter in the function's errors.
    """
    base, shape = leaf.base, leaf.shape
    convert = None if shape else converter(base, where)

    def piece(value: Any) -> bytes:
        if convert is None:
            same = type(value) is np.ndarray and value.dtype == base and value.shape == shape
            return (value if same else filled(value, base, shape, where)).tobytes()
        if base == np.bool_ and type(value) is bool:
            return b"\1" if value else b"\0"
        return to_bytes(convert(value), base)

    return piece


def _leaves(dtype: np.dtype, path: str, start: int) -> Iterator[_Leaf]:
    for name, inner, offset in fields_of(dtype):
        if inner.names is not None:
            yield from _leaves(inner, f"{path}{name}.", start + offset)
        else:
            yield _Leaf(f"{path}{name}", start + offset, *innermost(inner))


def _layout(leaves: tuple[_Leaf, ...], size: int) -> struct.Struct | None:
    """Return the format, for Python's `struct`, of a struct of `size` bytes with these fields.

    Arrays, and numbers that `struct` lacks, are fields of bytes. None if fields overlap or are not in ascending order.
    """
    text, end = "<", 0
    for _, offset, base, shape in leaves:
        size_here = base.itemsize * prod(shape)
        if offset < end:
            return None
        code = f"{size_here}s" if shape or base not in _CODES else _CODES[base]
        text, end = f"{text}{offset - end}x{code}", offset + size_here
    return struct.Struct(f"{text}{size - end}x")


def filled(value: Any, dtype: np.dtype, shape: tuple[int, ...], where: str) -> np.ndarray:
    """Convert a number or an array to `dtype`, and broadcast it to `shape`.

    Raises
    ------
    ArgumentError
        For numbers that `dtype` cannot hold, and for another shape.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{where} has shape {shape}, got what is no array: {error}") from error
    converted = _exactly(array, dtype, where)
    try:
        return converted if converted.shape == shape else np.broadcast_to(converted, shape)
    except ValueError:
        raise ArgumentError(f"{where} has shape {shape}, got {array.shape}") from None


def _exactly(array: np.ndarray, dtype: np.dtype, where: str) -> np.ndarray:
    if array.dtype == dtype or not array.size:
        return array.astype(dtype)
    category = "f" if array.dtype.type.__module__ == "ml_dtypes" else array.dtype.kind
    if category not in {"b": "biu", "i": "biu", "u": "biu", "c": "biufc"}.get(dtype.kind, "biuf"):
        # Other categories are converted one by one, which refuses values that do not fit.
        convert = converter(dtype, where)
        pieces = [to_bytes(convert(item), dtype) for item in array.reshape(-1).tolist()]
        return np.frombuffer(b"".join(pieces), dtype).reshape(array.shape)
    if dtype.kind in "biu":
        least, greatest = integer_range(dtype)
        wrong = np.asarray((array < least) | (array > greatest))
        converted = array.astype(dtype)
    elif category in "biu" and dtype.itemsize >= 4:
        return array.astype(dtype)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            converted = array.astype(dtype)
        wrong = np.asarray(np.isfinite(array) & ~np.isfinite(converted))
    if wrong.any():
        converter(dtype, where)(array[wrong].reshape(-1)[0].item())
    return converted
