"""How each instruction is written as IR, by families; importing this fills the table."""

from cudakit.emulator.compiled.emit import (
    approximate,
    arithmetic,
    atomics,
    bits,
    control,
    conversions,
    copies,
    halves,
    hosted,
    integers,
    matrices,
    mbarriers,
    memory,
    moves,
)
from cudakit.emulator.compiled.emit.table import EMITTERS

__all__ = [
    "EMITTERS",
    "approximate",
    "arithmetic",
    "atomics",
    "bits",
    "control",
    "conversions",
    "copies",
    "halves",
    "hosted",
    "integers",
    "matrices",
    "mbarriers",
    "memory",
    "moves",
]
