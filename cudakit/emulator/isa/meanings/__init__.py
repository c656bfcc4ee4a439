"""Meanings of the PTX instructions that compute a lane's result from the same lane's operands."""

from cudakit.emulator.isa.meanings import choices, conversions, fields, floats, halves, integers, logic, video

__all__ = ["choices", "conversions", "fields", "floats", "halves", "integers", "logic", "video"]
