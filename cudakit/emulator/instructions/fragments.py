"""Where the elements of small matrices lie in a warp's registers, and what they are worth.

The layouts are those of PTX ISA 9.7.14.5.1 – 9.7.14.5.13 (mma), and 9.7.15.5.1 (wgmma: a warp has 16 of the 64 rows),
and go on beyond 16 rows or 8 columns in the same way. For wmma the ISA leaves the layout open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

from cudakit.emulator.instructions.rounding import canonical, to_f16
from cudakit.errors import EmulationError

#: Bits of an element of each type.
BITS = {
    "f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16,
    "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
INTEGERS = frozenset({"s8", "u8", "s4", "u4", "b1"})
_DTYPES: dict[str, Any] = {
    "f64": np.float64, "f32": np.float32, "s32": np.int32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
#: The bits of a float32 that a tf32 has.
_TF32 = np.uint32(0xFFFFE000)
_LANE = np.arange(32)[:, None]
_GROUP, _MEMBER = _LANE // 4, _LANE % 4


def packed(kind: str) -> int:
    """Elements in a register: one of 32 bits, of 64 for f64."""
    return max(1, 32 // BITS[kind])


def register_bits(kind: str) -> int:
    return max(32, BITS[kind])


@dataclass(frozen=True)
class Fragment:
    """The place of each lane's elements in a matrix.

    Attributes
    ----------
    places : numpy.ndarray
        (32, elements of a lane): element number in the matrix, counted row by row. An element may be in many lanes.
    shape : tuple of int
        Of the matrix, or of a stack of them.
    """

    places: np.ndarray
    shape: tuple[int, ...]

    def gather(self, elements: np.ndarray) -> np.ndarray:
        """Matrices (warps, *shape) of the elements that lanes hold, (warps, 32, elements)."""
        return elements.reshape(-1, self.places.size)[:, self.sources].reshape(-1, *self.shape)

    @cached_property
    def sources(self) -> np.ndarray:
        """Where each element of the matrix is among those of all lanes."""
        sources = np.empty(math.prod(self.shape), np.int64)
        sources[self.places.reshape(-1)] = np.arange(self.places.size)
        return sources

    def scatter(self, matrices: np.ndarray) -> np.ndarray:
        """What lanes hold, (warps, 32, elements), of matrices (warps, *shape)."""
        return matrices.reshape(matrices.shape[0], -1)[:, self.places]

    def repeated(self, elements: int) -> Fragment:
        """The same, again and again until lanes hold `elements`."""
        times, rest = divmod(elements, self.places.shape[1])
        if rest or not times:
            raise EmulationError(f"{elements} elements a thread for a matrix of {self.shape}")
        return Fragment(np.tile(self.places, (1, times)), self.shape)


def a_fragment(rows: int, depth: int, kind: str) -> Fragment:
    """A, (rows, depth): registers go down by 8 rows, then on by four registers' elements."""
    each, tiles = packed(kind), rows // 8
    register, part = np.divmod(np.arange(rows * depth // 32), each)
    row = _GROUP + 8 * (register % tiles)
    column = _MEMBER * each + part + 4 * each * (register // tiles)
    return Fragment(row * depth + column, (rows, depth))


def b_fragment(depth: int, columns: int, kind: str) -> Fragment:
    """B, (depth, columns): registers go on by four registers' elements in depth, then by 8 columns."""
    each = packed(kind)
    tiles = depth // (4 * each)
    register, part = np.divmod(np.arange(depth * columns // 32), each)
    row = _MEMBER * each + part + 4 * each * (register % tiles)
    column = _GROUP + 8 * (register // tiles)
    return Fragment(row * columns + column, (depth, columns))


def c_fragment(rows: int, columns: int) -> Fragment:
    """C and D, (rows, columns): pairs in a row, going down by 8 rows, then on by 8 columns."""
    tiles = rows // 8
    pair, part = np.divmod(np.arange(rows * columns // 32), 2)
    row = _GROUP + 8 * (pair % tiles)
    column = 2 * _MEMBER + part + 8 * (pair // tiles)
    return Fragment(row * columns + column, (rows, columns))


def quad_pair_fragments(a_layout: str, b_layout: str) -> tuple[Fragment, Fragment, dict[str, Fragment]]:
    """A, B, and C by its type, of mma.m8n8k4 with f16: four products at once, each of 4 lanes and those 16 further."""
    four, eight = np.arange(4), np.arange(8)
    stack, half = _GROUP % 4, _LANE // 16
    one, other = _MEMBER + 4 * half, four + 4 * half
    a = one * 4 + four if a_layout == "row" else other * 4 + _MEMBER
    b = _MEMBER * 8 + other if b_layout == "row" else four * 8 + one
    row, column = (_LANE & 1) + (eight & 2) + 4 * half, (eight & 4) + (_LANE & 2) + (eight & 1)
    c = {"f16": one * 8 + eight, "f32": row * 8 + column}
    return (
        Fragment(stack * 32 + a, (4, 8, 4)),
        Fragment(stack * 32 + b, (4, 4, 8)),
        {kind: Fragment(stack * 64 + places, (4, 8, 8)) for kind, places in c.items()},
    )


def values_of(raw: np.ndarray, kind: str) -> np.ndarray:
    """float64 values of the elements of type `kind` in unsigned integers; the last axis grows by what each holds.

    Of tf32 the lower 13 bits are not looked at, as the hardware does it.
    """
    raw = np.ascontiguousarray(raw)
    if kind == "tf32":
        return (raw.view(np.uint32) & _TF32).view(np.float32).astype(np.float64)
    if kind == "b1":
        return np.unpackbits(raw.view(np.uint8), axis=-1, bitorder="little").astype(np.float64)
    if kind in ("s4", "u4"):
        pairs = np.stack((raw.view(np.uint8) & 15, raw.view(np.uint8) >> 4), axis=-1)
        nibbles = pairs.reshape(*pairs.shape[:-2], -1).astype(np.float64)
        return np.where(nibbles > 7, nibbles - 16, nibbles) if kind == "s4" else nibbles
    return np.asarray(raw.view(_DTYPES[kind]).astype(np.float64))


def raw_of(values: np.ndarray, kind: str) -> np.ndarray:
    """Registers of accumulators of type `kind`, rounded from float64; integers must fit."""
    if kind == "f16":
        return np.ascontiguousarray(to_f16(values)).view(np.uint32)
    rounded = np.ascontiguousarray(values.astype(_DTYPES[kind]))
    result: np.ndarray = (canonical(rounded) if kind == "f32" else rounded).view(f"u{rounded.itemsize}")
    return result
