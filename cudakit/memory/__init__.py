"""Memory: arrays of each kind, copies between host and device, host arrays as arguments.

What users call as ``ck.memory`` is read when it is asked for (PEP 562): a program that only launches kernels has none.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudakit.memory.accounting import Report, limit, report, trim
    from cudakit.memory.memory import (
        allocated,
        copy,
        empty,
        empty_pitched,
        host_view,
        prefetch,
        register,
        to_device,
        to_host,
    )

__all__ = [
    "Report", "allocated", "copy", "empty", "empty_pitched", "host_view", "limit", "prefetch", "register", "report",
    "to_device", "to_host", "trim",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in __all__:
        module = "accounting" if name in ("Report", "limit", "report", "trim") else "memory"
        return getattr(import_module(f"cudakit.memory.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return __all__
