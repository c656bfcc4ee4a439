"""Arrays and copies on a GPU, on a stand-in for its memory and streams: what is copied, ordered, kept and refused."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.device_memory import TO_DEVICE, TO_HOST, DeviceArray, Gpu, Heard, Stream, seen, stand_in

import cudakit as ck
from cudakit.memory import accounting, device_memory, memory, on_device, pinned, staging
from cudakit.memory.accounting import spares
from cudakit.memory.device_memory import Box, SurfaceObject
from cudakit.memory.on_device import OnDevice
from cudakit.memory.on_device import _copy_here as in_device
from cudakit.streams.witnesses import witnessing

pytestmark = pytest.mark.emulator

BACKEND = OnDevice()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = stand_in(monkeypatch)
    monkeypatch.setattr(on_device, "_copy_here", copy_here)
    monkeypatch.setattr("cudakit.memory.host_arrays.is_capturing", lambda stream: stream.handle in found.captured)
    return found


@pytest.fixture
def stream(gpu: Gpu) -> Stream:
    return gpu.stream()


def copy_here(target: Any, source: Any, place: Any) -> None:
    """A copy within the device, which CuPy's kernels make."""
    place.core.put(lambda: np.copyto(seen(target), seen(source)))


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)


def pinned_numbers(*shape: int) -> np.ndarray:
    made = pinned.lend(pinned.pool().take(4 * int(np.prod(shape))), shape, np.dtype(np.int32))
    made[...] = numbers(*shape)
    return made


def span(array: Any) -> tuple[int, int]:
    return on_device.segments.cupy_span(array)


# ── new arrays ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_array_is_made_on_its_stream(gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[Stream] = []
    allocate = gpu.allocate
    monkeypatch.setattr(gpu, "allocate", lambda size: current.append(gpu.current) or allocate(size))
    made = BACKEND.empty((3, 4), np.dtype("f4"), "device", stream)
    assert (made.shape, made.dtype) == ((3, 4), np.float32)
    with stream:
        BACKEND.empty((2,), np.dtype("f4"), "device", None)
    assert current == [stream, stream], "CuPy's pool knows the memory as that stream's"


def test_a_released_array_has_no_memory_and_launches_that_know_it_are_forgotten(gpu: Gpu, stream: Stream) -> None:
    emptied: list[Any] = []
    array: Any = SimpleNamespace(
        dtype=np.dtype("f4"), shape=(4,), _init=lambda *given: emptied.append((*given, gpu.current))
    )
    BACKEND.release(array, stream)
    assert emptied == [((0,), np.dtype("f4"), stream)]
    assert array.shape == (0,)
    assert [word for word, *_ in gpu.order.log] == ["around", "end", "unsettle"]
    (handle, reads, writes) = gpu.order.of("around")[0]
    assert (handle, reads) == (stream.handle, ())
    assert writes[0] is array, "after all that uses it"


def test_an_array_beyond_the_memory_takes_what_is_kept_before_it_is_refused(gpu: Gpu, stream: Stream) -> None:
    gpu.most = 10_000
    kept = SimpleNamespace(size=8000, target=stream, array=BACKEND.empty((8000,), np.dtype("u1"), "device", stream))
    kept.let_go = lambda: setattr(kept, "array", None)
    spares().give_back("call", kept)  # type: ignore[arg-type]
    made = BACKEND.empty((5000,), np.dtype("u1"), "device", stream)
    assert made.nbytes == 5000
    assert kept.array is None
    with pytest.raises(
        ck.LaunchError, match=r"^10,000 bytes of device memory were asked for; device 0 has 77 of 99 free"
    ):
        _refused(gpu, stream)


def _refused(gpu: Gpu, stream: Stream) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(accounting, "free_on_device", lambda: (77, 99))
        BACKEND.empty((2500,), np.dtype("f4"), "device", stream)


# ── copies ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_pinned", [False, True])
def test_to_the_device_and_back(gpu: Gpu, stream: Stream, is_pinned: bool) -> None:
    host = (pinned_numbers if is_pinned else numbers)(5, 8)
    made = BACKEND.to_device(host, stream, None)
    (_, reads, writes) = gpu.order.of("before")[0]
    assert (reads, writes) == ((), (span(made),))
    back = BACKEND.to_host(made, stream, None, True)
    np.testing.assert_array_equal(back, numbers(5, 8))
    assert [(kind, size) for _, kind, size, _ in gpu.runtime.calls] == [(TO_DEVICE, 160), (TO_HOST, 160)]
    reads_of = [reads for _, reads, writes in gpu.order.of("before") if not writes]
    assert (span(made),) in reads_of
    assert gpu.order.of("after")[-1][1][0] is made


def test_copies_are_told_with_what_they_read_and_write(
    gpu: Gpu, stream: Stream, boxes: list[tuple[Box, Box, int]]
) -> None:
    heard, host, device = Heard(), numbers(6), gpu.array(numbers(6))
    far, out, frame = gpu.array(numbers(6), device_id=1), np.zeros(6, "i4"), pinned_numbers(6)
    with witnessing(heard):
        BACKEND.to_device(host, stream, device)
        BACKEND.to_host(device, stream, out, True)
        BACKEND.across(far, stream, device)
        BACKEND.copy("copy_in", host, device, stream)
        BACKEND.transfer(device, frame, stream)
    h, d, f, o, p = (id(array) for array in (host, device, far, out, frame))
    with witnessing(told := Heard()):
        new = BACKEND.to_host(device, stream, None, True)
    assert told.works == [("copy", "to_host", stream, (id(device),), (id(new),), 24)]
    assert heard.works == [
        ("copy", "to_device", stream, (h,), (d,), 24),
        ("copy", "to_host", stream, (d,), (o,), 24),
        ("copy", "to_device", stream, (f,), (d,), 24),
        ("copy", "copy_in", stream, (h,), (d,), 24),
        ("copy", "copy", stream, (p,), (d,), 24),
    ]
    (_, reads, writes) = gpu.order.of("around")[-1]
    assert (id(reads[0]), id(writes[0])) == (p, d)


def test_to_a_given_array_and_to_one_whose_rows_lie_apart(gpu: Gpu, stream: Stream) -> None:
    out, wide = gpu.array(np.zeros((5, 8), "i4")), gpu.array(np.zeros((5, 16), "i4"))
    assert BACKEND.to_device(numbers(5, 8), stream, out) is out
    stream.sync()
    np.testing.assert_array_equal(seen(out), numbers(5, 8))
    part = gpu.view(wide, 0, (5, 8), (64, 4))
    gpu.order.log.clear()
    assert BACKEND.to_device(numbers(5, 8), stream, part) is part
    stream.sync()
    np.testing.assert_array_equal(seen(wide)[:, :8], numbers(5, 8))
    assert not seen(wide)[:, 8:].any()
    written = gpu.order.of("before")[0][2]
    assert len(written) == 2, "by way of a new array"
    assert written[1] == span(part)


def test_a_result_need_not_be_waited_for_and_keeps_what_it_is_copied_from(gpu: Gpu, stream: Stream) -> None:
    made, out = gpu.array(numbers(6)), pinned_numbers(6)
    out[:] = 0
    assert BACKEND.to_host(made, stream, out, False) is out
    assert not out.any()
    assert any(kept is made for _, kept in gpu.order.of("hold"))
    stream.sync()
    np.testing.assert_array_equal(out, numbers(6))
    wide = gpu.array(numbers(5, 16))
    part = gpu.view(wide, 2, (5, 4), (64, 8))
    np.testing.assert_array_equal(BACKEND.to_host(part, stream, None, True), numbers(5, 16)[:, 2:10:2])


@pytest.mark.parametrize("piece", [24, 20], ids=["in a piece", "in pieces"])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 6, 1), (), (0,), (3, 0)])
def test_a_new_result_is_the_caller_s_alone(
    gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], piece: int
) -> None:
    monkeypatch.setattr(staging, "PIECE", piece)
    host = np.arange(np.prod(shape), dtype="i4").reshape(shape) + 1
    first = BACKEND.to_host(gpu.array(host), stream, None, True)
    second = BACKEND.to_host(gpu.array(-host), stream, None, True)
    assert (type(first), first.shape, first.dtype) == (np.ndarray, shape, host.dtype)
    assert first.flags.c_contiguous
    assert first.flags.writeable
    np.testing.assert_array_equal(first, host)
    first[...] = 0
    np.testing.assert_array_equal(second, -host)
    assert pinned.pool().use().used == 0
    assert len(gpu.order.of("after")) == len(gpu.order.of("before")) == 2


@pytest.mark.parametrize("dtype", ["?", "f2", "c16", "M8[ns]", [("a", "u1"), ("b", "f8")]], ids=str)
def test_a_new_result_has_the_array_s_dtype(gpu: Gpu, stream: Stream, dtype: Any) -> None:
    host = np.frombuffer(bytes(range(144)), np.uint8).copy().view(np.dtype(dtype))
    made = gpu.array(host.view("u1"))
    result = staging.fetched(made.data.ptr, host.shape, host.dtype, host.nbytes, stream)  # type: ignore[arg-type]
    assert result.dtype == host.dtype
    assert result.tobytes() == host.tobytes()


def test_a_copy_to_a_new_result_that_fails_leaves_no_block_in_use(
    gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = gpu.array(numbers(6))
    BACKEND.to_host(made, stream, None, True)

    def fail(*_: object) -> None:
        raise gpu.runtime.CUDARuntimeError(700)

    with monkeypatch.context() as patch:
        patch.setattr(gpu.runtime, "memcpyAsync", fail)
        with pytest.raises(gpu.runtime.CUDARuntimeError) as caught:
            BACKEND.to_host(made, stream, None, True)
    del caught
    gc.collect()
    assert pinned.pool().use().used == 0
    np.testing.assert_array_equal(BACKEND.to_host(made, stream, None, True), numbers(6))


def test_while_a_stream_is_captured_only_pinned_arrays_go(gpu: Gpu, stream: Stream) -> None:
    gpu.captured.add(stream.handle)
    made = gpu.array(numbers(6))
    for refused in (
        lambda: BACKEND.to_device(numbers(6), stream, None),
        lambda: BACKEND.to_device(pinned_numbers(6)[::2], stream, None),
        lambda: BACKEND.to_host(made, stream, None, False),
        lambda: BACKEND.to_host(made, stream, np.zeros(6, "i4"), False),
        lambda: BACKEND.to_host(made, stream, pinned_numbers(6), True),
        lambda: BACKEND.across(made, stream, None),
    ):
        with pytest.raises(ck.LaunchError, match="is being captured into a graph"):
            refused()
    assert not gpu.runtime.calls
    BACKEND.to_device(pinned_numbers(6), stream, made)
    BACKEND.to_host(made, stream, pinned_numbers(6), False)
    assert len(gpu.runtime.calls) == 2


def test_outputs_that_do_not_fit(gpu: Gpu, stream: Stream) -> None:
    host = numbers(6)
    for out, words in (
        (gpu.array(numbers(5)), r"out has shape \(5,\) .* the array \(6,\)"),
        (gpu.array(np.zeros(6)), "out has shape .* float64, the array"),
        (gpu.array(numbers(6), device_id=1), "out is on device 1, and the stream is of device 0"),
        (numbers(6), "to_device: out must be a CuPy array on a GPU's stream, got ndarray"),
    ):
        with pytest.raises(ck.ArgumentError, match=words):
            BACKEND.to_device(host, stream, out)
    with pytest.raises(ck.ArgumentError, match="to_host: array must be a CuPy array on a GPU's stream, got list"):
        BACKEND.to_host([1], stream, None, True)
    read_only = np.zeros(6, "i4")
    read_only.flags.writeable = False
    masked: Any = np.ma.masked_array(np.zeros(6, "i4"))
    for out, words in (
        (read_only, "out is read-only"),
        (masked, "mask would be lost"),
        (np.zeros(5, "i4"), r"out has shape \(5,\)"),
        (np.zeros(6, "f4"), "out has shape .* float32, the array"),
        (np.zeros(6, ">i4"), "out has shape .* >i4, the array"),
        ([0] * 6, "out must be a NumPy array, got list"),
    ):
        for wait in (False, True):
            with pytest.raises(ck.ArgumentError, match=words):
                BACKEND.to_host(gpu.array(host), stream, out, wait)
    assert not gpu.runtime.calls


def test_another_library_s_array_is_copied_to_where_it_is(
    gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudakit.types.arguments._device_of", lambda address: 0)
    memory = gpu.array(np.zeros(6, "i4"))

    def exported(readonly: bool) -> Any:
        interface = {
            "data": (memory.data.ptr, readonly),
            "shape": (6,),
            "typestr": "<i4",
            "strides": None,
            "version": 3,
        }
        return SimpleNamespace(__cuda_array_interface__=interface)

    with pytest.raises(ck.ArgumentError, match="to_device: out is read-only; give another array"):
        BACKEND.to_device(numbers(6), stream, exported(True))
    out = exported(False)
    assert BACKEND.to_device(numbers(6), stream, out) is out
    stream.sync()
    np.testing.assert_array_equal(seen(memory), numbers(6))


def test_a_call_with_host_arrays_goes_to_its_buffers(gpu: Gpu, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(on_device.devices, "require_gpu", lambda: told.append("gpu"))
    monkeypatch.setattr(on_device, "call", lambda *given: told.append(given))
    kernel: Any = object()
    BACKEND.call(kernel, stream, "config", [1])
    target = on_device.device_stream(stream)
    assert told == ["gpu", (kernel, stream, target, "config", [1])]
    with pytest.raises(ck.ArgumentError, match="expected a stream"):
        BACKEND.call(kernel, object(), "config", [1])


def test_a_mark_is_an_event_after_what_the_stream_has_to_do(gpu: Gpu, stream: Stream) -> None:
    stream.put(lambda: None)
    mark = BACKEND.mark(stream)
    assert mark is not None
    assert not mark.is_done
    stream.sync()
    assert mark.is_done


# ── between devices ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_between_devices_memory_goes_straight_after_what_cupy_did_there(gpu: Gpu, stream: Stream) -> None:
    source = gpu.array(numbers(5, 8), device_id=1)
    for _ in range(2):
        made = BACKEND.across(source, stream, None)
        stream.sync()
        np.testing.assert_array_equal(seen(made), numbers(5, 8))
    reach, wait, peer = gpu.runtime.calls[:3]
    assert reach == ("peers", 1)
    assert wait == ("wait", stream.handle)
    assert peer == ("peer", 0, 1, 160, stream.handle)
    assert gpu.runtime.calls.count(("peers", 1)) == 1, "a device is let reach another's once"
    (_, reads, writes) = gpu.order.of("before")[0]
    assert reads == (span(source),)
    assert len(writes) == 1
    assert any(kept is source for _, kept in gpu.order.of("hold"))


def test_within_a_device_across_is_a_copy(gpu: Gpu, stream: Stream) -> None:
    source, out = gpu.array(numbers(6)), gpu.array(np.zeros(6, "i4"))
    assert BACKEND.across(source, stream, out) is out
    stream.sync()
    np.testing.assert_array_equal(seen(out), numbers(6))
    assert not gpu.runtime.calls


def test_between_devices_arrays_are_contiguous(gpu: Gpu, stream: Stream) -> None:
    whole = gpu.array(numbers(5, 8), device_id=1)
    with pytest.raises(ck.ArgumentError, match="between devices arrays are C-contiguous"):
        BACKEND.across(gpu.view(whole, 0, (5, 4), (32, 4)), stream, None)


@pytest.mark.parametrize(("error", "is_raised"), [(704, False), (701, True)])
def test_access_that_somebody_has_enabled_already_is_no_error(gpu: Gpu, error: int, is_raised: bool) -> None:
    gpu.runtime.error = error
    with pytest.raises(gpu.runtime.CUDARuntimeError) if is_raised else contextlib.nullcontext():
        on_device._let_reach(0, 1)
    gpu.runtime.can_access = False
    gpu.runtime.calls.clear()
    on_device._let_reach(0, 2)
    assert not gpu.runtime.calls


# ── copies of parts ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Box, Box, int]]:
    """Boxes that the driver was asked to copy: to, from, on which stream."""
    found: list[tuple[Box, Box, int]] = []
    monkeypatch.setattr(on_device, "copy_box", lambda *given: found.append(given))
    return found


def test_parts_of_pinned_and_device_arrays_are_copied_as_boxes(
    gpu: Gpu, stream: Stream, boxes: list[tuple[Box, Box, int]]
) -> None:
    frame, device = pinned_numbers(20, 30), gpu.array(np.zeros((10, 40), "i4"))
    part, there = frame[3:7, 5:11], gpu.view(device, 2, (4, 6), (160, 4))
    BACKEND.transfer(there, part, stream)
    BACKEND.transfer(part, there, stream)
    (to, source, handle), (back, again, _) = boxes
    assert (source.space, source.address, source.width, source.height, source.pitch) == (
        "host", part.ctypes.data, 24, 4, 120,
    )  # fmt: skip
    assert (to.space, to.address, to.width, to.height, to.pitch) == ("device", there.data.ptr, 24, 4, 160)
    assert (back, again) == (source, to)
    assert handle == stream.handle
    assert [kept[0] is there or kept[1] is there for _, kept in gpu.order.of("hold")] == [True, True]


def surface(*shape: int) -> Any:
    source = SimpleNamespace(handle=77)
    return SurfaceObject(SimpleNamespace(handle=5), source, shape, np.dtype("i4"), 1, False, 0)


def test_surfaces_are_copied_from_and_to_contiguous_device_memory(
    gpu: Gpu, stream: Stream, boxes: list[tuple[Box, Box, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, device = surface(4, 6), gpu.array(numbers(4, 6))
    BACKEND.transfer(one, device, stream)
    BACKEND.transfer(device, one, stream)
    BACKEND.transfer(surface(4, 6), one, stream)
    assert [(to.space, source.space) for to, source, _ in boxes] == [
        ("array", "device"), ("device", "array"), ("array", "array"),
    ]  # fmt: skip
    assert boxes[0][1] == Box("device", device.data.ptr, 24, 4, 1, 24, 96)
    assert boxes[0][0] == Box("array", 77, 24, 4, 1, 0, 0)
    assert [handle for _, _, handle in boxes] == [stream.handle] * 3
    ordered = gpu.order.of("around")
    assert [(reads[0] is device or reads[0] is one, len(writes)) for _, reads, writes in ordered[:2]] == [(True, 1)] * 2
    # Other memory goes by way of a contiguous array of the device, before or after.
    del boxes[:]
    gpu.runtime.calls.clear()
    host = numbers(4, 6)
    BACKEND.transfer(one, host, stream)
    assert [kind for _, kind, *_ in gpu.runtime.calls] == [TO_DEVICE]
    stream.sync()
    between = boxes[0][1]
    assert between.space == "device"
    monkeypatch.setattr(staging, "deliver", lambda pointer, host, target: gpu.runtime.calls.append((pointer, host)))
    BACKEND.transfer(host, one, stream)
    assert boxes[1][0].space == "device"
    assert gpu.runtime.calls[-1] == (boxes[1][0].address, host)


def test_records_are_copied_within_the_device_as_boxes_unless_they_overlap(
    gpu: Gpu, stream: Stream, boxes: list[tuple[Box, Box, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = np.dtype([("a", "i4"), ("b", "i4")])
    target, source = gpu.array(np.zeros((4, 6), record)), gpu.array(np.zeros((4, 6), record))
    place: Any = stream
    in_device(target, source, place)
    assert [(to.address, of.address) for to, of, _ in boxes] == [(target.data.ptr, source.data.ptr)]
    assert boxes[0][2] == stream.handle
    assigned: list[Any] = []
    monkeypatch.setattr(
        DeviceArray, "__setitem__", lambda self, index, value: assigned.append((self, value)), raising=False
    )
    whole = gpu.array(np.zeros(10, record))
    in_device(gpu.view(whole, 0, (6,), (8,)), gpu.view(whole, 2, (6,), (8,)), place)
    plain, other = gpu.array(numbers(3)), gpu.array(numbers(3))
    in_device(plain, other, place)
    assert len(boxes) == 1
    (_, copied), (to, of) = assigned
    assert copied.data.mem.ptr != whole.data.mem.ptr, "a copy of what overlaps"
    assert to is plain
    assert of is other


def test_other_copies_are_staged(gpu: Gpu, stream: Stream, boxes: list[tuple[Box, Box, int]]) -> None:
    device = gpu.array(np.zeros((4, 6), "i4"))
    BACKEND.transfer(device, numbers(4, 6), stream)
    stream.sync()
    np.testing.assert_array_equal(seen(device), numbers(4, 6))
    other = gpu.array(np.zeros((4, 6), "i4"))
    BACKEND.transfer(other, device, stream)
    stream.sync()
    np.testing.assert_array_equal(seen(other), numbers(4, 6))
    turned = pinned_numbers(6, 4).T
    BACKEND.transfer(device, turned, stream)
    stream.sync()
    np.testing.assert_array_equal(seen(device), turned)
    assert not boxes, "none of these is rows of bytes in pinned memory"


def test_copies_that_make_no_sense(gpu: Gpu, stream: Stream) -> None:
    device = gpu.array(numbers(6))
    for target, source, words in (
        (numbers(6), numbers(6), "source and target are NumPy arrays, and the stream is a GPU's"),
        (gpu.array(numbers(6), device_id=1), device, "the stream is of device 0, and an array of device 1"),
        (device, numbers(5), r"target has shape \(6,\) .*source \(5,\)"),
        (device, np.zeros(6), "dtype int32, source .* float64"),
        (device, [1], "copy: source must be a CuPy array on a GPU's stream, got list"),
    ):
        with pytest.raises(ck.ArgumentError, match=words):
            BACKEND.transfer(target, source, stream)
    BACKEND.transfer(gpu.array(np.zeros(0, "i4")), np.zeros(0, "i4"), stream)
    assert not gpu.runtime.calls


def test_bare_copies_go_in_the_direction_of_their_arrays(gpu: Gpu, stream: Stream) -> None:
    host, device, back = numbers(6), gpu.array(np.zeros(6, "i4")), np.zeros(6, "i4")
    BACKEND.copy("copy_in", host, device, stream)
    BACKEND.copy("copy_out", device, back, stream)
    stream.sync()
    np.testing.assert_array_equal(back, numbers(6))
    assert [(kind, size) for _, kind, size, _ in gpu.runtime.calls] == [(TO_DEVICE, 24), (TO_HOST, 24)]
    assert not gpu.order.log, "the stream alone orders them"


# ── managed memory ───────────────────────────────────────────────────────────────────────────────────────────────────


class Managed:
    """CuPy's managed memory."""

    def __init__(self, size: int) -> None:
        self.memory, self.size = np.zeros(size, np.uint8), size
        self.ptr = self.memory.ctypes.data


class Buffer:
    """cuda.core's buffer around managed memory."""

    moved: list[Any]

    @classmethod
    def from_handle(cls, address: int, size: int, owner: Any) -> Buffer:
        assert (owner.memory.ptr, owner.size) == (address, size)
        return cls()

    def prefetch(self, to: Any, stream: Any) -> None:
        self.moved.append((type(to).__name__, stream))


@pytest.fixture
def resource(monkeypatch: pytest.MonkeyPatch) -> Any:
    sizes: list[int] = []

    def allocate(size: int) -> Managed:
        sizes.append(size)
        return Managed(size)

    monkeypatch.setattr(device_memory.cupy.cuda, "ManagedMemory", allocate, raising=False)
    monkeypatch.setattr(device_memory, "free_on_device", lambda: (1000, 2000))
    return sizes


def test_managed_memory_is_counted_while_it_lives(gpu: Gpu, stream: Stream, resource: Any) -> None:
    made = BACKEND.empty((10, 5), np.dtype("f4"), "managed", stream)
    assert (made.shape, made.dtype) == ((10, 5), np.float32)
    assert resource == [200]
    other = BACKEND.empty((0,), np.dtype("f4"), "managed", stream)
    assert resource == [200, 1]
    assert accounting.ledger.managed == {0: 201}
    del made
    assert accounting.ledger.managed == {0: 1}
    del other
    assert accounting.ledger.managed == {0: 0}
    assert accounting.ledger.peaks == {("managed", 0): 201}


def test_managed_memory_is_no_more_than_is_free_and_allowed(gpu: Gpu, stream: Stream, resource: Any) -> None:
    first = BACKEND.empty((600,), np.dtype("u1"), "managed", stream)
    with pytest.raises(ck.LaunchError, match=r"401 bytes of managed .*has 1,000 free, of which 600 are promised"):
        BACKEND.empty((401,), np.dtype("u1"), "managed", stream)
    BACKEND.empty((400,), np.dtype("u1"), "managed", stream)
    accounting.ledger.limits["managed"] = 700
    with pytest.raises(ck.LaunchError, match=r"101 bytes .* asked for and 600 are held: ck.memory.limit allows 700"):
        BACKEND.empty((101,), np.dtype("u1"), "managed", stream)
    BACKEND.empty((100,), np.dtype("u1"), "managed", stream)
    assert first.nbytes == 600


def test_managed_arrays_are_moved_and_others_are_not(
    gpu: Gpu, stream: Stream, resource: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = pytest.importorskip("cuda.core")
    monkeypatch.setattr(core, "Device", type("Device", (), {"__init__": lambda self, number: None}))
    monkeypatch.setattr(core, "Host", type("Host", (), {}))
    monkeypatch.setattr(core, "ManagedBuffer", Buffer)
    monkeypatch.setattr(Buffer, "moved", [], raising=False)
    made = BACKEND.empty((10,), np.dtype("f4"), "managed", stream)
    BACKEND.prefetch(made, stream, "device")
    BACKEND.prefetch(made, stream, "host")
    assert Buffer.moved == [("Device", stream), ("Host", stream)]
    for other in (gpu.array(numbers(3)), numbers(3)):
        with pytest.raises(ck.ArgumentError, match="prefetch takes an array of"):
            BACKEND.prefetch(other, stream, "device")


def test_managed_memory_is_seen_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = SimpleNamespace(dtype=x.dtype, __cuda_array_interface__={**x.__array_interface__, "version": 3})
    answer = [driver.CUresult.CUDA_SUCCESS, True]
    monkeypatch.setattr(driver, "cuPointerGetAttribute", lambda what, address: tuple(answer))
    found = memory.host_view(array)
    np.testing.assert_array_equal(found, x)
    found[0, 0] = 9
    assert x[0, 0] == 9
    for status, is_managed in ((driver.CUresult.CUDA_SUCCESS, False), (driver.CUresult.CUDA_ERROR_INVALID_VALUE, True)):
        answer[:] = status, is_managed
        with pytest.raises(ck.ArgumentError, match="the array is not in managed memory"):
            memory.host_view(array)
    with pytest.raises(ck.ArgumentError, match="takes a managed array, got list"):
        memory.host_view([1])


# ── what is held ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_report_has_what_each_pool_holds(gpu: Gpu, stream: Stream, resource: Any) -> None:
    kept = SimpleNamespace(size=512, target=stream, release=lambda: None, let_go=lambda: None)
    arrays = [gpu.array(np.zeros(1000, "u1")), BACKEND.empty((30,), np.dtype("u1"), "managed", stream)]
    spares().give_back("call", kept)  # type: ignore[arg-type]
    gpu.pool.kept, gpu.pool.limit = 300, 5000

    def row(kind: str) -> accounting.Held:
        """The device's own; the emulator has rows of its own."""
        return next(held for held in ck.memory.report().held if (held.kind, held.device) == (kind, 0))

    device, managed_memory = row("device"), row("managed")
    assert device[2:] == (1000 - 512, 300 + 512, 1300, 5000), "what calls left is free"
    assert (managed_memory.used, managed_memory.peak) == (30, 30)
    assert ("release",) in gpu.order.log
    gpu.pool.kept = 0
    assert row("device").peak == 1300
    assert len(arrays) == 2


def test_trim_gives_back_what_is_free(gpu: Gpu, stream: Stream) -> None:
    dropped: list[str] = []
    kept = SimpleNamespace(size=512, target=stream, let_go=lambda: dropped.append("call"))
    spares().give_back("call", kept)  # type: ignore[arg-type]
    pinned.pool().take(5000).give_back()
    gpu.pool.kept = 300
    assert ck.memory.trim() == 8192 + 300
    assert dropped == ["call"]
    assert gpu.pool.kept == 0
    assert accounting.ledger.peaks["device", 0] == 300
    assert ck.memory.trim() == 0


def test_a_limit_is_the_pools_and_comes_back(gpu: Gpu) -> None:
    with ck.memory.limit(1 << 20):
        assert gpu.pool.limit == accounting.ledger.limits["device"] == 1 << 20
        with ck.memory.limit(None):
            assert gpu.pool.limit == 0, "none"
        assert gpu.pool.limit == 1 << 20
    assert (gpu.pool.limit, accounting.ledger.limits["device"]) == (0, None)
    with ck.memory.limit(99, kind="managed"):
        assert accounting.ledger.limits == {"device": None, "managed": 99}
        assert gpu.pool.limit == 0


def test_how_much_is_free_is_asked_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    monkeypatch.setattr(driver, "cuMemGetInfo", lambda: (driver.CUresult.CUDA_SUCCESS, 5, 9))
    assert accounting.free_on_device() == (5, 9)
    monkeypatch.setattr(driver, "cuMemGetInfo", lambda: (driver.CUresult.CUDA_ERROR_INVALID_CONTEXT, 0, 0))
    with pytest.raises(ck.LaunchError, match="how much memory is free: CUDA_ERROR_INVALID_CONTEXT"):
        accounting.free_on_device()


# ── host memory that is registered ───────────────────────────────────────────────────────────────────────────────────


def test_registered_memory_is_locked_as_far_as_it_reaches_and_unlocked_once(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cudakit.types import arguments

    driver = pytest.importorskip("cuda.bindings.driver")
    told: list[tuple[Any, ...]] = []
    status = [driver.CUresult.CUDA_SUCCESS]
    monkeypatch.setattr(arguments, "_registered", [0])
    monkeypatch.setattr(driver, "cuMemHostRegister", lambda *given: told.append(("lock", *given)) or (status[0],))
    monkeypatch.setattr(driver, "cuMemHostUnregister", lambda address: told.append(("unlock", address)))
    monkeypatch.setattr(
        on_device.devices, "current_device", lambda: SimpleNamespace(sync=lambda: told.append(("sync",)))
    )
    monkeypatch.setattr("cudakit.memory.memory.tell_emulator", lambda array: told.append(("emulator",)))
    whole = numbers(10, 10)
    part = whole[2:5, 1:4]
    with ck.memory.register(part) as given:
        assert given is part
        low, high = np.lib.array_utils.byte_bounds(part)
        portable = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
        assert told == [("lock", low, high - low, portable)]
        assert arguments._registered == [1]
    assert told[1:] == [("sync",), ("unlock", low)], "after all that devices may do with it"
    assert arguments._registered == [0]
    kept = ck.memory.register(whole)
    kept.close()
    kept.close()
    assert told.count(("unlock", whole.ctypes.data)) == 1
    del told[:]
    status[0] = driver.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
    with pytest.raises(ck.LaunchError, match=r"does not page-lock 400 bytes: .*; a part of it is page-locked already"):
        ck.memory.register(whole)
    status[0] = driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(ck.LaunchError, match=r"page-lock 400 bytes: CUDA_ERROR_OUT_OF_MEMORY$"):
        ck.memory.register(whole)
    assert arguments._registered == [0]
    read_only = numbers(3)
    read_only.flags.writeable = False
    for array, words in (
        (read_only, "read-only"),
        (numbers(0), "array is empty"),
        ([1], "must be a NumPy array, got list"),
    ):
        with pytest.raises(
            ck.ArgumentError, match=f"register: array {words}|register: array is {words}|register: {words}"
        ):
            ck.memory.register(array)  # type: ignore[arg-type]


# ── stack and heap of kernels ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("kind", "number"), [("stack", "CU_LIMIT_STACK_SIZE"), ("heap", "CU_LIMIT_MALLOC_HEAP_SIZE")])
def test_limits_of_kernels_are_the_devices_and_come_back(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, kind: str, number: str
) -> None:
    from cudakit.emulator.machine.heap import device_limits

    driver = pytest.importorskip("cuda.bindings.driver")
    limits: dict[Any, int] = {driver.CUlimit.CU_LIMIT_STACK_SIZE: 11, driver.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE: 12}
    good, is_refused = driver.CUresult.CUDA_SUCCESS, [False]
    monkeypatch.setattr(driver, "cuCtxGetLimit", lambda limit: (good, limits[limit]))

    def change(limit: Any, size: int) -> tuple[Any]:
        if is_refused[0]:
            return (driver.CUresult.CUDA_ERROR_INVALID_VALUE,)
        limits[limit] = size
        return (good,)

    monkeypatch.setattr(driver, "cuCtxSetLimit", change)
    former = dict(limits)
    monkeypatch.setattr(device_limits(), "_heap", None)  # kernels of other tests may hold memory of it
    before = device_limits().stack_bytes, device_limits().heap_bytes
    with ck.memory.limit(1 << 16, kind=kind):
        changed = getattr(driver.CUlimit, number)
        assert limits == {**former, changed: 1 << 16}
        assert (device_limits().stack_bytes if kind == "stack" else device_limits().heap_bytes) == 1 << 16
    assert limits == former, "what the device had"
    with ck.memory.limit(None, kind=kind):
        assert limits[changed] == device_limits().default_of(kind)
    is_refused[0] = True
    with pytest.raises(ck.LaunchError, match=f"the device refuses a {kind} of 65,536 bytes: CUDA_ERROR_INVALID_VALUE"):
        ck.memory.limit(1 << 16, kind=kind)
    device_limits().stack_bytes = before[0]
    device_limits().set_heap_bytes(before[1])


def test_the_address_of_a_block_of_pinned_memory_is_its_arrays() -> None:
    block = pinned.Pool(lambda size: np.zeros(size, np.uint8)).take(100)
    ctypes.memset(block.address, 7, 3)
    assert block.array[:4].tolist() == [7, 7, 7, 0]
    view = block.view((2, 3), np.int16, 8)
    assert view.ctypes.data == block.address + 8
    assert staging.is_direct(np.asarray(pinned.Lease(block, (4,), np.dtype("i4"), [0])))
