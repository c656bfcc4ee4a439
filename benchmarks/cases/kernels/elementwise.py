"""Arithmetic on elements beside CuPy and torch."""

from __future__ import annotations

from collections.abc import Iterator

import cupy

from cases.case import Case, random_array
from cases.peers import as_torch, torch_module
from cudakit import ops


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Sums of two arrays."""
    for dtype in ("float32",) if quick else ("float32", "float16", "int8", "float64"):
        for size in sizes:
            x, y = random_array(size, dtype), random_array(size, dtype, seed=2)
            out = cupy.empty_like(x)
            peers = {"cupy": lambda x=x, y=y, out=out: cupy.add(x, y, out)}
            if torch := torch_module():
                a, b, c = as_torch(x), as_torch(y), as_torch(out)
                peers["torch"] = lambda torch=torch, a=a, b=b, c=c: torch.add(a, b, out=c)
            run = lambda x=x, y=y, out=out: ops.add(x, y, out=out)  # noqa: E731
            yield Case("add", dtype, size, 3 * x.nbytes, run, peers, "≥ 1.03 × memcpy")
