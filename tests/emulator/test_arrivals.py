"""What the host sees of a stream's work on the emulator: what it saw before, until it waits, as on a GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator import EmulatedStream

pytestmark = pytest.mark.emulator

ADD = ck.Kernel("__global__ void add(float* x, float by) { x[threadIdx.x] += by; }")
HOLD = ck.Kernel("__device__ int held; __global__ void hold() { held = 1; }")
FOUR = ck.config(1, 4)


@pytest.fixture
def here() -> EmulatedStream:
    return ck.emulator.stream()


def of_host(kind: str, count: int = 4) -> Iterator[np.ndarray]:
    """New memory of the host and the device, of zeros."""
    if kind == "registered":
        x = np.zeros(count, np.float32)
        with ck.memory.register(x):
            yield x
        return
    x = ck.empty(count, np.float32, kind=kind, stream=ck.emulator.stream())  # type: ignore[arg-type]
    x[:] = 0
    yield x


@pytest.fixture(params=["pinned", "managed", "registered"])
def shared(request: pytest.FixtureRequest) -> Iterator[np.ndarray]:
    """Four zeros in memory that kernels and the host read."""
    yield from of_host(request.param)


@pytest.fixture
def pinned() -> np.ndarray:
    return next(of_host("pinned"))


# ── what arrives late ──


def by_kernel(x: np.ndarray, stream: EmulatedStream) -> None:
    ADD(stream, FOUR, x, 7.0)


def by_plan(x: np.ndarray, stream: EmulatedStream) -> None:
    ADD.plan(stream, FOUR, x, 7.0)()


def by_graph(x: np.ndarray, stream: EmulatedStream) -> None:
    with ck.capture(stream) as graph:
        ADD(stream, FOUR, x, 7.0)
    graph.launch(stream)


def by_copy(x: np.ndarray, stream: EmulatedStream) -> None:
    ck.memory.copy(x, ck.to_device(np.full(4, 7, np.float32), stream), stream)


def by_op(x: np.ndarray, stream: EmulatedStream) -> None:
    ck.elementwise("T x", "T y", "y = x + 7", name="plus")(x, out=x, stream=stream)


@pytest.mark.parametrize("write", [by_kernel, by_plan, by_graph, by_copy, by_op])
def test_writes_to_memory_of_both_arrive_after_a_wait(
    here: EmulatedStream, shared: np.ndarray, write: Callable[[np.ndarray, EmulatedStream], None]
) -> None:
    write(shared, here)
    assert shared.tolist() == [0] * 4
    here.sync()
    assert shared.tolist() == [7] * 4


def test_copies_to_the_host_arrive_after_a_wait(here: EmulatedStream) -> None:
    x = ck.to_device(np.full(4, 7, np.float32), here)
    strided = np.zeros((4, 2), np.float32)
    out = ck.to_host(x, here, out=strided[:, 1], wait=False)
    new = ck.to_host(x, here, wait=False)
    assert not strided.any()
    here.sync()
    assert out.tolist() == new.tolist() == [7] * 4
    assert not strided[:, 0].any()


def test_copies_of_a_graph_arrive_after_a_wait(here: EmulatedStream, pinned: np.ndarray) -> None:
    x = ck.to_device(np.full(4, 7, np.float32), here)
    with ck.capture(here) as graph:
        ck.to_host(x, here, out=pinned, wait=False)
    graph.launch(here)
    assert not pinned.any()
    here.sync()
    assert pinned.tolist() == [7] * 4


@pytest.mark.parametrize("wrap", [ck.InOut, ck.Out])
def test_host_arrays_of_a_call_arrive_after_a_wait(here: EmulatedStream, wrap: Any) -> None:
    x = np.full(4, 1, np.float32)
    ADD(here, FOUR, wrap(x), 7.0)
    assert x.tolist() == [1] * 4
    here.sync()
    assert x.tolist() == [8 if wrap is ck.InOut else 7] * 4


# ── what waits ──


def wait_by_event(stream: EmulatedStream) -> None:
    stream.record().sync()


def wait_by_question(stream: EmulatedStream) -> None:
    assert stream.record().is_done


def wait_by_copy(stream: EmulatedStream) -> None:
    ck.to_host(ck.to_device(np.zeros(1), stream), stream)


def wait_by_another_stream(stream: EmulatedStream) -> None:
    other = ck.emulator.stream()
    other.wait(stream)
    other.sync()


def wait_by_variable(stream: EmulatedStream) -> None:
    HOLD(stream, ck.config(1, 1))
    assert HOLD.globals["held"] == 1


def wait_by_work_of_the_host(stream: EmulatedStream) -> None:
    from cudakit.streams.witnesses import doing

    with doing("host", "a stage", stream, (), (), 0):
        pass


@pytest.mark.parametrize(
    "wait",
    [
        wait_by_event, wait_by_question, wait_by_copy, wait_by_another_stream, wait_by_variable,
        wait_by_work_of_the_host,
    ],
)  # fmt: skip
@pytest.mark.parametrize("others", [0, 1])
def test_whoever_waits_sees_the_writes(
    here: EmulatedStream, pinned: np.ndarray, wait: Callable[[EmulatedStream], None], others: int
) -> None:
    watched = [ck.emulator.stream() for _ in range(others)]
    x = np.zeros(4, np.float32)
    ADD(here, FOUR, pinned, 7.0)
    ADD(here, FOUR, ck.InOut(x), 7.0)
    assert not pinned.any()
    assert not x.any()
    wait(here)
    assert pinned.tolist() == x.tolist() == [7] * 4
    assert len(watched) == others


@pytest.mark.parametrize("others", [0, 1])
def test_an_event_brings_what_came_before_it_only(here: EmulatedStream, pinned: np.ndarray, others: int) -> None:
    watched = [ck.emulator.stream() for _ in range(others)]
    ADD(here, FOUR, pinned, 1.0)
    between = here.record()
    ADD(here, FOUR, pinned, 2.0)
    assert not pinned.any()
    between.sync()
    assert pinned.tolist() == [1] * 4
    here.sync()
    assert pinned.tolist() == [3] * 4
    assert len(watched) == others


def test_an_event_before_a_copy_does_not_bring_it(here: EmulatedStream) -> None:
    x, out = ck.to_device(np.ones(4, np.float32), here), np.zeros(4, np.float32)
    before = here.record()
    ck.to_host(x, here, out=out, wait=False)
    before.sync()
    assert not out.any()
    here.sync()
    assert out.all()


def test_writes_arrive_in_their_order_however_many_streams_there_were(here: EmulatedStream, pinned: np.ndarray) -> None:
    other = ck.emulator.stream()
    ADD(here, FOUR, pinned, 1.0)
    ADD(other, FOUR, pinned, 2.0)  # which waits, and touches all that the first did
    many = [ck.emulator.stream() for _ in range(150)]
    for stream in many:
        ADD(stream, FOUR, np.zeros(4, np.float32), 1.0)
    other.sync()
    assert pinned.tolist() == [3] * 4
    here.sync()
    assert pinned.tolist() == [3] * 4


def test_another_stream_that_did_not_wait_brings_nothing(here: EmulatedStream, pinned: np.ndarray) -> None:
    other = ck.emulator.stream()
    ADD(here, FOUR, pinned, 1.0)
    ADD(other, FOUR, np.zeros(4, np.float32), 1.0)
    other.sync()
    assert not pinned.any()
    other.wait(here)
    assert not pinned.any()
    other.sync()
    assert pinned.tolist() == [1] * 4


def test_writes_of_a_stream_that_is_gone_arrive_with_the_next_wait_for_all(pinned: np.ndarray) -> None:
    first = ck.emulator.stream()
    ADD(first, FOUR, pinned, 1.0)
    del first
    gc.collect()
    assert not pinned.any()
    wait_by_variable(ck.emulator.stream())
    assert pinned.tolist() == [1] * 4


def test_many_streams_are_forgotten_and_their_writes_arrive(pinned: np.ndarray) -> None:
    kept, x = ck.emulator.stream(), np.zeros((80, 4), np.float32)
    for row in x:
        ADD(ck.emulator.stream(), FOUR, ck.InOut(row), 1.0)
    ADD(kept, FOUR, pinned, 1.0)
    wait_by_variable(kept)
    assert x.all()
    assert pinned.all()


# ── what the work itself sees ──


def test_later_work_reads_what_earlier_work_wrote(here: EmulatedStream, shared: np.ndarray) -> None:
    ADD(here, FOUR, shared, 1.0)
    ADD(here, FOUR, shared, 2.0)
    x = ck.to_device(shared, here)
    y = ck.to_device(np.zeros(4, np.float32), here)
    ck.memory.copy(y, shared, here)
    total = ck.ops.sum(shared, stream=here)
    turned = ck.ops.sum(shared[::-2], stream=here)
    assert not shared.any()
    assert ck.to_host(x, here).tolist() == ck.to_host(y, here).tolist() == [3] * 4
    assert (float(ck.to_host(total, here)), float(ck.to_host(turned, here))) == (12, 6)


def test_another_stream_that_waits_reads_what_was_written(here: EmulatedStream, pinned: np.ndarray) -> None:
    other = ck.emulator.stream()
    ADD(here, FOUR, pinned, 1.0)
    ADD(other, FOUR, pinned, 2.0)  # which waits, by what both declare
    assert not pinned.any()
    other.sync()
    assert pinned.tolist() == [3] * 4


def test_a_pointer_in_memory_leads_to_what_was_written(here: EmulatedStream, pinned: np.ndarray) -> None:
    read = ck.Kernel("__global__ void read(float** rows, float* y) { y[threadIdx.x] = rows[0][threadIdx.x]; }")
    ADD(here, FOUR, pinned, 1.0)
    rows = ck.to_device(np.array([pinned.ctypes.data], np.uint64), here)
    y = ck.empty(4, np.float32, stream=here)
    read(here, FOUR, rows, y)
    assert ck.to_host(y, here).tolist() == [1] * 4


def test_a_call_waits_for_what_is_on_its_way_into_its_host_array(here: EmulatedStream) -> None:
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    for _ in range(3):
        ADD(here, FOUR, ck.InOut(x), 1.0)
    ck.to_host(ck.to_device(np.ones(4, np.float32), here), here, out=y, wait=False)
    assert ck.to_host(ck.to_device(y, here), here).tolist() == [1] * 4
    assert x.tolist() == [3] * 4


def test_an_array_given_to_a_kernel_as_it_is_has_what_was_copied_to_it(here: EmulatedStream) -> None:
    x = np.zeros(4, np.float32)
    ck.to_host(ck.to_device(np.ones(4, np.float32), here), here, out=x, wait=False)
    ADD(here, FOUR, x, 1.0)
    here.sync()
    assert x.tolist() == [2] * 4


def test_the_last_copy_to_an_array_stays(here: EmulatedStream) -> None:
    out = np.zeros(4, np.float32)
    for value in (1, 2):
        ck.to_host(ck.to_device(np.full(4, value, np.float32), here), here, out=out, wait=False)
    ck.to_host(ck.to_device(np.full(4, 3, np.float32), here), here, out=out)
    assert out.tolist() == [3] * 4


def test_a_copy_arrives_in_memory_whose_array_was_let_go(here: EmulatedStream) -> None:
    with ck.allocated(4, np.float32, kind="pinned", stream=here) as frame:
        ck.to_host(ck.to_device(np.full(4, 7, np.float32), here), here, out=frame, wait=False)
        view = frame[:]
    here.sync()
    assert view.tolist() == [7] * 4


# ── what else the host has there ──


def test_what_the_host_writes_beside_it_stays(here: EmulatedStream) -> None:
    x = next(of_host("pinned", 8))
    ADD(here, ck.config(1, 2), x[::4][:1].base[:4], 1.0)
    x[3:] = 5
    ADD(here, FOUR, x[4:], 1.0)
    x[2] = 4
    here.sync()
    assert x.tolist() == [1, 1, 4, 5, 6, 6, 6, 6]


def test_parts_of_rows_arrive(here: EmulatedStream) -> None:
    x = next(of_host("pinned", 12)).reshape(3, 4)
    fill = ck.Kernel("""
    #include <cudakit/strided.cuh>
    __global__ void fill(cudakit::strided<float, 2> x) { x(threadIdx.x, threadIdx.y) = 1; }""")
    fill(here, ck.config(1, (3, 2)), x[:, 1:3])
    assert not x.any()
    here.sync()
    assert x.tolist() == [[0, 1, 1, 0]] * 3


def test_more_writes_than_are_held_arrive_early(here: EmulatedStream, pinned: np.ndarray) -> None:
    for _ in range(300):
        ADD(here, FOUR, pinned, 1.0)
    assert 0 < pinned[0] < 300
    here.sync()
    assert pinned.tolist() == [300] * 4


def test_what_a_kernel_wrote_before_it_failed_arrives(here: EmulatedStream, pinned: np.ndarray) -> None:
    wrong = ck.Kernel("__global__ void wrong(float* x) { x[0] = 1; __syncthreads(); x[100] = 1; }")
    with pytest.raises(ck.EmulationError, match="wrong"):
        wrong(here, FOUR, pinned)
    assert not pinned.any()
    here.sync()
    assert pinned.tolist() == [1, 0, 0, 0]


def test_arrays_of_the_device_are_as_they_were_left(here: EmulatedStream) -> None:
    """NumPy's arrays stand for a device's: what a kernel is given as it is holds the results at once."""
    x, y = np.zeros(4, np.float32), ck.empty(4, np.float32, stream=here)
    y[:] = 0
    ADD(here, FOUR, x, 1.0)
    ADD(here, FOUR, y, 1.0)
    assert x.tolist() == y.tolist() == [1] * 4
