"""Small items that a section puts on the streams in batches, on a stand-in for a GPU that does only what is waited for.

Work of a stream is done when an event after it is asked for, with all that this work waits for and nothing else. So a
wait that is missing shows as a wrong result.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.device_memory import DeviceArray, Gpu, seen

from cudakit.pipeline import device_section
from cudakit.pipeline.device_section import Section
from cudakit.pipeline.nodes import Reader
from cudakit.pipeline.stages import END, NOTHING, Failure, Gone, Parcel, device

pytestmark = pytest.mark.emulator


class Quick(Gpu):
    """A device that has always done what it is asked about, or never if `is_slow`. It counts what it is asked for."""

    is_slow = False

    def __init__(self) -> None:
        super().__init__()
        self.records = self.questions = 0
        #: Streams on which CuPy worked when memory was allocated.
        self.allocations: list[Any] = []

    def allocate(self, size: int) -> Any:
        self.allocations.append(self.current)
        return super().allocate(size)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Quick:
    found = Quick()
    monkeypatch.setattr(DeviceArray, "gpu", found, raising=False)
    monkeypatch.setattr(device_section.devices, "make_current", lambda number=None: False)
    return found


class Event:
    """A place on a stream."""

    def __init__(self, gpu: Quick) -> None:
        self.gpu, self.stream, self.position = gpu, None, 0

    @property
    def is_done(self) -> bool:
        self.gpu.questions += 1
        if not self.gpu.is_slow:
            self.sync()
        return self.stream.done >= self.position  # type: ignore[attr-defined]

    def sync(self) -> None:
        self.stream.run(self.position)  # type: ignore[attr-defined]


class Lanes:
    """The streams of a pipeline on the stand-in."""

    emulated = False

    def __init__(self, gpu: Quick, count: int = 1) -> None:
        self.gpu = gpu
        self.arriving, self.leaving, *self.computing = (self._stream() for _ in range(2 + count))
        self.arriving_handle, self.leaving_handle = self.arriving.handle, self.leaving.handle
        self.copy_bytes = gpu.runtime.memcpyAsync
        self.xp = SimpleNamespace(
            ndarray=DeviceArray,
            empty=DeviceArray,
            cuda=SimpleNamespace(runtime=SimpleNamespace(memGetInfo=lambda: (1 << 30, 1 << 30))),
            get_default_memory_pool=lambda: gpu.pool,
        )

    def _stream(self) -> Any:
        stream = self.gpu.stream()

        def record(event: Any = None) -> Any:
            self.gpu.records += 1
            event = event or Event(self.gpu)
            event.stream, event.position = stream, len(stream.work)
            return event

        def wait(other: Any) -> None:
            source = other if hasattr(other, "work") else other.stream
            position = len(other.work) if source is other else other.position
            stream.put(lambda: source.run(position))

        stream.record, stream.wait = record, wait
        return stream

    def inside(self, lane: Any) -> Any:
        return lane

    def drain(self) -> None:
        for lane in (self.arriving, *self.computing, self.leaving):
            lane.sync()


def more(by: float = 1) -> Any:
    """A stage that adds `by` to an item in place."""

    def add(x: Any, stream: Any) -> Any:
        stream.put(lambda: seen(x).__iadd__(by))
        return x

    return add


def section(
    lanes: Lanes,
    source: Any,
    stages: list[Any],
    *,
    depth: int | None = None,
    lenient: bool = False,
    now: Callable[[], float] = lambda: 0.0,
) -> Section:
    upstream = source if hasattr(source, "take") else Reader(source, None)
    return Section(upstream, [device(stage) for stage in stages], lanes, depth, False, lenient, now)  # type: ignore[arg-type]


def results(node: Section) -> Iterator[Any]:
    """Parcels up to the end. Between two of them there are no more items in flight than the limit."""
    while (parcel := node.take(True)) is not END:
        assert len(node._flight) <= (node._limit or 1)
        yield parcel


def items(count: int) -> Iterator[np.ndarray]:
    for number in range(count):
        yield np.full(4, number, np.float32)


def test_quick_small_items_share_their_events_and_come_in_order(gpu: Quick) -> None:
    node = section(Lanes(gpu), items(200), [more(), more(2)])
    for number, parcel in enumerate(results(node)):
        assert parcel.number == number
        np.testing.assert_array_equal(parcel.value, np.full(4, number + 3))
    assert node._batch == 8
    assert gpu.records < 3 * (200 / 8 + 25)
    assert gpu.questions < 200 / 8 + 25
    assert gpu.allocations == node._lanes.computing * 16, "nothing keeps an item's memory"


def test_an_array_may_be_changed_once_the_next_item_is_read(gpu: Quick) -> None:
    def source() -> Iterator[np.ndarray]:
        one = np.zeros(4, np.float32)
        for number in range(100):
            one[:] = number
            yield one

    for number, parcel in enumerate(results(section(Lanes(gpu), source(), [more()]))):
        assert parcel.value[3] == number + 1


@pytest.mark.parametrize(
    ("slow", "clock", "size", "lanes", "depth"),
    [
        (True, 0, 4, 1, None),
        (False, 1, 4, 1, None),
        (False, 0, 1 << 15, 1, None),
        (False, 0, 4, 2, None),
        (False, 0, 4, 1, 3),
    ],
)
def test_what_is_slow_large_or_has_several_streams_has_events_of_its_own(
    gpu: Quick, slow: bool, clock: int, size: int, lanes: int, depth: int | None
) -> None:
    gpu.is_slow = slow
    times = iter(range(10**6))
    source = (np.full(size, number, np.float32) for number in range(60))
    node = section(Lanes(gpu, lanes), source, [more()], depth=depth, now=lambda: next(times) * clock)
    for number, parcel in enumerate(results(node)):
        assert parcel.value[3] == number + 1
        assert node._batch == 1
    assert gpu.records == 3 * 60


@pytest.mark.parametrize("device_is_slow", [True, False])
def test_a_device_or_source_that_becomes_slow_ends_the_batches(gpu: Quick, device_is_slow: bool) -> None:
    times = iter(range(10**6))
    is_slow = False
    node = section(Lanes(gpu), items(200), [more()], now=lambda: next(times) * (is_slow and not device_is_slow))
    sizes = []
    for parcel in results(node):
        is_slow = parcel.number >= 100
        gpu.is_slow = is_slow and device_is_slow
        sizes.append(node._batch)
    assert sizes[90] == 8
    assert sizes[-1] == 1


def test_what_is_not_there_yet_holds_nothing_back(gpu: Quick) -> None:
    class Upstream:
        """Items, and after each fifth nothing for now."""

        def __init__(self) -> None:
            self.items, self.count = items(100), 0

        def take(self, block: bool) -> Parcel:
            self.count += 1
            if not block and self.count % 6 == 0:
                return NOTHING
            number = next(self.items, None)
            return END if number is None else Parcel(number, int(number[0]))

    node = section(Lanes(gpu), Upstream(), [more()])
    count = 0
    while (parcel := node.take(False)) is not END:
        assert node._waiting == []
        if parcel is not NOTHING:
            assert (parcel.number, parcel.value[0]) == (count, count + 1)
            count += 1
    assert count == 100


@pytest.mark.parametrize("failing", [50, 51, 55, 57])
@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("where", ["arrival", "stage", "departure"])
def test_a_failure_within_a_batch_is_that_items(
    gpu: Quick, failing: int, lenient: bool, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(x: Any, stream: Any) -> Any:
        number = numbers.pop(0)
        if where == "stage" and number == failing:
            raise ValueError("this one")
        return more()(x, stream)

    numbers = list(range(100))
    source = (
        {} if where == "arrival" and number == failing else np.full(4, number, np.float32) for number in range(100)
    )
    if where == "arrival":
        numbers.remove(failing)
    node = section(Lanes(gpu), source, [fail], lenient=lenient)
    send, calls = node._outbound.send, iter(range(100))

    def refuse(buffers: Any, outgoing: Any) -> None:
        if where == "departure" and next(calls) == failing:
            raise MemoryError("this one")
        send(buffers, outgoing)

    monkeypatch.setattr(node._outbound, "send", refuse)
    found = {parcel.number: parcel for parcel in results(node)}
    last = 99 if lenient else failing
    assert list(found)[: last + 1] == list(range(last + 1))
    fate, stage = (
        found[failing].fate,
        {"arrival": "copy to the device", "stage": "fail", "departure": "copy from the device"},
    )
    assert isinstance(fate, Failure)
    assert (fate.stage, fate.final) == (stage[where], False)
    for number, parcel in found.items():
        assert number == failing or parcel.value[0] == number + 1
    assert len(found) == last + 1 or (where == "departure" and not lenient and len(found) <= failing + 8)
    node.close()


def test_events_that_cannot_be_recorded_end_the_run_and_no_memory_is_used_again(gpu: Quick) -> None:
    lanes = Lanes(gpu)
    node = section(lanes, items(100), [more()], lenient=True)
    record, calls = lanes.leaving.record, iter(range(1000))

    def refuse(event: Any = None) -> Any:
        if next(calls) > 20:
            raise RuntimeError("lost")
        return record(event)

    lanes.leaving.record = refuse
    found = list(results(node))
    fates = [parcel.fate for parcel in found]
    first = next(number for number, fate in enumerate(fates) if fate is not None)
    assert fates[:first] == [None] * first
    assert first > 20
    assert len(fates) - first > 1
    assert all(isinstance(fate, Failure) and fate.final for fate in fates[first:])
    assert len(fates) <= first + 8
    assert len(node._free) == len(node._sets) - (len(fates) - first)


def test_an_interrupted_source_leaves_what_was_taken_whole(gpu: Quick) -> None:
    def source() -> Iterator[np.ndarray]:
        yield from items(60)
        raise KeyboardInterrupt

    node = section(Lanes(gpu), source(), [more()])
    found: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(parcel.value[0] for parcel in results(node))
    assert found == list(range(1, len(found) + 1))
    assert node._waiting == []
    for parcel, buffers in node._flight:
        assert buffers is not None
        assert node._finish(parcel, buffers).value[0] == parcel.number + 1
    assert len(found) + len(node._flight) == 60
    node.close()


def test_a_stage_keeps_what_it_was_given_and_what_it_returned(gpu: Quick) -> None:
    kept: list[Any] = []

    def keep(x: Any, stream: Any) -> Any:
        y = x.copy()
        kept.append((x, y))
        return more(10)(y, stream)

    lanes = Lanes(gpu)
    for number, parcel in enumerate(results(section(lanes, items(100), [keep]))):
        assert parcel.value[0] == number + 10
    lanes.drain()
    assert [(seen(x)[0], seen(y)[0]) for x, y in kept] == [(number, number + 10) for number in range(100)]


def test_results_of_one_item_come_together_among_others(gpu: Quick) -> None:
    def parts(x: Any, stream: Any) -> Iterator[Any]:
        for by in range(sizes.pop(0)):
            yield more(by)(x.copy(), stream)

    sizes = [number % 4 for number in range(80)]
    expected = [number + by for number, count in enumerate(list(sizes)) for by in range(count)]
    found = list(results(section(Lanes(gpu), items(80), [parts])))
    assert [parcel.value[0] for parcel in found if parcel.fate is None] == expected
    assert {parcel.fate for parcel in found} == {None, Gone.SPLIT, Gone.DROPPED}


@pytest.mark.parametrize("seed", range(25))
def test_any_items_in_any_turn(gpu: Quick, seed: int) -> None:
    """Shapes, dtypes, tuples, failures, pauses, and a clock and a device that are quick or slow by chance."""
    rng = random.Random(seed)

    def item(number: int) -> Any:
        shape = rng.choice([4, 4, 4, (2, 3), 0, 5000])
        array = np.full(shape, number, rng.choice([np.float32, np.float32, np.int64]))
        return rng.choice([array, array, array, (array, number), {"x": array, "y": np.full(3, number, np.int16)}])

    def stage(value: Any, stream: Any) -> Any:
        if number_of_call.pop(0) in failing:
            raise ValueError("this one")
        way = rng.random()
        if type(value) is not DeviceArray or not value.size:
            return value
        if way < 0.2:
            kept.append(value)
        return more()(value.copy() if way > 0.7 else value, stream)

    class Upstream:
        def __init__(self) -> None:
            self.left = list(enumerate(given))

        def take(self, block: bool) -> Parcel:
            gpu.is_slow = rng.random() < 0.1
            if not block and rng.random() < 0.1:
                return NOTHING
            if not self.left:
                return END
            number, value = self.left.pop(0)
            return Parcel(value, number)

    kept: list[Any] = []
    given = [item(number) for number in range(150)]
    failing = {number for number in range(150) if rng.random() < 0.02}
    number_of_call = list(range(150))
    clock = iter(np.cumsum([rng.random() < 0.05 for _ in range(10**4)]).tolist())
    depth = rng.choice([None, None, 1, 2, 5, 16])
    node = section(Lanes(gpu), Upstream(), [stage], depth=depth, lenient=True, now=lambda: next(clock))
    count = 0
    while (parcel := node.take(rng.random() < 0.7)) is not END:
        if parcel is NOTHING:
            continue
        assert parcel.number == count
        assert (parcel.fate is not None) == (count in failing)
        if parcel.fate is None:
            value, source = parcel.value, given[count]
            assert type(value) is type(source)
            if isinstance(source, np.ndarray):
                assert (value.shape, value.dtype) == (source.shape, source.dtype)
                np.testing.assert_array_equal(value, source + 1)
            elif isinstance(source, tuple):
                assert value[1] == count
                np.testing.assert_array_equal(value[0], source[0])
            else:
                np.testing.assert_array_equal(value["y"], np.full(3, count))
        count += 1
    assert count == 150
    node.close()
