"""Arrays in host memory, whichever library they are of."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.types.arguments import torch_dtype
from cudakit.types.exports import described, dlpack_device, exporting
from cudakit.types.scalars import is_masked

#: DLPack's device types whose memory the host reaches: CPU, pinned.
_HOST_KINDS = (1, 3)


def as_numpy(value: Any) -> np.ndarray | None:
    """The host array that `value` is or exports, sharing its memory; None for anything else.

    A structured array of no dimensions is a struct, not an array.

    Raises
    ------
    ArgumentError
        For a masked array.
    """
    if isinstance(value, np.ndarray):
        refuse_masked(value)
        return None if value.shape == () and value.dtype.names is not None else value
    if isinstance(value, np.generic):
        return None
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr"):
        return None if value.is_cuda else _of_torch(value)
    if _has(value, "__dlpack_device__") and dlpack_device(value) in _HOST_KINDS:
        with exporting(value, "__dlpack__"):
            return np.from_dlpack(value)
    if not _has(value, "__array_interface__"):
        return None
    described(value, "__array_interface__")
    with exporting(value, "__array_interface__"):
        return np.asarray(value)


def _has(value: Any, name: str) -> bool:
    """Whether an object has an attribute; one whose attributes raise has none."""
    try:
        return hasattr(value, name)
    except Exception:
        return False


def pointer_of(array: np.ndarray) -> int:
    """Where an array's first element lies, as ``array.ctypes.data`` has it, in a quarter of the time.

    It is what NumPy's ABI has first behind an object's head (``PyArrayObject_fields``, ndarraytypes.h).
    """
    return ctypes.c_void_p.from_address(id(array) + object.__basicsize__).value or 0


def refuse_masked(array: Any) -> None:
    """Raise for a masked array: no kernel knows its mask, and what lies under it would be read as data.

    Raises
    ------
    ArgumentError
    """
    if type(array) is not np.ndarray and is_masked(array):
        raise ArgumentError(
            "a masked array's mask would be lost; give x.filled(value), x.compressed(), or x.data and the mask as "
            "another array"
        )


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
