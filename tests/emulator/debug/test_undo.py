"""What memory held before it was written to, and how much of it is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudakit.emulator.debug.timeline import Undo
from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE, Allocation


def piece_of(array: np.ndarray, shift: int = 0) -> Allocation:
    """An array's bytes from `shift` on."""
    address = array.ctypes.data + shift
    return Allocation("x", address, array.nbytes - shift, False, array.itemsize, array)


def write(undo: Undo, tick: int, array: np.ndarray, elements: Any, value: Any) -> None:
    undo.tick = tick
    undo.note(piece_of(array), np.asarray(elements), array.itemsize, WRITE)
    array[elements] = value


def test_writes_are_undone_from_the_last_on() -> None:
    undo, x = Undo(), np.arange(8, dtype="i4")
    write(undo, 1, x, [0, 1], 50)
    write(undo, 2, x, [1, 2], 60)
    write(undo, 3, x, [2], 70)
    assert x.tolist() == [50, 60, 70, 3, 4, 5, 6, 7]
    undo.back(3)
    assert x.tolist() == [50, 60, 60, 3, 4, 5, 6, 7]
    undo.back(2)
    assert x.tolist() == [50, 50, 2, 3, 4, 5, 6, 7]
    undo.back(0)
    assert x.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert undo.bytes == 0


@pytest.mark.parametrize(("use", "count"), [(READ, 0), (STRONG_READ, 0), (WRITE, 1), (STRONG_WRITE, 1)])
def test_only_writes_are_kept(use: int, count: int) -> None:
    undo, x = Undo(), np.arange(8, dtype="i4")
    undo.note(piece_of(x), np.array([2, 3], "i8"), 4, use)
    assert undo.bytes == count * (2 * 8 + 2 * 4 + 400)


def test_elements_are_those_that_are_aligned() -> None:
    undo, x = Undo(), np.arange(32, dtype="u1")
    undo.note(piece_of(x, 1), np.array([1]), 4, WRITE)  # the bytes from 4 on are element 0
    x[:] = 0
    undo.back(0)
    assert np.flatnonzero(x).tolist() == [8, 9, 10, 11]


def test_surfaces_are_kept_whole() -> None:
    undo, x = Undo(), np.arange(6, dtype="i2").reshape(2, 3)
    undo.tick = 4
    flags = undo.flags_of("image", x)
    assert (flags.dtype, flags.tolist()) == (np.dtype("u1"), [0] * 12)
    x[:] = 9
    undo.back(5)
    assert (x == 9).all()
    undo.back(4)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert undo.bytes == 0


def test_of_a_stretch_only_what_was_there_first_is_kept() -> None:
    undo, x, y = Undo(), np.arange(8, dtype="i4"), np.arange(8, dtype="i4")
    for tick in range(10):
        write(undo, tick, x, [0, tick % 8], 100 + tick)
        write(undo, tick, y, [tick % 8], 200 + tick)
    at_five = [104, 101, 102, 103, 104, 5, 6, 7]
    undo.merge([0, 5])
    assert undo.bytes == (5 + 5 + 5 + 5) * (8 + 4) + 4 * 400  # from 5 on, the elements 5, 6, 7, 0 and 1
    undo.back(5)
    assert x.tolist() == at_five
    assert y.tolist() == [200, 201, 202, 203, 204, 5, 6, 7]
    undo.back(0)
    assert x.tolist() == y.tolist() == list(range(8))
    assert undo.bytes == 0


def test_writes_of_different_sizes_are_kept_by_bytes() -> None:
    undo, x = Undo(), np.arange(16, dtype="u1")
    before, piece = x.copy(), piece_of(x)
    for tick, (elements, size) in enumerate([([0, 1], 4), ([5], 1), ([3], 2), ([1], 8)]):
        undo.tick = tick
        undo.note(piece, np.array(elements), size, WRITE)
        x.view(f"V{size}")[elements] = np.zeros(len(elements), f"V{size}")
    undo.merge([0])
    assert undo.bytes == 16 * (8 + 1) + 400
    undo.back(0)
    assert np.array_equal(x, before)
