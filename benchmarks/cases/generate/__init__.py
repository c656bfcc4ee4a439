"""Functions made from expressions beside CuPy's, in one run on a GPU: rates, and ratios to peers and to a copy.

It measures as `kernels` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from cases import rates

TITLE = "Functions made from expressions beside their peers"
GROUPS = ("elementwise", "folds", "stencil")


def add_options(parser: argparse.ArgumentParser) -> None:
    rates.add_options(parser, GROUPS)


def lines(options: argparse.Namespace) -> Iterator[str]:
    return rates.lines("generate", options)
