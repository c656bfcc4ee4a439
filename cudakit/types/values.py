"""Python values to the exact bytes of a struct or an array, refusing what a field or an element cannot hold."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.types import scalars
from cudakit.types.structs import innermost

#: Types whose values `struct` takes, or refuses, as `scalars.converter` does.
_PLAIN = frozenset(
    [int, float, bytes, *(np.dtype(code).type for code in ("f2", "f4", "f8", *np.typecodes["AllInteger"]))]
)
#: Python's `struct` has codes of its own for dtypes.
_CODES = {
    np.dtype(code): letter
    for code, letter in zip(
        ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"], "bBhHiIqQefd", strict=True
    )
}


class _Leaf(NamedTuple):
    """A field that is no struct: the way to it, where it lies, and the dtype of its elements."""

    path: str
    offset: int
    base: np.dtype
    shape: tuple[int, ...]


def struct_packer(dtype: np.dtype, where: str) -> Callable[[Any], bytes]:
    """A function from a struct in Python, laid out as `dtype`, to its bytes.

    Parameters
    ----------
    dtype : numpy.dtype
        Structured.
    where : str
        Kernel and parameter, for the error.

    Returns
    -------
    callable
        Of a dataclass each field is checked: it raises ArgumentError, naming the field, for what cannot be held.
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
                pass  # What is wrong is said below.
        return one_by_one(value)

    def one_by_one(value: Any) -> bytes:
        data = bytearray(dtype.itemsize)
        for leaf, piece in zip(leaves, pieces, strict=True):
            try:
                item = attrgetter(leaf.path)(value)
            except AttributeError as error:
                raise ArgumentError(f"{where}, field {leaf.path}, is missing: {error}") from None
            made = piece(item)
            data[leaf.offset : leaf.offset + len(made)] = made
        return bytes(data)

    return pack


def _piece(leaf: _Leaf, where: str) -> Callable[[Any], bytes]:
    """A function from a field's value to its bytes."""
    base, shape = leaf.base, leaf.shape
    convert = None if shape else scalars.converter(base, where)

    def piece(value: Any) -> bytes:
        if convert is None:
            same = type(value) is np.ndarray and value.dtype == base and value.shape == shape
            return (value if same else filled(value, base, shape, where)).tobytes()
        if base == np.bool_ and type(value) is bool:
            return b"\1" if value else b"\0"
        return scalars.to_bytes(convert(value), base)

    return piece


def _leaves(dtype: np.dtype, path: str, start: int) -> Iterator[_Leaf]:
    for name in dtype.names or ():
        assert dtype.fields is not None
        inner, offset = dtype.fields[name][:2]
        if inner.names is not None:
            yield from _leaves(inner, f"{path}{name}.", start + offset)
        else:
            yield _Leaf(f"{path}{name}", start + offset, *innermost(inner))


def _layout(leaves: tuple[_Leaf, ...], size: int) -> struct.Struct | None:
    """The struct in terms of Python's `struct`, what that lacks as bytes; None where fields overlap."""
    text, end = "<", 0
    for _, offset, base, shape in leaves:
        size_here = base.itemsize * prod(shape)
        if offset < end:
            return None
        code = f"{size_here}s" if shape or base not in _CODES else _CODES[base]
        text, end = f"{text}{offset - end}x{code}", offset + size_here
    return struct.Struct(f"{text}{size - end}x")


def filled(value: Any, dtype: np.dtype, shape: tuple[int, ...], where: str) -> np.ndarray:
    """`value`, a number or an array of them, spread over an array of `dtype` and `shape`.

    Raises
    ------
    ArgumentError
        For numbers that `dtype` cannot hold, and another shape.
    """
    try:
        given = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{where} has shape {shape}, got what is no array: {error}") from error
    made = _exactly(given, dtype, where)
    try:
        return made if made.shape == shape else np.broadcast_to(made, shape)
    except ValueError:
        raise ArgumentError(f"{where} has shape {shape}, got {given.shape}") from None


def _exactly(given: np.ndarray, dtype: np.dtype, where: str) -> np.ndarray:
    if given.dtype == dtype or not given.size:
        return given.astype(dtype)
    kind = "f" if given.dtype.type.__module__ == "ml_dtypes" else given.dtype.kind
    if kind not in {"b": "biu", "i": "biu", "u": "biu", "c": "biufc"}.get(dtype.kind, "biuf"):
        # One of another kind is refused by its value, if all of them are not numbers after all.
        convert = scalars.converter(dtype, where)
        pieces = [scalars.to_bytes(convert(item), dtype) for item in given.reshape(-1).tolist()]
        return np.frombuffer(b"".join(pieces), dtype).reshape(given.shape)
    if dtype.kind in "biu":
        least, greatest = scalars.integer_range(dtype)
        wrong = np.asarray((given < least) | (given > greatest))
        made = given.astype(dtype)
    elif kind in "biu" and dtype.itemsize >= 4:
        return given.astype(dtype)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            made = given.astype(dtype)
        wrong = np.asarray(np.isfinite(given) & ~np.isfinite(made))
    if wrong.any():
        scalars.converter(dtype, where)(given[wrong].reshape(-1)[0].item())
    return made
