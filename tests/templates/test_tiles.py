"""Tile templates in tiles far smaller than the library's, so that there are many of them; against NumPy in float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers
from support.tiles import needs_tiles

import cudakit as ck
from cudakit.jit.source.headers import templates_folder

PATHS = sorted(templates_folder().glob("tile/*.cuh"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_comment_has_the_fixed_order(path: Any) -> None:
    heads = re.findall(r"((?:^//.*\n)+)template <[^;{]*?>\n(?:\[\[.*\]\]\n)?__tile_global__", path.read_text(), re.M)
    assert heads
    for head in heads:
        found = re.findall(r"^// (\w+):", head, re.MULTILINE)
        assert found == ["Shapes", "Threads", "Memory", "Preconditions", "Launch", "Source"]


@in_tiers("persistent, several, swapped", [True, False], [True, False], [False, True])
def test_every_tile_is_made_once(stream: Any, xp: Any, persistent: bool, several: bool, swapped: bool) -> None:
    needs_tiles()
    batches = (3 if persistent else 2) if several else 1
    blocks = (7 if several else 5) if persistent else 77 * batches
    m, n, k = 170, 112, 40
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((batches, *shape)).astype("f2") for shape in ((m, k), (k, n)))
    c = xp.zeros((batches, m, n), "f4")
    kernel = ck.Kernel.from_template("tile/matmul/matmul")[
        "__half", "__half", "float", "cudakit::identity", "int", 16, 16, 16, 4, 1, 16, 16, False, False, batches > 1,
        False, False, persistent, swapped
    ]  # fmt: skip
    left, right = xp.asarray(a), xp.asarray(b)
    kernel(stream, ck.config(blocks), left, right, c, c, c, 1.0, batches, m, n, k, k, n, n, m * k, k * n, m * n)
    np.testing.assert_allclose(to_host(c), a.astype(float) @ b.astype(float), rtol=1e-5, atol=1e-4)


@in_tiers(
    "order, shape",
    [(False, False, False), (True, True, False), (True, False, True)],
    [(64, 1, (16, 32)), (75, 2, (16, 32)), (50, 4, (32, 16)), (1, 1, (16, 16))],
    quick=lambda order, shape: (order[0], shape[0]) in ((False, 75), (True, 50)),
    strength=None,
)
def test_attention(
    stream: Any, xp: Any, order: tuple[bool, bool, bool], shape: tuple[int, int, tuple[int, int]]
) -> None:
    (causal, behind, first), (length, shared, tiles) = order, shape
    needs_tiles()
    heads, d = 4, 16
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((n, length, d)).astype("f2") for n in (heads, heads // shared, heads // shared))
    o = xp.zeros((heads, length, d), "f2")
    kernel = ck.Kernel.from_template("tile/attention/attention")[
        "__half", d, 16, *tiles, 4, 1, causal, behind, first
    ]  # fmt: skip
    grid = (-(-length // tiles[0]), heads)
    sizes = (heads, shared, length, length)
    arrays = (xp.asarray(each) for each in (q, k, v))
    kernel(stream, ck.config(grid[::-1] if first else grid), *arrays, o, np.log2(np.e) / 4, *sizes)
    keys, values = (each.astype(float).repeat(shared, 0) for each in (k, v))
    products = q.astype(float) @ keys.swapaxes(1, 2) / 4
    if causal:
        products[:, np.triu(np.ones((length, length), bool), 1)] = -np.inf
    weights = np.exp(products - products.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ values
    # Weights and the result are rounded to float16's 11 bits.
    np.testing.assert_allclose(to_host(o), want, rtol=2e-3, atol=2e-3)


@in_tiers(
    "bias, shape",
    [False, True],
    [(5, 64, 16), (7, 50, 4), (1, 1, 2), (9, 40, 16)],
    quick=lambda bias, shape: bias == (shape[2] == 16),
    strength=None,
)
def test_softmax(stream: Any, xp: Any, bias: bool, shape: tuple[int, int, int]) -> None:
    rows, n, align = shape
    needs_tiles()
    rng = np.random.default_rng(0)
    x, before = (rng.standard_normal(shape).astype("f2") for shape in ((rows, n), (n,)))
    y = xp.zeros((rows, n), "f2")
    kernel = ck.Kernel.from_template("tile/rows/softmax")["__half", 64, 2, 1, align, bias]
    kernel(stream, ck.config(3), xp.asarray(x), xp.asarray(before), y, 0.5, rows, n, n)
    powers = np.exp(0.5 * x.astype(float) + bias * before)
    np.testing.assert_allclose(to_host(y), powers / powers.sum(-1, keepdims=True), rtol=2e-3, atol=1e-4)


@in_tiers(
    "affine, shape",
    [False, True],
    [(5, 64, 16), (7, 50, 4), (1, 1, 2)],
    quick=lambda affine, shape: affine == (shape[1] == 50),
    strength=None,
)
def test_layernorm(stream: Any, xp: Any, affine: bool, shape: tuple[int, int, int]) -> None:
    rows, n, align = shape
    needs_tiles()
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.standard_normal(shape).astype("f2") for shape in ((rows, n), (n,), (n,)))
    y = xp.zeros((rows, n), "f2")
    kernel = ck.Kernel.from_template("tile/rows/layernorm")["__half", 64, 2, 1, align, affine]
    kernel(stream, ck.config(3), *(xp.asarray(each) for each in (x, weight, bias)), y, 1e-3, rows, n, n)
    left = x - x.mean(-1, keepdims=True, dtype=float)
    want = left / np.sqrt((left**2).mean(-1, keepdims=True) + 1e-3)
    want = want * weight + bias if affine else want
    np.testing.assert_allclose(to_host(y), want, rtol=2e-3, atol=2e-3)
