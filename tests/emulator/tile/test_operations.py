"""Each operation of Tile IR that C++ reaches, beside NumPy: every bit of integers, conversions and rounded arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.tiles import kernel, needs_tiles

import cudakit as ck

BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
N = 256
CPP = {
    "f2": "__half", "f4": "float", "f8": "double", "i1": "signed char", "i2": "short", "i4": "int", "i8": "long long",
    "u1": "unsigned char", "u2": "unsigned short", "u4": "unsigned", "u8": "unsigned long long", "?": "bool",
    "bf16": "__nv_bfloat16", "e4m3": "__nv_fp8_e4m3", "e5m2": "__nv_fp8_e5m2",
}  # fmt: skip
DTYPES = {"bf16": np.dtype(BF16), "e4m3": np.dtype(E4M3), "e5m2": np.dtype(E5M2)}
FLOATS, INTEGERS = ("f2", "bf16", "f4", "f8"), ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
INCLUDES = "#include <cuda_fp16.h>\n#include <cuda_fp8.h>\n#include <cuda_tf32.h>\n"


@pytest.fixture(autouse=True)
def _tiles() -> None:
    needs_tiles()


def dtype_of(name: str) -> np.dtype:
    return DTYPES[name] if name in DTYPES else np.dtype(name)


def values(name: str, seed: int, count: int = N) -> np.ndarray:
    """Numbers of a type, the odd ones first: each of `seed` 1 meets each of `seed` 0."""
    rng, dtype = np.random.default_rng(seed), dtype_of(name)
    if dtype == np.bool_:
        return rng.integers(0, 2, count).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        odd = np.array([0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, info.max // 2], dtype)
        made = rng.integers(info.min, info.max, count, dtype, endpoint=True)
    else:
        odd = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 6e-8, -1e-40, 3.4e38], "f8").astype(dtype)
        made = (rng.standard_normal(count) * 2.0 ** rng.integers(-12, 12, count)).astype(dtype)
    tiled = np.repeat(odd, odd.size) if seed % 2 else np.tile(odd, odd.size)
    made[: tiled.size] = tiled[:count]
    return made


def computed(text: str, inputs: list[np.ndarray], out: np.ndarray, types: list[str], tile: int = N) -> np.ndarray:
    """What a text over tiles a, b, c … gives."""
    names = "abcd"[: len(inputs)]
    head = "".join(f"const {CPP[each]}* __restrict__ {name}_, " for each, name in zip(types, names, strict=False))
    loads = "".join(f"auto {name} = tiles_of<{tile}>({name}_, n).load_masked(0);" for name in names)
    given = kernel(
        f"{loads} tiles_of<{out.size}>(out, {out.size}).store_masked({text}, 0);",
        f"{head}{CPP[types[-1]]}* __restrict__ out, int n",
        INCLUDES,
    )
    given(ck.emulator.stream(), ck.config(1), *inputs, out, inputs[0].size)
    return out


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Every bit, but for those of a NaN."""
    assert got.dtype == want.dtype
    if got.dtype.kind not in "iub?":
        nan = np.isnan(want.astype("f8"))
        assert (np.isnan(got.astype("f8")) == nan).all()
        got, want = np.where(nan, 0, got), np.where(nan, 0, want)
    bits = f"u{got.dtype.itemsize}"
    wrong = np.flatnonzero(got.view(bits) != want.view(bits))
    assert not wrong.size, (wrong[:8], got[wrong[:8]], want[wrong[:8]])


def rounded(function: Callable[..., Any], *given: np.ndarray) -> np.ndarray:
    """A function in float64, or float32's own, rounded to the dtype that is given."""
    dtype = given[0].dtype
    with np.errstate(all="ignore"):
        if dtype.itemsize == 2:
            return np.asarray(function(*[each.astype("f4") for each in given])).astype(dtype)
        return np.asarray(function(*given)).astype(dtype)


# ── floats ──


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("a + b", np.add),
        ("a - b", np.subtract),
        ("a * b", np.multiply),
        ("a / b", np.divide),
        ("ct::remainder(a, b)", np.fmod),
    ],
)
def test_arithmetic(name: str, text: str, function: Any) -> None:
    a, b = values(name, 0), values(name, 1)
    same(computed(text, [a, b], np.zeros(N, a.dtype), [name] * 3), rounded(function, a, b))


@pytest.mark.parametrize("name", FLOATS)
def test_fma_rounds_once(name: str) -> None:
    a, b = values(name, 0), values(name, 1)
    got = computed("ct::fma(a, b, c)", [a, b, a], np.zeros(N, a.dtype), [name] * 4)
    with np.errstate(all="ignore"):
        wide = a.astype("g") * b.astype("g") + a.astype("g")
        want = wide.astype("f8").astype("f4").astype(a.dtype) if a.dtype.itemsize == 2 else wide.astype(a.dtype)
    close = np.abs(got.astype("f8") - want.astype("f8")) <= 2.0 ** (-7 if name == "bf16" else -9) * np.abs(
        want.astype("f8")
    )
    assert (close | (got == want) | np.isnan(want.astype("f8"))).all()
    if name == "f4":
        same(got, want)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("which", ["max", "min"])
def test_extrema(name: str, which: str) -> None:
    a, b = values(name, 0), values(name, 1)
    plain = computed(f"ct::{which}(a, b)", [a, b], np.zeros(N, a.dtype), [name] * 3)
    through = computed(f"ct::{which}(a, b, ct::propagate_nan_t{{}})", [a, b], np.zeros(N, a.dtype), [name] * 3)
    pairs = list(zip(a.astype("f8"), b.astype("f8"), strict=True))
    pick = max if which == "max" else min

    def best(x: float, y: float) -> float:
        return pick(x, y, key=lambda each: (each, not np.signbit(each)))

    want = [y if np.isnan(x) else x if np.isnan(y) else best(x, y) for x, y in pairs]
    same(plain, np.array(want).astype(a.dtype))
    want = [np.nan if np.isnan(x) or np.isnan(y) else best(x, y) for x, y in pairs]
    same(through, np.array(want).astype(a.dtype))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("==", np.equal), ("!=", np.not_equal), ("<", np.less), ("<=", np.less_equal), (">", np.greater),
        (">=", np.greater_equal),
    ],
)  # fmt: skip
def test_comparisons_with_nan(name: str, text: str, function: Any) -> None:
    a, b = values(name, 0), values(name, 1)
    got = computed(f"ct::element_cast<bool>(a {text} b)", [a, b], np.zeros(N, bool), [name, name, "?"])
    assert (got == function(a.astype("f8"), b.astype("f8"))).all()


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    ("text", "function"),
    [("ct::abs(a)", np.abs), ("-a", np.negative), ("ct::floor(a)", np.floor), ("ct::ceil(a)", np.ceil)],
)
def test_exact(name: str, text: str, function: Any) -> None:
    a = values(name, 0)
    same(computed(text, [a], np.zeros(N, a.dtype), [name] * 2), rounded(function, a))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(
    "which", ["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"]
)
def test_functions(name: str, which: str) -> None:
    a = values(name, 0)
    got = computed(f"ct::{which}(a)", [a], np.zeros(N, a.dtype), [name] * 2).astype("f8")
    function = getattr(np, which, lambda value: 1 / np.sqrt(value))
    with np.errstate(all="ignore"):
        want = function(a.astype("f8")).astype(a.dtype).astype("f8")
        bound = {"f2": 2e-3, "bf16": 8e-3, "f4": 3e-7, "f8": 1e-15}[name] * np.abs(want)
        assert ((np.abs(got - want) <= bound) | (got == want) | (np.isnan(got) & np.isnan(want))).all()


@pytest.mark.parametrize(("mode", "down"), [("zero", 0), ("negative_inf", -1), ("positive_inf", 1)])
@pytest.mark.parametrize(("operator", "function"), [("add", np.add), ("mul", np.multiply), ("div", np.divide)])
def test_directed_rounding(mode: str, down: int, operator: str, function: Any) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(N).astype("f4") for _ in range(2))
    tag = {"zero": "round_toward_zero_t", "negative_inf": "round_toward_negative_inf_t"}.get(
        mode, "round_toward_positive_inf_t"
    )
    try:
        got = computed(f"ct::{operator}(a, b, ct::{tag}{{}})", [a, b], np.zeros(N, "f4"), ["f4"] * 3)
    except ck.CompileError:
        tag = tag.replace("toward_", "to_").replace("to_negative_inf", "down").replace("to_positive_inf", "up")
        pytest.skip(f"the header has another name than {tag}")
    exact = function(a.astype("g"), b.astype("g"))
    away = got.astype("g") - exact
    ulp = np.spacing(np.abs(got)).astype("g")
    assert (np.abs(away) < ulp).all()
    sign = np.sign(exact) * -1 if down == 0 else down
    assert (away * sign >= 0).all()


# ── integers ──


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("a + b", np.add), ("a - b", np.subtract), ("a * b", np.multiply), ("a & b", np.bitwise_and),
        ("a | b", np.bitwise_or), ("a ^ b", np.bitwise_xor), ("ct::max(a, b)", np.maximum),
        ("ct::min(a, b)", np.minimum), ("-a", lambda a, b: np.negative(a)), ("~a", lambda a, b: np.invert(a)),
    ],
)  # fmt: skip
def test_integers_wrap_around(name: str, text: str, function: Any) -> None:
    a, b = values(name, 0), values(name, 1)
    same(computed(text, [a, b], np.zeros(N, a.dtype), [name] * 3), function(a, b))


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(
    ("text", "function"), [("<", np.less), (">=", np.greater_equal), ("==", np.equal), ("!=", np.not_equal)]
)
def test_integers_compare_by_their_sign(name: str, text: str, function: Any) -> None:
    a, b = values(name, 0), values(name, 1)
    got = computed(f"ct::element_cast<bool>(a {text} b)", [a, b], np.zeros(N, bool), [name, name, "?"])
    assert (got == function(a, b)).all()


@pytest.mark.parametrize("name", INTEGERS)
def test_shifts(name: str) -> None:
    a = values(name, 0)
    by = (values(name, 3).view(f"u{a.dtype.itemsize}") % (8 * a.dtype.itemsize)).astype(a.dtype)
    same(computed("a << b", [a, by], np.zeros(N, a.dtype), [name] * 3), np.left_shift(a, by))
    same(computed("a >> b", [a, by], np.zeros(N, a.dtype), [name] * 3), np.right_shift(a, by))


@pytest.mark.parametrize("name", INTEGERS)
def test_division(name: str) -> None:
    a, b = values(name, 0), values(name, 1)
    b = np.where((b == 0) | (b.astype("f8") == -1), b.dtype.type(3), b)

    def truncated(x: int, y: int) -> int:
        return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    for text, function in (
        ("a / b", truncated),
        ("a % b", lambda x, y: x - truncated(x, y) * y),
        ("ct::floordiv(a, b)", lambda x, y: x // y),
        ("ct::ceildiv(a, b)", lambda x, y: -(-x // y)),
    ):
        same(
            computed(text, [a, b], np.zeros(N, a.dtype), [name] * 3),
            np.array([function(x, y) for x, y in pairs], a.dtype),
        )


@pytest.mark.parametrize("name", ["i4", "i8", "u4", "u8"])
def test_high_halves(name: str) -> None:
    a, b = values(name, 0), values(name, 1)
    bits = 8 * a.dtype.itemsize
    want = [x * y >> bits for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    try:
        got = computed("ct::mulhi(a, b)", [a, b], np.zeros(N, a.dtype), [name] * 3)
    except ck.CompileError:
        assert name.startswith("i")  # the header has it for unsigned numbers only
        return
    same(got, np.array(want, a.dtype))


# ── conversions ──


@pytest.mark.parametrize("source", [*INTEGERS, "?"])
@pytest.mark.parametrize("target", ["f2", "bf16", "f4", "f8"])
def test_integers_become_floats(source: str, target: str) -> None:
    a = values(source, 0)
    got = computed(f"ct::element_cast<{CPP[target]}>(a)", [a], np.zeros(N, dtype_of(target)), [source, target])
    bits = {"f2": 11, "bf16": 8, "f4": 24, "f8": 53}[target]

    def nearest(x: int) -> float:
        extra = max(0, abs(x).bit_length() - bits)
        unit = 1 << extra
        down, rest = divmod(x, unit)
        up = 2 * rest > unit or (2 * rest == unit and down & 1)
        return float((down + up) * unit)

    with np.errstate(all="ignore"):
        want = np.array([nearest(int(x)) for x in a.tolist()]).astype(dtype_of(target))
    same(got, want)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_floats_become_integers(source: str, target: str) -> None:
    info = np.iinfo(target)
    a = np.linspace(max(info.min, -1000), min(info.max, 1000), N).astype(dtype_of(source))
    a = a[(a.astype("f8") >= info.min) & (a.astype("f8") <= info.max)]
    a = np.resize(a, N)
    got = computed(f"ct::element_cast<{CPP[target]}>(a)", [a], np.zeros(N, target), [source, target])
    assert (got == np.trunc(a.astype("f8")).astype(target)).all()


@pytest.mark.parametrize("source", [*FLOATS, "e4m3", "e5m2"])
@pytest.mark.parametrize("target", [*FLOATS, "e4m3", "e5m2"])
def test_floats_become_floats(source: str, target: str) -> None:
    a, dtype = values(source, 0), dtype_of(target)
    got = computed(f"ct::element_cast<{CPP[target]}>(a)", [a], np.zeros(N, dtype), [source, target])
    table = np.arange(1 << 8 * min(2, dtype.itemsize), dtype=f"u{min(2, dtype.itemsize)}")
    with np.errstate(all="ignore"):
        if dtype.itemsize > 2:
            same(got, a.astype("f8").astype(dtype))
            return
        held = table.view(dtype).astype("f8")
    finite = np.sort(held[np.isfinite(held) & ~((held == 0) & np.signbit(held))])
    for x, y in zip(a.astype("f8"), got.astype("f8"), strict=True):
        if np.isnan(x):
            assert np.isnan(y)
        elif dtype.itemsize == 1 and abs(x) >= finite[-1]:
            assert y == np.copysign(finite[-1], x)  # these stay finite
        elif np.isfinite(y):
            assert abs(x - y) == np.abs(finite - x).min()
        else:
            step = finite[-1] - finite[-2]
            assert abs(x) >= finite[-1] + step / 2


def test_ties_of_float64_round_once() -> None:
    # Just over a tie between two of the narrow type, and float32 would say that it is one.
    a = np.full(N, 1 + 2.0**-8 + 2.0**-40)
    same(
        computed("ct::element_cast<__nv_bfloat16>(a)", [a], np.zeros(N, BF16), ["f8", "bf16"]),
        np.full(N, 1 + 2**-7, BF16),
    )
    large = np.full(N, (1 << 40) + (1 << 32) + 1, "i8")
    same(
        computed("ct::element_cast<__nv_bfloat16>(a)", [large], np.zeros(N, BF16), ["i8", "bf16"]),
        np.full(N, (1 << 40) + (1 << 33), "f8").astype(BF16),
    )


def test_tf32_keeps_eleven_bits() -> None:
    a = np.resize(np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-12, -3.14159, 1e30], "f4"), N)
    got = computed("ct::element_cast<float>(ct::element_cast<__nv_tf32>(a))", [a], np.zeros(N, "f4"), ["f4"] * 2)
    unit = 2.0 ** (np.floor(np.log2(np.abs(a.astype("f8")))) - 10)
    same(got, (np.rint(a.astype("f8") / unit) * unit).astype("f4"))


@pytest.mark.parametrize(("source", "target"), [("f4", "u4"), ("f2", "i2"), ("f8", "i8"), ("i4", "f4")])
def test_bits_are_kept(source: str, target: str) -> None:
    a = values(source, 0)
    same(
        computed(f"ct::element_bitcast<{CPP[target]}>(a)", [a], np.zeros(N, target), [source, target]),
        a.view(target),
    )


@pytest.mark.parametrize(("source", "target"), [("i1", "i8"), ("u1", "i4"), ("i8", "i2"), ("u4", "u1"), ("?", "i4")])
def test_integers_become_wider_and_narrower(source: str, target: str) -> None:
    a = values(source, 0)
    same(computed(f"ct::element_cast<{CPP[target]}>(a)", [a], np.zeros(N, target), [source, target]), a.astype(target))


# ── what is undefined ──


@pytest.mark.parametrize("text", ["n / (n - 4)", "n % (n - 4)", "n << (n + 28)", "n >> (n - 5)"])
def test_what_is_undefined_of_numbers_is_an_error(text: str) -> None:
    with pytest.raises(ck.EmulationError, match="divided by 0|shifted by"):
        kernel(f"x[0] = {text};", "int* x, int n")(ck.emulator.stream(), ck.config(1), np.zeros(4, "i4"), 4)


def test_what_pads_a_tile_may_divide() -> None:
    a = np.arange(1, 101, dtype="i4")
    out = np.zeros(100, "i4")
    body = "auto v = tiles_of<64>(x, n); int i = ct::bid().x; "
    body += "tiles_of<64>(y, n).store_masked(1000 / v.load_masked(i), i);"
    kernel(body, "const int* __restrict__ x, int* __restrict__ y, int n")(
        ck.emulator.stream(), ck.config(2), a, out, 100
    )
    assert (out == 1000 // a).all()
