"""Tensors of torch: as arrays of CuPy's or NumPy's, what tells them apart, their dtypes, and torch's streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudakit.bridges.parameters import library
from cudakit.errors import ArgumentError
from cudakit.streams.order.order import order
from cudakit.types.arguments import torch_dtype
from cudakit.types.host import as_numpy

_dtypes: dict[Any, np.dtype] = {}


def array_of(value: Any) -> Any:
    """CuPy's or NumPy's array of a tensor's memory; any other value as it is."""
    if not hasattr(value, "data_ptr"):
        return value
    if not value.is_cuda:
        return as_numpy(value)
    import cupy

    dtype = dtype_of(value)
    span = sum((extent - 1) * step for extent, step in zip(value.shape, value.stride(), strict=True)) + 1
    memory = cupy.cuda.UnownedMemory(value.data_ptr(), span * dtype.itemsize, value, value.get_device())
    strides = tuple([step * dtype.itemsize for step in value.stride()])
    return cupy.ndarray(tuple(value.shape), dtype, cupy.cuda.MemoryPointer(memory, 0), strides)


def told(value: Any) -> Any:
    """How a tensor lies; the class of a number."""
    return (value.dtype, value.shape, value.stride()) if hasattr(value, "data_ptr") else type(value)


def dtype_of(tensor: Any) -> np.dtype:
    """NumPy's dtype of a tensor's elements.

    Raises
    ------
    ArgumentError
    """
    found = _dtypes.get(tensor.dtype)
    if found is None:
        found = torch_dtype(tensor.dtype)
        if found is None:
            raise ArgumentError(f"torch tensor has dtype {tensor.dtype}, which has no C++ equivalent here")
        _dtypes[tensor.dtype] = found
    return found


def dtype_in_torch(dtype: np.dtype) -> Any:
    """The dtype of torch's for NumPy's.

    Raises
    ------
    ArgumentError
    """
    torch = library("torch", "a dtype", "pip install torch")
    found = getattr(torch, dtype.name, None)
    if not isinstance(found, torch.dtype):
        raise ArgumentError(f"torch has no dtype {dtype}")
    return found


def kind_of(value: Any) -> np.dtype | type:
    """A tensor's dtype, or a number's class, torch's symbols too."""
    if hasattr(value, "data_ptr"):
        return dtype_of(value)
    kind: type = type(value)
    return {"SymInt": int, "SymFloat": float, "SymBool": bool}.get(kind.__name__, kind)


def _start(value: Any) -> int:
    """Where the memory of a tensor of torch or an array of CuPy begins; -1 of anything else."""
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    return int(getattr(getattr(value, "data", None), "ptr", -1))


class Streams:
    """Streams of torch's, one object each, so that launches know them."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._current = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        #: Whether torch's current stream, of its current device, is being captured.
        self.is_captured: Callable[[], bool] = torch.cuda.is_current_stream_capturing
        self._known: dict[tuple[int, int], Any] = {}
        self._several: bool | None = None
        #: Whether torch has worked on another stream than its default one, as far as ops have seen.
        self.are_several: bool = False

    def are_elsewhere(self, device: int) -> bool:
        """Whether a device is another than torch's current one."""
        if self._several is None:
            self._several = self._torch.cuda.device_count() > 1
        return self._several and device != self._torch.cuda.current_device()

    def of(self, device: int) -> Any:
        """The stream that torch works on now, on a device."""
        assert self._current is not None  # there are tensors on a GPU
        key = device, self._current(device)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._torch.cuda.current_stream(device)
            self.are_several = self.are_several or key[1] != 0
        return found

    def take_over(self, stream: Any, tensors: Sequence[Any]) -> None:
        """Let torch's allocator keep tensors' memory until a stream is done with it.

        Any tensor may be of another stream's pool, whether or not cudakit has seen it there. A tensor that an op holds
        beyond its call is a leak to torch, in a pool of CUDA graphs for one: where cudakit holds them, it lets go.
        Memory of others, which torch's allocator does not know, stays held.
        """
        for tensor in tensors:
            tensor.record_stream(stream)  # which passes over memory that is not the allocator's, or is the stream's
        spans: list[tuple[int, int]] = []

        def still(things: Any) -> Any:
            if type(things) is not tuple:
                return things
            if not spans:
                for tensor in tensors:
                    storage = tensor.untyped_storage()
                    if storage.resizable():  # torch's allocator's own
                        spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            return tuple([each for each in things if not any(first <= _start(each) < last for first, last in spans)])

        order().hand_over(stream, still)
