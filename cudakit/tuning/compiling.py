"""Compiling ahead of a search: worker processes compile the points that will be wanted next."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from cudakit.jit.cache.cache import cache_at
from cudakit.jit.cache.compiling import first_request
from cudakit.jit.cache.prewarm import Workers
from cudakit.jit.compile.nvrtc import Request
from cudakit.jit.specialise.specialise import Specialization
from cudakit.tuning.space import Point

#: Most worker processes that a search starts by itself.
_MOST_WORKERS = 8
#: Below this many points to compile, workers would not be worth their start.
_WORTH = 4


class Ahead:
    """Compiles of a search, begun before their points are asked for.

    Parameters
    ----------
    specializations : callable
        Returns the specializations of a point.
    points : int
        Number of points that the search may ask for.
    workers : int or Workers, optional
        Number of worker processes; 0 compiles when a point is asked for. Default: one for each core, at most eight.
        `Workers` of the caller serve several searches.
    limit_s : float, optional
        Longest time of a compile by a worker, in seconds.
    """

    def __init__(
        self,
        specializations: Callable[[Point], Iterable[Specialization]],
        points: int,
        workers: int | Workers | None = None,
        limit_s: float | None = None,
    ) -> None:
        if workers is None:
            workers = min(os.cpu_count() or 1, _MOST_WORKERS) if points >= _WORTH else 0
        self._specializations = specializations
        self._is_own = isinstance(workers, int)
        self._workers = Workers(workers, limit_s) if isinstance(workers, int) else workers
        #: Requests of points, by the point, without those that are in a cache; none for a point with an error.
        self._requests: dict[Any, list[Request]] = {}
        self._jobs: dict[Any, list[Future[None]]] = {}

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_own:
            self._workers.close(wait=False)
        else:
            self._workers.want([])

    @property
    def reach(self) -> int:
        """The number of points that are asked for at a time: one for each worker."""
        return max(1, self._workers.count)

    def first(self, points: Sequence[Point]) -> Point:
        """Return the first of these points that needs no more compile; wait if there is none."""
        while True:
            open_jobs = []
            for point in points:
                jobs = [job for job in self._jobs.get(_key(point), ()) if not job.done()]
                if not jobs:
                    return point
                open_jobs += jobs
            wait(open_jobs, return_when=FIRST_COMPLETED)

    def want(self, points: Iterable[Point]) -> None:
        """Compile the points of these that are in no cache, in this order, before any others."""
        if not self._workers.count:
            return
        keys = {_key(point): point for point in points}
        self._requests |= {key: self._absent(point) for key, point in keys.items() if key not in self._requests}
        jobs = iter(self._workers.want(request for key in keys for request in self._requests[key]))
        self._jobs.update((key, list(itertools.islice(jobs, len(self._requests[key])))) for key in keys)

    def _absent(self, point: Point) -> list[Request]:
        """Return the requests of a point that are in no cache."""
        try:
            requests = [first_request(specialization) for specialization in self._specializations(point)]
        except Exception:  # the launch of the point says what is wrong with it
            return []
        rows = {request.key: request for request in requests}.values()
        return [row for row in rows if cache_at(row.specialization.options.cache).peek(row) is None]

    def wait(self, point: Point) -> None:
        """Wait until a point is compiled, if it is being compiled.

        Raises
        ------
        CompileError
            The point does not compile.
        """
        for job in self._jobs.pop(_key(point), ()):
            if not job.cancelled():
                job.result()


def _key(point: Point) -> tuple[Any, ...]:
    return tuple((name, repr(value)) for name, value in point.items())
