"""C++ expressions of variables, computed for all lanes of a warp: conditions of breakpoints, and what is printed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from cudakit.emulator.debug.dwarf import Entry
from cudakit.errors import ArgumentError, shortened

_SPELLED: Final = {"&&": " and ", "||": " or ", "->": ".", "::": "."}
_OPERATOR = re.compile(r"&&|\|\||->|!(?!=)|\b(?:true|false)\b|(?<=[\d.])[fFuUlL]+\b")
_BINARY: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_UNARY: Final[dict[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: np.logical_not
}  # fmt: skip


class Value(NamedTuple):
    """A value for each lane, and what it points to where it is an address.

    Attributes
    ----------
    data : numpy.ndarray
        The first axis are the lanes.
    target : Entry or None
    known : numpy.ndarray of bool, or None
        Lanes that have a value; None: all.
    """

    data: np.ndarray
    target: Entry | None = None
    known: np.ndarray | None = None


class Scope(Protocol):
    """What names mean."""

    def variable(self, name: str) -> Value:
        """A variable's value.

        Raises
        ------
        ArgumentError
        """

    def pointed(self, value: Value, index: np.ndarray) -> Value:
        """What lies `index` elements behind an address."""


def evaluate(text: str, scope: Scope) -> Value:
    """The value of an expression, in C++'s notation; integers are computed in 64 bits.

    Raises
    ------
    ArgumentError
        For what is no expression of known variables.
    """
    spelled = _OPERATOR.sub(_respelled, text).strip()
    try:
        tree = ast.parse(spelled, mode="eval").body
    except (SyntaxError, ValueError):
        raise ArgumentError(f"{shortened(text)} is no expression of variables, numbers, [ ], . and operators") from None
    with np.errstate(all="ignore"):
        return _Evaluation(text, scope).of(tree)


def _respelled(match: re.Match[str]) -> str:
    word = match[0]
    if word in ("true", "false"):
        return word.capitalize()
    return " not " if word == "!" else _SPELLED.get(word, "")


class _Evaluation:
    def __init__(self, text: str, scope: Scope) -> None:
        self.text, self.scope = text, scope

    def of(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return Value(np.asarray([number]))
            case ast.Name(id=name):
                return self.scope.variable(name)
            case ast.Attribute(value=inner, attr=name):
                if isinstance(inner, ast.Name) and inner.id in ("threadIdx", "blockIdx", "blockDim", "gridDim"):
                    return self.scope.variable(f"{inner.id}.{name}")
                return self._member(self.of(inner), name)
            case ast.Subscript(value=inner, slice=index):
                return self._element(self.of(inner), self.of(index))
            case ast.UnaryOp(op=operation, operand=inner):
                value = self.of(inner)
                return value._replace(data=np.asarray(_UNARY[type(operation)](value.data)), target=None)
            case ast.BoolOp(op=operation, values=parts):
                join = np.logical_and if isinstance(operation, ast.And) else np.logical_or
                found = self.of(parts[0])
                for part in parts[1:]:
                    found = self._joined(join, found, self.of(part))
                return found
            case ast.Compare(left=left, ops=[operation], comparators=[right]) if type(operation) in _COMPARE:
                return self._joined(_COMPARE[type(operation)], self.of(left), self.of(right))
            case ast.BinOp(left=left, op=operation, right=right):
                return self._binary(type(operation), self.of(left), self.of(right))
        raise ArgumentError(f"{shortened(self.text)}: {shortened(ast.unparse(node))} cannot be computed here")

    def _joined(self, join: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
        try:
            data = np.asarray(join(_wide(left.data), _wide(right.data)))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{shortened(self.text)} cannot be computed: {error}") from None
        known = [each.known for each in (left, right) if each.known is not None]
        return Value(data, None, np.logical_and.reduce(known) if known else None)

    def _binary(self, operation: type[ast.operator], left: Value, right: Value) -> Value:
        whole = left.data.dtype.kind in "iub" and right.data.dtype.kind in "iub"
        if operation in (ast.Div, ast.FloorDiv):
            # As in C++, whole numbers are rounded to zero.
            return self._joined(_divided if whole else operator.truediv, left, right)
        if operation is ast.Mod:
            return self._joined(np.fmod, left, right)
        if operation not in _BINARY:
            raise ArgumentError(f"{shortened(self.text)}: this operator is not known here")
        return self._joined(_BINARY[operation], left, right)

    def _member(self, value: Value, name: str) -> Value:
        if value.target is not None:
            value = self.scope.pointed(value, np.zeros(1, np.int64))
        if value.data.dtype.names is None or name not in value.data.dtype.names:
            raise ArgumentError(f"{shortened(self.text)}: there is no member {name}")
        return Value(value.data[name], None, value.known)

    def _element(self, value: Value, index: Value) -> Value:
        if index.data.dtype.kind not in "iub":
            raise ArgumentError(f"{shortened(self.text)}: an index is a whole number")
        at = index.data.astype(np.int64)
        if value.target is not None and value.data.ndim == 1:
            return self.scope.pointed(value, at)
        if value.data.ndim < 2:
            raise ArgumentError(f"{shortened(self.text)}: what stands before [ ] is no array")
        lanes = max(value.data.shape[0], at.shape[0])
        at = np.broadcast_to(at, lanes)
        inside = (at >= 0) & (at < value.data.shape[1])
        if not inside.any():
            raise ArgumentError(f"{shortened(self.text)}: index {at[0]} is outside the {value.data.shape[1]} elements")
        rows = np.broadcast_to(np.arange(value.data.shape[0]), lanes)
        known = inside if value.known is None else inside & value.known
        if index.known is not None:
            known = known & index.known
        return Value(value.data[rows, np.where(inside, at, 0)], value.target, known)


def _wide(data: np.ndarray) -> np.ndarray:
    return data.astype(np.int64) if data.dtype.kind in "iu" else data


def _divided(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    by = np.where(right == 0, 1, right)
    found: np.ndarray = np.where(right == 0, 0, np.sign(left) * np.sign(by) * (abs(left) // abs(by)))
    return found
