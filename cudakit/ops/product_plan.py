"""Products of matrices by kernels of threads: what multiplies, how large a block's tile is, how operands are read."""

from __future__ import annotations

import functools
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import merged
from cudakit.arrays.place import busy_blocks
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.epilogue import Activation, kernel_with
from cudakit.types.cpp import spelling

#: Bytes that a thread moves at once, and axes of a batch that the kernel knows.
_PACK, _AXES = 16, 3


class Tile(NamedTuple):
    """A block's tile of C (m × n) and of A and B (k), its warps along both, and its threads' own tile.

    Attributes
    ----------
    thread : (int, int)
        A thread's tile, where the threads multiply; (0, 0) where tensor cores do.
    stages : int
        Tiles of A and B in shared memory.
    blocks : int
        Blocks that a multiprocessor runs at once.
    rate : float
        What of the greatest rate these reach where there are very many of them.
    """

    m: int
    n: int
    k: int
    warps: tuple[int, int]
    thread: tuple[int, int] = (0, 0)
    stages: int = 3
    blocks: int = 1
    rate: float = 1.0


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
    "float64": (Tile(128, 128, 16, (2, 4)), Tile(64, 64, 16, (2, 2), stages=4, blocks=2, rate=0.85)),
}


class Multiplier(NamedTuple):
    """What multiplies elements of a dtype: a row of `TABLE`, and types in C++.

    Attributes
    ----------
    row : str
    is_mma : bool
        Whether tensor cores do.
    sum, value, scale : str
        Types of sums, of what follows them, and of the parts of that.
    shown : str
    """

    row: str
    is_mma: bool
    sum: str
    value: str
    scale: str
    shown: str


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


def multiplier_of(dtype: np.dtype, made: np.dtype, precision: str | None, capability: tuple[int, int]) -> Multiplier:
    """What multiplies elements of `dtype`, for a result of `made`, on a device of a compute capability."""
    kind, size = dtype.kind, dtype.itemsize
    least, row = _CORES.get(dtype.name, ((99, 0), ""))
    is_mma = capability >= least and (dtype != np.float32 or precision == "tf32")
    if kind in "biu":
        total = "int" if is_mma else "unsigned long long" if size == 8 else "unsigned int"
        value = ("long long" if size == 8 else "int") if kind == "i" else total
        if made.kind not in "biu":
            # Sums of signed bytes as numbers with a sign, whoever made them.
            total = "int" if size == 1 else total
            value = "float"
        scale = "float" if value == "float" else "int"
    else:
        part = "double" if dtype.name in ("float64", "complex128") else "float"
        total = value = f"cudakit::parts<{part}>" if kind == "c" else part
        scale = part
    if is_mma:
        form = {"float32": "TF32", "float64": "float64"}.get(dtype.name, dtype.name)
        return Multiplier(row, True, total, value, scale, f"mma.sync of {form}")
    row = "float32" if dtype == np.float32 else "wide" if size >= 8 else "narrow"
    return Multiplier(row, False, total, value, scale, "fused multiply-adds, one product after the other")


class Choice(NamedTuple):
    """A tile, and why this one."""

    tile: Tile
    why: str


@functools.lru_cache(1024)
def choose(row: str, batches: int, m: int, n: int, k: int, device: int | str) -> Choice:
    """The tile by which the multiprocessors are done first; the smallest on the emulator, where blocks run in turn."""
    units, table = busy_blocks(device), TABLE[row]
    if units == 1:
        return Choice(table[-1], "the smallest, on the emulator")

    def rounds(tile: Tile) -> int:
        return -(-batches * -(-m // tile.m) * -(-n // tile.n) // (units * tile.blocks))

    def time(tile: Tile) -> float:
        return rounds(tile) * tile.m * tile.n * tile.blocks / tile.rate

    found = min(table, key=time)
    used = batches * m * n / (rounds(found) * units * found.blocks * found.m * found.n)
    return Choice(found, f"{rounds(found)} rounds of {found.blocks} on {units} multiprocessors, {used:.0%} of use")


class Side(NamedTuple):
    """How an operand lies, in elements: along its rows or columns, along k, along the batch; and where it begins.

    Attributes
    ----------
    alignment : int
        What its address is a multiple of, in bytes.
    """

    line: int
    depth: int
    batch: tuple[int, ...]
    begin: int
    alignment: int


class Reading(NamedTuple):
    """Whether neighbours in memory lie along k, and how many are moved at once."""

    is_deep: bool
    at_once: int


def reading(side: Side, lines: int, depth: int, itemsize: int, is_mma: bool) -> Reading:
    """How tiles of an operand are fetched."""
    units = [is_deep for is_deep, step, n in ((True, side.depth, depth), (False, side.line, lines)) if step == 1 < n]
    is_deep = units[0] if units else abs(side.depth) <= abs(side.line)
    if not units or (is_deep and not is_mma):
        return Reading(is_deep, 1)
    others = [side.line if is_deep else side.depth, side.begin, *side.batch]
    bytes_at_once = gcd(_PACK, side.alignment, *(step * itemsize for step in others))
    return Reading(is_deep, max(1, bytes_at_once // itemsize))


class Batch(NamedTuple):
    """A batch's axes, three or fewer: extents, and steps of A and of B."""

    extents: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]


def batch_of(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> Batch | None:
    """The fewest axes of a batch; None where they are too many."""
    if 0 in shape:
        return Batch((), (), ())
    found = merged(shape, a, b)
    extents, left, right = found
    return Batch(extents, left, right) if len(extents) <= _AXES else None


class Product(NamedTuple):
    """A launch of the template: its instance, its configuration, and its last arguments."""

    kernel: Kernel
    config: Config
    numbers: tuple[Any, ...]


@functools.lru_cache(1024)
def product(
    stored: np.dtype,
    made: np.dtype,
    activation: Activation,
    sides: tuple[Side, Side],
    batch: Batch,
    sizes: tuple[int, int, int],
    extras: tuple[bool, bool],
    out_alignment: int,
    by: Multiplier,
    tile: Tile,
) -> Product:
    """The launch for one kind of call.

    Parameters
    ----------
    stored, made : numpy.dtype
        Of A and B, and of C.
    sizes : (int, int, int)
        m, n, k.
    extras : (bool, bool)
        Whether there are a bias and a residual.
    out_alignment : int
        What the addresses of C, bias and residual are multiples of, in bytes.
    """
    (m, n, k), (a, b) = sizes, sides
    size = stored.itemsize
    of_a, of_b = reading(a, m, k, size, by.is_mma), reading(b, n, k, size, by.is_mma)
    name = spelling(stored)
    inside = {"c": f"cudakit::parts<{by.scale}>", "b": "cudakit::truth"}.get(stored.kind, name)
    extents = f"{tile.m}, {tile.n}, {tile.k}, {tile.warps[0]}, {tile.warps[1]}"
    if by.is_mma:
        deep = [str(each.is_deep).lower() for each in (of_a, of_b)]
        form = f"cudakit::mma_product<{inside}, {extents}, {deep[0]}, {deep[1]}>"
    else:
        form = f"cudakit::fma_product<{inside}, {by.sum}, {extents}, {tile.thread[0]}, {tile.thread[1]}>"
    shared = sum(
        _shared_bytes(lines, tile.k, each.is_deep and by.is_mma, size, by.is_mma)
        for lines, each in ((tile.m, of_a), (tile.n, of_b))
    )
    is_aligned = gcd(out_alignment, n * made.itemsize) >= _PACK
    kernel = kernel_with("matmul", "matmul", activation.text)[
        stored,
        form,
        by.value,
        by.scale,
        made,
        activation.name,
        tile.stages,
        of_a.is_deep,
        of_a.at_once,
        of_b.is_deep,
        of_b.at_once,
        *extras,
        is_aligned,
        tile.blocks,
    ]
    count = prod(batch.extents) * -(-m // tile.m) * -(-n // tile.n)
    extent, left, right = ((0,) * (_AXES - len(each)) + each for each in batch)
    numbers = (
        *(m, n, k, a.line, a.depth, b.depth, b.line, a.begin, b.begin),
        *(max(1, each) for each in extent[1:]),
        *left,
        *right,
    )
    return Product(kernel, config(count, 32 * prod(tile.warps), tile.stages * shared), numbers)


def _shared_bytes(lines: int, depth: int, is_deep: bool, size: int, is_mma: bool) -> int:
    """Bytes of an operand's tile in shared memory, as `operand_tile` lays it."""
    pad = 32 if is_mma and (size == 8 or (size == 4 and not is_deep)) else 16
    return lines * (depth * size + pad) if is_deep else depth * (lines * size + pad)
