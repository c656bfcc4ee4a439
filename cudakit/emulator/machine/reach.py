"""Memory that a launch was not given as an argument and comes to by a pointer: in a struct, an array, a variable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

#: Gives the arrays of the device's memory that are alive.
Arrays = Callable[[], Iterable[np.ndarray]]


class Reach:
    """The arrays whose memory a launch may come to beyond its arguments.

    An array of the device counts once that an address in it stands in memory that the launch has; so an argument's
    neighbour is still outside of it. Memory is looked through only where an access is in no argument.

    Parameters
    ----------
    arrays : callable
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._looked_through: set[int] = set()
        self._found: dict[int, np.ndarray] = {}

    def find(self, address: int, size: int, held: Iterable[np.ndarray]) -> list[np.ndarray]:
        """Arrays that the launch may come to and that were not given before: one has `size` bytes at `address`.

        Empty where none has, or where the memory `held`, bytes each, has no pointer to it.
        """
        target = next((array for array in self._arrays() if _has(array, address, size)), None)
        if target is None:
            return []
        known, (start, _) = set(self._found), _bounds(target)
        self._look_through(held)
        if start not in self._found:
            # What was looked through before may have been written since.
            self._looked_through.clear()
            self._look_through(held)
        return [array for place, array in self._found.items() if place not in known] if start in self._found else []

    def _look_through(self, held: Iterable[np.ndarray]) -> None:
        """Find the arrays that memory has pointers to, and those that their memory has pointers to."""
        arrays = sorted((array for array in self._arrays() if array.nbytes), key=lambda array: _bounds(array)[0])
        starts, ends = np.array([_bounds(array) for array in arrays], np.uint64).T
        open_ = [*held, *(bytes_of(array) for array in self._found.values())]
        while open_:
            data = open_.pop()
            place = _bounds(data)[0]
            if place in self._looked_through:
                continue
            self._looked_through.add(place)
            words = _words(data)
            words = np.unique(words[(words >= starts[0]) & (words <= ends[-1])])
            inside = np.searchsorted(starts, words, "right") - 1
            for number in np.unique(inside[words <= ends[inside]]):
                array = arrays[number]
                if self._found.setdefault(int(starts[number]), array) is array:
                    open_.append(bytes_of(array))


def points_near(address: int, most: int, held: Iterable[np.ndarray]) -> bool:
    """Whether the memory `held`, bytes each, has a pointer to at most `most` bytes before an address."""
    for data in held:
        words = _words(data)
        if ((words <= address) & (words > max(0, address - most))).any():
            return True
    return False


def _words(data: np.ndarray) -> np.ndarray:
    """The aligned words of eight bytes."""
    skip = -_bounds(data)[0] % 8
    return data[skip : skip + max(0, data.size - skip) // 8 * 8].view(np.uint64)


def whole_of(array: np.ndarray) -> Iterator[np.ndarray]:
    """The arrays that an array is a view of, the largest last."""
    while isinstance(array.base, np.ndarray):
        array = array.base
        yield array


def bytes_of(array: np.ndarray) -> np.ndarray:
    """The bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8)


def _bounds(array: np.ndarray) -> tuple[int, int]:
    start = int(array.__array_interface__["data"][0])
    return start, start + array.nbytes


def _has(array: np.ndarray, address: int, size: int) -> bool:
    start, end = _bounds(array)
    return start <= address and address + size <= end
