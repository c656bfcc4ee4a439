"""Tile kernels on NumPy: Tile IR, run a whole tile at a time."""

from cudakit.emulator.tile import accesses, arithmetic, machine

__all__ = ["accesses", "arithmetic", "machine"]
