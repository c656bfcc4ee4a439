"""Structs by value: a dataclass, a ctypes.Structure or a structured dtype, with the layout of the C++ struct."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from cudakit.errors import TemplateError, shortened
from cudakit.types.cpp import spelling as scalar_spelling


def is_struct_type(obj: object) -> bool:
    """Return whether `obj` is a struct type: a dataclass, a ctypes.Structure or a structured dtype."""
    if isinstance(obj, np.dtype):
        return obj.names is not None
    return isinstance(obj, type) and (dataclasses.is_dataclass(obj) or issubclass(obj, ctypes.Structure))


@cache
def struct_dtype(struct_type: Any) -> np.dtype:
    """Return the structured dtype of a dataclass, a ctypes.Structure or a structured dtype, with C++'s layout.

    A dataclass's annotations are NumPy scalar types, dtypes, Python's float and int (64 bits each), bool and complex,
    other such classes, or ``Annotated[type, shape]`` for an array field.

    Raises
    ------
    TemplateError
        If the type of a field has no C++ equivalent.
    """
    if isinstance(struct_type, np.dtype):
        return np.dtype(struct_type)
    if issubclass(struct_type, ctypes.Structure):
        layout: np.dtype = np.dtype(struct_type)
        return layout
    hints = typing.get_type_hints(struct_type, include_extras=True)
    fields: list[tuple[str, np.dtype]] = []
    for field in dataclasses.fields(struct_type):
        hint, shape = hints[field.name], ()
        if typing.get_origin(hint) is typing.Annotated:
            hint, extent, *_ = typing.get_args(hint)
            shape = extent if isinstance(extent, tuple) else (extent,)
        try:
            dtype = struct_dtype(hint) if is_struct_type(hint) else np.dtype(hint)
        except TypeError:
            dtype = np.dtype(object)
        if dtype.names is None and scalar_spelling(dtype) is None:
            raise TemplateError(
                f"field {shortened(field.name)} of {struct_type.__name__} has type {shortened(hint)}, which has no C++ "
                "equivalent; use a NumPy scalar type such as numpy.float32"
            )
        fields.append((field.name, np.dtype((dtype, shape))))
    return _aligned(fields)


def _aligned(fields: list[tuple[str, np.dtype]]) -> np.dtype:
    """Return `fields` with C++'s layout. NumPy's align=True aligns complex numbers to half of cuda::std's alignment."""
    offsets, end, widest = [], 0, 1
    for _, dtype in fields:
        alignment = alignment_of(innermost(dtype)[0])
        offsets.append(-(-end // alignment) * alignment)
        end, widest = offsets[-1] + dtype.itemsize, max(widest, alignment)
    names, formats = [name for name, _ in fields], [dtype for _, dtype in fields]
    size = max(1, -(-end // widest) * widest)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def alignment_of(dtype: np.dtype) -> int:
    """Return the alignment in bytes that C++ gives a dtype."""
    if dtype.names is not None:
        return max((alignment_of(innermost(inner)[0]) for _, inner, _ in fields_of(dtype)), default=1)
    return min(dtype.itemsize, 16)


def fields_of(dtype: np.dtype) -> Iterator[tuple[str, np.dtype, int]]:
    """Yield name, dtype and offset in bytes of each field, in order; nothing for a dtype that is no struct."""
    for name in dtype.names or ():
        assert dtype.fields is not None
        inner, offset = dtype.fields[name][:2]
        yield name, inner, offset


def innermost(dtype: np.dtype) -> tuple[np.dtype, tuple[int, ...]]:
    """Return the element dtype and the extents of an array field; nested arrays, as ctypes makes them, count as one."""
    shape: tuple[int, ...] = ()
    while dtype.subdtype is not None:
        dtype, extents = dtype.subdtype
        shape += extents
    return dtype, shape


def struct_name(struct_type: Any) -> str:
    """Return a C++ name for a struct that the source does not name.

    It is the name of the Python class, or for a dtype ``cudakit_struct_`` and a hash of the layout.
    """
    if isinstance(struct_type, np.dtype):
        return f"cudakit_struct_{hashlib.sha256(repr(struct_type).encode()).hexdigest()[:12]}"
    return str(struct_type.__name__)


def spelling(dtype: np.dtype, where: str) -> str:
    """Return the C++ type of a scalar dtype in native byte order; `where` names it in the error."""
    spelled = scalar_spelling(dtype)
    if spelled is None:
        hint = "; it is not in native byte order" if not dtype.isnative else ""
        raise TemplateError(f"{where} has dtype {dtype}, which has no C++ equivalent{hint}")
    return spelled
