"""Device arrays on the emulator that are distinct from host arrays, as CuPy's are from NumPy's on a GPU.

Strict streams use device arrays. An operation on a host array beside a device array is refused, with its line, as CuPy
refuses it. Code of NumPy and of cudakit may mix them: on a GPU the device does this work.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from cudakit.emulator.resources.allocations import MARKS, room
from cudakit.errors import ArgumentError, EmulationError
from cudakit.streams.witnesses import is_own
from cudakit.types.arguments import pointer_of

#: Functions of NumPy that convert their argument to a host array.
_TO_THE_HOST = ("array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray")


_originals: dict[str, Callable[..., Any]] = {}


class HostArrayError(ArgumentError, EmulationError):
    """Error for a host array if a GPU needs a device array, or for a device array if a GPU needs a host array."""


class ConversionHook:
    """A base of arrays that are asked before a NumPy function converts them to a plain array."""

    def converted(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which converts the array for NumPy's function `name`."""
        return make()


class DeviceArray(np.ndarray, ConversionHook):
    """An array of device memory on a strict stream, with the methods that CuPy's arrays have besides NumPy's."""

    def get(self, stream: Any = None, order: str = "C", out: np.ndarray | None = None) -> np.ndarray:
        """Return the elements as a new NumPy array in memory order `order`, or copy them to `out` and return it."""
        elements = self.view(np.ndarray).copy("C" if order == "C" else "F")
        if out is None:
            return elements
        out[...] = elements
        return out

    def set(self, values: Any, stream: Any = None) -> None:
        """Copy the elements of a host array into this array; `stream` is ignored."""
        self.view(np.ndarray)[...] = values

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        _refuse_beside(f"numpy.{ufunc.__name__}", (*inputs, *options.values()))
        result = getattr(ufunc, method)(*_plain(inputs), **{name: _whole(value) for name, value in options.items()})
        if out := options.get("out", ()):
            return out[0] if len(out) == 1 else out
        return as_device(result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        _refuse_beside(f"{func.__module__}.{func.__name__}", (*args, *kwargs.values()))
        return super().__array_function__(func, types, args, kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        _refuse_beside("an assignment to elements", (value,))
        self.view(np.ndarray)[_whole(key)] = value

    def converted(self, name: str, make: Callable[[], Any]) -> Any:
        is_users, place = _caller()
        if is_users:
            raise HostArrayError(
                f"at {place}: numpy.{name} of an array in device memory, which CuPy refuses on a GPU; copy it with "
                "ck.to_host(x, stream)"
            )
        return make()


def as_device(value: Any) -> Any:
    """Return a NumPy array as a device array, also in a tuple or list; return other values unchanged."""
    if isinstance(value, tuple | list) and any(isinstance(part, np.ndarray) for part in value):
        parts = [as_device(part) for part in value]
        return type(value)(parts) if type(value) in (tuple, list) else type(value)(*parts)
    if type(value) is not np.ndarray:
        return value
    hook_conversions()
    return value.view(DeviceArray)


def refuse_host_array(value: Any) -> None:
    """Refuse a host array as a kernel's argument, unless it is pinned or registered.

    Raises
    ------
    HostArrayError
    """
    if is_reachable(value):
        return
    is_users, place = _caller("cudakit.kernel", "cudakit.jit", "cudakit.emulator", "cudakit.memory")
    if is_users:
        raise HostArrayError(
            f"at {place}: numpy array of {value.dtype} with shape {value.shape} is in host memory, which no kernel on "
            "a GPU reaches; copy it with ck.to_device(x, stream), or give ck.In(x), ck.Out(x) or ck.InOut(x)"
        )


def is_reachable(value: Any) -> bool:
    """Return whether a kernel on a GPU could reach an argument's memory.

    False only for a host array with elements whose memory is neither pinned, registered nor allocated by the emulator.
    """
    return not is_of_host(value) or not value.nbytes or room().at(pointer_of(value)) is not None


def refuse_host_operand(op: str, name: str, value: Any) -> None:
    """Refuse an op's operand that is a NumPy array in host memory, pinned or not.

    Other values and empty arrays are taken. `op` and `name` name op and operand in the message.

    Raises
    ------
    HostArrayError
    """
    if not is_of_host(value) or not value.nbytes:
        return
    if room().at(pointer_of(value)) is None or room().is_of_the_host(value):
        _, place = _caller()
        raise HostArrayError(
            f"at {place}: {op}: {name} is in host memory, which no GPU reaches; copy it with ck.to_device(x, stream)"
        )


class DeviceModule(ModuleType):
    """A module with NumPy's functions, which return device arrays."""

    def __init__(self, name: str, module: ModuleType) -> None:
        super().__init__(name)
        self.__dict__["_of"] = module
        self.__dict__["ndarray"] = DeviceArray

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = getattr(self.__dict__["_of"], name, None)
        if function is None:
            raise AttributeError(
                f"{self.__name__}.{name} is not here: without a GPU cudakit puts NumPy in CuPy's place, which has no "
                f"{name}",
                name=name,
                obj=self,
            )
        function = _originals.get(name, function) if self.__dict__["_of"] is np else function
        if inspect.ismodule(function):
            return DeviceModule(f"{self.__name__}.{name}", function)
        if inspect.isclass(function) or isinstance(function, np.ufunc) or not callable(function):
            return function

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            options.pop("blocking", None)
            result = function(*arguments, **options)
            if name in ("empty", "empty_like") and result.flags.c_contiguous:
                MARKS.mark(result)
            return as_device(result)

        return call


def is_of_host(value: Any) -> bool:
    """Return whether a value is a NumPy array that is no `DeviceArray`."""
    return isinstance(value, np.ndarray) and not isinstance(value, DeviceArray)


def _plain(values: Iterable[Any]) -> Iterator[Any]:
    """Yield each value; a device array is yielded as a NumPy array."""
    return (value.view(np.ndarray) if isinstance(value, DeviceArray) else value for value in values)


def _whole(value: Any) -> Any:
    """Return a value, or a tuple of values, in which each device array is a NumPy array."""
    return tuple(_plain(value)) if isinstance(value, tuple) else next(_plain((value,)))


def _refuse_beside(operation: str, values: Iterable[Any]) -> None:
    """Raise a `HostArrayError` if a host array is among an operation's `values`, beside a device array of the caller.

    Code of cudakit and NumPy may mix them: only calls by the user's program are refused.
    """
    flat = [item for value in values for item in (value if isinstance(value, tuple | list) else (value,))]
    if not any(is_of_host(item) for item in flat):
        return
    is_users, place = _caller()
    if is_users:
        raise HostArrayError(
            f"at {place}: {operation} of a host array beside one of the device, which CuPy refuses on a GPU; copy the "
            "one with ck.to_device(x, stream), or the other with ck.to_host(x, stream)"
        )


def _caller(*passing: str) -> tuple[bool, str]:
    """Return whether the user's program made the call, not cudakit or NumPy, and the program's file and line.

    Parameters
    ----------
    passing : str
        Prefixes of modules that only pass a call on.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame).startswith((__name__, *passing)):
        frame = frame.f_back
    name = "" if frame is None else _module(frame)
    while frame is not None and _module(frame).startswith(("cudakit", "numpy")):
        frame = frame.f_back
    where = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    is_for_itself = name.startswith(("cudakit", "numpy")) and not name.startswith("numpy.testing")
    return not is_for_itself, where


def _module(frame: FrameType) -> str:
    """Return the name of a frame's module; generated launch checks, which have none, count as the dispatcher."""
    name: str | None = frame.f_globals.get("__name__")
    if name is None:
        return "cudakit.jit.launch.dispatch" if is_own(frame.f_code.co_filename) else ""
    return name


@functools.cache
def hook_conversions() -> None:
    """Wrap NumPy's conversions, once there is a device array, so that they ask the array first."""
    for name in _TO_THE_HOST:
        _originals[name] = getattr(np, name)
        setattr(np, name, _asking(name, _originals[name]))


def _asking(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the NumPy conversion `name` so that it calls `converted` of an array with a `ConversionHook`.

    If the array is in a tuple or list, `converted` is called to check it, and the conversion then runs as usual.
    """

    @functools.wraps(original)
    def convert(*arguments: Any, **options: Any) -> Any:
        first = arguments[0] if arguments else None
        if isinstance(first, ConversionHook):
            return first.converted(name, functools.partial(original, *arguments, **options))
        if isinstance(first, (tuple, list)):  # quicker than of a union
            for part in first:
                if isinstance(part, ConversionHook):
                    part.converted(name, functools.partial(original, [part]))
        return original(*arguments, **options)

    return convert
