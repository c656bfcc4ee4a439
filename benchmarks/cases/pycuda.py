"""Launch cost through the modules of PyCUDA: host time a call, medians, nothing but an empty kernel on the device.

On a GPU. The floor is ``cuda.core.launch`` with pointers in hand, in the same run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from tables import table

from cases.launch import EMPTY_4
from cases.timing import host_time

TITLE = "Launch cost through PyCUDA's names"
BLOCK, GRID = (32, 1, 1), (1, 1)


def rows(repeats: int) -> Iterator[tuple[str, str, str, str]]:
    """Rows (what, time, ratio to the floor, aim)."""
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    from cudakit.adapters.pycuda import install

    install()
    import pycuda.autoinit  # noqa: F401
    from pycuda import driver, gpuarray
    from pycuda.compiler import SourceModule

    arrays = [gpuarray.zeros(1024, np.float32) for _ in range(3)]
    x, y, z = arrays
    dx, dy, dz = (driver.mem_alloc(4096) for _ in range(3))
    count = np.int32(1024)
    function, prepared = (SourceModule(EMPTY_4).get_function("empty4") for _ in range(2))
    prepared.prepare("PPPi")
    queue = driver.Stream()
    device = Device()
    stream, config = device.default_stream, LaunchConfig(grid=1, block=32)
    code = Program(EMPTY_4, "c++", ProgramOptions(arch=f"sm_{device.arch}")).compile(
        "cubin", name_expressions=["empty4"]
    )
    bare = code.get_kernel("empty4")
    pointers = tuple(int(array.gpudata) for array in arrays)
    px, py, pz = pointers
    found = host_time(
        {
            "bare": lambda: launch(stream, config, bare, px, py, pz, 1024),
            "again": lambda: launch(stream, config, bare, px, py, pz, 1024),
            "prepared": lambda: prepared.prepared_call(GRID, BLOCK, x.gpudata, y.gpudata, z.gpudata, 1024),
            "prepared queue": lambda: prepared.prepared_async_call(
                GRID, BLOCK, queue, x.gpudata, y.gpudata, z.gpudata, 1024
            ),
            "prepared memory": lambda: prepared.prepared_call(GRID, BLOCK, dx, dy, dz, 1024),
            "arrays": lambda: function(x, y, z, count, block=BLOCK, grid=GRID),
            "memory": lambda: function(dx, dy, dz, count, block=BLOCK, grid=GRID),
        },
        driver.Context.synchronize,
        repeats,
        200,
    )
    floor = found["bare"]
    for what, name, aim in (
        ("bare cuda.core.launch, pointers in hand (floor)", "bare", ""),
        ("the same again, for the spread", "again", ""),
        ("prepared_call, gpudata of GPUArrays", "prepared", "≤ 1.15"),
        ("prepared_call, DeviceAllocations", "prepared memory", "≤ 1.15"),
        ("prepared_async_call on a stream", "prepared queue", "≤ 1.15"),
        ("call with GPUArrays", "arrays", ""),
        ("call with DeviceAllocations", "memory", ""),
    ):
        yield what, f"{found[name]:.0f} ns", f"{found[name] / floor:.3f}", aim


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=60, help="measurements whose median is taken")


def lines(options: argparse.Namespace) -> Iterator[str]:
    return table(("what", "time", "ratio to the floor", "aim"), rows(options.repeats))
