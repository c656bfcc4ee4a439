"""Polynomials and formulas mean the same after each step that simplifies them."""

from __future__ import annotations

import itertools
import random

import pytest
from support.formulas import all_values, number, truth

from cudakit.proof.terms import (
    FALSE,
    TRUE,
    All,
    Atom,
    Flag,
    Formula,
    LastRound,
    Not,
    Renaming,
    Some,
    Symbol,
    at_least,
    atoms,
    cone,
    equal,
    everything,
    has_last_round,
    implies,
    negation,
    polynomial,
    range_of,
    some,
    symbols_in,
)

SMALL = range(-2, 3)
X, Y = Symbol("x"), Symbol("y")
P = Flag(Symbol("p", 0, 1))
A, B = polynomial(X), polynomial(Y)


def test_arithmetic_of_polynomials() -> None:
    value = (A + 2) * (B - A) - B * 3 + 5 - A
    for values in all_values([X, Y], SMALL):
        x, y = values[X], values[Y]
        assert number(value, values) == (x + 2) * (y - x) - y * 3 + 5 - x
        assert number(-value, values) == -number(value, values)
    assert (A * B) == (B * A)
    assert hash(A * B + 1) == hash(B * A + 1)
    assert (A - A).terms == {}
    assert A != 1
    assert repr(A * B * 2 + 3) == f"2*{X!r}*{Y!r} + 3"
    assert repr(A - A) == "0"


def test_parts_of_polynomials() -> None:
    base = Symbol("&x", is_base=True)
    value = polynomial(base) * 2 + A * B * 4 + A * 6 - 7
    assert value.symbols == (base, X, Y)
    assert value.bases() == polynomial(base) * 2
    assert value.constant is None
    assert (polynomial(7).constant, (A - A).constant) == (7, 0)
    assert (A * B + A).varies == frozenset()
    thread = polynomial(Symbol("t", varies=frozenset({"thread"})))
    assert (thread + A).varies == {"thread"}
    for divisor in (1, 2, 4, 3):
        quotient, rest = value.split(divisor)
        assert quotient * divisor + rest == value
        assert all(factor % divisor for product, factor in rest.terms.items() if product)
        assert 0 <= rest.terms.get((), 0) < divisor
    assert value.split(4) == (A * B - 2, polynomial(base) * 2 + A * 6 + 1)


def test_ranges_hold_and_are_reached() -> None:
    for (a, b), (c, d) in itertools.product(itertools.combinations(SMALL, 2), repeat=2):
        x, y = Symbol("x", a, b), Symbol("y", c, d)
        for value in (polynomial(x) * 3 - polynomial(y) + 1, polynomial(x) * polynomial(y) * -2 + 5):
            found = [number(value, values) for values in all_values([x, y], SMALL)]
            assert value.range == (min(found), max(found))
            assert value.within(min(found), max(found))
            assert not value.within(min(found) + 1, max(found))
            assert not value.within(min(found), max(found) - 1)


def test_ranges_without_an_end() -> None:
    low, high, free = Symbol("l", 2), Symbol("h", None, 5), Symbol("f")
    assert (polynomial(low) * 3 + 1).range == (7, None)
    assert (polynomial(low) * -3 + 1).range == (None, -5)
    assert (polynomial(high) - 1).range == (None, None)
    assert (polynomial(low) * polynomial(Symbol("m", 3))).range == (6, None)
    assert (polynomial(low) * polynomial(high)).range == (None, None)
    assert not polynomial(low).within(0, 100)
    assert not polynomial(high).within(0, 100)
    assert range_of((free, low)) == (None, None)
    square = Symbol("s", -3, 2)
    assert range_of((square, square)) == (0, 9)


@pytest.mark.parametrize("bound", SMALL)
def test_comparisons_are_decided_by_their_ranges(bound: int) -> None:
    x = Symbol("x", -1, 1)
    for formula, holds in (
        (at_least(x, bound), lambda value: value >= bound),
        (at_least(bound, x), lambda value: bound >= value),
        (equal(x, bound), lambda value: value == bound),
    ):
        truths = {holds(value) for value in (-1, 0, 1)}
        assert (formula == TRUE) == (truths == {True})
        if formula == FALSE:
            assert truths == {False}
        assert all(truth(formula, {x: value}) == holds(value) for value in (-1, 0, 1))
    assert equal(x, 2) == FALSE == equal(x, -2) == at_least(x, 2)
    assert equal(polynomial(x) - polynomial(x), 0) == TRUE


def _drawn(rng: random.Random, depth: int) -> Formula:
    kind = rng.randrange(3 if depth else 6)
    if depth and kind == 0:
        return negation(_drawn(rng, depth - 1))
    if depth:
        parts = [_drawn(rng, depth - 1) for _ in range(rng.randrange(4))]
        return (everything if kind == 1 else some)(parts)
    value = A * rng.randint(-1, 1) + B * rng.randint(-1, 1) + rng.randint(-1, 1)
    return [TRUE, FALSE, P, at_least(value, 0), equal(value, 0), Not(P)][kind]


def _plain(rng: random.Random, depth: int) -> Formula:
    """The same, put together without being simplified."""
    kind = rng.randrange(3 if depth else 6)
    if depth and kind == 0:
        return Not(_plain(rng, depth - 1))
    if depth:
        parts = tuple(_plain(rng, depth - 1) for _ in range(rng.randrange(4)))
        return All(parts) if kind == 1 else Some(parts)
    value = A * rng.randint(-1, 1) + B * rng.randint(-1, 1) + rng.randint(-1, 1)
    return [TRUE, FALSE, P, Atom(value, False), Atom(value, True), Not(P)][kind]


def test_simplified_formulas_mean_the_same() -> None:
    choices = [*all_values([X, Y, P.symbol], (-1, 0, 1))]
    for seed in range(300):
        formula = _drawn(random.Random(seed), 3)
        plain = _plain(random.Random(seed), 3)
        opposite = negation(formula)
        for values in choices:
            assert truth(formula, values) == truth(plain, values)
            assert truth(opposite, values) != truth(formula, values)


def test_formulas_are_short() -> None:
    first, second = at_least(A, 1), equal(B, 2)
    assert everything([]) == TRUE
    assert some([]) == FALSE
    assert everything([first]) == some([first]) == first
    assert everything([first, All((second, P))]) == All((first, second, P))
    assert some([first, Some((second, P))]) == Some((first, second, P))
    assert everything([first, first]) == first
    assert everything([first, negation(first)]) == everything([second, Not(second)]) == FALSE
    assert some([first, negation(first)]) == some([Not(P), P]) == TRUE
    assert everything([first, FALSE]) == FALSE
    assert some([first, TRUE]) == TRUE
    assert negation(negation(second)) == second
    assert negation(first) == at_least(0, A)
    assert negation(LastRound(first)) == FALSE
    assert implies(first, second) == some((negation(first), second))


def test_what_formulas_are_made_of() -> None:
    first, second = at_least(A, 1), equal(B, A)
    formula = Some((All((first, P)), Not(second), LastRound(second)))
    assert list(atoms(formula)) == [first, P, second, second]
    assert set(symbols_in(formula)) == {X, Y, P.symbol}
    assert has_last_round(formula)
    assert not has_last_round(Some((All((first, P)), Not(second))))
    assert has_last_round(Not(LastRound(first)))


def test_symbols_come_with_what_defines_them() -> None:
    x, y, z = Symbol("x"), Symbol("y"), Symbol("z")
    y.definition = (at_least(y, x),)
    z.definition = (equal(z, polynomial(y) + 1), at_least(y, x))
    symbols, definitions = cone([at_least(z, 0)])
    assert set(symbols) == {x, y, z}
    assert sorted(map(repr, definitions)) == sorted(map(repr, {*y.definition, *z.definition}))
    assert cone([at_least(x, 0)]) == ({x: None}, [])


def test_renaming_gives_another_thread_other_symbols() -> None:
    shared = Symbol("n", 0, 9)
    thread = Symbol("t", 0, 3, frozenset({"thread"}), "why", True)
    thread.definition = (at_least(shared, thread),)
    other = Renaming({"thread"})
    value = other.polynomial(polynomial(shared) * polynomial(thread) * 2 + 5)
    (renamed,) = set(value.symbols) - {shared}
    assert value == polynomial(shared) * polynomial(renamed) * 2 + 5
    assert (renamed.name, renamed.low, renamed.high, renamed.varies) == ("t'", 0, 3, frozenset({"thread"}))
    assert (renamed.reason, renamed.is_base) == ("why", True)
    assert renamed.definition == (at_least(shared, renamed),)
    assert other.symbol(thread) == polynomial(renamed)
    assert other.formula(Not(equal(thread, 2))) == negation(equal(renamed, 2))
    assert other.formula(LastRound(at_least(thread, 1))) == LastRound(at_least(renamed, 1))
    assert other.formula(All((at_least(thread, 1), P))) == everything((at_least(renamed, 1), P))
    assert other.formula(Some((at_least(thread, 1), P))) == some((at_least(renamed, 1), P))
    flag = Flag(Symbol("q", 0, 1, frozenset({"thread"})))
    assert isinstance(other.formula(flag), Flag)
    assert other.formula(flag) != flag
    assert Renaming({"block"}).polynomial(polynomial(thread)) == polynomial(thread)
    known = Renaming((), {thread: polynomial(shared) + 1})
    assert known.polynomial(polynomial(thread) * 2) == polynomial(shared) * 2 + 2
