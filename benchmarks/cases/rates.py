"""The table of `kernels` and of `generate`: rates of each case, beside its peers and a copy of as many bytes."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import cupy
from tables import table_head, table_row

import cudakit as ck
from cases import turns
from cases.case import CALL_SIZE, SIZES, Case, rate
from cases.peers import ready
from cases.timing import calls_ms, device_ms


def add_options(parser: argparse.ArgumentParser, groups: Sequence[str]) -> None:
    """What both families' command lines have."""
    parser.add_argument("--only", default=",".join(groups), help="groups, by commas: %(default)s")
    parser.add_argument("--quick", action="store_true", help="float32 only")
    parser.add_argument("--repeats", type=int, default=11, help="measurements whose median is taken")
    parser.add_argument("--baseline", type=Path, help="another checkout: its times instead of the peers', in turns")


def lines(family: str, options: argparse.Namespace) -> Iterator[str]:
    """The page, line after line; against a baseline what `turns.compared` says."""
    groups = [f"{family}.{group}" for group in options.only.split(",")]
    if options.baseline:
        yield from turns.compared(groups, options.baseline, options.quick)
        return
    yield "GB/s are bytes read once and written once over the median time; × above 1 means that cudakit is faster. At "
    yield f"{CALL_SIZE:,} elements: host time a call, µs."
    yield ""
    yield from table_head(
        ("op", "dtype", "elements", "cudakit, GB/s", "peers, GB/s (time over ours)", "copy of as many bytes", "aim")
    )
    stream = ck.stream()
    with ck.using(stream):
        ready(stream)
        for group in groups:
            for case in cases_of(group, options.quick):
                yield table_row(_row(case, measured(case, options.repeats)))
                del case
                cupy.get_default_memory_pool().free_all_blocks()


def cases_of(group: str, quick: bool) -> Iterable[Case]:
    """The cases of ``family.group``, one after the other, each made when it is wanted: their arrays are large."""
    module = importlib.import_module(f"cases.{group}")
    found: Iterable[Case] = module.cases(SIZES, quick)
    return found


def measured(case: Case, repeats: int) -> dict[str, float]:
    """Milliseconds of a case's own call, of its peers, and of a copy that moves as many bytes."""
    calls = {"cudakit": case.run, **case.peers}
    if case.size <= CALL_SIZE:
        return calls_ms(calls, repeats)
    source = cupy.empty(max(1, case.bytes // 2), cupy.uint8)
    target = cupy.empty_like(source)
    calls["copy"] = lambda: cupy.cuda.runtime.memcpyAsync(
        target.data.ptr, source.data.ptr, source.nbytes, 3, cupy.cuda.get_current_stream().ptr
    )
    return {name: device_ms(call, repeats) for name, call in calls.items()}


def _row(case: Case, found: dict[str, float]) -> tuple[str, ...]:
    own = found["cudakit"]
    written = {name: rate(ms, case.size, case.bytes) for name, ms in found.items()}
    beside = {name: f"{written[name]} ({ms / own:.2f} ×)" for name, ms in found.items()}
    peers = ", ".join(f"{name} {text}" for name, text in beside.items() if name not in ("cudakit", "copy"))
    return case.op, case.dtype, f"{case.size:,}", written["cudakit"], peers, beside.get("copy", ""), case.aim
