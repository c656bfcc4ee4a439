"""Witnesses hear of each launch, while they watch and only then."""

from __future__ import annotations

from typing import Any

import pytest

import cudakit as ck
from cudakit.streams import witnesses as work

SCALE = """
template <typename T> __global__ void scale(const T* x, T* y, T by, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] * by;
}"""


class Heard(work.Witness):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.begun: list[work.Work] = []
        self.ended: list[tuple[work.Work, Any]] = []

    def begin(self, work: work.Work) -> int:
        self.begun.append(work)
        return len(self.begun)

    def end(self, work: work.Work, begun: Any) -> None:
        self.ended.append((work, begun))


def arrays(xp: Any) -> tuple[Any, Any]:
    return xp.arange(100, dtype=xp.float32), xp.zeros(100, dtype=xp.float32)


def test_a_call_is_told_with_what_it_reads_and_writes(stream: Any, xp: Any) -> None:
    kernel, (x, y), heard = ck.Kernel(SCALE), arrays(xp), Heard()
    for _ in range(3):  # the later ones would go straight to the driver
        kernel(stream, ck.config(1, 128), x, y, 2.0, x.size)
    with work.witnessing(heard):
        for _ in range(3):
            kernel(stream, ck.config(1, 128), x, y, 3.0, x.size)
    kernel(stream, ck.config(1, 128), x, y, 4.0, x.size)
    stream.sync()
    assert [told.name for told in heard.begun] == ["scale<float>"] * 3
    assert [begun for _, begun in heard.ended] == [1, 2, 3]
    told = heard.begun[0]
    assert told.kind == "kernel"
    assert told.stream is stream
    assert [id(array) for array in told.reads] == [id(x), id(y)]
    assert [id(array) for array in told.writes] == [id(y)]
    assert told.detail.arguments[2] == 3.0
    assert float(y[1]) == 4.0


def test_plans_tell_of_their_launches_whenever_they_were_made(stream: Any, xp: Any) -> None:
    kernel, (x, y), heard = ck.Kernel(SCALE), arrays(xp), Heard()
    before = kernel.plan(stream, ck.config(1, 128), x, y, 2.0, x.size)
    before()
    with work.witnessing(heard):
        before()
        during = kernel.plan(stream, ck.config(1, 128), x, y, 5.0, x.size)
        during()
    during()
    before()
    stream.sync()
    assert [told.detail.arguments[2] for told in heard.begun] == [2.0, 5.0]
    assert float(y[1]) == 2.0


def test_two_witnesses_hear_and_go_one_by_one(stream: Any, xp: Any) -> None:
    kernel, (x, y), first, second = ck.Kernel(SCALE), arrays(xp), Heard(), Heard()
    kernel(stream, ck.config(1, 128), x, y, 2.0, x.size)  # a compile is work too
    with work.witnessing(first):
        with work.witnessing(second):
            kernel(stream, ck.config(1, 128), x, y, 2.0, x.size)
        kernel(stream, ck.config(1, 128), x, y, 2.0, x.size)
    assert (len(first.begun), len(second.begun)) == (2, 1)
    assert not work.watched()


def test_work_that_fails_has_no_end(stream: Any) -> None:
    heard = Heard()
    with (
        work.witnessing(heard),
        pytest.raises(ValueError, match="lost"),
        work.doing("host", "read", None),
    ):
        raise ValueError("lost")
    assert (len(heard.begun), len(heard.ended)) == (1, 0)
