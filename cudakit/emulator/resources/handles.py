"""Numbers by which kernels know objects of the host."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from cudakit.errors import EmulationError

Held = TypeVar("Held")


class Handles(Generic[Held]):
    """Objects by the numbers that kernels know them by, for as long as the objects live."""

    def __init__(self, noun: str, first: int) -> None:
        self._noun, self._first = noun, first
        self._numbers = itertools.count(first)
        self._made = first
        self._objects: weakref.WeakValueDictionary[int, Held] = weakref.WeakValueDictionary()

    def add(self, held: Held) -> int:
        """A new number for an object."""
        number = next(self._numbers)
        self._made = number + 1
        self._objects[number] = held
        return number

    def __getitem__(self, number: int) -> Held:
        found = self._objects.get(number)
        if found is None:
            why = "was freed: keep the Python object for as long as kernels use it"
            if not self._first <= number < self._made:
                why = f"is no {self._noun} of the emulator; make one with ck.{self._noun}(array)"
            raise EmulationError(f"{self._noun} {number:#x} {why}")
        return found

    def among(self, numbers: np.ndarray) -> Iterator[tuple[Held, Any]]:
        """Each object that `numbers`, one a lane, name, and the lanes that name it."""
        if (numbers == numbers[0]).all():
            yield self[int(numbers[0])], slice(None)
            return
        for number in np.unique(numbers):
            yield self[int(number)], numbers == number
