"""Tile kernels on NumPy: Tile IR, run a whole tile at a time.

`cudakit.jit.compile.tile_ir` describes the way of a tile kernel from its source to here.
"""

from cudakit.emulator.tile import accesses, arithmetic, machine

__all__ = ["accesses", "arithmetic", "machine"]
