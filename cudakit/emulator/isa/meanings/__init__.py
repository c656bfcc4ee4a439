"""Meanings of instructions, by family; importing the package fills the table."""

from cudakit.emulator.isa.meanings import conversions, floats, integers, video

__all__ = ["conversions", "floats", "integers", "video"]
