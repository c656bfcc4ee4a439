"""Meanings of instructions: entered for both machines, asked no more than is needed, and refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from cudakit.emulator.instructions.words import ArrayWord, compiled
from cudakit.emulator.isa.words import MEANINGS, bound, low_ones
from cudakit.emulator.machine.decode import CARRY, INSTRUCTIONS
from cudakit.emulator.ptx.program import Instruction, Register

pytestmark = pytest.mark.emulator


def instruction(text: str, operands: int = 3) -> Instruction:
    opcode, *modifiers = text.split(".")
    registers = tuple(Register(f"%r{number}") for number in range(operands))
    return Instruction(opcode, tuple(modifiers), registers, None, 1, None)


def test_every_meaning_is_entered_for_both_machines() -> None:
    emitters = pytest.importorskip("cudakit.emulator.compiled.emit").EMITTERS
    opcodes = {opcode for opcode, _ in MEANINGS}
    assert opcodes <= INSTRUCTIONS.keys()
    assert opcodes <= emitters.keys()


def test_the_longest_name_and_the_type_choose_a_meaning() -> None:
    for text, sources in (("add.u32", 2), ("add.cc.u32", 2), ("addc.u32", 3), ("add.rn.f32", 2), ("add.f16x2", 2)):
        entry = bound(instruction(text), CARRY)
        assert entry is not None
        assert len(entry.sources) == sources
        assert (entry.targets[-1] == CARRY) == ("cc" in text)
    assert bound(instruction("add.f32x2"), CARRY) is None


def test_operations_on_constants_are_done_beforehand() -> None:
    x = ArrayWord("x", "u32")
    assert low_ones(x.constant(5, "u32"), 32).constant_value == 31
    assert (x >> 40).constant_value == 0
    assert x.of(0).eq(0).choose(7, x).constant_value == 7
    moved = x << 3
    assert isinstance(moved, ArrayWord)
    function, work = compiled([moved], ["x"])
    assert (work, function(np.uint32(5))) == (1, 40)
