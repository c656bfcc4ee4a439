"""Stand-ins for cuda.core's graph builder and graphs: launches are recorded, and repeated in the recorded order.

A condition is a number in the emulator's memory. Kernels set it by ``cudaGraphSetConditional``, and a graph reads it
where its turn comes. Builders that `split` makes have streams of their own in a launch, so that races are found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cuda.core.graph import GraphCompleteOptions, GraphDebugPrintOptions

from cudakit.adapters.cuda_core.faults import Closeable, CoreError, MadeByOthers, of_options, raising
from cudakit.adapters.cuda_core.streams import Stream, stream_of
from cudakit.emulator.face import EmulatedEvent, EmulatedShape, EmulatedStream
from cudakit.errors import LaunchError, shortened
from cudakit.memory import memory


class Play:
    """A single launch of a graph: the streams that its builders run on."""

    def __init__(self, first: Any, stream: EmulatedStream) -> None:
        self._streams: dict[int, EmulatedStream] = {id(first): stream}
        self._like = stream

    def stream(self, recorded: Any) -> EmulatedStream:
        """Return the stream for work that was recorded on another one."""
        if id(recorded) not in self._streams:
            self._streams[id(recorded)] = self._like.alike()
        return self._streams[id(recorded)]

    def put(self, recorded: Any, stream: EmulatedStream) -> None:
        """Run work that was recorded on one stream on another."""
        self._streams[id(recorded)] = stream


class Step:
    """A recorded step of a graph.

    Parameters
    ----------
    name : str
        Name of the step, for `GraphBuilder.debug_dot_print`.
    run : callable
        Function of a `Play` that runs the step.
    bodies : sequence of list of Step
        Steps inside of this step.
    """

    def __init__(self, name: str, run: Callable[[Play], None], bodies: Sequence[list[Step]] = ()) -> None:
        self.name: str = name
        self.run: Callable[[Play], None] = run
        self.bodies: Sequence[list[Step]] = bodies


def _all_of(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        for body in step.bodies:
            yield from _all_of(body)


class GraphCondition(MadeByOthers):
    """A stand-in for ``cuda.core.graph.GraphCondition``: a number that kernels set."""

    def __init__(self, default: int | None) -> None:
        self.array: Any = memory.empty(1, np.uint32)
        self.array[...] = 0 if default is None else int(default)
        self.default = default

    @property
    def handle(self) -> int:
        """Number of the condition, which kernels take as ``cudaGraphConditionalHandle``."""
        return int(self.array.__array_interface__["data"][0])

    def __int__(self) -> int:
        return self.handle

    @property
    def _emulated(self) -> np.uint64:
        return np.uint64(self.handle)

    @property
    def value(self) -> int:
        """Present number."""
        return int(self.array[0])


class _Point:
    """Position of an event in a graph that is built."""

    def __init__(self, recorder: _Recorder) -> None:
        self.recorder = recorder

    def refusal(self) -> LaunchError:
        return CoreError("a stream of a graph that is being built, and its events, cannot be waited for by the host")

    def be_waited_for(self, stream: EmulatedStream) -> None:
        raise CoreError("another stream joins a graph by GraphBuilder.split, not by an event")


class _Recorder:
    """The recorder of a builder's stream. It is its own capture, which takes copies."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder, self.capture = builder, self
        self.kept_alive: list[Any] = []

    def launch(self, shape: EmulatedShape, config: Any, values: Any, arguments: Any) -> None:
        stream = self.builder.stream
        values, arguments = tuple(values), tuple(arguments)

        def run(play: Play) -> None:
            shape.run(play.stream(stream), config, values, arguments, insert_waits=False)

        self.builder.steps.append(Step(shape.name, run))

    def copy(self, stream: EmulatedStream, source: Any, target: Any) -> None:
        own = self.builder.stream

        def run(play: Play) -> None:
            memory.copy(target, source, play.stream(own))

        self.builder.steps.append(Step(f"copy of {target.nbytes} bytes", run))

    def record(self) -> _Point:
        return _Point(self)

    def wait(self, event: EmulatedEvent) -> None:
        point = event.point
        if not isinstance(point, _Point):
            raise CoreError("a stream of a graph that is being built waits for events of this graph only")
        self.builder.steps.append(_order(point.recorder.builder.stream, self.builder.stream))


def _order(before: Any, after: Any) -> Step:
    """Return the step by which later work of one stream comes after earlier work of another."""
    return Step("", lambda play: play.stream(after).wait(play.stream(before).record()))


_FRESH, _BUILDING, _ENDED = "before begin_building()", "being built", "built"


class GraphBuilder(MadeByOthers):
    """A stand-in for ``cuda.core.graph.GraphBuilder``."""

    is_join_required: bool
    is_closed: bool

    def __init__(self, stream: Any = None, steps: list[Step] | None = None, is_forked: bool = False) -> None:
        self.stream: Any = Stream() if stream is None else stream
        self.steps: list[Step] = [] if steps is None else steps
        self.conditions: list[GraphCondition] = []
        self.is_join_required, self._state, self.is_closed = is_forked, _FRESH, False
        if is_forked:
            self._record()

    @property
    def is_building(self) -> bool:
        """Whether launches on the builder are recorded."""
        return self._state == _BUILDING

    def _record(self) -> None:
        self.stream.recorder, self._state = _Recorder(self), _BUILDING

    def _require_building(self, action: str) -> None:
        if self.is_closed or not self.is_building:
            raise RuntimeError(
                f"GraphBuilder.{action} is for a graph that is being built, and this one is {self._state}"
            )

    def recorded_stream(self) -> Any:
        """Return the stream on which a launch is recorded."""
        if not self.is_building:
            raise RuntimeError(f"a launch on a GraphBuilder is for a graph that is being built; it is {self._state}")
        return self.stream

    def begin_building(self, mode: str = "relaxed") -> GraphBuilder:
        """Begin to record, and return the builder. `mode` makes no difference here."""
        if mode not in ("global", "thread_local", "relaxed"):
            raise ValueError(f"Unsupported build mode: {mode}")
        if self._state == _ENDED:
            raise RuntimeError("Cannot resume building after building has ended.")
        if self.is_building:
            raise RuntimeError("Graph builder is already building.")
        self._record()
        return self

    def end_building(self) -> GraphBuilder:
        """End to record, and return the builder."""
        self._require_building("end_building")
        if self.is_join_required:
            raise RuntimeError("a builder of split() is joined with GraphBuilder.join, and not ended by itself")
        self.stream.recorder, self._state = None, _ENDED
        return self

    def complete(self, options: Any = None) -> Graph:
        """Return the graph that was built."""
        of_options(GraphCompleteOptions, options, "Graph completion options")
        if self._state != _ENDED:
            raise RuntimeError("Graph has not finished building.")
        return Graph(self)

    def debug_dot_print(self, path: Any, options: Any = None) -> None:
        """Write the steps in Graphviz' language to a file, one after the other."""
        of_options(GraphDebugPrintOptions, options, "Graph debug print options")
        if self._state != _ENDED:
            raise RuntimeError("Graph has not finished building.")
        names = [step.name for step in _all_of(self.steps) if step.name]
        lines = [f'  {number} [label="{name}"];' for number, name in enumerate(names)]
        edges = [f"  {number} -> {number + 1};" for number in range(len(names) - 1)]
        Path(os.fsdecode(path)).write_text("\n".join(["digraph {", *lines, *edges, "}", ""]))

    def split(self, count: int) -> tuple[GraphBuilder, ...]:
        """Return this builder and `count` - 1 more, whose work may run at the same time."""
        if count < 2:
            raise ValueError(f"Invalid split count: expecting >= 2, got {count}")
        self._require_building("split")
        others = [GraphBuilder(steps=self.steps, is_forked=True) for _ in range(count - 1)]
        for other in others:
            other.conditions = self.conditions
            self.steps.append(_order(self.stream, other.stream))
        return self, *others

    @staticmethod
    def join(*graph_builders: GraphBuilder) -> GraphBuilder:
        """Return the builder whose later work comes after the work of all; the others are closed."""
        if any(not isinstance(builder, GraphBuilder) for builder in graph_builders):
            raise TypeError("All arguments must be GraphBuilder instances")
        if len(graph_builders) < 2:
            raise ValueError("Must join with at least two graph builders")
        root = min(graph_builders, key=lambda builder: builder.is_join_required)
        for builder in graph_builders:
            if builder is not root:
                builder._require_building("join")
                root.steps.append(_order(builder.stream, root.stream))
                builder.close()
        return root

    def __cuda_stream__(self) -> tuple[int, int]:
        answer: tuple[int, int] = self.stream.__cuda_stream__()
        return answer

    def close(self) -> None:
        """Close the builder; graphs of it stay."""
        if self.is_building:
            self.stream.recorder, self._state = None, _ENDED
        self.is_closed = True

    # ── conditions ──

    def create_condition(self, default_value: int | None = None) -> GraphCondition:
        """Return a condition, which each launch of the graph sets to `default_value` first."""
        self._require_building("create_condition")
        condition = GraphCondition(default_value)
        self.conditions.append(condition)
        return condition

    def _conditional(
        self, name: str, condition: Any, count: int, choose: Callable[[int], int | None], again: bool = False
    ) -> tuple[GraphBuilder, ...]:
        """Record a step that runs one of `count` bodies, and return the bodies' builders.

        `choose` returns the body's number for the condition's value, or None.
        """
        self._require_building(name)
        if not isinstance(condition, GraphCondition):
            raise TypeError(f"{name} takes a GraphCondition of create_condition(), got {shortened(condition)}")
        builders = tuple(GraphBuilder() for _ in range(count))
        own = self.stream
        for builder in builders:
            builder.conditions = self.conditions

        def run(play: Play) -> None:
            stream = play.stream(own)
            while (number := choose(condition.value)) is not None:
                play.put(builders[number].stream, stream)
                for step in builders[number].steps:
                    step.run(play)
                if not again:
                    return

        self.steps.append(Step(name, run, [builder.steps for builder in builders]))
        return builders

    def if_then(self, condition: GraphCondition) -> GraphBuilder:
        """Return the builder of a body that runs if the condition is not 0."""
        return self._conditional("if_then", condition, 1, lambda value: 0 if value else None)[0]

    def if_else(self, condition: GraphCondition) -> tuple[GraphBuilder, GraphBuilder]:
        """Return the builders of two bodies: for a condition that is not 0, and for 0."""
        first, second = self._conditional("if_else", condition, 2, lambda value: 0 if value else 1)
        return first, second

    def switch(self, condition: GraphCondition, count: int) -> tuple[GraphBuilder, ...]:
        """Return the builders of `count` bodies; the condition is the number of the one that runs."""
        return self._conditional("switch", condition, count, lambda value: value if value < count else None)

    def while_loop(self, condition: GraphCondition) -> GraphBuilder:
        """Return the builder of a body that runs again and again while the condition is not 0."""
        return self._conditional("while_loop", condition, 1, lambda value: 0 if value else None, True)[0]

    #: Names that older versions have.
    create_conditional_handle = create_condition
    if_cond = if_then

    def embed(self, child: GraphBuilder) -> None:
        """Record another graph as a part of this one."""
        self._require_building("embed")
        if not isinstance(child, GraphBuilder):
            raise TypeError(f"embed takes a GraphBuilder, got {shortened(child)}")
        if child._state != _ENDED:
            raise ValueError("Child graph has not finished building.")
        steps, own = list(child.steps), self.stream

        def run(play: Play) -> None:
            play.put(child.stream, play.stream(own))
            for step in steps:
                step.run(play)

        self.conditions.extend(child.conditions)
        self.steps.append(Step("child graph", run, [steps]))

    add_child = embed

    def callback(self, fn: Any, *, user_data: Any = None) -> None:
        """Record a call of a Python function, with no arguments; or of a ctypes function, with `user_data`."""
        self._require_building("callback")
        own = self.stream
        arguments = () if user_data is None and not hasattr(fn, "argtypes") else (user_data,)

        def run(play: Play) -> None:
            play.stream(own).sync()
            fn(*arguments)

        self.steps.append(Step("host callback", run))

    graph_definition: Any = property(
        raising("GraphBuilder.graph_definition: the emulator builds graphs by launches, not node by node")
    )


class Graph(MadeByOthers, Closeable):
    """A stand-in for ``cuda.core.graph.Graph``."""

    def __init__(self, builder: GraphBuilder) -> None:
        self._take(builder)
        self._last: Any = None

    def _take(self, builder: GraphBuilder) -> None:
        self._steps, self._first, self._conditions = list(builder.steps), builder.stream, list(builder.conditions)

    __getitem__: Any = raising("graph[node]: the emulator builds graphs by launches, which make no nodes")

    def update(self, source: Any) -> None:
        """Take the steps of another builder, which ended building."""
        if not isinstance(source, GraphBuilder):
            raise CoreError("Graph.update: the emulator takes a GraphBuilder, not a graph built node by node")
        if source._state != _ENDED:
            raise ValueError("Graph has not finished building.")
        self._take(source)

    def upload(self, stream: Any) -> None:
        """Do nothing: the graph is here."""

    def launch(self, stream: Any) -> None:
        """Run the graph's steps, after its last launch."""
        if self.is_closed:
            raise RuntimeError("the graph is closed")
        target = stream_of(stream, "Graph.launch")
        if self._last is not None:
            target.wait(self._last)
        for condition in self._conditions:
            if condition.default is not None:
                condition.array[...] = int(condition.default)
        play = Play(self._first, target)
        for step in self._steps:
            step.run(play)
        self._last = target.record()
