"""All of ck.ops on 1,024 elements beside torch, CuPy and CUB, in one run on a GPU: host time of a call.

The same arrays, kinds and shapes again and again, all calls warmed up: 100 calls, then the device is waited for;
medians, the calls of a row in turns. New: the result is a new array. CUB writes where it is told to, as ``out=`` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import cupy
import numpy as np
from tables import table_head, table_row

import cudakit as ck
from cases.case import CALL_SIZE, random_array
from cases.peers import as_torch, cub, ready, torch_module
from cases.timing import calls_ms
from cudakit import ops

TITLE = "Small calls"
COLUMNS = ("cudakit, new", "cudakit, out=", "torch, new", "torch, out=", "CuPy, new", "CuPy, out=", "CUB")
BINS = 256
ROW = (4, CALL_SIZE // 4)
SQUARE = (32, CALL_SIZE // 32)
#: Without arguments a new result, with ``out=`` into that array.
Call = Callable[..., Any]


class Op(NamedTuple):
    """An op on arrays of one dtype, and the same by others; of the peers the calls that take ``out=`` are apart."""

    name: str
    dtype: str
    ours: Call
    torch: Call | None = None
    torch_out: Call | None = None
    cupy: Call | None = None
    cupy_out: Call | None = None
    cub: Call | None = None
    #: From a result the keywords that have the next one written there.
    given: Callable[[Any], dict[str, Any]] = lambda result: {"out": result}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", help="ops, by commas")
    parser.add_argument("--repeats", type=int, default=31, help="measurements whose median is taken")


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The table; then what is slower than the best peer."""
    yield f"{CALL_SIZE:,} elements; µs a call. New results stand beside the peers' new ones, out= beside all of theirs."
    yield ""
    yield from table_head(("op", "dtype", *COLUMNS, "new / best peer", "out= / best peer"))
    notes: list[str] = []
    slower: list[tuple[float, str]] = []
    stream = ck.stream()
    with ck.using(stream):
        ready(stream)
        for op in every_op():
            if options.only and op.name not in options.only.split(","):
                continue
            found = calls_ms(working(op, notes), options.repeats)
            ratios = []
            for column, peers in (("new", ("torch, new", "CuPy, new")), ("out=", COLUMNS[2:])):
                beside = [found[peer] for peer in peers if peer in found]
                own = found.get(f"cudakit, {column}")
                ratio = own / min(beside) if own and beside else None
                ratios.append(f"{ratio:.2f}" if ratio else "")
                if ratio and ratio > 1:
                    slower.append((ratio, f"{op.name}, {op.dtype}, {column}"))
            times = [f"{found[column] * 1e3:.2f}" if column in found else "" for column in COLUMNS]
            yield table_row((op.name, op.dtype, *times, *ratios))
    yield ""
    yield f"Slower than the best peer: {len(slower)}{':' if slower else '.'}"
    yield ""
    yield from (f"- {what}: {ratio:.2f}" for ratio, what in sorted(slower)[::-1])
    yield from (f"- not measured: {note}" for note in notes)


def working(op: Op, notes: list[str]) -> dict[str, Call]:
    """The calls of a row by column, each tried once; what raises goes to `notes`."""
    calls: dict[str, Call] = {}
    for column, make in makers(op).items():
        try:
            call = make()
            call()
            calls[column] = call
        except Exception as error:
            notes.append(f"{op.name}, {op.dtype}, {column}: {type(error).__name__}: {error}".partition("\n")[0])
    return calls


def makers(op: Op) -> dict[str, Callable[[], Call]]:
    """What makes the calls of a row, by column."""
    made: dict[str, Callable[[], Call]] = {
        "cudakit, new": lambda: op.ours,
        "cudakit, out=": lambda: partial(op.ours, **op.given(op.ours())),
    }
    for name, new, into in (("torch", op.torch, op.torch_out), ("CuPy", op.cupy, op.cupy_out)):
        if new:
            made[f"{name}, new"] = lambda new=new: new
        if new and into:
            made[f"{name}, out="] = lambda new=new, into=into: partial(into, out=new())
    if op.cub:
        made["CUB"] = lambda: op.cub
    return made


def every_op() -> Iterator[Op]:
    """Each public call of ck.ops: on float32, and on integers where it has a kernel of its own for them."""
    torch = torch_module()
    for dtype in ("float32", "int8"):
        x, y = random_array(CALL_SIZE, dtype), random_array(CALL_SIZE, dtype, seed=2)
        t, u = (as_torch(x), as_torch(y)) if torch else (None, None)
        yield from _arithmetic(dtype, x, y, t, u, torch)
        yield from _reductions(dtype, x, t, torch)
        yield from _scans(dtype, x, t, torch)
        yield from _moves(dtype, x, y, t, u, torch)
    yield from _floating(torch)
    yield from _counts(torch)
    yield from _rows(torch)


def _arithmetic(dtype: str, x: Any, y: Any, t: Any, u: Any, torch: Any) -> Iterator[Op]:
    theirs = torch and partial(torch.add, t, u)
    own = partial(cupy.add, x, y)
    yield Op("add", dtype, partial(ops.add, x, y), theirs, theirs, own, own)


def _reductions(dtype: str, x: Any, t: Any, torch: Any) -> Iterator[Op]:
    total = cupy.empty((), "int64" if dtype == "int8" else dtype)
    greatest = cupy.empty((), dtype)
    peers = {
        "sum": cub("reduce", f"cub_sum_{dtype}", x, total, x.size),
        "max": cub("reduce", f"cub_max_{dtype}", x, greatest, x.size),
    }
    for name in ("sum", "prod", "min", "max", "argmin", "argmax", "any", "all"):
        # torch's whole reductions have no out=; those along an axis do.
        along = {"min": "amin", "max": "amax"}.get(name, name)
        theirs, into = (getattr(torch, name), getattr(torch, along)) if torch else (None, None)
        own = getattr(x, name)
        yield Op(
            name, dtype, partial(getattr(ops, name), x), theirs and partial(theirs, t), into and partial(into, t, 0),
            own, own, peers.get(name),
        )  # fmt: skip
    yield Op(
        "count_nonzero", dtype, partial(ops.count_nonzero, x), torch and partial(torch.count_nonzero, t),
        cupy=partial(cupy.count_nonzero, x),
    )  # fmt: skip


def _scans(dtype: str, x: Any, t: Any, torch: Any) -> Iterator[Op]:
    out = cupy.empty(CALL_SIZE, "int64" if dtype == "int8" else dtype)
    peers = {"cumsum": cub("scan", f"cub_cumsum_{dtype}", x, out, x.size)}
    for name in ("cumsum", "cumprod"):
        theirs = torch and partial(getattr(torch, name), t, 0)
        own = getattr(x, name)
        yield Op(name, dtype, partial(getattr(ops, name), x), theirs, theirs, own, own, peers.get(name))
    for name in ("cummin", "cummax"):
        # torch gives the places too; CuPy has neither.
        theirs = torch and partial(getattr(torch, name), t, 0)
        yield Op(name, dtype, partial(getattr(ops, name), x), theirs, theirs)


def _moves(dtype: str, x: Any, y: Any, t: Any, u: Any, torch: Any) -> Iterator[Op]:
    def moved(name: str, ours: Call, view: Callable[[Any], Any], theirs: Call | None, is_view: bool) -> Op:
        # CuPy's are views, which a copy makes what ours is; torch's too, but for flip.
        return Op(
            name, dtype, ours, torch and theirs, torch and is_view and (lambda out: out.copy_(view(t))),
            lambda: view(x).copy(), lambda out: cupy.copyto(out, view(x)),
        )  # fmt: skip

    yield moved("copy", partial(ops.copy, x), lambda a: a, lambda: t.clone(), True)
    yield moved("flip", partial(ops.flip, x), lambda a: a[::-1], lambda: torch.flip(t, (0,)), False)
    square, side = x.reshape(SQUARE), t.reshape(SQUARE) if torch else None
    yield Op(
        "transpose", dtype, partial(ops.transpose, square), torch and (lambda: side.T.contiguous()),
        torch and (lambda out: out.copy_(side.T)),
        lambda: cupy.ascontiguousarray(square.T), lambda out: cupy.copyto(out, square.T),
    )  # fmt: skip
    yield Op(
        "roll", dtype, partial(ops.roll, x, 7), torch and partial(torch.roll, t, 7), None, partial(cupy.roll, x, 7)
    )
    yield Op(
        "pad", dtype, partial(ops.pad, x, 1), torch and partial(torch.nn.functional.pad, t, (1, 1)), None,
        partial(cupy.pad, x, 1),
    )  # fmt: skip
    order = cupy.random.permutation(CALL_SIZE)
    theirs, own = torch and partial(torch.take, t, as_torch(order)), partial(cupy.take, x, order)
    yield Op("take", dtype, partial(ops.take, x, order), theirs, theirs, own, own)
    theirs, own = torch and partial(torch.cat, (t, u)), partial(cupy.concatenate, (x, y))
    yield Op("concatenate", dtype, partial(ops.concatenate, (x, y)), theirs, theirs, own, own)
    target = "float16" if dtype == "float32" else "float32"
    yield Op(
        "cast", dtype, partial(ops.cast, x, target), torch and partial(t.to, getattr(torch, target)),
        torch and (lambda out: out.copy_(t)), partial(x.astype, target), lambda out: cupy.copyto(out, x, "unsafe"),
    )  # fmt: skip
    where = random_array(CALL_SIZE, "int8", seed=3) >= 0
    out, count = cupy.empty_like(x), cupy.zeros((), cupy.int64)
    mask = as_torch(where) if torch else None
    yield Op(
        "compact", dtype, partial(ops.compact, x, where), torch and (lambda: t[mask]), None, lambda: x[where], None,
        cub("move", "cub_flagged_f32", x, where, out, count, CALL_SIZE) if dtype == "float32" else None,
        lambda result: {"out": out, "count": count},
    )  # fmt: skip


def _floating(torch: Any) -> Iterator[Op]:
    """Reductions that are of floating point by nature."""
    x, y = random_array(CALL_SIZE, "float32"), random_array(CALL_SIZE, "float32", seed=2)
    t, u = (as_torch(x), as_torch(y)) if torch else (None, None)
    yield Op(
        "mean", "float32", partial(ops.mean, x), torch and partial(torch.mean, t), torch and partial(torch.mean, t, 0),
        x.mean, x.mean,
    )  # fmt: skip
    for name in ("var", "std"):
        theirs, own = torch and partial(getattr(torch, name), t, 0, correction=0), getattr(x, name)
        yield Op(name, "float32", partial(getattr(ops, name), x), theirs, theirs, own, own)
    theirs = torch and partial(torch.linalg.vector_norm, t)
    yield Op("norm", "float32", partial(ops.norm, x), theirs, theirs, partial(cupy.linalg.norm, x))
    theirs, own = torch and partial(torch.dot, t, u), partial(cupy.dot, x, y)
    yield Op("dot", "float32", partial(ops.dot, x, y), theirs, theirs, own, own)


def _counts(torch: Any) -> Iterator[Op]:
    uniform = random_array(CALL_SIZE, "float32")
    whole = (uniform * BINS).astype("int32")
    for x, top, entry in ((uniform, 1, "f32"), (whole, BINS, "i32")):
        theirs = torch and x is uniform and partial(torch.histc, as_torch(x), BINS, 0, 1)
        counted = cupy.empty(BINS, np.int32)
        yield Op(
            "histogram", x.dtype.name, partial(ops.histogram, x, BINS, (0, top)), theirs or None, theirs or None,
            partial(cupy.histogram, x, BINS, (0, top)), None,
            cub("count", f"cub_histogram_{entry}", x, counted, BINS, 0, top, CALL_SIZE),
            lambda result: {"out": result[0]},
        )  # fmt: skip
    yield Op(
        "bincount", "int32", partial(ops.bincount, whole, length=BINS),
        torch and partial(torch.bincount, as_torch(whole), minlength=BINS), None,
        partial(cupy.bincount, whole, minlength=BINS),
    )  # fmt: skip


def _rows(torch: Any) -> Iterator[Op]:
    from cupyx.scipy import special

    x = random_array(CALL_SIZE, "float32").reshape(ROW)
    weight, bias = random_array(ROW[1], "float32", seed=2), random_array(ROW[1], "float32", seed=3)
    t, w, b = (as_torch(x), as_torch(weight), as_torch(bias)) if torch else (None, None, None)
    for name in ("softmax", "log_softmax", "logsumexp"):
        theirs = torch and partial(getattr(torch, name), t, -1)
        yield Op(
            name, "float32", partial(getattr(ops, name), x, axis=-1), theirs, theirs and name == "logsumexp" and theirs,
            partial(getattr(special, name), x, axis=-1),
        )  # fmt: skip
    functional = torch and torch.nn.functional
    yield Op(
        "layernorm", "float32", partial(ops.layernorm, x, weight, bias),
        torch and partial(functional.layer_norm, t, (ROW[1],), w, b),
    )  # fmt: skip
    yield Op(
        "rmsnorm", "float32", partial(ops.rmsnorm, x, weight),
        torch and partial(functional.rms_norm, t, (ROW[1],), w),
    )  # fmt: skip
