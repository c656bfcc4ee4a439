"""Which machine runs a launch: the compiled one where it can, else the NumPy machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from cudakit.emulator.machine.machine import Launch, run


@cache
def runner(machine: str) -> Callable[[Launch], None]:
    """What runs a launch on a stream of ``auto``, ``compiled`` or ``numpy``."""
    if machine == "numpy":
        return run
    try:
        from cudakit.emulator.compiled.machine import run as compiled
    except ImportError:
        return run
    return lambda launch: compiled(launch, run, machine == "compiled")
