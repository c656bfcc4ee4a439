"""Compiled back-end of the emulator: PTX as LLVM IR, run as machine code of the CPU.

The back-end runs the same launches as the NumPy interpreter. A `Refusal` says why a kernel is left to the interpreter.
A *vector* is a part of a warp: `width` lanes that run as one. A register is a vector of values, or one value if it is
the same in all lanes, or a base with a stride. If lanes diverge, masks hold the lanes that a block runs for.
"""

from __future__ import annotations

from cudakit.emulator.isa.flow import Refusal

__all__ = ["Refusal"]
