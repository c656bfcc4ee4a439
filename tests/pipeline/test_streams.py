"""The streams of a pipeline: what orders the steps of an item, with graphs and without."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pipelines import adding, items
from support.places import SLOW

import cudakit as ck


def test_several_streams_keep_the_order(stream: Any, xp: Any) -> None:
    pipeline = ck.Pipeline([adding(xp, 1), adding(xp, 2)], stream=stream, streams=3, depth=6)
    assert [float(result[0]) for result in pipeline(items(25))] == [number + 3 for number in range(25)]


@pytest.mark.emulator
def test_an_item_on_the_emulator_asks_little_of_the_order(stream: Any) -> None:
    """Two copies, three events, two waits and the host's: 500 Python calls in these rooms at a time, now some 190."""
    calls: Counter[str] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_filename] += 1

    results = iter(ck.Pipeline([lambda x, stream: x * np.float32(2)], stream=stream)(items(60)))
    for _ in range(20):
        next(results)
    sys.setprofile(note)
    try:
        for _ in range(20):
            next(results)
    finally:
        sys.setprofile(None)
    assert sum(1 for _ in results) == 20
    rooms = [number for file, number in calls.items() if Path(file).parent.name in ("streams", "order")]
    assert 20 < sum(rooms) / 20 < 230


@pytest.mark.emulator
@pytest.mark.parametrize("streams", [1, 2])
def test_its_own_events_are_all_the_order_it_needs(stream: Any, xp: Any, streams: int) -> None:
    """With no waits put in by cudakit, a race is an error of the emulator."""
    add = adding(xp, 1)
    accumulate = ck.Kernel("__global__ void add(float* to, const float* x) { to[threadIdx.x] += x[threadIdx.x]; }")
    total = np.zeros(8, np.float32)

    def running(x: Any, stream: Any) -> Any:
        accumulate(stream, ck.config(1, 8), total, x)
        return add(x, stream), total, total[2:4]

    given = [*items(9), *items(4, 5), *items(9)]
    with ck.hazards.manual():
        results = list(ck.Pipeline([add, add], stream=stream, depth=3, streams=streams)(given))
        assert [float(result[0]) for result in results] == [float(item[0]) + 2 for item in given]
        if streams == 1:
            sums = ck.Pipeline([running], stream=stream, depth=3)(items(12))
            assert [(float(a[0]), float(b[0]), float(c[0])) for a, b, c in sums] == [
                (n + 1, s, s) for n, s in enumerate(np.cumsum(np.arange(12)))
            ]


@pytest.mark.emulator
def test_a_result_that_a_stage_keeps_as_a_view_alone_is_copied_before_the_next_item(stream: Any, xp: Any) -> None:
    """Nobody else refers to the array that the view is of."""
    accumulate = ck.Kernel("__global__ void add(float* to, const float* x) { to[threadIdx.x] += x[threadIdx.x]; }")
    total = np.zeros(16, np.float32)[:8]

    def running(x: Any, stream: Any) -> Any:
        accumulate(stream, ck.config(1, 8), total, x)
        return total

    with ck.hazards.manual():
        sums = list(ck.Pipeline([running], stream=stream, depth=3)(items(12)))
    assert [float(result[0]) for result in sums] == list(np.cumsum(np.arange(12)))


@pytest.mark.emulator
def test_a_race_would_be_seen(stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: without one of the waits there is a race."""
    monkeypatch.setattr(type(stream), "wait", lambda *_: None)
    with ck.hazards.manual(), pytest.raises(ck.PipelineError) as caught:
        list(ck.Pipeline([adding(xp, 1)], stream=stream, depth=3)(items(9)))
    assert isinstance(caught.value.__cause__, ck.EmulationError)
    assert "neither comes first" in str(caught.value.__cause__)


@pytest.mark.gpu
def test_the_first_copies_of_large_items_wait_for_no_kernel(stream: Any) -> None:
    kernel = ck.Kernel(SLOW)
    given = [ck.empty(2 << 20, np.float32, kind="pinned", stream=stream) for _ in range(5)]
    for number, array in enumerate(given):
        array[:] = number
    started: list[Any] = []
    ahead: list[bool] = []
    cycles: list[int] = []

    def slow(x: Any, stream: Any) -> Any:
        if len(started) == 2:
            pipeline._lanes[0, 0].arriving.sync()
            ahead.append(not started[0].is_done)
        kernel(stream, ck.config(1, 32), x, 0 if started else cycles[-1])
        started.append(stream.record())
        return x

    pipeline = ck.Pipeline([slow], stream=stream, depth=3)
    for taken in (0, 200_000_000):  # the first run makes the memory; then some 100 ms
        started.clear()
        cycles.append(taken)
        for number, result in enumerate(pipeline(given)):
            assert set(result[:40].tolist()) == {number, number + 1}
    assert ahead[1]


# ── graphs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_graphs_give_the_same(stream: Any, xp: Any) -> None:
    stages = [adding(xp, 1), adding(xp, 10), lambda x, stream: ck.ops.cumsum(x, stream=stream)]
    plain = list(ck.Pipeline(stages, stream=stream, depth=3)(items(20)))
    replayed = list(ck.Pipeline(stages, stream=stream, depth=3, graph=True)(items(20)))
    np.testing.assert_array_equal(replayed, plain)


def test_graphs_replay_several_arrays_and_state(stream: Any, xp: Any) -> None:
    with ck.using(stream):
        total = xp.zeros(4, np.float32)
    add = ck.Kernel("__global__ void add(float* to, const float* x) { to[threadIdx.x] += x[threadIdx.x]; }")
    one = adding(xp, 1)

    def both(item: Any, stream: Any) -> Any:
        add(stream, ck.config(1, 4), total, item["b"])
        return one(item["a"], stream), total

    given = [{"a": a, "b": b} for a, b in zip(items(12), items(12, 4), strict=True)]
    results = list(ck.Pipeline([both], stream=stream, depth=3, graph=True)(given))
    assert [float(a[0]) for a, _ in results] == [number + 1 for number in range(12)]
    assert [float(b[0]) for _, b in results] == np.cumsum(np.arange(12)).tolist()


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (np.zeros(9, np.float32), r"float32 \(8,\); this one has float32 \(9,\)"),
        (np.zeros(8), r"float32 \(8,\); this one has float64 \(8,\)"),
        ((np.zeros(8, np.float32), 3), "1 that are no arrays"),
    ],
)
def test_graphs_need_equal_items(stream: Any, xp: Any, odd: Any, said: str) -> None:
    run = ck.Pipeline([lambda x, _: x], stream=stream, graph=True)([*items(3), odd, *items(3)])
    delivered = []
    with pytest.raises(ck.PipelineError, match=said) as caught:
        delivered.extend(run)
    assert len(delivered) == 3
    assert (caught.value.stage, caught.value.item) == ("graph", 3)
    assert isinstance(caught.value.__cause__, ck.ArgumentError)
