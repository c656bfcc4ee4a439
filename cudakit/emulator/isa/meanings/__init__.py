"""Meanings of the PTX instructions that compute a lane's result from the same lane's operands."""

from cudakit.emulator.isa.meanings import fields, integers, logic, video

__all__ = ["fields", "integers", "logic", "video"]
