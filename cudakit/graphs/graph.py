"""`capture` and the `Graph` that it makes, for GPUs and the emulator."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cudakit.errors import ArgumentError, CudakitError, LaunchError, raise_launch_error, shortened
from cudakit.graphs.recording import Executable, NamedArguments, is_readonly, memory_of
from cudakit.jit.launch.tracebacks import cut
from cudakit.places import DEVICES, place_of
from cudakit.streams.streams import device_stream
from cudakit.types.arguments import passable
from cudakit.types.shown import Part, Reported, Table

if TYPE_CHECKING:
    from cudakit.graphs.device_capture import DeviceCapture
    from cudakit.graphs.emulated_capture import EmulatedCapture


class Graph(Reported):
    """Captured calls, launched as one; made by `capture`.

    Attributes
    ----------
    stream : stream
        Captured stream. Default stream of the launches.

    Notes
    -----
    The graph keeps alive the arguments of cudakit's calls, the named arguments, and all memory allocated inside the
    block. Exception: an array that was made before the block, is not named, and was used only by CuPy's own operations.
    Pass it to `keep`, or keep a reference. Launches of one graph run one after another, on any streams.
    """

    def __init__(self, stream: Any, arguments: NamedArguments, open_capture: DeviceCapture | EmulatedCapture) -> None:
        self.stream = stream
        self._named = arguments
        self._capture: DeviceCapture | EmulatedCapture = open_capture
        self._executable: Executable | None = None
        self._failed = False
        lock = threading.RLock()
        # By hand, which costs half of what a `with` does.
        self._acquire, self._release = lock.acquire, lock.release

    # ── inside the block ──

    def __getitem__(self, name: str) -> Any:
        """Return the named argument `name`, for calls inside the block. Pass named numbers to calls in this form."""
        return self._named.value(name)

    def keep(self, *things: Any) -> None:
        """Keep objects alive as long as the graph exists."""
        self._capture.kept_alive.extend(things)

    def loop(self, flag: Any, limit: int | None = None) -> contextlib.AbstractContextManager[Any]:
        """Capture a loop inside the block: ``while flag[0] != 0``, decided on the device before each round.

        Parameters
        ----------
        flag : array (1,) or ()
            Condition of the loop, of any numeric dtype. Calls of the body set it. Calls before the loop should set it,
            too: otherwise a launch starts with the value that the last launch left.
        limit : int, optional
            Most rounds of the loop. Without a limit, a loop that never clears its flag hangs the device.

        Returns
        -------
        context manager
            Yields the stream for the calls of the body. Inside, it is CuPy's current stream, too.

        Raises
        ------
        LaunchError
            Outside of the block, or if the driver has no conditional nodes (CUDA 12.4).

        Examples
        --------
        >>> with ck.capture(stream) as graph:
        ...     with graph.loop(unfinished, limit=1000) as inner:
        ...         relax(inner, ck.cover(x.size), x, unfinished, x.size)
        """
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise ArgumentError(f"graph.loop: limit is a number of rounds, 0 or more, got {shortened(limit)}")
        return self._conditional("loop", flag, limit, True)

    def branch(self, flag: Any) -> contextlib.AbstractContextManager[Any]:
        """Capture a part of the block that runs only if ``flag[0] != 0`` on the device when its turn comes.

        Parameters, return value and errors are those of `loop`.
        """
        return self._conditional("branch", flag, None, False)

    def _conditional(
        self, construct: str, flag: Any, limit: int | None, again: bool
    ) -> contextlib.AbstractContextManager[Any]:
        if self._executable is not None or self._failed:
            raise LaunchError(f"graph.{construct} is for the block in which the graph is captured, and that has ended")
        memory = memory_of(flag)
        if memory is None or math.prod(memory.shape) != 1:
            shown = type(flag).__name__ if memory is None else f"shape {memory.shape}"
            raise ArgumentError(f"graph.{construct}: the flag is an array of one element, got {shown}")
        if passable(memory.dtype, f"graph.{construct}: the flag").kind not in "?biufc":
            raise ArgumentError(f"graph.{construct}: the flag is a number, got {memory.dtype}")
        opened: contextlib.AbstractContextManager[Any] = self._capture.conditional(flag, limit, again)
        return opened

    # ── after it ──

    def launch(self, stream: Any = None) -> None:
        """Launch the graph with its present arguments.

        Parameters
        ----------
        stream : stream, optional
            Any stream of the device on which the graph was captured. Default: the captured stream. If the stream is
            being captured, the graph becomes a part of the other graph, with its present arguments.

        Raises
        ------
        LaunchError
            Before the end of the block, and for a stream of another device. Inside a capture: for a graph with loops or
            branches. They are conditional nodes, which the driver does not support in child graphs.
        """
        if stream is None:
            stream = self.stream
        try:
            self._acquire()
            try:
                executable = self._executable or self._unfinished()
                settled_stream, start, current, current_stream = executable.settled
                if settled_stream is stream and current is current_stream():
                    start()
                else:
                    executable.launch(stream, self)
            finally:
                self._release()
        except CudakitError as error:
            cut(error)
            raise
        except RuntimeError as error:
            raise_launch_error(error, "graph")
            raise

    def _unfinished(self) -> Executable:
        why = "could not be captured" if self._failed else "is being captured; launch it after the block"
        raise LaunchError(f"graph: it {why}")

    def __call__(self, stream: Any = None, /, **changes: Any) -> None:
        """Launch the graph with other arguments, which stay until they are changed again.

        Parameters
        ----------
        stream : stream, optional
            Stream to launch on, as for `launch`.
        **changes : array or number
            New values of named arguments. An array has the captured array's dtype, shape, strides and device. Views
            that were used inside the block become views of the new array. A number fits its parameters.

        Raises
        ------
        ArgumentError
            For an unknown name, and for an argument that differs from the captured argument in more than memory or
            value. The graph stays unchanged, and nothing is launched.
        LaunchError
        """
        try:
            self._acquire()
            try:
                if changes:
                    self._change(self._executable or self._unfinished(), changes)
                self.launch(stream)
            finally:
                self._release()
        except CudakitError as error:
            cut(error)
            raise

    def _change(self, executable: Executable, changes: dict[str, Any]) -> None:
        arguments, values = self._named, self._named.values
        checked = []
        for name, value in changes.items():
            if values.get(name) is value:
                continue
            address = arguments.address_of(name, value)
            if address is None:
                if name in self._capture.writes and is_readonly(value):
                    raise ArgumentError(
                        f"graph: {name} is written by the graph, and what was given is read-only; copy it"
                    )
                address = arguments.check(name, value)
            checked.append((name, value, address))
        if not checked:
            return
        former: list[tuple[str, Any]] = []
        try:
            for name, value, address in checked:
                executable.change(name, value, address)
                former.append((name, values[name]))
                values[name] = value
        except ArgumentError:
            for name, value in former:
                values[name] = value
                memory = arguments.memory(name)
                executable.change(name, value, memory and memory.address)
            raise
        executable.push()

    def _finish(self, executable: Executable) -> None:
        """Store the finished graph, after checking that each named argument is used."""
        unused = self._named.unused(name for node in executable.nodes for name, _ in node.uses)
        if unused:
            name = unused[0]
            hint = "as it is" if name in self._named.arrays else f"as graph[{shortened(name)}], not a number made of it"
            raise ArgumentError(f"capture: nothing in the graph uses {name}; give it to a call {hint}")
        self._executable = executable

    # ── to look at ──

    @property
    def nodes(self) -> tuple[str, ...]:
        """Description of each node in order of capture: a kernel's name, a copy, a fill."""
        return tuple(node.name for node in self._executable.nodes) if self._executable else ()

    def dot(self) -> str:
        """Return the graph in Graphviz' language, with its dependencies."""
        if self._executable is None:
            raise LaunchError("graph: it has no nodes before the block's end")
        return self._executable.dot()

    def _parts(self) -> Iterator[Part]:
        if self._executable is None:
            yield repr(self)
            return
        nodes = self._executable.nodes
        rows = [(k, node.name, ", ".join(dict.fromkeys(name for name, _ in node.uses))) for k, node in enumerate(nodes)]
        yield f"graph of {len(rows)} nodes"
        yield Table(("", "node", "named arguments"), rows, (0,))

    def __repr__(self) -> str:
        state = f"{len(self.nodes)} nodes" if self._executable else "failed" if self._failed else "open"
        return f"<cudakit.Graph {state}; named: {', '.join(self._named.values) or 'none'}>"


@contextlib.contextmanager
def capture(stream: Any, /, **named: Any) -> Iterator[Graph]:
    """Capture the block's calls on `stream` into a graph, instead of running them.

    Captured are: kernel calls, plans and ops of cudakit, CuPy's operations (the stream is CuPy's current stream inside)
    and asynchronous copies. Operations that wait for the device are refused. A second stream takes part once it waits
    for the first (``second.wait(stream.record())``). Join it before the end (``stream.wait(second.record())``). Arrays
    made inside the block are in memory of the graph's own. They are results, valid after each launch.

    On the emulator cudakit's calls are recorded. NumPy's operations run at once and are no part of the graph.

    Parameters
    ----------
    stream : stream
        Any stream but the legacy default stream.
    **named : array or number
        Arguments that can be changed at a launch. Pass arrays to calls as usual, and numbers as ``graph["name"]``.

    Yields
    ------
    Graph
        The graph, which can be launched after the block.

    Raises
    ------
    ArgumentError
        For a named argument that is neither array nor number, or that nothing in the graph uses.
    LaunchError
        For a call that cannot be captured, as soon as cudakit or the driver detects it. The stream stays usable.

    Examples
    --------
    >>> with ck.capture(stream, x=x, a=2.0) as graph:
    ...     saxpy(stream, ck.cover(x.size), graph["a"], x, y, x.size)
    >>> graph.launch()
    >>> graph(x=other, a=3.0)

    A loop over items can use one graph: name the item's buffer, capture with the first buffer, and launch
    ``graph(stream, item=buffer)`` for each further item.
    """
    names = NamedArguments(named)
    open_capture: DeviceCapture | EmulatedCapture
    place = place_of(stream)
    place.check(stream)
    if place is DEVICES:
        from cudakit.graphs.device_capture import DeviceCapture

        open_capture = DeviceCapture(device_stream(stream), names)
    else:
        from cudakit.graphs.emulated_capture import EmulatedCapture

        open_capture = EmulatedCapture(stream, names)
    graph = Graph(stream, names, open_capture)
    try:
        with open_capture.opened():
            yield graph
        graph._finish(open_capture.finished())
    except BaseException:
        graph._failed = True
        raise
