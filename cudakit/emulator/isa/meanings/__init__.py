"""Meanings of the PTX instructions that compute a lane's result from the same lane's operands."""

from cudakit.emulator.isa.meanings import choices, fields, integers, logic, video

__all__ = ["choices", "fields", "integers", "logic", "video"]
