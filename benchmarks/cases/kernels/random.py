"""Random numbers beside CuPy's and torch's, and beside memory that is set: they are written, and nothing is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cupy
import numpy as np

from cases.case import Case
from cases.peers import torch_module
from cudakit.random import default_rng

#: Of full words, of several numbers a word, and of 64 bits.
_RANGES = (
    *(("int32", high) for high in (1000, 10**9, 2**31)),
    *(("uint8", high) for high in (20, 100, 256)),
    *(("int16", 1000), ("int64", 1000), ("int64", 2**62)),
)


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Each distribution to one array."""
    own = default_rng(1)
    for size in sizes:
        for dtype in ("float32",) if quick else ("float32", "float64", "float16"):
            out = cupy.empty(size, dtype)
            yield _case("uniform", out, lambda out=out: own.random(out=out), "≥ 0.9 × memset")  # type: ignore[misc]
            yield _case("normal", out, lambda out=out: own.standard_normal(out=out), "≥ 1.0 × CuPy")  # type: ignore[misc]
        if not quick:
            for dtype, high in _RANGES:
                out = cupy.empty(size, dtype)
                run = lambda out=out, high=high: own.integers(high, out=out)  # noqa: E731
                yield _case(f"integers below {high:,}", out, run, "memset, or the floor")
            flags = cupy.empty(size, bool)
            yield _case("bernoulli", flags, lambda flags=flags: own.bernoulli(0.3, out=flags), "memset, or the floor")  # type: ignore[misc]
        if size <= 1 << 24:
            peers: dict[str, Callable[[], object]] = {"cupy": lambda size=size: cupy.random.permutation(size)}  # type: ignore[misc]
            run = lambda size=size: own.permutation(size)  # noqa: E731
            yield Case("permutation", "int64", size, 8 * size, run, peers, "CuPy")


def _case(op: str, out: cupy.ndarray, run: Callable[[], object], aim: str) -> Case:
    peers: dict[str, Callable[[], object]] = {"memset": lambda: out.data.memset_async(0, out.nbytes)}
    generator = cupy.random.default_rng(1)
    kind = np.dtype(out.dtype).kind
    if op in ("uniform", "normal") and out.dtype != np.float16:
        call = generator.random if op == "uniform" else generator.standard_normal
        peers["cupy"] = lambda: call(out.size, dtype=out.dtype, out=out)
    if kind == "f" and (torch := torch_module()):
        tensor = torch.from_dlpack(out)
        peers["torch"] = tensor.uniform_ if op == "uniform" else tensor.normal_
    return Case(op, str(out.dtype), out.size, out.nbytes, run, peers, aim)
