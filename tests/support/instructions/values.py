"""Inputs of instruction forms: edge values against edge values, then random ones; the same on every machine."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import prod
from zlib import crc32

import numpy as np

#: Lanes of a form: one block of sixteen warps, a tuple of inputs each.
LANES = 512

#: Bits of the exponent and of the fraction.
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}

#: Width in bits of each kind of input.
WIDTHS = {
    "b8": 8, "b16": 16, "b32": 32, "b64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32,
    "count": 32, "count64": 32, "lane": 32, "clamp": 32, "offset": 32, "few": 32, "few64": 64, "angle": 32, "unit": 32,
    "tie_f32": 32, "tie_f64": 64,
    "small_f16x2": 32, "small_bf16x2": 32, "small_f32": 32, "small_f64": 64, "small_f16": 16, "small_bf16": 16,
    "small_e4m3x4": 32, "small_e5m2x4": 32, "index": 32,
}  # fmt: skip


def _float(kind: str, sign: int, exponent: int, fraction: int) -> int:
    exponent_bits, fraction_bits = FORMATS[kind]
    return (sign << exponent_bits | exponent) << fraction_bits | fraction


def _float_edges(kind: str) -> list[int]:
    exponent_bits, fraction_bits = FORMATS[kind]
    bias, top = (1 << exponent_bits - 1) - 1, (1 << exponent_bits) - 1
    ones, half = (1 << fraction_bits) - 1, 1 << fraction_bits - 1
    positive = [
        (0, 0),  # zero
        (0, 1),  # least subnormal
        (0, ones),  # largest subnormal
        (1, 0),  # least normal
        (bias, 0),  # one
        (bias, 1),
        (bias - 1, 0),  # a half
        (bias + 1, half >> 1),  # two and a half
        (top - 1, ones),  # largest
        (top, 0),  # infinity
        (top, half | 5 % half),  # quiet NaN with a payload
        (top, 1),  # signalling NaN
        (top, ones),  # the NaN that float32 results have
    ]
    return [_float(kind, sign, exponent, fraction) for exponent, fraction in positive for sign in (0, 1)]


def _whole_edges(bits: int) -> list[int]:
    ones, top = (1 << bits) - 1, 1 << bits - 1
    return [0, 1, 2, 3, 7, ones, ones - 1, top, top + 1, top - 1, top - 2, ones // 3, ones // 3 * 2, ones >> bits // 2,
            top >> bits // 2, 1 << bits // 2]  # fmt: skip


#: Values near which conversions to integers and to narrower floats change: ends of integer types, ties, ends of floats.
_LANDMARKS = [0.5, 1.5, 2.5, 0.49999997, 127.5, 128.5, 255.5, 256.0, 32767.5, 65504.0, 65519.9, 65520.0, 65535.5,
              2.0**31 - 1, 2.0**31, 2.0**32 - 1, 2.0**32, 2.0**63, 2.0**64, 448.0, 464.0, 480.0, 57344.0, 61440.0,
              2.0**-9, 2.0**-10, 1.5 * 2.0**-10, 2.0**-14, 2.0**-16, 2.0**-17, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25,
              3.3895314e38, 3.3961775e38, 2.0**-133, 2.0**-134, 1.00390625, 1.01171875, 1.00048828125,
              1.00146484375, 2.0**-149, 2.0**-150, 3.4028235677973366e38, 1.0 + 2.0**-24, 17.0, 19.0]  # fmt: skip


@cache
def _edges(kind: str) -> tuple[int, ...]:
    if kind in FORMATS:
        return tuple(_float_edges(kind))
    if kind in ("tie_f32", "tie_f64"):
        dtype, raw = ("f4", "u4") if kind == "tie_f32" else ("f8", "u8")
        with np.errstate(over="ignore"):
            near = np.array([sign * value for value in _LANDMARKS for sign in (1.0, -1.0)]).astype(dtype).view(raw)
        return (*_float_edges(kind.removeprefix("tie_")), *(int(value) for value in near))
    if kind in ("b8", "b16", "b32", "b64"):
        return tuple(_whole_edges(WIDTHS[kind]))
    if kind == "count":
        return (0, 1, 4, 8, 15, 16, 17, 31, 32, 33, 40, 63, 255, 256, 2**31, 2**32 - 1)
    if kind == "count64":
        return (0, 1, 8, 31, 32, 33, 60, 63, 64, 65, 100, 127, 255, 256, 2**31, 2**32 - 1)
    return ()


def _random(kind: str, raw: np.ndarray) -> np.ndarray:
    """Random values of `kind` from random 64-bit ones, as unsigned integers."""
    u8 = np.uint64
    choice, number = raw % u8(4), raw >> u8(2)
    width = WIDTHS[kind]
    mask = u8((1 << width) - 1)
    if kind in FORMATS or kind.startswith("tie_"):
        name = kind.removeprefix("tie_")
        exponent_bits, fraction_bits = FORMATS[name]
        bias = (1 << exponent_bits - 1) - 1
        body, sign = number & u8((1 << fraction_bits) - 1), (raw >> u8(63)) << u8(width - 1)
        spread = (number >> u8(52)) & u8(1023)
        # Of every four: one of any bits, two near one, one about the least normal number.
        near_one = u8(bias - 6) + spread % u8(13)
        near_zero = spread % u8(fraction_bits + 4)
        wide = (raw * u8(0x9E3779B97F4A7C15)) & mask
        if kind.startswith("tie_"):
            # Of the sizes of integers, of the least numbers of narrower formats, and cut to be halfway in one.
            least = 30 if name == "f32" else 160
            near_one = np.where(choice == 1, u8(bias - 2) + spread % u8(70), u8(bias - least) + spread % u8(least + 20))
            near_zero = np.where(spread & u8(1), u8(bias - least) + spread % u8(least + 10), near_one)
            kept = np.array([4, 5, 8, 9, 11, 12, 22, 24], u8)[(number >> u8(45) & u8(7)).astype(int)]
            dropped = u8(fraction_bits) - np.minimum(kept, u8(fraction_bits))
            body = np.where(choice == 3, body >> dropped << dropped, body)
        exponent = np.where(choice == 3, near_zero, near_one) << u8(fraction_bits)
        found: np.ndarray = np.where(choice == 0, wide, sign | exponent | body)
        return found
    if kind in ("count", "count64"):
        return np.where(choice == 0, number & mask, number % u8(70))
    if kind == "offset":
        # From -16 to 15: how many bits of which kind `fns` looks for.
        return (number % u8(32) - u8(16)) & mask
    if kind == "lane":
        return np.where(choice == 0, number & mask, number % u8(32))
    if kind == "clamp":
        # A segment mask and a clamp, as `shfl` takes them.
        segments = np.array([0x1F, 0x0, 0x101F, 0x181F, 0x1C1F, 0x1E1F, 0x1800, 0x1C00, 0x0707, 0x1003], u8)
        return segments[(number % u8(segments.size)).astype(int)]
    if kind in ("few", "few64"):
        return (number & u8(3)) * u8(0x4000000040000000 + 1) & mask
    if kind == "index":
        return number & u8(15)
    if kind == "angle":
        turn = (number % u8(2**40)).astype(np.float64) / 2.0**40 * 2 - 1
        return np.asarray(turn * 2 * np.pi, np.float32).view(np.uint32).astype(u8)
    if kind == "unit":
        return np.asarray((number % u8(2**24)).astype(np.float64) / 2.0**24, np.float32).view(np.uint32).astype(u8)
    if kind.startswith("small_"):
        return _small(kind.removeprefix("small_"), number)
    # Integers: half of them of any size, half of any number of bits.
    short = (number & mask) >> (raw >> u8(40)) % u8(width)
    return np.where(choice < 2, number & mask, np.where(choice == 2, short, ~short & mask))


def _small(kind: str, number: np.ndarray) -> np.ndarray:
    """Whole numbers from -8 to 7 as floats, whose products and sums are exact in any order."""

    def one(values: np.ndarray) -> np.ndarray:
        whole = (values % np.uint64(16)).astype(np.float64) - 8
        if kind.startswith("bf16"):
            return (whole.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint64)
        dtype, raw = {"f16": ("f2", "u2"), "f32": ("f4", "u4"), "f64": ("f8", "u8")}[kind.removesuffix("x2")]
        return whole.astype(dtype).view(raw).astype(np.uint64)

    if kind.endswith("x4"):
        # 0, 1, 2, 3, 4, 5, 6, 8 of either sign, in the 8-bit format.
        steps = np.array([0x00, 0x38, 0x40, 0x44, 0x48, 0x4A, 0x4C, 0x50], np.uint64)
        if kind[:4] == "e5m2":
            steps = np.array([0x00, 0x3C, 0x40, 0x42, 0x44, 0x45, 0x46, 0x48], np.uint64)
        found = np.zeros_like(number)
        for byte in range(0, 32, 8):
            code = number >> np.uint64(byte)
            found |= (steps[(code & np.uint64(7)).astype(int)] | (code & np.uint64(8)) << np.uint64(4)) << np.uint64(
                byte
            )
        return found
    if kind.endswith("x2"):
        return one(number) | one(number >> np.uint64(8)) << np.uint64(16)
    return one(number)


@cache
def inputs(kinds: tuple[str, ...], seed: int = 0) -> tuple[np.ndarray, ...]:
    """`LANES` values of each kind, as unsigned integers of its width.

    The bits come from PCG64 itself, whose stream no version of NumPy changes.
    """
    parts = [("f16", "f16") if k == "f16x2" else ("bf16", "bf16") if k == "bf16x2" else (k,) for k in kinds]
    flat = [kind for part in parts for kind in part]
    stream = np.random.PCG64(crc32("/".join(flat).encode()) + seed)
    columns = [_random(kind, stream.random_raw(LANES)) for kind in flat]
    edges = [_edges(kind) for kind in flat]
    if edges and all(edges):
        total = prod(len(edge) for edge in edges)
        if total <= LANES // 2:
            chosen = np.array(list(product(*edges)), np.uint64)
        else:
            # Too many to run them all: each edge value comes as often as the others, beside others at random.
            order = [np.argsort(stream.random_raw(LANES // 2)) for _ in edges]
            rows = [[edge[n % len(edge)] for n in turn] for edge, turn in zip(edges, order, strict=True)]
            chosen = np.array(rows, np.uint64).T
        for column, values in zip(columns, chosen.T, strict=True):
            column[: values.size] = values
        if len(edges) > 1:
            # Then an edge value in one place and random ones in the others.
            for lane in range(len(chosen), min(LANES, len(chosen) + LANES // 4)):
                place = lane % len(edges)
                columns[place][lane] = edges[place][lane // len(edges) % len(edges[place])]
    found, place = [], 0
    for kind, part in zip(kinds, parts, strict=True):
        if len(part) == 2:
            found.append((columns[place] | columns[place + 1] << np.uint64(16)).astype(np.uint32))
        else:
            found.append(columns[place].astype(f"u{WIDTHS[kind] // 8}"))
        place += len(part)
    return tuple(found)
