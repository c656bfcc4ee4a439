"""Stamps beside memory: where they lie, what is published to which block, copies under way, blocks alike."""

from __future__ import annotations

import numpy as np
import pytest

from cudakit.emulator.checks.shadow import LANE_BITS, NOBODY, Places, Shadow

pytestmark = pytest.mark.emulator


def shadow() -> Shadow:
    made = Shadow(256, 4)
    made.make()
    return made


@pytest.mark.parametrize("size", [1, 4, 8, 16])
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 1, 3], [3, 2, 1, 0], [0, 0, 0, 3], [5], [0, 2, 4, 6]])
def test_places_are_those_of_each_lane(order: list[int], size: int) -> None:
    offsets = [max(4, size) * number for number in order]
    wanted = [offset // 4 + part for offset in offsets for part in range(max(1, size // 4))]
    assert shadow().places(np.array(offsets, np.uint64), size).numbers().tolist() == wanted


def published(of: Shadow, number: int, block: int) -> tuple[int, int]:
    """Up to which access a place publishes to a block: what its own block did, and what all did."""
    found = of.published(Places(np.array([number]), (1,)), np.array([block]))
    assert found is not None
    return int(found[0][0]), int(found[1][0])


def test_what_one_block_publishes_to_itself_no_other_block_knows() -> None:
    of, place = shadow(), Places(np.array([3]), (1,))
    for event in (5, 7):
        of.release_near(place, np.array([event]), np.array([0]))
        assert published(of, 3, 0) == (event, 0)
        assert published(of, 3, 1) == (0, 0)


def test_what_two_blocks_publish_at_one_place_all_know() -> None:
    of = shadow()
    of.release_near(Places(np.array([3]), (1,)), np.array([5]), np.array([0]))
    of.release_near(Places(np.array([3]), (1,)), np.array([6]), np.array([1]))
    assert published(of, 3, 2)[1] == 6
    of = shadow()  # with one instruction
    of.release_near(Places(np.array([3, 3]), (2,)), np.array([5, 5]), np.array([0, 1]))
    assert published(of, 3, 2)[1] == 5


def test_a_copy_that_is_done_ends_no_other_copy() -> None:
    of, where = shadow(), np.array([2, 3])
    of.begin(where, 5)
    of.begin(where[:1], 6)
    of.end(where, 5)
    assert of.under_way is not None
    assert of.under_way[2:4].tolist() == [6, 0]


def test_blocks_that_were_alike_have_stamps_of_their_own_lanes() -> None:
    of = shadow()
    of.write(Places(slice(0, 3), (3,)), np.array([9 << LANE_BITS | 1, 9 << LANE_BITS | NOBODY, 0]))
    many = of.repeated(256, 3, 32)
    for block in range(3):
        first, second, third = many.written[64 * block : 64 * block + 3].tolist()
        assert (first >> LANE_BITS, first & NOBODY) == (9, 1 + 32 * block)
        assert (second >> LANE_BITS, second & NOBODY) == (9, NOBODY)
        assert third == 0
