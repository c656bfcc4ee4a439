"""Compiling ahead of a search: worker processes compile the points that will be wanted next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from cudakit.jit.cache.cache import cache_at
from cudakit.jit.cache.prewarm import Workers
from cudakit.jit.cache.stages import first_request
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
    specialization : callable
        Returns the specialization of a point.
    points : int
        Number of points that the search may ask for.
    workers : int, optional
        Number of worker processes; 0 compiles when a point is asked for. Default: one for each core, at most eight.
    limit_s : float, optional
        Longest time of a compile by a worker, in seconds.
    """

    def __init__(
        self,
        specialization: Callable[[Point], Specialization],
        points: int,
        workers: int | None = None,
        limit_s: float | None = None,
    ) -> None:
        if workers is None:
            workers = min(os.cpu_count() or 1, _MOST_WORKERS) if points >= _WORTH else 0
        self._specialization = specialization
        self._workers = Workers(workers, limit_s)
        #: Requests of points, by the point; None for one that is in a cache, or has an error.
        self._requests: dict[Any, Request | None] = {}
        self._jobs: dict[Any, Future[None]] = {}

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *error: object) -> None:
        self._workers.close(wait=False)

    @property
    def reach(self) -> int:
        """The number of points that are asked for at a time: one for each worker."""
        return max(1, self._workers.count)

    def first(self, points: Sequence[Point]) -> Point:
        """Return the first of these points that needs no more compile; wait if there is none."""
        begun = {job: point for point in points if (job := self._jobs.get(_key(point))) is not None}
        for point in points:
            job = self._jobs.get(_key(point))
            if job is None or job.done():
                return point
        return begun[next(iter(wait(begun, return_when=FIRST_COMPLETED).done))]

    def want(self, points: Iterable[Point]) -> None:
        """Compile the points of these that are in no cache, in this order, before any others."""
        if not self._workers.count:
            return
        keys = {_key(point): point for point in points}
        self._requests |= {key: self._request(point) for key, point in keys.items() if key not in self._requests}
        requests = {key: request for key in keys if (request := self._requests[key]) is not None}
        self._jobs.update(zip(requests, self._workers.want(requests.values()), strict=True))

    def _request(self, point: Point) -> Request | None:
        try:
            request = first_request(self._specialization(point))
        except Exception:  # the launch of the point says what is wrong with it
            return None
        is_cached = cache_at(request.specialization.options.cache).peek(request) is not None
        return None if is_cached else request

    def wait(self, point: Point) -> None:
        """Wait until a point is compiled, if it is being compiled.

        Raises
        ------
        CompileError
            The point does not compile.
        """
        job = self._jobs.pop(_key(point), None)
        if job is not None and not job.cancelled():
            job.result()


def _key(point: Point) -> tuple[Any, ...]:
    return tuple((name, repr(value)) for name, value in point.items())
