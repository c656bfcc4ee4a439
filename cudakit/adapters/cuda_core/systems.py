"""Stand-ins for ``cuda.core.system``: one device, and the driver's version that NVRTC's code needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from cudakit.adapters.cuda_core.devices import Device
from cudakit.adapters.cuda_core.faults import raising

CUDA_BINDINGS_NVML_IS_COMPATIBLE = False


def get_num_devices() -> int:
    """Return 1."""
    return 1


def get_user_mode_driver_version() -> tuple[int, ...]:
    """Return the version of CUDA that the installed bindings are for."""
    from cuda import bindings

    return tuple(int(part) for part in bindings.__version__.split(".")[:2])


def get_driver_version(kernel_mode: bool = False) -> tuple[int, ...]:
    """Return the version of CUDA that the installed bindings are for; older versions have this name."""
    if kernel_mode:
        _no_driver("get_driver_version(kernel_mode=True)")()
    return get_user_mode_driver_version()


def get_driver_version_full(kernel_mode: bool = False) -> tuple[int, ...]:
    """Return the version with a third number, 0; older versions have this name."""
    return (*get_driver_version(kernel_mode), 0)


def _no_driver(name: str) -> Callable[..., NoReturn]:
    return raising(f"cuda.core.system.{name} asks NVIDIA's driver, and there is none")


get_kernel_mode_driver_version: Callable[..., NoReturn] = _no_driver("get_kernel_mode_driver_version")
get_driver_branch: Callable[..., NoReturn] = _no_driver("get_driver_branch")
get_nvml_version: Callable[..., NoReturn] = _no_driver("get_nvml_version")
get_process_name: Callable[..., NoReturn] = _no_driver("get_process_name")
get_topology_common_ancestor: Callable[..., NoReturn] = _no_driver("get_topology_common_ancestor")
get_p2p_status: Callable[..., NoReturn] = _no_driver("get_p2p_status")
register_events: Callable[..., NoReturn] = _no_driver("register_events")


class SystemDevice:
    """A stand-in for ``cuda.core.system.Device``: the emulated device. Values that the driver measures raise."""

    def __init__(self, *, index: int | None = None, uuid: Any = None, pci_bus_id: Any = None) -> None:
        if index not in (None, 0):
            raise ValueError(f"the emulator is one device, got index={index}")

    index = 0

    @classmethod
    def get_device_count(cls) -> int:
        """Return 1."""
        return 1

    @classmethod
    def get_all_devices(cls) -> list[SystemDevice]:
        """Return the one device in a list."""
        return [cls(index=0)]

    @property
    def name(self) -> str:
        """Name of the emulated device."""
        return str(self.to_cuda_device().name)

    @property
    def uuid(self) -> str:
        """Number of the emulated device."""
        return str(self.to_cuda_device().uuid)

    @property
    def cuda_compute_capability(self) -> tuple[int, int]:
        """Compute capability of the emulated device."""
        major, minor = self.to_cuda_device().compute_capability
        return major, minor

    def to_cuda_device(self) -> Any:
        """Return the device of ``cuda.core``."""
        return Device(0)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"cuda.core.system.Device.{name} asks NVIDIA's driver, and there is none")


class System:
    """The object ``cuda.core.experimental.system`` of old versions."""

    @property
    def driver_version(self) -> tuple[int, ...]:
        """Version of CUDA that the installed bindings are for."""
        return get_user_mode_driver_version()

    @property
    def num_devices(self) -> int:
        """1."""
        return 1

    @property
    def devices(self) -> tuple[Any, ...]:
        """The one device in a tuple."""
        return (Device(0),)
