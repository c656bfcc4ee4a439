"""Stand-ins for the arguments of a traced function; their `Trace` records the operations on them."""

from __future__ import annotations

import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cudakit.arrays.layout import axes_of, without
from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.generate.call import check_dtype, promoted
from cudakit.generate.declarations import cpp_of
from cudakit.generate.ufuncs import MISSING, NAMESPACE, TABLE, converted_number, resolved

#: What a Python number is computed as while only Python numbers meet it.
OWN: dict[type, np.dtype] = {
    bool: np.dtype("?"),
    int: np.dtype("i8"),
    float: np.dtype("f8"),
    complex: np.dtype("c16"),
}

#: What NumPy passes on for an argument that was not given.
_ABSENT = inspect.signature(np.sum).parameters["initial"].default

#: Of kinds of reduction: what combines two results, and what changes nothing.
_COMBINED: dict[str, tuple[np.ufunc, Any]] = {
    "sum": (np.add, 0),
    "prod": (np.multiply, 1),
    "max": (np.maximum, None),
    "min": (np.minimum, None),
    "any": (np.logical_or, False),
    "all": (np.logical_and, True),
}


def _refusing(operation: str) -> Callable[..., NoReturn]:
    def method(self: Traced, *_: Any, **__: Any) -> NoReturn:
        self.trace.refuse(operation.format(self.shown))

    return method


def _folding(name: str) -> Callable[..., Any]:
    """Return a method of `Traced` that records the reduction ``numpy.<name>``, with NumPy's order of parameters."""
    _, *names = inspect.signature(getattr(np, name)).parameters

    def method(self: Traced, *args: Any, **keywords: Any) -> Any:
        if len(args) > len(names):
            raise TypeError(f"{name}() takes {len(names)} arguments: {', '.join(names)}; got {len(args)}")
        return _fold(self.trace, name, self, **dict(zip(names, args, strict=False)), **keywords)

    method.__name__, method.__doc__ = name, f"The reduction `numpy.{name}`."
    return method


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A stand-in for an array's element, or for a Python number, that records operations on it.

    Attributes
    ----------
    trace : Trace
        Trace that records the operations.
    operand_type : dtype or class
        Dtype of the value, or the class of a Python number, which is weak.
    name : str
        Name of the C++ variable.
    """

    trace: Trace
    operand_type: np.dtype | type
    name: str
    argument: str | None
    is_number: bool

    __array_priority__: float = 1e6

    def __init__(
        self,
        trace: Trace,
        operand_type: np.dtype | type,
        name: str,
        *,
        argument: str | None = None,
        is_number: bool = False,
    ) -> None:
        self.trace, self.operand_type, self.name = trace, operand_type, name
        self.argument, self.is_number = argument, is_number
        if argument is not None and not is_number:
            trace.origins[name] = frozenset([name])

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype; for a Python number the dtype of its computation."""
        return self.operand_type if isinstance(self.operand_type, np.dtype) else OWN[self.operand_type]

    @property
    def shown(self) -> str:
        """Name of the value in messages."""
        return self.argument or "a value worked out from the arguments"

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        out = keywords.pop("out", None)
        if method == "reduce":
            fold_name = next((fold_name for fold_name, (combine, _) in _COMBINED.items() if combine is ufunc), None)
            if fold_name is not None:
                to = out[0] if isinstance(out, tuple) else out
                return _fold(self.trace, fold_name, inputs[0], out=to, **{"axis": 0, **keywords})
        if method != "__call__" or {key for key, value in keywords.items() if value is not None and value is not True}:
            shown = ", ".join(f"{key}=" for key in keywords)
            self.trace.refuse(
                f"numpy.{ufunc.__name__}{'.' + method if method != '__call__' else ''}({shown}) cannot be fused"
            )
        result = self.trace.apply(ufunc, inputs)
        if out is None or (isinstance(out[0], Traced) and out[0].is_number):
            return result  # numbers of Python's are not changed, but others take their names
        for target, value in zip(out, result if isinstance(result, tuple) else (result,), strict=True):
            _assign(self.trace, target, value)
        return out[0] if len(out) == 1 else out

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        name = function.__name__
        entry = _FUNCTIONS.get(name)
        if entry is None:
            self.trace.refuse(f"numpy.{name} cannot be fused")
        try:
            return entry(self.trace, *args, **keywords)
        except TypeError as error:
            self.trace.refuse(f"numpy.{name}: {error}")

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *args: Any, **keywords: Any) -> Any:
        name = str(kernel.name).removeprefix("cupy_")
        ufunc, entry = getattr(np, name, None), _FUNCTIONS.get(name)
        keywords = {key: value for key, value in keywords.items() if value is not None}
        if isinstance(ufunc, np.ufunc) and entry is None:
            return self.__array_ufunc__(ufunc, "__call__", *args, **{**keywords, **_in_tuple(keywords.get("out"))})
        if entry is None or keywords:
            self.trace.refuse(f"{kernel.name} cannot be fused")
        return entry(self.trace, *args)

    def astype(self, dtype: Any, copy: bool = True) -> Traced:
        """Return the value as another dtype."""
        return self.trace.cast(self, np.dtype(dtype))

    @property
    def real(self) -> Traced:
        """The real part."""
        return self._part("real") if self.dtype.kind == "c" else self

    @property
    def imag(self) -> Traced:
        """The imaginary part."""
        return self._part("imag") if self.dtype.kind == "c" else self.trace.cast(0, self.dtype, (self.name,))

    def _part(self, name: str) -> Traced:
        part = np.dtype("f4" if self.dtype.itemsize == 8 else "f8")
        return self.trace.new(part, f"{self.name}.{name}()")

    def conj(self) -> Any:
        """Return the conjugate."""
        return self.trace.apply(np.conjugate, (self,))

    conjugate = conj

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """Return the value limited to bounds."""
        return _clip(self.trace, self, min, max)

    def round(self, decimals: int = 0, out: Any = None) -> Any:
        """Return the value rounded to so many decimals, halves to even."""
        trace, x = self.trace, self
        if self.dtype.kind in "iu" and decimals >= 0:
            return _put(trace, out, self.copy())
        if self.dtype.kind in "iub" or not isinstance(decimals, int):
            trace.refuse(f"round of {self.dtype} to {shortened(decimals)} decimals cannot be fused")
        if self.dtype.kind == "c":
            parts = [trace.cast(part.round(decimals), self.dtype) for part in (self.real, self.imag)]
            return _put(trace, out, parts[0] + parts[1] * np.array(1j, self.dtype)[()])
        scale = 10.0 ** abs(decimals)
        before, after = (np.multiply, np.divide) if decimals > 0 else (np.divide, np.multiply)
        if decimals:
            x = trace.apply(before, (x, scale))
        x = trace.apply(np.rint, (x,))
        return _put(trace, out, trace.apply(after, (x, scale)) if decimals else x)

    def copy(self, order: str = "C") -> Traced:
        """Return the same value."""
        return self.trace.cast(self, self.dtype)

    @property
    def T(self) -> Traced:
        """The value with its axes in reverse order."""
        return self.transpose()

    def transpose(self, *axes: Any) -> Traced:
        """Return the value with its axes in another order."""
        return self.trace.view(self, lambda array: array.transpose(*axes))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, a constant of the kernel: the function is traced again for arguments of other shapes."""
        return self.trace.shape_of(self)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def reshape(self, *shape: Any, order: str = "C", copy: Any = None) -> Traced:
        """Return the same elements in row-major order, in another shape."""
        if order not in ("C", "A"):
            self.trace.refuse(f"{self.shown}.reshape(order={shortened(order)}) cannot be fused, order 'C' can")
        return self.trace.view(self, lambda array: array.reshape(*shape), is_dense=True)

    def swapaxes(self, axis1: int, axis2: int) -> Traced:
        """Return the value with two axes exchanged."""
        return self.trace.view(self, lambda array: array.swapaxes(axis1, axis2))

    sum: Callable[..., Any] = _folding("sum")
    prod: Callable[..., Any] = _folding("prod")
    mean: Callable[..., Any] = _folding("mean")
    max: Callable[..., Any] = _folding("max")
    min: Callable[..., Any] = _folding("min")
    any: Callable[..., Any] = _folding("any")
    all: Callable[..., Any] = _folding("all")
    argmax: Callable[..., Any] = _folding("argmax")
    argmin: Callable[..., Any] = _folding("argmin")

    def __getitem__(self, key: Any) -> Traced:
        if _is_all(key):
            return self
        keys = key if isinstance(key, tuple) else (key,)
        for index in keys:
            if not (index is None or index is ... or isinstance(index, int | np.integer | slice)):
                self.trace.refuse(
                    f"{self.shown} is indexed by {type(index).__name__}; ints, slices, None and … can be fused, and "
                    "x[mask] = value"
                )
        whole = keys if any(index is ... for index in keys) else (*keys, ...)
        return self.trace.view(self, lambda array: array[whole])

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, Traced) and key.dtype.kind == "b" and not self.trace.origins.get(getattr(value, "name", "")):
            value = self.trace.choose(key, value, self)
        elif not _is_all(key):
            self.trace.refuse(f"{self.shown} is written at an index; x[...] = value and x[mask] = number can be fused")
        _assign(self.trace, self, value, "unsafe")

    __bool__: Callable[..., NoReturn] = _refusing(
        "the truth of {} is asked for, as by if, while, and, or: its elements differ; use numpy.where, & and |. A bool "
        "argument of Python's own is a constant and may be asked"
    )
    __len__ = __iter__ = _refusing("{} is taken apart; an expression sees one element at a time")
    __int__ = __index__ = _refusing(
        "{} is used as a number of Python's, as by math.sqrt; use numpy's function, or name the argument in static= if "
        "it is a constant"
    )
    __float__ = __complex__ = __int__
    __array__: Callable[..., NoReturn] = _refusing("{} is made an array by a function that cannot be fused")
    __matmul__ = __rmatmul__ = _refusing("a matrix product of {} cannot be fused")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.trace.refuse(f"{self.shown}.{name} cannot be fused")


def _is_all(key: Any) -> bool:
    """Return whether an index selects all elements: only ``...`` and ``:``."""
    keys = key if isinstance(key, tuple) else (key,)
    return all(index is ... or (isinstance(index, slice) and index == slice(None)) for index in keys)


def _in_tuple(out: Any) -> dict[str, Any]:
    return {} if out is None else {"out": out if isinstance(out, tuple) else (out,)}


def _assign(trace: Trace, target: Any, value: Any, casting: Any = "same_kind") -> None:
    """Record ``y += x`` or ``y[...] = x``."""
    if not isinstance(target, Traced):
        trace.refuse("it writes into something that is no array of this function; give it as an argument")
    if target.name in trace.views:
        trace.refuse(f"it writes into a part of an array; write into all of it, {target.shown}[...] = …")
    if isinstance(value, Traced) and not np.can_cast(value.dtype, target.dtype, casting):
        trace.refuse(f"{value.dtype} cannot be written to {target.dtype}")
    target.name = trace.cast(value, target.dtype, (target.name,)).name
    if target.argument is not None and not any(argument is target for argument in trace.written):
        trace.written.append(target)


def _put(trace: Trace, out: Any, value: Any) -> Any:
    """Return `value`, or `out` after writing the value to it."""
    if isinstance(out, tuple):
        (out,) = out
    if out is None or out is _ABSENT:
        return value
    _assign(trace, out, value)
    return out


def _fold(
    trace: Trace,
    fold_name: str,
    x: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Record a reduction with the parameters of NumPy's functions."""
    absent = (None, True, _ABSENT)
    keepdims, has_initial = keepdims is not absent[2] and bool(keepdims), not any(initial is value for value in absent)
    combine, nothing = _COMBINED.get(fold_name, (None, None))
    if not any(where is value for value in absent):
        if fold_name == "mean":
            return _mean_where(trace, x, axis, dtype, out, keepdims, where)
        nothing = initial if nothing is None and has_initial else nothing
        if nothing is None:
            trace.refuse(f"{fold_name}(where=) cannot be fused" + (", but with initial=" if combine else ""))
        x = trace.choose(where, x, nothing)
    result = trace.fold(fold_name, x, axis, keepdims, None if dtype is None else np.dtype(dtype))
    if has_initial:
        result = trace.cast(trace.apply(combine, (result, initial)), result.dtype) if combine else result
    return _put(trace, out, result)


def _mean_where(trace: Trace, x: Traced, axis: Any, dtype: Any, out: Any, keepdims: Any, where: Any) -> Any:
    """Return the mean of the elements that a mask selects."""
    result = np.mean(np.ones(1, x.dtype), dtype=dtype).dtype
    sum_dtype = np.dtype("f4") if result.itemsize == 2 else result
    total = trace.fold("sum", trace.choose(where, x, trace.cast(0, x.dtype, (x.name,))), axis, keepdims, sum_dtype)
    unit, nothing = (trace.cast(number, np.dtype("i8"), (x.name,)) for number in (1, 0))
    count = trace.fold("sum", trace.choose(where, unit, nothing), axis, keepdims, None)
    return _put(trace, out, trace.cast(trace.apply(np.true_divide, (total, trace.cast(count, sum_dtype))), result))


def _method(name: str) -> Callable[..., Any]:
    """Return a function ``call(trace, x, …)`` that calls the method `name` of a traced value x. Other x are refused."""

    def call(trace: Trace, x: Any, *args: Any, **keywords: Any) -> Any:
        if not isinstance(x, Traced):
            trace.refuse(f"numpy.{name} of {type(x).__name__} cannot be fused")
        return getattr(x, name)(*args, **keywords)

    return call


def _viewing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function ``call(trace, x, …)`` that records a view: `function` of x's array and the other arguments."""

    def call(trace: Trace, x: Traced, *args: Any, **keywords: Any) -> Any:
        return trace.view(x, lambda array: function(array, *args, **keywords))

    return call


def _without_nan(name: str, nothing: int) -> Callable[..., Any]:
    def call(trace: Trace, x: Traced, *args: Any, **keywords: Any) -> Any:
        if x.dtype.kind not in "biu":
            x = trace.choose(trace.apply(np.isnan, (x,)), nothing, x)
        return getattr(x, name)(*args, **keywords)

    return call


def _angle(trace: Trace, z: Traced, deg: bool = False) -> Any:
    imaginary = z.imag if z.dtype.kind == "c" else 0
    angle = trace.apply(np.arctan2, (imaginary, z.real))
    return angle * (180 / np.pi) if deg else angle


def _sinc(trace: Trace, x: Traced) -> Any:
    x = trace.apply(np.multiply, (np.pi, x))
    least = np.finfo(x.dtype).eps if x.dtype.kind == "f" else 1e-20
    y = trace.choose(x, x, least)
    return np.sin(y) / y


def _clip(trace: Trace, x: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **keywords: Any) -> Any:
    low, high = keywords.get("min", a_min), keywords.get("max", a_max)
    if low is not None:
        x = trace.apply(np.maximum, (x, low))
    return _put(trace, out, x if high is None else trace.apply(np.minimum, (x, high)))


def _filled(value: int) -> Callable[..., Traced]:
    def make(trace: Trace, x: Any, dtype: Any = None) -> Traced:
        return trace.cast(value, x.dtype if dtype is None else np.dtype(dtype), (x.name,))

    return make


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": lambda trace, condition, x, y: trace.choose(condition, x, y),
    "clip": _clip,
    "real": lambda trace, x: x.real,
    "imag": lambda trace, x: x.imag,
    "zeros_like": _filled(0),
    "ones_like": _filled(1),
    "full_like": lambda trace, x, value, dtype=None: trace.cast(value, np.dtype(dtype or x.dtype), (x.name,)),
    "angle": _angle,
    "sinc": _sinc,
    "fix": lambda trace, x, out=None: _put(trace, out, trace.apply(np.trunc, (x,))),
    "nansum": _without_nan("sum", 0),
    "nanprod": _without_nan("prod", 1),
    **{name: _method(name) for name in ("sum", "prod", "mean", "max", "min", "any", "all", "argmax", "argmin")},
    **{name: _method(name) for name in ("round", "copy", "transpose", "swapaxes", "reshape")},
    "shape": lambda trace, a: a.shape,
    "ndim": lambda trace, a: a.ndim,
    "size": lambda trace, a, axis=None: a.size if axis is None else a.shape[axis],
    **{"amax": _method("max"), "amin": _method("min"), "around": _method("round")},
    **{name: _viewing(getattr(np, name)) for name in ("expand_dims", "squeeze", "moveaxis", "flip")},
}


# The trace: a Python function of array expressions, run once on such stand-ins.

_PYTHON = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
#: Exponents that arrays raise to by other functions, as NumPy's ``**`` does.
_POWERS = {2: "square", 1: "positive", -1: "reciprocal", 0.5: "sqrt"}
#: Where frames are that are not the user's.
_LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (np.__file__, os.path.dirname(os.path.abspath(__file__)))
)


def literal(value: Any, dtype: np.dtype) -> str:
    """Return C++ text of a number as `dtype`, exactly."""
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
    """A line of C++, the names that it sets and the names that it uses."""

    text: str
    sets: tuple[str, ...]
    uses: frozenset[str]


class Fold(NamedTuple):
    """A reduction: its name (``sum``, ``mean``, ``max`` …), value, axes and dtype."""

    fold_name: str
    x: str
    of: np.dtype
    axis: Any
    keepdims: bool
    dtype: np.dtype


class View(NamedTuple):
    """A view of a source array: `look(array)` makes it when the kernels run.

    `x` is the array's name, `of` its dtype. `is_dense`: the array is first copied to C-contiguous memory if necessary.
    """

    x: str
    of: np.dtype
    look: Callable[[Any], Any]
    is_dense: bool = False


class Trace:
    """Operations of a function on its arguments: C++ statements, each with a new name.

    Sources are arguments, reductions and views. Kernels read the elements of sources, and statements compute from
    them.

    Attributes
    ----------
    op : str
        Name of the function.
    statements : list of Statement
        Statements in their order.
    folds, views : dict
        Each reduction and each view, by its name.
    origins : dict
        Source arrays from which each value is computed. They decide its shape.
    written : list of Traced
        Arguments that are written in place.
    bounds : list of (str, dtype)
        Python ints among the arguments, by name, that became values of an integer dtype.
    shapes : dict
        Shape of each argument that is an array.
    asks_shapes : bool
        Whether the function read a shape. The trace is then valid for these shapes only.
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

    def refuse(self, operation: str) -> NoReturn:
        """Raise an error that names file and line of the user's code.

        Raises
        ------
        TemplateError
        """
        raise TemplateError(f"{self.op}: {where_in_user_code()}: {operation}")

    def new(self, operand_type: np.dtype | type, text: str, like: Iterable[str] = ()) -> Traced:
        """Record a new value, which C++ `text` computes, and return it.

        `like` are names of values. The new value also has their common shape.
        """
        dtype = operand_type if isinstance(operand_type, np.dtype) else OWN[operand_type]
        name = self._name(text, like)
        self.statements.append(Statement(f"const {cpp_of(dtype)} {name} = {text};", (name,), _names(text)))
        return Traced(self, operand_type, name)

    def _name(self, text: str, like: Iterable[str] = ()) -> str:
        name = f"t{self._count}"
        self._count += 1
        origins = [self.origins.get(other, frozenset()) for other in (*_names(text), *like)]
        self.origins[name] = frozenset().union(*origins)
        return name

    def _call(self, function: str, arguments: str, types: list[Any]) -> tuple[Traced, ...]:
        """Record a call of a C++ function that sets several results by reference. Return the results.

        `arguments` is C++ of the inputs. `types` has a dtype or a Python number's class for each result.
        """
        dtypes = [operand_type if isinstance(operand_type, np.dtype) else OWN[operand_type] for operand_type in types]
        names = tuple(self._name(arguments) for _ in types)
        heads = "".join(f"{cpp_of(dtype)} {name}; " for dtype, name in zip(dtypes, names, strict=True))
        line = f"{heads}{function}({arguments}, {', '.join(names)});"
        self.statements.append(Statement(line, names, _names(arguments)))
        return tuple(Traced(self, operand_type, name) for operand_type, name in zip(types, names, strict=True))

    def lines(self, *results: str) -> list[str]:
        """Return the lines needed for these values, and no others."""
        return self._needed(results)[0][::-1]

    def sources(self, *results: str) -> set[str]:
        """Return the sources of these values, numbers included, and the sources that decide their shapes."""
        _, needed = self._needed(results)
        shapes: frozenset[str] = frozenset().union(*(self.origins.get(name, ()) for name in results))
        return {name for name in needed if not name.startswith("t")} | shapes

    def _needed(self, results: Iterable[str]) -> tuple[list[str], set[str]]:
        """Return the C++ lines needed for values, the last line first, and the names in these lines."""
        needed, lines = set(results), []
        for statement in reversed(self.statements):
            if not needed.isdisjoint(statement.sets):
                needed |= statement.uses
                lines.append(statement.text)
        return lines, needed

    def apply(self, ufunc: np.ufunc, operands: tuple[Any, ...]) -> Any:
        """Record a universal function of traced values and numbers."""
        name = ufunc.__name__
        if name not in TABLE:
            self.refuse(f"numpy.{name} cannot be fused: {MISSING.get(name, 'it is not in ck.math')}")
        if name == "power" and len(operands) == 2 and type(operands[1]) in (int, float):
            other = _POWERS.get(operands[1])
            integer = isinstance(operands[0], Traced) and operands[0].dtype.kind in "biu"
            if other and isinstance(operands[0], Traced) and not (integer and other != "square"):
                return self.apply(getattr(np, other), operands[:1])
        types = [self.kind_of(operand) for operand in operands]
        is_weak = not any(isinstance(operand_type, np.dtype) for operand_type in types)
        own_types = [OWN[operand_type] for operand_type in types] if is_weak else types  # type: ignore[index]
        operand_types = [(f"operand {k + 1}", operand_type) for k, operand_type in enumerate(own_types)]
        try:
            dtypes = resolved(ufunc, operand_types)
        except ArgumentError as error:
            self.refuse(str(error))
        numbers = [converted_number(ufunc, operand, dtype) for operand, dtype in zip(operands, dtypes, strict=False)]
        if any(new is not old for new, old in zip(numbers, operands, strict=True)):
            return self.apply(ufunc, tuple(numbers))
        texts = [self.text_of(operand, dtype) for operand, dtype in zip(operands, dtypes, strict=False)]
        results = [_PYTHON[d.kind] if is_weak else d for d in dtypes[ufunc.nin :]]
        listed = ", ".join(texts)
        if ufunc.nout == 1:
            own = {"rad2deg": "degrees", "deg2rad": "radians"}.get(name, name)
            return self.new(results[0], f"{NAMESPACE}{own}({listed})")
        if name == "divmod":
            return tuple(
                self.new(operand_type, f"{NAMESPACE}{part}({listed})")
                for operand_type, part in zip(results, ("floor_divide", "remainder"), strict=True)
            )
        return self._call(f"{NAMESPACE}{name}", listed, results)

    def kind_of(self, operand: Any) -> np.dtype | type:
        """Return the dtype of an operand, or the class of a Python number."""
        if isinstance(operand, Traced):
            if operand.trace is not self:
                self.refuse("a value of another call is used")
            return operand.operand_type
        if type(operand) in OWN:
            return type(operand)
        if isinstance(operand, np.generic) or (type(operand).__module__ == "ml_dtypes" and np.ndim(operand) == 0):
            return np.dtype(type(operand))
        self.refuse(f"{type(operand).__name__} cannot be fused; give arrays as arguments")

    def text_of(self, operand: Any, dtype: np.dtype) -> str:
        """Return C++ of an operand as `dtype`."""
        if isinstance(operand, Traced):
            if operand.dtype == dtype:
                return operand.name
            if operand.is_number and operand.operand_type is int and dtype.kind in "iu":
                self.bounds.append((operand.name, dtype))
            return f"cudakit::as<{cpp_of(dtype)}>({operand.name})"
        try:
            return literal(operand, dtype)
        except OverflowError as error:
            self.refuse(str(error))

    def cast(self, operand: Any, dtype: np.dtype, like: Iterable[str] = ()) -> Traced:
        """Return an operand (a traced value or a number) as a new value of `dtype`, with the common shape of `like`."""
        check_dtype(self.op, "a value", dtype)
        return self.new(dtype, self.text_of(operand, dtype), like)

    def choose(self, condition: Any, x: Any, y: Any) -> Traced:
        """Record ``numpy.where``."""
        dtype = promoted(self.op, "numpy.where", [("x", self.kind_of(x)), ("y", self.kind_of(y))])
        condition_type = self.kind_of(condition)
        truth = self.text_of(condition, condition_type if isinstance(condition_type, np.dtype) else OWN[condition_type])
        text = f"{NAMESPACE}holds({truth}) ? {self.text_of(x, dtype)} : {self.text_of(y, dtype)}"
        return self.new(dtype, text)

    def fold(self, fold_name: str, x: Any, axis: Any, keepdims: Any, dtype: Any) -> Traced:
        """Record a reduction of an array's elements."""
        self._check_array(fold_name, x)
        result: np.dtype = getattr(np, fold_name)(np.ones(1, x.dtype), **({"dtype": dtype} if dtype else {})).dtype
        check_dtype(self.op, fold_name, result)
        name = f"fold{len(self.folds)}"
        self.folds[name] = Fold(fold_name, x.name, x.dtype, axis, bool(keepdims), result)
        return self._source(name, result)

    def view(self, x: Traced, look: Callable[[Any], Any], is_dense: bool = False) -> Traced:
        """Record a view of x, and return it as a value. `look(array)` makes the view when the kernels run.

        `is_dense`: x is first copied to C-contiguous memory if necessary.
        """
        self._check_array("a view", x)
        name = f"view{len(self.views)}"
        self.views[name] = View(x.name, x.dtype, look, is_dense)
        return self._source(name, x.dtype)

    def shape_of(self, x: Traced) -> tuple[int, ...]:
        """Return the shape of a value, valid for arguments of these shapes only."""
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
            return np.broadcast_shapes(*(self._shape(origin) for origin in self.origins.get(name, ())))
        except (IndexError, ValueError) as error:
            self.refuse(str(error))

    def _source(self, name: str, dtype: np.dtype) -> Traced:
        self.origins[name] = frozenset([name])
        return Traced(self, dtype, name)

    def _check_array(self, operation: str, x: Any) -> None:
        if not isinstance(x, Traced) or not self.origins.get(x.name):
            self.refuse(f"{operation} of something that is no array of this function")


def _names(text: str) -> frozenset[str]:
    """Return the names of the trace's values and sources in C++ text, such as ``t3``, ``x0`` or ``fold1``."""
    return frozenset(re.findall(r"\b(?:[tx]|fold|view)\d+\b", text))


def where_in_user_code() -> str:
    """Return file and line of the innermost call outside cudakit, NumPy and CuPy."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        path = os.path.abspath(frame.f_code.co_filename)
        ours = path.startswith(_LIBRARIES) or f"{os.sep}cupy{os.sep}" in path
        if not ours and not frame.f_code.co_filename.startswith(("<__array_function__", "<call of")):
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
