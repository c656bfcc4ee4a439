"""Stand-ins for ``cuda.core.utils``: views of memory, which know the emulator's device memory."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from cudakit.adapters.cuda_core.faults import CoreError
from cudakit.adapters.cuda_core.memory import Buffer, array_at
from cudakit.adapters.cuda_core.parts import parts
from cudakit.adapters.cuda_core.streams import stream_of
from cudakit.emulator.face import DeviceArray, as_device, room
from cudakit.errors import shortened
from cudakit.memory import memory
from cudakit.types.arguments import pointer_of


class StridedMemoryView:
    """A stand-in for ``cuda.core.utils.StridedMemoryView``."""

    exporting_obj: Any

    def __init__(self, obj: Any = None, stream_ptr: Any = None) -> None:
        warnings.warn(
            "Constructing a StridedMemoryView directly is deprecated; use StridedMemoryView.from_any_interface(obj, "
            "stream_ptr=…)",
            DeprecationWarning,
            stacklevel=2,
        )
        _require_stream(stream_ptr)
        self._take(obj, _host(obj))

    _itemsize: int | None = None
    _given_layout: Any = None

    @property
    def _layout(self) -> Any:
        return self._given_layout or _layout_of(self.shape, self.strides, self._array.itemsize)

    def _take(self, obj: Any, array: np.ndarray) -> None:
        self.exporting_obj, self._array = obj, array
        self.readonly: bool = not array.flags.writeable
        self.ptr: int = pointer_of(array)
        is_of_device = isinstance(obj, DeviceArray | Buffer) or _is_described(obj)
        self.is_device_accessible: bool = is_of_device or (array.nbytes > 0 and room().at(self.ptr) is not None)
        self.device_id = 0 if is_of_device else -1

    @classmethod
    def _of(cls, obj: Any, array: np.ndarray | None = None) -> Any:
        view = super().__new__(cls)
        view._take(obj, _host(obj) if array is None else array)
        return view

    @property
    def dtype(self) -> np.dtype | None:
        """Dtype of the elements; None if only their size is known."""
        return None if self._itemsize is not None else self._array.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._array.size

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of elements along each axis."""
        return self._array.shape

    @property
    def strides(self) -> tuple[int, ...] | None:
        """Strides in elements; None for elements in C order without gaps, unless they were given."""
        if self._given_layout is not None:
            strides: tuple[int, ...] | None = self._given_layout.strides
            return strides
        if self._array.flags.c_contiguous:
            return None
        return tuple(step // max(1, self._array.itemsize) for step in self._array.strides)

    def view(self, layout: Any = None, dtype: Any = None) -> Any:
        """Return a view of the same memory with another layout or dtype."""
        element = np.dtype(dtype or self._array.dtype)
        if layout is None:
            return self._of(self.exporting_obj, self._array.view(element))
        steps = [step * layout.itemsize for step in layout.strides or ()] or None
        address = self.ptr + layout.slice_offset_in_bytes
        interface = {"shape": tuple(layout.shape), "strides": steps and tuple(steps), "typestr": element.str}
        view = self._of(self.exporting_obj, _array_of(self._array, interface, address, self.readonly))
        view._given_layout = layout
        return view

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0) if self.device_id == 0 else (1, 0)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        keywords = {} if max_version is None else {"max_version": max_version}
        return self._array.__dlpack__(**keywords)

    def elements(self) -> np.ndarray:
        """Return the memory as an array."""
        return self._array

    def device_array(self) -> Any:
        """Return the memory as an array, for the stand-in of CuPy."""
        return as_device(self._array)

    def __repr__(self) -> str:
        names = ("ptr", "shape", "strides", "dtype", "device_id", "is_device_accessible", "readonly")
        return f"StridedMemoryView({', '.join(f'{name}={getattr(self, name)}' for name in names)})"

    @classmethod
    def from_any_interface(cls, obj: Any, stream_ptr: Any = None) -> StridedMemoryView:
        """Return a view of any array, or of a buffer."""
        _require_stream(stream_ptr)
        view: StridedMemoryView = cls._of(obj)
        return view

    from_dlpack = from_any_interface
    from_cuda_array_interface = from_any_interface

    @classmethod
    def from_array_interface(cls, obj: Any) -> StridedMemoryView:
        """Return a view of an array of the host."""
        view: StridedMemoryView = cls._of(obj)
        view.device_id = 0  # as cuda.core: the current device
        return view

    @classmethod
    def from_buffer(
        cls,
        buffer: Buffer,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        *,
        itemsize: int | None = None,
        dtype: Any = None,
        is_readonly: bool = False,
    ) -> StridedMemoryView:
        """Return a view of a buffer; strides are in elements."""
        if dtype is None and itemsize is None:
            raise ValueError("from_buffer: itemsize or dtype must be specified")
        element = np.dtype(dtype if dtype is not None else f"V{itemsize}")
        if itemsize is not None and itemsize != element.itemsize:
            raise ValueError(f"itemsize ({itemsize}) does not match dtype.itemsize ({element.itemsize})")
        bytes_of_it = np.asarray(buffer.device_array().view(np.ndarray))
        steps = None if strides is None else tuple(step * element.itemsize for step in strides)
        try:
            array = np.ndarray(shape, element, bytes_of_it, 0, steps)
        except (TypeError, ValueError) as error:
            raise ValueError(f"from_buffer: a view of {shape} {element} does not fit in {buffer.size} bytes") from error
        array.flags.writeable = not is_readonly
        view: StridedMemoryView = cls._of(buffer, array)
        view._itemsize = itemsize if dtype is None else None
        if strides is not None:
            view._given_layout = _layout_of(shape, strides, element.itemsize)
        return view

    def copy_from(self, other: Any, stream: Any, allocator: Any = None, blocking: Any = None) -> None:
        """Copy from another view of the same shape and dtype."""
        memory.copy(self._array, other._array, stream_of(stream, "copy_from"))

    def copy_to(self, other: Any, stream: Any = None, allocator: Any = None, blocking: Any = None) -> None:
        """Copy to another view of the same shape and dtype."""
        memory.copy(other._array, self._array, stream_of(stream, "copy_to"))

    def as_tensor_map(self, *arguments: Any, **keywords: Any) -> Any:
        """Return a tensor map of the view, for copies of boxes (TMA)."""
        return parts.TensorMapDescriptor.of_elements(self._array, *arguments, **keywords)


def _layout_of(shape: Sequence[int], strides: Sequence[int] | None, itemsize: int) -> Any:
    layout: Any = vars(importlib.import_module("cuda.core._layout"))["_StridedLayout"]  # it has no public name
    return layout(tuple(shape), None if strides is None else tuple(strides), itemsize)


def _require_stream(stream_ptr: Any) -> None:
    if stream_ptr is None:
        raise BufferError("stream=None is ambiguous with view(); pass a stream's handle, or -1 for no order")


def _host(obj: Any) -> np.ndarray:
    """Return an object's memory as a NumPy array."""
    if isinstance(obj, Buffer):
        return np.asarray(obj.device_array().view(np.ndarray))
    if isinstance(obj, np.ndarray):
        array: np.ndarray = obj.view(np.ndarray)
        if isinstance(obj, DeviceArray) and obj.nbytes and room().at(pointer_of(obj)) is None:
            _ = obj.data  # kernels reach the memory by its address from now on
        return array
    if _is_described(obj):
        return _described(obj)
    if hasattr(obj, "__array_interface__"):
        return np.asarray(obj)
    if hasattr(obj, "__dlpack__"):
        return np.from_dlpack(obj)
    raise CoreError(f"the memory of {type(obj).__name__} is not the host's nor the emulator's: {shortened(obj)}")


def _is_described(obj: Any) -> bool:
    """Return whether an object of another library says by ``__cuda_array_interface__`` where its memory is."""
    return not isinstance(obj, np.ndarray) and hasattr(obj, "__cuda_array_interface__")


def _described(obj: Any) -> np.ndarray:
    """Return the device's memory that an object describes, as an array that keeps the object alive.

    Raises
    ------
    CoreError
        If the device has no memory there.
    """
    interface = dict(obj.__cuda_array_interface__)
    address, is_read_only = interface["data"]
    if address and 0 not in interface["shape"] and array_at(address) is None:
        raise CoreError(
            f"the address {address:#x} of {type(obj).__name__} is in no live memory of the device: {shortened(obj)}"
        )
    if not address or 0 in interface["shape"]:
        return np.empty(interface["shape"], interface["typestr"])
    return _array_of(obj, interface, address, is_read_only)


def _array_of(owner: Any, interface: Mapping[str, Any], address: int, is_read_only: bool) -> np.ndarray:
    """Return an array of memory at an address, which `owner` keeps alive, with an interface's shape and strides."""
    described = {key: interface[key] for key in ("shape", "typestr", "strides") if key in interface}
    data = {**described, "data": (address, is_read_only), "version": 3}
    return np.asarray(SimpleNamespace(owner=owner, __array_interface__=data))


class Proxy:
    """An argument of a function that views its memory, as `args_viewable_as_strided_memory` passes it."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj
        self.has_dlpack: bool = hasattr(obj, "__dlpack__")

    def view(self, stream_ptr: Any = None) -> StridedMemoryView:
        """Return the view of the argument's memory."""
        return StridedMemoryView.from_any_interface(self.obj, stream_ptr)


def args_viewable_as_strided_memory(arg_indices: Sequence[int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that passes arguments, by their positions, as objects with a method `view`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            viewed = [Proxy(value) if place in arg_indices else value for place, value in enumerate(arguments)]
            return function(*viewed, **keywords)

        return call

    return decorate


def copy_batch(stream: Any, srcs: Sequence[Buffer], dsts: Sequence[Buffer], *, options: Any = None) -> None:
    """Copy buffers to buffers, one after the other."""
    if len(srcs) != len(dsts):
        raise ValueError(f"copy_batch takes as many targets as sources, got {len(dsts)} and {len(srcs)}")
    for source, target in zip(srcs, dsts, strict=True):
        target.copy_from(source, stream=stream)


def prefetch_batch(*arguments: Any, **keywords: Any) -> None:
    """Do nothing: memory of the emulator is in one place, and discarded memory may keep its content."""


discard_batch = prefetch_batch
discard_prefetch_batch = prefetch_batch
