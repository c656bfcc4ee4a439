"""Capture on the emulator: launches are recorded, and repeated in the same order by each launch of the graph.

Further streams of the capture run on streams of the graph's own. Events are recorded and waited for as in the capture.
So the emulator finds races that could happen on a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from cudakit.emulator.face import EmulatedEvent, EmulatedShape, EmulatedStream, EmulatedTensorMap, TextureObject, order
from cudakit.errors import LaunchError
from cudakit.graphs.recording import (
    ADDRESS,
    VALUES,
    Executable,
    Memory,
    NamedArguments,
    Recording,
    Step,
    conditional_child,
    memory_of,
    outside_of_body,
    unjoined,
)
from cudakit.jit.launch.report import accesses
from cudakit.places import using
from cudakit.streams.streams import require_stream
from cudakit.streams.witnesses import Work, doing, witnessing
from cudakit.types.arguments import as_numpy


class Play:
    """A single launch of a recorded graph.

    `streams` gives the stream to run on by the number of the recorded stream. `events` are the events recorded so far.
    """

    def __init__(self, streams: dict[int, EmulatedStream]) -> None:
        self.streams = streams
        self.events: dict[Any, EmulatedEvent] = {}


class Node(Step):
    """A recorded step.

    Attributes
    ----------
    hidden : bool
        Whether the step is an order between streams. A graph has edges for the order, and no nodes.
    """

    hidden = False

    def run(self, play: Play) -> None:
        """Run the step in a launch of the graph."""

    def again(self, streams: Mapping[int, int], arguments: NamedArguments, tag: Any) -> Node:
        """Return a copy of the step for another graph, with other streams and named arguments.

        `tag` distinguishes the copy's events from events of other copies.
        """
        return Node(self.name)

    def _find_array(
        self,
        arguments: NamedArguments,
        array: Any,
        position: int,
        *slots: list[Any],
        value: Callable[[int, Any], Any] | None = None,
    ) -> bool:
        """Return whether `array` is an array. If it shares memory with a named array, also add this use to the step.

        A launch with another named array then uses the same part of the other array. The part, or ``value(position,
        part)`` if `value` is not None, replaces the argument at index `position` in each list of `slots`.
        """
        memory = memory_of(array)
        if memory is None:
            return False
        location = arguments.viewed(memory)
        if location is not None:
            name, distance = location

            def write(other: Any) -> None:
                part = _view(as_numpy(other), distance, memory)
                argument = part if value is None else value(position, part)
                for arguments in slots:
                    arguments[position] = argument

            self.uses.append((name, write))
        return True


class Launch(Node):
    """A recorded launch of a kernel."""

    def __init__(
        self,
        stream: int,
        shape: EmulatedShape,
        config: Any,
        values: Sequence[Any],
        arguments: Sequence[Any],
        names: NamedArguments,
    ) -> None:
        super().__init__(shape.name)
        self._stream, self._shape, self._config = stream, shape, config
        self._values, self._arguments = list(values), list(arguments)
        for position, (argument, value) in enumerate(zip(arguments, values, strict=True)):
            category = shape.emulated.parameters[position].category
            if isinstance(argument, EmulatedTensorMap):
                names.refuse_inside(_address_of(argument.array), self.name, "tensor map")
            elif isinstance(argument, TextureObject):
                names.refuse_inside(_address_of(argument.texels), self.name, "texture")
            elif self._find_array(names, argument, position, self._values, self._arguments, value=shape.value):
                continue
            elif category not in VALUES and isinstance(value, bytes | int):
                self._find_addresses_in(position, value, names)
            else:
                self._find_number_at(position, argument, names)

    def _find_addresses_in(self, position: int, value: bytes | int, arguments: NamedArguments) -> None:
        """Find addresses of named arrays in `value`, a struct's bytes or an address, and add their uses to the step.

        A later value is written to the launch's argument at index `position`.
        """
        values = self._values

        def put(place: int, address: int) -> None:
            now = values[position]
            if isinstance(now, bytes):
                values[position] = now[:place] + ADDRESS.pack(address) + now[place + ADDRESS.size :]
            else:
                values[position] = address

        data = value if isinstance(value, bytes) else ADDRESS.pack(value)
        self.find_addresses(arguments, data, put, lambda array: _address_of(as_numpy(array)))

    def _find_number_at(self, position: int, argument: Any, names: NamedArguments) -> None:
        shape, values, arguments = self._shape, self._values, self._arguments

        def put(value: Any, converted: Any) -> None:
            values[position], arguments[position] = shape.value(position, value), value

        self.find_number(names, shape.emulated.parameters[position], argument, put)

    def run(self, play: Play) -> None:
        self._shape.run(play.streams[self._stream], self._config, self._values, self._arguments, insert_waits=False)

    def again(self, streams: Mapping[int, int], arguments: NamedArguments, tag: Any) -> Node:
        return Launch(streams[self._stream], self._shape, self._config, self._values, self._arguments, arguments)


class Copy(Node):
    """A recorded copy of elements. On a GPU, CuPy makes such a copy, which is captured as a node."""

    def __init__(self, stream: int, source: Any, target: Any, arguments: NamedArguments) -> None:
        super().__init__(f"copy of {target.nbytes} bytes")
        self._stream = stream
        self._arrays = [source, target]
        for position, array in enumerate(self._arrays):
            self._find_array(arguments, array, position, self._arrays)

    def run(self, play: Play) -> None:
        source, target = self._arrays
        stream = play.streams[self._stream]
        work = Work("copy", self.name, stream, (source,), (target,), target.nbytes)
        with stream.doing(work, insert_waits=False):
            target[...] = source

    def again(self, streams: Mapping[int, int], arguments: NamedArguments, tag: Any) -> Node:
        return Copy(streams[self._stream], self._arrays[0], self._arrays[1], arguments)


class Edge(Node):
    """A recorded event, or a wait for a recorded event."""

    hidden = True

    def __init__(self, act: str, stream: int, event: Any) -> None:
        super().__init__(act)
        self._stream, self._event = stream, event

    def run(self, play: Play) -> None:
        stream = play.streams[self._stream]
        if self.name == "record":
            play.events[self._event] = stream.record()
        else:
            stream.wait(play.events[self._event])

    def again(self, streams: Mapping[int, int], arguments: NamedArguments, tag: Any) -> Node:
        return Edge(self.name, streams[self._stream], (tag, self._event))


class Conditional(Node):
    """A recorded loop or branch, with the steps of its body."""

    inner: int

    def __init__(
        self, stream: int, inner: int, flag: Any, limit: int | None, again: bool, arguments: NamedArguments
    ) -> None:
        super().__init__("loop" if again else "branch")
        self.body: list[Node] = []
        self._stream, self.inner = stream, inner
        self._limit, self._again = limit, again
        self._flags = [np.asarray(as_numpy(flag))]
        self._find_array(arguments, flag, 0, self._flags)

    def run(self, play: Play) -> None:
        stream = play.streams[self.inner] = play.streams[self._stream]
        rounds = 0
        while self._limit is None or rounds < self._limit:
            # The device reads the flag: the host waits for nothing.
            work = Work("copy", f"the flag of a {self.name}", stream, (self._flags[0],))
            with stream.doing(work, insert_waits=False, reported=False):
                pass
            if not self._flags[0].reshape(-1)[0]:
                return
            for node in self.body:
                node.run(play)
            rounds += 1
            if not self._again:
                return


def all_of(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield all steps, and after a loop or branch the steps of its body."""
    for node in nodes:
        yield node
        if isinstance(node, Conditional):
            yield from all_of(node.body)


def _address_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _view(array: Any, distance: int, like: Memory) -> np.ndarray:
    """Return a view of `array` with dtype, shape and strides of `like`, `distance` bytes after its first element."""
    if distance == 0 and (array.dtype, array.shape, array.strides) == (like.dtype, like.shape, like.strides):
        return np.asarray(array)
    return np.asarray(_Part(array, distance, like)).view(like.dtype)


class _Part:
    """A part of an array's memory, for `numpy.asarray`: `distance` bytes after its first element, shaped as `like`.

    Its elements are raw bytes of the size of `like`'s elements. It keeps the array alive.
    """

    def __init__(self, array: np.ndarray, distance: int, like: Memory) -> None:
        self.tensor = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {
            "data": (address + distance, not array.flags.writeable),
            "shape": like.shape,
            "strides": like.strides,
            "typestr": f"|V{like.dtype.itemsize}",
            "version": 3,
        }


class CapturedPoint(NamedTuple):
    """Position of an event in a capture.

    Attributes
    ----------
    capture : EmulatedCapture
        Capture that the event belongs to.
    number : int
        Number of the event in the capture.
    body : list of Node
        Steps of the graph, loop or branch whose stream recorded the event.
    before : dict of int to int
        Number of launches that come before the event, for each stream.
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
    """The recorder of a captured stream's launches, events and waits."""

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
    """An open capture on a stream of the emulator."""

    def __init__(self, stream: EmulatedStream, arguments: NamedArguments) -> None:
        super().__init__(arguments, stream.recorder is not None)
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
        """Record the calls of a ``with`` block."""
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
        """Return the graph, after the block has ended."""
        return EmulatedGraph(self)

    @contextlib.contextmanager
    def conditional(self, flag: Any, limit: int | None, again: bool) -> Iterator[EmulatedStream]:
        """Record the calls of a ``with`` block as the body of a loop or branch. Yield the stream for these calls.

        The body runs while (`again` True) or if (`again` False) ``flag[0] != 0``. `limit` is the most rounds of a loop.
        """
        outer = next(stream for stream in self.streams if self._body_of[id(stream)] is self._bodies[-1])
        inner = outer.alike()
        node = Conditional(id(outer), id(inner), flag, limit, again, self.named_arguments)
        self._add(outer, node)
        self.touch((flag,))
        self._bodies.append(node.body)
        self._enter(inner, node.body)
        try:
            with self.body(), using(inner):
                yield inner
                self._check_joined(inner)
        finally:
            self._bodies.pop()

    # ── what a captured stream is given ──

    def launch(
        self, stream: EmulatedStream, shape: EmulatedShape, config: Any, values: Sequence[Any], arguments: Sequence[Any]
    ) -> None:
        """Record a kernel's launch."""
        node = Launch(id(stream), shape, config, values, arguments, self.named_arguments)
        self.check_place(stream, node.name)
        self._add(stream, node)
        self.touch(*accesses(shape.emulated.parameters, arguments))

    def copy(self, stream: EmulatedStream, source: Any, target: Any) -> None:
        """Record a copy of elements."""
        node = Copy(id(stream), source, target, self.named_arguments)
        self.check_place(stream, node.name)
        self._add(stream, node)
        self.touch((source,), (target,))

    def embed(self, stream: EmulatedStream, graph: EmulatedGraph) -> None:
        """Record the launch of another graph, with its present arguments."""
        self.check_place(stream, "a graph")
        if any(isinstance(node, Conditional) for node in graph.nodes):
            raise conditional_child()
        self._add(stream, Node("graph"))
        streams = {id(graph.first): id(stream)}
        for key, other in graph.others.items():
            copy = other.alike()
            self.inner_streams[id(copy)], streams[key] = copy, id(copy)
        tag = next(self._numbers)
        self._bodies[-1] += [node.again(streams, self.named_arguments, tag) for node in graph.steps]

    def record(self, stream: EmulatedStream) -> CapturedPoint:
        """Return the position of an event after all present work of the stream, and record the event as a step."""
        body = self._body_of[id(stream)]
        point = CapturedPoint(self, next(self._numbers), body, dict(self._before[id(stream)]))
        body.append(Edge("record", id(stream), point.number))
        return point

    def fork(self, stream: EmulatedStream, point: CapturedPoint) -> None:
        """Make a stream that waits for an event of the capture a part of the capture."""
        if not any(body is point.body for body in self._bodies):
            raise LaunchError(
                "capture: the event is of a capture, or of a loop or branch, that has ended: it happens inside the "
                "graph's launches, and nothing outside can wait for it; record one on the stream after graph.launch"
            )
        self._enter(stream, point.body)
        self.wait(stream, point)

    def wait(self, stream: EmulatedStream, point: CapturedPoint) -> None:
        """Order the stream's future work after an event of the capture."""
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
        """Raise if `stream` is not of the graph, loop or branch that is captured now.

        `name` describes the refused work in the error.
        """
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
        """Raise if work of a body on another stream is not joined before the end of its first stream."""
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

    def launch(self, stream: Any, graph: Any) -> None:
        if not isinstance(stream, EmulatedStream):
            require_stream(stream)
            raise LaunchError("graph: captured on the emulator, and this stream is a GPU's")
        if stream.arch != self.first.arch:
            raise LaunchError(f"graph: captured on the emulator's {self.first.arch}, the stream is of {stream.arch}")
        if stream.recorder is not None:
            outer = stream.recorder.capture
            outer.kept_alive.append(graph)
            outer.embed(stream, self)
            outer.touch(self.reads, self.writes)
            return
        with doing("graph", "graph", stream, self.reads, self.writes, 0, graph):
            self.play(stream)

    def play(self, stream: EmulatedStream) -> None:
        """Run the graph on a stream, after the graph's last launch and all other work that must come before."""
        with order().lock:  # no other thread's work may come between
            order().insert_waits(stream, self.reads, self.writes)
            if self._last is not None:
                stream.wait(self._last)
            play = Play({id(self.first): stream, **self.others})
            for node in self.steps:
                node.run(play)
            self._last = stream.record()

    def dot(self) -> str:
        """Return the nodes in Graphviz' language, one after the other."""
        names = [f'  {number} [label="{node.name}"];' for number, node in enumerate(self.nodes)]
        edges = [f"  {number} -> {number + 1};" for number in range(len(names) - 1)]
        return "\n".join(["digraph {", *names, *edges, "}"])
