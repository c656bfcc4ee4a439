"""Conversions between number types: PTX ISA 9.7.9.21 (cvt) and 9.7.9.22 (cvt.pack)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cudakit.emulator.instructions.elementwise import compute, elementwise
from cudakit.emulator.instructions.floating import mode_of
from cudakit.emulator.instructions.halves import is_half, join, widen
from cudakit.emulator.instructions.rounding import (
    add_f64,
    canonical,
    flush,
    flush_rounded,
    odd_sum,
    saturate,
    to_bf16,
    to_f16,
    to_f32,
)
from cudakit.emulator.machine.context import DTYPES, Context
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.ptx.program import Instruction
from cudakit.errors import EmulationError

_WHOLE: dict[str, Callable[[Any], Any]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_EIGHTHS = frozenset({"e4m3x2", "e5m2x2"})


@instruction("cvt", "9.7.9.21")
def cvt(given: Instruction, context: Context) -> Step:
    if given.modifiers[0] == "pack":
        return _pack(given, context)
    out, kind = given.modifiers[-2:]
    if "rs" in given.modifiers or not {out, kind} <= DTYPES.keys() | _EIGHTHS:
        raise EmulationError(str(given))
    if out in _EIGHTHS or kind in _EIGHTHS:
        if out not in (*_EIGHTHS, "f16x2"):
            raise EmulationError(str(given))
        return _eighths(given, context)
    if out == "tf32":
        return elementwise(given, context, "f32", _to_tf32(given), "b32")
    if out.endswith("x2"):
        return _two_floats(given, context)
    if kind in _FLOATS:
        convert = _float_to_float(given) if out in _FLOATS else _float_to_integer(given)
    else:
        convert = _integer_to_float(given) if out in _FLOATS else _integer_to_integer(given)
    target, source = given.operands
    return compute(context, convert, target, out, ((source, kind),))


# ── integers ──


def _integer_to_integer(given: Instruction) -> Callable[[Any], Any]:
    out, kind = (DTYPES[name] for name in given.modifiers[-2:])
    if "sat" not in given.modifiers:
        return lambda values: np.asarray(values).astype(out)
    low = max(np.iinfo(out).min, np.iinfo(kind).min)
    high = min(np.iinfo(out).max, np.iinfo(kind).max)
    return lambda values: np.clip(values, kind.type(low), kind.type(high)).astype(out)


def _integer_to_float(given: Instruction) -> Callable[[Any], Any]:
    out, kind = given.modifiers[-2:]
    mode, sat = mode_of(given), "sat" in given.modifiers
    if mode == "rn" and out in ("f32", "f64") and not sat:
        return lambda values: np.asarray(values).astype(DTYPES[out])
    narrow = _narrow(out, mode)
    high_bits, shift = DTYPES[kind].type, DTYPES[kind].type(32)

    def convert(values: Any) -> Any:
        values = np.asarray(values)
        if values.dtype.itemsize < 8:
            wide = values.astype(np.float64)
        else:
            # Two halves that are float64 exactly; their sum is rounded in the mode, or to odd and once more.
            upper = (values >> shift).astype(np.float64) * 2.0**32
            lower = (values & high_bits(0xFFFFFFFF)).astype(np.float64)
            wide = add_f64(upper, lower, mode) if out == "f64" else odd_sum(upper, lower)
            # Rounding down leaves a zero sum negative, but the integer zero is +0.
            wide = np.where(values == 0, 0.0, wide)
        return narrow(saturate(wide) if sat else wide)

    return convert


def _narrow(out: str, mode: str) -> Callable[[Any], Any]:
    """A function from float64 to values of type `out`, as registers hold them."""
    if out == "f64":
        return lambda values: values
    if out == "f32":
        return lambda values: to_f32(values, mode)
    to_half = to_f16 if out.startswith("f16") else to_bf16
    return lambda values: to_half(values, mode)


def _float_to_integer(given: Instruction) -> Callable[[Any], Any]:
    out, kind = given.modifiers[-2:]
    whole = next(_WHOLE[modifier] for modifier in given.modifiers if modifier in _WHOLE)
    dtype = DTYPES[out]
    bounds = np.iinfo(dtype)
    wide_sides = dtype.itemsize == 8 or kind == "f64"
    # ISA: NaN is zero, but the highest bit alone where either side has 64 bits.
    of_nan = dtype.type(bounds.min if dtype.kind == "i" else 1 << bounds.bits - 1) if wide_sides else dtype.type(0)
    low = float(bounds.min)
    # The largest float64 that is not above the largest integer.
    high = float(bounds.max) if bounds.bits < 64 else float(np.nextafter(float(bounds.max), 0))
    source = _source(given)

    def convert(values: Any) -> Any:
        rounded = whole(np.asarray(source(values), np.float64))
        result = np.clip(rounded, low, high).astype(dtype)
        if bounds.bits == 64:
            result = np.where(rounded > high, dtype.type(bounds.max), result)
        nan = np.isnan(rounded)
        return np.where(nan, of_nan, result) if nan.any() else result

    return convert


def _source(given: Instruction) -> Callable[[Any], Any]:
    """A function from a float source's register to float32 or float64."""
    kind = given.modifiers[-1]
    if is_half(kind):
        return widen(kind)
    # With a float16 result the hardware takes subnormal float32 as they are.
    if kind == "f32" and "ftz" in given.modifiers and given.modifiers[-2] != "f16":
        return flush
    return lambda values: values


# ── floats ──


def _float_to_float(given: Instruction) -> Callable[[Any], Any]:
    out, kind = given.modifiers[-2:]
    source, finish = _source(given), _finish(given, out)
    mode = mode_of(given)
    whole = next((_WHOLE[modifier] for modifier in given.modifiers if modifier in _WHOLE), None)
    narrow = _narrow(out, mode)

    def convert(values: Any) -> Any:
        values = np.asarray(source(values))
        if whole is not None:
            values = whole(values)
        if out == "f64":
            # Flushing canonicalises; without it the NaN keeps its payload.
            wide = canonical(values) if kind == "f32" and "ftz" in given.modifiers else values
            return finish(wide.astype(np.float64))
        if out == "f32":
            if kind == "f64" and "ftz" in given.modifiers:
                return finish(flush_rounded(to_f32(values, mode), lambda: values, mode))
            return finish(to_f32(values, mode) if kind == "f64" else values)
        bits = narrow(values)
        if kind == "f64" and np.any(np.isnan(values)):
            bits = np.where(np.isnan(values), _nan_of(values, out), bits)
        return finish(bits)

    return convert


def _nan_of(values: Any, out: str) -> Any:
    """Bits of half-precision NaN that keep the sign and the upper payload of float64, as the hardware's do."""
    exponent, fraction_bits = (0x7F80, 7) if out[0] == "b" else (0x7C00, 10)
    bits = values.view(np.uint64)
    fraction = bits >> np.uint64(52 - fraction_bits) & np.uint64((1 << fraction_bits) - 1)
    quiet = np.uint64(exponent | 1 << fraction_bits - 1)
    return (bits >> np.uint64(48) & np.uint64(0x8000) | quiet | fraction).astype(np.uint16)


def _finish(given: Instruction, out: str) -> Callable[[Any], Any]:
    """``.sat``, ``.relu``, ``.satfinite``, ``.ftz`` and the canonical NaN, for results of type `out`."""
    sat, relu, finite, ftz = (name in given.modifiers for name in ("sat", "relu", "satfinite", "ftz"))
    if out == "f64":
        return saturate if sat else lambda values: values
    if out == "f32":
        ready = flush if ftz else lambda values: values
        # What the hardware gives of the NaN of float64 and bfloat16 keeps the payload.
        keeps = given.modifiers[-1] in ("f64", "bf16") or given.modifiers == ("f32", "f32")
        if sat:
            return lambda values: saturate(ready(values))
        return ready if keeps else lambda values: canonical(ready(values))
    infinity = np.uint16(0x7F80 if out[0] == "b" else 0x7C00)
    one = np.uint16(0x3F80 if out[0] == "b" else 0x3C00)
    sign, magnitude = np.uint16(0x8000), np.uint16(0x7FFF)

    def half(bits: Any) -> Any:
        if finite:
            bits = np.where((bits & magnitude) == infinity, bits - np.uint16(1), bits)
        if relu:
            bits = np.where((bits & sign) != 0, np.uint16(0), bits)
        if sat:
            bits = np.where(((bits & sign) != 0) | (bits > infinity), np.uint16(0), np.minimum(bits, one))
        return bits

    return half


def _two_floats(given: Instruction, context: Context) -> Step:
    """``cvt.rn.f16x2.f32 d, a, b``: a goes to the upper half."""
    out, kind = given.modifiers[-2:]
    narrow, finish, source = _narrow(out, mode_of(given)), _finish(given, out), _source(given)

    def convert(a: Any, b: Any) -> Any:
        halves = [finish(narrow(source(values))).astype(np.uint32) for values in (a, b)]
        return halves[0] << np.uint32(16) | halves[1]

    return elementwise(given, context, kind, convert, "b32")


def _to_tf32(given: Instruction) -> Callable[[Any], Any]:
    mode = next((modifier for modifier in given.modifiers if modifier in ("rna", "rz")), "rn")
    relu, finite = "relu" in given.modifiers, "satfinite" in given.modifiers

    def convert(values: Any) -> Any:
        bits = np.asarray(values).view(np.uint32)
        tie = (bits >> np.uint32(13)) & np.uint32(1)
        up = np.uint32(0x1000) if mode == "rna" else np.uint32(0xFFF) + tie if mode == "rn" else np.uint32(0)
        result = (bits + up) & np.uint32(0xFFFFE000)
        if finite:
            result = np.where((result << np.uint32(1)) == 0xFF000000, result - np.uint32(0x2000), result)
        if relu:
            result = np.where(bits >= 0x80000000, np.uint32(0), result)
        # .rna does not know NaN from a number, so that .satfinite takes a step from it, too.
        cut = (bits & np.uint32(0xFFFFE000)) - np.uint32(0x2000 if finite else 0)
        nan = cut if mode == "rna" else np.uint32(0x7FFFE000)
        return np.where(np.isnan(values), nan, result)

    return convert


# ── eighths: fp8 ──

#: Bits of the fraction, least exponent of a normal value, largest value, in each 8-bit format.
_FORMATS = {"e4m3x2": (3, -6, 448.0), "e5m2x2": (2, -14, 57344.0)}


def encode(values: Any, kind: str) -> Any:
    """Bytes of 8-bit floats from float32, to nearest, values past the largest made it, NaN made 0x7f."""
    fraction, least, largest = _FORMATS[kind]
    magnitude = np.abs(np.asarray(values, np.float64))
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, least)
    # One step of the format is one of the integers that are its bytes, so that a carry goes to the exponent by itself.
    steps = np.rint(np.ldexp(magnitude, fraction - exponent))
    code = ((exponent - least).astype(np.int64) << fraction) + np.where(np.isfinite(steps), steps, 0).astype(np.int64)
    top = 0x7E if kind == "e4m3x2" else 0x7B
    code = np.where(magnitude >= largest, top, np.where(magnitude > 0, np.minimum(code, top), 0))
    code = code | np.where(np.signbit(values), 0x80, 0)
    return np.where(np.isnan(values), 0x7F, code).astype(np.uint8)


def _decoded(kind: str) -> np.ndarray:
    """Bits of float16 of each of the 256 bytes."""
    byte = np.arange(256)
    if kind == "e5m2x2":
        bits = (byte << 8).astype(np.uint16)
        return np.where((bits & 0x7FFF) > 0x7C00, np.uint16(0x7FFF), bits)
    exponent, fraction = byte >> 3 & 15, byte & 7
    normal = np.ldexp(8.0 + fraction, exponent - 10)
    values = np.where(exponent == 0, np.ldexp(fraction.astype(float), -9), normal) * np.where(byte & 128, -1.0, 1.0)
    return to_f16(np.where(byte & 127 == 127, np.nan, values))  # type: ignore[no-any-return]


def _eighths(given: Instruction, context: Context) -> Step:
    out, kind = given.modifiers[-2:]
    relu = "relu" in given.modifiers
    if kind in _EIGHTHS:
        table, finish = _decoded(kind), _finish(given, "f16")
        return elementwise(
            given,
            context,
            "b16",
            lambda raw: join(finish(table[np.ascontiguousarray(raw)[..., None].view(np.uint8)])),
            "b32",
        )

    def positive(values: Any) -> Any:
        return np.where(values <= 0, np.float32(0), values) if relu else values

    if kind == "f32":
        # The first source goes to the upper byte.
        return elementwise(
            given,
            context,
            kind,
            lambda a, b: encode(positive(a), out).astype(np.uint16) << np.uint16(8) | encode(positive(b), out),
            "b16",
        )
    wide = widen(kind)
    return elementwise(
        given,
        context,
        kind,
        lambda raw: np.ascontiguousarray(encode(positive(wide(raw)), out)).view(np.uint16)[..., 0],
        "b16",
    )


# ── packing ──


def _pack(given: Instruction, context: Context) -> Step:
    """``cvt.pack``: two integers, saturated, below what a third one leaves."""
    out = given.modifiers[2]
    signed, width = out[0] == "s", int(out[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    mask = np.int64((1 << width) - 1)

    def pack(a: Any, b: Any, c: Any = 0) -> Any:
        first, second = (np.clip(np.asarray(v).astype(np.int64), low, high) & mask for v in (a, b))
        rest = np.asarray(c).astype(np.int64) << np.int64(2 * width)
        return (rest | first << np.int64(width) | second).astype(np.uint32)

    return elementwise(given, context, "s32", pack, "b32")
