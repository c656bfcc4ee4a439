"""Meanings of the PTX instructions that compute a lane's result from the same lane's operands."""

from cudakit.emulator.isa.meanings import conversions, floats, integers, video

__all__ = ["conversions", "floats", "integers", "video"]
