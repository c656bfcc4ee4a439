"""Graphs: what a launch of captured calls does, with the arguments that it has then."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from support.places import another, gone, to_host

import cudakit as ck
from cudakit import ops
from cudakit.places import is_capturing
from cudakit.streams import streams as capturing

AXPY = ck.Kernel("""
template <typename T>
__global__ void axpy(T a, const T* __restrict__ x, T* __restrict__ y, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        y[i] += a * x[i];
}
""")
SCALED = ck.Kernel("""
#include <cudakit/strided.cuh>
__global__ void scaled(cudakit::strided<float, 2> y, int by) {
    y(threadIdx.x / 4, threadIdx.x % 4) *= by;
}
""")
COUNTDOWN = ck.Kernel("""
__global__ void countdown(int* flag, float* y) { y[0] += 1; flag[0] -= 1; }
""")
N = 300


@pytest.fixture
def x(xp: Any) -> Any:
    return xp.arange(N, dtype=xp.float32)


@pytest.fixture
def y(xp: Any) -> Any:
    return xp.zeros(N, dtype=xp.float32)


def axpy(stream: Any, a: Any, x: Any, y: Any) -> None:
    AXPY(stream, ck.cover(x.size), a, x, y, x.size)


def test_nothing_runs_in_the_block_and_each_launch_runs_all(stream: Any, x: Any, y: Any) -> None:
    with ck.capture(stream) as graph:
        axpy(stream, 2.0, x, y)
        axpy(stream, 1.0, x, y)
    assert not to_host(y).any()
    graph.launch(stream)
    np.testing.assert_array_equal(to_host(y), 3 * to_host(x))
    graph.launch()
    np.testing.assert_array_equal(to_host(y), 6 * to_host(x))


def test_a_launch_on_another_stream_comes_after_what_touched_the_arrays(stream: Any, x: Any, y: Any) -> None:
    with ck.capture(stream) as graph:
        axpy(stream, 2.0, x, y)
    second = another(stream)
    for _ in range(20):
        axpy(stream, 1.0, x, y)
        graph.launch(second)
    axpy(stream, 1.0, x, y)
    stream.sync()
    np.testing.assert_array_equal(to_host(y), 61 * to_host(x))


def test_a_named_array_is_changed_with_all_its_views(stream: Any, xp: Any, x: Any, y: Any) -> None:
    with ck.capture(stream, x=x) as graph:
        axpy(stream, 1.0, x, y)
        axpy(stream, 1.0, x[100:200], y[:100])
    other = xp.ones(N, dtype=xp.float32)
    graph(stream, x=other)
    expected = np.ones(N)
    expected[:100] = 2
    np.testing.assert_array_equal(to_host(y), expected)
    graph.launch(stream)  # the change stays
    np.testing.assert_array_equal(to_host(y), 2 * expected)
    graph(stream, x=x)
    expected[:] = 2 * expected + to_host(x)
    expected[:100] += to_host(x)[100:200]
    np.testing.assert_array_equal(to_host(y), expected)


def test_numbers_are_changed(stream: Any, xp: Any, x: Any, y: Any) -> None:
    with ck.capture(stream, a=2.0, n=N) as graph:
        AXPY(stream, ck.cover(N), graph["a"], x, y, graph["n"])
        AXPY(stream, ck.cover(N), 2.0, x, y, N)  # equal numbers that are not the named ones
    graph(stream, a=5.0)
    np.testing.assert_array_equal(to_host(y), 7 * to_host(x))
    y[...] = 0
    graph(stream, a=np.float64(1), n=10)
    expected = 2 * to_host(x)
    expected[:10] += to_host(x)[:10]
    np.testing.assert_array_equal(to_host(y), expected)
    one = np.float32(1)
    y[...] = 0
    with ck.capture(stream, a=one) as graph:
        axpy(stream, graph["a"], x, y)
        axpy(stream, one, x, y)
    graph(stream, a=np.float32(3))
    np.testing.assert_array_equal(to_host(y), 4 * to_host(x))


def test_a_strided_view_of_a_named_array_is_changed(stream: Any, xp: Any) -> None:
    first, other = xp.ones((8, 8), dtype=xp.float32), xp.ones((8, 8), dtype=xp.float32)
    with ck.capture(stream, y=first, by=3) as graph:
        SCALED(stream, ck.config(1, 16), first[4:, 1::2], graph["by"])
    graph(stream, y=other, by=7)
    expected = np.ones((8, 8))
    expected[4:, 1::2] = 7
    np.testing.assert_array_equal(to_host(other), expected)
    assert (to_host(first) == 1).all()


def test_a_plan_is_captured(stream: Any, xp: Any, x: Any, y: Any) -> None:
    plan = AXPY.plan(stream, ck.cover(N), 1.0, x, y, N)
    with ck.capture(stream, x=x) as graph:
        plan()
        plan()
    graph(stream, x=xp.ones(N, dtype=xp.float32))
    np.testing.assert_array_equal(to_host(y), np.full(N, 2))


def test_operands_live_as_long_as_the_graph(stream: Any, xp: Any, y: Any) -> None:
    with ck.capture(stream) as graph:
        axpy(stream, 1.0, xp.ones(N, dtype=xp.float32), y)
    gc.collect()
    garbage = [xp.full(N, 7, dtype=xp.float32) for _ in range(8)]
    graph.launch(stream)
    assert (to_host(y) == 1).all(), len(garbage)


def test_a_capture_is_asked_for_where_there_is_no_cupy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    answers = {7: (driver.CUresult.CUDA_SUCCESS, driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE)}
    refused = driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, None
    monkeypatch.setattr(driver, "cuStreamIsCapturing", lambda stream: answers.get(int(stream), refused))
    monkeypatch.setattr(capturing, "_question", capturing._question.__wrapped__)
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    assert capturing.is_captured(7)
    assert not capturing.is_captured(8)


def test_a_graph_that_is_dropped_is_gone_once_its_launch_is_done(stream: Any, x: Any, y: Any) -> None:
    gc.disable()
    try:
        with ck.capture(stream, x=x, a=1.0) as graph:
            axpy(stream, graph["a"], x, y)
        graph.launch(stream)
        stream.sync()
        seen = weakref.ref(graph), weakref.ref(graph._capture)
        del graph
        assert gone(seen)
    finally:
        gc.enable()


# ── ops ──


@pytest.mark.parametrize("size", [1000, 70_000])
def test_ops_with_memory_of_their_own_replay(stream: Any, xp: Any, size: int) -> None:
    """Sums, scans, histograms and softmax: their workspaces and look-back state are right on each launch."""
    if isinstance(stream, ck.emulator.EmulatedStream) and size > 1000:
        pytest.skip("small on the emulator")
    random = np.random.default_rng(3)
    first, second = (random.integers(0, 50, size).astype(np.float32) for _ in range(2))
    values = xp.asarray(first)
    with ck.capture(stream, x=values) as graph:
        total = ops.sum(values, stream=stream)
        running = ops.cumsum(values, stream=stream)
        counts, _ = ops.histogram(values, bins=10, range=(0, 50), stream=stream)
        shares = ops.softmax(values.reshape(10, -1), stream=stream)
    launches = 3 if isinstance(stream, ck.emulator.EmulatedStream) else 100
    others = [xp.asarray(first), xp.asarray(second)]
    for launch in range(launches):
        graph(stream, x=others[launch % 2])
        ops.sum(values, stream=stream)  # the stream's own workspace is another one
        host = (first, second)[launch % 2].astype(np.float64)
        assert float(to_host(total)) == host.sum()
        np.testing.assert_array_equal(to_host(running), host.cumsum())
        np.testing.assert_array_equal(to_host(counts), np.histogram(host, 10, (0, 50))[0])
        powers = np.exp(host.reshape(10, -1) - host.reshape(10, -1).max(1, keepdims=True))
        np.testing.assert_allclose(to_host(shares), powers / powers.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_many_bins_are_cleared_at_each_launch(stream: Any, xp: Any) -> None:
    values = xp.asarray(np.arange(2000) % 500)
    with ck.capture(stream) as graph:
        counts, _ = ops.histogram(values, bins=20_000, range=(0, 500), stream=stream)
    for _ in range(3):
        graph.launch(stream)
    assert int(to_host(counts).sum()) == 2000


def test_ops_that_read_on_the_host_are_refused(stream: Any, xp: Any, x: Any) -> None:
    with pytest.raises(ck.LaunchError, match=r"the op cannot be captured.*compact's count"), ck.capture(stream):
        ops.compact(x, x > 3, stream=stream)
    axpy(stream, 1.0, x, x)  # the stream is usable
    stream.sync()


# ── more graphs, streams, loops ──


def test_a_graph_becomes_a_part_of_another_with_the_arguments_it_has(stream: Any, xp: Any, x: Any, y: Any) -> None:
    with ck.capture(stream, a=1.0) as inner:
        axpy(stream, inner["a"], x, y)
    inner(stream, a=4.0)
    stream.sync()
    y[...] = 0
    with ck.capture(stream, x=x) as outer:
        axpy(stream, 10.0, x, y)
        inner.launch(stream)
    assert not to_host(y).any()
    outer.launch(stream)
    np.testing.assert_array_equal(to_host(y), 14 * to_host(x))
    y[...] = 0
    inner(stream, a=1.0)
    stream.sync()
    y[...] = 0
    outer(stream, x=xp.ones(N, dtype=xp.float32))  # of the inner graph too, which is as it was
    np.testing.assert_array_equal(to_host(y), np.full(N, 14))


def test_a_graph_inside_another_keeps_its_streams_and_loops_apart(stream: Any, xp: Any, x: Any, y: Any) -> None:
    second, z = another(stream), xp.zeros(N, dtype=xp.float32)
    with ck.capture(stream) as inner:
        second.wait(stream.record())
        axpy(second, 1.0, x, z)
        stream.wait(second.record())
        axpy(stream, 1.0, z, y)
    with ck.capture(stream) as outer:
        inner.launch(stream)
        inner.launch(stream)
    outer.launch(stream)
    np.testing.assert_array_equal(to_host(y), 3 * to_host(x))


def test_a_graph_with_a_loop_stays_by_itself(stream: Any, xp: Any, y: Any) -> None:
    flag = xp.asarray(np.array([3], np.int32))
    with ck.capture(stream) as inner, inner.loop(flag) as body:
        COUNTDOWN(body, ck.config(1, 1), flag, y)
    with pytest.raises(ck.LaunchError, match=r"loops or branches cannot become a part"), ck.capture(stream):
        inner.launch(stream)
    inner.launch(stream)
    assert to_host(y)[0] == 3


def test_a_second_stream_takes_part_between_fork_and_join(stream: Any, xp: Any, x: Any, y: Any) -> None:
    second, z = another(stream), xp.zeros(N, dtype=xp.float32)
    with ck.capture(stream, x=x) as graph:
        axpy(stream, 1.0, x, y)
        second.wait(stream.record())
        axpy(second, 2.0, y, z)
        axpy(stream, 1.0, x, xp.zeros(N, dtype=xp.float32))
        stream.wait(second.record())
        axpy(stream, 1.0, z, y)
    for _ in range(2):
        y[...] = 0
        z[...] = 0
        graph.launch(stream)
        np.testing.assert_array_equal(to_host(y), 3 * to_host(x))
    axpy(second, 1.0, x, z)
    second.sync()
    np.testing.assert_array_equal(to_host(z), 3 * to_host(x))


def test_work_that_is_not_joined_is_named(stream: Any, x: Any, y: Any) -> None:
    second = another(stream)

    def fork() -> None:
        axpy(stream, 1.0, x, y)
        second.wait(stream.record())
        axpy(second, 2.0, x, y)

    with pytest.raises(ck.LaunchError, match=r"axpy<float> on another stream was not joined"), ck.capture(stream):
        fork()
    assert not is_capturing(stream)
    assert not is_capturing(second)
    axpy(second, 1.0, x, y)
    second.sync()
    np.testing.assert_array_equal(to_host(y), to_host(x))


def test_a_stream_that_takes_no_part_is_refused(stream: Any, x: Any, y: Any) -> None:
    second = another(stream)
    with pytest.raises(ck.LaunchError, match=r"axpy<float> was given another stream.*wait"), ck.capture(stream):
        axpy(second, 1.0, x, y)
    assert not to_host(y).any()


@pytest.mark.emulator
def test_a_race_inside_a_graph_is_found(stream: Any, x: Any, y: Any) -> None:
    second = another(stream)
    with ck.capture(stream) as graph:
        second.wait(stream.record())
        axpy(second, 1.0, x, y)
        axpy(stream, 1.0, x, y)
        stream.wait(second.record())
    with pytest.raises(ck.EmulationError, match=r"(?i)race"):
        graph.launch(stream)


def test_a_loop_runs_while_its_flag_is_set(stream: Any, xp: Any, x: Any, y: Any) -> None:
    flag = xp.asarray(np.array([4], np.int32))
    with ck.capture(stream, flag=flag, y=y) as graph:
        axpy(stream, 1.0, x, y)
        with graph.loop(flag) as inner:
            COUNTDOWN(inner, ck.config(1, 1), flag, y)
        axpy(stream, 1.0, x, y)
    graph.launch(stream)
    expected = 2 * to_host(x)
    expected[0] += 4
    np.testing.assert_array_equal(to_host(y), expected)
    assert to_host(flag)[0] == 0
    other = xp.asarray(np.array([7], np.int32))
    third = xp.zeros(N, dtype=xp.float32)
    graph(stream, flag=other, y=third)
    expected[0] = 7
    np.testing.assert_array_equal(to_host(third), expected)
    assert to_host(other)[0] == 0


def test_a_loop_ends_at_its_limit_each_time(stream: Any, xp: Any, y: Any) -> None:
    flag = xp.asarray(np.array([10], np.int32))
    with ck.capture(stream) as graph, graph.loop(flag, limit=3) as inner:
        COUNTDOWN(inner, ck.config(1, 1), flag, y)
    graph.launch(stream)
    assert to_host(flag)[0] == 7
    graph.launch(stream)
    assert (to_host(flag)[0], to_host(y)[0]) == (4, 6)


def test_a_branch_runs_where_its_flag_is_set(stream: Any, xp: Any, y: Any) -> None:
    flag = xp.asarray(np.array([2], np.int32))
    with ck.capture(stream) as graph, graph.branch(flag) as inner:
        COUNTDOWN(inner, ck.config(1, 1), flag, y)
    for _ in range(4):
        graph.launch(stream)
    assert (to_host(flag)[0], to_host(y)[0]) == (0, 2)


def test_the_outer_stream_inside_a_loop_is_refused(stream: Any, xp: Any, x: Any, y: Any) -> None:
    flag = xp.asarray(np.array([1], np.int32))
    words = r"axpy<float> inside a loop or branch was given a stream from outside"
    with pytest.raises(ck.LaunchError, match=words), ck.capture(stream) as graph, graph.loop(flag, limit=1):
        axpy(stream, 1.0, x, y)
    assert not is_capturing(stream)
    axpy(stream, 1.0, x, y)
    np.testing.assert_array_equal(to_host(y), to_host(x))


# ── misuse ──


def test_other_arguments_must_be_as_the_captured_ones(stream: Any, xp: Any, x: Any, y: Any) -> None:
    with ck.capture(stream, x=x, a=1.0) as graph:
        axpy(stream, graph["a"], x, y)
    for changes, words in [
        ({"z": x}, r"no argument is named 'z'; named at capture: x, a"),
        ({"x": xp.ones(N + 1, dtype=xp.float32)}, r"x was captured as float32 with shape \(300,\).*shape \(301,\)"),
        ({"x": xp.ones(N, dtype=xp.float64)}, r"got float64"),
        ({"x": xp.ones((N, 2), dtype=xp.float32)[:, 0]}, r"strides"),
        ({"x": 3.0}, r"x is an array.*got float"),
        ({"a": x}, r"a is a number"),
        ({"a": "2"}, r"a is a number, got str"),
        ({"a": 1e300}, r"a, axpy<float>'s parameter a \(float\)"),
    ]:
        with pytest.raises(ck.ArgumentError, match=words):
            graph(stream, **changes)
    with pytest.raises(ck.ArgumentError):
        graph(stream, x=xp.ones(N, dtype=xp.float32), a=1e300)
    stream.sync()
    assert not to_host(y).any()
    graph.launch(stream)  # as it was before all of those
    np.testing.assert_array_equal(to_host(y), to_host(x))


def test_an_address_of_less_alignment_is_refused(stream: Any, xp: Any, y: Any) -> None:
    whole = xp.ones(N + 1, dtype=xp.float32)
    with ck.capture(stream, x=whole[:N]) as graph:
        axpy(stream, 1.0, whole[:N], y)
    with pytest.raises(ck.ArgumentError, match=r"x was captured at a multiple of 16 bytes"):
        graph(stream, x=whole[1:])


def test_what_is_named_must_be_used_and_apart(stream: Any, x: Any, y: Any) -> None:
    with pytest.raises(ck.ArgumentError, match=r"nothing in the graph uses y"), ck.capture(stream, y=y):
        axpy(stream, 1.0, x, x)
    message = r"nothing in the graph uses a; give it to a call as graph\['a'\]"
    with pytest.raises(ck.ArgumentError, match=message), ck.capture(stream, a=2.0) as graph:
        axpy(stream, graph["a"] + 0, x, y)
    with pytest.raises(ck.LaunchError, match=r"could not be captured"):
        graph.launch(stream)
    with pytest.raises(ck.ArgumentError, match=r"x and part share memory"), ck.capture(stream, x=x, part=x[5:]):
        pass
    for wrong, words in [("word", "str"), (object(), "object")]:
        with pytest.raises(ck.ArgumentError, match=words), ck.capture(stream, a=wrong):
            pass


def test_the_block_must_have_ended(stream: Any, x: Any, y: Any) -> None:
    with ck.capture(stream) as graph:
        axpy(stream, 1.0, x, y)
        assert is_capturing(stream)
        with pytest.raises(ck.LaunchError, match=r"is being captured"):
            graph.launch(stream)
        with pytest.raises(ck.ArgumentError, match=r"no argument is named 'x'"):
            graph["x"]
        with pytest.raises(ck.LaunchError, match=r"captured already"), ck.capture(stream):
            pass
    assert not is_capturing(stream)
    with pytest.raises(ck.LaunchError, match=r"block.*has ended"), graph.loop(x):
        pass
    graph.launch(stream)
    np.testing.assert_array_equal(to_host(y), to_host(x))


def test_an_error_in_the_block_ends_the_capture(stream: Any, x: Any, y: Any) -> None:

    def fail() -> None:
        axpy(stream, 1.0, x, y)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), ck.capture(stream):
        fail()
    assert not is_capturing(stream)
    with pytest.raises(ck.ArgumentError), ck.capture(stream):
        AXPY(stream, ck.cover(N), 1.0, x)
    axpy(stream, 1.0, x, y)
    stream.sync()
    np.testing.assert_array_equal(to_host(y), to_host(x))
    with ck.capture(stream) as graph:
        axpy(stream, 1.0, x, y)
    graph.launch(stream)
    np.testing.assert_array_equal(to_host(y), 2 * to_host(x))


def test_waiting_inside_the_block_is_refused(stream: Any, x: Any, y: Any) -> None:
    with pytest.raises(ck.LaunchError, match=r"capture.*outside of the block"), ck.capture(stream):
        stream.sync()
    event = another(stream).record()
    with pytest.raises(ck.LaunchError, match=r"from before the capture"), ck.capture(stream):
        stream.wait(event)
    with pytest.raises(ck.LaunchError, match=r"pinned"), ck.capture(stream):
        ck.to_host(x, stream)
    with pytest.raises(ck.LaunchError), ck.capture(stream):
        AXPY(stream, ck.cover(N), 1.0, ck.In(np.ones(N, np.float32)), y, N)
    assert not is_capturing(stream)
    axpy(stream, 1.0, x, y)
    np.testing.assert_array_equal(to_host(y), to_host(x))


def test_a_graph_can_be_looked_at(stream: Any, x: Any, y: Any) -> None:
    with ck.capture(stream, x=x, a=1.0) as graph:
        axpy(stream, graph["a"], x, y)
        axpy(stream, 1.0, x[1:], y[1:])
    assert len(graph.nodes) == 2
    assert "axpy" in graph.nodes[0]
    assert str(graph).splitlines()[0] == "graph of 2 nodes"
    assert "axpy<float>" in str(graph)
    assert "a, x" in str(graph)
    assert graph.dot().startswith("digraph")
    assert "x, a" in repr(graph)


# ── on a GPU only ──


@pytest.mark.gpu
def test_cupy_operations_are_captured_and_follow_named_arrays(stream: Any, xp: Any, x: Any, y: Any) -> None:
    with ck.capture(stream, x=x) as graph:
        y[...] = xp.sqrt(x) * 2 + x[::-1]
        total = (x * x).sum()
        copied = x.copy()
        ordered = xp.sort(-x)
    other = xp.asarray(np.arange(N)[::-1].astype(np.float32) + 5)
    for given in (x, other, x):
        graph(stream, x=given)
        host = to_host(given)
        np.testing.assert_allclose(to_host(y), np.sqrt(host) * 2 + host[::-1], rtol=1e-6)
        assert float(total) == pytest.approx(float((host.astype(np.float64) ** 2).sum()), rel=1e-6)
        np.testing.assert_array_equal(to_host(copied), host)
        np.testing.assert_array_equal(to_host(ordered), np.sort(-host))


@pytest.mark.gpu
def test_a_kernel_compiles_and_loads_inside_the_block(stream: Any, xp: Any, x: Any, y: Any) -> None:
    fresh = ck.Kernel("__global__ void fresh_in_graph(const float* x, float* y) { y[0] = x[7] + 35; }")
    with ck.capture(stream) as graph:
        fresh(stream, ck.config(1, 1), x, y)
    graph.launch(stream)
    assert float(y[0]) == 42


@pytest.mark.gpu
def test_cooperative_and_cluster_launches_change_too(stream: Any, xp: Any) -> None:
    shape = ck.Kernel("""
    __global__ void sizes(unsigned* out) {
        unsigned size;
        asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
        if (!threadIdx.x) atomicAdd(out, size);
    }
    """)
    first, other = xp.zeros(1, xp.uint32), xp.zeros(1, xp.uint32)
    with ck.capture(stream, out=first) as graph:
        shape(stream, ck.config(4, 32, cluster=2), first)
        shape(stream, ck.config(4, 32, cooperative=True), first)
    graph(stream, out=other)
    assert (int(first[0]), int(other[0])) == (0, 12)


@pytest.mark.gpu
def test_temporaries_of_a_graph_are_its_own(stream: Any, xp: Any, x: Any) -> None:
    with ck.capture(stream) as graph:
        result = xp.sqrt(x + 1) * 3
    expected = np.sqrt(to_host(x) + 1) * 3
    for _ in range(50):
        junk = xp.full(N, -1, dtype=xp.float32) * 2
        graph.launch(stream)
        np.testing.assert_allclose(to_host(result), expected, rtol=1e-6)
        del junk


@pytest.mark.gpu
def test_two_graphs_on_two_streams_do_not_share_workspaces(stream: Any, xp: Any) -> None:
    size = 1 << 22
    values = [xp.asarray(np.random.default_rng(seed).integers(0, 9, size)) for seed in (1, 2)]
    graphs, results = [], []
    for each in values:
        with ck.capture(stream) as graph:
            results.append(ops.cumsum(each, stream=stream))
        graphs.append(graph)
    second = another(stream)
    for _ in range(100):
        graphs[0].launch(stream)
        graphs[1].launch(second)
    stream.sync()
    second.sync()
    for each, result in zip(values, results, strict=True):
        np.testing.assert_array_equal(to_host(result), np.cumsum(to_host(each)))


@pytest.mark.gpu
def test_the_legacy_stream_and_host_reads_are_refused(stream: Any, xp: Any, x: Any) -> None:
    with pytest.raises(ck.ArgumentError, match=r"legacy default stream"), ck.capture(xp.cuda.Stream.null):
        pass
    with pytest.raises(ck.LaunchError, match=r"reads or writes host memory"), ck.capture(stream):
        float(x.sum())
    assert not is_capturing(stream)


def test_copies_of_pinned_memory_are_captured(stream: Any, x: Any, y: Any) -> None:
    """From the host, through a kernel, and back: the whole round is the graph's, and both ends can be changed."""
    source, other, result, second = (ck.empty(N, np.float32, kind="pinned", stream=stream) for _ in range(4))
    source[:], other[:], result[:], second[:] = 1, 2, 0, 0
    with ck.capture(stream, source=source, result=result) as graph:
        moved = ck.to_device(source, stream)
        axpy(stream, 1.0, x, moved)
        ck.to_host(moved, stream, out=result, wait=False)
    graph.launch(stream)
    stream.sync()
    np.testing.assert_array_equal(result, 1 + to_host(x))
    graph(stream, source=other, result=second)
    stream.sync()
    np.testing.assert_array_equal(second, 2 + to_host(x))
    np.testing.assert_array_equal(result, 1 + to_host(x))
