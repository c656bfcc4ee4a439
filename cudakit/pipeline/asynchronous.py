"""Asynchronous sources, read in an event loop for a thread that waits for each item.

The source is read one item at a time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, ClassVar

from cudakit.errors import CudakitError

_END = object()
_ENDED = "the source's event loop has cancelled it, or has ended"
#: Seconds after which whoever waits looks whether the event loop still runs.
_LOOK = 0.1


class AsyncSource(Iterator[Any]):
    """The items of an asynchronous source as an ordinary iterator: `next` waits while an event loop reads the item.

    Attributes
    ----------
    loop : asyncio.AbstractEventLoop or None
        Event loop that runs the source: the loop that ran when this object was made. None: a new loop in a thread.
    """

    threaded: ClassVar[bool] = True

    def __init__(self, source: AsyncIterable[Any]) -> None:
        self._source = source
        self._iterator: Any = None
        self.loop: asyncio.AbstractEventLoop | None = _running_loop()
        self._own: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._step: Future[Any] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._ending: asyncio.Task[Any] | None = None

    def __next__(self) -> Any:
        """Return the next item."""
        with self._lock:
            if self._stopped:
                raise StopIteration
            self._step = self._begin(self._next_item)
        try:
            item = self._wait(self._step)
        except CancelledError as error:
            if self._stopped:
                raise StopIteration from None
            raise CudakitError(_ENDED) from error
        if item is _END:
            raise StopIteration
        return item

    def interrupt(self) -> None:
        """Stop reading, and wake a thread that waits for an item."""
        with self._lock:
            self._stopped = True
        if self._step is not None:
            self._step.cancel()

    def close(self) -> None:
        """Close the source: its ``finally`` blocks run in its event loop. Waits for them, except in the loop itself."""
        self.interrupt()
        loop = self._own or self.loop
        if self._step is None or loop is None or not (self._own or loop.is_running()):
            return
        if self._own is None and _running_loop() is loop:
            self._ending = loop.create_task(self._end())  # the loop itself refers to it weakly
            return
        try:
            self._wait(self._begin(self._end))
        except CancelledError:
            return  # the loop has ended, and has closed what was left
        finally:
            if self._own is not None and self._thread is not None:
                self._own.call_soon_threadsafe(self._own.stop)
                self._thread.join()
                self._own.close()

    def _begin(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Future[Any]:
        if self.loop is None and self._own is None:
            self._own = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._own.run_forever, name="cudakit pipeline: event loop", daemon=True
            )
            self._thread.start()
        loop = self._own or self.loop
        assert loop is not None
        step: Future[Any] = Future()
        # The coroutine is made in the loop: one that ends first leaves none that nobody awaits.
        loop.call_soon_threadsafe(_start, loop, work, step)
        return step

    def _wait(self, step: Future[Any]) -> Any:
        while True:
            try:
                return step.result(_LOOK)
            except TimeoutError:
                if step.done():
                    return step.result()  # what it is, or a timeout of the source's own
            if self.loop is not None and not self.loop.is_running():
                step.cancel()

    async def _next_item(self) -> Any:
        self._task = asyncio.current_task()
        if self._iterator is None:
            self._iterator = aiter(self._source)
        item = await anext(self._iterator, _END)
        if item is _END and getattr(asyncio.get_running_loop(), "_asyncgens_shutdown_called", False):
            raise CudakitError(_ENDED)  # a loop closes its generators before it ends: these are not all items
        return item

    async def _end(self) -> None:
        if self._task is not None and not self._task.done():
            # It is cancelled, once: again, and what the source does at its end would be cut short.
            await asyncio.wait([self._task])
        close = getattr(self._iterator, "aclose", None)
        if close is not None:
            await close()


def _start(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, Any]], step: Future[Any]) -> None:
    """Start the coroutine of `work()` as a task of `loop`. Call this in the loop's thread.

    `step` is the future through which other threads see the task's result or error. Cancelling `step` cancels the task.
    If `step` is cancelled already, nothing starts.
    """
    if step.cancelled():
        return
    task = loop.create_task(work())

    def tell(task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            step.cancel()
        elif step.set_running_or_notify_cancel():
            if (error := task.exception()) is not None:
                step.set_exception(error)
            else:
                step.set_result(task.result())

    def stop(step: Future[Any]) -> None:
        if step.cancelled():
            with suppress(RuntimeError):  # the loop has ended, and its tasks with it
                loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(tell)
    step.add_done_callback(stop)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
