"""Reductions and scans made from expressions beside the ops', CuPy's ReductionKernel and CUB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cupy

from cases.case import Case, random_array
from cases.peers import cub
from cudakit import ops, reduction, scan

_SIZES = (1 << 10, 1 << 20, 1 << 28)
_DTYPES = ("float32", "float16", "int8", "float64")
_BEST = "struct best { float x; long long i; };"
_BETTER = "a.x > b.x || (a.x == b.x && a.i < b.i) ? a : b"


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Everything at three sizes; then the rows and the columns of a square, and segments."""
    for dtype in ("float32",) if quick else _DTYPES:
        # As wide as CUB's and the ops' are.
        result = "int64" if dtype == "int8" else "T"
        total = reduction("T x", f"{result} out", "x", "a + b", "0", name="total")
        their_total = cupy.ReductionKernel("T x", f"{result} out", "x", "a + b", "out = a", "0", "their_total")
        kind = "int64" if dtype == "int8" else dtype
        for size in _SIZES:
            x, out = random_array(size, dtype), cupy.empty((), kind)
            wide = cupy.empty((), "float32" if dtype == "float16" else kind)
            peers = {
                "cupy": lambda x=x, out=out, their_total=their_total: their_total(x, out),
                "ops": lambda x=x, out=out: ops.sum(x, out=out),
                "cub": cub("reduce", f"cub_sum_{dtype}", x, wide, size),
            }
            aim = "≤ 1.0 × CuPy" if size == _SIZES[0] else "≥ 0.99 × CUB"
            run = lambda x=x, out=out, total=total: total(x, out=out)  # noqa: E731
            yield _case("sum", x, run, peers, x.nbytes, aim)
            yield _dot(x, cupy.empty((), dtype))
        x = random_array(1 << 28, dtype).reshape(1 << 14, 1 << 14)
        for axis in (0, 1):
            out = cupy.empty(1 << 14, kind)
            peers = {
                "cupy": lambda x=x, out=out, axis=axis, their_total=their_total: their_total(x, out, axis=axis),
                "ops": lambda x=x, out=out, axis=axis: ops.sum(x, axis, out=out),
            }
            run = lambda x=x, out=out, axis=axis, total=total: total(x, axis=axis, out=out)  # noqa: E731
            yield _case(f"sum, axis {axis} of a square", x, run, peers, x.nbytes)
        offsets = cupy.arange(0, x.size + 1, 1000)
        run = lambda x=x, at=offsets, total=total: total(x.reshape(-1), segments=at)  # noqa: E731
        yield _case("sum, segments of 1000", x, run, {}, x.nbytes)
    yield from _several(_SIZES)
    yield from _scans(_SIZES, quick)


def _case(op: str, x: Any, run: Any, peers: dict[str, Any], moved: int, aim: str = "") -> Case:
    run()
    return Case(op, x.dtype.name, x.size, moved, run, {name: call for name, call in peers.items() if call}, aim)


def _dot(x: Any, out: Any) -> Case:
    own = reduction("T x, T y", "T out", "x * y", "a + b", "0", name="dot")
    theirs = cupy.ReductionKernel("T x, T y", "T out", "x * y", "a + b", "out = a", "0", "their_dot")
    y = x[::-1].copy()
    peers = {"ops": lambda: ops.dot(x, y, out=out)}
    if x.dtype == "float32":  # it takes 0.2 s for the largest
        peers["cupy"] = lambda: theirs(x, y, out)
    return _case("dot", x, lambda: own(x, y, out=out), peers, 2 * x.nbytes)


def _several(sizes: tuple[int, ...]) -> Iterator[Case]:
    """Argmax by a struct, and two outputs of one pass."""
    largest = reduction(
        "float x", "int64 where", "{x, i}", _BETTER, "{-INFINITY, -1}", "where = a.i", "largest",
        preamble=f"#define INFINITY __int_as_float(0x7f800000)\n{_BEST}", acc="best",
    )  # fmt: skip
    moments = reduction(
        "float x", "float mean, float square", "{x, x * x}", "{a.s + b.s, a.q + b.q}", "{0, 0}",
        "mean = a.s / n; square = a.q / n", "moments", preamble="struct two { float s, q; };", acc="two",
    )  # fmt: skip
    for size in sizes:
        x = random_array(size, "float32")
        where, both = cupy.empty((), "int64"), (cupy.empty((), "float32"), cupy.empty((), "float32"))
        peers = {
            "cupy": lambda x=x, where=where: x.argmax(out=where),
            "ops": lambda x=x, where=where: ops.argmax(x, out=where),
        }
        yield _case("argmax", x, lambda x=x, where=where: largest(x, out=where), peers, x.nbytes)
        yield _case("mean and mean of squares", x, lambda x=x, both=both: moments(x, out=both), {}, x.nbytes)


def _scans(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """A cumulative sum; then with flags, of the columns and rows of a square, and what only expressions say."""
    for dtype in ("float32",) if quick else _DTYPES:
        result = "int64" if dtype == "int8" else "T"
        running = scan("T x", f"{result} y", "x", "a + b", "0", name="running")
        for size in sizes:
            x = random_array(size, dtype)
            out = cupy.empty(size, "int64" if dtype == "int8" else dtype)
            peers = {
                "cupy": lambda x=x, out=out: cupy.cumsum(x, out=out),
                "ops": lambda x=x, out=out: ops.cumsum(x, out=out),
                "cub": cub("scan", f"cub_cumsum_{dtype}", x, out, size),
            }
            run = lambda x=x, out=out, running=running: running(x, out=out)  # noqa: E731
            yield _case("scan", x, run, peers, x.nbytes + out.nbytes)
    x = random_array(sizes[-1], "float32")
    out, flags = cupy.empty_like(x), (cupy.arange(x.size) % 100 == 0).astype("int32")
    keys = cupy.cumsum(flags, dtype="int32")
    by_flags = scan("T x, int flag", "T y", "x", "a + b", "0", segments="flag", name="by_flags")
    peers = {"ops, by keys": lambda: ops.cumsum(x, keys=keys, out=out)}
    yield _case("scan, segments of 100", x, lambda: by_flags(x, flags, out=out), peers, 3 * x.nbytes)
    share = scan("T x", "T y", "x", "a + b", "0", "y = item / last_item", name="share")
    yield _case("scan / last item", x, lambda: share(x, out=out), {}, 3 * x.nbytes)
    recurrence = scan(
        "float p, float q", "float y", "{p, q}", "{a.m * b.m, a.c * b.m + b.c}", "{1, 0}", "y = item.c", "recurrence",
        preamble="struct affine { float m, c; };", acc="affine",
    )  # fmt: skip
    y = random_array(x.size, "float32", seed=2)
    yield _case("y[i] = p[i] · y[i - 1] + q[i]", x, lambda: recurrence(x, y, out=out), {}, 3 * x.nbytes)
    where, count = cupy.empty(x.size, "int64"), cupy.empty(1, "int64")
    compact = scan(
        "float x", "raw int64 where, raw int64 count", "x > 0.5f", "a + b", "0",
        "if (prev_item != item) where[prev_item] = i; if (i == n - 1) count[0] = item", "compact",
    )  # fmt: skip
    peers = {"cupy": lambda: cupy.flatnonzero(x > 0.5)}
    yield _case("where x > 0.5", x, lambda: compact(x, out=(where, count)), peers, 2 * x.nbytes)
    running = scan("T x", "T y", "x", "a + b", "0", name="running")
    for axis in (1, 0):
        square, to = x.reshape(1 << 14, -1), out.reshape(1 << 14, -1)
        peers = {"ops": lambda square=square, to=to, axis=axis: ops.cumsum(square, axis, out=to)}
        run = lambda square=square, to=to, axis=axis: running(square, axis=axis, out=to)  # noqa: E731
        yield _case(f"scan, axis {axis} of a square", x, run, peers, 2 * x.nbytes)
