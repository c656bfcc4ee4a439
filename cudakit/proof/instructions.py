"""Abstract semantics of PTX for integer and predicate registers.

A value is exact where it can be expressed. Otherwise it is a new symbol with the reason.
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
    LastRound,
    Not,
    Polynomial,
    Some,
    Symbol,
    at_least,
    equal,
    everything,
    has_last_round,
    implies,
    negation,
    polynomial,
    some,
    symbols_in,
)

_QUICK_S = 1.0


@dataclass(frozen=True)
class Opaque:
    """An unknown value, such as a float, with the reason that it is unknown."""

    reason: str


@dataclass
class Numbers:
    """Arithmetic and comparisons of symbolic integers, which use the conditions that hold at one point of the kernel.

    Attributes
    ----------
    solver : Solver
    premises : list of Formula
        Conditions that always hold.
    path : tuple of Formula
        Conditions that hold at this point.
    inside : frozenset of str
        Names of the enclosing loops.
    """

    solver: Solver
    premises: list[Formula]
    path: tuple[Formula, ...] = ()
    inside: frozenset[str] = frozenset()
    #: Differences compared with 0, before they were brought into a register's range.
    compared: list[Polynomial] = field(default_factory=list)
    _quotients: dict[tuple[Polynomial, Polynomial], tuple[Polynomial, Polynomial]] = field(default_factory=dict)
    _wrapped: dict[tuple[Polynomial, int, int], Polynomial] = field(default_factory=dict)
    #: Of symbols for numbers in a range: the original number, and the size of the range.
    _sources: dict[Symbol, tuple[Polynomial, int]] = field(default_factory=dict)

    def holds(self, formula: Formula) -> bool:
        """Return whether a formula provably holds at this point, from `premises` and `path`."""
        if formula == TRUE:
            return True
        return self.solver.impossible((*self.premises, *self.path, negation(formula)), _QUICK_S)

    def unknown(self, reason: str, low: int | None, high: int | None) -> Polynomial:
        """Return an unknown number, which may differ between threads and iterations."""
        return polynomial(Symbol("unknown", low, high, frozenset({"thread", "block"}) | self.inside, reason))

    def flag(self, reason: str) -> Formula:
        """Return an unknown truth value, which may differ between threads and iterations."""
        return Flag(Symbol("unknown", 0, 1, frozenset({"thread", "block"}) | self.inside, reason))

    def canonical(self, value: Polynomial, bits: int, signed: bool) -> Polynomial:
        """Return a register's bits as a signed or an unsigned number."""
        return self.in_range(value, *words.bounds(signed, bits))

    def in_range(self, value: Polynomial, low: int, high: int) -> Polynomial:
        """Return the number from `low` to `high` that equals a value modulo the size of the range."""
        size = high - low + 1
        if value.constant is not None:
            return polynomial((value.constant - low) % size + low)
        # Multiples of the range's size change nothing.
        value = Polynomial({product: factor for product, factor in value.terms.items() if factor % size})
        if value.within(low, high):
            return value
        whole = value.terms.get((), 0)
        nearer = value - whole + ((whole - low) % size + low)
        if nearer.within(low, high):
            return nearer
        for candidate in (value, nearer):
            if self.holds(everything((at_least(candidate, low), at_least(high, candidate)))):
                return candidate
        key = (value, low, high)
        if key not in self._wrapped:
            varies = value.varies
            times = Symbol("wraps", None, None, varies)
            wrapped = Symbol("wrapped", low, high, varies)
            wrapped.definition = (equal(value, polynomial(wrapped) + polynomial(times) * size),)
            self._wrapped[key] = polynomial(wrapped)
            self._sources[wrapped] = value, size
        return self._wrapped[key]

    def narrowed(self, value: Polynomial, bits: int) -> Polynomial:
        """Return a number with the same `bits` low bits as a value, simplified if possible.

        A symbol that stands for another number modulo a power of two is replaced by this number, if the low bits stay
        the same.
        """
        total = polynomial(0)
        for product, factor in value.terms.items():
            source, size = self._sources.get(product[0], (None, 0)) if len(product) == 1 else (None, 0)
            whole = source is not None and factor * size % (1 << bits) == 0
            total = total + (source * factor if whole and source is not None else Polynomial({product: factor}))
        return total

    def divided(self, value: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Return the quotient, rounded down, and the remainder, of a divisor above 0."""
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
        """Return a value that equals the value of whichever condition holds. At most one condition does.

        `choices` are pairs of a condition and a value. If all values are equal, the result is this value. Otherwise it
        contains a new symbol, defined by the conditions. Without a possible condition it is an unknown value.
        """
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
        choice = Symbol(
            "chosen",
            None if None in lows else min(lows),
            None if None in highs else max(highs),
            varies,
        )
        choice.definition = tuple(implies(condition, equal(polynomial(choice), value)) for condition, value in rests)
        return polynomial(choice) + common

    def compare(self, operator: str, left: Polynomial, right: Polynomial, bits: int, signed: bool) -> Formula:
        """Return the formula ``left operator right``, for registers of `bits` bits."""
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
    """Return the path of the point where several paths meet, and for each path the conjunction of its own conditions.

    The result begins with the conditions that all paths share, and ends with the disjunction of the rest.
    """
    first = paths[0]
    count = 0
    while all(len(path) > count and path[count] == first[count] for path in paths):
        count += 1
    rests = [everything(path[count:]) for path in paths]
    return first[:count] + conjuncts(union(rests)), rests


def union(rests: list[Formula]) -> Formula:
    """Return the disjunction of conditions, simplified.

    Two conditions that differ only in one conjunct, which is negated in the other, become the conjuncts that they
    share.
    """
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


def _joined(first: Formula, other: Formula) -> Formula | None:
    a, b = conjuncts(first), conjuncts(other)
    shared = tuple(item for item in a if item in b)
    rest_a = everything(item for item in a if item not in shared)
    rest_b = everything(item for item in b if item not in shared)
    opposite_rests = rest_a == negation(rest_b) or negation(rest_a) == rest_b
    if (opposite_rests and not has_last_round(rest_a) and not has_last_round(rest_b)) or TRUE in (rest_a, rest_b):
        return everything(shared)
    # a or (b and not a) is a or b.
    for x, y in ((rest_a, rest_b), (rest_b, rest_a)):
        opposite = conjuncts(negation(x))
        if len(conjuncts(x)) == 1 and set(opposite) <= set(conjuncts(y)):
            remaining = everything(item for item in conjuncts(y) if item not in opposite)
            return everything((*shared, some((x, remaining))))
    return None


def conjuncts(item: Formula) -> tuple[Formula, ...]:
    """Return the parts of a conjunction; for any other formula, the formula alone; for True, nothing."""
    return item.items if isinstance(item, All) else (item,)


Value: TypeAlias = Polynomial | Opaque | Atom | Flag | Not | All | Some | LastRound
FORMULAS = (Atom, Flag, Not, All, Some, LastRound)
INTEGERS: Final = {f"{letter}{bits}": (bits, letter == "s") for letter in "bus" for bits in (8, 16, 32, 64)}
_FLOATS: Final = frozenset(
    {"f16", "f16x2", "f32", "f32x2", "f64", "bf16", "bf16x2", "tf32", "e4m3x2", "e5m2x2", "b128"}
)
#: Bits of infinity, for floats whose bits are followed through absolute values and comparisons.
_INFINITIES: Final = {"f32": 0x7F80_0000, "f64": 0x7FF0_0000_0000_0000}


class Unsupported(Exception):
    """Error of a kernel that cannot be judged. Its text is the reason, to be put after the line number in a message."""


@dataclass
class Registers:
    """A thread's registers by name, and the values of other operands: special registers, constants and addresses."""

    values: dict[str, Value]
    types: dict[str, str]
    numbers: Numbers
    special: Callable[[str], Value]
    base_of: Callable[[str], Polynomial]

    def bits(self, name: str) -> int:
        """Return the width of a declared register in bits; 1 for a predicate."""
        declared = self.types[name]
        return int("".join(filter(str.isdigit, declared.partition("x")[0])) or 1)

    def bits_of(self, operand: program.Operand | None, other: int) -> int:
        """Return the width in bits of an operand that is a declared register; for any other operand, `other`."""
        return (
            self.bits(operand.name) if isinstance(operand, program.Register) and operand.name in self.types else other
        )

    def is_float(self, operand: program.Operand) -> bool:
        """Return whether an operand is a register of floats.

        If such a register holds a number, the number is the float's bits.
        """
        return isinstance(operand, program.Register) and self.types.get(operand.name, "").startswith("f")

    def read(self, operand: program.Operand) -> Value:
        """Return the value of an operand."""
        if isinstance(operand, program.Register):
            if operand.name not in self.types:
                return self.special(operand.name)
            value = self.values.get(operand.name)
            return Opaque("it was never written") if value is None else value
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
        """Return the value of an operand as a number."""
        value = self.read(operand)
        if isinstance(value, Polynomial):
            return value
        if isinstance(value, Opaque):
            unknown = self.numbers.unknown(value.reason, *words.bounds(True, self.bits_of(operand, 64)))
            if isinstance(operand, program.Register) and operand.name in self.types:
                self.values[operand.name] = unknown
            return unknown
        return self.numbers.chosen(((value, polynomial(1)), (negation(value), polynomial(0))))

    def predicate(self, operand: program.Operand) -> Formula:
        """Return the value of an operand as a truth value."""
        value = self.read(operand)
        if isinstance(value, FORMULAS):
            return value
        if isinstance(value, Polynomial) and value.constant is not None:
            return TRUE if value.constant else FALSE
        flag = self.numbers.flag(value.reason if isinstance(value, Opaque) else "it is a number")
        if isinstance(operand, program.Register) and operand.name in self.types:
            self.values[operand.name] = flag
        return flag

    def write(self, operand: program.Operand, value: Value, condition: Formula = TRUE) -> None:
        """Set a register to a value where a condition holds; elsewhere the register keeps its former value.

        Operands that are no registers are ignored. Of a group of registers each becomes unknown.
        """
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
        """Return the value whose condition holds, from pairs of condition and value.

        The result is unknown if the values differ and one is unknown, or if they are of different kinds.
        """
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
#: Value of the carry: unknown. Instructions that write the carry are refused.
_CARRY: Final = program.Group("carry", ())


class _Unfollowed(Exception):
    """Error of an operation whose result is not a polynomial."""


class NumberWord(words.Word):
    """A word of a thread: a polynomial that equals its bits modulo 2 to its width, or a formula.

    The polynomial of a float is its bits. The value is `Opaque` where they are not followed.
    """

    __slots__ = ("impossible", "numbers", "reason", "value")

    def __init__(self, numbers: Numbers, value: Value, type_name: str, reason: str) -> None:
        super().__init__(type_name)
        self.numbers, self.value, self.reason = numbers, value, reason
        #: A condition that provably does not hold where the word is computed.
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
        """The number in the range of the word's type."""
        return self.numbers.canonical(self.number, self.bits, self.signed)

    @property
    def constant_value(self) -> int | None:
        if isinstance(self.value, Polynomial):
            return None if self.value.constant is None else self.canonical.constant
        return {TRUE: 1, FALSE: 0}.get(self.truth) if isinstance(self.value, FORMULAS) else None

    def constant(self, value: int, type_name: str) -> NumberWord:
        return self._word((TRUE if value & 1 else FALSE) if type_name == "pred" else polynomial(value), type_name)

    def _word(self, value: Value, type_name: str) -> NumberWord:
        return NumberWord(self.numbers, value, type_name, self.reason)

    def do(self, name: str, type_name: str, *others: Any) -> NumberWord:
        operation = _OPERATIONS.get(name)
        if operation is None:
            raise _Unfollowed
        result = operation(self, type_name, *others)
        return result if isinstance(result, NumberWord) else self._word(result, type_name)

    def unknown(self, low: int, high: int) -> Polynomial:
        return self.numbers.unknown(self.reason, low, high)


def step(instr: program.Instruction, registers: Registers, condition: Formula) -> None:
    """Run one instruction that does not access memory, where its guard holds.

    Raises
    ------
    Unsupported
        For an instruction that is not followed.
    """
    does = facts.facts_of(instr).does
    if does in ("hints", "fences", "converges"):
        return
    if does == "calls":
        raise Unsupported("a call of a function that is not inlined")
    if does != "computes" or not instr.operands or "cc" in instr.modifiers:
        raise Unsupported(f"the instruction {instr}")
    target, compares = instr.operands[0], instr.opcode == "setp"
    if instr.opcode in ("mov", "cvta"):
        registers.write(target, _moved(instr, registers), condition)
        return
    reason = f"{instr} {_UNFOLLOWED}"
    if not _FLOATS.isdisjoint(instr.modifiers):
        reason = "it is a comparison of floats" if compares else "it is computed from floats"
    try:
        results = _results(instr, registers, reason)
    except (_Unfollowed, EmulationError):
        registers.write(target, registers.numbers.flag(reason) if compares else Opaque(reason), condition)
        return
    for operand, word in results:
        is_wider = isinstance(word.value, Polynomial) and registers.bits_of(operand, word.bits) > word.bits
        registers.write(operand, word.canonical if is_wider else word.value, condition)


def _moved(instr: program.Instruction, registers: Registers) -> Value:
    target, source, *_ = instr.operands
    if instr.opcode == "cvta":
        return registers.number(source)
    if isinstance(source, program.Group) or isinstance(target, program.Group):
        return Opaque(f"{instr} of several parts {_UNFOLLOWED}")
    is_bits = registers.is_float(source) and not registers.is_float(target)
    return registers.number(source) if is_bits else registers.read(source)


def _results(instr: program.Instruction, registers: Registers, reason: str) -> list[tuple[program.Operand, NumberWord]]:
    """Return the results of an instruction, computed by the meaning of its opcode: pairs of target operand and value.

    `reason` is the reason given for values that become unknown. An instruction without a known meaning raises.
    """
    entry = words.bound(instr, _CARRY)
    if entry is None:
        raise _Unfollowed
    read: list[Any] = []
    for source, operand in entry.sources:
        if source == "int":
            read.append(operand.value if isinstance(operand, program.Immediate) else None)
            continue
        type_name = words.WORD_TYPES.get(words.source_type(entry.form, source), "")
        # Branches on absolute values of floats are followed by their bits.
        value = _operand(registers, operand, type_name, instr.opcode == "abs")
        read.append(NumberWord(registers.numbers, value, type_name, reason))
    results = entry.meaning.function(entry.form, *read)
    return list(zip(entry.targets, words.results_of(results, len(entry.targets)), strict=True))


def _operand(registers: Registers, operand: program.Operand, type_name: str, is_followed: bool) -> Value:
    """Return the value of an operand that an instruction reads as `type_name`.

    A float that is unknown stays unknown, unless `is_followed`: then it becomes an unknown number that stands for its
    bits.
    """
    if type_name == "pred":
        return registers.predicate(operand)
    if isinstance(operand, program.Immediate) and operand.float_bits:
        return polynomial(operand.value) if operand.float_bits == words.BITS[type_name] else registers.read(operand)
    is_float = type_name[0] == "f" or registers.is_float(operand)
    return registers.read(operand) if is_float and not is_followed else registers.number(operand)


# ── operations on words ──


def _sum(sign: int) -> Callable[..., Value]:
    return lambda a, type_name, b: a.number + b.number * sign


def _not(a: NumberWord, type_name: str) -> Value:
    return negation(a.truth) if type_name == "pred" else -a.number - 1


def _absolute(a: NumberWord, type_name: str) -> Value:
    if type_name[0] == "f":
        return _masked(a.numbers, a.number, (1 << a.bits - 1) - 1, a.bits)
    value = a.canonical
    positive = at_least(value, 0)
    return a.numbers.chosen(((positive, value), (negation(positive), -value)))


def _extreme(is_least: bool) -> Callable[..., Value]:
    def do(a: NumberWord, type_name: str, b: NumberWord) -> Value:
        x, y = a.canonical, b.canonical
        first = at_least(y, x) if is_least else at_least(x, y)
        return a.numbers.chosen(((first, x), (negation(first), y)))

    return do


def _bitwise(opcode: str) -> Callable[..., Value]:
    def do(a: NumberWord, type_name: str, b: NumberWord) -> Value:
        if type_name == "pred":
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
        # Take the bits of the mask out, and put the new ones in.
        part = _masked(a.numbers, x, mask, a.bits)
        return x - part + mask if opcode == "or" else x - part * 2 + mask

    return do


def _masked(numbers: Numbers, value: Polynomial, mask: int, bits: int) -> Polynomial:
    """Return ``value & mask`` for a constant mask of `bits` bits, as a sum over the runs of ones in the mask."""
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
    """Return ``and``, ``or`` or ``xor`` of two numbers, by the opcode.

    If the numbers provably share no bits, ``or`` and ``xor`` are their sum. Otherwise the result is an unknown number
    with bounds.
    """
    if opcode != "and":
        for left, other in ((a, b), (b, a)):
            high = other.range[1]
            if high is None or not other.within(0, high):
                continue
            if all(factor % (1 << high.bit_length()) == 0 for factor in left.terms.values()):
                return left + other
    both = [value.range for value in (a, b) if value.range[0] is not None and value.range[0] >= 0]
    tops = [high for _, high in both if high is not None]
    if opcode == "and" and tops:
        return word.unknown(0, min(tops))
    return word.unknown(0, (1 << (max(tops).bit_length() if len(tops) == 2 else word.bits)) - 1)


def _shifted_left(a: NumberWord, type_name: str, by: NumberWord) -> Value:
    if by.constant_value is None:
        raise _Unfollowed
    return a.number * (1 << by.constant_value)


def _shifted_right(a: NumberWord, type_name: str, by: NumberWord) -> Value:
    if by.constant_value is None:
        raise _Unfollowed
    return a.numbers.divided(a.canonical, polynomial(1 << by.constant_value))[0]


def _high_product(a: NumberWord, type_name: str, b: NumberWord) -> Value:
    return a.numbers.divided(a.canonical * b.canonical, polynomial(1 << a.bits))[0]


def _quotient(is_rest: bool) -> Callable[..., NumberWord]:
    """Return a function that divides two words, rounding toward 0.

    The function returns the quotient, or with `is_rest` the remainder. The function raises if the divisor is not
    provably above 0.
    """

    def do(a: NumberWord, type_name: str, b: NumberWord) -> NumberWord:
        x, y, numbers = a.canonical, b.canonical, a.numbers
        if not numbers.holds(at_least(y, 1)):
            raise _Unfollowed
        result = numbers.divided(x, y)[is_rest]
        if a.signed and not x.within(0, 1 << a.bits) and not numbers.holds(at_least(x, 0)):
            positive = at_least(x, 0)
            result = numbers.chosen(((positive, result), (negation(positive), -numbers.divided(-x, y)[is_rest])))
        word = a._word(result, type_name)
        word.impossible = b.do("eq", "pred", b.constant(0, b.type_name)).truth
        return word

    return do


def _compared(name: str) -> Callable[..., Formula]:
    def do(a: NumberWord, type_name: str, b: NumberWord) -> Formula:
        if a.type_name[0] == "f":
            return _compared_floats(name, a, b)
        return a.numbers.compare(name, a.number, b.number, a.bits, a.signed)

    return do


def _float(a: NumberWord) -> tuple[Polynomial, Formula]:
    """Return the bits of a float, and the condition that the float is not NaN."""
    infinity = _INFINITIES.get(a.type_name)
    if infinity is None:
        raise _Unfollowed
    bits, sign = a.canonical, 1 << a.bits - 1
    return bits, some((at_least(infinity, bits), everything((at_least(bits, sign), at_least(sign + infinity, bits)))))


def _compared_floats(name: str, a: NumberWord, b: NumberWord) -> Formula:
    """Return the formula of a float comparison: of a float with itself, or with a constant above 0. Others raise.

    `name` is the comparison, such as ``lt``. Floats above 0 are ordered as their bits.
    """
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


def _with_nan(a: NumberWord, type_name: str, *sources: NumberWord) -> Value:
    """Return the bits of a float, with other bits if it is NaN.

    Without `sources` NaN becomes float32's canonical NaN. With `sources` it becomes any NaN of the type.
    """
    bits, is_number = _float(a)
    nan = polynomial(0x7FFF_FFFF)
    if sources:
        nan = a.unknown(*words.bounds(False, a.bits))
        (symbol,) = nan.symbols
        symbol.definition = (negation(_float(a._word(nan, type_name))[1]),)
    return a.numbers.chosen(((is_number, bits), (negation(is_number), nan)))


def _chosen(a: NumberWord, type_name: str, first: NumberWord, second: NumberWord) -> Value:
    condition = a.truth
    if condition == second.impossible:
        return second.value
    if type_name == "pred":
        return some((everything((condition, first.truth)), everything((negation(condition), second.truth))))
    for value in (first.value, second.value):
        if isinstance(value, Opaque):
            return value
    return a.numbers.chosen(((condition, first.number), (negation(condition), second.number)))


def _converted(a: NumberWord, type_name: str) -> Value:
    if type_name not in INTEGERS:
        raise _Unfollowed
    bits, signed = INTEGERS[type_name]
    if a.type_name == "pred":
        return a.numbers.chosen(((a.truth, polynomial(1)), (negation(a.truth), polynomial(0))))
    if a.type_name not in INTEGERS:
        return a.unknown(*words.bounds(signed, bits))
    if bits > a.bits:
        return a.canonical
    return a.numbers.narrowed(a.number, bits) if bits < a.bits else a.number


_OPERATIONS: Final[dict[str, Callable[..., Value | NumberWord]]] = {
    "add": _sum(1), "sub": _sum(-1), "mul": lambda a, type_name, b: a.number * b.number, "mulhi": _high_product,
    "div": _quotient(False), "rem": _quotient(True), "neg": lambda a, type_name: -a.number, "abs": _absolute,
    "min": _extreme(True), "max": _extreme(False), "not": _not,
    **{name: _bitwise(name) for name in ("and", "or", "xor")}, "shl": _shifted_left, "shr": _shifted_right,
    **{name: _compared(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}, "choose": _chosen,
    "to": _converted, "view": lambda a, type_name: a.number, "canonical": _with_nan, "nan_from": _with_nan,
    **dict.fromkeys(("clz", "popc"), lambda a, type_name: a.unknown(0, a.bits)),
}  # fmt: skip
