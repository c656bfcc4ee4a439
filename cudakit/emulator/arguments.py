"""What a Python object is to a kernel on the emulator: as on a GPU, but arrays are in host memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.emulator.resources.tensor_map import EmulatedTensorMap
from cudakit.errors import ArgumentError
from cudakit.types.arguments import Argument, Evidence, describe, texture_handle, torch_dtype

#: DLPack's device types whose memory the host reaches: CPU, pinned.
_HOST_KINDS = (1, 3)


def describe_host(value: Any) -> Argument:
    """Describe an argument of a call on the emulator.

    Arrays are NumPy's, torch's on the CPU, and any object's that exports host memory by DLPack or the array interface.

    Raises
    ------
    ArgumentError
        For an array in device memory, and for what no kernel can take.
    """
    if isinstance(value, EmulatedTensorMap):
        return Argument(value, "object", Evidence("object", "tensor map", text="CUtensorMap"))
    if texture_handle(value) is not None:
        return _texture(value)
    array = as_numpy(value)
    if array is None:
        found = describe(value)
        if found.evidence.text == "CUtensorMap":
            raise ArgumentError(
                "the tensor map is of an array in device memory and this stream is the emulator's; give ck.tensor_map "
                "a NumPy array"
            )
        if found.evidence.kind == "array" or found.family == "buffer":
            raise ArgumentError(
                f"{found.evidence.shown} is in device memory and this stream is the emulator's; give a NumPy array, as "
                "x.get() is"
            )
        return found
    if not array.dtype.isnative:
        raise ArgumentError(
            f"numpy array has dtype {array.dtype.str}, which is not in the device's byte order; convert it with "
            f"x.astype({str(array.dtype.newbyteorder('='))!r})"
        )
    size = max(1, array.dtype.itemsize)
    if any(step % size for step in array.strides):
        raise ArgumentError(
            f"numpy array has strides {array.strides} in bytes, not whole elements of {array.dtype}; copy it"
        )
    library = type(value).__module__.partition(".")[0]
    words = f"{library} array of {array.dtype} with shape {array.shape}"
    evidence = Evidence("array", words, array.dtype, array.ndim, not array.flags.writeable)
    address = int(array.__array_interface__["data"][0])
    strides = tuple(step // size for step in array.strides)
    return Argument(array, "memory", evidence, None, address, array.flags.c_contiguous, array.shape, strides, address)


def _texture(value: Any) -> Argument:
    """A texture or surface, which must be of host memory."""
    if not type(value).__module__.startswith("cudakit.emulator"):
        raise ArgumentError(
            f"{type(value).__name__} is of device memory and this stream is the emulator's; give ck.texture(array) of "
            "a NumPy array"
        )
    return Argument(value, "object", Evidence("scalar", type(value).__name__, np.dtype("u8")))


def as_numpy(value: Any) -> np.ndarray | None:
    """The host array that `value` is or exports, sharing its memory; None for anything else.

    A structured array of no dimensions is a struct, not an array.
    """
    if isinstance(value, np.ndarray):
        return None if value.shape == () and value.dtype.names is not None else value
    if isinstance(value, np.generic):
        return None
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr"):
        return None if value.is_cuda else _of_torch(value)
    if hasattr(value, "__dlpack_device__") and int(value.__dlpack_device__()[0]) in _HOST_KINDS:
        return np.from_dlpack(value)
    return np.asarray(value) if hasattr(value, "__array_interface__") else None


def _of_torch(value: Any) -> np.ndarray:
    """A torch tensor's memory, in types that DLPack's NumPy side lacks (bfloat16, fp8) too."""
    dtype = torch_dtype(value.dtype)
    if dtype is None:
        raise ArgumentError(f"torch tensor has dtype {value.dtype}, which has no C++ equivalent here")
    return np.asarray(_Exported(value, dtype.itemsize)).view(dtype)


class _Exported:
    """A tensor's memory as elements of some bytes each; keeps the tensor alive."""

    def __init__(self, tensor: Any, itemsize: int) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "strides": tuple(step * itemsize for step in tensor.stride()),
            "typestr": f"|V{itemsize}",
            "version": 3,
        }
