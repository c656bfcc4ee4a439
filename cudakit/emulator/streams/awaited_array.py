"""Host arrays that cudakit hands out while somebody checks: to use elements that have not arrived is an error.

What reads or writes elements is known where NumPy asks the array's class: indices, methods, operators, functions of
NumPy's. Code that goes to the memory itself is not: ``y[:] = x`` into an array of NumPy's, ``x.flat``, a buffer.
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

#: Functions of NumPy's that read no elements, or read them by a method or an operator, which looks by itself.
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
#: Methods that read those elements that they take of an array of flags as well.
_TAKING = ("compress", "item", "take", "trace")
#: Methods that give a view, or copy where there is none.
_COPYING = ("astype", "ravel", "reshape")
#: Methods that write.
_WRITING = ("fill", "partition", "put", "resize", "setfield", "sort")


class AwaitedArray(np.ndarray, ConversionHook):
    """An array in host memory whose elements a stream may still bring."""

    def __getitem__(self, key: Any) -> Any:
        _look((key,))
        return self._viewed(super().__getitem__(key), key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _look((key, value))
        self._use("written", lambda flags: flags[key])
        _plain(self)[key] = value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        out = named.get("out", ())
        if any(isinstance(value, DeviceArray) for value in (*inputs, *out)):
            return NotImplemented  # and the device's array says what there is to say
        where = named.get("where", True)
        _look((*inputs, where))
        _look(out, "written")
        if isinstance(where, AwaitedArray):
            named["where"] = _plain(where)
        if out:
            named["out"] = tuple(map(_plain, out))
        made = getattr(ufunc, method)(*map(_plain, inputs), **named)
        if out:
            return out[0] if len(out) == 1 else out
        return made

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(cls, DeviceArray) for cls in types):
            return NotImplemented
        if func.__name__ not in _VIEWING:
            _look((*args, *kwargs.values()))
        return super().__array_function__(func, types, args, kwargs)

    def converted(self, name: str, make: Callable[[], Any]) -> Any:
        """What a function of NumPy's makes of the array: of its memory, an array of this class."""
        made = self._viewed(make())
        return made.view(AwaitedArray) if type(made) is np.ndarray and np.may_share_memory(made, self) else made

    def _viewed(self, made: Any, key: Any = ...) -> Any:
        """What was made of the array, which has been read where that is no view."""
        if not isinstance(made, np.ndarray) or not np.may_share_memory(made, self):
            self._use("read", lambda flags: flags[key])
        return made

    def _use(self, verb: str, part: Callable[[np.ndarray], Any]) -> None:
        """Refuse that the program uses elements that are on their way.

        Parameters
        ----------
        verb : str
        part : callable
            Gives, of flags in the array's shape, those of the elements that are used.

        Raises
        ------
        EmulationError
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
    """A host array as a program is given it: as an `AwaitedArray` where work on the stream is checked."""
    return _awaited(array) if stream.strict or MARKS.watchers else array


def host_view(array: np.ndarray) -> np.ndarray:
    """The host's view of an array of managed memory that is told apart."""
    return _awaited(array.view(np.ndarray)) if isinstance(array, DeviceArray) else array


def _awaited(array: np.ndarray) -> AwaitedArray:
    hook_conversions()
    order().names_lines = True
    return array.view(AwaitedArray)


def _look(values: Any, verb: str = "read") -> None:
    """Look at all arrays among values, as arguments have them."""
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
    """File and line of the program, where it uses an array; None where cudakit does so, which has its own order."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _passes(frame):
        frame = frame.f_back
    if frame is None or is_own(frame.f_code.co_filename):
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _passes(frame: FrameType) -> bool:
    """Whether a frame only passes a use on: NumPy's, Python's own, and those of this class."""
    name: str = frame.f_globals.get("__name__", "")
    root = name.partition(".")[0]
    return root == "numpy" or root in sys.stdlib_module_names or name in (__name__, ConversionHook.__module__)


def _reading(verb: str, array: AwaitedArray, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    _look((array, *arguments), verb)
    return original(_plain(array), *arguments, **named)


def _taking(array: AwaitedArray, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    others = {key: value for key, value in named.items() if key not in ("dtype", "out")}
    array._use("read", lambda flags: original(flags, *arguments, **others))
    return original(_plain(array), *arguments, **named)


def _copying(array: AwaitedArray, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return array._viewed(original(array, *arguments, **named))


def _method(original: Callable[..., Any], use: Callable[..., Any]) -> Callable[..., Any]:
    """A method of NumPy's arrays, by way of what looks at the elements that it uses."""

    @functools.wraps(original)
    def method(self: AwaitedArray, *arguments: Any, **named: Any) -> Any:
        return use(self, original, *arguments, **named)

    return method


for _names, _use in (
    (_READING, functools.partial(_reading, "read")),
    (_WRITING, functools.partial(_reading, "written")),
    (_TAKING, _taking),
    (_COPYING, _copying),
):
    for _name in _names:
        setattr(AwaitedArray, _name, _method(getattr(np.ndarray, _name), _use))
