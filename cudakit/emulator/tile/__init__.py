"""Tile kernels on NumPy: Tile IR, run a whole tile at a time."""

from cudakit.emulator.tile import accesses, arithmetic, control, conversions, products, shapes, views

__all__ = ["accesses", "arithmetic", "control", "conversions", "products", "shapes", "views"]
