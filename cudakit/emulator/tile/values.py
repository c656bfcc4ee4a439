"""Values of tile kernels: arrays of a tile's shape, and how each type of element is held and computed."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from cudakit.emulator.instructions.rounding import CANONICAL_NAN
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Tile, Type

#: dtype in which a tile of a type is held; signless integers as signed ones, addresses as what they are.
DTYPES: Final[dict[str, np.dtype]] = {
    "i1": np.dtype(bool), "i4": np.dtype(np.int8), "i8": np.dtype(np.int8), "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32), "i64": np.dtype(np.int64), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32), "tf32": np.dtype(np.float32),
    "f64": np.dtype(np.float64), "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2), "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
}  # fmt: skip
ADDRESS: Final = np.dtype(np.uint64)
_PADDINGS: Final = {"zero": 0.0, "neg_zero": -0.0, "nan": np.nan, "pos_inf": np.inf, "neg_inf": -np.inf}


def element_dtype(element: str) -> np.dtype:
    """How elements of a type are held in tiles and in memory.

    Raises
    ------
    EmulationError
    """
    if element not in DTYPES:
        raise EmulationError(f"elements of type {element} are not emulated")
    return DTYPES[element]


def dtype_of(given: Type) -> np.dtype:
    """How a tile's elements are held."""
    assert isinstance(given, Tile)
    return ADDRESS if given.is_pointer else element_dtype(given.element)


def shape_of(given: Type) -> tuple[int, ...]:
    assert isinstance(given, Tile)
    return given.shape


def constant(data: bytes, given: Type) -> np.ndarray:
    """A constant's value: all elements, or one for all of them."""
    dtype, shape = dtype_of(given), shape_of(given)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype != np.bool_:
        found = np.frombuffer(data, dtype)
    elif len(data) == 1 and data[0] in (0, 0xFF):  # all of them are the same
        found = np.array([data[0] != 0])
    elif len(data) == count:
        found = np.frombuffer(data, np.uint8) != 0
    else:
        found = np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little").astype(bool)
    return np.broadcast_to(found[0], shape) if found.size == 1 else found.reshape(shape)


def padding(name: str, dtype: np.dtype) -> Any:
    """What stands where a view ends."""
    value = _PADDINGS[name]
    return np.asarray(value if value == value else CANONICAL_NAN["f32"], np.float32).astype(dtype)[()]


def wide(value: Any) -> Any:
    """A tile in the precision that it is computed in: small floats as float32."""
    return value if value.dtype in (np.float32, np.float64) else value.astype(np.float32)


def to_tf32(value: np.ndarray) -> np.ndarray:
    """float32 with a mantissa of 10 bits, to nearest, ties to even."""
    raw = np.ascontiguousarray(value, np.float32).view(np.uint32)
    with np.errstate(over="ignore"):
        rounded = (raw + np.uint32(0xFFF) + ((raw >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded.view(np.float32), value)


def unsigned(value: Any) -> Any:
    """A signless tile's bits as unsigned numbers."""
    if value.dtype == np.bool_:
        return value.astype(np.uint8)
    return np.asarray(value).view(np.dtype(f"u{value.dtype.itemsize}"))
