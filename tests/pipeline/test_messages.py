"""What a pipeline says, and to whom: progress, witnesses, errors."""

from __future__ import annotations

import asyncio
import io
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
        line(Counters(number, 0, 0, 0, 0, float(number), 0.0, over))
    text = output.getvalue()
    assert "\r█████··············· 1/4  1.0/s" in text
    assert text.endswith("/s\n")
    assert text.count("\n") == 1


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
