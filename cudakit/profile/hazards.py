"""The order between streams, shown: each dependency that cudakit put in, and each that is missing, with both lines.

What cudakit launches and copies is ordered by itself (see `cudakit.streams.order`). `trace` tells how, `manual`
turns it off, `ordered` says that one stream comes after another. A dependency can be missing where cudakit puts in no
waits: under `manual`, for a `Plan` (which is ordered when it is made, not when it is launched), and for work of other
libraries.

On its first launch a stream waits for all that was launched before there were two; dependencies on that are told as
implied.

What cannot be seen: kernels of CuPy and torch themselves, and waits by ``stream.wait`` of cuda.core. CuPy's and torch's
current streams are waited for as a whole; a dependency that ``stream.wait`` took care of is told as missing, unless it
is said with `ordered`. So that it can be told from a real race all the same, `trace` looks at each missing one: it is
"seen" where the later work's stream came to its turn while the earlier work was not done.
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
    """One side of a dependency.

    Attributes
    ----------
    work : str
        The kernel, the operation, or what is known of it.
    parameter : str
        The kernel's parameter that the memory was given for; empty where there is none.
    stream : str
    site : str
        File and line of the program that asked for it.
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
    """Two pieces of work of which the first must be done before the second begins.

    Attributes
    ----------
    status : {"put in", "implied", "missing", "unseen"}
        Whether cudakit made the second's stream wait; or earlier waits imply that; or nothing does; or cudakit cannot
        tell what memory it is about.
    kind : str
        ``read after write``, ``write after read`` or ``write after write``.
    first, second : Party
    memory : tuple of int, or None
        First address that both touch, and the address after the last.
    seen : bool
        Of a missing one: the second's turn came while the first was not done. Where this is False, they were ordered
        in a way that cannot be seen, or the first was quick.
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
    """What the report remembers of a use: what is still unknown when its waits are put in comes later."""

    __slots__ = ("_report", "name", "parameters", "site", "stream")

    def __init__(self, report: Report, stream: str, site: str) -> None:
        self._report = report
        self.stream: str = stream
        self.site: str = site
        self.name: str = "work"
        self.parameters: list[tuple[str, Range]] = []

    def tell(self, call: Call) -> None:
        """It is this launch of a kernel."""
        self._report.expect(call)
        self.describe(call.target.specialization.name_expression, call)

    def describe(self, name: str, call: Call | None) -> None:
        """Take the names from the work."""
        self.name = name
        if call is None:
            return
        hidden = []
        for parameter, argument in zip(call.target.parameters, call.arguments, strict=True):
            self.parameters += [(parameter.name, span) for span in _spans([argument])]
            if _hides_memory(parameter):
                kind = f"what {parameter.name} ({parameter.cpp}) leads to is not known"
                others = Party("whatever uses it", "", "any stream", "unseen")
                hidden.append(_Pending("unseen", kind, others, self, None, False))
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


class _Told(threading.local):
    """Of each thread: works that it is about to put on streams, the call that is ordered already, its last note."""

    def __init__(self) -> None:
        self.works: list[list[Any]] = []
        self.call: Call | None = None
        self.note: _Note | None = None


class Report(Reported, Witness):
    """What `trace` found, up to now; printable."""

    def __init__(self) -> None:
        self._told = _Told()
        self._lock = threading.Lock()
        self._pending: list[_Pending] = []
        self._found: Counter[Dependency] = Counter()

    @property
    def dependencies(self) -> tuple[Dependency, ...]:
        """Each different one, in the order of their first times."""
        with self._lock:
            self._fold()
            return tuple(self._found)

    @property
    def missing(self) -> tuple[Dependency, ...]:
        """Those that nothing takes care of, as far as can be seen."""
        return tuple(found for found in self.dependencies if found.status == "missing")

    def times(self, dependency: Dependency) -> int:
        """How often it came."""
        with self._lock:
            return self._found[dependency]

    def __repr__(self) -> str:
        dependencies = self.dependencies
        missing = sum(found.status == "missing" for found in dependencies)
        return f"<cudakit.hazards.Report of {len(dependencies)} dependencies; missing: {missing}>"

    def _parts(self) -> Iterator[Part]:
        dependencies = self.dependencies
        counts = Counter(found.status for found in dependencies)
        told = ", ".join(f"{counts[status]} {status}" for status in ("put in", "implied", "missing", "unseen"))
        word = "dependency" if len(dependencies) == 1 else "dependencies"
        yield f"{len(dependencies)} {word} between streams: {told}"
        yield Drawing(lambda: _drawn(dependencies))
        by_weight = sorted(dependencies, key=lambda found: _WEIGHTS.index(found.status))
        for found in by_weight:
            times = self._found[found]
            yield f"{found}\n    {times} times" if times > 1 else str(found)

    def _fold(self) -> None:
        """Count what was found, once the names are known."""
        for pending in self._pending:
            first = pending.first
            if isinstance(first, _Note):
                first = first.party(pending.memory)
            second = pending.second.party(pending.memory)
            self._found[Dependency(pending.status, pending.kind, first, second, pending.memory, pending.seen)] += 1
        self._pending.clear()

    def expect(self, call: Call) -> None:
        """The next work that this thread begins is this, which is ordered already."""
        self._told.call = call

    def add(self, found: Iterable[_Pending]) -> None:
        """Remember what was found."""
        with self._lock:
            self._pending += found
            if len(self._pending) > _MOST_PENDING:
                self._fold()

    # ── what the order tells ─────────────────────────────────────────────────────────────────────────────────────

    def see(
        self, stream: Track | int, touched: Touched, clocks: Clocks, foreign: Sequence[int], ordered: bool, is_put: bool
    ) -> _Note:
        """`stream` is about to touch that; see `cudakit.streams.order.Reporter`."""
        note = self._told.note = self._begun(_stream_name(stream), ordered)
        unmet: Status = "put in" if is_put else "missing"
        found = []
        for conflict in clocks.conflicts(stream, touched):
            missing = not conflict.implied and not is_put
            seen = missing and _is_early(stream, conflict.use)
            found.append(self._dependency(conflict, note, unmet, seen))
        for handle in foreign:
            others = Party("all work of other libraries", "", _name(handle), "unseen")
            found.append(_Pending(unmet, "after what is unseen", others, note, None, False))
        self.add(found)
        return note

    def _begun(self, stream: str, ordered: bool) -> _Note:
        """The note of a use, by the work that this thread has begun."""
        note = _Note(self, stream, call_site())
        if self._told.works:
            frame = self._told.works[-1]
            frame[1] = frame[1] or ordered
            work: Work = frame[0]
            note.describe(work.name, work.detail if isinstance(work.detail, Call) else None)
        return note

    def _dependency(self, conflict: Conflict, note: _Note, unmet: Status, seen: bool) -> _Pending:
        first = conflict.use.note
        if not isinstance(first, _Note):
            first = Party("work", "", _stream_name(conflict.use.stream), _UNKNOWN)
        status: Status = "implied" if conflict.implied else unmet
        return _Pending(status, conflict.kind, first, note, conflict.overlap, seen)

    # ── what the witness is told ─────────────────────────────────────────────────────────────────────────────────

    def begin(self, work: Work) -> Any:
        """Work of any kind is about to be put on a stream, in order or past it."""
        call, self._told.call = self._told.call, None
        if work.stream is None or (call is not None and work.detail is call):
            return None
        if place_of(work.stream).unit == "steps":
            # Its order has looked already: before the work was known.
            if self._told.note is not None:
                self._told.note.describe(work.name, work.detail if isinstance(work.detail, Call) else None)
            self._told.note = None
            return None
        frame: list[Any] = [work, False, None]
        self._told.works.append(frame)
        if isinstance(work.detail, Call):
            # A plan's launch: nobody puts in waits for it.
            frame[2] = self._unordered(work)
        return frame

    def end(self, work: Work, begun: Any) -> None:
        """It was put there."""
        if isinstance(begun, list):
            frame = self._told.works.pop()
            if not frame[1] and frame[2] is None:
                frame[2] = self._unordered(work)
            if frame[2] is not None:
                order().after(frame[2], ())

    def _unordered(self, work: Work) -> Use | None:
        return order().see_unordered(work.stream, tuple(_spans(work.reads)), tuple(_spans(work.writes)))


def _drawn(dependencies: Iterable[Dependency]) -> str:
    """What must wait for what, in a notebook."""
    return timeline.dependencies(
        [
            (found.status, str(found), (found.first.stream, found.first.work), (found.second.stream, found.second.work))
            for found in dependencies
        ]
    )


def _hides_memory(parameter: BoundParameter) -> bool:
    """Whether a parameter may hold addresses that only the kernel knows."""
    match parameter.category:
        case "tensor_map":
            return True
        case "pointer":
            return parameter.cpp.count("*") > 1
        case "struct" if parameter.dtype is not None and parameter.dtype.fields:
            return any(field[0].base in (np.dtype("u8"), np.dtype("i8")) for field in parameter.dtype.fields.values())
    return False


def _is_early(stream: Any, use: Use) -> bool:
    """Whether a stream comes to its turn while a use is not done: waits for the stream, on the host."""
    if use.event is None or not hasattr(use.event, "is_done"):
        return False
    stream.core.record().sync()
    return not use.event.is_done


def _spans(arrays: Iterable[Any]) -> Iterator[Range]:
    """Where arrays lie, those whose memory is known."""
    for array in arrays:
        try:
            start, stop = span_of(array)
        except ArgumentError:
            continue
        if start < stop:
            yield start, stop


def _stream_name(stream: Any) -> str:
    """Of a stream, by its name in the clocks: a `Track`, or the number of one of the emulator's."""
    return f"emulated stream {stream}" if isinstance(stream, int) else _name(stream.handle)


def _name(handle: int) -> str:
    return _DEFAULT.get(handle, f"stream {handle:#x}")


@contextlib.contextmanager
def trace() -> Iterator[Report]:
    """Report the dependencies between streams of all that is put on them inside the block, in any thread.

    While it is on, each launch is looked at in full and leaves an event: a mode to find errors with. Of traces that are
    open at the same time, on a GPU the one that began last is told.

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
    """Put in no waits between streams inside the block, in any thread: the user orders them.

    ``second.wait(first.record())`` orders two streams, or `ordered`, which `trace` knows of. On the emulator a race is
    an `EmulationError` then. Launches that are repeated cost what they do on one stream. Where streams passed memory on
    to each other inside, all streams come after that at the end.
    """
    with order().manual():
        yield


@contextlib.contextmanager
def foreign(
    stream: Any, *, reads: Sequence[Any] = (), writes: Sequence[Any] = (), name: str = "foreign work"
) -> Iterator[None]:
    """A block that puts work of another library on a stream, in the order between streams: NCCL's, cuFFT's, a C call's.

    The stream waits for whatever others do to the arrays, as for a kernel's launch, others wait for this, and the
    arrays are held until it is done. `trace` tells of it; on the emulator, where the block works at once, a race is an
    `EmulationError`.

    Parameters
    ----------
    stream : stream
        On which the block puts its work.
    reads, writes : sequence of arrays
        What it reads, and what it may write. They may be of several devices, and are reached from the stream's.
    name : str
        What it is called in traces and reports.

    Examples
    --------
    >>> with ck.hazards.foreign(stream, reads=[x], writes=[y], name="all-reduce"):
    ...     communicator.allReduce(x.data.ptr, y.data.ptr, x.size, NCCL_FLOAT32, NCCL_SUM, int(stream.handle))
    """
    place = place_of(stream)
    given = place.check(stream)
    reads, writes = (
        listed("hazards.foreign: reads are several arrays", reads),
        listed("hazards.foreign: writes are several arrays", writes),
    )
    put_in = order().around(given, reads, writes) if place.unit == "ms" else contextlib.nullcontext()
    size = sum(getattr(array, "nbytes", 0) for array in writes)
    with doing("copy", text_of("hazards.foreign: name", name), given, tuple(reads), tuple(writes), size), put_in:
        yield


def ordered(stream: Any, *, after: Any, wait: bool = True) -> None:
    """Make `stream` wait for all that `after` was given so far, and let `trace` know.

    Parameters
    ----------
    stream, after : stream
    wait : bool
        False: only say so, where ``stream.wait`` did it already.
    """
    place_of(stream).order(stream, after, flag("ordered: wait", wait))
