"""`ck.scale.map` and `run` on this thread and on executors: order, bounds, failures, sinks, counters."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import workers
from support.pipelines import items

import cudakit as ck
from cudakit import pipeline as lines
from cudakit.scale.results import Work, number_in
from cudakit.streams import devices

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


def firsts(results: Any) -> list[float]:
    return [float(result[0]) for result in results]


def test_an_executor_that_takes_no_more_work() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(ck.ArgumentError, match=r"takes no more work: cannot schedule new .*; give a new one"):
        list(ck.scale.map(abs, [1, 2], engine=pool))


@pytest.mark.slow
def test_an_executor_whose_process_died() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        with pytest.raises(ck.PipelineError, match="BrokenProcessPool"):
            list(ck.scale.map(os._exit, [1], engine=pool))
        with pytest.raises(ck.ArgumentError, match=r"takes no more work: .*; give a new one"):
            list(ck.scale.map(abs, [1], engine=pool))


def test_results_come_in_order(threads: ThreadPoolExecutor) -> None:
    for engine in (None, threads):
        for work in (workers.squares(), workers.plain_square):
            assert firsts(ck.scale.map(work, items(9), engine=engine)) == [float(k * k) for k in range(9)]


def test_as_they_come_each_has_its_number(threads: ThreadPoolExecutor) -> None:
    results = ck.scale.map(workers.plain_square, items(20), engine=threads, ordered=False)
    found = [(results.item, float(result[0])) for result in results]
    assert sorted(found) == [(number, float(number**2)) for number in range(20)]


@pytest.mark.parametrize("ordered", [True, False])
def test_no_more_is_under_way_than_was_asked_for(ordered: bool, threads: ThreadPoolExecutor) -> None:
    read = 0

    def source() -> Iterator[np.ndarray]:
        nonlocal read
        for item in items(30):
            read += 1
            yield item

    with ck.scale.map(workers.plain_square, source(), engine=threads, depth=4, ordered=ordered) as results:
        for count, _ in enumerate(results, 1):
            assert read <= count + 4
            assert results.counters.under_way <= 4
    assert read == 30


def test_a_pipeline_may_give_none_or_several() -> None:
    def several(x: np.ndarray) -> Iterator[np.ndarray]:
        for _ in range(int(x[0])):
            yield x

    results = ck.scale.map(ck.Pipeline([lines.host(several)]), items(4))
    assert [(results.item, float(result[0])) for result in results] == [(1, 1), (2, 2), (2, 2), (3, 3), (3, 3), (3, 3)]
    assert (results.counters.items, results.counters.dropped, results.counters.over) == (6, 1, True)
    assert results.counters.bytes == 6 * 32


def test_failures_name_the_chunk(threads: ThreadPoolExecutor) -> None:
    for engine in (None, threads):
        for work in (workers.fails_on_three, ck.Pipeline([lines.host(workers.fails_on_three)])):
            results = ck.scale.map(work, items(9), engine=engine)
            with pytest.raises(ck.PipelineError, match=r"chunk 3.*ValueError: three") as raised:
                list(results)
            assert raised.value.item == 3
            assert results.counters.items == 3
            assert firsts(ck.scale.map(work, items(5), engine=engine, on_error="skip")) == [0, 1, 2, 4]
            said = ck.scale.map(work, items(5), engine=engine, on_error=lambda error: np.array([-error.item]))
            assert firsts(said) == [0, 1, 2, -3, 4]


def test_stored_chunks_are_read_where_they_are_worked_on(tmp_path: Path) -> None:
    array = np.arange(40, dtype=np.float32).reshape(10, 4)
    np.save(tmp_path / "a.npy", array)
    source = lines.from_array(tmp_path / "a.npy", 3, halo=1)
    found = list(ck.scale.map(workers.plain_square, source))
    assert [len(part) for part in found] == [4, 5, 5, 2]
    np.testing.assert_array_equal(found[1], array[2:7] ** 2)


def test_sinks_get_each_result_once(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    out = np.zeros((6, 8), np.float32)
    chunks = lines.from_array(np.stack(items(6)), 2)
    assert ck.scale.run(workers.plain_square, chunks, lines.to_array(out), engine=threads) == 3
    np.testing.assert_array_equal(out, np.stack(items(6)) ** 2)
    with pytest.raises(ck.PipelineError):
        ck.scale.run(workers.fails_on_three, items(6), lines.to_npy(tmp_path / "a.npy"), engine=threads)
    assert not list(tmp_path.iterdir())


def test_zarr_in_zarr_out(tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    zarr = pytest.importorskip("zarr")
    array = np.arange(44, dtype=np.float32).reshape(11, 4)
    zarr.save(str(tmp_path / "in.zarr"), array)
    chunks = lines.from_zarr(tmp_path / "in.zarr", 3, halo=1)
    for run in (ck.scale.run, lambda work, source, sink, engine: work.run(source, sink)):
        sink = lines.to_zarr(tmp_path / "out.zarr", like=chunks)
        assert run(workers.squares(), chunks, sink, engine=threads) == 4
        np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "out.zarr"), mode="r")[:], array**2)
    narrow = lines.to_zarr(tmp_path / "narrow.zarr", like=chunks, shape=(), dtype="f8")
    ck.scale.run(lambda x: x.sum(axis=1, dtype="f8"), chunks, narrow)
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "narrow.zarr"), mode="r")[:], array.sum(1))
    with pytest.raises(ck.PipelineError, match="chunk 0 has 3 rows, and its result 1"):
        ck.scale.run(lambda x: x[:1], chunks, lines.to_zarr(tmp_path / "bad.zarr", like=chunks))
    assert not (tmp_path / "bad.zarr").exists()


def test_progress_is_told() -> None:
    told: list[Any] = []
    list(ck.scale.map(workers.plain_square, items(3), progress=told.append))
    assert told[-1].items == 3
    assert told[-1].over


def test_wrong_calls(stream: Any, threads: ThreadPoolExecutor) -> None:
    with pytest.raises(ck.ArgumentError, match="with stream= it cannot be pickled"):
        ck.scale.map(ck.Pipeline([workers.stage], stream=stream), [], engine=threads)
    with pytest.raises(ck.ArgumentError, match=r"engine= is a dask\.distributed Client, the module ray"):
        ck.scale.map(workers.plain_square, [], engine="dask")
    with pytest.raises(ck.ArgumentError, match="a pipeline or a function"):
        ck.scale.map(3, [])
    with pytest.raises(ck.ArgumentError, match="chunks is an iterable"):
        ck.scale.map(workers.plain_square, 3)  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="depth"):
        ck.scale.map(workers.plain_square, [], depth=0)
    with pytest.raises(ck.ArgumentError, match='on_error is "raise", "skip"'):
        ck.scale.map(workers.plain_square, [], on_error="ignore")
    with pytest.raises(ck.ArgumentError, match="a sink is what"):
        ck.scale.run(workers.plain_square, [], 3)  # type: ignore[arg-type]


def test_what_cannot_be_sent_to_processes_is_refused_at_once() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(ck.ArgumentError, match=r"cannot be sent to processes.*lambda.*by name"),
    ):
        ck.scale.map(lambda x: x, items(2), engine=pool, on_error="skip")


def test_importing_loads_neither_dask_nor_ray() -> None:
    program = (
        "import cudakit, sys; cudakit.scale.map; print([m for m in ('dask', 'distributed', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_processes_compile_a_kernel_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / "cache"))
    pipeline = ck.Pipeline([workers.stage, lines.host(compiled_and_first)])
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=listen) as pool:
        found = list(ck.scale.map(pipeline, items(12), engine=pool))
    assert [first for _, _, first in found] == [float(k * k) for k in range(12)]
    compiles = {process: count for process, count, _ in found}
    assert sum(compiles.values()) == 1, compiles


_compiles: list[str] = []


def listen() -> None:
    """In a worker: count what is compiled."""

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            _compiles.append(record.getMessage())

    logging.getLogger("cudakit").setLevel(logging.INFO)
    logging.getLogger("cudakit").addHandler(Counting())


def compiled_and_first(x: np.ndarray) -> tuple[int, int, float]:
    return os.getpid(), sum("compiled" in each for each in _compiles), float(x[0])


class Counted(ThreadPoolExecutor):
    """Knows how often its futures were asked for their results."""

    def __init__(self) -> None:
        super().__init__(2)
        self.asked = 0

    def submit(self, *given: Any, **named: Any) -> Any:
        future = super().submit(*given, **named)
        result = future.result

        def counted(timeout: float | None = None) -> Any:
            self.asked += 1
            return result(timeout)

        future.result = counted  # type: ignore[method-assign]
        return future


def test_a_result_is_fetched_once_and_the_work_sent_to_those_who_ask() -> None:
    with Counted() as pool:
        assert firsts(ck.scale.map(workers.plain_square, items(12), engine=pool)) == [float(k * k) for k in range(12)]
        # In this process nobody knows the work by its token: ten chunks are sent again, with it.
        assert pool.asked == 12 + 10


@pytest.mark.parametrize(
    ("name", "number"), [("SpawnProcess-12", 12), ("ThreadPoolExecutor-0_1", 1), ("3", 3), ("gpu", 0)]
)
def test_the_number_in_a_workers_name(name: str, number: int) -> None:
    assert number_in(name) == number


def test_workers_of_a_machine_take_its_gpus_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def on_device(device: int) -> contextlib.AbstractContextManager[None]:
        taken.append(device)
        return contextlib.nullcontext()

    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    monkeypatch.setattr(devices, "device_count", lambda: 2)
    monkeypatch.setattr(devices, "on_device", on_device)
    work = Work(workers.plain_square)
    for worker in range(4):
        work(0, np.ones(1), worker)
    assert taken == [0, 1, 0, 1]
