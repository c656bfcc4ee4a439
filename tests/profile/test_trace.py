"""Traces: every work on every stream, when it ran, in what order, and what a trace must not do."""

from __future__ import annotations

import json
import sys
import threading
import time
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.places import SLOW, another, one_of, to_host

import cudakit as ck
from cudakit import pipeline
from cudakit.emulator import EmulatedStream
from cudakit.profile import trace
from cudakit.streams import witnesses as work

ADD = """
template <typename T>
__global__ void add(T* x, const T* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] += y[i];
}
"""
ONE = ck.config(1, 32)


@pytest.fixture(scope="module")
def add() -> ck.Kernel:
    return ck.Kernel(ADD)


@pytest.fixture(scope="module")
def slow() -> ck.Kernel:
    return ck.Kernel(SLOW)


@pytest.fixture(autouse=True)
def _compiled(stream: Any, xp: Any, add: ck.Kernel) -> None:
    """The instances that the tests launch: a compile in a trace is a span too."""
    for dtype in ("f4", "f8"):
        add(stream, ONE, xp.zeros(1, dtype), xp.zeros(1, dtype), 1)


@pytest.fixture
def cycles(request: pytest.FixtureRequest) -> int:
    """Some 5 ms on a GPU."""
    return 10_000_000 if request.config.getoption("--gpu") else 100


def in_order(spans: Any) -> bool:
    return all(one.start_ms <= one.end_ms <= next_.start_ms for one, next_ in pairwise(spans))


def test_each_launch_is_a_span_one_after_the_other(stream: Any, xp: Any, add: ck.Kernel) -> None:
    x, y = xp.zeros(100, "f4"), xp.ones(100, "f4")
    add(stream, ONE, x, y, 100)
    with ck.trace() as t:
        for _ in range(3):
            add(stream, ONE, x, y, 100)
        add.plan(stream, ONE, x, y, 100)()
        add["double"](stream, ONE, x.astype("f8"), y.astype("f8"), 100)
    add(stream, ONE, x, y, 100)
    assert (to_host(x) == 6).all()
    assert [(span.kind, span.name, span.stream) for span in t.spans] == [
        *[("kernel", "add<float>", "stream 1")] * 4,
        ("kernel", "add<double>", "stream 1"),
    ]
    assert in_order(t.spans)
    assert all(span.elapsed_ms > 0 for span in t.spans)
    (lane,) = t.timeline().lanes
    assert lane.place == ("emulator" if isinstance(stream, EmulatedStream) else f"GPU {stream.device.device_id}")
    # The same launch takes the same steps; and not always 10 ms, whatever else the GPU does.
    if isinstance(stream, EmulatedStream):
        assert len({round(span.elapsed_ms, 9) for span in t.spans[:4]}) == 1
        assert t.spans[0].start_ms == 0
    else:
        assert min(span.elapsed_ms for span in t.spans) < 10


def test_streams_have_lanes_and_the_names_that_they_are_given(
    stream: Any, xp: Any, slow: ck.Kernel, cycles: int
) -> None:
    second, third = another(stream), another(stream)
    x, y, z = (xp.zeros(32, "f4") for _ in range(3))
    # Plans, for a plain launch waits for CuPy's work on its current stream, the fixture's, as the arrays are CuPy's.
    given = ((stream, x, 2 * cycles), (stream, x, 2 * cycles), (second, y, cycles), (third, z, cycles))
    plans = [slow.plan(each, ONE, array, number) for each, array, number in given]
    for plan in plans:
        plan()
    for each in (stream, second, third):
        each.sync()

    def traced() -> tuple[Any, dict[str, Any]]:
        with ck.trace({"left": second}) as t:
            for plan in plans:
                plan()
            with work.doing("host", "look", None):
                time.sleep(0.001)
        lanes = {lane.name: lane for lane in t.timeline().lanes}
        # They were put there at once, and wait for nothing: they begin together.
        first = lanes["stream 1"].spans[0]
        for name in ("left", "stream 2"):
            assert first.start_ms <= lanes[name].spans[0].start_ms < first.end_ms
        return t, lanes

    t, lanes = one_of(5, traced)
    assert {"stream 1", "left", "stream 2"} <= set(lanes)
    assert in_order(lanes["stream 1"].spans)
    assert lanes["left"].idle_ms > 0
    (host,) = (span for span in t.spans if span.place == "host")
    assert (host.name, host.stream) == ("look", threading.current_thread().name)
    assert host.elapsed_ms >= 1
    critical = t.critical
    assert critical is not None
    assert critical.name in ("slow", "stream 1")


def test_what_waits_for_another_stream_comes_after_it(stream: Any, xp: Any, slow: ck.Kernel, cycles: int) -> None:
    second = another(stream)
    x, y = xp.zeros(32, "f4"), xp.zeros(32, "f4")
    slow(stream, ONE, x, 0)
    unordered = slow.plan(second, ONE, y, cycles)
    unordered()
    stream.sync(), second.sync()

    def traced() -> None:
        with ck.trace() as t:
            slow(stream, ONE, x, 3 * cycles)
            unordered()
            slow(second, ONE, x, cycles)
        first, apart, waiting = t.spans
        assert apart.start_ms < first.end_ms <= waiting.start_ms
        assert (first.after, apart.after, waiting.after) == ((), (), (0,))
        # It waited, idle, from the end of what came before it.
        assert (apart.end_ms, waiting.start_ms) in t.timeline().lanes[1].gaps
        assert waiting.start_ms - apart.end_ms > first.elapsed_ms / 3

    one_of(5, traced)


def test_copies_and_fills_have_sizes_and_the_files_are_written(
    stream: Any, xp: Any, add: ck.Kernel, tmp_path: Path
) -> None:
    x, y = xp.zeros(1000, "f4"), xp.ones(1000, "f4")
    with ck.trace() as t:
        with work.doing("copy", "mine", stream, (y,), (x,), y.nbytes):
            x[:] = y
        add(stream, ONE, x, y, 1000)
    assert (to_host(x) == 2).all()
    copy, kernel = t.spans
    assert (copy.kind, copy.name, copy.size, copy.stream) == ("copy", "mine", 4000, kernel.stream)
    assert copy.end_ms <= kernel.start_ms
    assert kernel.after == ()
    t.save(tmp_path / "trace.json")
    t.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["mine", "add<float>"]
    pytest.importorskip("matplotlib", reason="the examples extra is not installed")
    t.plot(tmp_path / "trace.png")
    assert (tmp_path / "trace.png").read_bytes().startswith(b"\x89PNG")
    assert t.summary() == str(t)
    assert "critical: " in str(t)


def test_a_trace_is_read_after_its_block_and_is_of_one(stream: Any, xp: Any, add: ck.Kernel) -> None:
    x = xp.zeros(10, "f4")
    t = ck.trace()
    assert str(t) == "a trace, new"
    with t:
        add(stream, ONE, x, x, 10)
        assert str(t) == "a trace, running"
        with pytest.raises(ck.CudakitError, match="after its block"):
            _ = t.spans
    assert len(t.spans) == 1
    assert t.spans is t.spans
    with pytest.raises(ck.CudakitError, match="one block"), t:
        pass
    assert ck.trace().__enter__().__exit__(None, None, None) is None
    assert not work.watched()


def test_a_compile_is_a_span_with_the_instances_name(stream: Any, xp: Any) -> None:
    new = ck.Kernel(ADD + f"// {time.time_ns()}")
    x = xp.zeros(10, "f4")
    with ck.trace() as t:
        for _ in range(2):
            new(stream, ONE, x, x, 10)
    spans = [span for span in t.spans if span.place == "host"]
    assert [(span.kind, span.name, span.stream) for span in spans] == [
        ("compile", "compile add<float>", threading.current_thread().name)
    ]
    assert spans[0].elapsed_ms > 1
    assert len(t.spans) == 3


def test_a_trace_of_nothing(tmp_path: Path) -> None:
    with ck.trace() as t:
        pass
    assert (t.spans, t.critical, str(t)) == ((), None, "a timeline of nothing")
    t.save(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == []


def test_an_error_in_the_block_ends_the_trace_and_keeps_what_was_seen(stream: Any, xp: Any, add: ck.Kernel) -> None:
    x = xp.zeros(10, "f4")
    t = ck.trace()

    def program() -> None:
        with t:
            add(stream, ONE, x, x, 10)
            with work.doing("host", "fails", None):
                add(stream, ONE, x, "no array", 10)

    with pytest.raises(ck.ArgumentError):
        program()
    assert [span.name for span in t.spans] == ["add<float>"]
    assert not work.watched()


def test_beyond_the_most_spans_the_first_are_kept_and_it_is_said(stream: Any, xp: Any, add: ck.Kernel) -> None:
    x = xp.zeros(10, "f4")
    with pytest.warns(RuntimeWarning, match=r"first 3 works and dropped 2.*max_spans"), ck.trace(max_spans=3) as t:
        for number in range(5):
            add(stream, ONE, x, x, number)
    assert len(t.spans) == 3
    assert t.dropped == 2


def test_misuse_is_named() -> None:
    for wrong in (0, -1, 2.5, "many", True):
        with pytest.raises(ck.ArgumentError, match=f"max_spans is a number from 1 up, got {wrong!r}"):
            ck.trace(max_spans=wrong)  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="streams maps names to streams, got list"):
        ck.trace([])  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match=r"streams\['compute'\] is int, not a stream"):
        ck.trace({"compute": 7})


def test_traces_of_several_threads_and_inside_each_other(stream: Any, xp: Any, add: ck.Kernel) -> None:
    add(stream, ONE, xp.zeros(10, "f4"), xp.zeros(10, "f4"), 10)
    stream.sync()
    errors: list[BaseException] = []

    def work_alone(number: int) -> None:
        try:
            own = another(stream)
            with ck.using(own) as module:
                x = module.zeros(10, "f4")
                for _ in range(20):
                    with work.doing("host", f"stage {number}", None):
                        pass
                    add(own, ONE, x, x, 10)
                own.sync()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work_alone, args=(number,), name=f"worker {number}") for number in range(4)]
    with ck.trace() as outer:
        with ck.trace() as inner:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        with work.doing("host", "last", None):
            pass
    assert errors == []
    assert len(inner.spans) == 160
    assert len(outer.spans) == 161
    for t in (inner, outer):
        kernels = [span for span in t.spans if span.kind == "kernel"]
        assert len({span.stream for span in kernels}) == 4
        for name in {span.stream for span in kernels}:
            assert in_order([span for span in kernels if span.stream == name])
        by_thread = {span.stream: span.name for span in t.spans if span.place == "host"}
        assert all(by_thread[f"worker {number}"] == f"stage {number}" for number in range(4))


def test_work_that_is_captured_has_no_span_and_the_graph_has(stream: Any, xp: Any, add: ck.Kernel) -> None:
    x, y = xp.zeros(10, "f4"), xp.ones(10, "f4")
    add(stream, ONE, x, y, 10)
    with ck.trace() as t:
        with ck.capture(stream) as graph:
            add(stream, ONE, x, y, 10)
            add(stream, ONE, x, y, 10)
        for _ in range(2):
            graph.launch(stream)
    stream.sync()
    assert (to_host(x) == 5).all()
    graphs = [span for span in t.spans if span.kind == "graph"]
    assert len(graphs) == 2
    assert in_order(graphs)
    assert all(span.elapsed_ms > 0 for span in graphs)
    # The emulator tells of the kernels that a graph runs; a driver does not.
    kernels = [span for span in t.spans if span.kind == "kernel"]
    assert len(kernels) == (4 if isinstance(stream, EmulatedStream) else 0)
    for span in kernels:
        assert any(graph.start_ms <= span.start_ms < span.end_ms <= graph.end_ms for graph in graphs)


class FakeRanges(types.ModuleType):
    """What the nvtx package has, and what was asked of it."""

    def __init__(self) -> None:
        super().__init__("nvtx")
        self.calls: list[Any] = []

    def start_range(self, message: str, color: Any, domain: str, category: str) -> int:
        self.calls.append((message, domain, category))
        return len(self.calls)

    def end_range(self, number: int) -> None:
        self.calls.append(number)


def test_each_work_is_a_range_for_nsight(stream: Any, xp: Any, add: ck.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    x = xp.zeros(10, "f4")
    fake = FakeRanges()
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    for wanted, expected in ((None, 4), (True, 8), (False, 8)):
        with ck.trace(nvtx=wanted):
            add(stream, ONE, x, x, 10)
            with work.doing("host", "stage", None):
                pass
        assert len(fake.calls) == expected
    assert fake.calls[:4] == [("add<float>", "cudakit", "kernel"), 1, ("stage", "cudakit", "host"), 3]


def test_without_nvtx_asking_for_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(ck.CudakitError, match="pip install nvtx"):
        ck.trace(nvtx=True)
    with ck.trace() as t, work.doing("host", "stage", None):
        pass
    assert [span.name for span in t.spans] == ["stage"]


def test_the_nvtx_package_takes_it(stream: Any, xp: Any, add: ck.Kernel) -> None:
    pytest.importorskip("nvtx", reason="nvtx is not installed")
    x = xp.zeros(10, "f4")
    with ck.trace(nvtx=True) as t:
        add(stream, ONE, x, x, 10)
    assert len(t.spans) == 1


@pytest.mark.gpu
def test_nothing_is_waited_for_until_the_trace_is_read(stream: Any, xp: Any, slow: ck.Kernel) -> None:
    x = xp.zeros(32, "f4")
    slow(stream, ONE, x, 0)
    stream.sync()
    with ck.trace() as t:
        slow(stream, ONE, x, 400_000_000)
    assert not stream.record().is_done
    (span,) = t.spans
    assert stream.record().is_done
    assert span.elapsed_ms > 20


@pytest.mark.gpu
def test_events_are_used_again(stream: Any, xp: Any, add: ck.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_MOST_PENDING", 16)
    x = xp.zeros(32, "f4")
    new = []
    original = trace.timing_event

    def counted(stream: Any, event: Any = None) -> Any:
        new.append(event is None)
        return original(stream, event)

    monkeypatch.setattr(trace, "timing_event", counted)
    with ck.trace() as t:
        for number in range(400):
            add(stream, ONE, x, x, 10)
            if not number % 8:
                stream.sync()
    assert len(t.spans) == 400
    assert in_order(t.spans)
    assert sum(new) < 100 < len(new)


@pytest.mark.gpu
def test_times_hold_over_long_traces(stream: Any, xp: Any, slow: ck.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    second = another(stream)
    x, y = xp.zeros(32, "f4"), xp.zeros(32, "f4")
    slow(stream, ONE, x, 0)
    slow(second, ONE, y, 0)

    def traced() -> None:
        stream.sync(), second.sync()
        with ck.trace() as t:
            for _ in range(20):
                slow(stream, ONE, x, 1_000_000)
                slow(second, ONE, y, 1_500_000)
                with work.doing("host", "sync", None):
                    stream.sync()
        for name in ("stream 1", "stream 2"):
            assert in_order([span for span in t.spans if span.stream == name])
        # The host waits for each kernel on the first stream, before the next: none begins or ends outside of that.
        kernels = [span for span in t.spans if span.stream == "stream 1"]
        waits = [span for span in t.spans if span.place == "host"]
        assert len(kernels) == len(waits) == 20
        for kernel, wait in zip(kernels, waits, strict=True):
            assert kernel.end_ms <= wait.end_ms + 0.02
        for wait, kernel in zip(waits, kernels[1:], strict=False):
            assert wait.end_ms <= kernel.start_ms + 0.02
        assert all(span.elapsed_ms > 1_000_000 / 3e6 for span in t.spans if span.place != "host")

    # With a base that moves on at every span, and with one that never does.
    for far in (0.0, 1e9):
        monkeypatch.setattr(trace, "_FAR_MS", far)
        # The device's clock is tied to the host's as well as the host is let to look at it.
        one_of(5, traced)


@pytest.mark.gpu
def test_other_libraries_streams_are_lanes_and_their_own_work_is_not_seen(stream: Any, xp: Any, add: ck.Kernel) -> None:
    x, y = xp.zeros(32, "f4"), xp.ones(32, "f4")
    theirs = xp.cuda.Stream(non_blocking=True)
    with ck.trace() as t:
        add(theirs, ONE, x, y, 32)
        add(xp.cuda.Stream.null, ONE, x, y, 32)
        add(stream, ONE, x, y, 32)
        x += 1
    assert [span.stream for span in t.spans] == ["stream 1", "default stream", "stream 2"]
    assert [span.after for span in t.spans] == [(), (0,), (1,)]
    assert (to_host(x) == 4).all()


@pytest.mark.emulator
def test_the_emulators_spans_are_its_steps(stream: Any, slow: ck.Kernel) -> None:
    x = np.zeros(32, "f4")
    slow(stream, ONE, x, 10)
    before = stream.clock
    with ck.trace() as t:
        slow(stream, ONE, x, 1000)
    (span,) = t.spans
    assert round(1000 * span.elapsed_ms) == stream.clock - before >= 1000
    assert " steps" in str(t)
    assert t.timeline().is_emulated


def test_a_pipelines_copies_kernels_and_host_stages_are_seen(stream: Any, add: ck.Kernel) -> None:
    def read(number: int) -> np.ndarray:
        return np.full(500, number, "f4")

    def twice(x: Any, own: Any) -> Any:
        add(own, ONE, x, x, x.size)
        return x

    with ck.trace({"stages": stream}) as t:
        results = list(ck.Pipeline([pipeline.host(read), twice], stream=stream)(range(5)))
    assert [float(result[0]) for result in results] == [0, 2, 4, 6, 8]
    by_kind = {kind: [span for span in t.spans if span.kind == kind] for kind in ("host", "copy", "kernel")}
    assert sorted(span.name for span in by_kind["host"]) == ["consumer"] * 5 + ["read"] * 5 + ["source"] * 6
    lanes = {name: {span.stream for span in by_kind["host"] if span.name == name} for name in ("consumer", "source")}
    assert lanes == {"consumer": {"consumer"}, "source": {"source"}}
    assert {span.place for span in by_kind["host"]} == {"host"}
    assert [(span.name, span.stream) for span in by_kind["kernel"]] == [("add<float>", "stages")] * 5
    assert sum(span.size for span in by_kind["copy"]) == 2 * 5 * 2000
    # Each kernel runs on what a copy on another stream brought.
    for span in by_kind["kernel"]:
        sources = [t.spans[index] for index in span.after]
        assert any(source.kind == "copy" and source.end_ms <= span.start_ms + 0.01 for source in sources)
