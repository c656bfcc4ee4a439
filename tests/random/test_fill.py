"""How numbers of a distribution are made: kernels, their arguments and what they use up, without a launch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudakit as ck
from cudakit import config
from cudakit.random import Generator, generator

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
pytestmark = pytest.mark.emulator


def shown(kernel: Any) -> str:
    return repr(kernel).removeprefix("<cudakit.Kernel ").partition(" from ")[0]


def test_keys_of_the_rounds() -> None:
    for key in (0, 1, 2**64 - 1, 0x0123456789ABCDEF):
        made = generator.keys_of(key)
        assert made["first"].tolist() == [(key + round * 0x9E3779B9) % 2**32 for round in range(10)]
        assert made["second"].tolist() == [(key // 2**32 + round * 0xBB67AE85) % 2**32 for round in range(10)]


def test_a_thread_makes_four_times_16_bytes() -> None:
    for size, itemsize, blocks in ((1, 1, 1), (4096, 4, 1), (4097, 4, 2), (2**20, 8, 512), (2**50, 8, 2**31 - 1)):
        assert generator._launch(size, itemsize) == config(blocks, 256)


@pytest.mark.parametrize(
    ("extent", "bits", "want"),
    [
        (2**32, 32, True),
        (2**32 + 1, 32, False),
        (1, 32, True),
        (3 * 2**20, 32, False),  # a word of 4096 decides nothing, and one more would
        (3 * 2**18, 32, True),
        (2**31 + 1, 32, False),
        (2**32 - 1, 32, True),
        (2**32 - 2**20, 32, False),
        (2**32 - 2**20 + 1, 32, True),
        (3 * 2**52, 64, False),
        (3 * 2**50, 64, True),
    ],
)
def test_words_that_decide_evenly(extent: int, bits: int, want: bool) -> None:
    assert generator._is_even(extent, bits) == want


@pytest.mark.parametrize(
    ("dtype", "low", "high", "extent"),
    [
        ("f4", 0, 1, 1),
        ("f4", -1.5, 2.5, 4),
        ("f4", 2**-30, 1, np.nextafter(np.float32(1), np.float32(0))),
        ("f8", 2**-60, 1, np.nextafter(1.0, 0)),
        ("f8", -(2**-60), 1, 1),
        ("f2", 0.1, 1, np.float32(1) - np.float32(np.float16(0.1))),
        (BFLOAT16, 1, 1, 0),
    ],
)
def test_uniform(dtype: Any, low: float, high: float, extent: float) -> None:
    dtype = np.dtype(dtype)
    made = generator.uniform("uniform", dtype, low, high)
    real = np.float64 if dtype == np.float64 else np.float32
    assert [type(each) for each in made.arguments] == [real, real]
    assert made.arguments == (float(np.asarray(low).astype(dtype)), extent)
    assert made.drawn == 16 // dtype.itemsize
    assert [made.positions(size) for size in (0, 1, made.drawn, made.drawn + 1)] == [0, 1, 1, 2]


def test_normal() -> None:
    for dtype, drawn, cpp in (("f2", 4, "__half, float"), ("f4", 4, "float, float"), ("f8", 2, "double, double")):
        for is_exponential in (False, True):
            made = generator.normal("normal", np.dtype(dtype), 1.5, 2.5, is_exponential)
            assert shown(made.kernel) == f"normal<{cpp}, {str(is_exponential).lower()}>"
            assert (made.drawn, made.arguments) == (drawn, (1.5, 2.5))
    assert generator.normal("normal", np.dtype("f4"), 1e300, 1e300).arguments == (np.inf, np.inf)
    assert generator.normal("normal", np.dtype("f4"), 0, 0.0).arguments == (0, 0)
    with pytest.raises(ck.ArgumentError, match=r"scale=-0\.0 is below 0"):
        generator.normal("normal", np.dtype("f4"), 0, -0.0)


@pytest.mark.parametrize(
    ("dtype", "low", "last", "want"),
    [
        ("?", 0, 1, ("bool, unsigned int, 4", 16, (0, 2, 0))),
        ("?", 1, 1, ("bool, unsigned int, 4", 16, (1, 1, 0))),
        ("u1", 0, 9, ("unsigned char, unsigned int, 4", 16, (0, 10, 2**32 % 10**4))),
        ("u1", 0, 255, ("unsigned char, unsigned char, 0", 16, (0, 0, 0))),
        ("u1", 0, 254, ("unsigned char, unsigned int, 2", 8, (0, 255, 2**32 % 255**2))),
        ("i1", -128, 127, ("signed char, unsigned char, 0", 16, (2**64 - 128, 0, 0))),
        ("i2", -5, 994, ("short, unsigned int, 2", 8, (2**64 - 5, 1000, 2**32 % 1000**2))),
        ("u2", 0, 65_534, ("unsigned short, unsigned int, 2", 8, (0, 65_535, 2**32 % 65_535**2))),
        ("u2", 1, 65_535, ("unsigned short, unsigned int, 2", 8, (1, 65_535, 2**32 % 65_535**2))),
        ("u2", 0, 65_535, ("unsigned short, unsigned short, 0", 8, (0, 0, 0))),
        ("i4", 0, 9, ("int, unsigned int, 1", 4, (0, 10, 6))),
        ("i4", 0, 3 * 2**20 - 1, ("int, unsigned long long, 1", 2, (0, 3 * 2**20, 2**64 % (3 * 2**20)))),
        ("u4", 0, 2**32 - 1, ("unsigned int, unsigned int, 0", 4, (0, 0, 0))),
        ("i8", 0, 9, ("long long, unsigned int, 1", 4, (0, 10, 6))),
        ("i8", 0, 2**32 - 1, ("long long, unsigned int, 0", 4, (0, 0, 0))),
        ("i8", 0, 2**32, ("long long, unsigned long long, 1", 2, (0, 2**32 + 1, 2**64 % (2**32 + 1)))),
        ("u8", 0, 2**64 - 1, ("unsigned long long, unsigned long long, 0", 2, (0, 0, 0))),
        ("i8", -(2**63), 2**63 - 1, ("long long, unsigned long long, 0", 2, (2**63, 0, 0))),
    ],
)
def test_integers(dtype: str, low: int, last: int, want: tuple[Any, ...]) -> None:
    made = generator.integers("integers", np.dtype(dtype), low, last)
    assert (shown(made.kernel), made.drawn, made.arguments) == (f"integers<{want[0]}>", *want[1:])


def test_bernoulli() -> None:
    for p, threshold in ((0.0, 0), (0.5, 2**63), (1.0, 2**64), (2**-63, 2), (2**-66, 0), (0.75 * 2**-64, 1)):
        made = generator.bernoulli("bernoulli", np.dtype("?"), p)
        assert made.arguments == (threshold >> 49, threshold * 2**15 % 2**64)
        assert made.drawn == 8
    for dtype in ("?", "i1", "u8", "f2", "f8", BFLOAT16):
        assert generator.bernoulli("bernoulli", np.dtype(dtype), 0.5).drawn == 8
    for dtype in (">i4", ">f4", "c8", "M8[s]", "V4"):
        with pytest.raises(ck.ArgumentError, match="is not one of bool, the integers and floating point"):
            generator.bernoulli("bernoulli", np.dtype(dtype), 0.5)
    for dtype in (">i4", "f4"):
        with pytest.raises(ck.ArgumentError, match="is not one of bool and the integers"):
            generator.integers("integers", np.dtype(dtype), 0, 1)
    for dtype in (">f4", "i4", np.longdouble, "c8"):
        with pytest.raises(ck.ArgumentError, match="is not one of float16, bfloat16, float32 and float64"):
            generator.real_dtype("random", np.dtype(dtype))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.random(3, "f4", np.zeros(3)), "random: out has dtype float64, the result has float32"),
        (lambda g: g.random(3, out=np.zeros(4)), r"random: out has shape \(4,\)"),
        (lambda g: g.permutation(3, out=np.zeros(3, "i4")), "permutation: out has dtype int32, the result has int64"),
        (lambda g: g.permutation(3, out=np.zeros(4, "i8")), r"permutation: out has shape \(4,\)"),
        (lambda g: g.permutation(True), "permutation: x is bool, not an array"),
        (lambda g: g.choice(True, 2), "choice: a is bool, not an array"),
        (lambda g: g.choice(3, 2, out=np.zeros(2)), "choice: out has dtype float64, the result has int64"),
        (lambda g: g.choice(2, 1, p=[0.5, "x"]), "choice: p is (a sequence of numbers: |ndarray, not an array)"),
        (lambda g: g.choice(2, 1, p=[np.inf, 0]), "no probabilities"),
        (lambda g: g.choice(2, 1, p=[np.nan, 1]), "no probabilities"),
        (lambda g: g.normal(10**400), "normal: loc is a number, got an int of 1329 bits: int too large"),
        (lambda g: g.normal(0, None), "normal: scale is a number, got None: "),
        (lambda g: g.exponential(b"1"), "exponential: scale is one number, got bytes"),
        (lambda g: g.bernoulli([0.5]), "bernoulli: p is one number, got list"),
        (lambda g: g.integers(0, 1.5), "integers: high is an int, got float"),
        (lambda g: g.integers(3, endpoint=2), "integers: endpoint"),
        (lambda g: g.permutation(np.zeros(3), out=np.zeros(3, "i4")), "permutation: out has dtype int32"),
        (lambda g: g.choice(np.zeros((3, 2)), 4, axis=1, out=np.zeros((3, 2))), r"choice: out has shape \(3, 2\)"),
        (lambda g: g.choice(np.zeros((2, 0)), 1, axis=1), "choice: a is empty, and 1 cannot be drawn"),
    ],
)
def test_misuse(call: Any, message: str) -> None:
    generator = Generator(1)
    before = generator.state
    with pytest.raises(ck.ArgumentError, match=message):
        call(generator)
    assert generator.state == before


def test_a_generator_is_shown() -> None:
    generator = Generator(1).advance(5)
    state = generator.state
    assert repr(generator) == (
        f"<cudakit.random.Generator Philox4x32-10: key {state['key']:#x}, stream {state['stream']:#x}, at 5>"
    )


def test_nothing_is_drawn_of_nothing() -> None:
    generator = Generator(1)
    assert generator.choice(0, 0).shape == (0,)
    assert generator.choice(0, 0, replace=False).shape == (0,)
    assert generator.choice(np.zeros((0, 3)), 0).shape == (0, 3)


def test_edges_of_weights_end_at_1(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def noted(self: Generator, place: Any, how: Any, result: Any, *arrays: Any) -> Any:
        seen.append(arrays)
        return result

    monkeypatch.setattr(Generator, "_run", noted)
    Generator(1).choice(3, 5, p=[0.25, 0.25, 0.5 - 1e-8])
    ((edges, count),) = seen
    assert count == 3
    np.testing.assert_allclose(edges, np.array([0.25, 0.5, 1 - 1e-8]) / (1 - 1e-8), rtol=1e-15)
    assert edges[-1] == 1
