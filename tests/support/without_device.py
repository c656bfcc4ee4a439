"""CuPy's arrays, and calls on them, without a device: what would be launched is written down."""

from __future__ import annotations

import inspect
import struct
import sys
from types import SimpleNamespace
from typing import Any, ClassVar

import cupy
import numpy as np
import pytest

from cudakit.arrays import replay
from cudakit.arrays.log import Launched, RecordedCall, call_key
from cudakit.arrays.repeated import CallRecorder
from cudakit.arrays.replay import CallReplay
from cudakit.jit.launch.bind import Fragment
from cudakit.jit.launch.launch import CallShape, Settled
from cudakit.jit.load.config import config
from cudakit.streams import devices
from cudakit.streams.order import Order

STREAM, OTHER = object(), object()
PACK, UNPACK = struct.Struct("<f").pack, struct.Struct("<I").unpack
CONFIG = config(1, 32)


class Memory(cupy.cuda.MemoryPointer):
    """Memory that nobody has; what is done to it goes to `done`."""

    done: ClassVar[list[tuple[Any, ...]]] = []

    def memset_async(self, value: int, size: int, stream: Any = None) -> None:
        self.done.append(("memset", self.ptr, value, size))

    def copy_from_device_async(self, source: Any, size: int, stream: Any = None) -> None:
        self.done.append(("copy", self.ptr, source.ptr, size))


class Array(cupy.ndarray):
    """CuPy's array of memory that nobody has; a new one has an address of its own."""

    made = 0
    __module__ = "cupy"  # which tells whose arrays these are

    def __new__(cls, shape: Any, dtype: Any, memory: Any = None, strides: Any = None) -> Any:
        if memory is None:
            cls.made += 1
            memory = 0x7F0000000000 + cls.made * 0x100000
        if isinstance(memory, int):
            memory = Memory(cupy.cuda.UnownedMemory(memory, 0x100000, None, device_id=0), 0)
        return super().__new__(cls, shape, dtype, memory, strides)

    def __init__(self, *_: Any) -> None:
        pass


def stand_in(monkeypatch: pytest.MonkeyPatch, current: Any) -> SimpleNamespace:
    """CuPy, with `Array` for its arrays and ``current()`` for its current stream."""
    strided = lambda x, shape, strides: Array(shape, x.dtype, x.data, strides)  # noqa: E731
    module = SimpleNamespace(
        ndarray=Array,
        may_share_memory=cupy.may_share_memory,
        cuda=SimpleNamespace(get_current_stream=lambda *device: current()),
        lib=SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=strided)),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    monkeypatch.setattr(replay, "device_stream", lambda stream: SimpleNamespace(core="core"))
    return module


class OwnOrder(Order):
    """An order of streams for a test alone, which may say that there are several, and that launches there settled."""

    single = True  # type: ignore[assignment]
    is_going_on = True

    def goes_on(self, target: Any, reads: Any, writes: Any, path: Any) -> bool:
        self.watch(path)
        return self.is_going_on


def own_order(monkeypatch: pytest.MonkeyPatch) -> OwnOrder:
    """An order of streams for the test alone."""
    ordered = OwnOrder()
    monkeypatch.setattr(replay, "order", lambda: ordered)
    return ordered


def repeats_of(op: Any) -> CallRecorder:
    """What takes an op's calls that are not frozen."""
    found: CallRecorder = inspect.getclosurevars(op.__globals__["ordinary"]).nonlocals["recorder"]
    return found


def call_shape(fragments: tuple[Fragment, ...], families: tuple[str, ...]) -> Any:
    """A shape of a kernel that is never launched."""
    parameters = [SimpleNamespace(category="pointer", const=False, layout=None)] * len(fragments)
    loaded: Any = SimpleNamespace(
        kernel="kernel", launch_config=lambda *_: "launch config", parameters=parameters, holders=set()
    )
    return CallShape(loaded, fragments, families, 0, print)


def settle(shape: Any, config: Any, arrays: tuple[Any, ...] = ()) -> None:
    """Let a shape go straight to the driver with these arrays."""
    shape.last_launch = Settled(STREAM, config, "core", "launch config", STREAM, None, True, None, arrays).flat()


class Bench:
    """A `CallReplay` of ``f(a, x) → z`` with a made-up kernel; launches and ordinary calls are listed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current: Any = STREAM
        self.launches: list[tuple[Any, ...]] = []
        self.ordinary: list[tuple[Any, ...]] = []
        self.module = stand_in(monkeypatch, lambda: self.current)
        self.order = own_order(monkeypatch)
        number = Fragment("type({a}) is float", "{k}unpack({k}pack({a}))[0]", "q", {"pack": PACK, "unpack": UNPACK})
        array = Fragment(
            "{a}.dtype is {k}dtype and {a}._c_contiguous", "{a}.data.ptr", "q", {"dtype": np.dtype("f4")}, True
        )
        size = Fragment("type({a}) is int", "{a}", "q")
        self.shape = call_shape((number, array, array, size), ("number", "cupy", "cupy", "number"))
        self.shape.run = lambda *values: self.launches.append(values)
        self.settle()
        self.kernel = SimpleNamespace(dispatcher=SimpleNamespace(shapes=[self.shape]))
        self.replay = CallReplay(2, lambda *call: self.ordinary.append(call), {"axis": None})
        self.call = self.replay.function

    def settle(self, *arrays: Any) -> None:
        """Let the kernel's dispatcher know these arrays."""
        memo = tuple(item for array in arrays for item in (lambda array=array: array, 0))
        settle(self.shape, CONFIG, memo)

    def saw(
        self, a: float, x: Any, z: Any, out: Any = None, axis: Any = None, times: int = 3, passed: Any = None
    ) -> None:
        """Tell of such calls, whose kernel was given `passed`."""
        passed = passed or (a, x, z, x.size)
        arrays = [("a1", x)] + ([("out", out)] if isinstance(out, Array) else [])
        new, kept = () if out is not None else (z,), tuple(each for each in passed[3:] if isinstance(each, Array))
        launched = Launched(self.kernel, CONFIG, passed, ("a0", *[None] * (len(passed) - 1)))  # type: ignore[arg-type]
        same = (("axis", axis),) if out is not None else (("axis", axis), ("out", None))
        key = call_key(("key", out is x, axis), [each for _, each in arrays])
        for _ in range(times):
            if self.replay.should_record(key):
                self.replay.record(RecordedCall(key, STREAM, (launched,), tuple(arrays), ("out",), new, kept, z, same))


def bits(value: float) -> int:
    return int(UNPACK(PACK(value))[0])
