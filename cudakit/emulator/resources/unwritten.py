"""Memory of the device that was allocated and not written: known by what it is filled with, while somebody asks.

What memory is filled with follows from its address, so that a copy of it elsewhere is not taken for it. Whoever writes,
the host, a kernel by whatever machine, a copy or a graph, is known by what is there then: nothing is added to them.
A byte that is written alone, with the value that it is filled with, would count as not written: each byte is filled
with an odd number of 129 to 191, which is none of characters, flags, small numbers, their negatives and 128.
"""

from __future__ import annotations

import weakref

import numpy as np

from cudakit.emulator.machine.memory import bytes_of

_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_WORD = 8
#: Bytes of a partly written word that have to be as they were, for the rest to count as not written.
_FEWEST = 4
_ALL = np.uint64(0x0101_0101_0101_0101)
_FREE, _SET = np.uint64(0x3E3E_3E3E_3E3E_3E3E), np.uint64(0x8181_8181_8181_8181)


class Unwritten:
    """Which bytes of an array nobody has written.

    Parameters
    ----------
    array : numpy.ndarray
        C-contiguous, new; it is filled.
    """

    end: int

    def __init__(self, array: np.ndarray) -> None:
        self._array = weakref.ref(array)
        self.address: int = array.__array_interface__["data"][0]
        self.end = self.address + array.nbytes
        self._skip = self.address % _WORD
        words = -(-(self._skip + array.nbytes) // _WORD)
        self._flags: np.ndarray = np.zeros(words * _WORD, bool)
        self.flags: np.ndarray = self._flags[self._skip : self._skip + array.nbytes]
        self.flags[:] = True
        bytes_of(array)[:] = self._filling(0, words).view(np.uint8)[self._skip : self._skip + array.nbytes]

    def look(self) -> bool:
        """Take from the flags what was written meanwhile; whether any bytes are left."""
        array = self._array()
        if array is None:
            self._flags[:] = False
            return False
        words = self._flags.view(np.uint64)
        open_ = np.flatnonzero(words)
        if not open_.size:
            return False
        held = np.zeros(self._flags.size, np.uint8)
        held[self._skip : self._skip + array.nbytes] = bytes_of(array)
        differs = held.view(np.uint64)[open_] != self._filling(0, words.size)[open_]
        partly = differs & (words[open_] != _ALL)
        words[open_[differs & ~partly]] = 0
        some = open_[partly]
        if some.size:
            flags, wanted = self._flags.reshape(-1, _WORD), self._filling(0, words.size).view(np.uint8)
            same = held.reshape(-1, _WORD)[some] == wanted.reshape(-1, _WORD)[some]
            kept = (same | ~flags[some]).all(axis=1) & (flags[some].sum(axis=1) >= _FEWEST)
            words[some[~kept]] = 0
        return bool(words.any())

    def _filling(self, first: int, count: int) -> np.ndarray:
        """The words that the memory is filled with."""
        number = np.arange(first, first + count, dtype=np.uint64) + np.uint64(self.address // _WORD + 1)
        mixed = number * _FACTOR
        mixed ^= mixed >> np.uint64(29)
        mixed *= _FACTOR
        return np.asarray(mixed & _FREE | _SET)


class Marks:
    """The arrays that were allocated while somebody asked, and are not written as a whole.

    Attributes
    ----------
    asked : int
        How many ask.
    """

    asked: int

    def __init__(self) -> None:
        self.asked = 0
        self._known: dict[int, Unwritten] = {}

    def mark(self, array: np.ndarray) -> None:
        """A new array, that nobody has written; nothing is done where nobody asks."""
        if self.asked and array.nbytes and not array.dtype.hasobject:
            made = self._known[id(array)] = Unwritten(array)
            weakref.finalize(array, self._forget, id(array), made).atexit = False

    def at(self, address: int) -> Unwritten | None:
        """What is not written around an address, as it is now."""
        for number, found in list(self._known.items()):
            if found.address <= address < found.end:
                if found.look():
                    return found
                self._known.pop(number, None)
        return None

    def ask(self, count: int) -> None:
        """So many ask from now on, or no longer."""
        self.asked += count

    def _forget(self, number: int, made: Unwritten) -> None:
        if self._known.get(number) is made:
            del self._known[number]


#: The process's.
MARKS = Marks()
