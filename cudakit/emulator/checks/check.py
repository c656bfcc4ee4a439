"""Turning checks on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from cudakit.emulator.checks.checker import Checker
from cudakit.emulator.checks.findings import Finding, Report, raise_it, warn_of
from cudakit.emulator.checks.schedules import Search
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.resources.allocations import MARKS
from cudakit.emulator.streams.stream import EmulatedStream
from cudakit.errors import EmulationError
from cudakit.types.checked import whole

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
            run = Search(run, schedules, report, {"raise": _stop, "warn": warn_of}.get(stream.check, _keep))
    return run


def _stop(finding: Finding) -> None:
    """Raise what a search found, where no machine is at work that would say of which kernel.

    Raises
    ------
    EmulationError
    """
    raise EmulationError(finding.text if finding.kind == "error" else str(finding))


def _keep(finding: Finding) -> None:
    """It is in the report."""
