"""`GPUArray`, PyCUDA's array in device memory."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np

from cudakit.adapters.pycuda.allocations import DeviceAllocation, array_at, device_dtype, mem_alloc, set_elements
from cudakit.adapters.pycuda.array_arithmetic import Arithmetic, calculate, check_contiguous, scalar_of, store, work_on
from cudakit.adapters.pycuda.array_layout import (
    Layout,
    dense_strides,
    extents_of,
    of_itemsize,
    packed_strides,
    reshaped,
    select,
)
from cudakit.adapters.pycuda.driver_arrays import dtype_to_array_format
from cudakit.adapters.pycuda.enums import TRSF_READ_AS_INTEGER, array_format
from cudakit.adapters.pycuda.errors import translated
from cudakit.adapters.pycuda.streams import default_stream, finish_all, stream_of
from cudakit.errors import ArgumentError, shortened
from cudakit.memory import memory
from cudakit.places import device_limits

#: Threads of a warp, most threads of a block, and blocks of a multiprocessor, of the launches that PyCUDA plans.
_WARP, _MOST_THREADS, _BLOCKS = 32, 128, 32


def splay(n: int, dev: Any = None) -> tuple[tuple[int, int], tuple[int, int, int]]:
    """Return the grid and the block that PyCUDA launches for `n` elements; `dev` is ignored."""
    most_blocks = _BLOCKS * device_limits().multiprocessors
    warps = max(-(-int(n) // _WARP), 1)
    if warps <= most_blocks:
        return (warps, 1), (_WARP, 1, 1)
    return (most_blocks, 1), (min(-(-warps // most_blocks) * _WARP, _MOST_THREADS), 1, 1)


def _upload(array: Any, host: np.ndarray, stream: Any, wait: bool) -> None:
    """Copy a host array to a device array; `wait` for the copy or not."""
    ordered = stream_of(stream)
    if not host.shape:  # a struct of cudakit's is no array
        array, host = array.reshape(1), host.reshape(1)
    with translated():
        memory.to_device(host, ordered, out=array)
        if wait:
            ordered.sync()


def _download(array: Any, host: np.ndarray, stream: Any, wait: bool) -> None:
    """Copy a device array to a host array; `wait` for all work of the device or not."""
    ordered = stream_of(stream)
    if wait:
        finish_all()
    with translated():
        memory.to_host(array, ordered, out=host, wait=wait)


def _duplicate(target: Any, source: Any, stream: Any = None) -> None:
    """Copy a device array to another one, on a stream."""
    with translated():
        memory.copy(target, source, stream_of(stream))


class GPUArray(Arithmetic):
    """An array in device memory, with PyCUDA's methods.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the array.
    dtype : dtype
        Dtype of the array.
    allocator : callable, optional
        Function of a number of bytes that returns device memory.
    base : object, optional
        Object that owns the memory of `gpudata`.
    gpudata : DeviceAllocation or int, optional
        Memory of the first element. Default: new memory, not initialised.
    strides : tuple of int, optional
        Strides in bytes. Default: contiguous in `order`.
    order : {"C", "F"}
        Memory order.

    Attributes
    ----------
    shape, strides : tuple of int
        Shape, and strides in bytes.
    size, mem_size, nbytes, itemsize : int
        Number of elements (twice), bytes of all elements, bytes of one.
    gpudata : DeviceAllocation, int or None
        Memory of the first element; None for an array without elements.
    """

    __array_priority__ = 100
    __array_ufunc__ = None
    __hash__: None  # type: ignore[assignment]  # arrays are compared by element

    mem_size: int
    strides: tuple[int, ...]
    size: int

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        allocator: Callable[[int], Any] | None = mem_alloc,
        base: Any = None,
        gpudata: Any = None,
        strides: Any = None,
        order: str = "C",
    ) -> None:
        self.shape: tuple[int, ...] = extents_of(shape)
        self.dtype: np.dtype[Any] = device_dtype(dtype)
        self.itemsize: int = self.dtype.itemsize
        self.strides = (
            dense_strides(self.shape, self.itemsize, order) if strides is None else tuple(map(operator.index, strides))
        )
        if len(self.strides) != len(self.shape):
            raise ArgumentError(f"GPUArray: shape {self.shape} and strides {self.strides} differ in length")
        self.size = self.mem_size = math.prod(self.shape)
        self.nbytes: int = self.size * self.itemsize
        self.allocator: Callable[[int], Any] = allocator or mem_alloc
        self.base: Any = base
        self.gpudata: Any = self.allocator(self.nbytes) if gpudata is None and self.size else gpudata

    def device_array(self) -> Any:
        """Return the elements as CuPy's array, or on the emulator as NumPy's."""
        if not self.size:
            return memory.empty(self.shape, self.dtype, stream=default_stream())
        if type(self.gpudata) is not DeviceAllocation:
            return array_at(self.gpudata, self.shape, self.dtype, self.strides)
        views, key = self.gpudata.views, (self.shape, self.dtype, self.strides)
        if key not in views:
            views[key] = array_at(self.gpudata, self.shape, self.dtype, self.strides)
        return views[key]

    def new_like_me(self, dtype: Any = None) -> Self:
        """Return a new array, not initialised, with this shape, memory order and allocator."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        scale = self.strides if self.flags.forc else packed_strides(self)
        strides = [stride * dtype.itemsize // self.itemsize for stride in scale]
        new = type(self)(self.shape, dtype, self.allocator, strides=strides)
        if self.flags.forc:
            new.flags = self.flags
        return new

    def _view(self, layout: Layout, dtype: Any = None) -> GPUArray:
        """Return an array of the same memory."""
        data = None if self.gpudata is None else int(self.gpudata) + layout.offset
        dtype = self.dtype if dtype is None else dtype
        return GPUArray(layout.shape, dtype, self.allocator, base=self, gpudata=data, strides=layout.strides)

    # ── attributes ──

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def ptr(self) -> int:
        """Address of the first element."""
        return int(self.gpudata)

    @property
    def _grid(self) -> tuple[int, int]:
        return splay(self.mem_size)[0]

    @property
    def _block(self) -> tuple[int, int, int]:
        return splay(self.mem_size)[1]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = 0 if self.gpudata is None else int(self.gpudata)
        interface = {"shape": self.shape, "strides": self.strides, "data": (data, False), "typestr": self.dtype.str}
        return interface | {"stream": None, "version": 3}

    def __array__(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise ArgumentError("a GPUArray is in device memory, and NumPy's functions take host arrays: call x.get()")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a GPUArray without axes")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ArgumentError(f"the truth value of a GPUArray of {self.size} elements: call any() or all()")
        return bool(self.get())

    def __str__(self) -> str:
        return str(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __reduce__(self) -> tuple[Any, ...]:
        return to_gpu, (self.get(),)

    # ── copies ──

    def set(self, ary: Any, async_: bool = False, stream: Any = None, **keywords: bool) -> None:
        """Copy a host array, or another GPUArray, of the same shape and dtype into this array.

        Raises
        ------
        ArgumentError
            Size or dtype differ, or it is no array.
        """
        wait = not _is_async(async_, keywords)
        if not isinstance(ary, np.ndarray | np.generic | GPUArray):
            raise ArgumentError(f"GPUArray.set takes a NumPy array, got {type(ary).__name__} {shortened(ary)}")
        if ary.size != self.size:
            raise ArgumentError(f"GPUArray.set: the array has {self.size} elements, and the argument {ary.size}")
        if ary.dtype != self.dtype:
            raise ArgumentError(
                f"GPUArray.set: the array is {self.dtype}, and the argument {ary.dtype}; "
                f"convert it: ary.astype(np.{self.dtype.name})"
            )
        if ary.shape != self.shape:
            warnings.warn(f"GPUArray.set: the argument has another shape, {ary.shape}", stacklevel=2)
            ary = ary.reshape(self.shape)
        if self.size and isinstance(ary, GPUArray):
            _duplicate(self.device_array(), ary.device_array(), stream)
        elif self.size:
            _upload(self.device_array(), np.asanyarray(ary), stream, wait)

    def set_async(self, ary: np.ndarray, stream: Any = None) -> None:
        """Copy a host array into this array on a stream. A pinned array is read when the stream reaches the copy."""
        self.set(ary, async_=True, stream=stream)

    def get(
        self,
        ary: np.ndarray | None = None,
        pagelocked: bool = False,
        async_: bool = False,
        stream: Any = None,
        **keywords: bool,
    ) -> np.ndarray:
        """Copy the elements to a host array and return it: `ary`, or a new one in this array's memory order.

        With `async_` the copy is complete after the stream has been waited for.

        Raises
        ------
        ArgumentError
            Size or dtype of `ary` differ.
        """
        wait = not _is_async(async_, keywords)
        if ary is None:
            order = np.argsort([-stride for stride in packed_strides(self)], kind="stable")
            extents = tuple(self.shape[axis] for axis in order)
            lines = memory.empty(extents, self.dtype, "pinned") if pagelocked else np.empty(extents, self.dtype)
            host = ary = lines.transpose(np.argsort(order))
        else:
            if ary.size != self.size or ary.dtype != self.dtype:
                raise ArgumentError(
                    f"GPUArray.get: {self.size} elements of {self.dtype} are expected, got ary with {ary.size} of "
                    f"{ary.dtype}"
                )
            if ary.shape != self.shape:
                warnings.warn(f"GPUArray.get: ary has another shape, {ary.shape}", DeprecationWarning, stacklevel=2)
            host = ary.reshape(self.shape)
        if self.size:
            _download(self.device_array(), host, stream, wait)
        return ary

    def get_async(self, stream: Any = None, ary: np.ndarray | None = None) -> np.ndarray:
        """Copy the elements to a host array, which is complete after the stream has been waited for."""
        return self.get(ary=ary, async_=True, stream=stream)

    def copy(self) -> GPUArray:
        """Return a copy in new memory, in the same memory order."""
        new = self.new_like_me()
        if self.size:
            _duplicate(new.device_array(), self.device_array())
        return new

    def astype(self, dtype: Any, stream: Any = None) -> GPUArray:
        """Return a copy with elements of another dtype, converted as in C."""
        if np.dtype(dtype) == self.dtype:
            return self.copy()
        return calculate("astype", lambda xp, array: array, (self,), self.new_like_me(dtype), stream)

    def fill(self, value: Any, stream: Any = None) -> GPUArray:
        """Set all elements to a number, or to a record of the array's dtype."""
        check_contiguous("fill", self)
        number = scalar_of("fill", value, self.dtype)
        if not self.size:
            return self
        with work_on(stream) as xp:
            if self.dtype.kind == "V":  # CuPy has no kernels for records
                layout = (*self.shape, self.itemsize), np.uint8, (*self.strides, 1)
                array_at(self.gpudata, *layout)[...] = xp.asarray(np.frombuffer(number.tobytes(), np.uint8))
            else:
                set_elements(self.device_array(), number)
        return self

    # ── views ──

    def __getitem__(self, index: Any) -> GPUArray:
        return self._view(select(Layout(self.shape, self.strides), self.itemsize, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        part = self[index]
        if np.isscalar(value):
            with work_on(None):
                if part.size:
                    part.device_array()[...] = scalar_of("GPUArray[…] = value", value, self.dtype)
            return
        if not isinstance(value, GPUArray | np.ndarray):
            raise ArgumentError(
                f"GPUArray[…] = value: a GPUArray, a host array or a number, got {type(value).__name__}"
            )
        if value.shape != part.shape or value.dtype != part.dtype:
            raise ArgumentError(
                f"GPUArray[…] = value: {part.dtype} of shape {part.shape} is expected, got {value.dtype} of shape "
                f"{value.shape}"
            )
        if part.size:
            if isinstance(value, GPUArray):
                _duplicate(part.device_array(), value.device_array())
            else:
                _upload(part.device_array(), value, None, True)

    def reshape(self, *shape: Any, order: str = "C") -> GPUArray:
        """Return the same memory with another shape. Elements stay at their places in memory, in either order."""
        check_contiguous("reshape", self)
        extents = reshaped(self.size, shape[0] if isinstance(shape[0], tuple | list) else shape)
        strides = dense_strides(extents, self.itemsize, order)
        if extents == self.shape and getattr(self.flags, f"{order.lower()}_contiguous"):
            return self
        return self._view(Layout(extents, strides))

    def ravel(self) -> GPUArray:
        """Return the same memory with one axis."""
        return self.reshape(self.size)

    def view(self, dtype: Any = None) -> GPUArray:
        """Return the same memory as elements of another dtype."""
        dtype = self.dtype if dtype is None else np.dtype(dtype)
        return self._view(of_itemsize(Layout(self.shape, self.strides), self.itemsize, dtype.itemsize), dtype)

    def squeeze(self) -> GPUArray:
        """Return the same memory without the axes of one element."""
        axes = [axis for axis, extent in enumerate(self.shape) if extent != 1]
        return self._view(Layout(tuple(self.shape[axis] for axis in axes), tuple(self.strides[axis] for axis in axes)))

    def transpose(self, axes: Any = None) -> GPUArray:
        """Return the same memory with its axes in another order. Default: reversed."""
        axes = list(range(self.ndim))[::-1] if axes is None else list(map(operator.index, axes))
        if sorted(axis % max(self.ndim, 1) for axis in axes) != list(range(self.ndim)):
            raise ArgumentError(f"transpose: axes {tuple(axes)} are no order of {self.ndim} axes")
        return self._view(Layout(tuple(self.shape[axis] for axis in axes), tuple(self.strides[axis] for axis in axes)))

    @property
    def T(self) -> GPUArray:
        """The same memory with its axes reversed."""
        return self.transpose()

    # ── elements ──

    def reverse(self, stream: Any = None) -> GPUArray:
        """Return a copy with the elements in reversed order in memory."""
        check_contiguous("reverse", self)
        new = self.new_like_me()
        calculate("reverse", lambda xp, array: array[::-1], (self._flat(),), new._flat(), stream)
        return new

    def _flat(self) -> GPUArray:
        """Return the elements with one axis, in the order of memory."""
        return self.reshape(self.size, order="C")

    def any(self, stream: Any = None, allocator: Any = None) -> GPUArray:
        """Return whether any element is not 0, as an array without axes."""
        return reduce_to("any", self, np.dtype(bool), lambda xp, array: xp.any(truths(array)), stream, allocator)

    def all(self, stream: Any = None, allocator: Any = None) -> GPUArray:
        """Return whether no element is 0, as an array without axes."""
        return reduce_to("all", self, np.dtype(bool), lambda xp, array: xp.all(truths(array)), stream, allocator)

    # ── textures ──

    def bind_to_texref(self, texref: Any, allow_offset: bool = False) -> float:
        """Make a texture reference read this array; return the offset in elements."""
        return float(texref.set_address(self.gpudata, self.nbytes, allow_offset=allow_offset)) / self.itemsize

    def bind_to_texref_ext(
        self,
        texref: Any,
        channels: int = 1,
        allow_double_hack: bool = False,
        allow_complex_hack: bool = False,
        allow_offset: bool = False,
    ) -> float:
        """Make a texture reference read this array, with its format set; return the offset in elements.

        With `allow_double_hack` and `allow_complex_hack` wide elements are read as two or four words.
        """
        check_contiguous("bind_to_texref_ext", self)
        wide: dict[Any, tuple[bool, Any, int]] = {
            np.float64: (allow_double_hack, array_format.SIGNED_INT32, 2),
            np.complex64: (allow_complex_hack, array_format.UNSIGNED_INT32, 2),
            np.complex128: (allow_complex_hack, array_format.SIGNED_INT32, 4),
        }
        is_wide, element_format, words = wide.get(self.dtype.type, (False, None, 0))
        if is_wide:
            if channels != 1:
                raise ArgumentError(f"bind_to_texref_ext: {self.dtype} has one channel, got channels={channels}")
            channels = words
        else:
            element_format = dtype_to_array_format(self.dtype)
        offset = self.bind_to_texref(texref, allow_offset)
        texref.set_format(element_format, channels)
        if is_wide or self.dtype.kind in "iu":
            texref.set_flags(texref.get_flags() | TRSF_READ_AS_INTEGER)
        return offset


def truths(array: Any) -> Any:
    """Return an array that is not 0 where `array` is not; CuPy's kernels take denormal numbers for 0."""
    return array.view(f"u{array.itemsize}") << 1 if array.dtype.kind == "f" else array


def reduce_to(
    operation: str,
    array: GPUArray,
    dtype: Any,
    function: Callable[..., Any],
    stream: Any,
    allocator: Any,
    *more: GPUArray,
) -> GPUArray:
    """Return ``function(xp, array, *more)``, one number, as a new array without axes."""
    for operand in (array, *more):
        check_contiguous(operation, operand)
    out = GPUArray((), dtype, allocator or array.allocator)
    with work_on(stream) as xp:
        store(operation, xp, xp.asarray(function(xp, *(operand.device_array() for operand in (array, *more)))), out)
    return out


def _is_async(async_: bool, keywords: dict[str, bool]) -> bool:
    """Return whether a copy is asynchronous; ``async`` is the keyword of old programs.

    Raises
    ------
    ArgumentError
        A keyword is unknown.
    """
    is_async = keywords.pop("async", async_)
    if keywords:
        raise ArgumentError(f"unknown keyword arguments: {', '.join(keywords)}")
    return bool(is_async)


def to_gpu(ary: Any, allocator: Any = mem_alloc) -> GPUArray:
    """Return a copy of a host array in device memory, with its axes in the same memory order."""
    return to_gpu_async(ary, allocator, None, is_async=False)


def to_gpu_async(ary: Any, allocator: Any = mem_alloc, stream: Any = None, is_async: bool = True) -> GPUArray:
    """Return a copy of a host array in device memory, copied on a stream."""
    if not isinstance(ary, np.ndarray | np.generic | GPUArray):
        raise ArgumentError(f"to_gpu takes a NumPy array, got {type(ary).__name__} {shortened(ary)}; call np.asarray")
    new = GPUArray(ary.shape, ary.dtype, allocator, strides=packed_strides(ary))
    new.set(ary, is_async, stream)
    return new
