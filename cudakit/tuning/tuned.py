"""Results of a search: a record for each candidate, and `Tuned`, the best of them as a kernel."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cudakit.jit.load.config import Config, Cover
from cudakit.tuning import views
from cudakit.tuning.candidate import Candidate, Traffic, front, shown
from cudakit.tuning.space import Point
from cudakit.tuning.variants import Variants
from cudakit.types.shown import Part, Reported, Table


class Tuned(Reported):
    """The result of `ck.tune`. It is called as the kernel is, without a configuration: ``tuned(stream, *arguments)``.

    Attributes
    ----------
    best : dict
        The fastest point whose results are right.
    table : list of Candidate
        All candidates that were tried, the best first.
    objective, unit : str
        What was measured, and its unit.
    objectives : dict of str to str
        Objective → unit; the first led the search.
    kernel : Kernel
        The kernel of `best`.
    ended : str
        Why the search ended: ``"exhausted"``, ``"budget"`` or ``"interrupted"``.
    confirmed : dict of str to str
        Results of the winner on fresh data, and on the emulator with all checks.
    seconds : dict of str to float
        Time of the search by phase: ``compile`` is waiting, ``load``, ``check``, ``measure``, ``compare``, ``confirm``.
    clocks : tuple of int or None
        Clock of the multiprocessors before and after the search, in MHz; None on the emulator and without NVML.
    """

    def __init__(
        self,
        variants: Variants,
        candidates: Iterable[Candidate],
        objectives: Mapping[str, str],
        ended: str,
        confirmed: dict[str, str],
        seconds: dict[str, float],
        traffic: Traffic | None = None,
        clocks: tuple[int | None, int | None] = (None, None),
    ) -> None:
        self.table = sorted(candidates, key=_rank)
        self.best: Point = self.table[0].point
        self.kernel = variants.kernel(self.best)
        self.objectives = dict(objectives)
        self.objective, self.unit = next(iter(self.objectives.items()))
        self.ended, self.confirmed, self.seconds = ended, confirmed, seconds
        self.traffic = traffic
        self.clocks = None if clocks[0] is None or clocks[1] is None else (clocks[0], clocks[1])
        self._variants = variants
        self._configs: dict[Any, Config | Cover] = {}

    @classmethod
    def of_point(cls, variants: Variants, point: Point, reason: str) -> Tuned:
        """Return the result of no search: one point, and why it was taken."""
        return cls(variants, [Candidate(point, "right", why=reason)], {"": ""}, "not searched", {}, {})

    @property
    def front(self) -> list[Candidate]:
        """The right candidates that no other beats in all objectives, the best by the first objective first."""
        return front(self.table, [*self.objectives])

    def config(self, *arguments: Any) -> Config | Cover:
        """Return the configuration of the best point for a call's arguments."""
        values = self._variants.values(arguments) if self._variants.of_call else {}
        # Of an array counts what it is, not what it holds.
        key = tuple(
            (tuple(value.shape), str(value.dtype)) if getattr(value, "shape", ()) else value
            for value in values.values()
        )
        config = self._configs.get(key)
        if config is None:
            config = self._configs[key] = self._variants.config(self.best, values)
        return config

    def __call__(self, stream: Any, *arguments: Any) -> None:
        self.kernel(stream, self.config(*arguments), *arguments)

    def __repr__(self) -> str:
        first = self.table[0]
        value = "" if first.value is None else f"{first.value:,.4g} {self.unit} at "
        return f"<Tuned {self.kernel.name}: {value}{shown(self.best)}>"

    def _parts(self) -> Iterable[Part]:
        right = [candidate for candidate in self.table if candidate.state == "right"]
        yield f"{self.kernel.name}: {len(self.table)} candidates tried, {len(right)} right; ended: {self.ended}"
        yield "seconds: " + ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in self.seconds.items())
        if self.clocks:
            yield f"clock of the multiprocessors: {self.clocks[0]:,} MHz before, {self.clocks[1]:,} MHz after"
        yield from (f"{name}: {outcome}" for name, outcome in self.confirmed.items())
        names = list(self.best)
        rates = self.traffic if self.objective == "time" else None
        further, on_front = [*self.objectives][1:], self.front
        heads = (
            *names, "state", _head(self.objective, self.unit), "interval",
            *(_head(name, self.objectives[name]) for name in further), *(["front"] if further else []),
            "runs", "registers", "occupancy",
            *(rates.heads if rates else ()), "why",
        )  # fmt: skip
        rows = [
            (
                *(str(row.point[name]) for name in names),
                row.state,
                row.value,
                "" if row.low is None or row.runs == 1 else f"{row.low:,.4g} – {row.high:,.4g}",
                *(row.values.get(name) for name in further),
                *(["yes" if row in on_front else ""] if further else []),
                row.runs or None,
                row.registers,
                "" if row.occupancy is None else f"{row.occupancy:.0%}",
                *(rates.cells(row.value) if rates else ()),
                row.why.partition("\n")[0],
            )
            for row in self.table
        ]
        yield Table(heads, rows, range(len(names)))

    def explain(self) -> str:
        """Return what other values of each parameter cost beside the best, the ties, and why candidates were left."""
        return "\n".join(views.explanation(self))

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw each parameter's values beside the objective; `path` saves it as PNG. Return matplotlib's figure."""
        return views.plot(self, path)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict for JSON."""
        return {
            "kernel": self.kernel.name,
            "objective": self.objective,
            "unit": self.unit,
            "objectives": self.objectives,
            "front": [candidate.point for candidate in self.front],
            "ended": self.ended,
            "confirmed": self.confirmed,
            "seconds": self.seconds,
            "clocks": self.clocks,
            "traffic": None if self.traffic is None else self.traffic._asdict(),
            "best": self.best,
            "table": [dataclasses.asdict(candidate) for candidate in self.table],
        }

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(self.to_dict(), default=str)

    def save(self, path: str | Path) -> None:
        """Write the result to a file as JSON."""
        Path(path).write_text(self.to_json(), encoding="utf-8")


def _head(name: str, unit: str) -> str:
    """Return the head of an objective's column. A counter is its own unit."""
    return name if name == unit else f"{name} in {unit}"


def _rank(candidate: Candidate) -> tuple[int, float]:
    order = ("right", "slow", "wrong", "invalid", "failed").index(candidate.state)
    return order, candidate.value if candidate.value is not None else float("inf")
