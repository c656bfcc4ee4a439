"""Streams of a GPU that is not the current one: all that works on the first device works on the second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.places import SLOW

import cudakit as ck

pytestmark = pytest.mark.gpu

ADD = ck.Kernel("""
template <typename T>
__global__ void add(T* y, const T* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}""")
SLOW_KERNEL = ck.Kernel(SLOW)
N = 5000
CYCLES = 20_000_000  # some 10 ms


@pytest.fixture
def second() -> Iterator[Any]:
    """A stream of the second device, while the first one is current."""
    cupy = pytest.importorskip("cupy")
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    from cuda.core import Device

    other = Device(1)
    other.set_current()
    made = other.create_stream()
    Device(0).set_current()
    yield made
    made.sync()
    assert Device().device_id == 0, "the first device stays the current one"


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(5).random(N).astype(np.float32)


def test_copies_are_on_the_streams_device(second: Any, x: np.ndarray) -> None:
    array = ck.to_device(x, second)
    assert array.device.id == 1
    np.testing.assert_array_equal(ck.to_host(array, second), x)
    for kind in ("device", "managed"):
        made = ck.empty(N, np.float32, kind=kind, stream=second)
        assert made.device.id == 1
        ADD(second, ck.cover(N), made, array, N)
        second.sync()


def test_host_arrays(second: Any, x: np.ndarray) -> None:
    y, pinned = np.ones(N, np.float32), ck.empty(N, np.float32, kind="pinned")
    pinned[...] = x
    ADD(second, ck.cover(N), ck.InOut(y), ck.In(pinned), N)
    second.sync()
    np.testing.assert_array_equal(y, x + 1)


def test_ops(second: Any, x: np.ndarray) -> None:
    array = ck.to_device(x, second)
    total = ck.ops.sum(array, stream=second)
    running = ck.ops.cumsum(array, stream=second)
    likely = ck.ops.softmax(array.reshape(50, 100), stream=second)
    counts, _ = ck.ops.histogram(array, bins=16, range=(0, 1), stream=second)
    turned = ck.ops.transpose(array.reshape(50, 100), stream=second)
    assert {made.device.id for made in (total, running, likely, counts, turned)} == {1}
    np.testing.assert_allclose(ck.to_host(total, second), x.sum(dtype=float), rtol=1e-6)
    np.testing.assert_allclose(ck.to_host(running, second), x.cumsum(dtype=float), rtol=1e-5)
    np.testing.assert_allclose(ck.to_host(likely, second).sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(ck.to_host(counts, second), np.histogram(x, 16, (0, 1))[0])
    np.testing.assert_array_equal(ck.to_host(turned, second), x.reshape(50, 100).T)


def test_generated_functions(second: Any, x: np.ndarray) -> None:
    array = ck.to_device(x, second)
    double = ck.elementwise("T x", "T y", "y = 2 * x")
    largest = ck.reduction("T x", "T out", "x", "max(a, b)", "-1", name="largest")
    running = ck.scan("T x", "T out", "x", "a + b", "0", name="running")
    for _ in range(3):  # the first call, and the shorter ways of those that follow
        np.testing.assert_array_equal(ck.to_host(double(array, stream=second), second), 2 * x)
        assert ck.to_host(largest(array, stream=second), second) == x.max()
        found = ck.to_host(running(array, stream=second), second)
        np.testing.assert_allclose(found, x.cumsum(dtype=float), rtol=1e-5)
    np.testing.assert_allclose(ck.to_host(ck.math.sqrt(array, stream=second), second), np.sqrt(x), rtol=1e-6)


def test_an_event_of_the_other_device_is_waited_for(second: Any) -> None:
    first = ck.stream()
    x = ck.to_device(np.zeros(32, np.float32), first)
    between = ck.empty(32, np.float32, kind="pinned")
    for number in range(1, 4):
        SLOW_KERNEL(first, ck.config(1, 32), x, CYCLES)
        ck.to_host(x, first, out=between, wait=False)
        second.wait(first.record())
        there = ck.to_device(between, second)
        assert (ck.to_host(there, second) == number).all()


def test_pipeline(second: Any) -> None:
    def add(item: Any, stream: Any) -> Any:
        assert item.device.id == 1
        ADD(stream, ck.cover(item.size), item, item, item.size)
        return item

    for graph in (False, True):
        pipeline = ck.Pipeline([add], stream=second, graph=graph)
        found = list(pipeline(np.full(100, number, np.float32) for number in range(20)))
        assert [float(item[7]) for item in found] == [2.0 * number for number in range(20)]


def test_graph(second: Any, x: np.ndarray) -> None:
    array, total = ck.to_device(x, second), ck.to_device(np.zeros(N, np.float32), second)
    with ck.capture(second, x=array) as graph:
        for _ in range(3):
            ADD(second, ck.cover(N), total, array, N)
    graph.launch(second)
    graph(second, x=ck.to_device(10 * x, second))
    np.testing.assert_allclose(ck.to_host(total, second), 33 * x, rtol=1e-5)


def test_trace_has_both_devices_on_one_clock(second: Any) -> None:
    first = ck.stream()
    x, y = ck.to_device(np.zeros(32, np.float32), first), ck.to_device(np.zeros(32, np.float32), second)
    for stream, array in ((first, x), (second, y)):
        SLOW_KERNEL(stream, ck.config(1, 32), array, 0)
    with ck.trace() as trace:
        SLOW_KERNEL(first, ck.config(1, 32), x, CYCLES)
        first.sync()
        SLOW_KERNEL(second, ck.config(1, 32), y, CYCLES)
    with ck.Timer(second) as timer:
        SLOW_KERNEL(second, ck.config(1, 32), y, CYCLES)
    kernels = [span for span in trace.spans if span.kind == "kernel"]
    assert [span.place for span in kernels] == ["GPU 0", "GPU 1"]
    assert kernels[0].end_ms <= kernels[1].start_ms + 0.05  # what the host waited for came first, on both clocks
    assert timer.elapsed_ms > 5


def test_report_names_each_device(second: Any) -> None:
    held = ck.empty(1 << 20, np.uint8, stream=second)
    rows = {row.device: row.used for row in ck.memory.report().held if row.kind == "device"}
    assert rows[1] >= held.nbytes
    assert "device 1" in str(ck.memory.report())


def test_memory_of_the_other_device_is_refused_by_name(second: Any, x: np.ndarray) -> None:
    here = ck.to_device(x, ck.stream())
    with pytest.raises(ck.ArgumentError, match="stream is of device 1"):
        ADD(second, ck.cover(N), here, here, N)
    with pytest.raises(ck.ArgumentError):
        ck.ops.sum(here, stream=second)
    with pytest.raises(ck.ArgumentError):
        ck.elementwise("T x", "T y", "y = x")(here, stream=second)
