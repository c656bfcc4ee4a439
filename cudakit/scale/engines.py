"""Engines: who hands chunks to workers. Dask's, Ray's and executors' own schedulers do the work; here is what each is
told, in one form for all.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from multiprocessing import current_process
from typing import Any, Protocol

from cudakit.errors import ArgumentError, told
from cudakit.scale.work import Work, number_in, work_at

#: Seconds for which chunks are waited for that were begun and are not wanted any more.
_PATIENCE = 60


class Engine(Protocol):
    """Hands chunks to workers.

    Attributes
    ----------
    width : int
        Chunks that are worked on at a time.
    """

    width: int

    def send(self, number: int, chunk: Any) -> None:
        """Have a chunk worked on."""

    def receive(self) -> tuple[int, Callable[[], list[Any]]]:
        """Wait for one of those that were sent: its number, and what gives its results or raises what the work has."""

    def close(self) -> None:
        """Have nothing more done of what was sent."""


def engine_of(given: Any, work: Work) -> Engine:
    """The engine of what a user has: a Dask client, the module ray, an executor, or None for this thread.

    Raises
    ------
    ArgumentError
    """
    if given is None:
        return Here(work)
    if isinstance(given, Executor):
        return OnExecutor(given, work)
    if given is sys.modules.get("ray", given) and getattr(given, "__name__", "") == "ray":
        return OnRay(given, work)
    distributed = sys.modules.get("distributed")
    if distributed is not None and isinstance(given, distributed.Client):
        return OnDask(given, work)
    raise ArgumentError(
        "scale.map: engine= is a dask.distributed Client, the module ray (after ray.init()), an executor of "
        f"concurrent.futures, or None; got {type(given).__name__}"
    )


class Here:
    """The thread itself, one chunk after another."""

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
    """What engines that give futures have in common.

    The work goes along with as many chunks as there are workers. From then on a worker is given its token, and asks for
    the work where it does not know it: one that was started anew, or that had none of the first chunks.
    """

    width: int
    _work: Work
    _under_way: dict[Any, tuple[int, Any]]

    def _start(self, width: int, work: Work) -> None:
        self.width, self._work, self._under_way = width, work, {}

    @abstractmethod
    def _submit(self, work: Work | str, number: int, chunk: Any) -> Any:
        """A future of what `work_at` gives in a worker."""

    @abstractmethod
    def _first(self) -> Any:
        """One that is done, of those that are under way."""

    def send(self, number: int, chunk: Any) -> None:
        self._send(self._work if number < self.width else self._work.token, number, chunk)

    def _send(self, work: Work | str, number: int, chunk: Any) -> None:
        self._under_way[self._submit(work, number, chunk)] = number, chunk

    def receive(self) -> tuple[int, Callable[[], list[Any]]]:
        while True:
            future = self._first()
            number, chunk = self._under_way.pop(future)
            try:
                found = future.result()  # once: each time it may come over the network
            except Exception as error:
                return number, functools.partial(_raise, error)
            if found is not None:
                return number, functools.partial(list[Any], found)
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
                f"scale.map: the executor given as engine= takes no more work: {told(error)}; give a new one"
            ) from error

    def _first(self) -> Future[list[Any] | None]:
        done: Any = wait(self._under_way, return_when=FIRST_COMPLETED).done
        return min(done, key=self._under_way.__getitem__)

    def close(self) -> None:
        for future in self._under_way:
            future.cancel()
        # What has begun is waited for: it may write.
        wait(self._under_way)
        self._under_way.clear()


def _in_pool(work: Work | str, number: int, chunk: Any) -> list[Any] | None:
    """Executors number their processes and threads in their names."""
    process = current_process()
    name = threading.current_thread().name if process.name == "MainProcess" else process.name
    return work_at(work, number, chunk, number_in(name))


class OnDask(_Futures):
    """A cluster of dask.distributed. What was on a worker that is lost, its scheduler gives to another."""

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
    """Chunks go by way of the scheduler, which can give them to another worker: large ones too, without a warning."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        yield


class OnRay:
    """A cluster of Ray: an actor for each GPU or, where there is none, for each CPU. Ray starts those that are lost
    again, and repeats what they were at.
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
            found: list[Any] = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        return found

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()
        self._numbers.clear()


class _Actor:
    """A worker of Ray, which shows it its own GPU as the first."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def run(self, number: int, chunk: Any) -> list[Any]:
        """What `Work` does."""
        return self._work(number, chunk, 0)
