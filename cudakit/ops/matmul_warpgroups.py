"""Products of matrices on Hopper GPUs, by warpgroups (`wgmma`) and tensor copies (TMA)."""

from __future__ import annotations

import functools
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.place import ArrayPlace, busy_blocks, device_limits
from cudakit.jit.load.config import config
from cudakit.ops.epilogue import Activation, kernel_with
from cudakit.ops.matmul_tiles import MatrixLayout, Product, flat_of, matrix_layout

_DTYPES = ("float16", "bfloat16", "int8")
#: Bytes of a row of a box, and of a tile along k.
_BOX_BYTES = 128
_ROW_BYTES = 16


class Tile(NamedTuple):
    """A block's tile of C: `groups` warpgroups of 64 rows, `n` columns. A cluster of `split` blocks divides k.

    Attributes
    ----------
    stages : int
        Number of tiles of A and B in shared memory.
    rate : float
        Fraction of the greatest rate that products of very many tiles reach.
    blocks : int
        Blocks on a multiprocessor.
    """

    groups: int
    n: int
    stages: int
    rate: float
    split: int = 1
    blocks: int = 1

    @property
    def m(self) -> int:
        """Rows of the tile."""
        return 64 * self.groups

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block in bytes: tiles of A and B, and two barriers, for each stage."""
        return self.stages * ((self.m + -(-self.n // 64) * 64) * _BOX_BYTES + 16)


#: As measured on an H200 (`benchmarks/results/products-h200.md`), greatest first.
TABLE = (
    Tile(2, 256, 4, 1.0),
    Tile(3, 192, 4, 1.0),
    Tile(2, 192, 5, 1.0),
    Tile(2, 128, 6, 0.98),
    Tile(1, 128, 8, 0.77),
    Tile(2, 64, 8, 0.76, split=2),
    Tile(1, 64, 8, 0.5),
    Tile(1, 64, 8, 0.5, split=2),
)
#: What a cluster takes to add the sums of its blocks, in multiply-adds along one step of k: 0.7 µs.
_GATHER = 49152
#: Multiply-adds from which warpgroups were measured to be faster.
_LEAST = 128**3
_CAPABILITY = (9, 0)
_ARCH = "sm_90a"


class Warpgroups(NamedTuple):
    """A product by warpgroups: the launch, and a text that explains it."""

    product: Product
    explanation: str


def by_warpgroups(
    place: ArrayPlace,
    a: Any,
    b: Any,
    result_dtype: np.dtype,
    activation: Activation,
    extras: list[Any],
    written: Any,
) -> Warpgroups | None:
    """Return the product of `a` and `b` by warpgroups, or None if another kernel is faster or alone supports the call.

    `extras` are bias and residual, or None. `written` is the result, or None. The operands have at least two axes.
    """
    size = a.dtype.itemsize
    if a.dtype.name not in _DTYPES or device_limits(place.device).compute_capability != _CAPABILITY:
        return None
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if any(prod(x.shape[:-2]) != 1 and x.shape[:-2] != batch for x in (a, b)):
        return None
    (m, k), n, batches = a.shape[-2:], b.shape[-1], prod(batch)
    left, right = (matrix_layout(x.shape, x.strides, x.dtype.itemsize) for x in (a, b))
    if left is None or right is None:
        return None
    if prod(b.shape[:-2]) == 1 and not left.is_transposed and left.step in (0, m * left.pitch):
        # Rows of all of A are rows of one matrix.
        m, batches, a = m * prod(a.shape[:-2]), 1, a.reshape(-1, k)
    if not is_faster(batches, m, n, k, place.device) or place.is_named(a) or place.is_named(b):
        return None
    sides = _Operand(left, m, k, True, prod(a.shape[:-2]), size), _Operand(right, k, n, False, prod(b.shape[:-2]), size)
    fits = [
        side.step_bytes % _ROW_BYTES == 0 == side.layout.pitch * size % _ROW_BYTES and (side.is_deep or size > 1)
        for side in sides
    ]
    if not all(fits) or place.alignment(flat_of(a), flat_of(b)) < _ROW_BYTES:
        return None
    tile, why = choose(batches, m, n, -(-k * size // _BOX_BYTES), place.device)
    present = extras[0] is not None, extras[1] is not None
    alignment = place.alignment(*(array for array in (*extras, written) if array is not None))
    launch = product(
        a.dtype, result_dtype, activation, sides, (m, n, k, batches), present, alignment, tile, place.device
    )
    maps = [
        place.tensor_map(side.boxed(place, x), (1, lines if side.is_deep else _BOX_BYTES // size, _BOX_BYTES // size))
        for x, side, lines in zip((a, b), sides, (tile.m, tile.n), strict=True)
    ]
    box = _BOX_BYTES // size
    lines = [f"{tile.m} × {tile.n} × {box}, {tile.groups + 1} warpgroups, wgmma of {a.dtype}: {why}"]
    for name, side, other in zip("ab", sides, "mn", strict=True):
        lines.append(f"{name}: read as it lies, in boxes of {box} neighbours along {'k' if side.is_deep else other}")
    return Warpgroups(launch._replace(numbers=(*launch.numbers, *maps)), "\n".join(lines))


class _Operand(NamedTuple):
    """Layout of an operand of so many `matrices`, of A (`is_a`) or of B."""

    layout: MatrixLayout
    rows: int
    columns: int
    is_a: bool
    matrices: int
    itemsize: int

    @property
    def is_deep(self) -> bool:
        """True if elements are contiguous along k."""
        return self.is_a != self.layout.is_transposed

    @property
    def _lines(self) -> int:
        return self.columns if self.layout.is_transposed else self.rows

    @property
    def step_bytes(self) -> int:
        """Bytes from one matrix to the next."""
        return self.itemsize * (self.layout.step if self.matrices > 1 else self.layout.pitch * self._lines)

    def boxed(self, place: ArrayPlace, x: Any) -> Any:
        """Return the operand as (matrices, lines, contiguous elements), as bits: CuPy's arrays need no bfloat16."""
        size = self.itemsize
        contiguous = self.rows if self.layout.is_transposed else self.columns
        shape, strides = (self.matrices, self._lines, contiguous), (self.step_bytes, size * self.layout.pitch, size)
        return place.xp.lib.stride_tricks.as_strided(x, shape, strides).view(f"u{size}")


class Choice(NamedTuple):
    """A tile, and the reason for it."""

    tile: Tile
    why: str


def is_faster(batches: int, m: int, n: int, k: int, device: int | str) -> bool:
    """Return whether warpgroups multiply faster than other kernels. Never on the emulator, where each instruction of a
    warpgroup takes long.
    """
    return busy_blocks(device) > 1 and min(m, n, k) >= 64 and batches * m * n * k >= _LEAST


@functools.lru_cache(1024)
def choose(batches: int, m: int, n: int, steps: int, device: int | str) -> Choice:
    """Return the tile with which the multiprocessors finish first, by the rates of `TABLE`.

    `steps` is the number of tiles along k.
    """
    units = busy_blocks(device)

    def rounds(tile: Tile) -> int:
        return -(-batches * -(-m // tile.m) * -(-n // tile.n) * tile.split // units)

    def time(tile: Tile) -> float:
        gather = _GATHER if tile.split > 1 else 0
        return rounds(tile) * (-(-steps // tile.split) * tile.m * tile.n / tile.rate + gather)

    best = min((tile for tile in TABLE if tile.split <= steps), key=time)
    used = batches * m * n * best.split / (rounds(best) * units * best.m * best.n)
    parts = f" of {best.split} parts of k" if best.split > 1 else ""
    return Choice(best, f"{rounds(best)} rounds{parts} on {units} multiprocessors, {used:.0%} of use")


@functools.lru_cache(1024)
def product(
    stored: np.dtype,
    result_dtype: np.dtype,
    activation: Activation,
    sides: tuple[_Operand, _Operand],
    sizes: tuple[int, int, int, int],
    extras: tuple[bool, bool],
    out_alignment: int,
    tile: Tile,
    device: int | str,
) -> Product:
    """Return the launch, without the tensor maps of A and B, which are its last arguments.

    Parameters
    ----------
    stored, result_dtype : numpy.dtype
        Dtype of A and B, and dtype of C.
    sizes : (int, int, int, int)
        Extents m, n, k, and number of matrices.
    extras : (bool, bool)
        Whether there is a bias, and whether there is a residual.
    out_alignment : int
        Common alignment of the addresses of C, bias and residual in bytes.
    """
    m, n, _, batches = sizes
    is_aligned = gcd(out_alignment, n * result_dtype.itemsize) >= _ROW_BYTES
    deep = [side.is_deep for side in sides]
    # int8 is summed in int, and its results may be floats.
    value = "int" if result_dtype.kind in "iu" else "float"
    names = stored, value, result_dtype, activation.name, *tile[:3], *deep, *extras, is_aligned, *tile[4:]
    kernel = kernel_with("warpgroup_matmul", "warpgroup_matmul", activation.source, _ARCH)[*names]
    count = batches * -(-m // tile.m) * -(-n // tile.n) * tile.split
    if tile.split == 1:
        count = min(count, tile.blocks * device_limits(device).multiprocessors)
    cluster = tile.split if tile.split > 1 else None
    steps = [int(side.matrices > 1) for side in sides]
    return Product(kernel, config(count, 128 * (tile.groups + 1), tile.shared_bytes, cluster), (*sizes, *steps))
