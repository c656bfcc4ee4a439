"""A context on the first device, made at import."""

from __future__ import annotations

from cudakit.adapters.pycuda import driver  # programs use pycuda.driver after this import alone
from cudakit.adapters.pycuda.contexts import Context, Device, make_default_context

__all__ = ["context", "device", "driver"]

context: Context = make_default_context()
device: Device = context.get_device()
