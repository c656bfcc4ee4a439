"""Successive device stages: items are copied in, computed and copied out, several at a time.

Each item in flight has a buffer set: device memory and pinned memory for its arrays, and three events. A buffer set is
used again only after the host has seen its last copy done. So no stream ever waits for a free buffer set.

Small items that pass quickly are put on the streams in batches of up to eight. Such an item has up to 64 KiB and comes
within a tenth of a millisecond, and its result is done when it is asked for. The copies of a batch to the device come
first, then the stages, then the copies to the host. The items of a batch share its events.

On several GPUs a `Spread` has a section for each GPU. Each section has its own streams and its own thread. It takes the
next item when it has room.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from types import GeneratorType
from typing import Any

from cudakit.errors import ArgumentError
from cudakit.pipeline.nodes import Node, Side
from cudakit.pipeline.stages import END, NOTHING, Parcel, Stage
from cudakit.pipeline.streams import BufferSet, Lanes, Outgoing, mapped
from cudakit.pipeline.transfers import Inbound, Outbound, arrays_of
from cudakit.streams import devices

#: Items in flight by what one takes up on the device, in bytes: small items need more of them to hide latency.
_DEPTHS = ((1 << 18, 16), (1 << 22, 8))
_LEAST_DEPTH = 4
#: Part of the free device memory that the buffer sets may take.
_SHARE = 0.5
#: What an item is taken to need in all, of its own size, before it is known what the stages need.
_SPARING = 4
#: Bytes of an item and its result up to which items are put on the streams together; most such items; and seconds for
#: each of them, its way from the source included, up to which more are.
_SMALL = 1 << 16
_MOST_TOGETHER = 8
_BRISK = 1e-4


_RETURNED_NONE = (
    "it returned None: a device stage returns the next stage's item, as in `return x`, also where a "
    "kernel worked in place; where there is nothing to give on, return ()"
)

#: A stage's name and function.
_Called = tuple[str, Callable[[Any, Any], Any]]


class Section:
    """The node that runs consecutive device stages of a pipeline.

    Parameters
    ----------
    upstream : Node
        Node from which the section takes items.
    stages : sequence of Stage
        Device stages, in the order of their calls.
    lanes : Lanes
        Streams for the copies and the stages.
    depth : int or None
        Limit of items in flight. None: chosen after the first item, by its size and the free memory.
    graph : bool
        Whether to capture the stages into graphs and to replay the graphs.
    lenient : bool
        Whether to continue after an item on which a stage has failed.
    now : callable
        Monotonic clock, in seconds.
    """

    def __init__(
        self,
        upstream: Node,
        stages: Sequence[Stage],
        lanes: Lanes,
        depth: int | None,
        graph: bool,
        lenient: bool = False,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._upstream = upstream
        self._stages = [(stage.name, stage.function) for stage in stages]
        self._step = ""
        self._lanes = lanes
        self._limit = depth
        self._graph = graph
        self._lenient = lenient
        self._keys: list[Any] = []
        self._copied: list[bool] | None = None
        self._sets: list[BufferSet] = []
        self._device_id: int | None = None
        self._free: list[BufferSet] = []
        #: Items on the device, and those that pass by.
        self._flight: deque[tuple[Parcel, BufferSet | None]] = deque()
        #: Results of an item that several were made of, and the item itself.
        self._several: deque[Parcel] = deque()
        self._over = False
        #: Items whose copies to the device are on their stream, and nothing else yet.
        self._waiting: list[tuple[Parcel, BufferSet]] = []
        #: Items that are put on the streams together now, and at most (0: the first item was not measured).
        self._batch, self._most_together = 1, 0
        #: Whether no result was waited for since the last items were taken.
        self._is_ahead = True
        self._now = now
        self._inbound, self._outbound = Inbound(lanes), Outbound(lanes)
        self._contexts = [lanes.inside(lane) for lane in lanes.computing]

    # ── a node ───────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, block: bool) -> Parcel:
        """Return the next result in order, END after the last, or NOTHING if none is ready and `block` is False.

        Also takes further items and puts their work on the streams, up to the limit of items in flight.
        """
        if self._several:
            return self._several.popleft()
        flight = self._flight
        if not self._over and len(flight) <= (self._limit or 1) - self._batch:
            self._fill(block)
        if not flight:
            return END if self._over else NOTHING
        parcel, buffers = flight[0]
        if buffers is not None and buffers.last is not None:
            if not (block or buffers.last.departed.is_done):
                return NOTHING
            parcel = self._finish(parcel, buffers)
        flight.popleft()
        return parcel

    def _fill(self, block: bool) -> None:
        """Take items, and put their work on the streams, up to the limit of items in flight.

        Small items that come and go quickly are put on the streams in batches, which share their events.
        """
        flight, upstream, batch = self._flight, self._upstream, self._waiting
        count, start = len(flight), self._now()
        if self._device_id is not None:
            devices.make_current(self._device_id)  # another thread may have taken the items before
        try:
            while not self._over and len(flight) < (self._limit or 1):
                # With something to deliver there is no waiting for the source: whoever feeds it may wait for a result.
                parcel = upstream.take(block and not flight)
                if parcel is NOTHING:
                    break
                if parcel is END:
                    self._over = True
                    break
                buffers = self._send(parcel) if parcel.fate is None else None
                flight.append((parcel, buffers))
                if buffers is not None:
                    batch.append((parcel, buffers))
                if parcel.fate is not None and parcel.ends(self._lenient):
                    self._over = True
                if len(batch) >= self._batch:
                    self._submit()
        finally:
            if batch:
                self._submit()
        if self._now() - start > (len(flight) - count) * _BRISK:
            self._batch = 1
        elif self._is_ahead:
            self._batch = min(2 * self._batch, self._most_together or 1)
        self._is_ahead = True

    def stop(self) -> None:
        """Take no more items from the node before."""
        self._over = True

    def close(self) -> None:
        """Wait for the work on the device, and release all buffer sets."""
        self._over = True
        self._lanes.drain()
        self._flight.clear()
        self._several.clear()
        for buffers in self._sets:
            buffers.close()
        self._sets.clear()
        self._free.clear()
        self._waiting.clear()

    # ── onto the device ──────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, parcel: Parcel) -> BufferSet | None:
        """Enqueue the copies of an item to the device, and return its buffer set, also if a copy failed.

        Return None if the item has none. The failure is then in `parcel`.
        """
        self._step = "copy to the device"
        buffers = None
        try:
            if not self._sets:
                self._prepare(parcel.value)
            buffers = self._free.pop() if self._free else self._new_buffers()
            buffers.last = None
            buffers.value = self._inbound.send(buffers, parcel.value)
            parcel.value = None
        except Exception as error:
            parcel.fail(self._step, error)
        return buffers

    def _submit(self) -> None:
        """Put the remaining work of the waiting items on the streams: stages, and copies to the host.

        The events of the last item's buffer set are recorded for all of them. After an item whose failure ends the run,
        no further item is in flight.
        """
        batch = self._waiting
        last = batch[-1][1]
        lane, arriving, leaving = last.lane, self._lanes.arriving, self._lanes.leaving
        try:
            with last.inside:
                last.arrived = arriving.record(last.arrived)
                lane.wait(last.arrived)
                for parcel, buffers in batch:
                    if parcel.fate is None:
                        self._compute(parcel, buffers)
                    if parcel.fate is not None and parcel.ends(self._lenient):
                        self._over = True
                        while self._flight[-1][0] is not parcel:
                            self._flight.pop()
                        break
                last.computed = lane.record(last.computed)
                leaving.wait(last.computed)
                for parcel, buffers in batch:
                    outgoing, buffers.outgoing = buffers.outgoing, None
                    try:
                        if outgoing is not None:
                            self._outbound.send(buffers, outgoing)
                    except Exception as error:
                        parcel.fail("copy from the device", error)
                        self._over = self._over or parcel.ends(self._lenient)
                last.departed = leaving.record(last.departed)
            for _, buffers in batch:
                buffers.last = last
            last.is_done = False
            if self._most_together == 0 and batch[-1][0].fate is None:
                self._measure(last)
        except Exception as error:
            for parcel, _ in batch:
                parcel.fail(self._step, error, final=True)
            self._over = True
        finally:
            batch.clear()

    def _compute(self, parcel: Parcel, buffers: BufferSet) -> None:
        """Call the stages on an item. Store what is to be copied to the host, or record the failure in `parcel`."""
        try:
            if self._graph:
                self._step = "graph"
                buffers.outgoing = self._replay(buffers)
                return
            several = self._through(buffers, self._stages)
            self._step = "copy from the device"
            buffers.outgoing = self._outbound.settle(buffers, buffers.rooms) if several is None else several
        except Exception as error:
            parcel.fail(self._step, error)

    def _measure(self, buffers: BufferSet) -> None:
        """Choose after the first item how many are in flight, if the caller did not, and how many form a batch."""
        lanes = self._lanes
        size = sum(room.device.nbytes for room in buffers.rooms) + getattr(buffers.value, "nbytes", 0)
        if self._limit is None:
            self._limit = self._chosen_depth(size)
        is_small = size <= _SMALL and not lanes.emulated and len(lanes.computing) == 1
        self._most_together = min(_MOST_TOGETHER, max(1, self._limit // 2)) if is_small else 1

    def _through(self, buffers: BufferSet, stages: Sequence[_Called]) -> Outgoing | None:
        """Call stages, one after the other, on the value in `buffers`. Store the last result there, and return None.

        If a stage yields, call the remaining stages on each yielded result, and store the list of results. Then return
        pairs of a device array and the array to copy to the host.
        """
        value, buffers.value = buffers.value, None
        lane, rest = buffers.lane, iter(stages)
        for name, function in rest:
            self._step = name
            value = function(value, lane)
            if type(value) is GeneratorType:
                return self._through_each(buffers, value, name, tuple(rest))
            if value is None:
                raise ArgumentError(_RETURNED_NONE)
        buffers.value = value
        return None

    def _through_each(
        self, buffers: BufferSet, results: Generator[Any, None, None], name: str, stages: Sequence[_Called]
    ) -> Outgoing:
        if self._graph:
            raise ArgumentError(
                "it yields: with graph=True a stage is called once, and gives one result. Return it, or leave "
                "graph=True out"
            )
        if buffers.several is None:
            buffers.several = []
        outgoing: Outgoing = []
        with contextlib.closing(results):
            # Nobody else may refer to what is yielded: who does is the stage, which may go on to change it.
            for buffers.value in results:
                if buffers.value is None:
                    raise ArgumentError(_RETURNED_NONE)
                further = self._through(buffers, stages)
                if further is None:
                    pairs = self._outbound.settle(buffers, ())
                    buffers.several.append(_replaced(buffers.value, pairs))
                    further = [(source, source) for _, source in pairs]
                outgoing += further
                self._step = name
        buffers.value = buffers.several
        return outgoing

    def _prepare(self, item: Any) -> None:
        """Make buffer sets for items like the first, before the stages are called on it. Small items need none.

        The pool may hand out memory that a stage has freed while its stream still uses it. A copy into this memory
        waits for the stream. Before the first item, no stage of this run has used memory.
        """
        size = sum(array.nbytes for array in arrays_of(item))
        if size > _DEPTHS[-1][0] and not self._lanes.emulated:
            for _ in range(min(self._limit or _LEAST_DEPTH, self._most(_SPARING * size))):
                buffers = self._new_buffers()
                self._inbound.prepare(buffers, item)
                self._free.append(buffers)

    def _new_buffers(self) -> BufferSet:
        lanes = self._lanes
        turn = len(self._sets) % len(lanes.computing)
        buffers = BufferSet(lanes.computing[turn], self._contexts[turn])
        if not lanes.emulated:
            self._device_id = buffers.lane.device.device_id
            devices.make_current(self._device_id)
        self._sets.append(buffers)
        return buffers

    def _replay(self, buffers: BufferSet) -> Outgoing:
        """Replay the stages by the graph of the item's buffer set.

        Return pairs of a device array of the result and the array to copy to the host.

        For the run's first item the stages are called without a graph. This call compiles and loads the kernels. It
        also shows which results must be copied before a later item overwrites them. For any other item, a buffer set
        without a graph captures one. Items of other shapes or dtypes than the first raise `ArgumentError`.
        """
        keys = [room.key for room in buffers.rooms[: buffers.used]]
        first_keys = self._keys or keys
        if keys != first_keys or buffers.others:
            layouts = ", ".join(f"{dtype} {shape}" for shape, dtype in keys)
            first = ", ".join(f"{dtype} {shape}" for shape, dtype in first_keys)
            others = f" and {buffers.others} that are no arrays" if buffers.others else ""
            raise ArgumentError(
                f"with graph=True all items are arrays of the shapes and dtypes of the first, {first}; this one has "
                f"{layouts}{others}. Give equal items, or leave graph=True out"
            )
        if self._lanes.emulated or self._copied is None:
            # NumPy's operations are done when they are called: on the emulator there is nothing to replay.
            self._through(buffers, self._stages)
            self._step = "copy from the device"
            outgoing = self._outbound.settle(buffers, buffers.rooms)
            self._keys, self._copied = keys, [source is not array for array, source in outgoing]
            return outgoing
        if buffers.graph is None:
            from cudakit.graphs import capture

            with capture(buffers.lane) as graph:
                self._through(buffers, self._stages)
                self._step = "graph"
                results = self._outbound.arrays(buffers.value)
                pairs = zip(results, self._copied, strict=True)
                outgoing = [(array, array.copy() if copied else array) for array, copied in pairs]
            graph.keep(*(room.device for room in buffers.rooms))
            buffers.graph = (graph, buffers.value, outgoing)
        graph, buffers.value, outgoing = buffers.graph
        graph.launch(buffers.lane)
        return outgoing

    def _finish(self, parcel: Parcel, buffers: BufferSet) -> Parcel:
        """Wait for the last copy of the item of `parcel`, and return the parcel with its result.

        Its buffer set is then free. If a stage yielded, return the parcel of the first result, and keep the others for
        `take`. A failure of the device is recorded in the returned parcel.
        """
        result: Any = None
        is_several = buffers.several is not None
        try:
            last: Any = buffers.last
            if not last.is_done:
                if not last.departed.is_done:
                    self._is_ahead, self._batch = False, 1
                    last.departed.sync()
                last.is_done = True
            result = self._outbound.receive(buffers, 3 * (self._limit or 1))
        except Exception as error:
            parcel.fail(self._stages[-1][0], error)
            self._over = self._over or parcel.ends(self._lenient)
        buffers.value = buffers.several = buffers.result = None
        buffers.kept_alive.clear()
        self._free.append(buffers)
        if parcel.fate is None and is_several:
            parts = [parcel.part(value, number, None) for number, value in enumerate(result)]
            parcel.split(len(parts))
            self._several.extend((*parts, parcel))
            return self._several.popleft()
        if parcel.fate is None:
            parcel.value = result
        return parcel

    def _chosen_depth(self, size: int) -> int:
        """Return how many items of `size` bytes each to have in flight, by the free memory, too."""
        if self._lanes.emulated:
            return 2
        return min(next((depth for most, depth in _DEPTHS if size <= most), _LEAST_DEPTH), self._most(size))

    def _most(self, size: int) -> int:
        """Return how many items of `size` bytes each fit in a share of the free device memory, at least 1."""
        free, _ = self._lanes.xp.cuda.runtime.memGetInfo()
        pool = self._lanes.xp.get_default_memory_pool()
        if pool.get_limit():
            free = min(free, pool.get_limit() - pool.used_bytes())
        return max(1, int(free * _SHARE) // max(size, 1))


def _replaced(value: Any, outgoing: Outgoing) -> Any:
    """Return a result with each device array replaced by the second array of its pair in `outgoing`."""
    own = {id(array): source for array, source in outgoing}
    return mapped(value, lambda part: own.get(id(part), part))


class Spread(Side):
    """The node of the same device stages on several devices, with results in order.

    Parameters
    ----------
    upstream : Node
        Node from which all sections take items.
    sections : sequence of (int or None, callable)
        For each device, its number and a function that makes its section from the section's upstream node. The number
        is None on the emulator.
    lenient : bool
        Whether to continue after an item on which a stage has failed.
    """

    def __init__(
        self, upstream: Node, sections: Sequence[tuple[int | None, Callable[[Node], Node]]], lenient: bool
    ) -> None:
        super().__init__()
        self.upstream = upstream
        self.lenient = lenient
        self.taking = threading.Lock()
        self.count_taken = 0
        self.over: bool = False
        self._sections = []
        works = []
        for number, (device, make) in enumerate(sections):
            share = _Share(self)
            with _on(device):
                section = make(share)
            self._sections.append((device, section))
            works.append((f"device {number if device is None else device}", (device, section, share)))
        self._start(works)

    def stop(self) -> None:
        """Stop each thread after its present item."""
        self.over = True
        for _, section in self._sections:
            section.stop()
        self.results.stop()

    def close(self) -> None:
        """Wait for the threads and the devices, and release the memory of all sections."""
        super().close()
        with contextlib.ExitStack() as closing:
            for device, section in self._sections:
                closing.callback(_close, device, section)

    def _work(self, device: int | None, section: Node, share: _Share) -> None:
        with _on(device):
            while True:
                try:
                    parcel = section.take(True)
                except BaseException as error:  # a thread that ends without a word would leave the consumer waiting
                    number = share.numbers[0][0] if share.numbers else self.count_taken
                    parcel = Parcel(None, number)
                    parcel.fail("device", error, final=True)
                    self.over = True
                    self.results.put(number, parcel, True)
                    return
                if parcel is END:
                    return
                number, item = share.numbers[0]
                if parcel is item:
                    share.numbers.popleft()
                # The items before this one are delivered, whatever becomes of those behind it.
                if parcel.fate is not None and parcel.ends(self.lenient):
                    self.over = True
                self.results.put(number, parcel, parcel is item)
                del parcel, item


class _Share:
    """The upstream node of one section of a `Spread`: it gives the section the next item.

    Attributes
    ----------
    numbers : deque of (int, Parcel)
        Items that the section has taken and not finished, each with its number.
    """

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self.numbers: deque[tuple[int, Parcel]] = deque()

    def take(self, block: bool) -> Parcel:
        """Return the next item, or END after the last. Return NOTHING if no item is ready and `block` is False.

        If another section waits for an item, none is ready.
        """
        spread = self._spread
        if not spread.taking.acquire(block):
            return NOTHING
        try:
            if spread.over:
                return END
            parcel = spread.upstream.take(block)
            if parcel is NOTHING:
                return NOTHING
            number, spread.count_taken = spread.count_taken, spread.count_taken + 1
            if parcel is END:
                spread.over = True
                spread.results.put(number, END, True)
                return END
            if parcel.fate is not None and parcel.ends(spread.lenient):
                spread.over = True
            self.numbers.append((number, parcel))
            return parcel
        finally:
            spread.taking.release()

    def stop(self) -> None:
        """Do nothing: the `Spread` stops the node before."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _on(device: int | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if device is None else devices.on_device(device)


def _close(device: int | None, section: Node) -> None:
    with _on(device):
        section.close()
