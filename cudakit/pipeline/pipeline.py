"""`Pipeline`: stages over a stream of items, or over the chunks of one array."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import length_hint
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cudakit.errors import ArgumentError, PipelineError, shortened
from cudakit.pipeline.nodes import Gate, Node, Reader, Threads, same
from cudakit.pipeline.run import Counters, Line, Run, Skipped, close_all
from cudakit.pipeline.sinks import Sink, write_arguments
from cudakit.pipeline.sources import Chunks, from_array
from cudakit.pipeline.stages import Stage, as_stages, check_calls
from cudakit.places import DEVICES, place_of
from cudakit.streams import witnesses
from cudakit.streams.devices import device_count, has_gpu, on_device
from cudakit.streams.streams import require_stream
from cudakit.types.checked import flag, is_one_of, listed, whole

if TYPE_CHECKING:
    from cudakit.pipeline.streams import Lanes

#: Items in flight for each device part, where host stages are in the pipeline too and nothing else was asked for.
_DEPTH_OF_A_SECTION = 8


class Pipeline:
    """A sequence of stages for a stream of items, with many items in flight at a time.

    A bare function is a stage of the device: ``function(item, stream)`` is called with the item's arrays on the device
    and CuPy working on `stream`, and returns the next stage's item. ``pipeline.host(function)`` is a stage of the host:
    ``function(item)`` on a thread of its own, with NumPy arrays. An item is a NumPy array, or a tuple, list or dict
    with NumPy arrays in it. Other objects in an item are passed on unchanged. Between host and device stages, arrays
    are copied through pinned memory, on separate streams, while other items are computed.

    All device stages of all items run in order on one stream. A stage may keep the array that it got, keep state on the
    device, and return this state for each item.

    A stage may be a generator. It yields nothing to drop an item, or several results. They go on one by one, in the
    item's place.

    Parameters
    ----------
    stages : sequence of callable or Stage
        Stages in the order of their calls.
    stream : stream, optional
        Stream of the device stages. Default: a new stream; the emulator's stream without a GPU.
    depth : int, optional
        Most items between the source and the consumer at a time. Default: 4 to 16, by the memory of the first item and
        the free memory; more for each host stage, and if items pass quickly.
    streams : int, optional
        Streams on which device stages of successive items take turns, beside the two streams for copies. Default 1.
        With more streams, kernels too small for the card run side by side. The device stages of two items then have no
        order.
    graph : bool
        Whether to capture the device stages once for each item in flight and to replay the graph: for many small
        kernels. All items must have the same shapes and dtypes, and consist of arrays only. The stages are not called
        again.
    progress : bool or callable
        True: show a line on standard error. A function is called with the run's `Counters` every tenth of a second, by
        the thread that takes results, and when the run is closed.
    on_error : {"raise", "skip"} or callable
        Reaction to an item on which a stage fails, or a file that cannot be read. ``"raise"``: the run ends with a
        `PipelineError`. ``"skip"``: the item is dropped. A function is called with the `PipelineError` at the item's
        turn. Its result is delivered in the item's place, unless it is None. The run ends in any case if the source
        fails, the device is lost, or the error is no `Exception`.
    devices : sequence of int, optional
        GPUs over which items are spread: each item goes to a GPU that has room. Results stay in order. Each GPU has
        `streams` streams, and a thread that calls the stages, with the GPU as the current device. State that a stage
        keeps belongs to one device. On the emulator each number has streams of its own.

    Raises
    ------
    ArgumentError
        For stages and options that do not fit.

    Notes
    -----
    An array of the source in pinned memory (``ck.empty(…, kind="pinned")``) is read in place. Do not change it until
    its result is delivered: a ring of such arrays has more than `depth`. Any other array may be changed at once if a
    device stage comes first. With `devices`, do not change any array until its result is delivered: each GPU's thread
    reads its items later. A host stage gets the source's own array.

    The thread that takes results reads the source. Exceptions, which have a thread of their own: sources that read
    files or sockets, sources wrapped in ``ck.pipeline.ahead(source)``, and with `devices` every source.

    Examples
    --------
    >>> decoded = ck.pipeline.host(decode, threads=4)
    >>> pipeline = ck.Pipeline([decoded, lambda x, stream: ck.ops.cumsum(x, stream=stream)])
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
        progress: bool | Callable[[Counters], object] = False,
        on_error: str | Callable[[PipelineError], Any] = "raise",
        devices: Sequence[int] | None = None,
    ) -> None:
        self.stages: tuple[Stage, ...] = as_stages(stages)
        for name, number in (("depth", depth), ("streams", streams)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ArgumentError(f"Pipeline: {name} is a number from 1 up, or None; got {shortened(number)}")
        graph = flag("Pipeline: graph", graph)
        if stream is not None and place_of(stream) is DEVICES:
            require_stream(stream)
        if devices is not None:
            devices = _checked_devices(devices, stream, graph)
        if graph and all(stage.on_host for stage in self.stages):
            raise ArgumentError("Pipeline: graph=True captures device stages, and all stages are the host's")
        if not is_one_of(on_error, ("raise", "skip")) and not callable(on_error):
            raise ArgumentError(
                f'Pipeline: on_error is "raise", "skip" or a function of the error, got {shortened(on_error)}'
            )
        if not (isinstance(progress, bool) or callable(progress)):
            raise ArgumentError(
                f"Pipeline: progress is True, False or a function of the counters, got {shortened(progress)}"
            )
        check_calls(self.stages)
        self.stream = stream
        self.depth = depth
        self.streams = streams
        self.graph = graph
        self.progress = progress
        self.on_error = on_error
        self.devices = devices
        self._lanes: dict[tuple[int, int], Lanes] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        if self.stream is not None:
            raise ArgumentError(
                "Pipeline: with stream= it cannot be pickled, for a stream is of its process. Leave stream= out: a "
                "pipeline makes its own where it runs"
            )
        names = ("depth", "streams", "graph", "progress", "on_error", "devices")
        return partial(Pipeline, self.stages, **{name: getattr(self, name) for name in names}), ()

    def __repr__(self) -> str:
        names = ", ".join(f"host {stage.name}" if stage.on_host else stage.name for stage in self.stages)
        return f"<cudakit.Pipeline {names}>"

    def __call__(self, source: Iterable[Any] | AsyncIterable[Any]) -> Run:
        """Return an iterator over the results for the items of `source`, in order.

        Each result is computed when it is requested, or shortly before.

        Parameters
        ----------
        source : iterable or asynchronous iterable
            Items. See `cudakit.pipeline` for files, folders, arrays in chunks and sockets. An asynchronous source is
            read in the event loop of this call, and the results are then for ``async for``. Without a running event
            loop, the source is read in a loop of its own.

        Returns
        -------
        Run
            Iterator over the results, also for ``async for``.

        Raises
        ------
        ArgumentError
            If `source` is not iterable. Later failures are a `PipelineError` from the iterator.
        """
        return self._start(source, None if self.on_error == "raise" else self.on_error)

    def _start(self, source: Any, on_error: Any) -> Run:
        _require_source(source)
        loop = None
        if not isinstance(source, Iterable):
            from cudakit.pipeline.asynchronous import AsyncSource  # which loads asyncio

            source = AsyncSource(source)
            loop = source.loop
        groups = [(on_host, list(stages)) for on_host, stages in groupby(self.stages, lambda stage: stage.on_host)]
        threaded = self.devices is not None or bool(getattr(source, "threaded", False))
        depth = self.depth or self._total_depth(groups)
        gate = None
        if threaded or any(on_host for on_host, _ in groups):
            gate = Gate(depth, elastic=self.depth is None)
        reader = Reader(source, gate)
        nodes: list[Node] = [reader]
        lenient = on_error is not None
        try:
            if threaded:
                nodes.append(Threads(nodes[-1], Stage(same, "source", 1), depth, lenient))
            sections = 0
            for on_host, stages in groups:
                if on_host:
                    for stage in stages:
                        nodes.append(Threads(nodes[-1], stage, depth, lenient))
                else:
                    nodes.append(self._section(nodes[-1], stages, sections, lenient))
                    sections += 1
            progress = Line(length_hint(source)) if self.progress is True else self.progress or None
        except BaseException:
            for node in nodes:
                node.stop()
            close_all(nodes)
            raise
        return Run(nodes, reader, self.stages, Skipped() if on_error == "skip" else on_error, progress, loop)

    def run(self, source: Iterable[Any], sink: Sink) -> int:
        """Write every result to `sink`, as in ``pipeline.run(from_images("in"), to_images("out"))``.

        Returns
        -------
        int
            Number of results.

        Raises
        ------
        ArgumentError
            If `source` is not a source, or `sink` not a sink.
        PipelineError
            If the source, a stage or the sink fails. The sink then leaves no partial output behind.
        """
        _require_sink(sink)
        if hasattr(sink, "__aenter__") and not hasattr(sink, "__enter__"):
            raise ArgumentError("Pipeline: the sink is asynchronous: await pipeline.arun(source, sink)")
        count, write = 0, cast("Callable[..., None]", sink.write)
        with self(source) as results, sink:
            results.consumer = None
            for item in results:
                with witnesses.doing("host", "sink", None, lane="sink"):
                    write(item, *write_arguments(sink, results.item, results.name))
                count += 1
        return count

    async def arun(self, source: Iterable[Any] | AsyncIterable[Any], sink: Any) -> int:
        """Do `run` in an event loop, which continues meanwhile.

        Parameters
        ----------
        source : iterable or asynchronous iterable
            Items, as for `run`.
        sink : Sink
            Target of the results. Its methods ``__aenter__``, ``__aexit__`` and ``write`` may be asynchronous. If
            ``write`` is not, it is called in a thread.

        Returns
        -------
        int
            Number of results.

        Raises
        ------
        ArgumentError
            If `source` is not a source, or `sink` not a sink.
        PipelineError
            If the source, a stage or the sink fails.
        """
        import asyncio

        _require_sink(sink)
        count = 0
        is_async = inspect.iscoroutinefunction(sink.write)
        results = self(source)
        results.consumer = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                if hasattr(sink, "__aenter__"):
                    await stack.enter_async_context(sink)
                else:
                    stack.enter_context(sink)
                async for item in results:
                    arguments = item, *write_arguments(sink, results.item, results.name)
                    with witnesses.doing("host", "sink", None, lane="sink"):
                        await (sink.write(*arguments) if is_async else asyncio.to_thread(sink.write, *arguments))
                    count += 1
        finally:
            await results.aclose()
        return count

    def map_array(self, array: Any, out: Any = None, *, chunk: int | None = None, halo: int = 0) -> np.ndarray:
        """Apply the stages to `array`, chunk by chunk along its first axis: for arrays that do not fit on the device.

        Parameters
        ----------
        array : numpy.ndarray, path or Chunks
            Input array, path of an ``.npy`` file, or chunks from `from_array` or `from_zarr`. Of a file, only the
            chunks in flight are read. Chunks keep their own number of rows and halo.
        out : numpy.ndarray or path, optional
            Array for the result, with as many rows as `array`, such as a memmap. Or the path of an ``.npy`` file, which
            appears complete or not at all. Default: a new array.
        chunk : int, optional
            Rows in a chunk. Default: as many rows as 64 MiB hold.
        halo : int
            Further rows before and after each chunk, as far as the array has them, which the stages also get. The
            results for these rows are dropped. A stencil with this radius computes the same as on the whole array.

        Returns
        -------
        numpy.ndarray
            (rows, …), with the dtype, and the shape after the first axis, that the stages return.

        Raises
        ------
        ArgumentError
            If `chunk`, `halo` or `out` does not fit `array`, or the stages return another number of rows than they get.
        PipelineError
            If the source or a stage fails.
        """
        from cudakit.pipeline.chunks import map_chunks

        source = array if isinstance(array, Chunks) else from_array(array, chunk, halo=halo)
        # A chunk that is missing would leave a hole.
        with self._start(source, None) as results:
            results.consumer = "sink"
            return map_chunks(source, results, out)

    def close(self) -> None:
        """Destroy the streams that the pipeline has made. A later run makes new ones."""
        # Later sections compute on the streams of the first, and wait for those before theirs are gone.
        for lanes in reversed(self._lanes.values()):
            lanes.close()
        self._lanes.clear()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _section(self, upstream: Node, stages: list[Stage], number: int, lenient: bool) -> Node:
        from cudakit.pipeline.device_section import Section

        def section_on(place: int, device: int | None) -> Callable[[Node], Node]:
            lanes = self._lanes_of(number, place, device)
            return lambda upstream: Section(upstream, stages, lanes, self.depth, self.graph, lenient)

        if self.devices is None:
            return section_on(0, None)(upstream)
        from cudakit.pipeline.device_section import Spread  # for those who have several

        here = self.devices if has_gpu() else [None] * len(self.devices)
        return Spread(upstream, [(device, section_on(place, device)) for place, device in enumerate(here)], lenient)

    def _lanes_of(self, number: int, place: int, device: int | None) -> Lanes:
        """Return the streams for one group of consecutive device stages on one GPU. They are made at the first call.

        `number` is the group's position among the groups, `place` the GPU's position in `devices`, and `device` its
        number, or None for the only device. At each call the streams wait for present work of CuPy's current stream.
        """
        from cudakit.pipeline.streams import Lanes

        entry = self._lanes.get((number, place))
        if entry is None:
            # All sections compute on the same stream: a stage's state has one order.
            shared = self._lanes[0, place].computing if number else self.stream
            names = " → ".join(stage.name for stage in self.stages if not stage.on_host)
            with contextlib.nullcontext() if device is None else on_device(device):
                entry = self._lanes[number, place] = Lanes(shared, self.streams or 1, names)
        entry.start()
        return entry

    def _total_depth(self, groups: list[tuple[bool, list[Stage]]]) -> int:
        on_host = sum(stage.threads + 1 for is_host, stages in groups if is_host for stage in stages)
        on_devices = sum(not is_host for is_host, _ in groups) * len(self.devices or (0,))
        return on_host + _DEPTH_OF_A_SECTION * on_devices + 1


def _require_source(source: Any) -> None:
    if isinstance(source, (str, bytes, os.PathLike)):
        raise ArgumentError(
            f"Pipeline: a source gives items, and {shortened(source)} is a path; give pipeline.from_array(path), "
            "from_npy, from_images or from_zarr"
        )
    if not isinstance(source, (Iterable, AsyncIterable)) or getattr(source, "shape", None) == ():
        raise ArgumentError(f"Pipeline: a source is an iterable of items, got {type(source).__name__}")


def _require_sink(sink: Any) -> None:
    blocks = (("__enter__", "__exit__"), ("__aenter__", "__aexit__"))
    if not hasattr(sink, "write") or not any(all(hasattr(sink, part) for part in block) for block in blocks):
        raise ArgumentError(
            f"Pipeline: a sink is what pipeline.to_array, to_npy and the like make, got {type(sink).__name__}"
        )


def _checked_devices(devices: Any, stream: Any, graph: bool) -> tuple[int, ...]:
    result = tuple(
        whole("Pipeline: devices: each", number)
        for number in listed("Pipeline: devices are numbers, as in devices=[0, 1]", devices)
    )
    if not result:
        raise ArgumentError("Pipeline: devices are one at least, as in devices=[0, 1]")
    if stream is not None:
        raise ArgumentError("Pipeline: devices= makes its streams: leave stream= out")
    if graph and len(result) > 1:
        raise ArgumentError("Pipeline: graph=True is for one device: a capture is of one thread at a time")
    count = device_count()
    if count and max(result) >= count:
        raise ArgumentError(f"Pipeline: there is no device {max(result)}; the devices are 0 to {count - 1}")
    return result
