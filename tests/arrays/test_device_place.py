"""Where ops on a GPU's arrays run, without a GPU: CuPy's arrays of memory that nobody has."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import without_device
from support.without_device import Array, Memory

import cudakit as ck
from cudakit.arrays import output
from cudakit.arrays import place as place_module
from cudakit.arrays.log import Cleared, Copied, Launched, Log, logs
from cudakit.arrays.output import check_apart, checked_output, overlaps
from cudakit.arrays.place import (
    TICKETS,
    ArrayPlace,
    LoggedPlace,
    _Workspaces,
    array_place,
    as_array,
    busy_blocks,
    multiprocessors_of,
)

pytestmark = pytest.mark.emulator
CURRENT, OTHER = SimpleNamespace(ptr=0), SimpleNamespace(ptr=77)
CUDA = SimpleNamespace(handle=5)


class Gpu:
    """CuPy and the streams, as a program on a GPU has them; `within` is the stream that CuPy works on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = without_device.stand_in(monkeypatch, lambda: CURRENT)
        self.within: list[Any] = []
        self.capture: Any = None
        self.order: list[Any] = []
        self.uploaded: list[Any] = []
        Memory.done.clear()

        @contextlib.contextmanager
        def cupy_stream(core: Any) -> Iterator[None]:
            self.within.append(core)
            yield
            self.within.append(None)

        def asarray(array: Any) -> Any:
            self.uploaded.append((self.within[-1:], array))
            return "uploaded"

        @contextlib.contextmanager
        def around(stream: Any, reads: Any, writes: Any) -> Iterator[None]:
            self.order.append((stream, reads, writes))
            yield

        self.module.asarray = asarray
        self.module.from_dlpack = lambda value: ("from_dlpack", value)
        monkeypatch.setattr(place_module, "cupy_stream", cupy_stream)
        monkeypatch.setattr(place_module, "as_stream", lambda stream: ("core of", stream))
        monkeypatch.setattr(place_module, "device_stream", self.known)
        monkeypatch.setattr(place_module, "require_stream", lambda stream: None)
        monkeypatch.setattr(place_module.streams, "current", lambda stream: self.capture)
        monkeypatch.setattr(place_module, "refuse_capture", self.refuse)
        monkeypatch.setattr(place_module, "order", lambda: SimpleNamespace(around=around))
        self.refused: list[Any] = []

    def known(self, stream: Any) -> Any:
        return SimpleNamespace(device_id=3, handle=stream.ptr or 1, core=stream)

    def refuse(self, stream: Any, *words: str) -> None:
        self.refused.append((stream, words[0]))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def place_of(gpu: Gpu, current: bool = False) -> ArrayPlace:
    return ArrayPlace(gpu.module, OTHER, current, 0)


def test_arrays_go_to_cupys_current_stream(gpu: Gpu) -> None:
    x, y = Array((3,), "f4"), Array((4,), "f4")
    for named in ((("x", x),), (("x", x), ("y", y))):
        place, arrays = array_place("op", None, *named)
        assert (place, type(place)) == (ArrayPlace(gpu.module, CURRENT, True, 0), ArrayPlace)
        assert [id(each) for each in arrays] == [id(value) for _, value in named]
    place, _ = array_place("op", OTHER, ("x", x))
    assert place == ArrayPlace(gpu.module, OTHER, False, 3)
    place, _ = array_place("op", CURRENT, ("x", x))
    assert place == ArrayPlace(gpu.module, CURRENT, True, 0)
    place, _ = array_place("op", SimpleNamespace(ptr=1), ("x", x))
    assert place.current, "the driver's number 1 is the stream that CuPy knows as 0"


def test_arrays_of_several_places_are_refused(gpu: Gpu) -> None:
    x, host = Array((3,), "f4"), np.ones(3)
    with pytest.raises(ck.ArgumentError, match="op: x is in device memory and y in host memory; move one of them"):
        array_place("op", None, ("x", x), ("y", host))
    with pytest.raises(ck.ArgumentError, match="op: y is in host memory and x in device memory; move one of them"):
        array_place("op", None, ("y", host), ("x", x))
    with pytest.raises(ck.ArgumentError, match="op: x is in host memory and the stream is a GPU's; move it first"):
        array_place("op", OTHER, ("x", host))
    with pytest.raises(
        ck.ArgumentError, match="op: x is in device memory and the stream is the emulator's; give a NumP"
    ):
        array_place("op", ck.emulator.stream(), ("x", x))
    place, _ = array_place("op", None, ("x", host))
    assert place.xp is np
    with pytest.raises(ck.ArgumentError, match="op: x is int, not an array; give a CuPy or a NumPy array"):
        as_array("op", "x", 3)


def test_what_exports_device_memory_is_cupys_array(gpu: Gpu) -> None:
    interface = SimpleNamespace(__cuda_array_interface__={"shape": (3,), "typestr": "<f4", "data": (512, False)})
    assert as_array("op", "x", interface) == ("uploaded", False)
    packed: Any = type("Packed", (), {"__dlpack__": None, "__dlpack_device__": lambda self: (2, 0)})()
    assert as_array("op", "x", packed) == (("from_dlpack", packed), False)
    derived = type("Derived", (Array,), {})((3,), "f4")
    found, on_host = as_array("op", "x", derived)
    assert (found is derived, on_host) == (True, False)


def test_memory_is_made_on_the_stream(gpu: Gpu) -> None:
    made = place_of(gpu).empty((3, 4), "f8")
    assert (made.shape, made.dtype, gpu.within) == ((3, 4), np.float64, [("core of", OTHER), None])
    gpu.within.clear()
    place_of(gpu, current=True).empty((3,), "f8")
    assert gpu.within == []


def test_small_arrays_go_up_and_down(gpu: Gpu) -> None:
    host = np.ones(3)
    assert place_of(gpu).upload(host) == "uploaded"
    assert gpu.uploaded == [([("core of", OTHER)], host)]
    gpu.capture = SimpleNamespace(upload=lambda array: ("captured", array))
    assert place_of(gpu).upload(host) == ("captured", host)
    gpu.within.clear()
    place_of(gpu).download(SimpleNamespace(get=lambda: np.array([1, 2]))).tolist()
    assert gpu.within == [("core of", OTHER), None]
    assert gpu.refused == [(OTHER, "the op")]
    emulated = ArrayPlace(np, ck.emulator.stream(), True, "sm_90")
    assert emulated.upload(host) is host
    assert emulated.download(host) is host
    assert len(gpu.refused) == 2


def test_copies_and_zeros_go_in_the_streams_order(gpu: Gpu) -> None:
    place, x, y = place_of(gpu), Array((2, 3), "f4"), Array((2, 3), "f4")
    place.copy(x, y)
    assert Memory.done == [("copy", y.data.ptr, x.data.ptr, 24)]
    assert gpu.within == [("core of", OTHER), None]
    set_to: list[Any] = []

    class Target(Array):
        def __setitem__(self, key: Any, value: Any) -> None:
            set_to.append((key, value))

    for source, target in (
        (x, Target((2, 3), "i4")),
        (x, Target((3, 2), "f4")),
        (Array((2, 3), "f4", x.data, (4, 8)), Target((2, 3), "f4")),
        (x, Target((2, 3), "f4", y.data, (4, 8))),
    ):
        place.copy(source, target)
        assert set_to[-1][0] is ...
        assert set_to[-1][1] is source
    assert len(set_to) == 4
    Memory.done.clear()
    place.clear(y)
    assert Memory.done == [("memset", y.data.ptr, 0, 24)]
    Memory.done.clear()
    made = place.copied(x)
    ((stream, (read,), (written,)),) = gpu.order
    assert (stream, read is x, written is made) == (OTHER, True, True)
    assert Memory.done == [("copy", made.data.ptr, x.data.ptr, 24)]


def test_arrays_that_are_contiguous_already_are_taken(gpu: Gpu) -> None:
    place, x = place_of(gpu), Array((2, 3), "f4")
    assert place.contiguous(x) is x
    assert place.contiguous(x, np.dtype("f4")) is x
    host = ArrayPlace(np, ck.emulator.stream(), True, "sm_90")
    y = np.arange(6.0).reshape(2, 3)
    turned = host.contiguous(y.T)
    assert turned.flags.c_contiguous
    assert turned.tolist() == y.T.tolist()
    assert host.contiguous(y, np.dtype("f4")).dtype == np.float32
    copied = host.copied(y.T)
    assert copied.flags.c_contiguous
    assert copied.tolist() == y.T.tolist()
    host.clear(y)
    assert not y.any()


def test_the_emulators_workspaces_are_new_and_zero() -> None:
    host = ArrayPlace(np, ck.emulator.stream(), True, "sm_90")
    space, status = host.workspace(100), host.status(50)
    assert (space.size, space.dtype, space.any()) == (4 * TICKETS + 100, np.uint8, False)
    assert (status.size, status.dtype, status.any()) == (50, np.uint8, False)
    assert host.workspace(100) is not space
    assert host.keep(space) is space


class Kept:
    """A workspace that says which part is zeroed."""

    def __init__(self, size: int, cleared: list[Any]) -> None:
        self.size, self.cleared = size, cleared

    def __getitem__(self, part: slice) -> Any:
        return ("part", part.start, part.stop)

    def __setitem__(self, part: slice, value: int) -> None:
        self.cleared.append((part.start, part.stop, value))


def test_a_stream_keeps_its_workspace(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    cleared: list[Any] = []

    def empty(place: ArrayPlace, size: int, dtype: Any) -> Kept:
        assert dtype is np.uint8
        made.append(size)
        return Kept(size, cleared)

    monkeypatch.setattr(ArrayPlace, "empty", empty)
    spaces, place = _Workspaces(4 * TICKETS), place_of(gpu)
    first = spaces.of(place, 100)
    assert made == [1 << 20]
    assert cleared == [(None, 4 * TICKETS, 0)]
    assert gpu.within == [OTHER, None]
    assert spaces.of(place, (1 << 20) - 4 * TICKETS) is first
    larger = spaces.of(place, (1 << 20) - 4 * TICKETS + 1)
    assert made == [1 << 20, 1 << 21]
    assert spaces.of(place, 100) is larger
    other = ArrayPlace(gpu.module, CURRENT, True, 0)
    assert spaces.of(other, 3 << 20) is not larger
    assert made[2:] == [1 << 22]
    assert spaces.of(place, 100) is larger
    assert _Workspaces(None).of(place, (1 << 21) - 4 * TICKETS).size == 1 << 21
    assert cleared[-1] == (None, None, 0)
    held: dict[Any, Any] = {}
    captured: list[Any] = []
    gpu.capture = SimpleNamespace(kept_by=lambda owner: held, clear=captured.append)
    gpu.within.clear()
    graphs = spaces.of(place, 100)
    assert graphs is not larger
    assert spaces.of(place, 200) is graphs
    assert held == {(3, 77): graphs}
    assert captured == [("part", None, 4 * TICKETS)]
    assert gpu.within == []
    gpu.capture = None
    monkeypatch.setattr(place_module, "_workspaces", SimpleNamespace(of=lambda place, size: ("workspace", size)))
    monkeypatch.setattr(place_module, "_statuses", SimpleNamespace(of=lambda place, size: ("status", size)))
    assert (place.workspace(5), place.status(6)) == (("workspace", 5), ("status", 6))


@pytest.fixture
def log() -> Iterator[Log]:
    """What this thread's call does, taken down."""
    found = Log()
    logs[threading.get_ident()] = found
    yield found
    del logs[threading.get_ident()]


def test_what_a_place_does_is_taken_down(gpu: Gpu, log: Log) -> None:
    place, arrays = array_place("op", None, ("x", Array((2, 3), "f4")))
    assert type(place) is LoggedPlace
    x, y = arrays[0], place.empty((2, 3), "f4")
    assert [id(each) for each in log.new] == [id(y)]
    launched: list[Any] = []
    place.launch(lambda *given: launched.append(given), "config", x, 3)
    place.copy(x, y)
    place.clear(y)
    first, second, third = log.steps
    assert isinstance(first, Launched)
    assert (first.config, first.arguments[1], launched[0][0], launched[0][1:3:2]) == ("config", 3, CURRENT, ("config",))
    assert isinstance(second, Copied)
    assert (second.source is x, second.target is y) == (True, True)
    assert isinstance(third, Cleared)
    assert log.is_whole
    assert place.alignment(x) == 16
    assert log.aligned[0][1] == 16
    assert place.keep(y) is y
    assert log.persistent[0] is y


@pytest.mark.parametrize(
    "lose",
    [
        lambda place, x: place.upload(np.ones(3)),
        lambda place, x: place.download(SimpleNamespace(get=lambda: 3)),
        lambda place, x: place.copied(x),
        lambda place, x: place.inside(),
        lambda place, x: place.copy(x, type("Other", (Array,), {"__setitem__": lambda *_: None})((2, 3), "i4")),
    ],
)
def test_what_no_log_can_tell_is_said(gpu: Gpu, log: Log, lose: Any) -> None:
    place, (x,) = array_place("op", None, ("x", Array((2, 3), "f4")))
    assert log.is_whole
    lose(place, x)
    assert not log.is_whole


def test_only_calls_on_cupys_current_stream_are_told(gpu: Gpu, log: Log) -> None:
    x = Array((3,), "f4")
    assert type(array_place("op", CURRENT, ("x", x))[0]) is LoggedPlace
    assert log.is_whole
    other, _ = array_place("op", OTHER, ("x", x))
    assert (type(other), other) == (ArrayPlace, ArrayPlace(gpu.module, OTHER, False, 3))
    assert not log.is_whole
    log.is_whole = True
    assert type(array_place("op", None, ("x", np.ones(3)))[0]) is ArrayPlace
    assert not log.is_whole


def test_alignment_of_addresses(gpu: Gpu) -> None:
    place = place_of(gpu)
    for offset, wanted in ((0, 16), (16, 16), (8, 8), (24, 8), (4, 4), (2, 2), (1, 1)):
        assert place.alignment(Array((1,), "u1", 0x7F0000000000 + offset)) == wanted
        assert place.alignment(Array((1,), "u1", 0x7F0000000000), Array((1,), "u1", 0x7F0000000000 + offset)) == wanted
    assert place.alignment() == 16


def test_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_module, "device_limits", lambda device: SimpleNamespace(multiprocessors=100 + device))
    assert (multiprocessors_of(3), busy_blocks(3)) == (103, 103)
    assert (multiprocessors_of("sm_90"), busy_blocks("sm_90")) == (16, 1)
    assert ArrayPlace(np, None, True, 5).multiprocessors == 105


def test_outputs_of_a_gpu(gpu: Gpu) -> None:
    place, f4 = place_of(gpu), np.dtype("f4")
    fits = Array((4, 6), "f4")
    assert checked_output("op", place, fits, (4, 6), f4) is fits
    assert output.target("op", place, None, (4,), f4).result.shape == (4,)
    with pytest.raises(ck.ArgumentError, match="op: out is in host memory, the inputs are not"):
        checked_output("op", place, np.zeros((4, 6), "f4"), (4, 6), f4)
    with pytest.raises(ck.ArgumentError, match="op: out is in device memory, the inputs are not"):
        checked_output("op", ArrayPlace(np, None, True, "sm_90"), fits, (4, 6), f4)
    repeated = Array((4, 6), "f4", fits.data, (0, 4))
    with pytest.raises(
        ck.ArgumentError, match=r"op: out repeats elements \(strides \(0, 4\)\); give an array that doe"
    ):
        checked_output("op", place, repeated, (4, 6), f4)
    one_row = Array((1, 6), "f4", fits.data, (0, 8))
    assert checked_output("op", place, one_row, (1, 6), None) is one_row
    empty = Array((4, 0), "f4", fits.data, (0, 4))
    assert checked_output("op", place, empty, (4, 0), None) is empty


def test_what_overlaps_in_a_gpus_memory(gpu: Gpu) -> None:
    base = 0x7F0000000000
    x = Array((4, 4), "f4", base)
    assert overlaps(x, Array((1,), "f4", base + 60))
    assert not overlaps(x, Array((1,), "f4", base + 64))
    assert overlaps(Array((1,), "f4", base + 60), x)
    assert not overlaps(Array((1,), "f4", base + 64), x)
    assert overlaps(x, Array((4, 4), "f4", base))
    assert not overlaps(x, Array((4, 4), "f4", base), in_place=True)
    assert overlaps(x, Array((16,), "f4", base), in_place=True)
    assert overlaps(x, Array((4, 4), "i4", base), in_place=True)
    assert not overlaps(Array((4, 2), "f4", base, (16, 8)), Array((4, 2), "f4", base + 4, (16, 8)))
    assert overlaps(Array((4, 2), "f4", base, (16, 8)), Array((4, 2), "f4", base + 8, (16, 8)))
    check_apart("op", [x])
    check_apart("op", [x, None])
    check_apart("op", [x, Array((1,), "f4", base + 64)])
    with pytest.raises(ck.ArgumentError, match="op: one array is given for two outputs"):
        check_apart("op", [x, None, x])
    with pytest.raises(ck.ArgumentError, match="op: two outputs overlap; give each an array of its own"):
        check_apart("op", [Array((1,), "f4"), x, Array((4, 4), "f4", base)])
