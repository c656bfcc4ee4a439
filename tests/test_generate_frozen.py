"""Frozen calls: when they go straight to the launch, with what, and when they do not; on arrays without a device."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit import devices, dispatch
from cudakit.binding import Fragment
from cudakit.generate.frozen import Frozen, Made, sources

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.emulator

STREAM, OTHER = object(), object()
PACK, UNPACK = struct.Struct("<f").pack, struct.Struct("<I").unpack


class Array(cupy.ndarray):
    """CuPy's array of memory that nobody has; a new one has an address of its own."""

    made = 0

    def __new__(cls, shape: Any, dtype: Any, address: int | None = None, strides: Any = None) -> Any:
        if address is None:
            cls.made += 1
            address = 0x7F0000000000 + cls.made * 4096
        memory = cupy.cuda.UnownedMemory(address, 4096, None, device_id=0)
        return super().__new__(cls, shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides)

    def __init__(self, shape: Any, dtype: Any, address: int | None = None, strides: Any = None) -> None:
        memory = cupy.cuda.UnownedMemory(0, 4096, None, device_id=0)
        del memory


class Bench:
    """A `Frozen` of ``f(a, x) → z`` with everything about it made up: launches and ordinary calls are written down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current: Any = STREAM
        self.launches: list[tuple[Any, ...]] = []
        self.ordinary: list[tuple[Any, ...]] = []
        module = SimpleNamespace(
            ndarray=Array, cuda=SimpleNamespace(get_current_stream=lambda *device: self.current)
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
        return Made("key", self.kernel, STREAM, "config", passed, given, (a, x, z, None), outs)  # type: ignore[arg-type]

    def saw(self, *args: Any, times: int = 3) -> None:
        for _ in range(times):
            self.frozen.saw(self.made(*args))


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
    for wrong in (Array((4, 2), "f4"), Array((8,), "f4"), Array((2, 4), "f8"), Array((2, 4), "f4", None, (4, 8)), None, 1.0):
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
    for _ in range(3):
        bench.frozen.saw(made)
    bench.call(2.0, x)
    again = Array((8,), "f4", 0x7F0000009000, (-4,))
    bench.call(2.0, again)
    assert [launch[4] for launch in bench.launches] == [0x7F0000008000 - 28, 0x7F0000009000 - 28]
    assert not bench.ordinary
