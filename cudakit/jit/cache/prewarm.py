"""Compiling many specializations ahead of use, in worker processes: NVRTC gains nothing from threads."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from cudakit.errors import CompileError
from cudakit.jit.cache.cache import Cache, cache_at, report
from cudakit.jit.cache.settings import noticed
from cudakit.jit.cache.stages import as_linked, compiled_of, first_request
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.nvrtc import Request
from cudakit.jit.compile.worker import answer_channel, command, environment
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
    texts = [
        specialization
        for specialization in sources
        if cache_at(specialization.options.cache).imported(specialization) is None
    ]
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
        local = threading.local()
        started: list[_Worker] = []

        def run(request: Request) -> None:
            if not hasattr(local, "worker"):
                local.worker = _Worker()
                started.append(local.worker)
            result = local.worker.compile(request)
            if isinstance(result, Compiled):
                _cache_of(request).put(request, result)
                report("INFO", request, "compiled in another process: %s, %d bytes", result.target, len(result.code))
            else:
                failures.append(result)

        with noticed(f"{len(missing)} kernels in {count} processes"), ThreadPoolExecutor(count) as pool:
            finished = list(pool.map(run, missing, timeout=None))
        del finished
        for worker in started:
            worker.close()
    if failures:
        raise failures[0]
    for specialization in texts:
        if as_linked(specialization) is not None:
            compiled_of(specialization)
    tiles = [specialization for specialization in texts if specialization.is_tile and specialization.target == "cubin"]
    if tiles:  # their assembler is a process of its own
        with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
            jobs = [pool.submit(compiled_of, tile) for tile in tiles]
        for job in jobs:
            job.result()


def _cache_of(request: Request) -> Cache:
    return cache_at(request.specialization.options.cache)


class _Worker:
    """A Python process that compiles specializations; a plain child process, so that the main module needs no guard."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            command(__file__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )

    def compile(self, request: Request) -> Compiled | BaseException:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump(request.specialization, self._process.stdin)
            self._process.stdin.flush()
            result: Compiled | BaseException
            result, request.closure, request.unstorable = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            code = self._process.poll()
            name = request.specialization.name_expression
            return CompileError(f"the worker compiling {name} died (exit status {code})")
        return result

    def close(self) -> None:
        self._process.communicate()


def serve() -> None:
    """Compile each pickled `Specialization` from standard input, as a worker process.

    Each answer is pickled too: `Compiled` or the exception, and the closure.
    """
    answers = answer_channel()
    while True:
        try:
            specialization = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        request = Request(specialization)
        try:
            result: Compiled | BaseException = request.compile()
        except Exception as error:
            result = error
        pickle.dump((result, request.closure, request.unstorable), answers)
        answers.flush()


if __name__ == "__main__":
    serve()
