"""Memory of the emulated device that cudakit allocates: host memory, counted while it lives and held to a limit."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from typing import NamedTuple

import numpy as np

from cudakit.emulator.resources.unwritten import MARKS
from cudakit.errors import LaunchError
from cudakit.streams import process


class Taken(NamedTuple):
    """Memory of a kind on the emulator, in bytes: what lives now, and the most that did at once."""

    used: int
    peak: int


class Room:
    """What was allocated on the emulator, by kind."""

    def __init__(self) -> None:
        self._lock = process.renewed(self, "_lock", threading.RLock)  # a finalizer may come while this thread has it
        self._taken: dict[str, Taken] = {}
        self._arrays: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()
        self._of_the_host: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()

    def arrays(self) -> list[np.ndarray]:
        """What was allocated and is alive."""
        return list(self._arrays.values())

    def at(self, address: int) -> np.ndarray | None:
        """What was allocated there, and is alive."""
        for array in self.arrays():
            low, high = np.lib.array_utils.byte_bounds(array)
            if low <= address < high:
                return array
        return None

    def taken(self, kind: str) -> Taken:
        """Memory of a kind."""
        return self._taken.get(kind, Taken(0, 0))

    def know(self, array: np.ndarray, of_the_host: bool = True) -> None:
        """Memory whose address kernels may be given, until the array and all its views are gone."""
        owner = array.base if isinstance(array.base, np.ndarray) else array
        self._arrays[id(owner)] = owner
        if of_the_host:
            self._of_the_host[id(owner)] = owner

    @property
    def has_host_memory(self) -> bool:
        """Whether any memory is the host's and the device's."""
        return bool(self._of_the_host)

    def is_of_the_host(self, array: np.ndarray) -> bool:
        """Whether the host reads an array's memory too: pinned, registered or managed."""
        if not self._of_the_host or not array.nbytes:
            return False
        address = int(array.__array_interface__["data"][0])
        for known in list(self._of_the_host.values()):
            low, high = np.lib.array_utils.byte_bounds(known)
            if low <= address < high:
                return True
        return False

    def array(self, shape: tuple[int, ...], dtype: np.dtype, kind: str, limit: int | None) -> np.ndarray:
        """A new C-contiguous array, not initialised, that counts until it and all its views are gone.

        Parameters
        ----------
        shape : tuple of int
        dtype : numpy.dtype
        kind : str
            ``device`` or ``managed``.
        limit : int or None
            Bytes that the kind may come to.

        Raises
        ------
        LaunchError
            Beyond the limit, and where the host has not that much memory.
        """
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            if limit is not None and self.taken(kind).used + size > limit:
                gc.collect()  # as CuPy's pool does it
                if self.taken(kind).used + size > limit:
                    raise self._refusal(size, kind, f", and ck.memory.limit allows {limit:,}")
            try:
                made = np.empty(shape, dtype)
            except MemoryError:
                raise self._refusal(size, kind, ", and the host has not that much left") from None
            self._count(kind, size)
            self.know(made, kind == "managed")
            MARKS.mark(made)
        weakref.finalize(made, self._count, kind, -size).atexit = False
        return made

    def _count(self, kind: str, size: int) -> None:
        with self._lock:
            used, peak = self.taken(kind)
            self._taken[kind] = Taken(used + size, max(peak, used + size))

    def _refusal(self, size: int, kind: str, why: str) -> LaunchError:
        return LaunchError(
            f"{size:,} bytes of {kind} memory were asked for; the emulator holds {self.taken(kind).used:,} in use"
            f"{why}; let go of arrays, or work in chunks"
        )


_room = Room()


def room() -> Room:
    """The process's emulated memory."""
    return _room
