"""``ck.tune``: the fastest right variant of a kernel.

For each point that the strategy asks for: compile, check the result, measure. At the end the best few are measured
again in turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, CompileError, CudakitError, LaunchError, TemplateError
from cudakit.jit.specialise.specialise import Specialization
from cudakit.places import DEVICES, place_of
from cudakit.places import stream as default_stream
from cudakit.tuning.arrays import Difference, Outputs, first_difference
from cudakit.tuning.compiling import Ahead
from cudakit.tuning.objectives import Objective, interval, objective_of
from cudakit.tuning.search import Strategy, strategy_of
from cudakit.tuning.space import Point, Restriction, Space
from cudakit.tuning.tuned import Candidate, Tuned, none_right
from cudakit.tuning.variants import Configured, Variants

#: A candidate is far from the best if its fastest launch takes this many times as long.
_HOPELESS = 1.5
#: Candidates that are measured again at the end, in turns.
_FINALISTS = 5


def tune(
    kernel: Any,
    arguments: Sequence[Any],
    space: Mapping[str, Sequence[Any]],
    *,
    config: Configured = None,
    where: Restriction | Iterable[Restriction] | None = None,
    stream: Any = None,
    check: Any = None,
    objective: Any = "time",
    budget: int | timedelta | None = None,
    strategy: str = "random",
    seed: int = 0,
    tolerance: float | None = None,
    l2: str = "flushed",
    workers: int | None = None,
) -> Tuned:
    """Find the fastest right variant of a kernel in a space.

    Parameters
    ----------
    kernel : Kernel
        Kernel to tune.
    arguments : sequence
        Arguments as in a call. Arrays that the kernel may write are copied.
    space : dict of str to list
        Parameter → values. A parameter is a template parameter, a compile option, a parameter of `ck.config`, a macro
        of the source, or one that `config` takes.
    config : Config, Cover, LaunchConfig or callable, optional
        Launch configuration, or a function of parameters of the space that returns it.
    where : callable or sequence of callable, optional
        Restrictions: functions of parameters of the space that are true for its points.
    stream : stream, optional
        Stream of the launches. Default: a new one, of the GPU, or of the emulator if there is no GPU.
    check : callable, array, sequence of array or Kernel, optional
        Expected outputs: arrays in the order of the written arguments, a function of host copies of the arguments that
        returns them, or another kernel that is called with the same configuration. Default: the outputs of the first
        point that launches.
    objective : str or object
        ``"time"``; on the emulator a counter, such as ``"sectors"`` and ``"instructions"``: a ranking, no times.
    budget : int or timedelta, optional
        Maximum of candidates, or of time. Default: the whole space.
    strategy : str
        Order in which points are tried.
    seed : int
        Seed of the strategy's random choices.
    tolerance : float, optional
        Relative error that is right for floating-point outputs. Default: ε^⅔ of the dtype.
    l2 : {"flushed", "warm"}
        State of the L2 cache before a timed launch.
    workers : int, optional
        Number of processes that compile ahead; 0 compiles when needed. Default: one for each core, at most eight.

    Returns
    -------
    Tuned
        The best point, its kernel, and a table of all candidates.

    Raises
    ------
    ArgumentError
        The space is empty or has unknown parameters, no candidate is right, or the kernel writes no array.
    """
    points = Space(space, where)
    stream = default_stream() if stream is None else stream
    search = _Search(kernel, arguments, Variants(kernel, points, config), stream, check, tolerance)
    search.objective = objective_of(objective, stream, l2)
    chosen = strategy_of(strategy, points, seed)
    with Ahead(search.specialization, len(chosen.rows), workers) as ahead:
        ended = _run(search, chosen, ahead, budget)
    right = [candidate for candidate in search.candidates if candidate.state == "right"]
    if not right:
        raise none_right(kernel, search.candidates)
    if search.objective.repeats:
        search.compare(sorted(right, key=lambda candidate: candidate.value or 0.0)[:_FINALISTS])
    best = min(right, key=lambda candidate: candidate.value or 0.0)
    return Tuned(
        search.variants.kernel(best.point),
        search.variants.config(best.point),
        search.candidates,
        search.objective.name,
        search.objective.unit,
        ended,
    )


def _run(search: _Search, strategy: Strategy, ahead: Ahead, budget: int | timedelta | None) -> str:
    """Evaluate points until the strategy has none, or the budget is used. Return why it ended."""
    begun = time.monotonic()
    while True:
        if isinstance(budget, timedelta) and time.monotonic() - begun > budget.total_seconds():
            return "budget"
        if isinstance(budget, int) and len(search.candidates) >= budget:
            return "budget"
        try:
            points = strategy.ask()
            if not points:
                return "exhausted"
            ahead.want([*points, *strategy.likely(ahead.reach)])
            for point in points:
                candidate = search.evaluate(point, ahead)
                strategy.tell(point, candidate.value if candidate.state in ("right", "slow") else None)
        except KeyboardInterrupt:
            return "interrupted"


class _Search:
    """The state of one search: arguments, expected outputs, and the candidates that were tried."""

    objective: Objective

    def __init__(
        self,
        kernel: Any,
        arguments: Sequence[Any],
        variants: Variants,
        stream: Any,
        check: Any,
        tolerance: float | None,
    ) -> None:
        self.kernel, self.variants, self.stream = kernel, variants, stream
        self.candidates: list[Candidate] = []
        self._arguments, self._check, self._tolerance = list(arguments), check, tolerance
        self._outputs: Outputs | None = None
        #: Expected outputs: after the original contents, and after poison.
        self._expected: list[dict[int, np.ndarray] | None] = [None, None]
        self._on_gpu = place_of(stream) is DEVICES
        self.fastest = float("inf")

    def specialization(self, point: Point) -> Specialization:
        """Return the specialization of a point."""
        result: Specialization = self.variants.kernel(point).specialization_of(self.stream, *self._arguments)
        return result

    def evaluate(self, point: Point, ahead: Ahead) -> Candidate:
        """Compile, launch, check and measure a point."""
        candidate = Candidate(point, "failed")
        self.candidates.append(candidate)
        try:
            ahead.wait(point)
            plan = self._plan(point, candidate)
            if (difference := self._difference(plan)) is not None:
                candidate.state, candidate.why = "wrong", str(difference)
                return candidate
            self.measure(candidate, plan)
        except LaunchError as error:
            candidate.state, candidate.why = "invalid", str(error)
        except (CompileError, TemplateError) as error:
            candidate.why = str(error)
        except CudakitError as error:
            if isinstance(error, ArgumentError):
                raise
            candidate.why = str(error)
        return candidate

    def measure(self, candidate: Candidate, plan: Callable[[], None]) -> None:
        """Measure a candidate whose results are right."""
        values = self.objective.measure(plan, _HOPELESS * self.fastest)
        candidate.value, candidate.runs = float(np.median(values)), len(values)
        candidate.low, candidate.high = interval(values)
        candidate.state = "slow" if min(values) > _HOPELESS * self.fastest else "right"
        self.fastest = min(self.fastest, candidate.value)

    def compare(self, finalists: Sequence[Candidate], rounds: int = 3) -> None:
        """Measure the best candidates again, in turns, and replace their values."""
        plans = [self._plan(candidate.point, candidate) for candidate in finalists]
        values: list[list[float]] = [[] for _ in finalists]
        for _ in range(rounds):
            for own, plan in zip(values, plans, strict=True):
                own += self.objective.measure(plan, float("inf"))
        for candidate, own in zip(finalists, values, strict=True):
            candidate.value, candidate.runs = float(np.median(own)), len(own)
            candidate.low, candidate.high = interval(own)

    def _plan(self, point: Point, candidate: Candidate) -> Any:
        kernel, config = self.variants.kernel(point), self.variants.config(point)
        if self._outputs is None:
            plan = kernel.plan(self.stream, config, *self._arguments)
            self._outputs = Outputs(self.stream, self._arguments, plan.parameters)
            if not self._outputs.names:
                raise ArgumentError(f"{kernel.name} writes no array: there is nothing to check; pass an output")
        plan = kernel.plan(self.stream, config, *self._outputs.arguments)
        if self._on_gpu:
            resources = kernel.attributes()
            candidate.registers, candidate.spill_bytes = resources.registers, resources.spill_bytes
            candidate.shared_bytes, candidate.occupancy = resources.shared_bytes, resources.occupancy
        return plan

    def _difference(self, plan: Callable[[], None]) -> Difference | None:
        """Run a candidate on the original contents and on poison; return the first element that is wrong."""
        assert self._outputs is not None
        for number, prepare in enumerate((self._outputs.restore, self._outputs.poison)):
            prepare()
            plan()
            self.stream.sync()
            results = self._outputs.results()
            expected = self._expected[number]
            if expected is None:
                self._expected[number] = results
            elif difference := first_difference(self._outputs.names, expected, results, self._tolerance):
                return difference
        return None
