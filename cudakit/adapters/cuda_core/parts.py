"""Stand-ins that modules need of modules above them; `cudakit.adapters.cuda_core.stand_ins` fills them in."""

from __future__ import annotations

from typing import Any


class Parts:
    """Stand-ins by name."""

    Device: Any
    CONTEXT: Any
    GraphBuilder: Any
    KernelAttributes: Any
    KernelOccupancy: Any
    SystemDevice: Any
    TensorMapDescriptor: Any


parts: Parts = Parts()
