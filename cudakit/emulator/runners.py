"""Which machine runs a launch: the compiled one where it can and it pays, else the NumPy machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache

from cudakit.emulator.machine.machine import Launch, run


@cache
def runner(machine: str) -> Callable[[Launch], None]:
    """What runs a launch on a stream of ``auto``, ``compiled`` or ``numpy``."""
    if machine == "numpy" or importlib.util.find_spec("llvmlite") is None:
        return run
    # Few who run one kernel need it, and it takes a tenth of a second to load.
    from cudakit.emulator.compiled.machine import run as compiled

    return lambda launch: compiled(launch, run, machine == "compiled")
