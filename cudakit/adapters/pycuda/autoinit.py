"""A context on the first device, made at import."""

from __future__ import annotations

from cudakit.adapters.pycuda.contexts import make_default_context

context = make_default_context()
device = context.get_device()
