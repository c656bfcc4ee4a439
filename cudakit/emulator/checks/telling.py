"""Telling what was found: the user's own line, and each finding once."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.checks.findings import Finding
from cudakit.emulator.checks.plans import Plan
from cudakit.emulator.machine.machine import Launch


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

    def place(self, plan: Plan) -> tuple[str, int]:
        """The user's own line of an instruction."""
        found = plan.given.source
        if found is None:
            return f"PTX of {self.launch.title}", plan.given.line
        chain = [found]
        while (caller := chain[-1].caller) is not None:
            chain.append(caller)
        own = next(source for source in chain if source.file == chain[-1].file)
        file, _, line = self.launch.placed(own.file, own.line).rpartition(":")
        return file, int(line)

    def tell(self, kind: str, plan: Plan, text: str, other: Plan | None = None) -> None:
        """Tell a finding, once for its lines."""
        key = kind, id(plan.given), id(other.given) if other else 0
        if key in self._told:
            return
        self._told.add(key)
        file, line = self.place(plan)
        place = "{}:{}".format(*self.place(other)) if other else ""
        self._found(Finding(kind, self.launch.title, file, line, place, text))
