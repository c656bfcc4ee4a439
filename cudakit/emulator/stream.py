"""The emulator's stream: what a call is given to run on the host."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from cudakit.errors import EmulationError


def _print(text: str) -> None:
    sys.stdout.write(text)


@dataclass(frozen=True, eq=False)
class EmulatedStream:
    """A stream whose kernels run on the host, on NumPy arrays, each to its end before the call returns.

    Attributes
    ----------
    arch : str
        Arch that kernels are compiled for, ``sm_80`` or ``sm_90``.
    step_budget : int or None
        Steps after which a launch is stopped as endless; None: no limit.
    output : callable
        Takes what kernels print.
    """

    arch: str = "sm_90"
    step_budget: int | None = None
    output: Callable[[str], None] = field(default=_print, repr=False)

    def sync(self) -> None:
        """Return at once: every launch is done when its call returns."""


def stream(
    arch: str = "sm_90", *, step_budget: int | None = None, output: Callable[[str], None] | None = None
) -> EmulatedStream:
    """A stream of the emulator.

    Parameters
    ----------
    arch : str
        Arch that kernels are compiled for.
    step_budget : int, optional
        Steps after which a launch is stopped as endless.
    output : callable, optional
        Takes what kernels print; default: standard output.

    Raises
    ------
    EmulationError
        If `arch` is not an arch's name.
    """
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise EmulationError(f"an arch is named as in 'sm_90', got {arch!r}")
    return EmulatedStream(arch, step_budget, output or _print)
