"""Measure a family of cases and write its page: ``python benchmarks/run.py FAMILY [options]``, or ``--list``.

``--output FOLDER`` writes the page there, as ``FAMILY-CARD.md``; ``FAMILY --help`` says what else the family takes.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tables import page_head, page_name

#: What is measured, in the order of the pages.
FAMILIES = {
    "launch": "what a call costs the host, beside bare cuda.core and CuPy; compiles; first use",
    "bundle": "the first launch of a fresh process, from a bundle; opening bundles, with no GPU",
    "pycuda": "what a launch through PyCUDA's names costs the host, beside bare cuda.core",
    "kernels": "ck.ops beside CuPy, torch and CUB, at four sizes",
    "generate": "functions made from expressions, beside CuPy's",
    "random": "random numbers, beside CuPy's, torch's, memset and the arithmetic's bound",
    "stencils": "stencils, beside a copy and CuPy's",
    "images": "filters and other sizes of images, beside a copy, CuPy's and torch's",
    "small": "all of ck.ops on 1,024 elements: host time of a call",
    "compare": "all rows of kernels and generate beside another checkout's",
    "graphs": "graphs of small kernels",
    "tuning": "searches beside Kernel Tuner: time of the search, time of the winner",
    "points": "tuned points of ops beside their defaults; --table FILE writes the table of the card",
    "tiles": "products of matrices by tile kernels, beside torch; --make FILE makes the kernels, with no GPU",
    "products": "products of matrices and vectors, and attention, by kernels of threads, beside torch and CuPy",
    "tile_launch": "what a call of a tile kernel costs the host; --make FILE makes the kernels, with no GPU",
    "hazards": "the order between streams",
    "memory": "copies between host and device",
    "pipeline": "pipelines beside the bound of copies and kernels",
    "scale": "pipelines over several GPUs; --engines dask ray: what they add, with no GPU; --lost 1000: workers killed",
    "bridges": "ops of torch and calls of JAX around a kernel, beside their own; overheads alone without a GPU",
    "checks": "what checks of the emulator cost, with no GPU",
    "counters": "counters of the emulator beside Nsight Compute's",
    "emulated_call": "a call on the emulator beside its plan, with no GPU",
    "screen": "programs of others, compiled as they stand, with no GPU",
    "search": "strategies of search over recorded spaces, beside Kernel Tuner's, with no GPU",
    "headers": "which of CUDA's headers NVRTC takes, with no GPU",
    "machines": "the emulator's machines beside loops of C, with no GPU",
    "machine_ops": "ck.ops on the emulator beside NumPy and SciPy, with no GPU",
    "emulator": "the emulator beside Numba's simulator, with no GPU",
}


def main(words: list[str]) -> int:
    """Run one family."""
    if not words or words[0] not in FAMILIES:
        print(__doc__)
        print("\n".join(f"{name:14}{what}" for name, what in FAMILIES.items()))
        return 0 if words == ["--list"] else 2
    name, *rest = words
    family = importlib.import_module(f"cases.{name}")
    parser = argparse.ArgumentParser(
        prog=f"benchmarks/run.py {name}",
        description=family.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, help="folder where the page is written too")
    family.add_options(parser)
    options = parser.parse_args(rest)
    title = f"{name}-compared" if name != "compare" and getattr(options, "baseline", None) else name
    page = options.output and (options.output / page_name(title)).open("w")
    # Each line as it is found: a run that is cut short has what it found.
    for line in page_lines(family, options, words):
        print(line, flush=True)
        if page:
            print(line, file=page, flush=True)
    return 0


def page_lines(family: Any, options: argparse.Namespace, words: list[str]) -> Iterator[str]:
    """A page: its head, what the family finds, and how long that took."""
    start = time.perf_counter()
    yield from page_head(family.TITLE, words)
    yield from family.lines(options)
    yield from ("", f"Measured in {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
