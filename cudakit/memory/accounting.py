"""Memory in use, and limits for it.

Memory in use includes blocks kept from one call for the next (`spares`). Limits include the stack and the heap of
kernels, which take device memory in addition to the arrays.
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
from cudakit.streams.streams import DeviceStream
from cudakit.types.checked import is_one_of, whole
from cudakit.types.shown import Part, Reported, Table


def set_kernel_limit(size: int | None, resource: str) -> int:
    """Set the stack or heap limit of the current device and of the emulator. Return the former limit in bytes.

    Parameters
    ----------
    size : int or None
        New limit in bytes. None: the device's default.
    resource : {"stack", "heap"}
        Stack of each thread, or heap of all kernels.

    Raises
    ------
    LaunchError
        The device refuses the limit. A heap cannot change once kernels use memory of it.
    """
    from cudakit.emulator.face import device_limits

    emulated = device_limits()
    new_size = emulated.default_of(resource) if size is None else size
    if resource == "stack":
        former, emulated.stack_bytes = emulated.stack_bytes, new_size
    else:
        former = emulated.heap_bytes
        emulated.set_heap_bytes(new_size)
    return _set_on_device(new_size, resource) if devices.has_gpu() else former


def _set_on_device(size: int, resource: str) -> int:
    from cuda.bindings import driver

    devices.current_device()
    limits: Any = driver.CUlimit
    limit = limits.CU_LIMIT_STACK_SIZE if resource == "stack" else limits.CU_LIMIT_MALLOC_HEAP_SIZE
    status, former = driver.cuCtxGetLimit(limit)
    if int(status) == 0:
        (status,) = driver.cuCtxSetLimit(limit, size)
    if int(status) != 0:
        raise LaunchError(f"the device refuses a {resource} of {size:,} bytes: {status.name}")
    return int(former)


#: Most calls whose device memory is kept.
_MOST = 32


class Spare(Protocol):
    """Device memory kept for the next call with the same kernel and argument types on the same stream."""

    size: int
    target: DeviceStream

    def release(self) -> None:
        """Release the objects kept for the last call, if the call is done."""

    def let_go(self) -> None:
        """Hand the objects kept for the last call to another owner, which keeps them until the call is done."""


class Spares:
    """Device memory kept between calls. The least recently used block is dropped first."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, Any] = {}

    def take(self, key: Hashable) -> Any:
        """Return the block given back for `key`, or None. The caller owns it."""
        return self._idle.pop(key, None)

    def give_back(self, key: Hashable, spare: Spare) -> None:
        """Keep `spare` for the next `take` of `key`. If a block with this key is kept already, `spare` is let go.

        If too many blocks are kept, blocks of closed streams or else the least recently used are dropped.
        """
        if self._idle.setdefault(key, spare) is not spare:
            spare.let_go()  # another thread's call was alike
        elif len(self._idle) > _MOST:
            closed = [old for old, spare in list(self._idle.items()) if spare.target.core.is_closed]
            self._drop(closed or list(self._idle)[:-_MOST])

    def _drop(self, keys: list[Hashable]) -> int:
        dropped = [spare for spare in map(self.take, keys) if spare is not None]
        for spare in dropped:
            spare.let_go()
        return sum(spare.size for spare in dropped)

    def drop_closed(self) -> None:
        """Drop the blocks of closed streams."""
        self._drop([key for key, spare in list(self._idle.items()) if spare.target.core.is_closed])

    def drop(self) -> int:
        """Return all blocks to CuPy's pool. Return their bytes."""
        return self._drop(list(self._idle))

    def release(self) -> None:
        """Release the objects that blocks keep for calls that are done."""
        for key in list(self._idle):
            if (spare := self.take(key)) is not None:
                spare.release()
                self.give_back(key, spare)

    def size_on(self, device_id: int) -> int:
        """Return the bytes kept on a device."""
        return sum(spare.size for spare in list(self._idle.values()) if spare.target.device_id == device_id)


_spares = Spares()


def spares() -> Spares:
    """Return the process's spare device memory."""
    return _spares


class Held(NamedTuple):
    """Memory of one kind, in bytes.

    Attributes
    ----------
    kind : str
        ``"device"`` (CuPy's pool, including allocations of other libraries), ``"pinned"`` or ``"managed"``
        (allocations of cudakit).
    device : int, str or None
        Device id, or ``"emulator"`` for arrays that cudakit made there.
    used : int
        Bytes of arrays and blocks in use.
    free : int
        Bytes kept for later use; `trim` returns them.
    peak : int
        Greatest sum of `used` and `free`. For devices: at calls of `report` and `trim`, as CuPy's pool does not shrink
        otherwise.
    limit : int or None
        Limit in bytes, or None.
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
    """Memory in use, by kind and device. Printed as a table."""

    __slots__ = ()

    def of(self, kind: str) -> Held:
        """Return the memory of a kind, summed over the devices, as one `Held` whose `device` is None."""
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
    """Counts of managed memory by device, peaks, and limits. CuPy and the driver do not count these."""

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
            self.managed[device_id] = total = self.managed.get(device_id, 0) + size
            self.note("managed", device_id, total)

    def note(self, memory_kind: str, device_id: int, size: int) -> None:
        self.peaks[memory_kind, device_id] = max(size, self.peaks.get((memory_kind, device_id), 0))


ledger: Ledger = Ledger()


def report() -> Report:
    """Return the memory in use now: CuPy's pool on each device, pinned and managed memory.

    Returns
    -------
    Report
        ``print(ck.memory.report())`` shows it.
    """
    order().release()  # what is held for work that is done counts no more
    spares().release()
    rows = []
    for device_id, pool in _pools():
        spare, most = spares().size_on(device_id), pool.get_limit()
        used, free = pool.used_bytes() - spare, pool.free_bytes() + spare
        ledger.note("device", device_id, used + free)
        rows.append(Held("device", device_id, used, free, ledger.peaks["device", device_id], most or None))
    rows.append(Held("pinned", None, *pinned.pool().use()))
    with ledger.lock:
        for device_id, used in ledger.managed.items():
            peak = ledger.peaks["managed", device_id]
            rows.append(Held("managed", device_id, used, 0, peak, ledger.limits["managed"]))
    for memory_kind, most in ledger.limits.items():
        emulated = _emulated(memory_kind)
        if emulated[1] or not devices.has_gpu():
            rows.append(Held(memory_kind, "emulator", emulated[0], 0, emulated[1], most))
    return Report(tuple(rows))


class Limit:
    """A limit in force from its construction. As a context manager it ends with the block."""

    def __init__(self, size: int | None, memory_kind: str) -> None:
        self._memory_kind, self._former = memory_kind, _set_limit(size, memory_kind)

    def __enter__(self) -> Limit:
        return self

    def __exit__(self, *_: object) -> None:
        _set_limit(self._former, self._memory_kind)


def limit(size: int | None, kind: str = "device") -> Limit:
    """Limit memory of a kind, used and kept free together, to `size` bytes.

    Parameters
    ----------
    size : int or None
        Limit in bytes. None: no limit but the hardware's.
    kind : {"device", "pinned", "managed", "stack", "heap"}
        Kind of memory:

        - ``"device"``: CuPy's pool on the current device, including allocations of other libraries. On the emulator:
          arrays made by `empty`, `to_device`, ``ck.In``, ``ck.Out`` and ``ck.InOut``.
        - ``"pinned"``, ``"managed"``: allocations of cudakit.
        - ``"stack"``: call stack of each thread of the current device and of the emulator, for kernels that recurse or
          call through pointers (default 1,024 bytes). Other kernels get the stack that they need.
        - ``"heap"``: memory of ``malloc`` and ``new`` in all kernels of the current device and of the emulator (default
          8 MB).

    Returns
    -------
    context manager
        Restores the former limit at the end of a ``with``. Without ``with`` the limit stays. A limit holds for all
        threads: ``with`` blocks that overlap in several threads must end in reverse order, or the limits get mixed up.

    Raises
    ------
    ArgumentError
        The kind is unknown, or the size is no positive whole number.
    """
    if size is not None:
        size = whole("memory.limit: size", size, 1)
    if not is_one_of(kind, ("device", "pinned", "managed", "stack", "heap")):
        raise ArgumentError(f"kind is one of 'device', 'pinned', 'managed', 'stack', 'heap', got {shortened(kind)}")
    return Limit(size, kind)


def _set_limit(size: int | None, memory_kind: str) -> int | None:
    """Set the limit of a kind of memory to `size` bytes. Return the former limit. The kinds are those of `limit`.

    None is no limit, or for the stack and the heap of kernels the device's default.
    """
    if memory_kind == "pinned":
        pool = pinned.pool()
        former, pool.limit = pool.limit, size
        return former
    if memory_kind == "stack" or memory_kind == "heap":
        return set_kernel_limit(size, memory_kind)
    former = ledger.limits[memory_kind]
    ledger.limits[memory_kind] = size
    if memory_kind == "device" and devices.has_gpu():
        import cupy

        devices.current_device()
        cupy.get_default_memory_pool().set_limit(size=size or 0)
    return former


def trim() -> int:
    """Return free memory of the pools to the devices and the host. Return the number of bytes."""
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
    """Yield the id and CuPy's pool of each device, while the device is current. None if CuPy is not loaded."""
    if cupy := sys.modules.get("cupy"):
        for device_id in range(devices.device_count()):
            with devices.on_device(device_id):
                yield device_id, cupy.get_default_memory_pool()


def out_of_device_memory(size: int, device_id: int) -> LaunchError:
    """Return the error for an allocation of `size` bytes that CuPy's pool could not make on the current device."""
    pool = sys.modules["cupy"].get_default_memory_pool()
    free, total = free_on_device()
    most = f", and ck.memory.limit allows {pool.get_limit():,}" if pool.get_limit() else ""
    return LaunchError(
        f"{size:,} bytes of device memory were asked for; device {device_id} has {free:,} of {total:,} free, and "
        f"CuPy's pool holds {pool.used_bytes():,} in use and {pool.free_bytes():,} kept free{most}; free arrays, "
        "or work in chunks"
    )


def free_on_device() -> tuple[int, int]:
    """Return free and total bytes of the current device."""
    from cuda.bindings import driver

    status, free, total = driver.cuMemGetInfo()
    if int(status) != 0:
        raise LaunchError(f"the driver does not say how much memory is free: {status.name}")
    return int(free), int(total)


def _emulated(memory_kind: str) -> tuple[int, int]:
    """Return the bytes of arrays of a kind on the emulator, and their peak. Zeros if the emulator is not loaded."""
    if "cudakit.emulator" not in sys.modules:
        return 0, 0
    from cudakit.emulator.face import room

    return room().usage(memory_kind)


def emulated_array(shape: tuple[int, ...], dtype: np.dtype, memory_kind: str = "device") -> np.ndarray:
    """Return a new NumPy array in the emulator's memory, counted as `memory_kind`. Raise beyond the kind's limit."""
    from cudakit.emulator.face import room

    return room().array(shape, dtype, memory_kind, ledger.limits[memory_kind])


def tell_emulator(array: np.ndarray) -> None:
    """Register a new pinned array with the emulator, so that its kernels can access the array by its address.

    Do nothing if there is a GPU and the emulator is not loaded.
    """
    if not devices.has_gpu() or "cudakit.emulator" in sys.modules:
        from cudakit.emulator.face import room

        room().register(array)
