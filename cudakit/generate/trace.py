"""A Python function of array expressions, run once on stand-ins that write down what is done to them as C++."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cudakit.arrays.layout import axes_of, without
from cudakit.errors import ArgumentError, TemplateError
from cudakit.generate.call import check_dtype, promoted
from cudakit.generate.traced import OWN, Traced
from cudakit.generate.ufuncs import MISSING, TABLE, held, resolved
from cudakit.types.cpp import spelling

_NAMESPACE = "cudakit::ufunc::"
_PYTHON = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
#: Exponents that arrays raise to by other functions, as NumPy's ``**`` does.
_POWERS = {2: "square", 1: "positive", -1: "reciprocal", 0.5: "sqrt"}
#: Where frames are that are not the user's.
_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (np.__file__, os.path.dirname(os.path.abspath(__file__)))
)


def cpp_of(dtype: np.dtype) -> str:
    """The C++ type that a traced value has."""
    name = spelling(dtype)
    assert name is not None  # as was checked when the value was made
    return f"cudakit::narrow<{name}>" if name in ("__half", "__nv_bfloat16") else name


def literal(value: Any, dtype: np.dtype) -> str:
    """C++ text of a number as `dtype`, exactly."""
    with np.errstate(over="ignore", invalid="ignore"):
        number = np.asarray(value, dtype)[()] if isinstance(value, int) else np.asarray(value).astype(dtype)[()]
    cpp = cpp_of(dtype)
    if dtype.kind == "b":
        return "true" if number else "false"
    if dtype.kind in "iu":
        whole = int(number)
        text = f"{whole}ull" if dtype.kind == "u" else f"({whole + 1}ll - 1)" if whole < 0 else f"{whole}ll"
        return f"static_cast<{cpp}>({text})"
    if dtype.kind == "c":
        part = np.dtype("f4" if dtype.itemsize == 8 else "f8")
        return f"{cpp}({literal(number.real, part)}, {literal(number.imag, part)})"
    if not np.isfinite(number):
        bits = int(np.float64(number).view(np.int64))
        return f"static_cast<{cpp}>(__longlong_as_double({bits}ll))"
    return f"static_cast<{cpp}>({float(number).hex()})"


class Statement(NamedTuple):
    """A line of C++, the names that it sets and those that it uses."""

    text: str
    sets: tuple[str, ...]
    uses: frozenset[str]


class Fold(NamedTuple):
    """A reduction: which (``sum``, ``mean``, ``max`` …), of what value, along which axes, to which dtype."""

    kind: str
    x: str
    of: np.dtype
    axis: Any
    keepdims: bool
    dtype: np.dtype


class View(NamedTuple):
    """Elements of a value's array: what is done to it; `is_dense`: once it is C-contiguous."""

    x: str
    of: np.dtype
    look: Callable[[Any], Any]
    is_dense: bool = False


class Trace:
    """What a function did to its arguments: statements of C++, each with one new name.

    Arguments, reductions and views are sources: what elements of kernels are read of, and statements begin with.

    Attributes
    ----------
    op : str
        Name of the function.
    statements : list of Statement
    folds, views : dict
        Each reduction and each view, by its name.
    origins : dict
        The arrays among the sources that each value comes of, which decide its shape.
    written : list of Traced
        The arguments that are written in place.
    bounds : list of (str, dtype)
        Python ints among the arguments, by name, that became values of an integer dtype.
    shapes : dict
        Of the arguments that are arrays.
    asks_shapes : bool
        Whether the function looked at a shape, so that it holds for these alone.
    """

    def __init__(self, op: str, shapes: dict[str, tuple[int, ...]]) -> None:
        self.op, self.shapes, self.asks_shapes = op, shapes, False
        self.statements: list[Statement] = []
        self.folds: dict[str, Fold] = {}
        self.views: dict[str, View] = {}
        self.origins: dict[str, frozenset[str]] = {}
        self.written: list[Traced] = []
        self.bounds: list[tuple[str, np.dtype]] = []
        self._count = 0

    def refuse(self, what: str) -> NoReturn:
        """Raise, saying where in the user's code.

        Raises
        ------
        TemplateError
        """
        raise TemplateError(f"{self.op}: {where_in_user_code()}: {what}")

    def new(self, kind: np.dtype | type, text: str, like: Iterable[str] = ()) -> Traced:
        """A value with a name of its own; of the shape of the values `like` too."""
        dtype = kind if isinstance(kind, np.dtype) else OWN[kind]
        name = self._name(text, like)
        self.statements.append(Statement(f"const {cpp_of(dtype)} {name} = {text};", (name,), _names(text)))
        return Traced(self, kind, name)

    def _name(self, text: str, like: Iterable[str] = ()) -> str:
        name = f"t{self._count}"
        self._count += 1
        origins = [self.origins.get(other, frozenset()) for other in (*_names(text), *like)]
        self.origins[name] = frozenset().union(*origins)
        return name

    def _call(self, function: str, arguments: str, kinds: list[Any]) -> tuple[Traced, ...]:
        """Values that a function sets by reference."""
        dtypes = [kind if isinstance(kind, np.dtype) else OWN[kind] for kind in kinds]
        names = tuple(self._name(arguments) for _ in kinds)
        heads = "".join(f"{cpp_of(dtype)} {name}; " for dtype, name in zip(dtypes, names, strict=True))
        line = f"{heads}{function}({arguments}, {', '.join(names)});"
        self.statements.append(Statement(line, names, _names(arguments)))
        return tuple(Traced(self, kind, name) for kind, name in zip(kinds, names, strict=True))

    def lines(self, *results: str) -> list[str]:
        """The lines that the values of these names take, and no others."""
        wanted, found = set(results), []
        for statement in reversed(self.statements):
            if not wanted.isdisjoint(statement.sets):
                wanted |= statement.uses
                found.append(statement.text)
        return found[::-1]

    def sources(self, *results: str) -> set[str]:
        """The sources that the values of these names come of, numbers too, and those that decide their shapes."""
        wanted = set(results)
        for statement in reversed(self.statements):
            if not wanted.isdisjoint(statement.sets):
                wanted |= statement.uses
        shapes: frozenset[str] = frozenset().union(*(self.origins.get(name, ()) for name in results))
        return {name for name in wanted if not name.startswith("t")} | shapes

    def apply(self, ufunc: np.ufunc, operands: tuple[Any, ...]) -> Any:
        """A universal function of traced values and numbers."""
        name = ufunc.__name__
        if name not in TABLE:
            self.refuse(f"numpy.{name} cannot be fused: {MISSING.get(name, 'it is not in ck.math')}")
        if name == "power" and len(operands) == 2 and type(operands[1]) in (int, float):
            other = _POWERS.get(operands[1])
            integer = isinstance(operands[0], Traced) and operands[0].dtype.kind in "biu"
            if other and isinstance(operands[0], Traced) and not (integer and other != "square"):
                return self.apply(getattr(np, other), operands[:1])
        kinds = [self.kind_of(operand) for operand in operands]
        is_weak = not any(isinstance(kind, np.dtype) for kind in kinds)
        given = [(f"operand {k + 1}", OWN[kind] if is_weak else kind) for k, kind in enumerate(kinds)]  # type: ignore[index]
        try:
            found = resolved(ufunc, given)
        except ArgumentError as error:
            self.refuse(str(error))
        numbers = [held(ufunc, operand, dtype) for operand, dtype in zip(operands, found, strict=False)]
        if any(new is not old for new, old in zip(numbers, operands, strict=True)):
            return self.apply(ufunc, tuple(numbers))
        texts = [self.text_of(operand, dtype) for operand, dtype in zip(operands, found, strict=False)]
        results = [_PYTHON[d.kind] if is_weak else d for d in found[ufunc.nin :]]
        listed = ", ".join(texts)
        if ufunc.nout == 1:
            own = {"rad2deg": "degrees", "deg2rad": "radians"}.get(name, name)
            return self.new(results[0], f"{_NAMESPACE}{own}({listed})")
        if name == "divmod":
            return tuple(
                self.new(kind, f"{_NAMESPACE}{part}({listed})")
                for kind, part in zip(results, ("floor_divide", "remainder"), strict=True)
            )
        return self._call(f"{_NAMESPACE}{name}", listed, results)

    def kind_of(self, operand: Any) -> np.dtype | type:
        """The dtype of an operand, or the class of a Python number."""
        if isinstance(operand, Traced):
            if operand.trace is not self:
                self.refuse("a value of another call is used")
            return operand.kind
        if type(operand) in OWN:
            return type(operand)
        if isinstance(operand, np.generic) or (type(operand).__module__ == "ml_dtypes" and np.ndim(operand) == 0):
            return np.dtype(type(operand))
        self.refuse(f"{type(operand).__name__} cannot be fused; give arrays as arguments")

    def text_of(self, operand: Any, dtype: np.dtype) -> str:
        """C++ of an operand as `dtype`."""
        if isinstance(operand, Traced):
            if operand.dtype == dtype:
                return operand.name
            if operand.is_number and operand.kind is int and dtype.kind in "iu":
                self.bounds.append((operand.name, dtype))
            return f"cudakit::as<{cpp_of(dtype)}>({operand.name})"
        try:
            return literal(operand, dtype)
        except OverflowError as error:
            self.refuse(str(error))

    def cast(self, operand: Any, dtype: np.dtype, like: Iterable[str] = ()) -> Traced:
        """An operand as `dtype`."""
        check_dtype(self.op, "a value", dtype)
        return self.new(dtype, self.text_of(operand, dtype), like)

    def choose(self, condition: Any, x: Any, y: Any) -> Traced:
        """``numpy.where``"""
        dtype = promoted(self.op, "numpy.where", [("x", self.kind_of(x)), ("y", self.kind_of(y))])
        kind = self.kind_of(condition)
        truth = self.text_of(condition, kind if isinstance(kind, np.dtype) else OWN[kind])
        text = f"{_NAMESPACE}holds({truth}) ? {self.text_of(x, dtype)} : {self.text_of(y, dtype)}"
        return self.new(dtype, text)

    def fold(self, kind: str, x: Any, axis: Any, keepdims: Any, dtype: Any) -> Traced:
        """A reduction of an array's elements."""
        self._check_array(kind, x)
        result: np.dtype = getattr(np, kind)(np.ones(1, x.dtype), **({"dtype": dtype} if dtype else {})).dtype
        check_dtype(self.op, kind, result)
        name = f"fold{len(self.folds)}"
        self.folds[name] = Fold(kind, x.name, x.dtype, axis, bool(keepdims), result)
        return self._source(name, result)

    def view(self, x: Traced, look: Callable[[Any], Any], is_dense: bool = False) -> Traced:
        """Elements of an array, as `look` has them of it; `is_dense`: of its elements in row-major order."""
        self._check_array("a view", x)
        name = f"view{len(self.views)}"
        self.views[name] = View(x.name, x.dtype, look, is_dense)
        return self._source(name, x.dtype)

    def shape_of(self, x: Traced) -> tuple[int, ...]:
        """The shape of a value, which holds for arguments of these shapes alone."""
        self.asks_shapes = True
        return self._shape(x.name)

    def _shape(self, name: str) -> tuple[int, ...]:
        if name in self.shapes:
            return self.shapes[name]
        try:
            if (view := self.views.get(name)) is not None:
                shape: tuple[int, ...] = view.look(np.broadcast_to(np.int8(0), self._shape(view.x))).shape
                return shape
            if (fold := self.folds.get(name)) is not None:
                of = self._shape(fold.x)
                return without(of, axes_of(self.op, fold.axis, len(of)), fold.keepdims)
            return np.broadcast_shapes(*(self._shape(each) for each in self.origins.get(name, ())))
        except (IndexError, ValueError) as error:
            self.refuse(str(error))

    def _source(self, name: str, dtype: np.dtype) -> Traced:
        self.origins[name] = frozenset([name])
        return Traced(self, dtype, name)

    def _check_array(self, what: str, x: Any) -> None:
        if not isinstance(x, Traced) or not self.origins.get(x.name):
            self.refuse(f"{what} of something that is no array of this function")


def _names(text: str) -> frozenset[str]:
    """The sources and values that C++ text has."""
    return frozenset(re.findall(r"\b(?:[tx]|fold|view)\d+\b", text))


def where_in_user_code() -> str:
    """File and line of the innermost call that is neither cudakit's nor NumPy's nor CuPy's."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        path = os.path.abspath(frame.f_code.co_filename)
        ours = path.startswith(_LIBRARIES) or f"{os.sep}cupy{os.sep}" in path
        if not ours and not frame.f_code.co_filename.startswith(("<__array_function__", "<call of")):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
