"""Stencils beside CuPy's ElementwiseKernel with raw arguments and beside a copy, which reads and writes as much."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import cupy

from cases.case import Case, random_array
from cudakit import stencil

_FIVE = "0.25f * (u(0, 1) + u(0, -1) + u(1, 0) + u(-1, 0))"
_POINTS = {
    1: "T(0.25) * (u(-1) + 2 * u(0) + u(1))",
    2: "T(0.25) * (u(0, 1) + u(0, -1) + u(1, 0) + u(-1, 0))",
    3: f"T(0.037) * ({' + '.join(f'u({z}, {y}, {x})' for z, y, x in product((-1, 0, 1), repeat=3))})",
}
_SHAPES = {
    1: {1 << 10: (1 << 10,), 1 << 28: (1 << 28,)},
    2: {1 << 10: (32, 32), 1 << 24: (4096, 4096), 1 << 26: (8192, 8192), 1 << 28: (1 << 14, 1 << 14)},
    3: {1 << 24: (256, 256, 256), 1 << 27: (512, 512, 512)},
}
#: The 5-point one by hand.
_THEIRS = """
    int y = i / width, x = i % width, h = cells / width;
    int up = max(y - 1, 0), down = min(y + 1, h - 1), left = max(x - 1, 0), right = min(x + 1, width - 1);
    out = T(0.25) * (u[y * width + right] + u[y * width + left] + u[down * width + x] + u[up * width + x]);
"""


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """3 points of a line, 5 of a plane, 27 of a cube, and more steps."""
    theirs = cupy.ElementwiseKernel("raw T u, int32 width, int32 cells", "T out", _THEIRS, "their_stencil")
    for dtype in ("float32",) if quick else ("float32", "float64", "float16"):
        for rank, shapes in _SHAPES.items():
            for mode in ("nearest", "reflect", "wrap", "constant")[: None if dtype == "float32" and not quick else 1]:
                own = stencil("T out", _POINTS[rank], "T u", f"points_{rank}", mode=mode)
                for size, shape in shapes.items():
                    u = random_array(size, dtype).reshape(shape)
                    out = cupy.empty_like(u)
                    run = lambda own=own, u=u, out=out: own(u, out=out)  # noqa: E731
                    peers = {}
                    if rank == 2 and dtype != "float16":
                        peers["cupy"] = lambda u=u, out=out: theirs(u, u.shape[1], u.size, out)
                    aim = "≥ 0.8 × memcpy" if rank == 3 else "≥ 0.9 × memcpy"
                    yield Case(
                        f"{3**rank if rank != 2 else 5} points, {mode}", dtype, size, 2 * u.nbytes, run, peers, aim
                    )
    u = random_array(1 << 26, "float32").reshape(8192, 8192)
    out = cupy.empty_like(u)
    average = stencil("float out", _FIVE, mode="nearest")
    for steps in (2, 4, 8):
        run = lambda steps=steps: average(u, out=out, steps=steps)  # noqa: E731
        yield Case(f"5 points, {steps} steps", "float32", u.size, 2 * u.nbytes * steps, run, {}, "memcpy of each step")
