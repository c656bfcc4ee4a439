"""Images beside CuPy's ndimage, torch and a copy, which is their floor: it reads and writes as much.

It measures as `kernels` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from cases import rates

TITLE = "Images beside a copy"


def add_options(parser: argparse.ArgumentParser) -> None:
    rates.add_options(parser, ("images",))


def lines(options: argparse.Namespace) -> Iterator[str]:
    return rates.lines("kernels", options)
