"""`ck.Pipeline`: what goes in comes out, in order, worked on by each stage, with no more under way than was said."""

from __future__ import annotations

import asyncio
import queue
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.pipelines import adding, items
from support.places import to_host

import cudakit as ck
from cudakit import pipeline as lines
from cudakit.pipeline.nodes import Gate


class Counted:
    """A source that says how many items were read."""

    def __init__(self, count: int) -> None:
        self.count, self.read = count, 0

    def __iter__(self) -> Iterator[np.ndarray]:
        for item in items(self.count):
            self.read += 1
            yield item


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 33])
@pytest.mark.parametrize("depth", [None, 1, 3])
def test_kernels_over_a_stream_of_items(stream: Any, xp: Any, count: int, depth: int | None) -> None:
    pipeline = ck.Pipeline([adding(xp, 1), adding(xp, 10)], stream=stream, depth=depth)
    results = list(pipeline(items(count)))
    assert [float(result[0]) for result in results] == [number + 11 for number in range(count)]
    assert all(type(result) is np.ndarray and result.shape == (8,) and result.dtype == np.float32 for result in results)


def test_ops_and_array_functions_are_stages(stream: Any, xp: Any) -> None:
    stages = [lambda x, stream: ck.ops.cumsum(x, stream=stream), lambda x, _: xp.sqrt(x)]
    (result,) = ck.Pipeline(stages, stream=stream)([np.ones(100)])
    np.testing.assert_allclose(result, np.sqrt(np.arange(1, 101)))


def test_host_and_device_stages_in_turns(stream: Any, xp: Any) -> None:
    stages = [
        lines.host(lambda number: np.full(4, number, np.float32), threads=2),
        adding(xp, 0.5),
        lines.host(lambda array: array * 2),
        adding(xp, 1),
        lines.host(lambda array: float(array.sum()), threads=3),
    ]
    assert list(ck.Pipeline(stages, stream=stream)(range(40))) == [4 * (2 * (n + 0.5) + 1) for n in range(40)]


@pytest.mark.parametrize("seed", range(12))
def test_any_pipeline_is_its_functions_one_after_another(stream: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    stages: list[Any] = []
    expected = items(int(rng.integers(0, 40)), 4)
    for factor in rng.integers(1, 5, int(rng.integers(1, 7))).tolist():
        work = lambda x, _=None, factor=factor: x * factor + 1  # noqa: E731
        stages.append(lines.host(work, threads=int(rng.integers(1, 4))) if rng.random() < 0.5 else work)
        expected = [work(item) for item in expected]
    depth = [None, *range(1, 6)][int(rng.integers(0, 6))]
    source: Any = items(len(expected), 4)
    results = list(
        ck.Pipeline(stages, stream=stream, depth=depth)(lines.ahead(source) if rng.random() < 0.3 else source)
    )
    np.testing.assert_array_equal(np.array(results).reshape(-1, 4), np.array(expected).reshape(-1, 4))


class Frame(NamedTuple):
    number: int
    pixels: Any


def test_what_is_no_array_goes_along(stream: Any, xp: Any) -> None:
    add = adding(xp, 1)
    pipeline = ck.Pipeline([lambda frame, stream: frame._replace(pixels=add(frame.pixels, stream))], stream=stream)
    results = list(pipeline(Frame(number, item) for number, item in enumerate(items(6))))
    assert [(type(frame), frame.number, float(frame.pixels[0])) for frame in results] == [
        (Frame, number, number + 1) for number in range(6)
    ]
    nested = ck.Pipeline([lambda item, _: {"sum": item["a"] + item["b"][0], "b": item["b"]}], stream=stream)
    (found,) = nested([{"a": np.arange(3), "b": [np.ones(3), "name"]}])
    assert found["sum"].tolist() == [1, 2, 3]
    assert found["b"][0].tolist() == [1, 1, 1]
    assert found["b"][1] == "name"


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5, np.float32),
        np.empty((0, 3), np.int16),
        np.arange(24).reshape(4, 6).T,
        np.arange(100)[::-3],
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.arange(200_000, dtype=np.uint8),
        np.arange(3 << 20, dtype=np.float32).reshape(3, -1),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_any_array_comes_through(stream: Any, array: np.ndarray) -> None:
    results = list(ck.Pipeline([lambda x, _: x], stream=stream)([array] * 3))
    for result in results:
        assert result.dtype == array.dtype
        np.testing.assert_array_equal(result, array)
        assert result.flags.c_contiguous


def test_shapes_and_dtypes_may_change_from_item_to_item(stream: Any) -> None:
    given = [np.arange(size, dtype=dtype) for size in (3, 0, 700, 5) for dtype in (np.float32, np.int64)]
    results = list(ck.Pipeline([lambda x, _: x + 1], stream=stream, depth=2)(given))
    for result, array in zip(results, given, strict=True):
        np.testing.assert_array_equal(result, array + 1)


def test_a_stage_may_keep_what_it_was_given(stream: Any, xp: Any) -> None:
    kept: list[Any] = []

    def difference(x: Any, stream: Any) -> Any:
        kept.append(x[1:])
        return x[1:] - kept[-2] if len(kept) > 1 else xp.zeros_like(x[1:])

    results = list(ck.Pipeline([difference], stream=stream, depth=2)([np.full(5, n * n) for n in range(9)]))
    assert [int(result[0]) for result in results] == [0, *(2 * n - 1 for n in range(1, 9))]
    assert [to_host(array).tolist() for array in kept] == [[n * n] * 4 for n in range(9)]


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: x[1:], lambda x: (x, {"again": x[:2]})])
def test_a_stage_may_return_its_state_each_time(stream: Any, xp: Any, wrap: Any) -> None:
    with ck.using(stream):
        total = xp.zeros(4, np.float32)
    add = ck.Kernel("__global__ void add(float* to, const float* x) { to[threadIdx.x] += x[threadIdx.x]; }")

    def running(x: Any, stream: Any) -> Any:
        add(stream, ck.config(1, 4), total, x)
        return wrap(total)

    results = list(ck.Pipeline([running], stream=stream, depth=4)(items(12, 4)))
    sums = np.cumsum(np.arange(12))
    for result, expected in zip(results, sums, strict=True):
        if isinstance(result, tuple):
            np.testing.assert_array_equal(result[1]["again"], np.full(2, expected))
            result = result[0]
        assert set(result.tolist()) == {expected}


def test_strided_results_are_made_contiguous(stream: Any) -> None:
    array = np.arange(12.0).reshape(3, 4)
    (result,) = ck.Pipeline([lambda x, _: x.T[::2]], stream=stream)([array])
    np.testing.assert_array_equal(result, array.T[::2])


def test_results_are_the_consumers_own(stream: Any) -> None:
    results = list(ck.Pipeline([lambda x, _: x + 1], stream=stream, depth=2)(items(50, 3000)))
    results[0][:] = -1
    assert [float(result[5]) for result in results[1:]] == [number + 1 for number in range(1, 50)]
    views = [result[1:2] for result in ck.Pipeline([lambda x, _: x + 1], stream=stream, depth=2)(items(50, 3000))]
    assert [float(view[0]) for view in views] == [number + 1 for number in range(50)]


def test_a_source_may_use_its_array_again(stream: Any) -> None:
    def source() -> Iterator[np.ndarray]:
        array = np.empty(70_000, np.float32)
        for number in range(10):
            array[:] = number
            yield array

    results = list(ck.Pipeline([lambda x, _: x + 1], stream=stream)(source()))
    assert [(float(result[0]), float(result[-1])) for result in results] == [(n + 1, n + 1) for n in range(10)]


def test_pinned_arrays_are_read_where_they_are(stream: Any) -> None:
    ring = [ck.empty(70_000, np.float32, kind="pinned", stream=stream) for _ in range(4)]
    for number, array in enumerate(ring):
        array[:] = number
    results = ck.Pipeline([lambda x, _: x + 1], stream=stream, depth=3)(ring[number % 4] for number in range(20))
    assert [float(result[-1]) for result in results] == [number % 4 + 1 for number in range(20)]


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("with_host", [False, True])
def test_the_source_is_read_no_further_than_depth(stream: Any, depth: int, with_host: bool) -> None:
    source = Counted(20)
    stages = [lines.host(lambda x: x)] if with_host else []
    run = ck.Pipeline([*stages, lambda x, _: x, *stages], stream=stream, depth=depth)(source)
    assert source.read == 0 or with_host
    for taken in range(1, 21):
        next(run)
        assert source.read <= taken + depth
    assert next(run, None) is None


@pytest.mark.parametrize(("seconds", "least", "most"), [(0.0002, 3, 3), (0.00002, 3, 10)])
def test_items_that_pass_quickly_get_more_room(seconds: float, least: int, most: int) -> None:
    inside, left = 0, 0
    seen = set()
    gate = Gate(3, elastic=True, now=lambda: left * seconds)
    for left in range(400):  # noqa: B007  (the clock reads it)
        while gate.enter(False):
            inside += 1
        seen.add(inside)
        gate.leave()
        inside -= 1
    assert (min(seen), max(seen)) == (least, most)
    while gate.enter(False):
        inside += 1
    gate.stop()
    assert not gate.enter(True)


def test_nothing_runs_before_it_is_asked_for(stream: Any) -> None:
    calls: list[int] = []
    run = ck.Pipeline([lambda x, _: calls.append(1) or x], stream=stream)(items(3))
    assert not calls
    run.close()
    assert list(run) == []
    assert not calls


def test_host_threads_work_side_by_side_and_results_stay_in_order() -> None:
    meeting = threading.Barrier(3, timeout=20)

    def slow(number: int) -> int:
        if number < 3:
            meeting.wait()  # passes only if three items are worked on at a time
        return number * number

    assert list(ck.Pipeline([lines.host(slow, threads=3)])(range(50))) == [n * n for n in range(50)]


def test_one_host_thread_sees_the_items_in_order() -> None:
    seen: list[int] = []
    list(ck.Pipeline([lines.host(lambda n: n, threads=4), lines.host(seen.append)])(range(60)))
    assert seen == list(range(60))


def test_async_for(stream: Any, xp: Any) -> None:
    async def main() -> list[float]:
        found = []
        async for result in ck.Pipeline([adding(xp, 1)], stream=stream)(items(9)):
            found.append(float(result[0]))
            await asyncio.sleep(0)
        return found

    assert asyncio.run(main()) == list(range(1, 10))


def test_the_event_loop_goes_on_meanwhile() -> None:
    async def main() -> list[int]:
        going = asyncio.Event()
        loop = asyncio.get_running_loop()
        gate = threading.Event()

        def wait(number: int) -> int:
            loop.call_soon_threadsafe(going.set)
            assert gate.wait(20)
            return number

        async def open_gate() -> None:
            await going.wait()
            gate.set()

        opener = asyncio.create_task(open_gate())
        found = [number async for number in ck.Pipeline([lines.host(wait)])(range(3))]
        await opener
        return found

    assert asyncio.run(main()) == [0, 1, 2]


def test_results_come_while_the_source_waits(stream: Any, xp: Any) -> None:
    requests: queue.Queue[Any] = queue.Queue()

    def source() -> Iterator[np.ndarray]:
        while (item := requests.get(timeout=20)) is not None:
            yield item

    run = ck.Pipeline([adding(xp, 1)], stream=stream, depth=4)(lines.ahead(source()))
    for number in range(5):  # the next item is there only after the result of the one before
        requests.put(np.full(3, number, np.float32))
        assert float(next(run)[0]) == number + 1
    requests.put(None)
    assert next(run, None) is None


def test_a_pipeline_runs_again_and_twice_at_a_time(stream: Any, xp: Any) -> None:
    pipeline = ck.Pipeline([adding(xp, 1)], stream=stream)
    for _ in range(2):
        assert len(list(pipeline(items(7)))) == 7
    first, second = pipeline(items(9)), pipeline(items(9, 3))
    pairs = [(float(a[0]), float(b[0]), b.size) for a, b in zip(first, second, strict=True)]
    assert pairs == [(number + 1, number + 1, 3) for number in range(9)]
    pipeline.close()
    assert len(list(pipeline(items(3)))) == 3


def test_without_a_stream_it_makes_its_own(stream: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ck.EmulatorWarning)  # said once in a process, where there is no GPU
        results = list(ck.Pipeline([lambda x, _: x + 1])(items(3)))
    assert [float(result[0]) for result in results] == [1, 2, 3]
