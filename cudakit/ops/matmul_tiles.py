"""Products of matrices by tile kernels: choice of tiles, operands that TMA cannot read copied, and the launch."""

from __future__ import annotations

import functools
from math import gcd, inf, prod
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays import place
from cudakit.arrays.layout import flat, row_major, span, steps_of
from cudakit.arrays.place import ArrayPlace, address_of, device_limits
from cudakit.errors import CompileError
from cudakit.jit.cache.stages import compiled_of
from cudakit.jit.load.config import Config, config
from cudakit.jit.load.load import loadable
from cudakit.kernel.kernel import Kernel
from cudakit.ops.arrange import pad_job
from cudakit.ops.copies import copy_job
from cudakit.ops.epilogue import Activation, kernel_with


class Tiles(NamedTuple):
    """Extents of a block's tiles of C (m × n) and of A and B (k), its warps, CTAs, and whether it makes several.

    Attributes
    ----------
    rate : float
        Fraction of cuBLAS's rate that products of very many tiles reach.
    lost : int
        Time for the begin and the end of a tile, in steps along k.
    rounds : int
        Least number of tiles for each multiprocessor for which these tiles are used.
    swapped : bool
        Whether a tile is computed as Bᵀ Aᵀ.
    more : int
        Columns of C beside the tile's n that a block makes too: extents of tiles are powers of two, n + more is none.
    """

    m: int
    n: int
    k: int
    warps: int = 4
    ctas: int = 1
    persistent: bool = False
    rate: float = 1.0
    lost: int = 0
    rounds: int = 1
    swapped: bool = False
    more: int = 0

    @property
    def columns(self) -> int:
        """Columns of C that a block makes at once."""
        return self.n + self.more

    @property
    def extents(self) -> str:
        """Extents of C and of the sum, as text."""
        return f"{self.m} × {self.columns} × {self.k}"


#: Tiles by operands, greatest first, as measured on an H200 (`benchmarks/results/tiles-h200.md`). The last tile that is
#: not swapped is for small products.
TABLE = {
    "half": (
        Tiles(256, 256, 64, 8, 2, True, rate=1.0, lost=100, rounds=3),
        Tiles(128, 256, 64, 8, 1, True, rate=0.97, lost=50, rounds=2),
        Tiles(128, 128, 64, 8, 1, rate=0.93, lost=50, more=64),
        Tiles(128, 128, 64, 8, 1, rate=0.8, more=32),
        Tiles(128, 128, 64, 4, 1, True, rate=0.98, lost=100),
        Tiles(64, 128, 64, 4, rate=0.65, lost=100),
        Tiles(64, 64, 128, 4, rate=0.42, lost=100),
        Tiles(64, 32, 128, 4, rate=0.28, lost=100),
        Tiles(32, 64, 128, 4, rate=0.22, lost=100, swapped=True),
        Tiles(16, 64, 256, 4, rate=0.15, lost=100, swapped=True),
    ),
    "fp8": (
        Tiles(128, 128, 128, 8, 1, True, rate=0.95, lost=100, rounds=3),
        Tiles(128, 128, 256, 8, rate=0.94, lost=100),
        Tiles(64, 128, 256, 4, rate=0.62, lost=100),
        Tiles(64, 64, 128, 4, rate=0.42, lost=100),
    ),
    "TF32": (
        Tiles(128, 128, 32, 4, 1, True, rate=1.0, lost=50),
        Tiles(64, 128, 32, 4, rate=0.61, lost=50),
        Tiles(64, 64, 32, 4, rate=0.44, lost=50),
    ),
    "TF32, rows of B": (
        Tiles(256, 128, 64, 8, rate=0.95, lost=150, swapped=True),
        Tiles(256, 128, 32, 8, rate=0.93, lost=50, swapped=True),
        Tiles(128, 128, 64, 8, rate=0.82, lost=50, swapped=True),
        Tiles(64, 128, 32, 8, rate=0.48, lost=50, swapped=True),
        Tiles(64, 64, 32, 4, rate=0.33, lost=50),
    ),
    # As the row above, of Aᵀ in the place of B: not measured.
    "TF32, columns of A": (
        Tiles(128, 256, 32, 8, rate=0.93, lost=50),
        Tiles(128, 128, 64, 8, rate=0.82, lost=50),
        Tiles(128, 64, 32, 8, rate=0.48, lost=50),
        Tiles(64, 64, 32, 4, rate=0.33, lost=50),
    ),
}
#: From this compute capability on two CTAs share a tile.
_CLUSTERS = (9, 0)


class Choice(NamedTuple):
    """Tiles, the reason for them, and the time that is estimated, in multiply-adds of a multiprocessor.

    The time is infinite where it is not estimated: on the emulator.
    """

    tiles: Tiles
    why: str
    time: float = inf


def table_row(itemsize: int, a_is_transposed: bool, b_is_transposed: bool) -> str:
    """Return the row of `TABLE` for elements of `itemsize` bytes. Transposed: A is stored k × m, B is stored n × k."""
    tf32 = "TF32, rows of B" if not b_is_transposed else "TF32, columns of A" if a_is_transposed else "TF32"
    return {1: "fp8", 2: "half"}.get(itemsize, tf32)


@functools.lru_cache(1024)
def choose(row: str, batches: int, m: int, n: int, k: int, device: int | str) -> Choice:
    """Return the tiles with which the multiprocessors finish first.

    Multiprocessors compute tiles in rounds. The time of a tile is estimated from its multiplications and a measured
    rate. The emulator runs one block after another: there the choice is the greatest tiles that the product fills.
    """
    limits, units = device_limits(device), place.busy_blocks(device)
    table = [tiles for tiles in TABLE[row] if tiles.ctas == 1 or limits.compute_capability >= _CLUSTERS]
    if units == 1:
        best = next((tiles for tiles in table if min(m, n) > tiles.m // 2 and not tiles.swapped), None)
        return Choice(best or min(table, key=lambda tiles: (tiles.swapped, tiles.m)), "the greatest that is filled")

    def rounds(tiles: Tiles) -> int:
        count = batches * -(-m // tiles.m) * -(-n // tiles.columns)
        return -(-count * tiles.ctas // units)

    def time(tiles: Tiles) -> float:
        return rounds(tiles) * tiles.m * tiles.columns / tiles.ctas * (1 + tiles.lost / max(k, 1)) / tiles.rate

    fit = [tiles for tiles in table if rounds(tiles) >= tiles.rounds]
    best = min(fit, key=time)
    used = batches * m * n / (rounds(best) * units * best.m * best.columns / best.ctas)
    return Choice(
        best,
        f"{rounds(best)} rounds of tiles on {units} multiprocessors, {used:.0%} of them of use, at "
        f"{best.rate:.0%} of cuBLAS's rate",
        time(best) * k,
    )


class MatrixLayout(NamedTuple):
    """Layout of a matrix or a batch of matrices, in elements.

    `pitch` is the step between rows (between columns, if transposed). `step` is the step between matrices.
    """

    is_transposed: bool
    pitch: int
    step: int


def matrix_layout(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> MatrixLayout | None:
    """Return the layout of a matrix or a batch. None if the kernel cannot read it."""
    if any(step % itemsize for step in strides):
        return None
    *around, high, wide = (step // itemsize for step in strides)
    rows, columns = shape[-2:]
    step = 0
    if around:
        step = around[-1] if shape[-3] > 1 else prod(shape[-2:])
        # Matrices of a batch of several dimensions lie as those of one do.
        if around != [inner * step for inner in row_major(shape[:-2])] and prod(shape[:-2]) > 1:
            return None
    for is_transposed, unit, pitch, length, count in (
        (False, wide, high, columns, rows),
        (True, high, wide, rows, columns),
    ):
        pitch = length if count == 1 else pitch
        if (unit == 1 or length == 1) and pitch >= length and (step == 0 or step >= length):
            return MatrixLayout(is_transposed, pitch, step)
    return None


class Product(NamedTuple):
    """A launch of the template: its instance, its configuration, and its last arguments."""

    kernel: Kernel
    config: Config
    numbers: tuple[Any, ...]


@functools.lru_cache(1024)
def product(
    stored: np.dtype,
    result_dtype: np.dtype,
    activation: Activation,
    sides: tuple[MatrixLayout, MatrixLayout, MatrixLayout],
    sizes: tuple[int, int, int, int],
    addresses: tuple[int, int],
    extras: tuple[bool, bool],
    tiles: Tiles,
    device: int | str,
) -> Product:
    """Return the launch of a tile kernel.

    Parameters
    ----------
    stored, result_dtype : numpy.dtype
        Dtype of A and B, and dtype of C.
    sides : (MatrixLayout, MatrixLayout, MatrixLayout)
        Layouts of A, B and C.
    sizes : (int, int, int, int)
        Number of batches, and extents m, n, k.
    addresses : (int, int)
        Alignment of the addresses of A and B, and of all other addresses, in bytes.
    extras : (bool, bool)
        Whether there is a bias, and whether there is a residual.
    tiles : Tiles
        Tiles that `choose` returned.
    """
    a, b, c = sides
    batches, m, n, k = sizes
    reach = max(side.step * batches + side.pitch * max(m, n, k) for side in sides)
    index = "int" if reach < 1 << 31 else "long long"
    align = gcd(addresses[0], *(elements * stored.itemsize for side in (a, b) for elements in (side.pitch, side.step)))
    out_align = gcd(addresses[1], *(elements * result_dtype.itemsize for elements in (c.pitch, c.step, n)))
    count = batches * -(-m // tiles.m) * -(-n // tiles.columns)
    blocks = min(count, max(1, device_limits(device).multiprocessors // tiles.ctas)) if tiles.persistent else count
    types = stored, "__nv_tf32" if stored == np.float32 else stored, result_dtype, activation.name, index
    extents, aligned = tiles[:5], (align, out_align)  # with warps and CTAs
    more = [tiles.more] if tiles.more else []
    ways = a.is_transposed, b.is_transposed, batches > 1, *extras, tiles.persistent, tiles.swapped, *more
    kernel = kernel_with("tile/matmul", "matmul", activation.tile_source or "")[*types, *extents, *aligned, *ways]
    numbers = (*sizes, a.pitch, b.pitch, c.pitch, a.step, b.step, c.step)
    return Product(kernel, config(blocks), numbers)


#: How a product is made: by tile kernels, or by kernels of threads.
Way: TypeAlias = Literal["tiles", "threads"]
#: Alignment of rows in bytes for TMA.
_ROW_BYTES = 16
#: Extent from which a copy and a product with TMA take less time than a product without TMA.
_WORTH = 128
#: Uses of each element from which A is transposed by a copy for TF32: the product by columns would lose more time.
_WORTH_TRANSPOSING = 1024


class OperandLayout(NamedTuple):
    """Layout in which the kernel reads an operand, and the reason why it is a copy. None: it is no copy."""

    layout: MatrixLayout
    reason: str | None


class Tiled(NamedTuple):
    """A product by tiles: operands of one batch, names of operands copied for the batch, layouts, tiles and launch."""

    a: Any
    b: Any
    copied: tuple[str, ...]
    left: OperandLayout
    right: OperandLayout
    choice: Choice
    product: Product

    def run(self, place: ArrayPlace, bias: Any, residual: Any, c: Any, scale: float) -> None:
        """Copy the operands that cannot be read in place, then launch."""
        a, b = _operand(place, self.a, self.left), _operand(place, self.b, self.right)
        # What the instance does not read may be anything.
        extras = (c if bias is None else bias), (c if residual is None else residual)
        place.launch(self.product.kernel, self.product.config, a, b, *extras, c, scale, *self.product.numbers)

    def explanation(self) -> list[str]:
        """Return lines that name the tiles and say how the operands are read."""
        tiles, why, _ = self.choice
        lines = [f"{tiles.extents}, {tiles.warps} warps, {tiles.ctas} CTAs: {why}"]
        for name, operand in (("a", self.left), ("b", self.right)):
            as_it_lies = f"read as it lies{', turned' if operand.layout.is_transposed else ''}"
            reason = "its batch is not one of rows as far apart" if name in self.copied else operand.reason
            lines.append(f"{name}: {f'copied first, for {reason}' if reason else as_it_lies}")
        return lines


def tiled(
    place: ArrayPlace, a: Any, b: Any, result_dtype: np.dtype, activation: Activation, extras: list[Any], written: Any
) -> Tiled:
    """Return the product of `a` and `b` by tiles.

    `extras` are bias and residual, or None. `written` is the result, or None.
    """
    originals = a, b
    a, b = _of_one_batch(place, a, b)
    copied = tuple(n for n, x, y in zip("ab", originals, (a, b), strict=True) if address_of(x) != address_of(y))
    batches, (m, k), n = prod(a.shape[:-2]), a.shape[-2:], b.shape[-1]
    right = _operand_layout(place, b, m)
    left = _operand_layout(place, a, n, right.layout)
    of_c = MatrixLayout(False, n, m * n if batches > 1 else 0)
    choice = choose(
        table_row(a.dtype.itemsize, left.layout.is_transposed, right.layout.is_transposed),
        batches,
        m,
        n,
        k,
        place.device,
    )
    read = [x for x, operand in ((a, left), (b, right)) if operand.reason is None]
    others = [x for x in (*extras, written) if x is not None]
    addresses = place.alignment(*(flat_of(x) for x in read)), place.alignment(*others)
    sides, sizes = (left.layout, right.layout, of_c), (batches, m, n, k)
    present = extras[0] is not None, extras[1] is not None
    launch = product(a.dtype, result_dtype, activation, sides, sizes, addresses, present, choice.tiles, place.device)
    return Tiled(a, b, copied, left, right, choice, launch)


def flat_of(x: Any) -> Any:
    """Return the memory that an array spans, as a flat array."""
    return x if x.flags.c_contiguous else flat(x, *span(x.shape, steps_of("matmul", x.dtype, x.strides)))


@functools.lru_cache(1024)
def missing(kernel: Kernel, device: int | str) -> str | None:
    """Return why a tile kernel is not available on a device, or None."""
    arch = device_limits(device).arch
    specialization = kernel.specialization(arch=arch, target="tileir" if isinstance(device, str) else "cubin")
    try:
        compiled_of(loadable(specialization))
    except CompileError as error:
        return str(error).splitlines()[0]
    return None


def _of_one_batch(place: ArrayPlace, a: Any, b: Any) -> tuple[Any, Any]:
    """Return both operands with the same batch shape, or as single matrices.

    If B is one matrix, a batch of A becomes one matrix of many rows. An operand is copied where necessary.
    """
    if prod(b.shape[:-2]) == 1:
        b = b.reshape(b.shape[-2:])
        return (place.contiguous(a).reshape(-1, a.shape[-1]) if a.ndim > 2 else a), b
    if a.shape[:-2] != b.shape[:-2]:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (
            x if x.shape[:-2] == batch else place.contiguous(place.xp.broadcast_to(x, (*batch, *x.shape[-2:])))
            for x in (a, b)
        )
    return a, b


def _operand(place: ArrayPlace, x: Any, operand: OperandLayout) -> Any:
    """Return a matrix or a batch in the memory that the kernel reads: its own memory, or a copy with padded rows.

    `operand` holds the earlier choice of the layout. The array is copied if it names a reason for a copy.
    """
    shape, dtype = x.shape, x.dtype
    if operand.reason is None:
        return flat_of(x)
    *around, rows, columns = shape
    pitch = operand.layout.pitch
    result = place.empty((*around, rows, pitch), dtype)
    if pitch > columns:
        # What is padded is stored 16 bytes at a time; a copy into a part of each row is not.
        widths = (*((0, 0) for _ in shape[:-1]), (0, pitch - columns))
        pad_job(dtype, shape, x.strides, widths, "constant", b"", None).run(place, x, result)
    else:
        copy_job("matmul", dtype, shape, x.strides, None, None).run(place, x, result)
    return result


def _operand_layout(place: ArrayPlace, x: Any, uses: int, beside: MatrixLayout | None = None) -> OperandLayout:
    """Return the layout in which the kernel reads an operand.

    `uses` is how often each element is used. `beside` is the layout of B, for A.
    """
    layout = matrix_layout(x.shape, x.strides, x.dtype.itemsize)
    reason = _reason_to_copy(place, x, layout, uses, beside)
    if layout is not None and reason is None:
        return OperandLayout(layout, None)
    rows, columns = x.shape[-2:]
    pitch = -(-columns * x.dtype.itemsize // _ROW_BYTES) * _ROW_BYTES // x.dtype.itemsize
    return OperandLayout(MatrixLayout(False, pitch, rows * pitch if x.ndim > 2 else 0), reason)


def _reason_to_copy(
    place: ArrayPlace, x: Any, layout: MatrixLayout | None, uses: int, beside: MatrixLayout | None
) -> str | None:
    """Return why an operand is copied first, or None."""
    if layout is None:
        return "no axis of it is contiguous"
    steps = (layout.pitch, layout.step)
    slow = place.alignment(x) < _ROW_BYTES or any(step * x.dtype.itemsize % _ROW_BYTES for step in steps)
    if slow and min(uses, *x.shape[-2:]) >= _WORTH:
        return f"its address or pitch is no multiple of {_ROW_BYTES} bytes"
    if (
        x.dtype.itemsize == 4
        and layout.is_transposed
        and beside
        and not beside.is_transposed
        and uses >= _WORTH_TRANSPOSING
    ):
        return "TF32 is multiplied by rows of B with rows of A"
    return None
