"""Dtypes of CUDA's vector types, and functions that make values of them: ``vec.float3``, ``vec.make_float3``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.types.cpp import VECTORS

#: Dtypes by the name of their C++ type.
VECTOR_DTYPES: dict[str, np.dtype] = {
    name: np.dtype([(field, component) for field in "xyzw"[:count]])
    for name, (component, count, _) in VECTORS.items()
    if component.kind != "f" or component.itemsize > 2
}


def _make(name: str, *values: Any, **fields: Any) -> np.ndarray:
    """Return a value of the vector type `name` from its fields, by position or by name.

    Raises
    ------
    ArgumentError
        There are more or fewer values than fields.
    """
    dtype = VECTOR_DTYPES[name]
    names = dtype.names or ()
    rest = names[len(values) :]
    if len(values) > len(names) or set(fields) != set(rest):
        arguments = [*map(repr, values), *(f"{field}={value!r}" for field, value in fields.items())]
        raise ArgumentError(f"make_{name} takes {len(names)} values ({', '.join(names)}), got ({', '.join(arguments)})")
    return np.array((*values, *(fields[field] for field in rest)), dtype)


class vec:
    """Namespace of the vector types."""


for _name, _dtype in VECTOR_DTYPES.items():
    setattr(vec, _name, _dtype)
    setattr(vec, f"make_{_name}", staticmethod(functools.partial(_make, _name)))
