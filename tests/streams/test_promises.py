"""What the documents promise of streams and their order, tried in the ways in which it could be false."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.places import SLOW, another, to_host

import cudakit as ck
from cudakit import ops
from cudakit.streams.order import order

ADD = ck.Kernel("""
__global__ void add(float* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by;
}
""")
COUNT = ck.Module("__device__ int count; __global__ void step() { count += 1; }")
#: Long enough for the host to come first, some 20 ms.
CYCLES = 40_000_000
N = 32


def add(stream: Any, x: Any, by: float = 1.0) -> None:
    ADD(stream, ck.config(1, N), x, by, x.size)


@pytest.fixture
def second(stream: Any) -> Iterator[Any]:
    made = another(stream)
    yield made
    made.sync()


@pytest.fixture
def x(stream: Any) -> Any:
    made = ck.to_device(np.zeros(N, np.float32), stream)
    stream.sync()
    return made


# ── a race is an error, always ───────────────────────────────────────────────────────────────────────────────────────

VIEWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "slice": lambda x: x[4:],
    "reversed": lambda x: x[::-1],
    "as_strided": lambda x: np.lib.stride_tricks.as_strided(x, (N,), (4,)),
    "sliding_window_view": lambda x: np.lib.stride_tricks.sliding_window_view(x, 4),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, N)),
    "memoryview": lambda x: np.asarray(memoryview(x)),
    "DLPack": lambda x: np.from_dlpack(x),
}


@pytest.mark.emulator
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_of_the_moment_hides_no_race(stream: Any, second: Any, x: np.ndarray, view: Any) -> None:
    with ck.hazards.manual():
        add(stream, x)
        seen = view(x)
        ck.to_host(seen, stream, out=np.empty(seen.shape, seen.dtype), wait=False)
        del seen
        with pytest.raises(ck.EmulationError, match="race"):
            add(second, x)


@pytest.mark.emulator
@pytest.mark.parametrize("view", [VIEWS["slice"], VIEWS["as_strided"], VIEWS["memoryview"]])
def test_two_views_of_the_moment_race(stream: Any, second: Any, x: np.ndarray, view: Any) -> None:
    with ck.hazards.manual():
        add(stream, view(x))
        with pytest.raises(ck.EmulationError, match="race"):
            add(second, view(x))


@pytest.mark.emulator
def test_new_arrays_where_others_were_race_with_nothing(stream: Any, second: Any) -> None:
    for _ in range(20):
        x = ck.empty(1024, np.float32)
        with ck.hazards.manual():
            add(stream, x)
            del x
            x = ck.empty(1024, np.float32)
            add(second, x)
            add(stream, np.zeros(1024, np.float32))


@pytest.mark.emulator
def test_streams_that_are_gone_race_and_their_events_order(stream: Any, x: np.ndarray) -> None:
    with ck.hazards.manual():
        gone = another(stream)
        add(gone, x)
        event = gone.record()
        del gone
        gc.collect()
        other = another(stream)
        with pytest.raises(ck.EmulationError, match="race"):
            add(stream, x)
        other.wait(event)
    with ck.hazards.manual():
        fresh = np.zeros(N, np.float32)
        gone = another(stream)
        add(gone, fresh)
        event = gone.record()
        del gone
        gc.collect()
        stream.wait(event)
        add(stream, fresh)


@pytest.mark.emulator
@pytest.mark.parametrize("written", [False, True])
def test_a_variable_that_is_copied_on_a_stream_races(stream: Any, second: Any, written: bool) -> None:
    COUNT["step"](second, ck.config(1, 1))

    def copy() -> None:
        if written:
            COUNT.globals.write("count", 5, stream)
        else:
            COUNT.globals.read("count", stream)

    with pytest.raises(ck.EmulationError, match="a variable's"):
        copy()
    second.sync()
    copy()
    assert (COUNT.globals["count"] == 5) == written


@pytest.mark.emulator
def test_a_texture_that_copies_has_waited_for_all(stream: Any, second: Any, x: np.ndarray) -> None:
    with ck.hazards.manual():
        add(stream, x)
        ck.texture(x)
        add(second, x)
        ck.surface(x.reshape(4, 8))
        add(stream, x)


@pytest.mark.emulator
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_races_are_found_in_a_forked_child(stream: Any, second: Any, x: np.ndarray) -> None:
    with ck.capture(stream) as graph:
        add(stream, x)
    child = os.fork()
    if child == 0:
        found = 1
        try:
            with ck.hazards.manual():
                graph.launch()
                try:
                    add(second, x)
                except ck.EmulationError:
                    found = 0
        finally:
            os._exit(found)
    assert os.waitpid(child, 0)[1] == 0


# ── no more waits than are needed, and what that means ──────────────────────────────────────────────────────────────


def test_columns_of_one_array_count_as_one(stream: Any, second: Any, xp: Any) -> None:
    plus = ck.Kernel("""
    #include <cudakit/strided.cuh>
    __global__ void plus(cudakit::strided<float, 1> x) { x(threadIdx.x) += 1; }
    """)
    x = xp.zeros((N, 2), dtype=xp.float32)
    with ck.hazards.trace() as report:
        plus(stream, ck.config(1, N), x[:, 0])
        plus(second, ck.config(1, N), x[:, 1])
        plus(stream, ck.config(1, N // 2), x[: N // 2, 0])
        plus(second, ck.config(1, N // 2), x[N // 2 :, 0])
    assert not report.missing
    second.sync()
    stream.sync()
    np.testing.assert_array_equal(to_host(x)[:, 1], 1)
    np.testing.assert_array_equal(to_host(x)[:, 0], 2)


# ── which stream is the current one ──────────────────────────────────────────────────────────────────────────────────


def test_what_names_no_stream_goes_to_that_of_using(stream: Any, second: Any, x: Any) -> None:
    with ck.hazards.manual(), ck.using(stream):
        with ck.using(second):
            other = ck.to_device(np.ones(N, np.float32))
            add(second, other)
            assert float(ops.sum(other)) == 2 * N
        add(stream, x)
        assert float(ops.sum(x)) == N
        assert (ck.to_host(x) == 1).all()


def test_blocks_of_using_may_end_in_any_order(stream: Any, second: Any, x: Any) -> None:
    def block(given: Any) -> Iterator[None]:
        with ck.using(given):
            yield

    if isinstance(stream, ck.emulator.EmulatedStream):
        first, other = block(second), block(stream)
        next(first), next(other)
        first.close()
        with ck.hazards.manual():
            add(stream, x)
            ops.sum(x)
        other.close()


def test_each_thread_has_a_current_stream_of_its_own(stream: Any, xp: Any) -> None:
    results: dict[int, float] = {}
    failures: list[BaseException] = []
    barrier = threading.Barrier(3)

    def work(number: int) -> None:
        try:
            own = another(stream)
            with ck.using(own):
                barrier.wait()
                x = ck.to_device(np.full(N, number, np.float32))
                with ck.hazards.manual():
                    add(own, x)
                    results[number] = float(ops.sum(x))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert results == {number: N * (number + 1.0) for number in range(3)}


def test_an_error_ends_using(stream: Any, second: Any, x: Any) -> None:
    def fail() -> None:
        with ck.using(second):
            add(second, x)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with ck.hazards.manual(), ck.using(stream):
        stream.wait(second)
        add(stream, x)
        assert float(ops.sum(x)) == 2 * N


# ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_reports_of_two_threads_end_in_any_order(stream: Any, second: Any, x: Any) -> None:
    first, other = ck.hazards.trace(), ck.hazards.trace()
    first.__enter__()
    report = other.__enter__()
    first.__exit__(None, None, None)
    add(stream, x)
    add(second, x)
    assert any(found.kind == "write after write" for found in report.dependencies)
    assert report.missing == ()
    other.__exit__(None, None, None)
    assert not order().is_special
    count = len(report.dependencies)
    add(stream, x)
    assert len(report.dependencies) == count


def test_manual_ends_with_the_last_of_its_blocks_and_by_an_error(stream: Any, second: Any, x: Any) -> None:
    first, other = ck.hazards.manual(), ck.hazards.manual()
    first.__enter__()
    other.__enter__()
    first.__exit__(None, None, None)
    assert order().manual_blocks
    other.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert not order().manual_blocks
    add(stream, x)
    add(second, x)
    second.sync()
    assert (to_host(x) == 2).all()


# ── on a GPU alone ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def slow() -> ck.Kernel:
    return ck.Kernel(SLOW)


@pytest.mark.gpu
def test_memory_that_a_graph_alone_holds_outlives_its_launch(stream: Any, second: Any, xp: Any, slow: Any) -> None:
    y = xp.zeros(N, dtype=xp.float32)
    stream.sync()
    with ck.capture(second) as graph:
        x = xp.full(N, 5, dtype=xp.float32)
        slow(second, ck.config(1, N), x, CYCLES)
        ck.math.add(x, 0.0, out=y)
    graph.launch(second)
    del graph, x
    gc.collect()
    fresh = [xp.full(N, 9, dtype=xp.float32) for _ in range(8)]
    second.sync()
    assert (to_host(y) == 6).all(), fresh


@pytest.mark.gpu
def test_an_event_outlives_its_stream(stream: Any, xp: Any, slow: Any) -> None:
    x = xp.zeros(N, dtype=xp.float32)
    gone = ck.stream()
    slow(gone, ck.config(1, N), x, CYCLES)
    event = gone.record()
    gone.close()
    with ck.hazards.manual():
        stream.wait(event)
        add(stream, x)
    stream.sync()
    assert (to_host(x) == 2).all()


@pytest.mark.gpu
def test_a_closed_stream_is_an_error_of_ours(stream: Any, x: Any) -> None:
    closed = ck.stream()
    for _ in range(4):  # so that it goes straight to the driver
        add(closed, x)
    closed.sync()
    closed.close()
    for use in (lambda: add(closed, x), lambda: ck.to_host(x, closed), lambda: ck.to_device(np.zeros(4), closed)):
        with pytest.raises(ck.CudakitError):
            use()
    add(stream, x)
    assert (to_host(x) == 5).all()


@pytest.mark.gpu
def test_the_default_streams_are_streams(stream: Any, xp: Any, slow: Any) -> None:
    from cupy.cuda import Stream

    x = xp.zeros(N, dtype=xp.float32)
    stream.sync()
    for given in (Stream.null, Stream.ptds):
        slow(given, ck.config(1, N), x, CYCLES)
        add(stream, x)
        with ck.using(given):
            x += 1
        add(stream, x)
    stream.sync()
    assert (to_host(x) == 8).all()


@pytest.mark.gpu
def test_a_capture_that_cupy_began_spoils_no_order(stream: Any, xp: Any, slow: Any) -> None:
    from cupy.cuda import Stream

    x, y = xp.zeros(N, dtype=xp.float32), xp.zeros(N, dtype=xp.float32)
    stream.sync()
    captured = Stream(non_blocking=True)
    with captured:
        add(captured, y)  # known, and compiled
        captured.synchronize()
        captured.begin_capture()
        add(captured, y)
        graph = captured.end_capture()
    graph.launch(captured)
    captured.synchronize()
    for _ in range(3):
        slow(stream, ck.config(1, N), x, CYCLES // 10)
        add(captured, x)
        add(stream, y)
    stream.sync()
    captured.synchronize()
    assert (to_host(x) == 6).all()
    assert (to_host(y) == 5).all()


@pytest.mark.gpu
def test_what_a_capture_of_cupy_cannot_wait_for_is_refused_and_not_forgotten(stream: Any, xp: Any, slow: Any) -> None:
    from cupy.cuda import Stream

    x = xp.zeros(N, dtype=xp.float32)
    stream.sync()
    captured = Stream(non_blocking=True)
    with captured:
        add(captured, x)
        slow(stream, ck.config(1, N), x, CYCLES)
        captured.begin_capture()
        with pytest.raises(ck.LaunchError):
            add(captured, x)
        with contextlib.suppress(Exception):  # the driver has broken it off
            captured.end_capture()
        add(captured, x)
        captured.synchronize()
    assert (to_host(x) == 3).all()
