"""What checks find, and where it goes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from cudakit.emulator.machine.machine import DrawnOrder
from cudakit.errors import EmulationError
from cudakit.types.shown import Part, Reported

Mode: TypeAlias = Literal["raise", "warn", "off"]
MODES = ("raise", "warn", "off")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a kernel.

    Attributes
    ----------
    kind : str
        ``race``, ``uninitialised``, ``copy``, ``const``, ``barrier`` or ``mask``; only in a drawn order also ``error``
        and ``order``, which is another result.
    kernel : str
        With its template arguments.
    file, line
        Of the access or barrier: the line of the user's own file.
    other : str
        File and line of the other access of a race; empty otherwise.
    text : str
        What is wrong, in words, with block and thread.
    schedule : int, tuple of int or None
        The order of threads that a search found it in, for ``ck.emulator.stream(schedule=…)``; None: the stream's own.
    """

    kind: str
    kernel: str
    file: str
    line: int
    other: str
    text: str
    schedule: DrawnOrder | None = None

    def __str__(self) -> str:
        return f"{self.kernel}: {self.file}:{self.line}: {self.text}"


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
