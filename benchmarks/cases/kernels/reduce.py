"""Reductions beside CuPy, torch and CUB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any

import cupy
import numpy as np

from cases.case import Case, random_array
from cases.peers import as_torch, cub, torch_module
from cudakit import ops

DTYPES = ("float32", "float16", "int8", "float64")


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Everything; then the rows and the columns of a square; then two vectors."""
    for dtype in DTYPES[:1] if quick else DTYPES:
        for size in sizes:
            x = random_array(size, dtype)
            yield from _whole(x, dtype)
            side = isqrt(size)
            if size > sizes[0]:
                yield from _square(x[: side * side].reshape(side, side), dtype)
            yield _dot(x, dtype)


def _case(
    op: str, x: Any, run: Callable[..., Any], peers: dict[str, Callable[[], object] | None], aim: str = ""
) -> Case:
    """A case of an op whose result goes to an array made once, as the peers' does."""
    out = run()
    found = {name: call for name, call in peers.items() if call is not None}
    return Case(op, x.dtype.name, x.size, x.nbytes, lambda: run(out=out), found, aim)


def _whole(x: Any, dtype: str) -> Iterator[Case]:
    t = as_torch(x) if torch_module() else None
    # CUB's takes float sums of float16, as cudakit's does inside.
    total = cupy.empty((), {"float16": "float32", "int8": "int64"}.get(dtype, dtype))
    greatest, index = cupy.empty((), dtype), cupy.empty((), np.int64)
    out = cupy.empty((), "int64" if dtype == "int8" else dtype)
    yield _case(
        "sum", x, lambda **where: ops.sum(x, **where),
        {"cupy": lambda: x.sum(out=out), "torch": getattr(t, "sum", None),
         "cub": cub("reduce", f"cub_sum_{dtype}", x, total, x.size)},
        "≥ 0.99 × CUB",
    )  # fmt: skip
    yield _case(
        "max", x, lambda **where: ops.max(x, **where),
        {"cupy": lambda: x.max(out=greatest), "torch": getattr(t, "max", None),
         "cub": cub("reduce", f"cub_max_{dtype}", x, greatest, x.size)},
        "≥ 0.99 × CUB",
    )  # fmt: skip
    yield _case(
        "argmax", x, lambda **where: ops.argmax(x, **where),
        {"cupy": lambda: x.argmax(out=index), "torch": getattr(t, "argmax", None)},
    )  # fmt: skip
    yield _case("var", x, lambda **where: ops.var(x, **where), {"cupy": x.var})
    yield _case("norm", x, lambda **where: ops.norm(x, **where), {"cupy": lambda: cupy.linalg.norm(x)})
    yield _case(
        "count_nonzero", x, lambda **where: ops.count_nonzero(x, **where), {"cupy": lambda: cupy.count_nonzero(x)}
    )


def _square(x: Any, dtype: str) -> Iterator[Case]:
    t = as_torch(x) if torch_module() else None
    for name, axis in (("rows", 1), ("columns", 0)):
        for op in ("sum", "argmax"):
            own, peers = getattr(ops, op), {"cupy": lambda op=op, axis=axis: getattr(x, op)(axis=axis)}
            if t is not None:
                peers["torch"] = lambda op=op, axis=axis: getattr(t, op)(axis)
            yield _case(f"{op} of {name}", x, lambda own=own, axis=axis, **where: own(x, axis, **where), peers)


def _dot(x: Any, dtype: str) -> Case:
    y = x[::-1].copy()
    out = ops.dot(x, y)
    peers = {"cupy": lambda: cupy.dot(x, y)}
    if torch_module() and dtype != "int8":
        peers["torch"] = lambda: torch_module().dot(as_torch(x), as_torch(y))
    return Case("dot", dtype, x.size, 2 * x.nbytes, lambda: ops.dot(x, y, out=out), peers)
