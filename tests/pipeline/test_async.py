"""Asynchronous sources and sinks: in whose event loop they run, and that they are closed there."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.pipelines import adding, items, nothing_left
from support.tiers import slow

import cudakit as ck
from cudakit import pipeline as lines
from cudakit.pipeline.asynchronous import AsyncSource

_nothing_left = pytest.fixture(autouse=True)(nothing_left)


class Camera:
    """An asynchronous source that says in which loops it ran, and whether it was closed."""

    def __init__(self, count: int = 1 << 30, error: BaseException | None = None) -> None:
        self.count, self.error = count, error
        self.read, self.closed = 0, 0
        self.loops: set[Any] = set()

    async def __aiter__(self) -> AsyncIterator[np.ndarray]:
        try:
            for number in range(self.count):
                self.loops.add(asyncio.get_running_loop())
                await asyncio.sleep(0.001)
                self.read += 1
                yield np.full(4, number, np.float32)
            if self.error is not None:
                raise self.error
        finally:
            await asyncio.sleep(0)
            self.closed += 1


def first(array: Any) -> float:
    return float(np.asarray(array).flat[0])


def test_in_the_loop_that_runs(stream: Any, xp: Any) -> None:
    camera = Camera(9)

    async def main() -> list[float]:
        found = [first(item) async for item in ck.Pipeline([adding(xp, 1)], stream=stream)(camera)]
        assert camera.loops == {asyncio.get_running_loop()}
        return found

    assert asyncio.run(main()) == list(range(1, 10))
    assert camera.closed == 1


def test_in_a_loop_of_its_own_where_none_runs(stream: Any, xp: Any) -> None:
    camera = Camera(9)
    stages = [lines.host(lambda x: x, threads=2), adding(xp, 1)]
    assert [first(item) for item in ck.Pipeline(stages, stream=stream)(camera)] == list(range(1, 10))
    (loop,) = camera.loops
    assert loop.is_closed()
    assert camera.closed == 1


@pytest.mark.parametrize("where", ["own", "running"])
@pytest.mark.parametrize("error", [OSError("unplugged"), TimeoutError("late"), asyncio.CancelledError()])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_source_that_fails(stream: Any, xp: Any, where: str, error: BaseException, on_error: str) -> None:
    camera = Camera(3, error)
    found: list[float] = []

    async def running() -> None:
        async for item in ck.Pipeline([adding(xp, 1)], stream=stream, on_error=on_error)(camera):
            found.append(first(item))  # noqa: PERF401  (what came before the error counts)

    def own() -> None:
        found.extend(first(item) for item in ck.Pipeline([adding(xp, 1)], stream=stream, on_error=on_error)(camera))

    said = "the source failed on item 3: " + ("Cuda" if isinstance(error, asyncio.CancelledError) else f"{error!r}"[:7])
    with pytest.raises(ck.PipelineError, match=said):
        own() if where == "own" else asyncio.run(running())
    assert found == [1, 2, 3]
    assert camera.closed == 1


async def _break(pipeline: Any, camera: Camera) -> None:
    async for _ in pipeline(camera):
        break


async def _close(pipeline: Any, camera: Camera) -> None:
    run = pipeline(camera)
    await anext(run)
    run.close()
    assert [item async for item in run] == []


async def _aclose(pipeline: Any, camera: Camera) -> None:
    run = pipeline(camera)
    await anext(run)
    await run.aclose()
    assert camera.closed == 1


async def _timeout(pipeline: Any, camera: Camera) -> None:
    run = pipeline(camera)

    async def consume() -> None:
        async with asyncio.timeout(0.02):
            async for _ in run:
                await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        await consume()
    await run.aclose()


async def _unread(pipeline: Any, camera: Camera) -> None:
    pipeline(camera).close()


@pytest.mark.parametrize("stop", [_break, _close, _aclose, _timeout, *slow(_unread)])
@pytest.mark.parametrize("host", [False, True])
def test_a_consumer_that_stops_early(stream: Any, host: bool, stop: Callable[..., Any]) -> None:
    camera = Camera()
    stages = [lines.host(lambda x: x, threads=2), lambda x, _: x] if host else [lambda x, _: x]

    async def main() -> None:
        await stop(ck.Pipeline(stages, stream=stream), camera)
        gc.collect()
        for _ in range(200):
            await asyncio.sleep(0.01)
            if camera.closed:
                break
        assert camera.closed == 1 or camera.read == 0

    asyncio.run(main())


def test_a_consumer_without_a_loop_that_stops_early(stream: Any) -> None:
    camera = Camera()
    with ck.Pipeline([lambda x, _: x], stream=stream)(camera) as run:
        next(run)
    assert camera.closed == 1


def test_a_loop_that_ends_before_the_run(stream: Any) -> None:
    camera = Camera()

    async def main() -> Any:
        run = ck.Pipeline([lambda x, _: x], stream=stream, depth=2)(camera)
        await anext(run)
        return run

    run = asyncio.run(main())
    with pytest.raises(ck.PipelineError, match="the source failed"):
        for _ in run:
            pass


def test_a_loop_that_is_ending_does_not_end_the_items() -> None:
    """It closes asynchronous generators while it still runs."""

    async def main() -> None:
        source, loop = AsyncSource(Camera()), asyncio.get_running_loop()
        assert first(await loop.run_in_executor(None, next, source)) == 0
        await loop.shutdown_asyncgens()
        with pytest.raises(ck.CudakitError, match="event loop has cancelled it, or has ended"):
            await loop.run_in_executor(None, next, source, None)

    asyncio.run(main())


def test_a_loop_that_has_ended_leaves_nothing_that_nobody_awaits() -> None:
    loop = asyncio.new_event_loop()

    async def made() -> AsyncSource:
        return AsyncSource(Camera())

    source = loop.run_until_complete(made())
    with pytest.raises(ck.CudakitError, match="event loop"):
        next(source)
    loop.close()
    del source
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()  # an unawaited coroutine warns here, which pytest takes for a failure


def test_the_source_is_read_no_further_than_depth(stream: Any) -> None:
    camera = Camera()

    async def main() -> None:
        run = ck.Pipeline([lambda x, _: x], stream=stream, depth=3)(camera)
        for taken in range(1, 9):
            await anext(run)
            await asyncio.sleep(0.01)
            assert camera.read <= taken + 3
        await run.aclose()

    asyncio.run(main())


def test_a_loop_that_would_wait_for_itself_is_refused(stream: Any) -> None:
    async def main() -> None:
        run = ck.Pipeline([lambda x, _: x], stream=stream)(Camera(3))
        with pytest.raises(ck.ArgumentError, match="take them by `async for`"):
            next(run)
        run.close()
        with pytest.raises(ck.ArgumentError, match=r"await pipeline\.arun"):
            ck.Pipeline([lambda x, _: x], stream=stream).run(Camera(3), lines.to_array(np.zeros(4)))

    asyncio.run(main())


class Sending:
    """An asynchronous sink."""

    def __init__(self, fails_at: int = -1) -> None:
        self.items: list[tuple[str | None, float]] = []
        self.ended: list[Any] = []
        self.fails_at = fails_at

    takes_names = True

    async def __aenter__(self) -> Sending:
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        await asyncio.sleep(0)
        self.ended.append(kind)

    async def write(self, item: Any, name: str | None) -> None:
        await asyncio.sleep(0.001)
        if len(self.items) == self.fails_at:
            raise OSError("gone")
        self.items.append((name, first(item)))


@pytest.mark.parametrize("kind", ["camera", "named"])
def test_an_asynchronous_sink(stream: Any, xp: Any, kind: str) -> None:
    sink = Sending()
    pairs = [(f"n{number}", item) for number, item in enumerate(items(6))]
    source: Any = Camera(6) if kind == "camera" else lines.named(pairs)
    assert asyncio.run(ck.Pipeline([adding(xp, 1)], stream=stream).arun(source, sink)) == 6
    names = [None] * 6 if kind == "camera" else [name for name, _ in pairs]
    assert sink.items == list(zip(names, range(1, 7), strict=True))
    assert sink.ended == [None]


def test_an_asynchronous_sink_that_fails(stream: Any) -> None:
    sink, camera = Sending(2), Camera()
    with pytest.raises(OSError, match="gone"):
        asyncio.run(ck.Pipeline([lambda x, _: x], stream=stream).arun(camera, sink))
    assert [item for _, item in sink.items] == [0, 1]
    assert sink.ended == [OSError]
    assert camera.closed == 1


def test_other_sinks_write_in_a_thread(stream: Any, tmp_path: Any) -> None:
    writers: set[str] = set()

    class Rows:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def write(self, item: Any) -> None:
            writers.add(threading.current_thread().name)

    pipeline = ck.Pipeline([lambda x, _: x + 1], stream=stream)
    assert asyncio.run(pipeline.arun(Camera(4), Rows())) == 4
    assert threading.current_thread().name not in writers
    assert asyncio.run(pipeline.arun(items(4), lines.to_npy(tmp_path / "a.npy"))) == 4
    assert np.load(tmp_path / "a.npy")[::8].tolist() == [1, 2, 3, 4]
    with pytest.raises(ck.ArgumentError, match="a sink is what"):
        asyncio.run(pipeline.arun(items(4), 3))


def test_an_asynchronous_sink_needs_a_loop(stream: Any) -> None:
    with pytest.raises(ck.ArgumentError, match=r"the sink is asynchronous: await pipeline\.arun"):
        ck.Pipeline([lambda x, _: x], stream=stream).run(items(3), Sending())  # type: ignore[arg-type]


def test_failures_are_handled_in_between(stream: Any) -> None:
    def check(x: Any) -> Iterator[Any]:
        if first(x) == 2:
            raise ValueError("two")
        yield from (x, x + 0.5) if first(x) != 3 else ()

    async def main() -> list[float]:
        errors: list[ck.PipelineError] = []
        pipeline = ck.Pipeline([lines.host(check), lambda x, _: x], stream=stream, on_error=errors.append)
        found = [first(item) async for item in pipeline(Camera(5))]
        assert [error.item for error in errors] == [2]
        return found

    assert asyncio.run(main()) == [0, 0.5, 1, 1.5, 4, 4.5]
