"""Steps of the instructions whose meanings stand in `isa.meanings`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from cudakit.emulator.instructions.elementwise import compute, in_pieces
from cudakit.emulator.instructions.words import ArrayWord, compiled, constant
from cudakit.emulator.isa import meanings  # noqa: F401 (fills the table)
from cudakit.emulator.isa.meanings.table import KINDS, SECTIONS, Form, Meaning, bound, results_of, source_kind
from cudakit.emulator.machine.context import CARRY, Context
from cudakit.emulator.machine.decode import INSTRUCTIONS, Step
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand
from cudakit.errors import EmulationError

#: Work from which a chain of operations runs in pieces, so that it stays in the cache.
_LONG = 9


@cache
def _arrays_of(
    meaning: Meaning, form: Form, known: tuple[int | None, ...], count: int
) -> tuple[Callable[..., Any], list[str]]:
    """A meaning as a function of arrays with `count` results, and their types.

    `known` has what operands are known to be.
    """
    words: list[Any] = []
    names: list[str] = []
    for source, value in zip(meaning.sources, known, strict=False):
        kind = KINDS.get(source_kind(form, source), "")
        if source == "int":
            words.append(value)
        elif value is not None:
            words.append(ArrayWord(constant(value, kind), kind))
        else:
            names.append(f"a{len(names)}")
            words.append(ArrayWord(names[-1], kind))
    made = meaning.function(form, *words)
    results = results_of(made, count)
    function, work = compiled(results, names)
    if work >= _LONG and len(results) == 1:
        function = in_pieces(function)
    return function, [result.kind for result in results]


def _known(source: str, operand: Operand) -> int | None:
    """What a constant is, where the meaning asks for that."""
    if source != "int" and source[-1] != "=":
        return None
    if isinstance(operand, Immediate):
        return operand.value
    if source == "int":
        raise EmulationError(f"operand {operand} is no constant")
    return None


def step(given: Instruction, context: Context) -> Step:
    """The step of an instruction that has a meaning.

    Raises
    ------
    EmulationError, ValueError
    """
    entry = bound(given, CARRY)
    if entry is None:
        raise ValueError(f"{given.opcode} of no such type")
    meaning, form, targets, sources = entry
    known = tuple([_known(source, operand) for source, operand in sources])
    function, kinds = _arrays_of(meaning, form, known, len(targets))
    reads = [
        (operand, source_kind(form, source))
        for (source, operand), value in zip(sources, known, strict=True)
        if value is None
    ]
    return compute(context, function, list(zip(targets, kinds, strict=True)), reads)


for _opcode, _section in SECTIONS.items():
    INSTRUCTIONS[_opcode] = step, _section
