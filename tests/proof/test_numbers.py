"""Values of registers: how they are read and chosen, brought into a range, divided, and merged where ways meet."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from support.formulas import all_values, number, truth

from cudakit.emulator.ptx.program import Group, Immediate, Register
from cudakit.emulator.ptx.program import Symbol as Variable
from cudakit.proof.instructions import Numbers, Opaque, Registers, conjuncts, merged, union
from cudakit.proof.solver import Solver
from cudakit.proof.terms import (
    FALSE,
    TRUE,
    Flag,
    LastRound,
    Polynomial,
    Symbol,
    at_least,
    cone,
    equal,
    everything,
    negation,
    polynomial,
    some,
)

pytest.importorskip("z3", reason="the extra prove is not installed")
P, Q, R = (Flag(Symbol(name, 0, 1)) for name in "pqr")
TYPES = {"%p1": "pred", "%h1": "b16", "%r1": "b32", "%r2": "b32", "%d1": "b64", "%q1": "b8x4"}


def numbers(*path: Any) -> Numbers:
    return Numbers(Solver(10.0), [], path)


def registers(**values: Any) -> Registers:
    """Registers of which some hold a value: ``r1=…``."""
    held = {f"%{name}": value for name, value in values.items()}
    return Registers(
        held, TYPES, numbers(), lambda name: Opaque(f"{name} is special"), lambda name: polynomial(len(name))
    )


def the_symbol(value: Any) -> Symbol:
    assert isinstance(value, Polynomial)
    (symbol,) = value.symbols
    assert value == polynomial(symbol)
    return symbol


# ── registers ──


def test_the_width_of_registers() -> None:
    assert {name: registers().bits(name) for name in TYPES} == {
        "%p1": 1, "%h1": 16, "%r1": 32, "%r2": 32, "%d1": 64, "%q1": 8
    }  # fmt: skip


def test_what_operands_are() -> None:
    x = polynomial(Symbol("x"))
    made = registers(r1=x, p1=P)
    assert made.read(Register("%r1")) is x
    assert made.read(Register("%r2")) == Opaque("it was never written")
    assert made.read(Register("%tid.x")) == Opaque("%tid.x is special")
    assert made.read(Immediate(-5)) == polynomial(-5)
    assert made.read(Immediate(5, 32)) == Opaque("it is a float")
    assert made.read(Variable("table", 12)) == polynomial(17)
    assert made.read(Group("not", (Register("%p1"),))) == negation(P)
    assert made.read(Group("negative", (Register("%r1"),))) == -x
    assert made.read(Group("vector", (Register("%r1"),))) == Opaque("it is of several parts")


@pytest.mark.parametrize(("name", "bits"), [("%p1", 1), ("%h1", 16), ("%r1", 32), ("%d1", 64), ("%laneid", 64)])
def test_a_value_that_is_not_known_is_a_number_of_its_register(name: str, bits: int) -> None:
    made = registers()
    symbol = the_symbol(made.number(Register(name)))
    assert (symbol.low, symbol.high) == (-(1 << bits - 1), (1 << bits - 1) - 1)
    assert symbol.varies == {"thread", "block"}
    assert symbol.reason == ("it was never written" if name in TYPES else f"{name} is special")
    again = made.number(Register(name))
    assert (again == polynomial(symbol)) is (name in TYPES)  # a register keeps it


def test_a_truth_as_a_number() -> None:
    chosen = registers(p1=P).number(Register("%p1"))
    assert [values_of(chosen, {P.symbol: value}, range(3)) for value in (0, 1)] == [{0}, {1}]


def test_values_as_truths() -> None:
    made = registers(p1=P, r1=polynomial(3), r2=polynomial(Symbol("x")))
    assert made.predicate(Register("%p1")) == P
    assert made.predicate(Register("%r1")) == TRUE
    assert made.predicate(Immediate(0)) == FALSE
    unknown = made.predicate(Register("%r2"))
    assert isinstance(unknown, Flag)
    assert unknown.symbol.reason == "it is a number"
    assert made.predicate(Register("%r2")) == unknown
    never = made.predicate(Register("%h1"))
    assert isinstance(never, Flag)
    assert (never.symbol.low, never.symbol.high, never.symbol.reason) == (0, 1, "it was never written")
    assert made.predicate(Register("%h1")) == never
    assert made.predicate(Register("%laneid")) != made.predicate(Register("%laneid"))


def test_what_is_written() -> None:
    made = registers()
    made.write(Register("%r1"), polynomial(3))
    made.write(Group("vector", (Register("%r2"), Register("%d1"))), polynomial(4))
    made.write(Register("_"), polynomial(5))
    made.write(Immediate(1), polynomial(5))
    several = Opaque("it is of several parts")
    assert made.values == {"%r1": polynomial(3), "%r2": several, "%d1": several}
    made.write(Group("vector", (Register("%r2"), Register("%d1"))), Opaque("it is a float"))
    assert made.values["%r2"] == made.values["%d1"] == Opaque("it is a float")
    made.write(Register("%h1"), Opaque("it is a float"), P)
    assert made.values["%h1"] == Opaque("it is a float")


def test_the_value_whose_condition_holds() -> None:
    made = registers()
    x = polynomial(Symbol("x", 0, 3))
    assert made.either(((P, x), (negation(P), x))) is x
    truths = made.either(((P, Q), (negation(P), R)))
    for values in all_values([P.symbol, Q.symbol, R.symbol], (0, 1)):
        assert truth(truths, values) == bool(values[Q.symbol] if values[P.symbol] else values[R.symbol])
    assert made.either(((P, x), (negation(P), Opaque("why")))) == Opaque("why")
    assert made.either(((P, x), (negation(P), Q))) == Opaque("it is a number or a truth")
    chosen = made.either(((P, x), (negation(P), x + 2)))
    assert isinstance(chosen, Polynomial)
    assert the_symbol(chosen).high == 5


# ── numbers ──


def values_of(value: Polynomial, known: dict[Symbol, int], among: range) -> set[int]:
    """What a value may be where some symbols are known, as its definitions have it."""
    symbols, definitions = cone([equal(value, Symbol("any"))])
    new = [each for each in symbols if each not in known and each.name != "any"]
    return {
        number(value, {**known, **more})
        for more in all_values(new, among)
        if all(truth(each, {**known, **more}) for each in definitions)
    }


@pytest.mark.parametrize(("low", "high"), [(-4, 3), (0, 7), (1, 6)])
def test_numbers_are_brought_into_a_range(low: int, high: int) -> None:
    size = high - low + 1
    for constant in range(-20, 20):
        found = numbers().in_range(polynomial(constant), low, high)
        assert found.constant is not None
        assert low <= found.constant <= high
        assert (found.constant - constant) % size == 0
    x = Symbol("x", -20, 20)
    made = numbers()
    wrapped = made.in_range(polynomial(x) + 3, low, high)
    assert (the_symbol(wrapped).low, the_symbol(wrapped).high) == (low, high)
    for value in (-20, -7, 0, 5, 20):
        assert values_of(wrapped, {x: value}, range(-8, 9)) == {(value + 3 - low) % size + low}
    assert made.in_range(polynomial(x) + 3, low, high) == wrapped
    narrow = polynomial(Symbol("y", low, high))
    assert made.in_range(narrow, low, high) == narrow
    assert made.in_range(narrow + polynomial(x) * size, low, high) == narrow
    assert made.in_range(narrow + 3 * size, low, high) == narrow
    assert numbers(equal(x, low)).in_range(polynomial(x), low, high) == polynomial(x)
    assert numbers(equal(x, high)).in_range(polynomial(x), low, high) == polynomial(x)
    for outside in (low - 1, high + 1):
        assert numbers(equal(x, outside)).in_range(polynomial(x), low, high) != polynomial(x)


@pytest.mark.parametrize(
    ("bits", "signed", "low", "high"), [(8, True, -128, 127), (8, False, 0, 255), (1, True, -1, 0)]
)
def test_the_range_of_a_register(bits: int, signed: bool, low: int, high: int) -> None:
    symbol = the_symbol(numbers().canonical(polynomial(Symbol("x")), bits, signed))
    assert (symbol.low, symbol.high) == (low, high)


def test_quotients_and_rests() -> None:
    made = numbers()
    x, y = Symbol("x", -9, 9), Symbol("y", 0, 3)
    assert made.divided(polynomial(x), polynomial(1)) == (polynomial(x), polynomial(0))
    assert made.divided(polynomial(x) * 8 + polynomial(y) + 12, polynomial(4)) == (
        polynomial(x) * 2 + 3,
        polynomial(y),
    )
    quotient, rest = made.divided(polynomial(x) * 4 + polynomial(x) + 1, polynomial(4))
    for value in range(-9, 10):
        assert values_of(quotient - polynomial(x) * 0, {x: value}, range(-12, 13)) == {(5 * value + 1) // 4}
        assert values_of(rest, {x: value}, range(-12, 13)) == {(5 * value + 1) % 4}
    assert the_symbol(rest).high == 3
    low, high = quotient.range
    assert low == (-44) // 4 == -11
    assert high == 46 // 4
    assert made.divided(polynomial(x) * 4 + polynomial(x) + 1, polynomial(4)) == (quotient, rest)


def test_quotients_of_divisors_that_are_no_numbers() -> None:
    made = numbers()
    x, by = Symbol("x", 0, 9, frozenset({"thread"})), Symbol("by", 0, 4, frozenset({"block"}))
    quotient, rest = (the_symbol(each) for each in made.divided(polynomial(x), polynomial(by)))
    assert (quotient.low, quotient.high, rest.low, rest.high) == (0, 9, 0, None)
    assert quotient.varies == rest.varies == {"thread", "block"}
    for a, b in itertools.product(range(10), range(1, 5)):
        assert values_of(polynomial(quotient), {x: a, by: b}, range(10)) == {a // b}
        assert values_of(polynomial(rest), {x: a, by: b}, range(10)) == {a % b}
    assert len(values_of(polynomial(quotient), {x: 3, by: 0}, range(10))) == 10
    below = Symbol("z", -1, 9)
    quotient = the_symbol(made.divided(polynomial(below), polynomial(by))[0])
    assert (quotient.low, quotient.high) == (None, None)


def test_choices() -> None:
    made = numbers()
    x, base = Symbol("x", 1, 3, frozenset({"thread"})), polynomial(Symbol("&a", is_base=True))
    assert made.chosen([(P, polynomial(x)), (FALSE, polynomial(9))]) == polynomial(x)
    assert made.chosen([(P, polynomial(x)), (Q, polynomial(x))]) == polynomial(x)
    nothing = the_symbol(made.chosen([(FALSE, polynomial(1))]))
    assert (nothing.low, nothing.high, nothing.reason) == (None, None, "it has no value")
    chosen = made.chosen([(P, base + x), (negation(P), base + 7)])
    assert chosen.bases() == base
    symbol = the_symbol(chosen - base)
    assert (symbol.low, symbol.high, symbol.varies) == (1, 7, frozenset({"thread"}))
    for value, flag in itertools.product((1, 3), (0, 1)):
        found = values_of(chosen - base, {x: value, P.symbol: flag}, range(9))
        assert found == {value if flag else 7}
    other = polynomial(Symbol("&b", is_base=True))
    mixed = made.chosen([(P, base), (negation(P), other)])
    assert mixed.bases() == polynomial(0)
    assert (the_symbol(mixed).low, the_symbol(mixed).high) == (None, None)


@pytest.mark.parametrize("operator", ["eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"])
def test_comparisons_of_registers(operator: str) -> None:
    python = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(operator, operator)
    for a, b in itertools.product((-128, -1, 0, 1, 127), repeat=2):
        for signed in (False, True):
            x, y = (a, b) if signed else (a & 255, b & 255)
            found = numbers().compare(operator, polynomial(a), polynomial(b + 256), 8, signed)
            assert found == (TRUE if getattr(x, f"__{python}__")(y) else FALSE), (a, b, signed)
    made = numbers()
    made.compare("eq", polynomial(P.symbol), polynomial(1), 8, True)
    made.compare("lt", polynomial(P.symbol), polynomial(1), 8, True)
    assert made.compared == [polynomial(P.symbol) - 1]


# ── ways that meet ──


def test_conditions_of_ways_that_meet() -> None:
    a, b, c = at_least(Symbol("a"), 0), at_least(Symbol("b"), 0), at_least(Symbol("c"), 0)
    path, rests = merged([(a, b, c), (a, b, negation(c))])
    assert (path, rests) == ((a, b), [c, negation(c)])
    path, rests = merged([(a, b), (a, negation(b), c)])
    assert rests == [b, everything((negation(b), c))]
    assert path == (a, some((b, c)))
    assert merged([(a, b), (a,)]) == ((a,), [b, TRUE])
    assert conjuncts(everything((a, b))) == (a, b)
    assert conjuncts(a) == (a,)


def test_any_of_some_conditions_means_the_same() -> None:
    flags = (P, Q, R)
    literals = [*flags, *map(negation, flags)]
    parts = [
        everything(each)
        for each in itertools.chain(itertools.combinations(literals, 1), itertools.combinations(literals, 2))
    ]
    choices = [*all_values([each.symbol for each in flags], (0, 1))]
    for each in itertools.combinations(parts, 3):
        joined = union([*each])
        for values in choices:
            assert truth(joined, values) == any(truth(part, values) for part in each)
    assert union([P, negation(P)]) == TRUE
    assert union([everything((P, Q)), everything((P, negation(Q)))]) == P
    assert union([everything((P, Q)), everything((P, negation(Q))), R]) == some((P, R))
    assert union([P, everything((negation(P), Q))]) == some((P, Q))
    known = LastRound(at_least(Symbol("a"), 0))
    assert union([everything((known, P)), everything((known, negation(P)))]) == known
