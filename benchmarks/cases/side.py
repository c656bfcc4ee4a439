"""One side of a comparison: ``python -m cases.side CHECKOUT [--warm] [--quick] GROUP …``, cudakit from CHECKOUT.

It answers commands on its input in lines of JSON. ``next`` makes the next case of the group and calls it once: its
names; with ``error`` where the call raised. An answer without names ends the group, and the next one begins; it has an
``error`` where the case could not be made. ``time``: the milliseconds of its call, or ``error``. ``skip`` ends the
group, and has no answer. With ``--warm`` every case is called once instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy

import cudakit as ck
from cases.case import CALL_SIZE, SIZES, Case
from cases.rates import cases_of
from cases.timing import call_ms, device_ms


def wanted(case: Case) -> bool:
    """Every size of float32; of other types the smallest and the largest."""
    return case.dtype == "float32" or not CALL_SIZE < case.size < SIZES[-1] // 2


def made(group: str, quick: bool) -> Iterator[Case]:
    """The cases of a group that are wanted, the memory of each given back before the next."""
    for case in cases_of(group, quick):
        if wanted(case):
            yield case
        del case
        cupy.get_default_memory_pool().free_all_blocks()


def called(case: Case) -> str:
    """Call a case once, which compiles it: what it raised, if it did."""
    try:
        case.run()
        cupy.cuda.get_current_stream().synchronize()
    except Exception as error:
        return told(error)
    return ""


def told(error: Exception) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def milliseconds(case: Case) -> float:
    """The median time of a few calls."""
    return call_ms(case.run, 5) if case.size <= CALL_SIZE else device_ms(case.run, 5)


def serve(groups: list[str], quick: bool) -> None:
    """Answer until the input ends."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # nobody else writes to the answers
        for group in groups:
            for answer in answered(made(group, quick)):
                print(json.dumps(answer), file=answers, flush=True)


def answered(cases: Iterator[Case]) -> Iterator[dict[str, Any]]:
    """The answers to the commands about a group."""
    case = None
    for line in sys.stdin:
        command = line.strip()
        if command == "skip":
            return
        if command == "time" and case:
            try:
                yield {"ms": milliseconds(case)}
            except Exception as error:
                yield {"error": told(error)}
            continue
        case = None
        try:
            case = next(cases, None)
        except Exception as error:
            yield {"error": told(error)}
            return
        if case is None:
            yield {}
            return
        raised = called(case)
        names = {"op": case.op, "dtype": case.dtype, "size": case.size, "bytes": case.bytes}
        yield {**names, "error": raised} if raised else names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("groups", nargs="+")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if Path(ck.__file__).parents[1] != options.checkout:
        raise SystemExit(f"cudakit was imported from {ck.__file__}, not from {options.checkout}")
    with ck.using(ck.stream()):
        if options.warm:
            for group in options.groups:
                for case in made(group, options.quick):
                    called(case)
                    del case
        else:
            serve(options.groups, options.quick)


if __name__ == "__main__":
    main()
