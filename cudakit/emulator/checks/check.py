"""Turning checks on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cudakit.emulator.checks.checker import Checker
from cudakit.emulator.checks.findings import Report, raise_it, warn_of
from cudakit.emulator.resources.unwritten import MARKS
from cudakit.emulator.streams.stream import EmulatedStream

_REPORTS: list[Report] = []


@contextlib.contextmanager
def check() -> Iterator[Report]:
    """Collect what checks find in the emulator's kernels of the block; nothing is raised.

    Races between threads, reads of memory that nobody wrote, asynchronous copies that are not waited for, stores
    through pointers to const, barriers that threads never reach, and masks that name lanes which have exited.

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
    report = Report()
    _REPORTS.append(report)
    MARKS.ask(1)
    try:
        yield report
    finally:
        MARKS.ask(-1)
        _REPORTS.remove(report)


def checkers(stream: EmulatedStream) -> tuple[Checker, ...]:
    """Observers of one launch on a stream, none where nothing is checked."""
    if stream.check == "off" and not _REPORTS:
        return ()
    made = [Checker(report.add) for report in _REPORTS]
    if stream.check != "off":
        made.append(Checker(raise_it if stream.check == "raise" else warn_of))
    return tuple(made)
