"""Process-wide state: what a forked child resets, and functions made from source text.

A lock that another thread held at the fork would stay locked for ever in the child.
"""

from __future__ import annotations

import contextlib
import linecache
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from string import Template
from textwrap import indent
from types import FunctionType
from typing import Any

from cudakit import system


def in_child(call: Callable[[], object]) -> None:
    """Call `call` in each process forked from this one, if the system can fork."""
    system.at_fork(after_in_child=call)


#: Owners of locks, with the attributes and classes of these.
_locks: weakref.WeakKeyDictionary[Any, list[tuple[str, Callable[[], Any]]]] = weakref.WeakKeyDictionary()


def renewed(owner: Any, name: str, make: Callable[[], Any]) -> Any:
    """Return `make()`, a new lock, for the caller to store in the attribute `name` of `owner`.

    In each forked child, the attribute is set to another new lock.
    """
    _locks.setdefault(owner, []).append((name, make))
    return make()


def _renew() -> None:
    for owner, locks in list(_locks.items()):
        for name, make in locks:
            setattr(owner, name, make())


in_child(_renew)


def hold_at_fork(lock: contextlib.AbstractContextManager[object]) -> None:
    """Hold a lock during each fork: the fork waits until no other thread holds it."""

    def release() -> None:
        lock.__exit__(None, None, None)

    system.at_fork(before=lock.__enter__, after_in_parent=release, after_in_child=release)


class Occupied:
    """A library with locks, and whether a thread of the parent was inside it at the fork.

    In the child, such a library may wait for ever. The work is then done in a process of its own.

    Attributes
    ----------
    at_fork : bool
        Whether this process is a child, and another thread of an ancestor was inside the library at a fork.
    """

    def __init__(self) -> None:
        self.at_fork: bool = False
        # Adding and taking away are one step each, which needs no lock.
        self._threads: dict[int, int] = {}
        in_child(self._forked)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Mark this thread as inside the library for a ``with`` block."""
        thread = threading.get_ident()
        self._threads[thread] = self._threads.get(thread, 0) + 1
        try:
            yield
        finally:
            self._threads[thread] -= 1
            if not self._threads[thread]:
                del self._threads[thread]

    def _forked(self) -> None:
        self.at_fork = self.at_fork or bool(self._threads.keys() - {threading.get_ident()})
        self._threads.clear()


_numbers = count()


def fill(template: str, depth: int = 0, **parts: str) -> str:
    """Return a template's text with each part in place of its ``$name``, indented by `depth` times four spaces.

    All lines of a part get the indentation of the line that names the part.
    """
    lines = []
    for line in template.splitlines(keepends=True):
        margin = line[: len(line) - len(line.lstrip())]
        lines.append(Template(line).substitute(parts).replace("\n", f"\n{margin}").removesuffix(margin))
    return indent("".join(lines), "    " * depth)


def make_function(text: str, title: str, names: dict[str, Any]) -> FunctionType:
    """Compile the source of a function, and return the function.

    Parameters
    ----------
    text : str
        Source of one ``def``.
    title : str
        File name in tracebacks. A unique number is appended. Tracebacks show the source's lines.
    names : dict
        Global names of the function.
    """
    file = f"<{title} {next(_numbers)}>"
    code = compile(text, file, "exec")
    namespace: dict[str, Any] = {}
    exec(code, names, namespace)
    function: FunctionType
    (function,) = namespace.values()
    # An entry without a time is not compared with any file.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    weakref.finalize(function.__code__, linecache.cache.pop, file, None).atexit = False
    return function
