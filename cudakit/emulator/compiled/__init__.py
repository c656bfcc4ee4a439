"""The compiled machine: a program's PTX as LLVM IR, run as machine code of the processor at hand.

It stands beside the NumPy machine behind the same launch; a `Refusal` says why a kernel is left to that one.
A *vector* is a part of a warp, `width` lanes that run as one; registers are vectors of values, or one value where it is
the same in all lanes, or a base with a stride. Where lanes part, masks say which of them a block runs for.
"""

from __future__ import annotations

from cudakit.emulator.isa.flow import Refusal

__all__ = ["Refusal"]
