"""Launch configurations: plain records that need no driver, and their check against a kernel and a device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cudakit.errors import ArgumentError, LaunchError, shortened
from cudakit.jit.compile.elf import LaunchBounds
from cudakit.types.checked import flag

if TYPE_CHECKING:
    from cuda.core import LaunchConfig

Extent: TypeAlias = int | Sequence[int]
_THREADS_COVER = 256
#: The block of a configuration that names none, as those of tile kernels do.
NO_BLOCK = (0, 0, 0)
_ONLY_INT = frozenset({int})
#: Configurations that are the same objects when they are made again.
_MOST_KEPT = 1024


class Config(NamedTuple):
    """Grid (in blocks, also with a cluster), block (in threads), dynamic shared memory (in bytes) and attributes.

    The grid of a tile kernel counts tiles, and its block is `NO_BLOCK`.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    programmatic: bool = False


class Cover(NamedTuple):
    """Enough threads, or tiles, for an array's shape; block and grid are chosen for the kernel that is launched."""

    shape: tuple[int, ...]
    block: tuple[int, int, int] | None = None
    tile: tuple[int, ...] | None = None


def config(
    grid: Extent,
    block: Extent | None = None,
    shared_bytes: int = 0,
    cluster: Extent | None = None,
    cooperative: bool = False,
    programmatic: bool = False,
) -> Config:
    """A launch configuration.

    Parameters
    ----------
    grid : int or up to three ints (x, y, z)
        Number of blocks, also where there is a cluster; of tile blocks for a tile kernel. A 0 launches nothing.
    block : int or up to three ints (x, y, z)
        Threads in a block; none for a tile kernel, of which the compiler chooses them.
    shared_bytes : int
        Dynamic shared memory of a block, in bytes; above 48 KB the kernel's limit is raised by itself.
    cluster : int or up to three ints, optional
        Blocks in a cluster (compute capability 9.0 and later); must divide the grid.
    cooperative : bool
        All blocks run at once, so that they may synchronise over the whole grid.
    programmatic : bool
        Programmatic dependent launch: may start before the kernel before it on the stream has ended.

    Raises
    ------
    LaunchError
        If a number is not a whole number, is negative, or the cluster does not divide the grid.
    """
    flags = _flag("cooperative", cooperative), _flag("programmatic", programmatic)
    is_plain = type(grid) is type(block) is int or (_is_plain(grid) and _is_plain(block))
    if is_plain and type(shared_bytes) is int and cluster is None:
        return _config_of_numbers(grid, block, shared_bytes, None, *flags)
    return _config(grid, block, shared_bytes, cluster, *flags)


def _flag(name: str, value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    try:
        return flag(f"config: {name}", value)
    except ArgumentError as error:
        raise LaunchError(str(error)) from None


def _is_plain(given: Any) -> bool:
    """Whether it is an int, a tuple of ints, or None: equal ones are one, which is not so of 1, 1.0 and True."""
    kind = type(given)
    return kind is int or given is None or (kind is tuple and _ONLY_INT.issuperset(map(type, given)))


def _config(
    grid: Extent, block: Extent | None, shared_bytes: int, cluster: Extent | None, cooperative: bool, programmatic: bool
) -> Config:
    grid3, block3 = _three(grid, "grid", 0), NO_BLOCK if block is None else _three(block, "block", 1)
    cluster3 = None if cluster is None else _three(cluster, "cluster", 1)
    if cluster3 and any(g % c for g, c in zip(grid3, cluster3, strict=True)):
        raise LaunchError(f"cluster {cluster3} does not divide grid {grid3}; the grid counts blocks")
    if isinstance(shared_bytes, bool) or not isinstance(shared_bytes, int) or shared_bytes < 0:
        raise LaunchError(f"shared_bytes must be a whole number of bytes, 0 or more, got {shortened(shared_bytes)}")
    made: Config = _same(Config(grid3, block3, shared_bytes, cluster3, cooperative, programmatic))
    return made


_config_of_numbers = functools.lru_cache(_MOST_KEPT)(_config)


@functools.lru_cache(_MOST_KEPT)
def _check(given: Config) -> None:
    """Raise for a record of plain numbers that `config` does not take."""
    _config(given.grid, None if given.block == NO_BLOCK else given.block, *given[2:])


def cover(shape: Extent, block: Extent | None = None, *, tile: Extent | None = None) -> Cover:
    """Enough threads for `shape`, one an element, or enough tiles; the last axis runs along x.

    Parameters
    ----------
    shape : int or sequence of at most three ints
        The array's shape, or its size. A 0 launches nothing.
    block : int or up to three ints (x, y, z), optional
        Threads in a block; left out, it comes from the kernel's occupancy.
    tile : int or sequence of ints, optional
        For a tile kernel: the extents of a tile, an int for each of `shape`, in its order.

    Raises
    ------
    LaunchError
        For an array, more than three extents, a negative one, and one that is not a whole number.
    """
    if type(shape) is int and block is None and tile is None:
        return _cover_of_numbers(shape)
    if _is_plain(shape) and _is_plain(block) and _is_plain(tile):
        return _cover_of_numbers(shape, block, tile)
    return _cover(shape, block, tile)


def _cover(shape: Extent, block: Extent | None = None, tile: Extent | None = None) -> Cover:
    if hasattr(shape, "shape") and shape.shape != ():
        raise LaunchError("cover takes a shape or a size, got an array; give its .size, or its .shape")
    extents = _extents(shape)
    if not 1 <= len(extents) <= 3:
        raise LaunchError(f"cover takes one to three extents, got shape {tuple(extents)}; cover its size instead")
    _three(extents, "shape", 0)
    tile_extents = None if tile is None else _tile(tile, len(extents))
    if tile is not None and block is not None:
        raise LaunchError("cover takes a block, for threads, or a tile, for tile kernels; got both")
    block3 = None if block is None else _three(block, "block", 1)
    made: Cover = _same(Cover(tuple(int(e) for e in extents), block3, tile_extents))
    return made


_cover_of_numbers = functools.lru_cache(_MOST_KEPT)(_cover)


def _extents(given: Extent) -> tuple[int, ...]:
    if isinstance(given, Sequence) and not isinstance(given, bytes):
        return tuple(given)
    extents: tuple[Any, ...] = (given,)
    return extents


def _tile(given: Extent, rank: int) -> tuple[int, ...]:
    extents = _extents(given)
    if len(extents) != rank:
        raise LaunchError(f"cover: the tile has an extent for each of the shape's {rank}, got {shortened(given)}")
    _three(extents, "tile", 1)
    return tuple(int(extent) for extent in extents)


@functools.lru_cache(_MOST_KEPT)
def _same(made: Any) -> Any:
    """The first record equal to `made`: a launch knows its configuration by identity, also where a call makes it."""
    return made


def _three(given: Extent, what: str, least: int) -> tuple[int, int, int]:
    values = (given,) if not isinstance(given, list | tuple) else tuple(given)
    if not 1 <= len(values) <= 3:
        raise LaunchError(f"{what} takes one to three numbers (x, y, z), got {shortened(given)}")
    try:
        numbers = [value.__index__() for value in values]
    except (AttributeError, TypeError):
        raise LaunchError(f"{what} must be whole numbers, got {shortened(given)}") from None
    if any(isinstance(value, bool) for value in values) or min(numbers) < least:
        raise LaunchError(f"{what} must be {least} or more in each direction, got {shortened(given)}")
    if max(numbers) >= 2**63:
        raise LaunchError(f"{what} must be below 2**63 in each direction, got {shortened(given)}")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def as_config(given: Any) -> Config | Cover:
    """`given` as one of the two records; the only place that knows what may be given as a configuration.

    Raises
    ------
    LaunchError
        If it is none of ``ck.config(…)``, ``ck.cover(…)``, a ``cuda.core.LaunchConfig``.
    """
    # A record may be made by hand, of other numbers than these functions take.
    if isinstance(given, Config):
        flags = {type(given.cooperative), type(given.programmatic)}
        if all(map(_is_plain, given[:4])) and flags == {bool}:
            _check(given)
            return given
        return config(given.grid, None if given.block == NO_BLOCK else given.block, *given[2:])
    if isinstance(given, Cover):
        return cover(given.shape, given.block, tile=given.tile)
    from cuda.core import LaunchConfig

    if not isinstance(given, LaunchConfig):
        raise LaunchError(
            f"expected a launch configuration (ck.config(grid, block), ck.cover(shape) or a cuda.core.LaunchConfig), "
            f"got {type(given).__name__}; a kernel is called as kernel(stream, config, *arguments)"
        )
    cluster = given.cluster
    grid = given.grid if cluster is None else tuple(g * c for g, c in zip(given.grid, cluster, strict=True))
    return Config(
        grid, given.block, given.shmem_size, cluster, given.is_cooperative, given.programmatic_stream_serialization
    )


def as_launch_config(resolved: Config) -> LaunchConfig:
    """cuda.core's form of a checked configuration, whose grid counts clusters where there are any."""
    from cuda.core import LaunchConfig

    grid, cluster = resolved.grid, resolved.cluster
    return LaunchConfig(
        grid=grid if cluster is None else tuple(g // c for g, c in zip(grid, cluster, strict=True)),
        cluster=cluster,
        block=(1, 1, 1) if resolved.block == NO_BLOCK else resolved.block,
        shmem_size=resolved.shared_bytes,
        is_cooperative=resolved.cooperative,
        programmatic_stream_serialization=resolved.programmatic,
    )


def spread(covering: Cover, threads: int, bounds: LaunchBounds) -> Config:
    """The configuration that covers a shape with blocks of about `threads` threads, and whole clusters of them."""
    if covering.tile is not None:
        raise LaunchError(f"ck.cover(…, tile={covering.tile}) is for tile kernels; threads are covered by a block")
    extents = (*reversed(covering.shape), 1, 1)[:3]
    block = covering.block or bounds.block or _block_for(len(covering.shape), threads)
    sides = zip(extents, block, bounds.cluster or (1, 1, 1), strict=True)
    x, y, z = [-(-extent // (side * blocks)) * blocks for extent, side, blocks in sides]
    return Config((x, y, z), block)


def tiled(name: str, given: Config | Cover) -> Config:
    """The configuration of a tile kernel: its grid, and no more.

    Raises
    ------
    LaunchError
        For what the compiler chooses there: a block, shared memory, clusters.
    """
    if isinstance(given, Cover):
        if given.tile is None:
            raise LaunchError(
                f"{name}: a tile kernel covers a shape with tiles: name them, as in ck.cover(shape, tile=(64, 64))"
            )
        extents = (*reversed([-(-e // t) for e, t in zip(given.shape, given.tile, strict=True)]), 1, 1)
        return Config((extents[0], extents[1], extents[2]), NO_BLOCK)
    if given.block not in (NO_BLOCK, (1, 1, 1)):
        raise LaunchError(
            f"{name}: a tile kernel has no block of threads, got {given.block}: its grid counts tiles, as in "
            "ck.config(grid), and the compiler chooses the threads"
        )
    if given.shared_bytes or given.cluster or given.cooperative:
        raise LaunchError(
            f"{name}: shared memory, clusters and cooperative launches are the compiler's choice in a tile kernel; say "
            "it in the source, as in [[cutile::hint(0, num_cta_in_cga=2)]]"
        )
    return given._replace(block=NO_BLOCK)


def _block_for(rank: int, threads: int) -> tuple[int, int, int]:
    if rank == 1:
        return (threads, 1, 1)
    # A warp along x keeps neighbouring threads on neighbouring elements of the last axis.
    rows = max(1, min(threads, _THREADS_COVER) // 32)
    return (32, rows, 1)


def is_empty(given: Config | Cover) -> bool:
    """Whether the configuration launches nothing."""
    return 0 in given.grid if isinstance(given, Config) else 0 in given.shape
