"""How each instruction is written as IR, by families; importing this fills the table."""

from cudakit.emulator.compiled.emit import hosted, meanings, memory, warps
from cudakit.emulator.compiled.emit.table import EMITTERS

__all__ = ["EMITTERS", "hosted", "meanings", "memory", "warps"]
