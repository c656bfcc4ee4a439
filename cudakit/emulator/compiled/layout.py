"""How a launch's threads are cut into vectors, and what compiled code is given and comes back with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from cudakit.emulator.machine.state import Geometry


@dataclass(frozen=True, slots=True)
class Layout:
    """What of a block's shape the code is made for."""

    #: Lanes of a vector.
    width: int
    #: Whether the lanes of a vector lie along x, one after the other, with one y and z.
    rows: bool
    #: Whether a block is a whole number of vectors.
    full: bool
    #: Whether what it touches of global memory is noted.
    watched: bool = False
    #: Whether blocks next to each other run together, a row of threads of each and then the next: so that memory is
    #: gone through as it lies.
    strips: bool = False
    #: Whether the processor takes masks of lanes in all that it does to memory.
    masks: bool = True
    #: Whether it loads from four places at once, and has no masks for more (AVX2).
    gathers: bool = False


#: Blocks of a strip, at most; no strip goes over a multiple of it.
STRIP = 32


def layout_of(
    geometry: Geometry, warps: bool, most: int, watched: bool, free: bool, masks: bool, gathers: bool
) -> Layout:
    """The layout for a launch: whole warps where lanes talk to each other, else vectors of so many lanes at most.

    `free` are vectors that have nothing to do with each other, in a block neither.
    """
    x, y, z = geometry.block
    widths = (32,) if warps else tuple(width for width in (32, 16, 8) if width <= most)
    for width in widths:
        if x % width == 0 or y * z == 1:
            strips = free and y * z > 1 and geometry.grid[0] > 1
            return Layout(width, True, geometry.threads % width == 0, watched, strips, masks, gathers)
    return Layout(widths[0], False, geometry.threads % widths[0] == 0, watched, masks=masks, gathers=gathers)


class Effort(NamedTuple):
    """What is done for the code of a kernel, by its length."""

    #: Whether blocks have one body, and none beside it for vectors all of whose lanes are there.
    single: bool
    #: Whether what is live over blocks stays in memory: else LLVM hands it on wherever ways meet, which takes long.
    in_memory: bool


#: Instructions of a kernel up to which vectors take four registers each rather than two: what is done once for a vector
#: counts for more than what no longer fits into the registers. Those up to which LLVM may take registers out of memory
#: over all of it; and those up to which a second body for each block gains more than it takes longer to compile.
_SMALL, _SHORT, _LONG = 80, 300, 1000


def effort_of(size: int, baseline: bool) -> Effort:
    """What is done for so many instructions, which are to run as quickly as they can, or to be compiled quickly."""
    return Effort(baseline or size > _LONG, size > _SHORT)


def lanes_at_once(native: int, size: int) -> int:
    """Lanes of a vector, at most, of a kernel of so many instructions; `native` are those of a register."""
    return native * (4 if size <= _SMALL else 2)


class Slot(IntEnum):
    """The words of eight bytes through which a launch and its code know each other."""

    PARAMETERS = 0
    SHARED = 1
    SHARED_BYTES = 2
    LOCAL = 3
    LOCAL_BYTES = 4
    STATE = 5
    TABLE = 6  # of allocations: start, end, whether it is read-only, how far its flags are away
    TABLE_COUNT = 7
    GRID = 8  # 3 words
    BLOCK = 11  # 3 words
    THREADS = 14
    VECTORS = 15
    THREAD_AT = 16  # x, y and z of each thread, as uint32
    SYMBOLS = 17
    TICKS = 18
    REACH = 19  # what finds memory that is in no row of the table
    TICK = 20  # what looks after the time
    CALL = 32  # what the system gives is called by
    DYNAMIC_BYTES = 21
    TOTAL_BYTES = 22
    RESUMED = 23  # 1: the first block was left off in the middle
    # What went wrong:
    SITE = 24
    ADDRESS = 25
    THREAD = 26
    AT_BLOCK = 27
    # What an allocation was found to be:
    LOW = 28
    HIGH = 29
    SHIFT = 30
    FLAGS = 31
    # Whatever stays in memory while code runs.
    KEPT = 33
    GRID_BARRIER = 34  # where the blocks of a cooperative launch meet; 0: they cannot
    PARAMETER_BYTES = 35
    BARRIERS = 36  # 32 words: of those for a part of the block, how many have come, and how often it was met
    COUNT = 68


class Ending(IntEnum):
    """What code comes back with."""

    FINISHED = 0
    FAILED = 1  # an error that is written down
    STOPPED = 2  # told to stop
    STUCK = 3  # lanes of a warp wait for each other
    IDLE = 4  # a block's threads wait for what others have not written yet
    STALLED = 5  # a block's threads wait at barriers for each other


#: What a vector's state begins with: it has come to its end; lanes of it wait in several places. Else where it goes on.
DONE, DIVERGENT = -1, -2
