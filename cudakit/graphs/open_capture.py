"""What a capture in either place has in common: what it keeps, and whose work it refuses."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cudakit.errors import LaunchError
from cudakit.graphs.named_arguments import Named, memory_of
from cudakit.places import place_of
from cudakit.streams.witnesses import Witness, Work


class Recording(Witness):
    """A capture that is open: the witness of the work that its thread puts on streams.

    Parameters
    ----------
    named : Named

    Attributes
    ----------
    reads, writes : dict
        Arrays that cudakit's own work reads and may write, by identity; a name for a named array and its views.
    kept : list
        What lives as long as the graph.
    """

    def __init__(self, named: Named) -> None:
        self.named = named
        self.reads: dict[Any, Any] = {}
        self.writes: dict[Any, Any] = {}
        self.kept: list[Any] = []
        self._own: dict[int, dict[Any, Any]] = {}
        self._thread = threading.get_ident()
        self._error: BaseException | None = None

    def kept_by(self, owner: object) -> dict[Any, Any]:
        return self._own.setdefault(id(owner), {})

    def keep(self, thing: Any) -> None:
        self.kept.append(thing)

    @contextlib.contextmanager
    def body(self) -> Iterator[None]:
        """A block that captures a loop or branch; without its end there can be no graph."""
        try:
            yield
        except BaseException as error:
            self._error = error
            raise

    def check_whole(self) -> None:
        """Raise where a loop or branch has no end, because an error in it was caught outside of it."""
        if self._error is not None:
            raise LaunchError(
                f"capture: a loop or branch ended with an error ({type(self._error).__name__}: {self._error}), so that "
                "the graph would lack the rest of it; capture again"
            ) from self._error

    def begin(self, work: Work) -> bool:
        if threading.get_ident() != self._thread:
            return False
        if work.kind == "compile":  # for what is captured: it is no part of that itself
            return False
        if work.stream is None:
            raise LaunchError(f"capture: {work.name} is work of the host, which is no part of a graph")
        owner = place_of(work.stream).capture(work.stream)
        if owner is None:
            raise LaunchError(
                f"capture: {work.name} was given another stream, which is no part of the capture; let that wait first, "
                "as in other.wait(stream.record()), and join it before the block ends: stream.wait(other.record())"
            )
        if owner is self and not self._is_inside(work.stream):
            raise outside_of_body(work.name)

        return owner is self

    def end(self, work: Work, begun: Any) -> None:
        if not begun:
            return
        for found, arrays in ((self.reads, work.reads), (self.writes, work.writes)):
            found.update(self.placed(arrays))
        self.kept.append(work)
        self._note(work)

    def placed(self, arrays: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
        """Each array under its key in `reads` and `writes`: its identity, or the name that it has."""
        for array in arrays:
            memory = memory_of(array) if self.named.arrays else None
            held = self.named.holding(memory.low) if memory else None
            yield (held[0], held[0]) if held else (id(array), array)

    def touched(self, found: Mapping[Any, Any]) -> tuple[Any, ...]:
        """The arrays of `reads` or `writes`, with the named ones as they are now."""
        values = self.named.values
        return tuple(values[key] if isinstance(key, str) else array for key, array in found.items())

    def _is_inside(self, stream: Any) -> bool:
        """Whether a stream of the capture is of the graph or body that is captured now."""
        return True

    def _note(self, work: Work) -> None:
        """`work` was put on a stream of the capture."""


def outside_of_body(name: str) -> LaunchError:
    """The error for work inside a loop or branch that is given a stream from outside of it."""
    return LaunchError(
        f"capture: {name} inside a loop or branch was given a stream from outside of it; give it the stream that the "
        "with statement yields"
    )


def conditional_child() -> LaunchError:
    """The error for a graph inside another that has loops or branches: conditional nodes, which no child may have."""
    return LaunchError(
        "graph: one that has loops or branches cannot become a part of another graph: the driver takes no child graph "
        "with conditional nodes (cuGraphAddChildGraphNode), which loops and branches are; launch it by itself, or "
        "capture its calls again in the other graph"
    )


def unjoined(names: Iterable[str]) -> LaunchError:
    """The error for work on another stream after which the captured stream does not come."""
    return LaunchError(
        f"capture: {', '.join(sorted(set(names)))} on another stream was not joined: let the captured one wait for it, "
        "with stream.wait(other.record()), before the block ends"
    )
