"""Tiles of one type from tiles of another."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.emulator.tile.decode import Decoder, Step, operation, pure
from cudakit.emulator.tile.values import dtype_of, shape_of, to_tf32, unsigned, wide
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation, Tile


@operation("exti")
def _extend(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])
    if given.attributes["signedness"] == "signed":
        # A bit that is extended with its sign is −1.
        return pure(given, lambda a: -a.astype(dtype) if a.dtype == np.bool_ else a.astype(dtype))
    return pure(given, lambda a: unsigned(a).astype(dtype))


@operation("trunci")
def _truncate(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])
    if dtype == np.bool_:
        return pure(given, lambda a: (a & 1).astype(bool))
    return pure(given, lambda a: a.astype(dtype))


@operation("itof")
def _integer_to_float(given: Operation, decoder: Decoder) -> Step:
    dtype, signed = dtype_of(given.types[0]), given.attributes["signedness"] == "signed"
    _nearest_only(given)
    step = np.dtype(np.float64) if dtype == np.float64 else np.dtype(np.float32)
    return pure(given, lambda a: (a if signed else unsigned(a)).astype(step).astype(dtype))


@operation("ftoi")
def _float_to_integer(given: Operation, decoder: Decoder) -> Step:
    dtype, signed = dtype_of(given.types[0]), given.attributes["signedness"] == "signed"
    held = dtype if signed or dtype == np.bool_ else np.dtype(f"u{dtype.itemsize}")
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
    dtype, element = dtype_of(result), result.element
    _nearest_only(given)

    def convert(a: Any) -> Any:
        value = wide(a)
        if element == "tf32":
            return to_tf32(value.astype(np.float32))
        return value.astype(dtype)

    return pure(given, convert)


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
