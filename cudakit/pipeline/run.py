"""One run of a pipeline over a source: an iterator over the results."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cudakit.errors import PipelineError
from cudakit.pipeline.nodes import END, Failure, Gate, Node
from cudakit.pipeline.progress import Progress

if TYPE_CHECKING:
    import asyncio


class Run(Iterator[Any], AsyncIterator[Any]):
    """Results of a pipeline, in order: for ``for``, ``async for``, or item by item with `next`.

    It is a context manager, too. Whoever stops early closes it, by leaving the loop and dropping it, by ``with`` or by
    `close`: the streams are waited for, threads end, memory is given back.
    """

    def __init__(
        self, nodes: Sequence[Node], gate: Gate | None, progress: Progress | None, stages: Sequence[str]
    ) -> None:
        self._nodes = nodes
        self._last = nodes[-1]
        self._gate = gate
        self._progress = progress
        self._stages = stages
        self._closed = False
        #: Held while nodes are taken from, so that nobody gives their memory back meanwhile.
        self._driving = threading.RLock()
        self._driver: ThreadPoolExecutor | None = None
        self._pending: asyncio.Future[Any] | None = None

    def __repr__(self) -> str:
        return f"<cudakit.pipeline.Run {'closed' if self._closed else 'open'}: {' → '.join(self._stages)}>"

    def __iter__(self) -> Run:
        return self

    def __next__(self) -> Any:
        """The next result.

        Raises
        ------
        PipelineError
            Where the source or a stage failed, once every item before has been given.
        """
        try:
            with self._driving:
                token = END if self._closed else self._last.take(True)
                if self._gate is not None:
                    self._gate.leave()
            if self._progress is not None and token is not END and type(token) is not Failure:
                self._progress.add()
        except BaseException:
            self.close()
            raise
        if token is END:
            self.close()
            raise StopIteration
        if type(token) is Failure:
            self.close()
            raise self._explained(token) from token.error
        return token

    def close(self) -> None:
        """Stop: wait for what is under way, end the threads, give all memory back. More than once does no harm."""
        if self._closed:
            return
        self._closed = True
        for node in self._nodes:
            node.stop()
        with self._driving, contextlib.ExitStack() as closing:
            # From the last to the first, each whatever another raises.
            for node in self._nodes:
                closing.callback(node.close)
        if self._progress is not None:
            self._progress.close()
        if self._driver is not None:
            # The last result was taken in the driver's own thread, which cannot wait for itself.
            self._driver.shutdown(wait=False)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    # ── async for ────────────────────────────────────────────────────────────────────────────────────────────────

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> Any:
        """The next result; the event loop goes on meanwhile, for the waiting is done in a thread."""
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
        """`close`, without stopping the event loop for the time it takes."""
        import asyncio

        await asyncio.to_thread(self.close)

    def _explained(self, failure: Failure) -> BaseException:
        if not isinstance(failure.error, Exception):
            return failure.error
        return PipelineError(
            f"{_where(failure, self._stages)} failed on item {failure.item}: {type(failure.error).__name__}: "
            f"{failure.error}",
            stage=failure.stage,
            item=failure.item,
        )


def _where(failure: Failure, stages: Sequence[str]) -> str:
    if failure.stage not in stages:
        return "the source" if failure.stage == "source" else f"the {failure.stage}"
    place = f" ({stages.index(failure.stage) + 1} of {len(stages)})" if stages.count(failure.stage) == 1 else ""
    return f"stage {failure.stage!r}{place}"
