"""Calls that were made before, frozen into Python code that goes straight to the driver.

A call that is made again with the same kinds of arguments needs no deduction, broadcasting or planning: what is left of
it is a condition over its arguments, the memory that it makes, and its launches. While the process has used one stream
that holds for all arrays of the kind, until something comes that must be ordered, watched or captured.

With several streams it holds for arrays at addresses at which all launches of such a call have settled on the stream,
until another stream needs any of that memory. The order knows memory by nothing but its address, so new results are
among them: the stream's pool hands out again what the last one left.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from types import FunctionType
from typing import Any, Self

from cudakit.arrays.frozen_call import FrozenCall, goes_on
from cudakit.arrays.log import Made
from cudakit.jit.launch.dispatch import MISSING
from cudakit.streams.generated import fill, make_function
from cudakit.streams.order.order import order
from cudakit.streams.witnesses import add_shortcut, watched

#: Frozen calls that are tried, newest first; how often a call is made before it is frozen, and again where it could not
#: be; and calls frozen in all.
_MOST_FROZEN, _SEEN_BEFORE, _LATER, _MOST_MADE = 4, 2, 64, 64
_MOST_SEEN = 1024
#: Sets of addresses that a call is known to have settled at, with several streams.
_MOST_PLACES = 16
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


@dataclass(eq=False)
class _Attempt:
    """A frozen call in the generated function.

    Attributes
    ----------
    key : object
        What it is told from others by.
    stream : object
        CuPy's current one.
    number : int
        Tells its global names from those of others. That of the stream stands for nobody's while the call may not be
        made.
    names : dict
        The function's global names.
    places : set of tuple of int or None
        The `Made.addresses` that it may be made at; None where they do not matter.
    text : str
    """

    key: Any
    stream: Any
    number: int
    names: dict[str, Any]
    places: set[tuple[int, ...]] | None
    text: str = ""

    def is_for(self, made: Made, single: bool) -> bool:
        return (self.key, self.places is None) == (made.key, single) and self.stream is made.stream

    def takes(self, addresses: tuple[int, ...]) -> bool:
        """Whether it is made at these addresses, if its conditions are met."""
        is_settled = self.names[f"cupy_stream_{self.number}"] is self.stream
        return is_settled and (self.places is None or addresses in self.places)

    def settle(self, addresses: tuple[int, ...]) -> None:
        """Make the call, at these addresses too."""
        if self.places is not None:
            self.places.add(addresses)
        self.names[f"cupy_stream_{self.number}"] = self.stream

    def unsettle(self) -> None:
        """Take the ordinary way until it is settled again."""
        self.names[f"cupy_stream_{self.number}"] = _NOBODY
        if self.places is not None:
            self.places.clear()


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
    names : mapping
        Global names of its own, for conditions.
    """

    def __init__(
        self,
        inputs: int,
        ordinary: Callable[..., Any],
        options: Mapping[str, Any] | None = None,
        named: bool = False,
        names: Mapping[str, Any] | None = None,
    ) -> None:
        options = options or {}
        listed = "".join(f"a{k}, " for k in range(inputs))
        taken = "".join(f"a{k}=MISSING, " for k in range(inputs)) + ("/, " if inputs else "")
        with_defaults = "".join(f", {name}={value!r}" for name, value in options.items())
        passed = "".join(f", {name}" for name in (*options, *["named"] * named))
        self._head = f"call({taken}*more, out=None, stream=None{with_defaults}{', **named' if named else ''})"
        self._passed = f"({listed}*more,), out, stream{passed}"
        self._fits = f"stream is None and not more{' and not named' if named else ''}"
        self._start({**(names or {}), "MISSING": MISSING, "ordinary": ordinary})

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
        self.function: FunctionType = self._compiled()
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
            single, addresses = ordered.single, made.addresses
            former = next((attempt for attempt in self._attempts if attempt.is_for(made, single)), None)
            attempt = former
            if attempt is None or attempt.takes(addresses):
                attempt = _Attempt(made.key, made.stream, next(_numbers), self._names, None if single else set())
            if watched() or not (ordered.settle(None, self) if single else goes_on(made, ordered, attempt)):
                self.put_off(made.key)
            elif attempt is not former:
                if former is not None:
                    self.put_off(made.key)  # it did not do for such a call, and may not again
                self._add(attempt, made, former, single)
            elif attempt.places is not None and len(attempt.places) >= _MOST_PLACES:
                attempt.unsettle()
                self.put_off(made.key)
            else:
                attempt.settle(addresses)
                # The more there are, the longer until the next: it may be that none comes again.
                self._seen[made.key] = -2 * len(attempt.places or ())
            if watched():
                self.unsettle()  # somebody came meanwhile

    def _add(self, attempt: _Attempt, made: Made, former: _Attempt | None, single: bool) -> None:
        if self._made >= _MOST_MADE:
            return
        call = FrozenCall.of(made, attempt.number, attempt.places)
        if call is None:
            self.put_off(made.key)
            return
        self._made += 1
        self._names.update(call.names)
        self._names["current_cupy_stream"] = sys.modules["cupy"].cuda.get_current_stream
        attempt.text = call.text
        attempt.settle(made.addresses)
        # From the second stream on, those of one stream are settled no more.
        others = [each for each in self._attempts if each is not former and (each.places is None) is single]
        self._attempts = [attempt, *others[: _MOST_FROZEN - 1]]
        function = self._compiled()
        self.function.__defaults__, self.function.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        self.function.__code__ = function.__code__

    def unsettle(self) -> None:
        """Take the ordinary way until calls are settled again."""
        for attempt in self._attempts:
            attempt.unsettle()

    def watch(self, watched: bool) -> None:
        """While there are witnesses nothing goes straight to the driver: they would not hear of it."""
        if watched:
            self.unsettle()

    def _compiled(self) -> FunctionType:
        attempts = "\n".join(attempt.text for attempt in self._attempts)
        frozen = fill(_ALL_FROZEN, fits=self._fits, attempts=attempts) if attempts else ""
        text = fill(_CALL, head=self._head, frozen=frozen, passed=self._passed)
        return make_function(text, f"call of {self._head.partition('(')[0]}", self._names)
