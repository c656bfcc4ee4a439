"""Stand-ins for cuda.core's `launch` and LaunchConfig. Each argument is checked against the kernel's parameter."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from cudakit.adapters.cuda_core.memory import Buffer, array_at
from cudakit.adapters.cuda_core.programs import Kernel
from cudakit.adapters.cuda_core.streams import Stream, stream_of
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import Config, config
from cudakit.jit.specialise.specialise import BoundParameter

_CTYPES = {
    ctypes.c_bool: np.bool_, ctypes.c_int8: np.int8, ctypes.c_int16: np.int16, ctypes.c_int32: np.int32,
    ctypes.c_int64: np.int64, ctypes.c_uint8: np.uint8, ctypes.c_uint16: np.uint16, ctypes.c_uint32: np.uint32,
    ctypes.c_uint64: np.uint64, ctypes.c_float: np.float32, ctypes.c_double: np.float64,
}  # fmt: skip
_FIELDS = ("grid", "cluster", "block", "shmem_size", "is_cooperative", "programmatic_stream_serialization")


def _extent(label: str, value: Any) -> tuple[int, int, int]:
    """Return an extent as three numbers from 1 up."""
    sides = (value,) if isinstance(value, int) else value
    if not isinstance(sides, tuple) or not 1 <= len(sides) <= 3:
        raise ValueError(f"{label} is an int or a tuple of one to three ints, got {shortened(value)}")
    if not all(isinstance(side, int) for side in sides):
        raise ValueError(f"{label} is an int or a tuple of ints, got {shortened(value)}")
    if any(side < 1 for side in sides):
        raise ValueError(f"{label} is made of numbers from 1 up, got {shortened(value)}")
    whole = (*sides, 1, 1)
    return whole[0], whole[1], whole[2]


class LaunchConfig:
    """A stand-in for ``cuda.core.LaunchConfig``. With `cluster`, `grid` counts clusters."""

    cluster: tuple[int, int, int] | None

    def __init__(
        self,
        grid: Any = None,
        cluster: Any = None,
        block: Any = None,
        shmem_size: int | None = None,
        is_cooperative: bool = False,
        programmatic_stream_serialization: bool = False,
    ) -> None:
        self.grid: tuple[int, int, int] = _extent("LaunchConfig.grid", grid)
        self.block: tuple[int, int, int] = _extent("LaunchConfig.block", block)
        self.cluster = None if cluster is None else _extent("LaunchConfig.cluster", cluster)
        self.shmem_size: int = shmem_size or 0
        self.is_cooperative = is_cooperative
        self.programmatic_stream_serialization = programmatic_stream_serialization

    def _identity(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in _FIELDS)

    def __repr__(self) -> str:
        return f"LaunchConfig({', '.join(f'{name}={getattr(self, name)}' for name in _FIELDS)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaunchConfig) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    @property
    def checked(self) -> Config:
        """The configuration as cudakit's, whose grid counts blocks."""
        sides = zip(self.grid, self.cluster or (1, 1, 1), strict=True)
        return config(
            tuple(count * blocks for count, blocks in sides), self.block, self.shmem_size, self.cluster,
            bool(self.is_cooperative), bool(self.programmatic_stream_serialization),
        )  # fmt: skip


def launch(stream: Any, config: LaunchConfig, kernel: Kernel, *kernel_args: Any) -> None:
    """Launch a kernel on the emulator, with its arguments checked.

    Parameters
    ----------
    stream : Stream, GraphBuilder or object with ``__cuda_stream__``
        Stream to launch on; a graph builder records the launch.
    config : LaunchConfig
        Grid and block.
    kernel : Kernel
        Kernel to launch.
    *kernel_args : object
        Buffers and addresses for pointers. Numbers are NumPy's or ctypes' scalars of exactly the parameter's size, or
        Python's: an int for an integer, a float for a double, a bool for a bool, a complex for two doubles.

    Raises
    ------
    TypeError
        For an argument that cuda.core refuses.
    ArgumentError
        For an argument that does not fit its parameter, and for an address in no memory of the device.
    """
    target = stream_of(stream)
    if not isinstance(config, LaunchConfig):
        raise TypeError(f"launch takes a LaunchConfig, got {shortened(config)}")
    if not isinstance(kernel, Kernel):
        raise TypeError(f"launch takes a Kernel, got {shortened(kernel)}")
    if not isinstance(stream, Stream) and hasattr(stream, "__cuda_stream__") and not hasattr(stream, "recorded_stream"):
        warnings.warn(
            "Passing foreign stream objects to this function via the stream protocol is deprecated. Convert the object "
            "explicitly using Stream(obj) instead.",
            DeprecationWarning,
            stacklevel=2,
        )
    parameters = kernel.parameters
    if len(kernel_args) != len(parameters):
        raise ArgumentError(f"launch: {kernel.name} takes {len(parameters)} arguments, got {len(kernel_args)}")
    sizes = [info.size for info in kernel.arguments_info]
    values = [
        _value(f"launch: argument {position} of {kernel.name} ({parameter.cpp})", parameter, size, argument)
        for position, (parameter, size, argument) in enumerate(zip(parameters, sizes, kernel_args, strict=True))
    ]
    kernel.checked(target, config.checked, *values)


def values_of(kernel: Kernel, arguments: Sequence[bytes]) -> list[Any]:
    """Return a launch's arguments, of which the driver has the bytes, as cudakit's kernel takes them."""
    values: list[Any] = []
    for position, (parameter, data) in enumerate(zip(kernel.parameters, arguments, strict=True)):
        where = f"argument {position} of {kernel.name} ({parameter.cpp})"
        is_address = parameter.category == "pointer" or parameter.cpp.rstrip().endswith("*")
        if is_address or (parameter.category == "unknown" and len(data) == 8):
            values.append(_memory(where, parameter, int.from_bytes(data, "little"), not is_address))
        else:
            dtype = parameter.dtype if parameter.category == "scalar" else None
            values.append(np.frombuffer(data, dtype or f"V{len(data)}")[0])
    return values


def _value(where: str, parameter: BoundParameter, size: int, argument: Any) -> Any:
    """Return an argument as cudakit's kernel takes it."""
    if isinstance(argument, Buffer):
        if size != 8:
            raise _refusal(where, "a number", argument)
        return _memory(where, parameter, argument.handle)
    handle = getattr(argument, "_emulated", None)  # of textures, surfaces, tensor maps and graphs' conditions
    if handle is not None:
        is_bytes = hasattr(handle, "data") and hasattr(handle, "array") and parameter.category != "tensor_map"
        return np.void(handle.data) if is_bytes and size == 128 else handle
    if type(argument) in _CTYPES:
        argument = _CTYPES[type(argument)](argument.value)
    if isinstance(argument, ctypes.c_void_p):
        argument = argument.value or 0
    is_address = parameter.category == "pointer" or parameter.cpp.rstrip().endswith("*")
    if isinstance(argument, np.integer) and argument.dtype.itemsize == 8 and size == 8 and is_address:
        argument = int(argument)  # np.intp is an address
    if isinstance(argument, bool):
        argument = np.bool_(argument)
    elif type(argument) is int:
        if is_address or (parameter.category == "unknown" and size == 8):
            return _memory(where, parameter, argument, not is_address)
        return _whole(where, parameter, size, argument)
    elif type(argument) is float:
        argument = np.float64(argument)
    elif type(argument) is complex:
        argument = np.complex128(argument)
    if not isinstance(argument, np.generic) or argument.dtype.kind not in "biufc":
        raise TypeError(
            f"{where}: cuda.core's launch takes Buffers, addresses as ints, and numbers of Python, NumPy or ctypes, "
            f"got {type(argument).__name__}: {shortened(argument)}; for an array give x.data.ptr"
        )
    return _scalar(where, parameter, size, argument)


def _memory(where: str, parameter: BoundParameter, address: int, may_be_number: bool = False) -> Any:
    """Return the memory from an address to the end of its allocation, as an array with the parameter's dtype."""
    if address == 0:
        return np.uint64(0) if may_be_number else None
    array = array_at(address)
    if array is None:
        if may_be_number:
            return np.uint64(address % 2**64)
        raise ArgumentError(
            f"{where}: the address {address:#x} is in no live memory of the device; give a Buffer, or keep the array "
            "alive whose address this was"
        )
    dtype = parameter.dtype if parameter.category == "pointer" else None
    if dtype is None:
        return array
    step = dtype.itemsize * (parameter.count if parameter.category == "pointer" else 1)
    if address % max(1, parameter.alignment):
        raise ArgumentError(f"{where}: the address {address:#x} is no multiple of {parameter.alignment}")
    return array[: array.size // step * step].view(dtype)


def _whole(where: str, parameter: BoundParameter, size: int, number: int) -> Any:
    """Return a Python int as a NumPy scalar of the parameter's size; the GPU reads the low bytes of 8."""
    dtype = parameter.dtype
    if dtype is not None and dtype.kind not in "iu":
        raise _refusal(where, f"np.{dtype.name}({number})", number)
    letters = (dtype.kind,) if dtype is not None else ("i", "u")
    for letter in letters:
        if size in (1, 2, 4, 8):
            scalar_type = np.dtype(f"{letter}{size}").type
            limits = np.iinfo(scalar_type)
            if limits.min <= number <= limits.max:
                return scalar_type(number)
    raise ArgumentError(f"{where}: {number} does not fit in {size} bytes")


def _scalar(where: str, parameter: BoundParameter, size: int, number: Any) -> Any:
    """Return a NumPy scalar, whose bytes the kernel reads as they are."""
    dtype = parameter.dtype if parameter.category == "scalar" else None
    if number.dtype.itemsize != size:
        raise _refusal(where, f"{size} bytes" if dtype is None else f"np.{dtype.name}", number)
    if dtype is not None and number.dtype != dtype:
        whole = {"i", "u"}
        if {number.dtype.kind, dtype.kind} <= whole:
            return number.view(dtype)  # the same bytes
        raise _refusal(where, f"np.{dtype.name}", number)
    if parameter.category == "pointer":
        raise _refusal(where, "an address", number)
    return number


def _refusal(where: str, expected: str, argument: Any) -> ArgumentError:
    size = f" of {argument.dtype.itemsize} bytes" if isinstance(argument, np.generic) else ""
    return ArgumentError(
        f"{where} takes {expected}, got {type(argument).__name__}{size}: {shortened(argument)}; cuda.core would pass "
        "its bytes as they are"
    )
