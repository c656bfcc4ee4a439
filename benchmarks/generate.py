"""Functions made from expressions beside CuPy's, in one run on a GPU: rates, and ratios to peers and to a copy.

Run on a GPU: ``python benchmarks/generate.py [--only elementwise,folds] [--quick] [--output FILE.md]``. It measures as
``kernels.py`` does.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import sys
from pathlib import Path

import cupy

import cudakit as ck

sys.path.insert(0, str(Path(__file__).parent))
from cases import device_line
from kernels import CALL_SIZE, SIZES, measured, row

FAMILIES = ("elementwise", "folds")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(FAMILIES), help="families, by commas")
    parser.add_argument("--quick", action="store_true", help="float32 only")
    parser.add_argument("--repeats", type=int, default=11, help="measurements whose median is taken")
    parser.add_argument("--output", type=Path, help="also write the table here")
    options = parser.parse_args()
    rows = []
    with ck.using(ck.stream()):
        for family in options.only.split(","):
            for case in importlib.import_module(f"cases.generate_{family}").cases(SIZES, options.quick):
                rows.append(row(case, measured(case, options.repeats)))
                print("  ".join(rows[-1]), flush=True)
                del case
                cupy.get_default_memory_pool().free_all_blocks()
    head = ("op", "dtype", "elements", "cudakit, GB/s", "peers, GB/s (time over ours)", "copy of as many bytes", "aim")
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(line) for line in rows)]
    text = (
        f"# Functions made from expressions beside their peers\n\n{device_line()}, {datetime.date.today()}. "
        "`python benchmarks/generate.py`\n\nGB/s are bytes read once and written once over the median time; × above 1 "
        f"means that cudakit is faster. At {CALL_SIZE:,} elements: host time a call, µs.\n\n"
        + "\n".join(f"| {line} |" for line in lines)
        + "\n"
    )
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
