"""Variables of a module where it is loaded, by the names that the compiler gave them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from cudakit.errors import LaunchError
from cudakit.streams import devices
from cudakit.streams.streams import as_stream

if TYPE_CHECKING:
    from cuda.core import ObjectCode


class Variables(Protocol):
    """The variables of a module where it runs."""

    def names(self) -> list[str]:
        """Those of all variables."""

    def address(self, name: str) -> tuple[int, int]:
        """Where a variable lies there, and its bytes."""

    def read(self, name: str, stream: Any) -> np.ndarray:
        """The bytes of a variable, after the work of a stream; None: of all."""

    def write(self, name: str, data: np.ndarray, stream: Any) -> None:
        """Set a variable to as many bytes as it has, after the work of a stream; None: of all."""


class DeviceVariables(NamedTuple):
    """Those of code on a device."""

    code: ObjectCode

    def names(self) -> list[str]:
        return []

    def address(self, name: str) -> tuple[int, int]:
        from cuda.bindings import driver

        devices.make_current()
        library = driver.CUlibrary(int(self.code.handle))
        status, pointer, size = driver.cuLibraryGetGlobal(library, name.encode())
        if int(status) != 0:
            raise LaunchError(f"the driver does not find the variable ({name}): {status.name}")
        return int(pointer), int(size)

    def read(self, name: str, stream: Any) -> np.ndarray:
        pointer, size = self.address(name)
        out = np.empty(size, np.uint8)
        _copy("cuMemcpyDtoH", stream, out.ctypes.data, pointer, size)
        return out

    def write(self, name: str, data: np.ndarray, stream: Any) -> None:
        pointer, size = self.address(name)
        _copy("cuMemcpyHtoD", stream, pointer, data.ctypes.data, size)


def _copy(function: str, stream: Any, target: int, source: int, size: int) -> None:
    from cuda.bindings import driver

    if stream is None:
        # A copy from pageable memory may be under way when the driver returns, and is for all streams.
        steps = (driver.cuCtxSynchronize, lambda: getattr(driver, function)(target, source, size))
        statuses = [step()[0] for step in (*steps, driver.cuCtxSynchronize)]
    else:
        core = as_stream(stream)
        statuses = [getattr(driver, f"{function}Async")(target, source, size, driver.CUstream(int(core.handle)))[0]]
        # The host memory is this function's own: it must not go before the copy has been made.
        core.sync()
    for status in statuses:
        if int(status) != 0:
            raise LaunchError(f"copying a variable failed: {status.name}")
