"""Tile kernels on NumPy: an interpreter of Tile IR that runs each operation over a whole tile.

`cudakit.jit.compile.tile_ir` describes the stages of a tile kernel, from its source to this interpreter.
"""

from cudakit.emulator.tile import accesses, arithmetic, machine

__all__ = ["accesses", "arithmetic", "machine"]
