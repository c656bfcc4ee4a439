"""The command ``cudakit bench``: a few ops on this card, beside CuPy's and beside a recorded card."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from cudakit import reports
from cudakit.cli import supervised
from cudakit.cli.parsers import command
from cudakit.types.shown import Table, text

#: Elements of each array (float32), and the calls of a measurement, whose median counts.
SIZE: Final = 1 << 24
_CALLS, _MEASUREMENTS, _WARM = 10, 11, 3


class Case(NamedTuple):
    """An op: the arrays that it moves, as many as `moved`, and its calls by ``ck.ops`` and by CuPy."""

    moved: float
    ours: Callable[..., object]
    theirs: Callable[..., object]


#: The calls take ``ck.ops`` or CuPy, two inputs and an output.
CASES: Final = {
    "add": Case(3, lambda ops, x, y, out: ops.add(x, y, out=out), lambda cp, x, y, out: cp.add(x, y, out=out)),
    "sum": Case(1, lambda ops, x, y, out: ops.sum(x), lambda cp, x, y, out: cp.sum(x)),
    "max": Case(1, lambda ops, x, y, out: ops.max(x), lambda cp, x, y, out: cp.max(x)),
    "argmax": Case(1, lambda ops, x, y, out: ops.argmax(x), lambda cp, x, y, out: cp.argmax(x)),
    "dot": Case(2, lambda ops, x, y, out: ops.dot(x, y), lambda cp, x, y, out: cp.dot(x, y)),
    "cumsum": Case(2, lambda ops, x, y, out: ops.cumsum(x, out=out), lambda cp, x, y, out: cp.cumsum(x, out=out)),
    "flip": Case(2, lambda ops, x, y, out: ops.flip(x, out=out), lambda cp, x, y, out: cp.copyto(out, x[::-1])),
}


def add(commands: Any) -> None:
    """Add the command."""
    help_text = "measure a few ops on this card, beside CuPy and a recorded card"
    parser = command(commands, "bench", _bench, help_text, "", "sum cumsum --output bench.png")
    parser.add_argument("ops", nargs="*", metavar="OP", help=f"{', '.join(CASES)}; default: all")
    parser.add_argument("--output", type=Path, metavar="FILE.png", help="draw the figures as a picture")
    supervised.add(parser, names_kernels=False)  # a watched launch takes longer


def recorded() -> dict[str, Any]:
    """Return the recorded card: its name, the date, and GB/s of each op by cudakit and CuPy."""
    record: dict[str, Any] = json.loads(files("cudakit.cli").joinpath("recorded.json").read_text(encoding="utf-8"))
    return record


def _bench(options: argparse.Namespace) -> int:
    # Imported here: the other commands need no GPU.
    import cudakit as ck

    for name in options.ops:
        if name not in CASES:
            options.parser.error(f"unknown op {name!r}; expected one of {', '.join(CASES)}")
    names, record = options.ops or list(CASES), recorded()
    figures: dict[str, dict[str, float]] = {name: {} for name in names}
    card = ck.device_limits().name if ck.has_gpu() else None
    if card is None:
        message = "there is no GPU here, and the emulator measures no time: only the recorded card is shown"
        options.problems.append(reports.problem_of("missing", message))
    else:
        figures = _measured(names)
    options.result = {"card": card, "unit": "GB/s", "elements": SIZE, "figures": figures, "recorded": record}
    if not options.json:
        print(_shown(names, card, figures, record))
        if card is None:
            print(f"cudakit: {message}")
    if options.output is not None:
        _draw(names, card, figures, record, options.output)
    return reports.status_of(options.problems)


def _measured(names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return GB/s of each op, by cudakit and, if it is installed, by CuPy, measured in turns."""
    import cudakit as ck

    stream = ck.stream()
    figures: dict[str, dict[str, float]] = {}
    with ck.using(stream) as xp:
        x, y = xp.random.default_rng(0).random((2, SIZE), dtype=xp.float32)
        out = xp.empty_like(x)
        for name in names:
            case = CASES[name]
            calls = {
                "cudakit": partial(case.ours, ck.ops, x, y, out),
                "cupy": partial(case.theirs, xp, x, y, out),
            }
            times: dict[str, list[float]] = {library: [] for library in calls}
            for repeat in range(_WARM + _MEASUREMENTS):
                for library, call in calls.items():
                    with ck.Timer(stream) as timer:
                        for _ in range(_CALLS):
                            call()
                    if repeat >= _WARM:
                        times[library].append(timer.elapsed_ms / _CALLS)
            moved = case.moved * x.nbytes
            figures[name] = {library: moved / statistics.median(rows) / 1e6 for library, rows in times.items()}
    return figures


def _shown(names: Sequence[str], card: str | None, figures: dict[str, Any], record: dict[str, Any]) -> str:
    """Return the table of the figures."""
    rows = [(name, *_cells(figures[name]), *_cells(record["figures"][name])) for name in names]
    here = card or "no GPU"
    heads = ("op", f"{here}, GB/s", "CuPy", "×", f"{record['card']}, GB/s", "CuPy", "×")
    title = f"float32, {SIZE:,} elements; × is cudakit over CuPy; {record['card']} as recorded on {record['date']}"
    return text(Table(heads, rows, (1, 2, 3, 4, 5, 6)), title)


def _cells(figures: dict[str, float]) -> tuple[str, str, str]:
    if not figures:
        return "", "", ""
    return f"{figures['cudakit']:.0f}", f"{figures['cupy']:.0f}", f"{figures['cudakit'] / figures['cupy']:.2f}"


def _draw(names: Sequence[str], card: str | None, figures: dict[str, Any], record: dict[str, Any], path: Path) -> None:
    """Draw the figures as bars: four of each op, two of them if there is no GPU.

    Raises
    ------
    CudakitError
        If matplotlib is not installed.
    """
    from cudakit.profile.timeline import importing_matplotlib, save_figure

    with importing_matplotlib("a benchmark"):
        from matplotlib.figure import Figure
    groups = [] if card is None else [(f"{library}, {card}", figures, library) for library in ("cudakit", "cupy")]
    groups += [
        (f"{library}, {record['card']} (recorded)", record["figures"], library) for library in ("cudakit", "cupy")
    ]
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(groups)
    for position, (label, values, library) in enumerate(groups):
        places = [place + position * width for place in range(len(names))]
        axes.bar(places, [values[name][library] for name in names], width, label=label)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(names))], names)
    axes.set_ylabel("GB/s")
    axes.set_title(f"float32, {SIZE:,} elements")
    axes.legend()
    save_figure(figure, path)
