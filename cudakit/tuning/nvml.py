"""NVML, the library of a GPU's meters: its energy since the driver's start, and the clock of its multiprocessors."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from cudakit.errors import CudakitError
from cudakit.places import DEVICES, place_of

#: NVML's number for the clock of the multiprocessors.
_SM = 1


class Meter(NamedTuple):
    """The meters of a GPU.

    Attributes
    ----------
    energy_mj : callable
        Function that returns the energy of the whole card since the driver's start, in millijoules.
    clock_mhz : callable
        Function that returns the clock of the multiprocessors, in MHz.
    """

    energy_mj: Callable[[], int]
    clock_mhz: Callable[[], int]


def meter_of(stream: Any) -> Meter:
    """Return the meters of a stream's GPU.

    Raises
    ------
    CudakitError
        There are no bindings of NVML, or NVML does not know the GPU.
    """
    device = getattr(stream, "device", None)
    if device is None:
        from cuda.core import Device

        device = Device()
    reasons = []
    for source in (_of_bindings, _of_package):
        try:
            return source(device.pci_bus_id)
        except Exception as error:  # no such module, no library, or an error of NVML
            reasons.append(f"{type(error).__name__}: {error}")
    raise CudakitError(
        f"the GPU's meters are read by NVML, which does not answer ({'; '.join(reasons)}); if its bindings are "
        "missing, install them with: pip install nvidia-ml-py"
    )


def _of_bindings(bus: str) -> Meter:
    """Return the meters by cuda-bindings. Older versions have no NVML."""
    nvml = importlib.import_module("cuda.bindings.nvml")
    nvml.init_v2()
    device = nvml.device_get_handle_by_pci_bus_id_v2(bus)
    return Meter(
        functools.partial(nvml.device_get_total_energy_consumption, device),
        functools.partial(nvml.device_get_clock_info, device, _SM),
    )


def _of_package(bus: str) -> Meter:
    """Return the meters by the package nvidia-ml-py."""
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    device = nvml.nvmlDeviceGetHandleByPciBusId(bus)
    return Meter(
        functools.partial(nvml.nvmlDeviceGetTotalEnergyConsumption, device),
        functools.partial(nvml.nvmlDeviceGetClockInfo, device, _SM),
    )


def clock_mhz(stream: Any) -> int | None:
    """Return the clock of a stream's multiprocessors now; None on the emulator, and where NVML does not answer."""
    if place_of(stream) is not DEVICES:
        return None
    try:
        return int(meter_of(stream).clock_mhz())
    except Exception:  # of NVML: a search does not need the clock
        return None
