"""Timelines from given spans: how busy, which gaps, what bounds, and the files they are written to."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cudakit.errors import CudakitError
from cudakit.profile.export import publish, save_json, save_picture, trace_events
from cudakit.profile.timeline import EMULATOR, Lane, Span, Stage, Timeline, by_clock
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
    text = Timeline(PIPELINE).summary()
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines() if line}
    assert rows["compute"][1:] == [
        "72.7%",
        "1.500",
        "ms",
        "1.000",
        "ms",
        "at",
        "0.0",
        "µs,",
        "500.0",
        "µs",
        "at",
        "3.000",
        "ms",
    ]
    assert rows["to_device"][1:] == ["copy", "2", "2.000", "ms", "1.000", "ms", "36.4%", "2.0"]
    assert text.splitlines()[-1] == "critical: blur<float>, busy for 4.000 ms of 5.500 ms (73%), on compute"
    assert str(Timeline(PIPELINE)) == text


def test_of_the_emulator_everything_is_in_steps() -> None:
    steps, timed = by_clock([*PIPELINE, Span("copy", "copy", "s", 0.0, 0.02, 64, EMULATOR)])
    assert steps.is_emulated
    assert not timed.is_emulated
    assert "20 steps" in steps.summary()
    assert " ms" not in steps.summary()
    assert len(timed.spans) == len(PIPELINE)


def test_nothing_is_a_timeline_too() -> None:
    nothing = Timeline(())
    assert (nothing.lanes, nothing.stages, nothing.critical, nothing.overlap) == ((), (), None, 0)
    assert nothing.summary() == "a timeline of nothing"
    assert nothing.verdict() == "critical: nothing ran"
    assert Timeline((kernel("s", 1, 1),)).summary()


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


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the examples extra is not installed")
    for name, spans in {"both": [*PIPELINE, Span("graph", "g", "s", 0.0, 0.02, 0, EMULATOR)], "none": []}.items():
        save_picture(spans, tmp_path / f"{name}.png")
        with image.open(tmp_path / f"{name}.png") as picture:
            assert picture.format == "PNG"
            colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
            assert ((0x3B, 0x75, 0xAF) in colours) == (name == "both")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both.png", "none.png"]


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
    with pytest.raises(FileNotFoundError):
        save_json(PIPELINE, tmp_path / "no folder" / "trace.json")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kernel", "copy", "fill", "host", "graph"])
def test_every_kind_has_a_colour(kind: Kind, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the examples extra is not installed")
    save_picture([Span(kind, "name", "s", 0.0, 1.0)], tmp_path / "trace.png")
