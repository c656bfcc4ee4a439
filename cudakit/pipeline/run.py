"""A run of a pipeline over a source: an iterator over the results, with counters."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import time
import traceback
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TextIO

import numpy as np

from cudakit.errors import ArgumentError, CudakitError, PipelineError, PipelineWarning, shortened
from cudakit.pipeline.nodes import Node, Reader
from cudakit.pipeline.stages import END, Failure, Gone, Parcel, Stage
from cudakit.pipeline.streams import mapped
from cudakit.streams import witnesses
from cudakit.types.shown import Table, html

if TYPE_CHECKING:
    import asyncio


class Closing(Iterator[Any]):
    """An iterator over results with counters, and resources to release."""

    #: Until there is something to give back.
    _closed = True

    def _begin(self, progress: Callable[[Counters], object] | None) -> None:
        """Start the counters. Also report them to `progress` from now on, unless it is None."""
        self._progress = progress
        self._items = self._bytes = self._dropped = self._failed = self._left_out = 0
        self._start = self._reported_at = time.perf_counter()
        self._end = self._waited = 0.0
        self._closed = False

    @abstractmethod
    def _items_under_way(self) -> int:
        """Return the number of items under way while the iterator is open."""

    @property
    def counters(self) -> Counters:
        """Counters of the run, from any thread."""
        now = self._end if self._closed and self._end else time.perf_counter()
        return Counters(
            items=self._items,
            bytes=self._bytes,
            dropped=self._dropped,
            failed=self._failed,
            left_out=self._left_out,
            under_way=0 if self._closed else self._items_under_way(),
            elapsed_s=now - self._start,
            waited_s=self._waited,
            over=self._closed,
        )

    def _tell(self, now: float) -> None:
        """Report the counters to `progress`. After an exception in `progress` there are no more reports."""
        self._reported_at = now
        progress, self._progress = self._progress, None
        if progress is not None:
            progress(self.counters)
            self._progress = progress

    @abstractmethod
    def close(self) -> None:
        """Stop, and release all resources. Further calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            self.close()


@dataclass(frozen=True)
class Counters:
    """Counters of a run of a pipeline.

    Attributes
    ----------
    items : int
        Number of delivered results.
    bytes : int
        Bytes of the results' arrays.
    dropped : int
        Number of items without a result.
    failed : int
        Number of items on which a stage, or the source, failed.
    left_out : int
        Number of failed items without a result: skipped, or not replaced by `on_error`.
    under_way : int
        Number of items that were read and are not finished.
    elapsed_s : float
        Seconds from the run's creation until now, or until it was closed.
    waited_s : float
        Seconds that the consumer has waited for results. The rest of `elapsed_s` is the consumer's own.
    over : bool
        Whether the run is closed.
    """

    items: int
    bytes: int
    dropped: int
    failed: int
    left_out: int
    under_way: int
    elapsed_s: float
    waited_s: float
    over: bool

    @property
    def items_per_s(self) -> float:
        """Results per second."""
        return self.items / max(self.elapsed_s, 1e-9)

    @property
    def bytes_per_s(self) -> float:
        """Bytes of results per second."""
        return self.bytes / max(self.elapsed_s, 1e-9)


class Skipped:
    """Handler of the items that ``on_error="skip"`` leaves out."""

    def __init__(self) -> None:
        self._count, self._first = 0, ""

    def __call__(self, error: PipelineError) -> None:
        """Count an item that is left out."""
        self._count += 1
        self._first = self._first or str(error)

    def warn(self, items: int) -> None:
        """Warn of the items that were left out, with the first error, at the line of the caller."""
        if self._count:
            message = (
                f"Pipeline: on_error='skip' left out {self._count} of {items} items; the first error: {self._first}"
            )
            witnesses.warn_at_call(message, PipelineWarning)


class Line:
    """A progress line: items done, total if known, and items per second.

    Parameters
    ----------
    total : int
        Number of the source's items; 0 if unknown.
    output : text file, optional
        File to write to. Default: standard error.
    """

    def __init__(self, total: int, output: TextIO | None = None) -> None:
        self._total = total
        self._output = output if output is not None else sys.stderr

    def __call__(self, counters: Counters) -> None:
        """Show the counters. For a closed run, end the line."""
        finished = counters.items + counters.dropped + counters.left_out
        if self._total:
            filled = min(20, 20 * finished // self._total)
            text = f"{'█' * filled}{'·' * (20 - filled)} {finished}/{self._total}"
        else:
            text = f"{finished} items"
        left_out = f", {counters.left_out} left out" if counters.left_out else ""
        self._output.write(f"\r{text}  {counters.items_per_s:.1f}/s{left_out}{chr(10) if counters.over else ''}")
        self._output.flush()


def size_of(item: Any) -> int:
    """Return the bytes of an item's arrays."""
    if type(item) is np.ndarray:
        return item.nbytes
    sizes: list[int] = []
    mapped(item, lambda part: sizes.append(part.nbytes) if isinstance(part, np.ndarray) else None)
    return sum(sizes)


#: Seconds between two times that a run tells how far it has come.
INTERVAL = 0.1


class Run(Closing, AsyncIterator[Any]):
    """Results of a pipeline, in order: for ``for``, ``async for``, or item by item with `next`.

    A run is a context manager, too. To stop early, leave the loop and drop the run, use ``with``, or call `close`. The
    run then waits for its streams, ends its threads, and releases its memory.

    Attributes
    ----------
    item : int
        Number of the source's item, from 0, of the last result.
    name : str or None
        Name of this item in the source.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        reader: Reader,
        stages: Sequence[Stage],
        on_error: Callable[[PipelineError], Any] | None = None,
        progress: Callable[[Counters], object] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._nodes = nodes
        self._last = nodes[-1]
        self._reader = reader
        self._stages = stages
        self._on_error = on_error
        #: In which the source is read: whoever waits for a result must not be in its way.
        self._loop = loop
        self.item: int = -1
        self.name: str | None = None
        #: What a trace calls the caller's time between two results; None: the caller reports it.
        self.consumer: str | None = "consumer"
        self._consuming: contextlib.AbstractContextManager[object] | None = None
        self._past = 0
        self._begin(progress)
        #: Held while nodes are taken from, so that nobody gives their memory back meanwhile.
        self._driving = threading.RLock()
        self._driver: ThreadPoolExecutor | None = None
        self._pending: asyncio.Future[Any] | None = None

    def __repr__(self) -> str:
        names = " → ".join(stage.name for stage in self._stages)
        return f"<cudakit.pipeline.Run {'closed' if self._closed else 'open'}: {names}>"

    def _repr_html_(self) -> str:
        """Return the counters and stages, for a notebook."""
        now = self.counters
        counters = [(field.name, getattr(now, field.name)) for field in dataclasses.fields(now)]
        stages = [(number, stage.name) for number, stage in enumerate(self._stages)]
        return html(repr(self), Table(("counter", ""), counters, (1,)), Table(("", "stage"), stages, (0,)))

    def __next__(self) -> Any:
        """Return the next result.

        Raises
        ------
        PipelineError
            If the source or a stage failed. The results of all earlier items are delivered first.
        """
        start = time.perf_counter()
        if self._loop is not None:
            _require_outside(self._loop)
        try:
            if self._consuming is not None:
                self._end_consuming()
            if self._progress is not None and start - self._reported_at >= INTERVAL:
                self._tell(start)
            with self._driving:
                while True:
                    parcel = END if self._closed else self._last.take(True)
                    if parcel.room is not None:
                        parcel.room.leave()
                    if parcel.fate is None or not self._passes(parcel):
                        break
        except BaseException as error:
            try:
                self.close()
            finally:
                raise error
        if parcel is END:
            self.close()
            raise StopIteration
        self.item, self.name, value = parcel.number, parcel.name, parcel.value
        self._items += 1
        self._bytes += value.nbytes if type(value) is np.ndarray else size_of(value)
        self._waited += time.perf_counter() - start
        if self.consumer is not None and witnesses.watched():
            self._consuming = witnesses.doing("host", self.consumer, None, lane=self.consumer)
            self._consuming.__enter__()
        return value

    def _end_consuming(self) -> None:
        """Report to traces that the caller is done with the last result. Without a trace, does nothing."""
        consuming, self._consuming = self._consuming, None
        if consuming is not None:
            consuming.__exit__(None, None, None)

    def _passes(self, parcel: Parcel) -> bool:
        """Return True if the consumer gets nothing for this parcel, whose item has no value. Also counts the item.

        Return False at the end, and if `on_error` has given a value to deliver in place of a failed item. Raise for a
        failure that ends the run.
        """
        if parcel is END:
            return False
        self._past = parcel.number + 1
        fate = parcel.fate
        if not isinstance(fate, Failure):
            self._dropped += fate is Gone.DROPPED
            return True
        self._failed += 1
        if not isinstance(fate.error, Exception):
            raise fate.error
        error = self._explained(parcel, fate)
        if self._on_error is None or fate.final:
            raise error from fate.error
        error.__cause__ = fate.error
        # Whoever keeps the error shall not keep the item's arrays, which the stages' frames refer to.
        traceback.clear_frames(fate.error.__traceback__)
        parcel.value = self._on_error(error)
        parcel.fate = None
        self._left_out += parcel.value is None
        return parcel.value is None

    def _items_under_way(self) -> int:
        return max(0, self._reader.count - max(self._past, self.item + 1))

    def close(self) -> None:
        """Stop: wait for work under way, end the threads, release all memory. Further calls do nothing."""
        if self._closed:
            return
        self._closed = True
        self._end_consuming()
        for node in self._nodes:
            node.stop()
        try:
            with self._driving:
                close_all(self._nodes)
        finally:
            if self._driver is not None:
                # The last result was taken in the driver's own thread, which cannot wait for itself.
                self._driver.shutdown(wait=False)
            self._end = time.perf_counter()
            self._tell(self._end)
        if isinstance(self._on_error, Skipped):
            self._on_error.warn(self._reader.count)

    # ── async for ────────────────────────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> Any:
        """Return the next result. The event loop continues meanwhile: a thread waits."""
        import asyncio

        if self._pending is None:
            if self._closed:
                raise StopAsyncIteration
            if self._driver is None:
                self._driver = ThreadPoolExecutor(1, "cudakit pipeline: async")
            self._pending = asyncio.get_running_loop().run_in_executor(self._driver, next, self, END)
        pending = self._pending
        try:
            # Whoever waits may be cancelled, as by a timeout; the result is then the next one's who asks.
            token = await asyncio.shield(pending)
        finally:
            if pending.done():
                self._pending = None
        if token is END:
            raise StopAsyncIteration
        return token

    async def aclose(self) -> None:
        """Do `close` without blocking the event loop."""
        import asyncio

        await asyncio.to_thread(self.close)

    def _explained(self, parcel: Parcel, failure: Failure) -> PipelineError:
        names = [stage.name for stage in self._stages]
        error, name = failure.error, "" if parcel.name is None else f" ({parcel.name})"
        where, hint = "the source" if failure.stage == "source" else f"the {failure.stage}", ""
        if failure.stage in names:
            index = names.index(failure.stage)
            where = f"stage {shortened(failure.stage)}"
            if names.count(failure.stage) == 1:
                where += f" ({index + 1} of {len(names)})"
            if isinstance(error, TypeError) and not (isinstance(error, CudakitError) or self._stages[index].on_host):
                hint = ". A stage of the device is function(item, stream), of the host pipeline.host(function)"
        return PipelineError(
            f"{where} failed on item {parcel.number}{name}: {type(error).__name__}: {error}{hint}",
            stage=failure.stage,
            item=parcel.number,
            name=parcel.name,
        )


def close_all(nodes: Sequence[Node]) -> None:
    """Close stopped nodes from the last to the first. All nodes are closed, even if one of them raises an exception."""
    with contextlib.ExitStack() as closing:
        for node in nodes:
            closing.callback(node.close)


def _require_outside(loop: asyncio.AbstractEventLoop) -> None:
    import asyncio

    with contextlib.suppress(RuntimeError):
        if asyncio.get_running_loop() is loop:
            raise ArgumentError(
                "the source is read in this event loop, which cannot wait for a result meanwhile: take them by "
                "`async for`, or give them to a sink by `await pipeline.arun(source, sink)`"
            )
