"""A stand-in for CuPy's devices, streams, events and graphs.

There is one device, with the limits of an H100, and work runs at its call. Two events have no time between them that
would say anything of a GPU, so it is NaN.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cudakit.adapters.cupy.arrays import CAPTURE
from cudakit.adapters.cupy.memory import POOL, TOTAL_BYTES, CUDARuntimeError
from cudakit.emulator.face import EmulatorPlace, order
from cudakit.errors import LaunchError, shortened

_NO_LIBRARY = (
    "cupy.cuda.Device.{name}: a handle of {library} needs a GPU. Without one, call NumPy's functions by CuPy's names, "
    "as cupy.matmul and cupy.linalg.solve"
)
_LIBRARIES = {
    "cublas_handle": "cuBLAS", "cusolver_handle": "cuSOLVER", "cusolver_sp_handle": "cuSOLVER",
    "cusparse_handle": "cuSPARSE", "cutensor_handle": "cuTENSOR",
}  # fmt: skip


def current_stream() -> Any:
    """Return the emulator's stream, on which all work of the stand-in runs."""
    return EmulatorPlace().current()


def device_attributes() -> dict[str, int]:
    """Return attributes of the emulated device, by CUDA's names without their prefix."""
    limits = EmulatorPlace().limits()
    major, minor = limits.compute_capability
    return {
        "MaxThreadsPerBlock": limits.threads_per_block, "MaxBlockDimX": limits.block[0],
        "MaxBlockDimY": limits.block[1], "MaxBlockDimZ": limits.block[2], "MaxGridDimX": limits.grid[0],
        "MaxGridDimY": limits.grid[1], "MaxGridDimZ": limits.grid[2], "MaxSharedMemoryPerBlock": 48 << 10,
        "MaxSharedMemoryPerBlockOptin": limits.shared_bytes, "MaxSharedMemoryPerMultiprocessor": 228 << 10,
        "ReservedSharedMemoryPerBlock": 1 << 10, "TotalConstantMemory": 64 << 10, "WarpSize": 32,
        "MaxRegistersPerBlock": 65536, "MaxRegistersPerMultiprocessor": 65536,
        "MaxThreadsPerMultiProcessor": 2048, "MaxBlocksPerMultiprocessor": 32,
        "MultiProcessorCount": limits.multiprocessors, "ComputeCapabilityMajor": major,
        "ComputeCapabilityMinor": minor, "ClockRate": 1_980_000, "MemoryClockRate": 2_619_000,
        "GlobalMemoryBusWidth": 5120, "L2CacheSize": 50 << 20, "ConcurrentKernels": 1, "AsyncEngineCount": 3,
        "UnifiedAddressing": 1, "ManagedMemory": 1, "ConcurrentManagedAccess": 1, "CooperativeLaunch": 1,
        "CanMapHostMemory": 1, "MemoryPoolsSupported": 1, "StreamPrioritiesSupported": 1, "Integrated": 0,
        "EccEnabled": 1, "PciBusId": 1, "PciDeviceId": 0, "PciDomainId": 0, "MaxPitch": 2**31 - 1,
        "TextureAlignment": 512, "TexturePitchAlignment": 32, "SurfaceAlignment": 512, "ComputeMode": 0,
        "KernelExecTimeout": 0, "GpuOverlap": 1, "GlobalL1CacheSupported": 1, "LocalL1CacheSupported": 1,
        "ComputePreemptionSupported": 1, "HostRegisterSupported": 1, "IsMultiGpuBoard": 0, "TccDriver": 0,
        "PageableMemoryAccess": 0, "SingleToDoublePrecisionPerfRatio": 2,
    }  # fmt: skip


class Device:
    """A stand-in for ``cupy.cuda.Device``: the emulator's one device, number 0.

    Parameters
    ----------
    device : int or Device, optional
        Number of the device.
    """

    def __init__(self, device: Any = None) -> None:
        number = 0 if device is None else int(device)
        if number != 0:
            raise CUDARuntimeError("cudaErrorInvalidDevice", f"the emulator has one device, number 0, got {number}")
        self.id = number

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __int__(self) -> int:
        return self.id

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name in _LIBRARIES:
            raise AttributeError(_NO_LIBRARY.format(name=name, library=_LIBRARIES[name]), name=name, obj=self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @property
    def attributes(self) -> dict[str, int]:
        """Limits and other attributes of the device, by CUDA's names."""
        return device_attributes()

    @property
    def compute_capability(self) -> str:
        """Compute capability, without the point."""
        return "".join(map(str, EmulatorPlace().limits().compute_capability))

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total memory, in bytes."""
        return TOTAL_BYTES - POOL.used_bytes(), TOTAL_BYTES

    @property
    def pci_bus_id(self) -> str:
        """Number of the device on the bus, as the driver writes it."""
        return "0000:01:00.0"

    @staticmethod
    def from_pci_bus_id(pci_bus_id: str) -> Device:
        """Return the device with a number on the bus."""
        if pci_bus_id != Device().pci_bus_id:
            raise CUDARuntimeError("cudaErrorInvalidDevice", f"no device {shortened(pci_bus_id)}")
        return Device()

    def use(self) -> Device:
        """Return the device, which is current."""
        return self

    def synchronize(self) -> None:
        """Wait for all work."""
        CAPTURE.forbid("synchronize()")
        order().finish_all()


class _Chosen(threading.local):
    """Streams that this thread uses, the innermost last."""

    def __init__(self) -> None:
        self.streams: list[BaseStream] = []


_chosen = _Chosen()
_numbers = itertools.count(16)


class BaseStream:
    """A stream. All streams of the stand-in are one stream of the emulator, so no work of two streams overlaps.

    Attributes
    ----------
    ptr : int
        Number of the stream: 0, 1 and 2 are the null stream and the default streams.
    """

    def __init__(self, ptr: int, priority: int = 0, non_blocking: bool = False) -> None:
        self.ptr, self.priority, self.is_non_blocking, self.device_id = ptr, priority, non_blocking, 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ptr} (device 0)>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BaseStream) and other.ptr == self.ptr

    def __hash__(self) -> int:
        return hash(self.ptr)

    def __enter__(self) -> BaseStream:
        _chosen.streams.append(self)
        return self

    def __exit__(self, *raised: object) -> None:
        _chosen.streams.pop()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    @property
    def done(self) -> bool:
        """True: all work is done at its call."""
        return True

    @property
    def is_capturing(self) -> bool:
        """Whether work of the stream is recorded for a graph."""
        return CAPTURE.actions is not None

    def use(self) -> BaseStream:
        """Make the stream the current one of this thread, and return it."""
        _chosen.streams[-1:] = [self]
        return self

    def synchronize(self) -> None:
        """Wait for the stream's work."""
        CAPTURE.forbid("synchronize()")
        order().finish_all()

    def record(self, event: Any = None) -> Any:
        """Return `event`, or a new event if it is None, recorded on this stream."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Do nothing: all work is done at its call."""

    def launch_host_func(self, callback: Callable[[Any], object], arg: Any) -> None:
        """Call a function of one argument, in the order of the stream's work."""
        CAPTURE.do(lambda: callback(arg))

    def add_callback(self, callback: Callable[[Any, int, Any], object], arg: Any) -> None:
        """Call a function of the stream, a status of 0 and an argument."""
        callback(self, 0, arg)

    def begin_capture(self, mode: Any = None) -> None:
        """Record the work from here on; nothing of it changes an array that exists."""
        if CAPTURE.actions is not None:
            raise LaunchError("begin_capture: the stream is recorded already; call end_capture() first")
        CAPTURE.actions = []

    def end_capture(self) -> Graph:
        """Return the recorded work."""
        if CAPTURE.actions is None:
            raise CUDARuntimeError("cudaErrorIllegalState", "end_capture: no capture has begun")
        graph, CAPTURE.actions = Graph(CAPTURE.actions), None
        return graph


class Stream(BaseStream):
    """A stand-in for ``cupy.cuda.Stream``.

    Parameters
    ----------
    null, non_blocking, ptds : bool
        Whether this is the null stream, whether it ignores that stream, and whether it is the thread's default stream.
    priority : int, optional
        Priority.
    """

    null: Stream
    ptds: Stream

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
    ) -> None:
        super().__init__(0 if null else 2 if ptds else next(_numbers), priority or 0, non_blocking)

    @staticmethod
    def from_external(stream: Any) -> BaseStream:
        """Return a stream of another library's object that has ``__cuda_stream__``."""
        return ExternalStream(stream.__cuda_stream__()[1])


class ExternalStream(BaseStream):
    """A stand-in for ``cupy.cuda.ExternalStream``: a stream by its number."""

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__(int(ptr))


Stream.null, Stream.ptds = Stream(null=True), Stream(ptds=True)


def get_current_stream(device_id: int = -1) -> BaseStream:
    """Return the stream that this thread uses."""
    return _chosen.streams[-1] if _chosen.streams else Stream.null


class Event:
    """A stand-in for ``cupy.cuda.Event``.

    Parameters
    ----------
    block, disable_timing, interprocess : bool
        Options of CUDA's events, which change nothing here.
    """

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.ptr, self.is_timed, self.is_recorded = next(_numbers), not disable_timing, False

    @property
    def done(self) -> bool:
        """True: all work is done at its call."""
        return True

    def record(self, stream: Any = None) -> None:
        """Mark a point of a stream."""
        self.is_recorded = True

    def synchronize(self) -> None:
        """Wait for all work."""
        CAPTURE.forbid("synchronize()")
        order().finish_all()


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Return NaN: the emulator's time is not a GPU's.

    Raises
    ------
    CUDARuntimeError
        If an event was not recorded, or has no time.
    """
    for event in (start_event, end_event):
        if not event.is_recorded or not event.is_timed:
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle", "an event was not recorded, or has no time")
    return math.nan


class Graph:
    """A stand-in for ``cupy.cuda.Graph``: recorded work, which `launch` runs."""

    def __init__(self, actions: Sequence[Callable[[], object]]) -> None:
        self._actions = tuple(actions)

    def launch(self, stream: Any = None) -> None:
        """Run the recorded work."""
        for action in self._actions:
            action()

    def upload(self, stream: Any = None) -> None:
        """Do nothing: the work is here already."""

    def debug_dot_str(self, flags: int = 0) -> str:
        """Return the order of the work in the language of Graphviz."""
        arrows = "".join(f" {number} -> {number + 1};" for number in range(len(self._actions) - 1))
        return f"digraph {{{arrows} }}"


@contextlib.contextmanager
def devices_block() -> Iterator[None]:
    """Return a context for a program: streams that it leaves current are forgotten."""
    former = list(_chosen.streams)
    try:
        yield
    finally:
        _chosen.streams[:] = former
