"""Memory that nobody has written: what it is filled with, and which of its bytes are still so."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.resources import allocations
from cudakit.emulator.resources.allocations import Marks, Room, Unwritten


def array(count: int, skip: int = 0) -> np.ndarray:
    """Bytes that begin `skip` after a multiple of 64."""
    held = np.zeros(count + 128, np.uint8)
    begin = -held.ctypes.data % 64 + skip
    return held[begin : begin + count]


@pytest.mark.parametrize("skip", [0, 1, 4, 5, 7])
@pytest.mark.parametrize("count", [1, 3, 4, 8, 29, 64])
def test_new_memory_is_filled_and_none_of_it_written(skip: int, count: int) -> None:
    """Of a word at an end it has to be four bytes at least: fewer could be as they are by chance."""
    x = array(count, skip)
    marked = Unwritten(x)
    assert (marked.address, marked.end) == (x.ctypes.data, x.ctypes.data + count)
    assert marked.flags.shape == (count,)
    assert marked.flags.all()
    words = (np.arange(count) + skip) // 8
    known = np.bincount(words)[words] >= 4
    for _ in range(2):
        assert marked.look() == known.any()
        assert marked.flags.tolist() == known.tolist()
    if count > 8:
        # Of 32 values, by addresses, which differ from run to run. Of 29 random draws 14 or fewer are distinct in one
        # case of 400, 9 or fewer in 2 of 10⁹.
        assert len(set(x.tolist())) > min(count, 32) // 3


def test_what_memory_is_filled_with_follows_from_its_address() -> None:
    """The same place has the same bytes again, and a copy of them elsewhere is not taken for unwritten."""
    x = array(256)
    whole = Unwritten(x)
    first = x.copy()
    x[:] = 0
    part = x[64:192]
    Unwritten(part)
    assert (part == first[64:192]).all()
    words = first.view(np.uint64)
    assert len(set(words.tolist())) == words.size
    x[:] = np.roll(first, 8)
    assert not whole.look()


@pytest.mark.parametrize("skip", [0, 4])
def test_a_written_word_is_written_as_a_whole(skip: int) -> None:
    x = array(32, skip)
    marked = Unwritten(x)
    x[16 - skip] ^= 0xFF
    assert marked.look()
    held = np.ones(32, bool)
    held[16 - skip : 24 - skip] = False
    assert marked.flags.tolist() == held.tolist()


def test_a_byte_written_in_the_word_at_an_end_is_all_of_it() -> None:
    x = array(12, 4)
    marked = Unwritten(x)
    x[1] ^= 1
    assert marked.look()
    assert marked.flags.tolist() == [False] * 4 + [True] * 8
    x[11] ^= 1
    assert not marked.look()
    assert not marked.flags.any()


def test_of_a_word_the_first_bytes_are_written_elsewhere() -> None:
    """The flags of half a word are gone, and the other half lies as it was."""
    x = array(16)
    marked = Unwritten(x)
    marked.flags[:4] = False
    x[:4] ^= 0xFF
    assert marked.look()
    assert marked.flags.tolist() == [False] * 4 + [True] * 12
    x[5] ^= 0xFF
    assert marked.look()
    assert marked.flags.tolist() == [False] * 8 + [True] * 8


def test_three_bytes_of_a_word_say_too_little() -> None:
    x = array(16)
    marked = Unwritten(x)
    marked.flags[:5] = False
    x[:5] ^= 0xFF
    assert marked.look()
    assert marked.flags.tolist() == [False] * 8 + [True] * 8


def test_a_word_that_is_as_it_was_stays_as_it_is_marked() -> None:
    x = array(16)
    marked = Unwritten(x)
    marked.flags[:5] = False
    assert marked.look()
    assert marked.flags.tolist() == [False] * 5 + [True] * 11


def test_all_that_is_written_is_forgotten() -> None:
    x = array(24)
    marked = Unwritten(x)
    x[:] = 0
    assert not marked.look()
    assert not marked.look()
    assert not marked.flags.any()


def test_an_array_that_is_gone_has_no_unwritten_bytes() -> None:
    held = np.zeros(64, np.uint8)
    marked = Unwritten(held)
    del held
    gc.collect()
    assert not marked.look()
    assert not marked.flags.any()


def test_arrays_are_marked_only_while_somebody_asks() -> None:
    marks = Marks()
    before, asked = np.zeros(8), np.zeros(8)
    marks.mark(before)
    marks.watch(2)
    marks.watch(-1)
    assert marks.watchers == 1
    marks.mark(asked)
    marks.watch(-1)
    after = np.zeros(8)
    marks.mark(after)
    assert marks.at(before.ctypes.data) is None
    assert marks.at(after.ctypes.data) is None
    assert (before == 0).all()
    assert (after == 0).all()
    found = marks.at(asked.ctypes.data)
    assert found is not None
    assert found.address == asked.ctypes.data


@pytest.mark.parametrize("made", [np.zeros(0), np.array([None, None])])
def test_what_has_no_bytes_or_is_objects_is_not_marked(made: Any) -> None:
    marks = Marks()
    marks.watch(1)
    marks.mark(made)
    assert marks.at(made.ctypes.data) is None


def test_marks_are_found_by_addresses_within_until_they_are_written() -> None:
    marks = Marks()
    marks.watch(1)
    one, two = np.zeros(4), np.zeros(4)
    for each in (one, two):
        marks.mark(each)
    for each in (one, two):
        first, last = each.ctypes.data, each.ctypes.data + each.nbytes - 1
        for address in (first, last):
            found = marks.at(address)
            assert found is not None
            assert found.address == first
        beside = {mark.address for at in (first - 1, last + 1) if (mark := marks.at(at)) is not None}
        assert first not in beside
    one[:] = 0
    assert marks.at(one.ctypes.data) is None
    assert marks.at(two.ctypes.data) is not None
    address = two.ctypes.data
    del two, each
    gc.collect()
    assert marks.at(address) is None
    assert not marks._marked


def test_an_array_that_goes_takes_its_mark_along() -> None:
    marks = Marks()
    marks.watch(1)
    one, two = np.zeros(4), np.zeros(4)
    marks.mark(one)
    marks.mark(two)
    number = id(two)
    del one
    gc.collect()
    assert list(marks._marked) == [number]
    marks._forget(number, Unwritten(np.zeros(4)))
    assert list(marks._marked) == [number]


def test_an_array_is_found_by_an_address_within() -> None:
    room = Room()
    first = room.array((4, 4), np.dtype("f4"), "device", None)
    second = room.array((4,), np.dtype("i8"), "device", None)
    for each in (first, second):
        address = each.ctypes.data
        assert room.at(address) is each
        assert room.at(address + each.nbytes - 1) is each
        assert room.at(address - 1) is not each
        assert room.at(address + each.nbytes) is not each
    assert room.at(8) is None
    assert sorted(map(id, room.arrays())) == sorted((id(first), id(second)))


def test_what_is_held_is_counted_by_kind() -> None:
    room = Room()
    assert room.usage("device") == (0, 0)
    first = room.array((10,), np.dtype("f4"), "device", None)
    second = room.array((2, 3), np.dtype("f8"), "device", None)
    other = room.array((1,), np.dtype("u1"), "managed", None)
    assert room.usage("device") == (88, 88)
    assert room.usage("managed") == (1, 1)
    del first
    gc.collect()
    assert room.usage("device") == (48, 88)
    third = room.array((5,), np.dtype("f4"), "device", None)
    assert room.usage("device") == (68, 88)
    del second, third, other
    gc.collect()
    assert room.usage("device") == (0, 88)
    assert room.usage("managed") == (0, 1)


def test_a_view_is_known_by_the_array_that_owns_it() -> None:
    room = Room()
    owner = np.zeros(8)
    room.register(owner[2:4])
    room.register(owner)
    assert [id(each) for each in room.arrays()] == [id(owner)]


def test_a_limit_may_be_reached_and_not_passed() -> None:
    room = Room()
    held = room.array((8,), np.dtype("u1"), "device", 16)
    other = room.array((8,), np.dtype("u1"), "device", 16)
    with pytest.raises(ck.LaunchError, match=r"1 bytes of device memory .* holds 16 in use, and .* allows 16;"):
        room.array((1,), np.dtype("u1"), "device", 16)
    del held
    assert room.array((8,), np.dtype("u1"), "device", 16).size == other.size


def test_garbage_makes_room_up_to_the_limit() -> None:
    room = Room()
    held: list[Any] = [room.array((16,), np.dtype("u1"), "device", 16)]
    held.append(held)
    del held
    assert room.array((16,), np.dtype("u1"), "device", 16).size == 16


def test_what_is_allocated_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = Marks()
    monkeypatch.setattr(allocations, "MARKS", marks)
    marks.watch(1)
    made = Room().array((4,), np.dtype("f8"), "device", None)
    assert marks.at(made.ctypes.data + 31) is not None
