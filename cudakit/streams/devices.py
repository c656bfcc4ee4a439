"""The GPUs of this machine: their number, their limits, and the guard against a forked child."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from cudakit.errors import LaunchError
from cudakit.records import NamedTuple
from cudakit.streams import process

if TYPE_CHECKING:
    from cuda.core import Device

_forked = threading.Event()
_thread = threading.local()


class Limits(NamedTuple):
    """Limits of a device for one launch, in threads, blocks and bytes."""

    name: str
    arch: str
    compute_capability: tuple[int, int]
    threads_per_block: int
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    shared_bytes: int
    multiprocessors: int
    cooperative: bool


@cache
def device_count() -> int:
    """Return the number of GPUs that the driver shows; 0 without a driver or its bindings, as on macOS."""
    try:
        from cuda.bindings import driver

        (status,) = driver.cuInit(0)
        if int(status) != 0:
            return 0
        status, count = driver.cuDeviceGetCount()
    except (ModuleNotFoundError, RuntimeError):
        # Without libcuda the bindings raise a subclass of RuntimeError on the first call.
        return 0
    return int(count) if int(status) == 0 else 0


def has_gpu() -> bool:
    """Return whether a CUDA driver and at least one GPU are here."""
    return device_count() > 0


def require_gpu() -> None:
    """Raise if this process cannot use a GPU.

    Raises
    ------
    LaunchError
        Without a driver or GPU, or in the forked child of a process that has used the GPU.
    """
    if _forked.is_set():
        raise LaunchError(
            "this process was forked from one that has already used the GPU, and CUDA does not survive a fork; start "
            "workers with multiprocessing.get_context('spawn')"
        )
    if not has_gpu():
        raise LaunchError(
            "there is no CUDA driver or no GPU here; kernels can be compiled for a named arch, as in "
            "kernel.compile(arch='sm_90'), and run on the emulator's stream, ck.stream(), with NumPy arrays"
        )
    _watch_forks()


@cache
def _watch_forks() -> None:
    process.in_child(_forked.set)


def is_forked() -> bool:
    """Return whether this process is the forked child of a process that used the GPU."""
    return _forked.is_set()


def current_device() -> Device:
    """Return cuda.core's current device. If there was none, the device and its primary context become current."""
    require_gpu()
    from cuda.core import Device

    device = Device()
    device.set_current()
    return device


@cache
def limits(device_id: int) -> Limits:
    """Return the launch limits of a device."""
    from cuda.core import Device

    device = Device(device_id)
    properties: Any = device.properties
    major, minor = device.compute_capability
    return Limits(
        name=device.name,
        arch=f"sm_{major}{minor}",
        compute_capability=(major, minor),
        threads_per_block=properties.max_threads_per_block,
        block=(properties.max_block_dim_x, properties.max_block_dim_y, properties.max_block_dim_z),
        grid=(properties.max_grid_dim_x, properties.max_grid_dim_y, properties.max_grid_dim_z),
        shared_bytes=properties.max_shared_memory_per_block_optin,
        multiprocessors=properties.multiprocessor_count,
        cooperative=bool(properties.cooperative_launch),
    )


def make_current(device_id: int | None = None) -> bool:
    """Give this thread a current context if it has none. Return whether it had none.

    Events, queries of streams, and launches on the default stream need a current context. Other launches need none.

    Parameters
    ----------
    device_id : int, optional
        Device whose context becomes current. Default: cuda.core's choice, the first device.
    """
    if getattr(_thread, "ready", False):
        return False
    from cuda.bindings import driver
    from cuda.core import Device

    status, context = driver.cuCtxGetCurrent()
    had_none = int(status) != 0 or int(context) == 0
    if had_none:
        Device(device_id).set_current()
    _thread.ready = True
    return had_none


def on_device(device_id: int) -> contextlib.AbstractContextManager[None]:
    """Return a context manager in which a device is current in this thread. It does nothing if there is one device."""
    make_current(device_id)
    return _HERE if device_count() < 2 else _switched(device_id)


#: A context manager that does nothing, made once.
_HERE = contextlib.nullcontext()


@contextlib.contextmanager
def _switched(device_id: int) -> Iterator[None]:
    from cuda.core import Device

    former = Device()
    if former.device_id == device_id:
        yield
        return
    Device(device_id).set_current()
    try:
        yield
    finally:
        former.set_current()
