"""Which tiles a product of matrices is made of, and what its kernel is told of how the matrices lie."""

from __future__ import annotations

import functools
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays import place
from cudakit.arrays.place import device_limits
from cudakit.arrays.views import row_major
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel

#: What the template calls the functions that a product goes through before it is stored.
ACTIVATIONS = {None: "identity", "relu": "relu", "gelu": "gelu", "silu": "silu"}
_MOST_BATCHES = 65_535


class Tiles(NamedTuple):
    """Extents of a block's tiles of C (m × n) and of A and B (k), its warps, CTAs, and whether it makes several."""

    m: int
    n: int
    k: int
    warps: int = 4
    ctas: int = 1
    persistent: bool = False
    #: Tiles for each of the multiprocessors from which on these are taken.
    fill: float = 0.0


#: By the bytes of an element as it is multiplied, greatest first. On an H200, beside cuBLAS in the same run
#: (TFLOP/s): bfloat16 8192³ 691 / 673 with the first, 4096³ 640 / 643 with the second; float16 the same shapes; fp8
#: 8192³ 1043 / 1324; TF32 8192³ 334 / 361. The smaller ones were not measured.
TABLE = {
    2: (
        Tiles(256, 256, 64, warps=8, ctas=2, persistent=True, fill=4),
        Tiles(128, 128, 64, persistent=True, fill=1),
        Tiles(64, 128, 64, fill=1),
        Tiles(64, 64, 64),
    ),
    1: (Tiles(128, 128, 128, warps=8, fill=1), Tiles(64, 64, 128)),
    4: (Tiles(128, 256, 32, warps=8, fill=1), Tiles(64, 128, 32, fill=1), Tiles(64, 64, 32)),
}
#: From this compute capability on two CTAs share a tile.
_CLUSTERS = (9, 0)


class Choice(NamedTuple):
    """Tiles, and why these."""

    tiles: Tiles
    why: str


@functools.lru_cache(1024)
def choose(itemsize: int, batches: int, m: int, n: int, device: int | str) -> Choice:
    """The tiles for products of one kind: the greatest of which there are enough for the device.

    On the emulator, which does one block after another, always the greatest that the product fills.
    """
    limits = device_limits(device)
    units = place.busy_blocks(device)
    table = [each for each in TABLE[itemsize] if each.ctas == 1 or limits.compute_capability >= _CLUSTERS]
    for tiles in table[:-1]:
        count = batches * -(-m // tiles.m) * -(-n // tiles.n)
        if count >= tiles.fill * units and min(m, n) > tiles.m // 2:
            return Choice(tiles, f"{count} tiles, {tiles.fill:g} or more for each of {units} multiprocessors")
    last = table[-1]
    return Choice(last, f"greater tiles than {last.m} × {last.n} would leave some of {units} multiprocessors idle")


class Lying(NamedTuple):
    """How a matrix, or a batch of them, lies: elements from row to row, or from column to column, and between them."""

    turned: bool
    pitch: int
    step: int


def lying(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Lying | None:
    """How a matrix or a batch lies; None where the kernel cannot take it so."""
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
    for turned, unit, pitch, length, count in (
        (False, wide, high, columns, rows),
        (True, high, wide, rows, columns),
    ):
        pitch = length if count == 1 else pitch
        if (unit == 1 or length == 1) and pitch >= length and (step == 0 or step >= length):
            return Lying(turned, pitch, step)
    return None


class Product(NamedTuple):
    """A launch of the template: its instance, its configuration, and its last arguments."""

    kernel: Kernel
    config: Config
    numbers: tuple[Any, ...]


@functools.lru_cache(1024)
def product(
    stored: np.dtype,
    made: np.dtype,
    activation: str | None,
    sides: tuple[Lying, Lying, Lying],
    sizes: tuple[int, int, int, int],
    addresses: tuple[int, int],
    extras: tuple[bool, bool],
    tiles: Tiles,
    device: int | str,
) -> Product:
    """The launch for one kind of call.

    Parameters
    ----------
    stored, made : numpy.dtype
        Of A and B, and of C.
    sides : (Lying, Lying, Lying)
        A, B, C.
    sizes : (int, int, int, int)
        Batches, m, n, k.
    addresses : (int, int)
        What the addresses of A and B, and of all else, are multiples of, in bytes.
    extras : (bool, bool)
        Whether there are a bias and a residual.
    tiles : Tiles
        As `choose` has them.
    """
    a, b, c = sides
    batches, m, n, k = sizes
    if batches > _MOST_BATCHES:
        raise ArgumentError(f"matmul: {batches} matrices; a launch takes {_MOST_BATCHES}, so give them in parts")
    reach = max(side.step * batches + side.pitch * max(m, n, k) for side in sides)
    index = "int" if reach < 1 << 31 else "long long"
    align = gcd(addresses[0], *(each * stored.itemsize for side in (a, b) for each in (side.pitch, side.step)))
    out_align = gcd(addresses[1], *(each * made.itemsize for each in (c.pitch, c.step, n)))
    count = -(-m // tiles.m) * -(-n // tiles.n)
    blocks = min(count, max(1, device_limits(device).multiprocessors // tiles.ctas)) if tiles.persistent else count
    kernel = Kernel.from_template("tile/matmul/matmul")[
        stored,
        "__nv_tf32" if stored == np.float32 else stored,
        made,
        f"cudakit::{ACTIVATIONS[activation]}",
        index,
        tiles.m,
        tiles.n,
        tiles.k,
        tiles.warps,
        tiles.ctas,
        align,
        out_align,
        a.turned,
        b.turned,
        batches > 1,
        *extras,
        tiles.persistent,
    ]
    numbers = (*sizes, a.pitch, b.pitch, c.pitch, a.step, b.step, c.step)
    return Product(kernel, config((blocks, batches)), numbers)
