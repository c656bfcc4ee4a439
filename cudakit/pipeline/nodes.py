"""What a running pipeline is made of: nodes, each of which takes items, in order, from the one before it.

Nothing runs ahead by itself. Whoever wants an item takes it from the last node, which takes from the node before, and
so on up to the source. A host stage's threads take for themselves; all other nodes work in the thread that takes from
them: without host stages a pipeline is the consumer's thread and the device, and hands nothing between threads.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol

from cudakit.pipeline.stages import Stage
from cudakit.streams import witnesses


class _Token:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


#: No item comes any more.
END: Final = _Token("END")
#: No item is there yet.
NOTHING: Final = _Token("NOTHING")
#: The number of no item: says that the pipeline was stopped.
_STOPPED: Final = -1
#: Items among which the time that one takes is looked at; seconds for one that is brisk; what is let in at a time then.
_SAMPLE: Final = 64
_BRISK: Final = 1e-4
_BATCH: Final = 8


class Failure(NamedTuple):
    """Takes the place of the item on which a stage failed, behind the items that came before it."""

    stage: str
    item: int
    error: BaseException


class Node(Protocol):
    """Something that items are taken from."""

    def take(self, block: bool) -> Any:
        """The next item in order; a `Failure` or END, which is the last; NOTHING only where not `block`."""

    def stop(self) -> None:
        """Give END from now on, and wake whoever waits."""

    def close(self) -> None:
        """Give back all that is held, after everyone was stopped."""


class Gate:
    """Lets `depth` items be between the source and the consumer at a time.

    Parameters
    ----------
    depth : int
    elastic : bool
        Let in `_BATCH - 1` more once items pass in less than `_BRISK` seconds each, and tell whoever waits at the gate
        of `_BATCH` that have left at a time: to wake a thread takes longer than such an item does. What takes so
        little time cannot take up much memory.
    now : callable
        Seconds, of a clock that does not go back.
    """

    def __init__(self, depth: int, elastic: bool = False, now: Callable[[], float] = time.perf_counter) -> None:
        self._room = depth
        self._elastic = elastic
        self._now = now
        self._since = -math.inf
        self._batch = 1
        self._left = 0
        #: How many may come in after those that have left.
        self._more: SimpleQueue[int] = SimpleQueue()
        self._stopped = False

    def enter(self, block: bool) -> bool:
        """Take room for one item; False where there is none, or the pipeline was stopped. For one thread at a time."""
        if not self._room:
            try:
                self._room = self._more.get(block)
            except Empty:
                return False
        self._room -= 1
        return not self._stopped

    def leave(self) -> None:
        """An item has reached the consumer. For one thread at a time."""
        self._left += 1
        if self._left % self._batch == 0:
            self._more.put(self._batch)
        if self._elastic and self._left % _SAMPLE == 0:
            since, self._since = self._since, self._now()
            if self._since - since < _SAMPLE * _BRISK:
                self._elastic = False
                self._batch = _BATCH
                self._more.put(_BATCH - 1)

    def stop(self) -> None:
        """Let nobody in any more, and nobody wait."""
        self._stopped = True
        self._more.put(1)


class Reader:
    """The source, as a node."""

    def __init__(self, source: Iterable[Any], gate: Gate | None) -> None:
        self._source = source
        self._iterator = iter(source)
        self._gate = gate
        self._count = 0
        self._over = False

    def take(self, block: bool) -> Any:
        """The source's next item; waits for the source even where not `block`."""
        if self._over:
            return END
        if self._gate is not None and not self._gate.enter(block):
            return END if self._over else NOTHING
        try:
            item = next(self._iterator)
        except StopIteration:
            self._over = True
            return END
        except Exception as error:
            self._over = True
            return Failure("source", self._count, error)
        self._count += 1
        return item

    def stop(self) -> None:
        """Take no more from the source, and wake a source that knows how to be woken."""
        self._over = True
        if self._gate is not None:
            self._gate.stop()
        interrupt = getattr(self._source, "interrupt", None)
        if callable(interrupt):
            interrupt()

    def close(self) -> None:
        """Close the source's generator; its ``finally`` blocks run now."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()


class Threads:
    """A host stage: threads that take items, work on them side by side, and give the results in order.

    Parameters
    ----------
    upstream : Node
    stage : Stage
    """

    def __init__(self, upstream: Node, stage: Stage) -> None:
        self._upstream = upstream
        self._stage = stage
        self._taking = threading.Lock()
        self._taken = 0
        #: Results as they come, each with its item's number; those that came before it was their turn.
        self._results: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self._early: dict[int, Any] = {}
        self._next = 0
        self._ended = False
        self._over = False
        self._stopped = False
        names = [f"cudakit pipeline: {stage.name} {number}" for number in range(stage.threads)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def take(self, block: bool) -> Any:
        """The next result in order; for one thread at a time."""
        early = self._early
        while not self._ended and self._next not in early:
            try:
                number, result = self._results.get(block)
            except Empty:
                return NOTHING
            early[number] = result
            self._ended = number == _STOPPED
        if self._ended:
            return END
        result = early.pop(self._next)
        self._ended = result is END
        self._next += 1
        return result

    def stop(self) -> None:
        """Let the threads end after the item that each is on."""
        self._stopped = True
        self._results.put((_STOPPED, END))

    def close(self) -> None:
        """Wait for the threads."""
        for thread in self._threads:
            # The garbage collector may drop a run in any thread, one of its own included.
            if thread is not threading.current_thread():
                thread.join()
        self._early.clear()
        self._results = SimpleQueue()

    def _work(self) -> None:
        function, name = self._stage.function, self._stage.name
        while not self._over:
            # Only one of the threads takes at a time, so that items get their numbers in order.
            with self._taking:
                if self._over:
                    return
                try:
                    item = self._upstream.take(True)
                except BaseException as error:  # a thread that ends without a word would leave the consumer waiting
                    item = Failure(name, self._taken, error)
                number = self._taken
                self._taken += 1
                self._over = self._stopped or item is END or type(item) is Failure
            result = item if item is END or type(item) is Failure else self._apply(function, name, item, number)
            # The items before this one are delivered, whatever becomes of those behind it.
            self._over = self._over or type(result) is Failure
            self._results.put((number, result))
            del item, result

    @staticmethod
    def _apply(function: Callable[[Any], Any], name: str, item: Any, number: int) -> Any:
        try:
            if not witnesses.watched():
                return function(item)
            with witnesses.doing("host", name, None):
                return function(item)
        except BaseException as error:
            return Failure(name, number, error)


def same(item: Any) -> Any:
    """The stage of a source that is read on a thread of its own."""
    return item
