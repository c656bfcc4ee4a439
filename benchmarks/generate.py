"""Functions made from expressions beside CuPy's, in one run on a GPU: rates, and ratios to peers and to a copy.

Run on a GPU: ``python benchmarks/generate.py [--only elementwise,folds] [--quick] [--output FILE.md]``. It measures as
``kernels.py`` does.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

import cupy

import cudakit as ck

sys.path.insert(0, str(Path(__file__).parent))
from kernels import SIZES, measured, page, row

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
    if options.output:
        title = "Functions made from expressions beside their peers"
        options.output.write_text(page(title, "generate.py", options, FAMILIES, rows))


if __name__ == "__main__":
    main()
