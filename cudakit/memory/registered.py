"""Host arrays that exist already, page-locked: devices copy from and to them by themselves, and kernels reach them."""

from __future__ import annotations

import weakref

import numpy as np

from cudakit.errors import ArgumentError, LaunchError
from cudakit.memory.accounting import tell_emulator
from cudakit.memory.checks import host_array
from cudakit.streams import devices
from cudakit.types.arguments import count_registered


class Registered:
    """An array's memory, page-locked until `close`, the end of a ``with``, or until nobody refers to this.

    Attributes
    ----------
    array : numpy.ndarray
    """

    def __init__(self, array: np.ndarray, address: int | None) -> None:
        self.array = array
        self._end = None if address is None else weakref.finalize(self, _unlock, address, array)

    def close(self) -> None:
        """Give the memory back to the host's paging, once all devices are through with it; once is enough."""
        if self._end is not None:
            self._end()

    def __enter__(self) -> np.ndarray:
        return self.array

    def __exit__(self, *_: object) -> None:
        self.close()


def register(array: np.ndarray) -> Registered:
    """Page-lock the memory of a host array where it is.

    Copies from and to it are then what they are for ``ck.empty(kind="pinned")``: straight and asynchronous. Kernels on
    a GPU take the array as it is, and read and write it over the bus. To lock takes about a millisecond for some MiB:
    it is for arrays that another library has made, and that are used often. Where there is no GPU nothing is locked.

    Parameters
    ----------
    array : numpy.ndarray
        Writable, of any strides; the whole extent of its elements is locked. Keep it as it is meanwhile.

    Returns
    -------
    Registered
        For ``with``, which gives the array; or to be kept, and closed. It waits for all that the GPUs were given before
        it unlocks.

    Raises
    ------
    ArgumentError
        For what is no host array, is empty or read-only.
    LaunchError
        Where the driver does not lock it: a part is locked already, or there is too much.

    Examples
    --------
    >>> with ck.memory.register(frame):
    ...     x = ck.to_device(frame, stream)
    """
    host = host_array("register", "array", array)
    if not host.flags.writeable:
        raise ArgumentError("register: array is read-only, and devices may write to what is page-locked; give a copy")
    if not host.nbytes:
        raise ArgumentError("register: array is empty")
    if not devices.has_gpu():
        tell_emulator(host)
        return Registered(host, None)
    from cuda.bindings import driver

    devices.current_device()
    low, high = np.lib.array_utils.byte_bounds(host)
    flags = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
    (status,) = driver.cuMemHostRegister(low, high - low, flags)
    if int(status) != 0:
        hint = "; a part of it is page-locked already" if "ALREADY" in status.name else ""
        raise LaunchError(f"register: the driver does not page-lock {high - low:,} bytes: {status.name}{hint}")
    count_registered(1)
    return Registered(host, low)


def _unlock(address: int, array: np.ndarray) -> None:
    """Unlock memory that `array` holds, after all that may use it."""
    from cuda.bindings import driver

    for device_id in range(devices.device_count()):
        with devices.on_device(device_id):
            devices.current_device().sync()
    driver.cuMemHostUnregister(address)
    count_registered(-1)
