"""What workers do: the function or pipeline, where its chunks are read, and where its results go.

A worker is given all that once, and then for each chunk a number, and the chunk itself where it cannot read it.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable
from typing import Any

from cudakit.errors import PipelineError
from cudakit.pipeline import Pipeline
from cudakit.streams import devices

#: Of the works that a process was given, the latest stay.
_MOST_KNOWN = 4


class Work:
    """A function or a pipeline, called in a worker as ``work(number, chunk, worker)``.

    Parameters
    ----------
    function : callable or Pipeline
    source : object
        What a chunk is read from by its number, where workers read; None where they are given the chunks.
    sink : object
        What they write to; None where they give the results back.

    Attributes
    ----------
    token : str
        The same in all processes, and of no other work.
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
        """The results of a chunk, or what the sink returned for each.

        Parameters
        ----------
        number : int
        chunk : object
        worker : int
            Which of its machine's workers this is: on machines of several GPUs they take turns.
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
            told = f"{error}".replace("on item 0", f"on chunk {number}", 1)
            raise PipelineError(told, stage=error.stage, item=number) from error.__cause__


class _Known:
    """The works that this process was given, by token."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.works: dict[str, Work] = {}


_known = _Known()


def _restored(token: str, *parts: Any) -> Work:
    """A work that came pickled: the one that is here already, with its streams, where it came before."""
    with _known.lock:
        found = _known.works.pop(token, None) or Work(*parts)
        found.token = token
        _known.works[token] = found
        while len(_known.works) > _MOST_KNOWN:
            del _known.works[next(iter(_known.works))]
    return found


def work_at(work: Work | str, number: int, chunk: Any, worker: int) -> list[Any] | None:
    """What a worker does: the results of a chunk; None where it is told the work's token, and does not know it."""
    found = _known.works.get(work) if isinstance(work, str) else work
    return None if found is None else found(number, chunk, worker)


def number_in(name: str) -> int:
    """The number at the end of a worker's name; 0 where there is none."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits or 0)


def _device_of(worker: int) -> contextlib.AbstractContextManager[None]:
    if not devices.has_gpu():
        return contextlib.nullcontext()
    return devices.on_device(worker % devices.device_count())
