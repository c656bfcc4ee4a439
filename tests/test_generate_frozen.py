"""Frozen calls: when they go straight to the launch, with what, and when they do not; on arrays without a device."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit import devices, dispatch
from cudakit.binding import Fragment
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.frozen import Frozen, Made, sources

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.emulator

STREAM, OTHER = object(), object()
PACK, UNPACK = struct.Struct("<f").pack, struct.Struct("<I").unpack


class Array(cupy.ndarray):
    """CuPy's array of memory that nobody has; a new one has an address of its own."""

    made = 0

    def __new__(cls, shape: Any, dtype: Any, memory: Any = None, strides: Any = None) -> Any:
        if memory is None:
            cls.made += 1
            memory = 0x7F0000000000 + cls.made * 4096
        if isinstance(memory, int):
            memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(memory, 4096, None, device_id=0), 0)
        return super().__new__(cls, shape, dtype, memory, strides)

    def __init__(self, *_: Any) -> None:
        pass


class Bench:
    """A `Frozen` of ``f(a, x) → z`` with everything about it made up: launches and ordinary calls are written down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current: Any = STREAM
        self.launches: list[tuple[Any, ...]] = []
        self.ordinary: list[tuple[Any, ...]] = []
        module = SimpleNamespace(
            ndarray=Array,
            may_share_memory=cupy.may_share_memory,
            cuda=SimpleNamespace(get_current_stream=lambda *device: self.current),
        )
        monkeypatch.setitem(__import__("sys").modules, "cupy", module)
        monkeypatch.setattr(devices, "device_count", lambda: 1)
        number = Fragment("type({a}) is float", "{k}unpack({k}pack({a}))[0]", "q", {"pack": PACK, "unpack": UNPACK})
        array = Fragment(
            "{a}.dtype is {k}dtype and {a}._c_contiguous", "{a}.data.ptr", "q", {"dtype": np.dtype("f4")}, True
        )
        size = Fragment("type({a}) is int", "{a}", "q")
        self.shape = SimpleNamespace(
            fragments=(number, array, array, size),
            families=("number", "cupy", "cupy", "number"),
            serial=7,
            device_id=0,
            run=lambda *values: self.launches.append(values),
            loaded=SimpleNamespace(kernel="kernel"),
        )
        self.names: dict[str, Any] = {}
        self.settle()
        self.kernel = SimpleNamespace(_dispatcher=SimpleNamespace(_namespace=self.names, shapes=[self.shape]))
        self.frozen = Frozen(2, 1, lambda *call: self.ordinary.append(call))
        self.call = self.frozen.function

    def settle(self, any_arrays: bool = True) -> None:
        self.names["H7"] = (STREAM, "config", "core", "launch config", STREAM, None, any_arrays)
        assert len(self.names["H7"]) == dispatch._SETTLED

    def made(self, a: float, x: Any, z: Any, out: Any = None) -> Made:
        outs = None if out is None else (out,)
        given = (*((name, 0) for name in sources((a, x), 1, (out,))), (None, 0))
        passed = (a, x, z, x.size)
        key = "key" if out is None else ("key", id(x), id(z))
        return Made(key, self.kernel, STREAM, "config", passed, given, (a, x, z, None), outs)  # type: ignore[arg-type]

    def saw(self, *args: Any, times: int = 3) -> None:
        for _ in range(times):
            made = self.made(*args)
            if self.frozen.is_due(made.key):
                self.frozen.freeze(made)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def bits(value: float) -> int:
    return int(UNPACK(PACK(value))[0])


def test_a_call_is_frozen_when_it_comes_a_third_time(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, z, z, times=2)
    bench.call(2.0, x, out=z)
    assert not bench.launches
    assert bench.ordinary == [((2.0, x), z, None, None, None)]
    bench.saw(2.0, x, z, z, times=1)
    assert bench.call(2.0, x, out=z) is z
    assert bench.launches == [("core", "launch config", "kernel", bits(2.0), x.data.ptr, z.data.ptr, 8)]
    bench.call(3.5, x, out=z)
    assert bench.launches[1][3] == bits(3.5)
    assert len(bench.ordinary) == 1


def test_given_outputs_are_known_by_identity(bench: Bench) -> None:
    x, z, other = Array((8,), "f4"), Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, z, z)
    bench.call(2.0, other, out=z)
    bench.call(2.0, x, out=other)
    bench.call(2.0, x)
    assert not bench.launches
    assert len(bench.ordinary) == 3


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


def test_what_ends_a_frozen_call(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, z, z)
    bench.saw(2.0, x, z)
    bench.current = OTHER
    bench.call(2.0, x, out=z)
    bench.call(2.0, x)
    bench.current = STREAM
    bench.call(2, x, out=z)
    bench.call(2.0, x, out=z, where=x)
    bench.call(2.0, x, out=z, stream=STREAM)
    bench.call(2.0, x, size=3)
    bench.call(2.0, x, z)
    bench.call(2.0)
    x.shape = (2, 4)
    bench.call(2.0, x, out=z)
    bench.call(2.0, x)
    x.shape = (8,)
    bench.settle()
    bench.call(2.0, x, out=z)
    bench.call(2.0, x)
    assert not bench.launches
    assert len(bench.ordinary) == 12
    assert bench.ordinary[7][0] == (2.0, dispatch.MISSING)


def test_arrays_that_are_gone(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.saw(2.0, x, z, z)
    del x
    bench.call(2.0, None, out=z)
    assert not bench.launches
    assert len(bench.ordinary) == 1


def test_several_streams_leave_only_known_arrays(bench: Bench) -> None:
    x, z = Array((8,), "f4"), Array((8,), "f4")
    bench.settle(any_arrays=False)
    bench.saw(2.0, x, z)
    bench.saw(2.0, x, z, z)
    bench.call(2.0, x)
    bench.call(2.0, x, out=z)
    assert not bench.launches
    bench.names["H7"] = (*bench.names["H7"], lambda: x, 0, lambda: z, 0)
    bench.saw(2.0, x, z, times=100)
    bench.saw(2.0, x, z, z, times=100)
    bench.call(2.0, x)
    assert not bench.launches
    bench.call(2.0, x, out=z)
    assert len(bench.launches) == 1


def test_the_newest_four_are_kept(bench: Bench) -> None:
    arrays = [(Array((8,), "f4"), Array((8,), "f4")) for _ in range(5)]
    for x, z in arrays:
        bench.saw(2.0, x, z, z)
    for x, z in arrays:
        bench.call(2.0, x, out=z)
    assert len(bench.launches) == 4
    assert bench.ordinary == [((2.0, arrays[0][0]), arrays[0][1], None, None, None)]


def test_memory_before_the_first_element(bench: Bench) -> None:
    x, z = Array((8,), "f4", 0x7F0000008000, (-4,)), Array((8,), "f4")
    made = bench.made(2.0, x, z)
    view = Array((8,), "f4", 0x7F0000008000 - 28)
    made = made._replace(passed=(2.0, view, z, 8), given=(made.given[0], ("a1", 28), *made.given[2:]))
    bench.frozen.freeze(made)
    bench.call(2.0, x)
    again = Array((8,), "f4", 0x7F0000009000, (-4,))
    bench.call(2.0, again)
    assert [launch[4] for launch in bench.launches] == [0x7F0000008000 - 28, 0x7F0000009000 - 28]
    assert not bench.ordinary


class FakeKernel:
    """What an `Elementwise` launches; it is settled from its first launch on, as a kernel on one stream is."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.names: dict[str, Any] = {}
        self.shape: Any = None
        self._dispatcher = SimpleNamespace(_namespace=self.names, shapes=[])

    def __call__(self, stream: Any, config: Any, *values: Any) -> None:
        self.bench.ordinary.append(tuple(self.passed(value) for value in values))
        if not self._dispatcher.shapes:
            fragments = tuple(self.fragment(value) for value in values)
            families = tuple("cupy" if isinstance(value, Array) else "number" for value in values)
            run = lambda *given: self.bench.launches.append(given[3:])  # noqa: E731
            loaded = SimpleNamespace(kernel="kernel")
            self._dispatcher.shapes.append(
                SimpleNamespace(fragments=fragments, families=families, serial=3, device_id=0, run=run, loaded=loaded)
            )
        self.names["H3"] = (STREAM, config, "core", "launch config", STREAM, None, True)

    def passed(self, value: Any) -> Any:
        return value.data.ptr if isinstance(value, Array) else bits(value) if isinstance(value, float) else value

    def fragment(self, value: Any) -> Fragment:
        if isinstance(value, Array):
            guard = "{a}.dtype is {k}dtype and {a}._c_contiguous"
            return Fragment(guard, "{a}.data.ptr", "q", {"dtype": value.dtype}, True)
        if isinstance(value, float):
            return Fragment("type({a}) is float", "{k}unpack({k}pack({a}))[0]", "q", {"pack": PACK, "unpack": UNPACK})
        return Fragment("type({a}) is {k}type", "{a}", "q", {"type": type(value)})


@pytest.fixture
def faked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    kernels: dict[Any, FakeKernel] = {}

    def bound(self: Elementwise, form: Any, *_: Any) -> FakeKernel:
        return kernels.setdefault(form, FakeKernel(bench))

    monkeypatch.setattr(Elementwise, "_bound", bound)
    monkeypatch.setitem(bench.names, "H3", None)
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


def test_other_arrays_of_a_kind_that_was_seen(faked: Bench) -> None:
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
    with pytest.raises(Exception, match="overlaps an input"):
        f(1.0, Array((8,), "f4", z.data.ptr + 4), y, out=z)
