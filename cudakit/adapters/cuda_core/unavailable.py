"""Stand-ins for classes of cuda.core that need a GPU's driver: making one raises, and says what to use."""

from __future__ import annotations

from typing import Any, NoReturn

from cudakit.adapters.cuda_core.faults import CoreError


class _Unavailable:
    """A class whose constructor raises."""

    _advice = ""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise CoreError(f"cuda.core.{type(self).__name__} needs a GPU's driver; {self._advice}")


class ManagedBuffer(_Unavailable):
    """A stand-in for ``cuda.core.ManagedBuffer``, which raises."""

    _advice = "without one ManagedMemoryResource().allocate(size, stream=stream) gives a Buffer"

    @classmethod
    def from_handle(cls, *arguments: Any, **keywords: Any) -> NoReturn:
        """Raise: the memory would be the driver's."""
        raise CoreError(f"cuda.core.ManagedBuffer.from_handle needs a GPU's driver; {cls._advice}")


class VirtualMemoryResource(_Unavailable):
    """A stand-in for ``cuda.core.VirtualMemoryResource``, which raises."""

    _advice = "without one use DeviceMemoryResource(device)"


class WorkqueueResource(_Unavailable):
    """A stand-in for ``cuda.core.WorkqueueResource``, which raises."""

    _advice = "the emulator has no work queues"
