"""Turning checks on, and running a checked launch in several orders of threads."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from cudakit.emulator.checks.checker import Checker
from cudakit.emulator.checks.findings import Finding, Kind, Report, is_benign, place_of, raise_it, warn_of
from cudakit.emulator.isa.facts import is_atomic
from cudakit.emulator.machine.machine import DrawnOrder, Launch, run
from cudakit.emulator.ptx.program import Function, Instruction
from cudakit.emulator.resources.allocations import MARKS
from cudakit.emulator.streams.stream import EmulatedStream
from cudakit.errors import EmulationError
from cudakit.types.checked import whole

#: Runs that look for fewer switches, and switches that a message names one by one.
_RUNS, _SHOWN = 100, 12
#: Steps of a drawn order for one of the first run's: where there are more, nothing is told.
_PATIENCE = 64
#: What lets a result depend on the order of threads though nothing is wrong.
_CLOCKS = ("clock", "globaltimer")


def _search(
    first: Callable[[Launch], None], schedules: int, report: Report, found: Callable[[Finding], None], launch: Launch
) -> None:
    """Run a launch as always, and then in so many orders until something is found, which `found` takes and may raise.

    Where the first run finds something, no other order is tried.
    """
    held, known = launch.memory.writable(), len(report.findings)
    before = [each.copy() for each in held]
    first(launch)
    reached = launch.module.reached(launch.entry)
    if len(report.findings) > known or _takes_memory(reached):
        return
    tries = _Tries(launch, held, before, not _may_differ(launch, reached))
    try:
        finding = tries.first(schedules)
    finally:
        tries.end()
    if finding is not None:
        report.add(finding)
        found(finding)


class _Tries:
    """Runs a launch in one order after the other."""

    def __init__(self, launch: Launch, held: Sequence[np.ndarray], before: Sequence[np.ndarray], one: bool) -> None:
        self._launch, self._held, self._before = launch, held, before
        self._after = [each.copy() for each in held]
        self._has_one_result = one
        self.switches = 0

    def found(self, order: DrawnOrder) -> Finding | None:
        """What is found in an order: by checks, as an error, or as another result."""
        _put(self._held, self._before)
        report, budget = Report(), _PATIENCE * (self._launch.steps + self._launch.geometry.threads)
        again = dataclasses.replace(
            self._launch,
            schedule=order,
            switches=0,
            observers=(Checker(report.add),),
            output=_drop,
            step_budget=budget,
            late=True,
            runner=run,
            steps=0,
        )
        try:
            again.run()
        except EmulationError as error:
            return None if again.steps > budget else self._finding("error", str(error), again.ended_at)
        finally:
            self.switches = again.switches
        if report.findings:
            return report.findings[0]
        if self._has_one_result and any(
            not np.array_equal(each, after) for each, after in zip(self._held, self._after, strict=True)
        ):
            return self._finding("order", "the result is another in another order of threads")
        return None

    def first(self, schedules: int) -> Finding | None:
        """What the first of the orders shows that shows anything, with few switches."""
        for seed in range(schedules):
            found = self.found(seed)
            if found is not None:
                return _shrunk(self, seed, found)
        return None

    def end(self) -> None:
        """Leave memory as the first run did."""
        _put(self._held, self._after)

    def _finding(self, kind: Kind, text: str, at: Instruction | None = None) -> Finding:
        """A finding at an instruction, or where the kernel's own first line is."""
        launch = self._launch
        code = launch.entry.code
        given = at or next((each for each in code if each.source is not None and each.source.caller is None), code[0])
        return Finding(kind, launch.title, *place_of(launch, given), "", text)


def _shrunk(tries: _Tries, seed: int, found: Finding) -> Finding:
    """The finding, with few switches that are enough for it."""
    kept, runs = list(range(tries.switches)), 0

    def is_enough(some: Sequence[int]) -> bool:
        nonlocal runs, found
        runs += 1
        again = tries.found((seed, *some))
        if again is None or again.kind != found.kind:
            return False
        found = again
        return True

    # The first that are enough, then without each part of them that is not needed.
    low, high = 0, len(kept)
    while low < high and runs < _RUNS:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(kept[:middle]) else (middle + 1, high)
    kept, part = kept[:high], max(1, high // 2)
    while kept and runs < _RUNS:
        place = 0
        while place < len(kept) and runs < _RUNS:
            without = kept[:place] + kept[place + part :]
            if is_enough(without):
                kept = without
            else:
                place += part
        if part == 1:
            break
        part //= 2
    order: DrawnOrder = (seed, *kept) if len(kept) <= _SHOWN else seed
    enough = "1 switch is" if len(kept) == 1 else f"{len(kept)} switches are"
    text = f"{found.text}; so with schedule={order}, of which {enough} enough"
    return dataclasses.replace(found, text=text, schedule=order)


def _put(held: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> None:
    for each, data in zip(held, given, strict=True):
        each[:] = data


def _drop(text: str) -> None:
    """What a kernel prints again is not shown."""


def _takes_memory(reached: Sequence[Function]) -> bool:
    """Whether a kernel may take memory from the heap, which keeps it."""
    return not {each.name for each in reached}.isdisjoint(("malloc", "__cuda_syscall_aligned_malloc"))


def _may_differ(launch: Launch, reached: Sequence[Function]) -> bool:
    """Whether a result may depend on the order of threads though nothing is wrong: what a child does is not known."""
    lines = {each.source: each for function in reached for each in function.code}
    if any(is_benign(launch, each) for each in lines.values()):
        return True
    return any(
        "LaunchDevice" in function.name
        or any(
            is_atomic(each) or any(clock in str(operand) for operand in each.operands for clock in _CLOCKS)
            for each in function.code
        )
        for function in reached
    )


#: Those of the contexts at hand, and how many orders of threads each tries.
_REPORTS: list[tuple[Report, int]] = []


@contextlib.contextmanager
def check(*, schedules: int = 0) -> Iterator[Report]:
    """Collect what checks find in the emulator's kernels of the block; nothing is raised, unless a stream asks for it.

    Races between threads, reads of memory that nobody wrote, asynchronous copies that are not waited for, stores
    through pointers to const, barriers that threads never reach, and masks that name lanes which have exited.

    Parameters
    ----------
    schedules : int
        Each launch in which nothing is found is run so many times more, in orders of threads drawn with the seeds from
        0 up, until something is found; memory is left as the first run leaves it. The finding has an order with few
        switches, to be given to ``ck.emulator.stream(schedule=…)``; a stream with a `check` of its own is told too.

    Yields
    ------
    Report
        Whose findings grow with each launch.

    Examples
    --------
    >>> with ck.check() as report:
    ...     scale(stream, ck.cover(x.size), x, 2.0, x.size)
    >>> assert not report, report
    """
    whole("check: schedules", schedules, 0)
    report = Report()
    asked = report, schedules
    _REPORTS.append(asked)
    MARKS.ask(1)
    try:
        yield report
    finally:
        MARKS.ask(-1)
        _REPORTS[:] = [each for each in _REPORTS if each is not asked]


def checkers(stream: EmulatedStream) -> tuple[Checker, ...]:
    """Observers of one launch on a stream, none where nothing is checked."""
    if stream.check == "off" and not _REPORTS:
        return ()
    made = [Checker(report.add) for report, _ in _REPORTS]
    if stream.check != "off":
        made.append(Checker(raise_it if stream.check == "raise" else warn_of))
    return tuple(made)


def searching(run: Callable[[Launch], None], stream: EmulatedStream) -> Callable[[Launch], None]:
    """What runs a launch that is checked: in several orders of threads, where somebody asks for it."""
    for report, schedules in _REPORTS:
        if schedules:
            run = partial(_search, run, schedules, report, {"raise": _stop, "warn": warn_of}.get(stream.check, _keep))
    return run


def _stop(finding: Finding) -> None:
    """Raise what a search found, where no machine is at work that would say of which kernel.

    Raises
    ------
    EmulationError
    """
    raise EmulationError(str(finding))


def _keep(finding: Finding) -> None:
    """It is in the report."""
