"""`map` and `run`: chunks given to an engine, a bounded number at a time, and their results."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, PipelineError, shortened
from cudakit.pipeline import Counters, Pipeline
from cudakit.pipeline.run import Closing, Line, size_of
from cudakit.pipeline.sinks import Sink, told
from cudakit.scale.engines import Engine, engine_of
from cudakit.scale.work import Work
from cudakit.types.checked import flag, is_one_of, iterated, whole

#: Seconds between two times that it is told how far the work has come.
_INTERVAL = 0.1


class Results(Closing):
    """The results of `map`: an iterator, and a context manager that stops the work at its end.

    Attributes
    ----------
    item : int
        The number of the chunk that the latest result came of, counted from 0.
    """

    def __init__(
        self,
        chunks: Iterator[Any],
        engine: Engine,
        depth: int,
        ordered: bool,
        on_error: Callable[[PipelineError], Any] | None,
        progress: Callable[[Counters], object] | None,
    ) -> None:
        self._chunks, self._engine, self._depth, self._ordered = chunks, engine, depth, ordered
        self._on_error, self._progress = on_error, progress
        self.item = -1
        #: Results of chunks that are done, by the chunk's number, until it is their turn; and of the one whose turn is.
        self._done: dict[int, Callable[[], list[Any]]] = {}
        self._ready: deque[Any] = deque()
        self._read = self._under_way = self._next = 0
        self._source_ended = self._closed = False
        self._items = self._bytes = self._dropped = self._failed = 0
        self._start = self._told = time.perf_counter()
        self._end = self._waited = 0.0

    def __repr__(self) -> str:
        return f"<cudakit.scale.Results {'closed' if self._closed else 'open'}: {self._items} of {self._read} chunks>"

    def __next__(self) -> Any:
        """The next result.

        Raises
        ------
        PipelineError
            Where the work failed on a chunk.
        """
        start = time.perf_counter()
        try:
            if self._progress is not None and start - self._told >= _INTERVAL:
                self._told = start
                self._progress(self.counters)
            while not self._ready:
                if self._closed or not self._advance():
                    self.close()
                    raise StopIteration
        except BaseException:
            self.close()
            raise
        value = self._ready.popleft()
        self._items += 1
        self._bytes += value.nbytes if type(value) is np.ndarray else size_of(value)
        self._waited += time.perf_counter() - start
        return value

    def _advance(self) -> bool:
        """Take the results of the next chunk; False where there is none any more."""
        while not self._source_ended and self._under_way + len(self._done) < self._depth:
            try:
                chunk = next(self._chunks)
            except StopIteration:
                self._source_ended = True
                break
            self._engine.send(self._read, chunk)
            self._read += 1
            self._under_way += 1
        if self._ordered and self._next in self._done:
            number, give = self._next, self._done.pop(self._next)
        elif self._under_way:
            number, give = self._engine.receive()
            self._under_way -= 1
            if self._ordered and number != self._next:
                self._done[number] = give
                return True
        else:
            return False
        self._next += 1
        self.item = number
        results = self._results_of(number, give)
        self._dropped += not results
        self._ready.extend(results)
        return True

    def _results_of(self, number: int, give: Callable[[], list[Any]]) -> list[Any]:
        try:
            return give()
        except Exception as error:
            self._failed += 1
            if isinstance(error, PipelineError):
                failure = error
            else:
                failure = PipelineError(f"chunk {number} failed: {type(error).__name__}: {error}", item=number)
                failure.__cause__ = error
            if self._on_error is None:
                raise failure from failure.__cause__
            instead = self._on_error(failure)
            return [] if instead is None else [instead]

    @property
    def counters(self) -> Counters:
        """How far the work has come."""
        now = self._end if self._closed else time.perf_counter()
        return Counters(
            items=self._items,
            bytes=self._bytes,
            dropped=self._dropped,
            failed=self._failed,
            under_way=0 if self._closed else self._under_way + len(self._done),
            elapsed_s=now - self._start,
            waited_s=self._waited,
            over=self._closed,
        )

    def close(self) -> None:
        """Stop: chunks that are under way are given up. More than once does no harm."""
        if self._closed:
            return
        self._end, self._closed = time.perf_counter(), True
        self._done.clear()
        self._engine.close()
        if self._progress is not None:
            self._progress(self.counters)


def map(  # as Python's and Dask's are called
    function: Any,
    chunks: Iterable[Any],
    *,
    engine: Any = None,
    ordered: bool = True,
    depth: int | None = None,
    progress: bool | Callable[[Counters], object] = False,
    on_error: str | Callable[[PipelineError], Any] = "raise",
) -> Results:
    """The results of a pipeline or function for chunks, worked out by the workers of an engine.

    Parameters
    ----------
    function : Pipeline or callable
        A pipeline gets each chunk as an item; its stages keep nothing from one to the next, which other workers have.
        A function is called as ``function(chunk)``. Either must be such as can be pickled (by cloudpickle, for Dask and
        Ray: lambdas can), and goes to each worker once.
    chunks : iterable
        Arrays, or whatever the function takes: numbers and names of files are light. Of stored arrays and files
        (``pipeline.from_zarr``, ``from_npy``, ``from_images``, ``from_array`` of a path) the workers read their own.
    engine : optional
        A client of ``dask.distributed``; the module ``ray``, initialised; an executor of `concurrent.futures`. None:
        this thread, one chunk after another. A worker has its GPU from the engine, by ``CUDA_VISIBLE_DEVICES``
        (dask-cuda, Ray); else the workers of a machine take its GPUs in turns, by their numbers.
    ordered : bool
        Give results in the order of the chunks; else as they come, and ``results.item`` says of which chunk.
    depth : int, optional
        Most chunks that are sent and not yet delivered. Default: two for each worker.
    progress : bool or callable
        As for `Pipeline`.
    on_error : {"raise", "skip"} or callable
        What is done about a chunk that the work fails on, as for `Pipeline`. A worker that is lost is no failure: Dask
        and Ray give its chunks to another. Of executors it ends the work.

    Returns
    -------
    Results

    Raises
    ------
    ArgumentError

    Examples
    --------
    >>> with dask.distributed.Client() as client:
    ...     for result in ck.scale.map(pipeline, chunks, engine=client):
    ...         print(result.mean())
    """
    return _start(function, chunks, engine, flag("scale.map: ordered", ordered), depth, progress, on_error, None)


def run(
    function: Any,
    chunks: Iterable[Any],
    sink: Sink,
    *,
    engine: Any = None,
    depth: int | None = None,
    progress: bool | Callable[[Counters], object] = False,
) -> int:
    """Give every result to a sink, as `Pipeline.run`; the parameters are those of `map`.

    A sink that workers write to, ``pipeline.to_zarr(path, like=chunks)``, is told the number of the chunk by each, and
    results do not travel. A chunk whose worker was lost is written again, with the same, to the same place. To all
    other sinks the results are written here, in order, each once.

    Returns
    -------
    int
        How many results there were.

    Raises
    ------
    ArgumentError
    PipelineError
        Then the sink leaves nothing half-written behind.
    """
    if not (hasattr(sink, "write") and hasattr(sink, "__enter__")):
        raise ArgumentError(f"scale.run: a sink is what pipeline.to_zarr and the like make, got {type(sink).__name__}")
    by_workers = bool(getattr(sink, "by_workers", False))
    write: Any = sink.write
    count = 0
    with sink:
        given = sink if by_workers else None
        with _start(function, chunks, engine, not by_workers, depth, progress, "raise", given) as results:
            for item in results:
                if not by_workers:
                    write(item, *told(sink, results.item, None))
                count += 1
    return count


def _start(
    function: Any, chunks: Any, engine: Any, ordered: bool, depth: int | None, progress: Any, on_error: Any, sink: Any
) -> Results:
    iterator = iterated("scale.map: chunks is an iterable of them", chunks)
    if not callable(function):
        raise ArgumentError(
            f"scale.map: the first argument is a pipeline or a function of a chunk, got {shortened(function)}"
        )
    if engine is not None and isinstance(function, Pipeline):
        function.__reduce__()  # which says what cannot travel
    if not is_one_of(on_error, ("raise", "skip")) and not callable(on_error):
        raise ArgumentError(
            f'scale.map: on_error is "raise", "skip" or a function of the error, got {shortened(on_error)}'
        )
    if depth is not None:
        whole("scale.map: depth", depth, 1)
    is_stored = bool(getattr(chunks, "is_stored", False))
    total = length_hint(chunks)
    found = engine_of(engine, Work(function, chunks if is_stored else None, sink))
    shown = Line(total) if progress is True else progress or None
    forgiving: Any = None if on_error == "raise" else _forget if on_error == "skip" else on_error
    items: Any = _numbers(total) if is_stored else iterator
    return Results(items, found, depth or 2 * found.width, ordered, forgiving, shown)


def _numbers(count: int) -> Iterator[None]:
    """What is sent for chunks that the workers read: nothing but their numbers."""
    for _ in range(count):
        yield None


def _forget(error: PipelineError) -> None:
    """What is done about a chunk that is skipped."""
