"""Arithmetic whose opcode serves integers, floats and halves alike: PTX ISA 9.7.1, 9.7.3 and 9.7.4.

Each entry hands its instruction to the family of its type: `floating`, `halves` or, for integers, `meanings`.
"""

from __future__ import annotations

from cudakit.emulator.instructions import floating, halves, meanings
from cudakit.emulator.instructions.halves import is_half
from cudakit.emulator.machine.approximate import of_arrays
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Maker, Step, instruction
from cudakit.emulator.ptx.program import Instruction


def _by_type(opcode: str, section: str, whole: Maker | None, single: Maker | None, half: Maker | None) -> None:
    """Enter an opcode with its makers for integers, float32 and float64, and half precision."""

    @instruction(opcode, section)
    def make(given: Instruction, context: Context) -> Step:
        kind = given.modifiers[-1]
        if is_half(kind) and "f32" in given.modifiers:
            raise ValueError("mixed precision")
        maker = half if is_half(kind) else single if kind in ("f32", "f64") else whole
        if maker is None:
            raise ValueError(f"{opcode} of type .{kind}")
        return maker(given, context)


_by_type("add", "9.7.1.1, 9.7.3.3, 9.7.4.1", meanings.step, floating.add, halves.add)
_by_type("sub", "9.7.1.2, 9.7.3.4, 9.7.4.2", meanings.step, floating.subtract, halves.subtract)
_by_type("mul", "9.7.1.3, 9.7.3.5, 9.7.4.3", meanings.step, floating.multiply, halves.multiply)
_by_type("mad", "9.7.1.4, 9.7.3.7", meanings.step, floating.fma, None)
_by_type("fma", "9.7.3.6, 9.7.4.4", None, floating.fma, halves.fma)
_by_type("div", "9.7.1.8, 9.7.3.8", meanings.step, floating.divide, None)
_by_type("abs", "9.7.1.10, 9.7.3.9, 9.7.4.6", meanings.step, floating.absolute, halves.absolute)
_by_type("neg", "9.7.1.11, 9.7.3.10, 9.7.4.5", meanings.step, floating.negate, halves.negate)
_by_type(
    "min",
    "9.7.1.12, 9.7.3.11, 9.7.4.7",
    meanings.step,
    lambda given, context: floating.extremum(given, context, least=True),
    lambda given, context: halves.extremum(given, context, least=True),
)
_by_type(
    "max",
    "9.7.1.13, 9.7.3.12, 9.7.4.8",
    meanings.step,
    lambda given, context: floating.extremum(given, context, least=False),
    lambda given, context: halves.extremum(given, context, least=False),
)
_by_type("rcp", "9.7.3.13", None, floating.reciprocal, None)
_by_type("sqrt", "9.7.3.15", None, floating.square_root, None)
_by_type("rsqrt", "9.7.3.16", None, floating.reciprocal_root, None)
_by_type("sin", "9.7.3.18", None, floating.approximate, None)
_by_type("cos", "9.7.3.19", None, floating.approximate, None)
_by_type("lg2", "9.7.3.20", None, floating.approximate, None)
_by_type("ex2", "9.7.3.21, 9.7.4.10", None, floating.approximate, halves.exponential)
_by_type(
    "tanh", "9.7.3.22, 9.7.4.9", None, floating.approximate, lambda g, c: halves.approximate(g, c, of_arrays("tanh"))
)
_by_type("copysign", "9.7.3.2", None, floating.copysign, None)
