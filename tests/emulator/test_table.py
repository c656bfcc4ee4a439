"""The table of instructions in the documentation is what the code does, and its section numbers are the ISA's."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import loaded

from cudakit.emulator.isa.facts import FACTS, UNKNOWN, facts_of
from cudakit.emulator.machine.decode import CONTROLS, INSTRUCTIONS
from cudakit.emulator.ptx.program import Instruction

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def table() -> ModuleType:
    return loaded(DOCS / "emulator_table.py")


def test_the_page_agrees_with_the_code(table: ModuleType) -> None:
    text = table.PAGE.read_text(encoding="utf-8")
    assert text == table.page(text), "run python docs/emulator_table.py"


def test_every_instruction_is_listed_under_its_section(table: ModuleType) -> None:
    names, listed = set[str](), dict[str, set[str]]()
    for form in table.forms():
        opcode, *modifiers = form.name.split(".")
        names |= {".".join((opcode, *modifiers[:end])) for end in range(len(modifiers) + 1)}
        facts = facts_of(Instruction(opcode, tuple(modifiers), (), None, 0, None))
        listed.setdefault(facts.sections, set()).add(form.section)
    for opcode in {**INSTRUCTIONS, **CONTROLS}:
        assert opcode in names, f"{opcode} is in no line of instructions.txt"
    for opcode, facts in FACTS.items():
        for section in re.findall(r"9\.7\.[\d.]*\d", facts.sections):
            assert any(f"{known}.".startswith(f"{section}.") for known in listed[facts.sections]), (
                f"{opcode} is said to be in {section}, and is in {sorted(listed[facts.sections])}"
            )


def test_facts_are_of_the_section_that_has_the_instruction(table: ModuleType) -> None:
    for form in table.forms():
        opcode, *modifiers = form.name.split(".")
        facts = facts_of(Instruction(opcode, tuple(modifiers), (), None, 0, None))
        sections = re.findall(r"9\.7\.[\d.]*\d", facts.sections)
        if facts is not UNKNOWN and not table.missing(form):
            assert any(f"{form.section}.".startswith(f"{section}.") for section in sections), (
                f"{form.name} is in {form.section}, and in facts.py in {facts.sections}"
            )


def test_what_is_missing_is_told_from_what_runs(table: ModuleType) -> None:
    assert table.missing(table.Form("9.7.1.1", "add.s32 %r1, %r2, %r3", "")) == ""
    assert "not emulated" in table.missing(table.Form("9.7.16.7.1", "tcgen05.shift.cta_group::1.down [%r1]", ""))
    assert "im2col" in table.missing(
        table.Form(
            "", "cp.async.bulk.tensor.3d.global.shared::cta.im2col.bulk_group [%rd1, {%r2, %r3, %r4}], [%r1]", ""
        )
    )
