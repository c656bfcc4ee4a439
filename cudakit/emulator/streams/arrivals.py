"""Host memory on the emulator: what a stream writes there arrives once the host has waited, as on a GPU.

Work runs when it is asked for. A GPU runs it later: until the host waits, it reads what was there before. So what work
writes to memory of the host is taken out again when the work ends, and is put in when something waits for it. Work
that comes later on a stream reads and writes the memory as earlier work left it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudakit.emulator.machine.memory import bytes_at, bytes_of
from cudakit.emulator.resources.allocations import room
from cudakit.streams.segments import host_span
from cudakit.types.arguments import pointer_of

#: Writes that have not arrived at which the oldest one does: a program that never waits holds no more.
_MOST = 256


@dataclass(slots=True, eq=False)
class Arrival:
    """Elements that work wrote to memory of the host.

    Attributes
    ----------
    target, values : numpy.ndarray
        Of one shape and dtype.
    mask : numpy.ndarray or None
        Which elements were written, of bool; None: all.
    after : object
        What the host waits for before they are there, as `Order` has it.
    former : numpy.ndarray or None
        The target's elements for the host, while work reads and writes the later ones.
    has_arrived : bool
    """

    target: np.ndarray
    values: np.ndarray
    mask: np.ndarray | None
    after: Any
    former: np.ndarray | None = None
    has_arrived: bool = False

    def show(self) -> None:
        """Put the elements in for work, until `hide`."""
        self.former = self.target.copy()
        self._put(self.values)

    def hide(self) -> None:
        """Put back what the host sees, unless it has waited meanwhile."""
        if self.former is not None and not self.has_arrived:
            self._put(self.former)
        self.former = None

    def arrive(self) -> None:
        """Put the elements in for the host."""
        if self.former is None:
            self._put(self.values)
        self.has_arrived = True

    def overlaps(self, array: np.ndarray) -> bool:
        """Whether the target and an array share memory."""
        return np.may_share_memory(self.target, array)

    def flags_of(self, array: np.ndarray) -> np.ndarray:
        """Of an array that overlaps the target: which of its elements have bytes that arrive."""
        lows, highs = zip(*map(np.lib.array_utils.byte_bounds, (self.target, array)), strict=True)
        flags = np.zeros(max(highs) - min(lows), bool)
        _flags_at(self.target, flags, min(lows))[...] = True if self.mask is None else self.mask[..., np.newaxis]
        return np.asarray(_flags_at(array, flags, min(lows)).any(axis=-1))

    def _put(self, values: np.ndarray) -> None:
        np.copyto(self.target, values, where=True if self.mask is None else self.mask)


class Arrivals:
    """What the emulated streams wrote to memory of the host and nobody has waited for.

    Attributes
    ----------
    pending : list of Arrival
        In the order of the work.
    """

    def __init__(self) -> None:
        self.pending: list[Arrival] = []

    def flags_of(self, array: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        """What the host waits for before it uses an array, and which of the array's elements that brings."""
        for arrival in self.pending:
            if array.size and arrival.overlaps(array):
                yield arrival.after, arrival.flags_of(array)

    @property
    def awaited(self) -> list[Any]:
        """What the host waits for, of all that has not arrived."""
        return [arrival.after for arrival in self.pending]

    def hold(self, target: np.ndarray, values: np.ndarray, after: Any, mask: np.ndarray | None = None) -> None:
        """Let elements arrive in `target` after `after`; `values` are this object's from now on."""
        if len(self.pending) >= _MOST:
            self.pending.pop(0).arrive()
        # A view: the array may be left without its memory before, which others still read.
        self.pending.append(Arrival(target.view(np.ndarray), values, mask, after))

    def deliver(self, is_over: Callable[[Any], bool]) -> None:
        """Let arrive, in the order of the work, what `is_over` is true of."""
        pending, self.pending = self.pending, []
        for arrival in pending:
            if is_over(arrival.after):
                arrival.arrive()
            else:
                self.pending.append(arrival)

    def settle(self, arrays: Iterable[Any]) -> None:
        """Let arrive what is for memory that work is given and that no device reads: as on a GPU, the call waits."""
        if self.pending:
            pageable = [array for array in arrays if isinstance(array, np.ndarray) and not room().is_of_the_host(array)]
            held = [arrival for arrival in self.pending if any(arrival.overlaps(array) for array in pageable)]
            for arrival in held:
                arrival.arrive()
            self.pending = [arrival for arrival in self.pending if not arrival.has_arrived]

    @contextlib.contextmanager
    def shown(self, written: Iterable[Any], after: Callable[[], Any]) -> Iterator[None]:
        """A block in which work runs: all memory is as earlier work left it.

        Parameters
        ----------
        written : iterable
            Arrays that the work may write: what it writes to memory of the host arrives later.
        after : callable
            Gives, when the work is done, what the host waits for.
        """
        shown = [arrival for arrival in self.pending if room().is_of_the_host(arrival.target)]
        for arrival in shown:
            arrival.show()
        targets = [
            _extent(array) for array in written if isinstance(array, np.ndarray) and room().is_of_the_host(array)
        ]
        before = [target.copy() for target in targets]
        try:
            yield
        finally:
            for target, former in zip(targets, before, strict=True):
                mask = target != former
                if mask.any():
                    self.hold(target, target.copy(), after(), mask)
                    np.copyto(target, former, where=mask)
            for arrival in reversed(shown):
                arrival.hide()


def _extent(array: np.ndarray) -> np.ndarray:
    """The bytes from an array's first to its last element."""
    if array.flags.c_contiguous:
        return bytes_of(array)
    low, high = host_span(array)
    return bytes_at(array, low, high - low)


def _flags_at(array: np.ndarray, flags: np.ndarray, address: int) -> np.ndarray:
    """The flags of each element's bytes; `flags` are those of the bytes from `address` on."""
    return np.ndarray(
        (*array.shape, array.itemsize), bool, flags, pointer_of(array) - address, (*array.strides, flags.itemsize)
    )
