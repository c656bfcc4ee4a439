"""What memory is held, and by how much it may grow.

Held memory includes blocks that are kept from one call for the next one like it (`spares`). Limits include the stack
and the heap, which kernels take of a device's memory beside the arrays that they are given.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from cudakit.errors import ArgumentError, LaunchError, shortened
from cudakit.memory import pinned
from cudakit.streams import devices, process
from cudakit.streams.order import order
from cudakit.streams.streams import Known
from cudakit.types.checked import is_one_of, whole
from cudakit.types.shown import Part, Reported, Table


def set_kernel_limit(size: int | None, kind: str) -> int:
    """Set a limit of the current device and of the emulator's; the former, in bytes.

    Parameters
    ----------
    size : int or None
        None: what a device has at first.
    kind : {"stack", "heap"}

    Raises
    ------
    LaunchError
        Where the device refuses it: a heap cannot change once that kernels hold memory of it.
    """
    from cudakit.emulator.face import device_limits

    emulated = device_limits()
    wanted = emulated.default_of(kind) if size is None else size
    if kind == "stack":
        former, emulated.stack_bytes = emulated.stack_bytes, wanted
    else:
        former = emulated.heap_bytes
        emulated.set_heap_bytes(wanted)
    return _set_on_device(wanted, kind) if devices.has_gpu() else former


def _set_on_device(size: int, kind: str) -> int:
    from cuda.bindings import driver

    devices.current_device()
    limits: Any = driver.CUlimit
    limit = limits.CU_LIMIT_STACK_SIZE if kind == "stack" else limits.CU_LIMIT_MALLOC_HEAP_SIZE
    status, former = driver.cuCtxGetLimit(limit)
    if int(status) == 0:
        (status,) = driver.cuCtxSetLimit(limit, size)
    if int(status) != 0:
        raise LaunchError(f"the device refuses a {kind} of {size:,} bytes: {status.name}")
    return int(former)


#: Calls whose device memory is kept.
_MOST = 32


class Spare(Protocol):
    """Device memory that waits for the next call like the one that it was for, on the same stream."""

    size: int
    target: Known

    def release(self) -> None:
        """Let go of what is kept for the last call, if that is done."""

    def let_go(self) -> None:
        """Have what is kept for the last call kept elsewhere."""


class Spares:
    """Device memory between the calls that use it; the least recently used goes first."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, Any] = {}

    def take(self, key: Hashable) -> Any:
        """What was given back for `key`, which is nobody else's from now on; None where there is nothing."""
        return self._idle.pop(key, None)

    def give_back(self, key: Hashable, spare: Spare) -> None:
        """Keep `spare` for the next one who takes it."""
        if self._idle.setdefault(key, spare) is not spare:
            spare.let_go()  # another thread's call was alike
        elif len(self._idle) > _MOST:
            closed = [old for old, kept in list(self._idle.items()) if kept.target.core.is_closed]
            self._drop(closed or list(self._idle)[:-_MOST])

    def _drop(self, keys: list[Hashable]) -> int:
        dropped = [spare for spare in map(self.take, keys) if spare is not None]
        for spare in dropped:
            spare.let_go()
        return sum(spare.size for spare in dropped)

    def drop_closed(self) -> None:
        """Give back that of streams that are closed."""
        self._drop([key for key, kept in list(self._idle.items()) if kept.target.core.is_closed])

    def drop(self) -> int:
        """Give all of it back to CuPy's pool; the bytes."""
        return self._drop(list(self._idle))

    def release(self) -> None:
        """Let go of what is kept for calls that are done."""
        for key in list(self._idle):
            if (spare := self.take(key)) is not None:
                spare.release()
                self.give_back(key, spare)

    def held(self, device_id: int) -> int:
        """Bytes kept on a device."""
        return sum(kept.size for kept in list(self._idle.values()) if kept.target.device_id == device_id)


_spares = Spares()


def spares() -> Spares:
    """The process's spare device memory."""
    return _spares


class Held(NamedTuple):
    """Memory of one kind, in bytes.

    Attributes
    ----------
    kind : str
        ``"device"`` (CuPy's pool, whoever asked it), ``"pinned"`` or ``"managed"`` (asked for by cudakit).
    device : int, str or None
        ``"emulator"``: what cudakit made there.
    used : int
        In arrays and blocks that are alive.
    free : int
        Kept for later use; `trim` gives it back.
    peak : int
        Most that was used and free at once; of devices, as far as `report` and `trim` saw it, for CuPy's pool does not
        shrink otherwise.
    limit : int or None
    """

    kind: str
    device: int | str | None
    used: int
    free: int
    peak: int
    limit: int | None


class _Rows(NamedTuple):
    held: tuple[Held, ...]


class Report(Reported, _Rows):
    """What is held, by kind and device; printed as a table."""

    __slots__ = ()

    def of(self, kind: str) -> Held:
        """The memory of a kind, added up over the devices."""
        rows = [row for row in self.held if row.kind == kind]
        limits = [row.limit for row in rows if row.limit is not None]
        used, free, peak = (
            sum(column) for column in ([r.used for r in rows], [r.free for r in rows], [r.peak for r in rows])
        )
        return Held(kind, None, used, free, peak, sum(limits) if limits else None)

    def __repr__(self) -> str:
        used = (f"{row.kind}{'' if row.device is None else f' {row.device}'} {row.used:,}" for row in self.held)
        return f"<cudakit.memory.Report of bytes used: {', '.join(used)}>"

    def _parts(self) -> Iterator[Part]:
        rows = [(row.kind if row.device is None else f"{row.kind} {row.device}", *row[2:]) for row in self.held]
        yield Table(("memory", "used", "free in pool", "peak", "limit"), rows, range(1, 5))


class Ledger:
    """What nobody else counts: managed memory by device, peaks, and limits."""

    def __init__(self) -> None:
        self.lock: threading.RLock = process.renewed(
            self, "lock", threading.RLock
        )  # a finalizer may come while this thread has it
        self.managed: dict[int, int] = {}
        self.buffers: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.peaks: dict[tuple[str, int], int] = {}
        self.limits: dict[str, int | None] = {"device": None, "managed": None}

    def add_managed(self, device_id: int, size: int) -> None:
        with self.lock:
            self.managed[device_id] = held = self.managed.get(device_id, 0) + size
            self.note("managed", device_id, held)

    def note(self, kind: str, device_id: int, held: int) -> None:
        self.peaks[kind, device_id] = max(held, self.peaks.get((kind, device_id), 0))


ledger: Ledger = Ledger()


def report() -> Report:
    """What memory is held now: CuPy's pool on each device, pinned and managed memory.

    Returns
    -------
    Report
        ``print(ck.memory.report())`` shows it.
    """
    order().release()  # what is held for work that is done counts no more
    spares().release()
    rows = []
    for device_id, pool in _pools():
        spare, most = spares().held(device_id), pool.get_limit()
        used, free = pool.used_bytes() - spare, pool.free_bytes() + spare
        ledger.note("device", device_id, used + free)
        rows.append(Held("device", device_id, used, free, ledger.peaks["device", device_id], most or None))
    rows.append(Held("pinned", None, *pinned.pool().use()))
    with ledger.lock:
        for device_id, used in ledger.managed.items():
            peak = ledger.peaks["managed", device_id]
            rows.append(Held("managed", device_id, used, 0, peak, ledger.limits["managed"]))
    for kind, most in ledger.limits.items():
        taken = _emulated(kind)
        if taken[1] or not devices.has_gpu():
            rows.append(Held(kind, "emulator", taken[0], 0, taken[1], most))
    return Report(tuple(rows))


class Limit:
    """A limit that holds from when it is made; as a context manager, until the block is left."""

    def __init__(self, size: int | None, kind: str) -> None:
        self._kind, self._former = kind, _set_limit(size, kind)

    def __enter__(self) -> Limit:
        return self

    def __exit__(self, *_: object) -> None:
        _set_limit(self._former, self._kind)


def limit(size: int | None, kind: str = "device") -> Limit:
    """Let memory of a kind grow to `size` bytes and no further, used and kept free together.

    Parameters
    ----------
    size : int or None
        None: no limit but the hardware's.
    kind : {"device", "pinned", "managed", "stack", "heap"}
        ``"device"``: CuPy's pool on the current device, whoever asks it; on the emulator, what `empty`, `to_device`
        and ``ck.In`` and its kin make there. ``"stack"``: what each thread of the current device, and of the emulator,
        has for its calls in kernels that recurse or call through pointers (1,024 bytes at first; other kernels have
        what they need). ``"heap"``: what kernels have there in all by ``malloc`` and ``new`` (8 MB at first).

    Returns
    -------
    context manager
        Restores the former limit where it is used in ``with``; otherwise the limit stays. There is one limit of a kind
        for all threads: blocks that overlap in several end in the reverse order, or leave each other's.

    Raises
    ------
    ArgumentError
    """
    if size is not None:
        size = whole("memory.limit: size", size, 1)
    if not is_one_of(kind, ("device", "pinned", "managed", "stack", "heap")):
        raise ArgumentError(f"kind is one of 'device', 'pinned', 'managed', 'stack', 'heap', got {shortened(kind)}")
    return Limit(size, kind)


def _set_limit(size: int | None, kind: str) -> int | None:
    """Set a limit; the former."""
    if kind == "pinned":
        pool = pinned.pool()
        former, pool.limit = pool.limit, size
        return former
    if kind == "stack" or kind == "heap":
        return set_kernel_limit(size, kind)
    former = ledger.limits[kind]
    ledger.limits[kind] = size
    if kind == "device" and devices.has_gpu():
        import cupy

        devices.current_device()
        cupy.get_default_memory_pool().set_limit(size=size or 0)
    return former


def trim() -> int:
    """Give memory that is kept free back to the devices and to the host; the bytes given back."""
    spares().drop()
    order().release()
    freed = pinned.pool().trim()
    for device_id, pool in _pools():
        before = pool.total_bytes()
        ledger.note("device", device_id, before)
        pool.free_all_blocks()
        freed += before - pool.total_bytes()
    return freed


def _pools() -> Iterator[tuple[int, Any]]:
    """CuPy's pool of each device, while the device is current; none where nobody has loaded CuPy."""
    if cupy := sys.modules.get("cupy"):
        for device_id in range(devices.device_count()):
            with devices.on_device(device_id):
                yield device_id, cupy.get_default_memory_pool()


def out_of_device_memory(size: int, device_id: int) -> LaunchError:
    """The error for an allocation that CuPy's pool could not make on the current device."""
    pool = sys.modules["cupy"].get_default_memory_pool()
    free, total = free_on_device()
    most = f", and ck.memory.limit allows {pool.get_limit():,}" if pool.get_limit() else ""
    return LaunchError(
        f"{size:,} bytes of device memory were asked for; device {device_id} has {free:,} of {total:,} free, and "
        f"CuPy's pool holds {pool.used_bytes():,} in use and {pool.free_bytes():,} kept free{most}; let go of arrays, "
        "or work in chunks"
    )


def free_on_device() -> tuple[int, int]:
    """Free and total bytes of the current device."""
    from cuda.bindings import driver

    status, free, total = driver.cuMemGetInfo()
    if int(status) != 0:
        raise LaunchError(f"the driver does not say how much memory is free: {status.name}")
    return int(free), int(total)


def _emulated(kind: str) -> tuple[int, int]:
    """Bytes that arrays of a kind take on the emulator, and the most so far; none where it is not loaded."""
    if "cudakit.emulator" not in sys.modules:
        return 0, 0
    from cudakit.emulator.face import room

    return room().usage(kind)


def emulated_array(shape: tuple[int, ...], dtype: np.dtype, kind: str = "device") -> np.ndarray:
    """A new array on the emulator; raises beyond the limit as the device does."""
    from cudakit.emulator.face import room

    return room().array(shape, dtype, kind, ledger.limits[kind])


def tell_emulator(array: np.ndarray) -> None:
    """Let the emulator's kernels reach a new pinned array by its address, where there are such kernels."""
    if not devices.has_gpu() or "cudakit.emulator" in sys.modules:
        from cudakit.emulator.face import room

        room().know(array)
