"""Stencils beside CuPy's ElementwiseKernel and beside a copy, which is their floor: it reads and writes as much.

It measures as `generate` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from cases import rates

TITLE = "Stencils beside a copy"


def add_options(parser: argparse.ArgumentParser) -> None:
    rates.add_options(parser, ("stencil",))


def lines(options: argparse.Namespace) -> Iterator[str]:
    return rates.lines("generate", options)
