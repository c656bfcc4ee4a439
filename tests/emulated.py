"""Runs a kernel's PTX on the emulator, with its steps counted."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.capacity import MOST_LANES

__all__ = ["MOST_LANES", "run"]


def run(
    text: str,
    *arguments: np.ndarray | int,
    grid: int = 1,
    block: int = 32,
    cluster: int = 1,
    shared: int = 0,
    budget: int | None = 200_000,
) -> int:
    """Run the one kernel in CUDA C++ or PTX `text` on arrays and 64-bit integers; the steps it took."""
    ptx = text if text.lstrip().startswith(".version") else ck.Kernel(text)[()].ptx(arch="sm_90")
    program = emulator.parse(ptx)
    memory = emulator.Memory()
    module = emulator.Module(program, memory)
    given = [memory.add(a, f"array {n}") if isinstance(a, np.ndarray) else a for n, a in enumerate(arguments)]
    entry = next(f for f in program.functions.values() if f.is_entry)
    geometry = emulator.Geometry((grid, 1, 1), (block, 1, 1), shared, (cluster, 1, 1))
    launch: Any = emulator.Launch(module, entry, geometry, struct.pack(f"<{len(given)}q", *given), step_budget=budget)
    emulator.run(launch)
    return int(launch.steps)
