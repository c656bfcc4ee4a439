"""What is stated of a kernel's sizes: expressions in Python's syntax, over integer arguments and arrays' lengths."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping

from cudakit.errors import ArgumentError, shortened
from cudakit.proof.terms import (
    Formula,
    Polynomial,
    Symbol,
    at_least,
    equal,
    everything,
    implies,
    negation,
    polynomial,
    some,
)


class Statements:
    """Reads statements; they are parsed, and never run.

    Parameters
    ----------
    kernel : str
        What errors call it.
    names : mapping of str to Polynomial
        What can be named, such as ``n``, ``len(x)`` and ``blockDim.x``.
    """

    kernel: str
    names: Mapping[str, Polynomial]

    def __init__(self, kernel: str, names: Mapping[str, Polynomial]) -> None:
        self.kernel, self.names = kernel, names
        #: Arguments that are words of Python, such as ``in`` and ``lambda``, as they are parsed.
        self._words: dict[str, str] = {}
        words = {word for name in names for word in re.findall(r"\w+", name)}
        for word in filter(keyword.iskeyword, words):
            self._words[word] = word + "_" * next(n for n in range(1, 99) if word + "_" * n not in words)
        #: What holds beside the statements: that each divisor in them is above 0.
        self.implied: list[Formula] = []

    def truth(self, text: str) -> Formula:
        """A statement such as ``0 <= n <= len(x)``.

        Raises
        ------
        ArgumentError
        """
        return self._truth(self._parsed(text), text)

    def number(self, text: str) -> Polynomial:
        """A size such as ``(n + 255) // 256``.

        Raises
        ------
        ArgumentError
        """
        return self._number(self._parsed(text), text)

    def _parsed(self, text: str) -> ast.expr:
        given = re.sub(r"\w+", lambda word: self._words.get(word[0], word[0]), text.strip())
        try:
            return ast.parse(given, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._error(text, "it is no expression") from None

    def _error(self, text: str, what: str) -> ArgumentError:
        names = ", ".join(self.names)
        return ArgumentError(
            f"{self.kernel}: cannot read {shortened(text.strip())}: {what}; expected a comparison or a number of + - "
            "* // % "
            f"over whole numbers and {names}, such as 'n <= len(x)'"
        )

    def _truth(self, node: ast.expr, text: str) -> Formula:
        if isinstance(node, ast.BoolOp):
            parts = [self._truth(each, text) for each in node.values]
            return everything(parts) if isinstance(node.op, ast.And) else some(parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return negation(self._truth(node.operand, text))
        if not isinstance(node, ast.Compare):
            raise self._error(text, "it is no comparison")
        found = []
        values = [self._number(each, text) for each in (node.left, *node.comparators)]
        for left, operator, right in zip(values, node.ops, values[1:], strict=False):
            found.append(self._compared(operator, left, right, text))
        return everything(found)

    def _compared(self, operator: ast.cmpop, left: Polynomial, right: Polynomial, text: str) -> Formula:
        if isinstance(operator, ast.Lt):
            return at_least(right, left + 1)
        if isinstance(operator, ast.LtE):
            return at_least(right, left)
        if isinstance(operator, ast.Gt):
            return at_least(left, right + 1)
        if isinstance(operator, ast.GtE):
            return at_least(left, right)
        if isinstance(operator, ast.Eq):
            return equal(left, right)
        if isinstance(operator, ast.NotEq):
            return negation(equal(left, right))
        raise self._error(text, "it has another comparison than < <= > >= == !=")

    def _number(self, node: ast.expr, text: str) -> Polynomial:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return polynomial(node.value)
        if isinstance(node, ast.Name | ast.Attribute | ast.Call):
            name = ast.unparse(node)
            for word, parsed in self._words.items():
                name = re.sub(rf"\b{parsed}\b", word, name)
            if name not in self.names:
                raise self._error(text, f"{name} is not known")
            return self.names[name]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._number(node.operand, text)
        if not isinstance(node, ast.BinOp):
            raise self._error(text, f"{ast.unparse(node)} is no number")
        left, right = self._number(node.left, text), self._number(node.right, text)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.LShift | ast.Pow) and left.constant is not None and right.constant is not None:
            if not 0 <= right.constant <= 64:
                raise self._error(text, "a shift or a power is from 0 to 64")
            return polynomial(
                left.constant << right.constant if isinstance(node.op, ast.LShift) else left.constant**right.constant
            )
        if isinstance(node.op, ast.FloorDiv | ast.Mod):
            if right.constant is not None and right.constant < 1:
                raise self._error(text, "a divisor must be above 0")
            self.implied.append(at_least(right, 1))
            varies = left.varies | right.varies
            quotient, rest = Symbol("quotient", varies=varies), Symbol("rest", 0, varies=varies)
            low, high = left.range
            if right.constant is not None:
                quotient.low = None if low is None else low // right.constant
                quotient.high = None if high is None else high // right.constant
                rest.high = right.constant - 1
            laws = (
                equal(left, right * polynomial(quotient) + polynomial(rest)),
                at_least(right - 1, polynomial(rest)),
            )
            quotient.definition = rest.definition = tuple(implies(at_least(right, 1), law) for law in laws)
            return polynomial(quotient if isinstance(node.op, ast.FloorDiv) else rest)
        raise self._error(text, "it has another operator than + - * // %")
