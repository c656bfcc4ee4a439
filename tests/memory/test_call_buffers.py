"""Host arrays of a call, on a stand-in for a GPU: when they are copied, and which buffers are kept and freed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.device_memory import TO_DEVICE, TO_HOST, DeviceArray, Gpu, Heard, Stream, seen, stand_in

import cudakit as ck
from cudakit.memory import on_device, pinned, staging
from cudakit.memory.accounting import spares
from cudakit.streams.witnesses import witnessing
from cudakit.types.cpp import parse_type

pytestmark = pytest.mark.emulator

CONFIG = object()


class Kernel:
    """A kernel of arrays, which the stream runs as a function of NumPy's."""

    name = "double_all"

    def __init__(self, work: Callable[..., None], *types: str) -> None:
        named = zip("xyzw", types, strict=False)
        self.signature = SimpleNamespace(
            parameters=[SimpleNamespace(name=name, type=parse_type(text), pack=False) for name, text in named]
        )
        self.work = work
        self.given: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    def __call__(self, stream: Stream, config: Any, *arguments: Any) -> None:
        assert config is CONFIG
        self.given.append(arguments)
        if self.error is not None:
            raise self.error
        views = [seen(value) if isinstance(value, DeviceArray) else value for value in arguments]
        stream.put(lambda: self.work(*views))


class Courier:
    """Writes down what it is asked to bring, and brings it at once when it is told to."""

    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, np.ndarray]] = []
        self.failures = 0

    def raise_failure(self) -> None:
        self.failures += 1

    def bring(self) -> None:
        for host, staged in self.parts:
            host[...] = staged
        self.parts.clear()


@pytest.fixture
def courier(monkeypatch: pytest.MonkeyPatch) -> Courier:
    found = Courier()

    def ship(parts: Any, block: pinned.Block, target: Any) -> None:
        found.parts += parts
        block.give_back(target.record())

    monkeypatch.setattr(staging, "ship", ship)
    monkeypatch.setattr(on_device, "has_courier", lambda: True)
    monkeypatch.setattr(on_device, "courier", lambda: found)
    return found


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, courier: Courier) -> Iterator[Gpu]:
    found = stand_in(monkeypatch)
    monkeypatch.setattr(staging, "comes_soon", lambda event, size: False)
    monkeypatch.setattr("cudakit.memory.host_arrays.is_capturing", lambda stream: stream.handle in found.captured)
    yield found
    spares().drop()
    gc.collect()


@pytest.fixture
def stream(gpu: Gpu) -> Stream:
    return gpu.stream()


def numbers(count: int = 10, first: int = 0) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.float32)


def pinned_numbers(count: int = 10) -> np.ndarray:
    made = pinned.lend(pinned.pool().take(4 * count), (count,), np.dtype(np.float32))
    made[:] = numbers(count)
    return made


def double(x: np.ndarray, y: np.ndarray) -> None:
    y[:] += 2 * x


def doubling() -> Kernel:
    return Kernel(double, "const float*", "float*")


def call(kernel: Kernel, stream: Stream, *given: Any) -> None:
    on_device.call(kernel, stream, stream, CONFIG, given)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [numbers, pinned_numbers])
def test_results_are_there_after_the_stream(
    gpu: Gpu, stream: Stream, courier: Courier, make: Callable[..., np.ndarray]
) -> None:
    x, y = make(), make()
    y[:] = 9
    call(doubling(), stream, ck.In(x), ck.Out(y))
    assert (y == 9).all(), "it is the stream's work"
    stream.sync()
    courier.bring()
    np.testing.assert_array_equal(y, 2 * numbers())
    z = make()
    call(doubling(), stream, ck.In(x), ck.InOut(z))
    stream.sync()
    courier.bring()
    np.testing.assert_array_equal(z, 3 * numbers())


def test_pageable_arrays_go_through_one_block_in_one_copy_each_way(gpu: Gpu, stream: Stream, courier: Courier) -> None:
    def work(x: np.ndarray, y: np.ndarray, z: np.ndarray, w: np.ndarray) -> None:
        z += x[:3]
        w[:] = y[0]

    x, y, z, w = numbers(200), numbers(5, 7), numbers(3, 1), numbers(150)
    kernel = Kernel(work, "const float*", "const float*", "float*", "float*")
    call(kernel, stream, ck.In(x), ck.In(y), ck.InOut(z), ck.Out(w))
    x[:] = y[:] = -1
    stream.sync()
    courier.bring()
    np.testing.assert_array_equal(z, [1, 3, 5])
    assert (w == 7).all()
    # Each array from a multiple of 512 bytes on: x takes two of these, the others one or two.
    whole = 1024 + 512 + 512 + 1024
    copied_in, copied_out = whole - 1024, whole - 1024 - 512
    assert gpu.runtime.calls == [
        ("copy", TO_DEVICE, copied_in, stream.handle),
        ("set", 0, whole - copied_in, stream.handle),
        ("copy", TO_HOST, copied_out, stream.handle),
    ]
    addresses = [value.data.ptr for value in kernel.given[0]]
    assert all((address - min(addresses)) % 512 == 0 for address in addresses)
    assert len(set(addresses)) == 4


def test_pinned_arrays_are_copied_each_from_where_it_is_and_kept_until_then(
    gpu: Gpu, stream: Stream, courier: Courier
) -> None:
    x, y = pinned_numbers(), pinned_numbers()
    lent = pinned.pool().use().used
    call(doubling(), stream, ck.In(x), ck.Out(y))
    assert pinned.pool().use().used == lent, "no block of the pool"
    kinds = [call[:3] for call in gpu.runtime.calls]
    assert kinds == [("copy", TO_DEVICE, 40), ("set", 0, 512), ("copy", TO_HOST, 40)]
    spans = [(array.ctypes.data, array.ctypes.data + 40) for array in (x, y)]
    assert (stream.handle, (spans[0],), (spans[1],)) in gpu.order.of("before")
    del x, y
    gc.collect()
    assert pinned.pool().use().used == lent, "kept"
    spares().release()
    assert pinned.pool().use().used == lent, "the stream has not come so far"
    stream.sync()
    spares().release()
    gc.collect()
    assert pinned.pool().use().used == 0
    assert not courier.parts


def test_the_next_call_like_it_has_the_same_device_arrays(gpu: Gpu, stream: Stream) -> None:
    kernel = doubling()
    for _ in range(3):
        call(kernel, stream, ck.In(numbers()), ck.Out(numbers()))
    assert len({tuple(map(id, given)) for given in kernel.given}) == 1, "its launch repeats one that was checked"
    assert len(gpu.blocks) == 1
    assert spares().size_on(0) == 1024
    other = gpu.stream()
    call(kernel, other, ck.In(numbers()), ck.Out(numbers()))
    call(kernel, stream, ck.In(numbers(11)), ck.Out(numbers()))
    call(kernel, stream, ck.In(numbers()), ck.InOut(numbers()))
    call(doubling(), stream, ck.In(numbers()), ck.Out(numbers()))
    assert len(gpu.blocks) == 5, "of another stream, shape, way of passing and kernel"
    call(kernel, stream, ck.In(numbers()), ck.Out(numbers()))
    assert len(gpu.blocks) == 5
    assert kernel.given[-1][0] is kernel.given[0][0]


def test_of_a_stream_that_is_gone_nothing_is_used(gpu: Gpu, stream: Stream) -> None:
    kernel = doubling()
    call(kernel, stream, ck.In(numbers()), ck.Out(numbers()))
    stream.is_closed = True
    successor = gpu.stream()
    successor.handle = stream.handle
    gpu.streams[stream.handle] = successor
    call(kernel, successor, ck.In(numbers()), ck.Out(numbers()))
    assert kernel.given[0][0] is not kernel.given[1][0]
    successor.sync()


def test_large_arrays_go_by_themselves_and_nothing_is_kept(
    gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered: list[np.ndarray] = []
    deliver = lambda pointer, host, target: delivered.append(host)  # noqa: E731
    monkeypatch.setattr(staging, "deliver", deliver)
    count = (1 << 19) - 128  # with its like above two megabytes, by itself below
    x, y = numbers(count), numbers(count)
    kernel = doubling()
    call(kernel, stream, ck.In(x), ck.Out(y))
    assert [call[:3] for call in gpu.runtime.calls] == [("copy", TO_DEVICE, 4 * count), ("set", 0, 4 * count)]
    assert delivered[0] is y
    assert spares().size_on(0) == 0
    kernel.given.clear()
    stream.sync()
    gc.collect()
    stream.work.clear()
    gpu.order.log.clear()
    assert not gpu.blocks


def test_while_somebody_watches_each_array_is_told_by_itself(
    gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "deliver", lambda pointer, host, target: None)
    heard, x, y, z = Heard(), numbers(), numbers(), numbers()
    kernel = Kernel(lambda x, y, z: None, "const float*", "float*", "float*")
    with witnessing(heard):
        call(kernel, stream, ck.In(x), ck.Out(y), ck.InOut(z))
    a, b, c = map(id, kernel.given[0])
    assert heard.works == [
        ("copy", "In", stream, (id(x),), (a,), 40),
        ("fill", "Out", stream, (), (b,), 40),
        ("copy", "InOut", stream, (id(z),), (c,), 40),
        ("copy", "Out", stream, (b,), (id(y),), 40),
        ("copy", "InOut", stream, (c,), (id(z),), 40),
    ]


def test_results_on_their_way_come_before_an_array_is_read_and_before_another_stream_writes_it(
    gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[tuple[Any, ...]] = []
    monkeypatch.setattr(staging, "settle", lambda host, unless=None: settled.append((id(host), unless)))
    x, y, z = numbers(), numbers(), numbers()
    kernel = Kernel(lambda x, y, z: None, "const float*", "float*", "float*")
    call(kernel, stream, ck.In(x), ck.Out(y), ck.InOut(z))
    assert set(settled) == {(id(x), None), (id(y), stream.handle), (id(z), None)}


def test_arrays_that_share_memory_are_refused_where_one_is_written(gpu: Gpu, stream: Stream) -> None:
    kernel, x = doubling(), numbers(20)
    for _ in range(2):  # the second time by the quick way
        call(kernel, stream, ck.In(x[:10]), ck.InOut(x[10:]))
        with pytest.raises(ck.ArgumentError, match=r"ck.InOut and ck.In of x share memory|share memory"):
            call(kernel, stream, ck.In(x[:10]), ck.InOut(x[5:15]))
    read = Kernel(lambda x, y: None, "const float*", "const float*")
    call(read, stream, ck.In(x), ck.In(x))
    assert len(read.given) == 1


def test_a_result_that_comes_soon_is_brought_by_the_call_and_after_one_that_does_not_eight_are_not_waited_for(
    gpu: Gpu, stream: Stream, courier: Courier, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    soon = [True]

    def comes_soon(event: Any, size: int) -> bool:
        waited.append(size)
        if soon[0]:
            event.sync()
        return soon[0]

    monkeypatch.setattr(staging, "comes_soon", comes_soon)
    kernel, y = doubling(), numbers()
    call(kernel, stream, ck.In(numbers()), ck.Out(y))
    np.testing.assert_array_equal(y, 2 * numbers())
    assert waited == [1024]
    assert not courier.parts
    assert pinned.pool().use().free == 4096, "its block is free again"
    soon[0] = False
    for _ in range(9):
        call(kernel, stream, ck.In(numbers()), ck.Out(y))
    assert len(waited) == 2
    call(kernel, stream, ck.In(numbers()), ck.Out(y))
    assert len(waited) == 3
    assert len(courier.parts) == 10


def test_a_device_that_is_lost_meanwhile_is_told(gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(event: Any, size: int) -> bool:
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")

    monkeypatch.setattr(staging, "comes_soon", lost)
    with pytest.raises((ck.LaunchError, RuntimeError), match="ILLEGAL_ADDRESS"):
        call(doubling(), stream, ck.In(numbers()), ck.Out(numbers()))


def test_an_error_of_the_kernel_names_what_was_given_and_keeps_what_is_in_use(gpu: Gpu, stream: Stream) -> None:
    kernel = doubling()
    kernel.error = ck.ArgumentError("x is In, and y too long")
    with pytest.raises(ck.ArgumentError, match="too long"):
        call(kernel, stream, ck.In(numbers()), ck.Out(numbers()))
    first, again = kernel.given
    assert all(isinstance(value, DeviceArray) for value in first)
    assert [type(value).__name__ for value in again] == ["In", "Out"]
    shown = again[0].__cuda_array_interface__
    assert (shown["shape"], shown["typestr"], shown["data"][1]) == ((10,), np.float32, True)
    assert again[1].__cuda_array_interface__["data"][1] is False
    assert again[1].__cuda_array_interface__["data"][0] - shown["data"][0] == 512
    (_, (hosts, block)) = gpu.order.of("hold")[-1]
    assert len(hosts) == 2
    assert isinstance(block, pinned.Block), "the stream may still copy from it"
    assert spares().size_on(0) == 0, "nothing of a failed call is used again"


def test_a_captured_stream_is_refused(gpu: Gpu, stream: Stream) -> None:
    gpu.captured.add(stream.handle)
    with pytest.raises(ck.LaunchError, match="is being captured"):
        call(doubling(), stream, ck.In(numbers()), ck.Out(numbers()))
    assert not gpu.blocks


def test_earlier_results_that_were_lost_are_told_first(gpu: Gpu, stream: Stream, courier: Courier) -> None:
    call(doubling(), stream, ck.In(numbers()), ck.Out(numbers()))
    assert courier.failures == 1


def test_the_kernel_runs_with_cupy_on_its_stream(gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CuPy's arrays among the arguments the call does not wait for CuPy's own stream."""
    current: list[Stream] = []
    former = gpu.current
    kernel = doubling()
    ordinary = Kernel.__call__

    def note(self: Kernel, *given: Any) -> None:
        current.append(gpu.current)
        ordinary(self, *given)

    monkeypatch.setattr(Kernel, "__call__", note)
    call(kernel, stream, ck.In(numbers()), ck.Out(numbers()))
    x = gpu.array(numbers())
    call(kernel, stream, x, ck.Out(numbers()))
    assert current == [stream, former]
    assert gpu.current is former


def test_new_memory_comes_after_whoever_had_it(gpu: Gpu, stream: Stream) -> None:
    kernel = doubling()
    call(kernel, stream, ck.In(numbers()), ck.Out(numbers()))
    start = kernel.given[0][0].data.ptr
    assert gpu.order.of("before")[0] == (stream.handle, (), ((start, start + 1024),))
    assert gpu.order.log[1][0] == "after"
