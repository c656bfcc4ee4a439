"""`stream`: the call with which a program begins. The driver starts in a thread while modules load."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cudakit.collector import without_collector
from cudakit.streams import devices
from cudakit.system import cuda_driver

if TYPE_CHECKING:
    from cuda.core import Stream

    from cudakit.emulator.face import EmulatedStream

#: What loads beside the driver's start: cuda.core, and what a kernel's first two calls load, from a bundle or the disk.
_MODULES = (
    "cuda.core",
    "cudakit.kernel.kernel",
    "cudakit.jit.compile.portable",
    "cudakit.jit.cache.compiling",
    "cudakit.jit.launch.generated",
)
#: The driver's status before it is started.
_NOT_STARTED = 3


def stream() -> Stream | EmulatedStream:
    """Make a stream on the current device, or on the emulator if there is no GPU (a warning says so once).

    The first call of a program starts the driver, which takes tenths of a second. Modules load in that time.

    Returns
    -------
    cuda.core.Stream or cudakit.emulator.EmulatedStream
        The new stream.

    Warns
    -----
    EmulatorWarning
        The first time that there is no GPU and kernels will run on the emulator.

    Raises
    ------
    LaunchError
        In the forked child of a process that has used the GPU.
    """
    if "cuda.core" not in sys.modules or "cudakit.kernel.kernel" not in sys.modules:
        _start_and_load()
    from cudakit import places

    return places.stream()


def _start_and_load() -> None:
    """Start the driver with its first device, and load modules beside it, unless the driver is started or absent.

    The first device is the current one as long as nobody has started the driver. Its primary context is retained up to
    the end of the process. Errors are not raised here, but where the driver or a module is needed.
    """
    driver = None if devices.is_forked() else cuda_driver()
    if driver is None or driver.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) != _NOT_STARTED:
        return
    thread = threading.Thread(target=_start, args=(driver,), name="CUDA starts")
    thread.start()
    try:
        with without_collector(), contextlib.suppress(ImportError, OSError):
            for name in _MODULES:
                import_module(name)
            from cudakit.jit.source import headers

            headers.compiler_wheels()  # the key of code on disk has them, and the folders of packages are long
    finally:
        thread.join()


def _start(driver: Any) -> None:
    if driver.cuInit(0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
