"""Each operation of Tile IR: written as bytecode, held to CUDA's disassembler, read, and run beside NumPy."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from support.tiers import thinned
from support.tile_writer import TOKEN, Body, written
from support.tiles import why_no_assembler

import cudakit as ck
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.tile import decode
from cudakit.emulator.tile.machine import TileLaunch, TileProgram
from cudakit.emulator.tile.values import DTYPES
from cudakit.errors import CompileError
from cudakit.jit.compile import assemble, tile_bytecode
from cudakit.jit.compile.tile_bytecode import FORMS
from cudakit.jit.compile.tile_ir import (
    Bounded,
    DivisibleBy,
    Global,
    Operation,
    SameElements,
    TensorView,
    Tile,
    TileModule,
    View,
)

VERSIONS = [(13, minor) for minor in range(1, 6)]
Given = tuple[str, Any]


class Case(NamedTuple):
    """A kernel around an operation.

    Attributes
    ----------
    given, wanted : tuple
        Types of elements, and arrays: what it takes as tiles, and what it stores.
    build : callable
        Makes the results' values of a body and of the inputs' values, after the pointers to all arrays.
    error, printed : str
        What it raises, and what it prints.
    """

    given: tuple[Given, ...]
    wanted: tuple[Given, ...]
    build: Callable[..., Any]
    variables: Mapping[str, Global] = MappingProxyType({})
    error: str = ""
    printed: str = ""


CASES: dict[str, Case] = {}
#: Of operations that have a case, with other types and roundings.
MORE: dict[str, Case] = {}


def case(name: str, *given: Given, wanted: tuple[Given, ...] = (), **more: Any) -> Callable[..., Any]:
    """Enter a case, built by what is decorated: of the body, the inputs' pointers, the outputs', the inputs."""

    given = tuple((kind, np.asarray(value, DTYPES[kind])) for kind, value in given)

    def enter(build: Callable[..., Any]) -> Callable[..., Any]:
        stored = tuple((kind, np.asarray(value, DTYPES[kind])) for kind, value in wanted)
        (MORE if " " in name else CASES)[name] = Case(given, stored, build, **more)
        return build

    return enter


def each(name: str, kinds: str, function: Callable[..., Any], *values: Any, **attributes: Any) -> None:
    """A case of an operation that computes element by element: types of the operands, and of the result."""
    *operands, result = kinds.split()
    given = tuple((kind, np.asarray(value, DTYPES[kind])) for kind, value in zip(operands, values, strict=True))
    with np.errstate(all="ignore"):
        want = np.asarray(function(*[value for _, value in given])).astype(DTYPES[result])

    def build(body: Body, pointers: Any, *inputs: int) -> int:
        return body.value(name, Tile(want.shape, result), *inputs, **attributes)

    is_first = name not in CASES
    key = name if is_first else f"{name} {kinds} {attributes.get('rounding', '')}"
    (CASES if is_first else MORE)[key] = Case(given, ((result, want),), build)


def pointers_to(body: Body, pointer: int, kind: str, count: int) -> int:
    """Addresses of an array's elements."""
    numbers = body.value("iota", Tile((count,), "i32"))
    one = body.value("reshape", Tile((1,), kind, True), pointer)
    every = body.value("broadcast", Tile((count,), kind, True), one)
    return body.value("offset", Tile((count,), kind, True), every, numbers)


def loaded(body: Body, pointer: int, kind: str, shape: tuple[int, ...]) -> int:
    count = int(np.prod(shape))
    addresses = pointers_to(body, pointer, kind, count)
    flat, _ = body.values("load_ptr_tko", [Tile((count,), kind), TOKEN], addresses, memory="weak")
    return body.value("reshape", Tile(shape, kind), flat)


def stored(body: Body, pointer: int, kind: str, shape: tuple[int, ...], value: int) -> None:
    count = int(np.prod(shape))
    flat = body.value("reshape", Tile((count,), kind), value)
    body.values("store_ptr_tko", [TOKEN], pointers_to(body, pointer, kind, count), flat, memory="weak")


def module_of(given: Case) -> TileModule:
    arrays = [*given.given, *given.wanted]
    body = Body(*[Tile((), kind, True) for kind, _ in arrays])
    inputs = [loaded(body, place, kind, value.shape) for place, (kind, value) in enumerate(given.given)]
    results = given.build(body, range(len(arrays)), *inputs)
    results = results if isinstance(results, tuple) else () if results is None else (results,)
    for place, (value, (kind, want)) in enumerate(zip(results, given.wanted, strict=False)):
        stored(body, len(given.given) + place, kind, want.shape, value)
    body.values("return", [])
    return body.module(**given.variables)


# ── floats ──

F = [0.5, -1.5, 2.25, 0.75, -0.25, 3.0, 1.0, -0.0]
G = [2.0, 0.5, -1.5, 0.75, 4.0, -2.0, 0.25, 3.0]
POSITIVE = [0.5, 1.5, 2.25, 0.75, 0.25, 3.0, 1.0, 8.0]
for unary, function in {
    "absf": np.abs, "ceil": np.ceil, "floor": np.floor, "negf": np.negative, "cos": np.cos, "cosh": np.cosh,
    "sin": np.sin, "sinh": np.sinh, "tan": np.tan,
}.items():  # fmt: skip
    each(unary, "f64 f64", function, F)
each("exp", "f64 f64", np.exp, F, rounding="full")
each("tanh", "f64 f64", np.tanh, F, rounding="full")
each("exp2", "f64 f64", np.exp2, F)
each("log", "f64 f64", np.log, POSITIVE)
each("log2", "f64 f64", np.log2, POSITIVE)
each("rsqrt", "f64 f64", lambda a: 1 / np.sqrt(a), POSITIVE)
each("sqrt", "f64 f64", np.sqrt, POSITIVE, rounding="nearest_even")
for binary, function in {"addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide}.items():
    each(binary, "bf16 bf16 bf16", function, F, G, rounding="nearest_even")
each("remf", "f32 f32 f32", np.fmod, F, G)
each("fpowf", "f64 f64 f64", np.power, POSITIVE, G)
each("atan2", "f64 f64 f64", np.arctan2, F, G)
each("maxf", "f16 f16 f16", np.maximum, F, G)
each("minf", "f32 f32 f32", np.minimum, F, G, ftz=True)
each("cmpf", "f32 f32 i1", np.less, F, G, predicate="less_than", ordering="ordered")
each("fma", "f64 f64 f64 f64", lambda a, b, c: a * b + c, F, G, F, rounding="nearest_even")
each("fpowi", "f32 i32 f32", lambda a, b: a.astype("f8") ** b, F, [2, -1, 3, 0, 5, -3, 7, 2])
each("select", "i1 f32 f32 f32", np.where, [0, 1] * 4, F, G)

# ── integers ──

K = [3, -7, 100, 0, -128, 127, 5, -1]
J = [2, 3, -7, 5, 1, 127, -128, 6]
for unary, function in {"absi": np.abs, "negi": np.negative}.items():
    each(unary, "i32 i32", function, K)
for binary, function in {"addi": np.add, "subi": np.subtract, "muli": np.multiply}.items():
    each(binary, "i8 i8 i8", function, K, J, overflow="none")
for binary, function in {"andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor}.items():
    each(binary, "i16 i16 i16", function, K, J)
each("maxi", "i8 i8 i8", lambda a, b: np.maximum(a.view("u1"), b.view("u1")).view("i1"), K, J, signedness="unsigned")
each("mini", "i64 i64 i64", np.minimum, K, J, signedness="signed")
each("cmpi", "i8 i8 i1", np.greater, K, J, predicate="greater_than", signedness="signed")
each("divi", "i32 i32 i32", lambda a, b: np.trunc(a / b), K, J, signedness="signed", rounding="zero")
each("remi", "i32 i32 i32", np.fmod, K, J, signedness="signed")
each(
    "mulhii",
    "i32 i32 i32",
    lambda a, b: a.view("u4").astype("i8") * b >> 32,
    [7, 1 << 30, 99, -3],
    [5, 1 << 30, 2**31 - 1, 9],
)
each("shli", "i32 i32 i32", np.left_shift, K, range(8), overflow="none")
each("shri", "i32 i32 i32", np.right_shift, K, range(8), signedness="signed")

# ── conversions ──

each("exti", "i8 i32", lambda a: a.view("u1"), K, signedness="unsigned")
each("trunci", "i32 i8", lambda a: a, [300, -1, 7, 128], overflow="none")
each("itof", "i64 f32", lambda a: a, [2**60 + 1, -3, 0, 7], signedness="signed", rounding="nearest_even")
each("ftoi", "f32 i32", np.trunc, [2.7, -2.7, 1e5, 0], signedness="signed", rounding="nearest_int_to_zero")
each("ftof", "f32 f16", lambda a: a, [1 / 3, 1e5, -2, 0], rounding="nearest_even")
each("bitcast", "f32 i32", lambda a: a.view("i4"), F)
each("pack", "i16 i8", lambda a: a.view("i1"), K)
each("unpack", "i8 f16", lambda a: a.view("f2"), K)


def cut(value: Any, bits: int, most: int) -> np.ndarray:
    """Numbers toward zero, to so many bits of mantissa, under 2 to the power of `most`."""
    fraction, exponent = np.frexp(value)
    whole = np.ldexp(np.trunc(np.ldexp(fraction, bits)), exponent - bits)
    limit = (2 - 2.0 ** (1 - bits)) * 2.0 ** (most - 1)
    return np.clip(whole, -limit, limit)


def toward(value: Any, limit: float) -> np.ndarray:
    near = value.astype("f4")
    return np.where((near > value) if limit < 0 else (near < value), np.nextafter(near, np.float32(limit)), near)


CLOSE = [1 / 3, -1 / 3, 1e300, -1e300, 1.5, 1 + 2.0**-11, 7e4, -7e4]
each("ftof", "f64 f32", lambda a: toward(a, -np.inf), CLOSE, rounding="negative_inf")
each("ftof", "f64 f32", lambda a: toward(a, np.inf), CLOSE, rounding="positive_inf")
for kind, bits, most in (("f32", 24, 128), ("f16", 11, 16), ("bf16", 8, 128), ("tf32", 11, 128)):
    each("ftof", f"f64 {kind}", lambda a, bits=bits, most=most: cut(a, bits, most), CLOSE, rounding="zero")


def exactly(name: str, kind: str, mode: str) -> Callable[..., Any]:
    """An operation on exact fractions, rounded to a type."""

    def one(*given: Any) -> Any:
        first, *rest = (Fraction(float(each)) for each in given)
        exact = {
            "addf": lambda: first + rest[0], "subf": lambda: first - rest[0], "mulf": lambda: first * rest[0],
            "divf": lambda: first / rest[0], "fma": lambda: first * rest[0] + rest[1],
        }[name]()  # fmt: skip
        type = DTYPES[kind].type
        up, down = (type(limit) for limit in (np.inf, -np.inf))
        low = type(float(exact))
        while Fraction(float(low)) > exact:
            low = np.nextafter(low, down)
        while Fraction(float(np.nextafter(low, up))) <= exact:
            low = np.nextafter(low, up)
        high = low if Fraction(float(low)) == exact else np.nextafter(low, up)
        if mode == "nearest_even":
            less, more = exact - Fraction(float(low)), Fraction(float(high)) - exact
            is_even = np.asarray(low).view("u2") % 2 == 0
            return low if less < more or (less == more and is_even) else high
        return low if mode == "negative_inf" or (mode == "zero" and exact > 0) else high

    return lambda *given: np.array([one(*row) for row in zip(*given, strict=True)])


ODD = np.array([1, -3, 1 + 2**-7, 0.1, -1e-3, 200, 7e-5, 1.7, -255, 2**-14, 3e-6, -0.9, 11, 1 / 3, -20, 6e-8] * 4)
OTHERS = np.repeat([1 / 3, -1 - 2**-7, 2**-7, -200.0], 16)
THIRD = np.tile(ODD[:16] * 2**-9, 4)[::-1]
for kind in ("f16", "bf16"):
    for mode in ("nearest_even", "zero", "negative_inf", "positive_inf"):
        for name in ("addf", "subf", "mulf", "divf"):
            each(name, f"{kind} {kind} {kind}", exactly(name, kind, mode), ODD, OTHERS, rounding=mode)
        each("fma", f"{kind} " * 3 + kind, exactly("fma", kind, mode), ODD, OTHERS, THIRD, rounding=mode)
HALVES = np.array([1 + 2**-12, -1 - 2**-11, 1 + 3 * 2**-11, 3])
each("ftof", "f32 tf32", lambda a: [1, -1 - 2**-10, 1 + 2**-9, 3], HALVES, rounding="nearest_away")
each("ftof", "f16 f32", lambda a: a, F, rounding="nearest_away")
SCALE = [1, 0.3, 1e9, -2, 2**-17, 2**-18, 1.0625, 1.1875]
each("ftof", "f32 f8E5M3FNU", lambda a: [120, 106, 254, 0, 1, 0, 120, 122], SCALE, rounding="nearest_even")
each("ftof", "f8E5M3FNU f32", lambda a: [1, 2, 2**-17, 2**-14], [120, 128, 1, 8], rounding="zero")
# Of 4 bits: the low half of a byte comes first.


@case("unpack f4", ("i8", [-0x6E, 0x70]), wanted=(("f32", [1.0, -0.5, 0, 6.0]),))
def _(body: Body, pointers: Any, value: int) -> Any:
    small = body.value("unpack", Tile((4,), "f4E2M1FN"), value)
    return body.value("ftof", Tile((4,), "f32"), small, rounding="nearest_even")


@case("trunci i4", ("i8", np.array([0x12, 0x7F, -1, 8], "i1")), wanted=(("i8", [2, -1, -1, -8]), ("i8", [2, 15, 15, 8]),
    ("i8", [-14, -113])))  # fmt: skip
def _(body: Body, pointers: Any, value: int) -> Any:
    small = body.value("trunci", Tile((4,), "i4"), value, overflow="none")
    extended = [body.value("exti", Tile((4,), "i8"), small, signedness=sign) for sign in ("signed", "unsigned")]
    return *extended, body.value("pack", Tile((2,), "i8"), small)


@case("constant tf32", wanted=(("f32", [1.5, -2, 0, 1 + 2**-10]),))
def _(body: Body, pointers: Any) -> Any:
    bits = np.array([1.5, -2, 0, 1 + 2**-10], "f4").view("u4") >> 13
    data = b"".join(int(each).to_bytes(3, "little") for each in bits)
    value = body.value("constant", Tile((4,), "tf32"), value=data)
    return body.value("ftof", Tile((4,), "f32"), value, rounding="nearest_even")


# ── shapes, constants, counts ──

M = np.arange(16, dtype="f4").reshape(4, 4)


@case("constant", wanted=(("i8", np.array(K, "i1")), ("f32", np.full(4, 1.5, "f4"))))
def _(body: Body, pointers: Any) -> Any:
    return body.constant(K, Tile((8,), "i8")), body.constant(1.5, Tile((4,), "f32"))


@case("iota", wanted=(("i16", np.arange(16, dtype="i2")),))
def _(body: Body, pointers: Any) -> Any:
    return body.value("iota", Tile((16,), "i16"))


@case("reshape", ("f32", M), wanted=(("f32", M.reshape(2, 8)),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    return body.value("reshape", Tile((2, 8), "f32"), whole)


@case("broadcast", ("f32", M[:1]), wanted=(("f32", np.broadcast_to(M[:1], (8, 4))),))
def _(body: Body, pointers: Any, row: int) -> Any:
    return body.value("broadcast", Tile((8, 4), "f32"), row)


@case("permute", ("f32", M), wanted=(("f32", M.T),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    return body.value("permute", Tile((4, 4), "f32"), whole, order=(1, 0))


@case("cat", ("f32", M), wanted=(("f32", np.concatenate((M, M), 1)),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    return body.value("cat", Tile((4, 8), "f32"), whole, whole, dim=1)


@case("extract", ("f32", M), wanted=(("f32", M[2:, :2]),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    at = [body.constant(each, Tile((), "i32")) for each in (1, 0)]
    return body.value("extract", Tile((2, 2), "f32"), whole, *at)


@case("insert", ("f32", M), wanted=(("f32", np.vstack((M[:2], M[:2]))),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    zero, one = (body.constant(each, Tile((), "i32")) for each in (0, 1))
    part = body.value("extract", Tile((2, 4), "f32"), whole, zero, zero)
    return body.value("insert", Tile((4, 4), "f32"), part, whole, one, zero)


@case("assume", ("i32", np.array([16, 32, 48, 16], "i4")), wanted=(("i32", np.array([16, 32, 48, 16], "i4")),))
def _(body: Body, pointers: Any, value: int) -> Any:
    for predicate in (DivisibleBy(16), Bounded(0, 48), Bounded(None, 64), SameElements((1,)), DivisibleBy(16, 2, 0)):
        value = body.value("assume", Tile((4,), "i32"), value, predicate=predicate)
    return value


@case("get_tile_block_id", wanted=(("i32", np.array([0], "i4")),))
def _(body: Body, pointers: Any) -> Any:
    return body.values("get_tile_block_id", [Tile((), "i32")] * 3)[0]


@case("get_num_tile_blocks", wanted=(("i32", np.array([1], "i4")),))
def _(body: Body, pointers: Any) -> Any:
    return body.values("get_num_tile_blocks", [Tile((), "i32")] * 3)[1]


# ── control ──


@case("if", ("i1", np.array(True)), wanted=(("i32", np.array([7], "i4")),))
@case("yield", ("i1", np.array(True)), wanted=(("i32", np.array([7], "i4")),))
def _(body: Body, pointers: Any, condition: int) -> Any:
    kind = Tile((), "i32")
    branches = [
        body.region((), lambda number=number: body.values("yield", [], body.constant(number, kind)))  # type: ignore[misc]
        for number in (7, 8)
    ]
    return body.value("if", kind, condition, regions=branches)


@case("for", wanted=(("i32", np.array([0 + 2 + 4], "i4")),))
@case("continue", wanted=(("i32", np.array([0 + 2 + 4], "i4")),))
def _(body: Body, pointers: Any) -> Any:
    kind = Tile((), "i32")
    low, high, step = (body.constant(each, kind) for each in (0, 5, 2))

    def inside(number: int, total: int) -> None:
        body.values("continue", [], body.value("addi", kind, total, number, overflow="none"))

    return body.value("for", kind, low, high, step, low, regions=[body.region((kind, kind), inside)])


@case("loop", wanted=(("i32", np.array([3], "i4")),))
@case("break", wanted=(("i32", np.array([3], "i4")),))
def _(body: Body, pointers: Any) -> Any:
    kind = Tile((), "i32")

    def inside(number: int) -> None:
        more = body.value("addi", kind, number, body.constant(1, kind), overflow="none")
        is_last = body.value(
            "cmpi", Tile((), "i1"), more, body.constant(3, kind), predicate="equal", signedness="signed"
        )
        leave = body.region((), lambda: body.values("break", [], more))
        go_on = body.region((), lambda: body.values("yield", []))
        body.values("if", [], is_last, regions=[leave, go_on])
        body.values("continue", [], more)

    return body.value("loop", kind, body.constant(0, kind), regions=[body.region((kind,), inside)])


@case("return", wanted=(("i32", np.array([0], "i4")),))
def _(body: Body, pointers: Any) -> None:
    value = body.constant(np.array([5]), Tile((1,), "i32"))
    leave = body.region((), lambda: body.values("return", []))
    stay = body.region((), lambda: body.values("yield", []))
    body.values("if", [], body.constant(True, Tile((), "i1")), regions=[leave, stay])
    stored(body, pointers[0], "i32", (1,), value)


def combined(body: Body, kind: str) -> Any:
    one = Tile((), kind)
    return body.region(
        (one, one),
        lambda a, b: body.values("yield", [], body.value("addf", one, a, b, rounding="nearest_even")),
    )


@case("reduce", ("f32", M), wanted=(("f32", M.sum(1)),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    return body.value(
        "reduce", Tile((4,), "f32"), whole, dim=1, identities=[("f32", 0)], regions=[combined(body, "f32")]
    )


@case("scan", ("f32", M), wanted=(("f32", M[:, ::-1].cumsum(1)[:, ::-1]),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    kind = Tile((4, 4), "f32")
    regions = [combined(body, "f32")]
    return body.value("scan", kind, whole, dim=1, reverse=True, identities=[("f32", 0)], regions=regions)


# ── products ──


def product(body: Body, kinds: tuple[str, str], a: int, name: str, *scales: int, **attributes: Any) -> int:
    left, sums = kinds
    b = body.value("permute", Tile((32, 16), left), a, order=(1, 0))
    zero = body.constant(0, Tile((16, 16), sums))
    return body.value(name, Tile((16, 16), sums), a, b, zero, *scales, **attributes)


SMALL = (np.arange(16 * 32).reshape(16, 32) * 7 % 9 - 4).astype("f4")


@case("mmaf", ("f16", SMALL.astype("f2")), wanted=(("f32", SMALL @ SMALL.T),))
def _(body: Body, pointers: Any, a: int) -> Any:
    return product(body, ("f16", "f32"), a, "mmaf")


@case("mmai", ("i8", SMALL.astype("i1")), wanted=(("i32", (SMALL @ SMALL.T).astype("i4")),))
def _(body: Body, pointers: Any, a: int) -> Any:
    return product(body, ("i8", "i32"), a, "mmai", lhs="signed", rhs="signed")


SCALES = np.exp2(np.arange(16) % 4 - 1).astype("f4")
SCALED = SMALL @ SMALL.T * SCALES[:, None] * SCALES


@case(
    "mmaf_scaled",
    ("f8E4M3FN", SMALL.astype(ml_dtypes.float8_e4m3fn)),
    ("f8E8M0FNU", SCALES.astype(ml_dtypes.float8_e8m0fnu)),
    wanted=(("f32", SCALED),),
)
def _(body: Body, pointers: Any, a: int, scales: int) -> Any:
    rows = body.value("reshape", Tile((16, 1), "f8E8M0FNU"), scales)
    columns = body.value("reshape", Tile((1, 16), "f8E8M0FNU"), scales)
    return product(body, ("f8E4M3FN", "f32"), a, "mmaf_scaled", rows, columns)


# ── memory ──

X = np.arange(1, 9, dtype="f4")
WEAK: dict[str, Any] = {"memory": "weak"}
DEVICE: dict[str, Any] = {"memory": "relaxed", "scope": "device"}
#: Of accesses to views of two dimensions.
EDGES: dict[str, Any] = {"inbounds": (0, 0)}


@case("load_ptr_tko", ("f32", X), wanted=(("f32", np.where(np.arange(8) < 3, X, -1)),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    addresses = pointers_to(body, pointers[0], "f32", 8)
    mask = body.constant(np.arange(8) < 3, Tile((8,), "i1"))
    pad = body.constant(-1, Tile((8,), "f32"))
    token = body.value("make_token", TOKEN)
    kinds = [Tile((8,), "f32"), TOKEN]
    return body.values("load_ptr_tko", kinds, addresses, mask_=mask, padding_=pad, token_=token, **WEAK)[0]


@case("store_ptr_tko", ("f32", X), wanted=(("f32", np.where(np.arange(8) % 2, X, 0)),))
def _(body: Body, pointers: Any, whole: int) -> None:
    addresses = pointers_to(body, pointers[1], "f32", 8)
    mask = body.constant(np.arange(8) % 2, Tile((8,), "i1"))
    body.values("store_ptr_tko", [TOKEN], addresses, whole, mask_=mask, memory="release", scope="sys")


@case("offset", ("f32", X), wanted=(("f32", X[::-1]),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    last = body.value("offset", Tile((), "f32", True), pointers[0], body.constant(7, Tile((), "i64")))
    last = body.value("broadcast", Tile((8,), "f32", True), body.value("reshape", Tile((1,), "f32", True), last))
    back = body.value("offset", Tile((8,), "f32", True), last, body.constant(-np.arange(8), Tile((8,), "i64")))
    return body.values("load_ptr_tko", [Tile((8,), "f32"), TOKEN], back, **WEAK)[0]


def view(body: Body, pointer: int, kind: str = "f32", name: str = "make_partition_view", **fields: Any) -> int:
    """An array of 4 × 4 as tiles of 2 × 2, or as the fields say."""
    tensor = TensorView((None, 4), (4, 1), kind)
    extent = body.constant(4, Tile((), "i32"))
    whole = body.value("make_tensor_view", tensor, pointer, extent)
    made = View((2, 2), tensor, (2, 2), (0, 1))._replace(**fields)
    return body.value(name, made, whole)


def at(body: Body, *index: int) -> list[int]:
    return [body.constant(each, Tile((), "i32")) for each in index]


T = [Tile((2, 2), "f32"), TOKEN]


@case("make_tensor_view", ("f32", M), wanted=(("f32", M[2:, :2]),))
@case("make_partition_view", ("f32", M), wanted=(("f32", M[2:, :2]),))
@case("load_view_tko", ("f32", M), wanted=(("f32", M[2:, :2]),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    return body.values("load_view_tko", T, view(body, pointers[0]), *at(body, 1, 0), **EDGES, **WEAK)[0]


@case("store_view_tko", ("f32", M), wanted=(("f32", np.block([[M[:2, :2], 0 * M[:2, :2]], [np.zeros((2, 4))]])),))
def _(body: Body, pointers: Any, whole: int) -> None:
    part = body.value("extract", T[0], whole, *at(body, 0, 0))
    body.values("store_view_tko", [TOKEN], part, view(body, pointers[1]), *at(body, 0, 0), **EDGES, **DEVICE)


@case("make_strided_view", ("f32", M), wanted=(("f32", M[1:3, 2:4]),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    made = view(body, pointers[0], name="make_strided_view", steps=(1, 1))
    return body.values("load_view_tko", T, made, *at(body, 1, 2), **EDGES, **WEAK)[0]


@case("make_gather_scatter_view", ("f32", M), wanted=(("f32", M[[3, 1], :2]),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    made = view(body, pointers[0], name="make_gather_scatter_view", sparse=0)
    rows = body.constant([3, 1], Tile((2,), "i32"))
    return body.values("load_view_tko", T, made, rows, *at(body, 0), **EDGES, **WEAK)[0]


@case("get_tensor_shape", ("f32", M), wanted=(("i32", np.array([4], "i4")),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    tensor = TensorView((None, 2), (4, 1), "f32")
    made = body.value("make_tensor_view", tensor, pointers[0], body.constant(4, Tile((), "i64")))
    return body.values("get_tensor_shape", [Tile((), "i32")] * 2, made)[0]


@case("get_index_space_shape", ("f32", M), wanted=(("i64", np.array([3], "i8")), ("i64", np.array([2], "i8"))))
def _(body: Body, pointers: Any, whole: int) -> Any:
    tensor = TensorView((None, 4), (4, 1), "f32")
    made = body.value("make_tensor_view", tensor, pointers[0], body.constant(5, Tile((), "i64")))
    tiles = body.value("make_partition_view", View((2, 2), tensor, (2, 2), (0, 1), "zero"), made)
    return body.values("get_index_space_shape", [Tile((), "i64")] * 2, tiles)


@case("atomic_rmw_tko", ("i32", np.array(K, "i4")), wanted=(("i32", np.array(K, "i4")), ("i32", np.arange(8))))
def _(body: Body, pointers: Any, whole: int) -> Any:
    addresses = pointers_to(body, pointers[2], "i32", 8)
    numbers = body.value("iota", Tile((8,), "i32"))
    kinds = [Tile((8,), "i32"), TOKEN]
    body.values("atomic_rmw_tko", kinds, addresses, numbers, mode="add", **DEVICE)
    old = body.values("atomic_rmw_tko", kinds, addresses, numbers, mode="xchg", **DEVICE)[0]
    return body.value("addi", kinds[0], whole, body.value("subi", kinds[0], old, numbers)), old


@case("atomic_cas_tko", ("f32", X), wanted=(("f32", np.where(X == 3, 9, X)),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    addresses = pointers_to(body, pointers[0], "f32", 8)
    old, new = (body.constant(each, T[0]._replace(shape=(8,))) for each in (3, 9))
    kinds = [Tile((8,), "f32"), TOKEN]
    body.values("atomic_cas_tko", kinds, addresses, old, new, **DEVICE)
    return body.values("load_ptr_tko", kinds, addresses, **WEAK)[0]


@case("atomic_red_view_tko", ("f32", M), wanted=(("f32", M[:2, 2:] + 2),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    tiles, index = view(body, pointers[0]), at(body, 0, 1)
    token = body.value("make_token", TOKEN)
    two = body.constant(2, T[0])
    body.values("atomic_red_view_tko", [TOKEN], tiles, *index, two, token_=token, mode="addf", **EDGES, **DEVICE)
    return body.values("load_view_tko", T, tiles, *index, **EDGES, **WEAK)[0]


@case("store_view_tko f4", wanted=(("i8", [0x31, 0x75, 0, 0]), ("f32", [0.5, 1.5, 3, 6]), ("f32", [3, 6, 0, 0])))
def _(body: Body, pointers: Any) -> Any:
    """Two elements lie in a byte, the first one in its low half."""
    small, tensor = Tile((4,), "f4E2M1FN"), TensorView((6,), (1,), "f4E2M1FN")
    base = body.value("ptr_to_ptr", Tile((), "f4E2M1FN", True), pointers[0])
    whole = body.value("make_tensor_view", tensor, base)
    tiles = body.value("make_partition_view", View((4,), tensor, (4,), (0,), "zero"), whole)
    shifted = body.value("make_strided_view", View((4,), tensor, (2,), (0,), "zero"), whole)
    value = body.constant([0.5, 1.5, 3, 6], small)
    body.values("store_view_tko", [TOKEN], value, tiles, *at(body, 0), inbounds=(0,), **WEAK)
    read = [
        body.values("load_view_tko", [small, TOKEN], made, *at(body, place), inbounds=(0,), **WEAK)[0]
        for made, place in ((tiles, 0), (shifted, 1))
    ]
    wide = [body.value("ftof", Tile((4,), "f32"), each, rounding="nearest_even") for each in read]
    return loaded(body, pointers[0], "i8", (4,)), *wide


def _multimem(name: str) -> None:
    @case(name, wanted=(("f32", M),), error=f"{name} accesses memory that several GPUs share .* runs on GPUs alone")
    def _(body: Body, pointers: Any) -> None:
        tiles, index, two = view(body, pointers[0]), at(body, 0, 1), body.constant(2, T[0])
        token = body.value("make_token", TOKEN)
        given = [tiles, *index] if name.startswith("multimem_load") else [tiles, two, *index]
        made = T if name.startswith("multimem_load") else [TOKEN]
        kind = {} if name.startswith("multimem_store") else {"reduction": "add"}
        body.values(name, made, *given, token_=token, **kind, **EDGES, **DEVICE)


for name in ("multimem_load_reduce_view_tko", "multimem_reduce_view_tko", "multimem_store_view_tko"):
    _multimem(name)

VARIABLE = Global(Tile((4,), "i32"), np.array([5, 6, 7, 8], "i4").tobytes(), 16, False)


@case("global", wanted=(("i32", np.array([5, 6, 7, 8], "i4")),), variables={"table": VARIABLE})
@case("get_global", wanted=(("i32", np.array([5, 6, 7, 8], "i4")),), variables={"table": VARIABLE})
def _(body: Body, pointers: Any) -> Any:
    return loaded(body, body.value("get_global", Tile((), "i32", True), symbol="table"), "i32", (4,))


@case("alloca", ("f32", X), wanted=(("f32", X + 1),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    own = body.value("alloca", Tile((), "f32", True), count=8, alignment=16)
    one = body.constant(1, Tile((8,), "f32"))
    stored(body, own, "f32", (8,), body.value("addf", Tile((8,), "f32"), whole, one, rounding="nearest_even"))
    return loaded(body, own, "f32", (8,))


@case("ptr_to_int", ("f32", X), wanted=(("f32", X),))
@case("int_to_ptr", ("f32", X), wanted=(("f32", X),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    number = body.value("ptr_to_int", Tile((), "i64"), pointers[0])
    return loaded(body, body.value("int_to_ptr", Tile((), "f32", True), number), "f32", (8,))


@case("ptr_to_ptr", ("f32", X), wanted=(("i32", X.view("i4")),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    return loaded(body, body.value("ptr_to_ptr", Tile((), "i32", True), pointers[0]), "i32", (8,))


# ── order and words ──


@case("make_token", ("f32", X), wanted=(("f32", X),))
@case("join_tokens", ("f32", X), wanted=(("f32", X),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    token = body.value("join_tokens", TOKEN, *[body.value("make_token", TOKEN) for _ in range(2)])
    addresses = pointers_to(body, pointers[0], "f32", 8)
    return body.values("load_ptr_tko", [Tile((8,), "f32"), TOKEN], addresses, token_=token, **WEAK)[0]


@case("memory_fence_alias_tko", ("f32", X), wanted=(("f32", X),))
@case("gdc_wait_tko", ("f32", X), wanted=(("f32", X),))
@case("gdc_launch_dependents_tko", ("f32", X), wanted=(("f32", X),))
def _(body: Body, pointers: Any, whole: int) -> Any:
    token = body.value("make_token", TOKEN)
    for name in ("memory_fence_alias_tko", "gdc_wait_tko", "gdc_launch_dependents_tko"):
        token = body.value(name, TOKEN, token)
    addresses = pointers_to(body, pointers[0], "f32", 8)
    return body.values("load_ptr_tko", [Tile((8,), "f32"), TOKEN], addresses, token_=token, **WEAK)[0]


@case("assert", ("i1", np.array([True, False])), error="assertion failed: so it is")
def _(body: Body, pointers: Any, value: int) -> None:
    body.values("assert", [], value, message="so it is")


@case("print_tko", ("i32", np.array([1, 2, 3, 4], "i4")), printed="[1, 2, 3, 4] of 100%\n")
def _(body: Body, pointers: Any, value: int) -> None:
    body.values("print_tko", [TOKEN], value, format="%d of 100%%\n")


CASES["module"] = CASES["entry"] = CASES["constant"]


# ── what is held to what ──


def test_no_operation_is_left_out() -> None:
    """13.5 has 108 operations."""
    assert {form.name for form in FORMS.values()} | {"module", "entry", "global"} == CASES.keys()
    assert len(CASES) == 108


def disassembled(code: bytes, folder: Path) -> str:
    """What CUDA's disassembler prints; empty where there is none."""
    if why_no_assembler():
        return ""
    (folder / "k").write_bytes(code)
    program = Path(assemble.assembler().program).with_name("tileirdisasm")
    done = subprocess.run([program, folder / "k"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names_in(text: str) -> list[str]:
    found = re.findall(r"^\s+(?:%[^=]+ = )?([a-z_0-9]+)\b", text, re.MULTILINE)
    return [name for name in found if name != "yield"]


def run(module: TileModule, given: Case) -> tuple[list[np.ndarray], str]:
    """What a kernel leaves in its outputs, and what it prints."""
    memory, printed = Memory(), list[str]()
    inputs = [np.array(value).reshape(-1) for _, value in given.given]
    outputs = [np.zeros(value.size, value.dtype) for _, value in given.wanted]
    held = [each.view(np.uint8) if each.dtype == bool else each for each in (*inputs, *outputs)]
    addresses = [memory.add(each, f"array {place}") for place, each in enumerate(held)]
    (function,) = module.functions.values()
    program = TileProgram(module, memory)
    parameters = struct.pack(f"<{len(addresses)}Q", *addresses)
    TileLaunch(program, function, (1, 1, 1), parameters, printed.append, 10_000, None, "k", "{}:{}".format).run()
    return outputs, "".join(printed)


@pytest.mark.parametrize("name", sorted(CASES | MORE))
def test_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = (CASES | MORE)[name]
    made = module_of(given)
    code = written(made)
    text, module = disassembled(code, tmp_path), tile_bytecode.read(code)
    (function,) = module.functions.values()
    if text:
        assert names_in(text) == [each.name for each in function.walk() if each.name != "yield"]
    ran = set()
    for each, maker in decode.MAKERS.items():

        def counted(operation: Operation, maker: Any = maker, each: str = each) -> Any:
            step = maker(operation)

            def counting(block: Any) -> Any:
                ran.add(each)
                return step(block)

            return counting

        monkeypatch.setitem(decode.MAKERS, each, counted)
    if given.error:
        with pytest.raises(ck.EmulationError, match=given.error):
            run(module, given)
        return
    outputs, printed = run(module, given)
    assert printed == given.printed
    assert ran >= {name.partition(" ")[0]} - {"module", "entry", "global"}
    for got, (_, want) in zip(outputs, given.wanted, strict=True):
        np.testing.assert_allclose(
            got.astype("f8"), np.asarray(want).reshape(-1).astype("f8"), rtol=1e-15 if got.dtype == "f8" else 0
        )


def _plain(module: TileModule) -> list[Any]:
    """What a module says, without what an earlier version leaves out where it says nothing."""
    empty: tuple[Any, ...] = (None, False, {}, "none", "nearest_even", "full")

    def told(each: Operation) -> dict[str, Any]:
        said = {name: value for name, value in each.attributes.items() if name not in each.optional}
        return {
            name: value
            for name, value in said.items()
            if any(value if isinstance(value, tuple) else [value not in empty])
        }

    return [
        (each.name, each.results, each.types, each.operands, each.optional, told(each))
        for function in module.functions.values()
        for each in function.walk()
    ]


@pytest.mark.parametrize("version", thinned(VERSIONS, 2))
def test_each_version_says_the_same(version: tuple[int, int], tmp_path: Path) -> None:
    """What a version has is read alike from it, by the disassembler too."""
    newer = {form.name for form in FORMS.values() if form.since > version}
    missing = set()
    for name, given in CASES.items():
        made = module_of(given)
        try:
            code = written(made, version)
        except AssertionError:
            missing.add(name)
            continue
        disassembled(code, tmp_path)
        module = tile_bytecode.read(code)
        assert module.version == version
        assert _plain(module) == _plain(made), name
    # What is printed has no token in 13.1, and there are no scales of float8 in it.
    assert missing == newer | ({"print_tko"} if version == (13, 1) else set())


@pytest.mark.parametrize("name", ["atan2", "fpowi"])
def test_what_is_newer_than_its_version_is_refused(name: str) -> None:
    body = Body(Tile((), "f32", True))
    one = body.constant(1, Tile((), "f32"))
    body.value(name, Tile((), "f32"), one, one)
    with pytest.raises(CompileError, match=f"{name}, which is newer"):
        tile_bytecode.read(written(body.module(), (13, 1), is_strict=False))


@pytest.mark.parametrize("version", VERSIONS)
def test_parts_that_came_with_a_version(version: tuple[int, int], tmp_path: Path) -> None:
    """Flags, roundings and edges are written from the version on that has them."""
    kind, f32 = Tile((), "i32"), Tile((8,), "f32")

    def loop(body: Body) -> None:
        low, high, step = (body.constant(each, kind) for each in (0, 5, 2))
        inside = body.region((kind,), lambda number: body.values("continue", []))
        body.values("for", [], low, high, step, regions=[inside], unsigned=True)

    def edges(body: Body) -> None:
        body.values("load_view_tko", T, view(body, 0), *at(body, 1, 1), inbounds=(1, 1), **WEAK)

    def reduced(body: Body) -> None:
        tiles, two = view(body, 0), body.constant(2, T[0])
        body.values("atomic_red_view_tko", [TOKEN], tiles, *at(body, 1, 1), two, mode="addf", inbounds=(1, 1), **DEVICE)

    def product_of(body: Body) -> None:
        a = body.constant(np.zeros((16, 32)), Tile((16, 32), "f8E5M2"))
        product(body, ("f8E5M2", "f32"), a, "mmaf", fast=True)

    parts: list[tuple[int, Callable[[Body], Any]]] = [
        (1, lambda body: body.values("print_tko", [TOKEN] * (version > (13, 1)), body.constant(1, kind), format="%d")),
        (2, loop),
        (2, lambda body: body.value("negi", kind, body.constant(1, kind), overflow="no_signed_wrap")),
        (2, lambda body: body.value("tanh", f32, body.constant(1, f32), rounding="approx")),
        (2, lambda body: body.values("print_tko", [TOKEN], format="x", token_=body.value("make_token", TOKEN))),
        (3, lambda body: body.value("exp", f32, body.constant(1, f32), rounding="approx")),
        (3, product_of),
        (4, edges),
        (4, lambda body: body.value(
            "ftoi", Tile((8,), "i8"), body.constant(1, f32), signedness="signed", rounding="nearest_int_to_zero",
            saturate=True,
        )),
        (5, reduced),
    ]  # fmt: skip
    for since, part in parts:
        body = Body(Tile((), "f32", True))
        part(body)
        body.values("return", [])
        if version < (13, since):
            with pytest.raises(AssertionError):
                written(body.module(), version)
            continue
        code = written(body.module({"sm_90": {"occupancy": 2}}), version)
        disassembled(code, tmp_path)
        assert _plain(tile_bytecode.read(code)) == _plain(body.module())


@pytest.mark.parametrize("version", VERSIONS)
def test_types_that_came_with_a_version(version: tuple[int, int], tmp_path: Path) -> None:
    since = {"f8E8M0FNU": 2, "f4E2M1FN": 3, "f8E5M3FNU": 4}
    for kind in ("f8E4M3FN", "tf32", *since):
        body = Body(Tile((), kind, True))
        body.values("return", [])
        code = written(body.module(), version)
        if version >= (13, since.get(kind, 1)):
            disassembled(code, tmp_path)
            assert tile_bytecode.read(code).functions["k"].parameters == (Tile((), kind, True),)
        else:
            with pytest.raises(CompileError, match="newer"):
                tile_bytecode.read(code)
