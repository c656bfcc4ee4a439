"""The owner of a kernel's generated function, and the first call of it. `cudakit.jit.launch.generated` writes it."""

from __future__ import annotations

import keyword
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import FunctionType
from typing import TYPE_CHECKING, Any

from cudakit.errors import CudakitError
from cudakit.jit.launch.tracebacks import cut
from cudakit.streams import process
from cudakit.streams.process import make_function

if TYPE_CHECKING:
    from cudakit.jit.launch.generated import Shape

#: Maximum of call shapes in the generated function; the oldest is dropped, and its calls are checked in full again.
_MOST_SHAPES = 8


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


#: Global names of every generated function.
_NAMES = {"MISSING": MISSING, "CudakitError": CudakitError, "cut": cut}


def _check_all(stream: Any, config: Any, /, *arguments: Any, **keywords: Any) -> None:
    """Check a call in full: the function's body until the first shape is added. Its globals are the dispatcher's."""
    try:
        return check(stream, config, arguments, None, **keywords)  # type: ignore[name-defined, no-any-return]  # noqa: F821
    except CudakitError as error:
        cut(error)
        raise


class Dispatcher:
    """The generated function of a kernel, and the call shapes in it.

    Parameters
    ----------
    name : str
        Name of the kernel, for tracebacks.
    parameters : sequence of str
        Names of the kernel's parameters, which become keywords of the function.
    check : callable
        ``check(stream, config, arguments, reason)``: the full check, for calls that fit no shape.
    defaults : mapping, optional
        Default values of parameters: numbers, or None.

    Attributes
    ----------
    function : function
        Always the same object, which runs the newest code.
    parameters : tuple of str
        Keywords of the function.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[str],
        check: Callable[..., None],
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.parameters: tuple[str, ...] = _keywords(parameters)
        self._defaults = {name: repr(value) for name, value in (defaults or {}).items()}
        self._title = f"launch of {name}"
        self._check = check
        self._lock = process.renewed(self, "_lock", threading.Lock)
        self._numbers = count()
        self._shapes: dict[int, tuple[Shape, tuple[Any, ...]]] = {}
        self._names: dict[str, Any] = {**_NAMES, "check": self._begin}
        # Code is generated for the call after the first; until then every call is checked in full.
        self.function: FunctionType = FunctionType(_check_all.__code__, self._names, name)
        # The name in Python's errors about unknown keywords.
        self.function.__qualname__ = name

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Call shapes, newest first."""
        return tuple([shape for shape, _ in self._shapes.values()])

    def add(self, shape: Shape, left_out: tuple[Any, ...] = ()) -> None:
        """Try `shape` first from now on, and regenerate the function; for the first shape, at the next call.

        `left_out` are the values of the last parameters, which calls of this shape do not pass. Above a limit, the
        oldest shape is dropped.
        """
        with self._lock:
            # Numbers are never reused: a thread that still runs the old code cannot get another shape's kernel.
            older = list(self._shapes.items())[: _MOST_SHAPES - 1]
            self._shapes = dict([(next(self._numbers), (shape, left_out)), *older])
            if older:
                self.generate()

    def _begin(self, stream: Any, config: Any, arguments: tuple[Any, ...], reason: str | None, **keywords: Any) -> None:
        """Check the first call; generate the function for the second.

        Writing and compiling the function takes longer than the rest of a first launch, and many programs launch once.
        """
        with self._lock:
            comes_again = reason is None and bool(self._shapes)
            if comes_again:
                self.generate()
        if comes_again:
            self.function(stream, config, *arguments, **keywords)
        else:
            self._check(stream, config, arguments, reason, **keywords)

    def generate(self) -> None:
        """Generate the function of the present shapes."""
        from cudakit.jit.launch.generated import function_text  # for a second call

        names: dict[str, Any] = {**_NAMES, "check": self._check}
        text = function_text(self._shapes, self.parameters, self._defaults, names)
        self._names.update(names)
        function = make_function(text, self._title, names)
        self.function.__defaults__, self.function.__code__ = function.__defaults__, function.__code__
        for name in self._names.keys() - names.keys():
            self._names.pop(name, None)

    def clear(self) -> None:
        """Remove all call shapes, so that the next call is checked in full."""
        with self._lock:
            self._shapes = {}
            self._names["check"] = self._begin
            self.function.__code__, self.function.__defaults__ = _check_all.__code__, None


#: Names that a parameter's keyword may not have; it gets an underscore.
_TAKEN = frozenset(
    {"stream", "config", "extra", "reason", "error", "check", "call", "middle", "renew", "current", "torch_current"}
    | {"type", "len", "Exception", "MISSING"}
)


def _keywords(parameters: Sequence[str]) -> tuple[str, ...]:
    """Return one keyword for each parameter name, in order. All keywords are distinct.

    A name that Python cannot use becomes ``parameter<position>``. A name that has another meaning, or occurs twice,
    gets underscores at its end.
    """
    result: list[str] = []
    for position, name in enumerate(parameters):
        usable = name if name.isidentifier() and not keyword.iskeyword(name) else f"parameter{position}"
        while usable in _TAKEN or usable in result:
            usable += "_"
        result.append(usable)
    return tuple(result)
