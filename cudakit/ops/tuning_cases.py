"""Calls of ops by which their choices are tuned: arrays of a dtype and a size, and the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cudakit.generate.stencil import stencil
from cudakit.ops import reduce
from cudakit.ops.arithmetic import matvec
from cudakit.ops.attention import attention
from cudakit.ops.filters import convolve2d, erode, gaussian_blur, median3, sobel
from cudakit.ops.matmul import matmul
from cudakit.ops.sort import argsort, sort

Call: TypeAlias = Callable[[Sequence[Any], Any, Any], Any]
Arrays: TypeAlias = Callable[[np.random.Generator, str, int], list[np.ndarray]]


class Case(NamedTuple):
    """A call of an op.

    Attributes
    ----------
    op : str
        Name of the op.
    call : callable
        Function of the input arrays, the results or None, and the stream, which calls the op.
    arrays : callable
        Function of a random generator, a dtype and a number of elements, which returns host arrays.
    dtypes : tuple of str
        Dtypes to tune for.
    sizes : tuple of int
        Numbers of elements to tune for.
    """

    op: str
    call: Call
    arrays: Arrays
    dtypes: tuple[str, ...]
    sizes: tuple[int, ...]


def numbers(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Return random numbers: all bits of integers, a normal distribution of others."""
    target = np.dtype(dtype)
    if target.kind in "iu":
        limits = np.iinfo(target)
        return rng.integers(limits.min, limits.max, shape, target, endpoint=True)
    return rng.standard_normal(shape, np.float32).astype(target)


def _line(rng: np.random.Generator, dtype: str, size: int) -> list[np.ndarray]:
    return [numbers(rng, dtype, size)]


def _pair(rng: np.random.Generator, dtype: str, size: int) -> list[np.ndarray]:
    return [numbers(rng, dtype, size), np.arange(size, dtype=f"u{np.dtype(dtype).itemsize}")]


def _rows(length: int) -> Arrays:
    return lambda rng, dtype, size: [numbers(rng, dtype, max(2, size // length), length)]


def _columns(width: int) -> Arrays:
    return lambda rng, dtype, size: [numbers(rng, dtype, max(2, size // width), width)]


def _square(rank: int, count: int = 1) -> Arrays:
    """Return a maker of arrays of equal extents, of `size` elements each."""
    return lambda rng, dtype, size: [numbers(rng, dtype, *[round(size ** (1 / rank))] * rank) for _ in range(count)]


def _cube(rng: np.random.Generator, dtype: str, size: int) -> list[np.ndarray]:
    """Return two matrices whose product takes `size` multiplications."""
    return [numbers(rng, dtype, *[round(size ** (1 / 3))] * 2) for _ in range(2)]


def _matrix_and_vector(rng: np.random.Generator, dtype: str, size: int) -> list[np.ndarray]:
    (a,) = _square(2)(rng, dtype, size)
    return [a, numbers(rng, dtype, a.shape[1])]


def _heads(d: int) -> Arrays:
    """Return a maker of queries, keys and values of 16 heads; `size` is the number of products of a query and a key."""
    return lambda rng, dtype, size: [numbers(rng, dtype, 16, round((size / 16) ** 0.5), d) for _ in range(3)]


def _called(op: Callable[..., Any], **options: Any) -> Call:
    return lambda x, out, stream: op(*x, out=out, stream=stream, **options)


def _by_columns(x: Sequence[Any], out: Any, stream: Any) -> Any:
    return matvec(x[0].T, x[1], out=out, stream=stream)


def _stepped(expression: str) -> Call:
    return lambda x, out, stream: stencil("T out", expression, name="tuned_stencil")(*x, out=out, stream=stream)


_MANY = (1 << 24, 1 << 20)
_SIZES = (1 << 24,)
_FLOATS = ("float32", "float16", "float64")
_CROSS = "0.2f * (x(0, 0) + x(0, -1) + x(0, 1) + x(-1, 0) + x(1, 0))"
_CROSS_3D = "x(0, 0, 0) + x(0, 0, -1) + x(0, 0, 1) + x(0, -1, 0) + x(0, 1, 0) + x(-1, 0, 0) + x(1, 0, 0)"

#: All calls, the most used first.
CASES = (
    Case("sort", _called(sort), _line, ("float32", "float64", "float16", "uint8"), _MANY),
    Case("sum", _called(reduce.sum), _line, ("float32", "float16", "float64", "int32"), _MANY),
    Case("sum", _called(reduce.sum, axis=1), _rows(4096), ("float32", "float16"), _MANY),
    Case("sum", _called(reduce.sum, axis=1), _rows(65536), ("float32",), _SIZES),
    Case("sum", _called(reduce.sum, axis=1), _rows(256), ("float32", "float16"), _SIZES),
    Case("sum", _called(reduce.sum, axis=0), _columns(1024), ("float32", "float16"), _MANY),
    Case("matmul", _called(matmul, by="threads"), _cube, ("float32", "float16", "float64"),
         (1 << 36, 1 << 33, 1 << 30)),
    Case("matmul", _called(matmul, by="threads", precision="tf32"), _cube, ("float32",), (1 << 36, 1 << 33, 1 << 30)),
    Case("attention", _called(attention, by="threads"), _heads(128), ("float16",), (1 << 28, 1 << 24)),
    Case("attention", _called(attention, by="threads", causal=True), _heads(128), ("float16",), (1 << 28, 1 << 24)),
    Case("attention", _called(attention, by="threads"), _heads(64), ("float16",), (1 << 28, 1 << 24)),
    Case("attention", _called(attention, by="threads", causal=True), _heads(64), ("float16",), (1 << 28, 1 << 24)),
    Case("gaussian_blur", _called(gaussian_blur, size=3), _square(2), ("uint8", "float32"), _MANY),
    Case("gaussian_blur", _called(gaussian_blur, size=5), _square(2), ("uint8", "float32"), _MANY),
    Case("gaussian_blur", _called(gaussian_blur, size=7), _square(2), ("uint8", "float32"), _SIZES),
    Case("gaussian_blur", _called(gaussian_blur, size=15), _square(2), ("uint8", "float32"), _SIZES),
    Case("median3", _called(median3), _square(2), ("uint8", "float32"), _MANY),
    Case("stencil", _stepped(_CROSS), _square(2), ("float32", "float64"), _MANY),
    Case("stencil", _stepped(_CROSS_3D), _square(3), ("float32", "float64"), _SIZES),
    Case("max", _called(reduce.max), _line, ("float32",), _MANY),
    Case("max", _called(reduce.max, axis=1), _rows(4096), ("float32",), _SIZES),
    Case("max", _called(reduce.max, axis=0), _columns(1024), ("float32",), _SIZES),
    Case("argmax", _called(reduce.argmax), _line, ("float32",), _MANY),
    Case("argmax", _called(reduce.argmax, axis=1), _rows(4096), ("float32",), _SIZES),
    Case("argmax", _called(reduce.argmax, axis=1), _rows(256), ("float32",), _SIZES),
    Case("argmax", _called(reduce.argmax, axis=0), _columns(1024), ("float32",), _SIZES),
    Case("matvec", _called(matvec), _matrix_and_vector, _FLOATS, _SIZES),
    Case("matvec", _by_columns, _matrix_and_vector, _FLOATS, _MANY),
    Case("argsort", _called(argsort), _line, ("float32", "float64"), _MANY),
    Case("sobel", _called(sobel), _square(2), ("uint8", "float32"), _SIZES),
    Case("convolve2d", _called(convolve2d, kernel=np.ones((3, 3))), _square(2), ("uint8", "float32"), _SIZES),
    Case("erode", _called(erode, size=3), _square(2), ("uint8", "float32"), _SIZES),
)  # fmt: skip
