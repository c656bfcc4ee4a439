"""What a pipeline says, and to whom: progress, witnesses, errors."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.pipelines import ADD, Listener, adding, items

import cudakit as ck
from cudakit import pipeline as lines
from cudakit.pipeline.run import Counters, Line
from cudakit.streams import witnesses as work


def test_progress_shows_how_far_it_is() -> None:
    output = io.StringIO()
    line = Line(4, output)
    for number, over in ((1, False), (2, False), (3, True)):
        line(Counters(number, 0, 0, 0, 0, 0, float(number), 0.0, over))
    text = output.getvalue()
    assert "left out" not in text
    assert "\r█████··············· 1/4  1.0/s" in text
    assert text.endswith("/s\n")
    assert text.count("\n") == 1


def test_progress_counts_what_is_left_out() -> None:
    output = io.StringIO()
    line = Line(4, output)
    line(
        Counters(items=1, bytes=0, dropped=1, failed=2, left_out=1, under_way=0, elapsed_s=1.0, waited_s=0.0, over=True)
    )
    assert output.getvalue() == "\r███████████████····· 3/4  1.0/s, 1 left out\n"


@pytest.mark.parametrize("ends", [True, False])
def test_what_is_skipped_is_said_at_the_end(stream: Any, ends: bool, capfd: pytest.CaptureFixture[str]) -> None:
    def picky(x: np.ndarray) -> np.ndarray:
        if x[0] in (1, 3):
            raise ValueError(f"no {x[0]:.0f}")
        return x

    stages = [lines.host(picky)]
    with pytest.warns(ck.PipelineWarning) as caught:
        run = ck.Pipeline(stages, stream=stream, on_error="skip", progress=True)(items(6))
        if ends:
            assert len(list(run)) == 4
            assert run.counters.left_out == run.counters.failed == 2
        else:
            assert [next(run)[0] for _ in range(2)] == [0, 2]
            run.close()
    (warning,) = caught
    count = "2 of 6 items" if ends else "1 of "
    assert f"on_error='skip' left out {count}" in str(warning.message)
    assert "the first error: stage 'picky' (1 of 1) failed on item 1: ValueError: no 1" in str(warning.message)
    assert warning.filename == __file__
    assert capfd.readouterr().err.endswith(", 2 left out\n" if ends else ", 1 left out\n")


def test_what_is_replaced_is_not_left_out(stream: Any) -> None:
    def fails(x: np.ndarray) -> np.ndarray:
        raise ValueError

    run = ck.Pipeline([lines.host(fails)], stream=stream, on_error=lambda error: 7)(items(3))
    assert list(run) == [7, 7, 7]
    assert (run.counters.failed, run.counters.left_out) == (3, 0)


def test_source_sink_and_consumer_have_lanes(stream: Any) -> None:
    class Sink:
        def __enter__(self) -> None: ...
        def __exit__(self, *raised: object) -> None: ...
        def write(self, item: Any) -> None:
            time.sleep(0.01)

    pipeline = ck.Pipeline([lines.host(lambda x: x)], stream=stream)
    with ck.trace() as trace:
        pipeline.run(items(3), Sink())
    assert trace.timeline().critical == next(stage for stage in trace.timeline().stages if stage.name == "sink")
    counts = {
        lane.name: len(lane.spans) for lane in trace.timeline().lanes if lane.name in ("source", "sink", "consumer")
    }
    assert counts == {"source": 4, "sink": 3}
    assert "critical: sink, busy for" in str(trace)
    with ck.trace() as trace:
        for _ in pipeline(items(3)):
            time.sleep(0.01)
    counts = {
        lane.name: len(lane.spans) for lane in trace.timeline().lanes if lane.name in ("source", "sink", "consumer")
    }
    assert counts == {"source": 4, "consumer": 3}
    assert trace.timeline().critical.name == "consumer"
    with ck.trace() as trace:
        pipeline.map_array(np.ones((6, 2)), chunk=2)
    assert {lane.name for lane in trace.timeline().lanes} >= {"source", "sink"}


def test_a_pipeline_with_progress_writes_to_standard_error(stream: Any, capfd: pytest.CaptureFixture[str]) -> None:
    list(ck.Pipeline([lambda x, _: x], stream=stream, progress=True)(items(12)))
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "12/12" in shown.err


def test_witnesses_hear_of_host_stages_and_copies(stream: Any, xp: Any) -> None:
    listener = Listener()
    add = adding(xp, 1)
    with work.witnessing(listener):
        list(ck.Pipeline([lines.host(lambda x: x, name="decode"), add], stream=stream)(items(3)))
    kinds = [(told.kind, told.name) for told in listener.heard]
    assert kinds.count(("host", "decode")) == 3
    assert kinds.count(("host", "source")) == 4  # the last time it has none
    assert kinds.count(("host", "sink")) == 0
    assert kinds.count(("copy", "copy_in")) == 3
    assert kinds.count(("copy", "copy_out")) == 3
    assert sum(kind == "kernel" for kind, _ in kinds) == 3


class Kept(list[Any]):
    """A sink."""

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, item: Any) -> None:
        self.append(item)


def test_witnesses_hear_of_the_source_and_the_sink() -> None:
    def late() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    listener = Listener()
    with work.witnessing(listener):
        ck.Pipeline([lines.host(abs)]).run(range(3), Kept())
        asyncio.run(ck.Pipeline([lines.host(abs)]).arun(range(3), Kept()))
    names = [told.name for told in listener.heard if told.kind == "host"]
    assert (names.count("source"), names.count("sink")) == (8, 6)
    with work.witnessing(listener), pytest.raises(ck.PipelineError, match="gone"):
        list(ck.Pipeline([lines.host(abs)])(late()))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ck.Pipeline([]), "there is no stage"),
        (lambda: ck.Pipeline(len), r"takes a list of stages"),
        (lambda: ck.Pipeline([3]), "a stage is a function or pipeline.host.*got int"),
        (lambda: ck.Pipeline([ck.Kernel(ADD)]), "kernel add alone is no stage"),
        (lambda: ck.Pipeline([lines.to_array(np.zeros(3))]), "got ArraySink; a sink is given to pipeline.run"),
        (lambda: ck.Pipeline([len], depth=0), "depth is a number from 1 up, or None; got 0"),
        (lambda: ck.Pipeline([len], streams=True), "streams is a number from 1 up"),
        (lambda: ck.Pipeline([len], stream=3), "expected a stream"),
        (lambda: ck.Pipeline([lines.host(len)], graph=True), "all stages are the host's"),
        (lambda: lines.host(len, threads=0), "threads is a number from 1 up, got 0"),
        (lambda: ck.Pipeline([lines.host(len)])("path/to.npy"), "is a path; give pipeline.from_array"),
        (lambda: ck.Pipeline([lines.host(len)])(3), "an iterable of items, got int"),
    ],
)
def test_misuse_is_said_at_once(make: Any, said: str) -> None:
    with pytest.raises(ck.ArgumentError, match=said):
        make()


@pytest.mark.parametrize(
    ("item", "said"),
    [(3, "got int: put a pipeline.host"), (np.array([{}]), "holds Python objects"), ((), "got tuple")],
)
def test_items_without_arrays_are_named(stream: Any, item: Any, said: str) -> None:
    with pytest.raises(ck.PipelineError, match=f"copy to the device failed on item 0.*{said}"):
        list(ck.Pipeline([lambda x, _: x], stream=stream)([item]))


def test_a_result_of_another_library_is_refused(stream: Any) -> None:
    class Tensor:
        __cuda_array_interface__ = None

    with pytest.raises(ck.PipelineError, match=r"returned a Tensor on the device; return CuPy arrays"):
        list(ck.Pipeline([lambda x, _: Tensor()], stream=stream)(items(1)))


def test_stages_have_names() -> None:
    def decode(x: Any) -> Any:
        return x

    pipeline = ck.Pipeline([lines.host(decode), lines.device(lambda x, _: x, name="blur"), lambda x, _: x])
    assert repr(pipeline) == "<cudakit.Pipeline host decode, blur, stage>"
