"""Variables of a module where it is loaded, by the names that the compiler gave them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from cudakit.errors import LaunchError
from cudakit.jit.compile.elf import common_name
from cudakit.streams import devices
from cudakit.streams.streams import as_stream

if TYPE_CHECKING:
    from cuda.core import ObjectCode


class Variables(Protocol):
    """The variables of a module where it runs."""

    def names(self) -> Collection[str]:
        """Those of all variables."""

    def address(self, name: str) -> tuple[int, int]:
        """Where a variable lies there, and its bytes."""

    def read(self, name: str, stream: Any) -> np.ndarray:
        """The bytes of a variable, after the work of a stream; None: of all."""

    def write(self, name: str, data: np.ndarray, stream: Any) -> None:
        """Set a variable to as many bytes as it has, after the work of a stream; None: of all."""


class DeviceVariables(NamedTuple):
    """Those of code on the current device; `known` are their names."""

    code: ObjectCode
    known: tuple[str, ...]

    def names(self) -> tuple[str, ...]:
        return self.known

    def address(self, name: str) -> tuple[int, int]:
        from cuda.bindings import driver

        if self.known.count(name) > 1:
            from cudakit.jit.compile.elf import variable_name

            raise LaunchError(f"several linked texts have a variable {variable_name(name)}: rename all but one")
        devices.make_current()
        library = driver.CUlibrary(int(self.code.handle))
        for find in (driver.cuLibraryGetGlobal, driver.cuLibraryGetManaged):
            status, pointer, size = find(library, name.encode())
            if int(status) == 0:
                return int(pointer), int(size)
        from cudakit.jit.compile.elf import variable_name

        raise LaunchError(f"the driver does not find the variable {variable_name(name)} ({name}): {status.name}")

    def read(self, name: str, stream: Any) -> np.ndarray:
        pointer, size = self.address(name)
        out = np.empty(size, np.uint8)
        _copy("cuMemcpyDtoH", stream, out.ctypes.data, pointer, size)
        return out

    def write(self, name: str, data: np.ndarray, stream: Any) -> None:
        pointer, size = self.address(name)
        _copy("cuMemcpyHtoD", stream, pointer, data.ctypes.data, size)


def move(old: Variables, new: Variables) -> None:
    """Give the variables of a module that is loaded anew the values that they had, on the current device.

    Raises
    ------
    LaunchError
        If one cannot be found, or holds the address of one.
    """
    after = {common_name(name): name for name in new.names()}
    if len(after) < len(new.names()):
        raise LaunchError("several linked texts have variables of one name")
    pairs = [(name, after[common_name(name)]) for name in old.names() if common_name(name) in after]
    ranges = sorted((*old.address(name), new.address(other)[0]) for name, other in pairs)
    starts, sizes, targets = (np.array(column, np.uint64) for column in zip(*ranges, strict=True))
    values = []
    for name, other in pairs:
        data, fresh = old.read(name, None), new.read(other, None)
        words, as_initialised = (each[: data.size // 8 * 8].view(np.uint64) for each in (data, fresh))
        owner = np.searchsorted(starts, words, "right") - 1
        offsets = words - starts[owner]
        held = (owner >= 0) & (offsets < sizes[owner])
        moved = targets[owner] + offsets
        # A pointer that is as it was initialised is the new module's; any other may have copies elsewhere.
        if (held & (moved != as_initialised)).any():
            from cudakit.jit.compile.elf import variable_name

            raise LaunchError(f"its variable {variable_name(name)} holds the address of a variable, and these move")
        words[held] = moved[held]
        values.append((other, data))
    for other, data in values:
        new.write(other, data, None)


def _copy(function: str, stream: Any, target: int, source: int, size: int) -> None:
    from cuda.bindings import driver

    if stream is None:
        # A copy from pageable memory may be under way when the driver returns, and is for all streams.
        done = driver.cuCtxSynchronize
        for step in (done, lambda: getattr(driver, function)(target, source, size), done):
            _check(step()[0])  # while anything is captured, the first of them is refused, and nothing is copied
    else:
        core = as_stream(stream)
        _check(getattr(driver, f"{function}Async")(target, source, size, driver.CUstream(int(core.handle)))[0])
        # The host memory is this function's own: it must not go before the copy has been made.
        core.sync()


def _check(status: Any) -> None:
    if int(status) != 0:
        raise LaunchError(f"copying a variable failed: {status.name}")
