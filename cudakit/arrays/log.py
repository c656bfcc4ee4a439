"""Record what a call does in its place, step by step, so that the steps can be repeated without the op."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from cudakit.jit.load.config import Config
from cudakit.kernel.kernel import Kernel


class Drawn(NamedTuple):
    """An argument that each call takes of an object, as the position of its numbers of a generator.

    Attributes
    ----------
    seen : str
        Expression that changes nothing, of a value of the same type and range: what is checked.
    passed : str
        Expression that is passed, evaluated once.
    """

    seen: str
    passed: str


#: What the generated function has an argument from: an expression, or None where it is the same at each call.
Source: TypeAlias = str | Drawn | None


class Launched(NamedTuple):
    """A launch.

    Attributes
    ----------
    kernel, config : object
        As they were launched.
    passed : tuple
        Arguments of the kernel.
    sources : tuple of Source
        Of each of them, as of the caller's numbers; those at the end may be left out.
    """

    kernel: Kernel
    config: Config | None
    passed: tuple[Any, ...]
    sources: tuple[Source, ...] = ()


class Cleared(NamedTuple):
    """A C-contiguous array set to zero."""

    array: Any


class Copied(NamedTuple):
    """Elements copied from one C-contiguous array to another of the same dtype."""

    source: Any
    target: Any


Step: TypeAlias = Launched | Cleared | Copied


class Log:
    """What one call does.

    Attributes
    ----------
    steps : list of Step
    new : list of array
        Made for this call, in their order.
    kept : list of array
        What the stream, or the op, keeps from call to call.
    aligned : list of (arrays, int)
        Arrays of which the call asked how they are aligned, and the answer.
    is_whole : bool
        Whether nothing was done beside that.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.new: list[Any] = []
        self.kept: list[Any] = []
        self.aligned: list[tuple[tuple[Any, ...], int]] = []
        self.is_whole = True

    def name_numbers(self, names: Sequence[str], since: int = 0) -> None:
        """The first arguments of all launches `since` some step are the caller's of these names, if not named yet."""
        for k, step in enumerate(self.steps[since:], since):
            if isinstance(step, Launched) and not step.sources and names:
                self.steps[k] = step._replace(sources=tuple(names))


#: Of each thread, by its number, the log of the call that it makes; looked at by `current_log` alone.
logs: dict[int, Log] = {}


def current_log() -> Log | None:
    """The log of the call that this thread makes, if there is one."""
    return logs.get(threading.get_ident())


@contextlib.contextmanager
def logging() -> Iterator[Log]:
    """Take down what this thread's call does inside the block."""
    thread = threading.get_ident()
    logs[thread] = log = Log()
    try:
        yield log
    finally:
        del logs[thread]


class Made(NamedTuple):
    """A call that was made: what it did, and with which of the caller's arguments.

    Attributes
    ----------
    key : object
        Tells calls of one kind from others.
    stream : object
        CuPy's current one, which all was done on.
    steps : tuple of Step
        What it did, in this order. All arrays in it lie in the memory of one of those below.
    arrays : tuple of (str, array)
        The caller's arrays, each with the generated function's expression for it.
    outs : tuple of str
        Which of these are written.
    new, kept : tuple of array
        Arrays made for the call, and those that are kept from call to call.
    result : array or tuple of array
        What it gave back.
    same : tuple of (str, object)
        The caller's other arguments, and the values that they must have.
    checks : tuple of str
        What else must be true of the caller's arguments.
    aligned : tuple of (arrays, int)
        Arrays whose addresses' greatest common power of two (16 at most) must be that.
    """

    key: Any
    stream: Any
    steps: tuple[Step, ...]
    arrays: tuple[tuple[str, Any], ...]
    outs: tuple[str, ...]
    new: tuple[Any, ...]
    kept: tuple[Any, ...]
    result: Any
    same: tuple[tuple[str, Any], ...] = ()
    checks: tuple[str, ...] = ()
    aligned: tuple[tuple[tuple[Any, ...], int], ...] = ()

    @property
    def addresses(self) -> tuple[int, ...]:
        """Where all these arrays lie: the caller's, the new ones, those that are kept."""
        return tuple([array.data.ptr for array in (*(each for _, each in self.arrays), *self.new, *self.kept)])


def mark(key: Any, arrays: Sequence[Any]) -> Any:
    """What tells a call from others: its kind, and which of its arrays are one."""
    found = [*map(id, arrays)]
    return key if len(set(found)) == len(found) else (key, *map(found.index, found))
