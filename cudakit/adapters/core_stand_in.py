"""Stand-ins for cuda.core's modules in programs that run without a driver."""

from __future__ import annotations

from types import ModuleType


def find(name: str) -> ModuleType | None:
    """Return the module that a program sees as `name`, such as ``cuda.core.utils``; None for the real one.

    cudakit and other libraries always see the real modules: see `cudakit.adapters.stand_ins.StandIns`.
    """
    return None
