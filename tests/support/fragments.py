"""Layouts of matrices in registers as the PTX ISA states them, and bits of element types, in plain Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

RANDOM = np.random.default_rng(23)


# ── values of element types, independent of the emulator's ──


def eighth(byte: int, exponent_bits: int) -> float:
    """Value of a byte as an 8-bit float."""
    fraction_bits = 7 - exponent_bits
    bias = 2 ** (exponent_bits - 1) - 1
    exponent, fraction = byte >> fraction_bits & (2**exponent_bits - 1), byte & (2**fraction_bits - 1)
    magnitude = (fraction / 2**fraction_bits + (exponent > 0)) * 2.0 ** (max(exponent, 1) - bias)
    return -magnitude if byte & 128 else magnitude


BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "e4m3": 8, "e5m2": 8,
        "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}  # fmt: skip
RANGE = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2), "s32": (-(2**20), 2**20)}


def make(kind: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Random values, so small that sums are exact, and their bits as unsigned integers."""
    if kind in ("e4m3", "e5m2"):
        # All exponents but the largest, which has NaN and infinities.
        bits = RANDOM.integers(0, 0x78, shape) | RANDOM.integers(0, 2, shape) << 7
        return np.vectorize(eighth)(bits, 4 if kind == "e4m3" else 5), bits.astype(np.uint64)
    low, high = RANGE.get(kind, (-8, 9))
    values = RANDOM.integers(low, high, shape)
    if kind in ("f16", "f64"):
        bits = values.astype(f"f{BITS[kind] // 8}").view(f"u{BITS[kind] // 8}")
    elif kind in ("bf16", "tf32", "f32"):
        bits = values.astype(np.float32).view(np.uint32)
        if kind == "tf32":
            # What lies below the bits of a tf32 is not to be seen in the product.
            bits = bits | RANDOM.integers(0, 1 << 13, shape, np.uint32)
        bits = bits >> np.uint32(16) if kind == "bf16" else bits
    else:
        bits = values & ((1 << BITS[kind]) - 1)
    return values.astype(np.float64), bits.astype(np.uint64)


def value(bits: np.ndarray, kind: str) -> np.ndarray:
    """Values of accumulators from their bits."""
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}[kind]
    return bits.astype(f"u{np.dtype(dtype).itemsize}").view(dtype).astype(np.float64)


def hardware_bound(x: np.ndarray, y: np.ndarray, z: np.ndarray | float, fraction_bits: int = 23) -> np.ndarray:
    """By how much D of a GPU may depart from x · y + z before it is rounded, where the terms are no integers.

    It cuts each term off `fraction_bits` behind the point of the largest, and may add them in any order.
    """
    return (x.shape[-1] + 1) * 2.0**-fraction_bits * (np.abs(x) @ np.abs(y) + np.abs(z))


def width(kind: str) -> int:
    return max(32, BITS[kind])


def to_registers(bits: np.ndarray, place: Callable[[int, int], tuple[int, ...]], count: int, kind: str) -> np.ndarray:
    """Registers (32, count) whose elements are those of the matrix `bits` at place(lane, element)."""
    each = width(kind) // BITS[kind]
    registers = np.zeros((32, count), f"u{width(kind) // 8}")
    for lane in range(32):
        for i in range(count * each):
            registers[lane, i // each] |= registers.dtype.type(int(bits[place(lane, i)]) << i % each * BITS[kind])
    return registers


def from_registers(
    registers: np.ndarray, place: Callable[[int, int], tuple[int, ...]], shape: tuple[int, ...], kind: str
) -> np.ndarray:
    """The matrix whose elements lie in registers (32, count)."""
    each = width(kind) // BITS[kind]
    bits = np.zeros(shape, np.uint64)
    for lane in range(32):
        for i in range(registers.shape[1] * each):
            bits[place(lane, i)] = int(registers[lane, i // each]) >> i % each * BITS[kind] & (1 << BITS[kind]) - 1
    return bits


# ── mma: the formulas of the PTX ISA, one by one; g is groupID, t is threadID_in_group ──

Place = Callable[[int, int, int], tuple[int, int]]

A: dict[str, dict[str, Place]] = {
    "16": {
        "m16n8k8": lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
        "m16n8k16": lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (0 if i < 4 else 8)),
    },
    "32": {
        "m16n8k4": lambda g, t, i: (g if i == 0 else g + 8, t),
        "m16n8k8": lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
    },
    "64": {
        "m8n8k4": lambda g, t, i: (g, t),
        "m16n8k4": lambda g, t, i: (g if i == 0 else g + 8, t),
        "m16n8k8": lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
        "m16n8k16": lambda g, t, i: (g if i % 2 == 0 else g + 8, i * 2 + t if i % 2 == 0 else i * 2 - 2 + t),
    },
    "8": {
        "m8n8k16": lambda g, t, i: (g, t * 4 + i),
        "m16n8k16": lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
        "m16n8k32": lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (0 if i < 8 else 16)),
    },
    "4": {
        "m8n8k32": lambda g, t, i: (g, t * 8 + i),
        "m16n8k32": lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)),
        "m16n8k64": lambda g, t, i: (g if i < 8 or 16 <= i < 24 else g + 8, t * 8 + (i & 7) + (0 if i < 16 else 32)),
    },
    "1": {
        "m8n8k128": lambda g, t, i: (g, t * 32 + i),
        "m16n8k128": lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 31)),
        "m16n8k256": lambda g, t, i: (
            g if i < 32 or 64 <= i < 96 else g + 8,
            t * 32 + (i & 31) + (0 if i < 64 else 128),
        ),
    },
}
B: dict[str, dict[str, Place]] = {
    "16": {
        "m16n8k8": lambda g, t, i: (t * 2 + i, g),
        "m16n8k16": lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g),
    },
    "32": {"m16n8k4": lambda g, t, i: (t, g), "m16n8k8": lambda g, t, i: (t if i == 0 else t + 4, g)},
    "64": {
        "m8n8k4": lambda g, t, i: (t, g),
        "m16n8k4": lambda g, t, i: (t, g),
        "m16n8k8": lambda g, t, i: (t + i * 4, g),
        "m16n8k16": lambda g, t, i: (t + i * 4, g),
    },
    "8": {
        "m8n8k16": lambda g, t, i: (t * 4 + i, g),
        "m16n8k16": lambda g, t, i: (t * 4 + i, g),
        "m16n8k32": lambda g, t, i: (t * 4 + (i & 3) + (0 if i < 4 else 16), g),
    },
    "4": {
        "m8n8k32": lambda g, t, i: (t * 8 + i, g),
        "m16n8k32": lambda g, t, i: (t * 8 + i, g),
        "m16n8k64": lambda g, t, i: (t * 8 + (i & 7) + (0 if i < 8 else 32), g),
    },
    "1": {
        "m8n8k128": lambda g, t, i: (t * 32 + i, g),
        "m16n8k128": lambda g, t, i: (t * 32 + i, g),
        "m16n8k256": lambda g, t, i: (t * 32 + (i & 31) + (0 if i < 32 else 128), g),
    },
}


def c_place(g: int, t: int, i: int) -> tuple[int, int]:
    return g if i < 2 else g + 8, t * 2 + (i & 1)


def by_lane(place: Place) -> Callable[[int, int], tuple[int, int]]:
    return lambda lane, i: place(lane >> 2, lane % 4, i)


def sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = (int(x) for x in shape.replace("n", "m").replace("k", "m").split("m")[1:])
    return m, n, k
