"""Device memory of the emulator that cudakit allocates: host memory, counted while it lives and limited.

While there is a watcher (`MARKS`), new memory is filled with a pattern. Bytes that still have the pattern are
unwritten. The pattern depends on the address, so that a copy elsewhere does not count as unwritten. Writers need no
code for this: the host, a kernel on either back-end, a copy or a graph simply changes the bytes.

A byte written alone with its own pattern value would count as unwritten. The pattern's bytes are therefore odd numbers
from 129 to 191, which are no characters, flags, small numbers, their negatives or 128.
"""

from __future__ import annotations

import gc
import math
import threading
import weakref
from typing import NamedTuple

import numpy as np

from cudakit.emulator.machine.memory import bytes_of
from cudakit.errors import LaunchError
from cudakit.streams import process

# ── unwritten memory ──

_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_WORD = 8
#: Unwritten bytes that a partly written word must still have, to count as unwritten at all.
_FEWEST = 4
_ALL = np.uint64(0x0101_0101_0101_0101)
_FREE, _SET = np.uint64(0x3E3E_3E3E_3E3E_3E3E), np.uint64(0x8181_8181_8181_8181)


class Unwritten:
    """Flags of an array's bytes that were never written.

    Parameters
    ----------
    array : numpy.ndarray
        New C-contiguous array, which is filled with the pattern.
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
        """Clear the flags of bytes written since the last look; return whether any flag is left."""
        array = self._array()
        if array is None:
            self._flags[:] = False
            return False
        words = self._flags.view(np.uint64)
        open_ = np.flatnonzero(words)
        if not open_.size:
            return False
        memory = np.zeros(self._flags.size, np.uint8)
        memory[self._skip : self._skip + array.nbytes] = bytes_of(array)
        differs = memory.view(np.uint64)[open_] != self._filling(0, words.size)[open_]
        partly = differs & (words[open_] != _ALL)
        words[open_[differs & ~partly]] = 0
        some = open_[partly]
        if some.size:
            flags, filling = self._flags.reshape(-1, _WORD), self._filling(0, words.size).view(np.uint8)
            unchanged = memory.reshape(-1, _WORD)[some] == filling.reshape(-1, _WORD)[some]
            unwritten = (unchanged | ~flags[some]).all(axis=1) & (flags[some].sum(axis=1) >= _FEWEST)
            words[some[~unwritten]] = 0
        return bool(words.any())

    def _filling(self, first: int, count: int) -> np.ndarray:
        """Return `count` words of the pattern, from word number `first` on."""
        number = np.arange(first, first + count, dtype=np.uint64) + np.uint64(self.address // _WORD + 1)
        mixed = number * _FACTOR
        mixed ^= mixed >> np.uint64(29)
        mixed *= _FACTOR
        return np.asarray(mixed & _FREE | _SET)


class Marks:
    """Arrays that were allocated while there was a watcher and that are not fully written.

    Attributes
    ----------
    watchers : int
        Number of watchers.
    """

    watchers: int

    def __init__(self) -> None:
        self.watchers = 0
        self._marked: dict[int, Unwritten] = {}

    def mark(self, array: np.ndarray) -> None:
        """Mark a new array as unwritten, if there is a watcher."""
        if self.watchers and array.nbytes and not array.dtype.hasobject:
            unwritten = self._marked[id(array)] = Unwritten(array)
            weakref.finalize(array, self._forget, id(array), unwritten).atexit = False

    def at(self, address: int) -> Unwritten | None:
        """Return the unwritten bytes of the array that has an address, brought up to date.

        Return None if the array is fully written, or if no marked array has the address.
        """
        for number, unwritten in list(self._marked.items()):
            if unwritten.address <= address < unwritten.end:
                if unwritten.look():
                    return unwritten
                self._marked.pop(number, None)
        return None

    def watch(self, count: int) -> None:
        """Add `count` watchers; a negative `count` removes watchers. New arrays are marked while there is a watcher."""
        self.watchers += count

    def _forget(self, number: int, unwritten: Unwritten) -> None:
        """Drop the mark of a freed array, unless a new array with the same ``id``, `number`, has replaced it."""
        if self._marked.get(number) is unwritten:
            del self._marked[number]


#: Marks of the process.
MARKS = Marks()


class Usage(NamedTuple):
    """Memory of one type on the emulator, in bytes: the memory allocated now, and the peak."""

    used: int
    peak: int


class Room:
    """The emulator's device memory: the living arrays, and the bytes in use by memory type."""

    def __init__(self) -> None:
        self._lock = process.renewed(self, "_lock", threading.RLock)  # a finalizer may come while this thread has it
        self._usage: dict[str, Usage] = {}
        self._arrays: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()
        self._of_the_host: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()

    def arrays(self) -> list[np.ndarray]:
        """Return the arrays that are allocated and alive."""
        return list(self._arrays.values())

    def at(self, address: int) -> np.ndarray | None:
        """Return the allocated array that has the byte at an address, or None."""
        for array in self.arrays():
            low, high = np.lib.array_utils.byte_bounds(array)
            if low <= address < high:
                return array
        return None

    def usage(self, memory_type: str) -> Usage:
        """Return the bytes in use of a memory type, and the peak."""
        return self._usage.get(memory_type, Usage(0, 0))

    def register(self, array: np.ndarray, of_the_host: bool = True) -> None:
        """Let kernels reach an array's memory through pointers, until the array and all its views are freed.

        With `of_the_host`, the host may use this memory too.
        """
        owner = array.base if isinstance(array.base, np.ndarray) else array
        self._arrays[id(owner)] = owner
        if of_the_host:
            self._of_the_host[id(owner)] = owner

    @property
    def has_host_memory(self) -> bool:
        """True if any memory is shared by the host and the device."""
        return bool(self._of_the_host)

    def is_of_the_host(self, array: np.ndarray) -> bool:
        """Return whether the host can read an array's memory too: pinned, registered or managed memory."""
        if not self._of_the_host or not array.nbytes:
            return False
        address = int(array.__array_interface__["data"][0])
        for owner in list(self._of_the_host.values()):
            low, high = np.lib.array_utils.byte_bounds(owner)
            if low <= address < high:
                return True
        return False

    def array(self, shape: tuple[int, ...], dtype: np.dtype, memory_type: str, limit: int | None) -> np.ndarray:
        """Allocate an uninitialised C-contiguous array, which counts as in use until it and all its views are freed.

        Parameters
        ----------
        shape : tuple of int
            Shape of the array.
        dtype : numpy.dtype
            Dtype of the array.
        memory_type : str
            ``device`` or ``managed``.
        limit : int or None
            Limit of the memory type, in bytes.

        Raises
        ------
        LaunchError
            Beyond the limit, and if the host has not enough memory.
        """
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            if limit is not None and self.usage(memory_type).used + size > limit:
                gc.collect()  # as CuPy's pool does it
                if self.usage(memory_type).used + size > limit:
                    raise self._refusal(size, memory_type, f", and ck.memory.limit allows {limit:,}")
            try:
                allocated = np.empty(shape, dtype)
            except MemoryError:
                raise self._refusal(size, memory_type, ", and the host has not that much left") from None
            self._count(memory_type, size)
            self.register(allocated, memory_type == "managed")
            MARKS.mark(allocated)
        weakref.finalize(allocated, self._count, memory_type, -size).atexit = False
        return allocated

    def _count(self, memory_type: str, size: int) -> None:
        """Count `size` more bytes as in use of a memory type."""
        with self._lock:
            used, peak = self.usage(memory_type)
            self._usage[memory_type] = Usage(used + size, max(peak, used + size))

    def _refusal(self, size: int, memory_type: str, why: str) -> LaunchError:
        """Return the error for `size` bytes that cannot be allocated. `why` is the reason, as the end of a clause."""
        return LaunchError(
            f"{size:,} bytes of {memory_type} memory were asked for; the emulator holds "
            f"{self.usage(memory_type).used:,} in use{why}; free arrays, or work in chunks"
        )


_room = Room()


def room() -> Room:
    """Return the process's emulated memory."""
    return _room
