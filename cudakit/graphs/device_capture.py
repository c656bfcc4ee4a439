"""Capture on a GPU: the driver records the work put on a stream, and cudakit records the arguments of its calls.

Any parameter of a kernel may contain an address: a pointer, a strided array, a struct, or the arrays that CuPy passes
by value. A node's parameters are therefore searched for addresses within the named arrays, eight bytes at a time.
Numbers that cudakit itself passed are excepted. Views of an array are found, too, and keep their offset.

The driver's bindings change the nodes, because cuda.core's nodes (1.2) have three limits:

- They take all arguments of a kernel again, as Python objects. For kernels of other libraries these are unknown.
- They refuse kernels with clusters and cooperative kernels.
- They support copies of one dimension only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from cuda.bindings import driver

from cudakit.errors import ArgumentError, CudakitError, LaunchError
from cudakit.graphs.recording import (
    ADDRESS,
    UNSETTLED,
    VALUES,
    Executable,
    NamedArguments,
    Recording,
    Step,
    Write,
    conditional_child,
    unjoined,
)
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.places import using
from cudakit.streams import devices, streams
from cudakit.streams.order import order
from cudakit.streams.segments import span_of
from cudakit.streams.streams import DeviceStream, cupy_stream, device_stream, handle_of
from cudakit.streams.witnesses import Call, Work, add_shortcut, doing, watched, witnessing
from cudakit.types import scalars
from cudakit.types.arguments import texture_handle

if TYPE_CHECKING:
    from cuda.core import Stream
    from cuda.core.graph import GraphBuilder


#: The most parameters that a kernel can have: 32764 bytes of them.
_MOST_PARAMETERS = 8192


def checked(result: tuple[Any, ...], action: str) -> Any:
    """Return the results of a driver call without its status.

    `action` names the call in the error.

    Raises
    ------
    LaunchError
        If the status is an error.
    """
    status, *rest = result
    if int(status) != 0:
        raise LaunchError(f"graph: the driver refused {action}: {status.name}")
    return rest[0] if len(rest) == 1 else rest


class Node(Step):
    """A node of a graph. A node that can be changed also holds its parameters."""

    #: What the driver's functions for it have in their names, if there are any.
    family = ""
    #: Whether those want the context.
    in_context = True
    _parameters: Any

    def __init__(self, handle: Any, name: str, change: str = "") -> None:
        super().__init__(name)
        self.handle, self._change = handle, change
        self.foreign = True
        self._set: Callable[..., tuple[Any]] | None = (
            getattr(driver, f"cuGraphExec{self.family}NodeSetParams") if self.family else None
        )

    def push(self, executable: Any) -> None:
        """Change the node in an executable graph, for its next launches. Its device must be current."""
        if self._set is None:
            return
        context = (checked(driver.cuCtxGetCurrent(), "the current context"),) if self.in_context else ()
        (status,) = result = self._set(executable, self.handle, self._parameters, *context)
        if status:
            checked(result, self._change)

    def define(self) -> None:
        """Change the node in the graph itself, for graphs that embed it."""
        if self.family:
            checked(getattr(driver, f"cuGraph{self.family}NodeSetParams")(self.handle, self._parameters), self._change)

    def _find_place(self, arguments: NamedArguments, field: str, on_host: bool = False) -> None:
        """Look for a named array that contains the address in the node's parameter `field`.

        If there is one, add a use to the node: a new array's address, at the same distance, is then written to the
        field. `on_host` says that the field holds an address of host memory.
        """
        parameters = self._parameters
        location = arguments.holding(int(getattr(parameters, field) or 0))
        if location is not None:
            name, distance = location

            def write(address: int) -> None:
                value = address + distance
                setattr(parameters, field, value if on_host else driver.CUdeviceptr(value))

            self.uses.append((name, write))


class KernelNode(Node):
    """A kernel, launched by cudakit (with a known call) or by another library."""

    family, in_context = "Kernel", False

    def __init__(self, handle: Any, arguments: NamedArguments, call: Call | None) -> None:
        self._parameters = checked(driver.cuGraphKernelNodeGetParams(handle), "a kernel node's parameters")
        kernel, function = self._parameters.kern, self._parameters.func
        name = _kernel_name(kernel, function) if call is None else str(call.target.specialization.name_expression)
        super().__init__(handle, name, f"other arguments for {name}")
        self.foreign = call is None
        if not arguments.values or not int(self._parameters.kernelParams or 0):
            return
        layout = _layout(kernel, function, self.name)
        if not layout:
            return
        source = (ctypes.c_void_p * len(layout)).from_address(int(self._parameters.kernelParams))
        size = layout[-1][0] + layout[-1][1]
        self._memory = ctypes.create_string_buffer(size + 64)
        base = -(-ctypes.addressof(self._memory) // 64) * 64
        for address, (offset, width) in zip(source, layout, strict=True):
            ctypes.memmove(base + offset, address, width)
        self._pointers = (ctypes.c_void_p * len(layout))(*[base + offset for offset, _ in layout])
        self._parameters.kernelParams = ctypes.addressof(self._pointers)
        self._view = memoryview(self._memory).cast("B")[base - ctypes.addressof(self._memory) :]
        # An array that is taken whole is several of the driver's parameters.
        parameters = () if call is None else call.target.parameters
        owners = [position for position, parameter in enumerate(parameters) for _ in range(parameter.parts)]
        for number, (offset, width) in enumerate(layout):
            position = owners[number] if number < len(owners) else 0
            category = parameters[position].category if number < len(owners) else None
            if call is not None and category in VALUES:
                if texture_handle(call.arguments[position]) is not None:
                    arguments.refuse_inside(span_of(call.arguments[position])[0], self.name, "texture")
                self._find_number_at(arguments, call, position, offset)
            elif category == "tensor_map":
                for place, *_ in arguments.addresses_in(self._view[offset : offset + width]):
                    arguments.refuse_inside(ADDRESS.unpack_from(self._view, offset + place)[0], self.name, "tensor map")
            else:
                view = self._view[offset : offset + width]
                self.find_addresses(arguments, view, functools.partial(ADDRESS.pack_into, view))

    def _find_number_at(self, arguments: NamedArguments, call: Call, position: int, offset: int) -> None:
        parameter, view = call.target.parameters[position], self._view

        def put(value: Any, converted: Any) -> None:
            data = scalars.to_bytes(converted, parameter.dtype)
            view[offset : offset + len(data)] = data

        self.find_number(arguments, parameter, call.arguments[position], put)


class CopyNode(Node):
    """A node that copies from one memory range to another."""

    family = "Memcpy"

    def __init__(self, handle: Any, arguments: NamedArguments) -> None:
        parameters = self._parameters = checked(driver.cuGraphMemcpyNodeGetParams(handle), "a copy node's parameters")
        size = parameters.WidthInBytes * max(1, parameters.Height)
        super().__init__(handle, f"copy of {size} bytes", "other places for a copy")
        for side in ("src", "dst"):
            on_host = getattr(parameters, f"{side}MemoryType") == driver.CUmemorytype.CU_MEMORYTYPE_HOST
            self._find_place(arguments, f"{side}{'Host' if on_host else 'Device'}", on_host)


class FillNode(Node):
    """A node that fills memory with one value."""

    family = "Memset"

    def __init__(self, handle: Any, arguments: NamedArguments) -> None:
        parameters = self._parameters = checked(driver.cuGraphMemsetNodeGetParams(handle), "a fill node's parameters")
        size = parameters.elementSize * parameters.width * max(1, parameters.height)
        super().__init__(handle, f"fill of {size} bytes", "another place for a fill")
        self._find_place(arguments, "dst")


def nodes_of(graphs: Iterable[Any], arguments: NamedArguments, calls: Mapping[int, Call]) -> list[Node]:
    """Return the nodes of graphs, and of the graphs inside them.

    Parameters
    ----------
    graphs : iterable of CUgraph
        Graphs whose nodes are returned.
    arguments : NamedArguments
        Named arguments to look for in the nodes' parameters.
    calls : mapping
        Calls that cudakit made, by the address of their node.
    """
    node_types = driver.CUgraphNodeType
    result: list[Node] = []
    waiting = list(graphs)
    while waiting:
        for handle in _listed(driver.cuGraphGetNodes, waiting.pop(0), "a graph's nodes"):
            node_type = checked(driver.cuGraphNodeGetType(handle), "a node's type")
            if node_type == node_types.CU_GRAPH_NODE_TYPE_KERNEL:
                result.append(KernelNode(handle, arguments, calls.get(int(handle))))
            elif node_type == node_types.CU_GRAPH_NODE_TYPE_MEMCPY:
                result.append(CopyNode(handle, arguments))
            elif node_type == node_types.CU_GRAPH_NODE_TYPE_MEMSET:
                result.append(FillNode(handle, arguments))
            else:
                result.append(Node(handle, node_type.name.removeprefix("CU_GRAPH_NODE_TYPE_").lower()))
            if node_type == node_types.CU_GRAPH_NODE_TYPE_GRAPH:
                waiting.append(checked(driver.cuGraphChildGraphNodeGetGraph(handle), "a graph inside a graph"))
    return result


def _listed(call: Callable[[Any, int], tuple[Any, ...]], owner: Any, words: str) -> list[Any]:
    """Return the nodes that a driver call lists for `owner`. `words` names the call in the error."""
    *_, count = checked(call(owner, 0), words)
    nodes, *_ = checked(call(owner, count), words)
    return list(nodes)[:count]


def _layout(kernel: Any, function: Any, name: str) -> list[tuple[int, int]]:
    """Return (offset, size) in bytes for each parameter of a kernel.

    The driver is asked by `function`, or by `kernel` if the number of `function` is 0. `name` is for the error.
    """
    layout: list[tuple[int, int]] = []
    for position in range(_MOST_PARAMETERS):
        if int(function):
            status, offset, size = driver.cuFuncGetParamInfo(function, position)
        else:
            status, offset, size = driver.cuKernelGetParamInfo(kernel, position)
        if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
            break
        if int(status) != 0:
            raise LaunchError(
                f"graph: the driver does not tell the parameters of {name} ({status.name}), which named arguments "
                "need; it is older than CUDA 12.4: update it, or name nothing"
            )
        layout.append((int(offset), int(size)))
    return layout


def _kernel_name(kernel: Any, function: Any) -> str:
    name_result = driver.cuFuncGetName(function) if int(function) else driver.cuKernelGetName(kernel)
    return str(checked(name_result, "a kernel's name").decode())


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
    """An open capture on a GPU.

    Parameters
    ----------
    target : DeviceStream
        Stream that is captured.
    arguments : NamedArguments
        Named arguments of the graph.

    Attributes
    ----------
    calls : dict
        cudakit's own launches, by the address of their node.
    builders : list of cuda.core.graph.GraphBuilder
        All open captures: bodies of loops and branches, and the graph, which is the last.
    """

    def __init__(self, target: DeviceStream, arguments: NamedArguments) -> None:
        import cupy

        if target.handle == _LEGACY:
            raise ArgumentError("capture: the driver does not capture the legacy default stream; take ck.stream()")
        super().__init__(arguments, streams.is_capturing(target.core))
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
        """Capture the calls of a ``with`` block. The stream is usable afterwards in any case."""
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
                streams.end(self)

    def finished(self) -> DeviceGraph:
        """Return the executable graph, after the block has ended."""
        return DeviceGraph(self)

    @contextlib.contextmanager
    def conditional(self, flag: Any, limit: int | None, again: bool) -> Iterator[Stream]:
        """Capture the calls of a ``with`` block as the body of a loop or branch. Yield the stream for these calls.

        The body runs while (`again` True) or if (`again` False) ``flag[0] != 0`` on the device. `limit` is the most
        rounds of a loop.
        """
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
        self.join(device_stream(inner))
        with self.body():
            with cupy_stream(inner):
                yield inner
                if again:
                    decide(inner, once, int(condition.handle), flag, *numbers, False)
            self._check_joined(inner)
            self._end()

    def join(self, target: DeviceStream) -> None:
        """Make a stream that has waited for a stream of this capture a part of this capture."""
        if target.handle not in self._joined_handles:
            self._joined_handles.add(target.handle)
            self._joined.enter_context(order().capturing(target.core))

    def embed(self, core: Stream, builder: GraphBuilder, loaded: Iterable[Any]) -> None:
        """Add another graph as a child to this graph, and keep its kernels loaded.

        `core` is the stream of the launch. `builder` holds the other graph, and `loaded` are its kernels. Raises
        `LaunchError` if `core` is not the stream that is captured now.
        """
        if handle_of(core) != handle_of(self.builder.stream):
            raise LaunchError(
                "graph: inside a capture a graph is launched on the captured stream; inside a loop or branch, on "
                "the one that the with statement yields"
            )
        self.builder.embed(builder)
        for kernel in loaded:
            self._hold(kernel)

    def _hold(self, loaded: Any) -> None:
        self.loaded.append(loaded)
        loaded.holders.add(self)

    def _begin(self, builder: GraphBuilder) -> None:
        builder.begin_building("relaxed")
        _, number, _ = _state(builder.stream)
        self._open.append((builder, number))
        streams.begin(self, number)

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
        if streams.is_capturing(self.target.core):
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
            result = cupy.asarray(array)
        self.kept_alive.append(result)
        return result

    @contextlib.contextmanager
    def _aside(self) -> Iterator[Any]:
        """Run CuPy's work inside the block on a stream outside of the capture. Wait for the work at the block's end."""
        import cupy

        if self._side is None:
            self._side = cupy.cuda.Stream(non_blocking=True)
        with self._side:
            yield self._side
        self._side.synchronize()

    def _is_inside(self, stream: Any) -> bool:
        return streams.capture_and_number(stream)[1] == self._open[-1][1]

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
        """Raise if work on another stream of the capture is not joined before its end."""
        _, number, last = _state(core)
        others = [(stream, name) for stream, name in self._others.values() if _state(stream)[1] == number]
        visited: set[int] = set()
        waiting = list(last)
        while waiting and others:
            node = waiting.pop()
            if int(node) not in visited:
                visited.add(int(node))
                waiting += _listed(driver.cuGraphNodeGetDependencies, node, "what a node depends on")
        left = [name for stream, name in others if not {int(node) for node in _state(stream)[2]} <= visited]
        if left:
            raise unjoined(left)


class DeviceGraph(Executable):
    """A captured graph, executable on its device."""

    by_address = True
    _capture: DeviceCapture

    def __init__(self, capture: DeviceCapture) -> None:
        self.device_id: int = capture.target.device_id
        self._builder = capture.builders[-1]
        graphs = [builder.graph_definition.handle for builder in reversed(capture.builders)]
        super().__init__(capture, nodes_of(graphs, capture.named_arguments, capture.calls))
        # cuda.core's executable takes twice as long to launch.
        is_allocating = any(node.name == "mem_alloc" for node in self.nodes)
        flags = driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH if is_allocating else 0
        self._handle = checked(driver.cuGraphInstantiate(graphs[0], int(flags)), "the graph")
        weakref.finalize(self, driver.cuGraphExecDestroy, self._handle).atexit = False
        for name, uses in self._uses.items():
            if name in capture.named_arguments.arrays and any(node.foreign for node, _ in uses):
                # Who else than cudakit uses a named array may read it and write it.
                capture.reads[name] = capture.writes[name] = name
        self._spans = {key: span_of(array) for key, array in (*capture.reads.items(), *capture.writes.items())}
        self._dirty: dict[int, Node] = {}
        runtime, self._cupy_stream = _cupy_calls(self.device_id)
        self._launch_on = functools.partial(runtime.graphLaunch, int(self._handle))
        self._order()
        order().watch(self)
        add_shortcut(self)

    def watch(self, watched: bool) -> None:
        """Report every launch while there are witnesses."""
        if watched:
            self.unsettle()

    def unsettle(self) -> None:
        """Make each launch take part in the order between streams again."""
        self.settled = UNSETTLED

    def _changed(self, uses: Sequence[tuple[Node, Write]]) -> None:
        for node, _ in uses:
            self._dirty[id(node)] = node
        self._is_stale = True
        if not order().single:  # else the stream itself orders whatever memory the graph uses
            self.settled = UNSETTLED

    def _order(self) -> None:
        """Compute what the graph reads and writes, with the present named arrays."""
        capture, spans = self._capture, self._spans
        for name in capture.named_arguments.arrays:
            memory = capture.named_arguments.memory(name)
            if memory is not None:
                spans[name] = memory.low, memory.high
        self._read = tuple(spans[key] for key in capture.reads)
        self._written = tuple(spans[key] for key in capture.writes)
        self._is_stale = False

    def launch(self, stream: Any, graph: Any) -> None:
        target = device_stream(stream)
        if target.device_id != self.device_id:
            raise LaunchError(f"graph: captured on device {self.device_id}, the stream is of device {target.device_id}")
        outer = streams.current(target.core)
        if outer is None and not watched():
            self._launch(target, graph)
            return
        with doing("graph", "graph", target.core, self.reads, self.writes, 0, graph):
            if outer is None:
                self._launch(target, graph)
            else:
                if len(self._capture.builders) > 1:
                    raise conditional_child()
                for node, _ in (use for uses in self._uses.values() for use in uses):
                    node.define()
                outer.embed(target.core, self._builder, self._capture.loaded)

    def _launch(self, target: DeviceStream, graph: Any) -> None:
        devices.make_current(self.device_id)
        self.push()
        if self._is_stale:
            self._order()
        ordered, current = order(), self._cupy_stream()
        with ordered.lock:
            use = ordered.before(target, self._read, self._written, (current.ptr or _LEGACY,))
            # The driver's own launch is outside the interpreter's lock. It may wait in the driver for room in the
            # stream's queue; threads that bring results to host arrays, for which the stream may wait in turn, must be
            # able to go on meanwhile. CuPy's call costs the host half as much as the driver's bindings.
            start = functools.partial(self._launch_on, int(target.core.handle))
            with devices.on_device(self.device_id):
                start()
            if not watched() and devices.device_count() < 2 and ordered.settle(use, self):
                self.settled = target.stream, start, current, self._cupy_stream
            ordered.after(use, (graph, self.reads))

    def push(self) -> None:
        """Change the dirty nodes in the driver's executable graph."""
        if self._dirty:
            try:
                with devices.on_device(self.device_id):
                    for node in self._dirty.values():
                        node.push(self._handle)
            except BaseException:
                self.settled = UNSETTLED  # the next launch tries again
                raise
            self._dirty.clear()

    def dot(self) -> str:
        """Return the graph in Graphviz' language, as the driver writes it."""
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "graph.dot")
            self._builder.debug_dot_print(str(path))
            return path.read_text()


def _cupy_calls(device_id: int) -> tuple[Any, Callable[[], Any]]:
    """Return CuPy's calls of CUDA's runtime, and the function that returns CuPy's current stream."""
    from cupy.cuda import get_current_stream, runtime

    # With an explicit device CuPy does not ask the runtime for the thread's current one.
    single = devices.device_count() < 2
    return runtime, functools.partial(get_current_stream, device_id) if single else get_current_stream


def _state(stream: Any) -> tuple[int, int, list[Any]]:
    """Return a stream's capture status, the capture's number, and the nodes that its next node depends on.

    The status is 0 if the stream is not captured.
    """
    state = checked(driver.cuStreamGetCaptureInfo(driver.CUstream(handle_of(stream))), "the state of a capture")
    return int(state[0]), int(state[1]), list(state[3] or ())[: int(state[-1])]


def _explain(error: BaseException) -> None:
    """Raise a `LaunchError` if the driver, or CuPy, refused a call because of the capture; else return."""
    text = str(error)
    own = isinstance(error, CudakitError) and "STREAM_CAPTURE" not in text
    if own or not isinstance(error, Exception) or not re.search("capture|capturing|invalidated", text, re.IGNORECASE):
        return
    for pattern, reason in _REASONS.items():
        if re.search(pattern, text, re.IGNORECASE):
            raise LaunchError(f"capture: a call in the block cannot be captured: {reason} ({text})") from error
