"""Layout of a launch's threads in vectors, and the words that a launch and its compiled code share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from cudakit.emulator.machine.state import Geometry


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of threads in vectors: properties of the thread block's shape, and of the CPU for which code is made."""

    #: Lanes of a vector.
    width: int
    #: Whether the lanes of a vector are adjacent in x, with the same y and z.
    rows: bool
    #: Whether a block is a whole number of vectors.
    full: bool
    #: Whether accesses to global memory are noted.
    watched: bool = False
    #: Whether blocks adjacent in x run together: a row of threads of each block, then the next row. Memory is then
    #: accessed in the order of addresses.
    strips: bool = False
    #: Whether a row of threads of adjacent blocks may run at once.
    runs: bool = False
    #: Whether the CPU has masks for all its memory instructions.
    masks: bool = True
    #: Whether the CPU loads from four places at once, without masks for more (AVX2).
    gathers: bool = False


#: Limit of blocks in a strip; a strip does not cross a multiple of it.
STRIP = 64


def layout_of(
    geometry: Geometry, warps: bool, most: int, watched: bool, free: bool, masks: bool, gathers: bool
) -> Layout:
    """Return the layout for a launch: vectors of a whole warp with `warps`, else of at most `most` lanes.

    `free` means that vectors do not wait for, or read memory of, each other, even in a block. `watched` means that
    accesses are recorded; `masks` and `gathers` describe the CPU, as in `Layout`.
    """
    x, y, z = geometry.block
    widths = (32,) if warps else tuple(width for width in (32, 16, 8) if width <= most)
    for width in widths:
        if x % width == 0 or y * z == 1:
            strips = free and y * z > 1 and geometry.grid[0] > 1
            runs = free and x % width == 0 and (strips or y * z == 1)
            return Layout(width, True, geometry.threads % width == 0, watched, strips, runs, masks, gathers)
    return Layout(widths[0], False, geometry.threads % widths[0] == 0, watched, masks=masks, gathers=gathers)


class Effort(NamedTuple):
    """Effort spent on a kernel's code, which depends on the code's length."""

    #: Whether blocks have one body only, and no second one for vectors with all lanes active.
    single: bool
    #: Whether values live across blocks stay in memory. Else LLVM makes phi nodes for them, which takes long.
    in_memory: bool
    #: Whether equal accesses that are checked by themselves share a function: less to compile, and a call for each.
    shares: bool


#: Limits of a kernel's instructions. Up to the first, vectors take four CPU registers instead of two: less overhead a
#: vector outweighs spilled registers. Up to the second, LLVM may keep registers out of memory across blocks. Up to the
#: third, a second body for each block gains more time than its compilation takes.
_SMALL, _SHORT, _LONG = 80, 300, 1000


def effort_of(size: int, baseline: bool) -> Effort:
    """Return the effort for a kernel of `size` instructions, in the baseline tier or else the optimized tier."""
    return Effort(baseline or size > _LONG, size > _SHORT, baseline)


def lanes_at_once(native: int, size: int) -> int:
    """Return the most lanes of a vector for a kernel of `size` instructions: 2 or 4 times `native`.

    `native` is the number of lanes in a CPU register.
    """
    return native * (4 if size <= _SMALL else 2)


class Slot(IntEnum):
    """Words of eight bytes that a launch and its code share."""

    PARAMETERS = 0
    SHARED = 1
    SHARED_BYTES = 2
    LOCAL = 3
    LOCAL_BYTES = 4
    STATE = 5
    TABLE = 6  # of allocations: start, end, whether it is read-only, distance to its flags
    TABLE_COUNT = 7
    GRID = 8  # 3 words
    BLOCK = 11  # 3 words
    THREADS = 14
    VECTORS = 15
    THREAD_AT = 16  # x, y and z of each thread, as uint32
    SYMBOLS = 17
    TICKS = 18
    REACH = 19  # callback that finds memory outside the table
    TICK = 20  # callback that checks for signals
    CALL = 32  # callback for system functions and the interpreter
    DYNAMIC_BYTES = 21
    TOTAL_BYTES = 22
    RESUMED = 23  # 1: the first block resumes in the middle
    # An error:
    SITE = 24
    ADDRESS = 25
    THREAD = 26
    AT_BLOCK = 27
    # The range of an allocation:
    LOW = 28
    HIGH = 29
    SHIFT = 30
    FLAGS = 31
    # Places that stay in memory while code runs.
    KEPT = 33
    GRID_BARRIER = 34  # address of a cooperative launch's grid barrier; 0: none
    PARAMETER_BYTES = 35
    BARRIERS = 36  # 32 words: arrived threads and completions of each barrier for a part of the block
    # For functions beside the kernel: what the kernel's code runs now, and its places for addresses and values.
    FIRST_THREAD = 68
    BLOCK_NUMBER = 69
    SCRATCH_ADDRESSES = 70
    SCRATCH_VALUES = 71
    COUNT = 72


class Ending(IntEnum):
    """Reason for which a kernel's code returns."""

    FINISHED = 0
    FAILED = 1  # an error that is recorded
    STOPPED = 2  # asked to stop
    STUCK = 3  # lanes of a warp wait for each other
    IDLE = 4  # a block's threads poll memory that other blocks have not written yet
    STALLED = 5  # a block's threads wait at barriers for each other


#: Special numbers in a vector's state: the vector is done; its lanes wait in several places. Others are resume places.
DONE, DIVERGENT = -1, -2
