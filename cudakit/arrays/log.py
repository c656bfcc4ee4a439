"""The steps of a call in its array place, recorded so that they can be repeated without the op."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from cudakit.jit.load.config import Config
from cudakit.kernel.kernel import Kernel


class Drawn(NamedTuple):
    """An argument of a launch that each call reads from an object, such as the position of a random generator.

    Attributes
    ----------
    checked : str
        Python expression for the condition of a replay. Its value has the type and range of the passed value. It has
        no side effects.
    expression : str
        Python expression of the passed value. A call evaluates it once.
    """

    checked: str
    expression: str


#: The source of an argument in the generated function: an expression, or None if it is the same at each call.
Source: TypeAlias = str | Drawn | None


class Launched(NamedTuple):
    """A launch.

    Attributes
    ----------
    kernel, config : object
        Kernel and configuration of the launch.
    arguments : tuple
        Arguments of the kernel.
    sources : tuple of Source
        Source of each argument in the generated function; trailing sources may be left out.
    """

    kernel: Kernel
    config: Config | None
    arguments: tuple[Any, ...]
    sources: tuple[Source, ...] = ()


class Cleared(NamedTuple):
    """A C-contiguous array set to zero."""

    array: Any


class Copied(NamedTuple):
    """Elements copied from one C-contiguous array to another of the same dtype."""

    source: Any
    target: Any


Step: TypeAlias = Launched | Cleared | Copied


class Mapped(NamedTuple):
    """A tensor map: its array, and the function that returns the map of an array of this layout at an address."""

    value: Any
    array: Any
    at_address: Callable[[int], Any]


class Log:
    """The log of one call.

    Attributes
    ----------
    steps : list of Step
        Launches, fills and copies.
    new : list of array
        Arrays allocated for this call, in order.
    persistent : list of array
        Arrays that the stream, or the op, holds from call to call.
    aligned : list of (arrays, int)
        Arrays whose alignment the call asked for, and the alignment that they have.
    maps : list of Mapped
        Tensor maps that the call passes to kernels.
    is_whole : bool
        Whether the log covers all work of the call.
    is_dry : bool
        Whether the call launches and copies nothing.
    """

    def __init__(self, is_dry: bool = False) -> None:
        self.is_dry = is_dry
        self.steps: list[Step] = []
        self.new: list[Any] = []
        self.persistent: list[Any] = []
        self.aligned: list[tuple[tuple[Any, ...], int]] = []
        self.maps: list[Mapped] = []
        self.is_whole = True

    def name_numbers(self, names: Sequence[str], since: int = 0) -> None:
        """Set `names` as the sources of the first arguments of launches: the caller's numbers, in order.

        Only launches from index `since` in `steps` on, which have no sources yet, are changed.
        """
        for k, step in enumerate(self.steps[since:], since):
            if isinstance(step, Launched) and not step.sources and names:
                self.steps[k] = step._replace(sources=tuple(names))


#: Log of each thread's current call, by the thread's number; read by `current_log` only.
logs: dict[int, Log] = {}


def current_log() -> Log | None:
    """Return the log of this thread's call, or None."""
    return logs.get(threading.get_ident())


@contextlib.contextmanager
def logging(is_dry: bool = False) -> Iterator[Log]:
    """Yield a new `Log`, in which this thread's array places record their operations inside the block.

    With `is_dry` they allocate, and launch and copy nothing.
    """
    thread = threading.get_ident()
    logs[thread] = log = Log(is_dry)
    try:
        yield log
    finally:
        del logs[thread]


class RecordedCall(NamedTuple):
    """A recorded call: its steps, and the caller's arguments in them.

    Attributes
    ----------
    key : object
        Key of calls whose arguments have the same types, dtypes and layouts.
    stream : object
        CuPy's current stream, on which all steps ran.
    steps : tuple of Step
        Steps in order. Each of their arrays is in the memory of an array of `arrays`, `new` or `persistent`.
    arrays : tuple of (str, array)
        The caller's arrays, each with its expression in the generated function.
    outs : tuple of str
        Expressions of the arrays that are written.
    new, persistent : tuple of array
        Arrays allocated for the call, and arrays that are held from call to call.
    result : array or tuple of array
        Result of the call.
    same : tuple of (str, object)
        The caller's other arguments, and the values that they must have.
    checks : tuple of str
        Further conditions over the caller's arguments.
    aligned : tuple of (arrays, int)
        Arrays, and the greatest common power of two (at most 16) that their addresses must have.
    maps : tuple of Mapped
        Tensor maps that launches pass. Each of their arrays is in memory as those of `steps` are.
    """

    key: Any
    stream: Any
    steps: tuple[Step, ...]
    arrays: tuple[tuple[str, Any], ...]
    outs: tuple[str, ...]
    new: tuple[Any, ...]
    persistent: tuple[Any, ...]
    result: Any
    same: tuple[tuple[str, Any], ...] = ()
    checks: tuple[str, ...] = ()
    aligned: tuple[tuple[tuple[Any, ...], int], ...] = ()
    maps: tuple[Mapped, ...] = ()

    @property
    def addresses(self) -> tuple[int, ...]:
        """Addresses of the caller's arrays, the new arrays and the persistent arrays."""
        return tuple([array.data.ptr for array in (*(array for _, array in self.arrays), *self.new, *self.persistent)])


def call_key(key: Any, arrays: Sequence[Any]) -> Any:
    """Return `key` if all arrays are different objects. Else return a tuple of `key` and, for each array, the index of
    the first array that is the same object.
    """
    identities = [*map(id, arrays)]
    return key if len(set(identities)) == len(identities) else (key, *map(identities.index, identities))
