"""Runs a kernel on host arrays: on the emulator, with its steps counted, or under --gpu on a GPU's copies of them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from support import on_gpu

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.machine.module import MOST_LANES
from cudakit.emulator.ready import runner
from cudakit.jit.cache.settings import machine

__all__ = ["IS_COMPILED", "MOST_LANES", "Place", "call", "of_numpy", "place", "run"]


#: Steps after which a kernel is taken for endless.
_BUDGET = 200_000


#: Whether kernels are machine code wherever that can be; what orders of threads NumPy has is not asked of it.
IS_COMPILED = machine() == "compiled"
of_numpy = pytest.mark.skipif(IS_COMPILED, reason="of NumPy's machine")


def _runner() -> Any:
    """The machine that `CUDAKIT_MACHINE` names; NumPy's, where it does not."""
    return runner("compiled" if IS_COMPILED else "numpy")


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
    budget: int | None = _BUDGET,
) -> int:
    """Run the one kernel in CUDA C++ or PTX `text` on arrays and 64-bit integers.

    Returns the steps that it took NumPy's machine; 0 elsewhere.
    """
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
    packed = struct.pack(f"<{len(given)}q", *given)
    if IS_COMPILED and budget == _BUDGET:
        budget = None  # else the launch would be NumPy's
    launch: Any = emulator.Launch(module, entry, geometry, packed, step_budget=budget, runner=_runner())
    launch.run()
    return 0 if IS_COMPILED else int(launch.steps)


def call(text: str, config: ck.Config, *arguments: Any) -> None:
    """Call the kernel in CUDA C++ `text`; on the emulator a budget ends what waits for ever."""
    kernel = ck.Kernel(text)
    if place.is_gpu:
        on_gpu.call(kernel, config, *arguments)
    else:
        kernel(emulator.stream(step_budget=1_000_000), config, *arguments)


def apply(text: str, *inputs: np.ndarray, out: int = 32) -> np.ndarray:
    """Run `text` once a lane, with {0}, {1}, … for its inputs and {d} for its result, of `out` bits."""
    count = inputs[0].size
    inputs = tuple(np.ascontiguousarray(i).view(f"u{i.dtype.itemsize}") for i in inputs)
    result = np.zeros(count, f"u{max(out, 8) // 8}")
    memory = emulator.Memory()
    addresses = [memory.add(array, f"array {n}") for n, array in enumerate((*inputs, result))]
    lines = [".version 8.6", ".target sm_90", ".address_size 64"]
    lines.append(f".visible .entry t({', '.join(f'.param .u64 p{n}' for n in range(len(addresses)))})")
    lines.append("{ .reg .b64 %a<9>; .reg .b32 %i; .reg .pred %p<4>; .reg .b32 %t<6>;")
    lines += [f".reg .b{8 * i.dtype.itemsize} %x{n};" for n, i in enumerate(inputs)] + [f".reg .b{max(out, 16)} %d;"]
    lines.append("mov.u32 %i, %tid.x;")
    for n, array in enumerate((*inputs, result)):
        lines.append(f"ld.param.u64 %a{n}, [p{n}]; mad.wide.u32 %a{n}, %i, {array.dtype.itemsize}, %a{n};")
    lines += [f"ld.global.b{8 * i.dtype.itemsize} %x{n}, [%a{n}];" for n, i in enumerate(inputs)]
    lines.append(text.format(*(f"%x{n}" for n in range(len(inputs))), d="%d") + ";")
    lines.append(f"st.global.b{out} [%a{len(inputs)}], %d; ret; }}")
    program = emulator.parse("\n".join(lines))
    module = emulator.Module(program, memory)
    launch = emulator.Launch(
        module,
        program.functions["t"],
        emulator.Geometry((1, 1, 1), (count, 1, 1)),
        struct.pack(f"<{len(addresses)}Q", *addresses),
        runner=_runner(),
    )
    launch.run()
    return result
