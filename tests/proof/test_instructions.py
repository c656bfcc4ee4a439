"""Instructions of a proof: for chosen values the symbolic result is what Python computes from the PTX ISA."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from cudakit.emulator.ptx.parser import parse
from cudakit.emulator.ptx.program import Register
from cudakit.proof.instructions import Numbers, Opaque, Registers, Unsupported, step
from cudakit.proof.solver import Solver
from cudakit.proof.terms import FALSE, TRUE, Flag, Formula, Symbol, equal, negation, polynomial

pytestmark = pytest.mark.emulator
pytest.importorskip("z3", reason="the extra prove is not installed")

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k()
{ .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<9>;
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
            condition = TRUE
            if instruction.guard is not None:
                condition = self.registers.predicate(instruction.guard[0])
                condition = negation(condition) if instruction.guard[1] else condition
            step(instruction, self.registers, condition)

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

    def may_be(self, name: str, number: int, values: dict[str, int]) -> bool:
        """Whether a register may hold a signed number, for all that the proof has_last_round."""
        self._assume(values)
        bits = self.registers.bits(name)
        value = self.numbers.canonical(self.registers.number(Register(name)), bits, True)
        return not self.numbers.holds(negation(equal(value, number)))

    def is_sure(self, name: str, number: int, values: dict[str, int]) -> bool:
        """Whether a register holds a signed number, and no other."""
        self._assume(values)
        bits = self.registers.bits(name)
        value = self.numbers.canonical(self.registers.number(Register(name)), bits, True)
        return self.numbers.holds(equal(value, number)) and not self.numbers.holds(FALSE)


REFUSED = ("add.cc.u32 %r3, %r1, %r2", "sub.cc.u32 %r3, %r1, %r2", "mad.lo.cc.u32 %r3, %r1, %r2, %r1")


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("brev.b32 %r3, %r1;", {"%r3"}),
        ("mapa.shared::cluster.u32 %r3, %r1, %r2;", {"%r3"}),
        ("createpolicy.fractional.L2::evict_last.b64 %d1, 0f3F800000;", {"%d1"}),
        ("setmaxnreg.inc.sync.aligned.u32 64;", set()),
        ("griddepcontrol.wait;", set()),
    ],
)
def test_an_instruction_that_only_computes_gives_what_is_not_known(code: str, changed: set[str]) -> None:
    program = Program(code, "%r1", "%r2")
    values = {name: value for name, value in program.registers.values.items() if name not in program.inputs}
    assert values.keys() == changed
    assert all(isinstance(value, Opaque) for value in values.values())


@pytest.mark.parametrize("code", REFUSED)
def test_an_instruction_with_a_result_that_is_not_followed_is_refused(code: str) -> None:
    with pytest.raises(Unsupported, match=code.partition(" ")[0].partition(".")[0]):
        Program(code + ";", "%r1", "%r2", "%p3")


def test_an_instruction_that_is_not_run_leaves_its_register() -> None:
    program = Program("mov.u32 %r3, 1;\n@%p1 mov.u32 %r3, 5;\n@!%p1 mov.u32 %r3, 6;\n@%p1 mov.u32 %r4, 5;", "%p1")
    for is_run in (False, True):
        assert program.is_sure("%r3", 5 if is_run else 6, {"%p1": is_run})
        assert program.is_sure("%r4", 5, {"%p1": is_run}) is is_run
        assert program.may_be("%r4", 7, {"%p1": is_run}) is not is_run  # nothing is known of what nobody wrote


def test_a_comparison_that_is_not_run_leaves_its_predicate() -> None:
    program = Program("@%p1 setp.lt.s32 %p2, %r1, %r2;\n@!%p1 setp.lt.s32 %p2, %r2, %r1;", "%p1", "%r1", "%r2")
    for is_run in (False, True):
        assert program.truth("%p2", {"%p1": is_run, "%r1": 1, "%r2": 2}) is is_run
    program = Program("@%p1 setp.lt.s32 %p2, %r1, %r2;", "%p1", "%r1", "%r2")
    assert program.truth("%p2", {"%p1": True, "%r1": 1, "%r2": 2})
    with pytest.raises(AssertionError):
        program.truth("%p2", {"%p1": False, "%r1": 1, "%r2": 2})


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


def _signed(value: int, bits: int) -> int:
    """The number that the low bits are in two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def _unsigned(value: int, bits: int) -> int:
    return value & (1 << bits) - 1


def _quotient(a: int, b: int) -> int:
    """The quotient, rounded towards 0."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


LOW, HIGH = -(1 << 31), (1 << 31) - 1
ANY = (LOW, -1000, -5, -1, 0, 12, 255, HIGH)
#: Instructions from %r1 and %r2 to %r3, and the result for two signed numbers a and b.
EXACT = {
    "add.s32 %r3, %r1, %r2": lambda a, b: a + b,
    "add.sat.s32 %r3, %r1, %r2": lambda a, b: max(LOW, min(HIGH, a + b)),
    "sub.sat.s32 %r3, %r1, %r2": lambda a, b: max(LOW, min(HIGH, a - b)),
    "mad.hi.sat.s32 %r3, %r1, 12, %r2": lambda a, b: max(LOW, min(HIGH, (a * 12 >> 32) + b)),
    "vadd.s32.s32.s32 %r3, %r1, %r2": lambda a, b: a + b,
    "sad.s32 %r3, %r1, 12, %r2": lambda a, b: b + abs(a - 12),
    "mul24.lo.s32 %r3, %r1, 12": lambda a, b: _signed(a, 24) * 12,
    "mad24.hi.u32 %r3, %r1, 4096, %r2": lambda a, b: (_unsigned(a, 24) * 4096 >> 16) + b,
    "sub.s32 %r3, %r1, %r2": lambda a, b: a - b,
    "mul.lo.s32 %r3, %r1, 12": lambda a, b: a * 12,
    "mad.lo.s32 %r3, %r1, 3, %r2": lambda a, b: a * 3 + b,
    "mul.hi.s32 %r3, %r1, 12": lambda a, b: a * 12 >> 32,
    "mul.hi.u32 %r3, %r1, 12": lambda a, b: _unsigned(a, 32) * 12 >> 32,
    "mad.hi.s32 %r3, %r1, 12, %r2": lambda a, b: (a * 12 >> 32) + b,
    "neg.s32 %r3, %r1": lambda a, b: -a,
    "abs.s32 %r3, %r1": lambda a, b: abs(a),
    "min.s32 %r3, %r1, %r2": min,
    "max.s32 %r3, %r1, %r2": max,
    "max.relu.s32 %r3, %r1, %r2": lambda a, b: max(a, b, 0),
    "min.u32 %r3, %r1, %r2": lambda a, b: min(_unsigned(a, 32), _unsigned(b, 32)),
    "max.u32 %r3, %r1, %r2": lambda a, b: max(_unsigned(a, 32), _unsigned(b, 32)),
    "not.b32 %r3, %r1": lambda a, b: ~a,
    "cnot.b32 %r3, %r1": lambda a, b: int(a == 0),
    "bfe.u32 %r3, %r1, 5, 7": lambda a, b: a >> 5 & 127,
    "bfe.u32 %r3, %r1, 28, 9": lambda a, b: _unsigned(a, 32) >> 28,
    "bfe.s32 %r3, %r1, 261, 7": lambda a, b: _signed(a >> 5, 7),
    "bfe.s32 %r3, %r1, 3, 0": lambda a, b: 0,
    "bfi.b32 %r3, %r1, 0, 4, 6": lambda a, b: (a & 63) << 4,
    "szext.wrap.s32 %r3, %r1, 40": lambda a, b: _signed(a, 8),
    "szext.clamp.u32 %r3, %r1, 40": lambda a, b: a,
    "prmt.b32 %r3, %r1, 0, 17412": lambda a, b: (a & 255) << 8,
    "prmt.b32 %r3, %r1, 0, 17475": lambda a, b: _unsigned(a, 32) >> 24,
    "lop3.b32 %r3, %r1, 12, 0, 0xC0": lambda a, b: a & 12,
    "lop3.b32 %r3, %r1, 0, 0, 0x0F": lambda a, b: ~a,
    "lop3.or.b32 %r4|%p1, %r1, 0, 0, 0xF0, 0;\nselp.s32 %r3, %r2, 7, %p1": lambda a, b: b if a else 7,
    "set.lt.u32.s32 %r3, %r1, %r2": lambda a, b: -int(a < b),
    "slct.b32.s32 %r3, %r1, 5, %r2": lambda a, b: a if b >= 0 else 5,
    "setp.lt.s32 %p1|%p2, %r1, %r2;\nselp.b32 %r3, %r1, %r2, %p2": max,
    "setp.lt.s32 %p3, %r1, 0;\nsetp.lt.and.s32 %p1|%p2, %r1, %r2, %p3;\nselp.b32 %r3, 1, 0, %p2": (
        lambda a, b: int(a >= b and a < 0)
    ),
    "setp.lt.s32 %p3, %r1, 0;\nsetp.lt.xor.s32 %p1, %r1, %r2, !%p3;\nselp.b32 %r3, 1, 0, %p1": (
        lambda a, b: int((a < b) != (a >= 0))
    ),
    "and.b32 %r3, %r1, 12": lambda a, b: a & 12,
    "and.b32 %r3, 5, %r1": lambda a, b: a & 5,
    "and.b32 %r3, %r1, -2147483648": lambda a, b: a & LOW,
    "or.b32 %r3, %r1, 12": lambda a, b: a | 12,
    "or.b32 %r3, %r1, -1": lambda a, b: -1,
    "or.b32 %r3, %r1, -2": lambda a, b: a | -2,
    "xor.b32 %r3, %r1, -2": lambda a, b: a ^ -2,
    "xor.b32 %r3, %r1, 5": lambda a, b: a ^ 5,
    "xor.b32 %r3, %r1, -1": lambda a, b: ~a,
    "mov.u32 %r4, 6;\nand.b32 %r3, %r4, 12": lambda a, b: 4,
    "mov.u32 %r4, 6;\nor.b32 %r3, %r4, 12": lambda a, b: 14,
    "mov.u32 %r4, 6;\nxor.b32 %r3, %r4, 12": lambda a, b: 10,
    "shl.b32 %r4, %r1, 3;\nand.b32 %r5, %r2, 7;\nor.b32 %r3, %r4, %r5": lambda a, b: a << 3 | b & 7,
    "shl.b32 %r4, %r1, 3;\nand.b32 %r5, %r2, 7;\nxor.b32 %r3, %r5, %r4": lambda a, b: a << 3 | b & 7,
    "shl.b32 %r3, %r1, 31": lambda a, b: a << 31,
    "shl.b32 %r3, %r1, 32": lambda a, b: 0,
    "shr.s32 %r3, %r1, 4": lambda a, b: a >> 4,
    "shr.u32 %r3, %r1, 4": lambda a, b: _unsigned(a, 32) >> 4,
    "shr.s32 %r3, %r1, 40": lambda a, b: a >> 31,
    "shr.u32 %r3, %r1, 32": lambda a, b: 0,
    "div.s32 %r3, %r1, 12": lambda a, b: _quotient(a, 12),
    "rem.s32 %r3, %r1, 12": lambda a, b: a - 12 * _quotient(a, 12),
    "div.u32 %r3, %r1, 12": lambda a, b: _unsigned(a, 32) // 12,
    "rem.u32 %r3, %r1, 12": lambda a, b: _unsigned(a, 32) % 12,
    "cvt.s8.s32 %r4, %r1;\ndiv.s32 %r3, %r4, 12": lambda a, b: _quotient(_signed(a, 8), 12),
    "cvt.s8.s32 %r4, %r1;\nrem.s32 %r3, %r4, 12": lambda a, b: _signed(a, 8) - 12 * _quotient(_signed(a, 8), 12),
    "and.b32 %r4, %r1, 3;\nshl.b32 %r5, %r4, 2;\ndiv.u32 %r3, %r5, 12": lambda a, b: (a & 3) * 4 // 12,
    "and.b32 %r4, %r1, 3;\nshl.b32 %r5, %r4, 2;\nrem.u32 %r3, %r5, 12": lambda a, b: (a & 3) * 4 % 12,
    "div.s32 %r3, %r1, 1": lambda a, b: a,
    "cvt.s8.s32 %r3, %r1": lambda a, b: _signed(a, 8),
    "cvt.sat.s8.s32 %r3, %r1": lambda a, b: max(-128, min(127, a)),
    "cvt.sat.u8.s32 %r3, %r1": lambda a, b: max(0, min(255, a)),
    "cvt.sat.u64.s32 %d1, %r1;\ncvt.sat.s32.u64 %r3, %d1": lambda a, b: max(0, a),
    "cvt.u8.u32 %r3, %r1": lambda a, b: _unsigned(a, 8),
    "cvt.u16.u32 %h1, %r1;\ncvt.u32.u16 %r3, %h1": lambda a, b: _unsigned(a, 16),
    "cvt.u16.u32 %h1, %r1;\ncvt.s32.s16 %r3, %h1": lambda a, b: _signed(a, 16),
    "cvt.s64.s32 %d1, %r1;\nshr.s64 %d2, %d1, 8;\ncvt.u32.u64 %r3, %d2": lambda a, b: a >> 8,
    "cvt.u64.u32 %d1, %r1;\nshr.u64 %d2, %d1, 8;\ncvt.u32.u64 %r3, %d2": lambda a, b: _unsigned(a, 32) >> 8,
    "mul.wide.s32 %d1, %r1, 12;\nshr.s64 %d2, %d1, 4;\ncvt.u32.u64 %r3, %d2": lambda a, b: a * 12 >> 4,
    "mul.wide.u32 %d1, %r1, 12;\nshr.u64 %d2, %d1, 4;\ncvt.u32.u64 %r3, %d2": lambda a, b: _unsigned(a, 32) * 12 >> 4,
    "setp.ge.u32 %p1, %r1, %r2;\nselp.b32 %r3, %r1, %r2, %p1": lambda a, b: max(_unsigned(a, 32), _unsigned(b, 32)),
}
#: The same, of which the proof has_last_round no more than bounds.
BOUNDED = {
    "brev.b32 %r3, %r1": lambda a, b: int(f"{_unsigned(a, 32):032b}"[::-1], 2),
    "bfe.u32 %r3, %r1, 5, %r2": lambda a, b: a >> 5 & (1 << (b & 255)) - 1 & (1 << 27) - 1,
    "bfi.b32 %r3, %r1, %r2, 4, 6": lambda a, b: b & ~(63 << 4) | (a & 63) << 4,
    "bfind.s32 %r3, %r1": lambda a, b: (a ^ a >> 31).bit_length() - 1,
    "lop3.b32 %r3, %r1, %r2, 12, 0xE8": lambda a, b: a & b | a & 12 | b & 12,
    "addc.u32 %r3, %r1, %r2": lambda a, b: a + b,
    "and.b32 %r4, %r1, 255;\nand.b32 %r3, %r4, %r2": lambda a, b: a & 255 & b,
    "and.b32 %r4, %r1, 255;\nand.b32 %r5, %r2, 15;\nor.b32 %r3, %r4, %r5": lambda a, b: a & 255 | b & 15,
    "and.b32 %r4, %r1, 255;\nor.b32 %r3, %r4, %r2": lambda a, b: a & 255 | b,
    "shl.b32 %r4, %r1, 2;\nand.b32 %r5, %r2, 7;\nor.b32 %r3, %r4, %r5": lambda a, b: a << 2 | b & 7,
    "shl.b32 %r4, %r1, 7;\ncvt.s8.s32 %r5, %r2;\nor.b32 %r3, %r4, %r5": lambda a, b: a << 7 | _signed(b, 8),
    "and.b32 %r4, %r1, 255;\nand.b32 %r5, %r2, 15;\nxor.b32 %r3, %r4, %r5": lambda a, b: a & 255 ^ b & 15,
    "and.b32 %r4, %r1, 255;\nxor.b32 %r3, %r4, %r2": lambda a, b: a & 255 ^ b,
    "shl.b32 %r4, %r1, 2;\nand.b32 %r5, %r2, 7;\nxor.b32 %r3, %r4, %r5": lambda a, b: a << 2 ^ b & 7,
    "shl.b32 %r4, %r1, 7;\ncvt.s8.s32 %r5, %r2;\nxor.b32 %r3, %r4, %r5": lambda a, b: a << 7 ^ _signed(b, 8),
    "and.b32 %r3, %r1, %r2": lambda a, b: a & b,
    "or.b32 %r3, %r1, %r2": lambda a, b: a | b,
    "xor.b32 %r3, %r1, %r2": lambda a, b: a ^ b,
    "popc.b32 %r3, %r1": lambda a, b: _unsigned(a, 32).bit_count(),
    "clz.b32 %r3, %r1": lambda a, b: 32 - _unsigned(a, 32).bit_length(),
    "bfind.u32 %r3, %r1": lambda a, b: _unsigned(a, 32).bit_length() - 1,
    "shl.b32 %r3, %r1, %r2": lambda a, b: a << _unsigned(b, 32) if _unsigned(b, 32) < 32 else 0,
    "div.s32 %r3, %r1, %r2": lambda a, b: _quotient(a, b) if b else 0,
    "and.b32 %r4, %r1, 255;\ndiv.s32 %r3, %r4, %r2": lambda a, b: _quotient(a & 255, b) if b else -1,
    # A GPU gives ones for a division by 0.
    "and.b32 %r4, %r1, 255;\nand.b32 %r5, %r2, 7;\ndiv.s32 %r3, %r4, %r5": (
        lambda a, b: (a & 255) // (b & 7) if b & 7 else -1
    ),
    "cvt.rn.f32.s32 %f1, %r1;\ncvt.rzi.s32.f32 %r3, %f1": lambda a, b: min(HIGH, int(np.float32(a))),
}


def _pairs(name: str) -> list[tuple[int, int]]:
    """Numbers for %r1 and %r2: the limits, and some that are drawn."""
    draw = random.Random(name)
    return [(a, draw.choice(ANY)) for a in ANY] + [(draw.randint(LOW, HIGH), draw.randint(LOW, HIGH))]


@pytest.mark.parametrize("code", EXACT)
def test_an_instruction_gives_what_python_computes(code: str) -> None:
    program = Program(code + ";", "%r1", "%r2")
    for a, b in _pairs(code):
        expected = _signed(EXACT[code](a, b), 32)
        assert program.is_sure("%r3", expected, {"%r1": a, "%r2": b}), (a, b, expected)


@pytest.mark.parametrize("code", BOUNDED)
def test_what_is_not_followed_may_be_what_python_computes(code: str) -> None:
    program = Program(code + ";", "%r1", "%r2")
    for a, b in _pairs(code):
        expected = _signed(BOUNDED[code](a, b), 32)
        assert program.may_be("%r3", expected, {"%r1": a, "%r2": b}), (a, b, expected)


COMPARED = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    **dict.fromkeys(("lt", "lo"), lambda a, b: a < b),
    **dict.fromkeys(("le", "ls"), lambda a, b: a <= b),
    **dict.fromkeys(("gt", "hi"), lambda a, b: a > b),
    **dict.fromkeys(("ge", "hs"), lambda a, b: a >= b),
}


@pytest.mark.parametrize("operator", COMPARED)
def test_a_comparison_is_signed_or_unsigned(operator: str) -> None:
    types = ("u32",) if operator in ("lo", "ls", "hi", "hs") else ("s32", "u32")
    code = "".join(f"setp.{operator}.{kind} %p{number}, %r1, %r2;\n" for number, kind in enumerate(types))
    program = Program(code, "%r1", "%r2")
    for a, b in [(0, 0), (-1, 0), (0, -1), (-2, -1), (3, 2), (LOW, HIGH), (HIGH, HIGH)]:
        for number, kind in enumerate(types):
            values = (a, b) if kind == "s32" else (_unsigned(a, 32), _unsigned(b, 32))
            assert program.truth(f"%p{number}", {"%r1": a, "%r2": b}) is COMPARED[operator](*values), (a, b, kind)


#: What PTX says of two floats of which one or both may be NaN.
ORDERED = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("operator", [*ORDERED, *(f"{each}u" for each in ORDERED), "num", "nan"])
def test_floats_are_compared_with_a_number_by_their_bits(operator: str) -> None:
    code = f"mov.b32 %f1, %r1;\nabs.f32 %f2, %f1;\nsetp.{operator}.f32 %p1, %f1, 0f3FC00000;\n"
    program = Program(f"{code}setp.{operator}.f32 %p2, %f2, 0f7F800000;", "%r1")
    bits = [0x3FBFFFFF, 0x3FC00000, 0x3FC00001, 0x7F800000, 0x7F800001]
    if operator in ("lt", "neu", "num"):
        bits += [0, 1, 0x7F7FFFFF, 0x7FFFFFFF]
    for each in (*bits, *(-(1 << 31) + one for one in bits)):
        value = np.int32(each).view(np.float32)
        for name, left, right in (("%p1", value, 1.5), ("%p2", abs(value), np.inf)):
            expected = operator == "nan" or operator.endswith("u")
            if not np.isnan(left):
                expected = (
                    ORDERED[operator.removesuffix("u")](left, right) if operator[:2] in ORDERED else operator == "num"
                )
            elif operator == "ne":
                expected = False
            assert program.truth(name, {"%r1": each}) is bool(expected), (hex(each), name)


@pytest.mark.parametrize("code", ["abs.ftz.f32 %f2, %f1", "setp.ltu.ftz.f32 %p1, %f1, 0f3F800000",
                                  "setp.lt.f32 %p1, %f1, 0fBF800000", "setp.lt.f32 %p1, %f1, 0f7FC00000"])  # fmt: skip
def test_of_other_comparisons_of_floats_nothing_is_known(code: str) -> None:
    more = "\nsetp.lt.f32 %p1, %f2, 0f3F800000" if "abs" in code else ""
    program = Program(f"mov.b32 %f1, %r1;\n{code};{more}" + ";" * bool(more), "%r1")
    with pytest.raises(AssertionError):
        program.truth("%p1", {"%r1": 0x3F000000})


def test_what_is_widened_and_narrowed_is_as_it_was() -> None:
    program = Program("cvt.s64.s32 %d1, %r1;\ncvt.u32.u64 %r3, %d1;\ncvt.u16.u32 %h1, %r3;", "%r1")
    assert program.registers.values["%r3"] == program.inputs["%r1"]
    program = Program(
        "mul.lo.s32 %r2, %r1, 3;\ncvt.s64.s32 %d1, %r2;\nshl.b64 %d2, %d1, 4;\ncvt.u32.u64 %r3, %d2;", "%r1"
    )
    assert program.registers.values["%r3"] == program.registers.values["%r2"] * 16
    program = Program(
        "cvt.u16.u32 %h1, %r1;\ncvt.s32.s16 %r2, %h1;\ncvt.u16.u32 %h2, %r2;\ncvt.u32.u16 %r3, %h2;", "%r1"
    )
    for number in (5, -5, 70_000, LOW):
        assert program.is_sure("%r2", _signed(number, 16), {"%r1": number})
        assert program.is_sure("%r3", _unsigned(number, 16), {"%r1": number})


def test_numbers_are_equal_where_their_low_bits_are() -> None:
    program = Program("shl.b32 %r3, %r1, 1;\nsetp.eq.s32 %p1, %r3, %r2;", "%r1", "%r2")
    for a, b in [(LOW, 0), (HIGH, -2), (-1, -2), (0, 1), (LOW, 1)]:
        assert program.truth("%p1", {"%r1": a, "%r2": b}) is (_signed(a << 1, 32) == b), (a, b)


def test_a_rest_is_below_its_divisor() -> None:
    code = "and.b32 %r3, %r2, 7;\nadd.s32 %r4, %r3, 1;\nrem.u32 %r5, %r1, %r4;\nsetp.lt.u32 %p1, %r5, %r4;"
    program = Program(code, "%r1", "%r2")
    for a, b in [(0, 0), (-1, 7), (100, 3), (HIGH, -1)]:
        assert program.truth("%p1", {"%r1": a, "%r2": b}), (a, b)
