"""Nodes of a running pipeline. Each node takes items, in order, from the node before it.

Nothing runs ahead by itself. The consumer takes an item from the last node, which takes from the node before, and so on
up to the source. Threads of a host stage take items by themselves. All other nodes work in the thread that takes from
them. Without host stages a pipeline is the consumer's thread and the device, and passes nothing between threads.

Each item of the source reaches the end as a `Parcel`, also if a stage failed on the item, dropped it, or made several
results of it. Items enter by a `Gate`, which limits the number of items under way, and leave the gate at the end.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from queue import Empty, SimpleQueue
from types import GeneratorType
from typing import Any, Final, Protocol

from cudakit.pipeline.stages import END, NOTHING, Parcel, Stage
from cudakit.streams import witnesses

#: Items among which the time that one takes is looked at; seconds for one that is brisk; what is let in at a time then.
_SAMPLE: Final = 64
_BRISK: Final = 1e-4
_BATCH: Final = 8


class Gate:
    """A limit of the number of items between the source and the consumer at a time.

    Parameters
    ----------
    depth : int
        Limit of items.
    elastic : bool
        Whether to admit `_BATCH - 1` more items, once items pass in less than `_BRISK` seconds each. Waiting threads
        are then notified once for every `_BATCH` items, because waking a thread takes longer than a quick item. Such
        quick items cannot need much memory.
    now : callable
        Monotonic clock, in seconds.
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
        """Count one more item between source and consumer, and return True. For one thread at a time.

        If the limit is reached, wait until an item leaves; with `block` False return False instead. Return False also
        once the gate was stopped.
        """
        if not self._room:
            try:
                self._room = self._more.get(block)
            except Empty:
                return False
        self._room -= 1
        return not self._stopped

    def leave(self) -> None:
        """Count one item less: it has reached the consumer. For one thread at a time."""
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
        """Close the gate: `enter` returns False and no thread waits any more."""
        self._stopped = True
        self._more.put(1)


#: The number of no item: says that the pipeline was stopped.
_STOPPED: Final = -1


class Node(Protocol):
    """A node of a pipeline, from which items are taken."""

    def take(self, block: bool) -> Parcel:
        """Return the next item in order, END after the last, or NOTHING (only if `block` is False)."""

    def stop(self) -> None:
        """Return END from now on, and wake waiting threads."""

    def close(self) -> None:
        """Release all resources, after all nodes were stopped."""


class Reader:
    """The first node of a pipeline: it reads the items of the source.

    Attributes
    ----------
    count : int
        Number of items read so far.
    """

    def __init__(self, source: Iterable[Any], gate: Gate | None) -> None:
        self._source = source
        named_items = getattr(source, "named_items", None)
        self._is_named = named_items is not None
        self._iterator = iter(source if named_items is None else named_items())
        #: Whether there may be items after one that cannot be read.
        self._goes_on = bool(getattr(self._iterator, "goes_on", False))
        self._gate = gate
        self._over = False
        self.count: int = 0

    def take(self, block: bool) -> Parcel:
        """Return the source's next item, END after the last, or NOTHING if the gate is full and `block` is False.

        Waits for the source even if `block` is False.
        """
        if self._over:
            return END
        if self._gate is not None and not self._gate.enter(block):
            return END if self._over else NOTHING
        try:
            if witnesses.watched():
                with witnesses.doing("host", "source", None, lane="source"):
                    value = next(self._iterator, END)
            else:
                value = next(self._iterator, END)
            if value is END:
                self._over = True
                return END
            parcel = Parcel(value, self.count, self._gate)
            if self._is_named:
                parcel.name, parcel.value = parcel.value
        except Exception as error:
            parcel = Parcel(None, self.count, self._gate)
            parcel.fail("source", error, final=not self._goes_on)
            self._over = parcel.ends(lenient=True)
        self.count += 1
        return parcel

    def stop(self) -> None:
        """Read no further items. Also calls the source's method `interrupt`, if it has one."""
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


class InOrder:
    """Results that several threads put in any order, and that one thread takes in the order of the items."""

    def __init__(self) -> None:
        #: Each with the number of what was taken and whether it is the last of that; those before their turn.
        self._results: SimpleQueue[tuple[int, Parcel, bool]] = SimpleQueue()
        self._early: dict[int, deque[tuple[int, Parcel, bool]]] = {}
        self._next = 0
        self._ended = False

    def put(self, number: int, parcel: Parcel, is_last: bool) -> None:
        """Add a result of item `number`, from any thread. `is_last` says that the item has no further results."""
        self._results.put((number, parcel, is_last))

    def stop(self) -> None:
        """Return END from now on, before all further results."""
        self._results.put((_STOPPED, END, True))

    def take(self, block: bool) -> Parcel:
        """Return the next result in order, END after the last, or NOTHING if none is ready and `block` is False.

        For one thread at a time.
        """
        early = self._early
        while not self._ended:
            waiting = early.get(self._next) if early else None
            if waiting:
                number, parcel, is_last = waiting.popleft()
            else:
                try:
                    number, parcel, is_last = came = self._results.get(block)
                except Empty:
                    return NOTHING
                if number != self._next and number != _STOPPED:
                    early.setdefault(number, deque()).append(came)
                    continue
            if is_last:
                if waiting is not None:
                    del early[self._next]
                self._next += 1
            self._ended = parcel is END
            return parcel
        return END


class Side(Node):
    """A node of threads that work side by side, with results in order.

    Attributes
    ----------
    results : InOrder
        Results of all threads.
    """

    def __init__(self) -> None:
        self.results: InOrder = InOrder()
        self._threads: list[threading.Thread] = []

    def _start(self, works: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        """Start a thread for each pair of a thread's name and the arguments of its call of `_work`."""
        for name, arguments in works:
            name = f"cudakit pipeline: {name}"
            self._threads.append(threading.Thread(target=self._work, args=arguments, name=name, daemon=True))
        for thread in self._threads:
            thread.start()

    def _work(self, *arguments: Any) -> None:
        """Take items, and put their results into `results`: the function of each thread. Subclasses override it."""
        raise NotImplementedError

    def take(self, block: bool) -> Parcel:
        """Return the next result in order, END after the last, or NOTHING if none is ready and `block` is False.

        For one thread at a time.
        """
        return self.results.take(block)

    def close(self) -> None:
        """Wait for the threads."""
        for thread in self._threads:
            # The garbage collector may drop a run in any thread, one of its own included.
            if thread is not threading.current_thread():
                thread.join()
        self.results = InOrder()


class Threads(Side):
    """A host stage: threads that take items, call the stage side by side, and return the results in order.

    Parameters
    ----------
    upstream : Node
        Node from which the threads take items.
    stage : Stage
        Host stage that is called.
    depth : int
        Limit, for each thread, of results that a stage has yielded and that the consumer has not taken.
    lenient : bool
        Whether to continue after an item on which the stage has failed.
    """

    def __init__(self, upstream: Node, stage: Stage, depth: int = 1, lenient: bool = False) -> None:
        super().__init__()
        self._upstream = upstream
        self._stage = stage
        self._lenient = lenient
        self._taking = threading.Lock()
        self._count_taken = 0
        self._over = False
        self._gates = [Gate(depth) for _ in range(stage.threads)]
        self._start((f"{stage.name} {number}", (gate,)) for number, gate in enumerate(self._gates))

    def stop(self) -> None:
        """Stop each thread after its present item."""
        self._over = True
        for gate in self._gates:
            gate.stop()
        self.results.stop()

    def _work(self, gate: Gate) -> None:
        function = self._stage.function
        while not self._over:
            # Only one of the threads takes at a time, so that items get their numbers in order.
            with self._taking:
                if self._over:
                    return
                number = self._count_taken
                try:
                    parcel = self._upstream.take(True)
                except BaseException as error:  # a thread that ends without a word would leave the consumer waiting
                    parcel = Parcel(None, number)
                    parcel.fail(self._stage.name, error, final=True)
                self._count_taken += 1
                if parcel is END or (parcel.fate is not None and parcel.ends(self._lenient)):
                    self._over = True
            if parcel.fate is None:
                try:
                    is_reported = witnesses.watched() and function is not same
                    result = self._report(function, parcel.value) if is_reported else function(parcel.value)
                    if type(result) is GeneratorType:
                        self._part(parcel, result, number, gate)
                    else:
                        parcel.value = result
                    del result
                except BaseException as error:
                    parcel.fail(self._stage.name, error)
                # The items before this one are delivered, whatever becomes of those behind it.
                if parcel.fate is not None and parcel.ends(self._lenient):
                    self._over = True
            self.results.put(number, parcel, True)
            del parcel

    def _part(self, parcel: Parcel, results: Generator[Any, None, None], number: int, gate: Gate) -> None:
        """Put a parcel into `results` for each value that a stage yields for an item, once `gate` admits it.

        `results` is the stage's generator, and `number` the item's position in the order. Afterwards `parcel` itself
        has no value: it records how many results there were.
        """
        count = 0
        try:
            while (value := self._report(next, results, END)) is not END:
                if not gate.enter(True):
                    break
                self.results.put(number, parcel.part(value, count, gate), False)
                count += 1
        finally:
            results.close()
        parcel.split(count)

    def _report(self, function: Any, *arguments: Any) -> Any:
        with witnesses.doing("host", self._stage.name, None):
            return function(*arguments)


def same(item: Any) -> Any:
    """Return `item` unchanged. The stage function of a source that is read on a thread of its own."""
    return item
