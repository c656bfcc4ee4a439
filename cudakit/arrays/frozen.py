"""Calls that were made before, frozen into Python code that goes straight to the driver.

A call that is made again with the same kinds of arguments needs no deduction, broadcasting or planning: what is left of
it is a condition over its arguments, the memory that it makes, and its launches. While the process has used one stream
that holds for all arrays of the kind, until something comes that must be ordered, watched or captured; with several
streams for the arrays of that call alone, as long as the kernels' own dispatchers need not order them.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping
from itertools import count
from types import FunctionType
from typing import Any, NamedTuple, Self

from cudakit.arrays.frozen_call import FrozenCall
from cudakit.arrays.made import Made
from cudakit.jit.launch.dispatch import MISSING
from cudakit.streams.generated import fill, make_function
from cudakit.streams.order.order import order
from cudakit.streams.witnesses import add_shortcut, watched

#: Frozen calls that are tried, newest first; how often a call is made before it is frozen, and again where it could not
#: be; and calls frozen in all.
_MOST_FROZEN, _SEEN_BEFORE, _LATER, _MOST_MADE = 4, 2, 64, 64
_MOST_SEEN = 1024
_numbers = count()

_CALL = """\
def $head:
$frozen    return ordinary($passed)
"""
_ALL_FROZEN = """\
    if $fits:
        try:
            $attempts
        # Whatever an argument lacks, the ordinary way says it better.
        except Exception:
            pass
"""
#: A stream that is never the current one.
_NOBODY = object()


class Function(functools.partial[Any]):
    """A function of arrays with attributes: why it is a `functools.partial`, see `cudakit.kernel.kernel.Kernel`."""

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # no method of a class that it is an attribute of


class _Attempt(NamedTuple):
    """A frozen call in the generated function.

    Attributes
    ----------
    key : object
        What it is told from others by.
    stream, stream_name
        CuPy's current stream, and its global name, which stands for nobody's while the call may not be made.
    text : str
    is_settled : callable
        Whether the kernels' dispatchers allow it.
    """

    key: Any
    stream: Any
    stream_name: str
    text: str
    is_settled: Callable[[], bool]


class Frozen:
    """The generated function of a function of arrays.

    Parameters
    ----------
    inputs : int
        How many positional arguments it takes.
    ordinary : callable
        ``ordinary(arguments, out, stream, *options)``: what a call does that is not frozen.
    options : mapping
        Its other keywords, with their defaults.
    named : bool
        Whether it takes any other keywords too, which `ordinary` is given last.
    """

    def __init__(
        self, inputs: int, ordinary: Callable[..., Any], options: Mapping[str, Any] | None = None, named: bool = False
    ) -> None:
        options = options or {}
        listed = "".join(f"a{k}, " for k in range(inputs))
        taken = "".join(f"a{k}=MISSING, " for k in range(inputs)) + ("/, " if inputs else "")
        with_defaults = "".join(f", {name}={value!r}" for name, value in options.items())
        passed = "".join(f", {name}" for name in (*options, *["named"] * named))
        self._head = f"call({taken}*more, out=None, stream=None{with_defaults}{', **named' if named else ''})"
        self._passed = f"({listed}*more,), out, stream{passed}"
        self._fits = f"stream is None and not more{' and not named' if named else ''}"
        self._start({"MISSING": MISSING, "ordinary": ordinary})

    @classmethod
    def like(cls, head: str, passed: str, names: Mapping[str, Any]) -> Self:
        """That of a function with parameters of its own.

        Parameters
        ----------
        head : str
            Its name and parameters, `stream` among them.
        passed : str
            What ``ordinary`` is given of them.
        names : mapping
            The global names in these two, and ``ordinary``.
        """
        self = cls.__new__(cls)
        self._head, self._passed, self._fits = head, passed, "stream is None"
        self._start(names)
        return self

    def _start(self, names: Mapping[str, Any]) -> None:
        self._names = dict(names)
        self._seen: dict[Any, int] = {}
        self._attempts: list[_Attempt] = []
        self._made = 0
        self._lock = threading.Lock()
        self.function = self._compiled()
        order().watch(self)
        add_shortcut(self)

    def is_due(self, key: Any) -> bool:
        """Take note of a call; whether it has come often enough to be frozen."""
        if self._made >= _MOST_MADE and not any(key == attempt.key for attempt in self._attempts):
            return False
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen > _SEEN_BEFORE:
            self._seen[key] = 0
            return True
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return False

    def put_off(self, key: Any) -> None:
        """Leave calls that cannot be frozen alone for a while."""
        self._seen[key] = -_LATER

    def freeze(self, made: Made) -> None:
        """Take the short way for calls like this one from now on, if it is settled."""
        ordered = order()
        with ordered.lock:
            # With several streams the kernels' dispatchers tell what is settled.
            anything = ordered.single
            if watched() or (anything and not ordered.settle(None, self)):
                self.put_off(made.key)
                return
            with self._lock:
                self._freeze(made, anything)

    def _freeze(self, made: Made, anything: bool) -> None:
        former = next((attempt for attempt in self._attempts if attempt.key == made.key), None)
        if former is not None:
            name = former.stream_name
            if anything and former.stream is made.stream and self._names[name] is _NOBODY:
                self._names[name] = made.stream  # as settled as it was
                return
            if self._names[name] is made.stream and former.is_settled():
                self.put_off(made.key)  # it did not do for such a call, and may not again
        if self._made >= _MOST_MADE:
            return
        number = next(_numbers)
        call = FrozenCall.of(made, number, anything)
        if call is None:
            self.put_off(made.key)
            return
        self._made += 1
        self._names.update(call.names)
        self._names["current_cupy_stream"] = sys.modules["cupy"].cuda.get_current_stream
        attempt = _Attempt(made.key, made.stream, f"cupy_stream_{number}", call.text, call.is_settled)
        self._names[attempt.stream_name] = made.stream
        others = [entry for entry in self._attempts if entry is not former]
        self._attempts = [attempt, *others[: _MOST_FROZEN - 1]]
        function = self._compiled()
        self.function.__defaults__, self.function.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        self.function.__code__ = function.__code__
        if watched():
            self.unsettle()  # somebody came meanwhile

    def unsettle(self) -> None:
        """Take the ordinary way until calls are settled again."""
        for attempt in self._attempts:
            self._names[attempt.stream_name] = _NOBODY

    def watch(self, watched: bool) -> None:
        """While there are witnesses nothing goes straight to the driver: they would not hear of it."""
        if watched:
            self.unsettle()

    def _compiled(self) -> FunctionType:
        attempts = "\n".join(attempt.text for attempt in self._attempts)
        frozen = fill(_ALL_FROZEN, fits=self._fits, attempts=attempts) if attempts else ""
        text = fill(_CALL, head=self._head, frozen=frozen, passed=self._passed)
        return make_function(text, f"call of {self._head.partition('(')[0]}", self._names)
