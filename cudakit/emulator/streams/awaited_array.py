"""Host arrays under checks: a use of elements that have not arrived yet is an error.

A use is seen if NumPy asks the array's class: indices, methods, operators, NumPy's functions. Code that accesses the
memory itself is not seen: ``y[:] = x`` into an array of NumPy's, ``x.flat``, a buffer.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np

from cudakit.emulator.resources.allocations import MARKS
from cudakit.emulator.resources.device_array import ConversionHook, DeviceArray, hook_conversions
from cudakit.emulator.streams.order import order
from cudakit.emulator.streams.stream import EmulatedStream
from cudakit.errors import EmulationError
from cudakit.streams.witnesses import is_own

#: NumPy functions that read no elements, or read them by a method or an operator that checks.
_VIEWING = frozenset((
    "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_to", "can_cast",
    "common_type", "compress", "diagonal", "dsplit", "empty_like", "expand_dims", "flip", "fliplr", "flipud",
    "full_like", "hsplit", "imag", "iscomplexobj", "isrealobj", "matrix_transpose", "may_share_memory", "moveaxis",
    "ndim", "ones_like", "ravel", "real", "reshape", "result_type", "rollaxis", "rot90", "shape", "shares_memory",
    "size", "sliding_window_view", "split", "squeeze", "swapaxes", "take", "trace", "transpose", "unstack",
    "vsplit", "zeros_like",
))  # fmt: skip
#: Methods that read all elements.
_READING = (
    "__bool__", "__complex__", "__contains__", "__copy__", "__deepcopy__", "__float__", "__format__", "__index__",
    "__int__", "__reduce__", "__reduce_ex__", "__repr__", "__str__", "all", "any", "argmax", "argmin",
    "argpartition", "argsort", "byteswap", "choose", "clip", "conj", "conjugate", "copy", "cumprod", "cumsum",
    "dot", "dump", "dumps", "flatten", "max", "mean", "min", "nonzero", "prod", "repeat", "round", "searchsorted",
    "std", "sum", "tobytes", "tofile", "tolist", "var",
)  # fmt: skip
#: Methods whose elements are found by applying them to an array of flags.
_TAKING = ("compress", "item", "take", "trace")
#: Methods that return a view, or a copy where no view is possible.
_COPYING = ("astype", "ravel", "reshape")
#: Methods that write.
_WRITING = ("fill", "partition", "put", "resize", "setfield", "sort")


class AwaitedArray(np.ndarray, ConversionHook):
    """An array in host memory to which a stream may still be writing."""

    def __getitem__(self, key: Any) -> Any:
        _check_arrays((key,))
        return self._viewed(super().__getitem__(key), key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _check_arrays((key, value))
        self._use("written", lambda flags: flags[key])
        _plain(self)[key] = value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        out = keywords.get("out", ())
        if any(isinstance(value, DeviceArray) for value in (*inputs, *out)):
            return NotImplemented  # and the device's array says what there is to say
        where = keywords.get("where", True)
        _check_arrays((*inputs, where))
        _check_arrays(out, "written")
        if isinstance(where, AwaitedArray):
            keywords["where"] = _plain(where)
        if out:
            keywords["out"] = tuple(map(_plain, out))
        result = getattr(ufunc, method)(*map(_plain, inputs), **keywords)
        if out:
            return out[0] if len(out) == 1 else out
        return result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(cls, DeviceArray) for cls in types):
            return NotImplemented
        if func.__name__ not in _VIEWING:
            _check_arrays((*args, *kwargs.values()))
        return super().__array_function__(func, types, args, kwargs)

    def converted(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which converts the array for NumPy's function `name`.

        A result that is a view of the array keeps this class.
        """
        result = self._viewed(make())
        return result.view(AwaitedArray) if type(result) is np.ndarray and np.may_share_memory(result, self) else result

    def _viewed(self, result: Any, key: Any = ...) -> Any:
        """Return `result`, made from this array. If it shares no memory with this array, first check a read at `key`.

        The check raises for elements that have not arrived. The default `key` is the whole array.
        """
        if not isinstance(result, np.ndarray) or not np.may_share_memory(result, self):
            self._use("read", lambda flags: flags[key])
        return result

    def _use(self, verb: str, part: Callable[[np.ndarray], Any]) -> None:
        """Refuse a use of elements that have not arrived.

        Parameters
        ----------
        verb : str
            Verb of the message: ``read`` or ``written``.
        part : callable
            Function that takes flags in the array's shape and returns the flags of the used elements.

        Raises
        ------
        EmulationError
            If used elements have not arrived.
        """
        if not order().arrivals.pending or (place := _reader()) is None:
            return
        after = order().awaited(self, part)
        if after is not None:
            raise EmulationError(
                f"at {place}: a host array of {self.dtype} with shape {self.shape} is {verb} before {after.doer} has "
                "brought its elements: nothing has waited for that, and on a GPU the host may find old values; call "
                "stream.sync() before, or event.sync() of an event that was recorded after it"
            )


def handed_out(array: np.ndarray, stream: EmulatedStream) -> np.ndarray:
    """Return a host array for the user's program.

    The result is an `AwaitedArray` if the stream is strict or checks watch memory, else the array itself.
    """
    return _awaited(array) if stream.strict or MARKS.watchers else array


def host_view(array: np.ndarray) -> np.ndarray:
    """Return a `DeviceArray`, of managed memory, as an `AwaitedArray` for the host; return others unchanged."""
    return _awaited(array.view(np.ndarray)) if isinstance(array, DeviceArray) else array


def _awaited(array: np.ndarray) -> AwaitedArray:
    hook_conversions()
    order().names_lines = True
    return array.view(AwaitedArray)


def _check_arrays(values: Any, verb: str = "read") -> None:
    """Raise if an array among `values` has elements that have not arrived; tuples and lists are searched.

    `verb`, ``read`` or ``written``, says in the message how the array is used.
    """
    if order().arrivals.pending:
        for array in _arrays(values):
            array._use(verb, lambda flags: flags)


def _arrays(values: Any) -> Iterator[AwaitedArray]:
    for value in values:
        if isinstance(value, AwaitedArray):
            yield value
        elif isinstance(value, tuple | list):
            yield from _arrays(value)


def _plain(value: Any) -> Any:
    return np.ndarray.view(value, np.ndarray) if isinstance(value, AwaitedArray) else value


def _reader() -> str | None:
    """Return the program's ``file:line`` that uses an array, from the call stack; None if cudakit itself uses it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _passes(frame):
        frame = frame.f_back
    if frame is None or is_own(frame.f_code.co_filename):
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _passes(frame: FrameType) -> bool:
    """Return whether a frame only passes a use on: a frame of NumPy, of the standard library, or of this class."""
    name: str = frame.f_globals.get("__name__", "")
    root = name.partition(".")[0]
    return root == "numpy" or root in sys.stdlib_module_names or name in (__name__, ConversionHook.__module__)


def _reading(verb: str, array: AwaitedArray, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    _check_arrays((array, *arguments), verb)
    return original(_plain(array), *arguments, **keywords)


def _taking(array: AwaitedArray, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    others = {key: value for key, value in keywords.items() if key not in ("dtype", "out")}
    array._use("read", lambda flags: original(flags, *arguments, **others))
    return original(_plain(array), *arguments, **keywords)


def _copying(array: AwaitedArray, original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    return array._viewed(original(array, *arguments, **keywords))


def _method(original: Callable[..., Any], use: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for NumPy's array method `original`, which calls ``use(array, original, …)``.

    `use` checks the elements that the method uses, and calls `original`.
    """

    @functools.wraps(original)
    def method(self: AwaitedArray, *arguments: Any, **keywords: Any) -> Any:
        return use(self, original, *arguments, **keywords)

    return method


for _names, _use in (
    (_READING, functools.partial(_reading, "read")),
    (_WRITING, functools.partial(_reading, "written")),
    (_TAKING, _taking),
    (_COPYING, _copying),
):
    for _name in _names:
        setattr(AwaitedArray, _name, _method(getattr(np.ndarray, _name), _use))
