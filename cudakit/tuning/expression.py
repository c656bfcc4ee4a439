"""Restrictions as text: ``"BLOCK * ITEMS <= 1024"``, as files of spaces have them."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from cudakit.errors import ArgumentError

_FUNCTIONS = {"abs": abs, "max": max, "min": min}
#: Syntax of an expression. Powers and attributes are left out: a file must not be able to do more than compute.
_SYNTAX = (
    *(ast.Expression, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.Compare, ast.cmpop, ast.IfExp),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor),
    *(ast.BinOp, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List),
)


class Expression:
    """A restriction that is written as an expression of parameters: Python's syntax, without effects.

    Parameters
    ----------
    text : str
        Comparisons, arithmetic, ``and``, ``or``, ``not``, ``in``, and the functions ``abs``, ``min`` and ``max``.

    Raises
    ------
    ArgumentError
        The text is no such expression.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except SyntaxError as error:
            raise ArgumentError(f"restriction {text!r}: {error.msg}") from None
        calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call) and not node.keywords}
        names = []
        for node in ast.walk(tree):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
            if not (isinstance(node, _SYNTAX) or is_call):
                raise ArgumentError(f"restriction {text!r}: {ast.unparse(node)!r} is not allowed in an expression")
            if isinstance(node, ast.Name) and id(node) not in calls:
                names.append(node.id)
        self._code = compile(tree, "<restriction>", "eval")
        self.names: tuple[str, ...] = tuple(dict.fromkeys(names))
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in self.names]
        self.__signature__: inspect.Signature = inspect.Signature(parameters)

    def __call__(self, **point: Any) -> bool:
        """Return whether the expression is true for a point."""
        return bool(eval(self._code, {"__builtins__": {}, **_FUNCTIONS}, point))

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"
