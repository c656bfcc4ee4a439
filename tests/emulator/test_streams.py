"""Several emulated streams: who comes before whom, what races, and at which step work begins."""

from __future__ import annotations

import functools
import gc
import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from support.emulated import of_numpy
from support.places import another, to_host

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.streams.order import order
from cudakit.emulator.streams.watch import History
from cudakit.streams import segments as segments
from cudakit.streams.witnesses import Witness, Work, doing, witnessing

SOURCE = """
__global__ void put(int* x, int by) { x[threadIdx.x] = by; }
__global__ void get(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void count(int* x) { atomicAdd(x + threadIdx.x, 1); }
__global__ void count_in_block(int* x) { atomicAdd_block(x + threadIdx.x, 1); }
__global__ void look(volatile const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }
__global__ void through(int* const* table, const int* kept) { table[0][threadIdx.x] = kept[threadIdx.x] + 1; }
__global__ void put_from(int* x, int from, int by) { x[from + threadIdx.x] = by; }
__global__ void fetch(cudaTextureObject_t t, int* y) { y[threadIdx.x] = tex1Dfetch<int>(t, threadIdx.x); }
__global__ void add_slowly(int* x) {
    int was = x[threadIdx.x];
    for (int i = 0; i < 50; ++i) __syncthreads();
    x[threadIdx.x] = was + 1;
}
__device__ int total;
__global__ void add_up(int by) { total += by; }
__global__ void spin(int* x, int n) { for (int i = 0; i < n; ++i) x[0] += x[i & 7]; }
"""
WARP = ck.config(1, 32)


@functools.cache
def kernel(name: str) -> ck.Kernel:
    return ck.Kernel(SOURCE, name)


@pytest.fixture
def streams() -> tuple[emulator.EmulatedStream, emulator.EmulatedStream]:
    return emulator.stream(), emulator.stream()


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(32, dtype="i4")


@pytest.fixture
def y() -> np.ndarray:
    return np.zeros(32, "i4")


def pointers(*arrays: np.ndarray) -> np.ndarray:
    return np.array([array.ctypes.data for array in arrays], "u8")


# ── the same programs in both places ──


def test_a_program_with_streams_events_and_waits(stream: Any, xp: Any) -> None:
    """Runs as it is on a GPU, too: three streams, forked and joined by events."""
    left, right = another(stream), another(stream)
    with ck.using(stream):
        x, y, z = xp.zeros(32, "i4"), xp.zeros(32, "i4"), xp.zeros(32, "i4")
    with ck.hazards.manual():
        kernel("put")(stream, WARP, x, 5)
        forked = stream.record()
        for each, target in ((left, y), (right, z)):
            each.wait(forked)
            kernel("get")(each, WARP, x, target)
        stream.wait(left)
        stream.wait(right.record())
        kernel("count")(stream, WARP, y)
        kernel("count")(stream, WARP, z)
        stream.sync()
    assert (to_host(y) == 6).all()
    assert (to_host(z) == 6).all()
    assert forked.is_done


def test_by_default_conflicts_are_waited_for(stream: Any, xp: Any) -> None:
    other = another(stream)
    with ck.using(stream):
        x, y = xp.zeros(32, "i4"), xp.zeros(32, "i4")
    for by in range(3):
        kernel("put")(stream, WARP, x, by)
        kernel("get")(other, WARP, x, y)
        kernel("count")(stream, WARP, y)
    stream.sync()
    assert (to_host(y) == 3).all()


# ── races ──


@pytest.mark.emulator
class TestRaces:
    @pytest.fixture(autouse=True)
    def _manual(self) -> Any:
        with ck.hazards.manual():
            yield

    def test_a_read_after_a_write_names_all(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        kernel("put")(streams[0], ck.config(1, 8), x[4:], 5)
        with pytest.raises(ck.EmulationError) as caught:
            kernel("get")(streams[1], WARP, x, y)
        first, second = (f"stream {stream.handle}" for stream in streams)
        text = str(caught.value)
        assert text.startswith(f"race: get on {second} ({__file__}:")
        assert "reads bytes 16 … 47 of x (elements 4 … 11), which put on " in text
        assert f"put on {first} ({__file__}:" in text
        assert "writes as bytes 0 … 31 of x (elements 0 … 7), and neither comes first" in text

    def test_a_write_after_a_read(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        kernel("get")(streams[0], WARP, x, y)
        with pytest.raises(ck.EmulationError, match=r"put on .* writes bytes 0 … 127 of x .* get on .* reads"):
            kernel("put")(streams[1], WARP, x, 1)

    def test_a_write_after_a_write(self, streams: Any, x: np.ndarray) -> None:
        kernel("put")(streams[0], WARP, x, 1)
        with pytest.raises(ck.EmulationError, match=r"put on stream .* writes .* put on stream .* writes, and neither"):
            kernel("put")(streams[1], WARP, x, 1)

    def test_parameters_of_other_names_are_both_named(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        kernel("get")(streams[0], WARP, x, y)
        with pytest.raises(
            ck.EmulationError, match=r"bytes 0 … 63 of x \(elements 0 … 15\), which .* writes as bytes 64 … "
        ):
            kernel("put")(streams[1], ck.config(1, 16), y[16:], 1)

    def test_reads_do_not_race(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        for stream, target in zip(streams, (y, y.copy()), strict=True):
            kernel("get")(stream, WARP, x, target)

    def test_disjoint_halves_do_not_race(self, streams: Any, x: np.ndarray) -> None:
        half = ck.config(1, 16)
        kernel("put")(streams[0], half, x, 1)
        kernel("put")(streams[1], half, x[16:], 2)
        with pytest.raises(
            ck.EmulationError, match=r"bytes 0 … 3 of x \(element 0\), .* as bytes 60 … 63 of x \(element 15\)"
        ):
            kernel("put")(streams[1], ck.config(1, 1), x[15:], 2)

    def test_what_is_not_touched_does_not_race(self, streams: Any, x: np.ndarray) -> None:
        """Each kernel is given all of x, and of the second half touches some."""
        half = ck.config(1, 16)
        kernel("put")(streams[0], half, x, 1)
        kernel("put_from")(streams[1], half, x, 16, 2)
        with pytest.raises(ck.EmulationError, match=r"race: put_from .* \(elements 12 … 15\)"):
            kernel("put_from")(streams[1], half, x, 12, 2)

    def test_atomics_race_with_plain_accesses_only(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        kernel("count")(streams[0], WARP, x)
        kernel("count")(streams[1], WARP, x)
        kernel("look")(streams[1], WARP, x, y)
        with pytest.raises(ck.EmulationError, match=r"reads .* count on .* changes atomically"):
            kernel("get")(streams[1], WARP, x, y)

    def test_atomics_of_a_block_are_plain_to_others(self, streams: Any, x: np.ndarray) -> None:
        kernel("count")(streams[0], WARP, x)
        with pytest.raises(ck.EmulationError, match="race: count_in_block"):
            kernel("count_in_block")(streams[1], WARP, x)

    def test_volatile_reads_race_with_plain_writes(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        kernel("look")(streams[0], WARP, x, y)
        with pytest.raises(ck.EmulationError, match="reads atomically"):
            kernel("put")(streams[1], WARP, x, 1)

    def test_device_variables_are_memory_too(self, streams: Any) -> None:
        add_up = kernel("add_up")
        add_up(streams[0], ck.config(1, 1), 0)
        add_up.globals["total"] = 0
        add_up(streams[0], ck.config(1, 1), 1)
        with pytest.raises(ck.EmulationError, match="variable total"):
            add_up(streams[1], ck.config(1, 1), 1)
        assert int(add_up.globals["total"]) == 2
        add_up(streams[0], ck.config(1, 1), 1)

    def test_texture_lookups_read(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        texels = ck.texture(x, memory="linear")
        kernel("put_from")(streams[0], ck.config(1, 8), x, 16, 1)
        kernel("fetch")(streams[1], ck.config(1, 16), texels, y)
        with pytest.raises(ck.EmulationError, match=r"reads bytes 64 … 67 of the texture \(element 16\)"):
            kernel("fetch")(streams[1], ck.config(1, 17), texels, y)

    def test_views_made_for_one_call_are_of_one_memory(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        class Tensor:
            """What is asked of a tensor, as torch answers it; x[8:]."""

            is_cuda, shape, dtype = False, (24,), "torch.int32"

            def data_ptr(self) -> int:
                return int(x[8:].ctypes.data)

            def stride(self) -> tuple[int, ...]:
                return (1,)

        Tensor.__module__ = "torch"
        tensor: Any = Tensor()
        kernel("put")(streams[0], ck.config(1, 8), tensor, 1)
        gc.collect()
        with pytest.raises(ck.EmulationError, match=r"bytes 32 … 63 of x .* as bytes 0 … 31 of x"):
            kernel("get")(streams[1], WARP, x[:], y)

    def test_the_error_comes_once_and_the_streams_go_on(self, streams: Any, x: np.ndarray) -> None:
        kernel("put")(streams[0], WARP, x, 1)
        with pytest.raises(ck.EmulationError, match="race"):
            kernel("put")(streams[1], WARP, x, 2)
        for stream in streams:
            stream.sync()
        kernel("put")(streams[0], WARP, x, 3)
        assert (x == 3).all()


@pytest.mark.emulator
def test_pointers_that_no_parameter_shows_race(streams: Any, x: np.ndarray, y: np.ndarray) -> None:
    """The declared arguments order nothing here: each kernel says that it only reads x."""
    table = pointers(x)
    kernel("through")(streams[0], WARP, table, x)
    with pytest.raises(ck.EmulationError, match=r"reads bytes 0 … 127 of x .* through on .* writes as .* of kept"):
        kernel("get")(streams[1], WARP, x, y)


@pytest.mark.emulator
def test_a_plan_is_ordered_when_it_is_made(streams: Any, x: np.ndarray, y: np.ndarray) -> None:
    kernel("put")(streams[0], WARP, x, 1)
    plan = kernel("get").plan(streams[1], WARP, x, y)
    plan()
    kernel("put")(streams[0], WARP, x, 2)
    with pytest.raises(ck.EmulationError, match="race: get"):
        plan()


# ── order ──


@pytest.mark.emulator
class TestOrder:
    @pytest.fixture(autouse=True)
    def _manual(self) -> Any:
        with ck.hazards.manual():
            yield

    def test_by_an_event(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        first, second = streams
        kernel("put")(first, WARP, x, 1)
        event = first.record()
        second.wait(event)
        kernel("get")(second, WARP, x, y)
        kernel("put")(second, WARP, x, 2)
        with pytest.raises(ck.EmulationError, match="race"):
            kernel("get")(first, WARP, x, y.copy())

    def test_an_event_stands_for_what_was_before_it(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        first, second = streams
        event = first.record()
        kernel("put")(first, WARP, x, 1)
        second.wait(event)
        with pytest.raises(ck.EmulationError, match="race"):
            kernel("get")(second, WARP, x, y)

    def test_an_event_may_be_recorded_again(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        first, second = streams
        event = first.record()
        kernel("put")(first, WARP, x, 1)
        assert first.record(event) is event
        second.wait(event)
        kernel("get")(second, WARP, x, y)

    def test_through_a_third_stream(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        first, second = streams
        third = emulator.stream()
        kernel("put")(first, WARP, x, 1)
        third.wait(first)
        second.wait(third)
        kernel("get")(second, WARP, x, y)

    @pytest.mark.parametrize("how", ["stream.sync", "event.sync", "event.is_done"])
    def test_by_the_host(self, streams: Any, x: np.ndarray, y: np.ndarray, how: str) -> None:
        first, second = streams
        kernel("put")(first, WARP, x, 1)
        if how == "stream.sync":
            first.sync()
        elif how == "event.sync":
            first.record().sync()
        else:
            assert first.record().is_done
        kernel("get")(second, WARP, x, y)
        kernel("get")(emulator.stream(), WARP, x, y.copy())

    def test_syncing_one_stream_orders_that_one(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        kernel("put")(streams[0], WARP, x, 1)
        streams[1].sync()
        with pytest.raises(ck.EmulationError, match="race"):
            kernel("get")(streams[1], WARP, x, y)

    def test_a_stream_that_is_gone_has_not_finished(self, streams: Any, x: np.ndarray, y: np.ndarray) -> None:
        stream = emulator.stream()
        kernel("put")(stream, WARP, x, 1)
        del stream
        with pytest.raises(ck.EmulationError, match="race"):
            kernel("get")(streams[0], WARP, x, y)

    def test_memory_that_is_gone_is_forgotten(self, streams: Any) -> None:
        """NumPy gives the same memory again; whoever gets it has nothing to wait for."""
        addresses = set()
        for number in range(20):
            fresh = np.zeros(32, "i4")
            addresses.add(fresh.ctypes.data)
            kernel("put")(streams[number % 2], WARP, fresh, 1)
            del fresh
        assert len(addresses) < 20


@pytest.mark.emulator
def test_waiting_takes_events_and_streams_of_the_emulator(streams: Any) -> None:
    for wrong in (None, 3, streams[0].handle):
        with pytest.raises(ck.ArgumentError, match="waits for an emulated event or stream"):
            streams[0].wait(wrong)
    with pytest.raises(ck.ArgumentError, match="records its own events, not int"):
        streams[0].record(3)
    with pytest.raises(ck.ArgumentError, match="not from int"):
        streams[0].record() - 3


@pytest.mark.emulator
def test_streams_are_told_apart(streams: Any) -> None:
    assert streams[0] != streams[1]
    assert len({*streams, streams[0]}) == 2
    assert streams[1].handle == streams[0].handle + 1
    assert f"handle={streams[0].handle}" in repr(streams[0])


# ── copies ──


@pytest.mark.emulator
def test_copies_take_part(streams: Any, x: np.ndarray, y: np.ndarray) -> None:
    first, second = streams
    with ck.hazards.manual():
        kernel("put")(first, WARP, x, 1)
        with (
            pytest.raises(ck.EmulationError, match=r"fetch on .* reads bytes 0 … 127 of its source .* put on .* of x"),
            doing("copy", "fetch", second, reads=(x,), writes=(y,), size=x.nbytes),
        ):
            pytest.fail("the copy was made before it was checked")
        second.wait(first)
        with doing("copy", "fetch", second, reads=(x,), writes=(y,), size=x.nbytes):
            y[:] = x
        with pytest.raises(ck.EmulationError, match=r"writes as .* of its target"):
            kernel("put")(first, WARP, y, 1)


@pytest.mark.emulator
def test_copies_of_every_second_element_leave_the_others(streams: Any, x: np.ndarray) -> None:
    with ck.hazards.manual():
        for stream, part in zip(streams, (x[::2], x[31::-2]), strict=True):
            with doing("fill", "clear", stream, writes=(part,), size=part.nbytes):
                part[:] = 0
        with pytest.raises(ck.EmulationError, match=r"bytes 4 … 7 "):
            kernel("put")(streams[0], WARP, x, 1)


@pytest.mark.emulator
def test_copies_wait_by_default(streams: Any, x: np.ndarray, y: np.ndarray) -> None:
    first, second = streams
    kernel("put")(first, WARP, x, 1)
    with doing("copy", "fetch", second, reads=(x,), writes=(y,), size=x.nbytes):
        y[:] = x
    kernel("put")(first, WARP, x, 2)
    assert first.clock > second.clock > 8


# ── steps ──


@pytest.mark.emulator
def test_events_have_the_steps_of_the_work_between_them(streams: Any, x: np.ndarray) -> None:
    first, _ = streams
    spin = kernel("spin")
    marks = [first.record()]
    for rounds in (40, 80, 120):
        spin(first, ck.config(1, 1), x, rounds)
        marks.append(first.record())
    short, middle, long = (after - before for before, after in pairwise(marks))
    assert 0 < short < middle < long
    assert long - middle == middle - short


class Spans(Witness):
    """When each piece of work began and ended, as a witness sees it."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, int]] = []

    def begin(self, work: Work) -> int:
        return int(work.stream.clock)

    def end(self, work: Work, begun: int) -> None:
        self.found.append((work.name, begun, work.stream.clock))


@pytest.mark.emulator
def test_independent_work_overlaps_and_dependent_work_does_not(x: np.ndarray, y: np.ndarray) -> None:
    first, second = emulator.stream(), emulator.stream()
    spin, spans = kernel("spin"), Spans()
    start = order().step
    with witnessing(spans):
        spin(first, ck.config(1, 1), x, 100)
        spin(second, ck.config(1, 1), y, 50)
        spin(second, ck.config(1, 1), x, 10)
        with doing("copy", "fetch", first, reads=(y,), size=y.nbytes):
            pass
        second.sync()
        spin(first, ck.config(1, 1), y, 1)
    (_, a, a_end), (_, b, b_end), (_, c, c_end), (_, d, d_end), (_, e, _) = spans.found
    assert a == b == start
    assert b_end < a_end == c
    assert (d, d_end) == (a_end, a_end + 128 // 16)
    assert e == c_end > d_end


@pytest.mark.emulator
def test_the_timeline_is_the_same_each_time(x: np.ndarray) -> None:
    def once() -> list[int]:
        streams = [emulator.stream() for _ in range(3)]
        begun = [stream.record() for stream in streams]
        for number in range(9):
            fresh = np.zeros(32, "i4")
            kernel("spin")(streams[number % 3], ck.config(1, 1), fresh, number)
            kernel("get")(streams[number % 2], WARP, fresh, x)
        ended = [stream.record() for stream in streams]
        for stream in streams:
            stream.sync()
        return [end - begin for begin, end in zip(begun, ended, strict=True)]

    first = once()
    assert len(set(first)) == 3
    assert once() == first


# ── what it costs ──


@of_numpy
@pytest.mark.emulator
def test_one_stream_is_not_watched(x: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit.emulator.streams import order as module

    gc.collect()
    watchers: list[Any] = []
    views = Memory.views

    def seen(self: Memory, *given: Any) -> Any:
        watchers.append(self.watcher)
        return views(self, *given)

    monkeypatch.setattr(Memory, "views", seen)
    monkeypatch.setattr(module, "_order", module.Order())
    only = emulator.stream(machine="numpy")  # of many calls one becomes machine code, which asks for no views
    for _ in range(3):
        kernel("get")(only, WARP, x, y)
        only.wait(only.record())
    assert set(watchers) == {None}
    assert not module.order().watches
    second = emulator.stream()
    kernel("get")(only, WARP, x, y)
    assert watchers[-1] is not None
    kernel("put")(only, WARP, x, 1)
    del second
    watchers.clear()
    kernel("get")(only, WARP, x, y)
    assert set(watchers) == {None}


@pytest.mark.emulator
def test_one_stream_is_watched_while_it_may_race_with_one_that_is_gone(
    x: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cudakit.emulator.streams import order as module

    monkeypatch.setattr(module, "_order", module.Order())
    only = emulator.stream(machine="numpy")  # of many calls one becomes machine code, which asks for no views
    kernel("put")(emulator.stream(), WARP, x, 1)
    with ck.hazards.manual(), pytest.raises(ck.EmulationError, match="race"):
        kernel("get")(only, WARP, x, y)
    kernel("put")(only, WARP, x, 2)
    only.record()
    assert not module.order().watches


@pytest.mark.emulator
def test_a_kernel_that_fails_leaves_nothing_behind(streams: Any, x: np.ndarray, y: np.ndarray) -> None:
    with pytest.raises(ck.EmulationError, match="outside every array"):
        kernel("put")(streams[0], ck.config(1, 64), x, 1)
    clock = streams[0].clock
    assert clock > order().step
    kernel("put")(streams[1], WARP, x, 2)
    kernel("get")(streams[0], WARP, x, y)
    assert (y == 2).all()


@pytest.mark.emulator
def test_threads_take_turns(x: np.ndarray) -> None:
    """What waits for work of another thread really comes after it."""
    add_up, failed = kernel("add_slowly"), []

    def work() -> None:
        try:
            own = emulator.stream()
            for _ in range(10):
                add_up(own, WARP, x)
        except ck.EmulationError as error:
            failed.append(error)

    before = x.copy()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert (x == before + 40).all()


@pytest.mark.emulator
def test_a_forked_child_runs_kernels_though_a_thread_of_its_parent_was_busy(x: np.ndarray) -> None:
    stream = emulator.stream()
    kernel("put")(stream, WARP, x, 1)
    with ThreadPoolExecutor(1) as other:
        other.submit(order().lock.acquire).result()
        try:
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                try:
                    kernel("put")(stream, WARP, x, 2)
                finally:
                    os._exit(int(x[0]))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        finally:
            other.submit(order().lock.release).result()


@pytest.mark.slow
@pytest.mark.emulator
def test_what_is_remembered_does_not_grow(streams: Any) -> None:
    """No stream is ever waited for by the host, and one has nothing to do."""
    idle = emulator.stream()
    ring = [np.zeros(32, "i4") for _ in range(3)]
    sizes = []
    for number in range(600):
        x, y = ring[number % 3], ring[(number + 1) % 3]
        kernel("get")(streams[number % 2], WARP, x, y)
        fresh = np.zeros(32, "i4")
        kernel("put")(streams[number % 2], WARP, fresh, 1)
        if number % 200 == 199:
            sizes.append((len(order()._history.touches), len(order()._memory)))
    assert len(set(sizes)) == 1
    assert sizes[0][0] < 20
    assert idle.clock == order().step


@pytest.mark.emulator
@pytest.mark.parametrize(
    "method", ["Segment.__init__", "Segments.forget_range", "History._near", "History.forget_memory"]
)
def test_a_finalizer_may_sync_a_stream_in_the_middle_of_it(
    streams: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A collection may come wherever an object is made; what it drops may wait for streams."""
    ring = [np.zeros(32, "i4") for _ in range(3)]
    owner, _, name = method.partition(".")
    kind: Any = getattr(segments, owner, History)
    done, calls = getattr(kind, name), []
    spare = list(np.zeros((4, 300), "i4"))  # four, each of which is dropped in the middle of something

    def collected(*arguments: Any) -> Any:
        result = done(*arguments)
        calls.append(1)
        if spare and len(calls) > 20:
            spare.pop()
        streams[len(calls) % 2].sync()
        return result

    for number, array in enumerate(spare):
        spare[number] = array.copy()
        for part in range(8):
            kernel("put")(streams[part % 2], ck.config(1, 20), spare[number][32 * part :], number)
    monkeypatch.setattr(kind, name, collected)
    for number in range(60):
        whole = ring[number % 3]
        kernel("put")(streams[number % 2], ck.config(1, 20), whole[number % 7 :], number)
        kernel("get")(streams[number % 2], WARP, whole, ring[(number + 1) % 3])
        ring[number % 3] = np.zeros(32, "i4")
    assert len(calls) > 60
    assert not spare


@pytest.mark.emulator
def test_dependencies_are_reported(streams: Any, x: np.ndarray, y: np.ndarray) -> None:
    first, second = streams
    with ck.hazards.trace() as report:
        kernel("put")(first, WARP, x, 1)
        kernel("get")(second, WARP, x, y)
        with ck.hazards.manual(), pytest.raises(ck.EmulationError, match="race"):
            kernel("put")(first, WARP, x, 1)
    put_in, missing = report.dependencies
    assert (put_in.status, put_in.kind) == ("put in", "read after write")
    assert (missing.status, missing.kind) == ("missing", "write after read")
    assert missing.first.work == "get"
    assert missing.first.stream == f"emulated stream {second.handle}"
    assert missing.second.site.startswith(__file__)


@pytest.mark.emulator
def test_work_after_a_plan_is_the_callers_to_order(streams: Any, x: np.ndarray, y: np.ndarray) -> None:
    """As on a GPU, where a plan's launches are not seen: who waited for the plan does not wait for its next launch."""
    plan, get, z = kernel("put").plan(streams[0], WARP, x, 1), kernel("get"), y.copy()
    third = emulator.stream()
    plan()
    get(streams[1], WARP, x, y)  # which waits for all that the plan's stream was given
    assert streams[1].clock > streams[0].clock
    get(third, WARP, x, z)  # and this for the same
    for stream in (streams[1], third):
        streams[0].wait(stream)
    plan()
    with pytest.raises(ck.EmulationError, match="race: get on stream"):
        get(streams[1], WARP, x, y)
    streams[0].wait(streams[1])
    plan()
    streams[1].wait(streams[0])
    get(streams[1], WARP, x, y)


@pytest.mark.emulator
def test_each_of_several_traces_is_told(streams: Any, x: np.ndarray, y: np.ndarray) -> None:
    with ck.hazards.trace() as outer:
        kernel("put")(streams[0], WARP, x, 1)
        with ck.hazards.trace() as inner:
            kernel("get")(streams[1], WARP, x, y)
    assert outer.dependencies == inner.dependencies
    (found,) = inner.dependencies
    assert (found.first.work, found.second.work, found.second.parameter) == ("put", "get", "x")


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("seed", range(30))
def test_races_are_those_of_the_definition(seed: int) -> None:
    """Random programs: each work races exactly where an earlier one conflicts and is not known to come before."""
    chance = random.Random(seed)
    streams, memory = [emulator.stream() for _ in range(3)], np.zeros(12, "i1")
    known: list[set[int]] = [set() for _ in streams]
    host: set[int] = set()
    works: list[tuple[slice, bool]] = []
    events: list[tuple[Any, set[int]]] = []
    races = 0
    for _ in range(60):
        place, act = chance.randrange(3), chance.random()
        stream = streams[place]
        if act < 0.6:
            start = chance.randrange(12)
            touched, writes = slice(start, chance.randint(start + 1, 12)), chance.random() < 0.4
            before = known[place] | host
            races_now = any(
                (writes or wrote) and touched.start < other.stop and other.start < touched.stop
                for number, (other, wrote) in enumerate(works)
                if number not in before
            )
            given = {"writes" if writes else "reads": (memory[touched],)}
            caught = None
            try:
                with ck.hazards.manual(), doing("copy", "touch", stream, size=1, **given):
                    pass
            except ck.EmulationError as error:
                caught = error
            assert (caught is not None) == races_now, (works, touched, writes)
            races += races_now
            known[place] = before | {len(works)}
            works.append((touched, writes))
        elif act < 0.75:
            events.append((stream.record(), known[place] | host))
        elif act < 0.97 and events:
            event, told = chance.choice(events)
            stream.wait(event)
            known[place] = known[place] | told
        else:
            stream.sync()
            host |= known[place]
    assert 0 < races < len(works)
