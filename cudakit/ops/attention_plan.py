"""Which tiles attention is made of, and the launch of its kernel."""

from __future__ import annotations

import functools
from math import log2
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.place import device_limits
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel

_LOG2E = log2(np.e)
#: The least width of tiles that tensor cores take.
_LEAST_WIDTH = 16
#: Elements that rows in shared memory are longer by.
_PAD = 8
#: Along y a launch has no more blocks.
_MOST_Y = 65_535
#: Bytes of keys and values that stay in L2 while blocks of all heads run.
_L2_BYTES = 32 << 20
#: From so many keys on blocks with many of them and blocks with few differ more than what L2 saves.
_LONG = 4096


class Tiles(NamedTuple):
    """Queries of a block and keys of a tile, warps, blocks of a multiprocessor; whether values are summed a tile later.

    Attributes
    ----------
    from_keys : int
        Keys from which on these are taken.
    """

    queries: int
    keys: int
    warps: int
    blocks: int = 1
    behind: bool = False
    from_keys: int = 0


#: By the width of rows, a power of two, greatest first, as measured on an H200 (`benchmarks/results/tiles-h200.md`).
TABLE = {
    256: (Tiles(128, 64, 8),),
    128: (Tiles(128, 128, 8, behind=True, from_keys=2048), Tiles(64, 128, 4, 2)),
    64: (Tiles(64, 128, 4, 2),),
}


class Block(NamedTuple):
    """Warps of a block, which have 16 queries each, and keys of a tile, by threads."""

    warps: int
    keys: int


#: By the width of rows, as `TABLE`, as measured on an H200 (`benchmarks/results/products-h200.md`).
BLOCKS = {256: Block(4, 32), 128: Block(8, 64), 64: Block(8, 64)}
#: The least compute capability that has these products.
LEAST_CAPABILITY = (8, 0)


class Choice(NamedTuple):
    """Tiles, whether blocks of all heads come before others of one, and why."""

    tiles: Tiles
    heads_first: bool
    why: str


def width_of(d: int) -> int:
    """The power of two that rows of `d` elements are filled up to in registers."""
    return max(_LEAST_WIDTH, 1 << (d - 1).bit_length())


@functools.lru_cache(1024)
def choose(d: int, causal: bool, sizes: tuple[int, int, int, int], device: int | str) -> Choice:
    """The tiles for one kind of call; `sizes` are heads, heads that share keys, queries, keys."""
    heads, shared, queries, keys = sizes
    units = device_limits(device).multiprocessors
    table = TABLE[max(width_of(d), 64)]
    tiles, why = table[-1], "few keys or few blocks" if len(table) > 1 else f"rows of {d}"
    for each in table[:-1]:
        blocks = heads * -(-queries // each.queries)
        if keys >= each.from_keys and blocks >= units:
            tiles, why = each, f"{each.from_keys} keys or more, and {blocks} blocks for {units} multiprocessors"
            break
    held = 2 * heads // shared * keys * d * 2
    fits = -(-queries // tiles.queries) <= _MOST_Y
    heads_first = fits and (heads > _MOST_Y or (causal and (keys >= _LONG or held <= _L2_BYTES)))
    return Choice(tiles, heads_first, why)


class Attention(NamedTuple):
    """A launch of the template: its instance, its configuration, and its last arguments."""

    kernel: Kernel
    config: Config
    numbers: tuple[Any, ...]


@functools.lru_cache(1024)
def attention_of(
    dtype: np.dtype, d: int, causal: bool, scale: float, sizes: tuple[int, int, int, int], choice: Choice
) -> Attention:
    """The launch for one kind of call; `sizes` as `choose` has them, `scale` that of the products."""
    tiles, heads_first, _ = choice
    kernel = Kernel.from_template("tile/attention/attention")[
        dtype,
        d,
        width_of(d),
        tiles.queries,
        tiles.keys,
        tiles.warps,
        tiles.blocks,
        causal,
        tiles.behind,
        heads_first,
    ]
    along = -(-sizes[2] // tiles.queries)
    grid = (sizes[0], along) if heads_first else (along, sizes[0])
    return Attention(kernel, config(grid), (scale * _LOG2E, *sizes))


@functools.lru_cache(1024)
def threaded_attention(
    dtype: np.dtype, d: int, causal: bool, scale: float, sizes: tuple[int, int, int, int], heads_first: bool
) -> Attention:
    """The launch of the kernel of threads."""
    width = width_of(d)
    warps, keys = BLOCKS[max(width, 64)]
    kernel = Kernel.from_template("attention/attention")[dtype, d, width, keys, warps, causal, heads_first]
    queries, shared = 16 * warps, (16 * warps + 2 * keys) * (width + _PAD) + 2 * keys * (width + _PAD)
    blocks = -(-sizes[2] // queries) * sizes[0]
    return Attention(kernel, config(blocks, 32 * warps, shared * dtype.itemsize), (scale * _LOG2E, *sizes))
