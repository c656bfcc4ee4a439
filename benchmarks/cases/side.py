"""One side of a comparison: ``python -m cases.side CHECKOUT [--warm] [--quick] GROUP …``, cudakit from CHECKOUT.

It answers commands on its input in lines of JSON. ``next`` makes the next case of the group and calls it once: its
names; or ``end`` of the group, after which the next one begins; or ``error``, which ends the group too. ``time``: the
milliseconds of its call. ``skip`` ends the group, and has no answer. With ``--warm`` every case is called once instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import cupy

import cudakit as ck
from cases.case import CALL_SIZE, SIZES, Case
from cases.rates import cases_of
from cases.timing import call_ms, device_ms


def wanted(case: Case) -> bool:
    """Every size of float32; of other types the smallest and the largest."""
    return case.dtype == "float32" or not CALL_SIZE < case.size < SIZES[-1] // 2


def made(group: str, quick: bool) -> Iterator[Case]:
    """The cases of a group that are wanted, each called once."""
    for case in cases_of(group, quick):
        if wanted(case):
            case.run()
            cupy.cuda.get_current_stream().synchronize()
            yield case
        del case
        cupy.get_default_memory_pool().free_all_blocks()


def milliseconds(case: Case) -> float:
    """The median time of a few calls."""
    return call_ms(case.run, 5) if case.size <= CALL_SIZE else device_ms(case.run, 5)


def serve(groups: list[str], quick: bool) -> None:
    """Answer until the input ends."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # nobody else writes to the answers
        for group in groups:
            found = made(group, quick)
            case = None
            for line in sys.stdin:
                command = line.strip()
                if command == "skip":
                    break
                try:
                    if command == "next":
                        case = None
                        case = next(found, None)
                        names = case and {"op": case.op, "dtype": case.dtype, "size": case.size, "bytes": case.bytes}
                        answer = names or {"end": True}
                    else:
                        answer = {"ms": milliseconds(case)}
                except Exception as error:
                    answer = {"error": f"{type(error).__name__}: {error}".partition("\n")[0]}
                print(json.dumps(answer), file=answers, flush=True)
                if "end" in answer or "error" in answer:
                    break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("groups", nargs="+")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if not Path(ck.__file__).is_relative_to(options.checkout):
        raise SystemExit(f"cudakit was imported from {ck.__file__}, not from {options.checkout}")
    with ck.using(ck.stream()):
        if options.warm:
            for group in options.groups:
                for _ in made(group, options.quick):
                    pass
        else:
            serve(options.groups, options.quick)


if __name__ == "__main__":
    main()
