"""Hazards: real races, which slow kernels make visible; the order that prevents them; the reports that name them.

Wherever a test shows that a result is right, its twin under ``ck.hazards.manual()`` shows that it would be wrong.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.places import another, to_host

import cudakit as ck
from cudakit.streams.order import order
from cudakit.streams.streams import cupy_stream

KERNELS = """
#include <cudakit/strided.cuh>
__device__ void spin(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}
__global__ void write(float* x, float value, long long cycles) { spin(cycles); x[threadIdx.x] = value; }
__global__ void add(float* x, float value, long long cycles) {
    const float before = x[threadIdx.x];
    spin(cycles);
    x[threadIdx.x] = before + value;
}
__global__ void read(const float* x, float* out, long long cycles) { spin(cycles); out[threadIdx.x] = x[threadIdx.x]; }
__global__ void mix(const float* a, const float* b, float* out, long long cycles) {
    const float mine = out[threadIdx.x];
    spin(cycles);
    out[threadIdx.x] = 0.5f * a[threadIdx.x] + 0.25f * b[threadIdx.x] + 0.25f * mine;
}
__global__ void read_view(cudakit::strided<const float, 1> x, float* out, long long cycles) {
    spin(cycles);
    out[threadIdx.x] = x.element(threadIdx.x);
}
struct Box { unsigned long long address; int size; };
__global__ void read_box(Box box, float* out) {
    out[threadIdx.x] = reinterpret_cast<const float*>(box.address)[threadIdx.x];
}
"""
ONE = ck.config(1, 32)


class Kernels:
    """The kernels, and how long a slow one spins."""

    def __init__(self, cycles: int) -> None:
        self.cycles = cycles
        self.steps = 1000 if cycles > 1000 else 120
        for name in ("write", "add", "read", "mix", "read_view", "read_box"):
            setattr(self, name, ck.Kernel(KERNELS, name))

    def __getattr__(self, name: str) -> ck.Kernel:
        raise AttributeError(name)


@pytest.fixture(scope="module")
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Some 20 ms on a GPU; on the emulator a clock's tick is a step."""
    return Kernels(40_000_000 if request.config.getoption("--gpu") else 100)


class Two:
    """Two streams beside that of the test, and arrays; CuPy works on the test's stream, which is idle."""

    def __init__(self, stream: Any, xp: Any, kernels: Kernels) -> None:
        self.first, self.second = another(stream), another(stream)
        self.x, self.out = xp.zeros(32, "f4"), xp.zeros(32, "f4")
        # What is compiled and loaded at first use would hide a race.
        for each in (self.first, self.second):
            kernels.write(each, ONE, xp.zeros(32, "f4"), 0.0, 0)
            kernels.add(each, ONE, xp.zeros(32, "f4"), 0.0, 0)
            kernels.read(each, ONE, xp.zeros(32, "f4"), xp.zeros(32, "f4"), 0)
            kernels.read_view(each, ONE, xp.zeros(32, "f4"), xp.zeros(32, "f4"), 0)
            kernels.mix(each, ONE, xp.zeros(32, "f4"), xp.zeros(32, "f4"), xp.zeros(32, "f4"), 0)
        self.sync()
        stream.sync()

    def sync(self) -> None:
        self.first.sync()
        self.second.sync()


@pytest.fixture
def two(stream: Any, xp: Any, kernels: Kernels) -> Two:
    return Two(stream, xp, kernels)


def read_after_write(two: Two, kernels: Kernels) -> bool:
    kernels.write(two.first, ONE, two.x, 7.0, kernels.cycles)
    kernels.read(two.second, ONE, two.x, two.out, 0)
    two.sync()
    return bool((to_host(two.out) == 7).all())


def write_after_read(two: Two, kernels: Kernels) -> bool:
    kernels.read(two.first, ONE, two.x, two.out, kernels.cycles)
    kernels.write(two.second, ONE, two.x, 7.0, 0)
    two.sync()
    return bool((to_host(two.out) == 0).all())


def write_after_write(two: Two, kernels: Kernels) -> bool:
    kernels.write(two.first, ONE, two.x, 1.0, kernels.cycles)
    kernels.write(two.second, ONE, two.x, 2.0, 0)
    two.sync()
    return bool((to_host(two.x) == 2).all())


def many_times(two: Two, kernels: Kernels) -> bool:
    """Far more uses than memory stays warm for, some repeated past the order."""
    expected = 0
    for round_ in range(6):
        for stream in (two.first, two.second):
            for _ in range(3 if round_ % 2 else 40):
                kernels.add(stream, ONE, two.x, 1.0, 0)
                expected += 1
            kernels.add(stream, ONE, two.x, 1.0, kernels.cycles // 4)
            expected += 1
    two.sync()
    return bool((to_host(two.x) == expected).all())


def test_any_program_gives_what_one_stream_gives(stream: Any, xp: Any, two: Two, kernels: Kernels) -> None:
    """Some arrays are touched on one stream only, some are read on several, some pass on all the time."""
    random = np.random.default_rng(5)
    streams = [two.first, two.second, another(stream)]
    starts = random.random((5, 32)).astype("f4")
    arrays = [xp.array(start) for start in starts]
    expected = list(starts)
    for step in range(kernels.steps):
        a, b, out = random.choice(5, 3, replace=False)
        if step // 50 % 2:  # a time in which each stream keeps to its own
            a, b, out = (0, 1, 2 + step % 3)
            at = step % 3
        else:
            at = random.integers(3)
        for _ in range(random.integers(1, 4)):
            kernels.mix(streams[at], ONE, arrays[a], arrays[b], arrays[out], kernels.cycles // 1000)
            half, quarter = np.float32(0.5), np.float32(0.25)
            expected[out] = half * expected[a] + quarter * expected[b] + quarter * expected[out]
    for each in streams:
        each.sync()
    for array, reference in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(to_host(array), reference, rtol=1e-5)


RACES = [read_after_write, write_after_read, write_after_write]


@pytest.mark.parametrize("race", [*RACES, many_times])
def test_what_must_come_first_comes_first(two: Two, kernels: Kernels, race: Callable[..., bool]) -> None:
    for _ in range(2):
        two.x[:] = 0
        assert race(two, kernels)


@pytest.mark.gpu
@pytest.mark.parametrize("race", [*RACES, many_times])
def test_without_the_order_the_result_is_wrong(two: Two, kernels: Kernels, race: Callable[..., bool]) -> None:
    with ck.hazards.manual():
        assert not race(two, kernels)
    two.x[:] = 0
    two.out[:] = 0
    assert race(two, kernels), "the order goes on after manual()"


@pytest.mark.emulator
@pytest.mark.parametrize("race", RACES)
def test_without_the_order_a_race_is_an_error(two: Two, kernels: Kernels, race: Callable[..., bool]) -> None:
    with ck.hazards.manual(), pytest.raises(ck.EmulationError):
        race(two, kernels)


def test_streams_that_the_user_orders(two: Two, kernels: Kernels) -> None:
    with ck.hazards.manual():
        kernels.write(two.first, ONE, two.x, 7.0, kernels.cycles)
        two.second.wait(two.first.record())
        kernels.read(two.second, ONE, two.x, two.out, 0)
        two.sync()
        assert (to_host(two.out) == 7).all()
        kernels.write(two.second, ONE, two.x, 9.0, kernels.cycles)
        ck.hazards.ordered(two.first, after=two.second)
        kernels.read(two.first, ONE, two.x, two.out, 0)
        two.sync()
        assert (to_host(two.out) == 9).all()


# ── no more than needed ─────────────────────────────────────────────────────────────────────────────────────────────


def elapsed(stream: Any, two: Two, work: Callable[[], None]) -> float:
    """Milliseconds from before what `work` puts on the two streams until both are through."""
    from cuda.core import EventOptions

    timed = EventOptions(timing_enabled=True)
    stream.sync()
    two.sync()
    start = stream.record(options=timed)
    two.first.wait(start)
    two.second.wait(start)
    work()
    stream.wait(two.first)
    stream.wait(two.second)
    end = stream.record(options=timed)
    end.sync()
    return end - start


@pytest.fixture
def one_spin(stream: Any, two: Two, kernels: Kernels, xp: Any) -> float:
    """Milliseconds of one slow kernel."""
    y = xp.zeros(32, "f4")
    return elapsed(stream, two, lambda: kernels.read(two.first, ONE, two.x, y, kernels.cycles))


@pytest.mark.gpu
def test_reads_of_one_array_overlap(stream: Any, xp: Any, two: Two, kernels: Kernels, one_spin: float) -> None:
    y = xp.zeros(32, "f4")

    def reads() -> None:
        kernels.read(two.first, ONE, two.x, two.out, kernels.cycles)
        kernels.read(two.second, ONE, two.x, y, kernels.cycles)

    def views() -> None:
        kernels.read_view(two.first, ONE, two.x, two.out, kernels.cycles)
        kernels.read_view(two.second, ONE, two.x, y, kernels.cycles)

    def writes() -> None:
        kernels.write(two.first, ONE, two.x, 1.0, kernels.cycles)
        kernels.write(two.second, ONE, two.x, 2.0, kernels.cycles)

    for work in (reads, reads, views, views):
        assert elapsed(stream, two, work) < 1.5 * one_spin
    assert elapsed(stream, two, writes) > 1.5 * one_spin, "and writes do not, or this test says nothing"


@pytest.mark.gpu
def test_halves_of_one_allocation_overlap(stream: Any, xp: Any, two: Two, kernels: Kernels, one_spin: float) -> None:
    whole = xp.zeros(64, "f4")
    left, right, middle = whole[:32], whole[32:], whole[16:48]

    def halves() -> None:
        kernels.write(two.first, ONE, left, 1.0, kernels.cycles)
        kernels.write(two.second, ONE, right, 2.0, kernels.cycles)

    def overlapping() -> None:
        kernels.write(two.first, ONE, left, 3.0, kernels.cycles)
        kernels.write(two.second, ONE, middle, 4.0, 0)

    assert elapsed(stream, two, halves) < 1.5 * one_spin
    assert to_host(whole).tolist() == [1] * 32 + [2] * 32
    overlapping()
    two.sync()
    assert to_host(whole).tolist() == [3] * 16 + [4] * 32 + [2] * 16


@pytest.mark.gpu
def test_a_reader_waits_for_the_write_and_not_for_what_came_after(
    stream: Any, xp: Any, two: Two, kernels: Kernels, one_spin: float
) -> None:
    y = xp.zeros(32, "f4")
    read_after_write(two, kernels)  # x has passed from stream to stream: its uses leave events

    def work() -> None:
        kernels.write(two.first, ONE, two.x, 1.0, 0)
        kernels.add(two.first, ONE, y, 1.0, kernels.cycles)
        kernels.read(two.second, ONE, two.x, two.out, kernels.cycles)

    assert elapsed(stream, two, work) < 1.5 * one_spin


# ── what is memory ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.gpu
def test_raw_addresses_are_ordered(two: Two, kernels: Kernels) -> None:
    address = ctypes.c_void_p(two.x.data.ptr)
    for _ in range(3):
        kernels.write(two.first, ONE, two.x, 7.0, kernels.cycles)
        kernels.read(two.second, ONE, address, two.out, 0)
        two.sync()
        assert (to_host(two.out) == 7).all()
        kernels.write(two.first, ONE, address, 9.0, kernels.cycles)
        kernels.read(two.second, ONE, two.x, two.out, 0)
        two.sync()
        assert (to_host(two.out) == 9).all()


@pytest.mark.gpu
def test_buffers_are_ordered(stream: Any, two: Two, kernels: Kernels) -> None:
    buffer = stream.device.memory_resource.allocate(128, stream=stream)
    stream.sync()
    for value in (7.0, 9.0):
        kernels.write(two.first, ONE, buffer, value, kernels.cycles)
        kernels.read(two.second, ONE, buffer, two.out, 0)
        two.sync()
        assert (to_host(two.out) == value).all()
    buffer.close(stream)


class Named:
    """An array that names the stream which its work is on."""

    def __init__(self, array: Any, stream: Any) -> None:
        self.array, self.stream = array, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__cuda_array_interface__, "version": 3, "stream": int(self.stream.handle)}


class Exporting:
    """An array by DLPack alone, which waits for the work on it when it is asked for."""

    def __init__(self, array: Any, stream: Any) -> None:
        self.array, self.stream = array, stream

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        from cuda.core import Stream

        if stream not in (None, -1):
            Stream.from_handle(stream).wait(self.stream)
        return self.array.__dlpack__(stream=-1, **options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [Named, Exporting])
def test_the_stream_that_an_array_names_is_waited_for(two: Two, kernels: Kernels, kind: type) -> None:
    given = kind(two.x, two.first)
    # Plans launch past the order, as work does that cudakit does not know of.
    plans = {value: kernels.write.plan(two.first, ONE, two.x, value, kernels.cycles) for value in (1.0, 2.0, 3.0)}
    kernels.read(two.second, ONE, two.x, two.out, 0)
    plans[1.0]()
    kernels.read(two.second, ONE, two.x, two.out, 0)
    two.sync()
    assert (to_host(two.out) == 0).all(), "or this test says nothing"
    for value, plan in plans.items():
        plan()
        kernels.read(two.second, ONE, given, two.out, 0)
        two.sync()
        assert (to_host(two.out) == value).all()


@pytest.mark.gpu
def test_torchs_current_stream_is_waited_for(two: Two, kernels: Kernels) -> None:
    torch = pytest.importorskip("torch")
    x, out = torch.zeros(32, device="cuda"), torch.zeros(32, device="cuda")
    torch.cuda.synchronize()
    for value in (1.0, 2.0):
        torch.cuda._sleep(kernels.cycles)
        x.fill_(value)
        kernels.read(two.second, ONE, x, out, 0)
        two.sync()
        assert (out == value).all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["null", "ptds", "another"])
def test_cupys_current_stream_is_waited_for_at_each_repeated_launch(
    xp: Any, two: Two, kernels: Kernels, name: str
) -> None:
    current = xp.cuda.Stream(non_blocking=True) if name == "another" else getattr(xp.cuda.Stream, name)
    # Plans launch past the order, as CuPy's own kernels do.
    plans = [kernels.write.plan(current, ONE, two.x, float(value), kernels.cycles // 10) for value in range(1, 12)]
    with current:
        for value, plan in enumerate(plans, 1):
            plan()
            kernels.read(two.second, ONE, two.x, two.out, 0)
            two.sync()
            assert (to_host(two.out) == value).all()
            current.synchronize()


@pytest.mark.gpu
@pytest.mark.parametrize("own", [True, False])
def test_what_comes_after_manual_comes_after_all_of_it(xp: Any, two: Two, kernels: Kernels, own: bool) -> None:
    """Launches go past the order inside, or nearly so where CuPy's stream is not their `own`."""
    third = another(two.first)
    for _ in range(3):
        two.x[:] = 0
        xp.cuda.get_current_stream().synchronize()
        with ck.hazards.manual():
            for _ in range(20):
                for each, other in ((two.first, two.second), (two.second, two.first)):
                    each.wait(other.record())
                    with cupy_stream(each) if own else contextlib.nullcontext():
                        kernels.add(each, ONE, two.x, 1.0, kernels.cycles // 20)
        kernels.read(third, ONE, two.x, two.out, 0)
        third.sync()
        assert (to_host(two.out) == 40).all()


@pytest.mark.gpu
def test_copies_are_ordered(two: Two, kernels: Kernels, xp: Any) -> None:
    host = np.empty(32, "f4")
    for value in (7.0, 9.0):
        kernels.write(two.first, ONE, two.x, value, kernels.cycles)
        with order().around(two.second, reads=(two.x,), writes=(two.out,)):
            runtime = xp.cuda.runtime
            runtime.memcpyAsync(two.out.data.ptr, two.x.data.ptr, 128, runtime.memcpyDeviceToDevice,
                                int(two.second.handle))  # fmt: skip
        kernels.read(two.first, ONE, two.out, two.x, 0)
        two.sync()
        host[:] = to_host(two.x)
        assert (host == value).all()


def held() -> list[int]:
    """Addresses of the arrays that the order keeps for work that may not be done."""
    tracks = order().by_handle.values()
    things = [kept for track in tracks for kept in (*(each for _, each in track.holdings), *track.repeated.values())]
    return [each.data.ptr for kept in things for each in kept or () if hasattr(each, "data")]


@pytest.mark.gpu
def test_memory_dropped_on_one_stream_is_kept_for_another(stream: Any, xp: Any, two: Two, kernels: Kernels) -> None:
    for _ in range(3):
        y = xp.full(32, 5, "f4")
        address = y.data.ptr
        kernels.read(two.first, ONE, y, two.out, kernels.cycles)
        del y
        fresh = [xp.full(32, 6, "f4") for _ in range(4)]
        stream.sync()
        assert address not in [array.data.ptr for array in fresh]
        assert address in held()
        two.sync()
        assert (to_host(two.out) == 5).all()
        order().release()
        # Not the array itself is looked for: compute-sanitizer keeps Python's frames of a launch, and what they have.
        assert address not in held()


@pytest.mark.gpu
def test_a_capture_waits_once_and_leaves_no_events(stream: Any, xp: Any, two: Two, kernels: Kernels) -> None:
    kernels.write(two.first, ONE, two.x, 7.0, kernels.cycles)
    kernels.write(two.second, ONE, two.out, 1.0, 0)
    with order().capturing(two.second) as captured:
        builder = two.second.create_graph_builder()
        builder.begin_building("relaxed")
        kernels.read(builder.stream, ONE, two.x, two.out, 0)
        kernels.read(builder.stream, ONE, two.x, two.out, 0)
        builder.end_building()
        graph = builder.complete()
    assert len(captured.reads) == len(captured.writes) == 1
    two.sync()
    assert (to_host(two.out) == 1).all()
    for value in (3.0, 4.0):
        kernels.write(two.first, ONE, two.x, value, kernels.cycles)
        with order().around(two.second, tuple(captured.reads), tuple(captured.writes)):
            graph.launch(two.second)
        kernels.write(two.first, ONE, two.x, 0.0, 0)
        two.sync()
        assert (to_host(two.out) == value).all()


# ── reports ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def lines() -> Callable[[str], int]:
    """Number of the line of this file that ends in a marker."""
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    return lambda marker: next(number for number, line in enumerate(text, 1) if line.endswith(f"# {marker}"))


def test_the_report_names_both_sides(two: Two, kernels: Kernels, lines: Callable[[str], int]) -> None:
    with ck.hazards.trace() as report:
        kernels.write(two.first, ONE, two.x, 7.0, kernels.cycles)  # the write
        kernels.read(two.second, ONE, two.x, two.out, 0)  # the read
        kernels.read(two.second, ONE, two.x, two.out, 0)  # again
        two.sync()
    put_in, implied = [d for d in report.dependencies if d.first.work == "write"]
    assert (put_in.status, put_in.kind, implied.status) == ("put in", "read after write", "implied")
    assert (put_in.first.work, put_in.first.parameter) == ("write", "x")
    assert (put_in.second.work, put_in.second.parameter) == ("read", "x")
    assert put_in.first.stream != put_in.second.stream
    assert put_in.first.site == f"{__file__}:{lines('the write')}"
    assert put_in.second.site == f"{__file__}:{lines('the read')}"
    assert implied.second.site == f"{__file__}:{lines('again')}"
    assert put_in.memory is not None
    assert put_in.memory[1] - put_in.memory[0] == 128
    text = str(report)
    assert re.search(r"put in: read after write of 128 bytes at 0x", text)
    assert f"write (x) on {put_in.first.stream}, {__file__}:{lines('the write')}" in text
    assert not report.missing


def test_what_is_read_on_two_streams_is_no_dependency(two: Two, kernels: Kernels, xp: Any) -> None:
    y = xp.zeros(32, "f4")
    with ck.hazards.trace() as report:
        kernels.read(two.first, ONE, two.x, two.out, 0)
        kernels.read(two.second, ONE, two.x, y, 0)
    assert not [d for d in report.dependencies if d.second.parameter == "x" and d.first.work == "read"]


@pytest.mark.gpu
def test_a_missing_one_is_reported_and_seen(two: Two, kernels: Kernels, lines: Callable[[str], int]) -> None:
    with ck.hazards.manual(), ck.hazards.trace() as report:
        kernels.write(two.first, ONE, two.x, 7.0, kernels.cycles)  # missing, first
        kernels.read(two.second, ONE, two.x, two.out, 0)  # missing, second
        two.sync()
    (missing,) = [d for d in report.missing if d.first.work == "write"]
    assert missing.seen
    assert missing.first.site.endswith(f":{lines('missing, first')}")
    assert missing.second.site.endswith(f":{lines('missing, second')}")
    assert "missing, and seen to race: read after write" in str(report)


@pytest.mark.gpu
def test_what_the_user_ordered_is_not_seen_to_race(two: Two, kernels: Kernels) -> None:
    with ck.hazards.manual(), ck.hazards.trace() as report:
        kernels.write(two.first, ONE, two.x, 7.0, kernels.cycles)
        two.second.wait(two.first.record())
        kernels.read(two.second, ONE, two.x, two.out, 0)
        kernels.write(two.second, ONE, two.x, 8.0, kernels.cycles)
        ck.hazards.ordered(two.first, after=two.second)
        kernels.read(two.first, ONE, two.x, two.out, 0)
        two.sync()
    missing = [d for d in report.missing if d.first.work == "write"]
    assert missing
    assert not any(d.seen for d in missing)
    assert [d.status for d in report.dependencies if d.kind == "read after write"] == ["missing", "implied"]


@pytest.mark.gpu
def test_a_plan_that_is_launched_later_is_reported(
    two: Two, kernels: Kernels, xp: Any, lines: Callable[[str], int]
) -> None:
    plan = kernels.read.plan(two.second, ONE, two.x, two.out, 0)
    with ck.hazards.trace() as report:
        kernels.write(two.first, ONE, two.x, 7.0, kernels.cycles)
        plan()  # the plan
    (missing,) = [d for d in report.missing if d.first.work == "write"]
    assert missing.seen
    assert missing.second.parameter == "x"
    assert missing.second.site.endswith(f":{lines('the plan')}")
    two.sync()


@pytest.mark.gpu
def test_addresses_in_structs_are_told_as_unseen(two: Two, kernels: Kernels) -> None:
    box = np.array((two.x.data.ptr, 32), np.dtype([("address", "u8"), ("size", "i4")], align=True))[()]
    with ck.hazards.trace() as report:
        kernels.read_box(two.second, ONE, box, two.out)
    (unseen,) = [d for d in report.dependencies if d.status == "unseen"]
    assert "box (Box)" in unseen.kind
    two.sync()


@pytest.mark.gpu
def test_work_of_cupy_on_another_stream_is_told(stream: Any, two: Two, kernels: Kernels) -> None:
    with ck.hazards.trace() as report:
        kernels.read(two.second, ONE, two.x, two.out, 0)
    (foreign,) = [d for d in report.dependencies if d.kind == "after what is unseen"]
    assert foreign.status == "put in"
    assert foreign.first.stream == f"stream {int(stream.handle):#x}"
    two.sync()


@pytest.mark.slow
def test_repeated_dependencies_are_counted(two: Two, kernels: Kernels) -> None:
    with ck.hazards.trace() as report:
        for _ in range(1200):
            kernels.write(two.first, ONE, two.x, 7.0, 0)
            kernels.write(two.second, ONE, two.x, 7.0, 0)
        two.sync()
    assert len(report.dependencies) < 20
    clashes = [d for d in report.dependencies if d.kind == "write after write" and d.first.work == "write"]
    # On a GPU some are put in, and some are done before they could be.
    assert 2395 <= sum(report.times(each) for each in clashes) <= 2400
    assert re.search(r"\d+ times", str(report))
