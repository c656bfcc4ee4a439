"""The generated code of a kernel that takes turns between streams, on streams that only count: no GPU."""

from __future__ import annotations

import contextlib
import sys
import types
import weakref
from dataclasses import dataclass, field
from typing import Any

import pytest

from cudakit.jit.launch import dispatch, launch
from cudakit.jit.launch.bind import Fragment
from cudakit.jit.launch.launch import CallShape
from cudakit.streams import devices, streams
from cudakit.streams import order as order_module
from cudakit.streams.order import Order
from cudakit.streams.streams import DeviceStream


class Event:
    """Never done."""

    is_done = False


@dataclass(eq=False)
class Stream:
    """Counts what it is given."""

    ptr: int
    recorded: int = 0
    waits: int = 0
    is_closed: bool = False

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    def record(self, event: Event | None = None) -> Event:
        self.recorded += 1
        return event or Event()

    def wait(self, event: Event) -> None:
        self.waits += 1


@dataclass(eq=False)
class Array:
    """Memory at an address."""

    ptr: int
    nbytes: int = 4096


@dataclass
class BoundParameter:
    """A parameter ``const float*``, ``float*`` or ``int``."""

    const: bool = False
    category: str = "pointer"
    cpp: str = "float*"


@dataclass
class Loaded:
    """A kernel ``f(const float* x, float* y, int n)``."""

    parameters: tuple[BoundParameter, ...] = (
        BoundParameter(const=True),
        BoundParameter(),
        BoundParameter(category="scalar"),
    )
    kernel: str = "kernel"


@dataclass
class Kernel:
    """Calls the generated code; CuPy's current stream is the call's own."""

    function: Any
    streams: list[Stream]
    current: list[Stream]
    shape: Any = None
    full: list[int] = field(default_factory=list)
    launches: list[Any] = field(default_factory=list)
    refused: str = ""
    # It is the configuration, too.
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    shmem_size: int = 0
    cluster: None = None
    is_cooperative: bool = False
    programmatic_stream_serialization: bool = False

    def __call__(self, stream: Stream, x: Array, y: Array, n: int = 1) -> int:
        """Launch; how many full looks it took."""
        self.current[0] = stream
        before = len(self.full)
        self.function(stream, self, x, y, n)
        assert self.launches[-1] == (stream, x.ptr, y.ptr, n)
        return len(self.full) - before

    def counts(self) -> tuple[int, int]:
        """Events recorded and waits put in since the last time."""
        found = sum(s.recorded for s in self.streams), sum(s.waits for s in self.streams)
        for stream in self.streams:
            stream.recorded = stream.waits = 0
        return found


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(order_module, "_order", Order())
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "make_current", lambda device_id: None)
    monkeypatch.setattr(streams, "is_captured", lambda handle: False)
    made = [Stream(1000), Stream(1001)]
    current = [made[0]]
    cuda = types.SimpleNamespace(get_current_stream=lambda *device: current[0])
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))  # type: ignore[misc]
    for stream in made:
        monkeypatch.setitem(streams._device_streams, id(stream), DeviceStream(stream, stream, stream.ptr, 0))  # type: ignore[arg-type]
    kernel = Kernel(None, made, current)

    def run(core: Any, config: Any, loaded: str, *values: int) -> None:
        if kernel.refused == "launch":
            raise RuntimeError
        kernel.launches.append((core, *values))

    array = Fragment("{a}.nbytes == 4096", "{a}.ptr", "q", {"class": Array}, fixed=True)
    number = Fragment("type({a}) is int", "{a}", "q", number=True)
    shape = CallShape(Loaded(), (array, array, number), ("cupy", "cupy", "number"), 0, run)  # type: ignore[arg-type]
    shape.config = (kernel, kernel)
    dispatcher = dispatch.Dispatcher("f", ("x", "y", "n"), lambda *call: pytest.fail(f"{call}"))
    whole = shape.launch

    def launch(*call: Any) -> None:
        kernel.full.append(1)
        whole(*call)

    shape.launch = launch  # type: ignore[method-assign]
    dispatcher.add(shape)
    kernel.function, kernel.shape = dispatcher.function, shape
    return kernel


X, Y, Z = Array(0x10000), Array(0x20000), Array(0x30000)


def test_one_stream_is_looked_at_once(kernel: Kernel) -> None:
    first, _ = kernel.streams
    assert [kernel(first, X, Y, n) for n in range(5)] == [1, 0, 0, 0, 0]
    assert kernel.counts() == (0, 0)


def settle(kernel: Kernel) -> None:
    """Let both streams repeat their launches, which read one array."""
    first, second = kernel.streams
    for _ in range(4):
        kernel(first, X, Y)
        kernel(second, X, Z)
    kernel.counts()


def test_streams_that_read_one_array_go_straight(kernel: Kernel) -> None:
    settle(kernel)
    first, second = kernel.streams
    assert [kernel(first, X, Y, 5), kernel(second, X, Z, 6), kernel(first, X, Y, 7)] == [0, 0, 0]
    assert kernel.counts() == (0, 0)


def test_each_launch_that_depends_on_the_other_waits_without_a_full_look(kernel: Kernel) -> None:
    settle(kernel)
    first, second = kernel.streams
    for _ in range(3):
        kernel(first, X, Y)
        kernel(second, X, Y)
    kernel.counts()
    for n in range(5):
        assert kernel(first, X, Y, n) == 0
        assert kernel.counts() == (1, 1)
        assert kernel(second, X, Y, n) == 0
        assert kernel.counts() == (1, 1)


def test_buffers_that_take_turns_are_known_each(kernel: Kernel) -> None:
    first, second = kernel.streams
    other = Array(0x40000)
    for _ in range(4):
        for x in (X, other):
            kernel(first, Y, x)
            kernel(second, x, Z)
    kernel.counts()
    assert [kernel(second, X, Z), kernel(second, other, Z)] == [0, 0]


def test_launches_cool_down_and_settle_again(kernel: Kernel) -> None:
    settle(kernel)
    first, second = kernel.streams
    for _ in range(3):
        kernel(first, X, Y)
        kernel(second, X, Y)
    for _ in range(40):
        kernel(second, X, Y)
    kernel.counts()
    assert kernel(second, X, Y) == 0
    assert kernel.counts() == (0, 0)
    kernel(first, X, Y)
    assert kernel.counts() == (2, 1), "the end of what settled, and the use of what is warm now"


def test_another_current_stream_of_cupy_is_looked_at(kernel: Kernel) -> None:
    settle(kernel)
    first, second = kernel.streams
    kernel(first, X, Y)
    kernel.counts()
    kernel.current[0] = second
    kernel.function(first, kernel, X, Y, 1)
    assert kernel.counts()[1] == 1


def test_a_stream_of_cupy_that_must_be_waited_for_needs_no_full_look(kernel: Kernel) -> None:
    first, second = kernel.streams
    for _ in range(4):
        kernel(first, X, Y)
        kernel(second, Z, Y)
    kernel.current[0] = second
    for _ in range(3):
        kernel.function(first, kernel, X, Y, 1)
    kernel.counts()
    kernel.full.clear()
    for _ in range(50):
        kernel.function(first, kernel, X, Y, 1)
        assert kernel.counts() == (2, 1), (
            "the end of what CuPy has so far is waited for, and the launch leaves an event"
        )
    assert not kernel.full


def test_an_array_that_is_dropped_goes_when_its_work_is_done(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(kernel)
    first, second = kernel.streams
    dropped = Array(0x50000)
    alive = weakref.ref(dropped)
    for _ in range(5):
        kernel(first, X, dropped)
        kernel(second, X, dropped)
    del dropped
    kernel.launches.clear()
    order_module.order().release()
    assert alive() is not None
    monkeypatch.setattr(Event, "is_done", True)
    order_module.order().release()
    assert alive() is None


@pytest.mark.parametrize("warm", [False, True])
def test_under_manual_launches_go_straight(kernel: Kernel, warm: bool) -> None:
    first, second = kernel.streams
    settle(kernel)
    for _ in range(3 * warm):
        kernel(first, X, Y)
        kernel(second, X, Y)
    with order_module.order().manual():
        for _ in range(3):
            kernel(first, X, Y)
            kernel(second, X, Y)
        kernel.counts()
        for n in range(50):
            assert kernel(first, X, Y, n) == kernel(second, X, Y, n) == 0
        assert kernel.counts() == (0, 0)
    kernel.counts()
    assert kernel(first, X, Y) == 1
    kernel(second, X, Y)
    assert kernel.counts()[1] == 1, "the order goes on"


def test_a_stream_that_is_known_is_kept(kernel: Kernel) -> None:
    """Its identity stands for it, which no other object may get while that is so."""
    settle(kernel)
    assert {id(entry[0]) for entry in kernel.shape.repeats.values()} == {id(stream) for stream in kernel.streams}


def test_who_watches_hears_of_repeats_too(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit.streams.witnesses import Witness, Work, witnessing

    seen: list[str] = []

    class Listening(Witness):
        def begin(self, work: Work) -> None:
            seen.append(work.name)

    monkeypatch.setattr(Loaded, "specialization", types.SimpleNamespace(name_expression="f"), raising=False)
    settle(kernel)
    first, second = kernel.streams
    for _ in range(3):
        kernel(first, X, Y)
        kernel(second, X, Y)
    with witnessing(Listening()):
        kernel(first, X, Y)
        kernel(second, X, Y)
    assert seen == ["f", "f"]


class Checked(Array):
    """An array whose checks are counted."""

    checks = 0

    @property
    def nbytes(self) -> int:
        Checked.checks += 1
        return 4096

    @nbytes.setter
    def nbytes(self, value: int) -> None:
        pass


def checks(kernel: Kernel, *arguments: Any) -> int:
    """Launch on the first stream; how often an array was checked."""
    before = Checked.checks
    kernel(kernel.streams[0], *arguments)
    return Checked.checks - before


def test_two_sets_of_arrays_that_take_turns_are_known_by_identity(kernel: Kernel) -> None:
    x, y, z = (Checked(0x1000 * k) for k in (1, 2, 3))
    kernel(kernel.streams[0], x, y)
    assert checks(kernel, y, x) == 2, "the first time arrays are checked"
    for n in range(5):
        assert checks(kernel, x, y, n) == checks(kernel, y, x, n) == 0
    assert checks(kernel, x, z) == 2, "one array of a set is not enough"
    assert checks(kernel, x, z) == 0
    assert checks(kernel, y, x) == 0, "the set before is still known"
    with pytest.raises(pytest.fail.Exception):
        kernel(kernel.streams[0], x, None)  # type: ignore[arg-type]
    assert kernel.counts() == (0, 0)


def test_a_set_whose_array_is_gone_is_not_known(kernel: Kernel) -> None:
    x, y = Checked(0x1000), Checked(0x2000)
    kernel(kernel.streams[0], x, y)
    checks(kernel, y, x)
    del x
    for nothing in (None, 0):
        with pytest.raises(pytest.fail.Exception):
            kernel(kernel.streams[0], nothing, y)  # type: ignore[arg-type]
    new = Checked(0x3000)
    assert checks(kernel, new, y) == 2
    assert kernel.launches[-1][1:3] == (0x3000, 0x2000)


def test_sets_that_never_come_again_are_remembered_for_a_while_only(kernel: Kernel) -> None:
    x = Checked(0x1000)
    kernel(kernel.streams[0], x, Checked(0x2000))
    for k in range(2 * launch._MOST_RENEWALS):
        assert checks(kernel, x, Checked(0x3000 + 0x1000 * k)) == 2
    assert kernel.shape.settled.any_arrays is True
    assert kernel.shape.settled.former is None
    assert kernel.full == [1], "they still go straight"
    kernel.shape.unsettle()
    kernel(kernel.streams[0], x, x)
    assert kernel.shape.settled.any_arrays is True


def test_what_took_turns_is_forgotten_where_order_is_needed(kernel: Kernel) -> None:
    x, y = Checked(0x1000), Checked(0x2000)
    first, second = kernel.streams
    kernel(first, x, y)
    checks(kernel, y, x)
    assert kernel.shape.settled.former is not None
    kernel(second, x, y)
    assert kernel.counts()[1] == 1, "the other stream waits"
    assert kernel.shape.settled is None or kernel.shape.settled.former is None
    assert kernel(first, y, x) == 1
    assert kernel.counts()[1] == 1


def test_another_current_stream_of_cupy_ends_the_turns(kernel: Kernel) -> None:
    x, y = Checked(0x1000), Checked(0x2000)
    first, second = kernel.streams
    kernel(first, x, y)
    checks(kernel, y, x)
    kernel.current[0] = second
    before = len(kernel.full)
    kernel.function(first, kernel, x, y, 1)
    assert len(kernel.full) == before + 1


def test_a_shape_with_turns_is_no_cycle(kernel: Kernel) -> None:
    x, y = Checked(0x1000), Checked(0x2000)
    kernel(kernel.streams[0], x, y)
    checks(kernel, y, x)
    assert not [item for item in kernel.shape.last_launch if isinstance(item, types.MethodType)]


class CoreEvent(Event):
    """As cuda.core's, which has a number in the driver."""

    __module__ = "cuda.core._event"

    def __init__(self, handle: int) -> None:
        self.handle = handle


class Runtime:
    """CuPy's calls of the runtime: notes what they get, and refuses the call named `refused`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.refused = ""

    def _note(self, call: str, first: int, second: int) -> None:
        if call == self.refused:
            raise RuntimeError(call)
        self.calls.append((call, first, second))

    def streamWaitEvent(self, stream: int, event: int) -> None:
        self._note("wait", stream, event)

    def eventRecord(self, event: int, stream: int) -> None:
        self._note("record", event, stream)


@pytest.fixture
def turns(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """Streams of cuda.core that take turns on Y, by CuPy's calls."""
    runtime = sys.modules["cupy"].cuda.runtime = Runtime()
    numbers = iter(range(500, 600))

    def record(self: Stream, event: Any = None) -> Any:
        self.recorded += 1
        return event or CoreEvent(next(numbers))

    monkeypatch.setattr(Stream, "record", record)
    core = type("Stream", (), {"__module__": "cuda.core._stream"})
    for stream in kernel.streams:
        stream.__class__ = type("CheckedStream", (Stream, core), {})
    for _ in range(launch._CALLS_BEFORE_BINDING + 3):
        for stream in kernel.streams:
            kernel(stream, X, Y)
    kernel.counts()
    runtime.calls.clear()
    return runtime


def test_turns_record_and_wait_by_numbers(kernel: Kernel, turns: Runtime) -> None:
    first, second = kernel.streams
    for _ in range(3):
        turns.calls.clear()
        assert kernel(first, X, Y) == kernel(second, X, Y) == 0
        (w1, s1, e1), (r1, n1, t1), (w2, s2, e2), (r2, n2, t2) = turns.calls
        assert (w1, r1, w2, r2) == ("wait", "record", "wait", "record")
        assert (s1, t1, s2, t2) == (1000, 1000, 1001, 1001)
        assert (e1, e2) == (n2, n1), "each waits for what the other recorded"
    assert kernel.counts() == (0, 0)


@pytest.mark.parametrize("refused", ["wait", "record", "launch"])
def test_after_a_refused_turn_no_event_is_stale(
    kernel: Kernel, turns: Runtime, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    first, second = kernel.streams
    kernel(first, X, Y)
    kernel(second, X, Y)
    stale = turns.calls[1][1]
    monkeypatch.setattr(Stream, "sync", lambda self: None, raising=False)
    turns.refused = kernel.refused = refused
    with pytest.raises(pytest.fail.Exception):  # the full check of the test's dispatcher
        kernel(first, X, Y)
    turns.refused = kernel.refused = ""
    turns.calls.clear()
    kernel(second, X, Y)
    assert ("wait", 1001, stale) not in turns.calls, "its event is of an earlier launch"
    assert kernel.counts() == (1, 1), "a new event, after whatever the first stream got"
    kernel(first, X, Y)
    assert ("wait", 1000, turns.calls[0][1]) in turns.calls


@pytest.mark.parametrize("change", ["other memory", "a read", "a third stream", "a capture", "manual", "done"])
def test_turns_are_looked_at_when_anything_else_comes_between(kernel: Kernel, turns: Runtime, change: str) -> None:
    first, second = kernel.streams
    order = order_module.order()
    use = order.clocks.touch((), ((Y.ptr, Y.ptr + Y.nbytes),)).written[0].write
    with contextlib.ExitStack() as stack:
        if change == "other memory":  # a part of the array is written
            order.after(order.before(streams._device_streams[id(second)], (), ((Y.ptr, Y.ptr + 8),)), None)
        elif change == "a read":
            order.after(order.before(streams._device_streams[id(second)], ((Y.ptr, Y.ptr + Y.nbytes),), ()), None)
        elif change == "a third stream":
            third = Stream(1002)
            target = DeviceStream(third, third, 1002, 0)  # type: ignore[arg-type]
            order.after(order.before(target, (), ((Y.ptr, Y.ptr + Y.nbytes),)), None)
        elif change == "a capture":
            order.captures = 1
            order._change()
            stack.callback(order._change)
            stack.callback(setattr, order, "captures", 0)
        elif change == "manual":
            stack.enter_context(order.manual())
        else:
            use.event.is_done = True  # type: ignore[misc]
            order.release()
        kernel.counts()
        turns.calls.clear()
        full = kernel(first, X, Y)
        waits = kernel.counts()[1] + sum(call == "wait" for call, *_ in turns.calls)
    looked = ("other memory", "a capture", "manual")
    assert (full, waits) == (change in looked, change not in ("manual", "done"))
