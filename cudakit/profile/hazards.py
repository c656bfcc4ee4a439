"""Dependencies between streams, ordered by cudakit or missing, each with the lines of both works.

cudakit orders its launches and copies automatically (see `cudakit.streams.order`). `trace` reports the order, `manual`
turns it off, `ordered` orders one stream after another. A dependency can be missing where cudakit adds no waits:

- under `manual`;
- for a `Plan`, which is ordered when it is made, not when it is launched;
- for work of other libraries.

On its first launch a stream waits for all launches from before there were two streams. Dependencies on these are
reported as implied.

`trace` does not see kernels of CuPy and torch, and waits by ``stream.wait`` of cuda.core. cudakit waits for the current
streams of CuPy and torch as a whole. A dependency that ``stream.wait`` orders is reported as missing, unless you also
call `ordered`. To distinguish it from a real race, `trace` checks each missing dependency. It is "seen" if the later
work's stream reached its turn while the earlier work was not done.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.places import place_of
from cudakit.profile import timeline
from cudakit.streams.clocks import Clocks, Conflict
from cudakit.streams.order import Track, order
from cudakit.streams.segments import Range, Touched, Use, span_of
from cudakit.streams.witnesses import Call, Witness, Work, call_site, doing, witnessing
from cudakit.types.checked import flag, listed, text_of
from cudakit.types.shown import Drawing, Part, Reported

Status: TypeAlias = Literal["put in", "implied", "missing", "unseen"]
#: In which order dependencies are told.
_WEIGHTS: tuple[Status, ...] = ("missing", "unseen", "put in", "implied")
_UNKNOWN = "before the trace"
_DEFAULT = {1: "the legacy default stream", 2: "the per-thread default stream"}
_MOST_PENDING = 1000


class Party(NamedTuple):
    """The use on one side of a dependency.

    Attributes
    ----------
    work : str
        Name of the kernel or the operation, or a description of unknown work.
    parameter : str
        Name of the kernel parameter that the memory was passed for; empty if there is none.
    stream : str
        Name of the stream.
    site : str
        File and line of the program that put the work on the stream.
    """

    work: str
    parameter: str
    stream: str
    site: str

    def __str__(self) -> str:
        parameter = f" ({self.parameter})" if self.parameter else ""
        return f"{self.work}{parameter} on {self.stream}, {self.site}"


@dataclass(frozen=True)
class Dependency:
    """Two pieces of work, of which the first must be done before the second begins.

    Attributes
    ----------
    status : {"put in", "implied", "missing", "unseen"}
        ``put in``: cudakit made the second's stream wait. ``implied``: earlier waits imply the order. ``missing``:
        nothing orders them. ``unseen``: cudakit does not know the memory.
    kind : str
        ``read after write``, ``write after read`` or ``write after write``.
    first, second : Party
        Use that must come first, and use that must come second.
    memory : tuple of int, or None
        First address that both access, and the address after the last.
    seen : bool
        For a missing dependency: whether the second work's stream reached its turn while the first was not done. If
        False, both were ordered in a way that cudakit does not see, or the first was quick.
    """

    status: Status
    kind: str
    first: Party
    second: Party
    memory: Range | None = None
    seen: bool = False

    def __str__(self) -> str:
        status = f"{self.status}{', and seen to race' if self.seen else ''}"
        where = ""
        if self.memory is not None:
            where = f" of {self.memory[1] - self.memory[0]} bytes at {self.memory[0]:#x}"
        return f"{status}: {self.kind}{where}\n    first   {self.first}\n    second  {self.second}"


class _Note:
    """The report's record of one use of memory by work on a stream.

    It is made when the waits are added. Names that are unknown then are filled in later.
    """

    __slots__ = ("_report", "name", "parameters", "site", "stream")

    def __init__(self, report: Report, stream: str, site: str) -> None:
        self._report = report
        self.stream: str = stream
        self.site: str = site
        self.name: str = "work"
        self.parameters: list[tuple[str, Range]] = []

    def record_call(self, call: Call) -> None:
        """Store the launch of this use."""
        self._report.expect(call)
        self.describe(call.target.specialization.name_expression, call)

    def describe(self, name: str, call: Call | None) -> None:
        """Set the names of the work, and of the parameters if `call` is a launch."""
        self.name = name
        if call is None:
            return
        hidden = []
        for parameter, argument in zip(call.target.parameters, call.arguments, strict=True):
            self.parameters += [(parameter.name, span) for span in _spans([argument])]
            if _hides_memory(parameter):
                reason = f"what {parameter.name} ({parameter.cpp}) leads to is not known"
                others = Party("whatever uses it", "", "any stream", "unseen")
                hidden.append(_Pending("unseen", reason, others, self, None, False))
        self._report.add(hidden)

    def party(self, memory: Range | None) -> Party:
        parameter = ""
        if memory is not None:
            inside = (name for name, (start, stop) in self.parameters if start < memory[1] and memory[0] < stop)
            parameter = next(inside, "")
        return Party(self.name, parameter, self.stream, self.site)


class _Pending(NamedTuple):
    status: Status
    kind: str
    first: Any
    second: _Note
    memory: Range | None
    seen: bool


class _ThreadState(threading.local):
    """State of a thread: work that it is about to put on streams, the call already ordered, its last note."""

    def __init__(self) -> None:
        self.works: list[list[Any]] = []
        self.call: Call | None = None
        self.note: _Note | None = None


class Report(Reported, Witness):
    """Dependencies found by `trace` so far; printable."""

    def __init__(self) -> None:
        self._thread = _ThreadState()
        self._lock = threading.Lock()
        self._pending: list[_Pending] = []
        self._counts: Counter[Dependency] = Counter()

    @property
    def dependencies(self) -> tuple[Dependency, ...]:
        """Distinct dependencies, in the order of their first occurrence."""
        with self._lock:
            self._fold()
            return tuple(self._counts)

    @property
    def missing(self) -> tuple[Dependency, ...]:
        """Dependencies that nothing orders, as far as cudakit can see."""
        return tuple(dependency for dependency in self.dependencies if dependency.status == "missing")

    def times(self, dependency: Dependency) -> int:
        """Return how often a dependency occurred."""
        with self._lock:
            return self._counts[dependency]

    def __repr__(self) -> str:
        dependencies = self.dependencies
        missing = sum(dependency.status == "missing" for dependency in dependencies)
        return f"<cudakit.hazards.Report of {len(dependencies)} dependencies; missing: {missing}>"

    def _parts(self) -> Iterator[Part]:
        dependencies = self.dependencies
        counts = Counter(dependency.status for dependency in dependencies)
        summary = ", ".join(f"{counts[status]} {status}" for status in ("put in", "implied", "missing", "unseen"))
        word = "dependency" if len(dependencies) == 1 else "dependencies"
        yield f"{len(dependencies)} {word} between streams: {summary}"
        yield Drawing(lambda: _drawn(dependencies))
        by_weight = sorted(dependencies, key=lambda dependency: _WEIGHTS.index(dependency.status))
        for dependency in by_weight:
            times = self._counts[dependency]
            yield f"{dependency}\n    {times} times" if times > 1 else str(dependency)

    def _fold(self) -> None:
        """Move pending dependencies to the counts by distinct dependency. Call this once their names are known."""
        for pending in self._pending:
            first = pending.first
            if isinstance(first, _Note):
                first = first.party(pending.memory)
            second = pending.second.party(pending.memory)
            self._counts[Dependency(pending.status, pending.kind, first, second, pending.memory, pending.seen)] += 1
        self._pending.clear()

    def expect(self, call: Call) -> None:
        """Do not report `call` as unordered when this thread begins it next: its use of memory was observed already."""
        self._thread.call = call

    def add(self, pending: Iterable[_Pending]) -> None:
        """Add dependencies whose names may be filled in later. If too many are pending, count them now."""
        with self._lock:
            self._pending += pending
            if len(self._pending) > _MOST_PENDING:
                self._fold()

    # ── what the order tells ─────────────────────────────────────────────────────────────────────────────────────

    def see(
        self, stream: Track | int, touched: Touched, clocks: Clocks, foreign: Sequence[int], ordered: bool, is_put: bool
    ) -> _Note:
        """Observe that `stream` is about to access the memory. `cudakit.streams.order.Reporter.see` has the parameters.

        `is_put` says whether the order adds missing waits: a dependency is then "put in", else "missing".
        """
        note = self._thread.note = self._note_of(_stream_name(stream), ordered)
        unmet: Status = "put in" if is_put else "missing"
        pending = []
        for conflict in clocks.conflicts(stream, touched):
            missing = not conflict.implied and not is_put
            is_seen = missing and _is_early(stream, conflict.use)
            pending.append(self._dependency(conflict, note, unmet, is_seen))
        for handle in foreign:
            others = Party("all work of other libraries", "", _name(handle), "unseen")
            pending.append(_Pending(unmet, "after what is unseen", others, note, None, False))
        self.add(pending)
        return note

    def _note_of(self, stream: str, ordered: bool) -> _Note:
        """Return a new record of a use of memory on the stream named `stream`.

        It has the call site, and the name of the work that this thread began last. If `ordered` is True, also mark this
        work as ordered, so that `end` does not report it as unordered.
        """
        note = _Note(self, stream, call_site())
        if self._thread.works:
            frame = self._thread.works[-1]
            frame[1] = frame[1] or ordered
            work: Work = frame[0]
            note.describe(work.name, work.detail if isinstance(work.detail, Call) else None)
        return note

    def _dependency(self, conflict: Conflict, note: _Note, unmet: Status, is_seen: bool) -> _Pending:
        first = conflict.use.note
        if not isinstance(first, _Note):
            first = Party("work", "", _stream_name(conflict.use.stream), _UNKNOWN)
        status: Status = "implied" if conflict.implied else unmet
        return _Pending(status, conflict.hazard, first, note, conflict.overlap, is_seen)

    # ── what the witness is told ─────────────────────────────────────────────────────────────────────────────────

    def begin(self, work: Work) -> Any:
        """Observe that `work` is about to be put on a stream.

        Return its record for `end`, or None if `end` has nothing to do.
        """
        call, self._thread.call = self._thread.call, None
        if work.stream is None or (call is not None and work.detail is call):
            return None
        if place_of(work.stream).unit == "steps":
            # Its order has looked already: before the work was known.
            if self._thread.note is not None:
                self._thread.note.describe(work.name, work.detail if isinstance(work.detail, Call) else None)
            self._thread.note = None
            return None
        frame: list[Any] = [work, False, None]
        self._thread.works.append(frame)
        if isinstance(work.detail, Call):
            # A plan's launch: nobody puts in waits for it.
            frame[2] = self._unordered(work)
        return frame

    def end(self, work: Work, begun: Any) -> None:
        """Observe that the work was put on its stream. Report its use of memory now if no order has reported it."""
        if isinstance(begun, list):
            frame = self._thread.works.pop()
            if not frame[1] and frame[2] is None:
                frame[2] = self._unordered(work)
            if frame[2] is not None:
                order().after(frame[2], ())

    def _unordered(self, work: Work) -> Use | None:
        return order().see_unordered(work.stream, tuple(_spans(work.reads)), tuple(_spans(work.writes)))


def _drawn(dependencies: Iterable[Dependency]) -> str:
    """Return a picture of the dependencies, for a notebook."""
    return timeline.dependencies(
        [
            (
                dependency.status,
                str(dependency),
                (dependency.first.stream, dependency.first.work),
                (dependency.second.stream, dependency.second.work),
            )
            for dependency in dependencies
        ]
    )


def _hides_memory(parameter: BoundParameter) -> bool:
    """Return whether a parameter may contain addresses that only the kernel knows."""
    match parameter.category:
        case "tensor_map":
            return True
        case "pointer":
            return parameter.cpp.count("*") > 1
        case "struct" if parameter.dtype is not None and parameter.dtype.fields:
            return any(field[0].base in (np.dtype("u8"), np.dtype("i8")) for field in parameter.dtype.fields.values())
    return False


def _is_early(stream: Any, use: Use) -> bool:
    """Return True if a stream reaches its present point before the work of `use` is done: nothing orders the two.

    Waits for the stream on the host. Return False if the use has no event.
    """
    if use.event is None or not hasattr(use.event, "is_done"):
        return False
    stream.core.record().sync()
    return not use.event.is_done


def _spans(arrays: Iterable[Any]) -> Iterator[Range]:
    """Yield the address ranges of arrays whose memory is known."""
    for array in arrays:
        try:
            start, stop = span_of(array)
        except ArgumentError:
            continue
        if start < stop:
            yield start, stop


def _stream_name(stream: Any) -> str:
    """Return the displayed name of a stream. `stream` is a `Track`, or the number of an emulator's stream."""
    return f"emulated stream {stream}" if isinstance(stream, int) else _name(stream.handle)


def _name(handle: int) -> str:
    return _DEFAULT.get(handle, f"stream {handle:#x}")


@contextlib.contextmanager
def trace() -> Iterator[Report]:
    """Report the dependencies between streams for all work inside a ``with`` block, in any thread.

    Use it to find errors: inside the block, each launch is checked in full and records an event. If several traces are
    open at the same time, the last one gets the reports of a GPU's work.

    Yields
    ------
    Report

    Examples
    --------
    >>> with ck.hazards.trace() as report:
    ...     produce(first, config, x)
    ...     consume(second, config, x, y)
    >>> print(report)
    """
    report = Report()
    with order().reporting(report), witnessing(report):
        yield report


@contextlib.contextmanager
def manual() -> Iterator[None]:
    """Add no waits between streams inside a ``with`` block, in any thread: the user orders them.

    ``second.wait(first.record())`` orders two streams, or `ordered`, which `trace` sees. On the emulator a race raises
    an `EmulationError`. Replayed launches cost the same as on one stream. If streams passed memory to each other inside
    the block, all streams are ordered after this work at its end.
    """
    with order().manual():
        yield


@contextlib.contextmanager
def foreign(
    stream: Any, *, reads: Sequence[Any] = (), writes: Sequence[Any] = (), name: str = "foreign work"
) -> Iterator[None]:
    """Order work of another library that a ``with`` block puts on a stream: NCCL, cuFFT, a C call.

    The stream waits for other streams' work on the arrays, as for a kernel launch. Other streams wait for this work.
    The arrays are kept alive until it is done. `trace` reports it. On the emulator, where the block runs at once, a
    race raises an `EmulationError`.

    Parameters
    ----------
    stream : stream
        Stream on which the block puts its work.
    reads, writes : sequence of arrays
        Arrays that the work reads, and arrays that it may write. They may be on several devices, to which the stream's
        device has access.
    name : str
        Name of the work in traces and reports.

    Examples
    --------
    >>> with ck.hazards.foreign(stream, reads=[x], writes=[y], name="all-reduce"):
    ...     communicator.allReduce(x.data.ptr, y.data.ptr, x.size, NCCL_FLOAT32, NCCL_SUM, int(stream.handle))
    """
    place = place_of(stream)
    checked_stream = place.check(stream)
    reads, writes = (
        listed("hazards.foreign: reads are several arrays", reads),
        listed("hazards.foreign: writes are several arrays", writes),
    )
    put_in = order().around(checked_stream, reads, writes) if place.unit == "ms" else contextlib.nullcontext()
    size = sum(getattr(array, "nbytes", 0) for array in writes)
    with (
        doing("copy", text_of("hazards.foreign: name", name), checked_stream, tuple(reads), tuple(writes), size),
        put_in,
    ):
        yield


def ordered(stream: Any, *, after: Any, wait: bool = True) -> None:
    """Make `stream` wait for all present work of `after`, and report the wait to `trace`.

    Parameters
    ----------
    stream, after : stream
        Stream that waits, and stream that it waits for.
    wait : bool
        Whether to wait. False: only report the order, if ``stream.wait`` has made it already.
    """
    place_of(stream).order(stream, after, flag("ordered: wait", wait))
