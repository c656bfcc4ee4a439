"""Operations of Tile IR that C++ reaches, beside NumPy: every bit of integers, conversions and rounded arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.tiers import thinned
from support.tiles import Together, needs_tiles

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


def narrow(given: Any, dtype: np.dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(given).astype("f8").astype(dtype)


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
        odd = narrow([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 6e-8, -1e-40, 3.4e38], dtype)
        made = narrow(rng.standard_normal(count) * 2.0 ** rng.integers(-12, 12, count), dtype)
    tiled = np.repeat(odd, odd.size) if seed % 2 else np.tile(odd, odd.size)
    made[: tiled.size] = tiled[:count]
    return made


together = Together(INCLUDES)


def parts(texts: Iterable[str], types: Sequence[str]) -> tuple[str, str]:
    """Body and parameters of the kernel that stores what each text over tiles a, b, c … gives, a row each."""
    texts, names = list(texts), "abcdefghi"[: len(types) - 1]
    head = "".join(f"const {CPP[each]}* __restrict__ {name}_, " for each, name in zip(types, names, strict=False))
    loads = "".join(f"auto {name} = tiles_of<{N}>({name}_, {N}).load_masked(0);\n" for name in names)
    stores = "".join(
        f"tiles_of<{N}>(out, {N * len(texts)}).store_masked({text}, {row});\n" for row, text in enumerate(texts)
    )
    return loads + stores, f"{head}{CPP[types[-1]]}* __restrict__ out"


def declare(texts: Iterable[str], *types: Sequence[str]) -> None:
    """Have `computed` give the texts for tiles of these types, and an output of the last of them."""
    for each in types:
        together.declare(*parts(texts, each))


def computed(texts: Iterable[str], inputs: list[np.ndarray], types: Sequence[str]) -> np.ndarray:
    """What each text over tiles a, b, c … gives, in one kernel: a row each."""
    out = np.zeros((len(list(texts)), N), dtype_of(types[-1]))
    together(*parts(texts, types))(ck.emulator.stream(), ck.config(1), *inputs, out)
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


ARITHMETIC: dict[str, Any] = {
    "a + b": np.add, "a - b": np.subtract, "a * b": np.multiply, "a / b": np.divide, "ct::remainder(a, b)": np.fmod,
}  # fmt: skip
OF_ONE: dict[str, Any] = {"ct::abs(a)": np.abs, "-a": np.negative, "ct::floor(a)": np.floor, "ct::ceil(a)": np.ceil}
declare(ARITHMETIC, *([name] * 3 for name in FLOATS))
declare(OF_ONE, *([name] * 2 for name in FLOATS))


@pytest.mark.parametrize("name", thinned(FLOATS, 2))
def test_arithmetic(name: str) -> None:
    a, b = values(name, 0), values(name, 1)
    for row, function in zip(computed(ARITHMETIC, [a, b], [name] * 3), ARITHMETIC.values(), strict=True):
        same(row, rounded(function, a, b))
    for row, function in zip(computed(OF_ONE, [a], [name] * 2), OF_ONE.values(), strict=True):
        same(row, rounded(function, a))


FMA = ["ct::fma(a, b, c)"]
declare(FMA, *([name] * 4 for name in FLOATS))


@pytest.mark.parametrize("name", thinned(FLOATS, 2))
def test_fma(name: str) -> None:
    a, b = values(name, 0), values(name, 1)
    got = computed(FMA, [a, b, a], [name] * 4)[0]
    with np.errstate(all="ignore"):
        wide = a.astype("g") * b.astype("g") + a.astype("g")
        want = wide.astype("f8").astype("f4").astype(a.dtype) if a.dtype.itemsize == 2 else wide.astype(a.dtype)
        got_wide, want_wide = got.astype("f8"), want.astype("f8")
        close = np.abs(got_wide - want_wide) <= {"f2": 2e-3, "bf16": 8e-3, "f4": 1e-7, "f8": 3e-16}[name] * abs(
            want_wide
        )
    assert (close | (got == want) | np.isnan(want_wide)).all()


EXTREMA = [f"ct::{which}(a, b{tag})" for which in ("max", "min") for tag in ("", ", ct::propagate_nan_t{}")]
declare(EXTREMA, *([name] * 3 for name in FLOATS))


@pytest.mark.parametrize("name", thinned(FLOATS, 2))
def test_extrema(name: str) -> None:
    a, b = values(name, 0), values(name, 1)
    rows = computed(EXTREMA, [a, b], [name] * 3)
    pairs = list(zip(a.astype("f8"), b.astype("f8"), strict=True))
    for place, pick in enumerate((max, min)):

        def best(x: float, y: float, pick: Any = pick) -> Any:
            return pick(x, y, key=lambda each: (each, not np.signbit(each)))

        want = [y if np.isnan(x) else x if np.isnan(y) else best(x, y) for x, y in pairs]
        same(rows[2 * place], narrow(want, a.dtype))
        want = [np.nan if np.isnan(x) or np.isnan(y) else best(x, y) for x, y in pairs]
        same(rows[2 * place + 1], narrow(want, a.dtype))


COMPARED: dict[str, Any] = {
    f"ct::element_cast<bool>(a {text} b)": function
    for text, function in {
        "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    }.items()
}  # fmt: skip
declare(COMPARED, *([name, name, "?"] for name in (*FLOATS, *INTEGERS)))


@pytest.mark.parametrize("name", thinned([*FLOATS, *INTEGERS], 6))
def test_comparisons(name: str) -> None:
    a, b = values(name, 0), values(name, 1)
    for row, function in zip(computed(COMPARED, [a, b], [name, name, "?"]), COMPARED.values(), strict=True):
        with np.errstate(all="ignore"):
            assert (row == function(a, b)).all()


FUNCTIONS = {
    f"ct::{name}(a)": name
    for name in ["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"]
}
declare(FUNCTIONS, *([name] * 2 for name in FLOATS))


@pytest.mark.parametrize("name", thinned(FLOATS, 4))
def test_functions(name: str) -> None:
    a = values(name, 0)
    rows = computed(FUNCTIONS, [a], [name] * 2).astype("f8")
    for got, which in zip(rows, FUNCTIONS.values(), strict=True):
        function = getattr(np, which, lambda value: 1 / np.sqrt(value))
        with np.errstate(all="ignore"):
            want = function(a.astype("f8")).astype(a.dtype).astype("f8")
            bound = {"f2": 2e-3, "bf16": 8e-3, "f4": 3e-7, "f8": 1e-15}[name] * np.abs(want)
            assert ((np.abs(got - want) <= bound) | (got == want) | (np.isnan(got) & np.isnan(want))).all(), which


ROUNDED: dict[str, Any] = {"add": np.add, "mul": np.multiply, "div": np.divide}
DIRECTED = [
    f"ct::{name}(a, b, ct::round_toward_{tag}_t{{}})" for name in ROUNDED for tag in ("zero", "negative", "positive")
]
declare(DIRECTED, ["f4"] * 3)


def test_directed_rounding() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(N).astype("f4") for _ in range(2))
    rows = iter(computed(DIRECTED, [a, b], ["f4"] * 3))
    for function in ROUNDED.values():
        exact = function(a.astype("g"), b.astype("g"))
        for sign in (-np.sign(exact), -1, 1):
            got = next(rows)
            away = got.astype("g") - exact
            assert (np.abs(away) < np.spacing(np.abs(got)).astype("g")).all()
            assert (away * sign >= 0).all()


# ── integers ──


WRAPPED: dict[str, Any] = {
    "a + b": np.add, "a - b": np.subtract, "a * b": np.multiply, "a & b": np.bitwise_and, "a | b": np.bitwise_or,
    "a ^ b": np.bitwise_xor, "ct::max(a, b)": np.maximum, "ct::min(a, b)": np.minimum,
    "-a": lambda a, b: np.negative(a), "~a": lambda a, b: np.invert(a),
}  # fmt: skip
SHIFTED = ["a << b", "a >> b"]
declare(WRAPPED, *([name] * 3 for name in INTEGERS))
declare(SHIFTED, *([name] * 3 for name in INTEGERS))


@pytest.mark.parametrize("name", thinned(INTEGERS, 8))
def test_integers_wrap_around(name: str) -> None:
    a, b = values(name, 0), values(name, 1)
    for row, function in zip(computed(WRAPPED, [a, b], [name] * 3), WRAPPED.values(), strict=True):
        same(row, function(a, b))
    size = a.dtype.itemsize
    by = (values(name, 3).view(f"u{size}") % (8 * size)).astype(a.dtype)
    left, right = computed(SHIFTED, [a, by], [name] * 3)
    same(left, np.left_shift(a, by))
    same(right, np.right_shift(a, by))


def truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


DIVIDED: dict[str, Any] = {
    "a / b": truncated,
    "a % b": lambda x, y: x - truncated(x, y) * y,
    "ct::floordiv(a, b)": lambda x, y: x // y,
    "ct::ceildiv(a, b)": lambda x, y: -(-x // y),
}
declare(DIVIDED, *([name] * 3 for name in INTEGERS))


@pytest.mark.parametrize("name", thinned(INTEGERS, 4))
def test_division(name: str) -> None:
    a, b = values(name, 0), values(name, 1)
    b = np.where((b == 0) | (b.astype("f8") == -1), b.dtype.type(3), b)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    for row, function in zip(computed(DIVIDED, [a, b], [name] * 3), DIVIDED.values(), strict=True):
        same(row, np.array([function(x, y) for x, y in pairs], a.dtype))


WORDS, HIGH = ["i4", "i8", "u4", "u8"], ["ct::mulhi(a, b)"]
declare(HIGH, *([name] * 3 for name in WORDS))


@pytest.mark.parametrize("name", thinned(WORDS, 3))
def test_high_halves_are_those_of_unsigned_numbers(name: str) -> None:
    a, b = values(name, 0), values(name, 1)
    held, bits = f"u{a.dtype.itemsize}", 8 * a.dtype.itemsize
    want = [x * y >> bits for x, y in zip(a.view(held).tolist(), b.view(held).tolist(), strict=True)]
    same(computed(HIGH, [a, b], [name] * 3)[0], np.array(want, held).view(a.dtype))


# ── conversions ──


def cast_to(target: str, count: int) -> list[str]:
    return [f"ct::element_cast<{CPP[target]}>({letter})" for letter in "abcdefghi"[:count]]


def converted(sources: tuple[str, ...], target: str, inputs: list[np.ndarray]) -> np.ndarray:
    return computed(cast_to(target, len(sources)), inputs, [*sources, target])


def others_than(target: str) -> tuple[str, ...]:
    return tuple(name for name in NARROW if name != target)


NARROW = (*FLOATS, "e4m3", "e5m2")
WIDTHS = [("i1", "i8"), ("u1", "i4"), ("i8", "i2"), ("u4", "u1"), ("?", "i4")]
KEPT = [("f2", "i2"), ("f4", "u4"), ("i4", "f4"), ("f8", "i8")]
TF32 = ["ct::element_cast<float>(ct::element_cast<__nv_tf32>(a))"]
for one in (
    *(((*INTEGERS, "?"), target) for target in FLOATS),
    *((FLOATS, target) for target in INTEGERS),
    *((others_than(target), target) for target in NARROW),
    (("f8",), "bf16"), (("i8",), "bf16"), *(((source,), target) for source, target in WIDTHS),
):  # fmt: skip
    declare(cast_to(one[1], len(one[0])), [*one[0], one[1]])
for one in KEPT:
    declare([f"ct::element_bitcast<{CPP[one[1]]}>(a)"], one)
declare(TF32, ["f4"] * 2)


@pytest.mark.parametrize("target", thinned(FLOATS, 2))
def test_integers_become_floats(target: str) -> None:
    bits = {"f2": 11, "bf16": 8, "f4": 24, "f8": 53}[target]

    def nearest(x: int) -> float:
        unit = 1 << max(0, abs(x).bit_length() - bits)
        down, rest = divmod(x, unit)
        return float((down + (2 * rest > unit or (2 * rest == unit and down & 1))) * unit)

    sources = (*INTEGERS, "?")
    inputs = [values(each, 0) for each in sources]
    for row, given in zip(converted(sources, target, inputs), inputs, strict=True):
        same(row, narrow([nearest(int(x)) for x in given.tolist()], row.dtype))


@pytest.mark.parametrize("target", thinned(INTEGERS, 4))
def test_floats_become_integers(target: str) -> None:
    info, inputs = np.iinfo(target), []
    for source in FLOATS:
        a = np.linspace(max(info.min, -1000), min(info.max, 1000), N).astype(dtype_of(source))
        a = a[(a.astype("f8") >= info.min) & (a.astype("f8") <= info.max)]
        inputs.append(np.resize(a, N))
    for row, given in zip(converted(FLOATS, target, inputs), inputs, strict=True):
        assert (row == np.trunc(given.astype("f8")).astype(target)).all()


@pytest.mark.parametrize("target", thinned(NARROW, 2))
def test_floats_become_floats(target: str) -> None:
    sources = others_than(target)
    inputs, dtype = [values(each, 0) for each in sources], dtype_of(target)
    for got, a in zip(converted(sources, target, inputs), inputs, strict=True):
        if dtype.itemsize > 2:
            same(got, narrow(a, dtype))
        else:
            check_nearest(a.astype("f8"), got)


def check_nearest(a: np.ndarray, got: np.ndarray) -> None:
    """Each is the number of its type that is nearest; of 8 bits the largest one stands for all that are larger."""
    bits = 8 * got.dtype.itemsize
    with np.errstate(all="ignore"):
        held = np.arange(1 << bits, dtype=f"u{bits // 8}").view(got.dtype).astype("f8")
    finite = np.sort(held[np.isfinite(held)])
    for x, y in zip(a, got.astype("f8"), strict=True):
        if np.isnan(x):
            assert np.isnan(y)
        elif bits == 8 and abs(x) >= finite[-1]:
            assert y == np.copysign(finite[-1], x)
        elif np.isfinite(y):
            assert abs(x - y) == np.abs(finite - x).min()
        else:
            assert abs(x) >= finite[-1] + (finite[-1] - finite[-2]) / 2


def test_ties_of_float64_round_once() -> None:
    # Just over a tie between two of the narrow type, and float32 would say that it is one.
    a = np.full(N, 1 + 2.0**-8 + 2.0**-40)
    same(
        converted(("f8",), "bf16", [a])[0],
        np.full(N, 1 + 2**-7, BF16),
    )
    large = np.full(N, (1 << 40) + (1 << 32) + 1, "i8")
    same(
        converted(("i8",), "bf16", [large])[0],
        np.full(N, (1 << 40) + (1 << 33), "f8").astype(BF16),
    )


def test_tf32_keeps_eleven_bits() -> None:
    a = np.resize(np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-12, -3.14159, 1e30], "f4"), N)
    got = computed(TF32, [a], ["f4"] * 2)[0]
    unit = 2.0 ** (np.floor(np.log2(np.abs(a.astype("f8")))) - 10)
    same(got, (np.rint(a.astype("f8") / unit) * unit).astype("f4"))


@pytest.mark.parametrize(("source", "target"), thinned(KEPT, 2, several=True))
def test_bits_are_kept(source: str, target: str) -> None:
    a = values(source, 0)
    same(
        computed([f"ct::element_bitcast<{CPP[target]}>(a)"], [a], [source, target])[0],
        a.view(target),
    )


@pytest.mark.parametrize(("source", "target"), thinned(WIDTHS, 2, several=True))
def test_integers_become_wider_and_narrower(source: str, target: str) -> None:
    a = values(source, 0)
    same(converted((source,), target, [a])[0], a.astype(target))


# ── what is undefined ──


UNDEFINED = ["n / (n - 4)", "n % (n - 4)", "n << (n + 28)", "n >> (n - 5)"]
for one_text in UNDEFINED:
    together.declare(f"x[0] = {one_text};", "int* x, int n")


@pytest.mark.parametrize("text", UNDEFINED)
def test_what_is_undefined_of_numbers_is_an_error(text: str) -> None:
    with pytest.raises(ck.EmulationError, match=r"divided by 0|shifted by"):
        together(f"x[0] = {text};", "int* x, int n")(ck.emulator.stream(), ck.config(1), np.zeros(4, "i4"), 4)


PADDED = (
    "auto v = tiles_of<64>(x, n); int i = ct::bid().x; tiles_of<64>(y, n).store_masked(1000 / v.load_masked(i), i);",
    "const int* __restrict__ x, int* __restrict__ y, int n",
)
together.declare(*PADDED)


def test_what_pads_a_tile_may_divide() -> None:
    a = np.arange(1, 101, dtype="i4")
    out = np.zeros(100, "i4")
    together(*PADDED)(ck.emulator.stream(), ck.config(2), a, out, 100)
    assert (out == 1000 // a).all()
