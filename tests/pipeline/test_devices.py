"""Pipelines over several devices: in order, with each device's own streams and memory, and what ends them.

On the emulator each number is streams of its own; on a machine of one GPU the tests name that twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.emulated import place
from support.pipelines import ADD, items, nothing_left, threads_of_pipelines

import cudakit as ck
from cudakit import pipeline as lines
from cudakit.streams import devices

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")
_left = pytest.fixture(autouse=True)(nothing_left)
add = ck.Kernel(ADD)


@pytest.fixture
def two() -> list[int]:
    return [0, 1] if not place.is_gpu or devices.device_count() > 1 else [0, 0]


def plus_one(x: Any, stream: Any) -> Any:
    with ck.using(stream) as xp:
        y = xp.empty_like(x)
    add(stream, ck.config(1, 64), x, y, 1, x.size)
    return y


def firsts(results: Any) -> list[float]:
    return [float(result[0]) for result in results]


@pytest.mark.parametrize("depth", [None, 1, 3])
def test_results_are_in_order(two: list[int], depth: int | None) -> None:
    with ck.Pipeline([plus_one], devices=two, depth=depth) as pipeline:
        for _ in range(2):
            assert firsts(pipeline(items(40))) == [k + 1.0 for k in range(40)]


def test_both_devices_work_and_each_on_its_own_streams(two: list[int]) -> None:
    seen: dict[str, set[int]] = {}
    both = threading.Barrier(2, timeout=20)

    def met(x: Any, stream: Any) -> Any:
        name = threading.current_thread().name
        if name not in seen:
            both.wait()
        seen.setdefault(name, set()).add(int(stream.handle))
        return plus_one(x, stream)

    with ck.Pipeline([met], devices=two) as pipeline:
        assert firsts(pipeline(items(30))) == [k + 1.0 for k in range(30)]
    assert len(seen) == len(set(two))
    if len(seen) == 2:
        first, second = seen.values()
        assert len(first) == len(second) == 1
        assert first != second


def test_host_stages_stand_before_between_and_after(two: list[int]) -> None:
    stages = [lines.host(lambda n: np.full(8, n, np.float32), threads=3), plus_one]
    stages += [lines.host(lambda x: x * 2, threads=2), plus_one, lines.host(lambda x: float(x[0]))]
    with ck.Pipeline(stages, devices=two) as pipeline:
        assert list(pipeline(range(30))) == [2 * (k + 1) + 1.0 for k in range(30)]


def test_stages_that_yield(two: list[int]) -> None:
    def several(x: Any, stream: Any) -> Iterator[Any]:
        for _ in range(int(ck.to_host(x, stream)[0]) % 3):
            yield plus_one(x, stream)

    with ck.Pipeline([several], devices=two) as pipeline, pipeline(items(20)) as run:
        found = [(run.item, float(result[0])) for result in run]
    assert found == [(k, k + 1.0) for k in range(20) for _ in range(k % 3)]


def test_an_array_in_chunks(two: list[int], tmp_path: Path) -> None:
    array = np.arange(400, dtype=np.float32).reshape(100, 4)
    with ck.Pipeline([plus_one], devices=two) as pipeline:
        np.testing.assert_array_equal(pipeline.map_array(array, tmp_path / "a.npy", chunk=7, halo=1), array + 1)


def test_the_item_that_fails_is_named_and_those_before_it_come(two: list[int]) -> None:
    def fails(x: Any, stream: Any) -> Any:
        if ck.to_host(x, stream)[0] == 7:
            raise ValueError("seven")
        return plus_one(x, stream)

    pipeline = ck.Pipeline([fails], devices=two)
    found: list[float] = []
    with pytest.raises(ck.PipelineError, match=r"item 7.*seven") as raised:
        found.extend(float(result[0]) for result in pipeline(items(30)))
    assert raised.value.item == 7
    assert found == [k + 1.0 for k in range(7)]
    lenient = ck.Pipeline([fails], devices=two, on_error="skip")
    assert firsts(lenient(items(30))) == [k + 1.0 for k in range(30) if k != 7]


def test_a_source_that_fails(two: list[int]) -> None:
    def source() -> Iterator[np.ndarray]:
        yield from items(5)
        raise OSError("the disk is gone")

    found: list[float] = []
    with pytest.raises(ck.PipelineError, match=r"the source failed on item 5.*the disk is gone"):
        found.extend(float(result[0]) for result in ck.Pipeline([plus_one], devices=two)(source()))
    assert found == [1, 2, 3, 4, 5]


def test_a_run_that_is_left_early_ends(two: list[int]) -> None:
    def endless() -> Iterator[np.ndarray]:
        while True:
            yield np.zeros(8, np.float32)

    with ck.Pipeline([plus_one], devices=two) as pipeline:
        for number, _ in enumerate(pipeline(endless())):
            if number == 5:
                assert any("device" in name for name in threads_of_pipelines())
                break


def test_no_more_is_read_than_there_is_room_for(two: list[int]) -> None:
    read = 0

    def source() -> Iterator[np.ndarray]:
        nonlocal read
        for item in items(200):
            read += 1
            yield item

    with ck.Pipeline([plus_one], devices=two, depth=3)(source()) as run:
        next(run)
        time.sleep(0.2)
        assert read <= 1 + 3
        assert len(list(run)) == 199


def test_results_come_while_the_source_waits(two: list[int]) -> None:
    given = threading.Event()

    def source() -> Iterator[np.ndarray]:
        yield np.zeros(8, np.float32)
        assert given.wait(20)
        yield np.ones(8, np.float32)

    with ck.Pipeline([plus_one], devices=two)(source()) as run:
        assert next(run)[0] == 1
        given.set()
        assert next(run)[0] == 2


def test_wrong_devices(stream: Any) -> None:
    for wrong, message in (
        ("01", "devices are numbers"),
        (3, "devices are numbers"),
        ([], "one at least"),
        ([-1], "from 0 up"),
        ([True], "from 0 up"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            ck.Pipeline([plus_one], devices=wrong)  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="leave stream= out"):
        ck.Pipeline([plus_one], devices=[0], stream=stream)
    with pytest.raises(ck.ArgumentError, match="graph=True is for one device"):
        ck.Pipeline([plus_one], devices=[0, 0], graph=True)


@pytest.mark.gpu
def test_a_device_that_is_not_there() -> None:
    with pytest.raises(ck.ArgumentError, match="there is no device 99"):
        ck.Pipeline([plus_one], devices=[0, 99])


@pytest.mark.gpu
def test_memory_and_kernels_are_of_their_device() -> None:
    if devices.device_count() < 2:
        pytest.skip("needs two GPUs")
    import cupy

    seen = set()

    def look(x: Any, stream: Any) -> Any:
        assert x.device.id == stream.device.device_id == cupy.cuda.Device().id
        seen.add(x.device.id)
        return plus_one(x, stream)

    large = [np.full(1 << 20, number, np.float32) for number in range(24)]
    with ck.Pipeline([look, lambda x, _: x * 2], devices=[0, 1]) as pipeline:
        for number, result in enumerate(pipeline(large)):
            assert (result == 2 * (number + 1)).all()
    assert seen == {0, 1}
