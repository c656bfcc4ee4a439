"""Grid and block of a launch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Geometry:
    """Grid and block of a launch, in blocks and threads."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    #: Whether all blocks run at once, so that they may wait for each other.
    cooperative: bool = False
    #: Whether the launch, or the kernel's source, names a cluster, which may be of one block.
    has_cluster: bool = False

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]
