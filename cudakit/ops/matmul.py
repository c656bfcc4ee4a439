"""Products of matrices: by tile kernels or by kernels of threads, on tensor cores or exact."""

from __future__ import annotations

import functools
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import merged, span, steps_of
from cudakit.arrays.output import as_dtype, as_number, target
from cudakit.arrays.place import ArrayPlace, array_place, busy_blocks, device_limits
from cudakit.arrays.repeated import repeated
from cudakit.arrays.tunable import Choice as TunedChoice
from cudakit.arrays.tunable import planned
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import config
from cudakit.ops.copies import Ints, copy_job, delivered
from cudakit.ops.epilogue import Activation, activation_of, kernel_with
from cudakit.ops.matmul_tiles import Product, Tiled, Way, flat_of, missing, tiled
from cudakit.ops.matmul_warpgroups import by_warpgroups
from cudakit.types.checked import is_one_of
from cudakit.types.cpp import spelling

#: Bytes that a thread moves at once, and most axes of a batch.
_PACK, _AXES = 16, 3


class Tile(NamedTuple):
    """A block's tile of C (m × n) and of A and B (k), its warps along both, and its threads' own tile.

    Attributes
    ----------
    thread : (int, int)
        Tile of a thread if the threads multiply; (0, 0) if tensor cores multiply.
    stages : int
        Number of tiles of A and B in shared memory.
    blocks : int
        Number of blocks that a multiprocessor runs at once.
    rate : float
        Fraction of the greatest rate that products of very many tiles reach.
    """

    m: int
    n: int
    k: int
    warps: tuple[int, int]
    thread: tuple[int, int] = (0, 0)
    stages: int = 3
    blocks: int = 1
    rate: float = 1.0

    @property
    def name(self) -> str:
        """The extents as text, by which tables of tuned points name them."""
        thread = "" if self.thread == (0, 0) else f", threads of {self.thread[0]} × {self.thread[1]}"
        return f"{self.m} × {self.n} × {self.k}, {self.warps[0]} × {self.warps[1]} warps{thread}"


#: By what multiplies, as measured on an H200 (`benchmarks/results/products-h200.md`), greatest first.
TABLE = {
    "float32": (
        Tile(128, 256, 8, (2, 4), (16, 8), 4, 1, rate=1.0),
        Tile(128, 128, 8, (2, 2), (16, 8), 4, 2, rate=0.96),
        Tile(64, 128, 8, (2, 2), (8, 8), 4, 2, rate=0.9),
        Tile(64, 64, 16, (2, 2), (4, 8), 4, 2, rate=0.78),
    ),
    "wide": (Tile(64, 64, 16, (4, 2), (4, 4), 3, 2),),
    "narrow": (Tile(64, 64, 32, (2, 2), (8, 4), 3, 2),),
    "tensor8": (Tile(128, 128, 128, (2, 2), blocks=2), Tile(64, 64, 128, (2, 2), blocks=3, rate=0.6)),
    "tensor2": (
        Tile(128, 128, 32, (2, 2), stages=4, blocks=2),
        Tile(64, 64, 64, (2, 2), stages=4, blocks=2, rate=0.68),
    ),
    "tensor4": (Tile(128, 128, 32, (2, 2), blocks=2), Tile(64, 64, 32, (2, 2), stages=4, blocks=2, rate=0.6)),
    "float64": (
        Tile(64, 128, 16, (2, 2), blocks=2),
        Tile(64, 64, 16, (2, 2), stages=4, blocks=2, rate=0.9),
    ),
}
#: Further tiles, for cards on which they were measured to be faster.
_FURTHER = {
    "float32": (
        Tile(64, 128, 16, (2, 2), (8, 8)),
        Tile(128, 128, 8, (4, 2), (8, 8)),
        Tile(128, 128, 16, (4, 2), (8, 8)),
        Tile(64, 64, 8, (2, 2), (4, 8)),
    ),
    "tensor8": (Tile(128, 256, 64, (2, 4)), Tile(128, 64, 128, (2, 2)), Tile(64, 128, 128, (2, 2))),
    "tensor2": (
        Tile(128, 256, 32, (2, 4)),
        Tile(128, 128, 64, (2, 2)),
        Tile(128, 64, 64, (2, 2)),
        Tile(64, 128, 64, (2, 2)),
    ),
    "tensor4": (
        Tile(128, 256, 16, (2, 4)),
        Tile(128, 128, 16, (2, 2)),
        Tile(128, 64, 32, (2, 2)),
        Tile(64, 128, 32, (2, 2)),
    ),
    "float64": (Tile(128, 128, 16, (2, 4)), Tile(128, 64, 16, (2, 2)), Tile(64, 64, 16, (2, 4))),
}
_TILES = {row: {tile.name: tile for tile in (*TABLE[row], *_FURTHER.get(row, ()))} for row in TABLE}
_CHOICES = {
    row: TunedChoice(f"matmul of {row}", {"tile": (*tiles,), "stages": (2, 3, 4, 5), "blocks": (1, 2, 3, 4)})
    for row, tiles in _TILES.items()
}
#: Bytes of an element at most, by rows of `TABLE`.
_BYTES = {"float32": 4, "wide": 16, "narrow": 4, "tensor8": 1, "tensor2": 2, "tensor4": 4, "float64": 8}
#: Products whose extents are further apart are made by the estimate alone.
_SQUARE = 4


class Multiplier(NamedTuple):
    """Arithmetic for products of a dtype: a row of `TABLE`, and types in C++.

    Attributes
    ----------
    row : str
        Row of `TABLE`.
    is_mma : bool
        Whether tensor cores multiply.
    sum, value, scale : str
        C++ types of the sums, of the values computed from the sums, and of the components of these values.
    label : str
        Name of the arithmetic in messages.
    """

    row: str
    is_mma: bool
    sum: str
    value: str
    scale: str
    label: str


#: Tensor cores, by dtype: the least compute capability, and the row of `TABLE`.
_CORES = {
    "float16": ((8, 0), "tensor2"),
    "bfloat16": ((8, 0), "tensor2"),
    "float8_e4m3fn": ((8, 9), "tensor8"),
    "float8_e5m2": ((8, 9), "tensor8"),
    "int8": ((8, 0), "tensor8"),
    "float64": ((8, 0), "float64"),
    "float32": ((8, 0), "tensor4"),
}


def multiplier_of(
    dtype: np.dtype, result_dtype: np.dtype, precision: str | None, capability: tuple[int, int]
) -> Multiplier:
    """Return the arithmetic for operands of `dtype` and a result of `result_dtype` on a device of `capability`."""
    category, size = dtype.kind, dtype.itemsize
    least, row = _CORES.get(dtype.name, ((99, 0), ""))
    is_mma = capability >= least and (dtype != np.float32 or precision == "tf32")
    if category in "biu":
        total = "int" if is_mma else "unsigned long long" if size == 8 else "unsigned int"
        value = ("long long" if size == 8 else "int") if category == "i" else total
        if result_dtype.kind not in "biu":
            # Sums of signed bytes are signed, from tensor cores and from threads.
            total = "int" if size == 1 else total
            value = "float"
        scale = "float" if value == "float" else "int"
    else:
        part = "double" if dtype.name in ("float64", "complex128") else "float"
        total = value = f"cudakit::parts<{part}>" if category == "c" else part
        scale = part
    if is_mma:
        form = {"float32": "TF32", "float64": "float64"}.get(dtype.name, dtype.name)
        return Multiplier(row, True, total, value, scale, f"mma.sync of {form}")
    row = "float32" if dtype == np.float32 else "wide" if size >= 8 else "narrow"
    return Multiplier(row, False, total, value, scale, "fused multiply-adds, one product after the other")


class Choice(NamedTuple):
    """A tile, and the reason for it."""

    tile: Tile
    why: str


@planned(1024)
def choose(row: str, batches: int, m: int, n: int, k: int, device: int | str) -> Choice:
    """Return the tuned tile of this card, or the one with which the multiprocessors finish first.

    On the emulator, which runs blocks in turn: the smallest tile.
    """
    default = _estimated(row, batches, m, n, k, device)
    if not 0 < max(m, n, k) <= _SQUARE * min(m, n, k):
        return default
    tiles, tile = _TILES[row], default.tile
    name, stages, blocks = _CHOICES[row].point(
        "square",
        batches * m * n * k,
        device,
        (tile.name, tile.stages, tile.blocks),
        fits=lambda tile, stages: stages * _stage_bytes(tiles[tile], _BYTES[row]) <= device_limits(device).shared_bytes,
    )
    tuned = tiles[name]._replace(stages=stages, blocks=blocks)
    return default if tuned[:-1] == tile[:-1] else Choice(tuned, "tuned for this card")


def _estimated(row: str, batches: int, m: int, n: int, k: int, device: int | str) -> Choice:
    """Return the tile with which the multiprocessors finish first, by the rates of `TABLE`."""
    units, table = busy_blocks(device), TABLE[row]
    if units == 1:
        return Choice(table[-1], "the smallest, on the emulator")

    def rounds(tile: Tile) -> int:
        return -(-batches * -(-m // tile.m) * -(-n // tile.n) // (units * tile.blocks))

    def time(tile: Tile) -> float:
        return rounds(tile) * tile.m * tile.n * tile.blocks / tile.rate

    best = min(table, key=time)
    used = batches * m * n / (rounds(best) * units * best.blocks * best.m * best.n)
    return Choice(best, f"{rounds(best)} rounds of {best.blocks} on {units} multiprocessors, {used:.0%} of use")


def _stage_bytes(tile: Tile, itemsize: int) -> int:
    """Return the most bytes of shared memory that the tiles of A and B take in any layout."""
    return (tile.m + tile.n) * tile.k * itemsize + 32 * max(tile.m + tile.n, 2 * tile.k)


class Side(NamedTuple):
    """Layout of an operand in elements. `line` is the step between rows of A or columns of B.

    Attributes
    ----------
    depth : int
        Step along k.
    batch : tuple of int
        Steps along the axes of the batch.
    begin : int
        Number of elements in memory before the first element. It is 0 without negative steps.
    alignment : int
        Alignment of the operand's address in bytes.
    """

    line: int
    depth: int
    batch: Ints
    begin: int
    alignment: int


class Reading(NamedTuple):
    """Way in which a kernel loads an operand.

    `is_deep`: loads go along k, otherwise across. `at_once` is the number of elements of one load.
    """

    is_deep: bool
    at_once: int


def reading(side: Side, lines: int, depth: int, itemsize: int, is_mma: bool) -> Reading:
    """Return how tiles of an operand are loaded.

    `lines` is the number of rows of A or columns of B. `depth` is k. `is_mma`: tensor cores multiply.
    """
    units = [is_deep for is_deep, step, n in ((True, side.depth, depth), (False, side.line, lines)) if step == 1 < n]
    is_deep = units[0] if units else abs(side.depth) <= abs(side.line)
    if not units or (is_deep and not is_mma):
        return Reading(is_deep, 1)
    others = [side.line if is_deep else side.depth, side.begin, *side.batch]
    bytes_at_once = gcd(_PACK, side.alignment, *(step * itemsize for step in others))
    return Reading(is_deep, max(1, bytes_at_once // itemsize))


class Batch(NamedTuple):
    """Axes of a batch, at most three: extents, steps of A and steps of B."""

    extents: Ints
    a: Ints
    b: Ints


def batch_of(shape: Ints, a: Ints, b: Ints) -> Batch | None:
    """Return the batch with as few axes as possible, or None if more than three remain.

    `shape` is the shape of the batch. `a` and `b` are the steps of both operands along it.
    """
    if 0 in shape:
        return Batch((), (), ())
    axes = merged(shape, a, b)
    extents, left, right = axes
    return Batch(extents, left, right) if len(extents) <= _AXES else None


@functools.lru_cache(1024)
def product(
    stored: np.dtype,
    result_dtype: np.dtype,
    activation: Activation,
    sides: tuple[Side, Side],
    batch: Batch,
    sizes: tuple[int, int, int],
    extras: tuple[bool, bool],
    out_alignment: int,
    by: Multiplier,
    tile: Tile,
) -> Product:
    """Return the launch of a kernel of threads.

    Parameters
    ----------
    stored, result_dtype : numpy.dtype
        Dtype of A and B, and dtype of C.
    sizes : (int, int, int)
        Extents m, n, k.
    extras : (bool, bool)
        Whether there is a bias, and whether there is a residual.
    out_alignment : int
        Common alignment of the addresses of C, bias and residual in bytes.
    """
    (m, n, k), (a, b) = sizes, sides
    size = stored.itemsize
    of_a, of_b = reading(a, m, k, size, by.is_mma), reading(b, n, k, size, by.is_mma)
    name = spelling(stored)
    inside = {"c": f"cudakit::parts<{by.scale}>", "b": "cudakit::truth"}.get(stored.kind, name)
    extents = f"{tile.m}, {tile.n}, {tile.k}, {tile.warps[0]}, {tile.warps[1]}"
    if by.is_mma:
        deep = [str(operand.is_deep).lower() for operand in (of_a, of_b)]
        form = f"cudakit::mma_product<{inside}, {extents}, {deep[0]}, {deep[1]}>"
    else:
        form = f"cudakit::fma_product<{inside}, {by.sum}, {extents}, {tile.thread[0]}, {tile.thread[1]}>"
    shared = sum(
        _shared_bytes(lines, tile.k, operand.is_deep and by.is_mma, size, by.is_mma)
        for lines, operand in ((tile.m, of_a), (tile.n, of_b))
    )
    is_aligned = gcd(out_alignment, n * result_dtype.itemsize) >= _PACK
    names = (
        stored,
        form,
        by.value,
        by.scale,
        result_dtype,
        activation.name,
        tile.stages,
        *of_a,
        *of_b,
        *extras,
        is_aligned,
    )
    kernel = kernel_with("matmul", "matmul", activation.source)[*names, tile.blocks]
    count = prod(batch.extents) * -(-m // tile.m) * -(-n // tile.n)
    extent, left, right = ((0,) * (_AXES - len(steps)) + steps for steps in batch)
    around = *(max(1, length) for length in extent[1:]), *left, *right
    numbers = m, n, k, a.line, a.depth, b.depth, b.line, a.begin, b.begin, *around
    return Product(kernel, config(count, 32 * prod(tile.warps), tile.stages * shared), numbers)


def _shared_bytes(lines: int, depth: int, is_deep: bool, size: int, is_mma: bool) -> int:
    """Return the bytes of an operand's tile in shared memory: `lines` × `depth` elements of `size` bytes, with padding.

    `is_deep`: elements are contiguous along k. `is_mma`: tensor cores multiply.
    """
    pad = 32 if is_mma and (size == 8 or (size == 4 and not is_deep)) else 16
    return lines * (depth * size + pad) if is_deep else depth * (lines * size + pad)


_HALVES = ("float16", "bfloat16")
_FP8 = ("float8_e4m3fn", "float8_e5m2")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES = ("bool", *_INTEGERS, *_FP8, *_HALVES, "float32", "float64", "complex64", "complex128")
#: Dtypes that the result may have, by dtype of the operands.
_MADE = {
    **dict.fromkeys((*_HALVES, *_FP8, "float32"), (*_HALVES, "float32")),
    "float64": (*_HALVES, "float32", "float64"),
    "int8": ("int8", "int32", *_HALVES, "float32"),
}
#: Default dtype of the result, where it is not the dtype of the operands.
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
    """activation(scale · a @ b + bias) + residual, in one kernel, with shapes as for ``numpy.matmul``.

    Parameters
    ----------
    a : array, shape (…, m, k) or (k,)
        Left operand: bool, integers, float16, bfloat16, fp8, float32, float64 or complex; any strides.
    b : array, shape (…, k, n) or (k,)
        Right operand, of the dtype of `a`. Dimensions before the last two are broadcast.
    bias : array, shape (n,), optional
        Vector added to each row, of the result's dtype.
    activation : {"relu", "gelu", "silu"}, str or callable, optional
        Function of each element:

        - ``"relu"``, ``"gelu"`` (the approximation by tanh), ``"silu"``;
        - C++ of one element x: ``"x / (1.0f + fabsf(x))"``;
        - a Python function of one value, which is traced: ``lambda x: x * np.tanh(x)``.
    scale : float
        Factor of the product. For fp8 and int8: the product of the factors by which the operands were divided.
    residual : array, optional
        Array added last, of the result's shape and dtype.
    precision : "tf32", optional
        Arithmetic for float32. With "tf32", elements are rounded to 11 bits and multiplied on tensor cores; sums
        keep 24 bits. Default: products are exact.
    dtype : dtype, optional
        Dtype of the result. Default: float32 for fp8, int32 for int8, else the dtype of `a`. Other integers wrap
        around, as in NumPy.
    by : {"tiles", "threads"}, optional
        Kernels to use: tile kernels or kernels of threads. Default: tile kernels if they support the call and
        CUDA's tile compiler is installed; for large products of fp8 and TF32 on Hopper GPUs, the faster.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array, shape (…, m, n)
        Product, of dtype `dtype`.

    Raises
    ------
    ArgumentError
        Shapes, dtypes or names do not fit.
    TemplateError
        The activation cannot be traced.
    CompileError
        With ``by="tiles"``: CUDA's tile compiler is not installed, and no kernels for the call were imported.

    Notes
    -----
    float16, bfloat16, fp8 and float32 are summed in float32 and rounded once, at the end. int8 is summed in 32 bits.
    Hopper's tensor cores keep 14 bits of sums of fp8. Sums of 128 products (256 for results of 16 bits) are added in
    float32.
    ``matmul.explain(a, b)`` returns a text: which kernel and tiles are used, and why.

    Kernels of threads multiply these dtypes on tensor cores: float16, bfloat16, int8 and float64 (from compute
    capability 8.0), fp8 (from 8.9) and TF32. All other dtypes, and all dtypes on older devices, are multiplied by fused
    multiply-adds of the threads. Operands of any strides are read in place. Reading is fastest if one axis is
    contiguous and the other axis has a stride of a multiple of 16 bytes.

    Tile kernels multiply float16, bfloat16, fp8 and TF32. Slices and transposed views are read in place if one axis is
    contiguous and addresses and pitches are multiples of 16 bytes. Other operands (8190 columns of float16) are copied
    first to longer rows, unless they are small. ``python -m cudakit cache export`` exports kernels for machines without
    the compiler (``pip install 'cudakit[cu13,tile]'``).

    An activation in C++ is a function of one element, and runs in kernels of threads. With ``by="tiles"`` it is a
    function of a tile, and calls functions of ``cuda::tiles``.
    """
    named_arrays = [("a", a), ("b", b), *((n, x) for n, x in (("bias", bias), ("residual", residual)) if x is not None)]
    place, arrays = array_place("matmul", stream, *named_arrays)
    call = _call(arrays[0], arrays[1], activation, scale, precision, dtype, by)
    rest = arrays[2:]
    wide = call.b.shape[-1:]
    extras = [
        None if array is None else _extra(name, place, rest.pop(0), shape, call.result_dtype)
        for name, array, shape in (("bias", bias, wide), ("residual", residual, call.shape))
    ]
    to = target("matmul", place, out, call.shape, call.result_dtype, *arrays, contiguous=True)
    if prod(call.shape):
        chosen = _chosen(place, call, extras, to.written)
        if isinstance(chosen, Tiled):
            chosen.run(place, extras[0], extras[1], to.written, call.scale)
        else:
            launch, a, b, _ = chosen
            # What the instance does not read may be anything.
            operands = flat_of(a), flat_of(b), *(to.written if extra is None else extra for extra in extras), to.written
            factor = call.scale if call.result_dtype.kind not in "biu" else int(call.scale)
            place.launch(launch.kernel, launch.config, *operands, factor, *launch.numbers)
    return delivered(place, to)


class _Call(NamedTuple):
    """A checked call of `matmul`.

    Its operands have at least two dimensions. `why_threads` is the reason for a kernel of threads, or None.
    """

    a: Any
    b: Any
    shape: Ints
    result_dtype: np.dtype
    activation: Activation
    scale: float
    precision: str | None
    by: Way | None
    why_threads: str | None


def _call(a: Any, b: Any, activation: Any, scale: float, precision: str | None, dtype: Any, by: Way | None) -> _Call:
    """Check the arguments and return the call."""
    if not is_one_of(by, (None, "tiles", "threads")):
        raise ArgumentError(f"matmul: by {shortened(by)}; expected 'tiles' or 'threads'")
    result_dtype = _result_dtype(a.dtype, b.dtype, precision, dtype)
    # What follows a sum is computed in that.
    value = result_dtype if result_dtype.kind in "biuc" or result_dtype.itemsize == 8 else np.dtype(np.float32)
    function = activation_of("matmul", activation, value)
    fits = (
        result_dtype.kind == "f"
        or result_dtype.name in _HALVES
        or function.is_custom
        or (activation == "relu" and result_dtype.kind in "iu")
    )
    if activation is not None and (not fits or (function.is_custom and result_dtype.kind in "biu")):
        raise ArgumentError(f"matmul: activation {function.label} of {result_dtype}; give dtype= of floating point")
    scale = float(as_number("matmul", "scale", scale, np.dtype("f8")))
    if result_dtype.kind in "biu" and scale != 1:
        raise ArgumentError(f"matmul: scale {scale} of {result_dtype}; give dtype= of floating point")
    shape = _result_shape(a.shape, b.shape)
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    why = "they are asked for" if by == "threads" else _why_no_tiles(a.dtype, precision, function, by)
    if by == "tiles" and why:
        raise ArgumentError(f"matmul: {why}")
    return _Call(left, right, shape, result_dtype, function, scale, precision, by, why)


def _why_no_tiles(dtype: np.dtype, precision: str | None, activation: Activation, by: Way | None) -> str | None:
    """Return why tile kernels do not compute the product, or None."""
    if dtype == np.float32 and precision is None:
        return (
            "float32 is multiplied on tensor cores as TF32, which keeps 11 bits of each element: ask for it, "
            "with precision='tf32'; exact products are made by threads"
        )
    if dtype.name not in (*_HALVES, *_FP8, "float32"):
        return f"{dtype} is none of {', '.join((*_HALVES, *_FP8))}, and float32 as TF32, which tile kernels take"
    if activation.tile_source is None:
        return f"the activation {activation.label} has operations that tile kernels lack"
    of_tiles = any(header in activation.tile_source for header in ("cuda_tile", "tile_functions"))
    if by is None and activation.is_custom and not of_tiles:
        return "the activation is C++ of an element"
    return None


class _Threads(NamedTuple):
    """A product by kernels of threads: the launch, the operands that it reads, and a text that explains the choice."""

    product: Product
    a: Any
    b: Any
    explanation: str


def _chosen(place: ArrayPlace, call: _Call, extras: list[Any], written: Any) -> Tiled | _Threads:
    """Return the product by the kernels that the call asks for, or by those that take less time.

    `extras` are bias and residual, or None. `written` is the array for the result, or None.
    """
    arguments = place, call.a, call.b, call.result_dtype, call.activation, extras, written
    why, warpgroups = call.why_threads, None
    if why is None and call.by is None and device_limits(place.device).compute_capability < _LEAST_TILE_CAPABILITY:
        why = "tile kernels need a compute capability of 8.0"
    if why is None:
        by_tiles = tiled(*arguments)
        if call.by is None:
            warpgroups = by_warpgroups(*arguments, call.precision, by_tiles.choice.time)
        if warpgroups is not None:
            why = "warpgroups take less time than tile kernels"
        elif call.by is None:
            why = missing(by_tiles.product.kernel, place.device)
        if why is None:
            return by_tiles
    warpgroups = warpgroups or by_warpgroups(*arguments, call.precision)
    if warpgroups is not None:
        return _Threads(warpgroups.product, call.a, call.b, f"{warpgroups.explanation}\nby threads: {why}")
    return _by_threads(place, call, extras, written, why)


def _by_threads(place: ArrayPlace, call: _Call, extras: list[Any], written: Any, why_threads: str) -> _Threads:
    """Return the product by a kernel that no warpgroups need; the arguments are those of `_chosen`, and the reason."""
    a, b = call.a, call.b
    operand_sides = _sides(place, a, b)
    if operand_sides is None:
        shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (place.contiguous(place.xp.broadcast_to(x, (*shape, *x.shape[-2:]))) for x in (a, b))
        operand_sides = _sides(place, a, b)
        assert operand_sides is not None  # one axis, of which both have a matrix each
    copied = "copied first, for its batch has too many axes" if a is not call.a else "read as it lies"
    batch, left, right, m = operand_sides
    n, k = b.shape[-1], a.shape[-1]
    by = multiplier_of(a.dtype, call.result_dtype, call.precision, device_limits(place.device).compute_capability)
    tile, why = choose(by.row, prod(batch.extents), m, n, k, place.device)
    present = extras[0] is not None, extras[1] is not None
    alignment = place.alignment(*(array for array in (*extras, written) if array is not None))
    sides, sizes = (left, right), (m, n, k)
    launch = product(a.dtype, call.result_dtype, call.activation, sides, batch, sizes, present, alignment, by, tile)
    warps = prod(tile.warps)
    lines = [f"{tile.m} × {tile.n} × {tile.k}, {warps} warps, {by.label}: {why}"]
    for name, side, count, other in (("a", left, m, "m"), ("b", right, n, "n")):
        read = reading(side, count, k, a.dtype.itemsize, by.is_mma)
        along = "k" if read.is_deep else other
        lines.append(f"{name}: {copied}, {read.at_once} neighbours along {along} at once")
    return _Threads(launch, a, b, "\n".join([*lines, f"by threads: {why_threads}"]))


def _sides(place: ArrayPlace, a: Any, b: Any) -> tuple[Batch, Side, Side, int] | None:
    """Return the batch, the layouts of A and B in it, and the number of rows of A.

    If B is one matrix, a batch of A may become the rows of one matrix. Return None for a batch of too many axes.
    """
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
    left = Side(line, depth, batch.a, begins[0], alignments[0])
    return batch, left, Side(column, deep, batch.b, begins[1], alignments[1]), m


def _extra(name: str, place: ArrayPlace, x: Any, shape: Ints, dtype: np.dtype) -> Any:
    if x.shape != shape or x.dtype != dtype:
        raise ArgumentError(
            f"matmul: {name} is {x.dtype} of shape {x.shape}, and the result asks for {dtype} of shape {shape}"
        )
    if x.flags.c_contiguous:
        return x
    result = place.empty(shape, dtype)
    copy_job("matmul", dtype, shape, x.strides, None, None).run(place, x, result)
    return result


def _result_dtype(a: np.dtype, b: np.dtype, precision: str | None, dtype: Any) -> np.dtype:
    if not is_one_of(precision, (None, "tf32")):
        raise ArgumentError(f"matmul: precision {shortened(precision)}; expected 'tf32', for float32")
    if a != b:
        raise ArgumentError(f"matmul: a is {a} and b is {b}; cast one of them (ck.ops.cast)")
    if a.name not in _DTYPES:
        raise ArgumentError(f"matmul: {a} is none of {', '.join(_DTYPES)}")
    own = as_dtype("matmul", _OWN.get(a.name, a))
    result = own if dtype is None else as_dtype("matmul", dtype)
    allowed = _MADE.get(a.name, (a.name,))
    if result.name not in allowed:
        raise ArgumentError(f"matmul: the result has dtype {result}, and can have {' or '.join(allowed)}")
    return result


def _result_shape(a: Ints, b: Ints) -> Ints:
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
    """Return a text: which kernel and tiles `matmul` takes for these operands, why, and how operands are read."""
    place, (a, b) = array_place("matmul", stream, ("a", a), ("b", b))
    call = _call(a, b, activation, 1.0, precision, dtype, by)
    if not prod(call.shape):
        return "nothing to multiply"
    chosen = _chosen(place, call, [None, None], None)
    if isinstance(chosen, Tiled):
        return "\n".join([*chosen.explanation(), "by tile kernels"])
    return chosen.explanation


# A function has no such attribute for type checkers; a class would cost the call what the frozen way saves.
matmul.__dict__["explain"] = _explain
