"""`capture` and the `Graph` that it makes, the same in both places."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cudakit.errors import ArgumentError, CudakitError, LaunchError, shortened
from cudakit.graphs.recording import Executable, Named, is_readonly, memory_of
from cudakit.jit.launch.tracebacks import cut
from cudakit.places import DEVICES, place_of
from cudakit.streams.streams import known
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
        The stream that was captured, on which a launch goes unless another is given.

    Notes
    -----
    The graph keeps alive what cudakit's calls were given, what was named, and all memory that was allocated inside the
    block. An array that only CuPy's own operations used, made before the block and not named, is for the caller to keep
    alive: `keep` does it. Launches of one graph come one after another, whatever streams they are on.
    """

    def __init__(self, stream: Any, named: Named, open_capture: DeviceCapture | EmulatedCapture) -> None:
        self.stream = stream
        self._named = named
        self._capture: DeviceCapture | EmulatedCapture = open_capture
        self._executable: Executable | None = None
        self._failed = False
        self._lock = threading.RLock()

    # ── inside the block ──

    def __getitem__(self, name: str) -> Any:
        """The argument of a name, to be given to calls inside the block; numbers must be taken from here."""
        return self._named.value(name)

    def keep(self, *things: Any) -> None:
        """Keep objects alive as long as the graph."""
        self._capture.kept.extend(things)

    def loop(self, flag: Any, limit: int | None = None) -> contextlib.AbstractContextManager[Any]:
        """A loop inside the block: ``while flag[0] != 0``, decided on the device before each round.

        Parameters
        ----------
        flag : array (1,) or ()
            Of any number's dtype. The body's calls set it; so do calls before the loop, or its launches find what the
            last one left.
        limit : int, optional
            The most rounds. A loop without one that never clears its flag hangs the device.

        Returns
        -------
        context manager
            Yields the stream that the calls of the body must be given; inside, it is CuPy's current one too.

        Raises
        ------
        LaunchError
            Outside of the block, or where the driver has no conditional nodes (CUDA 12.4).

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
        """A part of the block that runs where ``flag[0] != 0`` on the device when the launch comes there.

        Parameters and errors are those of `loop`.
        """
        return self._conditional("branch", flag, None, False)

    def _conditional(
        self, what: str, flag: Any, limit: int | None, again: bool
    ) -> contextlib.AbstractContextManager[Any]:
        if self._executable is not None or self._failed:
            raise LaunchError(f"graph.{what} is for the block in which the graph is captured, and that has ended")
        memory = memory_of(flag)
        if memory is None or math.prod(memory.shape) != 1:
            shown = type(flag).__name__ if memory is None else f"shape {memory.shape}"
            raise ArgumentError(f"graph.{what}: the flag is an array of one element, got {shown}")
        if passable(memory.dtype, f"graph.{what}: the flag").kind not in "?biufc":
            raise ArgumentError(f"graph.{what}: the flag is a number, got {memory.dtype}")
        opened: contextlib.AbstractContextManager[Any] = self._capture.conditional(flag, limit, again)
        return opened

    # ── after it ──

    def launch(self, stream: Any = None) -> None:
        """Launch the graph with the arguments that it has.

        Parameters
        ----------
        stream : stream, optional
            Any stream of the device that it was captured on; default: the captured one. While that stream is captured
            itself, the graph becomes a part of the other graph, with the arguments that it has then.

        Raises
        ------
        LaunchError
            Before the block's end, and for a stream of another device; and inside a capture, for a graph with loops
            or branches: they are conditional nodes, which the driver takes in no child graph.
        """
        self(stream)

    def __call__(self, stream: Any = None, /, **changes: Any) -> None:
        """Launch the graph with other arguments, which stay until they are changed again.

        Parameters
        ----------
        stream : stream, optional
            As for `launch`.
        **changes : array or number
            By the names given at capture. Arrays have the captured one's dtype, shape, strides and device; views of it
            that were used inside the block are taken of the new one. Numbers fit the parameters that they go to.

        Raises
        ------
        ArgumentError
            For a name that was not given at capture, and for what differs from the captured argument in more than
            memory or value. The graph is as it was then, and nothing is launched.
        LaunchError
        """
        try:
            with self._lock:
                executable = self._executable
                if executable is None:
                    why = "could not be captured" if self._failed else "is being captured; launch it after the block"
                    raise LaunchError(f"graph: it {why}")
                if changes:
                    self._change(executable, changes)
                executable.launch(self.stream if stream is None else stream, self)
        except CudakitError as error:
            cut(error)
            raise

    def _change(self, executable: Executable, changes: dict[str, Any]) -> None:
        named = self._named
        wanted = [(name, value) for name, value in changes.items() if named.values.get(name) is not value]
        for name, value in wanted:
            if name in self._capture.writes and is_readonly(value):
                raise ArgumentError(f"graph: {name} is written by the graph, and what was given is read-only; copy it")
        checked = [(name, value, named.check(name, value)) for name, value in wanted]
        former = [(name, named.values[name], named.now.get(name)) for name, _ in wanted]
        done = 0
        try:
            for name, value, memory in checked:
                executable.change(name, value, memory)
                named.put(name, value, memory)
                done += 1
        except ArgumentError:
            for name, value, memory in former[:done]:
                executable.change(name, value, memory)
                named.put(name, value, memory)
            raise

    def _finish(self, executable: Executable) -> None:
        """Take the finished graph, if each named argument is used."""
        unused = self._named.unused(name for node in executable.nodes for name, _ in node.uses)
        if unused:
            name = unused[0]
            hint = "as it is" if name in self._named.arrays else f"as graph[{shortened(name)}], not a number made of it"
            raise ArgumentError(f"capture: nothing in the graph uses {name}; give it to a call {hint}")
        self._executable = executable

    # ── to look at ──

    @property
    def nodes(self) -> tuple[str, ...]:
        """What each node does, in order of capture: a kernel's name, a copy, a fill."""
        return tuple(node.name for node in self._executable.nodes) if self._executable else ()

    def dot(self) -> str:
        """The graph in Graphviz' language, with its dependencies."""
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

    Kernel calls, plans and ops of cudakit, CuPy's operations (the stream is CuPy's current one inside) and asynchronous
    copies are captured; what waits for the device is refused. A second stream takes part once it waits for the first
    (``second.wait(stream.record())``) and is joined before the end (``stream.wait(second.record())``). What allocates
    inside does so from memory of the graph's own: arrays made in the block are results, valid after each launch.

    On the emulator cudakit's calls are recorded, and NumPy's operations run at once: they are no part of the graph.

    Parameters
    ----------
    stream : stream
        Any but the legacy default stream.
    **named : array or number
        Arguments that may be others at a launch. Arrays are given to calls as they are; numbers as ``graph["name"]``.

    Yields
    ------
    Graph

    Raises
    ------
    ArgumentError
        For a named argument that is neither array nor number, or that nothing in the graph uses.
    LaunchError
        For a call that cannot be captured, at once where cudakit or the driver sees it. The stream is usable after it.

    Examples
    --------
    >>> with ck.capture(stream, x=x, a=2.0) as graph:
    ...     saxpy(stream, ck.cover(x.size), graph["a"], x, y, x.size)
    >>> graph.launch()
    >>> graph(x=other, a=3.0)

    A pipeline's steady state is such a graph, with an item's buffers named: captured with the first ones, and launched
    as ``graph(stream, item=buffer)`` for each further item.
    """
    names = Named(named)
    open_capture: DeviceCapture | EmulatedCapture
    place = place_of(stream)
    place.check(stream)
    if place is DEVICES:
        from cudakit.graphs.device_capture import DeviceCapture

        open_capture = DeviceCapture(known(stream), names)
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
