"""Checks of options and other arguments beside arrays. Each error names the argument and the expected values."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, error_text, shortened


def whole(where: str, value: Any, least: int = 0) -> int:
    """Return `value` as an int of at least `least`.

    Parameters
    ----------
    where : str
        Call and argument, for the error.
    value : object
        The user's value.
    least : int
        Least allowed value.

    Raises
    ------
    ArgumentError
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if value >= 2**1000:
            raise ArgumentError.of(where, "is a number below 2**1000", shortened(value))
        if value >= least:
            return index(value)
    raise ArgumentError.of(where, f"is a number from {least} up", shortened(value))


def real(where: str, value: Any) -> float:
    """Return `value`, a number, as a float.

    Raises
    ------
    ArgumentError
    """
    try:
        if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.timedelta64):
            return float(value)
    except OverflowError:  # an int that is greater than every float
        pass
    raise _other(where, "must be a number", value)


def flag(where: str, value: Any) -> bool:
    """Return True, False, 1 or 0 as a bool. `where` names call and argument in errors.

    Raises
    ------
    ArgumentError
        For any other value.
    """
    if isinstance(value, int | np.integer | np.bool_) and value in (0, 1):
        return bool(value)
    raise ArgumentError.of(where, "is True or False", shortened(value))


#: NumPy's rules of casting.
CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")


def is_one_of(value: Any, words: Container[str | None]) -> bool:
    """Return whether `value` is one of `words`, which may include None. False for an unhashable value."""
    return (value is None or isinstance(value, str)) and value in words


def listed(clause: str, value: Any, hint: str = "") -> list[Any]:
    """Return the elements of an iterable as a list. `clause` and `hint` are for the error, as in `iterated`.

    Raises
    ------
    ArgumentError
        If the value is a str, or no iterable.
    """
    return list(iterated(clause, value, hint))


def array_of(where: str, value: Any) -> np.ndarray:
    """Convert a number, or nested lists of numbers, to a NumPy array. `where` names call and argument in errors.

    Raises
    ------
    ArgumentError
        If NumPy cannot convert the value.
    """
    try:
        return np.asarray(value)
    except Exception as error:  # an error of NumPy's, or of an object in the lists
        raise ArgumentError(f"{where} is no array: {error_text(error)}; got {shortened(value)}") from None


def iterated(clause: str, value: Any, hint: str = "") -> Iterator[Any]:
    """Return an iterator over the elements of an iterable, which may not be a str.

    Parameters
    ----------
    clause : str
        Description of the argument, for the error: "prewarm: archs are several".
    value : object
        The user's value.
    hint : str
        Advice at the end of the error.

    Raises
    ------
    ArgumentError
    """
    try:
        if not isinstance(value, str | bytes):
            return iter(value)
    except TypeError:  # an array without dimensions is iterable by its class
        pass
    raise ArgumentError(f"{clause}, got {shortened(value)}{hint}")


def dtype_of(where: str, value: Any) -> np.dtype:
    """Return `value` as a dtype.

    Raises
    ------
    ArgumentError
    """
    try:
        dtype: np.dtype = np.dtype(value)
    except Exception as error:  # an error of NumPy's, or of the value's repr
        raise ArgumentError(f"{where} must be a dtype, got {shortened(value)}: {error_text(error)}") from None
    return dtype


def dtype_or_none(where: str, value: Any) -> np.dtype | None:
    """Return `value` as a dtype, or None if it is None.

    Raises
    ------
    ArgumentError
    """
    return value if value is None or isinstance(value, np.dtype) else dtype_of(where, value)


def path_of(where: str, value: Any) -> Path:
    """Return `value` as a path.

    Raises
    ------
    ArgumentError
    """
    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise _other(where, "is a path", value)


def text_of(where: str, value: Any) -> str:
    """Return `value` if it is a str.

    Raises
    ------
    ArgumentError
    """
    if isinstance(value, str):
        return value
    raise _other(where, "is a str", value)


def _other(where: str, clause: str, value: Any) -> ArgumentError:
    return ArgumentError.of(where, clause, f"{type(value).__name__}: {shortened(value)}")
