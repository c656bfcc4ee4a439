"""Arrays that other objects export, by the array interfaces and DLPack: broken descriptions are refused before use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, CudakitError, shortened, told

_MOST = 2**63 - 1


def described(value: Any, protocol: str) -> Mapping[str, Any]:
    """What an object says of its memory by ``__array_interface__`` or ``__cuda_array_interface__``, checked.

    Raises
    ------
    ArgumentError
        Naming the field that is missing or wrong.
    """
    try:
        found = getattr(value, protocol)
    except Exception as error:
        raise _broken(value, protocol, f"it raises {type(error).__name__}: {told(error)}") from error
    if not isinstance(found, Mapping):
        raise _broken(value, protocol, f"it is a dict, got {shortened(found)}")
    for field in ("shape", "typestr", *(["data"] if protocol == "__cuda_array_interface__" else [])):
        if field not in found:
            raise _broken(value, protocol, f"{field!r} is missing")
    shape, data, strides = found["shape"], found.get("data"), found.get("strides")
    if not isinstance(shape, tuple) or not all(_is_whole(extent, 0) for extent in shape):
        raise _broken(value, protocol, f"'shape' is a tuple of ints from 0 up, got {shortened(shape)}")
    if strides is not None and (
        not isinstance(strides, tuple | list)
        or len(strides) != len(shape)
        or not all(_is_whole(step, -_MOST) for step in strides)
    ):
        raise _broken(value, protocol, f"'strides' is None or an int for each axis, in bytes, got {shortened(strides)}")
    try:
        if not isinstance(found["typestr"], str | np.dtype):
            raise TypeError("not a str")
        np.dtype(found["typestr"])
    except Exception:
        raise _broken(value, protocol, f"'typestr' is as '<f4', got {shortened(found['typestr'])}") from None
    # Host memory may also be told of by the buffer protocol.
    if isinstance(data, tuple) or protocol == "__cuda_array_interface__":
        if not isinstance(data, tuple) or len(data) != 2:
            raise _broken(value, protocol, f"'data' is (address, whether it is read-only), got {shortened(data)}")
        address, is_host = data[0], protocol == "__array_interface__"
        # A kernel may take a null pointer; what is in host memory is read.
        least = int(is_host and 0 not in shape)
        if not ((address is None and 0 in shape) or _is_whole(address, least)):
            raise _broken(value, protocol, f"its address is a number from {least} up, got {shortened(address)}")
    return found


@contextlib.contextmanager
def exporting(value: Any, protocol: str) -> Iterator[None]:
    """A block that takes an object's memory, in which what it raises is told as an error of cudakit's."""
    try:
        yield
    except CudakitError:
        raise
    except Exception as error:
        text = told(error)
        if "InsufficientDriver" in text or "driver library" in text:
            raise ArgumentError(
                f"{type(value).__name__} is in device memory, and there is no CUDA driver here; give a NumPy array"
            ) from error
        if any("CUDA" in kind.__name__ for kind in type(error).__mro__):
            raise  # the driver's own, such as a lost context
        raise _broken(value, protocol, f"it raises {type(error).__name__}: {told(error)}") from error


def device_array_of(value: Any) -> Any:
    """The CuPy array of an object in device memory, sharing it.

    Raises
    ------
    ArgumentError
    """
    import cupy  # whoever has such an object mostly has it loaded

    if hasattr(value, "__cuda_array_interface__"):
        described(value, "__cuda_array_interface__")
        with exporting(value, "__cuda_array_interface__"):
            return cupy.asarray(value)
    with exporting(value, "__dlpack__"):
        return cupy.from_dlpack(value)


def dlpack_device(value: Any) -> int:
    """The type of device that DLPack has for an object's memory.

    Raises
    ------
    ArgumentError
    """
    with exporting(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0])


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= int(value) <= _MOST


def _broken(value: Any, protocol: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"{type(value).__name__} cannot be used as an array, its {protocol} is broken: {why}; give a NumPy or a CuPy "
        "array in its place"
    )
