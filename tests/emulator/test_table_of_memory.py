"""The table of allocations that machine code looks addresses up in, as it changes with each."""

from __future__ import annotations

import numpy as np
import pytest

from cudakit.emulator.machine.heap import Heap
from cudakit.emulator.machine.memory import Memory
from cudakit.types.arguments import pointer_of

pytestmark = pytest.mark.emulator


def rows(memory: Memory) -> list[tuple[int, int, bool, int]]:
    """What the table is to be, of all that is known."""
    known = [memory._allocations[address] for address in memory._addresses]
    return [(each.address, each.end, each.readonly, 0) for each in known if each.heap is None]


@pytest.mark.parametrize("seed", range(8))
def test_it_says_what_is_known(seed: int) -> None:
    rng, memory = np.random.default_rng(seed), Memory()
    whole, heap = np.zeros(1 << 13, np.uint8), Heap(64)
    # In the midst of the others, so that some lie below and some above.
    heap.data = whole[4096:4160]
    heap.address = pointer_of(heap.data)
    added: list[int] = []
    for turn in range(300):
        if added and rng.random() < 0.45:
            memory.remove(added.pop(rng.integers(len(added))))
        else:
            # Of few addresses, so that some begin where others do, shorter or longer, to be written or not.
            first, size = int(rng.choice([0, 4096])) + 64 * int(rng.integers(1, 12)), int(rng.integers(1, 900))
            address = memory.add(whole[first : first + size], f"x{turn}", bool(rng.integers(2)))
            added += [address] * (address not in added)
        if turn % 40 == 7:
            memory.add_heap(heap)
        if turn % 40 == 29:
            memory.clear_lanes()
        found = [tuple(memory.table[at : at + 4]) for at in range(0, len(memory.table), 4)]
        assert found == rows(memory)
        assert memory.flagged(lambda piece: piece.address + 5)[3::4].tolist() == [5] * len(found)
