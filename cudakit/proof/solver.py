"""Whether formulas can hold together, by Z3.

Products of symbols are unknowns of their own at first, with lemmas that hold for every product: what is impossible
then is impossible. Only where that does not decide are they products.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cudakit.errors import CudakitError
from cudakit.proof.terms import (
    FALSE,
    All,
    Atom,
    Flag,
    Formula,
    Known,
    Monomial,
    Not,
    Polynomial,
    Symbol,
    at_least,
    atoms,
    cone,
    everything,
    implies,
    polynomial,
    range_of,
)

if TYPE_CHECKING:
    import z3

_MOST_COFACTORS = 16
#: How many times the steps of one question all of them have.
QUESTIONS = 30
#: Steps that Z3 takes in a second of a common machine. Times are counted in them: an answer hangs on no machine's load.
STEPS_PER_S = 4_000_000
_MOST_STEPS = (1 << 32) - 1
#: What is done between two questions, in such steps.
_STEPS_BETWEEN = 2_000
#: Its `Solver` has tactics that end by the clock.
_TACTICS = ("simplify", "propagate-values", "solve-eqs", "smt")


def z3_module() -> Any:
    """The solver's module, which few programs load.

    Raises
    ------
    CudakitError
        Where it is not installed.
    """
    try:
        import z3
    except ImportError as error:
        raise CudakitError(
            "proofs need the solver Z3, which is not installed; install the extra: pip install 'cudakit[prove]'"
        ) from error
    return z3


class OutOfSteps(Exception):
    """All questions together took too many steps."""


@dataclass(frozen=True)
class Answer:
    """Whether formulas can hold together: ``no``, ``yes`` with values, or ``unknown``."""

    verdict: Literal["no", "yes", "unknown"]
    values: dict[Symbol, int]


class Solver:
    """Answers questions, each within a number of steps.

    Parameters
    ----------
    timeout_s : float
        For each, in seconds of `STEPS_PER_S` steps; all together have `QUESTIONS` times that.

    Attributes
    ----------
    steps : int
        Taken so far.
    """

    z3: Any

    def __init__(self, timeout_s: float) -> None:
        self.z3 = z3_module()
        self.timeout_s = timeout_s
        self.steps: int = 0
        self._known: dict[frozenset[Formula], bool] = {}

    def check_steps(self) -> None:
        """Check that there are steps left, and count what is done between two questions.

        Raises
        ------
        OutOfSteps
        """
        self.steps += _STEPS_BETWEEN
        if self.steps > QUESTIONS * self.timeout_s * STEPS_PER_S:
            raise OutOfSteps(f"not all was decided in {QUESTIONS} times the steps of timeout_s={self.timeout_s:g}")

    def impossible(self, formulas: Iterable[Formula], timeout_s: float | None = None) -> bool:
        """Whether formulas are known not to hold together."""
        self.check_steps()
        whole = everything(formulas)
        key = frozenset(whole.items if isinstance(whole, All) else (whole,))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _Question(self, [whole]).linear(timeout_s or self.timeout_s).verdict == "no"
        return found

    def answer(self, formulas: Sequence[Formula], small: Sequence[Formula] = ()) -> Answer:
        """Whether formulas can hold together; the values meet `small`, too, where some do."""
        self.check_steps()
        question = _Question(self, [everything(formulas)])
        found = question.linear(self.timeout_s)
        if found.verdict == "no":
            return found
        for count in range(len(small), -1, -1):
            nearer = _Question(self, [everything((*formulas, *small[:count]))])
            answer = nearer.exact(self.timeout_s)
            if answer.verdict == "yes" or (answer.verdict == "no" and not count):
                return answer
        return Answer("unknown", {})


class _Question:
    def __init__(self, solver: Solver, formulas: list[Formula]) -> None:
        # A context of its own: else an answer depends on the questions before it.
        self.solver, self.z3, self.context = solver, solver.z3, solver.z3.Context()
        self.symbols, definitions = cone(formulas)
        self.formulas = formulas + definitions
        self.products: dict[Monomial, z3.ArithRef] = {}
        self.unknowns: dict[Symbol, z3.ArithRef] = {}

    def linear(self, timeout_s: float) -> Answer:
        """With products as unknowns: ``no`` is certain."""
        if FALSE in self.formulas:
            return Answer("no", {})
        stated = self._stated()
        if not self.products:
            return self._solve(stated, timeout_s)
        # Most need a few lemmas, and many make others slow.
        found = self._solve(stated + self._lemmas(False), timeout_s)
        return found if found.verdict == "no" else self._solve(stated + self._lemmas(True), timeout_s)

    def exact(self, timeout_s: float) -> Answer:
        """With products as they are."""
        stated = self._stated()
        for product, unknown in list(self.products.items()):
            value = self.unknown(product[0])
            for symbol in product[1:]:
                value = value * self.unknown(symbol)
            stated.append(unknown == value)
        return self._solve(stated + self._lemmas(True), timeout_s)

    def _lemmas(self, mixed: bool) -> list[Any]:
        made = [self.formula(each) for each in lemmas(self.formulas, mixed)]
        return made + [
            limit for product, unknown in self.products.items() for limit in _limits(unknown, *range_of(product))
        ]

    def _stated(self) -> list[Any]:
        stated = [self.formula(each) for each in self.formulas]
        for symbol in self.symbols:
            self.unknown(symbol)
        for symbol, unknown in list(self.unknowns.items()):
            stated += _limits(unknown, symbol.low, symbol.high)
        return stated

    def _solve(self, stated: list[Any], timeout_s: float) -> Answer:
        tactics = (self.z3.Tactic(each, ctx=self.context) for each in _TACTICS)
        solver = self.z3.Then(*tactics).solver()
        solver.set("rlimit", min(_MOST_STEPS, max(1, int(STEPS_PER_S * timeout_s))))
        solver.add(*stated)
        found = solver.check()
        self.solver.steps += sum(value for name, value in solver.statistics() if name == "rlimit count")
        if found == self.z3.unsat:
            return Answer("no", {})
        if found != self.z3.sat:
            return Answer("unknown", {})
        model = solver.model()
        values = {
            symbol: model.eval(unknown, model_completion=True).as_long() for symbol, unknown in self.unknowns.items()
        }
        return Answer("yes", values)

    def unknown(self, symbol: Symbol) -> Any:
        if symbol not in self.unknowns:
            self.unknowns[symbol] = self.z3.Int(f"{symbol.name}!{len(self.unknowns)}", self.context)
        return self.unknowns[symbol]

    def polynomial(self, given: Polynomial) -> Any:
        parts = []
        for product, factor in given.terms.items():
            if len(product) < 2:
                parts.append(factor * self.unknown(product[0]) if product else self.z3.IntVal(factor, self.context))
                continue
            if product not in self.products:
                self.products[product] = self.z3.Int(f"product!{len(self.products)}", self.context)
            parts.append(factor * self.products[product])
        return self.z3.Sum(parts) if parts else self.z3.IntVal(0, self.context)

    def formula(self, given: Formula) -> Any:
        if isinstance(given, Atom):
            value = self.polynomial(given.value)
            return value == 0 if given.is_equality else value >= 0
        if isinstance(given, Flag):
            return self.unknown(given.symbol) == 1
        if isinstance(given, Not):
            return self.z3.Not(self.formula(given.item))
        if isinstance(given, Known):
            return self.formula(given.item)
        parts = [self.formula(each) for each in given.items]
        join = self.z3.And if isinstance(given, All) else self.z3.Or
        return join(parts, self.context)


def _limits(unknown: Any, low: int | None, high: int | None) -> list[Any]:
    limits = [] if low is None else [unknown >= low]
    return limits if high is None else [*limits, unknown <= high]


def lemmas(formulas: Iterable[Formula], mixed: bool) -> list[Formula]:
    """What holds for the products in formulas: of a factor v >= 0 and any c, c >= 1 makes v c >= v, and so on.

    The c are what v is multiplied by in one atom, or `mixed`: in the sums and differences of two.
    """
    each_atom = (atom for formula in formulas for atom in atoms(formula))
    values = dict.fromkeys(atom.value for atom in each_atom if isinstance(atom, Atom))
    found: dict[Formula, None] = {}
    seen: set[tuple[Symbol, Polynomial]] = set()
    for _ in range(3):
        cofactors: dict[Symbol, dict[Polynomial, None]] = {}
        for value in sorted(values, key=lambda each: len(each.terms)):
            for symbol in dict.fromkeys(one for product in value.terms if len(product) > 1 for one in _sizes(product)):
                cofactor = _cofactor(value, symbol)
                cofactors.setdefault(symbol, {}).setdefault(cofactor, None)
        values = {}
        for symbol, each in cofactors.items():
            plain = list(each)[:_MOST_COFACTORS]
            pairs = [a - b for a, b in itertools.combinations(plain, 2)] + [
                a + b for a, b in itertools.combinations(plain, 2)
            ]
            for cofactor in [*plain, *(_reduced(one) for one in pairs if mixed and one.terms)]:
                if (symbol, cofactor) in seen or (symbol, -cofactor) in seen or cofactor.constant is not None:
                    continue
                seen.add((symbol, cofactor))
                found.update(dict.fromkeys(_lemmas_of(symbol, cofactor)))
                values[cofactor] = None
    return list(found)


def _sizes(product: Monomial) -> Monomial:
    """Return the factors that are the same in all threads, or all factors if each of them varies by thread."""
    return tuple(symbol for symbol in product if not symbol.varies) or product


def _cofactor(value: Polynomial, symbol: Symbol) -> Polynomial:
    terms: dict[Monomial, int] = {}
    for product, factor in value.terms.items():
        if len(product) > 1 and symbol in product:
            at = product.index(symbol)
            terms[product[:at] + product[at + 1 :]] = factor
    return _reduced(Polynomial(terms))


def _reduced(value: Polynomial) -> Polynomial:
    common = math.gcd(*value.terms.values())
    return Polynomial({product: factor // common for product, factor in value.terms.items()}) if common > 1 else value


def _lemmas_of(symbol: Symbol, cofactor: Polynomial) -> list[Formula]:
    factor, product = polynomial(symbol), polynomial(symbol) * cofactor
    positive = at_least(factor, 0)
    made: list[Formula] = []
    for sign in (1, -1):
        above = everything((positive, at_least(cofactor * sign, 1)))
        made.append(implies(above, at_least(product * sign, factor)))
    made.append(implies(everything((at_least(cofactor, 0), at_least(-cofactor, 0))), Atom(product, True)))
    return made
