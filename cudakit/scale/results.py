"""`map` and `run`: chunks sent to the workers of an engine, a bounded number at a time, and their results.

`map` makes a `Work` of a pipeline or a function: where chunks are read, and where results go. An `Engine` is what Dask,
Ray and executors have in common: send a chunk, receive one that is done. `Results` keeps a bounded number of chunks
under way and delivers each result once, in order or not. A worker is sent the work once and its token from then on
(`work_at`); Ray's actors keep the work themselves.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from multiprocessing import current_process
from operator import length_hint
from typing import Any, Protocol

import numpy as np

from cudakit.errors import ArgumentError, PipelineError, error_text, shortened
from cudakit.pipeline import Counters, Pipeline, sinks
from cudakit.pipeline.run import INTERVAL, Closing, Line, size_of
from cudakit.streams import devices
from cudakit.types.checked import flag, is_one_of, iterated, whole

# --- work: given to a worker once, and then for each chunk a number, and the chunk where it cannot read it ------------


#: Of the works that a process was given, the latest stay.
_MOST_KNOWN = 4


class Work:
    """A function or a pipeline, called in a worker as ``work(number, chunk, worker)``.

    Parameters
    ----------
    function : callable or Pipeline
        Function or pipeline that processes a chunk.
    source : object
        Source from which workers read a chunk by its number. None: workers get the chunks.
    sink : object
        Sink to which workers write. None: workers return the results.

    Attributes
    ----------
    token : str
        Identifier of the work, the same in all processes.
    writes : bool
        Whether there is a sink.
    """

    def __init__(self, function: Callable[[Any], Any] | Pipeline, source: Any = None, sink: Any = None) -> None:
        self._function, self._source, self._sink = function, source, sink
        self.token: str = uuid.uuid4().hex
        self.writes: bool = sink is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.token, self._function, self._source, self._sink)

    def __call__(self, number: int, chunk: Any, worker: int) -> list[Any]:
        """Return the results of a chunk, or with a sink the return values of its ``write``.

        Parameters
        ----------
        number : int
            Number of the chunk, from 0.
        chunk : object
            The chunk. Ignored if there is a source: the chunk is then read from the source.
        worker : int
            Number of the worker on its machine. With several GPUs, workers take turns by their numbers.
        """
        with _device_of(worker):
            if self._source is not None:
                chunk = self._source[number]
            if isinstance(self._function, Pipeline):
                results = self._through(self._function, number, chunk)
            else:
                results = [self._function(chunk)]
            return results if self._sink is None else [self._sink.write(result, number) for result in results]

    def _through(self, pipeline: Pipeline, number: int, chunk: Any) -> list[Any]:
        try:
            with pipeline([chunk]) as run:
                return list(run)
        except PipelineError as error:
            message = f"{error}".replace("on item 0", f"on chunk {number}", 1)
            raise PipelineError(message, stage=error.stage, item=number) from error.__cause__


#: The works that this process was given, by token.
_works: dict[str, Work] = {}
_restoring = threading.Lock()


def _restored(token: str, *parts: Any) -> Work:
    """Return the `Work` with this token, while unpickling. `parts` are the arguments of a new `Work`.

    A work that this process has under the token is returned itself. The result is remembered for later calls.
    """
    with _restoring:
        work = _works.pop(token, None) or Work(*parts)
        work.token = token
        _works[token] = work
        while len(_works) > _MOST_KNOWN:
            del _works[next(iter(_works))]
    return work


def work_at(work: Work | str, number: int, chunk: Any, worker: int) -> list[Any] | None:
    """Process a chunk in a worker process, and return its results.

    `work` is a `Work`, or the token of one that was sent to this worker before. Return None if the worker does not know
    the token. `number` is the chunk's number, `worker` the worker's number on its machine.
    """
    known_work = _works.get(work) if isinstance(work, str) else work
    return None if known_work is None else known_work(number, chunk, worker)


def number_in(name: str) -> int:
    """Return the number at the end of a worker's name; 0 without a number."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits or 0)


def _device_of(worker: int) -> contextlib.AbstractContextManager[None]:
    if not devices.has_gpu():
        return contextlib.nullcontext()
    return devices.on_device(worker % devices.device_count())


# --- engines: Dask's, Ray's and executors' schedulers, in one form ----------------------------------------------------


#: Seconds for which chunks are waited for that were begun and are not wanted any more.
_PATIENCE = 60


class Engine(Protocol):
    """A pool of workers that process chunks.

    Attributes
    ----------
    width : int
        Number of chunks that are processed at a time.
    """

    width: int

    def send(self, number: int, chunk: Any) -> None:
        """Send a chunk to a worker."""

    def receive(self) -> tuple[int, Callable[[], list[Any]]]:
        """Wait until a chunk that was sent is processed.

        Return the chunk's number, and a function that returns its results or raises the work's error.
        """

    def close(self) -> None:
        """Cancel all chunks that were sent."""


def engine_of(engine: Any, work: Work) -> Engine:
    """Return the engine for a Dask client, the module ray, an executor, or None (this thread).

    Raises
    ------
    ArgumentError
    """
    if engine is None:
        return Here(work)
    if isinstance(engine, Executor):
        return OnExecutor(engine, work)
    if engine is sys.modules.get("ray", engine) and getattr(engine, "__name__", "") == "ray":
        return OnRay(engine, work)
    distributed = sys.modules.get("distributed")
    if distributed is not None and isinstance(engine, distributed.Client):
        return OnDask(engine, work)
    raise ArgumentError(
        "scale.map: engine= is a dask.distributed Client, the module ray (after ray.init()), an executor of "
        f"concurrent.futures, or None; got {type(engine).__name__}"
    )


class Here:
    """The calling thread as an engine, which processes one chunk after another."""

    width: int = 1

    def __init__(self, work: Work) -> None:
        self._work = work
        self._sent: list[tuple[int, Any]] = []

    def send(self, number: int, chunk: Any) -> None:
        self._sent.append((number, chunk))

    def receive(self) -> tuple[int, Callable[[], list[Any]]]:
        number, chunk = self._sent.pop(0)
        return number, lambda: self._work(number, chunk, 0)

    def close(self) -> None:
        self._sent.clear()


class _Futures(ABC):
    """Base of engines with futures.

    The first chunks, as many as there are workers, are sent with the work. Later chunks are sent with its token. A
    worker that does not know the token asks for the work: a restarted worker, or one that had none of the first chunks.
    """

    width: int
    _work: Work
    _under_way: dict[Any, tuple[int, Any]]

    def _start(self, width: int, work: Work) -> None:
        self.width, self._work, self._under_way = width, work, {}

    @abstractmethod
    def _submit(self, work: Work | str, number: int, chunk: Any) -> Any:
        """Return a future of the result of `work_at` in a worker."""

    @abstractmethod
    def _first(self) -> Any:
        """Wait for a future of a chunk under way, and return the finished future."""

    def send(self, number: int, chunk: Any) -> None:
        self._send(self._work if number < self.width else self._work.token, number, chunk)

    def _send(self, work: Work | str, number: int, chunk: Any) -> None:
        self._under_way[self._submit(work, number, chunk)] = number, chunk

    def receive(self) -> tuple[int, Callable[[], list[Any]]]:
        while True:
            future = self._first()
            number, chunk = self._under_way.pop(future)
            try:
                results = future.result()  # once: each time it may come over the network
            except Exception as error:
                return number, functools.partial(_raise, error)
            if results is not None:
                return number, functools.partial(list[Any], results)
            self._send(self._work, number, chunk)


def _raise(error: Exception) -> list[Any]:
    raise error


class OnExecutor(_Futures):
    """An executor of `concurrent.futures`: threads or processes of this machine."""

    def __init__(self, executor: Executor, work: Work) -> None:
        # Executors have no public word for how many they are.
        self._start(getattr(executor, "_max_workers", None) or os.cpu_count() or 1, work)
        self._executor = executor
        if isinstance(executor, ProcessPoolExecutor):
            try:
                pickle.dumps(work)
            except Exception as error:  # else it would fail on each chunk, and all could be skipped
                raise ArgumentError(
                    f"scale.map: this cannot be sent to processes: {error}; take functions that a module has by name"
                ) from error

    def _submit(self, work: Work | str, number: int, chunk: Any) -> Future[list[Any] | None]:
        try:
            return self._executor.submit(_in_pool, work, number, chunk)
        except RuntimeError as error:  # it was shut down, or one of its processes has died
            raise ArgumentError(
                f"scale.map: the executor given as engine= takes no more work: {error_text(error)}; give a new one"
            ) from error

    def _first(self) -> Future[list[Any] | None]:
        finished: Any = wait(self._under_way, return_when=FIRST_COMPLETED).done
        return min(finished, key=self._under_way.__getitem__)

    def close(self) -> None:
        for future in self._under_way:
            future.cancel()
        # What has begun is waited for: it may write.
        wait(self._under_way)
        self._under_way.clear()


def _in_pool(work: Work | str, number: int, chunk: Any) -> list[Any] | None:
    """Return the results of a chunk, in an executor's worker, or None as `work_at`.

    The number at the end of the name of the worker's process or thread is the worker's number.
    """
    process = current_process()
    name = threading.current_thread().name if process.name == "MainProcess" else process.name
    return work_at(work, number, chunk, number_in(name))


class OnDask(_Futures):
    """A cluster of dask.distributed. If a worker is lost, the scheduler gives its chunks to another worker."""

    def __init__(self, client: Any, work: Work) -> None:
        from distributed import as_completed

        if client.status != "running":
            raise ArgumentError(f"scale.map: the client given as engine= is {client.status}")
        self._start(max(1, sum(client.nthreads().values())), work)
        self._client = client
        self._completed = as_completed(loop=client.loop)

    def _submit(self, work: Work | str, number: int, chunk: Any) -> Any:
        with _large():
            future = self._client.submit(_on_dask, work, number, chunk, pure=False)
        self._completed.add(future)
        return future

    def _first(self) -> Any:
        return next(self._completed)

    def close(self) -> None:
        left = list(self._under_way)
        self._under_way.clear()
        if self._work.writes and left:
            from distributed import wait as wait_for

            # What has begun writes until it is done, and Dask does not say of what it has cancelled when that is.
            with contextlib.suppress(TimeoutError):
                wait_for(left, timeout=_PATIENCE)
        self._client.cancel(left)


def _on_dask(work: Work | str, number: int, chunk: Any) -> list[Any] | None:
    from distributed import get_worker

    # dask-cuda shows each worker its own GPU as the first.
    return work_at(work, number, chunk, 0 if "dask_cuda" in sys.modules else number_in(str(get_worker().name)))


@contextlib.contextmanager
def _large() -> Iterator[None]:
    """Suppress the warning about large chunks that go through the scheduler, inside a ``with`` block.

    A chunk that goes through the scheduler can be given to another worker.
    """
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        yield


class OnRay:
    """A cluster of Ray: an actor for each GPU, or without GPUs for each CPU.

    Ray restarts lost actors and repeats their chunks.
    """

    def __init__(self, ray: Any, work: Work) -> None:
        if not ray.is_initialized():
            raise ArgumentError("scale.map: engine=ray is for a program that has called ray.init()")
        self._ray = ray
        free = ray.available_resources()
        gpus = int(free.get("GPU", 0))
        self.width: int = gpus or max(1, int(free.get("CPU", 1)))
        needs = {"num_gpus": 1, "num_cpus": 0} if gpus else {"num_cpus": 1}
        actor = ray.remote(max_restarts=-1, max_task_retries=-1, **needs)(_Actor)
        self._actors = [actor.remote(work) for number in range(self.width)]
        self._load: Counter[int] = Counter()
        self._numbers: dict[Any, tuple[int, int]] = {}

    def send(self, number: int, chunk: Any) -> None:
        worker = min(range(self.width), key=self._load.__getitem__)
        self._load[worker] += 1
        self._numbers[self._actors[worker].run.remote(number, chunk)] = number, worker

    def receive(self) -> tuple[int, Callable[[], list[Any]]]:
        (reference,), _ = self._ray.wait(list(self._numbers), num_returns=1)
        number, worker = self._numbers.pop(reference)
        self._load[worker] -= 1
        return number, lambda: self._get(reference)

    def _get(self, reference: Any) -> list[Any]:
        try:
            results: list[Any] = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        return results

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()
        self._numbers.clear()


class _Actor:
    """A worker process of Ray, which keeps its `Work`. It uses the first GPU that it sees."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def run(self, number: int, chunk: Any) -> list[Any]:
        """Return the results of a chunk, or with a sink the return values of its ``write``, as `Work` does."""
        return self._work(number, chunk, 0)


class Results(Closing):
    """The results of `map`: an iterator, and a context manager that stops the work at its end.

    Attributes
    ----------
    item : int
        Number of the chunk of the latest result, from 0.
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
        self._on_error = on_error
        self.item: int = -1
        #: Results of chunks that are done, by the chunk's number, until it is their turn; and of the one whose turn is.
        self._finished: dict[int, Callable[[], list[Any]]] = {}
        self._ready: deque[Any] = deque()
        self._read = self._under_way = self._next = 0
        self._source_ended = False
        self._begin(progress)

    def __repr__(self) -> str:
        return f"<cudakit.scale.Results {'closed' if self._closed else 'open'}: {self._items} of {self._read} chunks>"

    def __next__(self) -> Any:
        """Return the next result.

        Raises
        ------
        PipelineError
            If the work failed on a chunk.
        """
        start = time.perf_counter()
        try:
            if self._progress is not None and start - self._reported_at >= INTERVAL:
                self._tell(start)
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
        """Receive the results of the next chunk. Return False after the last chunk, else True."""
        while not self._source_ended and self._under_way + len(self._finished) < self._depth:
            try:
                chunk = next(self._chunks)
            except StopIteration:
                self._source_ended = True
                break
            self._engine.send(self._read, chunk)
            self._read += 1
            self._under_way += 1
        if self._ordered and self._next in self._finished:
            number, give = self._next, self._finished.pop(self._next)
        elif self._under_way:
            number, give = self._engine.receive()
            self._under_way -= 1
            if self._ordered and number != self._next:
                self._finished[number] = give
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

    def _items_under_way(self) -> int:
        return self._under_way + len(self._finished)

    def close(self) -> None:
        """Stop, and cancel the chunks under way. Further calls do nothing."""
        if self._closed:
            return
        self._end, self._closed = time.perf_counter(), True
        self._finished.clear()
        self._engine.close()
        self._tell(self._end)


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
    """Return the results of a pipeline or function for chunks, computed by the workers of an engine.

    Parameters
    ----------
    function : Pipeline or callable
        A pipeline gets each chunk as an item. Its stages cannot keep state from chunk to chunk: chunks go to different
        workers. A function is called as ``function(chunk)``. Both must be picklable (by cloudpickle for Dask and Ray,
        which supports lambdas). Each worker gets the function once.
    chunks : iterable
        Arrays, or other arguments of the function. Numbers and names of files are light. Workers read the chunks of
        stored arrays and files themselves (``pipeline.from_zarr``, ``from_npy``, ``from_images``, ``from_array`` of a
        path).
    engine : optional
        A client of ``dask.distributed``, the initialised module ``ray``, or an executor of `concurrent.futures`. None:
        this thread, one chunk after another. The engine assigns a GPU to each worker by ``CUDA_VISIBLE_DEVICES``
        (dask-cuda, Ray). Otherwise the workers of a machine take its GPUs in turns, by their numbers.
    ordered : bool
        Whether results come in the order of the chunks. Otherwise they come as they finish, and ``results.item`` is
        the number of the chunk.
    depth : int, optional
        Most chunks that are sent and whose results are not delivered yet. Default: two for each worker.
    progress : bool or callable
        Display of the progress, as for `Pipeline`.
    on_error : {"raise", "skip"} or callable
        Reaction to a chunk on which the work fails, as for `Pipeline`. A lost worker is no failure for Dask and Ray,
        which give its chunks to another worker. For executors it ends the work.

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
    sink: sinks.Sink,
    *,
    engine: Any = None,
    depth: int | None = None,
    progress: bool | Callable[[Counters], object] = False,
) -> int:
    """Write every result to a sink, as `Pipeline.run`. The parameters are those of `map`.

    With ``pipeline.to_zarr(path, like=chunks)`` the workers write to the sink themselves, by the number of the chunk,
    and results are not sent back. If a worker is lost, its chunk is written again, with the same result at the same
    place. To all other sinks this process writes the results, in order, each once.

    Returns
    -------
    int
        Number of results.

    Raises
    ------
    ArgumentError
        For arguments that do not fit.
    PipelineError
        If the work failed. The sink leaves no partial output.
    """
    if not (hasattr(sink, "write") and hasattr(sink, "__enter__")):
        raise ArgumentError(f"scale.run: a sink is what pipeline.to_zarr and the like make, got {type(sink).__name__}")
    by_workers = bool(getattr(sink, "by_workers", False))
    write: Any = sink.write
    count = 0
    with sink:
        worker_sink = sink if by_workers else None
        with _start(function, chunks, engine, not by_workers, depth, progress, "raise", worker_sink) as results:
            for item in results:
                if not by_workers:
                    write(item, *sinks.write_arguments(sink, results.item, None))
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
    chosen = engine_of(engine, Work(function, chunks if is_stored else None, sink))
    shown = Line(total) if progress is True else progress or None
    forgiving: Any = None if on_error == "raise" else (lambda _: None) if on_error == "skip" else on_error
    items: Any = itertools.repeat(None, total) if is_stored else iterator
    return Results(items, chosen, depth or 2 * chosen.width, ordered, forgiving, shown)
