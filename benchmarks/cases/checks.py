"""What the emulator's checks cost: each kernel of the emulator's benchmark with them on, over them off."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import numpy as np
from tables import table_head

import cudakit as ck
from cases.emulator import MATMUL, Case, cases

#: The product by tiles with asynchronous copies to shared memory.
COPIED = "#include <cuda_pipeline_primitives.h>\n" + MATMUL.replace(
    "left[y][x] = a[row * n + k + x];", "__pipeline_memcpy_async(&left[y][x], &a[row * n + k + x], 4);"
).replace(
    "right[y][x] = b[(k + y) * n + column];",
    "__pipeline_memcpy_async(&right[y][x], &b[(k + y) * n + column], 4);"
    " __pipeline_commit(); __pipeline_wait_prior(0);",
)

TITLE = "Checks of the emulator: time with them over time without"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=7, help="launches of each kind, in turns")


def lines(options: argparse.Namespace) -> Iterator[str]:
    yield f"numpy {np.__version__}; medians of the CPU time of {options.repeats} launches of each kind, in turns, in"
    yield "NumPy's machine. The output is memory of ck.empty, new for each launch."
    yield ""
    yield from table_head(("kernel", "off, ms", "on, ms", "ratio"))
    add, product, scan = cases()
    copied = Case("the same, by asynchronous copies", COPIED, *list(vars(product).values())[2:])
    for case in (add, product, copied, scan):
        kernel, config = ck.Kernel(case.source), ck.config(case.grid, case.block)
        streams = [ck.emulator.stream(machine="numpy", check=check) for check in ("off", "raise")]
        taken: list[list[float]] = [[], []]
        for repeat in range(options.repeats + 1):
            for stream, times in zip(streams, taken, strict=True):
                output = ck.empty(case.expected.shape, case.expected.dtype, stream=stream)
                start = time.process_time()
                kernel(stream, config, *case.inputs, output)
                stream.sync()
                if repeat:
                    times.append(1000 * (time.process_time() - start))
                case.check(output, len(output))
        off, on = (statistics.median(times) for times in taken)
        yield f"| {case.name} | {off:.1f} | {on:.1f} | {on / off:.2f} |"
