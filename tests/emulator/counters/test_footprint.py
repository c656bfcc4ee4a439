"""Which sectors are touched, and from where they count, against sets of numbers."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.emulator.counters.requests import Alignment, Footprint

pytestmark = pytest.mark.emulator

#: Where a piece of flags ends and the next begins: 2^21 sectors.
PIECE = 1 << 26
STEPS = (0, -4, 31, 32, 33, -33, 34, 4096)


@pytest.mark.parametrize("base", [PIECE + 4096 * 32, 2 * PIECE, 2 * PIECE - 7, 3 * PIECE + 31])
@pytest.mark.parametrize("evenly", [False, True])
def test_the_footprint_is_that_of_a_set_of_sectors(base: int, evenly: bool) -> None:
    for step, count, shift in itertools.product(STEPS, (1, 32), (0, 12)):
        footprint, sectors = Footprint(), set[int]()
        for first in (base, base + 96):
            numbers = [first + step * lane for lane in range(count)]
            addresses = np.array(numbers, np.uint64)
            (footprint.touch_evenly if evenly else footprint.touch)(addresses, shift)
            sectors |= {(number - shift) // 32 for number in numbers}
        assert footprint.bytes == 32 * len(sectors), (step, count, shift)


def test_the_footprint_of_many_addresses_in_three_pieces() -> None:
    addresses = np.random.default_rng(1).integers(PIECE // 2, 3 * PIECE, 20_000).astype(np.uint64)
    footprint = Footprint()
    footprint.touch(addresses, 12)
    assert footprint.bytes == 32 * len({(int(address) - 12) // 32 for address in addresses})


class Memory:
    """Two arrays that lie beside each other."""

    ARRAYS = ((1000, 1400), (1400, 2048))

    def piece(self, address: int, size: int, use: Any) -> Any:
        found = [(low, high) for low, high in self.ARRAYS if low <= address < high]
        return SimpleNamespace(address=found[0][0], end=found[0][1], owner=None) if found else None


@pytest.mark.parametrize(
    ("addresses", "moved", "is_one"),
    [
        ([1000, 1399], [768, 1167], True),  # 1000 is 232 bytes above a multiple of 256
        ([1400, 2047], [1280, 1927], True),  # and 1400 is 120
        ([1399, 1400], [1167, 1280], False),
        ([1400, 1000, 1200], [1280, 768, 968], False),
        ([1200, 1399, 1400], [968, 1167, 1280], False),
        ([999, 1000], [999, 768], False),  # nothing is known of where 999 lies
        ([2048, 2047], [2048, 1927], False),
    ],
)
def test_addresses_count_from_where_a_device_would_put_the_array(
    addresses: list[int], moved: list[int], is_one: bool
) -> None:
    alignment = Alignment(Memory())  # type: ignore[arg-type]
    for _ in range(2):  # the second time the arrays are known
        found, shift, is_one_array = alignment.of(np.array(addresses, np.uint64), 1)
        assert [int(each) - shift for each in found] == moved
        assert is_one_array is is_one
