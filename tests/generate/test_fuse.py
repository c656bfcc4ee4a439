"""Fused functions: NumPy's results and dtypes, and what cannot be traced."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.places import another, to_host
from support.tiers import in_tiers
from support.views import few

import cudakit as ck

fuse_module = import_module("cudakit.generate.fuse")


def same(got: Any, want: Any) -> None:
    """The same dtype, shape and bits (of NaN only that it is one)."""
    host, want = to_host(got), np.asarray(want)
    assert host.dtype == want.dtype
    assert host.shape == want.shape
    np.testing.assert_array_equal(host, want)
    if want.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(host[host == 0]), np.signbit(want[want == 0]))


def check(function: Callable[..., Any], xp: Any, *args: Any, **named: Any) -> Any:
    """Fused and unfused give the same."""
    fused = function if isinstance(function, ck.generate.Fused) else ck.fuse(function)
    given = [xp.asarray(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    got = fused(*given, **named)
    with np.errstate(all="ignore"):
        want = fused.function(*args, **named)
    for mine, theirs in zip(*((each if isinstance(each, tuple) else (each,)) for each in (got, want)), strict=True):
        same(mine, theirs)
    return fused


def numbers(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(shape) * 10
    return values.astype(dtype)


@in_tiers("dtype", ["f4", "f8", "f2", "i4"], quick=lambda dtype: dtype in ("f4", "i4"), strength=None)
def test_operators_and_functions(xp: Any, dtype: str) -> None:
    def mixed(x: Any, y: Any, a: Any) -> Any:
        z = (x * x + y * 2 - a) / 3
        z += 1
        return np.where(x > y, z, -x), (x > 0) & ~(y < 2), np.maximum(x, y) ** 2, np.floor_divide(x, 3), abs(y) % 5

    check(mixed, xp, numbers(dtype, 6, 70), numbers(dtype, 70, seed=1), 2)


def test_no_multiply_add_is_fused(xp: Any) -> None:
    x = np.random.default_rng(3).random(2000).astype("f4")
    check(lambda x, y: x * y + x, xp, x, x[::-1].copy())
    check(lambda x, y: x * y - y * x, xp, x, x[::-1].copy())


def test_rounding_of_half_after_each_operation(xp: Any) -> None:
    x = np.random.default_rng(3).random(500).astype("f2")
    check(lambda x, y: (x * y + x) * 3 - np.sqrt(y), xp, x, x[::-1].copy())


def test_constants_of_every_kind(xp: Any) -> None:
    def constants(x: Any) -> Any:
        return (
            x + 0.1,
            x * np.float64(0.1),
            np.where(x > 1, np.inf, -0.0),
            np.where(x > 1, np.nan, 1),
            x + (1 + 2j),
            np.where(x > 0, -(2**63), 2**62 + 1),
            np.where(x > 0, np.uint64(2**64 - 1), np.uint64(1)),
            x + np.int8(-128),
            x + True,
            np.where(x > 0, True, False),
            np.float16(0.1) + x.astype("f2"),
        )

    check(constants, xp, numbers("f4", 40))


def test_casts_parts_and_two_outputs(xp: Any) -> None:
    def parts(x: Any) -> Any:
        mantissa, exponent = np.frexp(x)
        fraction, whole = np.modf(x)
        quotient, rest = divmod(x, 3)
        z = x.astype("c16") * (1 + 2j)
        return (
            mantissa,
            exponent,
            fraction,
            whole,
            quotient,
            rest,
            z.real,
            z.imag,
            z.conj(),
            x.clip(-2, 5),
            np.clip(x, None, 4),
            np.zeros_like(x),
            np.ones_like(x, dtype="i2"),
            x.astype("i4"),
        )

    check(parts, xp, numbers("f8", 40))


def test_python_numbers_stay_weak(xp: Any) -> None:
    def weak(x: Any, a: Any, b: Any) -> Any:
        return x * (a + b), (a * 2) + x, x + b**2, x / a

    for dtype in ("f4", "i2"):
        fused = check(weak, xp, numbers(dtype, 30), 3, 4)
    check(fused, xp, numbers("f4", 30), 2.5, 4)
    small = ck.fuse(lambda x, a: x + a)
    with pytest.raises(ck.ArgumentError, match=r"argument a.*300"):
        small(xp.zeros(3, np.uint8), 300)


def test_one_kernel_a_signature(xp: Any) -> None:
    calls = []

    def count(x: Any, scale: Any = 2.0) -> Any:
        calls.append(1)
        return x * scale

    fused = ck.fuse(count)
    for _ in range(3):
        same(fused(xp.ones(4)), np.full(4, 2.0))
    fused(xp.ones((2, 4)), 3.5)
    assert len(calls) == 1
    fused(xp.ones(4, np.float32), scale=2)
    assert len(calls) == 2
    assert "cudakit::ufunc::multiply" in fused.source


def test_static_arguments_and_bools(xp: Any) -> None:
    @ck.fuse(static=("n",))
    def power(x: Any, n: int, negate: bool = False) -> Any:
        z = x
        for _ in range(n - 1):
            z = z * x
        return -z if negate else z

    x = np.arange(5.0)
    same(power(xp.asarray(x), 3), x**3)
    same(power(xp.asarray(x), 2, negate=True), -(x**2))
    with pytest.raises(ck.TemplateError, match="no argument m"):
        ck.fuse(lambda x: x, static=("m",))


def test_out_and_layouts(xp: Any, stream: Any) -> None:
    fused = ck.fuse(lambda x, y: x - 2 * y)
    x, y = numbers("f4", 40, 33), numbers("f4", 33, 40)
    out = xp.zeros((40, 33), np.float32)
    assert fused(xp.asarray(x), xp.asarray(y).T, out=out) is out
    same(out, x - 2 * y.T)
    same(fused(xp.asarray(x)[::2], xp.asarray(y).T[:1], stream=stream), x[::2] - 2 * y.T[:1])


@pytest.mark.slow
@pytest.mark.parametrize("examples", [10, pytest.param(50, marks=pytest.mark.exhaustive)])
def test_random_expressions(xp: Any, examples: int) -> None:
    """A chain of operations on two arrays; few kinds of chain, since each is compiled."""
    ops = [np.add, np.subtract, np.multiply, np.maximum, np.fmin, np.copysign, np.hypot][:6]
    chains = st.lists(st.integers(0, len(ops) - 1), min_size=1, max_size=3)
    kinds = st.sampled_from([("f4", "f4"), ("f4", "i4"), ("f2", "i1"), ("i8", "f4")])

    @settings(few, max_examples=examples)
    @given(chains, kinds)
    def agrees(picks: list[int], dtypes: tuple[str, str]) -> None:
        def chain(x: Any, y: Any) -> Any:
            z = x
            for k, pick in enumerate(picks):
                z = ops[pick](z, y if k % 2 == 0 else 3)
            return z

        check(chain, xp, numbers(dtypes[0], 3, 5), numbers(dtypes[1], 5, seed=2))

    agrees()


# ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_a_reduction_at_the_end(xp: Any, axis: Any) -> None:
    x, y = numbers("f8", 30, 41), numbers("f8", 41, seed=1)
    fused = ck.fuse(lambda x, y, axis: np.sqrt(np.sum((x - y) ** 2, axis=axis)) / 2, static=("axis",))
    got = fused(xp.asarray(x), xp.asarray(y), axis)
    want = fused.function(x, y, axis)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(to_host(got), want, rtol=1e-13)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("sum", "i2"),
        pytest.param("max", "f4", marks=pytest.mark.slow),
        pytest.param("min", "i8", marks=pytest.mark.slow),
        ("any", "f4"),
        pytest.param("prod", "i4", marks=pytest.mark.slow),
    ],
)
def test_kinds_of_reduction(xp: Any, kind: str, dtype: str) -> None:
    x = numbers(dtype, 20, 33)
    fused = ck.fuse(lambda x: getattr(x + 1, kind)(axis=1))
    same(fused(xp.asarray(x)), getattr(x + 1, kind)(axis=1))


def test_mean_keepdims_and_half(xp: Any) -> None:
    x = np.arange(60).reshape(6, 10)
    fused = ck.fuse(lambda x: np.mean(x * 2, axis=1, keepdims=True))
    same(fused(xp.asarray(x)), np.mean(x * 2, axis=1, keepdims=True))
    half = ck.fuse(lambda x: (x * 2).sum())
    same(half(xp.asarray(x.astype("f2"))), (x * 2).sum().astype("f2"))


# ── what cannot be traced ────────────────────────────────────────────────────────────────────────────────────────────


def _if(x: Any) -> Any:
    if x > 0:
        return x
    return -x


def _product(x: Any) -> Any:
    return x @ x


def _write(x: Any) -> Any:
    part = x[1:]
    part += 1
    return x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_if, "the truth of a value worked out"),
        (lambda x: x[[0, 1]], "x is indexed by list"),
        (lambda x: x[x > 0], "x is indexed by"),
        (lambda x: x.__setitem__(0, 1), "x is written at an index"),
        (lambda x: x + np.ones(3), "ndarray cannot be fused; give arrays as arguments"),
        (lambda x: np.sort(x), "numpy.sort cannot be fused"),
        (lambda x: np.matmul(x, x), "numpy.matmul cannot be fused: sums over an axis"),
        (lambda x: np.add.accumulate(x), "numpy.add.accumulate"),
        (_product, "a matrix product"),
        (lambda x: x.reshape(3, order="F"), r"x.reshape\(order='F'\) cannot be fused"),
        (lambda x: x.flatten(), "x.flatten cannot be fused"),
        (lambda x: float(x), "used as a number"),
        (lambda x: len(x), "taken apart"),
        (_write, "writes into a part of an array"),
        (lambda x: np.add(x, 1, out=np.ones(3)), "writes into something that is no array"),
        (lambda x: np.add(x, 1j, out=x), "complex128 cannot be written to float64"),
        (lambda x: x.max(where=x > 0), "but with initial="),
        (lambda x: (x, None), "it returns NoneType"),
        (lambda x: x.shape, "it returns int"),
        (lambda x: x.strides, "x.strides cannot be fused"),
        (lambda x: "text", "it returns str"),
        (lambda x: -(x > 0), "boolean negative"),
    ],
)
def test_what_cannot_be_fused_says_where(xp: Any, function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ck.TemplateError, match=message) as raised:
        ck.fuse(function)(xp.ones(3))
    lines, first = inspect.getsourcelines(function)
    assert any(f"{__file__}:{first + k}: " in str(raised.value) for k in range(len(lines)))


@ck.fuse
def _decorated(x: Any) -> Any:
    return x + 1


@pytest.mark.emulator
def test_a_decorated_function_is_pickled_by_its_name() -> None:
    again = pickle.loads(pickle.dumps(_decorated))
    same(again(np.zeros(3)), np.ones(3))
    assert _decorated.function.__qualname__ == "_decorated.function"
    assert again.function is _decorated.function


@pytest.mark.emulator
def test_what_comes_again_as_a_whole() -> None:
    """Elements of arguments alone, or one reduction with all that is made of it."""

    def is_plain(function: Callable[..., Any], count: int = 1) -> bool:
        fused = ck.fuse(function)
        key = [(name, np.dtype("f4"), None) for name in "xy"[:count]]
        return fuse_module._TracedCall(fused, key, [(2, 3)] * count).stages.is_plain

    def written(x: Any) -> None:
        x += 1

    assert is_plain(lambda x: x + 1)
    assert is_plain(lambda x, y: (x + y, x - y), 2)
    assert is_plain(lambda x: x.sum() * 2)
    assert not is_plain(lambda x: (x.sum(), x.max()))
    assert not is_plain(written)
    assert not is_plain(lambda x: x.T + 1)
    assert not is_plain(lambda x: x - x.sum())


def test_bad_calls(xp: Any) -> None:
    fused = ck.fuse(lambda x, y: x + y, name="sum_of_two")
    for call, message in [
        (lambda: fused(xp.ones(3)), "sum_of_two: missing a required argument: 'y'"),
        (lambda: fused(1, 2), "none of its arguments is an array"),
        (lambda: fused(xp.ones(3), [1, 2]), "y is list"),
        (lambda: fused(xp.ones(3), xp.ones(4)), "cannot be broadcast together"),
        (lambda: fused(xp.ones(3), xp.ones(3), out=(None, None)), "sum_of_two has 1 results; out has 2"),
        (lambda: ck.fuse(lambda x, n: x, static="n")(xp.ones(3), [1]), r"constants are numbers.*; n is \[1\]"),
        (lambda: ck.fuse(lambda x: x[5])(xp.ones(3)), "ndex 5 is out of bounds"),
    ]:
        with pytest.raises(ck.ArgumentError, match=message):
            call()
    with pytest.raises(ck.TemplateError, match="was not called yet"):
        _ = ck.fuse(lambda x: x).source


@pytest.mark.emulator
def test_times_are_refused() -> None:
    with pytest.raises(ck.CudakitError, match=r"y is of datetime64\[s\], which has no C"):
        ck.fuse(lambda x, y: x + y)(np.ones(3), np.zeros(3, "M8[s]"))


def _endless(x: Any, n: int = 0) -> Any:
    return _endless(x, n + 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ck.fuse(3), "fuse: it takes a function of arrays, got 3"),  # type: ignore[call-overload]
        (lambda: ck.fuse(static=(1,)), r"fuse: static names arguments, as in static=\('n',\), got \(1,\)"),
        (lambda: ck.fuse(static={"n"}), "fuse: static names arguments, .* got {'n'}"),
        (lambda: ck.fuse(max), "max: its arguments are not known to Python"),
        (lambda: ck.fuse(_endless)(np.ones(3)), "_endless: recursion without end|fused: recursion without end"),
        (lambda: ck.fuse(lambda x: 3)(np.ones(3)), r"it returns int; return an array, or a tuple of them"),
        (lambda: ck.fuse(lambda x, n: n + 1)(np.ones(3), 2), "it returns a number; return an array"),
    ],
)
@pytest.mark.emulator
def test_bad_functions(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ck.TemplateError, match=message):
        make()


@pytest.mark.emulator
def test_arguments_of_every_kind() -> None:
    """By position and by name, those of ``*args`` and ``**named`` each."""

    def mixed(x: Any, *more: Any, scale: Any, **named: Any) -> Any:
        return sum([each * scale for each in more], x * named["last"] - named["first"])

    x, y = np.arange(4.0), np.ones(4)
    same(ck.fuse(mixed)(x, y, 2 * y, scale=3, last=2.0, first=y), mixed(x, y, 2 * y, scale=3, last=2.0, first=y))
    named = ck.fuse(lambda x, n: x * n, static="n", name="times_")
    same(named(x, 3), 3 * x)
    assert (named.static, named.name) == (("n",), "fused")


@pytest.mark.gpu
def test_cupys_own_functions(xp: Any) -> None:
    x = numbers("f4", 50)
    fused = ck.fuse(lambda x: xp.where(xp.sqrt(xp.abs(x)) > 1, xp.maximum(x, 0.5), x))
    same(fused(xp.asarray(x)), np.where(np.sqrt(np.abs(x)) > 1, np.maximum(x, np.float32(0.5)), x))


def _sum(x: Any, y: Any) -> Any:
    return x + y


def test_what_a_fused_function_looks_like() -> None:
    fused = ck.fuse(_sum)
    assert inspect.signature(fused) == inspect.signature(_sum)
    assert fused.__name__ == "_sum"
    assert "_sum(x" in repr(fused)
    again = pickle.loads(pickle.dumps(fused))
    assert again.function is _sum
    holder = type("Holder", (), {"fused": fused})
    assert holder().fused is fused


def test_repeated_calls_on_other_arrays(stream: Any, xp: Any) -> None:
    """Calls of a known kind take a short way, which must still see another array, another constant and an overlap."""

    @ck.fuse(static=("scale",))
    def scaled(x: Any, scale: int, unused: Any, y: Any = 2.0, negative: bool = False) -> Any:
        return -(x * scale) - y if negative else x * scale - y

    @ck.fuse
    def norm(x: Any, y: Any) -> Any:
        return np.sqrt((x * x + y * y).sum(axis=0))

    two, three = np.float32(2), np.float32(3)
    for k in range(12):
        host, less = numbers("f4", 50) + np.float32(k), np.float32(k)
        x, y, out = xp.array(host), xp.full(50, k, "f4"), xp.zeros(50, "f4")
        same(scaled(x, 2, x), host * two - two)
        same(scaled(x, 3, x), host * three - two)
        same(scaled(x, 2, x, y), host * two - less)
        same(scaled(x, 2, None, y, True), -(host * two) - less)
        assert scaled(x, 2, x, y, out=out) is out
        same(out, host * two - less)
        assert scaled(x, 2, x, y, out=x) is x
        same(x, host * two - less)
        np.testing.assert_allclose(to_host(norm(y, y)), np.sqrt(100.0 * k * k), rtol=1e-6)
    host = to_host(x).copy()
    same(scaled(x[1:], 2, None, y[1:], out=x[:-1]), host[1:] * two - less)
    host = to_host(x).copy()
    other = another(stream)
    with ck.using(other):
        same(scaled(x, 2, x, y), host * two - less)
    other.sync()


def test_a_constant_is_told_by_its_bits(xp: Any) -> None:
    signed = ck.fuse(lambda x, c: np.copysign(x, c), static=["c"])
    x = xp.ones(3, "f4")
    assert to_host(signed(x, 0.0)).tolist() == [1, 1, 1]
    assert to_host(signed(x, -0.0)).tolist() == [-1, -1, -1]
    assert to_host(signed(x, 0.0)).tolist() == [1, 1, 1]
