"""What the device of a stream can do, a GPU or the emulator's."""

from __future__ import annotations

from typing import Any

from cudakit.jit.load.limits import Limits
from cudakit.streams import devices
from cudakit.streams.streams import EMULATED_ARCH, is_emulated, known


def device_limits(stream: Any = None) -> Limits:
    """Name, arch and launch limits of a stream's device.

    Parameters
    ----------
    stream : stream, optional
        Default: the current GPU, or the emulator where there is none.

    Returns
    -------
    Limits
        ``name``, ``arch``, ``compute_capability``, ``multiprocessors``, and what one launch may have at most:
        ``threads_per_block``, ``block`` and ``grid`` by axis, ``shared_bytes`` a block.
    """
    if is_emulated(stream) or (stream is None and not devices.has_gpu()):
        from cudakit.emulator.launch import limits_of

        return limits_of(stream.arch if stream is not None else EMULATED_ARCH)
    return devices.limits(devices.current_device().device_id if stream is None else known(stream).device_id)
