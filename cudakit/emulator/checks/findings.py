"""Findings of checks with the user's own lines, and the reporter, which reports each pair of lines once."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, Literal, TypeAlias

from cudakit.emulator.checks.plans import Plan
from cudakit.emulator.machine.machine import DrawnOrder, Launch, Scheduler
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Thread
from cudakit.emulator.ptx.program import Instruction
from cudakit.errors import Access, EmulationError, named
from cudakit.types.shown import Part, Reported

#: Categories of findings.
Kind: TypeAlias = Literal["race", "uninitialised", "copy", "barrier", "mask", "const", "error", "order"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault in a kernel. The text of an error names the place by itself.

    Attributes
    ----------
    kind : str
        Row of the table in ``docs/checks.md``. ``error``: an error that ended the program, or a drawn order. ``order``:
        a drawn order has another result.
    kernel : str
        Name of the kernel, with its template arguments.
    file, line
        File and line of the access or barrier, in the user's own source. For an error whose line is not known: empty
        and 0.
    other : str
        File and line of the other access of a race; empty otherwise.
    text : str
        Description of the fault, with block and thread.
    schedule : int, tuple of int or None
        Order of threads in which a search found the fault, for ``ck.emulator.stream(schedule=…)``; None: the stream's
        own order.
    accesses : tuple of Access
        The access or barrier at fault, and of a race the other access.
    """

    kind: Kind
    kernel: str
    file: str
    line: int
    other: str
    text: str
    schedule: DrawnOrder | None = None
    accesses: tuple[Access, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: "
        if self.kind != "error":
            return f"{self.kernel}: {place}{self.text}"
        return self.text if not self.line or place[:-2] in self.text else f"{place}{self.text}"


class CheckWarning(UserWarning):
    """A finding, where checks only warn."""


@dataclass(slots=True)
class Report(Reported):
    """Findings of checks, each pair of lines once.

    Attributes
    ----------
    findings : list of Finding
        Findings, in the order in which the checks reported them.
    """

    findings: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.findings)

    def _parts(self) -> Iterator[Part]:
        yield "nothing was found" if not self.findings else f"found: {len(self.findings)}"
        yield from map(str, self.findings)

    def add(self, finding: Finding) -> None:
        """Add a finding, unless the report has a finding of the same kind, kernel and lines."""
        keys = {(earlier.kind, earlier.kernel, earlier.file, earlier.line, earlier.other) for earlier in self.findings}
        if (finding.kind, finding.kernel, finding.file, finding.line, finding.other) not in keys:
            self.findings.append(finding)


def raise_finding(finding: Finding) -> None:
    """Stop the kernel with an error.

    Raises
    ------
    EmulationError
    """
    raise error_of(finding, finding.text)


def error_of(finding: Finding, message: str) -> EmulationError:
    """Return the error for a finding, with its details."""
    return EmulationError(message).detailed(
        kind=finding.kind, **named(finding.kernel), file=finding.file, line=finding.line, accesses=finding.accesses
    )


def warn_about(finding: Finding) -> None:
    """Warn of a finding and let the kernel continue."""
    warnings.warn(str(finding), CheckWarning, stacklevel=2)


#: Comment that silences a category of findings on its line.
BENIGN: Final[dict[Kind, str]] = {"race": "cudakit: benign race", "uninitialised": "cudakit: benign read"}


def place_of(launch: Launch, instr: Instruction) -> tuple[str, int]:
    """Return the file and line of an instruction: the user's own, or those of the PTX if there is no source line."""
    if instr.source is None:
        return f"PTX of {launch.title}", instr.line
    own = instr.source.own()
    file, _, line = launch.placed(own.file, own.line).rpartition(":")
    return file, int(line)


def is_benign(launch: Launch, instr: Instruction, category: Kind = "race") -> bool:
    """Return whether a comment silences a category of findings at an instruction.

    The comment stands at the instruction's line, or at a line where the instruction's line is inlined.
    """
    if category not in BENIGN:
        return False
    (name, text), comment = launch.source, BENIGN[category]
    for source in instr.source.chain() if instr.source is not None else ():
        lines = text.splitlines() if source.file == name else []
        inside = 0 < source.line <= len(lines)
        if comment in (lines[source.line - 1] if inside else linecache.getline(source.file, source.line)):
            return True
    return False


class Reporter:
    """Reporter of the findings of a launch, and of the launches that its kernel makes.

    Parameters
    ----------
    on_finding : callable
        Function that takes each finding and may raise.
    """

    launch: Launch

    def __init__(self, on_finding: Callable[[Finding], None]) -> None:
        self._on_finding = on_finding
        self._reported: set[tuple[str, int, int]] = set()

    def through_const(self, plan: Plan, machine: Scheduler, active: Index) -> None:
        """Report that the first of the active lanes writes through a pointer to const."""
        lane = 0 if active is None else int(active[0])
        name = self.launch.pointers[plan.constant]
        text = f"{machine.name_of(lane)} writes through {name}, which is a pointer to const"
        self.report("const", plan, text, threads=[machine.thread_of(lane)])

    def place(self, plan: Plan) -> tuple[str, int]:
        """Return the file and line of a plan's instruction, as `place_of` does."""
        return place_of(self.launch, plan.instr)

    def report(
        self,
        category: Kind,
        plan: Plan,
        text: str,
        other: Plan | None = None,
        threads: Sequence[Thread | None] = (),
    ) -> None:
        """Report a finding at the instruction of `plan`.

        `other` is the plan of the other instruction of a race. `threads` has the threads of the two instructions, where
        they are known. The finding is dropped if a comment silences it, or if
        the same pair of instructions was reported before in this category.
        """
        key = category, id(plan.instr), id(other.instr) if other else 0
        if key in self._reported:
            return
        self._reported.add(key)
        if any(is_benign(self.launch, member.instr, category) for member in (plan, other) if member is not None):
            return
        (file, line), place = self.place(plan), "{}:{}".format(*self.place(other)) if other else ""
        # A barrier has two threads at times, and no other instruction.
        pairs = zip_longest([plan] if other is None else [plan, other], threads)
        accesses = tuple(self._access(member, thread) for member, thread in pairs if member is not None)
        self._on_finding(Finding(category, self.launch.title, file, line, place, text, accesses=accesses))

    def _access(self, plan: Plan, thread: Thread | None) -> Access:
        use = "writes" if any(access.use != "loads" for access in plan.accesses) else "reads" if plan.accesses else ""
        return Access(use, *self.place(plan), *(thread or ()))
