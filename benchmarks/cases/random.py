"""Random numbers beside CuPy's, torch's and memory that is set, and beside the bound of Philox's multiplications.

It measures as `kernels` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import cupy

from cases import rates

TITLE = "Random numbers beside their peers"
#: Products of 32 × 32 bits at a position (of the ten rounds' twenty one is the same for a whole tile), cycles of a
#: scheduler's multiplier for one, as Nsight Compute counts them, and schedulers of a multiprocessor.
_PRODUCTS, _CYCLES, _SCHEDULERS = 19, 4, 4


def add_options(parser: argparse.ArgumentParser) -> None:
    rates.add_options(parser, ("random",))


def lines(options: argparse.Namespace) -> Iterator[str]:
    device = cupy.cuda.Device().attributes
    clock, schedulers = device["ClockRate"] * 1e3, device["MultiProcessorCount"] * _SCHEDULERS
    positions = schedulers * clock * 32 / (_PRODUCTS * _CYCLES)
    yield f"The floor: a position, 16 random bytes, takes {_PRODUCTS} products of {_CYCLES} cycles each:"
    yield f"{schedulers} schedulers at {clock / 1e6:.0f} MHz do {positions / 1e9:.0f} positions in a nanosecond."
    yield "Numbers of which a position gives B bytes are written at B times that in GB/s at most, or as fast as memset;"
    yield "of a range each takes a product more. A truth takes half a word (B = 8); bytes below 20 are 4 a word"
    yield "(B = 16), below 100 two (B = 8)."
    yield ""
    yield from rates.lines("kernels", options)
