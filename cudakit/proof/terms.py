"""Whole numbers as polynomials of symbols, and formulas about them.

Registers hold bits; a polynomial stands for the bits that it is equal to modulo 2 to the width of its register.
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
    """An unknown whole number.

    Attributes
    ----------
    name : str
    low, high : int or None
        Between which it lies, both included.
    varies : frozenset of str
        With what it varies: ``thread``, ``block``, loops.
    reason : str
        Why its value is not known exactly; empty where it is.
    is_base : bool
        Whether it is where an array begins.
    definition : tuple of Formula
        What it is in terms of others; each value of those leaves it one.
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
    """A sum of products of symbols, with whole factors."""

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {product: factor for product, factor in terms.items() if factor}

    def __add__(self, other: Polynomial | int) -> Polynomial:
        terms = dict(self.terms)
        for product, factor in polynomial(other).terms.items():
            terms[product] = terms.get(product, 0) + factor
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return self * -1

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + -polynomial(other)

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in polynomial(other).terms.items():
                product = tuple(sorted(left + right, key=lambda each: each.number))
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
        """Its value, where it is a number."""
        return None if any(self.terms) else self.terms.get((), 0)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All symbols in it, in the order of its terms."""
        return tuple(dict.fromkeys(itertools.chain.from_iterable(self.terms)))

    @property
    def varies(self) -> frozenset[str]:
        """With what it varies."""
        return frozenset().union(*(each.varies for each in self.symbols))

    @cached_property
    def range(self) -> tuple[int | None, int | None]:
        """Between which numbers it lies, as its symbols' ranges tell."""
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
        """Whether its symbols' ranges alone say that it lies between two numbers."""
        least, most = self.range
        return least is not None and most is not None and low <= least and most <= high

    def split(self, divisor: int) -> tuple[Polynomial, Polynomial]:
        """Quotient and rest: terms that a divisor divides, divided, and the others."""
        quotient = {product: factor // divisor for product, factor in self.terms.items() if product}
        rest = {product: factor % divisor for product, factor in self.terms.items() if product}
        quotient = {product: factor for product, factor in quotient.items() if not rest[product]}
        whole, left = divmod(self.terms.get((), 0), divisor)
        kept = {product: self.terms[product] for product, factor in rest.items() if factor}
        return Polynomial({**quotient, (): whole}), Polynomial({**kept, (): left})

    def bases(self) -> Polynomial:
        """Its part of arrays' beginnings."""
        return Polynomial(
            {product: factor for product, factor in self.terms.items() if any(each.is_base for each in product)}
        )


def polynomial(value: Polynomial | Symbol | int) -> Polynomial:
    """A symbol or a number as a polynomial."""
    if isinstance(value, Polynomial):
        return value
    return Polynomial({(value,): 1} if isinstance(value, Symbol) else {(): value})


def range_of(product: Monomial) -> tuple[int | None, int | None]:
    """Between which numbers a product lies."""
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
    """``value >= 0``, or ``value == 0``."""

    value: Polynomial
    is_equality: bool


@dataclass(frozen=True)
class Flag:
    """An unknown truth: a symbol that is 0 or 1."""

    symbol: Symbol


@dataclass(frozen=True)
class Not:
    """The opposite."""

    item: Formula


@dataclass(frozen=True)
class All:
    """All of them."""

    items: tuple[Formula, ...]


@dataclass(frozen=True)
class Some:
    """At least one of them."""

    items: tuple[Formula, ...]


@dataclass(frozen=True)
class Known:
    """What the last round of a loop meets, which a thread comes to, for it leaves the loop.

    Where it stands under `negation`, a thread is to be elsewhere for another reason.
    """

    item: Formula


Formula: TypeAlias = Atom | Flag | Not | All | Some | Known
TRUE: Formula = All(())
FALSE: Formula = Some(())


def at_least(left: Polynomial | Symbol | int, right: Polynomial | Symbol | int) -> Formula:
    """``left >= right``."""
    value = polynomial(left) - polynomial(right)
    low, high = value.range
    if low is not None and low >= 0:
        return TRUE
    return FALSE if high is not None and high < 0 else Atom(value, False)


def equal(left: Polynomial | Symbol | int, right: Polynomial | Symbol | int) -> Formula:
    """``left == right``."""
    value = polynomial(left) - polynomial(right)
    low, high = value.range
    if low == high == 0:
        return TRUE
    return FALSE if (low is not None and low > 0) or (high is not None and high < 0) else Atom(value, True)


def negation(item: Formula) -> Formula:
    """Not that."""
    if isinstance(item, Known):
        return FALSE
    if isinstance(item, Not):
        return item.item
    if isinstance(item, Atom) and not item.is_equality:
        return at_least(-item.value, 1)
    if isinstance(item, All):
        return some(map(negation, item.items))
    if isinstance(item, Some):
        return everything(map(negation, item.items))
    return Not(item)


def everything(items: Iterable[Formula]) -> Formula:
    """All of them, simplified."""
    return _joined(items, All, FALSE)


def some(items: Iterable[Formula]) -> Formula:
    """Any of them, simplified."""
    return _joined(items, Some, TRUE)


def _joined(items: Iterable[Formula], join: type[All | Some], decides: Formula) -> Formula:
    """All or any of some formulas: one that `decides` is enough, and so is one with its opposite."""
    parts: dict[Formula, None] = {}
    for item in items:
        if item == decides:
            return decides
        parts.update(dict.fromkeys(item.items) if isinstance(item, join) else {item: None})
    if any(isinstance(item, Atom | Flag | Not) and negation(item) in parts for item in parts):
        return decides
    return next(iter(parts)) if len(parts) == 1 else join(tuple(parts))


def implies(condition: Formula, then: Formula) -> Formula:
    """Either not the one, or the other."""
    return some((negation(condition), then))


def divided(value: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Quotient, rounded down, and rest, as symbols; of a divisor that is above 0."""
    varies, number, (low, high) = value.varies | divisor.varies, divisor.constant, value.range
    quotient = Symbol("quotient", None, None, varies)
    if number is not None:
        quotient.low = None if low is None else low // number
        quotient.high = None if high is None else high // number
    elif low is not None and low >= 0:
        quotient.low, quotient.high = 0, high
    rest = Symbol("rest", 0, None if number is None else number - 1, varies)
    laws = equal(value, divisor * polynomial(quotient) + polynomial(rest)), at_least(divisor - 1, polynomial(rest))
    # It says nothing where the divisor is none, so that it never excludes that.
    quotient.definition = rest.definition = tuple(implies(at_least(divisor, 1), law) for law in laws)
    return polynomial(quotient), polynomial(rest)


def atoms(item: Formula) -> Iterator[Atom | Flag]:
    """What a formula is made of."""
    if isinstance(item, Atom | Flag):
        yield item
    elif isinstance(item, Not | Known):
        yield from atoms(item.item)
    else:
        for each in item.items:
            yield from atoms(each)


def knows(item: Formula) -> bool:
    """Whether anything of a loop's last round stands in a formula."""
    if isinstance(item, Atom | Flag):
        return False
    if isinstance(item, Not | Known):
        return isinstance(item, Known) or knows(item.item)
    return any(map(knows, item.items))


def symbols_in(item: Formula) -> Iterator[Symbol]:
    """The symbols of a formula."""
    for atom in atoms(item):
        if isinstance(atom, Flag):
            yield atom.symbol
        else:
            yield from atom.value.symbols


def cone(items: Iterable[Formula]) -> tuple[dict[Symbol, None], list[Formula]]:
    """The symbols of formulas and of all that defines them, and those definitions."""
    found: dict[Symbol, None] = {}
    definitions: dict[Formula, None] = {}
    waiting = [symbol for item in items for symbol in symbols_in(item)]
    while waiting:
        symbol = waiting.pop()
        if symbol in found:
            continue
        found[symbol] = None
        for definition in symbol.definition:
            if definition not in definitions:
                definitions[definition] = None
                waiting += symbols_in(definition)
    return found, list(definitions)


class Renaming:
    """The same for another thread, block or iteration: what varies with them is another, all else the same.

    Parameters
    ----------
    varies : iterable of str
    known : mapping of Symbol to Polynomial
        What is put in the place of some.
    """

    varies: frozenset[str]

    def __init__(self, varies: Iterable[str], known: Mapping[Symbol, Polynomial] | None = None) -> None:
        self.varies = frozenset(varies)
        self.known: dict[Symbol, Polynomial] = dict(known or {})

    def symbol(self, given: Symbol) -> Polynomial:
        found = self.known.get(given)
        if found is not None:
            return found
        if self.varies.isdisjoint(given.varies):
            self.known[given] = polynomial(given)
            return self.known[given]
        other = Symbol(given.name + "'", given.low, given.high, given.varies, given.reason, given.is_base)
        self.known[given] = polynomial(other)
        other.definition = tuple(map(self.formula, given.definition))
        return self.known[given]

    def polynomial(self, given: Polynomial) -> Polynomial:
        total = polynomial(0)
        for product, factor in given.terms.items():
            part = polynomial(factor)
            for symbol in product:
                part = part * self.symbol(symbol)
            total = total + part
        return total

    def formula(self, given: Formula) -> Formula:
        if isinstance(given, Atom):
            value = self.polynomial(given.value)
            return equal(value, 0) if given.is_equality else at_least(value, 0)
        if isinstance(given, Flag):
            (product,) = self.symbol(given.symbol).terms
            return Flag(product[0])
        if isinstance(given, Not):
            return negation(self.formula(given.item))
        if isinstance(given, Known):
            return Known(self.formula(given.item))
        make = everything if isinstance(given, All) else some
        return make(map(self.formula, given.items))
