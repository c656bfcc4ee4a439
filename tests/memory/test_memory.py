"""Memory: arrays of each kind, copies between host and device, pools, limits and reports."""

from __future__ import annotations

import gc
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.places import another, to_host

import cudakit as ck
from cudakit.emulator import EmulatedStream
from cudakit.memory import backend, memory, pinned, staging
from cudakit.memory.accounting import Spares
from cudakit.places import DEVICES

# ── copies ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.int64, np.complex128, np.bool_])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (1000,), (3, 5, 7)])
def test_there_and_back(stream: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    x = ck.to_device(a, stream)
    assert x.shape == shape
    assert x.dtype == dtype
    back = ck.to_host(x, stream)
    assert type(back) is np.ndarray
    assert np.array_equal(back, a)


def test_array_is_read_before_the_call_returns(stream: Any) -> None:
    a = np.arange(5000)
    x = ck.to_device(a, stream)
    a[...] = 0
    assert np.array_equal(ck.to_host(x, stream), np.arange(5000))


def test_strided_arrays(stream: Any) -> None:
    a = np.arange(600).reshape(20, 30)
    for view in (a.T, a[::2, ::-3], a[:, 5], np.asfortranarray(a), np.broadcast_to(a[0], (4, 30))):
        x = ck.to_device(view, stream)
        assert x.flags.c_contiguous
        assert np.array_equal(ck.to_host(x, stream), view)
    x = ck.to_device(a, stream)
    assert np.array_equal(ck.to_host(x.T[::2], stream), a.T[::2])
    out = np.zeros((30, 40), a.dtype)
    assert ck.to_host(x.T, stream, out=out[:, ::2]) is not None
    assert np.array_equal(out[:, ::2], a.T)
    assert not out[:, 1::2].any()


def test_out_and_without_waiting(stream: Any) -> None:
    a = np.arange(1000, dtype=np.float32)
    x = ck.to_device(a, stream)
    out = np.zeros(1000, np.float32)
    assert ck.to_host(x, stream, out=out) is out
    assert np.array_equal(out, a)
    out[...] = 0
    assert ck.to_host(x, stream, out=out, wait=False) is out
    stream.sync()
    assert np.array_equal(out, a)
    made = ck.to_host(x, stream, wait=False)
    stream.record().sync()
    assert np.array_equal(made, a)


def test_to_device_into_an_array_that_exists(stream: Any, xp: Any) -> None:
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = xp.zeros((4, 6), np.float32)
    assert ck.to_device(a, stream, out=x) is x
    assert np.array_equal(ck.to_host(x, stream), a)
    wide = xp.zeros((6, 9), np.float32)
    view = wide.T[1:9:2]
    assert ck.to_device(a, stream, out=view) is view
    back = ck.to_host(wide, stream)
    assert np.array_equal(back.T[1:9:2], a)
    assert not back.T[::2].any()
    other = another(stream)
    for value in range(4):
        ck.to_device(np.full((4, 6), value, np.float32), (stream, other)[value % 2], out=x)
    assert np.all(ck.to_host(x, stream) == 3)


def test_an_output_on_the_device_that_does_not_fit(stream: Any, xp: Any) -> None:
    a = np.zeros((4, 5), np.float32)
    with pytest.raises(ck.ArgumentError, match=r"to_device: out has shape \(5, 4\) and .* the array \(4, 5\)"):
        ck.to_device(a, stream, out=xp.zeros((5, 4), np.float32))
    with pytest.raises(ck.ArgumentError, match=r"to_device: out has .*dtype float64"):
        ck.to_device(a, stream, out=xp.zeros((4, 5)))
    with pytest.raises(ck.ArgumentError, match=r"to_device: out must be a .*, got list"):
        ck.to_device(a, stream, out=[])


@pytest.mark.emulator
def test_a_read_only_output_is_refused(stream: Any) -> None:
    readonly = np.zeros(4, np.float32)
    readonly.flags.writeable = False
    with pytest.raises(ck.ArgumentError, match="to_device: out is read-only"):
        ck.to_device(np.ones(4, np.float32), stream, out=readonly)


@pytest.mark.gpu
def test_a_host_output_of_to_device_is_refused_on_a_gpu(stream: Any) -> None:
    with pytest.raises(ck.ArgumentError, match="to_device: out must be a CuPy array on a GPU's stream, got ndarray"):
        ck.to_device(np.zeros(4), stream, out=np.zeros(4))


def test_copies_follow_kernels_of_other_streams(stream: Any) -> None:
    other = another(stream)
    add = ck.Kernel("__global__ void add(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] += 1; }")
    x = ck.to_device(np.zeros(100, np.float32), stream)
    for _ in range(5):
        add(other, ck.config(1, 128), x, 100)
        add(stream, ck.config(1, 128), x, 100)
    assert np.all(ck.to_host(x, other) == 10)
    other.sync()


def test_out_that_does_not_fit(stream: Any) -> None:
    x = ck.to_device(np.zeros((4, 5), np.float32), stream)
    with pytest.raises(
        ck.ArgumentError, match=r"to_host: out has shape \(5, 4\) and dtype float32, the array \(4, 5\)"
    ):
        ck.to_host(x, stream, out=np.zeros((5, 4), np.float32))
    with pytest.raises(ck.ArgumentError, match="dtype float64"):
        ck.to_host(x, stream, out=np.zeros((4, 5)))
    readonly = np.zeros((4, 5), np.float32)
    readonly.flags.writeable = False
    with pytest.raises(ck.ArgumentError, match="read-only"):
        ck.to_host(x, stream, out=readonly)
    with pytest.raises(ck.ArgumentError, match="out must be a NumPy array, got list"):
        ck.to_host(x, stream, out=[])  # type: ignore[arg-type]


def test_what_is_no_array(stream: Any) -> None:
    with pytest.raises(ck.ArgumentError, match="to_device: array must be a NumPy array, got list"):
        ck.to_device([1, 2], stream)
    with pytest.raises(ck.ArgumentError, match="dtype object"):
        ck.to_device(np.array([None]), stream)
    with pytest.raises(ck.ArgumentError, match=r"to_host: array must be a .*, got list"):
        ck.to_host([1, 2], stream)


@pytest.mark.gpu
def test_host_and_device_are_not_confused(stream: Any, xp: Any) -> None:
    with pytest.raises(ck.ArgumentError, match="to_device: array must be a NumPy array, got list"):
        ck.to_device([1.0], stream)
    with pytest.raises(ck.ArgumentError, match="to_host: array must be a CuPy array on a GPU's stream, got ndarray"):
        ck.to_host(np.ones(4), stream)


# ── kinds ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["device", "pinned", "managed"])
def test_empty(stream: Any, xp: Any, kind: Any) -> None:
    x = ck.empty((3, 4), np.float32, kind, stream)
    assert x.shape == (3, 4)
    assert x.dtype == np.float32
    assert x.flags.c_contiguous
    assert isinstance(x, np.ndarray if kind == "pinned" else xp.ndarray)
    x[...] = 2
    stream.sync()
    assert np.all(to_host(x) == 2)
    assert ck.empty(0, np.int8, kind, stream).size == 0
    assert ck.empty(7, np.int8, kind, stream).shape == (7,)


def test_an_array_has_as_many_dimensions_as_numpys(stream: Any) -> None:
    assert ck.empty((1,) * 64, np.int8, "pinned", stream).ndim == 64
    with pytest.raises(ck.ArgumentError, match="shape has 65 extents, and an array 64 at most"):
        ck.empty((1,) * 65, np.int8, "pinned", stream)


def test_empty_refuses(stream: Any) -> None:
    with pytest.raises(ck.ArgumentError, match="kind is one of 'device', 'pinned', 'managed', got 'fast'"):
        ck.empty(4, np.int8, kind="fast", stream=stream)  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="negative extent"):
        ck.empty((4, -1), np.int8, stream=stream)
    with pytest.raises(ck.ArgumentError, match=r"an int or a tuple of ints, got 3\.5"):
        ck.empty(3.5, np.int8, stream=stream)  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="dtype is object, which no device holds"):
        ck.empty(4, object, stream=stream)


@pytest.mark.parametrize("kind", ["device", "pinned", "managed"])
def test_allocated_leaves_an_empty_array(stream: Any, xp: Any, kind: Any) -> None:
    with ck.allocated((100, 10), np.float32, kind, stream) as x:
        assert x.shape == (100, 10)
        x[...] = 3
        view = x[1:3]
    assert x.shape == (0,)
    others = [xp.full((100, 10), 9, np.float32) for _ in range(8)]  # take whatever is free
    assert x.dtype == np.float32
    stream.sync()
    assert np.all(to_host(view) == 3)  # a view keeps the memory
    del others


def test_allocated_gives_back_after_an_error(stream: Any) -> None:
    with pytest.raises(ZeroDivisionError), ck.allocated(10, np.int8, stream=stream) as x:
        1 / 0
    assert x.size == 0


@pytest.mark.gpu
def test_launches_forget_the_address_of_an_allocated_array(stream: Any) -> None:
    tell = ck.Kernel("__global__ void tell(const float* x, unsigned long long* at) { *at = (unsigned long long)x; }")
    at = ck.to_device(np.zeros(1, np.uint64), stream)
    with ck.allocated(32, np.float32, stream=stream) as x:
        address = x.data.ptr
        for _ in range(3):
            tell(stream, ck.config(1, 1), x, at)
        assert ck.to_host(at, stream)[0] == address
    tell(stream, ck.config(1, 1), x, at)
    assert ck.to_host(at, stream)[0] != address


@pytest.mark.gpu
def test_allocated_memory_is_used_again(stream: Any, xp: Any) -> None:
    def used() -> tuple[int, ...]:
        gc.collect()
        found = ck.memory.report()
        return found.of("pinned").used, found.of("managed").used, found.of("device").used

    xp.cuda.Device().synchronize()  # for other tests' streams
    before = used()
    for kind in ("device", "pinned", "managed"):
        with ck.allocated(1 << 20, np.uint8, kind, stream):
            assert used() != before
    stream.sync()
    assert used() == before


@pytest.mark.gpu
def test_what_was_kept_for_a_copy_is_not_reported_after_it(stream: Any, xp: Any) -> None:
    xp.cuda.Device().synchronize()
    gc.collect()
    before = ck.memory.report().of("pinned").used
    x = ck.empty(64 << 20, np.uint8, kind="pinned")
    ck.to_device(x, stream)
    del x
    stream.sync()
    assert ck.memory.report().of("pinned").used == before


@pytest.mark.gpu
def test_pinned_array_lives_as_long_as_its_views(stream: Any) -> None:
    before = pinned.pool().use().used
    x = ck.empty((1 << 16,), np.float32, kind="pinned")
    view = x[10:20].reshape(2, 5)
    assert staging.is_direct(x)
    assert staging.is_direct(x[100:])
    assert not staging.is_direct(x[::2])
    assert not staging.is_direct(np.zeros(10))
    del x
    assert pinned.pool().use().used > before
    free = pinned.pool().use().free
    del view
    assert pinned.pool().use().used == before
    assert pinned.pool().use().free > free


@pytest.mark.gpu
def test_pinned_memory_is_kept_until_its_copy_is_done(stream: Any) -> None:
    wait = ck.Kernel("__global__ void wait(long long t) { long long s = clock64(); while (clock64() - s < t) {} }")
    wait(stream, ck.config(1, 1), 400_000_000)
    a = ck.empty(1 << 20, np.uint8, kind="pinned")
    a[...] = 1
    x = ck.to_device(a, stream)
    del a
    b = ck.empty(1 << 20, np.uint8, kind="pinned")  # must not be the same memory
    b[...] = 2
    assert np.all(ck.to_host(x, stream) == 1)


@pytest.mark.gpu
def test_device_memory_is_kept_until_its_copy_is_done(stream: Any) -> None:
    from cupy.cuda import runtime

    wait = ck.Kernel("__global__ void wait(long long t) { long long s = clock64(); while (clock64() - s < t) {} }")
    owner = ck.stream()
    x = ck.to_device(np.ones(1 << 20, np.uint8), owner)
    owner.sync()
    wait(stream, ck.config(1, 1), 400_000_000)
    out = ck.to_host(x, stream, wait=False)
    del x
    y = ck.empty(1 << 20, np.uint8, stream=owner)  # must not be the same memory
    runtime.memsetAsync(y.data.ptr, 9, y.nbytes, int(owner.handle))
    owner.sync()
    stream.sync()
    assert np.all(out == 1)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["new", "pageable", "pinned"])
def test_a_copy_to_the_host_waits_for_earlier_work_and_for_nothing_later(stream: Any, kind: str) -> None:
    spin = ck.Kernel(
        "__global__ void spin(long long* x, long long t)"
        "{ long long s = clock64(); while (clock64() - s < t) {} *x += 1; }"
    )
    x = ck.to_device(np.zeros(1024, np.int64), stream)
    outs = {"pageable": np.zeros(1024, np.int64), "pinned": ck.empty(1024, np.int64, kind="pinned")}
    out = outs.get(kind)
    for number in range(200):
        spin(stream, ck.config(1, 1), x, number * 100)
        assert ck.to_host(x, stream, out)[0] == number + 1
    spin(stream, ck.config(1, 1), x, 80_000_000)  # some 40 ms
    other = threading.Timer(0.01, lambda: spin(stream, ck.config(1, 1), x, 400_000_000))
    other.start()
    result = ck.to_host(x, stream, out)
    other.join()
    assert not stream.record().is_done
    assert result[0] == 201
    stream.sync()


@pytest.mark.gpu
def test_managed_memory(stream: Any) -> None:
    x = ck.empty(1 << 16, np.float32, kind="managed", stream=stream)
    host = ck.memory.host_view(x)
    stream.sync()
    host[...] = np.arange(1 << 16)
    ck.memory.prefetch(x, stream)
    add = ck.Kernel("__global__ void add(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }")
    add(stream, ck.config(256, 256), x)
    ck.memory.prefetch(x, stream, "host")
    stream.sync()
    assert np.array_equal(host, np.arange(1 << 16) + 1)
    with pytest.raises(ck.ArgumentError, match="'device' or 'host'"):
        ck.memory.prefetch(x, stream, "disk")  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="not in managed memory"):
        ck.memory.host_view(ck.empty(4, np.float32, stream=stream))
    with pytest.raises(ck.ArgumentError, match="prefetch takes an array of"):
        ck.memory.prefetch(ck.empty(4, np.float32, stream=stream), stream)


@pytest.mark.gpu
def test_a_kernel_sees_what_the_host_wrote_to_managed_memory_that_was_freed_before(stream: Any) -> None:
    double = ck.Kernel("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }")
    for _ in range(4):
        x = ck.empty(256, np.float32, kind="managed", stream=stream)
        stream.sync()
        ck.memory.host_view(x)[:] = 1
        double(stream, ck.config(1, 256), x)
        stream.sync()
        assert np.all(ck.memory.host_view(x) == 2)
        del x
        double(stream, ck.config(1, 256), ck.empty(256, np.float32, stream=stream))  # the call forgets x
        stream.sync()
        ck.memory.trim()


@pytest.mark.gpu
def test_managed_memory_may_be_freed_during_a_capture(stream: Any) -> None:
    x, y = (ck.empty(256, np.float32, kind="managed", stream=stream) for _ in range(2))
    double = ck.Kernel("__global__ void twice(float* x) { x[threadIdx.x] *= 2; }")
    ck.memory.host_view(y)[:] = 1
    with ck.capture(stream) as graph:
        del x
        double(stream, ck.config(1, 256), y)
    graph.launch(stream)
    stream.sync()
    assert np.all(ck.memory.host_view(y) == 2)


@pytest.mark.gpu
def test_managed_memory_is_never_more_than_is_free(stream: Any) -> None:
    from cuda.bindings import driver

    _, free, total = driver.cuMemGetInfo()
    for size in (total + 1, 2 * total, int(free * 1.01)):
        with pytest.raises(ck.LaunchError, match=r"bytes of managed memory were asked for; device 0 has [\d,]+ free"):
            ck.empty(size, np.uint8, kind="managed", stream=stream)


# ── limits and reports ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.gpu
def test_out_of_device_memory_is_named(stream: Any) -> None:
    with pytest.raises(ck.LaunchError, match=r"[\d,]+ bytes of device memory were asked for; device 0 has .* work in"):
        ck.empty(1 << 50, np.uint8, stream=stream)
    x = ck.to_device(np.ones(4), stream)  # goes on
    assert np.all(ck.to_host(x, stream) == 1)


@pytest.mark.gpu
def test_device_limit(stream: Any) -> None:
    import cupy

    ck.memory.trim()
    now = cupy.get_default_memory_pool().total_bytes()
    with ck.memory.limit(now + (4 << 20)):
        with pytest.raises(ck.LaunchError, match=r"ck.memory.limit allows [\d,]+"):
            ck.empty(8 << 20, np.uint8, stream=stream)
        ck.empty(1 << 20, np.uint8, stream=stream)
        assert ck.memory.report().of("device").limit == now + (4 << 20)
    ck.empty(8 << 20, np.uint8, stream=stream)
    assert ck.memory.report().of("device").limit is None


@pytest.mark.gpu
def test_pinned_and_managed_limits(stream: Any) -> None:
    ck.memory.trim()
    held = ck.memory.report().of("pinned").used
    with ck.memory.limit(held + (2 << 20), kind="pinned"):
        with pytest.raises(ck.LaunchError, match=r"4,194,304 bytes of pinned memory .* ck.memory.limit allows"):
            ck.empty(4 << 20, np.uint8, kind="pinned")
        ck.empty(1 << 20, np.uint8, kind="pinned")
    match = r"2,097,152 bytes of managed memory .* ck.memory.limit allows 1,048,576"
    with ck.memory.limit(1 << 20, kind="managed"), pytest.raises(ck.LaunchError, match=match):
        ck.empty(2 << 20, np.uint8, kind="managed", stream=stream)


def test_limits_that_are_none() -> None:
    with pytest.raises(ck.ArgumentError, match=r"memory\.limit: size is a number from 1 up, got 0"):
        ck.memory.limit(0)
    with pytest.raises(ck.ArgumentError, match=r"memory\.limit: size is .*, got '1GB'"):
        ck.memory.limit("1GB")  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="kind is one of"):
        ck.memory.limit(5, kind="card")
    with ck.memory.limit(1 << 20, kind="pinned"), ck.memory.limit(None, kind="pinned"):
        assert pinned.pool().limit is None
    assert pinned.pool().limit is None


def test_report_and_trim(stream: Any) -> None:
    kept = [ck.empty(1 << 20, np.uint8, kind, stream) for kind in ("device", "pinned", "managed")]
    found = ck.memory.report()
    assert "pinned" in str(found)
    assert all(found.of(kind).used >= 1 << 20 for kind in ("device", "pinned", "managed"))
    assert all(found.of(kind).peak >= found.of(kind).used for kind in ("device", "pinned", "managed"))
    if isinstance(stream, EmulatedStream):
        assert memory.host_view(kept[0]) is kept[0]
        memory.prefetch(kept[2], stream)
    del kept
    gc.collect()
    assert ck.memory.trim() >= 1 << 20
    assert ck.memory.report().of("pinned").free == 0


class Spare:
    """What a call leaves, of a stream that is open or closed."""

    def __init__(self, size: int = 10, closed: bool = False, device_id: int = 0) -> None:
        self.size, self.target = size, SimpleNamespace(device_id=device_id, core=SimpleNamespace(is_closed=closed))
        self.told: list[str] = []

    def release(self) -> None:
        self.told.append("release")

    def let_go(self) -> None:
        self.told.append("let go")


def test_a_spare_is_of_one_at_a_time() -> None:
    spares, one = Spares(), Spare()
    assert spares.take("a") is None
    spares.give_back("a", one)  # type: ignore[arg-type]
    assert spares.size_on(0) == 10
    assert spares.size_on(1) == 0
    assert spares.take("b") is None
    assert spares.take("a") is one
    assert spares.take("a") is None
    assert spares.size_on(0) == 0
    other = Spare()
    spares.give_back("a", one)  # type: ignore[arg-type]
    spares.give_back("a", other)  # type: ignore[arg-type]  # of a call at the same time
    spares.release()
    assert one.told == ["release"]
    assert other.told == ["let go"]
    assert spares.take("a") is one


def test_spares_are_bounded_and_those_of_closed_streams_go() -> None:
    spares = Spares()
    first = Spare()
    spares.give_back(0, first)  # type: ignore[arg-type]
    for index in range(1, 40):
        spares.give_back(index, Spare())  # type: ignore[arg-type]
    assert spares.size_on(0) == 320
    assert spares.take(0) is None
    assert first.told == ["let go"]
    spares.give_back(8, spares.take(8))  # used again: the last to go
    spares.give_back("closed", Spare(closed=True))  # type: ignore[arg-type]
    spares.drop_closed()
    assert spares.take("closed") is None
    spares.give_back("open", Spare())  # type: ignore[arg-type]
    assert spares.take(8) is not None
    assert spares.take(9) is None
    assert spares.drop() == 310
    assert spares.size_on(0) == 0


# ── the pool of pinned memory ────────────────────────────────────────────────────────────────────────────────────


class Event:
    """An event that is done when it is told to be, or waited for."""

    def __init__(self) -> None:
        self.is_done = False

    def sync(self) -> None:
        self.is_done = True


@pytest.fixture
def pool() -> pinned.Pool:
    return pinned.Pool(lambda size: np.empty(size, np.uint8), keep_bytes=1 << 20)


def test_blocks_are_rounded_and_used_again(pool: pinned.Pool) -> None:
    block = pool.take(5000)
    assert block.size == 8192
    assert block.address % 16 == 0
    assert block.view((10, 10), np.float32).shape == (10, 10)
    block.give_back()
    assert pool.take(8000) is block
    assert pool.take(8000) is not block
    assert pool.take(0).size == 4096
    assert pool.take(pinned.LARGEST_CLASS + 1).size == 2 * pinned.LARGEST_CLASS


def test_block_with_an_event_waits_for_it(pool: pinned.Pool) -> None:
    event, block = Event(), pool.take(100)
    block.give_back(event)
    other = pool.take(100)
    assert other is not block
    event.is_done = True
    assert pool.take(100) is block


def test_patience_waits_rather_than_grows(pool: pinned.Pool) -> None:
    events = [Event() for _ in range(4)]
    blocks = [pool.take(1 << 18) for _ in events]  # all that the pool keeps
    for block, event in zip(blocks, events, strict=True):
        block.give_back(event)
    assert pool.take(1 << 18, patient=True) in blocks
    assert sum(event.is_done for event in events) == 1
    assert pool.use().used + pool.use().free == 1 << 20
    assert pool.take(1 << 18) not in blocks  # without patience it grows
    assert pool.take(1 << 19, patient=True).size == 1 << 19  # none of that size is coming back


def test_block_is_given_back_once(pool: pinned.Pool) -> None:
    block = pool.take(1)
    block.give_back()
    with pytest.raises(ck.LaunchError, match="given back already"):
        block.give_back()


def test_block_that_is_dropped_is_not_counted(pool: pinned.Pool) -> None:
    pool.take(5000)
    assert pool.use().used == 0
    block = pool.take(5000)
    assert pool.use().used == 8192
    del block
    assert pool.use() == pinned.Use(0, 0, 8192, None)


def test_pool_is_bounded(pool: pinned.Pool) -> None:
    blocks = [pool.take(1 << 18) for _ in range(10)]
    assert pool.use().used == 10 << 18
    for block in blocks:
        block.give_back()
    assert pool.use().used == 0
    assert pool.use().free == 1 << 20
    assert pool.use().peak == 10 << 18
    pool.take(1 << 21).give_back()  # more than is kept
    assert pool.use().free <= 1 << 20
    assert pool.trim() == 1 << 20
    assert pool.use().free == 0


def test_pool_frees_other_sizes_before_a_limit_is_told(pool: pinned.Pool) -> None:
    pool.limit = 1 << 20
    pool.take(1 << 19).give_back()
    block = pool.take(1 << 20)
    with pytest.raises(ck.LaunchError, match=r"4,096 bytes of pinned memory were asked for and 1,048,576 are held"):
        pool.take(1)
    block.give_back()


def test_pool_names_what_the_driver_lacks() -> None:
    answers = iter([np.empty(1 << 16, np.uint8)])

    def allocate(size: int) -> np.ndarray:
        try:
            return next(answers)
        except StopIteration:
            raise MemoryError("CUDA_ERROR_OUT_OF_MEMORY") from None

    pool = pinned.Pool(allocate)
    kept = pool.take(1 << 16)
    with pytest.raises(ck.LaunchError, match=r"no 131,072 bytes of pinned memory left .* cudakit holds 65,536"):
        pool.take(1 << 17)
    kept.give_back()


def test_pool_in_many_threads(pool: pinned.Pool) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            block = pool.take(int(rng.integers(1, 100_000)))
            block.array[:8] = seed
            if not np.all(block.array[:8] == seed):
                return False
            block.give_back(Event() if rng.random() < 0.5 else None)
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8)))
    assert pool.use().used == 0


@pytest.mark.parametrize("shape", [(100,), (7, 11), (3, 40, 5), (2, 3, 1000)])
def test_pieces_cover_an_array_once(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    monkeypatch.setattr(staging, "PIECE", 256)
    a = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    for view in (a, a.T, a[::-1], a[..., ::2]):
        flat = np.full(view.nbytes, 255, np.uint8)
        for offset, piece in staging.pieces(view):
            assert piece.nbytes <= 256 or piece.ndim == 1
            flat[offset : offset + piece.nbytes] = np.frombuffer(piece.tobytes(), np.uint8)
        assert np.array_equal(flat.view(np.int32).reshape(view.shape), view)


# ── bare copies, as pipelines use them ───────────────────────────────────────────────────────────────────────────


def test_bare_copies(stream: Any, xp: Any) -> None:
    block, back = pinned.take(400), pinned.take(400)
    a, b = block.view((100,), np.float32), back.view((100,), np.float32)
    a[...] = np.arange(100)
    x = xp.empty(100, np.float32)
    memory.copy_in(a, x, stream)
    memory.copy_out(x, b, stream)
    stream.sync()
    assert np.array_equal(a, b)
    block.give_back(stream.record())
    back.give_back()


@pytest.mark.gpu
def test_large_copies_stay_within_what_the_pool_keeps(stream: Any) -> None:
    ck.memory.trim()
    a = np.arange(100_000_000, dtype=np.int64)  # 800 MB; the pool keeps 512 MiB
    x = ck.to_device(a, stream)
    assert np.array_equal(ck.to_host(x, stream), a)
    out = np.zeros_like(a)
    ck.to_host(x, stream, out=out, wait=False)
    stream.sync()
    assert np.array_equal(out, a)
    use = pinned.pool().use()
    assert use.used + use.free <= pinned.KEPT + 16 * staging.PIECE


def test_a_gpu_without_cupy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    uses = (lambda: backend._backend.__wrapped__(DEVICES), lambda: DEVICES.xp, lambda: DEVICES.using(None).__enter__())
    for use in uses:
        with pytest.raises(ck.CudakitError, match=r"CuPy is not installed.*pip install 'cudakit\[cu13\]'.*torch"):
            use()
