"""Constants and constant expressions: PTX ISA 4.5, evaluated as in C on 64-bit integers and doubles."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import NamedTuple

from cudakit.emulator.ptx.program import Immediate
from cudakit.emulator.ptx.tokens import Tokens, is_number
from cudakit.errors import shortened

_DEEPEST = 64
_WORD = 2**64


class _Value(NamedTuple):
    """A constant while it is computed: an int (signed or unsigned) or a float."""

    number: int | float
    unsigned: bool = False

    def wrapped(self) -> _Value:
        if isinstance(self.number, float):
            return self
        number = self.number % _WORD
        return _Value(number if self.unsigned or number < _WORD // 2 else number - _WORD, self.unsigned)


def _quotient(a: int | float, b: int | float) -> int | float:
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


#: operator → (how tightly it binds, what it computes, whether it takes integers only)
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
    """The constant expression at hand; a float alone keeps its bits."""
    if tokens.token.isdecimal() and tokens.token[0] != "0" and tokens.text[tokens.end : tokens.end + 1] in ",;]}":
        # Most constants are a number alone.
        return Immediate(literal(tokens))
    negative = tokens.token == "-" and tokens.text[tokens.end : tokens.end + 2].lower() in ("0f", "0d")
    if negative:
        tokens.take()
    if tokens.token[:2].lower() in ("0f", "0d") and is_number(tokens.token):
        digits = tokens.take()[2:]
        return Immediate(int(digits, 16) ^ (negative << (4 * len(digits) - 1)), 4 * len(digits))
    found = _conditional(tokens, 0).number
    if isinstance(found, float):
        return Immediate(struct.unpack("<Q", struct.pack("<d", found))[0], 64)
    return Immediate(found)


def integer(tokens: Tokens, most: int = _WORD) -> int:
    """The constant expression at hand as an integer from 0 to below `most`."""
    found = constant(tokens)
    if found.float_bits or not 0 <= found.value < most:
        raise tokens.error(f"expected a whole number from 0 to {most - 1}")
    return found.value


def literal(tokens: Tokens, most: int = _WORD) -> int:
    """The integer literal at hand, below `most`: where an operator may follow that is none, as in ``%r<8>``."""
    found = _literal(tokens).number
    if isinstance(found, float) or found >= most:
        raise tokens.error(f"expected a whole number below {most}")
    return found


def _conditional(tokens: Tokens, depth: int) -> _Value:
    condition = _operators(tokens, 1, depth)
    if not tokens.skip("?"):
        return condition
    chosen = _conditional(tokens, _deeper(tokens, depth))
    tokens.take(":")
    other = _conditional(tokens, _deeper(tokens, depth))
    return chosen if condition.number else other


def _operators(tokens: Tokens, least: int, depth: int) -> _Value:
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
    if depth >= _DEEPEST:
        raise tokens.error("the constant expression is nested too deeply")
    return depth + 1
