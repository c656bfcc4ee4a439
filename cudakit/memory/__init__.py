"""Allocate memory, copy arrays between host and device, and limit memory use.

>>> import cudakit as ck, numpy as np
>>> stream = ck.stream()  # of the GPU, or of the emulator if there is no GPU
>>> x = ck.to_device(np.arange(4, dtype="f4"), stream)
>>> with ck.allocated(x.shape, x.dtype, kind="pinned") as host:
...     print(ck.to_host(x, stream, out=host))
[0. 1. 2. 3.]

This page is a tour. ``help(ck.memory.copy)`` and so on explain each function.

- Copy: `to_device`, `to_host`, and `copy` between parts of arrays, and surfaces.
- Allocate device, pinned or managed memory: `empty`, `empty_pitched`, and `allocated` for the length of a ``with``.
- Use managed memory: `host_view` is the NumPy array of it, `prefetch` moves it.
- Page-lock an existing host array: `register`.
- Show memory in use: `report`. Limit it: `limit`. Return free memory of the pools: `trim`.

The most used of these are names of ``ck``, too: `ck.to_device`, `ck.to_host`, `ck.empty`, `ck.allocated`. Pass NumPy
arrays straight to kernels: `ck.In`, `ck.Out`, `ck.InOut`. Textures, surfaces and tensor maps: `ck.texture`,
`ck.surface`, `ck.tensor_map`.
"""

# The modules load with the first use of a name (PEP 562): a program that only launches kernels needs none of them.

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
