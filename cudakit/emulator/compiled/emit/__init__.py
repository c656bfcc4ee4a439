"""How each instruction is written as IR, by families; importing this fills the table."""

from cudakit.emulator.compiled.emit import (
    atomics,
    control,
    copies,
    hosted,
    matrices,
    mbarriers,
    meanings,
    memory,
    moves,
    predicates,
)
from cudakit.emulator.compiled.emit.table import EMITTERS

__all__ = [
    "EMITTERS",
    "atomics",
    "control",
    "copies",
    "hosted",
    "matrices",
    "mbarriers",
    "meanings",
    "memory",
    "moves",
    "predicates",
]
