"""What a capture on a GPU refuses and keeps, with a stand-in for the driver, which knows who comes after whom."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import cudakit as ck
from cudakit.graphs import device_capture
from cudakit.graphs.device_capture import DeviceCapture, DeviceGraph
from cudakit.graphs.graph import Graph
from cudakit.graphs.recording import UNSETTLED, NamedArguments
from cudakit.streams import devices, streams, witnesses
from cudakit.streams import order as order_module
from cudakit.streams.order import Order
from cudakit.streams.witnesses import Work

driver = pytest.importorskip("cuda.bindings.driver")
pytestmark = pytest.mark.emulator

GOOD = driver.CUresult.CUDA_SUCCESS
GRAPH, BODY = 70, 71  # the driver's numbers of captures


class Stream:
    """A stream, and what the driver says of it: the capture that it is a part of, and its last nodes."""

    is_closed, device = False, SimpleNamespace(device_id=0)

    def __init__(self, handle: int, number: int = 0, last: tuple[int, ...] = ()) -> None:
        self.handle, self.number, self.last = handle, number, last

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class Builder:
    """cuda.core's builder of a graph."""

    def __init__(self, stream: Stream, ended: list[Any]) -> None:
        self.stream, self.ended = stream, ended
        self.embedded: list[Any] = []
        self.graph_definition = SimpleNamespace(handle=id(self))

    def begin_building(self, mode: str) -> None:
        assert mode == "relaxed"

    def end_building(self) -> None:
        self.ended.append(self)

    def embed(self, other: Any) -> None:
        self.embedded.append(other)


class Loaded:
    """A kernel that is loaded; it knows who holds it."""

    def __init__(self) -> None:
        self.holders: set[Any] = set()


@pytest.fixture
def known_streams() -> dict[int, Stream]:
    return {}


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch, known_streams: dict[int, Stream]) -> Iterator[list[Any]]:
    """The driver's answers; those that a test asked it for as (what, …)."""
    asked: list[Any] = []
    #: Nodes by what they come after: 3 after 2 after 1; 5 after 4; 6 after both 3 and 5.
    before = {1: (), 2: (1,), 3: (2,), 4: (), 5: (4,), 6: (3, 5)}

    def info(handle: Any) -> tuple[Any, ...]:
        stream = known_streams[int(handle)]
        return GOOD, int(stream.number != 0), stream.number, None, list(stream.last), None, len(stream.last)

    def dependencies(node: Any, count: int) -> tuple[Any, ...]:
        nodes = before[int(node)]
        return GOOD, list(nodes)[:count], None, len(nodes)

    def launch(handle: int, stream: int) -> None:
        asked.append(("launch", handle, stream))

    def end(stream: Any) -> tuple[Any, None]:
        asked.append(("end", int(stream)))
        known_streams[int(stream)].number = 0
        return GOOD, None

    monkeypatch.setattr(driver, "cuStreamGetCaptureInfo", info)
    monkeypatch.setattr(driver, "cuGraphNodeGetDependencies", dependencies)
    monkeypatch.setattr(driver, "cuGraphInstantiate", lambda graph, flags: (GOOD, 99 + flags))
    monkeypatch.setattr(driver, "cuGraphExecDestroy", lambda handle: (GOOD,))
    runtime = SimpleNamespace(graphLaunch=launch)
    monkeypatch.setattr(device_capture, "_cupy_calls", lambda device: (runtime, lambda: SimpleNamespace(ptr=10)))
    monkeypatch.setattr(driver, "cuStreamEndCapture", end)
    monkeypatch.setattr(streams, "is_captured", lambda handle: known_streams[handle].number != 0)
    monkeypatch.setattr(streams, "_open", {})
    monkeypatch.setattr(order_module, "_order", Order())
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "make_current", lambda device_id=None: False)
    return asked


def stream_of(known_streams: dict[int, Stream], handle: int, number: int = 0, last: tuple[int, ...] = ()) -> Stream:
    made = known_streams[handle] = Stream(handle, number, last)
    return made


def device_stream(stream: Stream) -> Any:
    return streams.DeviceStream(stream, stream, stream.handle, 0)


@pytest.fixture
def stream(known_streams: dict[int, Stream], monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = stream_of(known_streams, 10)
    monkeypatch.setitem(streams._device_streams, id(made), device_stream(made))
    return made


@pytest.fixture
def open_capture(stream: Stream) -> DeviceCapture:
    """A capture whose outermost graph has begun, on stream 10."""
    found = DeviceCapture(device_stream(stream), NamedArguments({}))
    stream.number, stream.last = GRAPH, (3,)
    found._begin(Builder(stream, []))
    return found


def work(stream: Stream, name: str = "f<int>", loaded: Loaded | None = None) -> Work:
    call: Any = SimpleNamespace(target=loaded or Loaded())
    return Work("kernel", name, stream, (), (), 0, call)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_legacy_default_stream_is_refused(known_streams: dict[int, Stream]) -> None:
    with pytest.raises(ck.ArgumentError, match="does not capture the legacy default stream"):
        DeviceCapture(device_stream(stream_of(known_streams, 1)), NamedArguments({}))
    assert DeviceCapture(device_stream(stream_of(known_streams, 2)), NamedArguments({})).loaded == []


def test_a_stream_that_is_captured_already_is_refused(known_streams: dict[int, Stream]) -> None:
    captured = stream_of(known_streams, 10, GRAPH)
    with pytest.raises(ck.LaunchError, match="captured already; launch the inner graph on it instead"):
        DeviceCapture(device_stream(captured), NamedArguments({}))


def test_a_graph_is_put_into_another_on_the_captured_stream_alone(
    open_capture: DeviceCapture, known_streams: dict[int, Stream], stream: Stream
) -> None:
    inner, loaded = object(), Loaded()
    with pytest.raises(ck.LaunchError, match="launched on the captured stream"):
        open_capture.embed(stream_of(known_streams, 11, GRAPH), inner, [loaded])  # type: ignore[arg-type]
    assert open_capture.builder.embedded == []
    assert not loaded.holders
    open_capture.embed(stream, inner, [loaded])  # type: ignore[arg-type]
    assert open_capture.builder.embedded == [inner]
    assert loaded.holders == {open_capture}, "no module grows that takes its code away"
    assert open_capture.loaded == [loaded]


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [((3,), (2,), True), ((3,), (5,), False), ((6,), (5,), True), ((6,), (3, 5), True), ((5,), (5, 3), False)],
)
def test_work_on_another_stream_comes_before_the_last_on_the_first(
    open_capture: DeviceCapture,
    known_streams: dict[int, Stream],
    stream: Stream,
    first: tuple[int, ...],
    second: tuple[int, ...],
    joined: bool,
) -> None:
    other = stream_of(known_streams, 11, GRAPH, second)
    open_capture._note(work(other, "g<float>"))
    stream.last = first
    if joined:
        open_capture._check_joined(stream)  # type: ignore[arg-type]
    else:
        with pytest.raises(ck.LaunchError, match=r"g<float> on another stream was not joined"):
            open_capture._check_joined(stream)  # type: ignore[arg-type]
    other.number = 0  # which ended with the capture that it was a part of
    open_capture._check_joined(stream)  # type: ignore[arg-type]


def test_work_on_the_captured_stream_itself_needs_no_joining(open_capture: DeviceCapture, stream: Stream) -> None:
    loaded = Loaded()
    open_capture._note(work(stream, loaded=loaded))
    stream.last = ()
    open_capture._check_joined(stream)  # type: ignore[arg-type]
    assert loaded.holders == {open_capture}
    assert list(open_capture.calls) == [3], "the node that the stream has come to"


def test_a_body_is_of_the_capture_that_is_open_innermost(
    open_capture: DeviceCapture, known_streams: dict[int, Stream], stream: Stream
) -> None:
    inner = stream_of(known_streams, 11, BODY)
    assert open_capture._is_inside(stream)
    open_capture._begin(Builder(inner, []))
    assert open_capture._is_inside(inner)
    assert not open_capture._is_inside(stream), "given inside of a loop, it is from outside of it"
    assert streams.current(stream) is streams.current(inner) is open_capture
    open_capture._end()
    assert open_capture._is_inside(stream)
    assert open_capture.builders[0].stream is inner
    streams.end(open_capture)
    assert not streams.is_any_open()


def test_a_capture_that_fails_ends_at_the_driver_and_leaves_no_builders(
    open_capture: DeviceCapture, stream: Stream, stand_in: list[Any]
) -> None:
    open_capture._abort()
    assert stand_in == [("end", 10)]
    assert open_capture.builders == open_capture._open == []
    open_capture._abort()
    assert len(stand_in) == 1, "of a stream that is captured no more nothing is ended"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "waits for an event or stream from before the capture"),
        ("CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "work on another stream was not joined"),
        ("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "uses the legacy default stream"),
        ("CUDA_ERROR_STREAM_CAPTURE_MERGE", "joins two captures"),
        ("cudaErrorCapturedEvent: captured", "asks for an event of the capture"),
        ("CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "is done by another thread"),
        ("operation not permitted when stream is capturing", "waits for the device"),
        ("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "a call before it was refused"),
    ],
)
def test_what_the_driver_refuses_is_told_with_its_reason(text: str, words: str) -> None:
    with pytest.raises(ck.LaunchError, match=f"cannot be captured: (it )?{words}.*{text}") as caught:
        device_capture._explain(RuntimeError(text))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    "error", [ck.LaunchError("capture: our own words"), ValueError("of the user's"), KeyboardInterrupt("a capture")]
)
def test_other_errors_are_left_as_they_are(error: BaseException) -> None:
    device_capture._explain(error)


# ── loops and branches ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("again", "limit"), [(True, None), (True, 5), (False, None)])
def test_a_condition_is_decided_before_a_body_and_in_a_loop_after_each_round(
    open_capture: DeviceCapture,
    known_streams: dict[int, Stream],
    stream: Stream,
    monkeypatch: pytest.MonkeyPatch,
    again: bool,
    limit: int | None,
) -> None:
    inner = stream_of(known_streams, 11, BODY)
    monkeypatch.setitem(streams._device_streams, id(inner), device_stream(inner))
    bodies: list[str] = []
    decided: list[tuple[Any, ...]] = []

    def begin(kind: str, condition: Any) -> Builder:
        bodies.append(kind)
        return Builder(inner, [])

    outer: Any = open_capture.builder
    outer.create_condition = lambda default_value: SimpleNamespace(handle=77 + default_value)
    outer.while_loop, outer.if_then = (lambda c, kind=kind: begin(kind, c) for kind in ("loop", "branch"))
    flag, count = np.ones(1, np.int32), np.zeros(1, np.uint64)
    monkeypatch.setattr("cupy.empty", lambda *given: count)
    monkeypatch.setattr(device_capture, "cupy_stream", lambda core: contextlib.nullcontext())
    decide = lambda *given: decided.append(given)  # noqa: E731
    monkeypatch.setattr(device_capture.Kernel, "from_template", lambda name: decide)
    with order_module.order().capturing(stream), open_capture.conditional(flag, limit, again) as given:
        assert given is inner
        assert len(decided) == 1
        assert open_capture.builder.stream is inner
    open_capture._joined.close()
    assert bodies == ["loop" if again else "branch"]
    assert open_capture.builder is outer
    assert [each.stream for each in open_capture.builders] == [inner]
    most = 2**64 - 1 if limit is None else limit
    # Where, the condition, the flag, the count of rounds and the most of them, and whether it is the first time.
    shown = [(where, handle, given, rounds, of, first) for where, _, handle, given, rounds, of, first in decided]
    expected = [(stream, 77, flag, count, most, True), (inner, 77, flag, count, most, False)]
    assert shown == expected[: 1 + again]


def test_a_driver_without_conditions_is_told(open_capture: DeviceCapture) -> None:
    def refuse(default_value: int) -> Any:
        raise RuntimeError("CUDA_ERROR_NOT_SUPPORTED")

    open_capture.builder.create_condition = refuse  # type: ignore[method-assign]
    with (
        pytest.raises(ck.LaunchError, match=r"need a driver for CUDA 12\.4 or newer: CUDA_ERROR_NOT_SUPPORTED"),
        open_capture.conditional(np.ones(1, np.int32), None, True),
    ):
        pass


# ── the block ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Side(contextlib.AbstractContextManager[Any]):
    """CuPy's stream beside the capture."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __enter__(self) -> Side:
        self.log.append("in")
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append("out")

    def synchronize(self) -> None:
        self.log.append("waited for")


def test_what_is_done_beside_a_capture_is_waited_for(
    open_capture: DeviceCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []
    made: list[bool] = []
    monkeypatch.setattr("cupy.cuda.Stream", lambda non_blocking: made.append(non_blocking) or Side(log))
    monkeypatch.setattr("cupy.asarray", lambda array: log.append("copied") or ("device", array))
    data = SimpleNamespace(memset_async=lambda value, size, stream: log.append((value, size, stream)))
    open_capture.clear(SimpleNamespace(data=data, nbytes=24))
    (_, (value, size, stream), *_) = log
    assert (value, size, type(stream)) == (0, 24, Side)
    assert [each if isinstance(each, str) else "set" for each in log] == ["in", "set", "out", "waited for"]
    log.clear()
    uploaded = open_capture.upload(np.arange(3))
    assert uploaded[0] == "device"
    assert log == ["in", "copied", "out", "waited for"]
    assert open_capture.kept_alive == [uploaded]
    assert made == [True], "one stream for both"


@pytest.fixture
def opening(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[DeviceCapture, list[Any]]]:
    """A capture that can be opened, and the devices and allocators inside which its block is."""
    entered: list[Any] = []

    @contextlib.contextmanager
    def inside(what: Any) -> Iterator[Any]:
        entered.append(what)
        yield SimpleNamespace(cuda=SimpleNamespace(using_allocator=lambda malloc: inside(malloc)))

    monkeypatch.setattr(devices, "on_device", inside)
    monkeypatch.setattr(device_capture, "using", inside)
    ended: list[Any] = []

    def builder() -> Builder:
        stream.number, stream.last = GRAPH, (3,)
        return Builder(stream, ended)

    stream.create_graph_builder = builder  # type: ignore[attr-defined]
    found = DeviceCapture(device_stream(stream), NamedArguments({}))
    original = Order.capturing

    def capturing(self: Order, given: Any, begun: bool = False) -> Any:
        return original(self, given, begun=True)

    monkeypatch.setattr(Order, "capturing", capturing)
    yield found, entered
    assert not streams.is_any_open()


def test_a_block_is_captured_on_its_device_with_memory_of_its_own(
    opening: tuple[DeviceCapture, list[Any]], stream: Stream
) -> None:
    capture, entered = opening
    with capture.opened():
        assert entered == [0, stream, capture.pool.malloc]
        assert streams.current(stream) is capture
        assert order_module.order().captures == 1
        assert witnesses.watched()
    assert [builder.stream for builder in capture.builders] == [stream]
    assert capture.builders[0].ended == [capture.builders[0]]
    assert not witnesses.watched()


def test_a_block_with_work_that_was_not_joined_is_refused(
    opening: tuple[DeviceCapture, list[Any]], known_streams: dict[int, Stream], stand_in: list[Any]
) -> None:
    capture, _ = opening
    other = stream_of(known_streams, 11, GRAPH, (5,))
    other.waited = []  # type: ignore[attr-defined]

    def block() -> None:
        with capture.opened():
            capture._open[0][0].stream.wait = other.waited.append  # type: ignore[attr-defined]
            capture._note(work(other, "g<int>"))

    with pytest.raises(ck.LaunchError, match="g<int> on another stream was not joined"):
        block()
    assert other.waited == [other], "joined, so that the driver can end the capture"  # type: ignore[attr-defined]
    assert stand_in == [("end", 10)]
    assert capture.builders == []


@pytest.mark.parametrize("caught", [True, False])
def test_a_block_whose_loop_has_no_end_is_refused(opening: tuple[DeviceCapture, list[Any]], caught: bool) -> None:
    capture, _ = opening

    def block() -> None:
        with capture.opened(), contextlib.suppress(ValueError) if caught else contextlib.nullcontext(), capture.body():
            raise ValueError("stop")

    with pytest.raises(ck.LaunchError if caught else ValueError, match="stop"):
        block()
    assert capture.builders == capture._open == []


def test_the_drivers_refusal_in_a_block_is_explained(opening: tuple[DeviceCapture, list[Any]]) -> None:
    capture, _ = opening
    with pytest.raises(ck.LaunchError, match="a call in the block cannot be captured"), capture.opened():
        raise RuntimeError("CUDA_ERROR_STREAM_CAPTURE_MERGE")


def test_builders_that_cannot_end_stay(open_capture: DeviceCapture) -> None:
    builder: Any = open_capture.builder

    def refuse() -> None:
        raise RuntimeError("unjoined")

    builder.end_building = refuse
    former = sys.getrefcount(builder)
    with pytest.raises(RuntimeError, match="unjoined"):
        open_capture._end()
    assert sys.getrefcount(builder) == former + 1, "the driver dies of what is destroyed then"
    assert [each for each, _ in open_capture._open] == [builder]


def test_a_finished_capture_is_a_graph(open_capture: DeviceCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(device_capture, "nodes_of", lambda *given: asked.append(given) or [])
    open_capture._end()
    open_capture.builders.insert(0, Builder(open_capture.target.core, []))  # type: ignore[arg-type]
    made = open_capture.finished()
    assert isinstance(made, DeviceGraph)
    inner, whole = open_capture.builders
    handles = [whole.graph_definition.handle, inner.graph_definition.handle]
    assert asked == [(handles, open_capture.named_arguments, open_capture.calls)]
    streams.end(open_capture)


# ── the graph that is made of it ─────────────────────────────────────────────────────────────────────────────────────


class Node:
    """A node with an argument of its own; written down is what the driver is told."""

    def __init__(self, name: str, uses: tuple[str, ...], foreign: bool = False) -> None:
        self.name, self.foreign, self.values = name, foreign, []
        self.told: list[Any] = []
        self.uses = [(use, self.write) for use in uses]
        self.values: list[Any] = []

    def write(self, value: Any) -> None:
        if value == "bad":
            raise ck.ArgumentError("no such value")
        self.values.append(value)

    def push(self, executable: Any) -> None:
        self.told.append(("push", executable))

    def define(self) -> None:
        self.told.append(("define",))


@pytest.fixture
def nodes() -> list[Node]:
    return [Node("f", ("a", "x")), Node("g", ("b",)), Node("copy", ("x",), foreign=True)]


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch, stream: Stream, nodes: list[Node]) -> DeviceGraph:
    found = DeviceCapture(device_stream(stream), NamedArguments({"a": 2.0, "b": 3, "x": np.zeros(4)}))
    stream.number = GRAPH
    found._begin(Builder(stream, []))
    found._end()
    stream.number = 0
    streams.end(found)
    monkeypatch.setattr(device_capture, "nodes_of", lambda graphs, named, calls: nodes)
    monkeypatch.setattr(Order, "before", lambda self, *given: given)
    monkeypatch.setattr(Order, "after", lambda self, *given: None)
    monkeypatch.setattr(Order, "settle", lambda self, *given: False)
    return DeviceGraph(found)


def test_only_the_nodes_that_use_a_changed_name_are_changed_at_the_driver(
    graph: DeviceGraph, nodes: list[Node], stream: Stream, stand_in: list[Any]
) -> None:
    graph.change("a", 5.0, None)
    graph.launch(stream, None)
    assert [node.told for node in nodes] == [[("push", 99)], [], []]
    assert nodes[0].values == [5.0]
    graph.launch(stream, None)
    assert [len(node.told) for node in nodes] == [1, 0, 0], "it stays"
    assert stand_in == [("launch", 99, 10)] * 2
    graph.change("x", object(), 640)
    assert (nodes[0].values[-1], nodes[2].values[-1]) == (640, 640), "an array goes to a node as its address"


def test_a_value_that_a_node_refuses_changes_nothing(graph: DeviceGraph, nodes: list[Node]) -> None:
    with pytest.raises(ck.ArgumentError, match="no such value"):
        graph.change("a", "bad", None)
    assert nodes[0].values == [2.0], "what it was is written anew"
    assert not graph._dirty


def test_who_else_uses_a_named_array_may_read_and_write_it(graph: DeviceGraph) -> None:
    (read,), (written,) = graph._read, graph._written
    named = graph._capture.named_arguments.memory("x")
    assert named is not None
    assert read == written == (named.low, named.high)


def test_a_stream_of_another_device_is_refused(
    graph: DeviceGraph, known_streams: dict[int, Stream], monkeypatch: pytest.MonkeyPatch, stand_in: list[Any]
) -> None:
    elsewhere = stream_of(known_streams, 12)
    monkeypatch.setitem(streams._device_streams, id(elsewhere), streams.DeviceStream(elsewhere, elsewhere, 12, 1))
    with pytest.raises(ck.LaunchError, match="captured on device 0, the stream is of device 1"):
        graph.launch(elsewhere, None)
    assert not stand_in


def test_a_graph_inside_another_has_the_arguments_of_now_and_no_loops(
    graph: DeviceGraph, nodes: list[Node], stream: Stream, stand_in: list[Any]
) -> None:
    outer = DeviceCapture(device_stream(stream), NamedArguments({}))
    stream.number, stream.last = GRAPH, ()
    outer._begin(Builder(stream, []))
    graph.change("b", 9, None)
    graph.launch(stream, None)
    assert nodes[1].told == [("define",)]
    assert outer.builder.embedded == [graph._builder]
    assert not stand_in, "nothing runs"
    graph._capture.builders.append(graph._builder)  # a body
    with pytest.raises(ck.LaunchError, match="loops or branches cannot become a part"):
        graph.launch(stream, None)
    assert len(outer.builder.embedded) == 1
    streams.end(outer)


@pytest.fixture
def settling(graph: DeviceGraph, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """CuPy's current stream, and what has settled."""
    state = SimpleNamespace(current=SimpleNamespace(ptr=10), settled=[])
    monkeypatch.setattr(graph, "_cupy_stream", lambda: state.current)
    monkeypatch.setattr(Order, "settle", lambda self, *given: state.settled.append(given) or True)
    return state


@pytest.fixture
def launched(graph: DeviceGraph, stream: Stream, settling: SimpleNamespace) -> Graph:
    """The user's graph, settled."""
    launched = Graph(stream, graph._capture.named_arguments, graph._capture)
    launched._finish(graph)
    launched.launch()
    return launched


def test_a_launch_that_settled_goes_straight_to_the_driver_until_something_changes(
    launched: Graph, graph: DeviceGraph, stand_in: list[Any], settling: SimpleNamespace
) -> None:
    for launch in (launched.launch, launched, lambda: launched(a=1.0), lambda: launched(a=launched["a"])):
        launch()
    ((use, settled),) = settling.settled
    assert settled is graph
    assert use[0].handle == 10
    assert stand_in == [("launch", 99, 10)] * 5, "the one stream is in order, whatever is changed"
    assert not graph._dirty
    order_module.order().single = False
    launched(a=2.0)
    assert len(settling.settled) == 2
    settling.current = SimpleNamespace(ptr=10)
    launched()
    assert len(settling.settled) == 3, "CuPy works on another stream now"
    graph.watch(True)
    assert graph.settled is UNSETTLED


def test_a_node_that_the_driver_refuses_to_change_is_changed_before_the_next_launch(
    launched: Graph, nodes: list[Node], stand_in: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.clear()
    with monkeypatch.context() as patch:
        patch.setattr(nodes[0], "push", mock.Mock(side_effect=ck.LaunchError("refused")))
        with pytest.raises(ck.LaunchError, match="refused"):
            launched(a=5.0)
        with pytest.raises(ck.LaunchError, match="refused"):
            launched.launch()
    assert not stand_in, "nothing runs with what was"
    launched.launch()
    assert nodes[0].told == [("push", 99)]
    assert len(stand_in) == 1


def test_a_settled_launch_that_the_driver_refuses_is_an_error_of_launches(launched: Graph, graph: DeviceGraph) -> None:
    class CUDARuntimeError(RuntimeError):
        pass

    refused = mock.Mock(side_effect=CUDARuntimeError("cudaErrorInvalidValue"))
    settled_stream, _, *current = graph.settled
    graph.settled = (settled_stream, refused, *current)
    with pytest.raises(ck.LaunchError, match=r"^graph: the driver refused the launch: cudaErrorInvalidValue"):
        launched.launch()
    graph.unsettle()
    other = threading.Thread(target=launched.launch)
    other.start()
    other.join(5)
    assert not other.is_alive(), "the graph is free"


def test_a_graph_is_drawn_as_the_driver_writes_it(graph: DeviceGraph) -> None:
    def draw(path: str) -> None:
        with open(path, "w") as file:
            file.write("digraph {}")

    graph._builder.debug_dot_print = draw
    assert graph.dot() == "digraph {}"


def test_witnesses_hear_of_a_launch_with_what_it_touches(graph: DeviceGraph, stream: Stream) -> None:
    heard: list[Work] = []

    class Heard(witnesses.Witness):
        def begin(self, work: Work) -> None:
            heard.append(work)

    graph._capture.reads[5], graph._capture.writes[6] = "read", "written"
    graph._spans.update({5: (1, 2), 6: (3, 4)})
    with witnesses.witnessing(Heard()):
        graph.launch(stream, "the graph")
    ((kind, name, where, reads, writes, size, detail, _),) = heard
    named = graph._capture.named_arguments.values["x"]
    assert (kind, name, where, size, detail) == ("graph", "graph", stream, 0, "the graph")
    assert reads[0] is writes[0] is named
    assert (reads[1:], writes[1:]) == (("read",), ("written",))
