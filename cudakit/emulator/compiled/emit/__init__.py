"""IR of each instruction, by families; importing the package fills the table."""

from cudakit.emulator.compiled.emit import hosted, meanings, memory, warps
from cudakit.emulator.compiled.emit.table import EMITTERS

__all__ = ["EMITTERS", "hosted", "meanings", "memory", "warps"]
