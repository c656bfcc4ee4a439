"""Attention on the tensor cores, by a tile kernel or by a kernel of threads."""

from __future__ import annotations

import functools
from math import inf, log2, prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.output import Target, as_number, target
from cudakit.arrays.place import ArrayPlace, array_place, device_limits
from cudakit.arrays.repeated import repeated
from cudakit.arrays.tunable import Choice as TunedChoice
from cudakit.arrays.tunable import planned
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import delivered
from cudakit.ops.matmul_tiles import Product, Way, missing
from cudakit.types.checked import flag, is_one_of

_LOG2E = log2(np.e)
#: The least width of tiles that tensor cores take.
_LEAST_WIDTH = 16
#: Padding of rows in shared memory, in elements.
_PAD = 8
#: Most blocks of a launch along y.
_MOST_Y = 65_535
#: Bytes of keys and values that stay in L2 while blocks of all heads run.
_L2_BYTES = 32 << 20
#: Longest rows that leave registers for masks.
_SHORT_ROW = 64
#: Number of keys from which the imbalance between blocks with many and few keys costs more than L2 saves.
_LONG = 4096


#: Heads, heads that share keys, queries, keys.
Sizes: TypeAlias = tuple[int, int, int, int]


class Tiles(NamedTuple):
    """Sizes for the tile kernel: queries of a block, keys of a tile, warps, and blocks of a multiprocessor.

    Attributes
    ----------
    behind : bool
        Whether the product with the values is computed one tile later.
    from_keys : int
        Number of keys from which these tiles are used.
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
    """Sizes for the kernel of threads: warps of a block (16 queries each), and keys of a tile."""

    warps: int
    keys: int


#: By the width of rows, as `TABLE`, as measured on an H200 (`benchmarks/results/products-h200.md`).
BLOCKS = {256: Block(4, 32), 128: Block(8, 64), 64: Block(8, 64)}
#: The least compute capability that has these products.
LEAST_CAPABILITY = (8, 0)


class Choice(NamedTuple):
    """Tiles of a call, the order of blocks (all heads first, or one head after the other), and the reason."""

    tiles: Tiles
    heads_first: bool
    why: str


def width_of(d: int) -> int:
    """Return the power of two to which rows of `d` elements are padded in registers."""
    return max(_LEAST_WIDTH, 1 << (d - 1).bit_length())


@functools.lru_cache(1024)
def choose(d: int, causal: bool, sizes: Sizes, device: int | str) -> Choice:
    """Return the tiles for a call. `sizes` are heads, heads that share keys, queries and keys."""
    heads, shared, queries, keys = sizes
    units = device_limits(device).multiprocessors
    table = TABLE[max(width_of(d), 64)]
    tiles, why = table[-1], "few keys or few blocks" if len(table) > 1 else f"rows of {d}"
    for candidate in table[:-1]:
        blocks = heads * -(-queries // candidate.queries)
        if keys >= candidate.from_keys and blocks >= units:
            tiles, why = (
                candidate,
                f"{candidate.from_keys} keys or more, and {blocks} blocks for {units} multiprocessors",
            )
            break
    key_value_bytes = 2 * heads // shared * keys * d * 2
    fits = -(-queries // tiles.queries) <= _MOST_Y
    heads_first = fits and (heads > _MOST_Y or (causal and (keys >= _LONG or key_value_bytes <= _L2_BYTES)))
    return Choice(tiles, heads_first, why)


@functools.lru_cache(1024)
def attention_of(dtype: np.dtype, d: int, causal: bool, scale: float, sizes: Sizes, choice: Choice) -> Product:
    """Return the launch of the tile kernel. `sizes` is as for `choose`; `scale` multiplies the products."""
    tiles, heads_first, _ = choice
    # Without code for tiles that are seen in part, long rows leave registers for more of the others.
    whole = not causal and sizes[3] % tiles.keys == 0 and d > _SHORT_ROW
    shape = tiles.queries, tiles.keys, tiles.warps, tiles.blocks
    kernel = Kernel.from_template("tile/attention/attention")[
        dtype, d, width_of(d), *shape, causal, tiles.behind, heads_first, *([True] if whole else [])
    ]
    along = -(-sizes[2] // tiles.queries)
    grid = (sizes[0], along) if heads_first else (along, sizes[0])
    return Product(kernel, config(grid), (scale * _LOG2E, *sizes))


_BLOCK = TunedChoice("attention", {"warps": (2, 4, 8), "keys": (16, 32, 64, 128)})


@planned(1024)
def block_of(d: int, causal: bool, sizes: Sizes, device: int | str) -> Block:
    """Return the sizes for the kernel of threads. `sizes` is as for `choose`."""
    width, most = width_of(d), device_limits(device).shared_bytes
    point = _BLOCK.point(
        f"rows of {width}{', causal' if causal else ''}",
        prod((sizes[0], *sizes[2:])),
        device,
        BLOCKS[max(width, 64)],
        fits=lambda warps, keys: 2 * _shared_elements(Block(warps, keys), width) <= most,
    )
    return Block(*point)


def _shared_elements(block: Block, width: int) -> int:
    """Return the elements of queries, keys and values in shared memory."""
    return (16 * block.warps + 4 * block.keys) * (width + _PAD)


@functools.lru_cache(1024)
def threaded_attention(
    dtype: np.dtype, d: int, causal: bool, scale: float, sizes: Sizes, heads_first: bool, block: Block
) -> Product:
    """Return the launch of the kernel of threads."""
    width = width_of(d)
    warps, keys = block
    kernel = Kernel.from_template("attention/attention")[dtype, d, width, keys, warps, causal, heads_first]
    blocks = -(-sizes[2] // (16 * warps)) * sizes[0]
    shared = _shared_elements(block, width) * dtype.itemsize
    return Product(kernel, config(blocks, 32 * warps, shared), (scale * _LOG2E, *sizes))


_DTYPES = ("float16", "bfloat16")
#: Alignment of rows, in bytes and in elements.
_ROW_BYTES, _ROW_ELEMENTS = 16, 8
_WIDEST = max(TABLE)
#: Least scale: with a smaller one, masked keys would count.
_LEAST_SCALE = 1e-20


@repeated("out")
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    by: Way | None = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """softmax(scale · q @ kᵀ) @ v for each head, in one kernel: the products are never in memory.

    Parameters
    ----------
    q : array, shape (…, heads, queries, d)
        Queries: float16 or bfloat16; d is a multiple of 8, at most 256.
    k, v : array, shape (…, key heads, keys, d)
        Keys and values of the dtype of `q`. There may be fewer key heads than heads: neighbouring heads then share
        one key head.
    causal : bool
        Whether query i sees only keys 0 … i + keys − queries. The last query sees all keys.
    scale : float, optional
        Positive factor of the products. Default: 1/√d.
    by : {"tiles", "threads"}, optional
        Kernel to use: a tile kernel or a kernel of threads. Default: the tile kernel if CUDA's tile compiler is
        installed.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array, shape (…, heads, queries, d)
        Weighted means of the values, of the dtype of `q`.

    Raises
    ------
    ArgumentError
        Shapes, dtypes or numbers do not fit.
    CompileError
        With ``by="tiles"``: CUDA's tile compiler is not installed, and no kernels for the call were imported.

    Notes
    -----
    Sums are in float32. The exponentials are rounded to the dtype of `q` before they are multiplied by the values. The
    result is rounded to the dtype of `q`, too.

    Operands that are not C-contiguous, or whose address is no multiple of 16 bytes, are copied first.

    ``attention.explain(q, k, v)`` returns a text: which kernel and tiles are used, and why. Both kernels need compute
    capability 8.0 or higher.
    """
    place, arrays = array_place("attention", stream, ("q", q), ("k", k), ("v", v))
    causal = flag("attention: causal", causal)
    sizes, d = _sizes(arrays, causal)
    _check_way(place, by)
    factor = d**-0.5 if scale is None else as_number("attention", "scale", scale, np.dtype("f8"))
    if not _LEAST_SCALE <= factor < inf:
        raise ArgumentError(f"attention: scale is {scale}; it is a positive number")
    to = target("attention", place, out, arrays[0].shape, arrays[0].dtype, *arrays)
    if not _is_taken(place, to.written):
        to = Target(place.empty(arrays[0].shape, arrays[0].dtype), to.result)
    if prod(arrays[0].shape):
        arrays = [array if _is_taken(place, array) else place.copied(array) for array in arrays]
        launch, _ = _launch(place, arrays[0].dtype, d, causal, float(factor), sizes, by)
        place.launch(launch.kernel, launch.config, *arrays, to.written, *launch.numbers)
    return delivered(place, to)


def _is_taken(place: ArrayPlace, x: Any) -> bool:
    return bool(x.flags.c_contiguous) and place.alignment(x) == _ROW_BYTES


def _sizes(arrays: list[Any], causal: bool) -> tuple[Sizes, int]:
    """Return (heads, heads that share keys, queries, keys) and d, the length of rows, for the arrays q, k and v.

    Raises
    ------
    ArgumentError
        Shapes or dtypes do not fit.
    """
    q, k, v = arrays
    if q.dtype.name not in _DTYPES or not q.dtype == k.dtype == v.dtype:
        raise ArgumentError(
            f"attention: q is {q.dtype}, k is {k.dtype} and v is {v.dtype}; it takes {' or '.join(_DTYPES)}, one for "
            "all three (ck.ops.cast)"
        )
    fits = min(q.ndim, k.ndim) >= 3 and k.shape == v.shape and q.shape[:-3] == k.shape[:-3]
    if not fits or q.shape[-1] != k.shape[-1] or q.shape[-3] % max(k.shape[-3], 1):
        raise ArgumentError(
            f"attention: shapes {q.shape}, {k.shape} and {v.shape} do not fit; it takes (…, heads, queries, d) and "
            "twice (…, key heads, keys, d), of which heads is a multiple of key heads"
        )
    (*_, heads, queries, d), keys = q.shape, k.shape[-2]
    if d % _ROW_ELEMENTS or not 0 < d <= _WIDEST:
        raise ArgumentError(f"attention: rows of {d}; it takes multiples of {_ROW_ELEMENTS} up to {_WIDEST}")
    if prod(q.shape) and not prod(k.shape):
        raise ArgumentError(f"attention: k has shape {k.shape}; there is no key to see")
    if causal and queries > keys:
        raise ArgumentError(
            f"attention: {queries} queries and {keys} keys; causal=True takes at least as many keys as queries"
        )
    return (prod(q.shape[:-2]), heads // max(k.shape[-3], 1), queries, keys), d


def _check_way(place: ArrayPlace, by: Way | None) -> None:
    if not is_one_of(by, (None, "tiles", "threads")):
        raise ArgumentError(f"attention: by {shortened(by)}; expected 'tiles' or 'threads'")
    limits = device_limits(place.device)
    if limits.compute_capability < LEAST_CAPABILITY:
        raise ArgumentError(
            f"attention: {limits.name} has no tensor cores that multiply as it does; they come with compute capability "
            "8.0"
        )


def _launch(
    place: ArrayPlace, dtype: np.dtype, d: int, causal: bool, scale: float, sizes: Sizes, by: Way | None
) -> tuple[Product, str]:
    """Return the launch for a call, and a text that says which kernel it is and why."""
    choice = choose(d, causal, sizes, place.device)
    tiles, heads_first, why = choice
    why_not: str | None = "they are asked for"
    if by != "threads":
        launch = attention_of(dtype, d, causal, scale, sizes, choice)
        why_not = missing(launch.kernel, place.device) if by is None else None
        if why_not is None:
            shape = f"{tiles.queries} queries × {tiles.keys} keys, {tiles.warps} warps"
            order = f"{', values a tile later' if tiles.behind else ''}{', heads first' if heads_first else ''}"
            return launch, f"{shape}, {tiles.blocks} blocks on a multiprocessor{order}: {why}\nby tile kernels"
    block = block_of(d, causal, sizes, place.device)
    launch = threaded_attention(dtype, d, causal, scale, sizes, heads_first, block)
    shape = f"{16 * block.warps} queries × {block.keys} keys, {block.warps} warps"
    return launch, f"{shape}, mma.sync{', heads first' if heads_first else ''}: rows of {d}\nby threads: {why_not}"


def _explain(q: Any, k: Any, v: Any, *, causal: bool = False, by: Way | None = None, stream: Any = None) -> str:
    """Explain which kernel and tiles `attention` takes, and why.

    The text also says which operands are copied first.
    """
    place, arrays = array_place("attention", stream, ("q", q), ("k", k), ("v", v))
    causal = flag("attention: causal", causal)
    sizes, d = _sizes(arrays, causal)
    _check_way(place, by)
    lines = [_launch(place, arrays[0].dtype, d, bool(causal), d**-0.5, sizes, by)[1]]
    for name, x in zip("qkv", arrays, strict=True):
        lines.append(f"{name}: {'read as it lies' if _is_taken(place, x) else 'copied first'}")
    return "\n".join(lines)


# A function has no such attribute for type checkers; a class would cost the call what the frozen way saves.
attention.__dict__["explain"] = _explain
