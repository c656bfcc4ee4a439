"""What PTX instructions do to a thread's registers, as far as whole numbers and predicates go.

Values are exact where they can be said, else a new symbol that says why not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cudakit.emulator.isa.facts import facts_of
from cudakit.emulator.ptx.program import Group, Immediate, Instruction, Operand, Register
from cudakit.emulator.ptx.program import Symbol as Variable
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

    def is_float(self, operand: Operand) -> bool:
        """Whether an operand is a register of floats, of which a number is the bits."""
        return isinstance(operand, Register) and self.types.get(operand.name, "").startswith("f")

    def read(self, operand: Operand) -> Value:
        """The value of an operand."""
        if isinstance(operand, Register):
            if operand.name not in self.types:
                return self.special(operand.name)
            found = self.values.get(operand.name)
            return Opaque("it was never written") if found is None else found
        if isinstance(operand, Immediate):
            return Opaque("it is a float") if operand.float_bits else polynomial(operand.value)
        if isinstance(operand, Variable):
            return self.base_of(operand.name) + operand.offset
        if isinstance(operand, Group) and operand.kind == "not":
            return negation(self.predicate(operand.items[0]))
        if isinstance(operand, Group) and operand.kind == "negative":
            return -self.number(operand.items[0])
        return Opaque("it is of several parts")

    def number(self, operand: Operand) -> Polynomial:
        """The value of an operand, as a number."""
        found = self.read(operand)
        if isinstance(found, Polynomial):
            return found
        if isinstance(found, Opaque):
            bits = self.bits(operand.name) if isinstance(operand, Register) and operand.name in self.types else 64
            made = self.numbers.unknown(found.reason, -(1 << bits - 1), (1 << bits - 1) - 1)
            if isinstance(operand, Register) and operand.name in self.types:
                self.values[operand.name] = made
            return made
        return self.numbers.chosen(((found, polynomial(1)), (negation(found), polynomial(0))))

    def predicate(self, operand: Operand) -> Formula:
        """The value of an operand, as a truth."""
        found = self.read(operand)
        if isinstance(found, FORMULAS):
            return found
        if isinstance(found, Polynomial) and found.constant is not None:
            return TRUE if found.constant else FALSE
        made = self.numbers.flag(found.reason if isinstance(found, Opaque) else "it is a number")
        if isinstance(operand, Register) and operand.name in self.types:
            self.values[operand.name] = made
        return made

    def write(self, operand: Operand, value: Value, condition: Formula = TRUE) -> None:
        """Give a register its value, where a condition holds."""
        if isinstance(operand, Group):
            for item in operand.items:
                self.write(item, value if isinstance(value, Opaque) else Opaque("it is of several parts"), condition)
            return
        if not isinstance(operand, Register) or operand.name not in self.types:
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


def step(given: Instruction, registers: Registers, condition: Formula) -> None:
    """Do one instruction that touches no memory, where its guard holds.

    Raises
    ------
    Unsupported
    """
    facts = facts_of(given)
    if facts.does in ("hints", "fences", "meets"):
        return
    kind = given.modifiers[-1] if given.modifiers else ""
    make = _MAKERS.get(given.opcode)
    if facts.does == "calls":
        raise Unsupported("a call of a function that is not inlined")
    if facts.does != "computes" or not given.operands:
        raise Unsupported(f"the instruction {given}")
    target = given.operands[0]
    value: Value
    if given.opcode == "abs" and kind in _INFINITIES and "ftz" not in given.modifiers:
        bits = registers.bits(target.name) if isinstance(target, Register) else 0
        value = _masked(registers.numbers, registers.number(given.operands[1]), (1 << bits - 1) - 1, bits)
    elif make is None or (kind in _FLOATS and facts.category not in ("move", "compare", "convert")):
        value = Opaque("it is computed from floats" if kind in _FLOATS else f"{given} is not followed")
    else:
        value = make(given, registers)
    registers.write(target, value, condition)


def _width(given: Instruction) -> tuple[int, bool]:
    found = INTEGERS.get(given.modifiers[-1])
    if found is None:
        raise Unsupported(f"the instruction {given}")
    return found


def _move(given: Instruction, registers: Registers) -> Value:
    source = given.operands[1]
    if isinstance(source, Register | Immediate | Variable) and not isinstance(given.operands[0], Group):
        is_bits = registers.is_float(source) and not registers.is_float(given.operands[0])
        return registers.number(source) if is_bits else registers.read(source)
    return Opaque(f"{given} of several parts is not followed")


def _add(given: Instruction, registers: Registers) -> Value:
    if {"sat", "cc"} & set(given.modifiers):
        raise Unsupported(f"the instruction {given}")
    a, b = map(registers.number, given.operands[1:3])
    return a + b if given.opcode == "add" else a - b


def _product(given: Instruction, registers: Registers) -> Value:
    bits, signed = _width(given)
    if {"sat", "cc"} & set(given.modifiers):
        raise Unsupported(f"the instruction {given}")
    numbers = registers.numbers
    a, b = map(registers.number, given.operands[1:3])
    if "lo" not in given.modifiers:
        a, b = numbers.canonical(a, bits, signed), numbers.canonical(b, bits, signed)
    value = a * b
    if "hi" in given.modifiers:
        value = numbers.divided(value, polynomial(1 << bits))[0]
    return value + registers.number(given.operands[3]) if given.opcode == "mad" else value


def _negate(given: Instruction, registers: Registers) -> Value:
    value = registers.number(given.operands[1])
    return -value if given.opcode == "neg" else _absolute(given, registers, value)


def _absolute(given: Instruction, registers: Registers, value: Polynomial) -> Value:
    value = registers.numbers.canonical(value, _width(given)[0], True)
    positive = at_least(value, 0)
    return registers.numbers.chosen(((positive, value), (negation(positive), -value)))


def _extreme(given: Instruction, registers: Registers) -> Value:
    bits, signed = _width(given)
    if "relu" in given.modifiers:
        raise Unsupported(f"the instruction {given}")
    a, b = (registers.numbers.canonical(registers.number(each), bits, signed) for each in given.operands[1:3])
    first = at_least(b, a) if given.opcode == "min" else at_least(a, b)
    return registers.numbers.chosen(((first, a), (negation(first), b)))


def _not(given: Instruction, registers: Registers) -> Value:
    if given.modifiers[-1] == "pred":
        return negation(registers.predicate(given.operands[1]))
    return -registers.number(given.operands[1]) - 1


def _bitwise(given: Instruction, registers: Registers) -> Value:
    if given.modifiers[-1] == "pred":
        p, q = map(registers.predicate, given.operands[1:3])
        if given.opcode == "xor":
            return some((everything((p, negation(q))), everything((negation(p), q))))
        return everything((p, q)) if given.opcode == "and" else some((p, q))
    bits, _ = _width(given)
    a, b = map(registers.number, given.operands[1:3])
    if a.constant is not None:
        a, b = b, a
    if b.constant is None:
        return _disjoint(given, registers, a, b)
    mask, whole = b.constant & ((1 << bits) - 1), (1 << bits) - 1
    if a.constant is not None:
        c = a.constant & whole
        return polynomial({"and": c & mask, "or": c | mask, "xor": c ^ mask}[given.opcode])
    if given.opcode == "and":
        return _masked(registers.numbers, a, mask, bits)
    if mask == whole:
        return polynomial(-1) if given.opcode == "or" else -a - 1
    # The bits of the mask are taken out, and put in as they are to be.
    part = _masked(registers.numbers, a, mask, bits)
    return a - part + mask if given.opcode == "or" else a - part * 2 + mask


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


def _disjoint(given: Instruction, registers: Registers, a: Polynomial, b: Polynomial) -> Value:
    """Of two numbers that share no bits, ``or`` and ``xor`` are the sum."""
    numbers = registers.numbers
    if given.opcode != "and":
        for one, other in ((a, b), (b, a)):
            high = other.range[1]
            if high is None or not other.within(0, high):
                continue
            if all(factor % (1 << high.bit_length()) == 0 for factor in one.terms.values()):
                return one + other
    both = [value.range for value in (a, b) if value.range[0] is not None and value.range[0] >= 0]
    tops = [high for _, high in both if high is not None]
    bits, _ = _width(given)
    reason = f"{given} is not followed"
    if given.opcode == "and" and tops:
        return numbers.unknown(reason, 0, min(tops))
    if len(tops) == 2:
        return numbers.unknown(reason, 0, (1 << max(tops).bit_length()) - 1)
    return numbers.unknown(reason, 0, (1 << bits) - 1)


def _shift(given: Instruction, registers: Registers) -> Value:
    bits, signed = _width(given)
    value, by = map(registers.number, given.operands[1:3])
    if by.constant is None:
        return Opaque(f"{given} by an amount that is not constant is not followed")
    amount = by.constant & 0xFFFFFFFF
    if given.opcode == "shl":
        return value * (1 << amount) if amount < bits else polynomial(0)
    value = registers.numbers.canonical(value, bits, signed)
    return registers.numbers.divided(value, polynomial(1 << min(amount, bits)))[0]


def _divide(given: Instruction, registers: Registers) -> Value:
    bits, signed = _width(given)
    numbers = registers.numbers
    a, b = (numbers.canonical(registers.number(each), bits, signed) for each in given.operands[1:3])
    if not numbers.holds(at_least(b, 1)):
        return Opaque(f"{given} by what may be 0 or less is not followed")
    quotient, rest = numbers.divided(a, b)
    if signed and not a.within(0, 1 << bits) and not numbers.holds(at_least(a, 0)):
        below, rest_below = numbers.divided(-a, b)
        positive = at_least(a, 0)
        quotient = numbers.chosen(((positive, quotient), (negation(positive), -below)))
        rest = numbers.chosen(((positive, rest), (negation(positive), -rest_below)))
    return quotient if given.opcode == "div" else rest


def _compare(given: Instruction, registers: Registers) -> Value:
    operator, kind = given.modifiers[0], given.modifiers[-1]
    if kind in _FLOATS:
        found = _compare_floats(given, registers)
    else:
        bits, signed = _width(given)
        a, b = map(registers.number, given.operands[1:3])
        found = registers.numbers.compare(operator, a, b, bits, signed)
    if isinstance(given.operands[0], Group):
        raise Unsupported(f"the instruction {given} with two results")
    joined = next((each for each in given.modifiers if each in ("and", "or", "xor")), None)
    if joined is None:
        return found
    other = registers.predicate(given.operands[3])
    if joined == "xor":
        return some((everything((found, negation(other))), everything((negation(found), other))))
    return everything((found, other)) if joined == "and" else some((found, other))


def _compare_floats(given: Instruction, registers: Registers) -> Formula:
    """A comparison of floats: of one of which the bits are followed, with a number above 0, by the bits."""
    operator, kind = given.modifiers[0], given.modifiers[-1]
    left, right = given.operands[1:3]
    width, infinity = (64 if kind == "f64" else 32), _INFINITIES.get(kind, 0)
    is_followed = isinstance(registers.read(left), Polynomial) and "ftz" not in given.modifiers
    if (
        not isinstance(right, Immediate)
        or right.float_bits != width
        or not 0 < right.value <= infinity
        or not is_followed
    ):
        return registers.numbers.flag("it is a comparison of floats")
    bits = registers.numbers.canonical(registers.number(left), width, False)
    sign = 1 << width - 1
    number = some((at_least(infinity, bits), everything((at_least(bits, sign), at_least(sign + infinity, bits)))))
    # What is above 0 is ordered as its bits are.
    more = everything((at_least(bits, right.value + 1), at_least(infinity, bits)))
    same = equal(bits, right.value)
    made = {
        "eq": same,
        "ne": everything((number, negation(same))),
        "gt": more,
        "ge": some((same, more)),
        "lt": everything((number, negation(some((same, more))))),
        "le": everything((number, negation(more))),
        "num": number,
    }
    if operator in made:
        return made[operator]
    if operator == "nan":
        return negation(number)
    return some((made[operator[:-1]], negation(number)))


def _select(given: Instruction, registers: Registers) -> Value:
    condition = registers.predicate(given.operands[3])
    first, second = registers.read(given.operands[1]), registers.read(given.operands[2])
    return registers.either(((condition, first), (negation(condition), second)))


def _convert(given: Instruction, registers: Registers) -> Value:
    to, source = given.modifiers[-2], given.modifiers[-1]
    if to not in INTEGERS:
        return Opaque("it is computed from floats")
    bits, signed = INTEGERS[to]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if source not in INTEGERS:
        return registers.numbers.unknown("it is computed from floats", low, high)
    if "sat" in given.modifiers:
        return registers.numbers.unknown(f"{given} is not followed", low, high)
    value = registers.number(given.operands[1])
    if INTEGERS[source][0] < bits:
        value = registers.numbers.canonical(value, *INTEGERS[source])
    elif INTEGERS[source][0] > bits:
        value = registers.numbers.narrowed(value, bits)
    target = given.operands[0]
    if isinstance(target, Register) and registers.bits(target.name) > bits:
        return registers.numbers.canonical(value, bits, signed)
    return value


def _address(given: Instruction, registers: Registers) -> Value:
    return registers.number(given.operands[1])


def _count(instruction: Instruction, registers: Registers) -> Value:
    return registers.numbers.unknown(f"{instruction} is not followed", 0 if instruction.opcode != "bfind" else -1, 64)


_MAKERS: Final[dict[str, Callable[[Instruction, Registers], Value]]] = {
    "mov": _move,
    "add": _add,
    "sub": _add,
    "mul": _product,
    "mad": _product,
    "neg": _negate,
    "abs": _negate,
    "min": _extreme,
    "max": _extreme,
    "not": _not,
    "and": _bitwise,
    "or": _bitwise,
    "xor": _bitwise,
    "shl": _shift,
    "shr": _shift,
    "div": _divide,
    "rem": _divide,
    "setp": _compare,
    "selp": _select,
    "cvt": _convert,
    "cvta": _address,
    "popc": _count,
    "clz": _count,
    "bfind": _count,
}
