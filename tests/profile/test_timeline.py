"""Timelines from given spans: how busy, which gaps, what bounds, and the files they are written to."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cudakit.errors import CudakitError
from cudakit.profile.timeline import (
    EMULATOR,
    Lane,
    Span,
    Stage,
    Timeline,
    by_clock,
    publish,
    save_json,
    save_picture,
    trace_events,
)
from cudakit.streams.witnesses import Kind

#: Copies in on one stream, kernels on the next, each after its copy; the kernels take twice as long.
PIPELINE = (
    Span("copy", "to_device", "in", 0.0, 1.0, 2_000_000, "GPU 0"),
    Span("copy", "to_device", "in", 1.0, 2.0, 2_000_000, "GPU 0"),
    Span("kernel", "blur<float>", "compute", 1.0, 3.0, 0, "GPU 0", (0,)),
    Span("kernel", "blur<float>", "compute", 3.5, 5.5, 0, "GPU 0", (1,)),
    Span("host", "read", "MainThread", 0.25, 0.5),
)


def kernel(stream: str, start_ms: float, end_ms: float, name: str = "k", place: str = "GPU 0") -> Span:
    return Span("kernel", name, stream, start_ms, end_ms, 0, place)


def test_lanes_tell_how_busy_they_were_and_when_not() -> None:
    copies, compute, host = Timeline(PIPELINE).lanes
    assert (copies.name, copies.busy_ms, copies.gaps) == ("in", 2.0, ((2.0, 5.5),))
    assert (compute.name, compute.busy_ms, compute.gaps) == ("compute", 4.0, ((0.0, 1.0), (3.0, 3.5)))
    assert compute.idle_ms == 1.5
    assert (host.place, host.busy_ms, host.idle_ms) == ("host", 0.25, 5.25)


def test_spans_inside_others_are_busy_once() -> None:
    (lane,) = Timeline((kernel("s", 0, 4), kernel("s", 1, 2), kernel("s", 3, 5), kernel("s", 7, 8))).lanes
    assert lane.busy_ms == 6
    assert lane.gaps == ((5, 7),)
    (lane,) = Timeline((kernel("s", 8, 10), kernel("s", 0, 2), kernel("s", 4, 7), kernel("s", 5, 6))).lanes
    assert lane.busy_ms == 7
    assert lane.gaps == ((2, 4), (7, 8))


def test_stages_are_summed_over_streams() -> None:
    blur, copies, read = Timeline(PIPELINE).stages
    assert (blur.name, blur.count, blur.total_ms, blur.busy_ms) == ("blur<float>", 2, 4.0, 4.0)
    assert (copies.size, copies.lanes) == (4_000_000, ("in",))
    assert read.kind == "host"
    both = Timeline((kernel("a", 0, 3), kernel("b", 2, 4)))
    assert [(s.total_ms, s.busy_ms, s.lanes) for s in both.stages] == [(5, 4, ("a", "b"))]
    assert both.overlap == 5 / 4


def test_the_longest_stage_bounds_though_it_is_spread_over_streams() -> None:
    spans = [
        Span(kind, name, f"item {item % 2}", start_ms + 2 * item, start_ms + 2 * item + length, 0, "GPU 0")
        for item in range(6)
        for kind, name, start_ms, length in (
            ("copy", "in", 0.0, 0.5),
            ("kernel", "k", 0.5, 2.0),
            ("copy", "out", 2.5, 0.5),
        )
    ]
    critical = Timeline(tuple(spans)).critical  # type: ignore[arg-type]
    assert isinstance(critical, Stage)
    assert (critical.name, critical.busy_ms) == ("k", 12.0)


def test_a_stream_that_does_all_by_turns_bounds() -> None:
    turns = [kernel("only", at, at + 1, f"k{at % 3}") for at in range(6)]
    timeline = Timeline((*turns, kernel("b", 0, 2, "k0")))
    critical = timeline.critical
    assert isinstance(critical, Lane)
    assert critical.name == "only"
    assert "one after the other: k0 33%, k1 33%, k2 33%" in timeline.verdict()


def test_the_summary_says_it_in_words() -> None:
    expected = """
5.500 ms, 5 spans; 1.25 streams busy at a time

stream      busy   idle      largest gaps
in          36.4%  3.500 ms  3.500 ms at 2.000 ms
compute     72.7%  1.500 ms  1.000 ms at 0.0 µs, 500.0 µs at 3.000 ms
MainThread  4.5%   5.250 ms  5.000 ms at 500.0 µs, 250.0 µs at 0.0 µs

stage        kind    count  total     mean      busy   GB/s
blur<float>  kernel  2      4.000 ms  2.000 ms  72.7%
to_device    copy    2      2.000 ms  1.000 ms  36.4%  2.0
read         host    1      250.0 µs  250.0 µs  4.5%

critical: blur<float>, busy for 4.000 ms of 5.500 ms (73%), on compute
"""
    assert Timeline(PIPELINE).summary() == expected.strip()
    assert str(Timeline(PIPELINE)) == expected.strip()


def test_the_summary_names_the_largest_gaps() -> None:
    # Gaps of 5, 2, 3, 1 ms and one of a thousandth of the whole; then one of less.
    edges = [(0, 10), (15, 20), (22, 30), (33, 40), (41, 900), (901, 1000)]
    lines = Timeline(tuple(kernel("s", start, end) for start, end in edges)).summary().splitlines()
    assert lines[3].split("  ")[-1] == "5.000 ms at 10.000 ms, 3.000 ms at 30.000 ms, 2.000 ms at 20.000 ms"
    for gap, shown in ((0.999, "none"), (1.0, "1.000 ms at 500.000 ms")):
        lines = Timeline((kernel("s", 0, 500), kernel("s", 500 + gap, 1000))).summary().splitlines()
        assert lines[3].split("  ")[-1] == shown


@pytest.mark.parametrize(("count", "last"), [(25, "k24"), (26, "and 1 more")])
def test_the_summary_shows_the_longest_stages(count: int, last: str) -> None:
    spans = [kernel("s", 0, 100 - number, f"k{number}") for number in range(count)]
    lines = Timeline(tuple(spans)).summary().splitlines()
    stages = lines[lines.index(next(line for line in lines if line.startswith("stage"))) + 1 : -2]
    assert len(stages) == count
    assert stages[0].startswith("k0 ")
    assert stages[-1].startswith(last)


def test_times_have_units() -> None:
    timeline, steps = Timeline(PIPELINE), Timeline((kernel("s", 0, 1, place=EMULATOR),))
    assert [timeline.show(ms) for ms in (0.0, 0.9994, 1.0, 1234.5)] == ["0.0 µs", "999.4 µs", "1.000 ms", "1234.500 ms"]
    assert [steps.show(ms) for ms in (0.0, 0.0016, 2.0)] == ["0 steps", "2 steps", "2000 steps"]


def test_a_stream_bounds_where_it_is_clearly_busier_than_the_longest_stage() -> None:
    for more, bounds in ((1.0, Stage), (1.001, Lane)):
        critical = Timeline((kernel("s", 0, 10, "long"), kernel("s", 10, 10 + more, "short"))).critical
        assert type(critical) is bounds


def test_what_bounds_is_said_with_its_share_and_streams() -> None:
    both = Timeline((kernel("a", 0, 3), kernel("b", 2, 4)))
    assert both.verdict() == "critical: k, busy for 4.000 ms of 4.000 ms (100%), on 2 streams"
    assert Timeline((kernel("a", 1, 1),)).verdict() == "critical: k, busy for 0.0 µs of 0.0 µs, on a"
    turns = [kernel("only", at, at + length, f"k{at}") for at, length in ((0, 4), (4, 3), (7, 2), (9, 1))]
    share = "busy for 10.000 ms of 10.000 ms (100%)"
    parts = "k0 40%, k4 30%, k7 20%"
    assert Timeline(tuple(turns)).verdict() == f"critical: only, {share}, one after the other: {parts}"


def test_a_span_is_of_the_host_and_moves_nothing_unless_it_is_said() -> None:
    span = Span("host", "read", "t", 1.0, 3.5)
    assert (span.size, span.place, span.after, span.elapsed_ms) == (0, "host", (), 2.5)


def test_of_the_emulator_everything_is_in_steps() -> None:
    steps, timed = by_clock([*PIPELINE, Span("copy", "copy", "s", 0.0, 0.02, 64, EMULATOR)])
    assert steps.is_emulated
    assert not timed.is_emulated
    assert steps.summary().splitlines() == [
        "20 steps, 1 spans; 1.00 streams busy at a time",
        "",
        "stream  busy    idle     largest gaps",
        "s       100.0%  0 steps  none",
        "",
        "stage  kind  count  total     mean      busy    GB/s",
        "copy   copy  1      20 steps  20 steps  100.0%",
        "",
        "critical: copy, busy for 20 steps of 20 steps (100%), on s",
    ]
    assert len(timed.spans) == len(PIPELINE)


def test_nothing_is_a_timeline_too() -> None:
    nothing = Timeline(())
    assert (nothing.lanes, nothing.stages, nothing.critical, nothing.overlap) == ((), (), None, 0)
    assert nothing.summary() == "a timeline of nothing"
    assert nothing.verdict() == "critical: nothing ran"
    moment = Timeline((kernel("s", 1, 1),))
    assert moment.overlap == 0
    assert moment.summary().splitlines()[3] == "s       0.0%  0.0 µs  none"


def check_trace_events(events: Sequence[dict[str, Any]]) -> None:
    """What Perfetto's reader of the trace-event format asks for: https://perfetto.dev/docs/getting-started/other-formats."""
    named = {(e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M"}
    running: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ph"] in "XMsf"
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert {"name", "cat", "ts"} <= set(event)
            assert ("process_name", event["pid"], 0) in named
            assert ("thread_name", event["pid"], event["tid"]) in named
            running.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    flows = [e for e in events if e["ph"] in "sf"]
    for sent, received in zip(flows[::2], flows[1::2], strict=True):
        assert (sent["ph"], received["ph"], received["bp"], sent["id"]) == ("s", "f", "e", received["id"])
        assert sent["ts"] <= received["ts"]
        for end in (sent, received):
            slices = running[end["pid"], end["tid"]]
            assert any(start <= end["ts"] <= stop for start, stop in slices)


def test_json_is_of_the_trace_event_format(tmp_path: Path) -> None:
    spans = [*PIPELINE, Span("kernel", "e", "s", 0.0, 0.02, 64, EMULATOR, (0,))]
    save_json(spans, tmp_path / "trace.json")
    loaded = json.loads((tmp_path / "trace.json").read_text())
    events = loaded["traceEvents"]
    check_trace_events(events)
    complete = [event for event in events if event["ph"] == "X"]
    assert [(e["name"], e["ts"], e["dur"]) for e in complete[:3]] == [
        ("to_device", 0, 1000), ("to_device", 1000, 1000), ("blur<float>", 1000, 2000),
    ]  # fmt: skip
    assert complete[0]["args"] == {"bytes": 2_000_000, "GB/s": 2.0}
    assert complete[-1]["args"] == {"bytes": 64}
    # One for each kernel, from the copy that it waited for; none between steps and time.
    assert [e["ph"] for e in events if e["ph"] in "sf"] == ["s", "f"] * 2
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "GPU 0", "host", "emulator, a step drawn as 1 µs",
    }  # fmt: skip
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} == {"in", "compute", "MainThread", "s"}
    assert any("blur<float>" in text for text in loaded["otherData"]["critical"])
    check_trace_events(trace_events([]))


def test_the_events_of_a_trace_say_all_that_is_known() -> None:
    spans = [
        Span("host", "read", "T", 0.0, 0.5),
        Span("copy", "up", "in", 0.5, 0.75, 123_457, "GPU 0"),
        Span("fill", "none", "in", 0.75, 0.75, 8, "GPU 0"),
        Span("kernel", "k", "main", 0.6, 2.6, 0, "GPU 0", (1,)),
    ]
    events = trace_events(spans)

    def about(kind: str, pid: int, tid: int, **args: object) -> dict[str, Any]:
        return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}

    def complete(name: str, kind: str, pid: int, tid: int, at: float, **args: object) -> dict[str, Any]:
        start, length = at, 1e3 * next(span.elapsed_ms for span in spans if span.name == name)
        head = {"ph": "X", "name": name, "cat": kind, "pid": pid, "tid": tid}
        return {**head, "ts": start, "dur": length, "args": args}

    assert events == [
        about("process_name", 1, 0, name="host"),
        about("process_sort_index", 1, 0, sort_index=1001),
        about("thread_name", 1, 1, name="T"),
        about("thread_sort_index", 1, 1, sort_index=1),
        about("process_name", 2, 0, name="GPU 0"),
        about("process_sort_index", 2, 0, sort_index=2),
        about("thread_name", 2, 2, name="in"),
        about("thread_sort_index", 2, 2, sort_index=2),
        about("thread_name", 2, 3, name="main"),
        about("thread_sort_index", 2, 3, sort_index=3),
        complete("read", "host", 1, 1, 0),
        complete("up", "copy", 2, 2, 500, **{"bytes": 123_457, "GB/s": 0.49}),
        complete("none", "fill", 2, 2, 750, bytes=8),
        complete("k", "kernel", 2, 3, 600),
        # A line from inside the copy, where it ends, to the kernel, which cannot begin before that.
        {"name": "writes", "cat": "order", "id": 0, "pid": 2, "tid": 2, "ph": "s", "ts": 1e3 * (0.5 + 0.999 * 0.25)},
        {"name": "writes", "cat": "order", "id": 0, "pid": 2, "tid": 3, "ph": "f", "bp": "e", "ts": 750},
    ]
    assert [each["id"] for each in trace_events([*spans, *[spans[3]._replace(stream="b")]]) if each["ph"] == "s"] == [
        0,
        2,
    ]


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the examples extra is not installed")
    for name, spans in {"both": [*PIPELINE, Span("graph", "g", "s", 0.0, 0.02, 0, EMULATOR)], "none": []}.items():
        save_picture(spans, tmp_path / f"{name}.png")
        with image.open(tmp_path / f"{name}.png") as picture:
            assert picture.format == "PNG"
            colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
            assert ((0x3B, 0x75, 0xAF) in colours) == (name == "both")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both.png", "none.png"]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Sequence[Span]], Any]:
    """Call `save_picture`, and give its figure, which is not rendered."""
    figure = pytest.importorskip("matplotlib.figure", reason="the examples extra is not installed").Figure
    kept = []
    monkeypatch.setattr(figure, "savefig", lambda figure, file, **how: kept.append((figure, how)))

    def draw(spans: Sequence[Span]) -> Any:
        save_picture(spans, tmp_path / "trace.png")
        figure, how = kept.pop()
        assert how == {"format": "png", "dpi": 110}
        return figure

    return draw


def bars(collection: Any) -> list[tuple[float, float, float, float]]:
    """Left, right, lower and upper edge of each bar."""
    return [(*path.vertices[:, 0][[0, 2]], *path.vertices[:, 1][[0, 2]]) for path in collection.get_paths()]


def test_the_picture_has_a_row_a_stream_with_gaps_names_and_what_bounds(drawn: Any) -> None:
    figure = drawn(PIPELINE)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["in  36%", "compute  73%", "MainThread  5%"]
    assert axes.yaxis_inverted()
    assert axes.margins() == (0, pytest.approx(0.05))
    assert (axes.get_xlabel(), axes.get_title("left")) == ("ms", Timeline(PIPELINE).verdict())
    assert not axes.spines["top"].get_visible()
    assert not axes.spines["right"].get_visible()
    gaps, copies, *_ = axes.collections
    assert bars(gaps) == [(2, 5.5, -0.4, 0.4)]
    assert bars(copies) == [(0, 1, -0.4, 0.4), (1, 2, -0.4, 0.4)]
    assert [bars(each) for each in axes.collections[2:4]] == [
        [(0, 1, 0.6, 1.4), (3, 3.5, 0.6, 1.4)],
        [(1, 3, 0.6, 1.4), (3.5, 5.5, 0.6, 1.4)],
    ]
    assert [(t.get_text(), *t.get_position(), t.get_color()) for t in axes.texts] == [
        ("3.500 ms", 3.75, 0, "0.35"),
        ("to_device", 0.5, 0, "white"),
        ("to_device", 1.5, 0, "white"),
        ("1.000 ms", 0.5, 1, "0.35"),
        ("500.0 µs", 3.25, 1, "0.35"),
        ("blur<float>", 2, 1, "white"),
        ("blur<float>", 4.5, 1, "white"),
        ("5.000 ms", 3, 2, "0.35"),
    ]
    assert [each.get_text() for each in axes.get_legend().get_texts()] == ["copy", "kernel", "host", "idle"]
    assert copies.get_facecolors()[0].tolist() == pytest.approx([0xEF / 255, 0x86 / 255, 0x36 / 255, 1])
    assert tuple(figure.get_size_inches()) == pytest.approx((14, 0.55 * 3 + 1.4))


def test_the_picture_is_in_steps_for_the_emulator(drawn: Any) -> None:
    spans = [kernel("s", 1, 2, place=EMULATOR), kernel("s", 3, 4, place=EMULATOR), kernel("t", 0, 9)]
    figure = drawn(spans)
    steps, timed = figure.axes
    assert figure.axes[0].get_gridspec().get_height_ratios() == [2.5, 2.5]
    assert (steps.get_xlabel(), timed.get_xlabel()) == ("steps", "ms")
    assert bars(steps.collections[0]) == [(2000, 3000, -0.4, 0.4)]
    assert bars(steps.collections[1]) == [(1000, 2000, -0.4, 0.4), (3000, 4000, -0.4, 0.4)]
    assert [text.get_text() for text in steps.texts] == ["1000 steps", "k", "k"]


def test_the_picture_leaves_out_what_has_no_room(drawn: Any) -> None:
    # Of 1000 ms: gaps of 2 and 1 ms, and spans of 60 and 59 ms.
    spans = [
        *[kernel("s", 0, 100, "a" * 23), kernel("s", 102, 200, "b" * 21), kernel("s", 201, 700, "inside")],
        *[kernel("s", 700, 760, "n" * 14), kernel("s", 760, 819, "narrow"), kernel("s", 819, 1000, "c")],
    ]
    (axes,) = drawn(spans).axes
    assert bars(axes.collections[0]) == [(100, 102, -0.4, 0.4)]
    names = [text.get_text() for text in axes.texts]
    assert names == ["a" * 21 + "…", "b" * 21, "inside", "n" * 12 + "…", "c"]
    # What is inside another span is drawn after it.
    (axes,) = drawn([kernel("s", 0, 1, "inner"), kernel("s", 0, 4, "outer")]).axes
    assert bars(axes.collections[1]) == [(0, 4, -0.4, 0.4), (0, 1, -0.4, 0.4)]


@pytest.mark.parametrize(("count", "width"), [(149, 0.4), (150, 0)])
def test_many_bars_have_no_lines_between_them(count: int, width: float, drawn: Any) -> None:
    (axes,) = drawn([kernel("s", number, number + 1) for number in range(count)]).axes
    assert axes.collections[1].get_linewidths() == [width]


def test_without_matplotlib_the_picture_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(CudakitError, match=r"pip install 'cudakit\[examples\]'"):
        save_picture(PIPELINE, tmp_path / "trace.png")
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")

    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        publish(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    save_json(PIPELINE, str(path))
    assert json.loads(path.read_text())
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match=r"there is no such folder: '.*no folder'$"):
        save_json(PIPELINE, tmp_path / "no folder" / "trace.json")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kernel", "copy", "fill", "host", "graph"])
def test_every_kind_has_a_colour(kind: Kind, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the examples extra is not installed")
    save_picture([Span(kind, "name", "s", 0.0, 1.0)], tmp_path / "trace.png")
