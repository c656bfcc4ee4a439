"""Reports of work put on streams to its observers: traces, recorders, reports of missing order.

Without observers, a repeated launch does not run code of this module: see `cudakit.jit.launch.dispatch`. With an
observer, every kernel call runs `cudakit.jit.launch.launch.CallShape.launch`, and plans report their launches too.
`call_site` returns the line of the user's program that called cudakit.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol, TypeAlias

from cudakit.records import NamedTuple
from cudakit.streams import process

_PACKAGE = str(Path(__file__).parents[1])


def call_site() -> str:
    """Return the line of the program that called cudakit, as ``file:line``."""
    frame = _caller()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def warn_at_call(message: str, category: type[Warning]) -> None:
    """Warn at the line of the program that called cudakit; by default once a line."""
    frame = _caller()
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, registry=registry)


def _caller() -> FrameType:
    frame = sys._getframe(1)
    while is_own(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame


@functools.lru_cache(4096)
def is_own(file: str) -> bool:
    """Return whether the code of `file` is cudakit's: its package, generated code, ``contextlib`` or imports."""
    return file.startswith((_PACKAGE, "<launch of ", "<call of ", "<frozen ")) or file in (
        contextlib.__file__,
        importlib.__file__,
    )


Kind: TypeAlias = Literal["kernel", "copy", "fill", "host", "compile", "graph"]


class Call(NamedTuple):
    """The launch of a kernel, with its specialization, configuration and arguments.

    Attributes
    ----------
    target : cudakit.jit.load.load.Loaded or cudakit.emulator.launch.Emulated
        The specialization; `target.parameters` describes each argument's parameter.
    config : object
        ``cuda.core.LaunchConfig``; `Config` or `Cover` on the emulator.
    values : tuple
        Values passed for the arguments: addresses and numbers; host arrays for memory on the emulator.
    arguments : tuple
        Arguments as the user passed them.
    """

    target: Any
    config: Any
    values: tuple[Any, ...]
    arguments: tuple[Any, ...]


class Work(NamedTuple):
    """A piece of work: a launch, copy, fill, compile, graph or host function.

    Attributes
    ----------
    kind : {"kernel", "copy", "fill", "host", "compile", "graph"}
        Category of the work.
    name : str
        Name expression of a kernel, name of an operation or of a stage.
    stream : cuda.core.Stream, EmulatedStream or None
        Stream of the work; None for work of the host.
    reads, writes : tuple
        Arrays that the work reads, and arrays that it writes. An array may be in both.
    size : int
        Bytes moved by a copy or a fill.
    detail : Call or None
        Launch of a kernel.
    lane : str
        Name of the timeline's lane for work of the host. Empty: the lane of its thread.
    """

    kind: Kind
    name: str
    stream: Any
    reads: tuple[Any, ...] = ()
    writes: tuple[Any, ...] = ()
    size: int = 0
    detail: Any = None
    lane: str = ""


class Witness:
    """An observer of each piece of work, before and after it is put on its stream, in the same thread."""

    def begin(self, work: Work) -> Any:
        """Observe that `work` is about to be put on its stream. The returned value is passed to `end`."""

    def end(self, work: Work, begun: Any) -> None:
        """Observe that `work` was put on its stream, or is done on the host. Not called after a failure."""


class Watched(Protocol):
    """A repeated launch that skips reports to observers, and is notified when it must report or may stop."""

    def watch(self, watched: bool) -> None:
        """Report work from now on, if `watched` is True, or stop reporting."""


class _Watch:
    """The observers of work, the repeated launches to notify when observers come and go, and the names of streams."""

    def __init__(self) -> None:
        self.lock = process.renewed(self, "lock", threading.RLock)
        self.shortcuts: weakref.WeakSet[Watched] = weakref.WeakSet()
        self.witnesses: tuple[Witness, ...] = ()
        self.names: dict[int, str] = {}

    def change(self, add: tuple[Witness, ...] = (), remove: tuple[Witness, ...] = ()) -> None:
        with self.lock:
            former = self.witnesses
            self.witnesses = (*(other for other in former if other not in remove), *add)
            if bool(former) != bool(self.witnesses):
                for shortcut in list(self.shortcuts):
                    shortcut.watch(bool(self.witnesses))


_watch = _Watch()


def watched() -> bool:
    """Return whether there are witnesses."""
    return bool(_watch.witnesses)


def add_shortcut(shortcut: Watched) -> None:
    """Notify `shortcut` from now on when witnesses come and go; at once if there are some."""
    with _watch.lock:
        _watch.shortcuts.add(shortcut)
        if _watch.witnesses:
            shortcut.watch(True)


def name_stream(identity: int, name: str | None) -> None:
    """Set the name of a stream in traces and reports. None: remove the name.

    `identity` is the number that `Place.identity` returns for the stream.
    """
    if name is None:
        _watch.names.pop(identity, None)
    else:
        _watch.names[identity] = name


def name_of_stream(identity: int) -> str | None:
    """Return the name set by `name_stream` for the stream with this `Place.identity`, or None."""
    return _watch.names.get(identity)


@contextlib.contextmanager
def witnessing(witness: Witness) -> Iterator[None]:
    """Report all work that any thread puts on streams inside a ``with`` block to `witness`."""
    _watch.change(add=(witness,))
    try:
        yield
    finally:
        _watch.change(remove=(witness,))


def doing(
    category: Kind,
    name: str,
    stream: Any,
    reads: tuple[Any, ...] = (),
    writes: tuple[Any, ...] = (),
    size: int = 0,
    detail: Any = None,
    lane: str = "",
) -> contextlib.AbstractContextManager[object]:
    """Return a context manager that reports the work that its block puts on `stream` to the witnesses."""
    # What an emulated stream is given has a place in its order, told or not; launches and graphs see to theirs.
    # The class is asked: a GPU's stream takes 2 µs to say that it has no such attribute.
    emulated = category not in ("kernel", "graph") and hasattr(type(stream), "doing")
    if not emulated and not _watch.witnesses:
        return _UNTOLD
    work = Work(category, name, stream, reads, writes, size, detail, lane)
    context: contextlib.AbstractContextManager[object] = stream.doing(work) if emulated else telling(work)
    return context


_UNTOLD = contextlib.nullcontext()


@contextlib.contextmanager
def telling(work: Work) -> Iterator[None]:
    """Report `work`, which a ``with`` block puts on its stream, to the witnesses."""
    begun = [(witness, witness.begin(work)) for witness in _watch.witnesses]
    yield
    for witness, memory in reversed(begun):
        witness.end(work, memory)
