"""Runs a kernel on host arrays: on the emulator, with its steps counted, or under --gpu on a GPU's copies of them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import on_gpu

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.capacity import MOST_LANES

__all__ = ["MOST_LANES", "Place", "call", "place", "run"]


class Place:
    """Where kernels run that name no stream; `conftest` says it once, for all tests."""

    is_gpu = False


place = Place()


def run(
    text: str,
    *arguments: np.ndarray | int,
    grid: int = 1,
    block: int = 32,
    cluster: int = 1,
    shared: int = 0,
    budget: int | None = 200_000,
) -> int:
    """Run the one kernel in CUDA C++ or PTX `text` on arrays and 64-bit integers; the steps it took, 0 on a GPU."""
    ptx = text if text.lstrip().startswith(".version") else ck.Kernel(text)[()].ptx(arch="sm_90")
    program = emulator.parse(ptx)
    entry = next(f for f in program.functions.values() if f.is_entry)
    if place.is_gpu:
        config = ck.config(grid, block, shared, cluster=cluster if cluster > 1 else None)
        on_gpu.launch(ptx, entry.name, config, *arguments)
        return 0
    memory = emulator.Memory()
    module = emulator.Module(program, memory)
    given = [memory.add(a, f"array {n}") if isinstance(a, np.ndarray) else a for n, a in enumerate(arguments)]
    geometry = emulator.Geometry((grid, 1, 1), (block, 1, 1), shared, (cluster, 1, 1))
    launch: Any = emulator.Launch(module, entry, geometry, struct.pack(f"<{len(given)}q", *given), step_budget=budget)
    emulator.run(launch)
    return int(launch.steps)


def call(text: str, config: ck.Config, *arguments: Any) -> None:
    """Call the kernel in CUDA C++ `text`; on the emulator a budget ends what waits for ever."""
    kernel = ck.Kernel(text)
    if place.is_gpu:
        on_gpu.call(kernel, config, *arguments)
    else:
        kernel(emulator.stream(step_budget=1_000_000), config, *arguments)
