"""What the emulator's checks cost: each kernel of the emulator's benchmark with them on, over the same with them off."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import numpy as np
from cases.emulator import cases
from tables import table_head

import cudakit as ck

TITLE = "Checks of the emulator: time with them over time without"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=7, help="launches of each kind, in turns")


def lines(options: argparse.Namespace) -> Iterator[str]:
    yield f"numpy {np.__version__}; medians of {options.repeats} launches of each kind, in turns."
    yield ""
    yield from table_head(("kernel", "off, ms", "on, ms", "ratio"))
    for case in cases():
        kernel, config = ck.Kernel(case.source), ck.config(case.grid, case.block)
        streams = [ck.emulator.stream(), ck.emulator.stream(check="raise")]
        output = np.zeros_like(case.expected)
        taken: list[list[float]] = [[], []]
        for repeat in range(options.repeats + 1):
            for stream, times in zip(streams, taken, strict=True):
                stream.sync()
                start = time.perf_counter()
                kernel(stream, config, *case.inputs, output)
                stream.sync()
                if repeat:
                    times.append(1000 * (time.perf_counter() - start))
                case.check(output, len(output))
        off, on = (statistics.median(times) for times in taken)
        yield f"| {case.name} | {off:.1f} | {on:.1f} | {on / off:.2f} |"
