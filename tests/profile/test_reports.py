"""Reports of dependencies, told by hand: what they remember of each side, what is counted, and how it is said."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.profile import hazards
from cudakit.profile.hazards import Dependency, Party, Report
from cudakit.streams import witnesses
from cudakit.streams.clocks import Clocks
from cudakit.streams.witnesses import Call, Work

pytestmark = pytest.mark.emulator

X, Y = (0x1000, 0x1080), (0x2000, 0x2080)


class Core:
    """A stream; whether what it was given is done once somebody waits for it."""

    def __init__(self) -> None:
        self.waited = 0

    def record(self) -> Core:
        return self

    def sync(self) -> None:
        self.waited += 1


class Track:
    """What the order knows of a stream."""

    def __init__(self, handle: int) -> None:
        self.handle, self.core = handle, Core()


class Event:
    def __init__(self, is_done: bool) -> None:
        self.is_done = is_done


def parameter(name: str, kind: Any = "pointer", cpp: str = "float *", dtype: Any = "f4") -> BoundParameter:
    return BoundParameter(name, cpp, kind, None if dtype is None else np.dtype(dtype))


def call(name: str, *given: tuple[BoundParameter, Any]) -> Call:
    target = SimpleNamespace(
        specialization=SimpleNamespace(name_expression=name), parameters=[each for each, _ in given]
    )
    return Call(target, None, (), tuple(argument for _, argument in given))


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    sites = iter(f"program.py:{number}" for number in range(1, 10_000))
    monkeypatch.setattr(hazards, "call_site", lambda: next(sites))
    return Report()


def see(report: Report, clocks: Clocks, stream: Track, reads: Any = (), writes: Any = (), **how: Any) -> Any:
    """What the order does: tell the report, and note the use."""
    touched = clocks.touch(reads, writes)
    given = {"foreign": (), "ordered": True, "is_put": True, **how}
    note = report.see(stream, touched, clocks, **given)  # type: ignore[arg-type]
    for use in clocks.needed(stream, touched):
        clocks.wait(stream, use)
    clocks.use(stream, touched, note)
    return note


def test_a_dependency_names_the_work_and_parameter_of_both_sides(report: Report) -> None:
    clocks, first, second = Clocks(), Track(1), Track(0x20)
    see(report, clocks, first, writes=[X]).describe("write<float>", call("other", (parameter("out"), X)))
    note = see(report, clocks, second, [X], [Y])
    note.record_call(
        call("read<float>", (parameter("y"), Y), (parameter("x"), X), (parameter("n", "scalar", "int", "i4"), 3))
    )
    (found,) = report.dependencies
    assert found == Dependency(
        "put in",
        "read after write",
        Party("write<float>", "out", "the legacy default stream", "program.py:1"),
        Party("read<float>", "x", "stream 0x20", "program.py:2"),
        X,
        False,
    )
    assert report.missing == ()
    assert str(report).splitlines() == [
        "1 dependency between streams: 1 put in, 0 implied, 0 missing, 0 unseen",
        f"put in: read after write of 128 bytes at {X[0]:#x}",
        "    first   write<float> (out) on the legacy default stream, program.py:1",
        "    second  read<float> (x) on stream 0x20, program.py:2",
    ]
    assert repr(report) == "<cudakit.hazards.Report of 1 dependencies; missing: 0>"


def test_parameters_are_those_that_touch_the_memory(report: Report) -> None:
    clocks, first, second = Clocks(), Track(3), Track(4)
    middle = (0x1040, 0x1080)
    see(report, clocks, first, writes=[middle])
    # Neighbours on both sides are given too, and nothing of them is touched.
    note = see(report, clocks, second, [middle])
    left, right = (0x1000, 0x1040), (0x1080, 0x1100)
    note.record_call(
        call("k", (parameter("left"), left), (parameter("right"), right), (parameter("it"), (0x1000, 0x1044)))
    )
    (found,) = report.dependencies
    assert (found.second.parameter, found.first.parameter, found.first.work) == ("it", "", "work")
    assert str(found.first) == "work on stream 0x3, program.py:1"


def test_missing_ones_are_told_with_whether_they_are_seen(report: Report) -> None:
    clocks, first, second = Clocks(), Track(2), Track(5)
    for is_done in (False, True, None):
        clocks = Clocks()
        note = see(report, clocks, first, writes=[X])
        (segment,) = clocks.segments
        assert segment.write is not None
        segment.write.event = None if is_done is None else Event(is_done)
        note.describe("w", None)
        waited = second.core.waited
        see(report, clocks, second, [X], is_put=False).describe("r", None)
        assert second.core.waited - waited == (is_done is not None), "the stream comes to its turn"
    missing = report.missing
    assert [(found.status, found.seen) for found in missing] == [
        ("missing", True),
        ("missing", False),
        ("missing", False),
    ]
    assert missing[0].first.stream == "the per-thread default stream"
    assert str(missing[0]).startswith("missing, and seen to race: read after write of 128 bytes at 0x1000\n")
    assert str(missing[1]).startswith("missing: read after write of")
    assert "missing: 3>" in repr(report)
    segment.write.event = object()
    assert not hazards._is_early(second, segment.write)  # type: ignore[arg-type]


def test_implied_ones_and_those_before_the_trace(report: Report) -> None:
    clocks, first, second = Clocks(), Track(3), Track(4)
    clocks.use(first, clocks.touch(writes=[X]))
    see(report, clocks, second, [X])
    see(report, clocks, second, [X], is_put=False)
    put_in, implied = report.dependencies
    assert put_in.first == Party("work", "", "stream 0x3", "before the trace")
    assert (put_in.status, implied.status, implied.seen) == ("put in", "implied", False)


def test_work_of_other_libraries_is_unseen(report: Report) -> None:
    clocks, stream = Clocks(), Track(3)
    see(report, clocks, stream, foreign=(1, 0x30)).describe("k", None)
    see(report, clocks, stream, foreign=(7,), is_put=False).describe("k", None)
    assert [(found.status, found.kind, found.first, found.memory) for found in report.dependencies] == [
        (status, "after what is unseen", Party("all work of other libraries", "", where, "unseen"), None)
        for status, where in (
            ("put in", "the legacy default stream"),
            ("put in", "stream 0x30"),
            ("missing", "stream 0x7"),
        )
    ]


RECORD = np.dtype([("address", "u8"), ("size", "i4")])


@pytest.mark.parametrize(
    ("hidden", "given"),
    [
        (True, parameter("p", "tensor_map", "CUtensorMap", None)),
        (True, parameter("p", "pointer", "float **")),
        (False, parameter("p", "pointer", "float *")),
        (True, parameter("p", "struct", "Box", RECORD)),
        (True, parameter("p", "struct", "Box", [("a", "i8", 2)])),
        (False, parameter("p", "struct", "Pair", [("a", "i4"), ("b", "f8")])),
        (False, parameter("p", "struct", "Opaque", None)),
        (False, parameter("p", "struct", "Plain", "u8")),
        (False, parameter("p", "scalar", "unsigned long", "u8")),
    ],
)
def test_parameters_that_hide_memory_are_told(report: Report, hidden: bool, given: BoundParameter) -> None:
    note = see(report, Clocks(), Track(3))
    note.record_call(call("k", (parameter("n", "scalar", "int", "i4"), 3), (given, 5)))
    others = Party("whatever uses it", "", "any stream", "unseen")
    expected = Dependency(
        "unseen", f"what p ({given.cpp}) leads to is not known", others, Party("k", "", "stream 0x3", "program.py:1")
    )
    assert report.dependencies == (expected,) * hidden


def test_times_are_counted_and_said(report: Report) -> None:
    clocks, first, second = Clocks(), Track(3), Track(4)
    for _ in range(3):
        for stream in (first, second):
            see(report, clocks, stream, writes=[X]).site = "program.py:7"
    found = report.dependencies
    assert [report.times(each) for each in found] == [3, 2]
    assert report.times(Dependency("implied", "none", found[0].first, found[0].second)) == 0
    lines = str(report).splitlines()
    assert lines[0] == "2 dependencies between streams: 2 put in, 0 implied, 0 missing, 0 unseen"
    assert lines[4] == "    3 times"
    assert lines[-1] == "    2 times"


def test_kinds_are_said_in_the_order_of_their_weight(report: Report) -> None:
    clocks, first, second = Clocks(), Track(3), Track(4)
    see(report, clocks, first, writes=[X])
    see(report, clocks, second, [X])
    see(report, clocks, second, [X])
    see(report, clocks, first, writes=[X], is_put=False)
    note = see(report, clocks, first)
    note.record_call(call("k", (parameter("p", "pointer", "float **"), 5)))
    told = [line.partition(":")[0] for line in str(report).splitlines()[1:] if not line.startswith(" ")]
    assert told == ["missing", "unseen", "put in", "implied"]
    html = report._repr_html_()
    assert "4 dependencies between streams: 1 put in, 1 implied, 1 missing, 1 unseen" in html
    assert html.count("<line") == 4
    assert html.index("put in: read after write") < html.index("missing: write after read")


def test_what_is_remembered_is_folded_at_times(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hazards, "_MOST_PENDING", 2)
    clocks, first, second = Clocks(), Track(3), Track(4)
    for number in range(4):
        see(report, clocks, (first, second)[number % 2], writes=[X])
        assert len(report._pending) == (0, 1, 2, 0)[number]
    assert len(report._counts) == 3
    assert len(report.dependencies) == 3


# ── what the witness is told ─────────────────────────────────────────────────────────────────────────────────────────


class Orders:
    """The order, which writes down what is put past it."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    def see_unordered(self, stream: Any, reads: Any, writes: Any) -> Any:
        self.log.append((stream, reads, writes))
        return f"use {len(self.log)}"

    def after(self, use: Any, things: Any) -> None:
        self.log.append((use, things))


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Orders:
    found = Orders()
    monkeypatch.setattr(hazards, "order", lambda: found)
    monkeypatch.setattr(hazards, "place_of", lambda stream: SimpleNamespace(unit="ms"))
    return found


def test_work_past_the_order_is_seen_when_it_is_on_its_stream(report: Report, orders: Orders) -> None:
    work = Work("copy", "copy", "stream", (X, "no array"), (Y, (5, 5)))
    begun = report.begin(work)
    assert orders.log == []
    report.end(work, begun)
    assert orders.log == [("stream", (X,), (Y,)), ("use 1", ())]
    assert report._thread.works == []


def test_work_in_order_is_seen_once(report: Report, orders: Orders) -> None:
    work = Work("copy", "copied", "stream", (X,), ())
    begun = report.begin(work)
    note = see(report, Clocks(), Track(3))
    assert note.name == "copied"
    see(report, Clocks(), Track(3), ordered=False)
    report.end(work, begun)
    assert orders.log == []
    begun = report.begin(work)
    see(report, Clocks(), Track(3), ordered=False)
    report.end(work, begun)
    assert len(orders.log) == 2


def test_a_plans_launch_is_seen_before_it_is_put_there(report: Report, orders: Orders) -> None:
    launch = call("k<float>", (parameter("x"), X))
    work = Work("kernel", "k<float>", "stream", (X,), (), 0, launch)
    begun = report.begin(work)
    assert orders.log == [("stream", (X,), ())]
    note = see(report, Clocks(), Track(3), ordered=False)
    assert (note.name, note.parameters) == ("k<float>", [("x", X)])
    report.end(work, begun)
    assert orders.log[1:] == [("use 1", ())]


def test_a_call_that_is_ordered_already_and_work_of_the_host_are_left_out(report: Report, orders: Orders) -> None:
    launch = call("k<float>", (parameter("x"), X))
    see(report, Clocks(), Track(3)).record_call(launch)
    work = Work("kernel", "k<float>", "stream", (X,), (), 0, launch)
    for left_out in (work, Work("host", "read", None)):
        begun = report.begin(left_out)
        assert begun is None
        report.end(left_out, begun)
    assert orders.log == []
    report.end(work, report.begin(work))
    assert len(orders.log) == 2, "the next time it is a plan's"


def test_each_thread_has_its_own_work(report: Report, orders: Orders) -> None:
    begun = report.begin(Work("copy", "mine", "stream"))
    names: list[str] = []
    thread = threading.Thread(target=lambda: names.append(see(report, Clocks(), Track(3)).name))
    thread.start()
    thread.join()
    assert names == ["work"]
    assert see(report, Clocks(), Track(3)).name == "mine"
    report.end(Work("copy", "mine", "stream"), begun)


def test_on_the_emulator_both_sides_have_their_names(stream: Any) -> None:
    x, y = np.zeros(4, "f4"), np.zeros(4, "f4")
    second = type(stream)()
    with ck.hazards.trace() as report:
        with ck.hazards.foreign(stream, writes=[x, x[:0]], name="produce"):
            pass
        with ck.hazards.foreign(second, reads=[x], writes=[y], name="consume"):
            pass
    found = [each for each in report.dependencies if each.first.work == "produce"]
    (put_in,) = found
    address = int(x.ctypes.data)
    assert (put_in.status, put_in.kind, put_in.memory) == ("put in", "read after write", (address, address + 16))
    assert put_in.second.work == "consume"
    assert put_in.first.stream == f"emulated stream {stream.handle}"
    assert put_in.second.stream == f"emulated stream {second.handle}"
    assert put_in.first.site.partition(":")[0] == __file__


def test_foreign_work_is_put_in_order_with_what_it_reads_and_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    around: list[Any] = []
    told: list[Work] = []

    @contextlib.contextmanager
    def block(*given: Any) -> Iterator[None]:
        around.append(given)
        yield

    class Heard(witnesses.Witness):
        def begin(self, work: Work) -> None:
            told.append(work)

    place = SimpleNamespace(unit="ms", check=lambda given: f"checked {given}")
    monkeypatch.setattr(hazards, "place_of", lambda stream: place)
    monkeypatch.setattr(hazards, "order", lambda: SimpleNamespace(around=block))
    reads, writes = [X], [np.zeros(4, "f4"), np.zeros(3, "f8"), Y]
    with witnesses.witnessing(Heard()), ck.hazards.foreign("stream", reads=reads, writes=writes, name="fft"):
        pass
    assert around == [("checked stream", reads, writes)]
    ((kind, name, stream, read, written, size, *_),) = told
    assert (kind, name, stream, read, size) == ("copy", "fft", "checked stream", (X,), 40)
    assert written[0] is writes[0]
    with pytest.raises(ck.ArgumentError, match=r"hazards\.foreign: name"), ck.hazards.foreign("stream", name=3):  # type: ignore[arg-type]
        pass


def test_streams_are_ordered_by_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(hazards, "place_of", lambda stream: SimpleNamespace(order=lambda *given: asked.append(given)))
    ck.hazards.ordered("first", after="second")
    ck.hazards.ordered("first", after="second", wait=False)
    assert asked == [("first", "second", True), ("first", "second", False)]
