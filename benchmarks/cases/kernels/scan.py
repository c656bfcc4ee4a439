"""Scans beside CuPy, torch and CUB."""

from __future__ import annotations

from collections.abc import Iterator

import cupy

from cases.case import Case, random_array
from cases.peers import as_torch, cub, torch_module
from cudakit import ops


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Cumulative sums of one line; then along both axes of matrices, and by keys."""
    for dtype in ("float32",) if quick else ("float32", "float16", "int8", "float64"):
        for size in sizes:
            x = random_array(size, dtype)
            out = cupy.empty(size, "int64" if dtype == "int8" else dtype)
            peers = {"cupy": lambda x=x, out=out: cupy.cumsum(x, dtype=out.dtype, out=out)}
            if torch_module():
                t, target = as_torch(x), as_torch(out)
                peers["torch"] = lambda t=t, target=target: torch_module().cumsum(t, 0, out=target)
            if own := cub("scan", f"cub_cumsum_{dtype}", x, out, size):
                peers["cub"] = own
            aim = "≥ 1.20 × CUB" if dtype == "float32" and size == sizes[-1] else ""
            moved = x.nbytes + out.nbytes
            yield Case("cumsum", dtype, size, moved, lambda x=x, out=out: ops.cumsum(x, out=out), peers, aim)
            del x, out, peers
    yield from along_axes(sizes)
    yield from by_keys(sizes[-1])


def along_axes(sizes: tuple[int, ...]) -> Iterator[Case]:
    """Matrices from wide to tall."""
    for shape, axis in (
        ((32, 32), 1),
        ((16384, 16384), 1),
        ((1 << 20, 256), 1),
        ((1 << 24, 16), 1),
        ((32, 1 << 23), 1),
        ((16384, 16384), 0),
        ((1 << 20, 256), 0),
        ((1 << 23, 32), 0),
    ):
        size = shape[0] * shape[1]
        x = random_array(size, "float32").reshape(shape)
        out = cupy.empty_like(x)
        peers = {"cupy": lambda x=x, out=out, axis=axis: cupy.cumsum(x, axis=axis, out=out)}
        if torch_module() and shape in ((32, 32), (16384, 16384), (32, 1 << 23)):  # seconds a call, where it is tall
            t, target = as_torch(x), as_torch(out)
            peers["torch"] = lambda t=t, target=target, axis=axis: torch_module().cumsum(t, axis, out=target)
        own = lambda x=x, out=out, axis=axis: ops.cumsum(x, axis, out=out)  # noqa: E731
        yield Case(f"cumsum {shape} axis {axis}", "float32", size, 2 * x.nbytes, own, peers)
        del x, out, peers


def by_keys(size: int) -> Iterator[Case]:
    """Segments of 100 elements."""
    x, keys = random_array(size, "float32"), cupy.arange(size, dtype=cupy.int32)
    keys //= 100
    out = cupy.empty_like(x)
    peers = {}
    if own := cub("scan", "cub_cumsum_by_key_float32", keys, x, out, size):
        peers["cub"] = own
    moved = x.nbytes + keys.nbytes + out.nbytes
    yield Case("cumsum by keys", "float32", size, moved, lambda: ops.cumsum(x, keys=keys, out=out), peers)
