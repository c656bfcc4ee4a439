"""How each instruction is written as IR, by families; importing this fills the table."""

from cudakit.emulator.compiled.emit import arithmetic, control, memory, moves
from cudakit.emulator.compiled.emit.table import EMITTERS

__all__ = ["EMITTERS", "arithmetic", "control", "memory", "moves"]
