"""How objects show themselves at a prompt: in a line, without waiting, and without the bytes that they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.compile.compiled import Compiled

TEXT = "template <typename T> __global__ void twice(T* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }"


@pytest.fixture(scope="module")
def twice() -> ck.Kernel:
    return ck.Kernel(TEXT)


def test_plans_and_graphs(stream: Any, xp: Any, twice: ck.Kernel) -> None:
    x = xp.ones(4, "f4")
    assert repr(twice.plan(stream, ck.config(1, 32), x, 4)) == "<cudakit.Plan twice<float>; arguments: 2>"
    assert repr(twice.plan(stream, ck.cover(0), x, 0)) == "<cudakit.Plan of an empty grid>"
    with ck.capture(stream, x=x) as graph:
        assert repr(graph) == "<cudakit.Graph open; named: x>"
        twice(stream, ck.config(1, 32), graph["x"], 4)
    assert repr(graph) == "<cudakit.Graph 1 nodes; named: x>"


def test_compiled_code() -> None:
    assert repr(Compiled(bytes(12_345), {"f": "f"})) == "<Compiled f: cubin, 12,345 bytes>"
    several = Compiled(b"12", {"f": "f", "g": "g", "h": "h"}, "note", "ptx")
    assert repr(several) == "<Compiled f and 2 more: ptx, 2 bytes, with a log>"
    assert repr(Compiled(b"12", {})) == "<Compiled no kernel: cubin, 2 bytes>"


def test_timers_and_traces(stream: Any, xp: Any, twice: ck.Kernel) -> None:
    x = xp.ones(4, "f4")
    twice(stream, ck.config(1, 32), x, 4)  # a compile has a span of its own
    timer, trace = ck.Timer(stream), ck.trace(max_spans=1)
    assert (repr(timer), repr(trace)) == ("<cudakit.Timer not started>", "<cudakit.trace new>")
    with pytest.warns(RuntimeWarning, match="dropped"), trace, timer:
        assert (repr(timer), repr(trace)) == ("<cudakit.Timer running>", "<cudakit.trace running>")
        twice(stream, ck.config(1, 32), x, 4)
        twice(stream, ck.config(1, 32), x, 4)
    assert (repr(timer), repr(trace)) == ("<cudakit.Timer stopped; laps: 1>", "<cudakit.trace done; dropped: 1>")
    assert len(trace.spans) == 1
    assert repr(trace) == "<cudakit.trace of 1 spans; dropped: 1>"


def test_runs_of_pipelines(stream: Any) -> None:
    def same(x: Any, _: Any) -> Any:
        return x

    with ck.Pipeline([ck.pipeline.host(abs), same], stream=stream)([np.ones(3)]) as run:
        assert repr(run) == "<cudakit.pipeline.Run open: abs → same>"
    assert repr(run) == "<cudakit.pipeline.Run closed: abs → same>"


def test_reports() -> None:
    with ck.hazards.trace() as report:
        pass
    assert repr(report) == "<cudakit.hazards.Report of 0 dependencies; missing: 0>"
    assert repr(ck.memory.Report((ck.memory.report().held[-1]._replace(kind="kind", device=3, used=4_000),))) == (
        "<cudakit.memory.Report of bytes used: kind 3 4,000>"
    )
