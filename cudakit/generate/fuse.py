"""Functions of array expressions as one kernel: traced once for each signature of argument types."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

import numpy as np

from cudakit.arrays.frozen import Frozen, Function
from cudakit.arrays.place import as_array
from cudakit.arrays.repeated import Repeats
from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.generate.declarations import CPP_WORDS
from cudakit.generate.fuse_stages import Source, Stages, Value
from cudakit.generate.outside import Outside
from cudakit.generate.trace import Trace
from cudakit.generate.traced import Traced
from cudakit.jit.launch.dispatch import MISSING
from cudakit.types.checked import text_of
from cudakit.types.cpp import spelling

_P = ParamSpec("_P")
_R = TypeVar("_R")
_WEAK = (int, float, complex)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@overload
def fuse(function: Callable[_P, _R], *, static: Sequence[str] = (), name: str | None = None) -> Fused[_P, _R]: ...
@overload
def fuse(
    function: None = None, *, static: Sequence[str] = (), name: str | None = None
) -> Callable[[Callable[_P, _R]], Fused[_P, _R]]: ...
def fuse(function: Callable[..., Any] | None = None, *, static: Sequence[str] = (), name: str | None = None) -> Any:
    """A Python function of array expressions as one kernel, with NumPy's results and dtypes.

    The function is run once for each signature of argument types, on stand-ins. Operators, universal functions of NumPy
    and CuPy, ``where``, ``clip``, ``astype``, ``.real`` … are written down as C++; so are reductions (``sum``,
    ``mean``, ``max``, ``argmax`` …), parts of arrays (``x[1:, None]``, ``x.T``) and writing into arguments
    (``x += y``, ``x[...] = y``, ``out=x``). A reduction is one kernel with what comes before it and with what is done
    to its results alone; other uses of them take a kernel more. What asks a value, as an ``if`` does, raises and says
    where. Correctly rounded operations give NumPy's bits: there is no fused multiply-add.

    Parameters
    ----------
    function : callable
        Takes arrays and numbers; returns an array, a tuple of them, or nothing where it writes into its arguments.
        What it returns are new arrays, but for arguments that it writes.
    static : sequence of str
        Arguments that are constants of the kernel; it is traced again for each of their values. Python bools, str and
        None are so without being named.
    name : str, optional
        Of the kernel; left out, the function's.

    Raises
    ------
    TemplateError
        For what is no function, and constants that it has not.

    Returns
    -------
    Fused
        Called as the function is, with ``out=`` and ``stream=`` as `elementwise` has them. Used as a decorator with
        arguments, a decorator.

    Examples
    --------
    >>> @fuse
    ... def distance(x, y):
    ...     return np.sqrt(x * x + y * y)
    """
    if isinstance(static, str):
        static = (static,)
    if not isinstance(static, Sequence) or not all(isinstance(each, str) for each in static):
        raise TemplateError(f"fuse: static names arguments, as in static=('n',), got {shortened(static)}")
    if name is not None:
        text_of("fuse: name", name)
    if function is None:
        return functools.partial(fuse, static=static, name=name)
    if not callable(function):
        raise TemplateError(f"fuse: it takes a function of arrays, got {shortened(function)}")
    return Fused(function, tuple(static), name or str(getattr(function, "__name__", "fused")))


class Fused(Function, Generic[_P, _R]):
    """A fused function, made by `fuse`; for type checkers it takes and returns what the function does.

    Attributes
    ----------
    function : callable
        The function itself, unfused.
    """

    if TYPE_CHECKING:

        @overload
        def __call__(self, *args: _P.args, **named: _P.kwargs) -> _R: ...
        @overload
        def __call__(self, *args: Any, out: Any, stream: Any = None, **named: Any) -> _R: ...
        @overload
        def __call__(self, *args: Any, stream: Any, **named: Any) -> _R: ...
        def __call__(self, *args: Any, **named: Any) -> Any: ...

    function: Callable[_P, _R]
    static: tuple[str, ...]
    name: str
    _signature: inspect.Signature
    _made: dict[Any, _Made]
    _latest: _Made | None
    _outside: Outside
    _looks_outside: bool

    def __new__(cls, function: Callable[_P, _R], static: tuple[str, ...], name: str) -> Self:
        def ordinary(args: tuple[Any, ...], out: Any, stream: Any, named: dict[str, Any]) -> Any:
            return self._call(args, out, stream, named, repeats)

        name = name if name.isidentifier() and not name.endswith("_") and name not in CPP_WORDS else "fused"
        try:
            signature = inspect.signature(function)
        except ValueError as error:
            raise TemplateError(f"{name}: its arguments are not known to Python: {error}") from None
        unknown = set(static) - set(signature.parameters)
        if unknown:
            raise TemplateError(f"{name} has no argument {', '.join(sorted(unknown))}, which static= names")
        positional = sum(p.kind in _POSITIONAL for p in signature.parameters.values())
        outside = Outside(function)
        repeats = Repeats(Frozen(positional, ordinary, named=True, names={"outside": outside}))
        self = super().__new__(cls, repeats.frozen.function)
        functools.update_wrapper(self, function)
        self.__dict__.update(function=function, static=static, name=name, _signature=signature, _made={}, _latest=None)
        self._outside, self._looks_outside = outside, False
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Under the name of a decorated function there is what the decorator made of it, which leads to the function.
        at: Any = sys.modules.get(self.__module__)
        name: str = getattr(self, "__qualname__", "")
        for step in name.split("."):
            at = getattr(at, step, None)
        if at is self:
            self.function.__qualname__ = f"{name}.function"
        return Fused, (self.function, self.static, self.name)

    def __repr__(self) -> str:
        return f"<cudakit.fuse {self.name}{self._signature}>"

    @property
    def source(self) -> str:
        """CUDA C++ of the kernel called last.

        Raises
        ------
        TemplateError
            Before the first call, which decides the types.
        """
        if self._latest is None or self._latest.stages.latest is None:
            raise TemplateError(f"{self.name} was not called yet: its kernel depends on the types of its arguments")
        found: str = self._latest.stages.latest.source
        return found

    def _call(self, args: tuple[Any, ...], out: Any, stream: Any, named: dict[str, Any], repeats: Repeats) -> Any:
        """What a call does that is not frozen.

        Raises
        ------
        ArgumentError
        TemplateError
            Where the function does something that cannot be fused; with file and line.
        """
        given = tuple([value for value in args if value is not MISSING])
        try:
            bound = self._signature.bind(*given, **named)
        except TypeError as error:
            raise ArgumentError(f"{self.name}: {error}") from None
        bound.apply_defaults()
        key: list[tuple[str, Any, Any]] = []
        values, places = [], []
        for place, (label, value) in enumerate(_flat(self._signature, bound.arguments)):
            if label in self.static or value is None or isinstance(value, bool | str):
                key.append((label, type(value), value))
                continue
            value, kind = self._seen(label, value)
            key.append((label, kind, None))
            values.append(value)
            places.append(place)
        # As a constant -0.0 is not 0.0, and a NaN is one as well as another.
        constants = tuple([(*each[:2], repr(each[2]) if each[1] in (float, complex) else each[2]) for each in key])
        told = constants, self._outside()
        try:
            made = self._made.get(told)
        except TypeError:
            shown = ", ".join(f"{label} is {shortened(value)}" for label, _, value in key if label in self.static)
            raise ArgumentError(f"{self.name}: constants are numbers, text or tuples; {shown}") from None
        if made is None or made.asks_shapes:
            shapes = tuple([getattr(value, "shape", ()) for value in values])
            made = self._made.get((told, shapes))
            if made is None:
                before = self._outside.values()
                made = _Made(self, key, shapes)
                self._outside.traced(before)
                self._looks_outside = bool(before)
                told = constants, self._outside()
                self._made[told, shapes] = self._made[told] = made
        self._latest = made
        in_place = all(p.kind in _POSITIONAL for p in self._signature.parameters.values())
        # What is left to its default is passed on too, but for constants.
        if named or not in_place or max(places) >= len(given):
            return made(values, out, stream)
        arguments = {**{f"a{k}": value for k, value in enumerate(args)}, "out": out}
        if self._looks_outside:
            arguments["outside()"] = told[1]
        inputs = [f"a{place}" for place in places]
        return repeats.call(arguments, stream, lambda stream: made(values, out, stream, inputs), inputs)

    def _seen(self, label: str, value: Any) -> tuple[Any, np.dtype | type]:
        """A value that the kernel takes, and its dtype, or a Python number's class."""
        kind: Any = type(value)
        if kind in _WEAK:
            return value, kind
        found = getattr(value, "dtype", None)
        if not isinstance(found, np.dtype):
            value = as_array(self.name, label, value)[0]
            found = value.dtype
        if spelling(found) is None:
            raise ArgumentError(f"{self.name}: {label} is of {found}, which has no C++ equivalent")
        return value, found


def _flat(signature: inspect.Signature, arguments: dict[str, Any]) -> list[tuple[str, Any]]:
    """Arguments by name, those of ``*args`` one by one."""
    found: list[tuple[str, Any]] = []
    for label, value in arguments.items():
        kind = signature.parameters[label].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found += [(f"{label}{k}", each) for k, each in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found += value.items()
        else:
            found.append((label, value))
    return found


class _Made:
    """The function for one signature of argument types: traced, and the stages that it takes."""

    def __init__(
        self, fused: Fused[..., Any], key: list[tuple[str, Any, Any]], shapes: Sequence[tuple[int, ...]]
    ) -> None:
        trace = Trace(fused.name, {})
        stands: dict[str, Any] = {}
        inputs: list[Traced] = []
        for label, kind, value in key:
            if isinstance(kind, np.dtype) or (kind in _WEAK and label not in fused.static):
                name = f"x{len(inputs)}"
                stands[label] = Traced(trace, kind, name, argument=label, is_number=not isinstance(kind, np.dtype))
                if not stands[label].is_number:
                    trace.shapes[name] = shapes[len(inputs)]
                inputs.append(stands[label])
            else:
                stands[label] = value
        if all(stand.is_number for stand in inputs):
            raise ArgumentError(f"{fused.name}: none of its arguments is an array; call the function itself")
        arguments = [Source(stand.name, stand.dtype, str(stand.argument), stand.is_number) for stand in inputs]
        found = _run(fused, stands)
        self.asks_shapes = trace.asks_shapes
        self.several = isinstance(found, tuple | list)
        self.returns = found is not None
        names = {id(stand): source.name for stand, source in zip(inputs, arguments, strict=True)}
        values = [Value(stand.name, stand.dtype, names[id(stand)]) for stand in trace.written]
        returned = []
        for value in found if self.several else (found,) if self.returns else ():
            place = next((k for k, stand in enumerate(trace.written) if stand is value), None)
            if place is None:
                place = len(values)
                values.append(_result(fused, trace, value))
            returned.append(place)
        self.stages = Stages(trace, arguments, values, returned)

    def __call__(self, values: list[Any], out: Any, stream: Any, names: Sequence[str] = ()) -> Any:
        """What a call does; its frozen text has the values by `names`."""
        found = self.stages(values, out, stream, names)
        return tuple(found) if self.several else found[0] if self.returns else None


def _result(fused: Fused[..., Any], trace: Trace, value: Any) -> Value:
    """A value that the function returned."""
    if isinstance(value, Traced) and trace.origins.get(value.name):
        return Value(value.name, value.dtype)
    code = getattr(fused.function, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else fused.name
    shown = "a number" if isinstance(value, Traced) else type(value).__name__
    raise TemplateError(f"{fused.name}: {where}: it returns {shown}; return an array, or a tuple of them")


def _run(fused: Fused[..., Any], stands: dict[str, Any]) -> Any:
    """Run the function on stand-ins for its arguments."""
    args, named = [], {}
    left = dict(stands)
    for label, parameter in fused._signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            k = 0
            while f"{label}{k}" in left:
                args.append(left.pop(f"{label}{k}"))
                k += 1
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            named[label] = left.pop(label)
        else:
            args.append(left.pop(label))
    try:
        return fused.function(*args, **named, **left)
    except RecursionError:
        raise TemplateError(f"{fused.name}: recursion without end: Python values alone end it, no elements") from None
