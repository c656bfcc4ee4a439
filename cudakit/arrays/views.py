"""Arrays as memory: how far apart their elements are, what they reach, and such numbers for kernels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError


def steps_of(op: str, dtype: np.dtype, strides: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements.

    Raises
    ------
    ArgumentError
        For strides that are not whole elements.
    """
    if any(step % dtype.itemsize for step in strides):
        raise ArgumentError(
            f"{op}: strides {tuple(strides)} in bytes are not whole elements of {dtype}; copy the array first"
        )
    return tuple(step // dtype.itemsize for step in strides)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Steps of a C-contiguous array in elements."""
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def is_row_major(shape: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether an array is C-contiguous."""
    own = row_major(shape)
    return all(n == 1 or step == wanted for n, step, wanted in zip(shape, steps, own, strict=True))


def span(shape: Sequence[int], steps: Sequence[int]) -> tuple[int, int]:
    """Elements of memory before an array's first element that it reaches, and all that it reaches, gaps included."""
    if 0 in shape:
        return 0, 0
    below = sum((n - 1) * -step for n, step in zip(shape, steps, strict=True) if step < 0)
    above = sum((n - 1) * step for n, step in zip(shape, steps, strict=True) if step > 0)
    return below, below + above + 1


def view_of(shape: Sequence[int], steps: Sequence[int], dtype: np.dtype | None = None) -> tuple[int, int] | None:
    """What `flat` needs of an array that a kernel cannot take as it is; None where it can.

    It can take one that is C-contiguous; on the emulator a struct without dimensions would go by value.
    """
    is_struct = dtype is not None and dtype.names is not None and not shape
    return None if is_row_major(shape, steps) and not is_struct else span(shape, steps)


def flat(array: Any, below: int, count: int) -> Any:
    """The memory that an array reaches, as a contiguous array of `count` elements from `below` before its first on."""
    if isinstance(array, np.ndarray):
        ways: tuple[Any, ...] = tuple([slice(None, None, -1 if step < 0 else 1) for step in array.strides])
        upward = array[(*ways, ...)]
        return np.lib.stride_tricks.as_strided(upward, (count,), (array.itemsize,), writeable=array.flags.writeable)
    memory = array.data
    if below:
        memory = memory - below * array.itemsize
    return sys.modules["cupy"].ndarray((count,), array.dtype, memory)


def record(**fields: Any) -> Any:
    """Numbers and lists of numbers as a struct of long long that a kernel takes by value."""
    kinds = [(name, np.int64, np.shape(value)) for name, value in fields.items()]
    record = np.zeros((), kinds)
    for name, value in fields.items():
        record[name] = value
    found: Any = record[()]
    return found
