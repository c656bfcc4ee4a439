"""Pipelines when something goes wrong: who is told what, what is still delivered, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.emulated import place
from support.pipelines import held, items, nothing_left

import cudakit as ck
from cudakit import pipeline as lines

_nothing_left = pytest.fixture(autouse=True)(nothing_left)


def test_a_device_stage_that_forgets_its_return(stream: Any) -> None:
    def forgetful(x: Any, _: Any) -> None:
        x += 1

    with pytest.raises(ck.PipelineError, match=r"stage 'forgetful' .* on item 0: .* it returned None: .*`return x`"):
        list(ck.Pipeline([forgetful], stream=stream)(items(2)))


def failing(at: int) -> Callable[..., Any]:
    """A stage, of either kind, that raises for the item of number `at`."""
    count = iter(range(10**6))

    def fail(x: Any, stream: Any = None) -> Any:
        if next(count) == at:
            raise ValueError("bad pixels")
        return x

    return fail


def collect(run: Any) -> tuple[list[float], ck.PipelineError]:
    delivered: list[float] = []
    with pytest.raises(ck.PipelineError) as caught:
        delivered.extend(float(np.asarray(result).flat[0]) for result in run)
    return delivered, caught.value


@pytest.mark.parametrize("at", [0, 1, 7])
@pytest.mark.parametrize("kind", ["device", "host", "host, then device", "device, then host", "threads"])
def test_a_stage_that_raises(stream: Any, kind: str, at: int) -> None:
    good = lambda x, _=None: x  # noqa: E731
    stages = {
        "device": [good, failing(at)],
        "host": [lines.host(failing(at))],
        "host, then device": [lines.host(failing(at)), good],
        "device, then host": [good, lines.host(failing(at))],
        "threads": [lines.host(good, threads=3), lines.host(failing(at)), lines.host(good, threads=3)],
    }[kind]
    pipeline = ck.Pipeline(stages, stream=stream)
    delivered, error = collect(pipeline(items(12)))
    assert delivered == list(range(at))
    assert (error.stage, error.item) == ("fail", at)
    assert f"stage 'fail' ({[s.name for s in pipeline.stages].index('fail') + 1} of {len(stages)})" in str(error)
    assert f"failed on item {at}: ValueError: bad pixels" in str(error)
    assert isinstance(error.__cause__, ValueError)
    again = ck.Pipeline([good], stream=stream)
    assert len(list(again(items(12)))) == 12


def test_after_an_error_there_are_no_more_results(stream: Any) -> None:
    run = ck.Pipeline([failing(2)], stream=stream)(items(6))
    delivered, _ = collect(run)
    assert delivered == [0, 1]
    assert list(run) == []


@pytest.mark.parametrize("threaded", [False, True])
def test_a_source_that_raises(stream: Any, threaded: bool) -> None:
    def source() -> Iterator[np.ndarray]:
        yield from items(4)
        raise OSError("no such camera")

    given = lines.ahead(source()) if threaded else source()
    delivered, error = collect(ck.Pipeline([lambda x, _: x + 1], stream=stream)(given))
    assert delivered == [1, 2, 3, 4]
    assert (error.stage, error.item) == ("source", 4)
    assert str(error) == "the source failed on item 4: OSError: no such camera"


def test_a_kernel_call_that_is_refused(stream: Any) -> None:
    kernel = ck.Kernel("__global__ void f(float* x, unsigned char by) { x[0] += by; }")

    def work(x: Any, stream: Any) -> Any:
        kernel(stream, ck.config(1, 1), x, 250 + int(seen.append(1) or len(seen)))
        return x

    seen: list[int] = []
    delivered, error = collect(ck.Pipeline([work], stream=stream)(items(9)))
    assert delivered == [number + 251 + number for number in range(5)]
    assert isinstance(error.__cause__, ck.ArgumentError)
    assert error.item == 5


@pytest.mark.emulator
def test_an_error_of_the_emulator_is_the_cause(stream: Any) -> None:
    kernel = ck.Kernel("__global__ void f(float* x, int i) { x[i] = 1; }")

    def work(x: Any, stream: Any) -> Any:
        kernel(stream, ck.config(1, 1), x, x.size)
        return x

    _, error = collect(ck.Pipeline([work], stream=stream)(items(3)))
    assert isinstance(error.__cause__, ck.EmulationError)


def test_out_of_memory_in_the_middle(stream: Any, xp: Any) -> None:
    def hungry(x: Any, stream: Any) -> Any:
        return x + xp.ones(1 << 50 if number.append(1) or len(number) == 6 else 1, x.dtype)[0]

    number: list[int] = []
    pipeline = ck.Pipeline([hungry], stream=stream)
    delivered, error = collect(pipeline(items(9)))
    assert delivered == [1, 2, 3, 4, 5]
    assert error.item == 5
    assert "emory" in type(error.__cause__).__name__
    number.clear()
    assert len(list(pipeline(items(5)))) == 5  # the memory of the run is there again


class Watched:
    """A source that says whether its generator was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[np.ndarray]:
        try:
            while True:
                yield np.ones(8, np.float32)
        finally:
            self.closed.set()


def _break(pipeline: Any, source: Any) -> None:
    for _, _result in zip(range(3), pipeline(source), strict=False):
        pass


def _raise(pipeline: Any, source: Any) -> None:
    def consume() -> None:
        for _result in pipeline(source):
            raise KeyError("consumer")

    with pytest.raises(KeyError, match="consumer"):
        consume()


def _with(pipeline: Any, source: Any) -> None:
    with pipeline(source) as run:
        next(run)
        next(run)


def _close(pipeline: Any, source: Any) -> None:
    run = pipeline(source)
    next(run)
    run.close()
    run.close()
    assert list(run) == []


def _async(pipeline: Any, source: Any) -> None:
    async def main() -> None:
        async for _ in pipeline(source):
            break
        run = pipeline(source)
        await anext(run)
        await run.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("stop", [_break, _raise, _with, _close, _async])
@pytest.mark.parametrize("kind", ["device", "host", "both", "ahead"])
def test_a_consumer_that_stops_early(stream: Any, kind: str, stop: Any) -> None:
    work = lambda x, _=None: x  # noqa: E731
    stages = {
        "device": [work],
        "host": [lines.host(work, threads=2)],
        "both": [lines.host(work), work, lines.host(work, threads=2)],
        "ahead": [work],
    }[kind]
    source = Watched()
    stop(ck.Pipeline(stages, stream=stream), lines.ahead(source) if kind == "ahead" else source)
    gc.collect()
    assert source.closed.wait(10)


def test_nothing_runs_on_after_an_early_end(stream: Any) -> None:
    slow = ck.Kernel(
        "__global__ void slow(float* x, long long cycles) {"
        " const long long start = clock64(); while (clock64() - start < cycles) {} x[0] += 1; }"
    )
    after: list[Any] = []

    def work(x: Any, stream: Any) -> Any:
        slow(stream, ck.config(1, 1), x, 100_000_000 if place.is_gpu else 0)  # some 60 ms
        after.append(stream.record())
        return x

    run = ck.Pipeline([work], stream=stream, depth=4)(items(9))
    next(run)
    run.close()
    assert 4 <= len(after) <= 5
    assert all(event.is_done for event in after)


def test_a_consumer_that_waits_is_woken_by_the_end() -> None:
    """One thread closes the run while another waits for a result that the source does not let come."""
    release, ended = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        assert release.wait(20)
        yield 1

    run = ck.Pipeline([lines.host(lambda n: n, threads=2), lines.host(lambda n: n)])(source())
    consumer = threading.Thread(target=lambda: (list(run), ended.set()))
    closer = threading.Thread(target=run.close)
    consumer.start()
    closer.start()
    woken = ended.wait(10)
    release.set()
    consumer.join()
    closer.join()
    assert woken


def test_an_async_consumer_that_is_cancelled(stream: Any) -> None:
    gate = threading.Event()

    async def main() -> None:
        run = ck.Pipeline([lines.host(lambda n: (gate.wait(20), n))])(range(5))
        waiting = asyncio.ensure_future(anext(run))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.set()
        assert await anext(run) == (True, 0)  # what was on its way is not lost
        await run.aclose()
        assert [item async for item in run] == []

    asyncio.run(main())


def test_streams_go_with_the_pipeline_and_its_last_run(stream: Any) -> None:
    pipeline = ck.Pipeline([lambda x, _: x], stream=stream)
    run = pipeline(items(9))
    next(run)
    (lanes,) = pipeline._lanes.values()
    arriving, gone = lanes.arriving, weakref.ref(lanes)
    del lanes, pipeline
    assert len(list(run)) == 8  # the streams are there as long as the run
    del run
    gc.collect()
    assert gone() is None
    if hasattr(arriving, "is_closed"):
        assert arriving.is_closed
    stream.sync()  # the caller's own is not


@pytest.mark.slow
def test_memory_stays_flat(stream: Any, xp: Any) -> None:
    count = 100_000 if ck.has_gpu() and place.is_gpu else 1500
    pipeline = ck.Pipeline([lambda x, _: x + 1, lambda x, _: (x * 2, x[:3])], stream=stream)
    early, late = 0, 0
    for number, (doubled, _) in enumerate(pipeline(np.ones(500, np.float32) for _ in range(count))):
        if number == count // 5:
            early = held(xp)
        if number % 10_000 == 0:
            assert doubled[0] == 4
    late = held(xp)
    assert number == count - 1
    assert late <= early
