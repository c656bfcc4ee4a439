"""Entry of the checks: `check`, observers of a launch, and reruns of the launch in other orders of threads."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from cudakit.emulator.checks.checker import Checker
from cudakit.emulator.checks.findings import (
    Finding,
    Kind,
    Report,
    error_of,
    is_benign,
    place_of,
    raise_finding,
    warn_about,
)
from cudakit.emulator.isa.facts import is_atomic
from cudakit.emulator.machine.machine import DrawnOrder, Launch, run
from cudakit.emulator.ptx.program import Function, Instruction
from cudakit.emulator.resources.allocations import MARKS
from cudakit.emulator.streams.stream import EmulatedStream
from cudakit.errors import EmulationError
from cudakit.types.checked import whole

#: Most runs that look for fewer switches, and most switches that a message lists.
_RUNS, _SHOWN = 100, 12
#: Steps of a drawn order for each step of the first run. A run with more steps reports nothing.
_PATIENCE = 64
#: Operands by which a result may depend on the order of threads without a fault.
_CLOCKS = ("clock", "globaltimer")


def _search(
    first: Callable[[Launch], None],
    schedules: int,
    report: Report,
    on_finding: Callable[[Finding], None],
    launch: Launch,
) -> None:
    """Run a launch in the default order, then in at most `schedules` drawn orders, until a check reports a finding.

    `first` runs the launch in the default order. If that run has a finding, or the kernel may allocate from the heap,
    no other order is tried. A finding of another order is added to `report`. `on_finding` also takes this finding, and
    may raise. Memory is left as the first run leaves it.
    """
    writable, count_before = launch.memory.writable(), len(report.findings)
    before = [piece.copy() for piece in writable]
    first(launch)
    reached = launch.module.reachable(launch.entry)
    if len(report.findings) > count_before or _allocates(reached):
        return
    reruns = _Reruns(launch, writable, before, not _may_differ(launch, reached))
    try:
        finding = reruns.first(schedules)
    finally:
        reruns.end()
    if finding is not None:
        report.add(finding)
        on_finding(finding)


class _Reruns:
    """Reruns of one launch, each in another order of threads."""

    def __init__(
        self, launch: Launch, writable: Sequence[np.ndarray], before: Sequence[np.ndarray], has_one_result: bool
    ) -> None:
        self._launch, self._decoded, self._before = launch, writable, before
        self._after = [piece.copy() for piece in writable]
        self._has_one_result = has_one_result
        self.switches = 0

    def finding_in(self, order: DrawnOrder) -> Finding | None:
        """Run the launch again in an order of threads; return the run's first finding, or None.

        A finding comes from a check, an error, or a result that differs from the first run's. The order is a seed, or a
        seed with the switches to keep.
        """
        _put(self._decoded, self._before)
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
            not np.array_equal(piece, after) for piece, after in zip(self._decoded, self._after, strict=True)
        ):
            return self._finding("order", "the result is another in another order of threads")
        return None

    def first(self, schedules: int) -> Finding | None:
        """Return the finding of the first order that has one, or None.

        The orders are drawn with the seeds 0 to `schedules` − 1. The order in the finding is reduced to few switches.
        """
        for seed in range(schedules):
            finding = self.finding_in(seed)
            if finding is not None:
                return _shrunk(self, seed, finding)
        return None

    def end(self) -> None:
        """Restore memory to the bytes that the first run left."""
        _put(self._decoded, self._after)

    def _finding(self, category: Kind, text: str, at: Instruction | None = None) -> Finding:
        """Return a finding at an instruction, or at the kernel's own first line."""
        launch = self._launch
        code = launch.entry.code
        instr = at or next(
            (candidate for candidate in code if candidate.source is not None and candidate.source.caller is None),
            code[0],
        )
        return Finding(category, launch.title, *place_of(launch, instr), "", text)


def _shrunk(reruns: _Reruns, seed: int, finding: Finding) -> Finding:
    """Return the finding of an order with fewer switches between threads, which has the same kind as `finding`.

    `seed` is the seed of the order in which `finding` was found. The result names the reduced order in its text. If
    many switches remain, the order in the result is the seed alone.
    """
    switches, runs = list(range(reruns.switches)), 0

    def is_enough(some: Sequence[int]) -> bool:
        nonlocal runs, finding
        runs += 1
        again = reruns.finding_in((seed, *some))
        if again is None or again.kind != finding.kind:
            return False
        finding = again
        return True

    # Find the shortest beginning that suffices, then leave out each part that is not needed.
    low, high = 0, len(switches)
    while low < high and runs < _RUNS:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(switches[:middle]) else (middle + 1, high)
    switches, part = switches[:high], max(1, high // 2)
    while switches and runs < _RUNS:
        place = 0
        while place < len(switches) and runs < _RUNS:
            without = switches[:place] + switches[place + part :]
            if is_enough(without):
                switches = without
            else:
                place += part
        if part == 1:
            break
        part //= 2
    order: DrawnOrder = (seed, *switches) if len(switches) <= _SHOWN else seed
    enough = "1 switch is" if len(switches) == 1 else f"{len(switches)} switches are"
    text = f"{finding.text}; so with schedule={order}, of which {enough} enough"
    return dataclasses.replace(finding, text=text, schedule=order)


def _put(arrays: Sequence[np.ndarray], contents: Sequence[np.ndarray]) -> None:
    for array, data in zip(arrays, contents, strict=True):
        array[:] = data


def _drop(text: str) -> None:
    """Discard text that a rerun prints, which the first run has printed already."""


def _allocates(reached: Sequence[Function]) -> bool:
    """Return whether a kernel may allocate from the heap; a rerun would then find less of the heap free."""
    return not {function.name for function in reached}.isdisjoint(("malloc", "__cuda_syscall_aligned_malloc"))


def _may_differ(launch: Launch, reached: Sequence[Function]) -> bool:
    """Return whether results may depend on the order of threads without a fault.

    For a kernel that launches a child kernel the result is True: the child's code is not examined.
    """
    lines = {instr.source: instr for function in reached for instr in function.code}
    if any(is_benign(launch, instr) for instr in lines.values()):
        return True
    return any(
        "LaunchDevice" in function.name
        or any(
            is_atomic(instr) or any(clock in str(operand) for operand in instr.operands for clock in _CLOCKS)
            for instr in function.code
        )
        for function in reached
    )


#: Reports of the active `check` contexts, with the number of orders of threads that each tries.
_REPORTS: list[tuple[Report, int]] = []


@contextlib.contextmanager
def check(*, schedules: int = 0) -> Iterator[Report]:
    """Collect the findings of checks on the emulator's kernels in the block.

    Findings raise no error, unless a stream's `check` asks for errors. Checks report:

    - races between threads;
    - reads of memory that was never written;
    - asynchronous copies that are not waited for;
    - stores through pointers to const;
    - barriers that threads never reach;
    - masks that name lanes which have exited.

    Parameters
    ----------
    schedules : int
        Number of further runs of each launch without findings. Each run has an order of threads drawn with the next
        seed, from 0 up; the runs end at the first finding. Memory is left as the first run leaves it. The finding has
        an order with few switches: pass the order to ``ck.emulator.stream(schedule=…)``. A stream with a `check` of its
        own reports the finding too.

    Yields
    ------
    Report
        Findings of the block. The report grows with each launch.

    Examples
    --------
    >>> with ck.check() as report:
    ...     scale(stream, ck.cover(x.size), x, 2.0, x.size)
    >>> assert not report, report
    """
    whole("check: schedules", schedules, 0)
    report = Report()
    request = report, schedules
    _REPORTS.append(request)
    MARKS.watch(1)
    try:
        yield report
    finally:
        MARKS.watch(-1)
        _REPORTS[:] = [entry for entry in _REPORTS if entry is not request]


def checkers(stream: EmulatedStream) -> tuple[Checker, ...]:
    """Return the checkers of a launch on a stream; an empty tuple where checks are off."""
    if stream.check == "off" and not _REPORTS:
        return ()
    observers = [Checker(report.add) for report, _ in _REPORTS]
    if stream.check != "off":
        observers.append(Checker(raise_finding if stream.check == "raise" else warn_about))
    return tuple(observers)


def with_schedules(run: Callable[[Launch], None], stream: EmulatedStream) -> Callable[[Launch], None]:
    """Return a function that takes a launch and runs it in several orders of threads.

    `run` runs a launch in the default order. If no enclosing `check` has `schedules`, return `run` itself.
    """
    for report, schedules in _REPORTS:
        if schedules:
            run = partial(
                _search, run, schedules, report, {"raise": _raise, "warn": warn_about}.get(stream.check, _ignore)
            )
    return run


def _raise(finding: Finding) -> None:
    """Raise the error of a finding in another order of threads. The message must name the kernel itself.

    Raises
    ------
    EmulationError
    """
    raise error_of(finding, str(finding))


def _ignore(finding: Finding) -> None:
    """Do nothing: the finding is in the report."""
