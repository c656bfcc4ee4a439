"""Stand-ins for the arguments of a function while it is traced; their `Trace` writes down what is done to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol

import numpy as np

#: What a Python number is computed as while only Python numbers meet it.
OWN: dict[type, np.dtype] = {
    bool: np.dtype("?"),
    int: np.dtype("i8"),
    float: np.dtype("f8"),
    complex: np.dtype("c16"),
}


class Writer(Protocol):
    """Who writes down what is done to stand-ins: a `cudakit.generate.trace.Trace`."""

    origins: dict[str, frozenset[str]]

    def refuse(self, what: str) -> NoReturn: ...
    def new(self, kind: np.dtype | type, text: str, is_after: bool, like: Iterable[str] = ()) -> Traced: ...
    def apply(self, ufunc: np.ufunc, operands: tuple[Any, ...]) -> Any: ...
    def cast(self, operand: Any, dtype: np.dtype, like: Iterable[str] = ()) -> Traced: ...
    def choose(self, condition: Any, x: Any, y: Any) -> Traced: ...
    def fold(self, kind: str, x: Any, axis: Any, keepdims: Any, dtype: Any) -> Traced: ...


def _refusing(what: str) -> Callable[..., NoReturn]:
    def method(self: Traced, *_: Any, **__: Any) -> NoReturn:
        self.trace.refuse(what.format(self.shown))

    return method


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """A stand-in for an array's element, or for a Python number, that writes down what is done to it.

    Attributes
    ----------
    trace : Writer
    kind : dtype or class
        A Python number's class; such a value is weak.
    name : str
        Of the C++ variable.
    """

    __array_priority__ = 1e6

    def __init__(
        self,
        trace: Writer,
        kind: np.dtype | type,
        name: str,
        *,
        argument: str | None = None,
        is_number: bool = False,
        is_after: bool = False,
    ) -> None:
        self.trace, self.kind, self.name = trace, kind, name
        self.argument, self.is_number, self.is_after = argument, is_number, is_after
        if argument is not None and not is_number:
            trace.origins[name] = frozenset([name])

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype; of a Python number that which it is computed as."""
        return self.kind if isinstance(self.kind, np.dtype) else OWN[self.kind]

    @property
    def shown(self) -> str:
        """What messages call it."""
        return self.argument or "a value worked out from the arguments"

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **named: Any) -> Any:
        out = named.pop("out", None)
        if method == "reduce":
            names = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
            names |= {"logical_and": "all", "logical_or": "any"}
            if ufunc.__name__ in names and out in (None, (None,)):
                more = {key: named.get(key) for key in ("axis", "keepdims", "dtype")}
                return self.trace.fold(names[ufunc.__name__], inputs[0], **more)
        if method != "__call__" or {key for key, value in named.items() if value is not None and value is not True}:
            shown = ", ".join(f"{key}=" for key in named)
            self.trace.refuse(
                f"numpy.{ufunc.__name__}{'.' + method if method != '__call__' else ''}({shown}) cannot be fused"
            )
        made = self.trace.apply(ufunc, inputs)
        if out is None:
            return made
        for target, value in zip(out, made if isinstance(made, tuple) else (made,), strict=True):
            self._assign(target, value)
        return out[0] if len(out) == 1 else out

    def _assign(self, target: Any, value: Traced) -> None:
        """What ``y += x`` does."""
        if not isinstance(target, Traced) or target.argument is not None:
            self.trace.refuse("it writes into one of its arguments; make a new value, as in y = x + 1")
        if not np.can_cast(value.dtype, target.dtype, "same_kind"):
            self.trace.refuse(f"{value.dtype} cannot be written to {target.dtype}")
        target.name = self.trace.cast(value, target.dtype, (target.name,)).name

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        name = function.__name__
        found = _FUNCTIONS.get(name)
        if found is None:
            self.trace.refuse(f"numpy.{name} cannot be fused")
        try:
            return found(self.trace, *args, **named)
        except TypeError as error:
            self.trace.refuse(f"numpy.{name}: {error}")

    def __cupy_override_elementwise_kernel__(self, kernel: Any, *args: Any, **named: Any) -> Any:
        name = str(kernel.name).removeprefix("cupy_")
        if name == "where":
            return self.trace.choose(*args)
        ufunc = getattr(np, name, None)
        if not isinstance(ufunc, np.ufunc) or named:
            self.trace.refuse(f"{kernel.name} cannot be fused")
        return self.trace.apply(ufunc, args)

    def astype(self, dtype: Any, copy: bool = True) -> Traced:
        """As another dtype."""
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
        return self.trace.new(part, f"{self.name}.{name}()", self.is_after)

    def conj(self) -> Any:
        """The conjugate."""
        return self.trace.apply(np.conjugate, (self,))

    conjugate = conj

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """Within bounds."""
        return _clip(self.trace, self, min, max)

    def sum(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Traced:
        """The sum."""
        return self.trace.fold("sum", self, axis, keepdims, dtype)

    def prod(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Traced:
        """The product."""
        return self.trace.fold("prod", self, axis, keepdims, dtype)

    def mean(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Traced:
        """The mean."""
        return self.trace.fold("mean", self, axis, keepdims, dtype)

    def max(self, axis: Any = None, keepdims: bool = False) -> Traced:
        """The greatest."""
        return self.trace.fold("max", self, axis, keepdims, None)

    def min(self, axis: Any = None, keepdims: bool = False) -> Traced:
        """The least."""
        return self.trace.fold("min", self, axis, keepdims, None)

    def any(self, axis: Any = None, keepdims: bool = False) -> Traced:
        """Whether any holds."""
        return self.trace.fold("any", self, axis, keepdims, None)

    def all(self, axis: Any = None, keepdims: bool = False) -> Traced:
        """Whether all hold."""
        return self.trace.fold("all", self, axis, keepdims, None)

    __bool__ = _refusing(
        "the truth of {} is asked for, as by if, while, and, or: its elements differ; use numpy.where, & and |. A bool "
        "argument of Python's own is a constant and may be asked"
    )
    __getitem__ = __setitem__ = _refusing("{} is indexed; an expression sees one element at a time")
    __len__ = __iter__ = _refusing("{} is taken apart; an expression sees one element at a time")
    __int__ = __index__ = _refusing(
        "{} is used as a number of Python's, as by math.sqrt; use numpy's function, or name the argument in static= if "
        "it is a constant"
    )
    __float__ = __complex__ = __int__
    __array__ = _refusing("{} is made an array by a function that cannot be fused")
    __matmul__ = __rmatmul__ = _refusing("a matrix product of {} cannot be fused")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.trace.refuse(f"{self.shown}.{name} cannot be fused")


def _clip(trace: Writer, x: Any, a_min: Any = None, a_max: Any = None, **named: Any) -> Any:
    low, high = named.get("min", a_min), named.get("max", a_max)
    if low is not None:
        x = trace.apply(np.maximum, (x, low))
    return x if high is None else trace.apply(np.minimum, (x, high))


def _filled(value: int) -> Callable[..., Traced]:
    def make(trace: Writer, x: Any, dtype: Any = None) -> Traced:
        return trace.cast(value, x.dtype if dtype is None else np.dtype(dtype), (x.name,))

    return make


def _folding(kind: str) -> Callable[..., Traced]:
    def fold(trace: Writer, x: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Traced:
        return trace.fold(kind, x, axis, keepdims is True, dtype)

    return fold


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": lambda trace, condition, x, y: trace.choose(condition, x, y),
    "clip": _clip,
    "real": lambda trace, x: x.real,
    "imag": lambda trace, x: x.imag,
    "zeros_like": _filled(0),
    "ones_like": _filled(1),
    **{name: _folding(name) for name in ("sum", "prod", "mean", "any", "all")},
    **dict.fromkeys(("max", "amax"), _folding("max")),
    **dict.fromkeys(("min", "amin"), _folding("min")),
}
