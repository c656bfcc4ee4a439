"""Compiling many specializations ahead of use, in worker processes: NVRTC gains nothing from threads."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
import subprocess
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from cudakit.errors import CompileError
from cudakit.jit.cache.cache import Cache, cache_at, report
from cudakit.jit.cache.compiling import as_linked, first_request
from cudakit.jit.cache.settings import noticed
from cudakit.jit.cache.stages import bundled_code_of, compiled_of
from cudakit.jit.compile import worker
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.nvrtc import Request
from cudakit.jit.compile.worker import command, environment
from cudakit.jit.specialise.specialise import Specialization


def compile_all(specializations: Iterable[Specialization], workers: int | None = None) -> None:
    """Compile `specializations` into the cache, in worker processes. A cached specialization costs a look-up.

    Parameters
    ----------
    specializations : iterable of Specialization
        Specializations to compile.
    workers : int, optional
        Number of worker processes. Default: one for each core, at most one for each specialization to compile.

    Raises
    ------
    CompileError
        The first failure, after all other specializations have been tried.
    """
    sources = (specialization for specialization in specializations if specialization.source.code is None)
    texts = [specialization for specialization in sources if bundled_code_of(specialization) is None]
    requests = {(request.key, _cache_of(request)): request for request in map(first_request, texts)}
    missing = [request for request in requests.values() if _cache_of(request).peek(request) is None]
    count = min(len(missing), workers or os.cpu_count() or 1)
    failures: list[BaseException] = []
    if count < 2:
        for request in missing:
            try:
                _cache_of(request).get(request, request.compile)
            except CompileError as error:
                failures.append(error)
    else:
        with noticed(f"{len(missing)} kernels in {count} processes"), Workers(count) as pool:
            results = [job.exception() for job in pool.want(missing)]
        failures = [error for error in results if error is not None]
    if failures:
        raise failures[0]
    for specialization in texts:
        if as_linked(specialization) is not None:
            compiled_of(specialization)
    tiles = [specialization for specialization in texts if specialization.is_tile and specialization.target == "cubin"]
    if tiles:  # their assembler is a process of its own
        with ThreadPoolExecutor(workers or os.cpu_count() or 1) as executor:
            jobs = [executor.submit(compiled_of, tile) for tile in tiles]
        for job in jobs:
            job.result()


class Workers:
    """Worker processes that compile requests into the cache, in the order in which they are wanted.

    Attributes
    ----------
    count : int
        Number of processes. Each starts when there is work for it.
    limit_s : float, optional
        Longest time of a compile, in seconds. A worker that takes longer is replaced.
    processes : list
        Workers that have started.

    Examples
    --------
    >>> with Workers(4) as pool:
    ...     first, *others = pool.want(requests)
    ...     first.result()  # None, or raises what the compiler raised
    """

    def __init__(self, count: int, limit_s: float | None = None) -> None:
        self.count, self.limit_s = count, limit_s
        self.processes: list[_Worker] = []
        self._threads: list[threading.Thread] = []
        self._change = threading.Condition()
        self._open: dict[tuple[str, Cache], Request] = {}
        self._jobs: dict[tuple[str, Cache], Future[None]] = {}
        self._is_closed = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def want(self, requests: Iterable[Request]) -> list[Future[None]]:
        """Compile these requests next, in this order. Earlier ones that have not begun and are not among them go.

        Returns
        -------
        list of Future
            The end of each compile. A request that was wanted before has the same future.
        """
        rows = [((request.key, _cache_of(request)), request) for request in requests]
        with self._change:
            for key in [key for key in self._open if key not in dict(rows)]:
                self._jobs.pop(key).cancel()
            fresh = {key: request for key, request in rows if key not in self._jobs or key in self._open}
            self._jobs.update((key, Future()) for key in fresh if key not in self._jobs)
            self._open = fresh
            if fresh:
                importlib.import_module("cuda.core")  # several threads that import it first get half of it
            for _ in range(min(self.count - len(self._threads), len(fresh))):
                self._threads.append(threading.Thread(target=self._serve, daemon=True))
                self._threads[-1].start()
            self._change.notify_all()
            return [self._jobs[key] for key, _ in rows]

    def close(self, wait: bool = True) -> None:
        """Drop what has not begun, wait for the rest or end it, and end the processes."""
        self.want(())
        with self._change:
            self._is_closed = True
            self._change.notify_all()
        if not wait:
            for worker in self.processes:
                worker.process.kill()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        process = _Worker(self.limit_s)
        self.processes.append(process)
        while True:
            with self._change:
                self._change.wait_for(lambda: self._open or self._is_closed)
                if not self._open:
                    break
                key = next(iter(self._open))
                request, job = self._open.pop(key), self._jobs[key]
            job.set_running_or_notify_cancel()
            try:
                if _cache_of(request).peek(request) is None:
                    _cache_of(request).put(request, process.compile(request))
                job.set_result(None)
            except BaseException as error:  # whoever waits for the job raises it
                job.set_exception(error)
        process.close()


def _cache_of(request: Request) -> Cache:
    return cache_at(request.specialization.options.cache)


class _Worker:
    """A process that runs NVRTC, and imports nothing of the package.

    It is a plain child process, so that the main module needs no guard. What comes before and after NVRTC runs here: it
    takes 1 to 2 ms, an import of the package 0.3 s (2026-11-27).
    """

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            command(worker.__file__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )

    def compile(self, request: Request) -> Compiled:
        """Return the code of a request, and set its closure.

        Raises
        ------
        CompileError
        """
        result = request.compile(functools.partial(self._answer, request.specialization.name_expression))
        report("INFO", request, "compiled in another process: %s, %d bytes", result.target, len(result.code))
        return result

    def _answer(self, name: str, *program: Any) -> worker.Answer:
        """Return NVRTC's answer to the arguments of `worker.compiled`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            self.process.kill()

        timer = threading.Timer(threading.TIMEOUT_MAX if self._limit_s is None else self._limit_s, end)
        timer.start()
        try:
            pickle.dump(("compiled", program), self.process.stdin)
            self.process.stdin.flush()
            return worker.Answer(*pickle.load(self.process.stdout))
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            code = self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            self._start()
            if is_late.is_set():
                raise CompileError(f"{name}: the compile was ended after {self._limit_s:g} s, the limit") from None
            raise CompileError(f"the worker compiling {name} died (exit status {code})") from None
        finally:
            timer.cancel()

    def close(self) -> None:
        self.process.communicate()
