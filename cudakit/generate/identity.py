"""Whether what is said to be the identity of a combination is one, where both can be computed here."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any, Final

from cudakit.errors import TemplateError, shortened

_OPERATORS: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_FUNCTIONS: Final = {"min": min, "max": max, "fmin": min, "fmax": max, "fminf": min, "fmaxf": max}
#: A number of C++ with its suffix.
_NUMBER: Final = re.compile(r"(?<![\w.])(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)([fFlLuU]*)(?![\w.])")
#: Elements, of which a combination may see only those of one sign.
_SAMPLES: Final = ((1, 2, 3, 5), (-1, -2, -3, -5))


def check_identity(name: str, reduce: str, identity: str | None) -> None:
    """Raise where ``reduce(identity, x)`` and ``reduce(x, identity)`` are no x, for simple arithmetic and numbers.

    An identity for elements of one sign is one, such as 0 of a maximum. What is not simple is taken as it is given.

    Raises
    ------
    TemplateError
    """
    number = None if identity is None else _computed(identity, {})
    if number is None:
        return
    wrong = []
    for samples in _SAMPLES:
        for x in samples:
            made = _computed(reduce, {"a": number, "b": x}), _computed(reduce, {"a": x, "b": number})
            if None in made:
                return
            if x not in made:
                wrong.append((x, made[0]))
                break
    if len(wrong) == len(_SAMPLES):
        x, made_of = wrong[0]
        raise TemplateError(
            f"{name}: {shortened(identity)} is no identity of {shortened(reduce)}: with it {x} becomes {made_of}; give "
            "its identity, or none, and a value to begin with as initial= of the call"
        )


def _computed(text: str, names: dict[str, Any]) -> Any:
    """The value of a simple expression; None for others."""
    try:
        return _value(ast.parse(_NUMBER.sub(r"\1", text.strip()), mode="eval").body, names)
    except (SyntaxError, ValueError, TypeError, KeyError, OverflowError, RecursionError, MemoryError):
        return None


def _value(node: ast.AST, names: dict[str, Any]) -> Any:
    match node:
        case ast.Constant(value) if type(value) in (int, float):
            return value
        case ast.Name(name):
            return names[name]
        case ast.UnaryOp(op, operand):
            return _OPERATORS[type(op)](_value(operand, names))
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_value(left, names), _value(right, names))
        case ast.Call(ast.Name(function), [first, second], []):
            return _FUNCTIONS[function](_value(first, names), _value(second, names))
    raise ValueError
