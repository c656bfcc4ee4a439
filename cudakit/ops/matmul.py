"""Products of matrices on the tensor cores, by tile kernels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from cudakit.arrays.elements import as_dtype
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.repeated import repeated
from cudakit.arrays.views import flat, span, steps_of
from cudakit.errors import ArgumentError
from cudakit.ops.matmul_plan import ACTIVATIONS, Lying, choose, kind, lying, product
from cudakit.ops.move_plan import copy_job
from cudakit.ops.pad import pad_job
from cudakit.ops.target import Target, delivered, target

_HALVES = ("float16", "bfloat16")
#: What the addresses of rows must be multiples of for TMA.
_ROW_BYTES = 16
#: From this extent on without TMA a product takes so much longer that a copy is made first.
_WORTH = 128
#: From so many uses of each element on A is turned for TF32: the copy takes less than what a product by columns loses.
_WORTH_TURNING = 1024
_FP8 = ("float8_e4m3fn", "float8_e5m2")


@repeated("out")
def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: str | None = None,
    scale: float = 1.0,
    residual: Any = None,
    precision: str | None = None,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """activation(scale · a @ b + bias) + residual: products of matrices on the tensor cores, in one kernel.

    Parameters
    ----------
    a : array, shape (…, m, k)
        float16, bfloat16, an fp8 type, or float32 with ``precision="tf32"``.
    b : array, shape (…, k, n)
        Of the dtype of `a`, and with as many matrices; or two-dimensional, one for all.
    bias : array, shape (n,), optional
        Of the result's dtype.
    activation : {"relu", "gelu", "silu"}, optional
        ``"gelu"`` is the one by tanh.
    scale : float
        What products are multiplied by; for fp8 what both operands were divided by.
    residual : array, optional
        Of the result's shape and dtype.
    precision : "tf32", optional
        For float32, whose elements are rounded to 11 bits to be multiplied; sums keep 24.
    dtype : dtype, optional
        The result's: that of `a` when left out, float32 for fp8.
    out : array, optional
        Of the result's shape, and its dtype or one that it is cast to within its kind.
    stream : stream, optional
        CuPy's current stream when left out.

    Returns
    -------
    array, shape (…, m, n)

    Raises
    ------
    ArgumentError
        For shapes, dtypes and names that do not fit.
    CompileError
        Where CUDA's tile compiler is not installed, and no kernels for the call were imported.

    Notes
    -----
    Sums are in float32, rounded once, at the end. Slices and transposed views are read as they lie where one axis is
    contiguous and addresses and pitches are multiples of 16 bytes; others (8190 columns of float16) are copied first,
    with longer rows, unless they are small. ``python -m cudakit cache export`` takes
    kernels to machines without the compiler (``pip install 'cudakit[cu13,tile]'``). ``matmul.explain(a, b)`` says
    which tiles are taken, and why.
    """
    named = [("a", a), ("b", b), *((n, x) for n, x in (("bias", bias), ("residual", residual)) if x is not None)]
    place, arrays = array_place("matmul", stream, *named)
    a, b, *rest = arrays
    made = _result_dtype(a.dtype, b.dtype, precision, dtype)
    if activation not in ACTIVATIONS:
        raise ArgumentError(f"matmul: activation {activation!r} is none of {[*filter(None, ACTIVATIONS)]}")
    shape = _result_shape(a.shape, b.shape)
    bias = None if bias is None else _extra("bias", place, rest.pop(0), shape[-1:], made)
    residual = None if residual is None else _extra("residual", place, rest.pop(0), shape, made)
    to = target("matmul", place, out, shape, made, *arrays)
    if not to.written.flags.c_contiguous:
        to = Target(place.empty(shape, made), to.result)
    if prod(shape):
        if b.ndim == 2 < a.ndim:
            # One product of many rows.
            a = place.contiguous(a).reshape(-1, a.shape[-1])
        _run(place, a, b, bias, residual, to.written, activation, float(scale))
    return delivered(place, to)


def _run(
    place: ArrayPlace, a: Any, b: Any, bias: Any, residual: Any, c: Any, activation: str | None, scale: float
) -> None:
    batches, (m, k), n = prod(a.shape[:-2]), a.shape[-2:], b.shape[-1]
    right, of_b = _operand(place, b, m)
    left, of_a = _operand(place, a, n, of_b)
    of_c = Lying(False, n, m * n if batches > 1 else 0)
    others = [c, *(each for each in (bias, residual) if each is not None)]
    found = product(
        a.dtype,
        c.dtype,
        activation,
        (of_a, of_b, of_c),
        (batches, m, n, k),
        (place.alignment(left, right), place.alignment(*others)),
        (bias is not None, residual is not None),
        choose(kind(a.dtype.itemsize, of_a.turned, of_b.turned), batches, m, n, k, place.device).tiles,
        place.device,
    )
    # What the instance does not read may be anything.
    extras = (c if bias is None else bias), (c if residual is None else residual)
    place.launch(found.kernel, found.config, left, right, *extras, c, scale, *found.numbers)


def _operand(place: ArrayPlace, x: Any, uses: int, beside: Lying | None = None) -> tuple[Any, Lying]:
    """A matrix or batch, of which each element is used so often, as memory, and how it lies there.

    It is a copy, with rows for TMA, where the kernel could not take it, or only slowly.
    """
    shape, dtype = x.shape, x.dtype
    found = lying(shape, x.strides, dtype.itemsize)
    if found is not None and not _reason_to_copy(place, x, found, uses, beside):
        return (x if x.flags.c_contiguous else flat(x, *span(shape, steps_of("matmul", dtype, x.strides)))), found
    *around, rows, columns = shape
    pitch = -(-columns * dtype.itemsize // _ROW_BYTES) * _ROW_BYTES // dtype.itemsize
    made = place.empty((*around, rows, pitch), dtype)
    if pitch > columns:
        # What is padded is stored 16 bytes at a time; a copy into a part of each row is not.
        widths = (*((0, 0) for _ in shape[:-1]), (0, pitch - columns))
        pad_job(dtype, shape, x.strides, widths, "constant", b"", None).run(place, x, made)
    else:
        copy_job("matmul", dtype, shape, x.strides, None, None).run(place, x, made)
    return made, Lying(False, pitch, rows * pitch if around else 0)


def _reason_to_copy(place: ArrayPlace, x: Any, found: Lying | None, uses: int, beside: Lying | None) -> str | None:
    """Why an operand is copied first, or None; `beside` is how B lies, where this one is A."""
    if found is None:
        return "no axis of it is contiguous"
    steps = (found.pitch, found.step)
    slow = place.alignment(x) < _ROW_BYTES or any(step * x.dtype.itemsize % _ROW_BYTES for step in steps)
    if slow and min(uses, *x.shape[-2:]) >= _WORTH:
        return f"its address or pitch is no multiple of {_ROW_BYTES} bytes"
    if x.dtype.itemsize == 4 and found.turned and beside and not beside.turned and uses >= _WORTH_TURNING:
        return "TF32 is multiplied by rows of B with rows of A"
    return None


def _lying_of(x: Any) -> Lying | None:
    return lying(x.shape, x.strides, x.dtype.itemsize)


def _extra(name: str, place: ArrayPlace, x: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    if x.shape != shape or x.dtype != dtype:
        raise ArgumentError(
            f"matmul: {name} is {x.dtype} of shape {x.shape}, and the result asks for {dtype} of shape {shape}"
        )
    if x.flags.c_contiguous:
        return x
    made = place.empty(shape, dtype)
    copy_job("matmul", dtype, shape, x.strides, None, None).run(place, x, made)
    return made


def _result_dtype(a: np.dtype, b: np.dtype, precision: str | None, asked: Any) -> np.dtype:
    if precision not in (None, "tf32"):
        raise ArgumentError(f"matmul: precision {precision!r}; there is 'tf32', for float32")
    if a != b:
        raise ArgumentError(f"matmul: a is {a} and b is {b}; cast one of them (ck.ops.cast)")
    if a == np.float32 and precision is None:
        raise ArgumentError(
            "matmul: float32 is multiplied on tensor cores as TF32, which keeps 11 bits of each element: ask for it, "
            "with precision='tf32'; for exact products take cupy.matmul"
        )
    if a.name not in (*_HALVES, *_FP8) and a != np.float32:
        raise ArgumentError(f"matmul: {a} is none of {', '.join((*_HALVES, *_FP8))}, and float32 as TF32")
    made = as_dtype("matmul", asked) if asked is not None else np.dtype(np.float32) if a.itemsize == 1 else a
    if made.name not in (*_HALVES, "float32"):
        raise ArgumentError(f"matmul: the result has dtype {made}, and can have {', '.join(_HALVES)} or float32")
    return made


def _result_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2] or (len(b) > 2 and a[:-2] != b[:-2]):
        raise ArgumentError(
            f"matmul: shapes {a} and {b} do not fit; it takes (…, m, k) and (…, k, n), or (k, n) for all of them"
        )
    return (*a[:-1], b[-1])


def _explain(a: Any, b: Any, *, stream: Any = None) -> str:
    """Which tiles `matmul` takes for such operands, and why; whether TMA can read them."""
    place, (a, b) = array_place("matmul", stream, ("a", a), ("b", b))
    shape = _result_shape(a.shape, b.shape)
    batches, m = (1, prod(shape[:-1])) if b.ndim == 2 else (prod(shape[:-2]), shape[-2])
    n, of_a, of_b = shape[-1], _lying_of(a), _lying_of(b)
    copied_b = _reason_to_copy(place, b, of_b, m, None)
    beside = Lying(False, n, 0) if copied_b or of_b is None else of_b
    copied_a = _reason_to_copy(place, a, of_a, n, beside)
    columns_of_a = of_a is not None and of_a.turned and not copied_a
    tiles, why = choose(kind(a.dtype.itemsize, columns_of_a, beside.turned), batches, m, n, a.shape[-1], place.device)
    lines = [f"{tiles.m} × {tiles.n} × {tiles.k}, {tiles.warps} warps, {tiles.ctas} CTAs: {why}"]
    for name, reason, found in (("a", copied_a, of_a), ("b", copied_b, of_b)):
        as_it_lies = f"read as it lies{', turned' if found and found.turned else ''}"
        lines.append(f"{name}: {f'copied first, for {reason}' if reason else as_it_lies}")
    return "\n".join(lines)


# A function has no such attribute for type checkers; a class would cost the call what the frozen way saves.
matmul.__dict__["explain"] = _explain
