"""Tokens, constants and operands of PTX text: PTX ISA 4.1 to 4.5 (source format, identifiers, constants) and 6.

Constant expressions are evaluated as in C, on 64-bit integers and doubles. Equal operands within a scope are read once
and share one record, since a function names the same registers again and again.
"""

from __future__ import annotations

import math
import operator
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from cudakit.emulator.ptx.program import Address, Group, Immediate, Operand, Register, Symbol
from cudakit.errors import EmulationError, shortened

_Item = TypeVar("_Item")
#: An identifier; dots join the parts of special registers (``%tid.x``) and of vector elements (``v.x``).
NAME = r"(?:%(?=[^\W\d]|\$)|[^\W\d]|\$)[\w$%]*+(?:\.\w+)*+"
_TOKEN = re.compile(
    rf"""\s*+(
      "(?:\\.|[^"\\])*+"
    | (?:0[fF][0-9a-fA-F]{{8}}|0[dD][0-9a-fA-F]{{16}}|[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)(?!\w)
    | (?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)U?(?!\w)
    | {NAME}
    | \.\w+
    | <<|>>|<=|>=|==|!=|&&|\|\|
    | [-+@!,;:(){{}}\[\]|=<>~*/%&^?]
    | \Z
    )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*+")
_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*+")|//[^\n]*|/\*.*?(?:\*/|(?P<open>\Z))""", re.DOTALL)


def without_comments(text: str) -> str:
    """Return `text` with spaces in place of comments, so that everything else keeps its line and column.

    Spaces and null characters at the end are dropped.

    Raises
    ------
    EmulationError
        If a comment does not end.
    """

    def blank(match: re.Match[str]) -> str:
        if match["open"] is not None:
            raise EmulationError(f"PTX line {text.count(chr(10), 0, match.start()) + 1}: the comment does not end")
        return match[1] or "\n".join(" " * len(line) for line in match[0].split("\n"))

    return _COMMENT.sub(blank, text.rstrip("\0")).rstrip()


class Tokens:
    """A cursor over PTX text.

    `token` is the current token, from position `start` to `end` in the text; it is empty at the text's end.

    Parameters
    ----------
    text : str
        PTX without comments.
    first_line : int
        Line of the text's beginning, for messages.
    """

    text: str
    first_line: int
    start: int
    end: int

    def __init__(self, text: str, first_line: int = 1) -> None:
        self.text, self.first_line = text, first_line
        self.jump(0)

    def jump(self, position: int) -> None:
        """Make the token at or after `position` the current one; raise if there is no token."""
        match = _TOKEN.match(self.text, position)
        if match is None:
            space = _SPACE.match(self.text, position)
            self.start = position if space is None else space.end()
            raise self.error(f"{shortened(self.text[self.start : self.start + 20])} is no PTX")
        self.start, self.end = match.span(1)
        self.token: str = match[1]

    def take(self, expected: str | None = None) -> str:
        """Return the current token, and move on to the next.

        With `expected`, another token is an error.
        """
        token = self.token
        if expected is not None and token != expected:
            raise self.error(f"expected {shortened(expected)}, found {token or 'the end of the text'!r}")
        if not token:
            raise self.error("the text ends in the middle of a statement")
        self.jump(self.end)
        return token

    def skip(self, token: str) -> bool:
        """Move past the current token if it is `token`; return whether it was."""
        if self.token != token:
            return False
        self.take()
        return True

    def skip_past(self, end: str) -> None:
        """Move past the next token that is `end`."""
        while self.take() != end:
            pass

    def name(self) -> str:
        """Return the current token, which must be an identifier, and move on."""
        if not is_name(self.token):
            raise self.error(f"expected a name, found {self.token or 'the end of the text'!r}")
        return self.take()

    @property
    def line(self) -> int:
        """Number of the current token's line."""
        return self.first_line + self.text.count("\n", 0, self.start)

    def error(self, problem: str) -> EmulationError:
        """Return an error that names the current line and the problem."""
        return EmulationError(f"PTX line {self.line}: {problem}")


def is_name(token: str) -> bool:
    """Return whether a token is an identifier."""
    return token[:1].isalpha() or token[:1] in ("_", "$") or (token[:1] == "%" and len(token) > 1)


def is_number(token: str) -> bool:
    """Return whether a token is a constant."""
    return "0" <= token[:1] <= "9"


# ── constants ──

_DEEPEST = 64
_WORD = 2**64


class _Value(NamedTuple):
    """A constant while it is computed: an int (signed or unsigned) or a float."""

    number: int | float
    unsigned: bool = False

    def wrapped(self) -> _Value:
        """Return the value wrapped to 64 bits by its sign."""
        if isinstance(self.number, float):
            return self
        number = self.number % _WORD
        return _Value(number if self.unsigned or number < _WORD // 2 else number - _WORD, self.unsigned)


def _quotient(a: int | float, b: int | float) -> int | float:
    """Return a quotient as C divides: of integers, rounded towards zero."""
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


#: operator → (precedence, function, whether it takes integers only)
_BINARY: dict[str, tuple[int, Callable[[int | float, int | float], int | float], bool]] = {
    "*": (10, operator.mul, False), "/": (10, _quotient, False),
    "%": (10, lambda a, b: a - b * _quotient(a, b), True),
    "+": (9, operator.add, False), "-": (9, operator.sub, False),
    "<<": (8, lambda a, b: int(a) << (int(b) & 63), True), ">>": (8, lambda a, b: int(a) >> (int(b) & 63), True),
    "<": (7, operator.lt, False), ">": (7, operator.gt, False),
    "<=": (7, operator.le, False), ">=": (7, operator.ge, False),
    "==": (6, operator.eq, False), "!=": (6, operator.ne, False),
    "&": (5, lambda a, b: int(a) & int(b), True), "^": (4, lambda a, b: int(a) ^ int(b), True),
    "|": (3, lambda a, b: int(a) | int(b), True),
    "&&": (2, lambda a, b: bool(a) and bool(b), True), "||": (1, lambda a, b: bool(a) or bool(b), True),
}  # fmt: skip


def constant(tokens: Tokens) -> Immediate:
    """Read a constant expression; a float literal alone keeps its bits and width, other floats have 64 bits."""
    if tokens.token.isdecimal() and tokens.token[0] != "0" and tokens.text[tokens.end : tokens.end + 1] in ",;]}":
        # Most constants are a number alone.
        return Immediate(literal(tokens))
    negative = tokens.token == "-" and tokens.text[tokens.end : tokens.end + 2].lower() in ("0f", "0d")
    if negative:
        tokens.take()
    if tokens.token[:2].lower() in ("0f", "0d") and is_number(tokens.token):
        digits = tokens.take()[2:]
        return Immediate(int(digits, 16) ^ (negative << (4 * len(digits) - 1)), 4 * len(digits))
    number = _conditional(tokens, 0).number
    if isinstance(number, float):
        return Immediate(struct.unpack("<Q", struct.pack("<d", number))[0], 64)
    return Immediate(number)


def integer(tokens: Tokens, most: int = _WORD) -> int:
    """Read a constant expression as an integer from 0 to below `most`."""
    value = constant(tokens)
    if value.float_bits or not 0 <= value.value < most:
        raise tokens.error(f"expected a whole number from 0 to {most - 1}")
    return value.value


def literal(tokens: Tokens, most: int = _WORD) -> int:
    """Read an integer literal below `most`, without operators behind it, as in ``%r<8>``."""
    number = _literal(tokens).number
    if isinstance(number, float) or number >= most:
        raise tokens.error(f"expected a whole number below {most}")
    return number


def _conditional(tokens: Tokens, depth: int) -> _Value:
    """Evaluate ``a ? b : c``, or an expression with binary operators."""
    condition = _operators(tokens, 1, depth)
    if not tokens.skip("?"):
        return condition
    chosen = _conditional(tokens, _deeper(tokens, depth))
    tokens.take(":")
    other = _conditional(tokens, _deeper(tokens, depth))
    return chosen if condition.number else other


def _operators(tokens: Tokens, least: int, depth: int) -> _Value:
    """Evaluate binary operators whose precedence is at least `least`."""
    left = _unary(tokens, _deeper(tokens, depth))
    while tokens.token in _BINARY and _BINARY[tokens.token][0] >= least:
        binds, compute, integers = _BINARY[tokens.token]
        name = tokens.take()
        right = _operators(tokens, binds + 1, _deeper(tokens, depth))
        if integers and (isinstance(left.number, float) or isinstance(right.number, float)):
            raise tokens.error(f"{name} takes no float")
        unsigned = left.unsigned or (right.unsigned and name not in ("<<", ">>"))
        a, b = (_Value(value.number, unsigned).wrapped().number for value in (left, right))
        try:
            result = compute(a, b)
        except (ZeroDivisionError, OverflowError) as error:
            raise tokens.error(f"the constant expression has no value ({error})") from None
        left = _Value(int(result)) if isinstance(result, bool) else _Value(result, unsigned).wrapped()
    return left


def _unary(tokens: Tokens, depth: int) -> _Value:
    """Evaluate a unary operator, a cast, brackets, or a literal."""
    if tokens.token in ("-", "+", "!", "~"):
        name = tokens.take()
        value = _unary(tokens, _deeper(tokens, depth))
        if name == "!":
            return _Value(int(not value.number))
        if name == "~":
            if isinstance(value.number, float):
                raise tokens.error("~ takes no float")
            return _Value(~value.number, value.unsigned).wrapped()
        return _Value(-value.number, value.unsigned).wrapped() if name == "-" else value
    if tokens.skip("("):
        if tokens.token in (".s64", ".u64"):
            unsigned = tokens.take() == ".u64"
            tokens.take(")")
            number = _unary(tokens, _deeper(tokens, depth)).number
            if isinstance(number, float) and not math.isfinite(number):
                raise tokens.error("an infinity has no whole number")
            return _Value(int(number), unsigned).wrapped()
        value = _conditional(tokens, _deeper(tokens, depth))
        tokens.take(")")
        return value
    if tokens.skip("WARP_SZ"):
        return _Value(32)
    return _literal(tokens)


def _literal(tokens: Tokens) -> _Value:
    """Read a number as C and PTX write it."""
    token = tokens.token
    if not is_number(token):
        raise tokens.error(f"expected a number, found {token or 'the end of the text'!r}")
    digits = token.removesuffix("U").lower()
    try:
        if digits[:2] not in ("0x", "0b") and ("." in digits or "e" in digits):
            value = _Value(float(digits))
        elif digits[:2] in ("0f", "0d"):
            raise ValueError
        else:
            base = 0 if digits[:2] in ("0x", "0b") else 8 if digits[0] == "0" else 10
            number = int(digits, base)
            value = _Value(number, token.endswith("U") or number >= _WORD // 2)
            if number >= _WORD:
                raise tokens.error(f"{token[:40]} does not fit 64 bits")
    except ValueError:
        raise tokens.error(f"{shortened(token[:40])} is no number that may stand here") from None
    tokens.take()
    return value


def _deeper(tokens: Tokens, depth: int) -> int:
    """Return the depth of an expression nested at `depth`; raise if the nesting is too deep."""
    if depth >= _DEEPEST:
        raise tokens.error("the constant expression is nested too deeply")
    return depth + 1


# ── operands ──

#: One operand with its brackets, and the comma behind it.
_OPERAND = re.compile(r"((?:[^\[\](){},]|\[[^\]]*+\]|\{[^}]*+\}|\([^()]*+(?:\([^()]*+\)[^()]*+)*+\))*+)(?:(,)|\Z)")
#: What stands before a register and changes its value, and the kind of group that it makes.
_BEFORE_NAMES = {"!": "not", "-": "negative"}
#: Parts of a register that a video instruction selects.
_PART = re.compile("b[0-7]{1,4}|h[0-3]{1,2}")


@dataclass(slots=True)
class Scope:
    """Names declared between two braces, and operands that were read with these names.

    `names` has the operand of each name, and `operands` an operand by its text. `suffix` makes the names unique in the
    function. `outer` is the scope around this one, or None.
    """

    outer: Scope | None
    suffix: str
    names: dict[str, Operand] = field(default_factory=dict)
    operands: dict[str, Operand] = field(default_factory=dict)

    def find(self, name: str) -> Operand | None:
        """Return the operand declared by a name in this scope or the nearest outer one, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


def read_operands(text: str, scope: Scope, instruction: str, line: int) -> tuple[Operand, ...]:
    """Read the operands of an instruction from the text behind its name.

    Raises
    ------
    EmulationError
        For text that is no operand. The message names the line and the instruction.
    """
    if not text or text.isspace():
        return ()
    bracketed = "[" in text or "{" in text or "(" in text
    parts = _split(text) if bracketed else text.split(",")
    if parts is None:
        raise EmulationError(
            f"PTX line {line}: {instruction}: the brackets in {shortened(text.strip()[:60])} do not match"
        )
    if instruction.startswith("call"):
        # Brackets here hold arguments, and elsewhere expressions.
        return tuple(_read(part, scope, instruction, line) for part in parts)
    while not scope.names and scope.outer is not None:
        scope = scope.outer
    operands = []
    for part in parts:
        operand = scope.operands.get(part)
        if operand is None:
            # Most operands are declared names alone, which need no tokens.
            operand = scope.find(part.strip()) or _read(part, scope, instruction, line)
            scope.operands[part] = operand
        operands.append(operand)
    return tuple(operands)


def _split(text: str) -> list[str] | None:
    """Split `text` into operands at the commas outside brackets; None if brackets do not match."""
    parts, position, comma = [], 0, True
    while comma:
        match = _OPERAND.match(text, position)
        if match is None:
            return None
        parts.append(match[1])
        position, comma = match.end(), match[2] is not None
    return parts


def _read(text: str, scope: Scope, instruction: str, line: int) -> Operand:
    """Read one operand from its text."""
    tokens = Tokens(text, line)
    if not tokens.token:
        raise tokens.error(f"{instruction}: an operand is missing")
    if tokens.token == "(" and instruction.startswith("call"):
        operand: Operand = Group("arguments", listed(tokens, "(", ")", lambda: _plain(tokens, scope)))
    else:
        operand = _operand(tokens, scope)
    if tokens.token:
        raise tokens.error(
            f"{instruction}: {shortened(tokens.token)} cannot follow in operand {shortened(text.strip()[:60])}"
        )
    return operand


def _operand(tokens: Tokens, scope: Scope) -> Operand:
    """Read an address, a modified register, a pair, a vector or a plain operand."""
    if tokens.token == "[":
        return _address(tokens, scope)
    if tokens.token in _BEFORE_NAMES and is_name(tokens.text[tokens.end :].lstrip()[:2]):
        notation = _BEFORE_NAMES[tokens.take()]
        return Group(notation, (_named(tokens, scope),))
    first = _vector_or_plain(tokens, scope)
    if tokens.skip("|"):
        return Group("pair", (first, _named(tokens, scope)))
    return first


def _vector_or_plain(tokens: Tokens, scope: Scope) -> Operand:
    """Read a vector in braces, or a plain operand."""
    if tokens.token != "{":
        return _plain(tokens, scope)
    return Group("vector", listed(tokens, "{", "}", lambda: _plain(tokens, scope)))


def listed(tokens: Tokens, start: str, end: str, read: Callable[[], _Item]) -> tuple[_Item, ...]:
    """Read items with `read`, separated by commas between two brackets."""
    tokens.take(start)
    items: list[_Item] = []
    while tokens.token != end:
        items.append(read())
        if not tokens.skip(","):
            break
    tokens.take(end)
    return tuple(items)


def _plain(tokens: Tokens, scope: Scope) -> Operand:
    """Read a name, with an offset for a variable, or a constant."""
    if not is_name(tokens.token) or tokens.token == "WARP_SZ":
        return constant(tokens)
    operand = _named(tokens, scope)
    return Symbol(operand.name, offset_behind(tokens)) if isinstance(operand, Symbol) else operand


def _named(tokens: Tokens, scope: Scope) -> Operand:
    """Read a name: a declared operand, a part of a register, a special register or a symbol."""
    name = tokens.name()
    operand = scope.find(name)
    if operand is not None:
        return operand
    whole, _, part = name.rpartition(".")
    if _PART.fullmatch(part) and (operand := scope.find(whole)) is not None:
        return Group(part, (operand,))
    return Register(name) if name.startswith("%") or name == "_" else Symbol(name)


def _address(tokens: Tokens, scope: Scope) -> Address:
    """Read an address in brackets, with its offset and coordinates."""
    tokens.take("[")
    base = _named(tokens, scope) if is_name(tokens.token) else constant(tokens)
    if not isinstance(base, Register | Symbol | Immediate):
        raise tokens.error("an address must begin with a register, a variable or a number")
    distance = offset_behind(tokens)
    coordinates: list[Operand] = []
    while tokens.skip(","):
        coordinates.append(_vector_or_plain(tokens, scope))
    tokens.take("]")
    return Address(base, distance, tuple(coordinates))


def offset_behind(tokens: Tokens) -> int:
    """Read ``+ constant`` or ``- constant`` behind a name; return its value with the sign, or 0 if there is none."""
    value = constant(tokens) if tokens.token in ("+", "-") else Immediate(0)
    if value.float_bits:
        raise tokens.error("an offset must be a whole number")
    return value.value
