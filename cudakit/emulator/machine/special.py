"""Special registers: PTX ISA 10. Each is computed when a kernel first reads it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cudakit.emulator.machine.geometry import Geometry
from cudakit.errors import EmulationError

_AXES = "xyz"
#: What no driver has set: counters of a profiler, the driver's own registers, the graph that is running.
_UNSET = re.compile(r"pm[0-7](_64)?|envreg([12]?[0-9]|3[01])|current_graph_exec")
#: Multiprocessors of the emulated device, over which blocks go round.
_MULTIPROCESSORS = 132


class SpecialRegisters(dict[str, Any]):
    """Value of each special register by its name without %: an array over the lanes, or one scalar for all.

    Parameters
    ----------
    geometry : Geometry
    blocks : range
        Numbers of the blocks that run, which lie one after the other.

    Raises
    ------
    EmulationError
        For a register that is not emulated.
    """

    def __init__(self, geometry: Geometry, blocks: range) -> None:
        self._threads = geometry.threads
        self._blocks = len(blocks)
        grid, block, cluster = geometry.grid, geometry.block, geometry.cluster
        # Blocks run in the order of their clusters, so that a cluster is never cut in two.
        number, inside = np.arange(blocks.start, blocks.stop), cluster[0] * cluster[1] * cluster[2]
        clusters = (grid[0] // cluster[0], grid[1] // cluster[1], grid[2] // cluster[2])
        self._number, self._rank = number, number % inside
        self._cluster_at = coordinates(number // inside, clusters)
        self._rank_at = coordinates(self._rank, cluster)
        self._thread_at = coordinates(np.arange(geometry.threads), block)
        self._cluster = cluster
        u4 = np.uint32
        super().__init__(
            {
                "nwarpid": u4(-(-geometry.threads // 32)), "nsmid": u4(_MULTIPROCESSORS), "gridid": np.uint64(1),
                "WARP_SZ": u4(32), "dynamic_smem_size": u4(geometry.shared_bytes),
                "is_explicit_cluster": np.bool_(inside > 1 or geometry.has_cluster), "cluster_nctarank": u4(inside),
                **{f"ntid.{axis}": u4(size) for axis, size in zip(_AXES, block, strict=True)},
                **{f"nctaid.{axis}": u4(size) for axis, size in zip(_AXES, grid, strict=True)},
                **{f"nclusterid.{axis}": u4(size) for axis, size in zip(_AXES, clusters, strict=True)},
                **{f"cluster_nctaid.{axis}": u4(size) for axis, size in zip(_AXES, cluster, strict=True)},
            }
        )  # fmt: skip

    def __missing__(self, name: str) -> Any:
        self[name] = found = self._compute(name)
        return found

    def _compute(self, name: str) -> Any:
        base, _, axis = name.partition(".")
        one, lane = np.uint32(1), np.arange(self._threads, dtype=np.uint32) % np.uint32(32)
        match base:
            case "tid":
                return self._of_threads(self._thread_at[axis])
            case "ctaid":
                of = self._cluster[_AXES.index(axis)]
                return self._of_blocks(self._cluster_at[axis] * of + self._rank_at[axis])
            case "clusterid":
                return self._of_blocks(self._cluster_at[axis])
            case "cluster_ctaid":
                return self._of_blocks(self._rank_at[axis])
            case "cluster_ctarank":
                return self._of_blocks(self._rank)
            case "smid":
                return self._of_blocks(self._number % _MULTIPROCESSORS)
            case "warpid":
                return self._of_threads(np.arange(self._threads) // 32)
            case "laneid":
                return self._of_threads(lane)
            case "lanemask_eq":
                return self._of_threads(one << lane)
            case "lanemask_lt":
                return self._of_threads((one << lane) - one)
            case "lanemask_le":
                return self._of_threads((one << lane) - one | one << lane)
            case "lanemask_gt":
                return self._of_threads(~((one << lane) - one | one << lane))
            case "lanemask_ge":
                return self._of_threads(~((one << lane) - one))
        if _UNSET.fullmatch(base):
            return np.uint64(0)
        raise EmulationError(f"special register %{name} is not emulated")

    def _of_threads(self, values: np.ndarray) -> np.ndarray:
        """A value for each thread of a block, given to the lanes of all blocks."""
        return np.tile(values.astype(np.uint32), self._blocks)

    def _of_blocks(self, values: np.ndarray) -> np.ndarray:
        """A value for each block, given to its lanes."""
        return np.repeat(values.astype(np.uint32), self._threads)


def place_of(special: SpecialRegisters, geometry: Geometry, lane: int) -> str:
    """``block 5, thread 7``, or with (x, y, z) where the launch has more than x."""

    def one(kind: str, extent: tuple[int, int, int]) -> str:
        x, y, z = (int(special[f"{kind}.{axis}"][lane]) for axis in "xyz")
        return f"{x}" if extent[1:] == (1, 1) else f"({x}, {y}, {z})"

    return f"block {one('ctaid', geometry.grid)}, thread {one('tid', geometry.block)}"


def deadlocked(at_barrier: int, in_warp: int, first: str) -> str:
    """What is wrong where threads wait that nothing can wake: how many, and the first."""
    counts = f"{at_barrier} at a barrier, {in_warp} for other lanes of their warp"
    return f"deadlock: threads wait that nothing can wake ({counts}); the first is {first}"


def coordinates(number: np.ndarray, shape: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """Place along each axis of what is counted along x first, then y, then z."""
    return {"x": number % shape[0], "y": number // shape[0] % shape[1], "z": number // (shape[0] * shape[1])}
