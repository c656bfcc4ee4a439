"""A GPU's memory and streams in host memory, for the modules that copy: a stream works when it is waited for.

Addresses on the device are addresses of arrays that only this module knows, so that copies are real. CuPy's arrays are
CuPy's own, on memory of such an array; what they would ask a device for (slices, assignments) they have not.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import cupy
import numpy as np
import pytest

from cudakit.memory import accounting, device_memory, on_device, pinned, staging
from cudakit.memory import accounting as spare_module
from cudakit.streams import devices, streams
from cudakit.streams import order as order_module
from cudakit.streams.witnesses import Witness, Work

#: As the runtime numbers the kinds of copies.
TO_DEVICE, TO_HOST = 1, 2


def _nothing() -> None:
    """Stand in the place of work that is done, so that nothing keeps what that worked on."""


class Event:
    """A place on a stream, which is done once the stream has come there."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.position = stream, 0

    @property
    def is_done(self) -> bool:
        return self.stream.done >= self.position

    def sync(self) -> None:
        self.stream.run(self.position)

    @property
    def ptr(self) -> int:
        return id(self)


class Stream:
    """A stream of a device; as cuda.core's, CuPy's, and as what is known of one."""

    def __init__(self, gpu: Gpu, handle: int, device_id: int = 0) -> None:
        self.gpu, self.handle, self.ptr, self.device_id = gpu, handle, handle, device_id
        self.core, self.given, self.is_closed = self, self, False
        self.device = SimpleNamespace(device_id=device_id)
        self.work: list[Callable[[], object]] = []
        self.done = 0
        self.outer: list[Stream] = []

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def __enter__(self) -> Stream:
        self.outer.append(self.gpu.current)
        self.gpu.current = self
        return self

    def __exit__(self, *_: object) -> None:
        self.gpu.current = self.outer.pop()

    def put(self, work: Callable[[], object]) -> None:
        self.work.append(work)

    def run(self, until: int | None = None) -> None:
        """Do the work, up to a place."""
        end = len(self.work) if until is None else until
        while self.done < end:
            work, self.work[self.done] = self.work[self.done], _nothing
            self.done += 1
            work()

    def record(self, event: Event | None = None) -> Event:
        event = event or Event(self)
        event.stream, event.position = self, len(self.work)
        return event

    def wait(self, event: Event) -> None:
        self.put(event.sync)

    def sync(self) -> None:
        self.run()


class DeviceArray(cupy.ndarray):
    """CuPy's array on the stand-in's memory."""

    __module__ = "cupy"  # which tells whose arrays these are
    gpu: ClassVar[Gpu]
    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}

    def __new__(cls, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None) -> Any:
        if memptr is None:
            memptr = cls.gpu.allocate(int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize)
        return super().__new__(cls, shape, dtype, memptr, strides)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def copy(self, order: str = "C") -> Any:
        """A C-contiguous copy, put on the stream that CuPy works on now."""
        made = DeviceArray(self.shape, self.dtype)
        self.gpu.current.put(lambda: np.copyto(seen(made), seen(self)))
        return made


def seen(array: Any) -> np.ndarray:
    """What a device array holds, as NumPy's array of the same memory."""
    low, high = on_device.segments.cupy_span(array)
    memory = (ctypes.c_uint8 * max(1, high - low)).from_address(low)
    return np.ndarray(array.shape, array.dtype, memory, array.data.ptr - low, array.strides)


class Runtime:
    """CuPy's functions for copies, with what they were given in `calls`."""

    memcpyHostToDevice, memcpyDeviceToHost = TO_DEVICE, TO_HOST

    class CUDARuntimeError(RuntimeError):
        """An error with the runtime's number."""

        def __init__(self, status: int) -> None:
            super().__init__(f"error {status}")
            self.status = status

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.calls: list[tuple[Any, ...]] = []
        self.can_access, self.error = True, 0

    def memcpyAsync(self, target: int, source: int, size: int, kind: int, handle: int) -> None:
        assert self.gpu.is_device(target) is (kind == TO_DEVICE)
        assert self.gpu.is_device(source) is (kind == TO_HOST)
        self.calls.append(("copy", kind, size, handle))
        self.gpu.streams[handle].put(lambda: ctypes.memmove(target, source, size))

    def memsetAsync(self, target: int, value: int, size: int, handle: int) -> None:
        assert self.gpu.is_device(target)
        self.calls.append(("set", value, size, handle))
        self.gpu.streams[handle].put(lambda: ctypes.memset(target, value, size))

    def memcpyPeerAsync(self, target: int, to: int, source: int, of: int, size: int, handle: int) -> None:
        self.calls.append(("peer", to, of, size, handle))
        self.gpu.streams[handle].put(lambda: ctypes.memmove(target, source, size))

    def streamWaitEvent(self, handle: int, event: int) -> None:
        self.calls.append(("wait", handle))

    def deviceCanAccessPeer(self, device_id: int, other: int) -> bool:
        return self.can_access

    def deviceEnablePeerAccess(self, other: int) -> None:
        self.calls.append(("peers", other))
        if self.error:
            raise self.CUDARuntimeError(self.error)


class Pool:
    """CuPy's pool of device memory, as far as it is asked what it holds."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.kept, self.limit = gpu, 0, 0

    def used_bytes(self) -> int:
        return self.gpu.used

    def free_bytes(self) -> int:
        return self.kept

    def total_bytes(self) -> int:
        return self.gpu.used + self.kept

    def get_limit(self) -> int:
        return self.limit

    def set_limit(self, size: int) -> None:
        self.limit = size

    def free_all_blocks(self) -> None:
        self.kept = 0


class Orders:
    """The order between streams, which writes down what is ordered, as (word, …)."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.lock = contextlib.nullcontext()

    def before(self, target: Any, reads: Any, writes: Any, producers: Any = ()) -> Any:
        self.log.append(("before", target.handle, tuple(reads), tuple(writes)))
        return len(self.log)

    def after(self, use: Any, things: Any) -> None:
        if use is not None:
            self.log.append(("after", use, things))

    @contextlib.contextmanager
    def around(self, stream: Any, reads: Any = (), writes: Any = ()) -> Iterator[None]:
        self.log.append(("around", stream.handle, tuple(reads), tuple(writes)))
        yield
        self.log.append(("end",))

    def hold(self, core: Any, things: Any) -> None:
        self.log.append(("hold", core.handle, things))

    def unsettle(self) -> None:
        self.log.append(("unsettle",))

    def release(self) -> None:
        self.log.append(("release",))

    def of(self, word: str) -> list[tuple[Any, ...]]:
        """What was written down under a word, without it."""
        return [each[1:] for each in self.log if each[0] == word]


class Gpu:
    """The device: its memory, its streams, and the stream on which CuPy works.

    Attributes
    ----------
    most : int
        Bytes that it has.
    captured : set of int
        Streams that are being captured.
    """

    def __init__(self) -> None:
        self.blocks: dict[int, np.ndarray] = {}
        self.streams: dict[int, Stream] = {}
        self.most, self.device_id = 1 << 30, 0
        self.captured: set[int] = set()
        self.runtime, self.pool, self.order = Runtime(self), Pool(self), Orders()
        self.current = self.stream()

    @property
    def used(self) -> int:
        return sum(block.nbytes for block in self.blocks.values())

    def stream(self, device_id: int = 0) -> Stream:
        """A new stream, which cudakit knows."""
        made = Stream(self, 100 + len(self.streams), device_id)
        self.streams[made.handle] = made
        streams._device_streams[id(made)] = streams.DeviceStream(made, made, made.handle, device_id)  # type: ignore[arg-type]
        return made

    def allocate(self, size: int) -> Any:
        """Memory of the device that CuPy works on, as CuPy's pointer."""
        if self.used + size > self.most:
            raise cupy.cuda.memory.OutOfMemoryError(size, self.used)
        block = np.full(max(1, size), 0xA5, np.uint8)
        address = int(block.ctypes.data)
        self.blocks[address] = block
        memory = cupy.cuda.UnownedMemory(address, block.nbytes, _Owner(self, address), self.device_id)
        return cupy.cuda.MemoryPointer(memory, 0)

    def is_device(self, address: int) -> bool:
        return any(start <= address < start + block.nbytes for start, block in self.blocks.items())

    def array(self, like: np.ndarray, device_id: int = 0) -> Any:
        """A device array with the elements of NumPy's."""
        former, self.device_id = self.device_id, device_id
        made = DeviceArray(like.shape, like.dtype)
        self.device_id = former
        seen(made)[...] = like
        return made

    def imported(self, given: Any) -> Any:
        """Another library's array as CuPy's, on the same memory."""
        interface = given.__cuda_array_interface__
        memory = cupy.cuda.UnownedMemory(interface["data"][0], 1 << 20, given, self.device_id)
        return DeviceArray(interface["shape"], interface["typestr"], cupy.cuda.MemoryPointer(memory, 0))

    def view(self, array: Any, start: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """A view of a device array, from an element on, with strides in bytes."""
        return DeviceArray(shape, array.dtype, array.data + start * array.itemsize, strides)


class _Owner:
    """Gives memory back when no array has it any more."""

    def __init__(self, gpu: Gpu, address: int) -> None:
        self.gpu, self.address = gpu, address

    def __del__(self) -> None:
        self.gpu.blocks.pop(self.address, None)


class Heard(Witness):
    """Keeps what witnesses are told, as (kind, name, stream, reads, writes, bytes)."""

    def __init__(self) -> None:
        self.works: list[tuple[Any, ...]] = []

    def begin(self, work: Work) -> None:
        given = work.kind, work.name, work.stream, tuple(map(id, work.reads)), tuple(map(id, work.writes))
        self.works.append((*given, work.size))

    def end(self, work: Work, begun: Any) -> None:
        pass


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A GPU in the place of the driver's, for a test."""
    monkeypatch.setattr(streams, "_device_streams", {})
    gpu = Gpu()
    monkeypatch.setattr(DeviceArray, "gpu", gpu, raising=False)
    cuda = SimpleNamespace(
        get_current_stream=lambda *device: gpu.current,
        memory=cupy.cuda.memory,
        UnownedMemory=cupy.cuda.UnownedMemory,
        MemoryPointer=cupy.cuda.MemoryPointer,
    )
    module: Any = SimpleNamespace(
        ndarray=DeviceArray, cuda=cuda, get_default_memory_pool=lambda: gpu.pool, asarray=gpu.imported
    )
    for part in (on_device, device_memory):
        monkeypatch.setattr(part, "cupy", module)
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(on_device, "runtime", gpu.runtime)
    monkeypatch.setattr(staging, "cupy_runtime", lambda: gpu.runtime)
    monkeypatch.setattr(streams, "cupy_stream", lambda core: core)
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "make_current", lambda device_id=None: False)
    monkeypatch.setattr(devices, "current_device", lambda: SimpleNamespace(sync=lambda: None))
    monkeypatch.setattr(streams, "is_captured", gpu.captured.__contains__)
    monkeypatch.setattr(order_module, "_order", gpu.order)
    pool = pinned.Pool(lambda size: np.zeros(size, np.uint8))
    monkeypatch.setattr(pinned, "_pool", pool)
    monkeypatch.setattr(pinned, "_allocate", lambda size: np.zeros(size, np.uint8))
    monkeypatch.setattr(spare_module, "_spares", spare_module.Spares())
    monkeypatch.setattr(accounting, "ledger", accounting.Ledger())
    monkeypatch.setattr(device_memory, "ledger", accounting.ledger)
    monkeypatch.setattr(staging._only, "courier", None)
    on_device._let_reach.cache_clear()
    return gpu
