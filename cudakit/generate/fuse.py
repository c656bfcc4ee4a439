"""Functions of array expressions as one kernel: traced once for each signature of argument types."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudakit.arrays.frozen import Frozen, Function
from cudakit.arrays.log import current_log
from cudakit.arrays.place import as_array
from cudakit.arrays.repeated import Repeats
from cudakit.errors import ArgumentError, TemplateError
from cudakit.generate.declarations import Parameter
from cudakit.generate.elementwise import Elementwise
from cudakit.generate.elementwise_code import ElementwiseRecipe
from cudakit.generate.elementwise_plan import broadcast
from cudakit.generate.trace import Trace, cpp_of
from cudakit.generate.traced import Traced
from cudakit.generate.ufuncs import OPTIONS
from cudakit.jit.launch.dispatch import MISSING
from cudakit.types import scalars
from cudakit.types.checked import text_of
from cudakit.types.cpp import HEADER, spelling

_WEAK = (int, float, complex)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
#: How a reduction combines a and b, what changes nothing, and what becomes of all in the end.
_FOLDS = {
    "sum": ("a + b", "0", "a"),
    "mean": ("a + b", "0", "a / static_cast<decltype(a)>(n)"),
    "prod": ("a * b", "1", "a"),
    "max": ("cudakit::ufunc::maximum(a, b)", None, "a"),
    "min": ("cudakit::ufunc::minimum(a, b)", None, "a"),
    "any": ("a || b", "false", "a"),
    "all": ("a && b", "true", "a"),
}


def fuse(function: Callable[..., Any] | None = None, *, static: Sequence[str] = (), name: str | None = None) -> Any:
    """A Python function of array expressions as one kernel, with NumPy's results and dtypes.

    The function is run once for each signature of argument types, on stand-ins: operators, universal functions of NumPy
    and CuPy, ``where``, ``clip``, ``astype``, ``.real`` … are written down as C++; so is one reduction (``sum``,
    ``mean``, ``max`` …), after which come only functions and constants. What is not of elements, as indexing or an
    ``if`` on a value, raises and says where. Correctly rounded operations give NumPy's bits: there is no fused
    multiply-add.

    Parameters
    ----------
    function : callable
        Takes arrays and numbers; returns an array or a tuple of them.
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
        raise TemplateError(f"fuse: static names arguments, as in static=('n',), got {static!r}")
    if name is not None:
        text_of("fuse: name", name)
    if function is None:
        return functools.partial(fuse, static=static, name=name)
    if not callable(function):
        raise TemplateError(f"fuse: it takes a function of arrays, got {function!r}")
    return Fused(function, tuple(static), name or str(getattr(function, "__name__", "fused")))


class Fused(Function):
    """A fused function, made by `fuse`.

    Attributes
    ----------
    function : callable
        The function itself, unfused.
    """

    function: Callable[..., Any]
    static: tuple[str, ...]
    name: str
    _signature: inspect.Signature
    _made: dict[Any, _Made]
    _latest: _Made | None

    def __new__(cls, function: Callable[..., Any], static: tuple[str, ...], name: str) -> Fused:
        def ordinary(args: tuple[Any, ...], out: Any, stream: Any, named: dict[str, Any]) -> Any:
            return self._call(args, out, stream, named, repeats)

        name = name if name.isidentifier() and not name.endswith("_") else "fused"
        try:
            signature = inspect.signature(function)
        except ValueError as error:
            raise TemplateError(f"{name}: its arguments are not known to Python: {error}") from None
        unknown = set(static) - set(signature.parameters)
        if unknown:
            raise TemplateError(f"{name} has no argument {', '.join(sorted(unknown))}, which static= names")
        positional = sum(p.kind in _POSITIONAL for p in signature.parameters.values())
        repeats = Repeats(Frozen(positional, ordinary, named=True))
        self = super().__new__(cls, repeats.frozen.function)
        functools.update_wrapper(self, function)
        self.__dict__.update(function=function, static=static, name=name, _signature=signature, _made={}, _latest=None)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
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
        if self._latest is None:
            raise TemplateError(f"{self.name} was not called yet: its kernel depends on the types of its arguments")
        found: str = self._latest.latest.source
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
        told = tuple([(*each[:2], repr(each[2]) if each[1] in (float, complex) else each[2]) for each in key])
        try:
            made = self._made.get(told)
        except TypeError:
            constants = ", ".join(f"{label} is {value!r}" for label, _, value in key if label in self.static)
            raise ArgumentError(f"{self.name}: constants are numbers, text or tuples; {constants}") from None
        if made is None:
            made = self._made[told] = _Made(self, key)
        self._latest = made
        in_place = all(p.kind in _POSITIONAL for p in self._signature.parameters.values())
        # What is left to its default is passed on too, but for constants.
        if named or not in_place or max(places) >= len(given):
            return made(values, out, stream)
        arguments = {**{f"a{k}": value for k, value in enumerate(args)}, "out": out}
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


class _Typed(Elementwise):
    """A kernel whose types are decided already."""

    types: dict[str, np.dtype]

    def __new__(cls, recipe: ElementwiseRecipe, types: dict[str, np.dtype]) -> _Typed:
        self = super().__new__(cls, recipe, OPTIONS)
        assert isinstance(self, _Typed)
        self.__dict__["types"] = types
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _Typed, (self.recipe, self.types)

    def _types(self, kinds: Sequence[np.dtype | type], outs: Sequence[Any]) -> dict[str, np.dtype]:
        return self.types


class _Made:
    """The kernels for one signature of argument types: one, or one for each shape that the results have."""

    def __init__(self, fused: Fused, key: list[tuple[str, Any, Any]]) -> None:
        self.name = fused.name
        trace = self.trace = Trace(fused.name)
        stands: dict[str, Any] = {}
        self.inputs: list[Traced] = []
        for label, kind, value in key:
            if isinstance(kind, np.dtype) or (kind in _WEAK and label not in fused.static):
                name = f"x{len(self.inputs)}"
                stands[label] = Traced(trace, kind, name, argument=label, is_number=not isinstance(kind, np.dtype))
                self.inputs.append(stands[label])
            else:
                stands[label] = value
        if all(stand.is_number for stand in self.inputs):
            raise ArgumentError(f"{fused.name}: none of its arguments is an array; call the function itself")
        returned = _run(fused, stands)
        self.several = isinstance(returned, tuple | list)
        self.results = [self._result(fused, value) for value in (returned if self.several else (returned,))]
        self._kernels: dict[tuple[int, ...], tuple[Any, list[int]]] = {}
        self.latest: Any = None

    def _result(self, fused: Fused, value: Any) -> Traced:
        code = getattr(fused.function, "__code__", None)
        where = f"{code.co_filename}:{code.co_firstlineno}" if code else fused.name
        folded = self.trace.folded
        if not isinstance(value, Traced) or not (value.is_after or self.trace.origins.get(value.name)):
            shown = "a number" if isinstance(value, Traced) else type(value).__name__
            raise TemplateError(f"{fused.name}: {where}: it returns {shown}; return an array, or a tuple of them")
        if folded is not None and not value.is_after:
            raise TemplateError(f"{fused.name}: {where}: it returns elements beside a reduction; fuse each by itself")
        return value

    def _kernel(self, numbers: tuple[int, ...]) -> tuple[Any, list[int]]:
        """The kernel of some of the results, by their numbers, and the numbers of the arguments that it takes."""
        found = self._kernels.get(numbers)
        if found is None:
            results = [self.results[k] for k in numbers]
            folded = self.trace.folded
            taken = self.trace.arguments(*([folded.x.name] if folded else [value.name for value in results]))
            inputs = [k for k, stand in enumerate(self.inputs) if stand.name in taken]
            make = self._elementwise if folded is None else self._reduction
            found = self._kernels[numbers] = make([self.inputs[k] for k in inputs], results), inputs
        self.latest = found[0]
        return found

    def _elementwise(self, inputs: list[Traced], results: list[Traced]) -> _Typed:
        parameters = [Parameter(stand.name, f"A{k}") for k, stand in enumerate(inputs)]
        outputs = [Parameter(f"z{k}", f"R{k}") for k in range(len(results))]
        lines = self.trace.lines(*(value.name for value in results))
        body = "\n".join([*lines, *(f"z{k} = {value.name};" for k, value in enumerate(results))])
        types = {p.type: stand.dtype for p, stand in zip(parameters, inputs, strict=True)}
        types |= {p.type: value.dtype for p, value in zip(outputs, results, strict=True)}
        preamble = _includes([*types.values()], body)
        return _Typed(ElementwiseRecipe(self.name, tuple(parameters), tuple(outputs), body, preamble), types)

    def _reduction(self, inputs: list[Traced], results: list[Traced]) -> Any:
        """A map-reduce kernel: what was done before the reduction is its map, what was done after its post."""
        from cudakit.generate.reduction import reduction

        fold, trace, name = self.trace.folded, self.trace, self.name
        assert fold is not None
        dtypes = [stand.dtype for stand in inputs]
        accumulated = _accumulator(fold.dtype)
        heads = ", ".join(f"const {cpp_of(stand.dtype)} {stand.name}" for stand in inputs)
        lines = trace.lines(fold.x.name)
        listed = "".join(f"    {line}\n" for line in lines)
        mapped = f"cudakit::as<{accumulated}>({fold.x.name})"
        preamble = (
            f"{_includes([*dtypes, fold.dtype], ''.join((*lines, *trace.after)))}\n"
            f"__device__ inline {accumulated} {name}_map({heads}) {{\n{listed}    return {mapped};\n}}"
        )
        reduce, identity, post = _FOLDS[fold.kind]
        folded = f"const {cpp_of(fold.dtype)} folded = cudakit::as<{cpp_of(fold.dtype)}>({post});"
        ends = [f"z{k} = cudakit::as<{spelling(v.dtype)}>({v.name});" for k, v in enumerate(results)]
        return reduction(
            ", ".join(f"{_declared(dtype)} {stand.name}" for dtype, stand in zip(dtypes, inputs, strict=True)),
            ", ".join(f"{_declared(value.dtype)} z{k}" for k, value in enumerate(results)),
            f"{name}_map({', '.join(stand.name for stand in inputs)})",
            reduce,
            identity,
            "\n".join([folded, *trace.after, *ends]),
            name,
            preamble=preamble,
            acc=accumulated,
            options=OPTIONS,
        )

    def __call__(self, values: list[Any], out: Any, stream: Any, names: Sequence[str] = ()) -> Any:
        """What a call does; its frozen text has the values by `names`."""
        log = current_log()
        if log is not None and self.trace.bounds:
            log.is_whole = False  # what is looked at here, it would not look at
        for label, dtype in self.trace.bounds:
            for stand, value in zip(self.inputs, values, strict=True):
                if stand.name == label:
                    scalars.converter(dtype, f"{self.name}: argument {stand.argument}")(value)
        every = tuple(range(len(self.results)))
        folded = self.trace.folded
        if folded is not None:
            result = self._one(every, values, out, stream, names, axis=folded.axis, keepdims=folded.keepdims)
            return (result,) if self.several and not isinstance(result, tuple) else result
        outs = out if isinstance(out, tuple) else (out,) * len(every) if out is None else (out,)
        if len(outs) != len(every):
            raise ArgumentError(f"{self.name} has {len(every)} results; out has {len(outs)}")
        found: dict[int, Any] = {}
        for numbers in self._groups(values, every):
            own_outs = None if out is None else tuple(outs[k] for k in numbers)
            result = self._one(numbers, values, own_outs, stream, names)
            found |= zip(numbers, result if isinstance(result, tuple) else (result,), strict=True)
        return tuple(found[k] for k in every) if self.several else found[0]

    def _one(
        self, numbers: tuple[int, ...], values: list[Any], out: Any, stream: Any, names: Sequence[str], **options: Any
    ) -> Any:
        """Some of the results, by one kernel."""
        call, inputs = self._kernel(numbers)
        log = current_log()
        since = len(log.steps) if log is not None else 0
        result = call(*[values[k] for k in inputs], out=out, stream=stream, **options)
        if log is not None and names:
            log.name_numbers([names[k] for k in inputs], since)
        return result

    def _groups(self, values: list[Any], every: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The results that have one shape, and so one kernel."""
        origins = {self.trace.origins[value.name] for value in self.results}
        if len(origins) == 1:
            return [every]
        shapes = {
            stand.name: value.shape for stand, value in zip(self.inputs, values, strict=True) if not stand.is_number
        }
        labels = {stand.name: str(stand.argument) for stand in self.inputs}
        groups: dict[Any, list[int]] = {}
        for k in every:
            named = [(labels[name], shapes[name]) for name in sorted(self.trace.origins[self.results[k].name])]
            groups.setdefault(broadcast(self.name, named), []).append(k)
        return [tuple(group) for group in groups.values()]


def _run(fused: Fused, stands: dict[str, Any]) -> Any:
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


def _declared(dtype: np.dtype) -> str:
    return "bool" if dtype.kind == "b" else dtype.name


def _accumulator(dtype: np.dtype) -> str:
    """The type that elements are combined in: the result's, for half and bfloat16 float."""
    name = spelling(dtype)
    assert name is not None  # as was checked when the reduction was traced
    return "float" if name in ("__half", "__nv_bfloat16") else name


def _includes(dtypes: Sequence[np.dtype], text: str) -> str:
    """Headers of the types that are computed in."""
    names = [(spelling(dtype) or "").partition("<")[0] for dtype in dtypes]
    headers = {HEADER[name] for name in HEADER if name in names or name in text}
    return "".join(f"#include <{header}>\n" for header in (*sorted(headers), "cudakit/ufunc/all.cuh"))
