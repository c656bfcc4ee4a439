"""Values of constant C++ expressions: defaults of parameters."""

from __future__ import annotations

import ast
import math
import operator
import re
from typing import Any, Final

import numpy as np

#: A C++ number literal: digits in groups, and a type suffix.
_NUMBER: Final = re.compile(
    r"(?<![\w.])(0[xX][\da-fA-F']+|0[bB][01']+|(?:\d[\d']*\.?[\d']*|\.\d[\d']*)(?:[eE][+-]?\d+)?)([uUlLzZ]*|[fF])(?![\w.])"
)
_LETTER: Final = re.compile(r"(?<!\w)'([A-Za-z0-9_+\-.!?@$%^&|~])'")
_OPERATORS: Final = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_WORDS: Final = {"true": True, "false": False, "nullptr": None, "NULL": None}


def constant(text: str) -> tuple[Any] | None:
    """Evaluate an expression of C++ literals; return the value in a tuple, or None for any other expression.

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
    # C++ octal literals begin with a zero.
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
    if isinstance(operation, ast.LShift) and isinstance(left, int) and isinstance(right, int):
        return left << min(right, 64)
    if type(operation) not in _OPERATORS:
        raise ValueError("no constant")
    value: int | float = _OPERATORS[type(operation)](left, right)
    # C++ truncates the quotient of two integers.
    return math.trunc(value) if isinstance(left, int) and isinstance(right, int) else value
