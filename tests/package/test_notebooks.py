"""What objects are in a notebook: HTML that is whole, small, escaped, and runs nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.checks.findings import Finding, Report
from cudakit.profile.timeline import Span, timelines
from cudakit.types.shown import Drawing, Table, html, table_html, words

TEXT = (
    "template <typename T> __global__ void thrice(T* x, T by, int n = 4) { if (threadIdx.x < n) x[threadIdx.x] *= by; }"
)
ONE = ck.config(1, 32)
EVIL = "<script>alert('&\"')</script>"


def html_of(shown: Any) -> tuple[ElementTree.Element, str]:
    """It as a tree, which fails where it is no whole XML, and all that it says."""
    text = shown if isinstance(shown, str) else shown._repr_html_()
    assert len(text) < 300_000
    tree = ElementTree.fromstring(text)
    names = {each.tag.rpartition("}")[2] for each in tree.iter()}
    assert names <= {
        "div",
        "b",
        "span",
        "table",
        "tr",
        "th",
        "td",
        "svg",
        "g",
        "rect",
        "line",
        "circle",
        "text",
        "title",
    }
    attributes = {name for each in tree.iter() for name in each.attrib}
    assert not any(name.startswith("on") or "href" in name for name in attributes)
    return tree, " ".join(tree.itertext())


@pytest.fixture
def thrice() -> ck.Kernel:
    return ck.Kernel(TEXT)


def test_kernels(stream: Any, xp: Any, thrice: ck.Kernel) -> None:
    assert "launched" not in html_of(thrice["T" : np.int16])[1].partition("T*")[0]
    thrice(stream, ONE, xp.ones(4, "f4"), 2.0)
    thrice(stream, ONE, xp.ones(4, "f8"), 2.0)
    _, said = html_of(thrice)
    for each in ("thrice from <kernel text>", "x T*", "by T", "n int", "thrice<float>", "thrice<double>", "sm_"):
        assert each in said
    assert "several" in html_of(ck.Kernel("__global__ void several(int* x) {} __global__ void several(float* x) {}"))[1]


def test_plans_and_graphs(stream: Any, xp: Any, thrice: ck.Kernel) -> None:
    x = xp.ones((4, 2), "f4")
    _, said = html_of(thrice.plan(stream, ONE, x, 2.5, 8))
    for each in ("thrice<float>", "float32 array (4, 2)", "2.5", "8"):
        assert each in said
    assert "of an empty grid" in html_of(thrice.plan(stream, ck.cover(0), x, 2.5, 8))[1]
    with ck.capture(stream, x=x) as graph:
        assert "open" in html_of(graph)[1]
        for _ in range(60):
            thrice(stream, ONE, graph["x"], 2.0, 8)
    _, said = html_of(graph)
    assert "60 nodes" in said
    assert "0 thrice<float> x" in said
    assert "and 10 more" in said


def test_traces(stream: Any, xp: Any, thrice: ck.Kernel) -> None:
    x = xp.ones(4, "f4")
    thrice(stream, ONE, x, 2.0)  # which compiles it
    trace = ck.trace({EVIL: stream})
    assert "new" in html_of(trace)[1]
    with trace:
        thrice(stream, ONE, x, 2.0)
        assert "running" in html_of(trace)[1]
    tree, said = html_of(trace)
    assert "thrice<float> (kernel)" in said
    assert "<script>" in said
    assert "critical: thrice<float>" in said
    assert len([each for each in tree.iter() if each.tag.endswith("rect")]) == 1
    with ck.trace() as empty:
        pass
    assert html_of(empty)[1] == "cudakit.trace"


@pytest.mark.slow
def test_a_hundred_thousand_works_stay_small() -> None:
    spans = [Span("kernel", EVIL, f"s{k % 3}", k * 0.01, k * 0.01 + 0.02, 8, "GPU 0") for k in range(100_000)]
    spans += [Span("host", "read", f"thread {k}", k, k + 500.0) for k in range(100)]
    tree, said = html_of(html("many", Drawing(lambda: timelines(spans))).replace("\n", ""))
    assert "more streams" in said
    assert "works, the first" in said
    assert len(list(tree.iter())) < 3000


def test_what_must_wait(xp: Any, stream: Any, thrice: ck.Kernel) -> None:
    other = ck.emulator.stream() if not ck.has_gpu() else ck.stream()
    x = xp.ones(4, "f4")
    thrice(stream, ONE, x, 2.0)
    with ck.hazards.trace() as report:
        assert "0 dependencies" in html_of(report)[1]
        thrice(stream, ONE, x, 2.0)
        thrice(other, ONE, x, 2.0)
        for _ in range(3):
            thrice(stream, ONE, x, 2.0)
            thrice(other, ONE, x, 2.0)
    tree, said = html_of(report)
    assert "put in" in said
    assert "write after write" in said
    assert any(each.tag.endswith("line") for each in tree.iter())


def test_runs_of_pipelines(stream: Any) -> None:
    def same(x: Any, _: Any) -> Any:
        return x

    with ck.Pipeline([ck.pipeline.host(abs), same], stream=stream)([np.ones(3)] * 2) as run:
        assert "open" in html_of(run)[1]
        list(run)
    _, said = html_of(run)
    for each in ("closed", "items 2", "bytes 48", "over", "0 abs", "1 same"):
        assert each in said


def test_memory() -> None:
    assert "free in pool" in html_of(ck.memory.report())[1]


@pytest.mark.emulator
def test_counters_and_checks(thrice: ck.Kernel) -> None:
    stream = ck.emulator.stream()
    with ck.emulator.counters(stream) as counted:
        thrice(stream, ONE, np.ones(4, "f4"), 2.0)
    said = html_of(counted)[1]
    assert "<Report of 1 kernel, " in said
    assert "thrice<float> 1 " in said
    report = Report()
    assert html_of(report)[1] == str(report) == "nothing was found"
    report.add(Finding("race", EVIL, "k.cu", 3, "", "two threads write"))
    assert str(report) == f"found: 1\n{EVIL}: k.cu:3: two threads write"
    assert html_of(report)[1] == str(report).replace("\n", " ")


def test_words_and_tables() -> None:
    assert [words(each) for each in (np.float32(2.5), 3, None, EVIL, np.ones(0), object)] == [
        "np.float32(2.5)", "3", "NoneType", "str", "float64 array (0,)", "type"
    ]  # fmt: skip
    long = html_of(html(EVIL, Table(("a",), [[EVIL * 100]] * 1000)))[1]
    assert "…" in long
    assert "and 950 more" in long
    assert table_html(Table(("a",), [])) == ""
