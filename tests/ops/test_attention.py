"""Attention by a tile kernel and by one of threads, against NumPy in float64."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers
from support.tiles import needs_tiles

import cudakit as ck
from cudakit.ops.attention import TABLE, Choice, Tiles, choose

F2 = np.dtype("f2")


@pytest.fixture(params=["tiles", "threads"])
def by(request: pytest.FixtureRequest) -> Any:
    if request.param == "tiles":
        needs_tiles()
    return request.param


def numbers(*shape: int, dtype: Any = F2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def operands(
    q: tuple[int, ...], keys: int | None = None, shared: int = 1, dtype: Any = F2
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    *around, heads, queries, d = q
    k = (*around, heads // shared, keys or queries, d)
    return numbers(*q, dtype=dtype), numbers(*k, dtype=dtype, seed=1), numbers(*k, dtype=dtype, seed=2)


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False, scale: float | None = None) -> Any:
    shared = q.shape[-3] // k.shape[-3]
    left, keys, values = q.astype(float), k.astype(float).repeat(shared, -3), v.astype(float).repeat(shared, -3)
    products = left @ keys.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        queries, count = products.shape[-2:]
        products[..., np.triu(np.ones((queries, count), bool), 1 + count - queries)] = -np.inf
    weights = np.exp(products - products.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ values


def check(got: Any, want: np.ndarray) -> None:
    found = to_host(got)
    assert found.shape == want.shape
    # Weights, 1 at most, are rounded to the dtype; so is the result.
    eps = float(ml_dtypes.finfo(found.dtype).eps)
    np.testing.assert_allclose(found.astype(float), want, rtol=eps, atol=2 * eps)


#: Shape of the queries, number of keys where it is another, and heads that share keys.
SHAPES: list[tuple[tuple[int, ...], int | None, int]] = [
    ((1, 64, 64), None, 1),
    ((2, 1, 64), None, 1),
    ((4, 75, 64), None, 2),
    ((2, 130, 128), None, 1),
    ((2, 2, 4, 40, 16), None, 4),
    ((1, 3, 64), 150, 1),
    ((2, 70, 40), 129, 1),
    ((1, 65, 256), None, 1),
    ((2, 33, 8), 34, 2),
]


@in_tiers(
    "case, by, causal",
    SHAPES,
    ["tiles", "threads"],
    [False, True],
    quick=lambda case, *_: SHAPES.index(case) in (2, 6),
)
def test_shapes(stream: Any, xp: Any, case: tuple[tuple[int, ...], int | None, int], by: str, causal: bool) -> None:
    if by == "tiles":
        needs_tiles()
    given = operands(*case)
    for _ in range(2):
        got = ck.ops.attention(*(xp.asarray(each) for each in given), causal=causal, by=by, stream=stream)
    assert got.dtype == F2
    check(got, expected(*given, causal))


@pytest.mark.slow
@in_tiers(
    "tiles, heads_first, causal",
    [*TABLE[128], Tiles(16, 32, 4, behind=True)],
    [False, True],
    [False, True],
)
def test_all_tiles_of_the_table(
    stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch, tiles: Tiles, heads_first: bool, causal: bool
) -> None:
    needs_tiles()
    monkeypatch.setattr(import_module("cudakit.ops.attention"), "choose", lambda *_: Choice(tiles, heads_first, ""))
    # Of 256 keys all tiles are whole.
    for d, keys in ((64, 300), (72, 256)):
        given = operands((2, 140, d), keys, 2)
        check(
            ck.ops.attention(*(xp.asarray(each) for each in given), causal=causal, by="tiles", stream=stream),
            expected(*given, causal),
        )


def test_which_tiles_are_taken() -> None:
    def chosen(*sizes: int, d: int = 128, causal: bool = False) -> Choice:
        return choose.__wrapped__(d, causal, sizes, "sm_90")

    assert chosen(512, 1, 8192, 8192).tiles.behind
    assert not chosen(512, 1, 512, 512).tiles.behind
    assert chosen(16, 1, 8192, 8192, causal=True).heads_first
    assert not chosen(128, 1, 1024, 1024, causal=True).heads_first
    assert chosen(70_000, 1, 64, 64).heads_first
    assert chosen(1, 1, 64, 64, d=72).tiles == chosen(1, 1, 64, 64).tiles


def test_bfloat16(stream: Any, xp: Any, by: Any) -> None:
    if xp is not np:
        pytest.skip("CuPy has no such arrays")
    given = operands((2, 70, 64), dtype=ml_dtypes.bfloat16)
    check(ck.ops.attention(*given, by=by, stream=stream), expected(*given))


def test_scale(stream: Any, xp: Any, by: Any) -> None:
    given = operands((1, 40, 64))
    for scale in (0.01, 0.5):
        got = ck.ops.attention(*(xp.asarray(each) for each in given), scale=scale, by=by, stream=stream)
        check(got, expected(*given, scale=scale))


def test_views_are_copied_first(stream: Any, xp: Any, by: Any) -> None:
    q, k, v = operands((2, 70, 64))
    # As models have them: a row of all heads together.
    turned = [xp.asarray(each.swapaxes(0, 1).copy()).swapaxes(0, 1) for each in (q, k, v)]
    check(ck.ops.attention(*turned, by=by, stream=stream), expected(q, k, v))
    flat = xp.asarray(np.concatenate([np.zeros(1, F2), q.ravel()]))
    odd = flat[1:].reshape(q.shape)
    check(ck.ops.attention(odd, xp.asarray(k), xp.asarray(v), by=by, stream=stream), expected(q, k, v))


def test_outputs(stream: Any, xp: Any, by: Any) -> None:
    q, k, v = operands((2, 70, 64))
    want, (left, keys, values) = expected(q, k, v), (xp.asarray(each) for each in (q, k, v))
    wide = xp.zeros((2, 70, 128), "f4")
    ck.ops.attention(left, keys, values, out=wide[..., ::2], by=by, stream=stream)
    check(wide[..., ::2].astype(F2), want)
    ck.ops.attention(left, keys, values, out=values, by=by, stream=stream)
    check(values, want)
    assert ck.ops.attention(left[:, :0], keys, keys, by=by, stream=stream).shape == (2, 0, 64)


@pytest.mark.parametrize(
    ("shapes", "named", "message"),
    [
        ([(4, 8), (4, 8), (4, 8)], {}, "do not fit"),
        ([(1, 4, 8), (1, 4, 16), (1, 4, 16)], {}, "do not fit"),
        ([(1, 4, 8), (1, 4, 8), (1, 5, 8)], {}, "do not fit"),
        ([(3, 4, 8), (2, 4, 8), (2, 4, 8)], {}, "do not fit"),
        ([(2, 1, 4, 8), (3, 1, 4, 8), (3, 1, 4, 8)], {}, "do not fit"),
        ([(1, 4, 12)] * 3, {}, "multiples of 8"),
        ([(1, 4, 264)] * 3, {}, "up to 256"),
        ([(1, 4, 8), (1, 0, 8), (1, 0, 8)], {}, "no key"),
        ([(1, 5, 8), (1, 4, 8), (1, 4, 8)], {"causal": True}, "at least as many keys"),
        ([(1, 4, 8)] * 3, {"by": "warps"}, "expected 'tiles' or 'threads'"),
        ([(1, 4, 8)] * 3, {"scale": -1.0}, "positive"),
        ([(1, 4, 8)] * 3, {"scale": 0}, "positive"),
        ([(1, 4, 8)] * 3, {"scale": np.nan}, "positive"),
        ([(1, 4, 8)] * 3, {"out": np.zeros((1, 4, 9), F2)}, "out"),
    ],
)
@pytest.mark.emulator
def test_misuse(shapes: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(ck.ArgumentError, match=message):
        ck.ops.attention(*(np.zeros(shape, F2) for shape in shapes), **named)


@pytest.mark.emulator
def test_misuse_of_dtypes() -> None:
    for q, k in (("f4", "f4"), ("f2", "f4"), ("f2", ml_dtypes.bfloat16)):
        with pytest.raises(ck.ArgumentError, match="float16 or bfloat16"):
            ck.ops.attention(np.zeros((1, 4, 8), q), np.zeros((1, 4, 8), k), np.zeros((1, 4, 8), k))


@pytest.mark.emulator
def test_what_is_chosen_is_explained() -> None:
    explain = vars(ck.ops.attention)["explain"]
    q, k, v = operands((2, 70, 64))
    told = explain(q, k[:, ::2], v[:, ::2])
    assert "64 queries × 128 keys, 4 warps" in told
    assert "q: read as it lies" in told
    assert "k: copied first" in told


@pytest.mark.emulator
def test_misuse_of_an_older_device() -> None:
    x = np.zeros((1, 4, 8), F2)
    with pytest.raises(ck.ArgumentError, match=r"compute capability 8\.0"):
        ck.ops.attention(x, x, x, stream=ck.emulator.stream(arch="sm_75"))


@pytest.mark.emulator
def test_the_least_device_that_has_it() -> None:
    x = np.zeros((1, 4, 8), F2)
    explain = vars(ck.ops.attention)["explain"]
    assert "by threads: they are asked for" in explain(x, x, x, by="threads", stream=ck.emulator.stream(arch="sm_80"))


def test_which_way_is_taken(stream: Any, xp: Any, by: Any) -> None:
    x = xp.zeros((2, 40, 64), F2)
    explain = vars(ck.ops.attention)["explain"]
    assert f"by {'tile kernels' if by == 'tiles' else 'threads: they are asked for'}" in explain(x, x, x, by=by)
    assert "q: read as it lies" in explain(x, x, x, by=by)
