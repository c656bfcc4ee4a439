"""`ck.Pipeline`: what goes in comes out, in order, worked on by each stage, with no more under way than was said."""

from __future__ import annotations

import asyncio
import io
import queue
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from places import to_host

import cudakit as ck
from cudakit import pipeline as lines
from cudakit import work
from cudakit.pipeline.progress import Progress

ADD = """
__global__ void add(const float* x, float* y, float what, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] + what;
}
"""
SMOOTH = """
// y[i, :] = x[i − 1, :] + x[i, :] + x[i + 1, :], rows repeated at the ends.
__global__ void smooth(const float* x, float* y, int rows, int columns) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns; i += gridDim.x * blockDim.x) {
        const int row = i / columns, column = i % columns;
        y[i] = x[max(row - 1, 0) * columns + column] + x[i] + x[min(row + 1, rows - 1) * columns + column];
    }
}
"""


def adding(xp: Any, what: float) -> Any:
    kernel = ck.Kernel(ADD)

    def add(x: Any, stream: Any) -> Any:
        y = xp.empty_like(x)
        kernel(stream, ck.config(1, 64), x, y, what, x.size)
        return y

    return add


def items(count: int, size: int = 8) -> list[np.ndarray]:
    return [np.full(size, number, np.float32) for number in range(count)]


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


def test_several_streams_keep_the_order(stream: Any, xp: Any) -> None:
    pipeline = ck.Pipeline([adding(xp, 1), adding(xp, 2)], stream=stream, streams=3, depth=6)
    assert [float(result[0]) for result in pipeline(items(25))] == [number + 3 for number in range(25)]


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
def test_a_race_would_be_seen(stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: without one of the waits there is a race."""
    monkeypatch.setattr(type(stream), "wait", lambda *_: None)
    with ck.hazards.manual(), pytest.raises(ck.PipelineError) as caught:
        list(ck.Pipeline([adding(xp, 1)], stream=stream, depth=3)(items(9)))
    assert isinstance(caught.value.__cause__, ck.EmulationError)
    assert "neither comes first" in str(caught.value.__cause__)


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


# ── arrays in chunks ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", [1, 2, 99, 100, 101])
@pytest.mark.parametrize("chunk", [1, 7, 100, None])
def test_map_array(stream: Any, xp: Any, rows: int, chunk: int | None) -> None:
    array = np.random.default_rng(rows).random((rows, 5), np.float32)
    result = ck.Pipeline([adding(xp, 1)], stream=stream).map_array(array, chunk=chunk)
    np.testing.assert_array_equal(result, array + np.float32(1))


@pytest.mark.parametrize("chunk", [1, 2, 10, 64])
def test_a_stencil_with_a_halo_sees_no_chunks(stream: Any, xp: Any, chunk: int) -> None:
    kernel = ck.Kernel(SMOOTH)

    def smooth(x: Any, stream: Any) -> Any:
        y = xp.empty_like(x)
        kernel(stream, ck.config(2, 64), x, y, *x.shape)
        return y

    array = np.random.default_rng(0).random((64, 3), np.float32)
    padded = np.pad(array, ((1, 1), (0, 0)), mode="edge")
    expected = padded[:-2] + padded[1:-1] + padded[2:]
    pipeline = ck.Pipeline([smooth], stream=stream)
    np.testing.assert_allclose(pipeline.map_array(array, chunk=chunk, halo=1), expected, rtol=1e-6)
    if chunk < 64:
        without = pipeline.map_array(array, chunk=chunk)
        assert not np.allclose(without, expected)


def test_map_array_between_files(stream: Any, xp: Any, tmp_path: Any) -> None:
    array = np.arange(4000, dtype=np.float32).reshape(400, 10)
    np.save(tmp_path / "in.npy", array)
    pipeline = ck.Pipeline([adding(xp, 1)], stream=stream)
    found = pipeline.map_array(tmp_path / "in.npy", tmp_path / "out.npy", chunk=33)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), array + 1)
    mapped = np.lib.format.open_memmap(tmp_path / "map.npy", mode="w+", dtype=np.float32, shape=array.shape)
    pipeline.map_array(array, mapped, chunk=33)
    np.testing.assert_array_equal(mapped, array + 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "map.npy", "out.npy"]


def test_map_array_in_place_and_empty(stream: Any, xp: Any) -> None:
    array = np.arange(100, dtype=np.float32)
    pipeline = ck.Pipeline([adding(xp, 1)], stream=stream)
    assert pipeline.map_array(array, array, chunk=9) is array
    np.testing.assert_array_equal(array, np.arange(1, 101))
    empty = ck.Pipeline([lambda x, _: x.astype(np.int8)], stream=stream).map_array(np.empty((0, 4)))
    assert empty.shape == (0, 4)
    assert empty.dtype == np.int8


def test_map_array_says_what_does_not_fit(stream: Any, xp: Any, tmp_path: Any) -> None:
    array = np.zeros((20, 3), np.float32)
    same = ck.Pipeline([lambda x, _: x], stream=stream)
    with pytest.raises(ck.ArgumentError, match=r"given 7 rows and returned \(3,\)"):
        ck.Pipeline([lambda x, _: x.sum(0)], stream=stream).map_array(array, tmp_path / "sums.npy", chunk=7)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ck.ArgumentError, match=r"out is \(20, 4\) of float32; the stages give \(20, 3\)"):
        same.map_array(array, np.zeros((20, 4), np.float32))
    with pytest.raises(ck.ArgumentError, match="out cannot be the array itself"):
        same.map_array(array, array, chunk=4, halo=1)
    with pytest.raises(ck.ArgumentError, match="out is a writeable NumPy array or a path, got list"):
        same.map_array(array, [])
    with pytest.raises(ck.ArgumentError, match="rows is a number from 1 up, got 0"):
        same.map_array(array, chunk=0)
    with pytest.raises(ck.ArgumentError, match="expected a NumPy array with rows"):
        same.map_array(3)


# ── what is said, and to whom ────────────────────────────────────────────────────────────────────────────────────────


def test_progress_shows_how_far_it_is() -> None:
    output, clock = io.StringIO(), iter(range(100))
    progress = Progress(4, output, lambda: float(next(clock)))
    for _ in range(3):
        progress.add()
    progress.close()
    progress.close()
    text = output.getvalue()
    assert "\r█████··············· 1/4" in text
    assert text.endswith("/s\n")
    assert text.count("\n") == 1


def test_a_pipeline_with_progress_writes_to_standard_error(stream: Any, capfd: pytest.CaptureFixture[str]) -> None:
    list(ck.Pipeline([lambda x, _: x], stream=stream, progress=True)(items(12)))
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "12/12" in shown.err


def test_witnesses_hear_of_host_stages_and_copies(stream: Any, xp: Any) -> None:
    class Listener(work.Witness):
        def __init__(self) -> None:
            self.heard: list[work.Work] = []

        def begin(self, told: work.Work) -> None:
            self.heard.append(told)

    listener = Listener()
    add = adding(xp, 1)
    with work.witnessing(listener):
        list(ck.Pipeline([lines.host(lambda x: x, name="decode"), add], stream=stream)(items(3)))
    kinds = [(told.kind, told.name) for told in listener.heard]
    assert kinds.count(("host", "decode")) == 3
    assert kinds.count(("copy", "copy_in")) == 3
    assert kinds.count(("copy", "copy_out")) == 3
    assert sum(kind == "kernel" for kind, _ in kinds) == 3


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


def test_an_asynchronous_source_is_refused() -> None:
    async def source() -> Any:
        yield 1

    with pytest.raises(ck.ArgumentError, match="the source is an asynchronous one"):
        ck.Pipeline([lines.host(len)])(source())


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
