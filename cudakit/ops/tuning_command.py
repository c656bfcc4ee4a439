"""The command ``cudakit tune ops``: search the points of ops for this card, and keep those that are faster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cudakit.errors import CudakitError
from cudakit.ops.tuning import WORTH, Outcome, keep, tune_ops
from cudakit.ops.tuning_cases import CASES, Case
from cudakit.places import stream
from cudakit.streams.devices import has_gpu
from cudakit.tuning.candidate import shown
from cudakit.tuning.command import progress_of, sizes_of
from cudakit.types.shown import Table, text


def run(options: argparse.Namespace) -> int:
    """Carry out ``cudakit tune ops``. Return the exit status."""
    on_gpu = has_gpu()
    if not on_gpu and options.objective is None:
        raise CudakitError(
            "there is no GPU here, and ops are tuned by their time on a card; with --objective instructions the "
            "emulator counts, a ranking that is shown and not kept"
        )
    if options.objective not in (None, "time") and on_gpu:
        raise CudakitError(f"ops are tuned by their time; got --objective {options.objective}")
    dtypes = [name for name in options.dtype.split(",") if name]
    cases = _cases(options.ops, dtypes)
    sizes = sizes_of(options.sizes)
    if not all(isinstance(size, int) for size in sizes):
        raise CudakitError(f"--sizes of ops are numbers of elements, such as 1000000; got {options.sizes!r}")
    here = stream()
    changes = {name: getattr(options, name) for name in ("budget", "strategy", "objective", "seed")}
    outcomes = []
    for outcome in tune_ops(
        cases,
        stream=here,
        dtypes=dtypes,
        sizes=sizes,
        progress=progress_of(options),
        **{name: value for name, value in changes.items() if value is not None},
    ):
        outcomes.append(outcome)
        if outcome.is_better and on_gpu:
            keep(outcome, here)
        if not options.json:
            print(_line(outcome), flush=True)
    options.result["outcomes"] = [outcome.to_dict() for outcome in outcomes]
    if not options.json:
        print(_summary(outcomes, on_gpu))
    return 0


def _cases(names: Sequence[str], dtypes: Sequence[str]) -> list[Case]:
    there = list(dict.fromkeys(case.op for case in CASES))
    if unknown := [name for name in names if name not in there]:
        raise CudakitError(f"there is nothing to tune of {unknown[0]}; expected one of {', '.join(there)}")
    cases = [case for case in CASES if not names or case.op in names]
    of_cases = sorted({name for case in cases for name in case.dtypes})
    if absent := [name for name in dtypes if name not in of_cases]:
        raise CudakitError(f"--dtype {absent[0]}: these ops are tuned for {', '.join(of_cases)}")
    return cases


def _line(outcome: Outcome) -> str:
    before, now = (f"{value:,.4g}" for value in outcome.values)
    change = f"{shown(outcome.best)}: {before} → {now} {outcome.unit}" if outcome.is_better else "stays as it is"
    return f"{outcome.op}: {outcome.question}: {change}"


def _summary(outcomes: Sequence[Outcome], on_gpu: bool) -> str:
    better = [outcome for outcome in outcomes if outcome.is_better]
    rows = [
        (str(outcome.question), shown(outcome.present), shown(outcome.best), *outcome.values, f"{outcome.ratio:.3f}")
        for outcome in better
    ]
    unit = outcomes[0].unit if outcomes else ""
    table = Table(("choice", "before", "now", f"before, {unit}", f"now, {unit}", "ratio"), rows, (3, 4, 5))
    fate = "kept" if on_gpu else "shown and not kept: a counter says nothing about a card's time"
    count = f"{len(better)} of {len(outcomes)} choices are {WORTH - 1:.0%} faster or more with another point: {fate}"
    return text(table, count) if rows else count
