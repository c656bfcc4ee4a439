"""``ck.tune``: the fastest right variant of a kernel.

For each point that the strategy asks for: compile, check the result, measure. At the end the best few are measured
again in turns, and the winner is run on fresh data and on the emulator with all checks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from cudakit.errors import ArgumentError
from cudakit.places import stream as default_stream
from cudakit.tuning.compiling import Ahead
from cudakit.tuning.isolated import IsolatedTrials
from cudakit.tuning.objectives import objective_of
from cudakit.tuning.search import Strategy, strategy_of
from cudakit.tuning.space import Restriction, Space
from cudakit.tuning.trials import Trials
from cudakit.tuning.tuned import Tuned, none_right
from cudakit.tuning.variants import Configured, Variants

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
    isolated: bool = False,
    time_limit_s: float = 30.0,
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
        Launch configuration, or a function that returns it. The function takes parameters of the space, and of the
        kernel, by their names: ``lambda BLOCK, n: ck.config(-(-n // BLOCK), BLOCK)``.
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
    isolated : bool
        Whether launches run in another process: one that hangs or faults then costs its candidate only. The objective
        must be a name.
    time_limit_s : float
        With `isolated`, the longest time of a candidate, in seconds.

    Returns
    -------
    Tuned
        The best point, its kernel, and a table of all candidates. After Ctrl-C: of the candidates tried so far.

    Raises
    ------
    ArgumentError
        The space is empty or has unknown parameters, no candidate is right, or the kernel writes no array.
    """
    points = Space(space, where)
    stream = default_stream() if stream is None else stream
    variants = Variants(kernel, points, config)
    measured = objective_of(objective, stream, l2)
    if isolated:
        if not isinstance(objective, str):
            raise ArgumentError("with isolated=True the objective is a name: objects are not sent to another process")
        trials: Trials = IsolatedTrials(
            variants, arguments, stream, measured, check, tolerance, time_limit_s=time_limit_s, l2=l2
        )
    else:
        trials = Trials(variants, arguments, stream, measured, check, tolerance)
    with trials:
        return _tuned(trials, strategy_of(strategy, points, seed), workers, budget, seed)


def _tuned(trials: Trials, strategy: Strategy, workers: int | None, budget: int | timedelta | None, seed: int) -> Tuned:
    """Search, compare the best, confirm the winner."""
    with Ahead(trials.specialization, len(strategy.rows), workers) as ahead:
        ended = _search(trials, strategy, ahead, budget)
    confirmed = dict[str, str]()
    with contextlib.suppress(KeyboardInterrupt):
        if trials.broken:
            raise KeyboardInterrupt
        with trials.timed("compare"):
            trials.compare(trials.right[:_FINALISTS])
        while trials.right and (winner := trials.right[0]):
            with trials.timed("confirm"):
                confirmed = trials.confirm(winner, seed)
            if winner.state == "right":
                break
    if not trials.right:
        raise none_right(trials.variants.name, trials.candidates)
    return Tuned(trials.variants, trials.candidates, trials.objective, ended, confirmed, trials.seconds)


def _search(trials: Trials, strategy: Strategy, ahead: Ahead, budget: int | timedelta | None) -> str:
    """Evaluate points until the strategy has none, or the budget is used. Return why the search ended."""
    begun = time.monotonic()
    while True:
        if trials.broken:
            return f"the device failed: {trials.broken}"
        if isinstance(budget, timedelta) and time.monotonic() - begun > budget.total_seconds():
            return "budget"
        if isinstance(budget, int) and len(trials.candidates) >= budget:
            return "budget"
        try:
            points = strategy.ask()
            if not points:
                return "exhausted"
            ahead.want([*points, *strategy.likely(ahead.reach)])
            for point in points:
                candidate = trials.evaluate(point, ahead)
                strategy.tell(point, candidate.value if candidate.state in ("right", "slow") else None)
        except KeyboardInterrupt:
            return "interrupted"
