"""Prepared calls: launches whose types are said once.

On a GPU a prepared call is a generated function. It compares grid and block with the last ones by identity, converts
each argument by one expression, and calls the driver's launch. Take ``prepare("Pfi")``: the function is ::

    def call(grid, block, a0, a1, a2, *, shared_size=0):
        try:
            last_grid, last_block, last_stream, last_shared, run, core, config, kernel = last
            if grid is last_grid and block is last_block and None is last_stream and shared_size == last_shared:
                return run(
                    core, config, kernel,
                    a0.address if type(a0) is allocation else a0 if type(a0) is int else address_of(a0),
                    as_int(as_float(a1))[0],
                    a2 if type(a2) is int and -2147483648 <= a2 <= 2147483647 else number_i(a2),
                )
        except Exception as error:
            raise as_error(error)
        return check(grid, block, None, (a0, a1, a2), shared_size)

The first call, and the first with another grid, block or stream, is checked in full as an unprepared call is.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from cudakit.adapters.pycuda.allocations import DeviceAllocation, address_of
from cudakit.adapters.pycuda.errors import as_error
from cudakit.errors import ArgumentError, shortened
from cudakit.streams.process import make_function
from cudakit.streams.witnesses import add_shortcut, watched
from cudakit.types.cpp import Pointer, scalar_dtype

#: A letter of a prepared format, or the bytes of a struct.
_LETTERS = re.compile(r"(\d+)s|([a-zA-Z?])")


def letters_of(arg_types: Any) -> tuple[str, ...]:
    """Return the letters of the types that ``prepare`` is given: a format, or dtypes, letters and others (pointers).

    Raises
    ------
    ArgumentError
        For a letter that is no type.
    """
    words = []
    for arg_type in [arg_types] if isinstance(arg_types, str) else arg_types:
        if isinstance(arg_type, str):
            letters = [match[0] for match in _LETTERS.finditer(arg_type)]
            if "".join(letters) != arg_type.replace(" ", ""):
                raise ArgumentError(
                    f"prepare takes a format such as 'PPi' or a list of dtypes, got {shortened(arg_type)}"
                )
            words += letters
        elif isinstance(arg_type, np.dtype) or (isinstance(arg_type, type) and issubclass(arg_type, np.generic)):
            dtype = np.dtype(arg_type)
            words.append(f"{dtype.itemsize}s" if dtype.kind == "V" else dtype.char)
        else:
            words.append("P")
    for word in words:
        if word != "P" and not word.endswith("s"):
            _dtype(word)
    return tuple(words)


def _dtype(letter: str) -> np.dtype:
    try:
        return np.dtype(letter)
    except TypeError:
        raise ArgumentError(f"prepare: {letter!r} is no type; 'P' is a pointer, 'i' an int, 'f' a float") from None


def converted(letters: tuple[str, ...], args: tuple[Any, ...]) -> list[Any]:
    """Return the arguments of a prepared call as those of an unprepared one: NumPy scalars and memory.

    Raises
    ------
    ArgumentError
        If there are more or fewer, or one does not fit its type.
    """
    if len(letters) != len(args):
        raise ArgumentError(f"the call is prepared for {len(letters)} arguments ({''.join(letters)}), got {len(args)}")
    values = []
    for number, (letter, arg) in enumerate(zip(letters, args, strict=True)):
        if letter == "P":
            values.append(np.uintp(address_of(arg)) if isinstance(arg, int | np.integer) else arg)
        elif letter.endswith("s"):
            values.append(arg)
        else:
            values.append(_scalar(number, _dtype(letter), arg))
    return values


def _scalar(number: int, dtype: np.dtype, arg: Any) -> Any:
    where = f"argument {number} is prepared as {dtype}"
    if dtype.kind in "iu":
        try:
            value = arg.__index__()
        except (AttributeError, TypeError):
            raise ArgumentError(f"{where}, got {shortened(arg)}; give an int") from None
        limits = np.iinfo(dtype)
        if not limits.min <= value <= limits.max:
            raise ArgumentError(f"{where}, which holds {limits.min} to {limits.max}, got {value}")
        return dtype.type(value)
    try:
        if isinstance(arg, str | bytes):
            raise TypeError("no number")
        return dtype.type(arg)
    except (TypeError, ValueError):
        raise ArgumentError(f"{where}, got {shortened(arg)}; give a number") from None


class PreparedCall:
    """The generated functions of a prepared call, without a stream and with one.

    Parameters
    ----------
    letters : tuple of str
        Letters of the arguments' types.
    check : callable
        ``check(grid, block, stream, args, shared_size)`` makes the call in full. It returns what repeats the call: the
        driver's launch, stream, configuration and kernel; or None if each call must be checked in full.

    Attributes
    ----------
    call, async_call : function
        ``call(grid, block, *arguments, shared_size=0)`` and ``async_call(grid, block, stream, *arguments,
        shared_size=0)``.
    """

    def __init__(self, letters: tuple[str, ...], check: Callable[..., tuple[Any, ...] | None]) -> None:
        self._check = check
        self._names: dict[str, Any] = {
            "allocation": DeviceAllocation, "address_of": address_of, "as_error": as_error, "check": self._full,
            "as_float": struct.Struct("<f").pack, "as_int": struct.Struct("<i").unpack,
        }  # fmt: skip
        self._settled: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.watch(False)
        expressions = [self._expression(f"a{number}", letter) for number, letter in enumerate(letters)]
        self._is_fast = None not in expressions
        values = ", ".join(map(str, ("core, config, kernel", *expressions)))
        names = [f"a{number}" for number in range(len(letters))]
        functions: dict[str, Any] = {}
        for name, stream, first in (("call", "None", ()), ("async_call", "stream", ("stream",))):
            text = (
                f"def {name}({', '.join(['grid', 'block', *first, *names])}, *, shared_size=0):\n"
                "    try:\n"
                "        last_grid, last_block, last_stream, last_shared, run, core, config, kernel = last\n"
                f"        if (grid is last_grid and block is last_block and {stream} is last_stream\n"
                "                and shared_size == last_shared):\n"
                f"            return run({values})\n"
                "    except Exception as error:\n"
                "        raise as_error(error)\n"
                f"    return check(grid, block, {stream}, ({''.join(f'{name}, ' for name in names)}), shared_size)\n"
            )
            functions[name] = make_function(text, "call of a prepared kernel", self._names)
        self.call: Any = functions["call"]
        self.async_call: Any = functions["async_call"]
        add_shortcut(self)

    def _expression(self, name: str, letter: str) -> str | None:
        """Return the expression of an argument for the driver; None if such calls are always checked in full."""
        if letter == "P":
            return (
                f"{name}.address if type({name}) is allocation else {name} if type({name}) is int else "
                f"address_of({name})"
            )
        if letter in "fd":
            return f"as_int(as_float({name}))[0]" if letter == "f" else f"float({name})"
        if letter == "?" or letter.endswith("s") or _dtype(letter).kind not in "iu":
            return None
        limits = np.iinfo(_dtype(letter))
        self._names[f"number_{letter}"] = _number(limits.min, limits.max)
        return f"{name} if type({name}) is int and {limits.min} <= {name} <= {limits.max} else number_{letter}({name})"

    def watch(self, watched: bool) -> None:
        """Forget the last call, so that the next ones are checked in full while there are witnesses."""
        self._names["last"] = (self,) + (None,) * 7
        self._settled.clear()

    def _full(self, grid: Any, block: Any, stream: Any, args: tuple[Any, ...], shared_size: int) -> None:
        """Make a call in full, or as one before with the same grid, block and stream."""
        try:
            key: tuple[Any, ...] = grid, block, id(stream), shared_size
            settled = self._settled.get(key)
        except TypeError:  # lists
            key, settled = (), None
        if settled is not None:
            self._names["last"] = grid, block, stream, shared_size, *settled
            function = self.call if stream is None else self.async_call
            function(grid, block, *([] if stream is None else [stream]), *args, shared_size=shared_size)
            return
        settled = self._check(grid, block, stream, args, shared_size)
        if settled is not None and self._is_fast and key and not watched():
            self._settled[key] = settled
            self._names["last"] = grid, block, stream, shared_size, *settled


def fits(letters: tuple[str, ...], parameters: Any) -> bool:
    """Return whether letters are the types of parameters (names and C++ types), so that their bytes are these."""
    if parameters is None or len(parameters) != len(letters):
        return False
    for letter, (_, cpp) in zip(letters, parameters, strict=True):
        dtype = scalar_dtype(cpp)
        if letter == "P" or dtype is None or letter.endswith("s"):
            if letter != "P" or not isinstance(cpp, Pointer):
                return False
        elif dtype.itemsize != _dtype(letter).itemsize or (dtype.kind == "f") != (_dtype(letter).kind == "f"):
            return False
    return True


def _number(least: int, most: int) -> Callable[[Any], int]:
    """Return a function that returns a number as an int, and raises unless it is from `least` to `most`."""

    def number(value: Any) -> int:
        result = int(value.__index__())
        if not least <= result <= most:
            raise ArgumentError(f"a prepared argument holds {least} to {most}, got {result}")
        return result

    return number
