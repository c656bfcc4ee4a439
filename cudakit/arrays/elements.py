"""Element types that kernels compute with, and the launches of kernels that go through arrays element by element."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from cudakit.arrays.layout import merged
from cudakit.arrays.views import is_row_major, record, span
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.types.cpp import spelling

#: A kernel with its launch and the numbers that follow its arrays.
Launch: TypeAlias = tuple[Kernel, Config, tuple[Any, ...]]

_PACK = 16
_STRIDED_BLOCK = 256


def number_of(op: str, dtype: np.dtype) -> Any:
    """The template argument for numbers of a dtype; complex ones as pairs, for which no header is read.

    Raises
    ------
    ArgumentError
    """
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return f"cudakit::parts<{'float' if dtype.itemsize == 8 else 'double'}>"
    if (dtype.kind in "?biuf" and dtype.itemsize <= 8) or dtype.name == "bfloat16":
        return dtype
    raise ArgumentError(
        f"{op}: {dtype} is not a number that it takes: bool, integers, floating point up to 64 bits, complex"
    )


def cpp(op: str, dtype: np.dtype, what: str = "x") -> str:
    """The C++ type of numbers of a dtype.

    Raises
    ------
    ArgumentError
        For a dtype that is no number's, or not in the device's byte order.
    """
    spelled = spelling(dtype) if dtype.kind in "biufc" or dtype.name == "bfloat16" else None
    if spelled is None:
        raise ArgumentError(f"{op}: {what} has dtype {dtype}; it takes bool, integers, floating point or complex")
    return spelled


def accumulator(op: str, dtype: np.dtype) -> tuple[str, int]:
    """What a sum of a result's dtype is kept in, and its size in bytes."""
    if dtype.kind in "biu":
        return ("unsigned long long" if dtype.kind == "u" else "long long"), 8
    return ("float", 4) if dtype.itemsize == 2 else (cpp(op, dtype), dtype.itemsize)


def is_flat(shape: Sequence[int], *steps: Sequence[int]) -> bool:
    """Whether all the arrays are C-contiguous."""
    return all(is_row_major(shape, each) for each in steps)


def flat_launch(name: str, arguments: tuple[Any, ...], size: int, widest: int, items: int, block: int) -> Launch:
    """Launch of a template that goes through contiguous arrays: the last of its `arguments` is the block.

    A thread takes `items` times 16 bytes of the widest type.
    """
    kernel = Kernel.from_template(name)[(*arguments, block)]
    return kernel, config(-(-size * widest // (_PACK * items * block)), block), (size,)


def strided_launch(
    name: str, arguments: tuple[Any, ...], shape: Sequence[int], widest: int, **steps: Sequence[int]
) -> Launch:
    """Kernel, configuration and numbers of a template that takes a layout with the steps of each array by its name."""
    extents, *strides = merged(shape, *steps.values())
    if not extents:
        extents, strides = (1,), [(1,)] * len(strides)
    size = prod(extents)
    layout = record(shape=extents, **dict(zip(steps, strides, strict=True)))
    index = "int" if size < 2**31 - _PACK else "long long"
    kernel = Kernel.from_template(name)[(*arguments, len(extents), index)]
    starts = tuple(span(shape, each)[0] for each in steps.values())
    return kernel, config(-(-size * widest // (_PACK * _STRIDED_BLOCK)), _STRIDED_BLOCK), (*starts, size, layout)
