"""Telling what was found: the user's own line, and each finding once."""

from __future__ import annotations

import linecache
from collections.abc import Callable

from cudakit.emulator.checks.findings import Finding
from cudakit.emulator.checks.plans import Plan
from cudakit.emulator.machine.machine import Launch, Scheduler
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.ptx.program import Instruction, Source

#: What a comment says on a line where a finding of a kind is meant.
BENIGN = {"race": "cudakit: benign race", "uninitialised": "cudakit: benign read"}


def own_source(given: Instruction) -> Source | None:
    """The user's own line of an instruction."""
    chain = _chain(given)
    return next((source for source in chain if source.file == chain[-1].file), None)


def is_benign(launch: Launch, given: Instruction, kind: str = "race") -> bool:
    """Whether the line of an instruction, or one that it is inlined at, says that findings of a kind are meant."""
    if kind not in BENIGN:
        return False
    (name, text), comment = launch.source, BENIGN[kind]
    for source in _chain(given):
        lines = text.splitlines() if source.file == name else []
        inside = 0 < source.line <= len(lines)
        if comment in (lines[source.line - 1] if inside else linecache.getline(source.file, source.line)):
            return True
    return False


def _chain(given: Instruction) -> list[Source]:
    """The line of an instruction, and those that it is inlined at, the innermost first."""
    chain, found = list[Source](), given.source
    while found is not None:
        chain.append(found)
        found = found.caller
    return chain


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
        own = own_source(plan.given)
        if own is None:
            return f"PTX of {self.launch.title}", plan.given.line
        file, _, line = self.launch.placed(own.file, own.line).rpartition(":")
        return file, int(line)

    def tell(self, kind: str, plan: Plan, text: str, other: Plan | None = None) -> None:
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
