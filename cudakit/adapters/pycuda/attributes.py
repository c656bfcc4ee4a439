"""Attributes of devices: the driver's, or of the emulator those of an H100."""

from __future__ import annotations

from typing import Any

from cudakit.adapters import emulated_device
from cudakit.adapters.pycuda.enums import compute_mode, device_attribute
from cudakit.adapters.pycuda.errors import call
from cudakit.streams import devices


def attribute_of(number: int, attribute: Any) -> Any:
    """Return an attribute of the device with a number.

    Raises
    ------
    LogicError
        If the driver has no such attribute.
    """
    member = device_attribute(int(attribute))
    if devices.has_gpu():
        from cuda.bindings import driver

        value = int(call("cuDeviceGetAttribute", driver.CUdevice_attribute(int(member)), number))
    else:
        value = emulated_device.attributes().get(member.name.lower(), 0)
    return compute_mode(value) if member.name == "COMPUTE_MODE" else value
