"""What a proof takes instructions for, against a GPU's stored answers: it excludes none of them."""

from __future__ import annotations

from functools import cache

import pytest
from support.instructions import values
from support.instructions.answers import FOLDER, Answers, split
from support.instructions.catalogue import catalogue
from support.instructions.forms import Form, module

from cudakit.emulator.face import facts, parse, program
from cudakit.proof.instructions import Numbers, Opaque, Registers, Unsupported, Value, step
from cudakit.proof.solver import Solver
from cudakit.proof.terms import TRUE, Polynomial, Symbol, equal, negation, polynomial

pytestmark = pytest.mark.emulator
pytest.importorskip("z3", reason="the extra prove is not installed")

#: Forms of which every result is exact, for all lanes that are looked at.
_LEAST_EXACT = 600


@cache
def _answers() -> Answers:
    return Answers.load(FOLDER / "sm_90.xz")


def _special(name: str) -> Value:
    return polynomial(Symbol("lane", 0, values.LANES - 1)) if name == "%tid.x" else Opaque("it is not followed")


class Lane:
    """The registers of one lane of a form after its instructions; its inputs are numbers, or symbols for them."""

    def __init__(self, function: program.Function, inputs: list[int], is_symbolic: bool) -> None:
        self.numbers = Numbers(Solver(10.0), [])
        self.registers = Registers({}, function.registers, self.numbers, _special, polynomial)  # type: ignore[arg-type]
        self.excluded: list[str] = []
        self.stored: list[Polynomial] = []
        left = iter(inputs)
        path = []
        for instruction in function.code:
            if instruction.opcode == "ld" and "global" in instruction.modifiers:
                value, (target, _) = next(left), instruction.operands
                bits = self.registers.bits_of(target, 0)
                symbol = Symbol("input", 0, (1 << bits) - 1)
                path.append(equal(symbol, value))
                self.registers.write(target, polynomial(symbol if is_symbolic else value))
            elif instruction.opcode == "st" and "global" in instruction.modifiers:
                self.stored.append(self.registers.number(instruction.operands[1]))
            elif facts.facts_of(instruction).does == "computes":
                condition = TRUE
                if instruction.guard is not None:
                    condition = self.registers.predicate(instruction.guard[0])
                    condition = negation(condition) if instruction.guard[1] else condition
                step(instruction, self.registers, condition)
            elif instruction.opcode not in ("ret", "ld"):
                raise Unsupported("more than computing")
        self.numbers.path = tuple(path) if is_symbolic else ()

    def may_be(self, place: int, answer: int, width: int) -> bool:
        """Whether a stored number may be an answer."""
        value = self.stored[place]
        if value.constant is not None:
            return (value.constant - answer) % (1 << width) == 0
        if not self.numbers.path:
            low, high = value.range
            return (
                low is None
                or high is None
                or high - low >= (1 << width) - 1
                or (answer - low) % (1 << width) <= high - low
            )
        return not self.numbers.holds(negation(equal(self.numbers.canonical(value, width, False), answer)))

    def is_exact(self, place: int) -> bool:
        return self.stored[place].constant is not None


def _judged(forms: list[Form], lanes: range, is_symbolic: bool) -> tuple[list[str], int]:
    """Answers that the proof excludes, and the number of forms of which all results are numbers."""
    wrong: list[str] = []
    exact = 0
    functions = parse(module(forms)).functions
    for number, form in enumerate(forms):
        inputs = values.inputs(form.sources)
        results = split(form, _answers().results[form.name][1])
        are_exact = True
        for at in lanes:
            try:
                lane = Lane(functions[f"f{number}"], [int(array[at]) for array in inputs], is_symbolic)
            except Unsupported:
                are_exact = False
                break
            for place, array in enumerate(results):
                are_exact = are_exact and lane.is_exact(place)
                if not lane.may_be(place, int(array[at]), 8 * array.itemsize):
                    wrong.append(f"{form.name}: lane {at}, inputs {[hex(int(each[at])) for each in inputs]}")
        exact += are_exact
    return wrong, exact


def _forms() -> list[Form]:
    """Forms that only compute, each by one register a result."""
    whole = {"b8", "b16", "b32", "b64", "count", "count64", "few", "few64", "offset", "clamp"}
    return [
        form for form in catalogue().values()
        if whole.issuperset(form.sources) and not any(mark in form.body for mark in ("{s}", "{t}", "{m}"))
    ]  # fmt: skip


@pytest.mark.parametrize("is_symbolic", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("kept_outcomes")
def test_no_answer_of_a_gpu_is_excluded(is_symbolic: bool) -> None:
    if is_symbolic:
        wrong, _ = _judged(_forms()[::3], range(3, values.LANES, 300), True)
    else:
        wrong, exact = _judged(_forms(), range(1, values.LANES, 128), False)
        assert exact >= _LEAST_EXACT, exact
    assert not wrong, "\n".join(wrong)
