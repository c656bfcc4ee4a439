"""Replayed calls: when they go straight to the launch, with what, and when they do not; on arrays without a device."""

from __future__ import annotations

import ctypes
import gc
import pickle
import sys
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.without_device import CONFIG, OTHER, PACK, STREAM, UNPACK, Array, Bench, bits, call_shape, settle

from cudakit.arrays.log import Launched, RecordedCall
from cudakit.arrays.place import ArrayPlace
from cudakit.emulator.launch import limits_of
from cudakit.errors import ArgumentError
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.fold import Folded
from cudakit.generate.fuse import fuse
from cudakit.generate.reduction import reduction
from cudakit.generate.scan import scan
from cudakit.jit.launch import dispatch
from cudakit.jit.launch.bind import Fragment
from cudakit.jit.launch.param_buffer import PackedLaunch
from cudakit.streams import devices
from cudakit.streams.witnesses import Witness, witnessing

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.emulator


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_call_is_replayed_when_it_comes_a_third_time(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, z, z, times=2)
    bench.call(2.0, x, out=z)
    assert not bench.launches
    assert bench.ordinary == [((2.0, x), z, None, None)]
    bench.saw(2.0, x, z, z, times=1)
    assert bench.call(2.0, x, out=z) is z
    assert bench.launches == [("core", "launch config", "kernel", bits(2.0), x.data.ptr, z.data.ptr, 8)]
    bench.call(3.5, x, out=z)
    assert bench.launches[1][3] == bits(3.5)
    assert len(bench.ordinary) == 1


def test_given_outputs_take_any_arrays_of_the_kind(bench: Bench) -> None:
    x, z, other, another = (Array((8,), "f4") for _ in range(4))
    bench.saw(2.0, x, z, z)
    for source, target in ((x, z), (other, z), (x, other), (other, another)):
        assert bench.call(2.0, source, out=target) is target
        assert bench.launches[-1][4:6] == (source.data.ptr, target.data.ptr)
    bench.call(2.0, x)
    for wrong in (Array((4, 2), "f4"), Array((8,), "f8"), Array((8,), "f4", None, (8,)), (z,), 1.0):
        bench.call(2.0, x, out=wrong)
    assert len(bench.launches) == 4
    assert len(bench.ordinary) == 6


def test_outputs_that_overlap_an_input_are_looked_at(bench: Bench) -> None:
    x, z = Array((8,), "f4", 0x7F0000008000), Array((8,), "f4")
    bench.saw(2.0, x, z, z)
    for start in (0x7F0000008000 - 28, 0x7F0000008000, 0x7F0000008000 + 28):
        bench.call(2.0, x, out=Array((8,), "f4", start))
    bench.call(2.0, x, out=x)
    assert not bench.launches
    for start in (0x7F0000008000 - 32, 0x7F0000008000 + 32):
        bench.call(2.0, x, out=Array((8,), "f4", start))
    assert len(bench.launches) == 2


def test_outputs_in_place(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, x, x)
    for array in (x, z):
        assert bench.call(2.0, array, out=array) is array
        assert bench.launches[-1][4:6] == (array.data.ptr, array.data.ptr)
    bench.call(2.0, x, out=z)
    assert len(bench.launches) == 2


def test_other_arguments_are_the_same_objects(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, z, z, axis=1)
    bench.call(2.0, x, out=z, axis=1)
    assert len(bench.launches) == 1
    for axis in (None, 0, True, 1.0):
        bench.call(2.0, x, out=z, axis=axis)
    assert len(bench.launches) == 1
    assert [call[3] for call in bench.ordinary] == [None, 0, True, 1.0]


def test_memory_that_is_kept_between_calls(bench: Bench) -> None:
    x, z, kept = Array((8,), "f4"), Array((8,), "f4"), Array((8,), "f4")
    fragments = (*bench.shape.fragments[:3], bench.shape.fragments[2])
    bench.shape.fragments, bench.shape.families = fragments, ("number", "cupy", "cupy", "cupy")
    bench.saw(2.0, x, z, passed=(2.0, x, z, kept))
    for source in (x, Array((8,), "f4")):
        bench.call(2.0, source)
        assert bench.launches[-1][4] == source.data.ptr
        assert bench.launches[-1][6] == kept.data.ptr
    del kept
    bench.call(2.0, x)
    assert len(bench.launches) == 2
    assert len(bench.ordinary) == 1


LAYOUT = np.array((3, 5, 7), "i8").tobytes()


def packed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any]]:
    """Let the bench's kernel have a struct by value: what the driver is to answer, and what it was given."""
    driver = pytest.importorskip("cuda.bindings.driver")
    statuses: list[Any] = []
    seen: list[Any] = []

    def launch(native: Any, kernel: Any, address: int, _: Any) -> tuple[Any]:
        pointers = (ctypes.c_void_p * 4).from_address(address)
        values = [ctypes.string_at(p, size) for p, size in zip(pointers, (8, 8, 4, 24), strict=True)]
        seen.append((native, int(kernel), *values))
        return (statuses.pop() if statuses else driver.CUresult.CUDA_SUCCESS,)

    monkeypatch.setattr(driver, "cuLaunchKernelEx", launch)
    monkeypatch.setattr(PackedLaunch, "_native_config", lambda self, stream, config: (stream, config))
    bench.shape.loaded.kernel, bench.shape.loaded.sizes = SimpleNamespace(handle=77), (8, 8, 4, 24)
    weight = Fragment("{a} == {k}value", "{k}bits", "s", {"value": 2.0, "bits": PACK(2.0)})
    record = Fragment("type({a}) is bytes", "{a}", "s")
    bench.shape.fragments = (*bench.shape.fragments[1:3], weight, record)
    bench.shape.families = ("cupy", "cupy", "number", "struct")
    bench.shape.run = PackedLaunch(bench.shape.loaded, bench.shape.fragments)
    return statuses, seen


def test_parameters_of_a_new_result_are_written_once_for_its_address(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, seen = packed(bench, monkeypatch)
    x, z = Array((2, 4), "f4"), Array((2, 4), "f4")
    launched, same = Launched(bench.kernel, CONFIG, (x, z, 2.0, LAYOUT)), (("a0", 2.0), ("out", None))
    bench.replay.record(RecordedCall(0, STREAM, (launched,), (("a1", x),), ("out",), (z,), (), z, same))
    monkeypatch.setattr(PackedLaunch, "__call__", lambda self, *values: bench.launches.append(values))
    Array.made -= 1
    assert bench.call(2.0, x).data.ptr == z.data.ptr
    addresses = [array.data.ptr.to_bytes(8, "little") for array in (x, z)]
    assert seen == [(("core", "launch config"), 77, *addresses, PACK(2.0), LAYOUT)]
    assert not bench.launches
    y = bench.call(2.0, x)
    assert y.data.ptr != z.data.ptr
    assert [launch[3:] for launch in bench.launches] == [(x.data.ptr, y.data.ptr, PACK(2.0), LAYOUT)]
    assert len(seen) == 1


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # as old programs do
def test_parameters_that_stay_the_same_are_written_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses, seen = packed(bench, monkeypatch)
    x, z, other = Array((2, 4), "f4"), Array((2, 4), "f4"), Array((2, 4), "f4")
    launched = Launched(bench.kernel, CONFIG, (x, z, 2.0, LAYOUT))
    arrays, same = (("a1", x), ("out", z)), (("a0", 2.0), ("axis", None))
    bench.replay.record(RecordedCall(0, STREAM, (launched,), arrays, ("out",), (), (), z, same))
    want = [(("core", "launch config"), 77, *(a.data.ptr.to_bytes(8, "little") for a in (x, z)), PACK(2.0), LAYOUT)]
    assert bench.call(2.0, x, out=z) is z
    assert seen == want
    # Another array's address is not among them.
    bench.shape.run = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PackedLaunch, "__call__", lambda self, *values: bench.launches.append(values))
        assert bench.call(2.0, other, out=z) is z
    assert bench.launches == [
        ("core", "launch config", bench.shape.loaded.kernel, other.data.ptr, z.data.ptr, PACK(2.0), LAYOUT)
    ]
    driver = pytest.importorskip("cuda.bindings.driver")
    statuses.append(driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
    bench.call(2.0, x, out=z)
    assert len(seen) == 2
    assert len(bench.ordinary) == 1
    x.shape = (4, 2)
    bench.call(2.0, x, out=z)
    assert len(seen) == 2
    assert len(bench.ordinary) == 2


def test_conditions_on_an_address_hold_for_the_same_array_only(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    number, array, *rest = bench.shape.fragments
    bench.shape.fragments = number, array._replace(guard=f"{array.guard} and not {{a}}.data.ptr % 16"), *rest
    bench.saw(2.0, x, z, z)
    bench.call(2.0, x, out=z)
    assert len(bench.launches) == 1
    bench.call(2.0, Array((8,), "f4", z.data.ptr + 4096 + 4), out=z)
    assert len(bench.launches) == 1


def test_numbers_of_another_type(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, z, z)
    for number in (2, True, np.float64(2)):
        bench.call(number, x, out=z)
        bench.call(number, x, out=Array((8,), "f4"))
    assert not bench.launches
    bench.call(3.0, x, out=z)
    assert len(bench.launches) == 1


def test_the_shape_is_the_one_that_was_launched(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    _, array, *_ = bench.shape.fragments
    wrong = array._replace(constants={"dtype": np.dtype("f8")})
    other = call_shape(
        tuple(wrong if fragment is array else fragment for fragment in bench.shape.fragments), bench.shape.families
    )
    bench.kernel.dispatcher.shapes.insert(0, other)
    bench.saw(2.0, x, z, z)
    bench.call(2.0, x, out=z)
    assert len(bench.launches) == 1


def test_what_is_neither_array_nor_number_is_not_replayed(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.shape.families = ("number", "cupy", "cupy", "memory")
    bench.saw(2.0, x, z, z)
    bench.call(2.0, x, out=z)
    assert not bench.launches


def test_what_does_not_do_is_not_replayed_every_third_time(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    for _ in range(100):
        bench.saw(2.0, x, z, (z,), times=1)
        bench.call(2.0, x, out=(z,))
    assert not bench.launches
    assert bench.replay._recorded < 5


def test_new_outputs_take_any_arrays_of_the_kind(bench: Bench) -> None:
    x, z = Array((2, 4), "f4"), Array((2, 4), "f4")
    bench.saw(2.0, x, z)
    made = bench.call(2.0, x)
    assert made.shape == (2, 4)
    assert made.dtype == np.float32
    assert bench.launches[0][4:6] == (x.data.ptr, made.data.ptr)
    other = Array((2, 4), "f4")
    made = bench.call(2.0, other)
    assert bench.launches[1][4:6] == (other.data.ptr, made.data.ptr)
    assert not bench.ordinary
    others = Array((4, 2), "f4"), Array((8,), "f4"), Array((2, 4), "f8"), Array((2, 4), "f4", None, (4, 8))
    for wrong in (*others, None, 1.0):
        bench.call(2.0, wrong)
    assert len(bench.ordinary) == 6
    assert len(bench.launches) == 2


@pytest.fixture
def again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose replays may use the memory of a result again."""
    bench.allocator = object()  # type: ignore[attr-defined]
    bench.module.cuda.get_allocator = lambda: bench.allocator  # type: ignore[attr-defined]
    return bench


def recorded(bench: Bench, x: Array, size: int = 8) -> int:
    """Record a call with a new result, which then goes; its address."""
    z = Array((size,), "f4")
    bench.saw(2.0, x, z)
    return int(z.data.ptr)


def test_a_results_memory_is_used_again_once_it_is_gone(again: Bench) -> None:
    x = Array((8,), "f4")
    first = recorded(again, x)
    for _ in range(5):
        assert again.call(2.0, x).data.ptr == first
        assert again.launches[-1][5] == first
    held = again.call(2.0, x)
    other = again.call(2.0, x)
    assert held.data.ptr == first
    assert other.data.ptr != first, "the result is in use"
    assert again.launches[-1][5] == other.data.ptr
    third = again.call(2.0, x)
    assert third.data.ptr not in (first, other.data.ptr)
    del held
    assert again.call(2.0, x).data.ptr == first
    assert not again.ordinary


@pytest.mark.parametrize(
    "keep",
    [
        lambda z: z,
        lambda z: z.data,
        lambda z: z.data.mem,
        lambda z: z.data + 4,
        lambda z: cupy.ndarray((2,), np.float32, z.data + 8),
        lambda z: cupy.ndarray((2,), np.float32, z.data),
        lambda z: cupy.ndarray.view(z, np.int32),
        lambda z: cupy.ndarray.reshape(z, (2, 4)),
        lambda z: [[z]],
        lambda z: lambda: z,
    ],
)
def test_memory_that_anything_refers_to_is_not_used_again(again: Bench, keep: Any) -> None:
    x = Array((8,), "f4")
    first = recorded(again, x)
    kept = keep(again.call(2.0, x))
    for _ in range(3):
        assert again.call(2.0, x).data.ptr != first
    del kept
    gc.collect()
    assert again.call(2.0, x).data.ptr == first


def test_memory_of_another_allocator_or_given_back_is_not_used_again(again: Bench) -> None:
    x = Array((8,), "f4")
    first = recorded(again, x)
    own, again.allocator = again.allocator, object()  # type: ignore[attr-defined]
    assert again.call(2.0, x).data.ptr != first
    again.allocator = own  # type: ignore[attr-defined]
    assert again.call(2.0, x).data.ptr == first
    room = next(value for name, value in again.replay._names.items() if name.startswith("room_"))
    pointer = room.pop()
    assert again.call(2.0, x).data.ptr != first, "another thread has it"
    room.append(SimpleNamespace(mem=SimpleNamespace(ptr=0), ptr=first))
    assert again.call(2.0, x).data.ptr != first, "its memory was freed"
    room[:] = [pointer]
    del pointer
    assert again.call(2.0, x).data.ptr == first


def test_large_results_and_those_of_other_arrays_are_new(again: Bench) -> None:
    x, large = Array((8,), "f4"), Array((5000,), "f4")
    first = recorded(again, x)
    assert again.call(2.0, Array((8,), "f4")).data.ptr != first
    assert again.call(2.0, large) is None, "recorded first"
    first = recorded(again, large, 5000)
    assert again.call(2.0, large).data.ptr != first


def test_threads_never_share_a_results_memory(again: Bench) -> None:
    x = Array((8,), "f4")
    recorded(again, x)
    results: list[list[Any]] = [[], []]
    start = threading.Barrier(2)

    def work(mine: list[Any]) -> None:
        start.wait()
        for _ in range(300):
            result = again.call(2.0, x)
            if result is None:  # the other thread took the memory just now, and this call is made in full
                continue
            mine[:] = [result]
            addresses.append((result.data.ptr, threading.get_ident()))

    addresses: list[Any] = []
    former = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(mine,)) for mine in results]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(former)
    (one,), (other,) = results
    assert one.data.ptr != other.data.ptr
    assert len(addresses) + len(again.ordinary) == 600


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # as old programs do
def test_what_ends_a_replayed_call(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, z, z)
    bench.saw(2.0, x, z)
    bench.current = OTHER
    bench.call(2.0, x, out=z)
    bench.call(2.0, x)
    bench.current = STREAM
    bench.call(2, x, out=z)
    bench.call(2.0, x, out=z, axis=x)
    bench.call(2.0, x, out=z, stream=STREAM)
    bench.call(2.0, x, axis=3)
    bench.call(2.0, x, z)
    bench.call(2.0)
    x.shape = (2, 4)
    bench.call(2.0, x, out=z)
    bench.call(2.0, x)
    x.shape = (8,)
    bench.replay.watch(True)
    bench.call(2.0, x, out=z)
    bench.call(2.0, x)
    assert not bench.launches
    assert len(bench.ordinary) == 12
    assert bench.ordinary[7][0] == (2.0, dispatch.MISSING)


def test_what_was_unsettled_is_settled_again(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, z, z)
    made = bench.replay.function.__code__
    bench.order.unsettle()
    bench.call(2.0, x, out=z)
    assert not bench.launches
    bench.saw(2.0, x, z, z)
    bench.call(2.0, x, out=z)
    assert len(bench.launches) == len(bench.ordinary) == 1
    assert bench.replay.function.__code__ is made


def test_nothing_is_replayed_while_somebody_watches(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    with witnessing(Witness()):
        bench.saw(2.0, x, z, z)
        bench.call(2.0, x, out=z)
    assert not bench.launches
    bench.saw(2.0, x, z, z, times=100)
    bench.call(2.0, x, out=z)
    assert len(bench.launches) == 1
    with witnessing(Witness()):
        bench.call(2.0, x, out=z)
    assert len(bench.launches) == 1


def test_arrays_that_are_gone(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, z, z)
    del x
    bench.call(2.0, None, out=z)
    assert not bench.launches
    assert len(bench.ordinary) == 1


def test_several_streams_leave_known_addresses(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.order.single = bench.order.is_going_on = False
    bench.saw(2.0, x, z)
    bench.saw(2.0, x, z, z)
    bench.call(2.0, x)
    bench.call(2.0, x, out=z)
    assert not bench.launches
    bench.order.is_going_on = True
    bench.saw(2.0, x, z, times=100)
    bench.saw(2.0, x, z, z, times=100)
    bench.call(2.0, x)
    bench.call(2.0, Array((8,), "f4"), out=z)
    assert not bench.launches
    bench.call(2.0, x, out=z)
    bench.call(2.0, Array((8,), "f4", x.data.ptr), out=Array((8,), "f4", z.data.ptr))
    assert len(bench.launches) == 2


def test_the_newest_four_are_kept(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    for axis in range(5):
        bench.saw(2.0, x, z, z, axis=axis)
    for axis in range(5):
        bench.call(2.0, x, out=z, axis=axis)
    assert len(bench.launches) == 4
    assert bench.ordinary == [((2.0, x), z, None, 0)]


def test_memory_before_the_first_element(bench: Bench) -> None:
    x, z = Array((8,), "f4", 0x7F0000008000, (-4,)), Array((8,), "f4")
    view = Array((8,), "f4", 0x7F0000008000 - 28)
    place = ArrayPlace(bench.module, STREAM, True, 0)
    for outs in (None, (z,)):
        log = Launched(bench.kernel, CONFIG, (2.0, view, z, 8), ("a0", None, None, None))
        arrays, same = [("a1", x)], [("axis", None)]
        if outs:
            arrays.append(("out", z))
        else:
            same.append(("out", None))
        made = RecordedCall(
            outs, place.stream, (log,), tuple(arrays), ("out",), () if outs else (z,), (), z, tuple(same)
        )  # fmt: skip
        bench.replay.record(made)
        out = outs and z
        bench.call(2.0, x, out=out)
        again = Array((8,), "f4", 0x7F0000009000, (-4,))
        bench.call(2.0, again, out=out)
        assert [launch[4] for launch in bench.launches] == [0x7F0000008000 - 28, 0x7F0000009000 - 28]
        assert not bench.ordinary
        bench.launches.clear()
    bench.call(2.0, again, out=Array((8,), "f4", 0x7F0000009000 - 32))
    assert not bench.launches


class FakeKernel:
    """What an `Elementwise` launches; it is settled from its first launch on, as a kernel on one stream is."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.dispatcher = SimpleNamespace(shapes=[])

    def __call__(self, stream: Any, config: Any, *values: Any) -> None:
        self.bench.ordinary.append(tuple(self.passed(value) for value in values))
        if not self.dispatcher.shapes:
            fragments = tuple(self.fragment(value) for value in values)
            families = tuple(
                "cupy" if isinstance(value, Array) else "none" if value is None else "number" for value in values
            )
            shape = call_shape(fragments, families)
            shape.run = lambda *given: self.bench.launches.append(given[3:])
            self.dispatcher.shapes.append(shape)
        settle(self.dispatcher.shapes[0], config)

    def passed(self, value: Any) -> Any:
        return value.data.ptr if isinstance(value, Array) else bits(value) if isinstance(value, float) else value

    def fragment(self, value: Any) -> Fragment:
        if isinstance(value, Array):
            guard = "{a}.dtype is {k}dtype and {a}._c_contiguous"
            return Fragment(guard, "{a}.data.ptr", "q", {"dtype": value.dtype}, True)
        if isinstance(value, float):
            return Fragment("type({a}) is float", "{k}unpack({k}pack({a}))[0]", "q", {"pack": PACK, "unpack": UNPACK})
        return Fragment("type({a}) is {k}type", "{a}", "q", {"type": type(value)})

    def __getitem__(self, _: Any) -> FakeKernel:
        return self


@pytest.fixture
def faked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    kernels: dict[Any, FakeKernel] = {}

    def bound(self: Elementwise, form: Any, *_: Any) -> FakeKernel:
        return kernels.setdefault(form, FakeKernel(bench))

    monkeypatch.setattr(Elementwise, "_bound", bound)
    monkeypatch.setattr(
        Folded, "_kernel", lambda self, call, types, named: (kernels.setdefault(call.layouts, FakeKernel(bench)), named)
    )
    bench.kept = Array((64,), "u1")
    for kind in ("workspace", "status"):
        monkeypatch.setattr(ArrayPlace, kind, lambda self, size: bench.kept)
    monkeypatch.setattr(devices, "limits", lambda device: limits_of("sm_90"))
    return bench


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("layout", ["flat", "row", "reversed"])
def test_a_function_gives_its_kernel_the_same_again_and_again(faked: Bench, layout: str, given: bool) -> None:
    f = elementwise("T a, T x, T y", "T z", "z = a * x + y", name="again")
    x = Array((4, 8), "f4") if layout != "reversed" else Array((4, 8), "f4", 0x7F0000800000, (32, -4))
    y = Array((8,) if layout == "row" else (4, 8), "f4")
    z = Array((4, 8), "f4")
    for _ in range(8):
        result = f(2.0, x, y, out=z if given else None)
        assert result is z or not given
    assert faked.launches
    assert len(faked.ordinary) < 6
    first = x.data.ptr - (28 if layout == "reversed" else 0)
    for call in (*faked.ordinary, *faked.launches):
        assert call[:3] == (bits(2.0), first, y.data.ptr)
        assert call[3] == z.data.ptr or not given
        assert call[4] == 32
    made = faked.launches[-1][3]
    assert made == (z if given else result).data.ptr


def test_other_arrays_of_a_kind_that_was_seen(faked: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    f = elementwise("T a, T x, T y", "T z", "z = a * x + y", name="again")
    y, z = Array((8,), "f4"), Array((8,), "f4")
    for k in range(12):
        x = Array((8,), "f4")
        f(float(k), x, y, out=z)
        f(float(k), x, y, out=y)
        f(float(k), x, y)
        calls = faked.ordinary + faked.launches
        assert (bits(float(k)), x.data.ptr, y.data.ptr, z.data.ptr, 8) in calls
        assert (bits(float(k)), x.data.ptr, y.data.ptr, y.data.ptr, 8) in calls
    made = len(faked.launches)
    monkeypatch.setattr(ArrayPlace, "copied", lambda self, array: Array(array.shape, array.dtype))
    for k in range(8):
        x = Array((8,), "f4", z.data.ptr + 4)
        f(float(k), x, y, out=z)
        assert faked.ordinary[-1][0] == bits(float(k))
        assert faked.ordinary[-1][1] not in (x.data.ptr, z.data.ptr)
    assert len(faked.launches) == made


def test_masks_and_several_outputs(faked: Bench) -> None:
    f = elementwise("T a, T x", "T y, T z", "y = a * x; z = a + x", name="again")
    x, outs = Array((8,), "f4"), (Array((8,), "f4"), Array((8,), "f4"))
    for k in range(12):
        where = Array((8,), "?")
        f(float(k), x, where=where, out=outs)
        numbers = x.data.ptr, where.data.ptr, *(out.data.ptr for out in outs)
        assert (faked.launches or faked.ordinary)[-1][:5] == (bits(float(k)), *numbers)
    assert len(faked.launches) > 8
    made = len(faked.launches)
    for _ in range(8):
        assert f(2.0, x, out=(outs[0], None))[0] is outs[0]
    assert len(faked.launches) == made
    for _ in range(8):
        y, z = f(2.0, x)
    assert len(faked.launches) > made
    assert faked.launches[-1][:4] == (bits(2.0), x.data.ptr, y.data.ptr, z.data.ptr)


SUM = reduction("T x", "T y", "x", "a + b", "0", name="total")
SCAN = scan("T x", "T y", "x", "a + b", "0", name="running")


@pytest.mark.parametrize(
    ("f", "shape", "options"),
    [
        (SUM, (), {}),
        (SUM, (4,), {"axis": 1}),
        (SUM, (1, 8), {"axis": 0, "keepdims": True}),
        (SCAN, (32,), {}),
        (SCAN, (4, 8), {"axis": 1}),
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_folds_give_their_kernels_the_same_again_and_again(
    faked: Bench, f: Any, shape: tuple[int, ...], options: dict[str, Any], given: bool
) -> None:
    f = pickle.loads(pickle.dumps(f))
    z = Array(shape, "f4")
    for count in range(8):
        x = Array((4, 8), "f4")
        result = f(x, out=z if given else None, **options)
        assert result.shape == shape
        assert result is z or not given
        assert len(faked.launches) == max(0, count - 2)
        last = (faked.launches or faked.ordinary)[-1]
        assert last[:2] == (x.data.ptr, result.data.ptr)
    assert [x for x in faked.launches[-1][2:-1] if x] in ([], [faked.kept.data.ptr])
    f(x, **{"stream": None, "size": None, **options})
    assert len(faked.launches) == (5 if given else 6)
    f(x, axis=1 - options.get("axis", 1))
    assert len(faked.launches) == (5 if given else 6)
    with pytest.raises(ArgumentError, match="takes 1 inputs"):
        f()


def test_a_scan_of_a_copy_is_not_replayed(faked: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Array, "__setitem__", lambda *_: None)
    for _ in range(8):
        assert SCAN(Array((4, 8), "f4", None, (4, 16))).shape == (32,)
    assert not faked.launches
    assert len(faked.ordinary) == 8


@pytest.mark.parametrize("given", [False, True])
def test_scans_of_two_launches(faked: Bench, given: bool) -> None:
    share = scan("T x", "T y", "x", "a + b", "0", "y = item / last_item", "share")
    z = Array((8,), "f4")
    for count in range(8):
        x = Array((8,), "f4")
        result = share(x, out=z if given else None)
        assert len(faked.launches) == 2 * max(0, count - 2)
        first, second = (faked.launches or faked.ordinary)[-2:]
        assert first == second
        assert first[:2] == (x.data.ptr, result.data.ptr)
        # What the first leaves for the second is in memory of its own.
        assert first[2] not in (*first[:2], faked.kept.data.ptr)


def test_scans_whose_results_are_filled_before_are_not_replayed(faked: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Array, "__setitem__", lambda *_: None)
    partly = scan("T x", "T y", "x", "a + b", "0", "if (x > 0) y = item", "partly")
    x, z = Array((8,), "f4"), Array((8,), "f4")
    for _ in range(8):
        partly(x)
    assert not faked.launches
    for _ in range(8):
        partly(x, out=z)
    assert len(faked.launches) == 5


@pytest.mark.parametrize("given", [False, True])
def test_a_fused_function_gives_its_kernel_the_same_again_and_again(faked: Bench, given: bool) -> None:
    @fuse
    def scaled(x: Any, by: float, double: bool = False, *, no: Any = None) -> Any:
        return x * by * 2 if double else x * by

    @fuse(static=("power",))
    def raised(power: int, x: Any, unused: Any, y: Any = None) -> Any:
        return x**power

    z = Array((8,), "f4")
    out = z if given else None
    for f, before, after in (
        (fuse(lambda by, double, x: x * by), (2.0, True), ()),
        (raised, (2,), (Array((3,), "f4"),)),
    ):
        faked.launches.clear()
        for count in range(8):
            x = Array((8,), "f4")
            result = f(*before, x, *after, out=out)
            assert len(faked.launches) == max(0, count - 2)
            last = [value for value in (faked.launches or faked.ordinary)[-1] if value not in (bits(2.0), 8)]
            assert last == [x.data.ptr, result.data.ptr]
        f(*before[:-1], False if before[-1] is True else 3, x, *after)
        f(*before, x, *after, None) if after else f(*before, x=x)
        assert len(faked.launches) == 5
    for _ in range(8):
        scaled(x, 2.0)
        scaled(x, 2.0, no=1)
    # What it leaves to its defaults is not known at the next call; only the kernel's own function is replayed.
    assert "current_cupy_stream" in raised.func.__code__.co_names
    assert "current_cupy_stream" not in scaled.func.__code__.co_names
