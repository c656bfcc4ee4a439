"""Default arguments of C++ that are plain constants, as Python values."""

from __future__ import annotations

import ast
import math
import re
from typing import Any, Final

import numpy as np

#: A number as C++ writes it: digits in groups, and a suffix for its type.
_NUMBER: Final = re.compile(
    r"(?<![\w.])(0[xX][\da-fA-F']+|0[bB][01']+|(?:\d[\d']*\.?[\d']*|\.\d[\d']*)(?:[eE][+-]?\d+)?)([uUlLzZ]*|[fF])(?![\w.])"
)
_LETTER: Final = re.compile(r"(?<!\w)'([A-Za-z0-9_+\-.!?@$%^&|~])'")
_WORDS: Final = {"true": True, "false": False, "nullptr": None, "NULL": None}


def constant(text: str) -> tuple[Any] | None:
    """The value of `text`, alone in a tuple; None for what is no expression of literals.

    >>> constant("1 << 4"), constant("nullptr"), constant("BLOCK")
    ((16,), (None,), None)
    """
    if text in _WORDS:
        return (_WORDS[text],)
    text = _LETTER.sub(lambda match: str(ord(match[1])), text)
    try:
        return (_value(ast.parse(_NUMBER.sub(_python, text).strip(), mode="eval").body),)
    except (SyntaxError, ValueError, ArithmeticError):
        return None


def _python(match: re.Match[str]) -> str:
    digits, suffix = match[1].replace("'", ""), match[2]
    if suffix in ("f", "F"):
        return repr(float(np.float32(digits)))
    # C++ has octal numbers that begin with a zero alone.
    return f"0o{digits[1:]}" if re.fullmatch(r"0[0-7]+", digits) else digits


def _value(node: ast.expr) -> int | float:
    match node:
        case ast.Constant(int() | float() as value):
            return value
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand)
        case ast.BinOp(left, operation, right):
            return _applied(operation, _value(left), _value(right))
    raise ValueError("no constant")


def _applied(operation: ast.operator, left: int | float, right: int | float) -> int | float:
    match operation, left, right:
        case ast.Add(), _, _:
            return left + right
        case ast.Sub(), _, _:
            return left - right
        case ast.Mult(), _, _:
            return left * right
        case ast.Div(), int(), int():
            return math.trunc(left / right)
        case ast.Div(), _, _:
            return left / right
        case ast.LShift(), int(), int():
            return left << min(right, 64)
    raise ValueError("no constant")
