"""Copies, transpositions, flips, rolls, pads, takes, compactions and casts beside CuPy, torch and CUB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isqrt

import cupy

from cases.case import Case, random_array
from cases.peers import as_torch, cub, torch_module
from cudakit import ops

#: Elements of a row where an op is measured on rows.
_ROW = 1024


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Every move, each on one array."""
    for dtype in ("float32",) if quick else ("float32", "float16", "int8", "float64"):
        for size in sizes:
            x = random_array(size, dtype)
            side = 1 << (isqrt(size).bit_length() - 1)
            both = 2 * x.nbytes
            for op, run, peers, aim in _moves(x, x.reshape(side, -1)):
                yield Case(op, dtype, size, both, run, peers, aim)
            yield from _compactions(x, dtype, size)
            yield from _casts(x, dtype, size)


Calls = dict[str, Callable[[], object]]


def _moves(x: cupy.ndarray, square: cupy.ndarray) -> Iterator[tuple[str, Callable[[], object], Calls, str]]:
    out = cupy.empty_like(x)
    turned = cupy.empty(square.shape[::-1], x.dtype)

    def named(own: Callable[..., object], *arguments: object, out: cupy.ndarray = out) -> Callable[[], object]:
        return lambda: own(*arguments, out=out)

    yield "copy", named(ops.copy, x), {"cupy": lambda: cupy.copyto(out, x)}, "memcpy"
    peers: Calls = {"cupy": lambda: cupy.copyto(turned, square.T)}
    if torch_module():
        own, target = as_torch(square), as_torch(turned)
        peers["torch"] = lambda: target.copy_(own.T)
    yield "transpose", named(ops.transpose, square, out=turned), peers, "≥ 0.95 × memcpy"
    rows = x.reshape(-1, min(_ROW, x.size))
    result = out.reshape(rows.shape)
    yield "flip", named(ops.flip, x), {"cupy": lambda: cupy.copyto(out, x[::-1])}, "memcpy"
    yield "roll", named(ops.roll, x, 12345 % x.size), {"cupy": lambda: cupy.roll(x, 12345 % x.size)}, "memcpy"
    yield "roll rows", named(ops.roll, rows, 3, 1, out=result), {"cupy": lambda: cupy.roll(rows, 3, 1)}, "memcpy"
    inner = square[1:-1, 1:-1]
    framed = cupy.empty(square.shape, x.dtype)
    whole = inner.copy()
    yield "pad", named(ops.pad, whole, 1, out=framed), {"cupy": lambda: cupy.pad(whole, 1)}, "memcpy"
    order = cupy.random.permutation(rows.shape[0])
    yield (
        "take rows",
        named(ops.take, rows, order, 0, out=result),
        {"cupy": lambda: cupy.take(rows, order, 0, result)},
        "memcpy",
    )
    halves = x[: x.size // 2], x[x.size // 2 :]
    yield "concatenate", named(ops.concatenate, halves), {"cupy": lambda: cupy.concatenate(halves, out=out)}, "memcpy"


def _compactions(x: cupy.ndarray, dtype: str, size: int) -> Iterator[Case]:
    where = random_array(size, "int8", seed=2) >= 0
    out, count = cupy.empty_like(x), cupy.zeros((), cupy.int64)
    kept = int(where.sum()) * x.itemsize
    peers: Calls = {"cupy": lambda: x[where]}
    if torch_module():
        values, mask = as_torch(x), as_torch(where)
        peers["torch"] = lambda: values[mask]
    if dtype == "float32" and (own := cub("move", "cub_flagged_f32", x, where, out, count, size)):
        peers["cub"] = own
    moved = x.nbytes + size + kept
    yield Case("compact", dtype, size, moved, lambda: ops.compact(x, where, out=out, count=count), peers, "CUB")


def _casts(x: cupy.ndarray, dtype: str, size: int) -> Iterator[Case]:
    for target in ("float16", "int8", "float64") if dtype == "float32" else ("float32",):
        out = cupy.empty(size, target)
        peers: Calls = {"cupy": lambda out=out: cupy.copyto(out, x, casting="unsafe")}  # type: ignore[misc]
        yield Case(
            f"cast to {target}",
            dtype,
            size,
            x.nbytes + out.nbytes,
            lambda target=target, out=out: ops.cast(x, target, out=out),  # type: ignore[misc]
            peers,
            "memcpy",
        )
