"""The same seed gives the same numbers whatever the grid, the place in memory, the split into calls or the options."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.philox import words
from support.places import to_host
from support.tiers import in_tiers

import cudakit as ck
from cudakit.random import Generator
from cudakit.random.generator import bernoulli, integers, keys_of, normal, uniform

#: Of each kernel what differs in it: numbers a position, bytes a number, words that do not decide.
FILLS = {
    "uniform f4": ("f4", lambda: uniform("op", np.dtype("f4"), -1.0, 2.0)),
    "uniform f8": ("f8", lambda: uniform("op", np.dtype("f8"), 0.0, 1.0)),
    "uniform f2": ("f2", lambda: uniform("op", np.dtype("f2"), -3.0, 1.0)),
    "normal f4": ("f4", lambda: normal("op", np.dtype("f4"), 1.0, 2.0)),
    "normal f8": ("f8", lambda: normal("op", np.dtype("f8"), 0.0, 1.0)),
    "normal f2": ("f2", lambda: normal("op", np.dtype("f2"), 0.0, 1.0)),
    "exponential f4": ("f4", lambda: normal("op", np.dtype("f4"), 0.0, 1.0, True)),
    "integers of 4 in a word": ("u1", lambda: integers("op", np.dtype("u1"), 0, 30)),
    "integers of 2 in a word": ("i2", lambda: integers("op", np.dtype("i2"), -500, 499)),
    "integers of a word": ("i4", lambda: integers("op", np.dtype("i4"), 0, 1_000_006)),
    "integers of 32 bits in 64": ("i8", lambda: integers("op", np.dtype("i8"), -5, 5)),
    "integers, many rejected": ("u8", lambda: integers("op", np.dtype("u8"), 0, 3 * 2**62 - 1)),
    "all integers": ("i1", lambda: integers("op", np.dtype("i1"), -128, 127)),
    "bernoulli ?": ("?", lambda: bernoulli("op", np.dtype("?"), 0.3)),
    "bernoulli f8": ("f8", lambda: bernoulli("op", np.dtype("f8"), 1 / 3)),
}
#: Kinds that the quick tests draw: one of each kernel, and of each number of values in a word.
QUICK = (
    "uniform f4",
    "uniform f8",
    "normal f2",
    "exponential f4",
    "integers of 4 in a word",
    "integers, many rejected",
)
KINDS = [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in FILLS]
#: Of what seed 2026 gives, on whatever device.
DIGESTS = {
    "random f4": "c73bb4da55b79f5c",
    "uniform f2": "cf53977834af10ab",
    "integers u1": "a217d60155bc1118",
    "integers i4": "bf45eeb80104daf8",
    "integers i8": "7057a69c69f67807",
    "bernoulli": "2e430137483b43b7",
    "permutation": "fe76b3062136dca9",
    "choice": "34d0c8fbefbf24a9",
}


def made(stream: Any, kind: str, size: int, blocks: int, position: int = 0, shift: int = 0, tail: int = 0) -> Any:
    """Numbers by a grid of so many blocks, in memory that begins `shift` elements after an aligned address."""
    dtype, fill = FILLS[kind]
    how = fill()
    memory = ck.empty((shift + size + tail,), np.dtype(dtype), stream=stream)
    out = memory[shift : shift + size]
    keys = keys_of(Generator(5).state["key"])
    how.kernel(stream, ck.config(blocks, 256), out, size, keys, 7, position, *how.arguments)
    return to_host(out)


@pytest.mark.parametrize("kind", KINDS)
def test_on_any_grid_and_in_any_memory(stream: Any, kind: str) -> None:
    """Whole tiles, which are drawn without branches, beside parts of them, and beside memory that is not aligned."""
    tile = 256 * 4 * 16 // np.dtype(FILLS[kind][0]).itemsize
    size = tile + tile // 2 + 3
    whole = made(stream, kind, size, 2)
    for blocks, shift in ((1, 0), (7, 0), (2, 1)):
        assert made(stream, kind, size, blocks, shift=shift).tobytes() == whole.tobytes()
    for part in (1, 5, tile - 1, tile):
        assert made(stream, kind, part, 3).tobytes() == whole[:part].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_wherever_a_tile_begins(stream: Any, kind: str) -> None:
    """Across the 2³²th position, where the upper half of the counter changes in a tile, and the 2⁶⁴th."""
    how = FILLS[kind][1]()
    size = 256 * 4 * 16 // np.dtype(FILLS[kind][0]).itemsize
    for border in (2**32, 2**64):
        across = made(stream, kind, size, 1, position=border - 10)
        before = made(stream, kind, 10 * how.drawn, 1, position=border - 10)
        after = made(stream, kind, size - 10 * how.drawn, 1, position=border % 2**64)
        assert across.tobytes() == before.tobytes() + after.tobytes()


CALLS: dict[str, Callable[[Generator, Any, Any], Any]] = {
    "random f4": lambda g, size, s: g.random(size, "f4", stream=s),
    "uniform f2": lambda g, size, s: g.uniform(-1, 1, size, "f2", stream=s),
    "integers u1": lambda g, size, s: g.integers(0, 6, size, "u1", stream=s),
    "integers i4": lambda g, size, s: g.integers(-1000, 1000, size, "i4", stream=s),
    "integers i8": lambda g, size, s: g.integers(0, 10**12, size, stream=s),
    "bernoulli": lambda g, size, s: g.bernoulli(0.7, size, stream=s),
    "permutation": lambda g, size, s: g.permutation(size // 10, stream=s),
    "choice": lambda g, size, s: g.choice(97, size, stream=s),
}


def test_the_numbers_are_those_of_every_device(stream: Any) -> None:
    found = {
        name: hashlib.sha256(to_host(call(Generator(2026), 5000, stream)).tobytes()).hexdigest()[:16]
        for name, call in CALLS.items()
    }
    assert found == DIGESTS


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("random f4", "integers u1", "choice") else pytest.mark.slow)
        for name in CALLS
        if name != "permutation"
    ],
)
def test_in_however_many_calls(stream: Any, name: str) -> None:
    """A call that uses its positions up leaves off where the next one begins."""
    whole = to_host(CALLS[name](Generator(3), 1600, stream))
    generator = Generator(3)
    parts = [to_host(CALLS[name](generator, size, stream)) for size in (16, 320, 1264)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    several = to_host(CALLS[name](Generator(3), (4, 5, 80), stream))
    assert several.tobytes() == whole.tobytes()


@in_tiers(
    "options, dtype",
    [{"fma": False}, {"use_fast_math": True}, {"ftz": True, "prec_sqrt": False}],
    ["f4", "f8"],
    quick=lambda options, dtype: (dtype == "f4") == ("use_fast_math" in options) and "ftz" not in options,
    strength=None,
)
def test_whatever_the_compiler_may_do_to_other_arithmetic(stream: Any, options: dict[str, Any], dtype: str) -> None:
    name = {"f4": "float", "f8": "double"}[dtype]
    joined = "cudakit::joined(words.x, words.y), cudakit::joined(words.z, words.w)"
    pair = "words.x, words.y" if dtype == "f4" else joined
    text = f"""
        #include <cudakit/philox.cuh>
        __global__ void pairs({name}* x, unsigned long long key, int n) {{
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            uint4 words = cudakit::philox_stream{{key, 1}}.words(i);
            {name} first, second;
            cudakit::normal_pair({pair}, first, second);
            x[3 * i] = first, x[3 * i + 1] = second, x[3 * i + 2] = cudakit::unit(words.z);
        }}"""
    found = []
    for extra in ({}, options):
        out = ck.empty((3 * 500,), np.dtype(dtype), stream=stream)
        kernel = ck.Kernel(text, options=ck.CompileOptions(extra=extra))
        kernel(stream, ck.cover(500), out, 99, 500)
        found.append(to_host(out).tobytes())
    assert found[0] == found[1]


def test_words_depend_on_nothing_but_seed_stream_and_position(stream: Any) -> None:
    """Of 65 positions drawn by one call: each of them drawn alone, by `advance`, gives the same."""
    whole = to_host(Generator(8).integers(0, 2**32, 260, "u4", stream=stream)).reshape(65, 4)
    np.testing.assert_array_equal(whole, words(Generator(8).state, 65))
    for position in (0, 1, 31, 32, 64):
        alone = Generator(8).advance(position).integers(0, 2**32, 4, "u4", stream=stream)
        np.testing.assert_array_equal(to_host(alone), whole[position])
