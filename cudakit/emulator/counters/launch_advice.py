"""Rules on a launch as a whole: what of a block or a multiprocessor it leaves idle, whatever the kernel does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cudakit.emulator.counters.requests import WARP
from cudakit.emulator.counters.tally import Kernel
from cudakit.emulator.machine.kernel_memory import shared_layout
from cudakit.emulator.machine.state import RESERVED_SHARED


class Multiprocessor(NamedTuple):
    """What fits one at once, as the table of technical specifications in the CUDA C++ Programming Guide has it."""

    threads: int
    blocks: int
    shared_bytes: int


_KB = 1024
_MULTIPROCESSORS = {
    75: Multiprocessor(1024, 16, 64 * _KB),
    80: Multiprocessor(2048, 32, 164 * _KB),
    86: Multiprocessor(1536, 16, 100 * _KB),
    87: Multiprocessor(1536, 16, 164 * _KB),
    89: Multiprocessor(1536, 24, 100 * _KB),
    90: Multiprocessor(2048, 32, 228 * _KB),
    100: Multiprocessor(2048, 32, 228 * _KB),
    103: Multiprocessor(2048, 32, 228 * _KB),
}


def on_launch(kernel: Kernel) -> Iterator[str]:
    """Of the launch at last."""
    threads, blocks = kernel.geometry.threads, kernel.geometry.blocks
    if threads % WARP and (threads > WARP or blocks > 1):
        idle = -threads % WARP
        yield (
            f"blocks of {threads} threads leave {idle} of 32 lanes of their last warp idle: take a multiple of {WARP}"
        )
    target = kernel.program.target.partition(",")[0]
    number = re.match(r"sm_(\d+)", target)
    room = _MULTIPROCESSORS.get(int(number[1])) if number is not None else None
    if room is None:
        return
    shared = shared_layout(kernel.program, kernel.program.functions[kernel.entry])
    taken = kernel.geometry.shared_bytes + shared.static_bytes + RESERVED_SHARED
    fits = room.shared_bytes // taken
    # Of registers the PTX says nothing: more than this may not fit, fewer blocks may.
    if blocks > fits and 4 * fits * threads <= room.threads:
        yield (
            f"a block takes {taken:,} bytes of shared memory, of which a multiprocessor of {target} has "
            f"{room.shared_bytes:,}: {fits} {'block' if fits == 1 else 'blocks'} at once, {fits * threads} of "
            f"{room.threads:,} threads"
        )
    elif blocks > room.blocks and 2 * room.blocks * threads <= room.threads:
        yield (
            f"a multiprocessor of {target} takes {room.blocks} blocks at once, which with {threads} threads "
            f"each are {room.blocks * threads:,} of {room.threads:,} threads"
        )
