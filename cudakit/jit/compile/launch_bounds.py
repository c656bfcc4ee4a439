"""What the source of a kernel says of the blocks and clusters that it is launched with."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple, Self

Sides = tuple[int, int, int]


class LaunchBounds(NamedTuple):
    """The bounds of a kernel's launches, as PTX has them (PTX ISA 11.4, 11.7).

    Attributes
    ----------
    threads : int or None
        Most threads in a block: ``__launch_bounds__``.
    block : tuple of int or None
        The block of every launch: ``__block_size__``.
    cluster : tuple of int or None
        The cluster of every launch, in blocks: ``__cluster_dims__``.
    needs_cluster : bool
        Whether a launch must name a cluster: ``__cluster_dims__`` without numbers.
    most_blocks : int or None
        Most blocks in a cluster: the third number of ``__launch_bounds__``.
    counts_clusters : bool
        Whether a grid counts clusters: ``__block_size__`` with a cluster.
    """

    threads: int | None = None
    block: Sides | None = None
    cluster: Sides | None = None
    needs_cluster: bool = False
    most_blocks: int | None = None
    counts_clusters: bool = False

    @classmethod
    def of(cls, directives: Mapping[str, tuple[int, ...]]) -> Self:
        """The bounds that the directives of an entry set, by their names without the dot."""
        threads, rank = directives.get("maxntid"), directives.get("maxclusterrank")
        cluster = _sides(directives.get("reqnctapercluster"))
        return cls(
            prod(threads) if threads else None,
            _sides(directives.get("reqntid")),
            cluster,
            "explicitcluster" in directives and cluster is None,
            rank[0] if rank else None,
            "blocksareclusters" in directives and cluster not in (None, (1, 1, 1)),
        )


def _sides(numbers: tuple[int, ...] | None) -> Sides | None:
    """Numbers of x, y and z, of which the last are 1 where they are left out; None where nothing is asked for."""
    if not numbers or not all(numbers):
        return None
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z
