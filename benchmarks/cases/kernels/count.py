"""Histograms beside CuPy, torch and CUB, on several kinds of data: a count's time may depend on its values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np

from cases.case import Case
from cases.peers import as_torch, cub, torch_module
from cudakit import ops

BINS = 256
#: CuPy's histogram takes minutes on the largest size where all values are equal.
CUPY_MOST = 1 << 24


def data(kind: str, size: int, dtype: str) -> Any:
    """`size` values: whole numbers below 256 for integers, in [0, 1) for floating point."""
    generator = cupy.random.default_rng(1)
    out = cupy.empty(size, dtype)
    whole = out.dtype.kind in "iu"
    for start in range(0, size, 1 << 24):
        part = out[start : start + (1 << 24)]
        uniform = generator.random(part.size, dtype=cupy.float32)
        if kind == "equal":
            uniform[...] = 0.3
        elif kind == "zipf":
            uniform = BINS**uniform / BINS - 1 / BINS  # density falls as 1 / value
        part[...] = (uniform * BINS if whole else uniform).astype(dtype)
    return out


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Histogram of 256 bins on uniform, all-equal and Zipf-like values; given edges; bincount."""
    entries = {"uint8": "u8", "int32": "i32", "float32": "f32", "float64": "f64"}
    for dtype in ("uint8", "int32", "float32") if quick else (*entries, "float16"):
        top = BINS if np.dtype(dtype).kind in "iu" else 1
        for size in sizes:
            for kind in ("uniform", "equal", "zipf") if size == sizes[-1] else ("uniform",):
                x = data(kind, size, dtype)
                out, counted = cupy.empty(BINS, np.int64), cupy.empty(BINS, np.int32)
                peers = {}
                if size <= CUPY_MOST:
                    peers["cupy"] = lambda x=x, top=top: cupy.histogram(x, BINS, (0, top))
                if torch_module() and dtype == "float32":
                    t = as_torch(x)
                    peers["torch"] = lambda t=t: t.histc(BINS, 0, 1)
                name = f"cub_histogram_{entries.get(dtype)}"
                if dtype in entries and (own := cub("count", name, x, counted, BINS, 0, top, size)):
                    peers["cub"] = own

                def run(x: Any = x, out: Any = out, top: int = top) -> None:
                    ops.histogram(x, BINS, (0, top), out=out)

                yield Case(f"histogram, {kind}", dtype, size, x.nbytes, run, peers, "≥ 1.5 × CUB")
    for size in sizes:
        x = data("uniform", size, "float32")
        edges = np.sort(np.random.default_rng(1).random(BINS + 1)).astype(np.float32)
        out, counted, known = cupy.empty(BINS, np.int64), cupy.empty(BINS, np.int32), cupy.asarray(edges)
        peers = {"cupy": lambda x=x, known=known: cupy.histogram(x, known)} if size <= CUPY_MOST else {}
        if own := cub("count", "cub_histogram_edges_f32", x, counted, known, BINS, size):
            peers["cub"] = own
        yield Case(
            "histogram, edges",
            "float32",
            size,
            x.nbytes,
            lambda x=x, known=known, out=out: ops.histogram(x, known, out=out),
            peers,
        )
    for size in sizes:
        for bins in (BINS, 1 << 16, 1 << 22):
            x = cupy.random.default_rng(1).integers(0, bins, size, dtype=np.int32)
            peers = {"cupy": lambda x=x, bins=bins: cupy.bincount(x, minlength=bins)} if size <= CUPY_MOST else {}
            if torch_module():
                t = as_torch(x)
                peers["torch"] = lambda t=t, bins=bins: t.bincount(minlength=bins)
            out = cupy.empty(bins, np.int64)
            yield Case(
                f"bincount, {bins} bins",
                "int32",
                size,
                x.nbytes,
                lambda x=x, bins=bins, out=out: ops.bincount(x, length=bins, out=out),
                peers,
            )
