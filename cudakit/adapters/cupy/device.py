"""A stand-in for CuPy's devices: the emulator's one device, with the limits of an H100."""

from __future__ import annotations

from typing import Any

from cudakit.adapters.cupy.capture import CAPTURE
from cudakit.emulator.face import EmulatorPlace, order
from cudakit.errors import LaunchError, shortened

#: Memory of the emulated device.
TOTAL_BYTES = 80 << 30
_NO_LIBRARY = (
    "cupy.cuda.Device.{name}: a handle of {library} needs a GPU. Without one, call NumPy's functions by CuPy's names, "
    "as cupy.matmul and cupy.linalg.solve"
)
_LIBRARIES = {
    "cublas_handle": "cuBLAS", "cusolver_handle": "cuSOLVER", "cusolver_sp_handle": "cuSOLVER",
    "cusparse_handle": "cuSPARSE", "cutensor_handle": "cuTENSOR",
}  # fmt: skip


class CUDARuntimeError(LaunchError):
    """Error of a runtime function, with the name of CUDA's status."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Usage:
    """Memory in use.

    Attributes
    ----------
    size : int
        Number of bytes.
    """

    def __init__(self) -> None:
        self.size = 0


USAGE = Usage()


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
        return TOTAL_BYTES - USAGE.size, TOTAL_BYTES

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
