"""Random numbers against their definition in NumPy, in both places; what they are asked for wrongly."""

from __future__ import annotations

import hashlib
import json
import pickle
import threading
from fractions import Fraction
from math import factorial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.philox import philox, words
from support.places import to_host

import cudakit as ck
from cudakit.random import Generator, default_rng
from cudakit.random.generator import keys_of, ties

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype("f2"), BFLOAT16, np.dtype("f4"), np.dtype("f8")]
INTEGERS = [np.dtype(code) for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]
#: Of the normal and the exponential numbers that one seed gives, in float32 and float64, on whatever device.
DIGESTS = ["803ee234e5f1d29d", "929865a1da4af095", "621c427c7b3aecfa", "dde10d8b39e48b05"]
#: Counter, key and words, as the paper's authors publish them.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def equal(got: Any, want: np.ndarray) -> None:
    host = to_host(got)
    assert host.dtype == want.dtype
    assert host.shape == want.shape
    assert host.tobytes() == np.ascontiguousarray(want).tobytes()


def rounded_down(exact: list[Fraction], dtype: np.dtype) -> np.ndarray:
    """The greatest number of a dtype that is not above each."""
    nearest = np.array([float(x) for x in exact]).astype(dtype)
    below = np.nextafter(nearest, dtype.type(-np.inf))
    is_above = [Fraction(float(got)) > x for got, x in zip(nearest, exact, strict=True)]
    return np.where(is_above, below, nearest)


# ── words ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], want: tuple[int, ...]) -> None:
    assert philox(counter, key).tolist() == list(want)


def test_the_device_function_gives_the_known_answers_and_curands(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("""
        #include <curand_kernel.h>
        #include <cudakit/philox.cuh>
        __global__ void both(const unsigned int* x, unsigned int* own, unsigned int* curands) {
            const unsigned int* c = x + 6 * threadIdx.x;
            reinterpret_cast<uint4*>(own)[threadIdx.x] = cudakit::philox({c[0], c[1], c[2], c[3]}, {c[4], c[5]});
            reinterpret_cast<uint4*>(curands)[threadIdx.x] =
                curand_Philox4x32_10({c[0], c[1], c[2], c[3]}, {c[4], c[5]});
        }""")
    random = np.random.default_rng(0).integers(0, 2**32, (29, 6))
    given = np.concatenate([[(*counter, *key) for counter, key, _ in KNOWN], random]).astype(np.uint32)
    own, curands = (xp.zeros((32, 4), np.uint32) for _ in range(2))
    kernel(stream, ck.config(1, 32), xp.asarray(given), own, curands)
    stream.sync()
    want = np.array([philox(row[:4], (int(row[4]), int(row[5]))) for row in given])
    equal(own, want)
    equal(curands, want)
    assert want[:3].tolist() == [list(each) for _, _, each in KNOWN]


def test_words_of_whole_integers_are_the_streams(stream: Any) -> None:
    for dtype, each in ((np.uint32, 4), (np.uint64, 2), (np.uint8, 16), (np.uint16, 8)):
        generator = Generator(3)
        want = words(generator.state, 70)
        got = generator.integers(0, 2 ** (128 // each), 70 * each - 1, dtype, stream=stream)
        equal(got, want.reshape(-1).view(dtype)[:-1])
        assert generator.state["position"] == 70


# ── distributions ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_is_the_floor_of_its_words(stream: Any, dtype: np.dtype) -> None:
    generator = Generator(5)
    for low, high in ((0.0, 1.0), (-3.0, 7.5), (1000.0, 1001.0), (0.5, 0.5)):
        drawn = words(generator.state, 64)
        got = generator.uniform(low, high, 64 * 16 // dtype.itemsize, dtype, stream=stream)
        if dtype.itemsize == 8:
            units = [Fraction(int(w) >> 11, 2**53) for w in drawn.reshape(-1).view(np.uint64)]
        elif dtype.itemsize == 4:
            units = [Fraction(int(w) >> 8, 2**24) for w in drawn.reshape(-1)]
        else:
            units = [Fraction(int(w), 2**16) for w in drawn.reshape(-1).view(np.uint16)]
        ends = [Fraction(float(np.asarray(bound).astype(dtype))) for bound in (low, high)]
        exact = [ends[0] + u * (ends[1] - ends[0]) for u in units]
        if dtype.itemsize == 2:  # by way of float32
            exact = [Fraction(float(x)) for x in rounded_down(exact, np.dtype("f4"))]
        want = rounded_down(exact, dtype)
        np.testing.assert_array_equal(to_host(got), want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_is_never_its_upper_end(stream: Any, dtype: np.dtype) -> None:
    end = np.nextafter(dtype.type(8), dtype.type(9))
    got = to_host(Generator(1).uniform(8, float(end), 4096, dtype, stream=stream))
    assert set(got.tolist()) == {8.0}
    for low, high in ((-1.0, 0.0), (-1e-6, 1.0), (3.0, 3.3)):
        got = to_host(Generator(2).uniform(low, high, 20000, dtype, stream=stream)).astype("f8")
        ends = [float(np.asarray(bound).astype(dtype)) for bound in (low, high)]
        assert (got >= ends[0]).all()
        assert (got < ends[1]).all()


@pytest.mark.parametrize(("dtype", "word"), [("f4", np.uint32), ("f8", np.uint64)])
def test_normal_is_box_and_mullers_of_its_words(stream: Any, dtype: str, word: Any) -> None:
    generator = Generator(7)
    drawn = words(generator.state, 5000).reshape(-1).view(word).astype(np.longdouble)
    bits = np.longdouble(2) ** (8 * np.dtype(word).itemsize)
    got = to_host(generator.standard_normal(drawn.size, dtype, stream=stream))
    # What is worked with is the word in the type's own precision.
    u = (np.asarray(drawn, dtype) * dtype_of(dtype)(1 / bits) + dtype_of(dtype)(0.5 / bits)).astype(np.longdouble)[::2]
    angle = np.longdouble("6.283185307179586476925286766559005768") * drawn[1::2] / bits
    radius = np.sqrt(-2 * np.log(u))
    want = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1)
    # Of the turned angle a rest of rounding stays near the axes: relative to the radius it is below a unit.
    unit = np.spacing(np.maximum(abs(want), np.repeat(radius, 2) * 2.0**-8).astype(dtype)).astype(np.longdouble)
    assert (abs(got - want) <= 4 * unit).all()


def dtype_of(name: str) -> Any:
    return np.dtype(name).type


def test_normal_of_sixteen_bits_is_float32s_rounded(stream: Any) -> None:
    single = to_host(Generator(8).normal(1, 3, 1003, "f4", stream=stream))
    for dtype in FLOATS[:2]:
        equal(Generator(8).normal(1, 3, 1003, dtype, stream=stream), single.astype(dtype))


def test_normal_and_exponential_have_the_same_bits_everywhere(stream: Any) -> None:
    made = []
    for dtype in ("f4", "f8"):
        generator = Generator(2026)
        made += [
            generator.normal(0.5, 2.0, 4099, dtype, stream=stream),
            generator.exponential(3.0, 4099, dtype, stream=stream),
        ]
    digests = [hashlib.sha256(to_host(each).tobytes()).hexdigest()[:16] for each in made]
    assert digests == DIGESTS


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_exponential_is_the_logarithm(stream: Any, dtype: str) -> None:
    generator = Generator(9)
    drawn = words(generator.state, 2000).reshape(-1).view(f"u{dtype[1]}")
    bits = 8 * drawn.itemsize
    got = to_host(generator.exponential(1.0, drawn.size, dtype, stream=stream))
    real = np.dtype(dtype).type
    u = (drawn.astype(dtype) * real(2.0**-bits) + real(2.0 ** -(bits + 1))).astype(np.longdouble)
    want = -np.log(u)
    assert (abs(got - want) <= 2 * np.spacing(want.astype(dtype))).all()
    assert (got >= 0).all()


@pytest.mark.parametrize(
    ("low", "high", "dtype", "bits", "digits"),
    [
        (0, 10, "i8", 32, 1),
        pytest.param(0, 3 << 30, "i8", 64, 1, marks=pytest.mark.slow),
        (5, 10**9, "i4", 64, 1),
        pytest.param(0, 3 << 18, "i4", 32, 1, marks=pytest.mark.slow),
        pytest.param(0, 2**32, "i8", 32, 1, marks=pytest.mark.slow),
        (-7, 3 * 2**61, "i8", 64, 1),
        (-5, 5, "i1", 32, 4),
        pytest.param(0, 31, "u1", 32, 4, marks=pytest.mark.slow),
        (0, 100, "u1", 32, 2),
        pytest.param(-128, 127, "i1", 32, 2, marks=pytest.mark.slow),
        (0, 2, "?", 32, 4),
        pytest.param(5, 6, "u2", 32, 2, marks=pytest.mark.slow),
        pytest.param(0, 1000, "i2", 32, 2, marks=pytest.mark.slow),
        pytest.param(0, 60000, "u2", 32, 1, marks=pytest.mark.slow),
        pytest.param(0, 1000, "i4", 32, 1, marks=pytest.mark.slow),
    ],
)
def test_integers_are_lemires(stream: Any, low: int, high: int, dtype: str, bits: int, digits: int) -> None:
    """A word of so many bits gives `digits` numbers: the digits of one below extent ** digits."""
    generator = Generator(11)
    attempts = [words(generator.state, 300, k).reshape(-1).view(f"u{bits // 8}") for k in range(40)]
    extent = high - low
    want: list[int] = []
    for k in range(attempts[0].size):
        products = (int(each[k]) * extent**digits for each in attempts)
        found = next(p >> bits for p in products if p % 2**bits >= 2**bits % extent**digits)
        want += [low + found // extent ** (digits - 1 - i) % extent for i in range(digits)]
    equal(generator.integers(low, high, len(want), dtype, stream=stream), np.array(want, dtype))
    assert generator.state["position"] == 300


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(dtype, marks=() if dtype.name in ("bool", "int8", "uint64") else pytest.mark.slow)
        for dtype in (np.dtype(bool), *INTEGERS)
    ],
    ids=str,
)
def test_integers_of_each_dtype(stream: Any, dtype: np.dtype) -> None:
    ends = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    whole = to_host(Generator(1).integers(*ends, 999, dtype, endpoint=True, stream=stream))
    assert whole.dtype == dtype
    few = to_host(Generator(1).integers(ends[1], size=999, dtype=dtype, stream=stream))
    assert few.dtype == dtype
    assert few.min() >= 0
    assert few.max() < ends[1]
    assert to_host(Generator(1).integers(1, 2, 7, dtype, stream=stream)).tolist() == [1] * 7


def fifteen_bits(state: dict[str, Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    """What decides numbers of `bernoulli`: 15 bits of half a word, and the 64 of the attempts that follow."""
    first = words(state, count).reshape(-1).view(np.uint16) & 0x7FFF
    rest = [words(state, count, 1 + k).reshape(count, -1).view(np.uint64) for k in range(4)]
    return first.astype(object), np.concatenate(rest, axis=1).reshape(-1).astype(object)


@pytest.mark.parametrize(
    "p",
    [
        pytest.param(p, marks=() if p == 0.3 else pytest.mark.slow)
        for p in (0.0, 2.0**-40, 0.25, 0.3, 1 - 2.0**-53, 1.0)
    ],
)
def test_bernoulli_compares_its_words(stream: Any, p: float) -> None:
    generator = Generator(13)
    first, rest = fifteen_bits(generator.state, 250)
    want = first * 2**64 + rest < round(Fraction(p) * 2**64) * 2**15
    for dtype in (np.dtype(bool), np.dtype("u1"), np.dtype("i4"), np.dtype("f2"), BFLOAT16, np.dtype("f8")):
        equal(Generator(13).bernoulli(p, 2000, dtype, stream=stream), want.astype(bool).astype(dtype))


def test_bernoulli_asks_more_bits_where_a_few_do_not_decide(stream: Any) -> None:
    first, rest = fifteen_bits(Generator(13).state, 10)
    decided = set()
    for k in range(24):
        p = (int(first[k]) + 0.5) / 2**15
        got = to_host(Generator(13).bernoulli(p, 80, stream=stream))
        assert got[k] == (rest[k] < 2**63)
        assert got.tolist() == (first * 2 + (rest >= 2**63) < 2 * first[k] + 1).tolist()
        decided.add(bool(got[k]))
    assert decided == {True, False}


def test_sizes_and_places_do_not_matter(stream: Any) -> None:
    whole = to_host(Generator(1).random(3000, "f4", stream=stream))
    for size in (0, 1, 3, 4, 255, 256, 257, 1023, 1024, 1025):
        equal(Generator(1).random(size, "f4", stream=stream), whole[:size])
    equal(Generator(1).random((3, 10, 100), "f4", stream=stream), whole.reshape(3, 10, 100))
    assert to_host(Generator(1).random(dtype="f4", stream=stream)).shape == ()
    kernel = ck.Kernel.from_template("random/uniform")[np.float32, np.float32]
    state = Generator(1).state
    for blocks in (1, 2, 3):
        out = ck.empty((3000,), np.float32, stream=stream)
        kernel(stream, ck.config(blocks, 256), out, 3000, keys_of(state["key"]), state["stream"], 0, 0.0, 1.0)
        equal(out, whole)


@pytest.mark.gpu
def test_past_32_bits_of_numbers(stream: Any) -> None:
    size = (1 << 31) + 1029
    generator = Generator(1)
    start = generator.state
    tail = generator.integers(0, 256, size, np.uint8, stream=stream)[-1029:]
    want = words({**start, "position": (1 << 31) // 16}, 65).reshape(-1).view(np.uint8)[:1029]
    equal(tail, want)
    assert generator.state["position"] == -(-size // 16)


def test_out_is_filled_wherever_it_lies(stream: Any, xp: Any) -> None:
    whole = to_host(Generator(1).random((30, 40), "f4", stream=stream))
    buffer = xp.zeros((60, 41), np.float32)
    for out in (
        buffer[:30, 1:],
        buffer[::2, :40],
        buffer.T[1:].T[59:29:-1],
        buffer.reshape(-1)[1:1201].reshape(30, 40),
    ):
        assert Generator(1).random(out=out, stream=stream) is out
        equal(out, whole)
    with pytest.raises(ck.ArgumentError, match="out has dtype float32, the result has float64"):
        Generator(1).random(out=buffer, dtype="f8", stream=stream)
    with pytest.raises(ck.ArgumentError, match="out has shape"):
        Generator(1).random(7, out=buffer, stream=stream)


# ── streams and state ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_seed_gives_the_same_and_calls_go_on(stream: Any) -> None:
    first, second = default_rng(42), default_rng(42)
    one = [to_host(first.random(10, stream=stream)) for _ in range(2)]
    both = to_host(second.random(20, stream=stream))
    equal(np.concatenate(one), both)
    assert default_rng(first) is first
    assert default_rng(43).state != default_rng(42).state
    assert default_rng().state != default_rng().state
    assert Generator(np.random.SeedSequence(42)).state == Generator(42).state
    assert Generator([1, 2]).state != Generator([2, 1]).state


def test_state_is_saved_and_restored(stream: Any) -> None:
    generator = Generator(1)
    generator.random(1000, stream=stream)
    saved, pickled = json.dumps(generator.state), pickle.dumps(generator)
    want = to_host(generator.normal(size=100, stream=stream))
    other = Generator(2)
    other.state = json.loads(saved)
    equal(other.normal(size=100, stream=stream), want)
    restored = pickle.loads(pickled)
    equal(restored.normal(size=100, stream=stream), want)
    assert [each.state for each in restored.spawn(2)] == [each.state for each in generator.spawn(2)]


def test_spawned_jumped_and_advanced_streams(stream: Any) -> None:
    generator = Generator(1)
    children = [*generator.spawn(3), *generator.spawn(2)]
    of = {(each.state["key"], each.state["stream"]) for each in (generator, *children)}
    assert len(of) == 6
    assert [each.state for each in Generator(1).spawn(5)] == [each.state for each in children]
    jumped = generator.jumped(2)
    assert jumped.state == {**generator.state, "stream": (generator.state["stream"] + 2) % 2**56}
    whole = to_host(Generator(1).random(400, "f4", stream=stream))
    equal(Generator(1).advance(50).random(200, "f4", stream=stream), whole[200:])
    equal(Generator(1).advance(60).advance(-10).random(200, "f4", stream=stream), whole[200:])


def test_positions_wrap_around(stream: Any) -> None:
    generator = Generator(1)
    start = {**generator.state, "position": 2**64 - 2}
    generator.state = start
    equal(generator.integers(0, 2**32, 16, "u4", stream=stream), words(start, 4).reshape(-1))
    assert generator.state["position"] == 2


def test_threads_draw_different_numbers(stream: Any) -> None:
    generator = Generator(1)
    drawn: list[Any] = []

    def draw() -> None:
        made = generator.random(64, "f4", stream=stream)
        stream.sync()  # the thread's own stream, by which CuPy copies, is another
        drawn.append(to_host(made))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    want = to_host(Generator(1).random(256, "f4", stream=stream))
    assert sorted(np.concatenate(drawn).tolist()) == sorted(want.tolist())


# ── orders and choices ───────────────────────────────────────────────────────────────────────────────────────────────


def test_permutation_is_the_order_of_its_keys(stream: Any, xp: Any) -> None:
    keys = words(Generator(1).state, 500).reshape(-1).view(np.uint64)
    order = np.argsort(keys, kind="stable")
    equal(Generator(1).permutation(1000, stream=stream), order)
    x = np.arange(3000, dtype=np.float32).reshape(3, 1000)
    equal(Generator(1).permutation(xp.asarray(x), axis=1, stream=stream), x[:, order])
    shuffled = xp.array(x)
    Generator(1).shuffle(shuffled, axis=1, stream=stream)
    equal(shuffled, x[:, order])
    assert to_host(Generator(1).permutation(0, stream=stream)).tolist() == []


@pytest.mark.slow
def test_a_long_permutation_is_the_order_of_shorter_keys(stream: Any, xp: Any) -> None:
    keys = words(Generator(1).state, 1250).reshape(-1).view(np.uint32)
    assert np.unique(keys).size == 5000
    out = xp.zeros((5000, 2), np.int64)[:, 1]
    generator = Generator(1)
    generator.permutation(5000, out=out, stream=stream)
    equal(out, np.argsort(keys))
    assert generator.state["position"] == 1250 + 5000


def test_equal_keys_are_shuffled(stream: Any, xp: Any) -> None:
    """By the definition, and so that each order of three comes as often."""
    keys, order = np.arange(2000, dtype=np.uint32).repeat(3), np.arange(6000, dtype=np.uint32)[::-1].copy()
    keys[:3] = 0, 1, 1
    out, state = xp.zeros(6000, np.int64), Generator(1).state
    drawn = keys_of(state["key"]), state["stream"], 7
    ties(np.dtype("u4")).kernel(stream, ck.config(7, 256), out, 6000, *drawn, xp.asarray(keys), xp.asarray(order))
    first = words({**state, "position": 7}, 6000)[:, :2].copy().view(np.uint64)[:, 0]
    want = np.zeros(6000, np.int64)
    start = 0
    for k in range(6000):
        start = start if k and keys[k] == keys[k - 1] else k
        other = start + (int(first[k]) * (k - start + 1) >> 64)
        want[k], want[other] = want[other], order[k]
    equal(out, want)
    triples = (want[6:].reshape(-1, 3) - want[6:].reshape(-1, 3).min(1, keepdims=True)) @ (1, 3, 9)
    counts = np.unique(triples, return_counts=True)[1]
    assert counts.size == 6
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 5 + 5 * 10**0.5


@pytest.mark.parametrize("count", [2, 3, 4])
def test_all_orders_are_as_likely(stream: Any, count: int) -> None:
    """χ² over all n! orders, each of the rows of one draw of keys, as `permutation` sorts them."""
    times = 400 * factorial(count)
    generator = Generator(17)
    keys = to_host(generator.integers(0, 2**64, (times, count), "u8", stream=stream))
    orders = np.argsort(keys, axis=1, kind="stable") @ (count ** np.arange(count))
    found = np.unique(orders, return_counts=True)[1]
    assert found.size == factorial(count)
    expected = times / found.size
    chi = ((found - expected) ** 2).sum() / expected
    assert chi < found.size - 1 + 5 * np.sqrt(2 * (found.size - 1))


@pytest.mark.slow
def test_permutation_itself_gives_all_orders(stream: Any) -> None:
    """In a random order of 0 … 2999, each three numbers have an order of their own: 1000 draws in one."""
    generator = Generator(19)
    assert len({tuple(to_host(generator.permutation(3, stream=stream)).tolist()) for _ in range(40)}) == 6
    places = np.argsort(to_host(generator.permutation(3000, stream=stream))).reshape(-1, 3)
    counts = np.unique(np.argsort(places, axis=1) @ (1, 3, 9), return_counts=True)[1]
    assert counts.size == 6
    assert ((counts - 500 / 3) ** 2 / (500 / 3)).sum() < 5 + 5 * 10**0.5


def test_choice_with_replacement(stream: Any, xp: Any) -> None:
    indices = to_host(Generator(1).integers(0, 7, 100, stream=stream))
    equal(Generator(1).choice(7, 100, stream=stream), indices)
    x = np.arange(21, dtype=np.int32).reshape(7, 3)
    equal(Generator(1).choice(xp.asarray(x), (10, 10), stream=stream), x[indices.reshape(10, 10)])
    p = np.array([0.1, 0, 0.4, 0.5])
    units = (words(Generator(1).state, 1000).reshape(-1).view(np.uint64) >> np.uint64(11)) * 2.0**-53
    want = np.searchsorted(np.cumsum(p) / np.cumsum(p)[-1], units, "right")
    equal(Generator(1).choice(4, 2000, p=p, stream=stream), want)
    equal(Generator(1).choice(4, 2000, p=xp.asarray(p), stream=stream), want)


def test_choice_without_replacement(stream: Any) -> None:
    equal(
        Generator(1).choice(50, 20, replace=False, stream=stream),
        to_host(Generator(1).permutation(50, stream=stream))[:20],
    )
    p = np.array([0.5, 0.3, 0.2, 0])
    generator = Generator(23)
    for _ in range(5):
        assert sorted(to_host(generator.choice(4, 3, replace=False, p=p, stream=stream)).tolist()) == [0, 1, 2]
    with pytest.raises(ck.ArgumentError, match="4 cannot be drawn of 3 without replace"):
        Generator(1).choice(4, 4, replace=False, p=p, stream=stream)


@pytest.mark.slow
def test_choice_without_replacement_follows_its_weights(stream: Any) -> None:
    """Of each three indices, the one that is drawn first follows their weights: 400 draws in one."""
    p = np.tile([0.5, 0.3, 0.2, 0], 400) / 400
    order = to_host(Generator(23).choice(p.size, 1200, replace=False, p=p, stream=stream))
    assert (np.sort(order) == np.flatnonzero(p)).all()
    places = np.empty(p.size, int)
    places[order] = np.arange(order.size)
    counts = np.bincount(np.argmin(places.reshape(-1, 4)[:, :3], axis=1), minlength=3)
    assert ((counts - 400 * p[:3] * 400) ** 2 / (400 * p[:3] * 400)).sum() < 15


# ── misuse ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.uniform(2, 1, 3), "uniform: low=2.0 is above high=1.0"),
        (lambda g: g.uniform(0, np.inf, 3), "must be finite numbers of float64"),
        (lambda g: g.uniform(-1e308, 1e308, 3), "high - low is beyond the range of float64"),
        (lambda g: g.uniform(0, 1e5, 3, dtype="f2"), "must be finite numbers of float16"),
        (lambda g: g.uniform(np.zeros(3), 1, 3), "low is one number, got ndarray"),
        (lambda g: g.uniform("0", 1, 3), "low is one number, got str"),
        (lambda g: g.random(3, "i4"), "random: dtype int32 is not one of float16"),
        (lambda g: g.random(-1), "random: size is a number from 0 up, got -1"),
        (lambda g: g.random(2.5), "random: size is a number from 0 up, got 2.5"),
        (lambda g: g.random(3, "no such"), "random: dtype must be a dtype"),
        (lambda g: g.normal(0, -1, 3), "scale=-1.0 is below 0"),
        (lambda g: g.integers(5, 5, 3), "no integer is from low=5 on"),
        (lambda g: g.integers(0, 257, 3, "u1"), "high is out of bounds for uint8"),
        (lambda g: g.integers(-1, 2, 3, "u1"), "low=-1 is out of bounds for uint8"),
        (lambda g: g.integers(0, 2, 3, "f4"), "integers: dtype float32 is not one of bool and the integers"),
        (lambda g: g.integers(0.5, 2, 3), "low is an int, got float"),
        (lambda g: g.bernoulli(1.5, 3), "p=1.5 is not a probability"),
        (lambda g: g.bernoulli(np.nan, 3), "p=nan is not a probability"),
        (lambda g: g.permutation(-1), "permutation: x is a number from 0 up"),
        (lambda g: g.permutation("abc"), "permutation: x is str, not an array"),
        (lambda g: g.permutation(np.zeros((2, 3)), axis=2), "axis 2"),
        (lambda g: g.shuffle(np.zeros(())), "shuffle: x has no dimensions"),
        (lambda g: g.choice(0, 2), "choice: a is empty"),
        (lambda g: g.choice(3, 4, replace=False), "4 cannot be drawn of 3 without replace"),
        (lambda g: g.choice(3, 4, p=[0.5, 0.5]), r"p has shape \(2,\), and a has 3"),
        (lambda g: g.choice(2, 4, p=[0.5, 0.6]), "p sums up to 1.1, not to 1"),
        (lambda g: g.choice(2, 4, p=[-0.5, 1.5]), "no probabilities"),
        (lambda g: g.spawn(-1), "n_children is a number from 0 up"),
        (lambda g: g.advance(1.5), "delta is an int"),
        (lambda g: Generator(-1), "seed -1 is none"),
        (lambda g: Generator("seed"), "seed 'seed' is none"),
        (lambda g: setattr(g, "state", {}), "the state of a Philox4x32-10 generator has"),
        (lambda g: setattr(g, "state", {**g.state, "stream": 2**56}), "stream of the state is below"),
    ],
)
@pytest.mark.emulator
def test_misuse(call: Any, message: str) -> None:
    generator = Generator(1)
    before = generator.state
    with pytest.raises(ck.ArgumentError, match=message):
        call(generator)
    assert generator.state == before


def test_a_captured_call_draws_the_same_each_time(stream: Any, xp: Any) -> None:
    out, order = xp.zeros(100, np.float32), xp.zeros(100, np.int64)
    generator = Generator(1)
    with ck.capture(stream) as graph:
        generator.random(out=out, stream=stream)
        generator.permutation(100, out=order, stream=stream)
    for _ in range(2):
        out[:], order[:] = 0, 0
        graph.launch(stream)
        again = Generator(1)
        equal(out, to_host(again.random(100, "f4", stream=stream)))
        equal(order, to_host(again.permutation(100, stream=stream)))


@pytest.mark.emulator
def test_calls_that_come_again_beside_cupy_ask_no_gpu(stream: Any) -> None:
    """They have no array that says where they run."""
    pytest.importorskip("cupy")
    generator = ck.random.default_rng(3)
    assert all(generator.random(3, dtype=None).shape == (3,) for _ in range(12))
