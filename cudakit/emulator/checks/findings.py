"""What checks find: a finding, once for its lines, with the user's own line, and where it goes."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from cudakit.emulator.checks.plans import Plan
from cudakit.emulator.machine.machine import DrawnOrder, Launch, Scheduler
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.ptx.program import Instruction
from cudakit.errors import EmulationError
from cudakit.types.shown import Part, Reported

#: Kinds of findings.
Kind: TypeAlias = Literal["race", "uninitialised", "copy", "barrier", "mask", "const", "error", "order"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a kernel; the text of an error says where by itself.

    Attributes
    ----------
    kind : str
        A row of the table in ``docs/checks.md``; ``error`` for what ended the program, or a drawn order; ``order``
        where a drawn order has another result.
    kernel : str
        With its template arguments.
    file, line
        Of the access or barrier: the line of the user's own file; of an error empty and 0 where it is not known.
    other : str
        File and line of the other access of a race; empty otherwise.
    text : str
        What is wrong, in words, with block and thread.
    schedule : int, tuple of int or None
        The order of threads that a search found it in, for ``ck.emulator.stream(schedule=…)``; None: the stream's own.
    """

    kind: Kind
    kernel: str
    file: str
    line: int
    other: str
    text: str
    schedule: DrawnOrder | None = None

    def __str__(self) -> str:
        return self.text if self.kind == "error" else f"{self.kernel}: {self.file}:{self.line}: {self.text}"


class CheckWarning(UserWarning):
    """A finding, where checks only warn."""


@dataclass(slots=True)
class Report(Reported):
    """Findings, each pair of lines once.

    Attributes
    ----------
    findings : list of Finding
    """

    findings: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.findings)

    def _parts(self) -> Iterator[Part]:
        yield "nothing was found" if not self.findings else f"found: {len(self.findings)}"
        yield from map(str, self.findings)

    def add(self, finding: Finding) -> None:
        """Keep another one, where its kind is new for its lines."""
        known = {(each.kind, each.kernel, each.file, each.line, each.other) for each in self.findings}
        if (finding.kind, finding.kernel, finding.file, finding.line, finding.other) not in known:
            self.findings.append(finding)


def raise_it(finding: Finding) -> None:
    """Stop the kernel.

    Raises
    ------
    EmulationError
    """
    raise EmulationError(finding.text)


def warn_of(finding: Finding) -> None:
    """Let the kernel go on."""
    warnings.warn(str(finding), CheckWarning, stacklevel=2)


#: What a comment says on a line where a finding of a kind is meant.
BENIGN: Final[dict[Kind, str]] = {"race": "cudakit: benign race", "uninitialised": "cudakit: benign read"}


def place_of(launch: Launch, given: Instruction) -> tuple[str, int]:
    """File and line of an instruction: the user's own; where there is none, of the PTX."""
    if given.source is None:
        return f"PTX of {launch.title}", given.line
    own = given.source.own()
    file, _, line = launch.placed(own.file, own.line).rpartition(":")
    return file, int(line)


def is_benign(launch: Launch, given: Instruction, kind: Kind = "race") -> bool:
    """Whether the line of an instruction, or one that it is inlined at, says that findings of a kind are meant."""
    if kind not in BENIGN:
        return False
    (name, text), comment = launch.source, BENIGN[kind]
    for source in given.source.chain() if given.source is not None else ():
        lines = text.splitlines() if source.file == name else []
        inside = 0 < source.line <= len(lines)
        if comment in (lines[source.line - 1] if inside else linecache.getline(source.file, source.line)):
            return True
    return False


class Telling:
    """What is found in a launch and what it launches.

    Parameters
    ----------
    found : callable
        Takes what is found, and may raise.
    """

    launch: Launch

    def __init__(self, found: Callable[[Finding], None]) -> None:
        self._found = found
        self._told: set[tuple[str, int, int]] = set()

    def through_const(self, plan: Plan, machine: Scheduler, active: Index) -> None:
        """Lanes write through a parameter that is const."""
        lane = machine.name_of(0 if active is None else int(active[0]))
        name = self.launch.pointers[plan.constant]
        self.tell("const", plan, f"{lane} writes through {name}, which is a pointer to const")

    def place(self, plan: Plan) -> tuple[str, int]:
        """The user's own line of an instruction."""
        return place_of(self.launch, plan.given)

    def tell(self, kind: Kind, plan: Plan, text: str, other: Plan | None = None) -> None:
        """Tell a finding, once for its lines."""
        key = kind, id(plan.given), id(other.given) if other else 0
        if key in self._told:
            return
        self._told.add(key)
        if any(is_benign(self.launch, each.given, kind) for each in (plan, other) if each is not None):
            return
        file, line = self.place(plan)
        place = "{}:{}".format(*self.place(other)) if other else ""
        self._found(Finding(kind, self.launch.title, file, line, place, text))
