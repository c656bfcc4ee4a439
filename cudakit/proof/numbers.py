"""Operations on registers' values: exact where they can be said, else a new symbol that says why not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cudakit.proof.solver import Solver
from cudakit.proof.terms import (
    FALSE,
    TRUE,
    All,
    Flag,
    Formula,
    Polynomial,
    Symbol,
    at_least,
    equal,
    everything,
    implies,
    knows,
    negation,
    polynomial,
    some,
    symbols_in,
)

_QUICK_S = 1.0


@dataclass(frozen=True)
class Opaque:
    """A value of which nothing is known, such as a float."""

    reason: str


@dataclass
class Numbers:
    """What is asked and made under a path: conditions under which the values are used.

    Attributes
    ----------
    solver : Solver
    given : list of Formula
        What always holds.
    path : tuple of Formula
        What holds here.
    inside : frozenset of str
        The loops around.
    """

    solver: Solver
    given: list[Formula]
    path: tuple[Formula, ...] = ()
    inside: frozenset[str] = frozenset()
    #: Differences that were compared with 0, before they were brought into a register's range.
    compared: list[Polynomial] = field(default_factory=list)
    _quotients: dict[tuple[Polynomial, Polynomial], tuple[Polynomial, Polynomial]] = field(default_factory=dict)
    _wrapped: dict[tuple[Polynomial, int, int], Polynomial] = field(default_factory=dict)
    #: Of symbols for numbers in a range: the number that was brought into it, and the size of the range.
    _sources: dict[Symbol, tuple[Polynomial, int]] = field(default_factory=dict)

    def holds(self, formula: Formula) -> bool:
        """Whether a formula is known to hold here."""
        if formula == TRUE:
            return True
        return self.solver.impossible((*self.given, *self.path, negation(formula)), _QUICK_S)

    def unknown(self, reason: str, low: int | None, high: int | None) -> Polynomial:
        """A value that may be another in each thread and iteration."""
        return polynomial(Symbol("unknown", low, high, frozenset({"thread", "block"}) | self.inside, reason))

    def flag(self, reason: str) -> Formula:
        """A truth that may be another in each thread and iteration."""
        return Flag(Symbol("unknown", 0, 1, frozenset({"thread", "block"}) | self.inside, reason))

    def canonical(self, value: Polynomial, bits: int, signed: bool) -> Polynomial:
        """The number that a register's bits are as a signed or an unsigned one."""
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return self.in_range(value, low, high)

    def in_range(self, value: Polynomial, low: int, high: int) -> Polynomial:
        """The number from `low` to `high` that is equal to a value modulo the size of that range."""
        size = high - low + 1
        if value.constant is not None:
            return polynomial((value.constant - low) % size + low)
        # Multiples of the range change nothing.
        value = Polynomial({product: factor for product, factor in value.terms.items() if factor % size})
        if value.within(low, high):
            return value
        whole = value.terms.get((), 0)
        nearer = value - whole + ((whole - low) % size + low)
        if nearer.within(low, high):
            return nearer
        for each in (value, nearer):
            if self.holds(everything((at_least(each, low), at_least(high, each)))):
                return each
        key = (value, low, high)
        if key not in self._wrapped:
            varies = value.varies
            times = Symbol("wraps", None, None, varies)
            found = Symbol("wrapped", low, high, varies)
            found.definition = (equal(value, polynomial(found) + polynomial(times) * size),)
            self._wrapped[key] = polynomial(found)
            self._sources[found] = value, size
        return self._wrapped[key]

    def narrowed(self, value: Polynomial, bits: int) -> Polynomial:
        """A number whose `bits` low bits are those of a value; what was widened before is as it was."""
        total = polynomial(0)
        for product, factor in value.terms.items():
            source, size = self._sources.get(product[0], (None, 0)) if len(product) == 1 else (None, 0)
            whole = source is not None and factor * size % (1 << bits) == 0
            total = total + (source * factor if whole and source is not None else Polynomial({product: factor}))
        return total

    def divided(self, value: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Quotient, rounded down, and rest; of a divisor that is above 0."""
        if divisor.constant == 1:
            return value, polynomial(0)
        whole, rest = polynomial(0), value
        if divisor.constant is not None:
            whole, rest = value.split(divisor.constant)
            if rest.within(0, divisor.constant - 1):
                return whole, rest
        key = (rest, divisor)
        if key not in self._quotients:
            varies = rest.varies | divisor.varies
            low, high = rest.range
            number = divisor.constant
            quotient = Symbol("quotient", None, None, varies)
            if number is not None:
                quotient.low = None if low is None else low // number
                quotient.high = None if high is None else high // number
            elif low is not None and low >= 0:
                quotient.low, quotient.high = 0, high
            left = Symbol("rest", 0, None if number is None else number - 1, varies)
            laws = (
                equal(rest, divisor * polynomial(quotient) + polynomial(left)),
                at_least(divisor - 1, polynomial(left)),
            )
            # It says nothing where the divisor is none, so that it never excludes that.
            quotient.definition = left.definition = tuple(implies(at_least(divisor, 1), law) for law in laws)
            self._quotients[key] = polynomial(quotient), polynomial(left)
        quotient_of_rest, left_of_rest = self._quotients[key]
        return whole + quotient_of_rest, left_of_rest

    def chosen(self, choices: Iterable[tuple[Formula, Polynomial]]) -> Polynomial:
        """The value whose condition holds; at most one does."""
        pairs = [(condition, value) for condition, value in choices if condition != FALSE]
        if not pairs:
            return self.unknown("it has no value", None, None)
        if all(value == pairs[0][1] for _, value in pairs):
            return pairs[0][1]
        common = pairs[0][1].bases()
        if any(value.bases() != common for _, value in pairs):
            common = polynomial(0)
        rests = [(condition, value - common) for condition, value in pairs]
        lows, highs = zip(*(value.range for _, value in rests), strict=True)
        varies = frozenset[str]().union(
            *(symbol.varies for condition, _ in rests for symbol in symbols_in(condition)),
            *(value.varies for _, value in rests),
        )
        found = Symbol(
            "chosen",
            None if None in lows else min(lows),
            None if None in highs else max(highs),
            varies,
        )
        found.definition = tuple(implies(condition, equal(polynomial(found), value)) for condition, value in rests)
        return polynomial(found) + common

    def compare(self, operator: str, left: Polynomial, right: Polynomial, bits: int, signed: bool) -> Formula:
        """``left operator right``, for registers of so many bits."""
        if operator in ("eq", "ne"):
            difference = left - right
            self.compared.append(difference)
            half = 1 << bits - 1
            same = equal(self.in_range(difference, -half, half - 1), 0)
            return same if operator == "eq" else negation(same)
        if signed or operator in ("lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"):
            left, right = self.canonical(left, bits, signed), self.canonical(right, bits, signed)
        if operator in ("lt", "lo"):
            return at_least(right, left + 1)
        if operator in ("le", "ls"):
            return at_least(right, left)
        if operator in ("gt", "hi"):
            return at_least(left, right + 1)
        return at_least(left, right)


def merged(paths: list[tuple[Formula, ...]]) -> tuple[tuple[Formula, ...], list[Formula]]:
    """The conditions of several ways that meet: what holds behind them, and by what each is told from the others."""
    first = paths[0]
    count = 0
    while all(len(path) > count and path[count] == first[count] for path in paths):
        count += 1
    rests = [everything(path[count:]) for path in paths]
    return first[:count] + conjuncts(union(rests)), rests


def union(rests: list[Formula]) -> Formula:
    """Any of some conditions; of those that differ in one alone, which is opposite, what they share."""
    left = list(rests)
    changed = True
    while changed and len(left) > 1:
        changed = False
        for i in range(len(left)):
            for k in range(i + 1, len(left)):
                joined = _joined(left[i], left[k])
                if joined is not None:
                    left[i] = joined
                    del left[k]
                    changed = True
                    break
            if changed:
                break
    return some(left)


def _joined(one: Formula, other: Formula) -> Formula | None:
    a, b = conjuncts(one), conjuncts(other)
    shared = tuple(item for item in a if item in b)
    rest_a = everything(item for item in a if item not in shared)
    rest_b = everything(item for item in b if item not in shared)
    opposite_rests = rest_a == negation(rest_b) or negation(rest_a) == rest_b
    if (opposite_rests and not knows(rest_a) and not knows(rest_b)) or TRUE in (rest_a, rest_b):
        return everything(shared)
    # a, or b with not a: what is not a may go.
    for x, y in ((rest_a, rest_b), (rest_b, rest_a)):
        opposite = conjuncts(negation(x))
        if len(conjuncts(x)) == 1 and set(opposite) <= set(conjuncts(y)):
            kept = everything(item for item in conjuncts(y) if item not in opposite)
            return everything((*shared, some((x, kept))))
    return None


def conjuncts(item: Formula) -> tuple[Formula, ...]:
    """The conditions that all hold in one."""
    return item.items if isinstance(item, All) else (item,)
