"""What memory is held and by how much it may grow; and arrays that own pinned or managed memory."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Hashable
from functools import cache
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from cudakit import devices, pinned, streams
from cudakit.errors import ArgumentError, LaunchError
from cudakit.order import order
from cudakit.streams import Known, is_emulated, known

#: Calls whose device memory is kept for the next ones like them.
_MOST_SPARES = 32


class Held(NamedTuple):
    """Memory of one kind, in bytes.

    Attributes
    ----------
    kind : str
        ``"device"`` (CuPy's pool, whoever asked it), ``"pinned"`` or ``"managed"`` (asked for by cudakit).
    device : int or None
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
    device: int | None
    used: int
    free: int
    peak: int
    limit: int | None


class Report(NamedTuple):
    """What is held, by kind and device; printed as a table."""

    held: tuple[Held, ...]

    def of(self, kind: str) -> Held:
        """The memory of a kind, added up over the devices."""
        rows = [row for row in self.held if row.kind == kind]
        limits = [row.limit for row in rows if row.limit is not None]
        used, free, peak = (
            sum(column) for column in ([r.used for r in rows], [r.free for r in rows], [r.peak for r in rows])
        )
        return Held(kind, None, used, free, peak, sum(limits) if limits else None)

    def __str__(self) -> str:
        lines = [f"{'memory':<10}{'used':>16}{'free in pool':>16}{'peak':>16}{'limit':>16}"]
        for kind, device, *numbers in self.held:
            name = kind if device is None else f"{kind} {device}"
            lines.append(f"{name:<10}" + "".join(f"{'none' if n is None else format(n, ','):>16}" for n in numbers))
        return "\n".join(lines)


class _Ledger:
    """What nobody else counts: managed memory by device, peaks, and limits."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a finalizer may come while this thread has it
        self.managed: dict[int, int] = {}
        self.buffers: WeakValueDictionary[int, _Managed] = WeakValueDictionary()
        self.peaks: dict[tuple[str, int], int] = {}
        self.limits: dict[str, int | None] = {"device": None, "managed": None}

    def add_managed(self, device_id: int, size: int) -> None:
        with self.lock:
            self.managed[device_id] = held = self.managed.get(device_id, 0) + size
            self.note("managed", device_id, held)

    def note(self, kind: str, device_id: int, held: int) -> None:
        self.peaks[kind, device_id] = max(held, self.peaks.get((kind, device_id), 0))


_ledger = _Ledger()


def report() -> Report:
    """What memory is held now: CuPy's pool on each device, pinned and managed memory.

    Returns
    -------
    Report
        ``print(ck.memory.report())`` shows it.
    """
    order().release()  # what is held for work that is done counts no more
    _spares.release()
    rows = []
    cupy = sys.modules.get("cupy")
    for device_id in range(devices.device_count() if cupy is not None else 0):
        pool = cupy.get_default_memory_pool()  # type: ignore[union-attr]  # there is no device without it
        with devices.on_device(device_id):
            spare, most = _spares.held(device_id), pool.get_limit()
            used, free = pool.used_bytes() - spare, pool.free_bytes() + spare
        _ledger.note("device", device_id, used + free)
        rows.append(Held("device", device_id, used, free, _ledger.peaks["device", device_id], most or None))
    rows.append(Held("pinned", None, *pinned.pool().use()))
    with _ledger.lock:
        for device_id, used in _ledger.managed.items():
            peak = _ledger.peaks["managed", device_id]
            rows.append(Held("managed", device_id, used, 0, peak, _ledger.limits["managed"]))
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
    kind : {"device", "pinned", "managed"}
        ``"device"``: CuPy's pool on the current device, whoever asks it.

    Returns
    -------
    context manager
        Restores the former limit where it is used in ``with``; otherwise the limit stays.

    Raises
    ------
    ArgumentError
    """
    if size is not None and (isinstance(size, bool) or not hasattr(size, "__index__") or size <= 0):
        raise ArgumentError(f"a limit is a positive number of bytes, or None for none, got {size!r}")
    if kind not in ("device", "pinned", "managed"):
        raise ArgumentError(f"kind is one of 'device', 'pinned', 'managed', got {kind!r}")
    return Limit(size, kind)


def _set_limit(size: int | None, kind: str) -> int | None:
    """Set a limit; the former."""
    if kind == "pinned":
        pool = pinned.pool()
        former, pool.limit = pool.limit, size
        return former
    former = _ledger.limits[kind]
    _ledger.limits[kind] = size
    if kind == "device" and devices.has_gpu():
        import cupy

        devices.current_device()
        cupy.get_default_memory_pool().set_limit(size=size or 0)
    return former


def trim() -> int:
    """Give memory that is kept free back to the devices and to the host; the bytes given back."""
    _spares.drop()
    order().release()
    freed = pinned.pool().trim()
    cupy = sys.modules.get("cupy")
    for device_id in range(devices.device_count() if cupy is not None else 0):
        pool = cupy.get_default_memory_pool()  # type: ignore[union-attr]  # there is no device without it
        with devices.on_device(device_id):
            before = pool.total_bytes()
            _ledger.note("device", device_id, before)
            pool.free_all_blocks()
            freed += before - pool.total_bytes()
    return freed


# ── device ───────────────────────────────────────────────────────────────────────────────────────────────────────


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
        elif len(self._idle) > _MOST_SPARES:
            closed = [old for old, kept in list(self._idle.items()) if kept.target.core.is_closed]
            self._drop(closed or list(self._idle)[:-_MOST_SPARES])

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


def out_of_device_memory(size: int, device_id: int) -> LaunchError:
    """The error for an allocation that CuPy's pool could not make on the current device."""
    pool = sys.modules["cupy"].get_default_memory_pool()
    free, total = _free_on_device()
    most = f", and ck.memory.limit allows {pool.get_limit():,}" if pool.get_limit() else ""
    return LaunchError(
        f"{size:,} bytes of device memory were asked for; device {device_id} has {free:,} of {total:,} free, and "
        f"CuPy's pool holds {pool.used_bytes():,} in use and {pool.free_bytes():,} kept free{most}; let go of arrays, "
        "or work in chunks"
    )


def _free_on_device() -> tuple[int, int]:
    from cuda.bindings import driver

    status, free, total = driver.cuMemGetInfo()
    if int(status) != 0:
        raise LaunchError(f"the driver does not say how much memory is free: {status.name}")
    return int(free), int(total)


# ── pinned ───────────────────────────────────────────────────────────────────────────────────────────────────────


def pinned_array(block: pinned.Block, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array over a block, which is given back when the array and all its views are gone."""
    size = math.prod(shape) * dtype.itemsize
    return np.asarray(pinned.Lease(block, size)).view(dtype).reshape(shape)


# ── managed ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _Managed:
    """A managed buffer, counted while it lives."""

    def __init__(self, buffer: Any, device_id: int) -> None:
        self.buffer, self.device_id, self.size = buffer, device_id, int(buffer.size)
        _ledger.add_managed(device_id, self.size)

    def __del__(self) -> None:
        _ledger.add_managed(self.device_id, -self.size)


@cache
def _managed_resource() -> Any:
    from cuda.core import ManagedMemoryResource, ManagedMemoryResourceOptions

    return ManagedMemoryResource(ManagedMemoryResourceOptions())


def managed_array(size: int, shape: tuple[int, ...], dtype: np.dtype, target: Known) -> Any:
    """A CuPy array in new managed memory.

    Raises
    ------
    LaunchError
        Beyond what the device has free, or beyond the limit.
    """
    import cupy

    with _ledger.lock:
        device_id, held = target.device_id, _ledger.managed.get(target.device_id, 0)
        most = _ledger.limits["managed"]
        free, _ = _free_on_device()
        # Pages that nobody has touched yet take none of what is free: all that was promised is taken off.
        if size > free - held:
            raise LaunchError(
                f"{size:,} bytes of managed memory were asked for; device {device_id} has {free:,} free, of which "
                f"{held:,} are promised to managed arrays; let go of arrays, or work in chunks"
            )
        if most is not None and held + size > most:
            raise LaunchError(
                f"{size:,} bytes of managed memory were asked for and {held:,} are held: ck.memory.limit allows "
                f"{most:,}"
            )
        buffer = _managed_resource().allocate(max(1, size), stream=target.core)
        owner = _ledger.buffers[int(buffer.handle)] = _Managed(buffer, device_id)
    memory = cupy.cuda.UnownedMemory(int(buffer.handle), owner.size, owner, device_id)
    return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))


def host_view(array: Any) -> np.ndarray:
    """The memory of a managed CuPy array as NumPy's."""
    from cuda.bindings import driver

    if not hasattr(array, "__cuda_array_interface__"):
        raise ArgumentError(f"host_view takes a managed array, got {type(array).__name__}")
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    interface = array.__cuda_array_interface__
    status, managed = driver.cuPointerGetAttribute(attribute, interface["data"][0])
    if int(status) != 0 or not managed:
        raise ArgumentError(
            'host_view: the array is not in managed memory; make it with ck.empty(shape, dtype, kind="managed"), or '
            "copy it with ck.to_host(x, stream)"
        )
    return np.asarray(_Viewed(array, interface)).view(array.dtype)


class _Viewed:
    """The memory of an array, which is kept."""

    def __init__(self, array: Any, interface: dict[str, Any]) -> None:
        self.array = array
        self.__array_interface__ = {**interface, "version": 3}


def prefetch(array: Any, target: Known, to: str) -> None:
    """Have a managed array moved, on a stream."""
    from cuda.core import Device, Host

    is_cupy = type(array).__module__.partition(".")[0] == "cupy"
    owner = _ledger.buffers.get(array.data.mem.ptr) if is_cupy else None
    if owner is None:
        raise ArgumentError('prefetch takes an array of ck.empty(shape, dtype, kind="managed")')
    owner.buffer.prefetch(Device(target.device_id) if to == "device" else Host(), stream=target.core)


# ── the end of a block ───────────────────────────────────────────────────────────────────────────────────────────


def let_go(array: Any, stream: Any) -> None:
    """Leave an array empty, so that its memory is free after what the stream has to do, and once no view is left."""
    if isinstance(array, np.ndarray):
        lease = array.base
        while isinstance(lease, np.ndarray):
            lease = lease.base
        if isinstance(lease, pinned.Lease) and stream is not None and not is_emulated(stream):
            lease.after = known(stream).core.record()
        # What unpickling does: the array lets go of its memory, and its views, which refer to the owner, keep it.
        array.__setstate__((1, (0,), array.dtype, False, b""))  # type: ignore[arg-type]  # wants a NumPy bool
        return
    given = stream if stream is not None else sys.modules["cupy"].cuda.get_current_stream()
    with order().around(given, (), (array,)):
        pass
    with streams.cupy_stream(known(given).core):
        # The constructor once more, which appends to the shape that is there.
        array._init((0,), array.dtype)
    array.shape = (0,)
    # Launches that know the array by its identity would give kernels its former address.
    order().unsettle()
