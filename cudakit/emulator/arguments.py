"""What a Python object is to a kernel on the emulator: as on a GPU, but arrays are in host memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.emulator.resources.texture import EmulatedTensorMap
from cudakit.errors import ArgumentError
from cudakit.types.arguments import Argument, Evidence, as_numpy, describe, passable, texture_handle


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
    passable(array.dtype, "numpy array")
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
            f"{type(value).__name__} is of device memory and this stream is the emulator's; give "
            f"ck.{'surface' if type(value).__name__ == 'SurfaceObject' else 'texture'}(array) of a NumPy array"
        )
    return Argument(value, "object", Evidence("scalar", type(value).__name__, np.dtype("u8")))
