"""What PTX instructions do to a thread's registers, as far as whole numbers and predicates go.

Values are exact where they can be said, else a new symbol that says why not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cudakit.emulator.face import facts, program, words
from cudakit.errors import EmulationError
from cudakit.proof import terms
from cudakit.proof.solver import Solver
from cudakit.proof.terms import (
    FALSE,
    TRUE,
    All,
    Atom,
    Flag,
    Formula,
    Known,
    Not,
    Polynomial,
    Some,
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
        return self.in_range(value, *words.bounds(signed, bits))

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
            self._quotients[key] = terms.divided(rest, divisor)
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
            same = equal(self.canonical(difference, bits, True), 0)
            return same if operator == "eq" else negation(same)
        left, right = self.canonical(left, bits, signed), self.canonical(right, bits, signed)
        if operator in ("lt", "lo", "le", "ls"):
            left, right = right, left
        return at_least(left, right + int(operator in ("lt", "lo", "gt", "hi")))


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


Value: TypeAlias = Polynomial | Opaque | Atom | Flag | Not | All | Some | Known
FORMULAS = (Atom, Flag, Not, All, Some, Known)
INTEGERS: Final = {f"{kind}{bits}": (bits, kind == "s") for kind in "bus" for bits in (8, 16, 32, 64)}
_FLOATS: Final = frozenset(
    {"f16", "f16x2", "f32", "f32x2", "f64", "bf16", "bf16x2", "tf32", "e4m3x2", "e5m2x2", "b128"}
)
#: The bits of infinity, of floats whose bits are followed through absolute values and comparisons.
_INFINITIES: Final = {"f32": 0x7F80_0000, "f64": 0x7FF0_0000_0000_0000}


class Unsupported(Exception):
    """Why a kernel cannot be judged, in words that stand behind the line."""


@dataclass
class Registers:
    """A thread's registers, and what they are read with."""

    values: dict[str, Value]
    types: dict[str, str]
    numbers: Numbers
    special: Callable[[str], Value]
    base_of: Callable[[str], Polynomial]

    def bits(self, name: str) -> int:
        """The width of a register."""
        declared = self.types[name]
        return int("".join(filter(str.isdigit, declared.partition("x")[0])) or 1)

    def bits_of(self, operand: program.Operand | None, other: int) -> int:
        """The width of an operand that is a register, else another width."""
        return (
            self.bits(operand.name) if isinstance(operand, program.Register) and operand.name in self.types else other
        )

    def is_float(self, operand: program.Operand) -> bool:
        """Whether an operand is a register of floats, of which a number is the bits."""
        return isinstance(operand, program.Register) and self.types.get(operand.name, "").startswith("f")

    def read(self, operand: program.Operand) -> Value:
        """The value of an operand."""
        if isinstance(operand, program.Register):
            if operand.name not in self.types:
                return self.special(operand.name)
            found = self.values.get(operand.name)
            return Opaque("it was never written") if found is None else found
        if isinstance(operand, program.Immediate):
            return Opaque("it is a float") if operand.float_bits else polynomial(operand.value)
        if isinstance(operand, program.Symbol):
            return self.base_of(operand.name) + operand.offset
        if isinstance(operand, program.Group) and operand.notation == "not":
            return negation(self.predicate(operand.items[0]))
        if isinstance(operand, program.Group) and operand.notation == "negative":
            return -self.number(operand.items[0])
        return Opaque("it is of several parts")

    def number(self, operand: program.Operand) -> Polynomial:
        """The value of an operand, as a number."""
        found = self.read(operand)
        if isinstance(found, Polynomial):
            return found
        if isinstance(found, Opaque):
            made = self.numbers.unknown(found.reason, *words.bounds(True, self.bits_of(operand, 64)))
            if isinstance(operand, program.Register) and operand.name in self.types:
                self.values[operand.name] = made
            return made
        return self.numbers.chosen(((found, polynomial(1)), (negation(found), polynomial(0))))

    def predicate(self, operand: program.Operand) -> Formula:
        """The value of an operand, as a truth."""
        found = self.read(operand)
        if isinstance(found, FORMULAS):
            return found
        if isinstance(found, Polynomial) and found.constant is not None:
            return TRUE if found.constant else FALSE
        made = self.numbers.flag(found.reason if isinstance(found, Opaque) else "it is a number")
        if isinstance(operand, program.Register) and operand.name in self.types:
            self.values[operand.name] = made
        return made

    def write(self, operand: program.Operand, value: Value, condition: Formula = TRUE) -> None:
        """Give a register its value, where a condition holds."""
        if isinstance(operand, program.Group):
            for item in operand.items:
                self.write(item, value if isinstance(value, Opaque) else Opaque("it is of several parts"), condition)
            return
        if not isinstance(operand, program.Register) or operand.name not in self.types:
            return
        if condition != TRUE:
            former = self.values.get(operand.name)
            if former is None and isinstance(value, Polynomial):
                former = self.numbers.unknown("it was never written", None, None)
            if former is None and isinstance(value, FORMULAS):
                former = self.numbers.flag("it was never written")
            if former is not None:
                value = self.either(((condition, value), (negation(condition), former)))
        self.values[operand.name] = value

    def either(self, choices: tuple[tuple[Formula, Value], ...]) -> Value:
        """The value whose condition holds."""
        values = [value for _, value in choices]
        if all(value == values[0] for value in values):
            return values[0]
        if all(isinstance(value, FORMULAS) for value in values):
            return some(everything((condition, value)) for condition, value in choices if isinstance(value, FORMULAS))
        for value in values:
            if isinstance(value, Opaque):
                return value
        if not all(isinstance(value, Polynomial) for value in values):
            return Opaque("it is a number or a truth")
        return self.numbers.chosen((condition, value) for condition, value in choices if isinstance(value, Polynomial))


_UNFOLLOWED: Final = "is not followed"
#: What the carry is read as: nothing is known of it, and what writes it is refused.
_CARRY: Final = program.Group("carry", ())


class _Unfollowed(Exception):
    """An operation whose result polynomials do not say."""


class NumberWord(words.Word):
    """A word of a thread: a polynomial that is equal to its bits modulo 2 to its width, or a formula.

    Of a float the polynomial is the bits, and its value is `Opaque` where they are not followed.
    """

    __slots__ = ("impossible", "numbers", "reason", "value")

    def __init__(self, numbers: Numbers, value: Value, kind: str, reason: str) -> None:
        super().__init__(kind)
        self.numbers, self.value, self.reason = numbers, value, reason
        #: A condition that is known not to hold where this is computed.
        self.impossible: Formula = FALSE

    @property
    def number(self) -> Polynomial:
        if not isinstance(self.value, Polynomial):
            raise _Unfollowed
        return self.value

    @property
    def truth(self) -> Formula:
        if not isinstance(self.value, FORMULAS):
            raise _Unfollowed
        return self.value

    @property
    def canonical(self) -> Polynomial:
        """The number that it is."""
        return self.numbers.canonical(self.number, self.bits, self.signed)

    @property
    def constant_value(self) -> int | None:
        if isinstance(self.value, Polynomial):
            return None if self.value.constant is None else self.canonical.constant
        return {TRUE: 1, FALSE: 0}.get(self.truth) if isinstance(self.value, FORMULAS) else None

    def constant(self, value: int, kind: str) -> NumberWord:
        return self._made((TRUE if value & 1 else FALSE) if kind == "pred" else polynomial(value), kind)

    def _made(self, value: Value, kind: str) -> NumberWord:
        return NumberWord(self.numbers, value, kind, self.reason)

    def do(self, name: str, kind: str, *others: Any) -> NumberWord:
        operation = _OPERATIONS.get(name)
        if operation is None:
            raise _Unfollowed
        made = operation(self, kind, *others)
        return made if isinstance(made, NumberWord) else self._made(made, kind)

    def unknown(self, low: int, high: int) -> Polynomial:
        return self.numbers.unknown(self.reason, low, high)


def step(given: program.Instruction, registers: Registers, condition: Formula) -> None:
    """Do one instruction that touches no memory, where its guard holds.

    Raises
    ------
    Unsupported
    """
    does = facts.facts_of(given).does
    if does in ("hints", "fences", "converges"):
        return
    if does == "calls":
        raise Unsupported("a call of a function that is not inlined")
    if does != "computes" or not given.operands or "cc" in given.modifiers:
        raise Unsupported(f"the instruction {given}")
    target, compares = given.operands[0], given.opcode == "setp"
    if given.opcode in ("mov", "cvta"):
        registers.write(target, _moved(given, registers), condition)
        return
    reason = f"{given} {_UNFOLLOWED}"
    if not _FLOATS.isdisjoint(given.modifiers):
        reason = "it is a comparison of floats" if compares else "it is computed from floats"
    try:
        results = _results(given, registers, reason)
    except (_Unfollowed, EmulationError):
        registers.write(target, registers.numbers.flag(reason) if compares else Opaque(reason), condition)
        return
    for operand, word in results:
        is_wider = isinstance(word.value, Polynomial) and registers.bits_of(operand, word.bits) > word.bits
        registers.write(operand, word.canonical if is_wider else word.value, condition)


def _moved(given: program.Instruction, registers: Registers) -> Value:
    target, source, *_ = given.operands
    if given.opcode == "cvta":
        return registers.number(source)
    if isinstance(source, program.Group) or isinstance(target, program.Group):
        return Opaque(f"{given} of several parts {_UNFOLLOWED}")
    is_bits = registers.is_float(source) and not registers.is_float(target)
    return registers.number(source) if is_bits else registers.read(source)


def _results(given: program.Instruction, registers: Registers, reason: str) -> list[tuple[program.Operand, NumberWord]]:
    """What an instruction writes, by its meaning."""
    entry = words.bound(given, _CARRY)
    if entry is None:
        raise _Unfollowed
    read: list[Any] = []
    for source, operand in entry.sources:
        if source == "int":
            read.append(operand.value if isinstance(operand, program.Immediate) else None)
            continue
        kind = words.WORD_TYPES.get(words.source_type(entry.form, source), "")
        # Branches on the sizes of floats choose what is read with their bits.
        value = _operand(registers, operand, kind, given.opcode == "abs")
        read.append(NumberWord(registers.numbers, value, kind, reason))
    made = entry.meaning.function(entry.form, *read)
    return list(zip(entry.targets, words.results_of(made, len(entry.targets)), strict=True))


def _operand(registers: Registers, operand: program.Operand, kind: str, is_followed: bool) -> Value:
    """The value of an operand; where it is not followed, that of a float of which nothing is known stays so."""
    if kind == "pred":
        return registers.predicate(operand)
    if isinstance(operand, program.Immediate) and operand.float_bits:
        return polynomial(operand.value) if operand.float_bits == words.BITS[kind] else registers.read(operand)
    is_float = kind[0] == "f" or registers.is_float(operand)
    return registers.read(operand) if is_float and not is_followed else registers.number(operand)


# ── operations on words ──


def _sum(sign: int) -> Callable[..., Value]:
    return lambda a, kind, b: a.number + b.number * sign


def _not(a: NumberWord, kind: str) -> Value:
    return negation(a.truth) if kind == "pred" else -a.number - 1


def _absolute(a: NumberWord, kind: str) -> Value:
    if kind[0] == "f":
        return _masked(a.numbers, a.number, (1 << a.bits - 1) - 1, a.bits)
    value = a.canonical
    positive = at_least(value, 0)
    return a.numbers.chosen(((positive, value), (negation(positive), -value)))


def _extreme(is_least: bool) -> Callable[..., Value]:
    def do(a: NumberWord, kind: str, b: NumberWord) -> Value:
        x, y = a.canonical, b.canonical
        first = at_least(y, x) if is_least else at_least(x, y)
        return a.numbers.chosen(((first, x), (negation(first), y)))

    return do


def _bitwise(opcode: str) -> Callable[..., Value]:
    def do(a: NumberWord, kind: str, b: NumberWord) -> Value:
        if kind == "pred":
            p, q = a.truth, b.truth
            if opcode == "xor":
                return some((everything((p, negation(q))), everything((negation(p), q))))
            return everything((p, q)) if opcode == "and" else some((p, q))
        x, y, whole = a.number, b.number, (1 << a.bits) - 1
        if x.constant is not None:
            x, y = y, x
        if y.constant is None:
            return _disjoint(a, opcode, x, y)
        mask = y.constant & whole
        if x.constant is not None:
            c = x.constant & whole
            return polynomial({"and": c & mask, "or": c | mask, "xor": c ^ mask}[opcode])
        if opcode == "and":
            return _masked(a.numbers, x, mask, a.bits)
        if mask == whole:
            return polynomial(-1) if opcode == "or" else -x - 1
        # The bits of the mask are taken out, and put in as they are to be.
        part = _masked(a.numbers, x, mask, a.bits)
        return x - part + mask if opcode == "or" else x - part * 2 + mask

    return do


def _masked(numbers: Numbers, value: Polynomial, mask: int, bits: int) -> Polynomial:
    """``value & mask``, run by run of the mask's ones."""
    total, low = polynomial(0), 0
    while low < bits:
        if not mask >> low & 1:
            low += 1
            continue
        high = low
        while high < bits and mask >> high & 1:
            high += 1
        upper = value if high == bits else numbers.divided(value, polynomial(1 << high))[1]
        total = total + upper - (numbers.divided(value, polynomial(1 << low))[1] if low else 0)
        low = high
    return total


def _disjoint(word: NumberWord, opcode: str, a: Polynomial, b: Polynomial) -> Polynomial:
    """Of two numbers that share no bits, ``or`` and ``xor`` are the sum; of others bounds are known."""
    if opcode != "and":
        for one, other in ((a, b), (b, a)):
            high = other.range[1]
            if high is None or not other.within(0, high):
                continue
            if all(factor % (1 << high.bit_length()) == 0 for factor in one.terms.values()):
                return one + other
    both = [value.range for value in (a, b) if value.range[0] is not None and value.range[0] >= 0]
    tops = [high for _, high in both if high is not None]
    if opcode == "and" and tops:
        return word.unknown(0, min(tops))
    return word.unknown(0, (1 << (max(tops).bit_length() if len(tops) == 2 else word.bits)) - 1)


def _shifted_left(a: NumberWord, kind: str, by: NumberWord) -> Value:
    if by.constant_value is None:
        raise _Unfollowed
    return a.number * (1 << by.constant_value)


def _shifted_right(a: NumberWord, kind: str, by: NumberWord) -> Value:
    if by.constant_value is None:
        raise _Unfollowed
    return a.numbers.divided(a.canonical, polynomial(1 << by.constant_value))[0]


def _high_product(a: NumberWord, kind: str, b: NumberWord) -> Value:
    return a.numbers.divided(a.canonical * b.canonical, polynomial(1 << a.bits))[0]


def _quotient(is_rest: bool) -> Callable[..., NumberWord]:
    """A quotient towards 0 or its rest, by what is known to be above 0."""

    def do(a: NumberWord, kind: str, b: NumberWord) -> NumberWord:
        x, y, numbers = a.canonical, b.canonical, a.numbers
        if not numbers.holds(at_least(y, 1)):
            raise _Unfollowed
        made = numbers.divided(x, y)[is_rest]
        if a.signed and not x.within(0, 1 << a.bits) and not numbers.holds(at_least(x, 0)):
            positive = at_least(x, 0)
            made = numbers.chosen(((positive, made), (negation(positive), -numbers.divided(-x, y)[is_rest])))
        word = a._made(made, kind)
        word.impossible = b.do("eq", "pred", b.constant(0, b.type_name)).truth
        return word

    return do


def _compared(name: str) -> Callable[..., Formula]:
    def do(a: NumberWord, kind: str, b: NumberWord) -> Formula:
        if a.type_name[0] == "f":
            return _compared_floats(name, a, b)
        return a.numbers.compare(name, a.number, b.number, a.bits, a.signed)

    return do


def _float(a: NumberWord) -> tuple[Polynomial, Formula]:
    """The bits of a float, and whether it is a number."""
    infinity = _INFINITIES.get(a.type_name)
    if infinity is None:
        raise _Unfollowed
    bits, sign = a.canonical, 1 << a.bits - 1
    return bits, some((at_least(infinity, bits), everything((at_least(bits, sign), at_least(sign + infinity, bits)))))


def _compared_floats(name: str, a: NumberWord, b: NumberWord) -> Formula:
    """A comparison with itself, or with a constant above 0: what is above 0 is ordered as its bits are."""
    bits, is_number = _float(a)
    if b is a and name in ("eq", "ne"):
        return is_number if name == "eq" else negation(is_number)
    if b.constant_value is None or not 0 < b.constant_value <= _INFINITIES[a.type_name]:
        raise _Unfollowed
    more = everything((at_least(bits, b.constant_value + 1), at_least(_INFINITIES[a.type_name], bits)))
    same = equal(bits, b.constant_value)
    if name in ("eq", "ne"):
        return same if name == "eq" else negation(same)
    if name in ("gt", "ge"):
        return more if name == "gt" else some((same, more))
    return everything((is_number, negation(some((same, more)) if name == "lt" else more)))


def _with_nan(a: NumberWord, kind: str, *sources: NumberWord) -> Value:
    """A float with another NaN: of float32 there is one."""
    bits, is_number = _float(a)
    nan = polynomial(0x7FFF_FFFF)
    if sources:
        nan = a.unknown(*words.bounds(False, a.bits))
        (symbol,) = nan.symbols
        symbol.definition = (negation(_float(a._made(nan, kind))[1]),)
    return a.numbers.chosen(((is_number, bits), (negation(is_number), nan)))


def _chosen(a: NumberWord, kind: str, first: NumberWord, second: NumberWord) -> Value:
    condition = a.truth
    if condition == second.impossible:
        return second.value
    if kind == "pred":
        return some((everything((condition, first.truth)), everything((negation(condition), second.truth))))
    for value in (first.value, second.value):
        if isinstance(value, Opaque):
            return value
    return a.numbers.chosen(((condition, first.number), (negation(condition), second.number)))


def _converted(a: NumberWord, kind: str) -> Value:
    if kind not in INTEGERS:
        raise _Unfollowed
    bits, signed = INTEGERS[kind]
    if a.type_name == "pred":
        return a.numbers.chosen(((a.truth, polynomial(1)), (negation(a.truth), polynomial(0))))
    if a.type_name not in INTEGERS:
        return a.unknown(*words.bounds(signed, bits))
    if bits > a.bits:
        return a.canonical
    return a.numbers.narrowed(a.number, bits) if bits < a.bits else a.number


_OPERATIONS: Final[dict[str, Callable[..., Value | NumberWord]]] = {
    "add": _sum(1), "sub": _sum(-1), "mul": lambda a, kind, b: a.number * b.number, "mulhi": _high_product,
    "div": _quotient(False), "rem": _quotient(True), "neg": lambda a, kind: -a.number, "abs": _absolute,
    "min": _extreme(True), "max": _extreme(False), "not": _not,
    **{name: _bitwise(name) for name in ("and", "or", "xor")}, "shl": _shifted_left, "shr": _shifted_right,
    **{name: _compared(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}, "choose": _chosen,
    "to": _converted, "view": lambda a, kind: a.number, "canonical": _with_nan, "nan_from": _with_nan,
    **dict.fromkeys(("clz", "popc"), lambda a, kind: a.unknown(0, a.bits)),
}  # fmt: skip
