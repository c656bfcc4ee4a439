"""Satisfiability of formulas, by Z3.

Products of symbols are unknowns at first, with lemmas that hold for every product. Formulas that are impossible then
are impossible. Only if that does not decide are the products exact.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cudakit.errors import CudakitError
from cudakit.proof.terms import (
    FALSE,
    All,
    Atom,
    Flag,
    Formula,
    LastRound,
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

_MOST_COFACTORS = 16
#: Steps of all questions together, in those of one question.
QUESTIONS = 30
#: Steps of Z3 in a second of a common machine. Limits count steps, so an answer does not depend on the load.
STEPS_PER_S = 4_000_000
_MOST_STEPS = (1 << 32) - 1
#: Steps counted for the work between two questions.
_STEPS_BETWEEN = 2_000
#: Tactics of the solver. Z3's own `Solver` has tactics that end by the clock.
_TACTICS = ("simplify", "propagate-values", "solve-eqs", "smt")


def z3_module() -> Any:
    """Return the solver's module, which few programs load.

    Raises
    ------
    CudakitError
        If the solver is not installed.
    """
    try:
        import z3
    except ImportError as error:
        raise CudakitError(
            "proofs need the solver Z3, which is not installed; install the extra: pip install 'cudakit[prove]'"
        ) from error
    return z3


class OutOfSteps(Exception):
    """Error of a proof whose questions together took more steps of the solver than allowed."""


@dataclass(frozen=True)
class Answer:
    """The solver's answer to the question whether formulas can hold together: ``no``, ``yes`` or ``unknown``.

    With ``yes``, `values` has values of the symbols at which they hold; else it is empty.
    """

    verdict: Literal["no", "yes", "unknown"]
    values: dict[Symbol, int]


class Solver:
    """Solver of questions, each within a number of steps.

    Parameters
    ----------
    timeout_s : float
        Limit for each question, in seconds of `STEPS_PER_S` steps; all together have `QUESTIONS` times that.

    Attributes
    ----------
    steps : int
        Steps taken so far.
    """

    z3: Any

    def __init__(self, timeout_s: float) -> None:
        self.z3 = z3_module()
        self.timeout_s = timeout_s
        self.steps: int = 0
        self._verdicts: dict[frozenset[Formula], bool] = {}
        self._common = Context(self.z3)

    def check_steps(self) -> None:
        """Add a fixed number of steps, for the work between two questions, and check that steps are left.

        Raises
        ------
        OutOfSteps
            If more steps were taken than allowed.
        """
        self.steps += _STEPS_BETWEEN
        if self.steps > QUESTIONS * self.timeout_s * STEPS_PER_S:
            raise OutOfSteps(f"not all was decided in {QUESTIONS} times the steps of timeout_s={self.timeout_s:g}")

    def impossible(self, formulas: Iterable[Formula], timeout_s: float | None = None) -> bool:
        """Return whether formulas provably cannot hold together. Answers are cached.

        The result is False also if the solver does not decide.
        """
        self.check_steps()
        whole = everything(formulas)
        key = frozenset(whole.items if isinstance(whole, All) else (whole,))
        is_impossible = self._verdicts.get(key)
        if is_impossible is None:
            is_impossible = self._verdicts[key] = (
                _Question(self, [whole], self._common).linear(timeout_s or self.timeout_s).verdict == "no"
            )
        return is_impossible

    def answer(self, formulas: Sequence[Formula], small: Sequence[Formula] = ()) -> Answer:
        """Return whether formulas can hold together, with values of the symbols.

        `small` are further conditions, the most important first. The values meet as many of them as a solution can be
        found for, from the first on.
        """
        self.check_steps()
        question = _Question(self, [everything(formulas)], self._common)
        result = question.linear(self.timeout_s)
        if result.verdict == "no":
            return result
        for count in range(len(small), -1, -1):
            nearer = _Question(self, [everything((*formulas, *small[:count]))])
            answer = nearer.exact(self.timeout_s)
            if answer.verdict == "yes" or (answer.verdict == "no" and not count):
                return answer
        return Answer("unknown", {})


@dataclass(frozen=True)
class Outcome:
    """The outcome of a text of SMT-LIB: its verdict, the steps it took, and with ``yes`` the values of its constants.

    Constants that may have any value are not among them.
    """

    verdict: Literal["no", "yes", "unknown"]
    steps: int
    values: dict[str, int]


class Context:
    """A context of Z3, made when needed, and the steps counted in it."""

    def __init__(self, z3: Any) -> None:
        self.z3, self.steps = z3, 0

    @functools.cached_property
    def context(self) -> Any:
        return self.z3.Context()

    @functools.cached_property
    def tactic(self) -> Any:
        return self.z3.Then(*(self.z3.Tactic(tactic, ctx=self.context) for tactic in _TACTICS))

    def outcome(self, text: str, most_steps: int) -> Outcome:
        """Return whether the assertions of a text can hold together, by at most `most_steps` steps."""
        solver = self.tactic.solver()
        solver.set("rlimit", most_steps)
        solver.from_string(text)
        status = solver.check()
        # Steps are counted in the whole context.
        before, self.steps = self.steps, sum(v for name, v in solver.statistics() if name == "rlimit count")
        steps = self.steps - before
        if status == self.z3.unsat:
            return Outcome("no", steps, {})
        if status != self.z3.sat:
            return Outcome("unknown", steps, {})
        model = solver.model()
        return Outcome("yes", steps, {constant.name(): model[constant].as_long() for constant in model.decls()})


class _Question:
    """A question to Z3 as SMT-LIB text, in a context of its own or a common one.

    In a common context, the values of an answer depend on earlier questions; a question without values needs no own
    context, which takes up to 8 ms. The text is read in a fortieth of the time that Z3's Python operators take.
    """

    def __init__(self, solver: Solver, formulas: list[Formula], context: Context | None = None) -> None:
        self.solver, self.context = solver, context or Context(solver.z3)
        self.symbols, definitions = cone(formulas)
        self.formulas = formulas + definitions
        self.products: dict[Monomial, str] = {}
        self.unknowns: dict[Symbol, str] = {}

    def linear(self, timeout_s: float) -> Answer:
        """Answer the question with each product of symbols as an unknown number: ``no`` is certain, ``yes`` is not."""
        if FALSE in self.formulas:
            return Answer("no", {})
        stated = self._stated()
        if not self.products:
            return self._solve(stated, timeout_s)
        # Most questions need few lemmas, and many lemmas make others slow.
        answer = self._solve(stated + self._lemmas(False), timeout_s)
        return answer if answer.verdict == "no" else self._solve(stated + self._lemmas(True), timeout_s)

    def exact(self, timeout_s: float) -> Answer:
        """Answer the question with exact products, so that ``yes`` is certain too."""
        stated = self._stated()
        for product, unknown in list(self.products.items()):
            stated.append(f"(= {unknown} (* {' '.join(self.unknown(symbol) for symbol in product)}))")
        return self._solve(stated + self._lemmas(True), timeout_s)

    def _lemmas(self, mixed: bool) -> list[str]:
        constraints = [self.formula(lemma) for lemma in lemmas(self.formulas, mixed)]
        return constraints + [
            limit for product, unknown in self.products.items() for limit in _limits(unknown, *range_of(product))
        ]

    def _stated(self) -> list[str]:
        stated = [self.formula(formula) for formula in self.formulas]
        for symbol in self.symbols:
            self.unknown(symbol)
        for symbol, unknown in list(self.unknowns.items()):
            stated += _limits(unknown, symbol.low, symbol.high)
        return stated

    def _solve(self, stated: list[str], timeout_s: float) -> Answer:
        declared = [f"(declare-const {name} Int)" for name in (*self.unknowns.values(), *self.products.values())]
        text = "".join((*declared, *(f"(assert {item})" for item in stated)))
        outcome = self.context.outcome(text, min(_MOST_STEPS, max(1, int(STEPS_PER_S * timeout_s))))
        self.solver.steps += outcome.steps
        has_values = outcome.verdict == "yes"
        values = {symbol: outcome.values.get(name, 0) for symbol, name in self.unknowns.items()} if has_values else {}
        return Answer(outcome.verdict, values)

    def unknown(self, symbol: Symbol) -> str:
        return self.unknowns.setdefault(symbol, f"u{len(self.unknowns)}")

    def polynomial(self, value: Polynomial) -> str:
        parts = []
        for product, factor in value.terms.items():
            if not product:
                parts.append(_integer(factor))
                continue
            if len(product) == 1:
                name = self.unknown(product[0])
            else:
                name = self.products.setdefault(product, f"p{len(self.products)}")
            parts.append(name if factor == 1 else f"(* {_integer(factor)} {name})")
        return _joined("+", parts, "0")

    def formula(self, item: Formula) -> str:
        if isinstance(item, Atom):
            return f"({'=' if item.is_equality else '>='} {self.polynomial(item.value)} 0)"
        if isinstance(item, Flag):
            return f"(= {self.unknown(item.symbol)} 1)"
        if isinstance(item, Not):
            return f"(not {self.formula(item.item)})"
        if isinstance(item, LastRound):
            return self.formula(item.item)
        parts = [self.formula(part) for part in item.items]
        return _joined("and", parts, "true") if isinstance(item, All) else _joined("or", parts, "false")


def _joined(operator: str, parts: list[str], neutral: str) -> str:
    return f"({operator} {' '.join(parts)})" if len(parts) > 1 else parts[0] if parts else neutral


def _integer(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"


def _limits(unknown: str, low: int | None, high: int | None) -> list[str]:
    limits = [] if low is None else [f"(>= {unknown} {_integer(low)})"]
    return limits if high is None else [*limits, f"(<= {unknown} {_integer(high)})"]


def lemmas(formulas: Iterable[Formula], mixed: bool) -> list[Formula]:
    """Return conditions of the products in formulas: of a factor v >= 0 and any c, c >= 1 implies v c >= v, and so on.

    The c are the cofactors of v in one atom, or `mixed`: sums and differences of two cofactors.
    """
    each_atom = (atom for formula in formulas for atom in atoms(formula))
    values = dict.fromkeys(atom.value for atom in each_atom if isinstance(atom, Atom))
    lemma_set: dict[Formula, None] = {}
    considered: set[tuple[Symbol, Polynomial]] = set()
    for _ in range(3):
        cofactors: dict[Symbol, dict[Polynomial, None]] = {}
        for value in sorted(values, key=lambda value: len(value.terms)):
            for symbol in dict.fromkeys(
                size for product in value.terms if len(product) > 1 for size in _sizes(product)
            ):
                cofactor = _cofactor(value, symbol)
                cofactors.setdefault(symbol, {}).setdefault(cofactor, None)
        values = {}
        for symbol, multipliers in cofactors.items():
            plain = list(multipliers)[:_MOST_COFACTORS]
            pairs = [a - b for a, b in itertools.combinations(plain, 2)] + [
                a + b for a, b in itertools.combinations(plain, 2)
            ]
            for cofactor in [*plain, *(_reduced(pair) for pair in pairs if mixed and pair.terms)]:
                if (
                    (symbol, cofactor) in considered
                    or (symbol, -cofactor) in considered
                    or cofactor.constant is not None
                ):
                    continue
                considered.add((symbol, cofactor))
                lemma_set.update(dict.fromkeys(_lemmas_of(symbol, cofactor)))
                values[cofactor] = None
    return list(lemma_set)


def _sizes(product: Monomial) -> Monomial:
    """Return the factors of a product that are the same in all threads, such as sizes; all factors if there is none."""
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
    conditions: list[Formula] = []
    for sign in (1, -1):
        above = everything((positive, at_least(cofactor * sign, 1)))
        conditions.append(implies(above, at_least(product * sign, factor)))
    conditions.append(implies(everything((at_least(cofactor, 0), at_least(-cofactor, 0))), Atom(product, True)))
    return conditions
