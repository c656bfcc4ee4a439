"""Functions of ``pycuda.gpuarray``: arrays made, moved, chosen from and reduced."""

from __future__ import annotations

import builtins
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudakit.adapters.pycuda.allocations import mem_alloc
from cudakit.adapters.pycuda.array_arithmetic import (
    calculate,
    check_contiguous,
    common_dtype,
    scalar_of,
    store,
    work_on,
)
from cudakit.adapters.pycuda.array_class import GPUArray, reduce_to, splay, to_gpu, to_gpu_async
from cudakit.adapters.pycuda.array_layout import ArrayFlags, packed_strides
from cudakit.adapters.pycuda.vector_types import vec
from cudakit.errors import ArgumentError, shortened

__all__ = [
    "ArrayFlags", "GPUArray", "all", "any", "arange", "concatenate", "dot", "empty", "empty_like", "if_positive",
    "logical_and", "logical_not", "logical_or", "max", "maximum", "min", "minimum", "multi_put", "multi_take",
    "multi_take_put", "ones", "ones_like", "reshape", "splay", "stack", "subset_dot", "subset_max", "subset_min",
    "subset_sum", "sum", "take", "to_gpu", "to_gpu_async", "transpose", "vec", "where", "zeros", "zeros_like",
]  # fmt: skip

# ── new arrays ───────────────────────────────────────────────────────────────────────────────────────────────────


empty = GPUArray


def _filled(value: int) -> Callable[..., GPUArray]:
    """Return a function that makes an array of one number."""

    def make(shape: Any, dtype: Any = np.float64, allocator: Any = mem_alloc, order: str = "C") -> GPUArray:
        new = GPUArray(shape, dtype, allocator, order=order)
        return new.fill(np.full((), value, new.dtype))

    make.__doc__ = f"Return a new array of {value}s."
    return make


zeros: Callable[..., GPUArray] = _filled(0)
ones: Callable[..., GPUArray] = _filled(1)


def empty_like(other_ary: Any, dtype: Any = None, order: str = "K") -> GPUArray:
    """Return a new array, not initialised, with shape, dtype and allocator of another array.

    Parameters
    ----------
    other_ary : GPUArray
        Array with the shape.
    dtype : dtype, optional
        Dtype of the new array.
    order : {"C", "F", "A", "K"}
        Memory order. "A" is Fortran order for arrays in Fortran order, else C order. "K" has the axes in the order of
        the other array's strides.
    """
    new_dtype = np.dtype(other_ary.dtype if dtype is None else dtype)
    if order == "K":
        strides = [stride * new_dtype.itemsize // other_ary.dtype.itemsize for stride in packed_strides(other_ary)]
        if not other_ary.flags.c_contiguous:
            return GPUArray(other_ary.shape, new_dtype, other_ary.allocator, strides=strides)
    is_fortran = order == "A" and other_ary.flags.f_contiguous and not other_ary.flags.c_contiguous
    order = {"A": "F" if is_fortran else "C", "K": "C"}.get(order, order)
    return GPUArray(other_ary.shape, new_dtype, other_ary.allocator, order=order)


def zeros_like(other_ary: Any, dtype: Any = None, order: str = "K") -> GPUArray:
    """Return a new array of zeros; otherwise as `empty_like`."""
    new = empty_like(other_ary, dtype, order)
    return new.fill(np.zeros((), new.dtype))


def ones_like(other_ary: Any, dtype: Any = None, order: str = "K") -> GPUArray:
    """Return a new array of ones; otherwise as `empty_like`."""
    new = empty_like(other_ary, dtype, order)
    return new.fill(np.ones((), new.dtype))


def arange(*args: Any, **kwargs: Any) -> GPUArray:
    """Return ``start, start + step, …`` below `stop`, called as ``arange([start,] stop[, step,] [dtype])``.

    The dtype may be the last argument by position, if it is an `np.dtype`.

    Raises
    ------
    ArgumentError
        There are too many arguments, one is given twice, or `stop` is missing.

    Warns
    -----
    UserWarning
        No dtype is given, and that of the arguments is not float32.
    """
    stream = kwargs.pop("stream", None)
    values, dtype = (args[:-1], args[-1]) if args and isinstance(args[-1], np.dtype) else (args, None)
    names = ("stop",) if len(values) == 1 else ("start", "stop", "step")
    named = dict(zip(names, values, strict=False)) | ({} if dtype is None else {"dtype": dtype})
    if len(values) > len(names) or named.keys() & kwargs.keys() or kwargs.keys() - {"start", "stop", "step", "dtype"}:
        raise ArgumentError(
            f"arange takes start, stop, step and dtype, each once, got {shortened(args)} and {shortened(kwargs)}"
        )
    named |= kwargs
    if "stop" not in named:
        raise ArgumentError("arange: stop is missing")
    start, stop, step = named.get("start", 0), named["stop"], named.get("step", 1)
    element = np.dtype(named.get("dtype") or np.array([start, stop, step]).dtype)
    if named.get("dtype") is None and element != np.float32:
        warnings.warn(f"arange takes {element} from its arguments; give dtype=", stacklevel=2)
    first, last, by = (scalar_of("arange", value, element) for value in (start, stop, step))
    new = GPUArray(math.ceil((last - first) / by), element)
    if new.size:
        calculate("arange", lambda xp: xp.arange(new.size).astype(element) * by + first, (), new, stream)
    return new


# ── elements by index ────────────────────────────────────────────────────────────────────────────────────────────


def take(a: GPUArray, indices: GPUArray, out: GPUArray | None = None, stream: Any = None) -> GPUArray:
    """Return ``a[indices]``, where `a` counts as one-dimensional in the order of memory.

    Raises
    ------
    ArgumentError
        `indices` has not one dimension.
    """
    _check_indices("take", indices)
    out = GPUArray(indices.shape, a.dtype, a.allocator) if out is None else out
    return _take("take", a, indices, 0, out, stream)


def _take(operation: str, a: GPUArray, indices: GPUArray, offset: int, out: GPUArray, stream: Any) -> GPUArray:
    check_contiguous(operation, a)
    check_contiguous(operation, indices)
    with work_on(stream) as xp:
        source, places = a.reshape(a.size).device_array(), indices.device_array()
        store(operation, xp, xp.take(source, places + offset if offset else places), out)
    return out


def _check_indices(operation: str, *indices: GPUArray) -> None:
    for array in indices:
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ArgumentError(
                f"{operation}: indices are integers with one dimension, got {array.dtype} of shape {array.shape}"
            )


def _outputs(
    operation: str, arrays: Sequence[GPUArray], shape: Any, out: Sequence[GPUArray] | None
) -> Sequence[GPUArray]:
    """Return the arrays of results: `out`, or new ones.

    Raises
    ------
    ArgumentError
        The arrays differ in dtype, or `out` has another length or dtype.
    """
    out = [GPUArray(shape, array.dtype, array.allocator) for array in arrays] if out is None else out
    if len({array.dtype for array in (*arrays, *out)}) > 1 or len(out) != len(arrays):
        raise ArgumentError(
            f"{operation}: arrays and out have one dtype and one length, got {[str(array.dtype) for array in arrays]} "
            f"and {[str(array.dtype) for array in out]}"
        )
    return out


def multi_take(
    arrays: Sequence[GPUArray], indices: GPUArray, out: Sequence[GPUArray] | None = None, stream: Any = None
) -> Sequence[GPUArray]:
    """Return ``[a[indices] for a in arrays]``."""
    if not arrays:
        return []
    _check_indices("multi_take", indices)
    outputs = _outputs("multi_take", arrays, indices.shape, out)
    return [_take("multi_take", a, indices, 0, o, stream) for a, o in zip(arrays, outputs, strict=True)]


def multi_take_put(
    arrays: Sequence[GPUArray],
    dest_indices: GPUArray,
    src_indices: GPUArray,
    dest_shape: Any = None,
    out: Sequence[GPUArray] | None = None,
    stream: Any = None,
    src_offsets: Sequence[int] | None = None,
) -> Sequence[GPUArray]:
    """Store ``out[k][dest_indices] = arrays[k][src_indices + src_offsets[k]]`` and return `out`.

    Raises
    ------
    ArgumentError
        The arrays of indices differ in shape or dtype, or lengths differ.
    """
    if not arrays:
        return []
    _check_indices("multi_take_put", dest_indices, src_indices)
    if src_indices.dtype != dest_indices.dtype or src_indices.shape != dest_indices.shape:
        raise ArgumentError(
            f"multi_take_put: src_indices and dest_indices have one dtype and shape, got {src_indices.dtype} of "
            f"{src_indices.shape} and {dest_indices.dtype} of {dest_indices.shape}"
        )
    offsets = [0] * len(arrays) if src_offsets is None else src_offsets
    if len(offsets) != len(arrays):
        raise ArgumentError(f"multi_take_put: {len(arrays)} arrays have {len(offsets)} src_offsets")
    outputs = _outputs("multi_take_put", arrays, dest_shape, out)
    for array, offset, target in zip(arrays, offsets, outputs, strict=True):
        values = GPUArray(src_indices.shape, array.dtype, array.allocator)
        _put(_take("multi_take_put", array, src_indices, int(offset), values, stream), dest_indices, target, stream)
    return outputs


def multi_put(
    arrays: Sequence[GPUArray],
    dest_indices: GPUArray,
    dest_shape: Any = None,
    out: Sequence[GPUArray] | None = None,
    stream: Any = None,
) -> Sequence[GPUArray]:
    """Store ``out[k][dest_indices] = arrays[k]`` and return `out`."""
    if not arrays:
        return []
    _check_indices("multi_put", dest_indices)
    outputs = _outputs("multi_put", arrays, dest_shape, out)
    for array, target in zip(arrays, outputs, strict=True):
        _put(array, dest_indices, target, stream)
    return outputs


def _put(values: GPUArray, indices: GPUArray, target: GPUArray, stream: Any) -> None:
    """Store ``target[indices] = values``.

    Raises
    ------
    ArgumentError
        There are not as many values as indices.
    """
    if values.size != indices.size:
        raise ArgumentError(f"multi_put: {indices.size} indices have {values.size} values")
    with work_on(stream):
        target.reshape(target.size).device_array()[indices.device_array()] = values.reshape(values.size).device_array()


# ── shapes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def concatenate(arrays: Sequence[GPUArray], axis: int = 0, allocator: Any = None) -> GPUArray:
    """Return arrays joined along an axis. The dtype is the common one.

    Raises
    ------
    ArgumentError
        There is no array, or the shapes differ in another axis.
    """
    return _joined("concatenate", arrays, axis, allocator)


def stack(arrays: Sequence[GPUArray], axis: int = 0, allocator: Any = None) -> GPUArray:
    """Return arrays of one shape joined along a new axis.

    Raises
    ------
    ArgumentError
        There is no array, or the shapes differ.
    """
    return _joined("stack", arrays, axis, allocator)


def _joined(operation: str, arrays: Sequence[GPUArray], axis: int, allocator: Any) -> GPUArray:
    if not arrays:
        raise ArgumentError(f"{operation} takes one array at least")
    with work_on(None) as xp:
        try:
            result = getattr(xp, operation)([array.device_array() for array in arrays], axis=axis)
        except (ValueError, np.exceptions.AxisError) as error:
            raise ArgumentError(f"{operation}: {error}") from None
        new = GPUArray(result.shape, result.dtype, allocator or arrays[0].allocator)
        store(operation, xp, result, new)
    return new


def transpose(a: GPUArray, axes: Any = None) -> GPUArray:
    """Return the same memory with its axes in another order. Default: reversed."""
    return a.transpose(axes)


def reshape(a: GPUArray, *shape: Any, **kwargs: Any) -> GPUArray:
    """Return the same memory with another shape; see `GPUArray.reshape`."""
    return a.reshape(*shape, **kwargs)


# ── choices ──────────────────────────────────────────────────────────────────────────────────────────────────────


def if_positive(
    criterion: GPUArray, then_: GPUArray, else_: GPUArray, out: GPUArray | None = None, stream: Any = None
) -> GPUArray:
    """Return elements of `then_` where `criterion` is above 0, and of `else_` elsewhere."""
    return _chosen("if_positive", lambda array: array > 0, criterion, then_, else_, out, stream)


def where(
    criterion: GPUArray, then_: GPUArray, else_: GPUArray, out: GPUArray | None = None, stream: Any = None
) -> GPUArray:
    """Return elements of `then_` where `criterion` is not 0, and of `else_` elsewhere."""
    return _chosen("where", lambda array: array != 0, criterion, then_, else_, out, stream)


def _chosen(
    operation: str,
    test: Callable[[Any], Any],
    criterion: GPUArray,
    then_: GPUArray,
    else_: GPUArray,
    out: GPUArray | None,
    stream: Any,
) -> GPUArray:
    """Return elements of one array where a test is true, and of another elsewhere.

    Raises
    ------
    ArgumentError
        Shapes or dtypes differ.
    """
    for name, array in (("criterion", criterion), ("then_", then_), ("else_", else_)):
        if not isinstance(array, GPUArray):
            raise ArgumentError(f"{operation}: {name} is a GPUArray, got {type(array).__name__} {shortened(array)}")
    if not criterion.shape == then_.shape == else_.shape or then_.dtype != else_.dtype:
        raise ArgumentError(
            f"{operation}: the arrays have one shape, and then_ and else_ one dtype, got {criterion.shape}, "
            f"{then_.dtype} of {then_.shape}, {else_.dtype} of {else_.shape}"
        )
    out = empty_like(then_) if out is None else out
    return calculate(operation, lambda xp, a, b, c: xp.where(test(a), b, c), (criterion, then_, else_), out, stream)


def _extreme_of_two(name: str) -> Callable[..., GPUArray]:
    """Return the function `minimum` or `maximum`."""

    def choose(a: Any, b: Any, out: GPUArray | None = None, stream: Any = None) -> GPUArray:
        array = a if isinstance(a, GPUArray) else b
        operands = [x if isinstance(x, GPUArray) else scalar_of(name, x, array.dtype) for x in (a, b)]
        out = empty_like(array) if out is None else out
        return calculate(name, f"f{name[:3]}", operands, out, stream)

    choose.__doc__ = f"Return the {name} of two arrays, or of an array and a number, in the array's dtype."
    return choose


minimum: Callable[..., GPUArray] = _extreme_of_two("minimum")
maximum: Callable[..., GPUArray] = _extreme_of_two("maximum")

# ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────────


def sum(a: GPUArray, dtype: Any = None, stream: Any = None, allocator: Any = None) -> GPUArray:
    """Return the sum of all elements as an array without axes. Its dtype is `dtype`, or that of `a`."""
    dtype = np.dtype(dtype or a.dtype)
    return reduce_to("sum", a, dtype, lambda xp, x: _sum(xp, x, dtype), stream, allocator)


def any(a: GPUArray, stream: Any = None, allocator: Any = None) -> GPUArray:
    """Return whether any element is not 0, as an array without axes."""
    return a.any(stream, allocator)


def all(a: GPUArray, stream: Any = None, allocator: Any = None) -> GPUArray:
    """Return whether no element is 0, as an array without axes."""
    return a.all(stream, allocator)


def dot(a: GPUArray, b: GPUArray, dtype: Any = None, stream: Any = None, allocator: Any = None) -> GPUArray:
    """Return the sum of the products of elements as an array without axes."""
    dtype = np.dtype(dtype or common_dtype(a, b))
    return reduce_to("dot", a, dtype, lambda xp, x, y: _dot(xp, x, y, dtype), stream, allocator, b)


def _dot(xp: Any, left: Any, right: Any, dtype: np.dtype) -> Any:
    if left.size != right.size:
        raise ArgumentError(f"dot: the arrays have {left.size} and {right.size} elements")
    return _sum(xp, left.ravel("K").astype(dtype) * right.ravel("K").astype(dtype), dtype)


def _sum(xp: Any, array: Any, dtype: np.dtype) -> Any:
    """Return the sum; that of truth values is one, too."""
    return xp.any(array) if dtype.kind == "b" else xp.sum(array, dtype=dtype)


def _part(array: Any, indices: Any) -> Any:
    """Return elements by their position in memory."""
    return array.ravel("K")[indices]


def subset_sum(subset: GPUArray, a: GPUArray, dtype: Any = None, stream: Any = None, allocator: Any = None) -> GPUArray:
    """Return the sum of ``a[subset]`` as an array without axes."""
    dtype = np.dtype(dtype or a.dtype)
    return reduce_to("subset_sum", a, dtype, lambda xp, x, i: _sum(xp, _part(x, i), dtype), stream, allocator, subset)


def subset_dot(
    subset: GPUArray, a: GPUArray, b: GPUArray, dtype: Any = None, stream: Any = None, allocator: Any = None
) -> GPUArray:
    """Return the sum of ``a[subset] * b[subset]`` as an array without axes."""
    dtype = np.dtype(dtype or common_dtype(a, b))
    return reduce_to(
        "subset_dot", a, dtype, lambda xp, x, y, i: _dot(xp, _part(x, i), _part(y, i), dtype),
        stream, allocator, b, subset,
    )  # fmt: skip


def _extreme(xp: Any, array: Any, name: str) -> Any:
    """Return the smallest or the largest element; a NaN counts only if there is nothing else, as for C's fmin."""
    if array.dtype.kind == "f":
        array = xp.where(xp.isnan(array), array.dtype.type(np.inf if name == "min" else -np.inf), array)
    return getattr(array, name)()


def _check_ordered(name: str, a: GPUArray) -> None:
    if a.dtype.kind not in "iufb" or not a.size:
        raise ArgumentError(f"{name}: an array of real numbers with elements is expected, got {a.dtype} of {a.shape}")


def _reduced_extreme(name: str) -> Callable[..., GPUArray]:
    """Return the function `min` or `max`."""

    def reduce(a: GPUArray, stream: Any = None) -> GPUArray:
        _check_ordered(name, a)
        return reduce_to(name, a, a.dtype, lambda xp, x: _extreme(xp, x, name), stream, None)

    reduce.__doc__ = f"Return the {name}imum of all elements as an array without axes."
    return reduce


def _subset_extreme(name: str) -> Callable[..., GPUArray]:
    """Return the function `subset_min` or `subset_max`."""

    def reduce(subset: GPUArray, a: GPUArray, stream: Any = None) -> GPUArray:
        _check_ordered(f"subset_{name}", a)
        return reduce_to(
            f"subset_{name}", a, a.dtype, lambda xp, x, i: _extreme(xp, _part(x, i), name), stream, None, subset
        )

    reduce.__doc__ = f"Return the {name}imum of ``a[subset]`` as an array without axes."
    return reduce


min: Callable[..., GPUArray] = _reduced_extreme("min")
max: Callable[..., GPUArray] = _reduced_extreme("max")
subset_min: Callable[..., GPUArray] = _subset_extreme("min")
subset_max: Callable[..., GPUArray] = _subset_extreme("max")

# ── truth values ─────────────────────────────────────────────────────────────────────────────────────────────────


def _logical(name: str, count: int) -> Callable[..., GPUArray]:
    """Return a function of truth values of `count` operands: arrays or numbers."""

    def calculate_truth(*operands: Any, out: GPUArray | None = None, allocator: Any = None) -> GPUArray:
        if len(operands) == count + 1 and out is None:
            *operands, out = operands  # type: ignore[assignment]  # `out` by position
        arrays = [operand for operand in operands if isinstance(operand, GPUArray)]
        if len(operands) != count or not builtins.all(isinstance(x, GPUArray) or np.isscalar(x) for x in operands):
            raise ArgumentError(f"{name} takes {count} GPUArrays or numbers, got {shortened(operands)}")
        if len({array.shape for array in arrays}) > 1:
            raise NotImplementedError(f"{name}: the shapes {' and '.join(str(array.shape) for array in arrays)} differ")
        if out is None and arrays and allocator is None:
            out = arrays[0].new_like_me(bool)
        elif out is None:
            out = GPUArray(arrays[0].shape if arrays else (), bool, allocator or mem_alloc)
        if out.dtype != bool:
            raise ArgumentError(f"{name}: out is an array of bool, got {out.dtype}")
        return calculate(
            name, lambda xp, *values: getattr(xp, name)(*(xp.asarray(value) != 0 for value in values)), operands, out
        )

    calculate_truth.__doc__ = f"Return NumPy's `{name}` of arrays or numbers as an array of bool."
    return calculate_truth


logical_and: Callable[..., GPUArray] = _logical("logical_and", 2)
logical_or: Callable[..., GPUArray] = _logical("logical_or", 2)
logical_not: Callable[..., GPUArray] = _logical("logical_not", 1)
