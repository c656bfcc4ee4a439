"""The command ``cudakit tune ops``: search the choices of ops on this card, and keep the points that are faster.

A call of an op is captured as a graph for each point, so that the time is the card's alone. The results are compared
with those of the present choice.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.log import Launched, logging
from cudakit.arrays.tunable import Answer, Question, Values, record_key, renew, trying
from cudakit.errors import CudakitError
from cudakit.graphs import capture
from cudakit.jit.cache.prewarm import Workers
from cudakit.jit.load.config import Cover, cover
from cudakit.jit.source.closure import Closure
from cudakit.jit.specialise.specialise import BoundParameter, Specialization
from cudakit.kernel.kernel import Kernel
from cudakit.memory.memory import empty, to_device
from cudakit.ops.tuning_cases import Case
from cudakit.places import DEVICES, place_of
from cudakit.places import stream as default_stream
from cudakit.tuning.kept import FORMAT, records
from cudakit.tuning.objectives import card_name, is_slower, objective_of
from cudakit.tuning.search import DEFAULT, searcher_of
from cudakit.tuning.space import Point
from cudakit.tuning.trials import Trials
from cudakit.tuning.tune import Progress, check_options, run_trials
from cudakit.tuning.tuned import Tuned

#: A point is kept if the present choice takes this many times as long, or more.
WORTH = 1.02
#: Rounds in which present choice and winner are measured in turns.
_ROUNDS = 10
#: Longest compile of a candidate, in seconds.
_LIMIT_S = 60.0
#: Most worker processes that compile, unless more are asked for.
_MOST_WORKERS = 16


class Outcome(NamedTuple):
    """The result of a search for one question.

    Attributes
    ----------
    op : str
        Op that was called.
    question : Question
        Choice, form and size class.
    present : dict
        Point that calls took before the search.
    best : dict
        Fastest point.
    values : (float, float)
        Medians of both, measured in turns, in `unit`.
    unit : str
        Unit of the values.
    is_better : bool
        Whether the best is faster by 2 % and beyond noise.
    tuned : Tuned
        All candidates.
    """

    op: str
    question: Question
    present: Point
    best: Point
    values: tuple[float, float]
    unit: str
    is_better: bool
    tuned: Tuned

    @property
    def ratio(self) -> float:
        """The time of the present choice, divided by that of the best."""
        return self.values[0] / self.values[1] if self.values[1] else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return a row of a table of points, with both times."""
        return {
            "op": self.op,
            "choice": self.question.choice,
            "form": self.question.form,
            "size": self.question.size_class,
            "point": self.best if self.is_better else None,
            "present": self.present,
            self.unit: [round(value, 3) for value in self.values],
            "ratio": round(self.ratio, 3),
            "candidates": len(self.tuned.table),
        }


class _Unknown(NamedTuple):
    """Resources that are not known."""

    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None


class _Captured:
    """A call of an op, captured as a graph. It is called as a plan is."""

    def __init__(self, graph: Any, parameters: Sequence[BoundParameter]) -> None:
        self._graph, self.parameters = graph, parameters

    def __call__(self) -> None:
        self._graph.launch()


class _Variant:
    """An op with one point: what `Trials` needs of a kernel."""

    def __init__(self, variants: _Variants, point: Point) -> None:
        self._variants = variants
        self._answers = {variants.question: variants.answer.choice.values_of(point)}
        self._kernels: list[Launched] = []
        self.name = variants.name

    def __call__(self, stream: Any, config: Any, *arguments: Any) -> None:
        with trying(self._answers):
            self._variants.call(stream, arguments)

    def plan(self, stream: Any, config: Any, *arguments: Any) -> _Captured:
        """Return the captured call with this point."""
        with trying(self._answers):
            self._kernels = self._launches(stream, arguments)
            if place_of(stream) is DEVICES:
                self._variants.call(stream, arguments)  # loads the code, which a capture may refuse
            with capture(stream) as graph:
                self._variants.call(stream, arguments)
        return _Captured(graph, self._variants.parameters(arguments))

    def specializations(self, stream: Any, arguments: Sequence[Any]) -> list[Specialization]:
        """Return the specializations that the call launches. Nothing is compiled."""
        with trying(self._answers):
            launches = self._launches(stream, arguments)
        return [step.kernel.specialization_of(stream, *step.arguments) for step in launches]

    def attributes(self) -> Any:
        """Return the resources of the call's last kernel."""
        try:
            return self._kernels[-1].kernel.attributes()
        except CudakitError:  # the call launched another kernel object of the same code
            return _Unknown()

    def _launches(self, stream: Any, arguments: Sequence[Any]) -> list[Launched]:
        with logging(is_dry=True) as log:
            self._variants.call(stream, arguments)
        return [step for step in log.steps if isinstance(step, Launched)]


class _Variants:
    """An op with the points of a choice: what `Trials` needs of a kernel's `Variants`."""

    of_call = ()

    def __init__(self, case: Case, question: Question, answer: Answer, inputs: int, size: int) -> None:
        self.case, self.question, self.answer = case, question, answer
        self._inputs, self._size = inputs, size
        self.space = answer.space()
        self.name = f"{case.op}: {question}"
        self._specializations: dict[Values, list[Specialization]] = {}

    def call(self, stream: Any, arguments: Sequence[Any]) -> None:
        """Call the op; the last arguments are its results."""
        outs = arguments[self._inputs :]
        self.case.call(arguments[: self._inputs], outs[0] if len(outs) == 1 else tuple(outs), stream)

    def parameters(self, arguments: Sequence[Any]) -> list[BoundParameter]:
        """Return the call's arrays as parameters of a kernel."""
        return [
            BoundParameter(f"x{k}" if k < self._inputs else f"out{k - self._inputs}", "", "pointer", x.dtype,
                           k < self._inputs)
            for k, x in enumerate(arguments)
        ]  # fmt: skip

    def specializations(self, point: Point, stream: Any, arguments: Sequence[Any]) -> list[Specialization]:
        values = self.answer.choice.values_of(point)
        if values not in self._specializations:
            self._specializations[values] = _Variant(self, point).specializations(stream, arguments)
        return self._specializations[values]

    def values(self, arguments: Sequence[Any]) -> dict[str, Any]:
        return {}

    def packaged(self, path: str) -> Kernel:
        return Kernel.from_template(path)

    def kernel(self, point: Point) -> _Variant:
        return _Variant(self, point)

    def config(self, point: Point, values: Mapping[str, Any]) -> Cover:
        """Return a configuration with as many threads as elements: the op decides its own."""
        return cover(self._size)


def tune_ops(
    cases: Iterable[Case],
    *,
    stream: Any = None,
    dtypes: Sequence[str] = (),
    sizes: Sequence[int] = (),
    objective: Any = "time",
    budget: int | None = None,
    strategy: Any = DEFAULT,
    seed: int = 0,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    finished: set[Question] | None = None,
) -> Iterator[Outcome]:
    """Search the choices of ops, and yield the outcome of each question. Ctrl-C ends it after the present one.

    Parameters
    ----------
    cases : iterable of Case
        Calls to tune.
    dtypes : sequence of str
        Dtypes among those of a case. Default: all.
    sizes : sequence of int
        Numbers of elements. Default: those of the case.
    objective, budget, strategy, seed, workers, progress
        As for `ck.tune`; `budget` holds for each question.
    finished : set of Question, optional
        Questions to leave out. Those of this search are added.
    """
    check_options(budget=budget, seed=seed)
    stream = default_stream() if stream is None else stream
    finished = set() if finished is None else finished
    with Workers(min(os.cpu_count() or 1, _MOST_WORKERS) if workers is None else workers) as pool:
        search = functools.partial(
            _searched, stream=stream, objective=objective, budget=budget, strategy=strategy, seed=seed, workers=pool,
            progress=progress,
        )  # fmt: skip
        for case in cases:
            for dtype in (name for name in case.dtypes if not dtypes or name in dtypes):
                for size in sizes or case.sizes:
                    for outcome in _of_call(case, dtype, size, finished, search, stream, seed):
                        yield outcome
                        if outcome.tuned.ended == "interrupted":
                            return


def _of_call(
    case: Case,
    dtype: str,
    size: int,
    finished: set[Question],
    search: Callable[[_Variants, Sequence[Any]], Outcome],
    stream: Any,
    seed: int,
) -> Iterator[Outcome]:
    """Search the questions of one call that are not finished."""
    inputs = [to_device(array, stream) for array in case.arrays(np.random.default_rng(seed), dtype, size)]
    outs = _outs(case, inputs, stream)
    with trying({}) as answers, logging(is_dry=True):
        case.call(inputs, outs[0] if len(outs) == 1 else tuple(outs), stream)
    for question, answer in answers.items():
        if question not in finished:
            finished.add(question)
            yield search(_Variants(case, question, answer, len(inputs), size), (*inputs, *outs))


def _outs(case: Case, inputs: Sequence[Any], stream: Any) -> list[Any]:
    """Return arrays for the results of a call."""
    with logging(is_dry=True):
        results = case.call(inputs, None, stream)
    results = results if isinstance(results, tuple) else (results,)
    return [empty(x.shape, x.dtype, stream=stream) for x in results]


def _searched(
    variants: _Variants,
    arguments: Sequence[Any],
    stream: Any,
    objective: Any,
    budget: int | None,
    strategy: Any,
    seed: int,
    workers: Workers,
    progress: Callable[[Progress], None] | None,
) -> Outcome:
    choice, space = variants.answer.choice, variants.space
    of_values: Callable[[Values], Point] = lambda row: dict(zip(choice.values, row, strict=True))  # noqa: E731
    present = of_values(variants.answer.values)
    measure = objective_of(objective, stream)
    of_op: Any = variants  # what `Trials` needs of `Variants`
    trials = Trials(of_op, arguments, stream, measure, variants.kernel(present))
    tuned = run_trials(trials, searcher_of(strategy, space, seed), workers, _LIMIT_S, budget, seed, progress, 0.0)
    best = tuned.best
    if best == present:
        value = tuned.table[0].value or 0.0
        return Outcome(variants.case.op, variants.question, present, best, (value, value), measure.unit, False, tuned)
    plans = [variants.kernel(point).plan(stream, None, *arguments) for point in (present, best)]
    rows: list[list[float]] = [[], []]
    for _ in range(_ROUNDS if measure.repeats else 1):
        for row, plan in zip(rows, plans, strict=True):
            row += measure.measure(plan, float("inf"))
    medians = float(np.median(rows[0])), float(np.median(rows[1]))
    is_certain = bool(tuned.confirmed) and (not measure.repeats or is_slower(rows[0], rows[1]))
    is_better = is_certain and medians[0] >= WORTH * medians[1]
    return Outcome(variants.case.op, variants.question, present, best, medians, measure.unit, is_better, tuned)


def keep(outcome: Outcome, stream: Any) -> None:
    """Keep the best point of an outcome for this card: plans ask for it from now on."""
    card = card_name(stream)
    record = {
        "format": FORMAT,
        "kernel": f"ops.{outcome.op}: {outcome.question}",
        "card": card,
        "objective": outcome.tuned.objective,
        "unit": outcome.unit,
        "date": time.strftime("%Y-%m-%d"),
        "headers": Closure().to_json(),
        "names": list(outcome.best),
        "rows": [
            {"point": list(outcome.best.values()), "state": "right", "value": outcome.values[1], "runs": 1},
            {"point": list(outcome.present.values()), "state": "right", "value": outcome.values[0], "runs": 1},
        ],
    }
    records().merge(record_key(outcome.question, card), record)
    renew()
