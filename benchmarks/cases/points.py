"""Tuned points of ops: each choice's fastest point beside its default, measured in turns. ``--table FILE`` writes the
packaged table of this card: see `cudakit/arrays/tunable.py`. Rows replace those of a file that exists, by question. The
other rows stay.

Set CUDAKIT_TUNE=off, so that the present choices are the defaults and not those of a table.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tables import table_head, table_row

import cudakit as ck
from cudakit.arrays.place import device_limits
from cudakit.arrays.tunable import Question, Table
from cudakit.emulator import face
from cudakit.errors import ArgumentError
from cudakit.ops.tuning import Outcome, tune_ops
from cudakit.ops.tuning_cases import CASES
from cudakit.places import Limits

TITLE = "Tuned points of ops"
#: Names in a row of a table.
_NAMES = ("choice", "form", "size", "point", "ratio")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this family."""
    parser.add_argument("--table", type=Path, help="file of the table of points; rows replace its own")
    parser.add_argument("--minutes", type=float, default=7.0, help="no search begins later; default: 7")
    parser.add_argument("--budget", type=int, default=32, help="most candidates of a search; default: 32")
    parser.add_argument("--ops", nargs="*", default=(), help="ops to tune; default: all")


def lines(options: argparse.Namespace) -> Iterator[str]:
    """A row for each search, and the table of points as far as it is."""
    if os.environ.get("CUDAKIT_TUNE") != "off":
        yield "CUDAKIT_TUNE is not off: the present choices may be tuned ones."
    rows = table_rows(options.table, device_limits(0).name) if options.table else {}
    end = time.monotonic() + 60 * options.minutes
    outcomes: list[Outcome] = []
    failures = []
    yield from table_head(
        ("op", "question", "present", "best", "present, µs", "best, µs", "ratio", "kept", "candidates", "seconds")
    )
    stream, finished = ck.stream(), set[Any]()
    calls = [
        (case, dtype, size)
        for case in CASES
        if not options.ops or case.op in options.ops
        for dtype in case.dtypes
        for size in case.sizes
    ]
    for case, dtype, size in calls:
        if time.monotonic() > end:
            failures.append(f"{case.op}, {dtype}, {size}: no time left")
            continue
        begun = time.monotonic()
        searches = tune_ops(
            [case], stream=stream, dtypes=(dtype,), sizes=(size,), budget=options.budget,
            workers=os.cpu_count() or 1, finished=finished,
        )  # fmt: skip
        try:
            for outcome in searches:
                outcomes.append(outcome)
                row = outcome.to_dict()
                rows[outcome.question] = {name: row[name] for name in _NAMES}
                yield table_row(_row(outcome, time.monotonic() - begun))
                begun = time.monotonic()
        except Exception as error:
            failures.append(f"{case.op}, {dtype}, {size}: {type(error).__name__}: {error}"[:500])
        if options.table:
            write_table(options.table, rows, device_limits(0), _driver())
    yield ""
    yield f"{sum(outcome.is_better for outcome in outcomes)} of {len(outcomes)} points are kept."
    yield from (f"- {failure}" for failure in failures)


def _row(outcome: Outcome, seconds: float) -> tuple[str, ...]:
    points = (
        ", ".join(f"{name}={value}" for name, value in point.items()) for point in (outcome.present, outcome.best)
    )
    times = (f"{value:,.2f}" for value in outcome.values)
    is_kept = "yes" if outcome.is_better else ""
    count = str(len(outcome.tuned.table))
    return outcome.op, str(outcome.question), *points, *times, f"{outcome.ratio:.3f}", is_kept, count, f"{seconds:.1f}"


def table_rows(path: Path, card: str) -> dict[Question, dict[str, Any]]:
    """Return the rows of a file of points, by question. There are none if there is no file.

    Raises
    ------
    ArgumentError
        The file is no table, or that of another card.
    """
    if not path.exists():
        return {}
    try:
        table = Table.read(path)
    except ValueError as error:
        raise ArgumentError(f"--table {path}: expected a table of points or a new file; {error}") from error
    if table.card != card:
        raise ArgumentError(f"--table {path}: expected the table of this card, {card}; got that of {table.card}")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {Question(row["choice"], row["form"], row["size"]): row for row in rows}


def write_table(path: Path, rows: dict[Question, dict[str, Any]], limits: Limits, driver: str) -> None:
    """Write the file of a table of points: a line a row. Date and driver are those of the newest rows."""
    head = {
        "card": limits.name,
        "model": next((name for name in face.CARDS if name in limits.name), limits.name),
        "capability": limits.compute_capability,
        "multiprocessors": limits.multiprocessors,
        "date": time.strftime("%Y-%m-%d"),
        "driver": driver,
    }
    lines = [json.dumps(row, ensure_ascii=False) for row in rows.values()]
    text = json.dumps(head, ensure_ascii=False)[:-1]
    new_file = path.with_suffix(".new")
    new_file.write_text(f'{text}, "rows": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
    new_file.replace(path)


def _driver() -> str:
    from cuda.bindings import driver

    return str(driver.cuDriverGetVersion()[1])
