"""Reductions beside CuPy, torch and CUB."""

from __future__ import annotations

from collections.abc import Iterator

import cupy
import numpy as np

from cases import Case, as_torch, cub, random_array, torch_module
from cudakit.ops import reduce as ops


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Sum over everything."""
    for dtype in ("float32",) if quick else ("float32", "float16", "int8", "float64"):
        for size in sizes:
            x = random_array(size, dtype)
            out = cupy.empty((), dtype)
            peers = {"cupy": lambda x=x, out=out: x.sum(out=out)}
            if torch_module():
                t = as_torch(x)
                peers["torch"] = lambda t=t: t.sum()
            if dtype == "float32" and (own := cub("reduce", "cub_sum_f32", x, out, size)):
                peers["cub"] = own
            yield Case("sum", dtype, size, x.nbytes, lambda x=x, out=out: ops.sum(x, out=out), peers, "≥ 0.99 × CUB")
