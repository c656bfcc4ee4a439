"""Memory of a buffer set: one item's after the other, as long as no stage has kept it and the arrays stay alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.errors import ArgumentError
from cudakit.memory import pinned
from cudakit.pipeline import transfers
from cudakit.pipeline.streams import BufferSet, Room
from cudakit.pipeline.transfers import Inbound, Outbound
from cudakit.streams import witnesses

pytestmark = pytest.mark.emulator


class Stream:
    """A stream that writes down whom it waits for."""

    handle = 5

    def __init__(self) -> None:
        self.waited: list[Any] = []

    def wait(self, other: Any) -> None:
        self.waited.append(other)


class Array(np.ndarray):
    """A device array that the driver's copies reach by its address."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.__array_interface__["data"][0])


class Device:
    """The streams of a pipeline and the memory of its device: copies are done at once, and written down."""

    emulated = False

    def __init__(self) -> None:
        self.arriving, self.leaving, self.arriving_handle, self.leaving_handle = Stream(), Stream(), 5, 6
        self.made: list[Any] = []
        self.copies: list[tuple[Any, ...]] = []
        self.xp = SimpleNamespace(empty=self._empty, ndarray=Array)

    def _empty(self, shape: Any, dtype: Any) -> Array:
        made = np.empty(shape, dtype).view(Array)
        self.made.append(id(made))
        return made

    def copy_bytes(self, target: int, source: int, size: int, kind: int, handle: int) -> None:
        self.copies.append((size, kind, handle))
        np.frombuffer(_at(target, size), np.uint8)[:] = np.frombuffer(_at(source, size), np.uint8)


def _at(address: int, size: int) -> Any:
    import ctypes

    return (ctypes.c_uint8 * size).from_address(address)


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def buffers() -> BufferSet:
    return BufferSet("the stages' stream")


def numbers(count: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.float32)


# ── what comes in ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_items_alike_use_the_same_memory_one_after_the_other(device: Device, buffers: BufferSet) -> None:
    inbound: Any = Inbound(device)  # type: ignore[arg-type]
    for first in range(6):
        pair = inbound.send(buffers, {"x": numbers(10, first), "more": [numbers(3, first), "name"]})
        np.testing.assert_array_equal(pair["x"], numbers(10, first))
        np.testing.assert_array_equal(pair["more"][0], numbers(3, first))
        assert pair["more"][1] == "name"
        assert (buffers.used, buffers.others) == (2, 1)
        assert pair["x"] is buffers.rooms[0].device
        del pair
    assert len(device.made) == 2
    assert device.copies == [(40, 1, 5), (12, 1, 5)] * 6
    assert device.arriving.waited == ["the stages' stream"] * 2, "new memory may be some that is in use"


@pytest.mark.parametrize("other", [numbers(11), np.arange(10), numbers(10).reshape(2, 5)])
def test_another_shape_or_dtype_has_memory_of_its_own(device: Device, buffers: BufferSet, other: np.ndarray) -> None:
    inbound: Any = Inbound(device)  # type: ignore[arg-type]
    for item in (numbers(10), other, other, numbers(10)):
        sent = inbound.send(buffers, item)
        assert (sent.shape, sent.dtype) == (item.shape, item.dtype)
        np.testing.assert_array_equal(sent, item)
        del sent
    assert len(device.made) == 3
    assert len(buffers.rooms) == 1


def test_what_a_stage_has_kept_stays_as_it_is(device: Device, buffers: BufferSet) -> None:
    inbound: Any = Inbound(device)  # type: ignore[arg-type]
    kept = [inbound.send(buffers, numbers(10, first)) for first in range(3)]
    assert len(device.made) == 3
    for first, array in enumerate(kept):
        np.testing.assert_array_equal(array, numbers(10, first))
    view = kept[2][2:4]
    del kept, array
    inbound.send(buffers, numbers(10, 7))
    np.testing.assert_array_equal(view, numbers(2, 4))  # a view keeps it, too
    assert len(device.made) == 4


def test_a_graph_s_arrays_are_kept_by_it_and_written_all_the_same(device: Device, buffers: BufferSet) -> None:
    inbound: Any = Inbound(device)  # type: ignore[arg-type]
    captured = inbound.send(buffers, numbers(10))
    buffers.graph = (None, None, [])
    assert inbound.send(buffers, numbers(10, 5)) is captured
    np.testing.assert_array_equal(captured, numbers(10, 5))
    assert len(device.made) == 1


def test_memory_is_made_before_the_first_item_comes(device: Device, buffers: BufferSet) -> None:
    inbound: Any = Inbound(device)  # type: ignore[arg-type]
    inbound.prepare(buffers, (numbers(10), numbers(3)))
    assert len(device.made) == len(buffers.rooms) == 2
    first, second = inbound.send(buffers, (numbers(10), numbers(3)))
    assert len(device.made) == 2
    np.testing.assert_array_equal(first, numbers(10))
    np.testing.assert_array_equal(second, numbers(3))


def test_large_pinned_arrays_are_copied_from_where_they_are(
    device: Device, buffers: BufferSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight: list[tuple[Any, ...]] = []
    monkeypatch.setattr(transfers, "copy_in", lambda *given: straight.append(given))
    monkeypatch.setattr(transfers, "is_page_locked", lambda array: True)
    inbound: Any = Inbound(device)  # type: ignore[arg-type]
    large, small = numbers(1 << 14), numbers((1 << 14) - 1)
    apart = numbers(1 << 15)[::2]
    for item in (large, small, apart):
        inbound.send(buffers, item)
    (one,) = straight
    assert one[0] is large
    assert one[2] is device.arriving
    assert buffers.kept_alive[0] is large, "it lives until the copy is done"
    assert [size for size, *_ in device.copies] == [small.nbytes, apart.nbytes]


def test_pinned_memory_of_a_set_is_taken_once_and_given_back(
    device: Device, buffers: BufferSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pinned.Pool(lambda size: np.empty(size, np.uint8))
    monkeypatch.setattr(pinned, "_pool", pool)
    inbound: Any = Inbound(device)  # type: ignore[arg-type]
    for first in range(4):
        inbound.send(buffers, numbers(2000, first))
    assert pool.use().used == 8192
    inbound.send(buffers, numbers(1500))  # fits into what there is
    assert pool.use().used == 8192
    inbound.send(buffers, numbers(3000))
    assert pool.use()[:2] == (16384, 8192)
    buffers.close()
    assert pool.use()[:2] == (0, 8192 + 16384)


@pytest.mark.parametrize("is_array", [True, False])
def test_while_somebody_watches_copies_are_told(
    device: Device, buffers: BufferSet, monkeypatch: pytest.MonkeyPatch, is_array: bool
) -> None:
    """From pinned memory to the device on the stream for what arrives; from there back on that for what leaves."""
    told: list[tuple[Any, ...]] = []
    monkeypatch.setattr(witnesses, "watched", lambda: True)
    monkeypatch.setattr(transfers, "copy_in", lambda *given: told.append(given))
    monkeypatch.setattr(transfers, "copy_out", lambda *given: told.append(given))
    item = numbers(10) if is_array else (numbers(10), "name")
    Inbound(device).send(buffers, item)  # type: ignore[arg-type]
    room = buffers.rooms[0]
    buffers.value = Array((10,), "f4")
    number = id(buffers.value)
    if not is_array:
        buffers.value = [buffers.value, "name"]
    outbound: Any = Outbound(device)  # type: ignore[arg-type]
    outbound.send(buffers, outbound.settle(buffers, []))
    (arrived, target, arriving), (left, host, leaving) = told
    assert arrived is room.host
    assert target is room.device
    assert arriving is device.arriving
    assert id(left) == number
    assert host is buffers.leaving[0].host
    assert leaving is device.leaving
    assert not device.copies
    shown = buffers.result if is_array else buffers.result[0]
    assert shown is host


def test_on_the_emulator_arrays_go_from_where_they_are_to_where_they_belong(
    device: Device, buffers: BufferSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "copy_in", lambda host, target, stream: np.copyto(target, host))
    monkeypatch.setattr(transfers, "copy_out", lambda source, host, stream: np.copyto(host, source))
    device.emulated = True
    device.xp = np
    x = numbers(10)
    sent = Inbound(device).send(buffers, x)  # type: ignore[arg-type]
    np.testing.assert_array_equal(sent, x)
    assert sent is not x
    assert buffers.kept_alive == [x]
    outbound: Any = Outbound(device)  # type: ignore[arg-type]
    buffers.value = {"y": sent, "none": np.empty((0, 2), "i2")}
    outbound.send(buffers, outbound.settle(buffers, []))
    np.testing.assert_array_equal(buffers.result["y"], x)
    assert buffers.result["y"] is not sent
    assert (buffers.result["none"].shape, buffers.result["none"].dtype) == ((0, 2), np.dtype("i2"))
    assert not device.copies


def test_items_without_arrays_and_of_objects_are_refused(device: Device, buffers: BufferSet) -> None:
    inbound: Any = Inbound(device)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"work on NumPy arrays, .* got tuple"):
        inbound.send(buffers, (1, "two"))
    with pytest.raises(ArgumentError, match="got Array on the device"):
        inbound.send(buffers, type("Array", (), {"__cuda_array_interface__": {}})())
    with pytest.raises(ArgumentError, match="holds Python objects"):
        inbound.send(buffers, np.array([{}]))
    with pytest.raises(ArgumentError, match="mask would be lost"):
        inbound.send(buffers, np.ma.array([1.0]))
    assert inbound.send(buffers, np.empty((0, 3))).shape == (0, 3)
    assert not device.copies


# ── what goes out ────────────────────────────────────────────────────────────────────────────────────────────────────


def on_device(count: int, first: int = 0) -> Any:
    return numbers(count, first).view(Array)


def test_small_results_share_memory_and_are_copied_for_the_consumer(device: Device, buffers: BufferSet) -> None:
    outbound: Any = Outbound(device)  # type: ignore[arg-type]
    results = []
    for first in range(4):
        buffers.value = on_device(10, first), on_device(3, first)
        outbound.send(buffers, outbound.settle(buffers, []))
        assert buffers.small == len(buffers.leaving) == 2
        results.append(outbound.receive(buffers, 9))
    for first, (one, other) in enumerate(results):
        np.testing.assert_array_equal(one, numbers(10, first))
        np.testing.assert_array_equal(other, numbers(3, first))
    assert {(kind, handle) for _, kind, handle in device.copies} == {(2, 6)}


def test_large_results_have_pinned_memory_of_their_own_while_not_too_many_do(
    device: Device, buffers: BufferSet
) -> None:
    outbound: Any = Outbound(device)  # type: ignore[arg-type]
    buffers.value = on_device(1 << 13)  # 32 KiB, the largest that is small
    outbound.send(buffers, outbound.settle(buffers, []))
    assert buffers.small == 1
    results = []
    for first in range(3):
        buffers.value = on_device(1 << 14, first)
        outbound.send(buffers, outbound.settle(buffers, []))
        assert buffers.small == 0
        results.append(outbound.receive(buffers, 2))
        buffers.result = None
    is_pinned = [isinstance(result.base, pinned.Lease) for result in results]
    assert is_pinned == [True, True, False], "beyond two that the consumer has kept"
    for first, result in enumerate(results):
        np.testing.assert_array_equal(result, numbers(1 << 14, first))


def test_what_a_stage_keeps_of_its_result_is_copied_before_it_changes(device: Device, buffers: BufferSet) -> None:
    """A stage may keep an array, a view, or the array of a view. The memory of an input stays the item's own."""
    outbound: Any = Outbound(device)  # type: ignore[arg-type]
    array, whole, view = Array((10,), "f4"), Array((10,), "f4"), Array((20,), "f4")[:10]
    for each in (array, whole, view):
        each[:] = 1
    buffers.rooms = [Room()]
    buffers.rooms[0].device = Array((10,), "f4")
    given = (array, whole[2:], view, Array((10,), "f4"), Array((10,), "f4")[1:], Array((20,), "f4")[::2])
    rooms = (buffers.rooms[0].device, buffers.rooms[0].device[3:])
    buffers.value = (*given, *rooms)
    del given, rooms, each
    outgoing = outbound.settle(buffers, buffers.rooms)
    is_same = [source is shown for shown, source in outgoing]
    assert is_same == [False, False, False, True, True, False, True, True]
    for shown, source in outgoing[:3]:
        np.testing.assert_array_equal(source, shown)
    assert outgoing[5][1].flags.c_contiguous


def test_results_of_another_library_are_refused(device: Device, buffers: BufferSet) -> None:
    outbound: Any = Outbound(device)  # type: ignore[arg-type]
    buffers.value = [type("Tensor", (), {"__cuda_array_interface__": {}})()]
    with pytest.raises(ArgumentError, match="a stage returned a Tensor on the device; return CuPy arrays"):
        outbound.settle(buffers, [])
