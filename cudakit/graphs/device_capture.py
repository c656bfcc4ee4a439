"""Capture on a GPU: the driver records what is put on a stream, and cudakit who was given what."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cudakit.errors import ArgumentError, CudakitError, LaunchError
from cudakit.graphs.device_nodes import Node, checked, nodes_of
from cudakit.graphs.executable import Executable, Write
from cudakit.graphs.named_arguments import Named
from cudakit.graphs.open_capture import Recording, conditional_child, unjoined
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.places import using
from cudakit.streams import capture_state, devices
from cudakit.streams.order.order import order
from cudakit.streams.order.ranges import span_of
from cudakit.streams.streams import Known, cupy_stream, handle_of, known
from cudakit.streams.witnesses import Call, Work, add_shortcut, doing, watched, witnessing

if TYPE_CHECKING:
    from cuda.core import Stream
    from cuda.core.graph import GraphBuilder

_LEGACY = 1
_MOST_ROUNDS = 2**64 - 1
#: What the driver's refusals mean, by a part of their names.
_REASONS = {
    "ISOLATION": "it waits for an event or stream from before the capture; order that before the block",
    "UNJOINED": "work on another stream was not joined; stream.wait(other.record()) before the block ends",
    "IMPLICIT": "it uses the legacy default stream; give it the stream that is captured",
    "MERGE": "it joins two captures; join streams of one capture only",
    "CAPTURED_?EVENT": "it asks for an event of the capture, which happens at a launch only",
    "WRONG_?THREAD": "it is done by another thread than the one that captures",
    "UNSUPPORTED|is capturing": "it waits for the device, or reads or writes host memory (sync, .get(), float(x), "
    "asarray of a NumPy array); do that outside of the block",
    "INVALIDATED": "a call before it was refused by the driver",
}


class DeviceCapture(Recording):
    """A capture that is open.

    Parameters
    ----------
    target : Known
        The stream.
    named : Named

    Attributes
    ----------
    calls : dict
        cudakit's own launches, by the address of their node.
    builders : list of cuda.core.graph.GraphBuilder
        Whatever is captured: bodies of loops and branches, and the graph, which is the last.
    """

    def __init__(self, target: Known, named: Named) -> None:
        super().__init__(named)
        import cupy

        if target.handle == _LEGACY:
            raise ArgumentError("capture: the driver does not capture the legacy default stream; take ck.stream()")
        if capture_state.is_capturing(target.core):
            raise LaunchError("capture: this stream is being captured already; launch the inner graph on it instead")
        self.target = target
        self.calls: dict[int, Call] = {}
        self.loaded: list[Any] = []  # the kernels in it
        # Temporaries lie where nobody else's do, and stay there.
        self.pool: Any = cupy.cuda.MemoryPool()
        self.builders: list[GraphBuilder] = []
        self._open: list[tuple[GraphBuilder, int]] = []
        self._others: dict[int, tuple[Any, str]] = {}
        self._joined = contextlib.ExitStack()
        self._joined_handles = {target.handle}
        self._side: Any = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """The block whose calls are captured; the stream is usable afterwards, whatever happens in it."""
        core = self.target.core
        with contextlib.ExitStack() as stack:
            stack.enter_context(devices.on_device(self.target.device_id))
            cupy = stack.enter_context(using(core))
            stack.enter_context(cupy.cuda.using_allocator(self.pool.malloc))
            stack.enter_context(order().capturing(core))
            stack.enter_context(self._joined)
            stack.enter_context(witnessing(self))
            try:
                self._begin(core.create_graph_builder())
                yield
                self.check_whole()
                self._check_joined(self.target.core)
                self._end()
            except BaseException as error:
                self._abort()
                _explain(error)
                raise
            finally:
                capture_state.end(self)

    def finished(self) -> DeviceGraph:
        """The executable graph, once the block has ended."""
        return DeviceGraph(self)

    @contextlib.contextmanager
    def conditional(self, flag: Any, limit: int | None, again: bool) -> Iterator[Stream]:
        """Capture a loop's or branch's body, on a stream of its own."""
        import cupy

        try:
            condition = self.builder.create_condition(default_value=0)
        except RuntimeError as error:
            raise LaunchError(f"graph: loops and branches need a driver for CUDA 12.4 or newer: {error}") from error
        decide = Kernel.from_template("graph/set_condition")
        once = config(1, 1)
        numbers = cupy.empty(1, np.uint64), _MOST_ROUNDS if limit is None else limit
        decide(self.builder.stream, once, int(condition.handle), flag, *numbers, True)
        # No local name may hold a builder: an error's traceback would keep its capture open.
        self._begin(self.builder.while_loop(condition) if again else self.builder.if_then(condition))
        inner = self.builder.stream
        self.join(known(inner))
        with self.body():
            with cupy_stream(inner):
                yield inner
                if again:
                    decide(inner, once, int(condition.handle), flag, *numbers, False)
            self._check_joined(inner)
            self._end()

    def join(self, target: Known) -> None:
        """Let the order know that a stream is of this capture: it has waited for one that is."""
        if target.handle not in self._joined_handles:
            self._joined_handles.add(target.handle)
            self._joined.enter_context(order().capturing(target.core))

    def embed(self, core: Stream, builder: GraphBuilder, loaded: Iterable[Any]) -> None:
        """Put another graph, and the kernels in it, into this one, on the stream that is captured now."""
        if handle_of(core) != handle_of(self.builder.stream):
            raise LaunchError(
                "graph: inside a capture a graph is launched on the captured stream; inside a loop or branch, on "
                "the one that the with statement yields"
            )
        self.builder.embed(builder)
        for each in loaded:
            self._hold(each)

    def _hold(self, loaded: Any) -> None:
        self.loaded.append(loaded)
        loaded.holders.add(self)

    def _begin(self, builder: GraphBuilder) -> None:
        builder.begin_building("relaxed")
        _, number, _ = _state(builder.stream)
        self._open.append((builder, number))
        capture_state.begin(self, number)

    def _end(self) -> None:
        try:
            self.builder.end_building()
        except Exception:
            # Others than cudakit work in it on a stream that was not joined. The driver dies of what is destroyed then.
            for builder, _ in self._open:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(builder))
            raise
        self.builders.append(self._open.pop()[0])

    def _abort(self) -> None:
        """End the capture without a graph."""
        from cuda.bindings import driver

        # A builder that is dropped ends its own capture; the inner ones first. The driver dies of one that ends while
        # other streams are still a part of it.
        while self._open:
            builder, number = self._open[-1]
            for stream, _ in self._others.values():
                if _state(stream)[1] == number:
                    with contextlib.suppress(Exception):
                        builder.stream.wait(stream)
            del builder
            self._open.pop()
        self.builders.clear()
        if capture_state.is_capturing(self.target.core):
            driver.cuStreamEndCapture(driver.CUstream(self.target.handle))

    @property
    def builder(self) -> GraphBuilder:
        """The graph, or the body, that is captured now."""
        return self._open[-1][0]

    # ── what others ask of a capture ──

    def clear(self, array: Any) -> None:
        with self._aside() as stream:
            array.data.memset_async(0, array.nbytes, stream)

    def upload(self, array: np.ndarray) -> Any:
        import cupy

        with self._aside():
            made = cupy.asarray(array)
        self.kept.append(made)
        return made

    @contextlib.contextmanager
    def _aside(self) -> Iterator[Any]:
        """CuPy on a stream outside of the capture, waited for."""
        import cupy

        if self._side is None:
            self._side = cupy.cuda.Stream(non_blocking=True)
        with self._side:
            yield self._side
        self._side.synchronize()

    def _is_inside(self, stream: Any) -> bool:
        return capture_state.found(stream)[1] == self._open[-1][1]

    def _note(self, work: Work) -> None:
        _, _, last = _state(work.stream)
        if work.kind == "kernel" and len(last) == 1:
            self.calls[int(last[0])] = work.detail
        if work.kind == "kernel":
            self._hold(work.detail.target)
        handle = handle_of(work.stream)
        if len(self._open) == 1 and handle != self.target.handle:
            self._others[handle] = (work.stream, work.name)

    def _check_joined(self, core: Stream) -> None:
        """Raise where work on another stream of a capture does not come before the end of its first."""
        _, number, last = _state(core)
        others = [(stream, name) for stream, name in self._others.values() if _state(stream)[1] == number]
        seen: set[int] = set()
        waiting = list(last)
        while waiting and others:
            node = waiting.pop()
            if int(node) not in seen:
                seen.add(int(node))
                waiting += _before(node)
        left = [name for stream, name in others if not {int(node) for node in _state(stream)[2]} <= seen]
        if left:
            raise unjoined(left)


class DeviceGraph(Executable):
    """A captured graph, executable on its device."""

    by_address = True
    _capture: DeviceCapture

    def __init__(self, capture: DeviceCapture) -> None:
        self.device_id: int = capture.target.device_id
        self._builder = capture.builders[-1]
        self._executable = self._builder.complete()
        self._handle = self._executable.handle
        graphs = [builder.graph_definition.handle for builder in reversed(capture.builders)]
        super().__init__(capture, nodes_of(graphs, capture.named, capture.calls))
        for name, uses in self._uses.items():
            if name in capture.named.arrays and any(node.foreign for node, _ in uses):
                # Who else than cudakit uses a named array may read it and write it.
                capture.reads[name] = capture.writes[name] = name
        self._spans = {key: span_of(array) for key, array in (*capture.reads.items(), *capture.writes.items())}
        self._dirty: dict[int, Node] = {}
        # Stream as given and as launched on, and CuPy's current one, with which a launch needs no ordering.
        self._settled: tuple[Any, Any, Any] | None = None
        self._order()
        order().watch(self)
        add_shortcut(self)

    def watch(self, watched: bool) -> None:
        """While there are witnesses every launch is told to them."""
        if watched:
            self.unsettle()

    def unsettle(self) -> None:
        """No launch may skip the order any more."""
        self._settled = None

    def _changed(self, uses: Sequence[tuple[Node, Write]]) -> None:
        for node, _ in uses:
            self._dirty[id(node)] = node
        self._settled = None

    def _order(self) -> None:
        """Find out what the graph reads and writes, with the named arrays as they are now."""
        capture, spans = self._capture, self._spans
        spans.update((name, (memory.low, memory.high)) for name, memory in capture.named.now.items())
        self._read = tuple(spans[key] for key in capture.reads)
        self._written = tuple(spans[key] for key in capture.writes)

    def launch(self, stream: Any, graph: Any) -> None:
        settled = self._settled
        if settled is not None and settled[0] is stream and settled[2] is self._cupy_stream():
            checked(settled[1](), "its launch")
            return
        target = known(stream)
        if target.device_id != self.device_id:
            raise LaunchError(f"graph: captured on device {self.device_id}, the stream is of device {target.device_id}")
        outer = capture_state.current(target.core)
        if outer is None and not watched():
            self._launch(target, graph)
            return
        capture = self._capture
        reads, writes = capture.touched(capture.reads), capture.touched(capture.writes)
        with doing("graph", "graph", target.core, reads, writes, 0, graph):
            if outer is None:
                self._launch(target, graph)
            else:
                if len(self._capture.builders) > 1:
                    raise conditional_child()
                for node, _ in (use for uses in self._uses.values() for use in uses):
                    node.define()
                outer.embed(target.core, self._builder, self._capture.loaded)

    def _launch(self, target: Known, graph: Any) -> None:
        devices.make_current(self.device_id)
        if self._dirty:
            self._push()
        ordered, current = order(), self._cupy_stream()
        with ordered.lock:
            use = ordered.before(target, self._read, self._written, (current.ptr or _LEGACY,))
            start = self._start_on(target.core)
            checked(start(), "its launch")
            if not watched() and devices.device_count() < 2 and ordered.settle(use, self):
                self._settled = (target.given, start, current)
            ordered.after(use, (graph, self._capture.touched(self._capture.reads)))

    def _start_on(self, core: Stream) -> Callable[[], Any]:
        """The driver's own launch, outside the interpreter's lock.

        It may wait in the driver for room in the stream's queue; threads that bring results to host arrays, for which
        the stream may wait in turn, must be able to go on meanwhile.
        """
        from cuda.bindings import driver

        return functools.partial(driver.cuGraphLaunch, self._handle, driver.CUstream(int(core.handle)))

    def _cupy_stream(self) -> Any:
        return sys.modules["cupy"].cuda.get_current_stream()

    def _push(self) -> None:
        self._order()
        with devices.on_device(self.device_id):
            for node in self._dirty.values():
                node.push(self._handle)
        self._dirty.clear()

    def dot(self) -> str:
        """The graph as the driver writes it."""
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "graph.dot")
            self._builder.debug_dot_print(str(path))
            return path.read_text()


def _state(stream: Any) -> tuple[int, int, list[Any]]:
    """Whether a stream is captured, the capture's number, and the nodes that the next one will come after."""
    from cuda.bindings import driver

    found = checked(driver.cuStreamGetCaptureInfo(driver.CUstream(handle_of(stream))), "the state of a capture")
    return int(found[0]), int(found[1]), list(found[3] or ())[: int(found[-1])]


def _before(node: Any) -> list[Any]:
    from cuda.bindings import driver

    *_, count = checked(driver.cuGraphNodeGetDependencies(node, 0), "what a node depends on")
    nodes, *_ = checked(driver.cuGraphNodeGetDependencies(node, count), "what a node depends on")
    return list(nodes)[:count]


def _explain(error: BaseException) -> None:
    """Raise a `LaunchError` where the driver, or CuPy, refused a call because of the capture."""
    text = str(error)
    own = isinstance(error, CudakitError) and "STREAM_CAPTURE" not in text
    if own or not isinstance(error, Exception) or not re.search("capture|capturing|invalidated", text, re.IGNORECASE):
        return
    for pattern, reason in _REASONS.items():
        if re.search(pattern, text, re.IGNORECASE):
            raise LaunchError(f"capture: a call in the block cannot be captured: {reason} ({text})") from error
