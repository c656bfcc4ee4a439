"""Products of matrices on Hopper GPUs, by warpgroups (`wgmma`) and tensor copies (TMA)."""

from __future__ import annotations

import functools
from math import gcd, inf, prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.place import ArrayPlace, busy_blocks, device_limits
from cudakit.jit.load.config import config
from cudakit.ops.epilogue import Activation, kernel_with
from cudakit.ops.matmul_tiles import MatrixLayout, Product, flat_of, matrix_layout

_DTYPES = ("float16", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2", "float32")
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
        return self.stages * ((self.m + self.n) * _BOX_BYTES + 16)

    @property
    def is_turned(self) -> bool:
        """True if columns of C are computed as rows: other tiles are stored 32 columns at once."""
        return self.n % 32 > 0


_HALF = (
    Tile(2, 256, 4, 1.0),
    Tile(3, 192, 4, 1.0),
    Tile(2, 192, 5, 1.0),
    Tile(2, 128, 6, 0.98),
    Tile(1, 128, 8, 0.77),
    Tile(2, 64, 8, 0.76, split=2),
    Tile(1, 64, 8, 0.5),
    Tile(1, 64, 8, 0.5, split=2),
)
#: By operands, as measured on an H200 (`benchmarks/results/products-h200.md`), greatest first.
TABLE = {
    "half": _HALF,
    # 1536³ are 132 of these tiles. Rows of A take the place of B, which is contiguous along k.
    "half, A along k": (*_HALF, Tile(2, 144, 6, 0.83)),
    "TF32": (
        Tile(2, 256, 4, 0.97),
        Tile(3, 192, 4, 0.97),
        Tile(2, 192, 5, 0.97),
        Tile(1, 256, 5, 0.9),
        Tile(2, 128, 6, 0.88),
        Tile(1, 128, 8, 0.73),
        Tile(2, 64, 8, 0.55),
        Tile(1, 64, 8, 0.51),
        Tile(1, 64, 8, 0.51, split=2),
    ),
    # Of columns of A, or of rows of B: an operand is read to registers.
    "TF32, read": (
        Tile(2, 256, 4, 1.0),
        Tile(3, 192, 4, 1.0),
        Tile(2, 192, 5, 1.0),
        Tile(2, 128, 6, 0.83),
        Tile(1, 256, 5, 0.83),
        Tile(1, 128, 8, 0.55),
        Tile(2, 64, 8, 0.53),
        Tile(1, 64, 8, 0.33),
        Tile(1, 64, 8, 0.33, split=2),
    ),
    "fp8": (
        Tile(2, 192, 5, 0.96),
        Tile(2, 128, 6, 0.9),
        Tile(1, 128, 8, 0.62),
        Tile(1, 64, 8, 0.52),
        Tile(1, 64, 8, 0.52, split=2),
    ),
    # Results of 16 bits, for which half as many sums are added in float.
    "fp8, 16 bits": (
        Tile(2, 192, 5, 1.03),
        Tile(2, 128, 6, 0.95),
        Tile(1, 128, 8, 0.69),
        Tile(1, 64, 8, 0.55),
        Tile(1, 64, 8, 0.55, split=2),
    ),
}
#: What a cluster takes to add the sums of its blocks, in multiply-adds along one step of k: 0.7 µs.
_GATHER = 49152
#: Multiply-adds from which warpgroups were measured to be faster than tile kernels, by bytes of an element, if they are
#: estimated to take less time by this factor.
_LEAST_BESIDE_TILES, _MARGIN = {1: 1 << 33, 2: 1 << 31, 4: 1 << 34}, 1.03
#: Time of the begin and end of a tile beside tile kernels, in elements along k, by bytes of an element. The rates of
#: other elements include it.
_LOST = {2: 100}
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
    precision: str | None,
    most: float = inf,
) -> Warpgroups | None:
    """Return the product of `a` and `b` by warpgroups, or None if another kernel is faster or alone supports the call.

    `extras` are bias and residual, or None. `written` is the result, or None. The operands have at least two axes.
    `most` is the time of a tile kernel, as `matmul_tiles.Choice` has it.
    """
    size = a.dtype.itemsize
    is_exact = a.dtype == np.float32 and precision is None
    if a.dtype.name not in _DTYPES or is_exact or device_limits(place.device).compute_capability != _CAPABILITY:
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
    fits = [side.step_bytes % _ROW_BYTES == 0 == side.layout.pitch * size % _ROW_BYTES for side in sides]
    # Tensor cores take bytes that are contiguous along k. Of 4-byte elements one operand may not be: it is read to
    # registers.
    if size != 2 and sum(not side.is_deep for side in sides) > size // 4:
        return None
    if not all(fits) or place.alignment(flat_of(a), flat_of(b)) < _ROW_BYTES:
        return None
    operands = a, b
    if size == 4 and not sides[1].is_deep:
        # What is read to registers takes the place of A: columns of C are computed as rows.
        m, n, sides, operands = n, m, sides[::-1], operands[::-1]
    box = _BOX_BYTES // size
    tile, why, time = choose(_row(a.dtype, result_dtype, sides), batches, m, n, -(-k // box), place.device)
    is_small = batches * m * n * k < _LEAST_BESIDE_TILES[size]
    if time * box * (1 + _LOST.get(size, 0) / k) * _MARGIN >= most or (is_small and most < inf):
        return None
    if tile.is_turned:
        m, n, sides, operands = n, m, sides[::-1], operands[::-1]
    present = extras[0] is not None, extras[1] is not None
    alignment = place.alignment(*(array for array in (*extras, written) if array is not None))
    launch = product(
        a.dtype, result_dtype, activation, sides, (m, n, k, batches), present, alignment, tile, place.device
    )
    maps = [
        place.tensor_map(side.boxed(place, x), (1, lines if side.is_deep else box, box))
        for x, side, lines in zip(operands, sides, (tile.m, tile.n), strict=True)
    ]
    extents = sorted((tile.m, tile.n), key=lambda extent: (extent == tile.m) != sides[0].is_a)
    label = "TF32" if size == 4 else a.dtype
    lines = [f"{extents[0]} × {extents[1]} × {box}, {tile.groups + 1} warpgroups, wgmma of {label}: {why}"]
    for name, side, other in zip("ab", sorted(sides, key=lambda side: not side.is_a), "mn", strict=True):
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
        """Return the operand as (matrices, lines, contiguous elements).

        It is as bits where it is not float32: CuPy's arrays need no bfloat16.
        """
        size = self.itemsize
        contiguous = self.rows if self.layout.is_transposed else self.columns
        shape, strides = (self.matrices, self._lines, contiguous), (self.step_bytes, size * self.layout.pitch, size)
        bits = x.view("f4" if size == 4 else f"u{size}")
        return place.xp.lib.stride_tricks.as_strided(bits, shape, strides)


class Choice(NamedTuple):
    """A tile, the reason for it, and the time that is estimated, in multiply-adds along a step of k."""

    tile: Tile
    why: str
    time: float = 0.0


def is_faster(batches: int, m: int, n: int, k: int, device: int | str) -> bool:
    """Return whether warpgroups multiply faster than other kernels. Never on the emulator, where each instruction of a
    warpgroup takes long.
    """
    return busy_blocks(device) > 1 and min(m, n, k) >= 64 and batches * m * n * k >= _LEAST


def _row(dtype: np.dtype, result_dtype: np.dtype, sides: tuple[_Operand, _Operand]) -> str:
    """Return the row of `TABLE` for operands and results of these dtypes. int8 has that of halves."""
    if dtype == np.float32:
        return "TF32" if all(side.is_deep for side in sides) else "TF32, read"
    if dtype.name.startswith("float8"):
        return "fp8" if result_dtype == np.float32 else "fp8, 16 bits"
    return "half, A along k" if dtype.itemsize == 2 and sides[0].is_deep else "half"


@functools.lru_cache(1024)
def choose(row: str, batches: int, m: int, n: int, steps: int, device: int | str) -> Choice:
    """Return the tile with which the multiprocessors finish first, by the rates of `TABLE`.

    `steps` is the number of tiles along k.
    """
    units = busy_blocks(device)

    def rounds(tile: Tile) -> int:
        high, wide = (n, m) if tile.is_turned else (m, n)
        return -(-batches * -(-high // tile.m) * -(-wide // tile.n) * tile.split // units)

    def time(tile: Tile) -> float:
        gather = _GATHER if tile.split > 1 else 0
        return rounds(tile) * (-(-steps // tile.split) * tile.m * tile.n / tile.rate + gather)

    best = min((tile for tile in TABLE[row] if tile.split <= steps), key=time)
    used = batches * m * n * best.split / (rounds(best) * units * best.m * best.n)
    parts = f" of {best.split} parts of k" if best.split > 1 else ""
    return Choice(
        best,
        f"{rounds(best)} rounds{parts} on {units} multiprocessors, {used:.0%} of use",
        time(best),
    )


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
    sides : (_Operand, _Operand)
        A and B; or B and A, if columns of C are computed as rows.
    sizes : (int, int, int, int)
        Lines of both sides, extent k, and number of matrices.
    extras : (bool, bool)
        Whether there is a bias, and whether there is a residual.
    out_alignment : int
        Common alignment of the addresses of C, bias and residual in bytes.
    """
    m, n, _, batches = sizes
    is_turned = not sides[0].is_a
    is_aligned = gcd(out_alignment, (m if is_turned else n) * result_dtype.itemsize) >= _ROW_BYTES
    deep = [side.is_deep for side in sides]
    # int8 is summed in int, and its results may be floats.
    value = "int" if result_dtype.kind in "iu" else "float"
    names = stored, value, result_dtype, activation.name, *tile[:3], *deep, *extras, is_aligned, is_turned, *tile[4:]
    kernel = kernel_with("warpgroup_matmul", "warpgroup_matmul", activation.source, _ARCH)[*names]
    count = batches * -(-m // tile.m) * -(-n // tile.n) * tile.split
    if tile.split == 1:
        count = min(count, tile.blocks * device_limits(device).multiprocessors)
    cluster = tile.split if tile.split > 1 else None
    steps = [int(side.matrices > 1) for side in sides]
    return Product(kernel, config(count, 128 * (tile.groups + 1), tile.shared_bytes, cluster), (*sizes, *steps))
