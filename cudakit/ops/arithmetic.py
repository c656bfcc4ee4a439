"""Sums of elements, and products with a vector."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import flat, span, steps_of
from cudakit.arrays.output import checked_output, number_of, target
from cudakit.arrays.place import array_place, as_array, busy_blocks
from cudakit.arrays.repeated import repeated
from cudakit.arrays.tunable import Choice, planned
from cudakit.errors import ArgumentError
from cudakit.generate.call import CallArguments
from cudakit.generate.declarations import Parameter
from cudakit.generate.reduction import reduction
from cudakit.generate.ufuncs import Ufunc
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import Ints, delivered
from cudakit.types.cpp import NARROW


def add(x: Any, y: Any, *, out: Any = None, stream: Any = None) -> Any:
    """out[k] = x[k] + y[k]

    Parameters
    ----------
    x, y : array
        Inputs: shapes that can be broadcast together, any strides; bool, integers, floating point (float16 and
        bfloat16 too) or complex.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast). It may be `x` or `y` itself. Inputs that overlap `out` in another way are copied first.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        Sums of the elements. Dtype: NumPy's promotion of both dtypes (``numpy.result_type``). Integers wrap around;
        bool is `or`.

    Raises
    ------
    ArgumentError
        Shapes or dtypes do not fit, or an operand is a number. Pass an array instead of a number: its dtype is
        certain.
    """
    return _ADD(x, y, out=out, stream=stream)


class _PromotingUfunc(Ufunc):
    """A NumPy function of two arrays. The dtype of its result is NumPy's promotion of both dtypes."""

    def _job(self, call: CallArguments, outs: Sequence[Any], *rest: Any) -> Any:
        op = self.recipe.name
        x, y = (as_array(op, name, value)[0] for name, value in zip("xy", call.values, strict=True))
        shape = _shape(op, x.dtype, x.shape, y.dtype, y.shape)
        if outs[0] is not None:
            checked_output(op, call.place, outs[0], shape, None)
        return super()._job(call, outs, *rest)

    def _shown(self, p: Parameter) -> str:
        return self.recipe.name


@functools.lru_cache(4096)
def _shape(op: str, x_dtype: np.dtype, x_shape: Ints, y_dtype: np.dtype, y_shape: Ints) -> Ints:
    """Return the shape of the result.

    Raises
    ------
    ArgumentError
        The shapes cannot be broadcast, or the dtypes cannot be added.
    """
    try:
        shape = np.broadcast_shapes(x_shape, y_shape)
    except ValueError:
        raise ArgumentError(
            f"{op}: x has shape {x_shape} and y {y_shape}, which cannot be broadcast together"
        ) from None
    try:
        dtype = np.result_type(x_dtype, y_dtype)
    except TypeError as error:
        raise ArgumentError(f"{op}: x is of {x_dtype} and y of {y_dtype}: {error}") from None
    for operand_dtype in (x_dtype, y_dtype, dtype):
        number_of(op, operand_dtype)
    return shape


_ADD = _PromotingUfunc("add")


# --- matvec, outer ----------------------------------------------------------------------------------------------------


_MATVEC = reduction("T a, T v", "T out", "a * v", "a + b", "0", name="matvec")
_OUTER = Ufunc("multiply")
#: C++ type of products and sums by dtype, for dtypes with a special kernel.
_SUMS = {
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16", "uint32"), "unsigned int"),
    **dict.fromkeys((*NARROW, "float32"), "float"),
    "float64": "double",
}
_PACK, _BLOCK, _ROWS, _WARPS = 16, 256, 4, 4
#: Least elements of a row that occupy a warp; least rows for each multiprocessor that keep all busy.
_LONG, _MANY = 256, 16
#: Blocks of a multiprocessor for which columns are cut, and least lines of a part.
_BLOCKS, _PART = 8, 64
_BY_ROWS = Choice("matvec by rows", {"rows": (1, 2, 4, 8), "block": (64, 128, 256, 512)})
_BY_COLUMNS = Choice("matvec by columns", {"warps": (4, 8, 16), "blocks": (2, 4, 8, 16)})


class _Plan(NamedTuple):
    """A launch of `matvec`: kernel, configuration, and last arguments.

    `parts` is the number of partial sums of each result. If it is above 1, they must be added up after the launch.
    """

    kernel: Kernel
    config: Config
    numbers: Ints
    parts: int = 1


@repeated("out")
def matvec(a: Any, v: Any, *, out: Any = None, stream: Any = None) -> Any:
    """out[…, i] = Σ a[…, i, k] · v[…, k], in one pass over both. As in ``numpy.matvec``, but without conjugation.

    Parameters
    ----------
    a : array, shape (…, m, k)
        Matrices of any dtype but fp8, any strides. Rows and columns are read in the order of their memory.
    v : array, shape (…, k)
        Vectors of the dtype of `a`. Dimensions before the last one are broadcast.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array, shape (…, m)
        Products, of the dtype of `a`. Integers wrap around. For bool: whether any pair is true in both. Float16 and
        bfloat16 are summed in float32.

    Raises
    ------
    ArgumentError
        Shapes or dtypes do not fit.
    """
    place, (a, v) = array_place("matvec", stream, ("a", a), ("v", v))
    try:
        if a.ndim < 2 or v.ndim < 1 or a.shape[-1] != v.shape[-1]:
            raise ValueError
        around = np.broadcast_shapes(a.shape[:-2], v.shape[:-1])
    except ValueError:
        raise ArgumentError(
            f"matvec: shapes {a.shape} and {v.shape} do not fit; it takes (…, m, k) and (…, k)"
        ) from None
    if a.dtype != v.dtype:
        raise ArgumentError(f"matvec: a is {a.dtype} and v is {v.dtype}; cast one of them (ck.ops.cast)")
    plan = None
    if a.ndim == 2 and v.ndim == 1 and v.flags.c_contiguous and a.size and a.dtype.name in _SUMS:
        steps = steps_of("matvec", a.dtype, a.strides)
        plan = _plan(a.dtype, a.shape, steps, place.alignment(a, v), place.device)
    to = target("matvec", place, out, (*around, a.shape[-2]), a.dtype, a, v)
    if plan is None or not to.written.flags.c_contiguous:
        _MATVEC(a, v[..., None, :], axis=-1, out=to.written, stream=place.stream)
        return delivered(place, to)
    memory = a if a.flags.c_contiguous else flat(a, *span(a.shape, steps))
    if plan.parts == 1:
        place.launch(plan.kernel, plan.config, memory, v, to.written, *plan.numbers)
        return delivered(place, to)
    total = _SUMS[a.dtype.name]
    parts = place.empty((plan.parts, a.shape[0]), {"float": "f4", "double": "f8"}.get(total, "u4"))
    place.launch(plan.kernel, plan.config, memory, v, parts, *plan.numbers)
    place.launch(
        _adding(a.dtype, total), config(-(-a.shape[0] // _BLOCK), _BLOCK), parts, to.written, a.shape[0], plan.parts
    )
    return delivered(place, to)


@planned(1024)
def _plan(dtype: np.dtype, shape: Ints, steps: Ints, alignment: int, device: int | str) -> _Plan | None:
    """Return the launch for a matrix of `shape`, with `steps` in elements from row to row and from column to column.

    Return None if a general reduction is as fast, or the only way.
    """
    (m, k), (row, column), size = shape, steps, dtype.itemsize
    total, units = _SUMS[dtype.name], busy_blocks(device)
    if column == 1 and row >= k and k >= _LONG and m >= _MANY * units:
        count = gcd(_PACK, alignment, row * size) // size
        rows, block = _BY_ROWS.point(f"{dtype}", m * k, device, (_ROWS, _BLOCK))
        kernel = Kernel.from_template("vectors/matvec_rows")[dtype, total, max(1, count), rows, block]
        return _Plan(kernel, config(-(-m // (rows * block // 32)), block), (m, k, row))
    if row == 1 and column >= m and m >= 32 and k >= _PART:
        count = max(1, gcd(_PACK, alignment, column * size) // size)
        across = -(-m // (32 * count))
        warps, blocks = _BY_COLUMNS.point(f"{dtype}", m * k, device, (_WARPS, _BLOCKS))
        parts = max(1, min(k // _PART, -(-blocks * units // across)))
        part_type = {"float": "float", "double": "double"}.get(total, "unsigned int") if parts > 1 else dtype
        kernel = Kernel.from_template("vectors/matvec_columns")[dtype, total, part_type, count, warps]
        return _Plan(kernel, config((across, parts), 32 * warps), (m, k, column), parts)
    return None


@functools.lru_cache(1024)
def _outer_of(dtype: np.dtype, count: int) -> Kernel:
    return Kernel.from_template("vectors/outer")[dtype, _SUMS[dtype.name], count, _ROWS, _BLOCK]


@functools.lru_cache(1024)
def _adding(dtype: np.dtype, total: str) -> Kernel:
    return Kernel.from_template("vectors/add_parts")[dtype, total, _BLOCK]


@repeated("out")
def outer(x: Any, y: Any, *, out: Any = None, stream: Any = None) -> Any:
    """out[i, j] = x[i] · y[j], as ``numpy.outer``.

    Parameters
    ----------
    x, y : array
        Inputs of any shapes (flattened), any strides and any dtypes that NumPy multiplies.
    out : array, shape (x.size, y.size), optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array, shape (x.size, y.size)
        Products of all pairs. Dtype: NumPy's promotion of both dtypes.

    Raises
    ------
    ArgumentError
        The dtypes cannot be multiplied, or `out` does not fit.
    """
    place, (x, y) = array_place("outer", stream, ("x", x), ("y", y))
    shape = x.size, y.size
    if out is not None:
        checked_output("outer", place, out, shape, None)
    x, y = x.reshape(-1, 1), y.reshape(1, -1)
    is_plain = x.dtype == y.dtype and x.dtype.name in _SUMS and x.flags.c_contiguous and y.flags.c_contiguous
    if not is_plain or 0 in shape or (out is not None and not as_array("outer", "out", out)[0].flags.c_contiguous):
        return _OUTER(x, y, out=out, stream=place.stream)
    to = target("outer", place, out, shape, x.dtype, x, y)
    count = max(1, gcd(_PACK, place.alignment(y, to.written), y.nbytes) // x.itemsize)
    across = -(-shape[1] // (count * _BLOCK))
    place.launch(
        _outer_of(x.dtype, count), config(across * -(-shape[0] // _ROWS), _BLOCK), x, y, to.written, *shape, across
    )
    return delivered(place, to)
