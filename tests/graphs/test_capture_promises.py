"""What the documents promise of graphs, tried in the ways in which it could be false."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.places import another, to_host

import cudakit as ck
from cudakit import ops

ADD = ck.Kernel("""
__global__ void add(float* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by;
}
""")
COUNTDOWN = ck.Kernel("__global__ void countdown(int* flag, float* y) { y[0] += 1; flag[0] -= 1; }")
COUNT = ck.Module("__device__ int count; __global__ void step() { count += 1; }")
BOTH = ck.Kernel("__global__ void both(unsigned char a, float b, float* x) { x[0] += a + b; }")
POINTED = ck.Kernel("""
struct Pointed { float* x; float by; };
__global__ void pointed(Pointed p) { p.x[threadIdx.x] += p.by; }
""")
FETCH = ck.Kernel("""
__global__ void fetch(cudaTextureObject_t t, float* y) { y[threadIdx.x] += tex1Dfetch<float>(t, threadIdx.x); }
""")
WRITE = ck.Kernel(
    "__global__ void write(cudaSurfaceObject_t s) { surf2Dwrite(1.0f, s, 4 * threadIdx.x, threadIdx.y); }"
)
N = 32
ONE = ck.config(1, N)


def add(stream: Any, x: Any, by: Any = 1.0) -> None:
    ADD(stream, ONE, x, by, x.size)


def made(stream: Any, value: float = 0.0) -> Any:
    return ck.to_device(np.full(N, value, np.float32), stream)


def address(x: Any) -> int:
    return int(x.ctypes.data if isinstance(x, np.ndarray) else x.data.ptr)


@pytest.fixture
def x(stream: Any) -> Any:
    return made(stream)


@pytest.fixture
def flag(stream: Any) -> Any:
    return ck.to_device(np.array([2], np.int32), stream)


@pytest.fixture
def pinned(stream: Any) -> Iterator[np.ndarray]:
    yield ck.empty(N, np.float32, kind="pinned")
    stream.sync()


# ── what cannot be captured raises ───────────────────────────────────────────────────────────────────────────────────


def test_an_error_in_a_body_that_is_caught_leaves_no_graph(stream: Any, flag: Any, x: Any) -> None:
    def record() -> None:
        with ck.capture(stream) as graph:
            try:
                with graph.loop(flag) as inner:
                    COUNTDOWN(inner, ck.config(1, 1), flag, x)
                    raise ValueError("half way")
            except ValueError:
                pass

    with pytest.raises(ck.LaunchError, match=r"ended with an error .*ValueError: half way"):
        record()
    add(stream, x)
    assert (to_host(x) == 1).all()


@pytest.mark.emulator
def test_an_event_of_a_capture_that_has_ended_is_refused(stream: Any, x: Any) -> None:
    with ck.capture(stream):
        add(stream, x)
        event = stream.record()
    second = another(stream)
    with pytest.raises(ck.LaunchError, match="has ended"):
        second.wait(event)
    add(second, x)
    assert x[0] == 1


@pytest.mark.emulator
def test_an_event_of_a_capture_has_no_time(stream: Any, x: Any) -> None:
    with ck.capture(stream):
        begin = stream.record()
        add(stream, x)
        end = stream.record()
    for ask in (lambda: end - begin, lambda: end.step, lambda: end.is_done, end.sync):
        with pytest.raises(ck.LaunchError, match="nothing runs before the graph is launched"):
            ask()
    assert repr(end) == "<EmulatedEvent of a capture>"


def test_an_event_that_exists_is_recorded_in_a_capture(stream: Any, x: Any) -> None:
    second, event = another(stream), stream.record()
    with ck.capture(stream) as graph:
        add(stream, x)
        assert stream.record(event) is event
        second.wait(event)
        add(second, x)
        stream.wait(second.record())
    graph.launch()
    assert (to_host(x) == 2).all()


@pytest.mark.emulator
def test_captures_that_would_join_are_refused(stream: Any, x: Any) -> None:
    second, y = another(stream), np.zeros(N, np.float32)
    with ck.capture(stream), ck.capture(second) as graph:
        add(second, y)
        with pytest.raises(ck.LaunchError, match="joins two captures"):
            second.wait(stream.record())
    graph.launch()
    assert (y == 1).all()


@pytest.mark.emulator
@pytest.mark.parametrize("inwards", [False, True])
def test_a_body_and_its_outside_wait_for_no_event_of_each_other(stream: Any, flag: Any, x: Any, inwards: bool) -> None:
    with ck.capture(stream) as graph:
        outer = stream.record()
        with graph.loop(flag) as inner:
            COUNTDOWN(inner, ck.config(1, 1), flag, x)
            event = inner.record()
            if inwards:
                with pytest.raises(ck.LaunchError, match="outside of it"):
                    inner.wait(outer)
        if not inwards:
            with pytest.raises(ck.LaunchError, match="outside of it"):
                stream.wait(event)
    graph.launch()
    assert x[0] == 2


def test_the_stream_of_another_body_is_refused(stream: Any, flag: Any, x: Any) -> None:
    def record() -> None:
        with ck.capture(stream) as graph:
            with graph.loop(flag) as first:
                COUNTDOWN(first, ck.config(1, 1), flag, x)
            with graph.loop(flag):
                COUNTDOWN(first, ck.config(1, 1), flag, x)

    with pytest.raises(ck.LaunchError):
        record()


def test_work_in_a_body_that_is_not_joined_is_refused(stream: Any, flag: Any, x: Any) -> None:
    second, y = another(stream), made(stream)

    def record() -> None:
        with ck.capture(stream) as graph, graph.loop(flag) as inner:
            second.wait(inner.record())
            add(second, y)
            COUNTDOWN(inner, ck.config(1, 1), flag, x)

    with pytest.raises(ck.LaunchError, match="not joined"):
        record()


@pytest.mark.parametrize("what", ["loop", "branch"])
def test_a_flag_is_one_number(stream: Any, xp: Any, what: str) -> None:
    with pytest.raises(ck.ArgumentError, match="one element, got shape"), ck.capture(stream) as graph:  # noqa: SIM117
        with getattr(graph, what)(xp.ones(3, dtype=xp.int32)):
            pass
    if xp is np:
        for dtype in ("M8[s]", "S1", [("a", "i4")], ">i4"):
            with pytest.raises(ck.ArgumentError, match="the flag"), ck.capture(stream) as graph:  # noqa: SIM117
                with getattr(graph, what)(np.zeros(1, dtype)):
                    pass


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", "f8", "c8"])
def test_a_flag_is_of_any_numbers_dtype(stream: Any, xp: Any, x: Any, dtype: str) -> None:
    flag = xp.ones(1, dtype=dtype)
    with ck.capture(stream) as graph, graph.branch(flag) as inner:
        add(inner, x)
    graph.launch()
    flag[...] = 0
    graph.launch()
    assert (to_host(x) == 1).all()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_variables_are_refused_in_a_capture(stream: Any, named: bool, written: bool) -> None:
    COUNT.globals["count"] = 0
    COUNT["step"](stream, ck.config(1, 1))

    def record() -> None:
        where = (stream,) if named else ()
        with ck.capture(stream):
            COUNT["step"](stream, ck.config(1, 1))
            if written:
                COUNT.globals.write("count", 7, *where)
            else:
                COUNT.globals.read("count", *where)

    with pytest.raises(ck.LaunchError):
        record()
    assert COUNT.globals["count"] == 1


def test_copies_of_memory_that_is_not_pinned_are_refused(stream: Any, x: Any) -> None:
    host = np.ones(N, np.float32)
    for copy in (lambda: ck.to_device(host, stream, out=x), lambda: ck.to_host(x, stream, out=host, wait=False)):
        with pytest.raises(ck.LaunchError, match="pinned"), ck.capture(stream):
            copy()


def test_copies_as_of_now_are_refused(stream: Any, x: Any) -> None:
    def record(make: Callable[[Any], Any]) -> None:
        with ck.capture(stream):
            add(stream, x)
            make(x)

    for make in (ck.texture, ck.surface):
        with pytest.raises(ck.LaunchError):
            record(make)


@pytest.mark.emulator
def test_a_graph_of_another_arch_is_refused(stream: Any, x: Any) -> None:
    with ck.capture(stream) as graph:
        add(stream, x)
    with pytest.raises(ck.LaunchError, match="captured on the emulator's sm_90, the stream is of sm_80"):
        graph.launch(ck.emulator.stream("sm_80"))
    assert x[0] == 0


# ── what is captured is what runs ────────────────────────────────────────────────────────────────────────────────────


def test_ops_that_name_no_stream_are_captured(stream: Any, xp: Any, x: Any, flag: Any) -> None:
    total, once = xp.zeros((), dtype=xp.float32), xp.zeros((), dtype=xp.float32)
    with ck.capture(stream) as graph:
        add(stream, x)
        ops.sum(x, out=total)
        with graph.branch(flag):
            ops.sum(x, out=once)
    assert to_host(total) == 0
    graph.launch()
    assert to_host(total) == to_host(once) == N


def test_results_of_another_dtype_are_captured(stream: Any, xp: Any, x: Any) -> None:
    dot = ck.reduction("T x, T y", "T out", map="x * y", reduce="a + b", identity="0", name="dot")
    running = ck.scan("T x", "T y", map="x", reduce="a + b", identity="0", output="y = item", name="running")
    partly = ck.scan("T x", "T y", map="x", reduce="a + b", identity="0", output="if (x > 1) y = item", name="partly")
    square, sums = xp.zeros((), dtype=xp.float64), xp.zeros((4, N // 4), dtype=xp.float64)
    with ck.capture(stream) as graph:
        dot(x, x, out=square, stream=stream)
        running(x.reshape(4, -1), axis=1, out=sums, stream=stream)
        nothing = partly(x, stream=stream)
    add(stream, x)
    nothing[...] = 7
    graph.launch()
    assert (to_host(nothing) == 0).all()
    assert to_host(square) == N
    np.testing.assert_array_equal(to_host(sums), np.broadcast_to(np.arange(1, N // 4 + 1), sums.shape))


def test_textures_and_surfaces_are_captured(stream: Any, x: Any) -> None:
    texture, surface, y = ck.texture(x, memory="linear"), ck.surface(x.reshape(4, 8)), made(stream)
    with ck.capture(stream, y=y) as graph:
        FETCH(stream, ONE, texture, y)
        WRITE(stream, ck.config(1, (8, 4)), surface)
    add(stream, x)
    graph.launch()
    result = np.zeros((4, 8), np.float32)
    ck.memory.copy(result, surface, stream)
    stream.sync()
    assert (to_host(y) == 1).all()
    assert (result == 1).all()


# ── named arguments ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_addresses_of_a_named_array_are_changed_wherever_they_stand(stream: Any, x: Any) -> None:
    layout = np.dtype([("x", np.uint64), ("by", np.float32)], align=True)
    pointed = np.array((address(x) + 4, 1.0), layout)[()]
    y = made(stream)
    with ck.capture(stream, x=x) as graph:
        POINTED(stream, ck.config(1, N - 1), pointed)
        ADD(stream, ONE, ctypes.c_void_p(address(x) + 8), 2.0, N - 2)
    graph(stream, x=y)
    assert (to_host(x) == 0).all()
    np.testing.assert_array_equal(to_host(y)[:4], [0, 1, 3, 3])


def test_a_texture_of_a_named_array_is_refused(stream: Any, x: Any) -> None:
    texture = ck.texture(x, memory="linear")

    def record() -> None:
        with ck.capture(stream, x=x):
            add(stream, x)
            FETCH(stream, ONE, texture, x)

    with pytest.raises(ck.ArgumentError, match="texture of x, which holds"):
        record()


def test_what_is_written_is_not_exchanged_for_a_read_only_array(stream: Any, x: Any, pinned: np.ndarray) -> None:
    with ck.capture(stream, target=pinned) as graph:
        ck.to_host(x, stream, out=pinned, wait=False)
    fixed = ck.empty(N, np.float32, kind="pinned")
    fixed[:] = 5
    fixed.flags.writeable = False
    with pytest.raises(ck.ArgumentError, match="target is written by the graph"):
        graph(stream, target=fixed)
    stream.sync()
    assert (fixed == 5).all()


@pytest.mark.parametrize("value", [300, -1, 2.5, 1e39, float("nan"), "a", None, np.float32(2)])
def test_a_change_that_is_refused_changes_nothing(stream: Any, x: Any, value: Any) -> None:
    y = made(stream)
    with ck.capture(stream, x=x, a=1) as graph:
        BOTH(stream, ck.config(1, 1), graph["a"], 0.0, x)
        BOTH(stream, ck.config(1, 1), 1, graph["a"], x)
    with pytest.raises(ck.ArgumentError):
        graph(stream, x=y, a=value)
    assert (to_host(x) == 0).all()
    assert (to_host(y) == 0).all()
    graph.launch()
    assert to_host(x)[0] == 3


def test_named_arrays_are_exchanged_for_each_other(stream: Any, x: Any) -> None:
    y = made(stream, 1)
    with ck.capture(stream, x=x, y=y) as graph:
        add(stream, x, 2.0)
        add(stream, y, 5.0)
    graph(stream, x=y, y=x)
    assert (to_host(x)[0], to_host(y)[0]) == (5, 3)
    graph(stream, y=y)
    assert (to_host(x)[0], to_host(y)[0]) == (5, 10)


def test_a_graph_in_a_graph_keeps_its_own_arguments(stream: Any, x: Any) -> None:
    y, z = made(stream), made(stream)
    with ck.capture(stream, x=x, by=1.0) as inner:
        ADD(stream, ONE, x, inner["by"], N)
    with ck.capture(stream, y=y) as outer:
        inner(stream, x=y, by=2.0)
    inner(stream, x=x, by=7.0)
    outer(stream, y=z)
    assert (to_host(x)[0], to_host(y)[0], to_host(z)[0]) == (7, 0, 2)


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.emulator
def test_the_host_waits_for_no_loop(stream: Any, flag: Any, x: Any) -> None:
    second = another(stream)
    with ck.capture(stream) as graph, graph.loop(flag) as inner:
        COUNTDOWN(inner, ck.config(1, 1), flag, x)
    with ck.hazards.manual():
        graph.launch()
        with pytest.raises(ck.EmulationError, match="race"):
            add(second, x)


@pytest.mark.emulator
def test_a_flag_that_another_stream_writes_is_a_race(stream: Any, x: Any) -> None:
    second, flag = another(stream), np.zeros(1, np.float32)
    with ck.capture(stream) as graph, graph.loop(flag) as inner:
        add(inner, x)
    with ck.hazards.manual():
        add(second, flag, 0.0)
        with pytest.raises(ck.EmulationError, match="the flag of a loop"):
            graph.launch()


@pytest.mark.emulator
def test_a_copy_that_races_inside_a_graph_is_found(stream: Any, x: Any, pinned: np.ndarray) -> None:
    second = another(stream)
    with ck.capture(stream) as graph:
        second.wait(stream.record())
        add(stream, x)
        ck.to_host(x, second, out=pinned, wait=False)
        stream.wait(second.record())
    with pytest.raises(ck.EmulationError, match="race"):
        graph.launch()


def test_threads_with_streams_of_their_own_share_arrays_with_a_graph(stream: Any, x: Any) -> None:
    with ck.capture(stream) as graph:
        add(stream, x)
        add(stream, x)
    failures = []

    def work(number: int) -> None:
        try:
            own = another(stream)
            with ck.using(own):
                for _ in range(10):
                    if number % 2:
                        graph.launch(own)
                    else:
                        add(own, x)
                        ops.sum(x)
            own.sync()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert (to_host(x) == 60).all()
