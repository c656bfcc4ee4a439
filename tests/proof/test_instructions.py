"""Instructions of a proof: for chosen values the symbolic result is what Python computes from the PTX ISA."""

from __future__ import annotations

import itertools

import pytest

from cudakit.emulator.ptx.parser import parse
from cudakit.proof.instructions import Registers, step
from cudakit.proof.numbers import Numbers
from cudakit.proof.solver import Solver
from cudakit.proof.terms import TRUE, Flag, Formula, Symbol, equal, negation, polynomial

pytestmark = pytest.mark.emulator
pytest.importorskip("z3", reason="the extra prove is not installed")

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k()
{ .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>;
"""


class Program:
    """Registers after some instructions; those that are read first are symbols.

    Parameters
    ----------
    code : str
        PTX instructions.
    *inputs : str
        The registers that hold symbols.
    """

    def __init__(self, code: str, *inputs: str) -> None:
        (function,) = parse(HEAD + code + "\nret;\n}\n").functions.values()
        self.numbers = Numbers(Solver(10.0), [])
        self.registers = Registers({}, function.registers, self.numbers, NotImplemented, NotImplemented)
        self.inputs = {}
        for name in inputs:
            if name.startswith("%p"):
                self.inputs[name] = self.registers.values[name] = Flag(Symbol(name, 0, 1))
                continue
            half = 1 << self.registers.bits(name) - 1
            self.inputs[name] = self.registers.values[name] = polynomial(Symbol(name, -half, half - 1))
        for instruction in function.code[:-1]:
            step(instruction, self.registers, TRUE)

    def _assume(self, values: dict[str, int]) -> None:
        """Give the inputs values for the questions that follow."""
        path: list[Formula] = []
        for name, value in values.items():
            symbol = self.inputs[name]
            if isinstance(symbol, Flag):
                path.append(symbol if value else negation(symbol))
            else:
                path.append(equal(symbol, value))
        self.numbers.path = tuple(path)

    def truth(self, name: str, values: dict[str, int]) -> bool:
        """The truth of a predicate register, which the values decide."""
        self._assume(values)
        formula = self.registers.values[name]
        is_true, is_false = self.numbers.holds(formula), self.numbers.holds(negation(formula))
        assert is_true != is_false
        return is_true


COMBINED = {"and": lambda p, q: p and q, "or": lambda p, q: p or q, "xor": lambda p, q: p != q}


@pytest.mark.parametrize("operator", COMBINED)
@pytest.mark.parametrize("negated", ["", "!"])
def test_setp_combines_a_comparison_with_a_predicate(operator: str, negated: str) -> None:
    program = Program(f"setp.lt.{operator}.s32 %p2, %r1, %r2, {negated}%p1;", "%r1", "%r2", "%p1")
    for (a, b), c in itertools.product([(-1, 0), (3, 3)], [False, True]):
        expected = COMBINED[operator](a < b, c != (negated == "!"))
        assert program.truth("%p2", {"%r1": a, "%r2": b, "%p1": c}) is expected, (a, b, c)


@pytest.mark.parametrize("operator", COMBINED)
def test_bitwise_instructions_of_predicates(operator: str) -> None:
    program = Program(f"{operator}.pred %p3, %p1, %p2;\nnot.pred %p4, %p3;", "%p1", "%p2")
    for p, q in itertools.product([False, True], repeat=2):
        values = {"%p1": p, "%p2": q}
        assert program.truth("%p3", values) is COMBINED[operator](p, q), values
        assert program.truth("%p4", values) is not COMBINED[operator](p, q), values
