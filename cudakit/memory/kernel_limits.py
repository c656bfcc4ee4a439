"""What kernels may take of a device's memory beside the arrays that they are given: the stack and the heap."""

from __future__ import annotations

from typing import Any

from cudakit.errors import LaunchError
from cudakit.streams import devices


def set_kernel_limit(size: int | None, kind: str) -> int:
    """Set a limit of the current device and of the emulator's; the former, in bytes.

    Parameters
    ----------
    size : int or None
        None: what a device has at first.
    kind : {"stack", "heap"}

    Raises
    ------
    LaunchError
        Where the device refuses it: a heap cannot change once that kernels hold memory of it.
    """
    from cudakit.emulator.face import device_limits

    emulated = device_limits()
    if kind == "stack":
        former = emulated.stack_bytes
        wanted = emulated.stack_bytes = emulated.default_of(kind) if size is None else size
    else:
        former = emulated.heap_bytes
        wanted = emulated.default_of(kind) if size is None else size
        emulated.set_heap_bytes(wanted)
    return _set_on_device(wanted, kind) if devices.has_gpu() else former


def _set_on_device(size: int, kind: str) -> int:
    from cuda.bindings import driver

    devices.current_device()
    limits: Any = driver.CUlimit
    limit = limits.CU_LIMIT_STACK_SIZE if kind == "stack" else limits.CU_LIMIT_MALLOC_HEAP_SIZE
    status, former = driver.cuCtxGetLimit(limit)
    if int(status) == 0:
        (status,) = driver.cuCtxSetLimit(limit, size)
    if int(status) != 0:
        raise LaunchError(f"the device refuses a {kind} of {size:,} bytes: {status.name}")
    return int(former)
