"""Dtypes of CUDA's vector types, and functions that make values of them: ``vec.float3``, ``vec.make_float3``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError

#: Element dtype of each family, and the largest number of fields.
_FAMILIES: dict[str, tuple[type, int]] = {
    "char": (np.int8, 4), "uchar": (np.uint8, 4), "short": (np.int16, 4), "ushort": (np.uint16, 4),
    "int": (np.int32, 4), "uint": (np.uint32, 4), "long": (np.int64, 4), "ulong": (np.uint64, 4),
    "longlong": (np.int64, 2), "ulonglong": (np.uint64, 2), "float": (np.float32, 4), "double": (np.float64, 2),
}  # fmt: skip

#: Dtypes by the name of their C++ type.
VECTOR_DTYPES: dict[str, np.dtype] = {
    f"{family}{count}": np.dtype([(field, element) for field in "xyzw"[:count]])
    for family, (element, most) in _FAMILIES.items()
    for count in range(1, most + 1)
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
