"""The ops beside CuPy, torch and CUB, in one run on a GPU: rates, ratios to peers and to a copy of as many bytes.

CUB is measured where ``nvcc`` is found, torch where it is installed. Every figure is a median of launches timed by
events, after a warm-up, over random data; the rows of 1024 elements are host time a call, launches included.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from cases import rates

TITLE = "Ops beside their peers"
GROUPS = ("elementwise", "reduce", "scan", "move", "count", "rows", "sort", "random", "images")


def add_options(parser: argparse.ArgumentParser) -> None:
    rates.add_options(parser, GROUPS)


def lines(options: argparse.Namespace) -> Iterator[str]:
    return rates.lines("kernels", options)
