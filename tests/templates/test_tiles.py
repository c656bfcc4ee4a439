"""Tile templates in tiles far smaller than the library's, so that there are many of them; against NumPy in float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from support.places import to_host
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


@pytest.mark.parametrize(("persistent", "blocks"), [(True, 5), (True, 77), (False, 77)])
def test_every_tile_is_made_once(stream: Any, xp: Any, persistent: bool, blocks: int) -> None:
    needs_tiles()
    m, n, k = 170, 112, 40
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("f2") for shape in ((m, k), (k, n)))
    c = xp.zeros((m, n), "f4")
    kernel = ck.Kernel.from_template("tile/matmul/matmul")[
        "__half", "__half", "float", "cudakit::identity", "int", 16, 16, 16, 4, 1, 16, 16, False, False, False, False,
        False, persistent
    ]  # fmt: skip
    left, right = xp.asarray(a), xp.asarray(b)
    kernel(stream, ck.config(blocks), left, right, c, c, c, 1.0, 1, m, n, k, k, n, n, 0, 0, 0)
    np.testing.assert_allclose(to_host(c), a.astype(float) @ b.astype(float), rtol=1e-5, atol=1e-4)
