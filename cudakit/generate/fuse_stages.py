"""What a traced function does with arrays: the kernels of its values, and what runs before what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.log import current_log
from cudakit.errors import ArgumentError
from cudakit.generate.declarations import Parameter
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.elementwise_code import ElementwiseRecipe, broadcast
from cudakit.generate.reduction import Reduction, reduction
from cudakit.generate.trace import Trace, cpp_of
from cudakit.generate.ufuncs import OPTIONS
from cudakit.types import scalars
from cudakit.types.cpp import HEADER, spelling

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
    """What kernels read: an argument, or the result of a reduction or a view."""

    name: str
    dtype: np.dtype
    shown: str
    is_number: bool = False


class Value(NamedTuple):
    """A value that is made: its name in the trace, and the argument that it is written to, if there is one."""

    name: str
    dtype: np.dtype
    target: str | None = None


class Typed(Elementwise):
    """A kernel whose types are decided already."""

    types: dict[str, np.dtype]

    def __new__(cls, recipe: ElementwiseRecipe, types: dict[str, np.dtype]) -> Typed:
        self = super().__new__(cls, recipe, OPTIONS)
        assert isinstance(self, Typed)
        self.__dict__["types"] = types
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Typed, (self.recipe, self.types)

    def _types(self, kinds: Sequence[np.dtype | type], outs: Sequence[Any]) -> dict[str, np.dtype]:
        return self.types


class Call(NamedTuple):
    """One call, while its stages run: all arrays and numbers that there are by now, by name."""

    found: dict[str, Any]
    stream: Any
    names: Sequence[str]


class Stages:
    """The kernels of a traced function.

    Values of one shape are one kernel. So is a reduction: what was done before it is its map, and what is done to its
    results alone its post. Other values of its results are a kernel after it.

    Parameters
    ----------
    trace : Trace
    arguments : sequence of Source
    values : sequence of Value
        What is made.
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
        kinds = {name: fold.dtype for name, fold in trace.folds.items()}
        kinds |= {name: view.of for name, view in trace.views.items()}
        made = [Source(name, dtype, "a value worked out from the arguments") for name, dtype in kinds.items()]
        self.sources: dict[str, Source] = {source.name: source for source in (*arguments, *made)}
        self.ends: dict[str, list[int]] = self._ends()
        self.is_plain: bool = not trace.views and not any(value.target for value in values)
        self.is_plain = self.is_plain and (not trace.folds or list(self.ends.values()) == [list(range(len(values)))])
        self.latest: Any = None
        self._kernels: dict[Any, tuple[Any, list[str]]] = {}

    def _ends(self) -> dict[str, list[int]]:
        """The values that are made of one reduction's results alone, by reductions that nothing else needs."""
        trace = self.trace
        found: dict[str, list[int]] = {}
        read = [fold.x for fold in trace.folds.values()] + [view.x for view in trace.views.values()]
        needed = {name for each in read for name in trace.sources(each)}
        for k, value in enumerate(self.values):
            sources = trace.sources(value.name)
            fold = min(sources)
            if len(sources) == 1 and not value.target and fold in trace.folds:
                found.setdefault(fold, []).append(k)
            else:
                needed |= sources
        return {name: values for name, values in found.items() if name not in needed}

    def __call__(self, values: Sequence[Any], out: Any, stream: Any, names: Sequence[str] = ()) -> list[Any]:
        """What the function returns; a frozen text of the call has the arguments by `names`."""
        log = current_log()
        if log is not None and (self.trace.bounds or not self.is_plain):
            log.is_whole = False  # what is looked at here, it would not look at
        found = {source.name: value for source, value in zip(self.arguments, values, strict=True)}
        for name, dtype in self.trace.bounds:
            scalars.converter(dtype, f"{self.name}: argument {self.sources[name].shown}")(found[name])
        outs = self._outs(out)
        call = Call(found, stream, names)
        done: dict[int, Any] = {}
        for fold, numbers in self.ends.items():
            done |= zip(numbers, self._reduced(call, fold, numbers, [outs.get(k) for k in numbers]), strict=True)
        left = [k for k in range(len(self.values)) if k not in done]
        groups = self._groups(call, left) if left else []
        late = self._are_late(groups)
        for group in groups:
            to = [outs.get(k) if (target := self.values[k].target) is None or late else found[target] for k in group]
            done |= zip(group, self._elements(call, [self.values[k] for k in group], to), strict=True)
        if late:
            for k, value in enumerate(self.values):
                if value.target is not None:
                    done[k] = _same(done[k], out=found[value.target], stream=stream)
        return [done[k] for k in self.returned]

    def _outs(self, out: Any) -> dict[int, Any]:
        """The arrays that values are to go to, by their numbers."""
        if out is None:
            return {}
        outs = out if isinstance(out, tuple) else (out,)
        if len(outs) != len(self.returned):
            raise ArgumentError(f"{self.name} has {len(self.returned)} results; out has {len(outs)}")
        for k, each in zip(self.returned, outs, strict=True):
            if each is not None and self.values[k].target is not None:
                shown = self.sources[str(self.values[k].target)].shown
                raise ArgumentError(f"{self.name} returns its argument {shown}, which it writes; leave out= out")
        return dict(zip(self.returned, outs, strict=True))

    def _are_late(self, groups: Sequence[Sequence[int]]) -> bool:
        """Whether arguments are written once all kernels are done: others read them, or this one at other elements."""
        targets = [k for group in groups for k in group if self.values[k].target is not None]
        views = self.trace.views.keys()
        looks = any(not views.isdisjoint(self.trace.sources(self.values[k].name)) for group in groups for k in group)
        return bool(targets) and (len(groups) > 1 or looks)

    def _groups(self, call: Call, numbers: Sequence[int]) -> list[tuple[int, ...]]:
        """The values that have one shape, and so one kernel."""
        origins = self.trace.origins
        if len({origins[self.values[k].name] for k in numbers}) == 1:
            return [tuple(numbers)]
        groups: dict[Any, list[int]] = {}
        for k in numbers:
            names = sorted(origins[self.values[k].name])
            named = [(self.sources[name].shown, self._source(call, name).shape) for name in names]
            groups.setdefault(broadcast(self.name, named), []).append(k)
        return [tuple(group) for group in groups.values()]

    def _source(self, call: Call, name: str) -> Any:
        """The array or number that a source is."""
        found = call.found.get(name)
        if found is None:
            if name in self.trace.folds:
                (found,) = self._reduced(call, name, (), [None])
            else:
                found = self._viewed(call, name)
            call.found[name] = found
        return found

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
        """Values of one shape, by one kernel."""
        key = tuple([value.name for value in values])
        if key not in self._kernels:
            inputs = self._inputs(*key)
            self._kernels[key] = self._elementwise(inputs, values), [source.name for source in inputs]
        result = self._run(call, key, outs)
        return list(result) if len(values) > 1 else [result]

    def _reduced(self, call: Call, name: str, numbers: Sequence[int], outs: Sequence[Any]) -> list[Any]:
        """A reduction, or the values of its results, by one kernel."""
        fold = self.trace.folds[name]
        values = [self.values[k] for k in numbers] or [Value(name, fold.dtype)]
        if name not in self._kernels:
            inputs = self._inputs(fold.x)
            self._kernels[name] = self._reduction(inputs, name, values), [source.name for source in inputs]
        result = self._run(call, name, outs, axis=fold.axis, keepdims=fold.keepdims)
        return list(result) if len(values) > 1 else [result]

    def _inputs(self, *names: str) -> list[Source]:
        wanted = self.trace.sources(*names)
        return [source for source in self.sources.values() if source.name in wanted]

    def _run(self, call: Call, key: Any, outs: Sequence[Any], **options: Any) -> Any:
        kernel, inputs = self._kernels[key]
        values = [self._source(call, name) for name in inputs]
        self.latest = kernel
        log = current_log()
        since = len(log.steps) if log is not None else 0
        out = None if all(each is None for each in outs) else tuple(outs)
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
        return Typed(ElementwiseRecipe(self.name, tuple(parameters), tuple(outputs), body, preamble), types)

    def _reduction(self, inputs: Sequence[Source], name: str, values: Sequence[Value]) -> Reduction:
        """A map-reduce kernel: what was done before the reduction is its map, what was done after its post."""
        fold, trace = self.trace.folds[name], self.trace
        is_place = fold.kind.startswith("arg")
        mapped = _accumulator(fold.of if is_place else fold.dtype)
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
            preamble += _BEST.format(type=mapped, better="greater" if fold.kind == "argmax" else "less")
            call = f"{{{call}, i}}"
        reduce, identity, post = _FOLDS[fold.kind]
        result = f"const {cpp_of(fold.dtype)} {name} = cudakit::as<{cpp_of(fold.dtype)}>({post});"
        ends = [f"z{k} = cudakit::as<{spelling(value.dtype)}>({value.name});" for k, value in enumerate(values)]
        return reduction(
            ", ".join(f"{_declared(source.dtype)} {source.name}" for source in inputs),
            ", ".join(f"{_declared(value.dtype)} z{k}" for k, value in enumerate(values)),
            call,
            reduce,
            identity,
            "\n".join([result, *after, *ends]),
            self.name,
            preamble=preamble,
            acc="cudakit_best" if is_place else mapped,
            options=OPTIONS,
        )


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
