"""What calls are given beside arrays, checked at the door: each refused by its name, with what is wanted."""

from __future__ import annotations

import os
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError


def whole(where: str, value: Any, least: int = 0) -> int:
    """`value` as an int from `least` up.

    Parameters
    ----------
    where : str
        The call and its argument, for the error.

    Raises
    ------
    ArgumentError
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least:
        return index(value)
    raise ArgumentError(f"{where} is a number from {least} up, got {value!r}")


def flag(where: str, value: Any) -> bool:
    """`value` as a bool: True, False, 1 or 0.

    Raises
    ------
    ArgumentError
    """
    if isinstance(value, int | np.integer | np.bool_) and value in (0, 1):
        return bool(value)
    raise ArgumentError(f"{where} is True or False, got {value!r}")


def dtype_of(where: str, value: Any) -> np.dtype:
    """`value` as a dtype.

    Raises
    ------
    ArgumentError
    """
    try:
        found: np.dtype = np.dtype(value)
    except (TypeError, ValueError, SyntaxError) as error:
        raise ArgumentError(f"{where} must be a dtype, got {value!r}: {error}") from None
    return found


def dtype_or_none(where: str, value: Any) -> np.dtype | None:
    """`value` as a dtype where one is asked for; None where it is left to the call.

    Raises
    ------
    ArgumentError
    """
    return value if value is None or isinstance(value, np.dtype) else dtype_of(where, value)


def path_of(where: str, value: Any) -> Path:
    """`value` as a path.

    Raises
    ------
    ArgumentError
    """
    if isinstance(value, str | os.PathLike):
        return Path(value)
    raise ArgumentError(f"{where} is a path, got {type(value).__name__}: {value!r}")


def text_of(where: str, value: Any) -> str:
    """`value`, a str.

    Raises
    ------
    ArgumentError
    """
    if isinstance(value, str):
        return value
    raise ArgumentError(f"{where} is a str, got {type(value).__name__}: {value!r}")
