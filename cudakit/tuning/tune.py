"""``ck.tune``: the fastest right variant of a kernel.

For each point that the strategy asks for: compile, check the result, measure. At the end the best few are measured
again in turns, and the winner is run on fresh data and on the emulator with all checks.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from numbers import Integral, Real
from typing import Any, NamedTuple

from cudakit.errors import ArgumentError, CudakitError, shortened
from cudakit.jit.cache.prewarm import Workers
from cudakit.places import is_capturing
from cudakit.places import stream as default_stream
from cudakit.tuning.candidate import Candidate, none_right, shown
from cudakit.tuning.compiling import Ahead
from cudakit.tuning.isolated import IsolatedTrials
from cudakit.tuning.nvml import clock_mhz
from cudakit.tuning.objectives import objectives_of, parts_of
from cudakit.tuning.replay import replay
from cudakit.tuning.search import DEFAULT, searcher_of
from cudakit.tuning.space import LARGEST, Point, Restrictions, Space, space_of
from cudakit.tuning.strategy import Searcher
from cudakit.tuning.trials import Trials
from cudakit.tuning.tuned import Tuned
from cudakit.tuning.variants import Configured, Variants


class Progress(NamedTuple):
    """The state of a search after a candidate.

    Attributes
    ----------
    candidate : Candidate
        Candidate that was tried last.
    best : Candidate or None
        Best right candidate so far.
    tried, total : int
        Number of candidates tried, and most candidates that will be.
    seconds : float
        Time of the search so far.
    """

    candidate: Candidate
    best: Candidate | None
    tried: int
    total: int
    seconds: float

    @property
    def seconds_left(self) -> float:
        """The estimated time to the end of the search."""
        return self.seconds / self.tried * (self.total - self.tried)

    def __str__(self) -> str:
        best = "none right yet" if self.best is None or self.best.value is None else f"best {self.best.value:,.4g}"
        last = "" if self.candidate.value is None else f" {self.candidate.value:,.4g}"
        point = shown(self.candidate.point)
        return (
            f"{self.tried}/{self.total}  {self.candidate.state}{last}: {point}  {best}  {self.seconds_left:.0f} s left"
        )


def tune(
    kernel: Any,
    arguments: Any,
    space: Mapping[str, Sequence[Any]] | Space,
    *,
    sizes: Sequence[Any] = (),
    others: Mapping[str, Callable[[], Sequence[Any]]] | None = None,
    config: Configured = None,
    where: Restrictions = None,
    stream: Any = None,
    check: Any = None,
    objective: Any = None,
    budget: int | timedelta | None = None,
    strategy: Any = DEFAULT,
    seed: int = 0,
    tolerance: float | None = None,
    l2: str = "flushed",
    workers: int | None = None,
    isolated: bool = False,
    time_limit_s: float = 30.0,
    progress: Callable[[Progress], None] | None = None,
    flops: float = 0.0,
) -> Any:
    """Find the fastest right variant of a kernel in a space.

    Parameters
    ----------
    kernel : Kernel
        Kernel to tune.
    arguments : sequence or callable
        Arguments as in a call. Arrays that the kernel may write are copied. With `sizes`, a function of the stream and
        a size that returns them.
    space : dict of str to list, or Space
        Parameter → values. A parameter is a template parameter, a compile option, a parameter of `ck.config`, a macro
        of the source or its headers, or one that `config` takes.
    sizes : sequence
        Sizes to tune for, each a number, or a tuple of numbers. The winner must also be right one below and above.
    others : dict of str to callable, optional
        Name → function that returns other arguments, with which the winner must be right too.
    config : Config, Cover, LaunchConfig or callable, optional
        Launch configuration, or a function that returns it. The function takes parameters of the space, and of the
        kernel, by their names: ``lambda BLOCK, n: ck.config(-(-n // BLOCK), BLOCK)``.
    where : callable, str or sequence of them, optional
        Restrictions: functions or expressions of parameters of the space that are true for its points, such as
        ``"BLOCK * ITEMS <= 1024"``.
    stream : stream, optional
        Stream of the launches. Default: a new one, of the GPU, or of the emulator if there is no GPU.
    check : callable, array, sequence of array or Kernel, optional
        Expected outputs: arrays in the order of the written arguments, a function of host copies of the arguments that
        returns them, or another kernel that is called with the same configuration. Default: the outputs of the first
        point that launches.
    objective : str, object or list of them, optional
        On a GPU ``"time"``, which is the default, or ``"energy"``. On the emulator a counter: ``"instructions"``, which
        is the default, ``"sectors"`` and others. A counter is a ranking, no time.
        A list of several: the first leads the search, the others are measured of each right candidate.
    budget : int or timedelta, optional
        Maximum of candidates, or of time. Default: the whole space.
    strategy : str or object
        Order in which points are tried: ``"model"``, ``"local"``, ``"random"`` or ``"exhaustive"``. An object has
        methods ``ask`` and ``tell``, such as `cudakit.tuning.optuna.Study`; its class is called with the space.
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
        Longest time of a candidate, in seconds: of its compile by a worker, and with `isolated` of its launches.
    progress : callable, optional
        Function that is called after each candidate, with a `Progress`.
    flops : float
        Floating-point operations of a launch, for the rates in the table.

    Returns
    -------
    Tuned or dict
        The best point, its kernel, and a table of all candidates; with `sizes` one for each size. After Ctrl-C: of the
        candidates tried so far.

    Raises
    ------
    ArgumentError
        The space is empty or has unknown parameters, no candidate is right, or the kernel writes no array.
    """
    check_options(budget=budget, workers=workers, seed=seed, tolerance=tolerance, l2=l2, time_limit_s=time_limit_s)
    if not hasattr(kernel, "specialization_of"):
        raise ArgumentError(f"expected a ck.Kernel to tune, got {shortened(kernel)}")
    if not isinstance(sizes, Iterable) or isinstance(sizes, str):
        raise ArgumentError(f"sizes is a list of numbers, or of tuples of them; got {shortened(sizes)}")
    sizes = tuple(sizes)
    if sizes and not callable(arguments):
        raise ArgumentError("with sizes, arguments is a function of the stream and a size that returns the arguments")
    if not sizes and (callable(arguments) or not isinstance(arguments, Iterable)):
        raise ArgumentError(
            f"arguments are a sequence, as in a call, or with sizes= a function of the stream and a size; "
            f"got {shortened(arguments)}"
        )
    stream = default_stream() if stream is None else stream
    if is_capturing(stream):
        raise ArgumentError("the stream is being captured, so that nothing can be measured: pass another stream")
    points = space_of(space, where)
    variants = Variants(kernel, points, config)
    first, *further = objectives_of(objective, stream, l2)
    if isolated and not all(isinstance(part, str) for part in parts_of(objective, stream).values()):
        raise ArgumentError("with isolated=True the objective is a name: objects are not sent to another process")

    make = functools.partial(IsolatedTrials, time_limit_s=time_limit_s, l2=l2) if isolated else Trials

    def search(arguments: Sequence[Any], others: Mapping[str, Callable[[], Sequence[Any]]] | None) -> Tuned:
        try:
            with make(
                variants, tuple(arguments), stream, first, check, tolerance, others=others, further=further
            ) as trials:
                return run_trials(
                    trials, searcher_of(strategy, points, seed), workers, time_limit_s, budget, seed, progress, flops
                )
        except MemoryError as error:
            raise MemoryError(
                f"{variants.name}: memory is full ({error}). A search holds up to six copies of each array that the "
                "kernel may write, and one of the others: tune with smaller arrays, such as those of another size"
            ) from error

    if not sizes:
        return search(arguments, others)
    return {
        size: search(arguments_of(arguments, stream, size), {**neighbours(arguments, stream, size), **(others or {})})
        for size in sizes
    }


def arguments_of(function: Callable[..., Sequence[Any]], stream: Any, size: Any) -> Sequence[Any]:
    """Return the arguments of a size, a number or a tuple of numbers.

    Raises
    ------
    ArgumentError
        The function fails.
    """
    numbers = size if isinstance(size, tuple) else (size,)
    try:
        return tuple(function(stream, *numbers))
    except CudakitError:
        raise
    except Exception as error:
        call = ", ".join(("stream", *map(shortened, numbers)))
        raise ArgumentError(f"the function of the arguments fails: arguments({call}): {error!r}") from error


def neighbours(
    arguments: Callable[..., Sequence[Any]], stream: Any, size: Any
) -> dict[str, Callable[[], Sequence[Any]]]:
    """Return functions that make the arguments of the sizes one below and one above, by name."""
    numbers = size if isinstance(size, tuple) else (size,)
    if not numbers or not all(isinstance(number, int) and number > 1 for number in numbers):
        return {}
    shifted = [tuple(number + step for number in numbers) for step in (-1, 1)]
    return {
        f"size {', '.join(map(str, row))}": functools.partial(arguments_of, arguments, stream, row) for row in shifted
    }


#: Parameter of a search → what it may be, in words, and a test.
_OPTIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "budget": (
        "a number of candidates from 1 up, or a timedelta above 0",
        lambda value: value is None or _is_whole(value, 1) or (isinstance(value, timedelta) and value > timedelta(0)),
    ),
    "workers": ("a number from 0 up", lambda value: value is None or _is_whole(value, 0)),
    "seed": ("a whole number from 0 up", lambda value: _is_whole(value, 0)),
    "tolerance": ("a number from 0 up", lambda value: value is None or (isinstance(value, Real) and float(value) >= 0)),
    "l2": ("'flushed' or 'warm'", lambda value: value in ("flushed", "warm")),
    "time_limit_s": ("a number of seconds above 0", lambda value: isinstance(value, Real) and float(value) > 0),
}


def check_options(**options: Any) -> None:
    """Check parameters of a search.

    Raises
    ------
    ArgumentError
        A search has no parameter of that name, or its value does not fit.
    """
    names = [name for name in inspect.signature(tune).parameters if name not in _OF_CALL]
    for name, value in options.items():
        if name not in names:
            raise ArgumentError(f"a search has no parameter {name!r}; it has {', '.join(names)}")
        words, fits = _OPTIONS.get(name, ("", lambda value: True))
        if not fits(value):
            raise ArgumentError(f"{name} is {words}; got {shortened(value)}")


#: Parameters of `tune` that are no options.
_OF_CALL = ("kernel", "arguments", "stream", "sizes", "others")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def run_trials(
    trials: Trials,
    strategy: Searcher,
    workers: int | Workers | None,
    time_limit_s: float,
    budget: int | timedelta | None,
    seed: int,
    progress: Callable[[Progress], None] | None,
    flops: float,
) -> Tuned:
    """Search with trials: evaluate points, compare the best, confirm the winner."""
    clock = clock_mhz(trials.stream)
    with Ahead(trials.specializations, _count(trials, strategy), workers, time_limit_s) as ahead:
        ended = _search(trials, strategy, ahead, budget, progress)
    confirmed = dict[str, str]()
    try:
        while not trials.broken and trials.right:
            with trials.timed("compare"):
                trials.compare()
            winner = trials.right[0]
            with trials.timed("confirm"):
                confirmed = trials.confirm(winner, seed)
            if winner.state == "right":
                break
            trials.reconsider()
    except KeyboardInterrupt:
        ended = "interrupted"
    if not trials.right and ended == "interrupted":
        raise KeyboardInterrupt
    if not trials.right:
        raise none_right(trials.variants.name, trials.candidates)
    return Tuned(
        trials.variants,
        trials.candidates,
        {objective.name: objective.unit for objective in (trials.objective, *trials.further)},
        ended,
        confirmed,
        trials.seconds,
        trials.traffic(flops),
        (clock, clock_mhz(trials.stream)),
    )


def _count(trials: Trials, strategy: Searcher) -> int:
    """Return the most points of a search."""
    space = trials.variants.space
    rows = getattr(strategy, "rows", None)
    return len(rows) if rows is not None else len(space) if space.product <= LARGEST else space.product


def _search(
    trials: Trials,
    strategy: Searcher,
    ahead: Ahead,
    budget: int | timedelta | None,
    progress: Callable[[Progress], None] | None,
) -> str:
    """Evaluate points until the strategy has none, or the budget is used. Return why the search ended."""
    begun = time.monotonic()
    most = None if budget is None or isinstance(budget, timedelta) else int(budget)
    count = _count(trials, strategy)
    total = min(count, most or count)
    pending: list[Point] = []
    while True:
        if trials.broken:
            return f"the device failed: {trials.broken}"
        spent = time.monotonic() - begun
        if isinstance(budget, timedelta) and trials.candidates and spent > budget.total_seconds():
            return "budget"
        if most is not None and len(trials.candidates) >= most:
            return "budget"
        try:
            pending += strategy.ask(min(ahead.reach, total - len(trials.candidates)) - len(pending))
            if not pending:
                return "exhausted"
            with trials.timed("compile"):
                ahead.want(pending)
                point = ahead.first(pending)
            pending.remove(point)
            candidate = trials.evaluate(point, ahead)
            strategy.tell(point, candidate.value if candidate.state in ("right", "slow") else None)
            if progress is not None:
                best = trials.right[0] if trials.right else None
                progress(Progress(candidate, best, len(trials.candidates), total, time.monotonic() - begun))
        except KeyboardInterrupt:
            for candidate in trials.candidates[-1:]:
                candidate.why = candidate.why or ("interrupted" if candidate.state == "failed" else "")
            return "interrupted"


tune.replay = replay  # type: ignore[attr-defined]
