"""Random kernels × random arguments: each call gives what C++ makes of the same numbers, or a CudakitError."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path

import pytest
from support.caches import use_cache
from support.fuzz.judge import Given, Held, Judge, compiler
from support.fuzz.run import Fuzzer

from cudakit.jit.cache.cache import Cache

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.skipif(compiler() is None, reason="the judge is a C++ program, and there is no compiler of the host's"),
]


@pytest.fixture
def fuzzer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fuzzer:
    use_cache(monkeypatch, Cache(None, 1 << 20))
    return Fuzzer(tmp_path)


def run(fuzzer: Fuzzer, seed: str, kernels: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, about NaNs in words
        for number in range(kernels):
            fuzzer.run(f"{seed}:{number}")
    assert not fuzzer.findings, "\n".join(map(str, fuzzer.findings))
    assert fuzzer.counts["right"] > 3 * kernels
    assert fuzzer.counts["refused, wrong"] > 2 * kernels


@pytest.mark.slow
def test_random_calls(fuzzer: Fuzzer) -> None:
    run(fuzzer, "a", 8)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "kernels"), [("b", 24), pytest.param("c", 200, marks=pytest.mark.exhaustive)])
def test_more_random_calls(fuzzer: Fuzzer, seed: str, kernels: int) -> None:
    run(fuzzer, seed, kernels)


def test_the_judge(tmp_path: Path) -> None:
    """Against numbers whose bytes are known."""
    judge = Judge(tmp_path)

    def of(to: str, number: float) -> Held | None:
        whole = isinstance(number, int)
        return judge(to, Given("integer", b"%d" % number) if whole else Given("f8", struct.pack("<d", number)))

    assert of("i4", 2**31) is None
    assert of("i4", -(2**31)) == Held(b"\0\0\0\x80")
    assert of("i4", 2.0) == Held(b"\2\0\0\0")
    assert of("i4", 2.5) is None
    assert of("bool", 2) is None
    assert of("f4", 1e39) is None
    assert of("f4", 16777217) == Held(b"\0\0\x80\x4b")
    assert of("f4", 2**60 + 2**36 + 1) == Held(b"\1\0\x80\x5d")  # by way of double it would be rounded twice
    assert of("f2", 65519.99) == Held(b"\xff\x7b")
    assert of("f2", 65520.0) is None
    assert of("f2", 2.0**-25) == Held(b"\0\0")
    assert of("f2", 2.0**-25 * 1.01) == Held(b"\1\0")
    assert of("bf2", 1 + 2.0**-9) == Held(b"\x80\x3f")
    assert of("bf2", 1 + 2.0**-8 + 2.0**-40) == Held(b"\x81\x3f")
    assert of("e4m3", 448.0) == Held(b"\x7e")
    assert of("e4m3", 480.0) is None
    assert of("f4", float("nan")) == Held(b"\0\0\xc0\x7f", "f4")
    assert of("c8", 1.5) == Held(b"\0\0\xc0\x3f\0\0\0\0")
