"""Launch configurations: plain records that need no driver."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from cudakit.errors import ArgumentError, LaunchError, shortened
from cudakit.jit.compile.elf import LaunchBounds
from cudakit.records import NamedTuple
from cudakit.types.checked import flag

if TYPE_CHECKING:
    from cuda.core import LaunchConfig

Extent: TypeAlias = int | Sequence[int]
_THREADS_COVER = 256
#: The block of a configuration without a block, as for tile kernels.
NO_BLOCK = (0, 0, 0)
_ONLY_INT = frozenset({int})
#: Maximum of cached configurations, which are returned as the same objects.
_MOST_CACHED = 1024


class Config(NamedTuple):
    """A launch configuration: grid (in blocks, also with a cluster), block (in threads), and attributes.

    The grid of a tile kernel counts tiles, and its block is `NO_BLOCK`. `shared_bytes` is in bytes.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    programmatic: bool = False


class Cover(NamedTuple):
    """Enough threads, or tiles, for an array's shape; block and grid are chosen for the launched kernel."""

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
    """Make a launch configuration.

    Parameters
    ----------
    grid : int or up to three ints (x, y, z)
        Number of blocks, also with a cluster; of tile blocks for a tile kernel. A 0 launches nothing.
    block : int or up to three ints (x, y, z)
        Threads in a block. Leave it out for a tile kernel, whose threads the compiler chooses.
    shared_bytes : int
        Dynamic shared memory of a block, in bytes. Above 48 KB the kernel's limit is raised automatically.
    cluster : int or up to three ints, optional
        Blocks in a cluster (compute capability 9.0 and later); must divide the grid.
    cooperative : bool
        Whether to run all blocks at once, so that they may synchronise over the whole grid.
    programmatic : bool
        Whether to use programmatic dependent launch: the kernel may start before the stream's previous kernel has
        ended.

    Raises
    ------
    LaunchError
        If a number is not a whole number or is negative, or if the cluster does not divide the grid.
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


def _is_plain(value: Any) -> bool:
    """Return whether a value is an int, a tuple of ints, or None. Other equal numbers may mean something else."""
    value_class = type(value)
    return value_class is int or value is None or (value_class is tuple and _ONLY_INT.issuperset(map(type, value)))


def _config(
    grid: Extent, block: Extent | None, shared_bytes: int, cluster: Extent | None, cooperative: bool, programmatic: bool
) -> Config:
    grid3, block3 = _three(grid, "grid", 0), NO_BLOCK if block is None else _three(block, "block", 1)
    cluster3 = None if cluster is None else _three(cluster, "cluster", 1)
    if cluster3 and any(g % c for g, c in zip(grid3, cluster3, strict=True)):
        raise LaunchError(f"cluster {cluster3} does not divide grid {grid3}; the grid counts blocks")
    if isinstance(shared_bytes, bool) or not isinstance(shared_bytes, int) or shared_bytes < 0:
        raise LaunchError(f"shared_bytes must be a whole number of bytes, 0 or more, got {shortened(shared_bytes)}")
    record: Config = _same(Config(grid3, block3, shared_bytes, cluster3, cooperative, programmatic))
    return record


_config_of_numbers = functools.lru_cache(_MOST_CACHED)(_config)


@functools.lru_cache(_MOST_CACHED)
def _check(record: Config) -> None:
    """Raise for a record of plain numbers that `config` refuses."""
    _config(record.grid, None if record.block == NO_BLOCK else record.block, *record[2:])


def cover(shape: Extent, block: Extent | None = None, *, tile: Extent | None = None) -> Cover:
    """Cover a shape with threads, one for each element, or with tiles; the last axis runs along x.

    Parameters
    ----------
    shape : int or sequence of at most three ints
        Shape of the array, or its size. A 0 launches nothing.
    block : int or up to three ints (x, y, z), optional
        Threads in a block. Default: chosen by the kernel's occupancy.
    tile : int or sequence of ints, optional
        Extents of a tile, for a tile kernel: an int for each extent of `shape`, in the same order.

    Raises
    ------
    LaunchError
        For an array, more than three extents, and an extent that is negative or no whole number.
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
    record: Cover = _same(Cover(tuple(int(e) for e in extents), block3, tile_extents))
    return record


_cover_of_numbers = functools.lru_cache(_MOST_CACHED)(_cover)


def _extents(extent: Extent) -> tuple[int, ...]:
    if isinstance(extent, Sequence) and not isinstance(extent, bytes):
        return tuple(extent)
    extents: tuple[Any, ...] = (extent,)
    return extents


def _tile(extent: Extent, rank: int) -> tuple[int, ...]:
    extents = _extents(extent)
    if len(extents) != rank:
        raise LaunchError(f"cover: the tile has an extent for each of the shape's {rank}, got {shortened(extent)}")
    _three(extents, "tile", 1)
    return tuple(int(extent) for extent in extents)


@functools.lru_cache(_MOST_CACHED)
def _same(record: Any) -> Any:
    """Return the first record equal to `record` that was passed here: launches compare configurations by identity."""
    return record


def _three(extent: Extent, name: str, least: int) -> tuple[int, int, int]:
    values = (extent,) if not isinstance(extent, list | tuple) else tuple(extent)
    if not 1 <= len(values) <= 3:
        raise LaunchError.of(name, "takes one to three numbers (x, y, z)", shortened(extent))
    try:
        numbers = [value.__index__() for value in values]
    except (AttributeError, TypeError):
        raise LaunchError.of(name, "must be whole numbers", shortened(extent)) from None
    if any(isinstance(value, bool) for value in values) or min(numbers) < least:
        raise LaunchError.of(name, f"must be {least} or more in each direction", shortened(extent))
    if max(numbers) >= 2**63:
        raise LaunchError(f"{name} must be below 2**63 in each direction, got {shortened(extent)}")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def as_config(launch_config: Any) -> Config | Cover:
    """Return a launch configuration as `Config` or `Cover`; only this function knows the accepted types.

    Raises
    ------
    LaunchError
        If it is no ``ck.config(…)``, ``ck.cover(…)`` or ``cuda.core.LaunchConfig``.
    """
    # A record made directly may hold numbers that these functions refuse.
    if isinstance(launch_config, Config):
        flags = {type(launch_config.cooperative), type(launch_config.programmatic)}
        if all(map(_is_plain, launch_config[:4])) and flags == {bool}:
            _check(launch_config)
            return launch_config
        return config(
            launch_config.grid, None if launch_config.block == NO_BLOCK else launch_config.block, *launch_config[2:]
        )
    if isinstance(launch_config, Cover):
        return cover(launch_config.shape, launch_config.block, tile=launch_config.tile)
    from cuda.core import LaunchConfig

    if not isinstance(launch_config, LaunchConfig):
        raise LaunchError.of(
            "expected",
            "a launch configuration (ck.config(grid, block), ck.cover(shape) or a cuda.core.LaunchConfig)",
            type(launch_config).__name__,
            "a kernel is called as kernel(stream, config, *arguments)",
        )
    cluster = launch_config.cluster
    grid = (
        launch_config.grid
        if cluster is None
        else tuple(g * c for g, c in zip(launch_config.grid, cluster, strict=True))
    )
    return Config(
        grid,
        launch_config.block,
        launch_config.shmem_size,
        cluster,
        launch_config.is_cooperative,
        launch_config.programmatic_stream_serialization,
    )


def as_launch_config(resolved: Config) -> LaunchConfig:
    """Convert a checked configuration to cuda.core's, whose grid counts clusters if there are any."""
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
    """Return the configuration that covers a shape with blocks, one thread for each element, in whole clusters.

    The block is the user's, or the kernel's own, or has about `threads` threads. A `covering` with a tile is refused
    with LaunchError.
    """
    if covering.tile is not None:
        raise LaunchError(f"ck.cover(…, tile={covering.tile}) is for tile kernels; threads are covered by a block")
    extents = (*reversed(covering.shape), 1, 1)[:3]
    block = covering.block or bounds.block or _block_for(len(covering.shape), threads)
    sides = zip(extents, block, bounds.cluster or (1, 1, 1), strict=True)
    x, y, z = [-(-extent // (side * blocks)) * blocks for extent, side, blocks in sides]
    return Config((x, y, z), block)


def tiled(name: str, launch_config: Config | Cover) -> Config:
    """Return the configuration of a tile kernel, in which only the grid is set. The grid counts tiles.

    Raises
    ------
    LaunchError
        For settings that the compiler chooses (a block, shared memory, clusters), and for a `Cover` without a tile.
    """
    if isinstance(launch_config, Cover):
        if launch_config.tile is None:
            raise LaunchError(
                f"{name}: a tile kernel covers a shape with tiles: name them, as in ck.cover(shape, tile=(64, 64))"
            )
        extents = (*reversed([-(-e // t) for e, t in zip(launch_config.shape, launch_config.tile, strict=True)]), 1, 1)
        return Config((extents[0], extents[1], extents[2]), NO_BLOCK)
    if launch_config.block not in (NO_BLOCK, (1, 1, 1)):
        raise LaunchError(
            f"{name}: a tile kernel has no block of threads, got {launch_config.block}: its grid counts tiles, as in "
            "ck.config(grid), and the compiler chooses the threads"
        )
    if launch_config.shared_bytes or launch_config.cluster or launch_config.cooperative:
        raise LaunchError(
            f"{name}: shared memory, clusters and cooperative launches are the compiler's choice in a tile kernel; say "
            "it in the source, as in [[cutile::hint(0, num_cta_in_cga=2)]]"
        )
    return launch_config._replace(block=NO_BLOCK)


def _block_for(rank: int, threads: int) -> tuple[int, int, int]:
    if rank == 1:
        return (threads, 1, 1)
    # A warp along x keeps neighbouring threads on neighbouring elements of the last axis.
    rows = max(1, min(threads, _THREADS_COVER) // 32)
    return (32, rows, 1)


def is_empty(launch_config: Config | Cover) -> bool:
    """Return whether the configuration launches nothing."""
    return 0 in launch_config.grid if isinstance(launch_config, Config) else 0 in launch_config.shape


#: The parts of a ``cuda.core.LaunchConfig``, which the user may change between launches.
launch_traits = operator.attrgetter(
    "grid", "block", "shmem_size", "cluster", "is_cooperative", "programmatic_stream_serialization"
)
