"""The primary context of the first device, pushed at import."""

from __future__ import annotations

from cudakit.adapters.pycuda import driver  # programs use pycuda.driver after this import alone
from cudakit.adapters.pycuda.contexts import Context, Device, make_default_context

__all__ = ["context", "device", "driver"]


def _primary(device: Device) -> Context:
    context = device.retain_primary_context()
    context.push()
    return context


context: Context = make_default_context(_primary)
device: Device = context.get_device()
