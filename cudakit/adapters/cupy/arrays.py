"""A stand-in for ``cupy.ndarray`` in host memory, and for functions that return such arrays.

As in CuPy, a result is always an array, of no dimensions where NumPy gives a number, and a host array is no operand.
Operations inside a capture of a stream are recorded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cudakit.adapters.cupy import memory
from cudakit.adapters.cupy.capture import CAPTURE
from cudakit.adapters.cupy.device import Device
from cudakit.emulator.face import MARKS, DeviceArray, as_device
from cudakit.errors import ArgumentError, shortened

#: Methods of NumPy's arrays that compute a new array.
_METHODS = (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "clip", "compress", "conj", "conjugate",
    "cumprod", "cumsum", "diagonal", "dot", "max", "mean", "min", "prod", "repeat", "round", "searchsorted", "std",
    "sum", "take", "trace", "var",
)  # fmt: skip
#: Methods that change the array itself.
_EFFECTS = ("fill", "itemset", "partition", "put", "sort")
#: Functions of CuPy's that take host arrays.
_TAKING_HOST_ARRAYS = (
    "array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "asnumpy", "broadcast_shapes",
    "can_cast", "common_type", "copyto", "dtype", "empty_like", "finfo", "full", "full_like", "iinfo", "isscalar",
    "issubdtype", "iterable", "may_share_memory", "min_scalar_type", "ndim", "ones_like", "promote_types",
    "result_type", "shape", "shares_memory", "size", "zeros_like", "save", "savez", "savez_compressed", "savetxt",
    "array_repr", "array_str", "array2string", "allclose", "isclose",
)  # fmt: skip
_TRUTHS = frozenset(["allclose", "array_equal", "array_equiv"])


class _OfDevice(type):
    """The metaclass of `ndarray`, by which arrays of ``ck.empty`` are instances too, as on a GPU."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, DeviceArray)


class ndarray(DeviceArray, metaclass=_OfDevice):
    """A stand-in for ``cupy.ndarray``: an array in host memory that does not mix with NumPy's arrays."""

    def __new__(cls, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: Any = "C") -> Any:
        dtype = np.dtype(dtype)
        if memptr is None and strides is None:
            return fresh(np.empty(shape, dtype, "F" if order == "F" else "C"), is_written=False)
        shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
        if memptr is None:
            memptr = memory.alloc(math.prod(shape) * dtype.itemsize)
        extent = math.prod(shape) * dtype.itemsize
        if strides is not None and extent:
            extent = dtype.itemsize + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
        return np.ndarray(shape, dtype, memptr.bytes(extent), 0, strides, order).view(ndarray)

    @property
    def data(self) -> Any:
        """Memory of the first element, as a `MemoryPointer`."""
        owner: Any = self
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        low, high = np.lib.array_utils.byte_bounds(owner)
        whole = memory.UnownedMemory(low, high - low, owner, 0)
        return memory.MemoryPointer(whole, self.__array_interface__["data"][0] - low)

    @property
    def device(self) -> Any:
        """Device of the array: the emulator's one device."""
        return Device(0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self.flags.c_contiguous else self.strides
        return {
            "shape": self.shape, "typestr": self.dtype.str, "descr": self.dtype.descr, "version": 3,
            "strides": strides, "data": (self.data.ptr, False), "stream": 1,
        }  # fmt: skip

    @property
    def T(self) -> ndarray:
        """Transposed array."""
        return self.transpose()

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        """Return the elements as a new NumPy array in memory order `order`, or copy them to `out` and return it."""
        CAPTURE.forbid("get()")
        if out is not None and (isinstance(out, DeviceArray) or not isinstance(out, np.ndarray)):
            raise ArgumentError(f"get: out is a NumPy array, got {type(out).__name__}")
        return super().get(stream, order, out)

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copy the elements of a NumPy array of the same dtype and shape into this array."""
        if isinstance(arr, DeviceArray) or not isinstance(arr, np.ndarray):
            raise ArgumentError(f"set takes a NumPy array, got {type(arr).__name__}: use x[...] = array")
        if arr.dtype != self.dtype or arr.shape != self.shape:
            layout = f"{self.dtype} with shape {self.shape}"
            raise ArgumentError(f"set takes an array of {layout}, got {arr.dtype} with shape {arr.shape}")
        CAPTURE.do(functools.partial(np.copyto, plain(self), arr))

    def item(self, *arguments: Any) -> Any:
        """Return an element as a Python number."""
        CAPTURE.forbid("item()")
        return plain(self).item(*arguments)

    def tolist(self) -> Any:
        """Return the elements as Python numbers in lists."""
        CAPTURE.forbid("tolist()")
        return plain(self).tolist()

    def reduced_view(self, dtype: Any = None) -> Any:
        """Return the array with as few dimensions as its strides allow: one, if it is contiguous."""
        return self.reshape(-1) if self.flags.c_contiguous else self

    scatter_add: Callable[..., None]
    scatter_max: Callable[..., None]
    scatter_min: Callable[..., None]

    def ptp(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Return the range of the elements: maximum − minimum."""
        return computed(np.ptp, (self, axis, out, keepdims), {})

    def toDlpack(self) -> Any:
        """Return the array as a DLPack capsule."""
        return plain(self).__dlpack__()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        refuse_host_arrays(f"cupy.{ufunc.__name__}", (inputs, options))
        out = options.pop("out", ())
        if len(out) == 1:
            return computed(getattr(ufunc, method), inputs, options, out[0])
        return computed(getattr(ufunc, method), inputs, options | ({"out": out} if out else {}))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        refuse_host_arrays(f"{func.__module__}.{func.__name__}", (args, kwargs))
        return computed(func, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        refuse_host_arrays("an index", (key,) if not isinstance(key, tuple) else key)
        elements, index = plain(self), plain(key)
        try:
            part = elements[index]
        except IndexError:
            index = _wrapped_around(self, index)
            part = elements[index]
        if isinstance(part, np.generic):
            part = elements[(*(index if isinstance(index, tuple) else (index,)), ...)]
        return part.view(ndarray) if isinstance(part, np.ndarray) else part

    def __setitem__(self, key: Any, value: Any) -> None:
        if is_host_array(value) and value.ndim:
            refuse_host_arrays("an assignment to elements", (value,))
        elements, index = plain(self), plain(key)
        try:
            elements[index]
        except IndexError:
            index = _wrapped_around(self, index)
        CAPTURE.do(functools.partial(elements.__setitem__, index, plain(value)))

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        CAPTURE.forbid("repr()")
        return repr(plain(self))

    def __str__(self) -> str:
        CAPTURE.forbid("str()")
        return str(plain(self))

    def __format__(self, specification: str) -> str:
        CAPTURE.forbid("format()")
        return format(plain(self)[()], specification)

    def __bool__(self) -> bool:
        CAPTURE.forbid("bool()")
        return bool(plain(self))

    def __float__(self) -> float:
        CAPTURE.forbid("float()")
        return float(plain(self))

    def __int__(self) -> int:
        CAPTURE.forbid("int()")
        return int(plain(self))


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np.ndarray, name)

    @functools.wraps(function)
    def call(self: ndarray, *arguments: Any, **options: Any) -> Any:
        refuse_host_arrays(f"ndarray.{name}", (arguments, options))
        return computed(function, (self, *arguments), options)

    return call


def _effect(name: str) -> Callable[..., Any]:
    def call(self: ndarray, *arguments: Any, **options: Any) -> None:
        refuse_host_arrays(f"ndarray.{name}", (arguments, options))
        CAPTURE.do(functools.partial(getattr(plain(self), name), *plain(arguments), **plain(options)))

    call.__name__ = name
    return call


def _scatter(function: np.ufunc) -> Callable[..., None]:
    def scatter(self: ndarray, slices: Any, value: Any) -> None:
        """Combine the elements at indices with values, also at repeated ones."""
        CAPTURE.do(functools.partial(function.at, plain(self), plain(slices), plain(value)))

    return scatter


for _name, _function in {"add": np.add, "max": np.maximum, "min": np.minimum}.items():
    setattr(ndarray, f"scatter_{_name}", _scatter(_function))
for _name in _METHODS:
    setattr(ndarray, _name, _method(_name))
for _name in _EFFECTS:
    if hasattr(np.ndarray, _name):
        setattr(ndarray, _name, _effect(_name))


def _wrapped_around(array: ndarray, key: Any) -> Any:
    """Return an index in which arrays of numbers wrap around, as in CuPy; raise the `IndexError` of other indices."""
    parts = key if isinstance(key, tuple) else (key,)
    number = sum(part is not None and part is not Ellipsis for part in parts)
    result, axis = list[Any](), 0
    for part in parts:
        if isinstance(part, list):
            part = np.asarray(part)
        if isinstance(part, np.ndarray) and part.dtype.kind in "iu":
            part = part % array.shape[axis]
        result.append(part)
        axis += array.ndim - number if part is Ellipsis else part is not None
    return tuple(result)


def plain(value: Any) -> Any:
    """Return a value in which device arrays are NumPy arrays of the same memory, also in tuples, lists and dicts."""
    if isinstance(value, DeviceArray):
        return value.view(np.ndarray)
    if isinstance(value, tuple | list) and any(isinstance(part, DeviceArray | tuple | list | dict) for part in value):
        parts = (plain(part) for part in value)
        return type(value)(parts) if type(value) in (tuple, list) else type(value)(*parts)
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return value.numpy_ufunc if isinstance(value, ufunc) else value


def fresh(array: np.ndarray, is_written: bool = True) -> Any:
    """Return a new NumPy array as an `ndarray`, counted in the memory pool; `is_written` False marks its memory.

    With an allocator of the program's, the elements move to memory that it allocates.
    """
    pointer = memory.allocated(array) if array.base is None else None
    if pointer is not None:
        moved = np.ndarray(array.shape, array.dtype, pointer.bytes(array.nbytes), 0, array.strides)
        moved[...] = array
        array = moved
    if not is_written and array.flags.c_contiguous:
        MARKS.mark(array)
    return as_device(array).view(ndarray)


def wrapped(value: Any, scalars: tuple[type, ...] = (np.generic,)) -> Any:
    """Return a result as CuPy's arrays: arrays, and NumPy's numbers as arrays of no dimensions, also in tuples."""
    if isinstance(value, DeviceArray):
        return value.view(ndarray)
    if type(value) is np.ndarray:
        return fresh(value) if value.dtype != object else value
    if isinstance(value, scalars):
        return fresh(np.asarray(value))
    if isinstance(value, tuple | list) and any(isinstance(part, np.ndarray | np.generic) for part in value):
        parts = [wrapped(part) for part in value]
        return type(value)(parts) if type(value) in (tuple, list) else type(value)(*parts)
    return value


def computed(
    function: Callable[..., Any], arguments: Any, options: dict[str, Any], out: Any = None, scalars: Any = (np.generic,)
) -> Any:
    """Call a function of NumPy's with device arrays, and return its result as device arrays.

    In a capture, work with an `out` is recorded. Other work runs, so that its result exists, and is repeated by
    each launch.
    """
    out = options.get("out") if out is None else out
    options = options if out is None else options | {"out": out}
    if "out" in options and is_host_array(options["out"]):
        refuse_host_arrays("out", (options["out"],))
    call = functools.partial(function, *plain(tuple(arguments)), **plain(options))
    if out is not None:
        CAPTURE.do(call)
        return out[0] if isinstance(out, tuple) and len(out) == 1 else out
    result = wrapped(call(), scalars)
    if CAPTURE.actions is not None and isinstance(result, ndarray):
        CAPTURE.actions.append(lambda: np.copyto(plain(result), call()))
    return result


def is_host_array(value: Any) -> bool:
    """Return whether a value is an array of NumPy's that no device reaches."""
    return isinstance(value, np.ndarray) and not isinstance(value, DeviceArray)


def refuse_host_arrays(operation: str, values: Any) -> None:
    """Refuse a NumPy array among an operation's arguments, as CuPy does.

    Raises
    ------
    ArgumentError
    """
    for value in values.values() if isinstance(values, dict) else values:
        if is_host_array(value):
            raise ArgumentError(
                f"{operation} takes no NumPy array ({value.dtype}, shape {value.shape}), which is in host memory: "
                "copy it by cupy.asarray(x), or the other arrays by cupy.asnumpy(x)"
            )
        if isinstance(value, tuple | list | dict):
            refuse_host_arrays(operation, value)


class ufunc:
    """A stand-in for ``cupy.ufunc``: NumPy's universal function, which refuses host arrays.

    Attributes
    ----------
    numpy_ufunc : numpy.ufunc
        Function of NumPy's.
    """

    numpy_ufunc: np.ufunc

    def __init__(self, function: np.ufunc) -> None:
        self.numpy_ufunc, self.__name__, self.__doc__ = function, function.__name__, function.__doc__
        self.name = f"cupy_{function.__name__}"

    def __repr__(self) -> str:
        return f"<ufunc 'cupy_{self.__name__}'>"

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._of(self.numpy_ufunc, arguments, options)

    def __getattr__(self, name: str) -> Any:
        part = getattr(self.__dict__["numpy_ufunc"], name)
        if not callable(part):
            return part
        return lambda *arguments, **options: self._of(part, arguments, options)

    def _of(self, function: Callable[..., Any], arguments: Any, options: dict[str, Any]) -> Any:
        refuse_host_arrays(f"cupy.{self.__name__}", (arguments, options))
        return computed(function, arguments, options)


def function_of(name: str, function: Callable[..., Any], scalars: tuple[type, ...] = (np.generic,)) -> Any:
    """Return a function of NumPy's as CuPy's function `name`, which takes and returns device arrays."""
    last = name.rpartition(".")[2]
    allowed = last in _TAKING_HOST_ARRAYS or (name.count(".") == 1 and hasattr(np.ndarray, last))
    scalars = (np.generic, bool) if last in _TRUTHS else scalars

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        for unused in ("blocking", "stream"):
            options.pop(unused, None)
        if not allowed:
            refuse_host_arrays(name, (arguments, options))
        elif is_host_array(arguments[0] if arguments else None) and last not in _TAKING_HOST_ARRAYS:
            return function(*arguments, **options)
        return computed(function, arguments, options, scalars=scalars)

    call.__module__, call.__qualname__ = name.rpartition(".")[0], last
    return call


def array(
    obj: Any, dtype: Any = None, copy: bool = True, order: Any = "K", subok: bool = False, ndmin: int = 0,
    *, blocking: bool = False,
) -> Any:  # fmt: skip
    """Return a new device array of an object's elements."""
    if isinstance(obj, DeviceArray) and not copy:
        copy_or_share: Any = None
    else:
        copy_or_share = True
    result = np.array(plain(obj), dtype, copy=copy_or_share, order=order, ndmin=ndmin)
    if result.dtype.kind not in "biufcV":
        raise ArgumentError(f"array: a GPU has no dtype {result.dtype}: {shortened(obj)}")
    return wrapped(result)


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False) -> Any:
    """Return a device array of an object's elements: `a` itself if it is one; host memory is copied."""
    if isinstance(a, ndarray) and copy is not True and (dtype is None or a.dtype == dtype) and order in (None, "K"):
        return a
    is_shared = isinstance(a, DeviceArray) or hasattr(a, "__cuda_array_interface__")
    result = np.array(plain(a), dtype, copy=True if copy or not is_shared else None, order=order or "K")
    return wrapped(result)


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    """Return a C-contiguous device array of an object's elements: `a` itself if it is one."""
    return asarray(a, dtype, "C")


def asfortranarray(a: Any, dtype: Any = None) -> Any:
    """Return a device array in Fortran order of an object's elements: `a` itself if it is one."""
    return asarray(a, dtype, "F")


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    """Return the elements of an array as a NumPy array: a copy of device memory, or a host array as it is."""
    if isinstance(a, DeviceArray):
        return a.view(ndarray).get(order=order, out=out)
    result = np.asarray(a, order=order)  # type: ignore[call-overload]
    if out is None:
        return result
    out[...] = result
    return out


def new(name: str) -> Any:
    """Return CuPy's function `name` (``empty``, ``empty_like``), whose result counts as unwritten."""

    def call(*arguments: Any, **options: Any) -> Any:
        options.pop("blocking", None)
        return fresh(getattr(np, name)(*plain(arguments), **plain(options)), is_written=False)

    call.__name__ = name
    return call
