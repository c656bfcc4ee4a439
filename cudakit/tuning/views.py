"""Views of a result of a search: what each parameter is worth, in words and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

from cudakit.profile.timeline import importing_matplotlib, save_figure
from cudakit.tuning.candidate import Candidate, shown

_COLOURS = {"right": "tab:blue", "slow": "tab:grey"}


def explanation(tuned: Any) -> Iterator[str]:
    """Yield lines: the best point, what other values of each parameter cost there, and what was left out."""
    best = tuned.table[0]
    yield f"best: {valued(best)}"
    for name in tuned.best:
        beside = [row for row in measured(tuned.table) if row is not best and differs_in(row, best) == [name]]
        costs = [f"{row.point[name]} {_cost(row.value or 0.0, best.value or 0.0)}" for row in beside]
        yield f"{name}: {best.point[name]} here; " + (", ".join(costs) or "no other value was measured beside it")
    if ties := [row for row in tuned.table if row.tied and row is not best]:
        yield "ties: " + "; ".join(valued(row) for row in ties)
    if len(tuned.objectives) > 1:
        for row in tuned.front:
            values = [
                f"{name} {row.values[name]:,.4g} {unit}".removesuffix(f" {name}")
                for name, unit in tuned.objectives.items()
            ]
            yield f"front: {shown(row.point)}: {', '.join(values)}"
    reasons: dict[str, int] = {}
    for row in tuned.table:
        if row.state in ("wrong", "invalid", "failed"):
            reason = f"{row.state}: {row.why.partition(chr(10))[0]}"
            reasons[reason] = reasons.get(reason, 0) + 1
    yield from (f"{count} × {reason}" for reason, count in reasons.items())


def _cost(value: float, best: float) -> str:
    """Return how much more a value is than the best, as a share of it where that is not zero."""
    return f"{value / best - 1:+.1%}" if best else f"{value:+,.4g}"


def plot(tuned: Any, path: str | PathLike[str] | None = None) -> Any:
    """Draw each parameter's values beside the objective, a point for a candidate, the best in red.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    CudakitError
        matplotlib is not installed.
    """
    with importing_matplotlib("a search"):
        from matplotlib.figure import Figure
    names = list(tuned.best)
    figure = Figure(figsize=(max(4, 2.6 * len(names)), 3.2), layout="constrained")
    for number, (axes, name) in enumerate(zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True)):
        rows = measured(tuned.table)
        values = sorted({row.point[name] for row in rows}, key=lambda value: (str(type(value)), value))
        for row in reversed(rows):
            colour = "tab:red" if row is tuned.table[0] else _COLOURS[row.state]
            axes.plot(values.index(row.point[name]), row.value, "o", color=colour, alpha=0.7, markersize=4)
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        axes.set_xlabel(name)
        axes.set_yscale("log")
        axes.spines[["top", "right"]].set_visible(False)
        if not number:
            axes.set_ylabel(tuned.objective if tuned.objective == tuned.unit else f"{tuned.objective} in {tuned.unit}")
    figure.suptitle(f"{tuned.kernel.name}: {valued(tuned.table[0])}", fontsize="medium")
    if path is not None:
        save_figure(figure, path)
    return figure


def measured(rows: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that have a value."""
    return [row for row in rows if row.value is not None and row.state in _COLOURS]


def differs_in(row: Candidate, other: Candidate) -> list[str]:
    """Return the parameters in which two candidates differ."""
    return [name for name in other.point if row.point[name] != other.point[name]]


def valued(row: Candidate) -> str:
    """Return a candidate as text, with its value."""
    return shown(row.point) if row.value is None else f"{shown(row.point)}: {row.value:,.4g}"
