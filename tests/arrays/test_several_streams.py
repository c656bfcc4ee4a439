"""Replayed calls on several streams, with the real order and the real dispatcher of a kernel; without a device."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy
from support.without_device import CONFIG, Array, Memory, repeats_of, stand_in

from cudakit.arrays import replay
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.repeated import repeated
from cudakit.jit.launch import dispatch
from cudakit.jit.launch.bind import Fragment
from cudakit.jit.launch.launch import CallShape
from cudakit.streams import devices, streams
from cudakit.streams import order as order_module
from cudakit.streams.order import Order
from cudakit.streams.streams import DeviceStream
from cudakit.streams.witnesses import Witness, witnessing

pytestmark = pytest.mark.emulator

SIZE = 64
BYTES = 4 * SIZE


class Event:
    is_done = False


class Stream:
    """Counts the waits that it is given."""

    def __init__(self, number: int) -> None:
        self.ptr = number
        self.waits = 0
        self.is_closed = False
        #: Addresses that its pool has, the next one last.
        self.pool: list[int] = [number * 0x100000 + k * 0x1000 for k in reversed(range(40))]

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    def record(self, event: Event | None = None) -> Event:
        return event or Event()

    def wait(self, event: Event) -> None:
        self.waits += 1


class Block:
    """Memory that goes back to its pool, to be the next that is handed out."""

    def __init__(self, pool: list[int], address: int) -> None:
        self.pool, self.address = pool, address

    def __del__(self) -> None:
        self.pool.append(self.address)


class Kernel:
    """``f(const float* x, float* y)`` with a real dispatcher and shape; launches are written down."""

    def __init__(self, bench: Bench) -> None:
        self.dispatcher = dispatch.Dispatcher("f", ("x", "y"), lambda *call: pytest.fail(f"{call}"))
        array = Fragment("{a}.dtype is {k}dtype and {a}._c_contiguous", "{a}.data.ptr", "q", {}, True)
        array.constants.update({"dtype": np.dtype("f4"), "class": bench.module.ndarray})
        parameters = [SimpleNamespace(category="pointer", const=const) for const in (True, False)]
        loaded: Any = SimpleNamespace(
            kernel=self,
            launch_config=lambda *_: "resolved",
            parameters=parameters,
            holders=set(),
            specialization=SimpleNamespace(name_expression="f"),
        )
        self.dispatcher.add(CallShape(loaded, (array, array), ("cupy", "cupy"), 0, bench.run))

    def __call__(self, *call: Any) -> None:
        self.dispatcher.function(*call)


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.one, self.two = Stream(0x1000), Stream(0x2000)
        self.current = self.one
        self.launches: list[tuple[Any, ...]] = []
        self.plans = 0
        self.order = Order()
        monkeypatch.setattr(order_module, "_order", self.order)
        monkeypatch.setattr(devices, "make_current", lambda device_id: None)
        monkeypatch.setattr(streams, "is_captured", lambda handle: False)
        self.module = stand_in(monkeypatch, lambda: self.current)
        monkeypatch.setattr(replay, "device_stream", streams.device_stream)
        for stream in (self.one, self.two):
            known = DeviceStream(stream, stream, stream.ptr, 0)  # type: ignore[arg-type]
            monkeypatch.setitem(streams._device_streams, id(stream), known)
        pools = self

        class Pooled(Array):
            __module__ = "cupy"

            def __new__(cls, shape: Any, dtype: Any, memory: Any = None, strides: Any = None) -> Any:
                if memory is None:
                    pool = pools.current.pool
                    block = Block(pool, pool.pop())
                    unowned = cupy.cuda.UnownedMemory(block.address, BYTES, block, device_id=0)
                    memory = Memory(unowned, 0)
                return super().__new__(cls, shape, dtype, memory, strides)

        self.module.ndarray = Pooled
        self.array: Callable[..., Any] = lambda memory=None: Pooled((SIZE,), "f4", memory)
        self.kernel = kernel = Kernel(self)

        @repeated("out")
        def once(x: Any, *, out: Any = None, stream: Any = None) -> Any:
            place, y = self.begin(x, out, stream)
            place.launch(kernel, CONFIG, x, y)
            return y

        @repeated("out")
        def twice(x: Any, *, out: Any = None, stream: Any = None) -> Any:
            place, y = self.begin(x, out, stream)
            between = place.empty(x.shape, x.dtype)
            place.launch(kernel, CONFIG, x, between)
            place.launch(kernel, CONFIG, between, y)
            return y

        self.once, self.twice = once, twice
        # From here on there are two streams.
        for stream in (self.one, self.two, self.one):
            self.current = stream
            kernel(stream, CONFIG, self.array(0x70_0000), self.array(0x71_0000 + stream.ptr))
        assert not self.order.single
        self.launches.clear()

    def begin(self, x: Any, out: Any, stream: Any) -> tuple[ArrayPlace, Any]:
        self.plans += 1
        place, _ = array_place("f", stream, ("x", x))
        return place, place.empty(x.shape, x.dtype) if out is None else out

    def run(self, core: Any, config: Any, kernel: Any, *values: int) -> None:
        self.launches.append((core, *values))

    def is_replayed(self, op: Any, *args: Any, **named: Any) -> bool:
        """Whether a call takes the short way; what it launches is right either way."""
        plans = self.plans
        self.launches.clear()
        result = op(*args, **named)
        assert {core for core, *_ in self.launches} == {self.current}
        assert self.launches[0][1] == args[0].data.ptr
        assert self.launches[-1][2] == result.data.ptr
        assert len(self.launches) == (2 if op is self.twice else 1)
        assert self.launches[0][2] == self.launches[-1][1] or len(self.launches) == 1
        return self.plans == plans

    def settle(self, op: Any, *args: Any, **named: Any) -> None:
        for _ in range(10):
            op(*args, **named)
        assert self.is_replayed(op, *args, **named)

    def touch(self, stream: Stream, reads: Any, writes: Any) -> int:
        """Launch on a stream; how many waits it took."""
        former, self.current = self.current, stream
        waits = stream.waits
        self.kernel(stream, CONFIG, reads, writes)
        self.current = former
        return stream.waits - waits


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_new_result_at_the_same_address(bench: Bench) -> None:
    x = bench.array()
    y = None
    for _ in range(3):
        bench.once(x)
    assert bench.is_replayed(bench.once, x)
    for _ in range(5):
        # The last one lives on while the next is made: two addresses in turns.
        y = bench.once(x)
    del y
    first = bench.once(x).data.ptr
    assert bench.once(x).data.ptr == first
    assert bench.one.waits == 0


def test_temporaries(bench: Bench) -> None:
    x, z = bench.array(), bench.array()
    bench.settle(bench.twice, x)
    bench.settle(bench.twice, x, out=z)
    # A hole in the pool: the memory between the two launches is elsewhere.
    bench.one.pool[-1], bench.one.pool[-9] = bench.one.pool[-9], bench.one.pool[-1]
    assert not bench.is_replayed(bench.twice, x, out=z)


def test_chains_of_results(bench: Bench) -> None:
    x = bench.array()
    for _ in range(20):
        bench.once(bench.once(bench.once(x)))
    plans = bench.plans
    bench.once(bench.once(bench.once(x)))
    assert bench.plans == plans


def test_results_in_turns(bench: Bench) -> None:
    x = bench.array()
    kept: list[Any] = [None] * 3
    for k in range(60):
        kept[k % 3] = bench.once(x)
    for k in range(4):
        plans = bench.plans
        kept[k % 3] = bench.once(x)
        assert bench.plans == plans


def test_results_that_are_all_kept_are_looked_at_seldom(bench: Bench) -> None:
    x, kept = bench.array(), []
    for _ in range(38):
        plans = bench.plans
        kept.append(bench.once(x))
        assert bench.plans == plans + 1
    (attempt,) = repeats_of(bench.once).replay._replays
    assert len(attempt.settled_addresses) < 8


def test_another_stream_that_reads_a_result(bench: Bench) -> None:
    x = bench.array()
    bench.settle(bench.once, x)
    y = bench.once(x)
    address = y.data.ptr
    assert bench.touch(bench.two, y, bench.array(0x30_0000)) == 1
    del y
    # It is kept until it was read.
    assert not bench.is_replayed(bench.once, x)
    assert bench.launches[0][2] != address
    z = bench.array(address)
    waits = bench.one.waits
    assert not bench.is_replayed(bench.once, x, out=z)
    assert bench.one.waits == waits + 1


def test_another_stream_that_writes_an_input(bench: Bench) -> None:
    x = bench.array()
    bench.settle(bench.once, x)
    assert bench.touch(bench.two, bench.array(0x30_0000), x) == 1
    waits = bench.one.waits
    assert not bench.is_replayed(bench.once, x)
    assert bench.one.waits == waits + 1


def test_another_stream_that_only_reads_an_input(bench: Bench) -> None:
    x = bench.array()
    bench.settle(bench.once, x)
    assert bench.touch(bench.two, x, bench.array(0x30_0000)) == 0
    assert bench.is_replayed(bench.once, x)
    assert bench.touch(bench.two, bench.array(0x31_0000), x) == 1
    assert not bench.is_replayed(bench.once, x)


def test_another_stream_that_touches_a_part(bench: Bench) -> None:
    x = bench.array()
    bench.settle(bench.once, x)
    address = bench.once(x).data.ptr
    # The pool gave the memory back to the driver, which gave it to the other stream's pool.
    assert bench.touch(bench.two, bench.array(0x30_0000), bench.array(address + BYTES // 2)) == 1
    assert not bench.is_replayed(bench.once, x)


def test_a_temporary_that_went_to_another_stream(bench: Bench) -> None:
    x, z = bench.array(), bench.array()
    bench.settle(bench.twice, x, out=z)
    between = bench.launches[0][2]
    assert bench.touch(bench.two, bench.array(0x30_0000), bench.array(between)) == 1
    assert not bench.is_replayed(bench.twice, x, out=z)


def test_warm_memory_is_not_replayed(bench: Bench) -> None:
    x = bench.array()
    for _ in range(12):
        bench.touch(bench.two, bench.array(0x30_0000), x)
        assert not bench.is_replayed(bench.once, x)


def test_each_stream_has_its_own(bench: Bench) -> None:
    x, y = bench.array(), bench.array(0x30_0000)
    bench.settle(bench.once, x)
    bench.current = bench.two
    assert not bench.is_replayed(bench.once, y)
    bench.settle(bench.once, y)
    bench.current = bench.one
    assert bench.is_replayed(bench.once, x)
    bench.current = bench.two
    assert bench.is_replayed(bench.once, y)
    # What ends the one's leaves the other's.
    bench.touch(bench.one, bench.array(0x31_0000), y)
    assert not bench.is_replayed(bench.once, y)
    bench.current = bench.one
    assert bench.is_replayed(bench.once, x)


def test_it_settles_again_with_the_same_text(bench: Bench) -> None:
    x = bench.array()
    bench.settle(bench.once, x)
    code = bench.once.__code__  # type: ignore[attr-defined]
    for _ in range(3):
        bench.order.unsettle()
        assert not bench.is_replayed(bench.once, x)
        bench.settle(bench.once, x)
    assert bench.once.__code__ is code  # type: ignore[attr-defined]


def test_addresses_that_settled_before(bench: Bench) -> None:
    x, y, z = bench.array(), bench.array(), bench.array()
    bench.settle(bench.once, x, out=y)
    for _ in range(6):
        bench.once(x, out=z)
    assert bench.is_replayed(bench.once, x, out=z)
    bench.order.unsettle()
    bench.touch(bench.two, bench.array(0x30_0000), z)
    bench.settle(bench.once, x, out=y)
    waits = bench.one.waits
    assert not bench.is_replayed(bench.once, x, out=z)
    assert bench.one.waits == waits + 1


def test_captures_reports_and_witnesses(bench: Bench) -> None:
    x = bench.array()
    bench.settle(bench.once, x)
    with bench.order.capturing(bench.two):
        assert not bench.is_replayed(bench.once, x)
        for _ in range(5):
            assert not bench.is_replayed(bench.once, x)
    for _ in range(70):
        bench.once(x)
    assert bench.is_replayed(bench.once, x)
    reporter: Any = SimpleNamespace(see=lambda *_: None)
    with bench.order.reporting(reporter):
        for _ in range(5):
            assert not bench.is_replayed(bench.once, x)
    for _ in range(70):
        bench.once(x)
    assert bench.is_replayed(bench.once, x)
    with witnessing(Witness()):
        assert not bench.is_replayed(bench.once, x)


def test_what_settled_under_manual_ends_with_it(bench: Bench) -> None:
    x = bench.array()
    with bench.order.manual():
        bench.settle(bench.once, x)
        assert bench.touch(bench.two, bench.array(0x30_0000), x) == 0
        waits = bench.one.waits
    assert not bench.is_replayed(bench.once, x)
    assert bench.one.waits > waits


def test_memory_taken_by_another_stream_under_manual_is_not_replayed(bench: Bench) -> None:
    x = bench.array()
    with bench.order.manual():
        for _ in range(2):
            bench.once(x)
        bench.touch(bench.two, bench.array(0x30_0000), x)
        known = streams.device_stream(bench.one)
        path = SimpleNamespace(unsettle=print)
        assert not bench.order.goes_on(known, ((x.data.ptr, x.data.ptr + BYTES),), (), path)  # type: ignore[arg-type]


def test_memory_that_is_short(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    x = bench.array()
    bench.settle(bench.once, x)
    bench.one.pool, pool = [], bench.one.pool
    with pytest.raises(IndexError):
        bench.once(x)
    bench.one.pool = pool
    assert bench.is_replayed(bench.once, x)


def test_work_of_cupy_on_another_stream(bench: Bench) -> None:
    x = bench.array()
    bench.settle(bench.once, x)
    bench.current = bench.two
    bench.launches.clear()
    plans = bench.plans
    bench.once(x, out=bench.array(0x30_0000), stream=bench.one)
    assert bench.plans == plans + 1
    assert bench.one.waits
