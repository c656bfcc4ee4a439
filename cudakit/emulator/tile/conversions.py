"""Tiles of one type from tiles of another."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.emulator.tile.decode import Decoder, Step, operation, pure
from cudakit.emulator.tile.values import directed, dtype_of, narrowed, power_of_two, shape_of, signed, unsigned, wide
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation, Tile


@operation("exti")
def _extend(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])
    if given.attributes["signedness"] == "signed":
        return pure(given, lambda a: signed(a).astype(dtype))
    return pure(given, lambda a: unsigned(a).astype(dtype))


@operation("trunci")
def _truncate(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])
    if dtype == np.bool_:
        return pure(given, lambda a: (a & 1).astype(bool))
    return pure(given, lambda a: a.astype(dtype))


@operation("itof")
def _integer_to_float(given: Operation, decoder: Decoder) -> Step:
    (result,) = given.types
    assert isinstance(result, Tile)
    view = signed if given.attributes["signedness"] == "signed" else unsigned
    element, dtype = result.element, dtype_of(result)
    _nearest_only(given)
    if dtype in (np.float32, np.float64) and element != "tf32":
        return pure(given, lambda a: np.asarray(view(a)).astype(dtype))
    return pure(given, lambda a: narrowed(_as_float64(np.asarray(view(a))), element))


def _as_float64(value: np.ndarray) -> np.ndarray:
    """Integers as float64; of those of more than 53 bits the last bit says whether anything was lost after it."""
    if value.dtype.itemsize < 8:
        return value.astype(np.float64)
    kind = value.dtype.type
    high = (value >> kind(11)) | ((value & kind(2047)) != 0).astype(value.dtype)
    large = np.abs(value.astype(np.float64)) >= 2.0**53
    return np.where(large, high.astype(np.float64) * 2048, value.astype(np.float64))


@operation("ftoi")
def _float_to_integer(given: Operation, decoder: Decoder) -> Step:
    dtype, has_sign = dtype_of(given.types[0]), given.attributes["signedness"] == "signed"
    held = dtype if has_sign or dtype == np.bool_ else np.dtype(f"u{dtype.itemsize}")
    if dtype == np.bool_:
        return pure(given, lambda a: wide(a) != 0)
    low, high = np.iinfo(held).min, np.iinfo(held).max

    def convert(a: Any) -> Any:
        whole = np.trunc(wide(a).astype(np.float64))
        inside = (whole >= low) & (whole <= float(high)) & (whole < float(high) + 1)
        found = np.where(inside, whole, 0).astype(held)
        found = np.where(whole >= float(high), high, np.where(whole <= low, low, found))
        return np.where(np.isnan(whole), 0, found).astype(held).view(dtype)

    return pure(given, convert)


@operation("ftof")
def _float_to_float(given: Operation, decoder: Decoder) -> Step:
    (result,) = given.types
    assert isinstance(result, Tile)
    element, mode = result.element, given.attributes.get("rounding", "nearest_even")
    if element == "f8E8M0FNU" and mode in ("zero", "positive_inf"):
        return pure(given, lambda a: power_of_two(wide(a), mode == "positive_inf"))
    if mode == "nearest_even":
        return pure(given, lambda a: narrowed(wide(a), element))
    return pure(given, lambda a: directed(wide(a), element, mode))


def _nearest_only(given: Operation) -> None:
    mode = given.attributes.get("rounding", "nearest_even")
    if mode != "nearest_even":
        raise EmulationError(f"{given.name} with rounding {mode} is not emulated")


@operation("bitcast")
def _bitcast(given: Operation, decoder: Decoder) -> Step:
    dtype, shape = dtype_of(given.types[0]), shape_of(given.types[0])
    return pure(given, lambda a: np.ascontiguousarray(a).reshape(-1).view(dtype).reshape(shape))


@operation("pack")
def _pack(given: Operation, decoder: Decoder) -> Step:
    shape = shape_of(given.types[0])

    def pack(a: Any) -> Any:
        raw = np.ascontiguousarray(a).reshape(-1)
        if raw.size == 2 * int(np.prod(shape)):  # of 4 bits each, the first in the low half
            nibbles = raw.view(np.uint8)
            return (nibbles[::2] & 15 | nibbles[1::2] << 4).view(np.int8).reshape(shape)
        return raw.view(np.int8).reshape(shape)

    return pure(given, pack)


@operation("unpack")
def _unpack(given: Operation, decoder: Decoder) -> Step:
    dtype, shape = dtype_of(given.types[0]), shape_of(given.types[0])

    def unpack(a: Any) -> Any:
        raw = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
        if int(np.prod(shape)) == 2 * raw.size:
            nibbles = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1).astype(np.uint8)
            return nibbles.view(dtype).reshape(shape)
        return raw.view(dtype).reshape(shape)

    return pure(given, unpack)


@operation("ptr_to_int")
def _pointer_to_integer(given: Operation, decoder: Decoder) -> Step:
    return pure(given, lambda a: a.astype(np.uint64).view(np.int64))


@operation("int_to_ptr")
def _integer_to_pointer(given: Operation, decoder: Decoder) -> Step:
    return pure(given, lambda a: np.asarray(a).view(np.uint64))


@operation("ptr_to_ptr")
def _pointer_to_pointer(given: Operation, decoder: Decoder) -> Step:
    return pure(given, lambda a: a)
