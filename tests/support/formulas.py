"""What a proof's polynomials and formulas are for chosen values of their symbols."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from cudakit.proof.terms import All, Atom, Flag, Formula, LastRound, Not, Polynomial, Some, Symbol

Values = Mapping[Symbol, int]


def number(value: Polynomial, values: Values) -> int:
    """A polynomial's value."""
    return sum(factor * prod(values[symbol] for symbol in product) for product, factor in value.terms.items())


def truth(formula: Formula, values: Values) -> bool:
    """A formula's truth."""
    if isinstance(formula, Atom):
        found = number(formula.value, values)
        return found == 0 if formula.is_equality else found >= 0
    if isinstance(formula, Flag):
        return bool(values[formula.symbol])
    if isinstance(formula, Not):
        return not truth(formula.item, values)
    if isinstance(formula, LastRound):
        return truth(formula.item, values)
    if isinstance(formula, All):
        return all(truth(each, values) for each in formula.items)
    assert isinstance(formula, Some)
    return any(truth(each, values) for each in formula.items)


def all_values(symbols: Sequence[Symbol], numbers: Sequence[int]) -> Iterator[dict[Symbol, int]]:
    """Each choice of these numbers for symbols that keeps within their ranges."""
    for chosen in itertools.product(numbers, repeat=len(symbols)):
        values = dict(zip(symbols, chosen, strict=True))
        if all((s.low is None or s.low <= v) and (s.high is None or v <= s.high) for s, v in values.items()):
            yield values
