"""Sorts beside CUB, CuPy and torch: keys, pairs, indices, rows; and the greatest few."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np

from cases.case import Case, random_array
from cases.peers import as_torch, cub, torch_module
from cudakit import ops


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """One line of keys, of keys with values, of indices; then matrices by rows, and topk."""
    for dtype in ("uint32",) if quick else ("uint32", "float32", "uint8", "int16", "int64", "float64"):
        for size in sizes:
            x = random_array(size, dtype)
            out = cupy.empty_like(x)
            peers: dict[str, Any] = {"cupy": lambda x=x: cupy.sort(x)}
            if own := cub("sort", f"cub_sort_{dtype}", x, out, size):
                peers["cub"] = own
            aim = "≥ 1.0 × CUB" if dtype == "uint32" and size == sizes[-1] else ""
            yield Case("sort", dtype, size, 2 * x.nbytes, lambda x=x, out=out: ops.sort(x, out=out), peers, aim)
            del x, out, peers
    for size in sizes:
        yield pairs(size)
        yield indices(size)
    yield from found(min(sizes[-1], 1 << 26))
    yield from by_rows(quick)
    for shape, k in ((16_384, 8192), 64), ((16_384, 1000), 10), ((64, 1 << 20), 64), ((1, 1 << 26), 256):
        yield greatest(shape, k)


def found(size: int) -> Iterator[Case]:
    """What there is among as many values as a thousandth of the elements, and where elements belong."""
    x = cupy.random.default_rng(1).integers(0, max(2, size // 1000), size, dtype=np.int32)
    peers: dict[str, Any] = {"cupy": lambda: cupy.unique(x, return_counts=True)}
    a, out = ops.sort(random_array(size // 4, "float32")), cupy.empty(size, np.int64)
    v = random_array(size, "float32", 2)
    belongs: dict[str, Any] = {"cupy": lambda: cupy.searchsorted(a, v)}
    if torch_module():
        t, of_a, of_v = as_torch(x), as_torch(a), as_torch(v)
        peers["torch"] = lambda: torch_module().unique(t, return_counts=True)
        belongs["torch"] = lambda: torch_module().searchsorted(of_a, of_v)
    yield Case("unique, counts", "int32", size, x.nbytes, lambda: ops.unique(x, return_counts=True), peers)
    run = lambda: ops.searchsorted(a, v, out=out)  # noqa: E731
    yield Case("searchsorted", "float32", size, v.nbytes + out.nbytes, run, belongs)


def pairs(size: int) -> Case:
    """Keys and values of 32 bits."""
    keys, values = random_array(size, "uint32"), cupy.arange(size, dtype=np.uint32)
    out = cupy.empty_like(keys), cupy.empty_like(values)
    peers = {}
    if own := cub("sort", "cub_pairs_uint32", keys, out[0], values, out[1], size):
        peers["cub"] = own
    moved = 2 * (keys.nbytes + values.nbytes)
    return Case(
        "sort_by_key", "uint32", size, moved, lambda: ops.sort_by_key(keys, values, out=out), peers, "≥ 1.0 × CUB"
    )


def indices(size: int) -> Case:
    """Indices of float32, which CUB and we write with 32 bits."""
    x = random_array(size, "float32")
    values, out = cupy.arange(size, dtype=np.uint32), cupy.empty(size, np.uint32)
    keys_out = cupy.empty_like(x)
    peers: dict[str, Any] = {"cupy": lambda: cupy.argsort(x)}
    if own := cub("sort", "cub_pairs_float32", x, keys_out, values, out, size):
        peers["cub"] = own
    if torch_module():
        t = as_torch(x)
        peers["torch"] = lambda: torch_module().argsort(t, stable=True)
    moved = x.nbytes + out.nbytes
    return Case(
        "argsort", "float32", size, moved, lambda: ops.argsort(x, dtype=np.uint32, out=out), peers, "≥ 1.0 × CUB"
    )


def by_rows(quick: bool) -> Iterator[Case]:
    """Matrices, from many short rows to few long ones."""
    for shape in ((1 << 20, 32), (1 << 17, 256), (1 << 15, 1024), (1 << 13, 4096), (1 << 10, 1 << 15)):
        x = random_array(shape[0] * shape[1], "float32").reshape(shape)
        out = cupy.empty_like(x)
        peers: dict[str, Any] = {"cupy": lambda x=x: cupy.sort(x, -1)}
        if torch_module():
            t = as_torch(x)
            peers["torch"] = lambda t=t: torch_module().sort(t, -1)
        yield Case(f"sort {shape}", "float32", x.size, 2 * x.nbytes, lambda x=x, out=out: ops.sort(x, out=out), peers)
        if quick:
            return


def greatest(shape: tuple[int, int], k: int) -> Case:
    """The k greatest of each row, with their indices, in order."""
    x = random_array(shape[0] * shape[1], "float32").reshape(shape)
    out = cupy.empty((shape[0], k), np.float32), cupy.empty((shape[0], k), np.int64)
    peers = {}
    if torch_module():
        t = as_torch(x)
        peers["torch"] = lambda: torch_module().topk(t, k)
    return Case(
        f"topk {k} of {shape}", "float32", x.size, x.nbytes, lambda: ops.topk(x, k, out=out), peers, "≥ 1.5 × torch"
    )
