"""Structs by value: a dataclass, a ctypes.Structure or a structured dtype, and the C++ struct with the same layout."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import typing
from functools import cache
from typing import Any

import numpy as np

from cudakit.errors import TemplateError, shortened
from cudakit.types.cpp import spelling as scalar_spelling


def is_struct_type(obj: object) -> bool:
    """Whether `obj` is a type that stands for a struct: a dataclass, a ctypes.Structure or a structured dtype."""
    if isinstance(obj, np.dtype):
        return obj.names is not None
    return isinstance(obj, type) and (dataclasses.is_dataclass(obj) or issubclass(obj, ctypes.Structure))


@cache
def struct_dtype(kind: Any) -> np.dtype:
    """Structured dtype of a dataclass, a ctypes.Structure or a structured dtype, laid out as C++ lays it out.

    A dataclass's annotations are NumPy scalar types, dtypes, Python's float and int (64 bits each), bool and complex,
    other such classes, or ``Annotated[type, shape]`` for an array field.

    Raises
    ------
    TemplateError
        If a field has a type that has no C++ equivalent.
    """
    if isinstance(kind, np.dtype):
        return np.dtype(kind)
    if issubclass(kind, ctypes.Structure):
        layout: np.dtype = np.dtype(kind)
        return layout
    hints = typing.get_type_hints(kind, include_extras=True)
    fields: list[tuple[str, np.dtype]] = []
    for field in dataclasses.fields(kind):
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
                f"field {shortened(field.name)} of {kind.__name__} has type {shortened(hint)}, which has no C++ "
                "equivalent; "
                "use a NumPy scalar type such as numpy.float32"
            )
        fields.append((field.name, np.dtype((dtype, shape))))
    return _aligned(fields)


def _aligned(fields: list[tuple[str, np.dtype]]) -> np.dtype:
    """C++'s layout of `fields`; NumPy's own align=True aligns complex numbers to half of what cuda::std does."""
    offsets, end, widest = [], 0, 1
    for _, dtype in fields:
        alignment = _alignment(innermost(dtype)[0])
        offsets.append(-(-end // alignment) * alignment)
        end, widest = offsets[-1] + dtype.itemsize, max(widest, alignment)
    names, formats = [name for name, _ in fields], [dtype for _, dtype in fields]
    size = max(1, -(-end // widest) * widest)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def innermost(dtype: np.dtype) -> tuple[np.dtype, tuple[int, ...]]:
    """What a field is an array of, and its extents; arrays of arrays, as ctypes makes them, are one."""
    shape: tuple[int, ...] = ()
    while dtype.subdtype is not None:
        dtype, extents = dtype.subdtype
        shape += extents
    return dtype, shape


def identifier(name: str, what: str) -> str:
    """`name`, which may come from a file, if it can stand in C++ text as a name and as nothing else.

    Raises
    ------
    TemplateError
    """
    if not name.isidentifier():
        raise TemplateError(f"{what} has the name {shortened(name)}, which is no C++ identifier; rename it")
    return name


def struct_name(kind: Any) -> str:
    """C++ name for a struct that the source does not name: the class's, or one made from the layout."""
    if isinstance(kind, np.dtype):
        return f"cudakit_struct_{hashlib.sha256(repr(kind).encode()).hexdigest()[:12]}"
    return str(kind.__name__)


def definition(name: str, dtype: np.dtype, known: dict[np.dtype, str]) -> str:
    """C++ text that defines `name` with the layout of `dtype`, nested structs first.

    Parameters
    ----------
    name : str
        Name of the struct.
    dtype : numpy.dtype
        Structured dtype.
    known : dict
        Names of structs defined so far; nested ones are added.
    """
    lines, nested = [], []
    end = 0
    assert dtype.fields is not None
    identifier(name, "a struct")
    for field in dtype.names or ():
        identifier(field, f"a field of struct {name}")
        field_dtype, offset = dtype.fields[field][:2]
        base, extents = innermost(field_dtype)
        if base.names is not None:
            if base not in known:
                nested_name = struct_name(base)
                nested.append(definition(nested_name, base, known))
                known[base] = nested_name
            spelled = known[base]
        else:
            spelled = spelling(base, f"field {shortened(field)} of struct {name}")
        alignment = _alignment(base)
        if offset % alignment:
            raise TemplateError(
                f"field {shortened(field)} of struct {name} is at byte {offset}, which is not a multiple of "
                f"{spelled}'s "
                f"alignment {alignment}; build the dtype with align=True"
            )
        natural = -(-end // alignment) * alignment
        if offset > natural:
            lines.append(f"    unsigned char cudakit_pad_{end}[{offset - end}];")
        lines.append(f"    {spelled} {field}{''.join(f'[{extent}]' for extent in extents)};")
        end = offset + field_dtype.itemsize
    if dtype.itemsize > -(-end // _alignment(dtype)) * _alignment(dtype):
        lines.append(f"    unsigned char cudakit_pad_{end}[{dtype.itemsize - end}];")
    known[dtype] = name
    return "".join(nested) + f"struct {name} {{\n" + "\n".join(lines) + "\n};\n"


def spelling(dtype: np.dtype, where: str) -> str:
    """C++ spelling of a scalar dtype in native byte order; `where` names it in the error."""
    spelled = scalar_spelling(dtype)
    if spelled is None:
        hint = "; it is not in native byte order" if not dtype.isnative else ""
        raise TemplateError(f"{where} has dtype {dtype}, which has no C++ equivalent{hint}")
    return spelled


def _alignment(dtype: np.dtype) -> int:
    if dtype.names is not None and dtype.fields is not None:
        return max((_alignment(innermost(dtype.fields[name][0])[0]) for name in dtype.names), default=1)
    return min(dtype.itemsize, 16)
