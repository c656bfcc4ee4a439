"""`Pipeline`: stages over a stream of items, or over the chunks of one array."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Iterable, Sequence
from itertools import groupby
from operator import length_hint
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.pipeline.io.sources import Chunks, from_array
from cudakit.pipeline.nodes import Gate, Node, Reader, Threads, same
from cudakit.pipeline.progress import Progress
from cudakit.pipeline.run import Run
from cudakit.pipeline.stages import Stage, as_stages
from cudakit.places import DEVICES, place_of
from cudakit.streams.streams import require_stream

if TYPE_CHECKING:
    from cudakit.pipeline.io.sinks import Sink
    from cudakit.pipeline.streams import Lanes

#: Items in flight for each device part, where host stages are in the pipeline too and nothing else was asked for.
_DEPTH_OF_A_SECTION = 8


class Pipeline:
    """Stages that items go through, one after another, with many items under way at a time.

    A bare function is a stage of the device: ``function(item, stream)`` is called with the item's arrays on the device
    and CuPy working on `stream`, and returns the next stage's item. ``pipeline.host(function)`` is a stage of the host:
    ``function(item)`` on a thread of its own, with NumPy arrays. An item is a NumPy array, or a tuple, list or dict
    that holds some; whatever else it holds goes along untouched. Between stages of the two kinds, arrays are copied
    through pinned memory, on streams of their own, while other items are computed.

    All device stages of all items run in order on one stream: a stage may keep the array that it was given, keep state
    on the device, and return that state each time.

    Parameters
    ----------
    stages : sequence of callable or Stage
    stream : stream, optional
        What device stages get. Default: a new one; the emulator's where there is no GPU.
    depth : int, optional
        Most items between the source and the consumer at a time. Default: 4 to 16, by what the first item takes up and
        by the free memory, and more for each host stage and where items pass quickly.
    streams : int, optional
        Streams on which device stages of successive items take turns, beside the two that copy. Default 1. More let
        kernels too small for the card run side by side; then the device stages of two items have no order.
    graph : bool
        Capture the device stages once for each item in flight and replay them: for many small kernels. All items must
        have the same shapes and dtypes, and hold arrays only; stages are not called again.
    progress : bool
        Show a line on standard error.

    Raises
    ------
    ArgumentError

    Notes
    -----
    An array that the source gives in pinned memory (``ck.empty(…, kind="pinned")``) is read where it is, and must stay
    unchanged until its result is delivered: a ring of them has more than `depth`. Any other may be changed at once.

    The source is read in the thread that asks for results, except sources that read files or sockets, and those
    wrapped in ``pipeline.ahead(source)``, which have a thread.

    Examples
    --------
    >>> pipeline = ck.Pipeline([pipeline.host(decode, threads=4), lambda x, stream: ck.ops.cumsum(x, stream=stream)])
    >>> for result in pipeline(paths):
    ...     print(result[-1])
    """

    def __init__(
        self,
        stages: Sequence[Any],
        *,
        stream: Any = None,
        depth: int | None = None,
        streams: int | None = None,
        graph: bool = False,
        progress: bool = False,
    ) -> None:
        self.stages: tuple[Stage, ...] = as_stages(stages)
        for name, number in (("depth", depth), ("streams", streams)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ArgumentError(f"Pipeline: {name} is a number from 1 up, or None; got {number!r}")
        if stream is not None and place_of(stream) is DEVICES:
            require_stream(stream)
        if graph and all(stage.on_host for stage in self.stages):
            raise ArgumentError("Pipeline: graph=True captures device stages, and all stages are the host's")
        self.stream = stream
        self.depth = depth
        self.streams = streams
        self.graph = graph
        self.progress = progress
        self._lanes: list[Lanes] = []

    def __repr__(self) -> str:
        names = ", ".join(f"host {stage.name}" if stage.on_host else stage.name for stage in self.stages)
        return f"<cudakit.Pipeline {names}>"

    def __call__(self, source: Iterable[Any]) -> Run:
        """Results for the items of `source`, in order; each is computed when it is asked for, or shortly before.

        Parameters
        ----------
        source : iterable
            Of items. See `cudakit.pipeline` for files, folders, arrays in chunks and sockets.

        Returns
        -------
        Run
            An iterator, also for ``async for``.

        Raises
        ------
        ArgumentError
            If `source` is not one. What fails later is a `PipelineError` from the iterator.
        """
        _require_source(source)
        groups = [(on_host, list(stages)) for on_host, stages in groupby(self.stages, lambda stage: stage.on_host)]
        threaded = bool(getattr(source, "threaded", False))
        gate = None
        if threaded or any(on_host for on_host, _ in groups):
            gate = Gate(self.depth) if self.depth else Gate(self._total_depth(groups), elastic=True)
        nodes: list[Node] = [Reader(source, gate)]
        try:
            if threaded:
                nodes.append(Threads(nodes[-1], Stage(same, "source", 1)))
            sections = 0
            for on_host, stages in groups:
                if on_host:
                    for stage in stages:
                        nodes.append(Threads(nodes[-1], stage))
                else:
                    nodes.append(self._section(nodes[-1], stages, sections))
                    sections += 1
            progress = Progress(length_hint(source)) if self.progress else None
        except BaseException:
            Run(nodes, gate, None, ()).close()
            raise
        return Run(nodes, gate, progress, [stage.name for stage in self.stages])

    def run(self, source: Iterable[Any], sink: Sink) -> int:
        """Give every result to `sink`, as in ``pipeline.run(from_images("in"), to_images("out"))``.

        Returns
        -------
        int
            How many there were.

        Raises
        ------
        ArgumentError
            If `source` or `sink` is none.
        PipelineError
            Then the sink leaves nothing half-written behind.
        """
        if not all(hasattr(sink, part) for part in ("__enter__", "__exit__", "write")):
            raise ArgumentError(
                f"Pipeline: a sink is what pipeline.to_array, to_npy and the like make, got {type(sink).__name__}"
            )
        count = 0
        with self(source) as results, sink:
            for item in results:
                sink.write(item)
                count += 1
        return count

    def map_array(self, array: Any, out: Any = None, *, chunk: int | None = None, halo: int = 0) -> np.ndarray:
        """The stages over `array`, chunk by chunk along its first axis: for arrays that the device cannot hold.

        Parameters
        ----------
        array : numpy.ndarray, path or Chunks
            A path is that of an ``.npy`` file, of which no more is read than is in flight; chunks are what
            `from_array` and `from_zarr` make, and have their size and halo.
        out : numpy.ndarray or path, optional
            Where the result goes: an array of as many rows, such as a memmap, or the path of an ``.npy`` file, which
            is there whole or not at all. Default: a new array.
        chunk : int, optional
            Rows in a chunk. Default: 64 MiB of them.
        halo : int
            Rows before and after a chunk that the stages are given besides, as far as the array has them, and whose
            results are dropped: a stencil of that radius sees no chunks.

        Returns
        -------
        numpy.ndarray
            (rows, …), of the shape after the first axis and the dtype that the stages return.

        Raises
        ------
        ArgumentError
            If the stages return another number of rows than they are given, or `out` does not fit.
        PipelineError
        """
        from cudakit.pipeline.chunks import map_chunks

        source = array if isinstance(array, Chunks) else from_array(array, chunk, halo=halo)
        with self(source) as results:
            return map_chunks(source, results, out)

    def close(self) -> None:
        """Destroy the streams that the pipeline has made; a later run makes new ones."""
        for lanes in self._lanes:
            lanes.close()
        self._lanes.clear()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _section(self, upstream: Node, stages: list[Stage], number: int) -> Node:
        from cudakit.pipeline.device_section import Section
        from cudakit.pipeline.streams import Lanes

        if number == len(self._lanes):
            # All sections compute on the same stream: a stage's state has one order.
            shared = self._lanes[0].computing if self._lanes else self.stream
            self._lanes.append(Lanes(shared, self.streams or 1))
        lanes = self._lanes[number]
        lanes.start()
        return Section(upstream, stages, lanes, self.depth, self.graph)

    @staticmethod
    def _total_depth(groups: list[tuple[bool, list[Stage]]]) -> int:
        on_host = sum(stage.threads + 1 for is_host, stages in groups if is_host for stage in stages)
        return on_host + _DEPTH_OF_A_SECTION * sum(not is_host for is_host, _ in groups) + 1


def _require_source(source: Any) -> None:
    if isinstance(source, (str, bytes, os.PathLike)):
        raise ArgumentError(
            f"Pipeline: a source gives items, and {source!r} is a path; give pipeline.from_array(path), from_npy, "
            "from_images or from_zarr"
        )
    if isinstance(source, AsyncIterable) and not isinstance(source, Iterable):
        raise ArgumentError("Pipeline: the source is an asynchronous one; give an iterable (the results may be async)")
    if not isinstance(source, Iterable):
        raise ArgumentError(f"Pipeline: a source is an iterable of items, got {type(source).__name__}")
