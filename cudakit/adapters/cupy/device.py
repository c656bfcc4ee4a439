"""A stand-in for CuPy's devices: the emulator's one device, with the limits of an H100."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from cudakit.adapters.cupy.capture import CAPTURE
from cudakit.adapters.emulated_device import TOTAL_BYTES, attributes
from cudakit.emulator.face import EmulatorPlace, order
from cudakit.errors import LaunchError, shortened

#: Attributes that CUDA's runtime spells in another way than its driver.
_SPELLINGS = {
    "multiprocessor_count": "MultiProcessorCount", "max_threads_per_multiprocessor": "MaxThreadsPerMultiProcessor",
    "multi_gpu_board": "IsMultiGpuBoard",
}  # fmt: skip
#: Number of the last attribute that programs are told of.
_LAST = 115
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


#: Bytes of memory in use.
USAGE = SimpleNamespace(size=0)


def current_stream() -> Any:
    """Return the emulator's stream, on which all work of the stand-in runs."""
    return EmulatorPlace().current()


@functools.cache
def attribute_numbers() -> dict[str, int]:
    """Return CUDA's numbers of attributes, by the runtime's names without their prefix."""
    from cuda.bindings.driver import CUdevice_attribute

    names = {member.removeprefix("CU_DEVICE_ATTRIBUTE_").lower(): int(number)
             for member, number in CUdevice_attribute.__members__.items()}  # fmt: skip
    return {_spelling(name): number for name, number in names.items() if number <= _LAST and "maximum_" not in name}


def _spelling(name: str) -> str:
    return _SPELLINGS.get(name, name.title().replace("_", ""))


def device_attributes() -> dict[str, int]:
    """Return attributes of the emulated device, by CUDA's names without their prefix."""
    values = {_spelling(name): value for name, value in attributes().items()}
    return {name: values.get(name, 0) for name in attribute_numbers()}


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
