"""Integers as polynomials of symbols, and formulas about them.

Registers hold bits. A polynomial stands for the bits that equal it modulo 2 to the width of its register.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

_numbers = itertools.count()


@dataclass(eq=False, slots=True)
class Symbol:
    """An unknown integer.

    Attributes
    ----------
    name : str
    low, high : int or None
        Bounds, both included.
    varies : frozenset of str
        Scopes with which the value varies: ``thread``, ``block``, loops.
    reason : str
        Reason that the value is not known exactly; empty if it is.
    is_base : bool
        Whether the symbol is the address of an array.
    definition : tuple of Formula
        Definition by other symbols, which has a solution for all their values.
    """

    name: str
    low: int | None = None
    high: int | None = None
    varies: frozenset[str] = frozenset()
    reason: str = ""
    is_base: bool = False
    definition: tuple[Formula, ...] = ()
    number: int = field(default_factory=lambda: next(_numbers))

    def __repr__(self) -> str:
        return f"{self.name}!{self.number}"


Monomial: TypeAlias = tuple[Symbol, ...]


class Polynomial:
    """A sum of products of symbols, with integer factors."""

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {product: factor for product, factor in terms.items() if factor}

    def __add__(self, other: Polynomial | int) -> Polynomial:
        return self._sum(other, 1)

    def __neg__(self) -> Polynomial:
        return self * -1

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self._sum(other, -1)

    def _sum(self, other: Polynomial | int, sign: int) -> Polynomial:
        terms = dict(self.terms)
        for product, factor in polynomial(other).terms.items():
            terms[product] = terms.get(product, 0) + sign * factor
        return Polynomial(terms)

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        if isinstance(other, int):
            return Polynomial({product: factor * other for product, factor in self.terms.items()})
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                product = tuple(sorted(left + right, key=lambda symbol: symbol.number))
                terms[product] = terms.get(product, 0) + a * b
        return Polynomial(terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __repr__(self) -> str:
        return " + ".join("*".join([str(factor), *map(repr, product)]) for product, factor in self.terms.items()) or "0"

    @property
    def constant(self) -> int | None:
        """Value of a constant polynomial; None for any other."""
        return None if any(self.terms) else self.terms.get((), 0)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All symbols, in the order of the terms."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(self.terms)))

    @property
    def varies(self) -> frozenset[str]:
        """Scopes with which the value varies: those of all its symbols."""
        return frozenset().union(*(symbol.varies for symbol in self.symbols))

    @cached_property
    def range(self) -> tuple[int | None, int | None]:
        """Bounds of the value, from the bounds of its symbols."""
        low: int | None = 0
        high: int | None = 0
        for product, factor in self.terms.items():
            a, b = range_of(product)
            if factor < 0:
                a, b = b, a
            low = None if low is None or a is None else low + factor * a
            high = None if high is None or b is None else high + factor * b
        return low, high

    def within(self, low: int, high: int) -> bool:
        """Return whether the value is from `low` to `high`, both included, by the bounds of its symbols alone.

        False means that this is not known.
        """
        least, most = self.range
        return least is not None and most is not None and low <= least and most <= high

    def split(self, divisor: int) -> tuple[Polynomial, Polynomial]:
        """Return a quotient and a remainder, so that the value is the quotient times the divisor plus the remainder.

        Terms whose factor the divisor divides go to the quotient, other terms unchanged to the remainder. The constant
        is divided. The remainder may be greater than the divisor.
        """
        quotient = {product: factor // divisor for product, factor in self.terms.items() if product}
        rest = {product: factor % divisor for product, factor in self.terms.items() if product}
        quotient = {product: factor for product, factor in quotient.items() if not rest[product]}
        whole, left = divmod(self.terms.get((), 0), divisor)
        remainder = {product: self.terms[product] for product, factor in rest.items() if factor}
        return Polynomial({**quotient, (): whole}), Polynomial({**remainder, (): left})

    def bases(self) -> Polynomial:
        """Return the sum of the terms in which the address of an array is a factor; 0 if there is none."""
        return Polynomial(
            {product: factor for product, factor in self.terms.items() if any(symbol.is_base for symbol in product)}
        )


def polynomial(value: Polynomial | Symbol | int) -> Polynomial:
    """Return a symbol or a number as a polynomial."""
    if isinstance(value, Polynomial):
        return value
    return Polynomial({(value,): 1} if isinstance(value, Symbol) else {(): value})


def range_of(product: Monomial) -> tuple[int | None, int | None]:
    """Return the bounds of a product."""
    low: int | None = 1
    high: int | None = 1
    for symbol in product:
        if low is not None and high is not None and symbol.low is not None and symbol.high is not None:
            corners = [a * b for a in (low, high) for b in (symbol.low, symbol.high)]
            low, high = min(corners), max(corners)
        elif low is not None and low >= 0 and symbol.low is not None and symbol.low >= 0:
            low, high = low * symbol.low, None
        else:
            return None, None
    if len(product) == 2 and product[0] is product[1]:
        low = max(0, low) if low is not None else 0
    return low, high


@dataclass(frozen=True)
class Atom:
    """The formula ``value >= 0``, or ``value == 0`` if `is_equality`, for a polynomial."""

    value: Polynomial
    is_equality: bool

    @cached_property
    def negated(self) -> Formula:
        """Negation, which is simplified unless this is an equality."""
        return Not(self) if self.is_equality else at_least(-self.value, 1)


@dataclass(frozen=True)
class Flag:
    """An unknown truth value: a symbol that is 0 or 1."""

    symbol: Symbol


@dataclass(frozen=True)
class Not:
    """Negation of a formula."""

    item: Formula


@dataclass(frozen=True)
class All:
    """Conjunction of formulas."""

    items: tuple[Formula, ...]


@dataclass(frozen=True)
class Some:
    """Disjunction of formulas."""

    items: tuple[Formula, ...]


@dataclass(frozen=True)
class LastRound:
    """Conditions of a loop's last round, which hold for a thread behind the loop.

    The `negation` of this formula is false: all threads that enter the loop leave it, so none is without a last round.
    """

    item: Formula


Formula: TypeAlias = Atom | Flag | Not | All | Some | LastRound
TRUE: Formula = All(())
FALSE: Formula = Some(())


def at_least(left: Polynomial | Symbol | int, right: Polynomial | Symbol | int) -> Formula:
    """Return the formula ``left >= right``."""
    value = polynomial(left) - polynomial(right)
    low, high = value.range
    if low is not None and low >= 0:
        return TRUE
    return FALSE if high is not None and high < 0 else Atom(value, False)


def equal(left: Polynomial | Symbol | int, right: Polynomial | Symbol | int) -> Formula:
    """Return the formula ``left == right``."""
    value = polynomial(left) - polynomial(right)
    low, high = value.range
    if low == high == 0:
        return TRUE
    return FALSE if (low is not None and low > 0) or (high is not None and high < 0) else Atom(value, True)


def negation(item: Formula) -> Formula:
    """Return the negation of a formula."""
    if isinstance(item, LastRound):
        return FALSE
    if isinstance(item, Not):
        return item.item
    if isinstance(item, Atom):
        return item.negated
    if isinstance(item, All):
        return some(map(negation, item.items))
    if isinstance(item, Some):
        return everything(map(negation, item.items))
    return Not(item)


def everything(items: Iterable[Formula]) -> Formula:
    """Return the conjunction of formulas, simplified."""
    return _joined(items, All, FALSE)


def some(items: Iterable[Formula]) -> Formula:
    """Return the disjunction of formulas, simplified."""
    return _joined(items, Some, TRUE)


def _joined(items: Iterable[Formula], join: type[All | Some], decides: Formula) -> Formula:
    """Return the conjunction or disjunction of formulas, by the class `join`, simplified.

    The result is `decides` if one of the formulas equals `decides`, or if a formula and its negation are among them.
    """
    parts: dict[Formula, None] = {}
    for item in items:
        if item == decides:
            return decides
        parts.update(dict.fromkeys(item.items) if isinstance(item, join) else {item: None})
    if any(isinstance(item, Atom | Flag | Not) and negation(item) in parts for item in parts):
        return decides
    return next(iter(parts)) if len(parts) == 1 else join(tuple(parts))


def implies(condition: Formula, then: Formula) -> Formula:
    """Return the implication ``condition -> then``."""
    return some((negation(condition), then))


def divided(value: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Return two new symbols for the quotient, rounded down, and the remainder of a division.

    Their definitions apply only to a divisor above 0. For other divisors the symbols are unknown.
    """
    varies, number, (low, high) = value.varies | divisor.varies, divisor.constant, value.range
    quotient = Symbol("quotient", None, None, varies)
    if number is not None:
        quotient.low = None if low is None else low // number
        quotient.high = None if high is None else high // number
    elif low is not None and low >= 0:
        quotient.low, quotient.high = 0, high
    rest = Symbol("rest", 0, None if number is None else number - 1, varies)
    laws = equal(value, divisor * polynomial(quotient) + polynomial(rest)), at_least(divisor - 1, polynomial(rest))
    # The laws hold only for a divisor above 0, so that they never exclude other ones.
    quotient.definition = rest.definition = tuple(implies(at_least(divisor, 1), law) for law in laws)
    return polynomial(quotient), polynomial(rest)


def atoms(item: Formula) -> Iterator[Atom | Flag]:
    """Yield the atoms and flags of a formula."""
    if isinstance(item, Atom | Flag):
        yield item
    elif isinstance(item, Not | LastRound):
        yield from atoms(item.item)
    else:
        for part in item.items:
            yield from atoms(part)


def has_last_round(item: Formula) -> bool:
    """Return whether a formula has conditions of a loop's last round."""
    if isinstance(item, Atom | Flag):
        return False
    if isinstance(item, Not | LastRound):
        return isinstance(item, LastRound) or has_last_round(item.item)
    return any(map(has_last_round, item.items))


def symbols_in(item: Formula) -> Iterator[Symbol]:
    """Yield the symbols of a formula."""
    for atom in atoms(item):
        if isinstance(atom, Flag):
            yield atom.symbol
        else:
            yield from atom.value.symbols


def cone(items: Iterable[Formula]) -> tuple[dict[Symbol, None], list[Formula]]:
    """Return all symbols on which formulas depend, and the definitions of these symbols.

    The symbols are those in the formulas, in the definitions of these, and so on. They are the keys of the first
    result.
    """
    symbols: dict[Symbol, None] = {}
    definitions: dict[Formula, None] = {}
    waiting = [symbol for item in items for symbol in symbols_in(item)]
    while waiting:
        symbol = waiting.pop()
        if symbol in symbols:
            continue
        symbols[symbol] = None
        for definition in symbol.definition:
            if definition not in definitions:
                definitions[definition] = None
                waiting += symbols_in(definition)
    return symbols, list(definitions)


class Renaming:
    """Renaming of symbols for another thread, block or iteration: symbols that vary with these get new ones.

    Parameters
    ----------
    varies : iterable of str
        Scopes that differ.
    mapping : mapping of Symbol to Polynomial
        Values that replace some symbols.
    """

    varies: frozenset[str]

    def __init__(self, varies: Iterable[str], mapping: Mapping[Symbol, Polynomial] | None = None) -> None:
        self.varies = frozenset(varies)
        self.mapping: dict[Symbol, Polynomial] = dict(mapping or {})

    def symbol(self, original: Symbol) -> Polynomial:
        renamed = self.mapping.get(original)
        if renamed is not None:
            return renamed
        if self.varies.isdisjoint(original.varies):
            self.mapping[original] = polynomial(original)
            return self.mapping[original]
        other = Symbol(
            original.name + "'", original.low, original.high, original.varies, original.reason, original.is_base
        )
        self.mapping[original] = polynomial(other)
        other.definition = tuple(map(self.formula, original.definition))
        return self.mapping[original]

    def polynomial(self, value: Polynomial) -> Polynomial:
        total = polynomial(0)
        for product, factor in value.terms.items():
            part = polynomial(factor)
            for symbol in product:
                part = part * self.symbol(symbol)
            total = total + part
        return total

    def formula(self, item: Formula) -> Formula:
        if isinstance(item, Atom):
            value = self.polynomial(item.value)
            return equal(value, 0) if item.is_equality else at_least(value, 0)
        if isinstance(item, Flag):
            (product,) = self.symbol(item.symbol).terms
            return Flag(product[0])
        if isinstance(item, Not):
            return negation(self.formula(item.item))
        if isinstance(item, LastRound):
            return LastRound(self.formula(item.item))
        make = everything if isinstance(item, All) else some
        return make(map(self.formula, item.items))
