"""Arithmetic of the emulator, one instruction at a time, against exact fractions and Python's integers."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import isqrt
from typing import Any

import numpy as np
import pytest
from support.emulated import apply

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.instructions import rounding

RANDOM = np.random.default_rng(7)

#: Bits of the exponent and of the fraction.
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
MODES = ["rn", "rz", "rm", "rp"]


# ── the reference: exact numbers, rounded by hand ──


def decode(bits: int, kind: str) -> float:
    """The number that `bits` are."""
    exponent_bits, fraction_bits = FORMATS[kind]
    sign = -1.0 if bits >> (exponent_bits + fraction_bits) else 1.0
    exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        return float("nan") if fraction else sign * float("inf")
    bias = (1 << exponent_bits - 1) - 1
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias - fraction_bits)
    return sign * math.ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)


def encode(exact: Fraction, kind: str, mode: str, negative_zero: bool = False) -> int:
    """Bits of `exact` rounded once."""
    exponent_bits, fraction_bits = FORMATS[kind]
    bias = (1 << exponent_bits - 1) - 1
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    negative = exact < 0 or (exact == 0 and negative_zero)
    sign = int(negative) << exponent_bits + fraction_bits
    if exact == 0:
        return sign
    above, below = abs(exact.numerator), exact.denominator
    top = above.bit_length() - below.bit_length()
    if below << max(top, 0) > above << max(-top, 0):  # 2 ** top is larger
        top -= 1
    step = max(top, 1 - bias) - fraction_bits
    below <<= max(step, 0)
    whole, rest = divmod(above << max(-step, 0), below)
    if mode == "rn":
        up = 2 * rest > below or (2 * rest == below and whole & 1)
    else:
        up = rest > 0 and mode == ("rm" if negative else "rp")
    bits = (step - (1 - bias - fraction_bits) << fraction_bits) + whole + bool(up)
    if bits >= infinity:
        inward = mode == "rz" or mode == ("rp" if negative else "rm")
        bits = infinity - 1 if inward else infinity
    return sign | bits


def of_float(value: float, kind: str) -> int:
    """Bits of a number without rounding, or of an infinity or a NaN."""
    exponent_bits, fraction_bits = FORMATS[kind]
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    if value != value:
        return infinity | ((1 << fraction_bits) - 1)
    if value in (float("inf"), -float("inf")):
        return infinity | (int(value < 0) << exponent_bits + fraction_bits)
    return encode(Fraction(value), kind, "rn", str(value)[0] == "-")


def is_negative(value: float) -> bool:
    return struct.pack(">d", value)[0] >= 128


def fma(a: float, b: float, c: float, kind: str, mode: str) -> int:
    if not all(np.isfinite(v) for v in (a, b, c)):
        with np.errstate(all="ignore"):
            product = np.float64(a) * np.float64(b) if not (np.isfinite(a) and np.isfinite(b)) else np.float64(0)
            return of_float(float(product + np.float64(c)), kind)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    minus = is_negative(a) != is_negative(b)
    if exact == 0 and Fraction(c) == 0 and minus == is_negative(c):
        return encode(exact, kind, mode, minus)
    return encode(exact, kind, mode, mode == "rm")


def multiply(a: float, b: float, kind: str, mode: str) -> int:
    if not (np.isfinite(a) and np.isfinite(b)):
        with np.errstate(all="ignore"):
            return of_float(float(np.float64(a) * np.float64(b)), kind)
    return encode(Fraction(a) * Fraction(b), kind, mode, is_negative(a) != is_negative(b))


def divide(a: float, b: float, kind: str, mode: str) -> int:
    if not (np.isfinite(a) and np.isfinite(b)) or b == 0:
        with np.errstate(all="ignore"):
            return of_float(float(np.float64(a) / np.float64(b)), kind)
    return encode(Fraction(a) / Fraction(b), kind, mode, is_negative(a) != is_negative(b))


def root(a: float, kind: str, mode: str) -> int:
    if not np.isfinite(a) or a <= 0:
        with np.errstate(all="ignore"):
            return of_float(float(np.sqrt(np.float64(a))), kind)
    scaled = Fraction(a) * 4**800
    whole = isqrt(int(scaled))
    # Half a step stands for what is left, far below any rounding.
    return encode(Fraction(2 * whole + (whole * whole != scaled), 2**801), kind, mode)


def floats(kind: str, count: int, near: bool = False) -> np.ndarray:
    """Random bits of `kind`, a third of them edges; `near` keeps exponents close, so that sums cancel."""
    exponent_bits, fraction_bits = FORMATS[kind]
    width = WIDTH[kind]
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    one = ((1 << exponent_bits - 1) - 1) << fraction_bits
    least = 1 << fraction_bits
    edges = [0, 1, 2, least - 1, least, least + 1, one, one + 1, one - 1, one + least, infinity - 1, infinity]
    edges += [infinity + 1, infinity | 1 << fraction_bits - 1, 3, one - least * (fraction_bits + 1)]
    edges += [edge | 1 << width - 1 for edge in edges]
    random = [int(bits) for bits in RANDOM.integers(0, 2**width, count, dtype=np.uint64 if width == 64 else np.int64)]
    if near:
        random = [
            (bits & (1 << width - 1 | least - 1)) | (one + least * int(RANDOM.integers(-3, 4))) for bits in random
        ]
    chosen = [edges[int(RANDOM.integers(len(edges)))] if RANDOM.random() < 0.3 else bits for bits in random]
    return np.array(chosen, f"u{width // 8}")


def numbers(arrays: Sequence[np.ndarray], kind: str) -> list[tuple[float, ...]]:
    return [tuple(decode(int(bits), kind) for bits in row) for row in zip(*arrays, strict=True)]


def check(got: np.ndarray, expected: Sequence[int], kind: str, inputs: Any = None, any_nan: bool = False) -> None:
    """Bit for bit; any NaN of float64 is as good as another, and the rest have one unless `any_nan`."""
    any_nan = any_nan or kind == "f64"
    for lane, (bits, want) in enumerate(zip(got.tolist(), expected, strict=True)):
        if any_nan and decode(want, kind) != decode(want, kind) and decode(bits, kind) != decode(bits, kind):
            continue
        assert bits == want, (lane, hex(bits), hex(want), [hex(int(i[lane])) for i in inputs or ()])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
def test_floats_are_rounded_once(kind: str, mode: str) -> None:
    width = WIDTH[kind]
    x, y, z = (np.concatenate([floats(kind, 250), floats(kind, 250, near=True)]) for _ in range(3))
    rows = numbers((x, y, z), kind)
    one = 1.0
    check(
        apply(f"add.{mode}.{kind} {{d}}, {{0}}, {{1}}", x, y, out=width),
        [fma(a, one, b, kind, mode) for a, b, _ in rows], kind, (x, y),
    )  # fmt: skip
    check(
        apply(f"sub.{mode}.{kind} {{d}}, {{0}}, {{1}}", x, y, out=width),
        [fma(a, one, -b, kind, mode) for a, b, _ in rows], kind, (x, y),
    )  # fmt: skip
    check(
        apply(f"mul.{mode}.{kind} {{d}}, {{0}}, {{1}}", x, y, out=width),
        [multiply(a, b, kind, mode) for a, b, _ in rows], kind, (x, y),
    )  # fmt: skip
    check(
        apply(f"fma.{mode}.{kind} {{d}}, {{0}}, {{1}}, {{2}}", x, y, z, out=width),
        [fma(a, b, c, kind, mode) for a, b, c in rows], kind, (x, y, z),
    )  # fmt: skip
    check(
        apply(f"div.{mode}.{kind} {{d}}, {{0}}, {{1}}", x, y, out=width),
        [divide(a, b, kind, mode) for a, b, _ in rows], kind, (x, y),
    )  # fmt: skip
    check(
        apply(f"rcp.{mode}.{kind} {{d}}, {{0}}", x, out=width),
        [divide(one, a, kind, mode) for a, _, _ in rows], kind, (x,),
    )  # fmt: skip
    check(
        apply(f"sqrt.{mode}.{kind} {{d}}, {{0}}", x, out=width), [root(a, kind, mode) for a, _, _ in rows], kind, (x,)
    )


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_fma_where_rounding_twice_shows(kind: str) -> None:
    """A product halfway between two floats, and an addend that decides, far below it; subnormal results too."""
    _, bits = FORMATS[kind]
    rows = []
    for sign in (1.0, -1.0):
        for shift in (0, -20, 30):
            # (2^k + 1)(2^m + 1) style products end in a 1 just below the last place.
            a, b = 1.0 + 2.0 ** -(bits // 2 + 1), 1.0 + 2.0 ** -(bits - bits // 2)
            rows += [(a * 2.0**shift, b, sign * 2.0 ** -(100 + tiny)) for tiny in (0, 7)]
    low = -126 if kind == "f32" else -1022
    half = (low - bits - 1) // 2
    for sign in (1.0, -1.0):
        # An odd subnormal, and a product just less than half of its last place.
        a, b = 2.0**half * (1 + 2.0**-bits), 2.0 ** (low - bits - 1 - half) * (1 - 2.0**-bits)
        rows += [(sign * a, b, sign * (2.0 ** (low - 1) + 2.0 ** (low - bits)))]
        rows += [(2.0 ** (low - bits), 0.5, 0.0), (2.0 ** (low - bits), sign * 0.75, 2.0 ** (low - bits))]
    for row in rows:
        # Alone, so that no other lane's difficulty sends this one the careful way.
        arrays = tuple(np.array([of_float(value, kind)], f"u{WIDTH[kind] // 8}") for value in row)
        for mode in MODES:
            got = apply(f"fma.{mode}.{kind} {{d}}, {{0}}, {{1}}, {{2}}", *arrays, out=WIDTH[kind])
            check(got, [fma(*row, kind, mode)], kind, arrays)


@pytest.mark.parametrize("mode", MODES)
def test_float64_is_rounded_by_the_error_of_its_sum(mode: str) -> None:
    """Sums and products that are exact, cancel, miss a float by little or much, overflow or underflow."""
    eps, most, least = 2.0**-52, (2 - 2.0**-52) * 2.0**1023, 2.0**-1074
    plain = [(1.0, 1.0, -1.0), (3.0, 5.0, 7.0), (1 + eps, 1 - eps, -1.0), (1 + eps, 1 + eps, -1 - 2 * eps)]
    plain += [(1 + eps, 1 + 3 * eps, 2.0**tiny) for tiny in (60, 40, -51, -104, -106, -160, -1074)]
    plain += [(0.1, 0.3, -0.1 * 0.3), (0.1, 10.0, -1.0), (most, 1.0, 1.0), (most, 1.0, most), (most, 0.5, 2.0**970)]
    plain += [(least, 0.5, 1.0), (least, 0.5, least), (1 + eps, 2.0**-1022, 0.0), (2.0**-600, 2.0**-480, 2.0**-1060)]
    rows = [(s * a, b, t * c) for s in (1.0, -1.0) for t in (1.0, -1.0) for a, b, c in [*plain, (0.0, 1.0, 0.0)]]
    x, y, z = (np.array([of_float(row[n], "f64") for row in rows], "u8") for n in range(3))
    got = apply(f"fma.{mode}.f64 {{d}}, {{0}}, {{1}}, {{2}}", x, y, z, out=64)
    check(got, [fma(*row, "f64", mode) for row in rows], "f64", (x, y, z))
    check(apply(f"mul.{mode}.f64 {{d}}, {{0}}, {{1}}", x, y, out=64), [multiply(a, b, "f64", mode) for a, b, _ in rows],
          "f64", (x, y))  # fmt: skip
    check(apply(f"add.{mode}.f64 {{d}}, {{0}}, {{1}}", x, z, out=64), [fma(a, 1.0, c, "f64", mode) for a, _, c in rows],
          "f64", (x, z))  # fmt: skip


def test_bfloat16_fma_where_rounding_twice_shows() -> None:
    rows = [(1.0625, 1.0625, sign * 2.0**-100) for sign in (1.0, -1.0)]
    arrays = tuple(np.array([of_float(row[n], "bf16") for row in rows], "u2") for n in range(3))
    got = apply("fma.rn.bf16 {d}, {0}, {1}, {2}", *arrays, out=16)
    check(got, [fma(*row, "bf16", "rn") for row in rows], "bf16", arrays)
    assert got[0] == got[1] + 1


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves_are_rounded_once(kind: str) -> None:
    x, y, z = (np.concatenate([floats(kind, 600), floats(kind, 300, near=True)]) for _ in range(3))
    rows = numbers((x, y, z), kind)
    expected = {
        "add": [fma(a, 1.0, b, kind, "rn") for a, b, _ in rows],
        "sub": [fma(a, 1.0, -b, kind, "rn") for a, b, _ in rows],
        "mul": [multiply(a, b, kind, "rn") for a, b, _ in rows],
        "fma": [fma(a, b, c, kind, "rn") for a, b, c in rows],
    }
    negative = 0x8000
    for name, want in expected.items():
        sources = (x, y, z) if name == "fma" else (x, y)
        operands = ", ".join(f"{{{n}}}" for n in range(len(sources)))
        check(apply(f"{name}.rn.{kind} {{d}}, {operands}", *sources, out=16), want, kind, sources)
        pairs = [np.ascontiguousarray(source).view(np.uint32) for source in sources]
        check(apply(f"{name}.rn.{kind}x2 {{d}}, {operands}", *pairs).view(np.uint16), want, kind, sources)
        if name == "fma":
            relu = [0 if bits & negative else bits for bits in want]
            check(apply(f"fma.rn.relu.{kind} {{d}}, {operands}", *sources, out=16), relu, kind, sources)


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_smaller_and_larger(kind: str) -> None:
    x, y = floats(kind, 500), floats(kind, 500)
    width = WIDTH[kind]
    sign = 1 << width - 1

    def key(value: float) -> tuple[float, int]:
        return value, 0 if is_negative(value) else 1

    nan = of_float(float("nan"), kind)
    for opcode, pick in (("min", min), ("max", max)):
        for spreads in (False, True):
            want = []
            for a, b in numbers((x, y), kind):
                known = [value for value in (a, b) if value == value]
                if not known or (spreads and len(known) < 2):
                    want.append(nan)
                else:
                    want.append(of_float(pick(known, key=key), kind))
            if spreads and kind == "f64":
                continue
            name = f"{opcode}.NaN.{kind}" if spreads else f"{opcode}.{kind}"
            check(apply(f"{name} {{d}}, {{0}}, {{1}}", x, y, out=width), want, kind, (x, y))
    if kind != "f64":
        got = apply(f"min.xorsign.abs.{kind} {{d}}, {{0}}, {{1}}", x, y, out=width)
        for bits, a, b, (u, v) in zip(got.tolist(), x.tolist(), y.tolist(), numbers((x, y), kind), strict=True):
            if u == u and v == v:
                assert bits == min(a & ~sign, b & ~sign) | ((a ^ b) & sign)
    known = np.array([a == a for (a,) in numbers((x,), kind)])
    # A NaN of float64 is only made quiet, the others become the one that there is.
    lost = x | x.dtype.type(1 << 51) if kind == "f64" else np.full_like(x, nan)
    for opcode, bits in (("neg", x ^ x.dtype.type(sign)), ("abs", x & x.dtype.type(sign - 1))):
        assert (apply(f"{opcode}.{kind} {{d}}, {{0}}", x, out=width) == np.where(known, bits, lost)).all()


def test_flush_and_saturate() -> None:
    x, y = floats("f32", 400), floats("f32", 400)

    def flushed(value: float) -> float:
        return value if not abs(value) < 2.0**-126 else -0.0 if is_negative(value) else 0.0

    rows = [(flushed(a), flushed(b)) for a, b in numbers((x, y), "f32")]
    want = [of_float(flushed(decode(fma(a, 1.0, b, "f32", "rn"), "f32")), "f32") for a, b in rows]
    check(apply("add.rn.ftz.f32 {d}, {0}, {1}", x, y), want, "f32", (x, y))
    want = [of_float(flushed(decode(multiply(a, b, "f32", "rz"), "f32")), "f32") for a, b in rows]
    check(apply("mul.rz.ftz.f32 {d}, {0}, {1}", x, y), want, "f32", (x, y))
    sums = [decode(fma(a, 1.0, b, "f32", "rn"), "f32") for a, b in numbers((x, y), "f32")]
    want = [of_float(min(value, 1.0) if value > 0 else 0.0, "f32") for value in sums]
    check(apply("add.sat.f32 {d}, {0}, {1}", x, y), want, "f32", (x, y))
    got = apply("copysign.f32 {d}, {0}, {1}", x, y)
    assert (got == ((x & 0x80000000) | (y & 0x7FFFFFFF))).all()


def test_flushing_at_the_least_normal_number() -> None:
    """As an H200 answers: what counts is the result with all 24 bits, were there no least exponent."""
    x = np.array([0x00800000, 0x00800400, 0x80800000, 0x80800400], "u4")
    y = np.array([0x3F7FFFFF, 0x3F7FF800] * 2, "u4")
    assert apply("mul.rn.ftz.f32 {d}, {0}, {1}", x, y).tolist() == [0, 0x00800000, 0x80000000, 0x80800000]
    assert apply("fma.rn.ftz.f32 {d}, {0}, {1}, 0f00000000", x, y).tolist() == [0, 0x00800000, 0x80000000, 0x80800000]
    assert apply("mul.rz.ftz.f32 {d}, {0}, {1}", x, y).tolist() == [0, 0, 0x80000000, 0x80000000]
    near = np.array([0x380FFFFFFFFFFFFF], "u8")
    assert apply("cvt.rn.ftz.f32.f64 {d}, {0}", near).tolist() == [0x00800000]


def test_payloads_of_nan() -> None:
    """As an H200 answers."""
    double, single = np.array([0xFFF8123456789ABC], "u8"), np.array([0xFFC12345], "u4")
    half, brain = np.array([0xFE12], "u2"), np.array([0xFFD2], "u2")
    for text, source, out, want in (
        ("cvt.rn.f32.f64", double, 32, 0xFFC091A2), ("cvt.rn.f16.f64", double, 16, 0xFE04),
        ("cvt.f64.f32", single, 64, 0xFFF82468A0000000), ("cvt.f64.f16", half, 64, 0xFFF8480000000000),
        ("cvt.f32.f16", half, 32, 0x7FFFFFFF), ("cvt.f32.bf16", brain, 32, 0xFFD20000),
        ("cvt.rni.f32.f32", single, 32, 0x7FFFFFFF), ("cvt.rni.f64.f64", double, 64, 0xFFF8123456789ABC),
        ("cvt.rni.f16.f16", half, 16, 0x7FFF), ("neg.f32", single, 32, 0x7FFFFFFF),
        ("neg.f64", double, 64, 0xFFF8123456789ABC), ("abs.f64", double, 64, 0xFFF8123456789ABC),
        ("neg.bf16", brain, 16, 0x7FFF),
    ):  # fmt: skip
        assert apply(f"{text} {{d}}, {{0}}", source, out=out).tolist() == [want], text


def test_approximations_stay_within_the_bounds() -> None:
    values = RANDOM.uniform(-3.1, 3.1, 2000).astype(np.float32)
    wide = values.astype(np.float64)
    for name, reference, bound in (("sin", np.sin, 2.0**-20.9), ("cos", np.cos, 2.0**-20.9)):
        assert np.abs(apply(f"{name}.approx.f32 {{d}}, {{0}}", values).view("f4") - reference(wide)).max() < bound
    for name, reference in (("ex2", np.exp2), ("tanh", np.tanh)):
        got = apply(f"{name}.approx.f32 {{d}}, {{0}}", values).view("f4")
        assert np.abs(got / reference(wide) - 1).max() < 2.0**-22
    above = np.abs(values)
    assert np.abs(apply("lg2.approx.ftz.f32 {d}, {0}", above).view("f4") - np.log2(above.astype("f8"))).max() < 2.0**-20
    got = apply("rsqrt.approx.f32 {d}, {0}", above).view("f4")
    assert np.abs(got * np.sqrt(above.astype("f8")) - 1).max() < 2.0**-22.4
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, -1], "f4")
    assert apply("lg2.approx.f32 {d}, {0}", edges).tolist() == [
        0xFF800000, 0xFF800000, 0x7F800000, 0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF,
    ]  # fmt: skip
    got64 = apply("rcp.approx.ftz.f64 {d}, {0}", wide, out=64).view("f8")
    assert np.abs(got64 * wide - 1).max() < 2.0**-19
    halves = RANDOM.uniform(-4, 4, 500).astype(np.float16)
    got16 = apply("tanh.approx.f16 {d}, {0}", halves, out=16).view(np.float16)
    assert np.abs(got16 - np.tanh(halves.astype("f8"))).max() < 2.0**-10.9


# ── integers ──


def integers(bits: int, count: int = 400) -> np.ndarray:
    top = 1 << bits - 1
    edges = [0, 1, 2, 3, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 31, 32, 33, 63, 64, 255]
    random = RANDOM.integers(0, 2 * top, count, dtype=np.uint64).tolist()
    chosen = [edges[int(RANDOM.integers(len(edges)))] % (2 * top) if RANDOM.random() < 0.4 else r for r in random]
    return np.array(chosen, f"u{bits // 8}")


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("sign", ["u", "s"])
def test_integer_arithmetic(bits: int, sign: str) -> None:
    x, y, z = (integers(bits) for _ in range(3))
    mask = (1 << bits) - 1
    kind = f"{sign}{bits}"

    def value(raw: int) -> int:
        return signed(raw, bits) if sign == "s" else raw

    def quotient(a: int, b: int) -> int:
        return truncated(a, b) if b else -1

    def remainder(a: int, b: int) -> int:
        return a - truncated(a, b) * b if b else -1

    two: dict[str, Callable[[int, int], int]] = {
        f"add.{kind}": lambda a, b: a + b, f"sub.{kind}": lambda a, b: a - b, f"mul.lo.{kind}": lambda a, b: a * b,
        f"mul.hi.{kind}": lambda a, b: a * b >> bits, f"div.{kind}": quotient, f"rem.{kind}": remainder,
        f"min.{kind}": min, f"max.{kind}": max,
    }  # fmt: skip
    three: dict[str, Callable[[int, int, int], int]] = {
        f"mad.lo.{kind}": lambda a, b, c: a * b + c,
        f"mad.hi.{kind}": lambda a, b, c: (a * b >> bits) + c,
        f"sad.{kind}": lambda a, b, c: c + abs(a - b),
    }
    for name, exact in two.items():
        got = apply(f"{name} {{d}}, {{0}}, {{1}}", x, y, out=bits).tolist()
        want = [exact(value(a), value(b)) & mask for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        assert got == want, name
    for name, fused in three.items():
        got = apply(f"{name} {{d}}, {{0}}, {{1}}, {{2}}", x, y, z, out=bits).tolist()
        rows = zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
        assert got == [fused(value(a), value(b), value(c)) & mask for a, b, c in rows], name
    if sign == "s":
        assert apply(f"neg.{kind} {{d}}, {{0}}", x, out=bits).tolist() == [-a & mask for a in x.tolist()]
        assert apply(f"abs.{kind} {{d}}, {{0}}", x, out=bits).tolist() == [abs(value(a)) & mask for a in x.tolist()]
    if bits < 64:
        got = apply(f"mul.wide.{kind} {{d}}, {{0}}, {{1}}", x, y, out=2 * bits).tolist()
        pairs = zip(x.tolist(), y.tolist(), strict=True)
        assert got == [value(a) * value(b) & (1 << 2 * bits) - 1 for a, b in pairs]


def test_saturated_and_24_bit_integers() -> None:
    x, y, z = (integers(32) for _ in range(3))
    rows = list(zip(*(v.view("i4").tolist() for v in (x, y, z)), strict=True))

    def clamp(value: int) -> int:
        return max(-(2**31), min(2**31 - 1, value)) & 0xFFFFFFFF

    assert apply("add.sat.s32 {d}, {0}, {1}", x, y).tolist() == [clamp(a + b) for a, b, _ in rows]
    assert apply("sub.sat.s32 {d}, {0}, {1}", x, y).tolist() == [clamp(a - b) for a, b, _ in rows]
    got = apply("mad.hi.sat.s32 {d}, {0}, {1}, {2}", x, y, z).tolist()
    assert got == [clamp((a * b >> 32) + c) for a, b, c in rows]
    for kind in ("s32", "u32"):

        def low(value: int, kind: str = kind) -> int:
            return signed(value, 24) if kind == "s32" else value & 0xFFFFFF

        products = [low(a) * low(b) for a, b, _ in rows]
        assert apply(f"mul24.lo.{kind} {{d}}, {{0}}, {{1}}", x, y).tolist() == [p & 0xFFFFFFFF for p in products]
        assert apply(f"mul24.hi.{kind} {{d}}, {{0}}, {{1}}", x, y).tolist() == [p >> 16 & 0xFFFFFFFF for p in products]


def test_carries_make_wide_sums_and_products() -> None:
    a, b = integers(64), integers(64)
    c, d = integers(64), integers(64)
    text = "{op}.cc.u64 {{d}}, {{0}}, {{2}}; {op}c.u64 {{d}}, {{1}}, {{3}}"
    rows = list(zip(*(v.tolist() for v in (a, b, c, d)), strict=True))
    got = apply(text.format(op="add"), a, b, c, d, out=64).tolist()
    assert got == [(x + (y << 64) + u + (v << 64) >> 64) & 2**64 - 1 for x, y, u, v in rows]
    got = apply(text.format(op="sub"), a, b, c, d, out=64).tolist()
    assert got == [(x + (y << 64) - u - (v << 64) >> 64) & 2**64 - 1 for x, y, u, v in rows]
    longer = "add.cc.u64 {d}, {0}, {2}; addc.cc.u64 {d}, {1}, {3}; addc.u64 {d}, 0, 0"
    assert apply(longer, a, b, c, d, out=64).tolist() == [x + (y << 64) + u + (v << 64) >> 128 for x, y, u, v in rows]
    longer = "sub.cc.u64 {d}, {0}, {2}; subc.cc.u64 {d}, {1}, {3}; subc.u64 {d}, 5, 0"
    assert apply(longer, a, b, c, d, out=64).tolist() == [
        5 + (x + (y << 64) - u - (v << 64) >> 128) for x, y, u, v in rows
    ]
    wide = "mad.lo.cc.u64 {d}, {0}, {1}, {2}; madc.hi.u64 {d}, {0}, {1}, {3}"
    assert apply(wide, a, b, c, d, out=64).tolist() == [
        (x * y + u + (v << 64) >> 64) & 2**64 - 1 for x, y, u, v in rows
    ]


def test_dot_products_and_packed_integers() -> None:
    x, y, z = (integers(32) for _ in range(3))
    for first in ("u", "s"):
        for second in ("u", "s"):
            a4, b4 = (v.view(f"{'i' if t == 's' else 'u'}1").reshape(-1, 4) for v, t in ((x, first), (y, second)))
            want = (a4.astype("i8") * b4).sum(1) + z
            assert (apply(f"dp4a.{first}32.{second}32 {{d}}, {{0}}, {{1}}, {{2}}", x, y, z) == want % 2**32).all()
            a2 = x.view(f"{'i' if first == 's' else 'u'}2").reshape(-1, 2).astype("i8")
            for half, part in (("lo", b4[:, :2]), ("hi", b4[:, 2:])):
                got = apply(f"dp2a.{half}.{first}32.{second}32 {{d}}, {{0}}, {{1}}, {{2}}", x, y, z)
                assert (got == ((a2 * part).sum(1) + z) % 2**32).all()
    p, q = x.view("i2"), y.view("i2")
    assert (apply("min.s16x2 {d}, {0}, {1}", x, y).view("i2") == np.minimum(p, q)).all()
    assert (apply("max.relu.s16x2 {d}, {0}, {1}", x, y).view("i2") == np.maximum(np.maximum(p, q), 0)).all()
    assert (apply("add.u16x2 {d}, {0}, {1}", x, y).view("u2") == p.view("u2") + q.view("u2")).all()
    bytes_x, bytes_y = x.view("u1").astype("i4"), y.view("u1").astype("i4")
    got = apply("vadd4.u32.u32.u32.sat {d}, {0}, {1}, {2}", x, y, z).view("u1")
    assert (got == np.minimum(bytes_x + bytes_y, 255)).all()
    got = apply("vabsdiff4.u32.u32.u32.add {d}, {0}, {1}, {2}", x, y, z)
    assert (got == (np.abs(bytes_x - bytes_y).reshape(-1, 4).sum(1) + z.astype("i8")) % 2**32).all()


# ── bits ──


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_shifts_past_the_width(bits: int) -> None:
    x, counts = integers(bits), integers(32)
    mask = (1 << bits) - 1
    rows = list(zip(x.tolist(), counts.tolist(), strict=True))
    assert apply(f"shl.b{bits} {{d}}, {{0}}, {{1}}", x, counts, out=bits).tolist() == [
        a << min(n, 64) & mask for a, n in rows
    ]
    assert apply(f"shr.u{bits} {{d}}, {{0}}, {{1}}", x, counts, out=bits).tolist() == [a >> min(n, 64) for a, n in rows]
    assert apply(f"shr.s{bits} {{d}}, {{0}}, {{1}}", x, counts, out=bits).tolist() == [
        signed(a, bits) >> min(n, 64) & mask for a, n in rows
    ]
    for count in (0, 5, bits - 1, bits, bits + 7):
        got = apply(f"shl.b{bits} {{d}}, {{0}}, {count}", x, out=bits).tolist()
        assert got == [a << count & mask for a in x.tolist()]


def test_logic_of_three_operands() -> None:
    x, y, z = (integers(32) for _ in range(3))
    results = np.zeros((256, x.size), "u4")
    stored = (
        f"lop3.b32 %t0, {{0}}, {{1}}, {{2}}, {table}; st.global.b32 [%a3+{4 * table * x.size}], %t0;"
        for table in range(256)
    )
    apply(f"{' '.join(stored)} mov.b32 {{d}}, 0", x, y, z, results)
    for table in range(256):
        want = np.zeros_like(x)
        for place in range(8):
            if table >> place & 1:
                want |= (x if place & 4 else ~x) & (y if place & 2 else ~y) & (z if place & 1 else ~z)
        assert (results[table] == want).all(), table
    text = "setp.lt.u32 %p1, {0}, {1}; lop3.or.b32 {d}|%p0, {0}, {1}, {2}, 128, %p1; selp.u32 {d}, 1, 0, %p0"
    assert (apply(text, x, y, z) == ((x & y & z != 0) | (x < y))).all()


def test_funnels_and_permutations() -> None:
    x, y, c = integers(32), integers(32), integers(32)
    rows = list(zip(x.tolist(), y.tolist(), c.tolist(), strict=True))
    for way, exact in (
        ("l.wrap", lambda w, n: (w << (n & 31)) >> 32), ("l.clamp", lambda w, n: (w << min(n, 32)) >> 32),
        ("r.wrap", lambda w, n: w >> (n & 31)), ("r.clamp", lambda w, n: w >> min(n, 32)),
    ):  # fmt: skip
        got = apply(f"shf.{way}.b32 {{d}}, {{0}}, {{1}}, {{2}}", x, y, c).tolist()
        assert got == [exact(b << 32 | a, n) & 0xFFFFFFFF for a, b, n in rows], way

    def pick(a: int, b: int, places: list[int]) -> int:
        source = (b << 32 | a).to_bytes(8, "little")
        chosen = [source[p & 7] if p < 8 else 255 * (source[p & 7] >> 7) for p in places]
        return int.from_bytes(bytes(chosen), "little")

    got = apply("prmt.b32 {d}, {0}, {1}, {2}", x, y, c).tolist()
    assert got == [pick(a, b, [n >> 4 * i & 15 for i in range(4)]) for a, b, n in rows]
    for selector in (0x5410, 0x7632, 0x0123, 0xBA98, 0xF3C7):
        got = apply(f"prmt.b32 {{d}}, {{0}}, {{1}}, {selector}", x, y).tolist()
        assert got == [pick(a, b, [selector >> 4 * i & 15 for i in range(4)]) for a, b, _ in rows]
    # The tables of the ISA, most significant byte first.
    tables = {
        "f4e": ["3210", "4321", "5432", "6543"], "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"], "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"], "rc16": ["1010", "3232", "1010", "3232"],
    }  # fmt: skip
    for mode, table in tables.items():
        got = apply(f"prmt.b32.{mode} {{d}}, {{0}}, {{1}}, {{2}}", x, y, c).tolist()
        assert got == [pick(a, b, [int(p) for p in reversed(table[n & 3])]) for a, b, n in rows], mode


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counts_and_fields(bits: int) -> None:
    x, y = integers(bits), integers(bits)
    position, length = integers(32) % np.uint32(80), integers(32) % np.uint32(80)
    mask = (1 << bits) - 1
    values = x.tolist()
    assert apply(f"popc.b{bits} {{d}}, {{0}}", x).tolist() == [a.bit_count() for a in values]
    assert apply(f"clz.b{bits} {{d}}, {{0}}", x).tolist() == [bits - a.bit_length() for a in values]
    assert apply(f"brev.b{bits} {{d}}, {{0}}", x, out=bits).tolist() == [int(f"{a:0{bits}b}"[::-1], 2) for a in values]
    assert apply(f"bfind.u{bits} {{d}}, {{0}}", x).tolist() == [a.bit_length() - 1 & 0xFFFFFFFF for a in values]
    plain = [signed(a, bits) if signed(a, bits) >= 0 else ~signed(a, bits) for a in values]
    assert apply(f"bfind.s{bits} {{d}}, {{0}}", x).tolist() == [a.bit_length() - 1 & 0xFFFFFFFF for a in plain]
    assert apply(f"bfind.shiftamt.u{bits} {{d}}, {{0}}", x).tolist() == [
        bits - a.bit_length() if a else 0xFFFFFFFF for a in values
    ]

    def extract(a: int, at: int, count: int, sign: bool) -> int:
        top = a >> min(at + count - 1, bits - 1) & 1 if sign and count else 0
        result = 0
        for i in range(bits):
            inside = i < count and at + i < bits
            result |= (a >> at + i & 1 if inside else top) << i
        return result

    rows = list(zip(values, y.tolist(), position.tolist(), length.tolist(), strict=True))
    for sign in ("u", "s"):
        got = apply(f"bfe.{sign}{bits} {{d}}, {{0}}, {{1}}, {{2}}", x, position, length, out=bits).tolist()
        assert got == [extract(a, at, n, sign == "s") for a, _, at, n in rows]
    got = apply(f"bfi.b{bits} {{d}}, {{0}}, {{1}}, {{2}}, {{3}}", x, y, position, length, out=bits).tolist()
    want = []
    for a, b, at, count in rows:
        field = ((1 << count) - 1) << at & mask
        want.append((b & ~field) | (a << at & field))
    assert got == want


def test_masks_extensions_and_nth_bits() -> None:
    x, base, count = integers(32), integers(32) % np.uint32(40), integers(32) % np.uint32(40)
    rows = list(zip(x.tolist(), base.tolist(), count.tolist(), strict=True))
    got = apply("bmsk.clamp.b32 {d}, {0}, {1}", base, count).tolist()
    assert got == [((1 << min(n, 32)) - 1 << min(at, 32)) & 0xFFFFFFFF for _, at, n in rows]
    got = apply("bmsk.wrap.b32 {d}, {0}, {1}", base, count).tolist()
    assert got == [((1 << (n & 31)) - 1 << (at & 31)) & 0xFFFFFFFF for _, at, n in rows]
    got = apply("szext.clamp.u32 {d}, {0}, {1}", x, count).tolist()
    assert got == [a & (1 << min(n, 32)) - 1 for a, _, n in rows]
    got = apply("szext.clamp.s32 {d}, {0}, {1}", x, count).tolist()
    assert got == [signed(a, min(n, 32)) & 0xFFFFFFFF if n else 0 for a, _, n in rows]
    start, offset = integers(32) % np.uint32(32), (RANDOM.integers(-6, 7, x.size)).astype("i4")
    want = []
    for bits, at, n in zip(x.tolist(), start.tolist(), offset.tolist(), strict=True):
        places = [i for i in (range(at, 32) if n >= 0 else range(at, -1, -1)) if bits >> i & 1]
        if n == 0:
            want.append(at if bits >> at & 1 else 0xFFFFFFFF)
        else:
            want.append(places[abs(n) - 1] if len(places) >= abs(n) else 0xFFFFFFFF)
    assert apply("fns.b32 {d}, {0}, {1}, {2}", x, start, offset).tolist() == want


# ── comparison ──

ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_comparison_of_floats(kind: str) -> None:
    x, y = floats(kind, 500), floats(kind, 500)
    x[::7] = y[::7]
    rows = numbers((x, y), kind)
    for name, compare in ORDERED.items():
        known = [a == a and b == b for a, b in rows]
        held = [compare(a, b) for a, b in rows]
        text = "setp.{}.{} %p0, {{0}}, {{1}}; selp.u32 {{d}}, 1, 0, %p0"
        want = [int(k and h) for k, h in zip(known, held, strict=True)]
        assert apply(text.format(name, kind), x, y).tolist() == want, name
        want = [int(not k or h) for k, h in zip(known, held, strict=True)]
        assert apply(text.format(name + "u", kind), x, y).tolist() == want, name
    assert apply(text.format("num", kind), x, y).tolist() == [int(k) for k in known]
    assert apply(f"set.lt.u32.{kind} {{d}}, {{0}}, {{1}}", x, y).tolist() == [-(a < b) & 0xFFFFFFFF for a, b in rows]
    if kind in ("f16", "bf16"):
        pairs = [v.view(np.uint32) for v in (x, y)]
        text = f"setp.lt.{kind}x2 %p0|%p1, {{0}}, {{1}}; selp.u32 %t0, 1, 0, %p0; selp.u32 %t1, 2, 0, %p1;"
        got = apply(text + " or.b32 {d}, %t0, %t1", *pairs)
        held = np.array([a < b for a, b in rows]).reshape(-1, 2)
        assert (got == held[:, 0] + 2 * held[:, 1]).all()
        one = of_float(1.0, kind)
        got = apply(f"set.lt.{kind}x2.{kind}x2 {{d}}, {{0}}, {{1}}", *pairs).view("u2")
        assert (got == held.reshape(-1) * one).all()
    else:
        for name, reference in (("finite", np.isfinite), ("notanumber", np.isnan)):
            got = apply(f"testp.{name}.{kind} %p0, {{0}}; selp.u32 {{d}}, 1, 0, %p0", x)
            assert (got == reference(x.view(kind.replace("f32", "f4").replace("f64", "f8")))).all()


def test_comparison_of_integers_and_selection() -> None:
    x, y, z = (integers(32) for _ in range(3))
    x[::5] = y[::5]
    for sign in ("u", "s"):
        a, b = (v.view("i4") if sign == "s" else v for v in (x, y))
        for name, compare in ORDERED.items():
            text = f"setp.{name}.{sign}32 %p0, {{0}}, {{1}}; selp.u32 {{d}}, 1, 0, %p0"
            assert (apply(text, x, y) == compare(a, b)).all()
    joined = "setp.lt.u32 %p2, {1}, {2}; setp.gt.{op}.u32 %p0|%p1, {0}, {1}, {neg}%p2; selp.u32 %t0, 1, 0, %p0;"
    joined += "selp.u32 %t1, 2, 0, %p1; or.b32 {d}, %t0, %t1"
    held, other = x > y, y < z
    for op, join in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        for neg, third in (("", other), ("!", ~other)):
            got = apply(joined.replace("{op}", op).replace("{neg}", neg), x, y, z)
            assert (got == join(held, third) + 2 * join(~held, third)).all(), (op, neg)
    assert (apply("slct.u32.s32 {d}, {0}, {1}, {2}", x, y, z) == np.where(z.view("i4") >= 0, x, y)).all()
    assert (apply("cnot.b32 {d}, {0}", x) == (x == 0)).all()
    text = "setp.lt.u32 %p0, {0}, {1}; setp.lt.u32 %p1, {1}, {2}; not.pred %p2, %p0; xor.pred %p2, %p2, %p1;"
    assert (apply(text + "selp.u32 {d}, 1, 0, %p2", x, y, z) == (~(x < y) ^ (y < z))).all()


# ── conversion ──


def whole(value: float, mode: str) -> int:
    exact = Fraction(value)
    if mode == "rni":
        return round(exact)
    down = exact.numerator // exact.denominator
    up = -(-exact.numerator // exact.denominator)
    return {"rmi": down, "rpi": up, "rzi": down if exact > 0 else up}[mode]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_floats_to_integers(kind: str) -> None:
    x = np.concatenate([floats(kind, 200), floats(kind, 200, near=True)])
    limits = [2.0**n for n in (7, 8, 15, 16, 31, 32, 63, 64)] if kind in ("f32", "f64") else [128.0, 256.0]
    limits += [-v for v in limits] + [0.5, 1.5, 2.5, -0.5, -1.5]
    x[: len(limits)] = [of_float(v, kind) for v in limits]
    for sign in "us":
        for bits in (8, 16, 32, 64):
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign == "s" else (0, (1 << bits) - 1)
            nan = 1 << bits - 1 if kind == "f64" or bits == 64 else 0
            for mode in ("rni", "rzi", "rmi", "rpi"):
                want = []
                for (value,) in numbers((x,), kind):
                    if value != value:
                        want.append(nan)
                    elif abs(value) == float("inf"):
                        want.append((high if value > 0 else low) & (1 << bits) - 1)
                    else:
                        want.append(max(low, min(high, whole(value, mode))) & (1 << bits) - 1)
                got = apply(f"cvt.{mode}.{sign}{bits}.{kind} {{d}}, {{0}}", x, out=bits)
                assert got.tolist() == want, (sign, bits, mode)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_integers_to_floats(kind: str) -> None:
    for sign in "us":
        for bits in (16, 32, 64):
            x = integers(bits, 300)
            x[:60] = [(1 << bits) - 1 >> n % bits for n in range(60)]
            x[60:90] = [min((1 << bits) - 1, (1 << n % (bits - 1)) + 1) for n in range(30)]
            values = [signed(a, bits) if sign == "s" else a for a in x.tolist()]
            for mode in MODES:
                got = apply(f"cvt.{mode}.{kind}.{sign}{bits} {{d}}, {{0}}", x, out=WIDTH[kind])
                check(got, [encode(Fraction(v), kind, mode) for v in values], kind, (x,))


@pytest.mark.slow
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
def test_floats_to_floats(source: str, target: str) -> None:
    x = np.concatenate([floats(source, 300), floats(source, 300, near=True)])
    if WIDTH[source] > WIDTH[target]:
        # Values near the target's own: halfway between two of them, or a little off; its subnormals, its overflow.
        base = numbers((floats(target, 150),), target)
        shift = WIDTH[source] - WIDTH[target] - 1 if source != "f64" or target == "f32" else 20
        x[:150] = [of_float(v if v == v else 0.0, source) for (v,) in base]
        x[:150] ^= np.array([(1 << shift) - int(RANDOM.integers(0, 2)) for _ in range(150)], x.dtype)
    rows = numbers((x,), source)
    exact = target == source or (WIDTH[target] > WIDTH[source])
    if exact:
        if source != target:
            check(apply(f"cvt.{target}.{source} {{d}}, {{0}}", x, out=WIDTH[target]),
                  [of_float(v, target) for (v,) in rows], target, (x,), source == "bf16")  # fmt: skip
    else:
        for mode in MODES:
            want = [
                encode(Fraction(v), target, mode, is_negative(v)) if np.isfinite(v) else of_float(v, target)
                for (v,) in rows
            ]
            got = apply(f"cvt.{mode}.{target}.{source} {{d}}, {{0}}", x, out=WIDTH[target])
            check(got, want, target, (x,), any_nan=source == "f64")
    if target == source:
        for mode in ("rni", "rzi", "rmi", "rpi"):
            want = [
                of_float(v, target)
                if not np.isfinite(v)
                else encode(Fraction(whole(v, mode)), target, "rn", is_negative(v))
                for (v,) in rows
            ]
            got = apply(f"cvt.{mode}.{target}.{source} {{d}}, {{0}}", x, out=WIDTH[target])
            check(got, want, target, (x,))


def test_integers_to_integers() -> None:
    for bits in (32, 64):
        x = integers(bits)
        for source in "us":
            values = [signed(a, bits) if source == "s" else a for a in x.tolist()]
            for target in "us":
                for out in (8, 16, 32, 64):
                    low, high = (-(1 << out - 1), (1 << out - 1) - 1) if target == "s" else (0, (1 << out) - 1)
                    mask = (1 << out) - 1
                    got = apply(f"cvt.{target}{out}.{source}{bits} {{d}}, {{0}}", x, out=out).tolist()
                    assert got == [v & mask for v in values]
                    got = apply(f"cvt.sat.{target}{out}.{source}{bits} {{d}}, {{0}}", x, out=out).tolist()
                    assert got == [max(low, min(high, v)) & mask for v in values]
    x, y, z = (integers(32) for _ in range(3))
    rows = list(zip(x.view("i4").tolist(), y.view("i4").tolist(), z.tolist(), strict=True))
    got = apply("cvt.pack.sat.u8.s32.b32 {d}, {0}, {1}, {2}", x, y, z).tolist()
    want = [(c << 16 | max(0, min(255, a)) << 8 | max(0, min(255, b))) & 0xFFFFFFFF for a, b, c in rows]
    assert got == want
    # A narrow signed result is extended into a wider register.
    got = apply("cvt.s8.s32 %t0, {0}; mov.b32 {d}, %t0", x).tolist()
    assert got == [signed(a, 8) & 0xFFFFFFFF for a in x.tolist()]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_two_floats_to_packed_halves(kind: str) -> None:
    x, y = floats("f32", 400), floats("f32", 400)
    exponent_bits, fraction_bits = FORMATS[kind]
    infinity = ((1 << exponent_bits) - 1) << fraction_bits

    def one(value: float, mode: str) -> int:
        return encode(Fraction(value), kind, mode, is_negative(value)) if np.isfinite(value) else of_float(value, kind)

    rows = numbers((x, y), "f32")
    for mode in ("rn", "rz"):
        got = apply(f"cvt.{mode}.{kind}x2.f32 {{d}}, {{0}}, {{1}}", x, y).tolist()
        assert got == [one(a, mode) << 16 | one(b, mode) for a, b in rows]
    got = apply(f"cvt.rn.relu.{kind}x2.f32 {{d}}, {{0}}, {{1}}", x, y).tolist()
    assert got == [
        (0 if is_negative(a) and a == a else one(a, "rn")) << 16 | (0 if is_negative(b) and b == b else one(b, "rn"))
        for a, b in rows
    ]
    finite = apply(f"cvt.rn.satfinite.{kind}.f32 {{d}}, {{0}}", x, out=16)
    assert not ((finite & 0x7FFF) == infinity).any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_eighths(kind: str) -> None:
    fraction, least, largest, top = (3, -6, 448.0, 0x7E) if kind == "e4m3" else (2, -14, 57344.0, 0x7B)
    unit = Fraction(2) ** (least - fraction)
    table = []
    for code in range(top + 1):
        exponent, rest = code >> fraction, code & (1 << fraction) - 1
        table.append(unit * rest if exponent == 0 else unit * (rest + (1 << fraction)) * 2 ** (exponent - 1))

    def nearest(value: float) -> int:
        if value != value:
            return 0x7F
        sign = 0x80 if is_negative(value) else 0
        if abs(value) >= largest:
            return sign | top
        distances = [abs(Fraction(abs(value)) - entry) for entry in table]
        best = min(distances)
        chosen = [code for code, distance in enumerate(distances) if distance == best]
        return sign | next(code for code in chosen if len(chosen) == 1 or code % 2 == 0)

    halfway = [float(a + b) / 2 for a, b in pairwise(table)]
    values = np.array(halfway + [float(v) for v in table] + [1e-9, -0.0, 1e9, np.inf, -np.inf, np.nan], "f4")
    values = np.concatenate(
        [values, -values[:40], np.nextafter(values[:120], np.float32(9)), floats("f32", 60).view("f4")]
    )
    values = values[: values.size // 2 * 2]
    other = values[::-1].copy()
    want = [nearest(float(v)) for v in values]
    got = apply(f"cvt.rn.satfinite.{kind}x2.f32 {{d}}, {{0}}, {{1}}", values, other, out=16)
    assert (got >> 8).tolist() == want
    assert (got & 255).tolist() == want[::-1]
    halves = np.concatenate([floats("f16", 200), floats("f16", 200, near=True)])
    got = apply(f"cvt.rn.satfinite.{kind}x2.f16x2 {{d}}, {{0}}", halves.view(np.uint32), out=16).view(np.uint8)
    assert got.tolist() == [nearest(v) for (v,) in numbers((halves,), "f16")]
    codes = np.arange(256, dtype=np.uint8)
    back = apply(f"cvt.rn.f16x2.{kind}x2 {{d}}, {{0}}", codes.view(np.uint16)).view(np.uint16)
    for code, bits in enumerate(back.tolist()):
        size = code & 127
        if size <= top:
            assert bits == of_float(float(table[size]) * (-1 if code & 128 else 1), "f16")
        elif kind == "e5m2" and size == 0x7C:
            assert bits & 0x7FFF == 0x7C00
        else:
            assert bits == 0x7FFF


def test_tf32() -> None:
    x = floats("f32", 400)
    got = apply("cvt.rna.tf32.f32 {d}, {0}", x)
    for bits, raw, (value,) in zip(got.tolist(), x.tolist(), numbers((x,), "f32"), strict=True):
        if value != value:
            assert bits == raw - raw % 8192
        elif np.isfinite(value):
            assert bits == raw - raw % 8192 + (8192 if raw % 8192 >= 4096 else 0)


# ── what NVRTC makes of CUDA C++ ──


def run_kernel(source: str, kind: str, *arrays: np.ndarray) -> None:
    """Run a kernel of one type parameter on `arrays`, a thread an element of the first."""
    text = ck.Kernel(source)[kind].ptx(arch="sm_90")
    program = emulator.parse(text)
    memory = emulator.Memory()
    addresses = [memory.add(array, f"array {n}") for n, array in enumerate(arrays)]
    entry = next(function for function in program.functions.values() if function.is_entry)
    parameters = struct.pack(f"<{len(addresses)}Q", *addresses)
    module = emulator.Module(program, memory)
    emulator.run(emulator.Launch(module, entry, emulator.Geometry((1, 1, 1), (arrays[0].size, 1, 1)), parameters))


def test_math_functions() -> None:
    source = """
    template <typename T> __global__ void f(const T* x, const T* y, T* out) {
        int i = threadIdx.x; int n = blockDim.x; T a = x[i], b = y[i];
        out[i] = sinf(a); out[n + i] = powf(fabsf(a), b); out[2 * n + i] = expf(b); out[3 * n + i] = a / b;
        out[4 * n + i] = logf(fabsf(a)); out[5 * n + i] = fmodf(a, b); out[6 * n + i] = sqrtf(fabsf(a));
        out[7 * n + i] = tanhf(b); out[8 * n + i] = __fmaf_rz(a, b, a); out[9 * n + i] = floorf(a) + rintf(b);
    }"""
    x = RANDOM.uniform(-100, 100, 500).astype("f4")
    y = RANDOM.uniform(-3, 3, 500).astype("f4")
    out = np.zeros((10, 500), "f4")
    run_kernel(source, "float", x, y, out)
    a, b = x.astype("f8"), y.astype("f8")
    expected = [
        np.sin(a), np.abs(a) ** b, np.exp(b), a / b, np.log(np.abs(a)), np.fmod(a, b), np.sqrt(np.abs(a)), np.tanh(b),
    ]  # fmt: skip
    for row, want in zip(out, expected, strict=False):
        np.testing.assert_allclose(row, want, rtol=1e-6, atol=2e-7)
    check(out[8].view("u4"), [fma(u, v, u, "f32", "rz") for u, v in zip(a, b, strict=True)], "f32")
    assert (out[9] == np.floor(x) + np.rint(y)).all()


def test_double_functions() -> None:
    source = """
    template <typename T> __global__ void f(const T* x, const T* y, T* out) {
        int i = threadIdx.x; int n = blockDim.x; T a = x[i], b = y[i];
        out[i] = sin(a); out[n + i] = pow(fabs(a), b); out[2 * n + i] = exp(b); out[3 * n + i] = a / b;
        out[4 * n + i] = log(fabs(a)); out[5 * n + i] = __dadd_rd(a, b); out[6 * n + i] = sqrt(fabs(a));
        out[7 * n + i] = 1.0 / a; out[8 * n + i] = (T)(long long)a; out[9 * n + i] = fma(a, b, a);
    }"""
    x, y = RANDOM.uniform(-100, 100, 300), RANDOM.uniform(-3, 3, 300)
    out = np.zeros((10, 300))
    run_kernel(source, "double", x, y, out)
    np.testing.assert_allclose(out[0], np.sin(x), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(out[1], np.abs(x) ** y, rtol=4e-15)
    np.testing.assert_allclose(out[2], np.exp(y), rtol=4e-16)
    np.testing.assert_allclose(out[4], np.log(np.abs(x)), rtol=1e-15, atol=1e-16)
    rows = list(zip(x.tolist(), y.tolist(), strict=True))
    check(out[5].view("u8"), [fma(a, 1.0, b, "f64", "rm") for a, b in rows], "f64")
    # The compiler makes these of fused operations and approximations; they are right to the last bit if those are.
    assert (out[3] == x / y).all()
    assert (out[6] == np.sqrt(np.abs(x))).all()
    assert (out[7] == 1 / x).all()
    assert (out[8] == np.trunc(x)).all()
    check(out[9].view("u8"), [fma(a, b, a, "f64", "rn") for a, b in rows], "f64")


@pytest.mark.parametrize("kind", ["int", "unsigned", "long long"])
def test_integer_kernels(kind: str) -> None:
    source = """
    template <typename T> __global__ void f(const T* x, const T* y, T* out) {
        int i = threadIdx.x; int n = blockDim.x; T a = x[i], b = y[i];
        out[i] = a / b; out[n + i] = a % b; out[2 * n + i] = a / 7; out[3 * n + i] = a % 10;
        out[4 * n + i] = a * b - (a ^ b); out[5 * n + i] = __popcll(a) + __clzll(b) + __ffsll(a);
    }"""
    bits = 64 if kind == "long long" else 32
    x, y = integers(bits, 300), integers(bits, 300)
    y[y == 0] = 3
    out = np.zeros((6, 300), x.dtype)
    run_kernel(source, kind, x, y, out)
    mask = (1 << bits) - 1
    for lane, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        if kind != "unsigned":
            a, b = signed(a, bits), signed(b, bits)
        q, wide = truncated(a, b), a & 2**64 - 1
        counts = wide.bit_count() + 64 - (b & 2**64 - 1).bit_length() + (wide & -wide).bit_length()
        want = [q, a - q * b, truncated(a, 7), a - 10 * truncated(a, 10), a * b - (a ^ b), counts]
        assert out[:, lane].tolist() == [v & mask for v in want], (a, b)


@pytest.mark.parametrize(("kind", "header"), [("__half", "cuda_fp16.h"), ("__nv_bfloat16", "cuda_bf16.h")])
def test_half_kernels(kind: str, header: str) -> None:
    source = f"""
    #include <{header}>
    template <typename T> __global__ void f(const T* x, const T* y, T* out) {{
        int i = threadIdx.x; int n = blockDim.x; T a = x[i], b = y[i];
        out[i] = a * b + a; out[n + i] = __hmax(a, b); out[2 * n + i] = a < b ? a : b;
        out[3 * n + i] = T(float(a) * 3.0f); out[4 * n + i] = a / b; out[5 * n + i] = hsqrt(__habs(a));
    }}"""
    name = "f16" if kind == "__half" else "bf16"
    x, y = (floats(name, 400, near=True) for _ in range(2))
    out = np.zeros((6, 400), "u2")
    run_kernel(source, kind, x, y, out)
    rows = numbers((x, y), name)
    products = [decode(multiply(a, b, name, "rn"), name) for a, b in rows]
    check(out[0], [fma(p, 1.0, a, name, "rn") for p, (a, _) in zip(products, rows, strict=True)], name, (x, y))
    known = [n for n, (a, b) in enumerate(rows) if a == a and b == b]
    for n in known:
        a, b = rows[n]
        assert decode(int(out[1, n]), name) == max(a, b)
        assert decode(int(out[2, n]), name) == min(a, b)
    check(out[3], [multiply(a, 3.0, name, "rn") for a, _ in rows], name, (x,))
    for n in known:
        a, b = rows[n]
        # The header's division is within two units where the quotient is a normal number.
        if np.isfinite(a) and np.isfinite(b) and b != 0 and 2.0**-13 < abs(a / b) < 6e4:
            assert abs(decode(int(out[4, n]), name) - a / b) <= abs(a / b) * 2.0**-7
    assert (out[5] & 0x8000 == 0).all()


def test_what_is_missing_says_so() -> None:
    with pytest.raises(ck.EmulationError, match=re.escape("lop4")):
        apply("lop4.b32 {d}, {0}, {0}", integers(32))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("operation", ["min", "max"])
@pytest.mark.parametrize("count", [1, 31, 37, 64])
def test_the_other_operand_comes_of_a_signalling_nan(kind: str, operation: str, count: int) -> None:
    """In every lane: NumPy's own fmin and fmax give NaN for those at the end of an array."""
    raw = np.dtype(f"u{WIDTH[kind] // 8}")
    numbers = np.full(count, 2.5, f"f{raw.itemsize}")
    nans = np.full(count, 0x7F800001 if kind == "f32" else 0x7FF0000000000001, raw).view(numbers.dtype)
    for a, b in ((numbers, nans), (nans, numbers)):
        got = apply(f"{operation}.{kind} {{d}}, {{0}}, {{1}}", a, b, out=WIDTH[kind])
        assert (got.view(numbers.dtype) == 2.5).all()


def test_nan_of_float64_is_not_the_hosts() -> None:
    invalid, signalling, quiet = (
        np.array([bits << 48 | 3 * (bits & 15 < 8)], np.uint64).view("f8") for bits in (0x7FF8, 0x7FF0, 0xFFF8)
    )
    one = np.ones(1)
    for host in (invalid, -invalid, quiet):
        assert rounding.nan_from(host, one, one).view("u8") == 0xFFF8 << 48
        assert rounding.nan_from(host, one, signalling, quiet).view("u8") == 0x7FF8 << 48 | 3
        assert rounding.nan_from(host, signalling, one, quiet=False).view("u8") == 0x7FF0 << 48 | 3
