"""Functions of array expressions as one kernel: traced once for each signature of argument types."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, Self, TypeVar, overload

import numpy as np

from cudakit.arrays.log import current_log
from cudakit.arrays.place import as_array
from cudakit.arrays.repeated import CallRecorder
from cudakit.arrays.replay import CallReplay, Function
from cudakit.errors import ArgumentError, TemplateError, shortened
from cudakit.generate.call import broadcast
from cudakit.generate.declarations import CPP_WORDS, Parameter, cpp_of, declared_name
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.elementwise_code import ElementwiseRecipe
from cudakit.generate.outside import Outside
from cudakit.generate.reduction import Reduction, reduction
from cudakit.generate.traced import Trace, Traced
from cudakit.generate.ufuncs import OPTIONS, accumulated
from cudakit.jit.launch.dispatch import MISSING
from cudakit.types import scalars
from cudakit.types.checked import text_of
from cudakit.types.cpp import HEADER, spelling

# The stages of a traced function: the kernels of its values, and their order.

#: How a reduction combines a and b, what changes nothing, and what becomes of all in the end.
_FOLDS = {
    "sum": ("a + b", "0", "a"),
    "mean": ("a + b", "0", "a / static_cast<decltype(a)>(n)"),
    "prod": ("a * b", "1", "a"),
    "max": ("cudakit::ufunc::maximum(a, b)", None, "a"),
    "min": ("cudakit::ufunc::minimum(a, b)", None, "a"),
    "any": ("a || b", "false", "a"),
    "all": ("a && b", "true", "a"),
    "argmax": ("cudakit_first(a, b) ? a : b", None, "a.i"),
    "argmin": ("cudakit_first(a, b) ? a : b", None, "a.i"),
}
_BEST = """
struct cudakit_best {{ {type} x; long long i; }};
__device__ inline bool cudakit_first(const cudakit_best& a, const cudakit_best& b) {{
    const bool is_lost = cudakit::ufunc::isnan(a.x);
    if (is_lost != cudakit::ufunc::isnan(b.x)) return is_lost;
    if (!is_lost && cudakit::ufunc::{better}(a.x, b.x)) return true;
    return a.i < b.i && (is_lost || !cudakit::ufunc::{better}(b.x, a.x));
}}"""
_same = elementwise("T x", "T z", "z = x", name="same")


class Source(NamedTuple):
    """An input of kernels: an argument, or the result of a reduction or a view.

    `name` is its name in C++, `shown` its name in messages.
    """

    name: str
    dtype: np.dtype
    shown: str
    is_number: bool = False


class Value(NamedTuple):
    """A value to compute: its C++ name in the trace, its dtype, and the name of the argument that it overwrites, or
    None.
    """

    name: str
    dtype: np.dtype
    target: str | None = None


class Typed(Elementwise):
    """An elementwise kernel whose type variables have fixed dtypes.

    The dtypes are not deduced from the arguments of a call.
    """

    types: dict[str, np.dtype]

    def __new__(cls, recipe: ElementwiseRecipe, types: dict[str, np.dtype]) -> Typed:
        self = super().__new__(cls, recipe, OPTIONS)
        assert isinstance(self, Typed)
        self.__dict__["types"] = types
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Typed, (self.recipe, self.types)

    def _types(self, types: Sequence[np.dtype | type], outs: Sequence[Any]) -> dict[str, np.dtype]:
        return self.types


class Call(NamedTuple):
    """State of a call while its kernels run.

    `values` has all arrays and numbers computed so far, by name. `names` are the arguments' names, for a recorded call.
    """

    values: dict[str, Any]
    stream: Any
    names: Sequence[str]


class Stages:
    """The kernels of a traced function.

    Values of one shape are one kernel. A reduction is one kernel: operations before it are its map, and operations
    on its results alone are its post. Other uses of its results are computed by a kernel after it.

    Parameters
    ----------
    trace : Trace
        Recorded operations of the function.
    arguments : sequence of Source
        Arguments of the function.
    values : sequence of Value
        Values to compute.
    returned : sequence of int
        Numbers of the values that the function returns.
    """

    name: str
    trace: Trace
    values: Sequence[Value]
    returned: Sequence[int]

    def __init__(
        self, trace: Trace, arguments: Sequence[Source], values: Sequence[Value], returned: Sequence[int]
    ) -> None:
        self.name, self.trace, self.values, self.returned = trace.op, trace, values, returned
        self.arguments = arguments
        dtypes = {name: fold.dtype for name, fold in trace.folds.items()}
        dtypes |= {name: view.of for name, view in trace.views.items()}
        sources = [Source(name, dtype, "a value worked out from the arguments") for name, dtype in dtypes.items()]
        self.sources: dict[str, Source] = {source.name: source for source in (*arguments, *sources)}
        self.ends: dict[str, list[int]] = self._ends()
        self.is_plain: bool = not trace.views and not any(value.target for value in values)
        self.is_plain = self.is_plain and (not trace.folds or list(self.ends.values()) == [list(range(len(values)))])
        self.latest: Any = None
        self._kernels: dict[Any, tuple[Any, list[str]]] = {}

    def _ends(self) -> dict[str, list[int]]:
        """Return the values that a reduction's own kernel can compute, because they need this reduction's results
        alone.

        The result maps the reduction's name to the values' numbers. It leaves out reductions whose results are used in
        another way, too.
        """
        trace = self.trace
        ends: dict[str, list[int]] = {}
        read = [fold.x for fold in trace.folds.values()] + [view.x for view in trace.views.values()]
        needed = {name for value in read for name in trace.sources(value)}
        for k, value in enumerate(self.values):
            sources = trace.sources(value.name)
            fold = min(sources)
            if len(sources) == 1 and not value.target and fold in trace.folds:
                ends.setdefault(fold, []).append(k)
            else:
                needed |= sources
        return {name: values for name, values in ends.items() if name not in needed}

    def __call__(self, values: Sequence[Any], out: Any, stream: Any, names: Sequence[str] = ()) -> list[Any]:
        """Return the function's results. A recorded call has its arguments by `names`."""
        log = current_log()
        if log is not None and (self.trace.bounds or not self.is_plain):
            log.is_whole = False  # what is looked at here, it would not look at
        values_by_name = {source.name: value for source, value in zip(self.arguments, values, strict=True)}
        for name, dtype in self.trace.bounds:
            scalars.converter(dtype, f"{self.name}: argument {self.sources[name].shown}")(values_by_name[name])
        outs = self._outs(out)
        call = Call(values_by_name, stream, names)
        results: dict[int, Any] = {}
        for fold, numbers in self.ends.items():
            results |= zip(numbers, self._reduced(call, fold, numbers, [outs.get(k) for k in numbers]), strict=True)
        left = [k for k in range(len(self.values)) if k not in results]
        groups = self._groups(call, left) if left else []
        late = self._are_late(groups)
        for group in groups:
            to = [
                outs.get(k) if (target := self.values[k].target) is None or late else values_by_name[target]
                for k in group
            ]
            results |= zip(group, self._elements(call, [self.values[k] for k in group], to), strict=True)
        if late:
            for k, value in enumerate(self.values):
                if value.target is not None:
                    results[k] = _same(results[k], out=values_by_name[value.target], stream=stream)
        return [results[k] for k in self.returned]

    def _outs(self, out: Any) -> dict[int, Any]:
        """Return the caller's output array (or None) for each returned value, by the value's number.

        `out` is an array, a tuple, or None for new arrays.

        Raises
        ------
        ArgumentError
            The number of arrays does not fit, or an output is passed for an argument that the function writes.
        """
        if out is None:
            return {}
        outs = out if isinstance(out, tuple) else (out,)
        if len(outs) != len(self.returned):
            raise ArgumentError(f"{self.name} has {len(self.returned)} results; out has {len(outs)}")
        for k, array in zip(self.returned, outs, strict=True):
            if array is not None and self.values[k].target is not None:
                shown = self.sources[str(self.values[k].target)].shown
                raise ArgumentError(f"{self.name} returns its argument {shown}, which it writes; leave out= out")
        return dict(zip(self.returned, outs, strict=True))

    def _are_late(self, groups: Sequence[Sequence[int]]) -> bool:
        """Return whether arguments are written after all kernels.

        They are if another kernel reads them, or this kernel reads other elements of them.
        """
        targets = [k for group in groups for k in group if self.values[k].target is not None]
        views = self.trace.views.keys()
        looks = any(not views.isdisjoint(self.trace.sources(self.values[k].name)) for group in groups for k in group)
        return bool(targets) and (len(groups) > 1 or looks)

    def _groups(self, call: Call, numbers: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the values `numbers` in groups of one shape, as tuples of numbers. Each group is one kernel."""
        origins = self.trace.origins
        if len({origins[self.values[k].name] for k in numbers}) == 1:
            return [tuple(numbers)]
        groups: dict[Any, list[int]] = {}
        for k in numbers:
            names = sorted(origins[self.values[k].name])
            shapes = [(self.sources[name].shown, self._source(call, name).shape) for name in names]
            groups.setdefault(broadcast(self.name, shapes), []).append(k)
        return [tuple(group) for group in groups.values()]

    def _source(self, call: Call, name: str) -> Any:
        """Return the array or number of a source."""
        entry = call.values.get(name)
        if entry is None:
            if name in self.trace.folds:
                (entry,) = self._reduced(call, name, (), [None])
            else:
                entry = self._viewed(call, name)
            call.values[name] = entry
        return entry

    def _viewed(self, call: Call, name: str) -> Any:
        view = self.trace.views[name]
        if view.x in self.sources:
            array = self._source(call, view.x)
        else:
            (array,) = self._elements(call, [Value(view.x, view.of)], [None])
        if view.is_dense and not array.flags.c_contiguous:
            array = _same(array, stream=call.stream)
        try:
            return view.look(array)
        except (IndexError, ValueError) as error:
            raise ArgumentError(f"{self.name}: {error}") from None

    def _elements(self, call: Call, values: Sequence[Value], outs: Sequence[Any]) -> list[Any]:
        """Compute values of one shape by one kernel. Return a list of their arrays.

        `outs` has the array to write, or None for a new array, for each value.
        """
        key = tuple([value.name for value in values])
        if key not in self._kernels:
            inputs = self._inputs(*key)
            self._kernels[key] = self._elementwise(inputs, values), [source.name for source in inputs]
        result = self._run(call, key, outs)
        return list(result) if len(values) > 1 else [result]

    def _reduced(self, call: Call, name: str, numbers: Sequence[int], outs: Sequence[Any]) -> list[Any]:
        """Compute the reduction `name`, or the values `numbers` made from its results, by one kernel. Return a list of
        arrays.

        `outs` has the array to write, or None for a new array, for each value.
        """
        fold = self.trace.folds[name]
        values = [self.values[k] for k in numbers] or [Value(name, fold.dtype)]
        if name not in self._kernels:
            inputs = self._inputs(fold.x)
            self._kernels[name] = self._reduction(inputs, name, values), [source.name for source in inputs]
        result = self._run(call, name, outs, axis=fold.axis, keepdims=fold.keepdims)
        return list(result) if len(values) > 1 else [result]

    def _inputs(self, *names: str) -> list[Source]:
        needed = self.trace.sources(*names)
        return [source for source in self.sources.values() if source.name in needed]

    def _run(self, call: Call, key: Any, outs: Sequence[Any], **options: Any) -> Any:
        kernel, inputs = self._kernels[key]
        values = [self._source(call, name) for name in inputs]
        self.latest = kernel
        log = current_log()
        since = len(log.steps) if log is not None else 0
        out = None if all(array is None for array in outs) else tuple(outs)
        result = kernel(*values, out=out, stream=call.stream, **options)
        if log is not None and call.names and self.is_plain:
            names = {source.name: name for source, name in zip(self.arguments, call.names, strict=True)}
            log.name_numbers([names[name] for name in inputs], since)
        return result

    def _elementwise(self, inputs: Sequence[Source], values: Sequence[Value]) -> Typed:
        parameters = [Parameter(source.name, f"A{k}") for k, source in enumerate(inputs)]
        outputs = [Parameter(f"z{k}", f"R{k}") for k in range(len(values))]
        lines = self.trace.lines(*(value.name for value in values))
        body = "\n".join([*lines, *(f"z{k} = {value.name};" for k, value in enumerate(values))])
        types = {p.type: source.dtype for p, source in zip(parameters, inputs, strict=True)}
        types |= {p.type: value.dtype for p, value in zip(outputs, values, strict=True)}
        preamble = _includes([*types.values()], body)
        return Typed(ElementwiseRecipe(self.name, tuple(parameters), tuple(outputs), preamble, body), types)

    def _reduction(self, inputs: Sequence[Source], name: str, values: Sequence[Value]) -> Reduction:
        """Return a map-reduce kernel.

        Computations before the reduction are its map, computations after it are its post.
        """
        fold, trace = self.trace.folds[name], self.trace
        is_place = fold.fold_name.startswith("arg")
        mapped = accumulated(fold.of if is_place else fold.dtype)
        lines = trace.lines(fold.x)
        after = trace.lines(*(value.name for value in values))
        heads = ", ".join(f"const {cpp_of(source.dtype)} {source.name}" for source in inputs)
        listed = "".join(f"    {line}\n" for line in lines)
        function = f"{self.name}_map"
        dtypes = [*(source.dtype for source in inputs), fold.of, fold.dtype]
        preamble = (
            f"{_includes(dtypes, ''.join((*lines, *after)))}\n__device__ inline {mapped} {function}({heads}) {{\n"
            f"{listed}    return cudakit::as<{mapped}>({fold.x});\n}}"
        )
        call = f"{function}({', '.join(source.name for source in inputs)})"
        if is_place:
            preamble += _BEST.format(type=mapped, better="greater" if fold.fold_name == "argmax" else "less")
            call = f"{{{call}, i}}"
        reduce, identity, post = _FOLDS[fold.fold_name]
        result = f"const {cpp_of(fold.dtype)} {name} = cudakit::as<{cpp_of(fold.dtype)}>({post});"
        ends = [f"z{k} = cudakit::as<{spelling(value.dtype)}>({value.name});" for k, value in enumerate(values)]
        return reduction(
            ", ".join(f"{declared_name(source.dtype)} {source.name}" for source in inputs),
            ", ".join(f"{declared_name(value.dtype)} z{k}" for k, value in enumerate(values)),
            call,
            reduce,
            identity,
            "\n".join([result, *after, *ends]),
            self.name,
            preamble=preamble,
            acc="cudakit_best" if is_place else mapped,
            options=OPTIONS,
        )


def _includes(dtypes: Sequence[np.dtype], text: str) -> str:
    """Return the headers of the types in a kernel."""
    names = [(spelling(dtype) or "").partition("<")[0] for dtype in dtypes]
    headers = {HEADER[name] for name in HEADER if name in names or name in text}
    return "".join(f"#include <{header}>\n" for header in (*sorted(headers), "cudakit/ufunc/all.cuh"))


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
    """Return a Python function of array expressions as one kernel, with NumPy's results and dtypes.

    The function runs once for each signature of argument types, on stand-ins, which record its operations as C++:

    - operators, universal functions of NumPy and CuPy, ``where``, ``clip``, ``astype``, ``.real`` …;
    - reductions: ``sum``, ``mean``, ``max``, ``argmax`` …;
    - parts of arrays: ``x[1:, None]``, ``x.T``;
    - writes to arguments: ``x += y``, ``x[...] = y``, ``out=x``.

    A reduction is one kernel together with the operations before it, and with operations on its results alone. Other
    uses of its results need a second kernel. Code that needs a value, such as an ``if``, raises and names the line.
    Correctly rounded operations give NumPy's bits: there is no fused multiply-add.

    Parameters
    ----------
    function : callable
        Function of arrays and numbers that returns an array, a tuple of arrays, or None if it writes to its arguments.
        Results are new arrays, except arguments that it writes.
    static : sequence of str
        Names of arguments that are constants of the kernel. The function is traced again for each of their values.
        Python bools, str and None are constants in any case.
    name : str, optional
        Name of the kernel. Default: the function's name.

    Raises
    ------
    TemplateError
        The argument is no function, or a name in `static` is no argument.

    Returns
    -------
    Fused
        Function that is called as the original, with ``out=`` and ``stream=`` as for `elementwise`. With keyword
        arguments only, `fuse` returns a decorator.

    Examples
    --------
    >>> @fuse
    ... def distance(x, y):
    ...     return np.sqrt(x * x + y * y)
    """
    if isinstance(static, str):
        static = (static,)
    if not isinstance(static, Sequence) or not all(isinstance(parameter, str) for parameter in static):
        raise TemplateError(f"fuse: static names arguments, as in static=('n',), got {shortened(static)}")
    if name is not None:
        text_of("fuse: name", name)
    if function is None:
        return functools.partial(fuse, static=static, name=name)
    if not callable(function):
        raise TemplateError(f"fuse: it takes a function of arrays, got {shortened(function)}")
    return Fused(function, tuple(static), name or str(getattr(function, "__name__", "fused")))


class Fused(Function, Generic[_P, _R]):
    """A fused function, made by `fuse`. For type checkers it has the signature of the original function.

    Attributes
    ----------
    function : callable
        Original function, not fused.
    """

    if TYPE_CHECKING:

        @overload
        def __call__(self, *args: _P.args, **keywords: _P.kwargs) -> _R: ...
        @overload
        def __call__(self, *args: Any, out: Any, stream: Any = None, **keywords: Any) -> _R: ...
        @overload
        def __call__(self, *args: Any, stream: Any, **keywords: Any) -> _R: ...
        def __call__(self, *args: Any, **keywords: Any) -> Any: ...

    function: Callable[_P, _R]
    static: tuple[str, ...]
    name: str
    _signature: inspect.Signature
    _traced_calls: dict[Any, _TracedCall]
    _latest: _TracedCall | None
    _outside: Outside
    _looks_outside: bool

    def __new__(cls, function: Callable[_P, _R], static: tuple[str, ...], name: str) -> Self:
        def ordinary(args: tuple[Any, ...], out: Any, stream: Any, keywords: dict[str, Any]) -> Any:
            return self._call(args, out, stream, keywords, recorder)

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
        recorder = CallRecorder(CallReplay(positional, ordinary, takes_keywords=True, names={"outside": outside}))
        self = super().__new__(cls, recorder.replay.function)
        functools.update_wrapper(self, function)
        self.__dict__.update(
            function=function, static=static, name=name, _signature=signature, _traced_calls={}, _latest=None
        )
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
            The function was not called yet. The first call decides the types.
        """
        if self._latest is None or self._latest.stages.latest is None:
            raise TemplateError(f"{self.name} was not called yet: its kernel depends on the types of its arguments")
        result: str = self._latest.stages.latest.source
        return result

    def _call(
        self, args: tuple[Any, ...], out: Any, stream: Any, keywords: dict[str, Any], recorder: CallRecorder
    ) -> Any:
        """Run a call that is not replayed.

        Raises
        ------
        ArgumentError
        TemplateError
            The function contains an operation that cannot be fused. The message has file and line.
        """
        positional = tuple([value for value in args if value is not MISSING])
        try:
            bound = self._signature.bind(*positional, **keywords)
        except TypeError as error:
            raise ArgumentError(f"{self.name}: {error}") from None
        bound.apply_defaults()
        key: list[tuple[str, Any, Any]] = []
        values, places = [], []
        for place, (label, value) in enumerate(_flat(self._signature, bound.arguments)):
            if label in self.static or value is None or isinstance(value, bool | str):
                key.append((label, type(value), value))
                continue
            value, operand_type = self._operand(label, value)
            key.append((label, operand_type, None))
            values.append(value)
            places.append(place)
        # As a constant -0.0 is not 0.0, and a NaN is one as well as another.
        constants = tuple([(*entry[:2], repr(entry[2]) if entry[1] in (float, complex) else entry[2]) for entry in key])
        key_and_outside = constants, self._outside()
        try:
            entry = self._traced_calls.get(key_and_outside)
        except TypeError:
            shown = ", ".join(f"{label} is {shortened(value)}" for label, _, value in key if label in self.static)
            raise ArgumentError(f"{self.name}: constants are numbers, text or tuples; {shown}") from None
        if entry is None or entry.asks_shapes:
            shapes = tuple([getattr(value, "shape", ()) for value in values])
            entry = self._traced_calls.get((key_and_outside, shapes))
            if entry is None:
                before = self._outside.values()
                entry = _TracedCall(self, key, shapes)
                self._outside.traced(before)
                self._looks_outside = bool(before)
                key_and_outside = constants, self._outside()
                self._traced_calls[key_and_outside, shapes] = self._traced_calls[key_and_outside] = entry
        self._latest = entry
        in_place = all(p.kind in _POSITIONAL for p in self._signature.parameters.values())
        # What is left to its default is passed on too, but for constants.
        if keywords or not in_place or max(places) >= len(positional):
            return entry(values, out, stream)
        arguments = {**{f"a{k}": value for k, value in enumerate(args)}, "out": out}
        if self._looks_outside:
            arguments["outside()"] = key_and_outside[1]
        inputs = [f"a{place}" for place in places]
        return recorder.call(arguments, stream, lambda stream: entry(values, out, stream, inputs), inputs)

    def _operand(self, label: str, value: Any) -> tuple[Any, np.dtype | type]:
        """Return a value as the kernel takes it, and its dtype or a Python number's class."""
        value_type: Any = type(value)
        if value_type in _WEAK:
            return value, value_type
        dtype = getattr(value, "dtype", None)
        if not isinstance(dtype, np.dtype):
            value = as_array(self.name, label, value)[0]
            dtype = value.dtype
        if spelling(dtype) is None:
            raise ArgumentError(f"{self.name}: {label} is of {dtype}, which has no C++ equivalent")
        return value, dtype


def _flat(signature: inspect.Signature, arguments: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return arguments as pairs of name and value.

    Each argument of ``*args`` and ``**keywords`` is a pair of its own.
    """
    result: list[tuple[str, Any]] = []
    for label, value in arguments.items():
        parameter_kind = signature.parameters[label].kind
        if parameter_kind is inspect.Parameter.VAR_POSITIONAL:
            result += [(f"{label}{k}", item) for k, item in enumerate(value)]
        elif parameter_kind is inspect.Parameter.VAR_KEYWORD:
            result += value.items()
        else:
            result.append((label, value))
    return result


class _TracedCall:
    """The function for one signature of argument types: its trace and its stages."""

    def __init__(
        self, fused: Fused[..., Any], key: list[tuple[str, Any, Any]], shapes: Sequence[tuple[int, ...]]
    ) -> None:
        trace = Trace(fused.name, {})
        stands: dict[str, Any] = {}
        inputs: list[Traced] = []
        for label, operand_type, value in key:
            if isinstance(operand_type, np.dtype) or (operand_type in _WEAK and label not in fused.static):
                name = f"x{len(inputs)}"
                stands[label] = Traced(
                    trace, operand_type, name, argument=label, is_number=not isinstance(operand_type, np.dtype)
                )
                if not stands[label].is_number:
                    trace.shapes[name] = shapes[len(inputs)]
                inputs.append(stands[label])
            else:
                stands[label] = value
        if all(stand.is_number for stand in inputs):
            raise ArgumentError(f"{fused.name}: none of its arguments is an array; call the function itself")
        arguments = [Source(stand.name, stand.dtype, str(stand.argument), stand.is_number) for stand in inputs]
        result = _run(fused, stands)
        self.asks_shapes = trace.asks_shapes
        self.several = isinstance(result, tuple | list)
        self.returns = result is not None
        names = {id(stand): source.name for stand, source in zip(inputs, arguments, strict=True)}
        values = [Value(stand.name, stand.dtype, names[id(stand)]) for stand in trace.written]
        returned = []
        for value in result if self.several else (result,) if self.returns else ():
            place = next((k for k, stand in enumerate(trace.written) if stand is value), None)
            if place is None:
                place = len(values)
                values.append(_result(fused, trace, value))
            returned.append(place)
        self.stages = Stages(trace, arguments, values, returned)

    def __call__(self, values: list[Any], out: Any, stream: Any, names: Sequence[str] = ()) -> Any:
        """Run a call. A recorded call has the values by `names`."""
        results = self.stages(values, out, stream, names)
        return tuple(results) if self.several else results[0] if self.returns else None


def _result(fused: Fused[..., Any], trace: Trace, value: Any) -> Value:
    """Return an object that the traced function returned as a `Value`.

    Raises
    ------
    TemplateError
        The object is no traced array.
    """
    if isinstance(value, Traced) and trace.origins.get(value.name):
        return Value(value.name, value.dtype)
    code = getattr(fused.function, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else fused.name
    shown = "a number" if isinstance(value, Traced) else type(value).__name__
    raise TemplateError(f"{fused.name}: {where}: it returns {shown}; return an array, or a tuple of them")


def _run(fused: Fused[..., Any], stands: dict[str, Any]) -> Any:
    """Call the user's function with stand-ins for its arguments, by name, and return its result.

    Raises
    ------
    TemplateError
        The function calls itself without end.
    """
    args, keywords = [], {}
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
            keywords[label] = left.pop(label)
        else:
            args.append(left.pop(label))
    try:
        return fused.function(*args, **keywords, **left)
    except RecursionError:
        raise TemplateError(f"{fused.name}: recursion without end: Python values alone end it, no elements") from None
