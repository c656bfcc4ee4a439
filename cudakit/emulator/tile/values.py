"""Values of tile kernels: arrays of a tile's shape, boxes of memory, and the dtype of each element type."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

from cudakit.emulator.instructions.rounding import CANONICAL_NAN
from cudakit.emulator.machine.memory import Allocation, Memory
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Tile, Type


class Box(NamedTuple):
    """Strided elements in one allocation.

    Attributes
    ----------
    piece : Allocation
        The allocation.
    offset : int
        Bytes from the beginning of the allocation to the first element.
    shape : tuple of int
        Number of elements along each axis.
    strides : tuple of int
        Strides in bytes.
    low, high : int
        Bytes from the beginning of the allocation to the box's first byte, and to the byte after its last.
    """

    piece: Allocation
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int
    high: int

    def array(self, dtype: np.dtype) -> np.ndarray:
        """Return the elements, as a view of memory."""
        return np.ndarray(self.shape, dtype, self.piece.data, self.offset, self.strides)

    def elements(self, size: int) -> np.ndarray:
        """Return the number of each element as a flat array, counted in elements of `size` bytes.

        Number 0 is the first aligned element of the allocation, as for watchers of memory.
        """
        offsets: Any = np.int64(self.offset)
        for axis, (extent, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            shape = [1] * len(self.shape)
            shape[axis] = -1
            offsets = offsets + (np.arange(extent, dtype=np.int64) * stride).reshape(shape)
        return np.asarray((offsets - -self.piece.address % size) // size).reshape(-1)


def box_of(
    memory: Memory, address: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int, use: int
) -> Box | None:
    """Return the box of elements of `size` bytes whose first element is at `address`, with strides in bytes.

    `use` is the kind of access. The result is None if no single allocation has all elements, or if the address is not
    aligned.
    """
    low = high = address
    for extent, stride in zip(shape, strides, strict=True):
        reach = (extent - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    if low < 0 or address % size:
        return None
    piece = memory.piece(low, high + size - low, use)
    if piece is None:
        return None
    start = piece.address
    return Box(piece, address - start, shape, strides, low - start, high + size - start)


#: NumPy dtype of each element type: signless integers as signed ones, addresses unchanged.
DTYPES: Final[dict[str, np.dtype]] = {
    "i1": np.dtype(bool), "i4": np.dtype(ml_dtypes.int4), "i8": np.dtype(np.int8), "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32), "i64": np.dtype(np.int64), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32), "tf32": np.dtype(np.float32),
    "f64": np.dtype(np.float64), "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2), "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
    # NumPy has no such type. No other element type is held as an unsigned integer, so uint8 identifies it.
    "f8E5M3FNU": np.dtype(np.uint8),
}  # fmt: skip
#: Largest numbers of types to which conversions saturate.
_MOST: Final = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0, "f4E2M1FN": 6.0}
#: Values of f8E5M3FNU by their bits; the last one is NaN.
_E5M3: Final = np.array(
    [(k & 7) / 2**17 if k < 8 else (1 + (k & 7) / 8) * 2.0 ** ((k >> 3) - 15) for k in range(255)] + [np.nan],
    np.float32,
)
ADDRESS: Final = np.dtype(np.uint64)
_PADDINGS: Final = {"zero": 0.0, "neg_zero": -0.0, "nan": np.nan, "pos_inf": np.inf, "neg_inf": -np.inf}


def element_dtype(element: str) -> np.dtype:
    """Return the NumPy dtype of an element type, in tiles and in memory.

    Raises
    ------
    EmulationError
        For an element type that is not emulated.
    """
    if element not in DTYPES:
        raise EmulationError(f"elements of type {element} are not emulated")
    return DTYPES[element]


def dtype_of(tile_type: Type) -> np.dtype:
    """Return the NumPy dtype of a tile's elements."""
    assert isinstance(tile_type, Tile)
    return ADDRESS if tile_type.is_pointer else element_dtype(tile_type.element)


def shape_of(tile_type: Type) -> tuple[int, ...]:
    assert isinstance(tile_type, Tile)
    return tile_type.shape


def constant(data: bytes, tile_type: Type) -> np.ndarray:
    """Return a constant as an array of the tile's shape, from its bytes."""
    dtype, shape = dtype_of(tile_type), shape_of(tile_type)
    count = int(np.prod(shape, dtype=np.int64))
    assert isinstance(tile_type, Tile)
    if tile_type.element == "tf32":  # its 19 bits, in three bytes
        bits = np.frombuffer(data, np.uint8).reshape(-1, 3) @ np.array([1 << 13, 1 << 21, 1 << 29], np.uint32)
        values = bits.astype(np.uint32).view(np.float32)
    elif dtype != np.bool_:
        values = np.frombuffer(data, dtype)
    elif len(data) == 1 and data[0] in (0, 0xFF):  # all of them are the same
        values = np.array([data[0] != 0])
    elif len(data) == count:
        values = np.frombuffer(data, np.uint8) != 0
    else:
        values = np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little").astype(bool)
    return np.broadcast_to(values[0], shape) if values.size == 1 else values.reshape(shape)


def padding(name: str, dtype: np.dtype) -> Any:
    """Return the value that elements outside a view have, by the name of the padding."""
    value = _PADDINGS[name]
    if dtype == np.uint8:
        return narrowed(np.asarray(value, np.float64), "f8E5M3FNU")[()]
    return np.asarray(value if value == value else CANONICAL_NAN["f32"], np.float32).astype(dtype)[()]


def wide(value: Any) -> Any:
    """Return a tile of floats in the dtype of its computations: float64 stays, every other dtype becomes float32."""
    if value.dtype in (np.float32, np.float64):
        return value
    return _E5M3[value] if value.dtype == np.uint8 else value.astype(np.float32)


def rounded_to_odd(value: np.ndarray) -> np.ndarray:
    """Return float64 as float32, rounded to odd, so that a second rounding gives the result of a single one."""
    single = value.astype(np.float32)
    back = single.astype(np.float64)
    toward_zero = np.where(np.abs(back) > np.abs(value), np.nextafter(single, np.float32(0)), single)
    inexact = (toward_zero.astype(np.float64) != value) & np.isfinite(value)
    return np.where(inexact, (toward_zero.view(np.uint32) | np.uint32(1)).view(np.float32), single)


def narrowed(value: np.ndarray, element: str) -> np.ndarray:
    """Return floats as elements of a type, rounded to nearest, ties to even.

    Types of 8 and 4 bits stay finite, as on a GPU.
    """
    dtype = element_dtype(element)
    if element == "f8E5M3FNU":
        return _to_e5m3(value.astype(np.float64))
    if value.dtype == np.float64 and (element == "tf32" or dtype not in (np.float64, np.float32, np.float16)):
        value = rounded_to_odd(value)
    if element == "tf32":
        return to_tf32(value)
    if (most := _MOST.get(element)) is not None:
        value = np.clip(wide(value), -most, most)
        # The type of 4 bits has no NaN: a GPU converts NaN to its largest number.
        return (np.where(np.isnan(value), most, value) if element == "f4E2M1FN" else value).astype(dtype)
    return value.astype(dtype)


def _to_e5m3(value: np.ndarray) -> np.ndarray:
    inside = np.clip(value, 0, float(_E5M3[254]))
    above = np.minimum(np.searchsorted(_E5M3[:255], inside), 254)
    below = np.maximum(above - 1, 0)
    over, under = _E5M3[above] - inside, inside - _E5M3[below]
    nearest = np.where((over < under) | ((over == under) & (above % 2 == 0)), above, below)
    return np.where(np.isnan(value), 255, nearest).astype(np.uint8)


def directed(value: np.ndarray, element: str, mode: str) -> np.ndarray:
    """Return floats as elements of a type, rounded toward zero or an infinity, or to nearest with ties away from zero.

    Raises
    ------
    EmulationError
        For a rounding that Tile IR does not have.
    """
    dtype, exact = element_dtype(element), value.astype(np.float64)
    if element == "tf32" and mode in ("zero", "nearest_away"):
        single = value if value.dtype == np.float32 else directed(value, "f32", mode)
        bits = single.view(np.uint32) + np.uint32(0x1000 if mode == "nearest_away" else 0)
        return np.where(np.isfinite(single), (bits & np.uint32(0xFFFFE000)).view(np.float32), single)
    nearest = narrowed(value, element)
    back = wide(nearest).astype(np.float64)
    if np.array_equal(back, exact, equal_nan=True):
        return nearest
    if mode in ("zero", "negative_inf", "positive_inf") and dtype.itemsize in (2, 4) and element != "tf32":
        limit = {"zero": 0.0, "negative_inf": -np.inf, "positive_inf": np.inf}[mode]
        is_wrong = np.abs(back) > np.abs(exact) if mode == "zero" else back > exact if limit < 0 else back < exact
        return np.where(is_wrong, np.nextafter(nearest, dtype.type(limit)), nearest)
    raise EmulationError(f"a conversion to {element} with rounding {mode} is not emulated")


def power_of_two(value: np.ndarray, up: bool) -> np.ndarray:
    """Return floats as f8E8M0FNU: each absolute value rounded to a power of two, up with `up`, else down.

    Powers of two stay the same.
    """
    fraction, exponent = np.frexp(np.abs(value.astype(np.float64)))
    whole = exponent - np.where(up & (fraction != 0.5), 0, 1)
    exponents = np.where(fraction == 0, 0, np.clip(whole + 127, 0, 254)).astype(np.uint8)
    exponents = np.where(np.isposinf(np.abs(value)), 254, np.where(np.isnan(value), 255, exponents))
    return exponents.astype(np.uint8).view(DTYPES["f8E8M0FNU"])


def to_tf32(value: np.ndarray) -> np.ndarray:
    """Return float32 values rounded to a mantissa of 10 bits, to nearest, ties to even."""
    raw = np.ascontiguousarray(value, np.float32).view(np.uint32)
    with np.errstate(over="ignore"):
        rounded = (raw + np.uint32(0xFFF) + ((raw >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded.view(np.float32), value)


def signed(value: Any) -> Any:
    """Return a signless tile's bits as signed numbers: a set bit of ``i1`` is −1."""
    return -value.astype(np.int8) if value.dtype == np.bool_ else value


def unsigned(value: Any) -> Any:
    """Return a signless tile's bits as unsigned numbers."""
    if value.dtype == np.bool_:
        return value.astype(np.uint8)
    if value.dtype == DTYPES["i4"]:
        return value.astype(np.uint8) & np.uint8(15)
    return np.asarray(value).view(np.dtype(f"u{value.dtype.itemsize}"))
