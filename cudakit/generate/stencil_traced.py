"""A Python function of neighbours, run once on stand-ins, as the declarations and the body of a stencil."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cudakit.errors import TemplateError
from cudakit.generate.declarations import Parameter, check_name
from cudakit.generate.trace import Trace
from cudakit.generate.traced import OWN, Traced
from cudakit.types.cpp import spelling

#: What the body's functions are declared in.
PREAMBLE = "#include <cudakit/ufunc/all.cuh>"
_INSIDE = re.compile(r"(?:[tx]|fold|view|out)\d*")


class Written(NamedTuple):
    """What a function does, as `stencil` takes it; `several`: whether it returns a tuple."""

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    body: str
    several: bool


class Neighbours(np.lib.mixins.NDArrayOperatorsMixin):
    """A stand-in for an array: called with offsets it is the element so far away."""

    def __init__(self, trace: Trace, dtype: np.dtype, name: str, shown: str) -> None:
        self._trace, self._dtype, self._name, self._shown = trace, dtype, name, shown
        trace.origins[name] = frozenset([name])

    def __call__(self, *offsets: int) -> Traced:
        if not offsets or not all(isinstance(each, int | np.integer) for each in offsets):
            self._trace.refuse(f"{self._shown}{offsets} is not at constant integers, as {self._shown}(0, -1) is")
        return self._trace.new(self._dtype, f"{self._name}({', '.join(str(int(each)) for each in offsets)})")

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        self._trace.refuse(f"{self._shown} is an array; the element itself is {self._shown}(0, 0)")


def traced(op: str, function: Callable[..., Any], names: Sequence[str], kinds: Sequence[Any]) -> Written:
    """What a function does with arguments of `names` and `kinds`: dtypes of arrays, classes of Python's numbers.

    Raises
    ------
    TemplateError
        Saying where in the function.
    """
    trace = Trace(op, {})
    stands: list[Any] = []
    inputs = []
    for k, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        inside, is_array = f"x{k}", isinstance(kind, np.dtype)
        dtype = kind if is_array else OWN[kind]
        if not _INSIDE.fullmatch(name):
            check_name(op, name)
        cpp = spelling(dtype)
        if cpp is None:
            raise TemplateError(f"{op}: {name} is of {dtype}, which has no C++ equivalent")
        inputs.append(Parameter(inside if _INSIDE.fullmatch(name) else name, cpp, dtype))
        stand = Neighbours(trace, dtype, inside, name) if is_array else None
        stands.append(stand or Traced(trace, kind, inside, argument=name, is_number=True))
    found = function(*stands)
    several = isinstance(found, tuple | list)
    values = list(found) if several else [found]
    if not values or not all(isinstance(value, Traced) for value in values) or trace.folds or trace.views:
        raise TemplateError(f"{op}: it returns what is made of neighbours, element by element, or a tuple of such")
    outputs = []
    for k, value in enumerate(values):
        cpp = spelling(value.dtype)
        assert cpp is not None  # as was checked when the value was made
        outputs.append(Parameter(f"out{k}" if several else "out", cpp, value.dtype))
    lines = trace.lines(*(value.name for value in values))
    lines += [f"{p.name} = {value.name};" for p, value in zip(outputs, values, strict=True)]
    body = re.sub(r"\bx(\d+)\b", lambda match: inputs[int(match[1])].name, "\n".join(lines))
    return Written(tuple(inputs), tuple(outputs), body, several)
