"""Capture on the emulator: launches are recorded, and made again in the same order by each launch of the graph.

Streams of the capture beside the first one get streams of the graph's own to run on, and events are recorded and waited
for as they were, so that what could race on a GPU is found here too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from cudakit.emulator.face import EmulatedEvent, EmulatedShape, EmulatedStream, order
from cudakit.errors import LaunchError
from cudakit.graphs.emulated_nodes import Conditional, Copy, Edge, Launch, Node, Play, all_of
from cudakit.graphs.executable import Executable
from cudakit.graphs.named_arguments import Named
from cudakit.graphs.open_capture import Recording, conditional_child, outside_of_body, unjoined
from cudakit.jit.launch.tell import accesses
from cudakit.places import using
from cudakit.streams.streams import require_stream
from cudakit.streams.witnesses import doing, witnessing


class CapturedPoint(NamedTuple):
    """Where an event of a capture stands.

    Attributes
    ----------
    capture : EmulatedCapture
    number : int
    body : list of Node
        The graph, loop or branch whose stream recorded it.
    before : dict of int to int
        How many of each stream's launches come before it.
    """

    capture: EmulatedCapture
    number: int
    body: list[Node]
    before: dict[int, int]

    def refusal(self) -> LaunchError:
        return LaunchError(
            "capture: a stream that is captured, and its events, cannot be waited for on the host: nothing runs before "
            "the graph is launched; do that outside of the block"
        )

    def be_waited_for(self, stream: EmulatedStream) -> None:
        self.capture.fork(stream, self)


class StreamRecorder:
    """What a stream of a capture gives its launches, events and waits to."""

    capture: EmulatedCapture

    def __init__(self, capture: EmulatedCapture, stream: EmulatedStream) -> None:
        self.capture, self._stream = capture, stream

    def launch(self, shape: Any, config: Any, values: Any, arguments: Any) -> None:
        self.capture.launch(self._stream, shape, config, values, arguments)

    def record(self) -> CapturedPoint:
        return self.capture.record(self._stream)

    def wait(self, event: EmulatedEvent) -> None:
        if not isinstance(event.point, CapturedPoint):
            raise LaunchError(
                "capture: the stream would wait for an event or stream from before the capture; order that before the "
                "block"
            )
        self.capture.wait(self._stream, event.point)


class EmulatedCapture(Recording):
    """A capture that is open on a stream of the emulator."""

    def __init__(self, stream: EmulatedStream, named: Named) -> None:
        super().__init__(named)
        if stream.recorder is not None:
            raise LaunchError("capture: this stream is being captured already; launch the inner graph on it instead")
        self.stream = stream
        self.nodes: list[Node] = []
        self.streams: list[EmulatedStream] = []
        #: The graph, and the loops and branches inside each other that are captured now.
        self._bodies = [self.nodes]
        #: For each stream, which of them it is of.
        self._body_of: dict[int, list[Node]] = {}
        # For each stream, how many of each stream's launches come before its next one.
        self._before: dict[int, dict[int, int]] = {}
        self._names: dict[int, str] = {}
        self._numbers = count()
        #: Streams of graphs inside this one.
        self.inner_streams: dict[int, EmulatedStream] = {}

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """The block whose calls are recorded."""
        self._enter(self.stream, self.nodes)
        try:
            with witnessing(self), using(self.stream):
                yield
            self.check_whole()
            self._check_joined(self.stream)
        finally:
            self._bodies.clear()
            for stream in self.streams:
                stream.recorder = None

    def finished(self) -> EmulatedGraph:
        """The graph, once the block has ended."""
        return EmulatedGraph(self)

    @contextlib.contextmanager
    def conditional(self, flag: Any, limit: int | None, again: bool) -> Iterator[EmulatedStream]:
        """Record a loop's or branch's body, on a stream of its own."""
        outer = self._innermost
        inner = outer.alike()
        node = Conditional(id(outer), id(inner), flag, limit, again, self.named)
        self._add(outer, node)
        self.reads.update(self.placed((flag,)))
        self._bodies.append(node.body)
        self._enter(inner, node.body)
        try:
            with self.body(), using(inner):
                yield inner
                self._check_joined(inner)
        finally:
            self._bodies.pop()

    @property
    def _innermost(self) -> EmulatedStream:
        return next(stream for stream in self.streams if self._body_of[id(stream)] is self._bodies[-1])

    # ── what a captured stream is given ──

    def launch(
        self, stream: EmulatedStream, shape: EmulatedShape, config: Any, values: Sequence[Any], arguments: Sequence[Any]
    ) -> None:
        """Record a kernel's launch."""
        node = Launch(id(stream), shape, config, values, arguments, self.named)
        self.check_place(stream, node.name)
        self._add(stream, node)
        used = accesses(shape.emulated.parameters, arguments)
        for found, arrays in zip((self.reads, self.writes), used, strict=True):
            found.update(self.placed(arrays))

    def copy(self, stream: EmulatedStream, source: Any, target: Any) -> None:
        """Record a copy of elements."""
        node = Copy(id(stream), source, target, self.named)
        self.check_place(stream, node.name)
        self._add(stream, node)
        self.reads.update(self.placed((source,)))
        self.writes.update(self.placed((target,)))

    def embed(self, stream: EmulatedStream, graph: EmulatedGraph) -> None:
        """Record another graph's launch, with the arguments that it has now."""
        self.check_place(stream, "a graph")
        if any(isinstance(node, Conditional) for node in graph.nodes):
            raise conditional_child()
        self._add(stream, Node("graph"))
        streams = {id(graph.first): id(stream)}
        for key, other in graph.others.items():
            made = other.alike()
            self.inner_streams[id(made)], streams[key] = made, id(made)
        tag = next(self._numbers)
        self._bodies[-1] += [node.again(streams, self.named, tag) for node in graph.steps]

    def record(self, stream: EmulatedStream) -> CapturedPoint:
        """Where an event stands after all that the stream was given so far."""
        body = self._body_of[id(stream)]
        point = CapturedPoint(self, next(self._numbers), body, dict(self._before[id(stream)]))
        body.append(Edge("record", id(stream), point.number))
        return point

    def fork(self, stream: EmulatedStream, point: CapturedPoint) -> None:
        """A stream that is no part of the capture waits for it, and is one from then on."""
        if not any(body is point.body for body in self._bodies):
            raise LaunchError(
                "capture: the event is of a capture, or of a loop or branch, that has ended: it happens inside the "
                "graph's launches, and nothing outside can wait for it; record one on the stream after graph.launch"
            )
        self._enter(stream, point.body)
        self.wait(stream, point)

    def wait(self, stream: EmulatedStream, point: CapturedPoint) -> None:
        """Let what the stream is given from now on come after an event of the capture."""
        if point.body is not self._body_of[id(stream)]:
            raise LaunchError(
                "capture: it joins two captures, or a loop or branch and what is outside of it; join streams of one "
                "only: a body comes after what was captured before it, and before what is captured after it"
            )
        before = self._before[id(stream)]
        for key, number in point.before.items():
            before[key] = max(before.get(key, 0), number)
        point.body.append(Edge("wait", id(stream), point.number))

    def check_place(self, stream: EmulatedStream, name: str) -> None:
        """Raise where a stream is not of the body that is captured now."""
        if self._body_of[id(stream)] is not self._bodies[-1]:
            raise outside_of_body(name)

    def _add(self, stream: EmulatedStream, node: Node) -> None:
        self._bodies[-1].append(node)
        self._names[id(stream)] = node.name
        before = self._before[id(stream)]
        before[id(stream)] = before.get(id(stream), 0) + 1

    def _enter(self, stream: EmulatedStream, body: list[Node]) -> None:
        self.streams.append(stream)
        self._before[id(stream)], self._body_of[id(stream)] = {}, body
        stream.recorder = StreamRecorder(self, stream)

    def _check_joined(self, first: EmulatedStream) -> None:
        """Raise where work of a body on another stream does not come before the end of its first one."""
        body, ended = self._body_of[id(first)], self._before[id(first)]
        left = [
            self._names.get(id(stream), "work")
            for stream in self.streams
            if self._body_of[id(stream)] is body
            and self._before[id(stream)].get(id(stream), 0) > ended.get(id(stream), 0)
        ]
        if left:
            raise unjoined(left)

    # ── what others ask of a capture ──

    def clear(self, array: Any) -> None:
        array[...] = 0

    def upload(self, array: np.ndarray) -> Any:
        return array


class EmulatedGraph(Executable):
    """A recorded graph, which the emulator runs."""

    def __init__(self, capture: EmulatedCapture) -> None:
        super().__init__(capture, [node for node in all_of(capture.nodes) if not node.hidden])
        self.steps: list[Node] = capture.nodes
        self.first: EmulatedStream = capture.stream
        self._last: EmulatedEvent | None = None
        bodies = {node.inner for node in self.nodes if isinstance(node, Conditional)}
        self.others: dict[int, EmulatedStream] = {
            id(stream): stream.alike() for stream in capture.streams[1:] if id(stream) not in bodies
        }
        self.others.update(capture.inner_streams)

    @property
    def reads(self) -> tuple[Any, ...]:
        """Arrays that the graph reads, with the named ones as they are now."""
        return self._capture.touched(self._capture.reads)

    @property
    def writes(self) -> tuple[Any, ...]:
        """Arrays that it may write."""
        return self._capture.touched(self._capture.writes)

    def launch(self, stream: Any, graph: Any) -> None:
        if not isinstance(stream, EmulatedStream):
            require_stream(stream)
            raise LaunchError("graph: captured on the emulator, and this stream is a GPU's")
        if stream.arch != self.first.arch:
            raise LaunchError(f"graph: captured on the emulator's {self.first.arch}, the stream is of {stream.arch}")
        if stream.recorder is not None:
            outer = stream.recorder.capture
            outer.kept.append(graph)
            outer.embed(stream, self)
            outer.reads.update(outer.placed(self.reads))
            outer.writes.update(outer.placed(self.writes))
            return
        with doing("graph", "graph", stream, self.reads, self.writes, 0, graph):
            self.play(stream)

    def play(self, stream: EmulatedStream) -> None:
        """Run on a stream, after the graph's last launch and what else must come before."""
        with order().lock:  # no other thread's work may come between
            order().put_in(stream, self.reads, self.writes)
            if self._last is not None:
                stream.wait(self._last)
            play = Play({id(self.first): stream, **self.others})
            for node in self.steps:
                node.run(play)
            self._last = stream.record()

    def dot(self) -> str:
        """The nodes, one after the other."""
        names = [f'  {number} [label="{node.name}"];' for number, node in enumerate(self.nodes)]
        edges = [f"  {number} -> {number + 1};" for number in range(len(names) - 1)]
        return "\n".join(["digraph {", *names, *edges, "}"])
