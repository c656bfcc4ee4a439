"""Where the memory of an array lies, and which streams its library works on: what the order between streams asks.

A view is taken for the bytes from its first element to its last, with those of the gaps between. A raw address is
taken for the whole of the driver's allocation that it points into. A kernel that goes beyond the array that it is given
(around a view, say) touches what nobody is told of: give it the whole array.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cudakit.streams.order.segments import Range
from cudakit.streams.streams import current_streams
from cudakit.types.arguments import Argument, describe, texture_handle

_NOTHING: Range = (0, 0)


def span_of(array: Any) -> Range:
    """First address of an array's memory, and the address after its last; `array` itself where it is such a range."""
    if type(array) is tuple:
        return array
    if array is None:
        return _NOTHING
    library = type(array).__module__.partition(".")[0]
    if library == "cupy" and hasattr(array, "data"):
        return cupy_span(array)
    if library == "torch":
        return torch_span(array)
    if hasattr(array, "__array_interface__"):
        return host_span(np.asarray(array))
    if hasattr(array, "resource") and texture_handle(array) is not None:
        return _texture_span(array.resource.source)
    if hasattr(array, "ResDesc"):
        return _cupy_texture_span(array.ResDesc)
    return argument_span(describe(array))


def cupy_span(array: Any) -> Range:
    """Of a CuPy array."""
    start: int = array.data.ptr
    if array._c_contiguous:
        return start, start + array.nbytes
    return _strided(start, array.shape, array.strides, array.itemsize)


def torch_span(tensor: Any) -> Range:
    """Of a torch tensor."""
    start, size = tensor.data_ptr(), tensor.element_size()
    return _strided(start, tensor.shape, [step * size for step in tensor.stride()], size)


def host_span(array: np.ndarray) -> Range:
    """Of a NumPy array."""
    start: int = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    return _strided(start, array.shape, array.strides, array.itemsize)


def _texture_span(source: Any) -> Range:
    """Of what a texture is made of; an array of the driver's own layout has a number, and no address."""
    start = int(source.handle)
    return start, start + getattr(source, "size", 1)


def _cupy_texture_span(resource: Any) -> Range:
    """Of what a texture of CuPy's is made of, likewise."""
    if resource.arr is not None:
        return span_of(resource.arr)
    return (resource.cuArr.ptr, resource.cuArr.ptr + 1) if resource.cuArr is not None else _NOTHING


def argument_span(argument: Argument) -> Range:
    """Of anything else, as a kernel argument is described."""
    start = argument.pointer
    if argument.family == "buffer":
        return start, start + argument.value.size
    dtype = argument.evidence.dtype
    if argument.evidence.kind == "array" and dtype is not None:
        size = dtype.itemsize
        return _strided(start, argument.shape, [step * size for step in argument.strides], size)
    if argument.evidence.kind == "address":
        return allocation_of(start)
    return _NOTHING


def allocation_of(address: int) -> Range:
    """The driver's allocation that an address is in; the one byte where there is none."""
    if not address:
        return _NOTHING
    from cuda.bindings import driver

    status, start, size = driver.cuMemGetAddressRange(driver.CUdeviceptr(address))
    return (int(start), int(start) + int(size)) if int(status) == 0 else (address, address + 1)


def _strided(start: int, shape: Sequence[int], strides: Sequence[int], size: int) -> Range:
    """From the lowest to the highest element of a view whose element 0 is at `start`; steps in bytes."""
    first = last = start
    for extent, step in zip(shape, strides, strict=True):
        if extent == 0:
            return _NOTHING
        if step < 0:
            first += step * (extent - 1)
        else:
            last += step * (extent - 1)
    return first, last + size


def named_producers(array: Any, handle: int) -> list[int]:
    """Streams that the work on another library's array is on, as it says itself.

    With ``__cuda_array_interface__`` of version 3 it names one; with DLPack alone it makes the stream of the driver's
    number `handle` wait for it when it is asked for the array, which is done here.
    """
    if hasattr(array, "__array_interface__"):
        return []  # host memory
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        named = interface.get("stream")
        return [] if named is None else [int(named)]
    if hasattr(array, "__dlpack__"):
        array.__dlpack__(stream=handle)
    return []


def producers_of(arrays: Iterable[Any], device_id: int, handle: int) -> list[int]:
    """Streams that unseen work on the arrays may be on: the current ones of their libraries, and those they name."""
    libraries: dict[str, None] = {}
    found: list[int] = []
    for array in arrays:
        library = type(array).__module__.partition(".")[0]
        if library in ("cupy", "torch") and library in sys.modules:
            libraries[library] = None
        elif type(array) is not tuple and not hasattr(array, "__array_interface__"):
            found += named_producers(array, handle)
    return current_streams(libraries, device_id) + found
