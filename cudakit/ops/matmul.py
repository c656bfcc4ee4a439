"""Products of matrices: on tensor cores by tile kernels, or by kernels of threads, exact where that is asked."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import merged, span, steps_of
from cudakit.arrays.output import as_dtype, as_number, target
from cudakit.arrays.place import ArrayPlace, array_place, device_limits
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, shortened
from cudakit.ops import product_plan
from cudakit.ops.delivery import delivered
from cudakit.ops.epilogue import Activation, activation_of
from cudakit.ops.matmul_tiles import Tiled, Way, flat_of, missing, tiled
from cudakit.ops.move_plan import copy_job
from cudakit.ops.product_plan import Batch, Side, batch_of, multiplier_of
from cudakit.types.checked import is_one_of

_HALVES = ("float16", "bfloat16")
_FP8 = ("float8_e4m3fn", "float8_e5m2")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES = ("bool", *_INTEGERS, *_FP8, *_HALVES, "float32", "float64", "complex64", "complex128")
#: What the result may be other than what it is, by dtype of the operands.
_MADE = {
    **dict.fromkeys((*_HALVES, *_FP8, "float32"), (*_HALVES, "float32")),
    "float64": (*_HALVES, "float32", "float64"),
    "int8": ("int8", "int32", *_HALVES, "float32"),
}
#: What it is where that is not what the operands are.
_OWN = {**dict.fromkeys(_FP8, "float32"), "int8": "int32"}
_LEAST_TILE_CAPABILITY = (8, 0)


@repeated("out")
def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: Any = None,
    scale: float = 1.0,
    residual: Any = None,
    precision: str | None = None,
    dtype: Any = None,
    by: Way | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """activation(scale · a @ b + bias) + residual, in one kernel; shapes are as for ``numpy.matmul``.

    Parameters
    ----------
    a : array, shape (…, m, k) or (k,)
        Bool, integers, float16, bfloat16, fp8, float32, float64 or complex.
    b : array, shape (…, k, n) or (k,)
        Of the dtype of `a`. Dimensions before the last two are broadcast.
    bias : array, shape (n,), optional
        Of the result's dtype.
    activation : {"relu", "gelu", "silu"}, str or callable, optional
        ``"gelu"`` is the one by tanh. Others are C++ of one element x, ``"x / (1.0f + fabsf(x))"``, or a Python
        function of one value, which is traced: ``lambda x: x * np.tanh(x)``.
    scale : float
        What products are multiplied by; for fp8 and int8 what both operands were divided by.
    residual : array, optional
        Of the result's shape and dtype.
    precision : "tf32", optional
        For float32, whose elements are rounded to 11 bits to be multiplied on tensor cores; sums keep 24. Without it
        products are exact, as all others are.
    dtype : dtype, optional
        The result's: that of `a` when left out, float32 for fp8 and int32 for int8. Other integers wrap around, as
        NumPy's do.
    by : {"tiles", "threads"}, optional
        Tile kernels, or kernels of threads; when left out the first, where they take the call and CUDA's tile compiler
        is installed.
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
    TemplateError
        For an activation that cannot be traced.
    CompileError
        With ``by="tiles"``, where CUDA's tile compiler is not installed, and no kernels for the call were imported.

    Notes
    -----
    Sums of float16, bfloat16, fp8 and float32 are in float32, rounded once, at the end; those of int8 in 32 bits.
    ``matmul.explain(a, b)`` says which kernel is taken, which tiles, and why.

    By threads tensor cores multiply float16, bfloat16, int8 and float64 (from compute capability 8.0), fp8 (from 8.9)
    and TF32; everything else, and everything on older devices, is multiplied by the threads' own arithmetic. Operands
    are read as they lie, whatever their strides; fastest where one axis is contiguous and the other's stride a multiple
    of 16 bytes.

    By tiles float16, bfloat16, fp8 and TF32 are multiplied. Slices and transposed views are read as they lie where one
    axis is contiguous and addresses and pitches are multiples of 16 bytes; others (8190 columns of float16) are copied
    first, with longer rows, unless they are small. ``python -m cudakit cache export`` takes kernels to machines without
    the compiler (``pip install 'cudakit[cu13,tile]'``). C++ of an activation is of one element, and so for threads;
    with ``by="tiles"`` it is of a tile, and calls functions of ``cuda::tiles``.
    """
    named = [("a", a), ("b", b), *((n, x) for n, x in (("bias", bias), ("residual", residual)) if x is not None)]
    place, arrays = array_place("matmul", stream, *named)
    call = _call(arrays[0], arrays[1], activation, scale, precision, dtype, by)
    rest = arrays[2:]
    wide = call.b.shape[-1:]
    extras = [
        None if given is None else _extra(name, place, rest.pop(0), shape, call.made)
        for name, given, shape in (("bias", bias, wide), ("residual", residual, call.shape))
    ]
    to = target("matmul", place, out, call.shape, call.made, *arrays, contiguous=True)
    if prod(call.shape):
        found = _by_tiles(place, call, extras, to.written) if call.why_threads is None else None
        if isinstance(found, Tiled):
            found.run(place, extras[0], extras[1], to.written, call.scale)
        else:
            _run_threads(place, call, extras, to.written)
    return delivered(place, to)


class _Call(NamedTuple):
    """A product: operands with two dimensions or more, the result, what follows; why threads make it, or None."""

    a: Any
    b: Any
    shape: tuple[int, ...]
    made: np.dtype
    activation: Activation
    scale: float
    precision: str | None
    by: Way | None
    why_threads: str | None


def _call(a: Any, b: Any, activation: Any, scale: float, precision: str | None, dtype: Any, by: Way | None) -> _Call:
    """The arguments, checked."""
    if not is_one_of(by, (None, "tiles", "threads")):
        raise ArgumentError(f"matmul: by {shortened(by)}; there are 'tiles' and 'threads'")
    made = _result_dtype(a.dtype, b.dtype, precision, dtype)
    named = activation_of("matmul", activation, _value_dtype(made))
    fits = made.kind == "f" or made.name in _HALVES or named.is_own or (activation == "relu" and made.kind in "iu")
    if activation is not None and (not fits or (named.is_own and made.kind in "biu")):
        raise ArgumentError(f"matmul: activation {named.shown} of {made}; give dtype= of floating point")
    scale = float(as_number("matmul", "scale", scale, np.dtype("f8")))
    if made.kind in "biu" and scale != 1:
        raise ArgumentError(f"matmul: scale {scale} of {made}; give dtype= of floating point")
    shape = _result_shape(a.shape, b.shape)
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    why = "they are asked for" if by == "threads" else _why_no_tiles(a.dtype, precision, named, by)
    if by == "tiles" and why:
        raise ArgumentError(f"matmul: {why}")
    return _Call(left, right, shape, made, named, scale, precision, by, why)


def _value_dtype(made: np.dtype) -> np.dtype:
    """What follows a sum is computed as."""
    return made if made.kind in "biuc" or made.itemsize == 8 else np.dtype(np.float32)


def _why_no_tiles(dtype: np.dtype, precision: str | None, activation: Activation, by: Way | None) -> str | None:
    """Why tile kernels do not make such a product, or None."""
    if dtype == np.float32 and precision is None:
        return (
            "float32 is multiplied on tensor cores as TF32, which keeps 11 bits of each element: ask for it, "
            "with precision='tf32'; exact products are made by threads"
        )
    if dtype.name not in (*_HALVES, *_FP8, "float32"):
        return f"{dtype} is none of {', '.join((*_HALVES, *_FP8))}, and float32 as TF32, which tile kernels take"
    if activation.tile_text is None:
        return f"the activation {activation.shown} has operations that tile kernels lack"
    if (
        by is None
        and activation.is_own
        and "cuda_tile" not in activation.tile_text
        and "tile_functions" not in activation.tile_text
    ):
        return "the activation is C++ of an element"
    return None


def _by_tiles(place: ArrayPlace, call: _Call, extras: list[Any], written: Any) -> Tiled | str:
    """The launch of a tile kernel, or why there is none."""
    if call.by is None and device_limits(place.device).compute_capability < _LEAST_TILE_CAPABILITY:
        return "tile kernels need a compute capability of 8.0"
    found = tiled(place, call.a, call.b, call.made, call.activation, extras, written)
    why = missing(found.product.kernel, place.device) if call.by is None else None
    return found if why is None else why


def _run_threads(place: ArrayPlace, call: _Call, extras: list[Any], written: Any) -> None:
    found, a, b, _ = _by_threads(place, call, extras, written)
    bias, residual = (written if each is None else each for each in extras)
    scale = call.scale if call.made.kind not in "biu" else int(call.scale)
    arrays = flat_of(a), flat_of(b), bias, residual, written
    place.launch(found.kernel, found.config, *arrays, scale, *found.numbers)


def _by_threads(
    place: ArrayPlace, call: _Call, extras: list[Any], written: Any
) -> tuple[product_plan.Product, Any, Any, str]:
    """The launch of a kernel of threads, its operands, and what there is to say of it."""
    a, b = call.a, call.b
    found = _sides(place, a, b)
    if found is None:
        shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (place.contiguous(place.xp.broadcast_to(x, (*shape, *x.shape[-2:]))) for x in (a, b))
        found = _sides(place, a, b)
        assert found is not None  # one axis, of which both have a matrix each
    copied = "copied first, for its batch has too many axes" if a is not call.a else "read as it lies"
    batch, left, right, m = found
    n, k = b.shape[-1], a.shape[-1]
    by = multiplier_of(a.dtype, call.made, call.precision, device_limits(place.device).compute_capability)
    tile, why = product_plan.choose(by.row, prod(batch.extents), m, n, k, place.device)
    made = product_plan.product(
        a.dtype,
        call.made,
        call.activation,
        (left, right),
        batch,
        (m, n, k),
        (extras[0] is not None, extras[1] is not None),
        place.alignment(*(each for each in (*extras, written) if each is not None)),
        by,
        tile,
    )
    warps = prod(tile.warps)
    lines = [f"{tile.m} × {tile.n} × {tile.k}, {warps} warps, {by.shown}: {why}"]
    for name, side, count, other in (("a", left, m, "m"), ("b", right, n, "n")):
        read = product_plan.reading(side, count, k, a.dtype.itemsize, by.is_mma)
        along = "k" if read.is_deep else other
        lines.append(f"{name}: {copied}, {read.at_once} neighbours along {along} at once")
    return made, a, b, "\n".join(lines)


def _sides(place: ArrayPlace, a: Any, b: Any) -> tuple[Batch, Side, Side, int] | None:
    """The batch, how A and B lie in it, and rows of A; None for a batch of too many axes."""
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    begins, steps, alignments = [], [], []
    for x in (a, b):
        own = steps_of("matmul", x.dtype, x.strides)
        begins.append(span(x.shape, own)[0])
        own = tuple(0 if n == 1 else step for n, step in zip(x.shape, own, strict=True))
        steps.append(((0,) * (len(shape) - x.ndim + 2) + own[:-2], own[-2:]))
        alignments.append(place.alignment(flat_of(x)))
    (around, (line, depth)), (of_b, (deep, column)) = steps
    m = a.shape[-2]
    if not any(of_b):
        # Where B is one matrix rows of all of A are rows of one, if they are as far apart.
        (rows, apart) = merged((*shape, m), (*around, line))
        if len(rows) <= 1:
            m, line, shape, around, of_b = prod(rows), (apart[0] if apart else 0), (), (), ()
    batch = batch_of(shape, around, of_b)
    if batch is None:
        return None
    return (
        batch,
        Side(line, depth, batch.a, begins[0], alignments[0]),
        Side(column, deep, batch.b, begins[1], alignments[1]),
        m,
    )


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
    if not is_one_of(precision, (None, "tf32")):
        raise ArgumentError(f"matmul: precision {shortened(precision)}; there is 'tf32', for float32")
    if a != b:
        raise ArgumentError(f"matmul: a is {a} and b is {b}; cast one of them (ck.ops.cast)")
    if a.name not in _DTYPES:
        raise ArgumentError(f"matmul: {a} is none of {', '.join(_DTYPES)}")
    own = as_dtype("matmul", _OWN.get(a.name, a))
    made = own if asked is None else as_dtype("matmul", asked)
    allowed = _MADE.get(a.name, (a.name,))
    if made.name not in allowed:
        raise ArgumentError(f"matmul: the result has dtype {made}, and can have {' or '.join(allowed)}")
    return made


def _result_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        if not a or not b or a[-1] != b[-2 if len(b) > 1 else 0]:
            raise ValueError
        around = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ArgumentError(
            f"matmul: shapes {a} and {b} do not fit; it takes (…, m, k) and (…, k, n), whose first dimensions are "
            "broadcast, or (k,) in the place of either"
        ) from None
    return (*around, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _explain(
    a: Any,
    b: Any,
    *,
    activation: Any = None,
    precision: str | None = None,
    dtype: Any = None,
    by: Way | None = None,
    stream: Any = None,
) -> str:
    """Which kernel `matmul` takes for such operands, and why; which tiles, and how operands are read."""
    place, (a, b) = array_place("matmul", stream, ("a", a), ("b", b))
    call = _call(a, b, activation, 1.0, precision, dtype, by)
    if not prod(call.shape):
        return "nothing to multiply"
    found = _by_tiles(place, call, [None, None], None) if call.why_threads is None else call.why_threads
    if isinstance(found, Tiled):
        return "\n".join([*found.told(), "by tile kernels"])
    told = _by_threads(place, call, [None, None], None)[-1]
    return f"{told}\nby threads: {found}"


# A function has no such attribute for type checkers; a class would cost the call what the frozen way saves.
matmul.__dict__["explain"] = _explain
