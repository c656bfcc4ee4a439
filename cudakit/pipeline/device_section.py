"""Device stages that follow one another: items are copied in, worked on and copied out, several at a time.

Each item in flight has a buffer set: device memory and pinned memory for what comes in, and three events. A set is used
again only after the host has seen its last copy done, so that no stream ever waits for one to be free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from cudakit.errors import ArgumentError, lost_context
from cudakit.pipeline.download import Outbound
from cudakit.pipeline.in_flight import BufferSet, Outgoing
from cudakit.pipeline.nodes import END, NOTHING, Failure, Node
from cudakit.pipeline.stages import Stage
from cudakit.pipeline.streams import Lanes
from cudakit.pipeline.upload import Inbound, arrays_of
from cudakit.streams import devices

#: Items in flight by what one takes up on the device, in bytes: small items need more of them to hide latency.
_DEPTHS = ((1 << 18, 16), (1 << 22, 8))
_LEAST_DEPTH = 4
#: Part of the free device memory that the buffer sets may take.
_SHARE = 0.5
#: What an item is taken to need in all, of its own size, before it is known what the stages need.
_SPARING = 4


class Section:
    """The node of successive device stages.

    Parameters
    ----------
    upstream : Node
    stages : sequence of Stage
    lanes : Lanes
    depth : int or None
        Items in flight; None: by their size and the memory that is free, after the first.
    graph : bool
        Replay what the stages do rather than call them.
    """

    def __init__(self, upstream: Node, stages: Sequence[Stage], lanes: Lanes, depth: int | None, graph: bool) -> None:
        self._upstream = upstream
        self._stages = [(stage.name, stage.function) for stage in stages]
        self._step = ""
        self._lanes = lanes
        self._limit = depth
        self._graph = graph
        self._keys: list[Any] = []
        self._copied: list[bool] | None = None
        self._sets: list[BufferSet] = []
        self._free: list[BufferSet] = []
        self._flight: deque[BufferSet | Failure] = deque()
        self._count = 0
        self._delivered = 0
        self._over = False
        self._inbound, self._outbound = Inbound(lanes), Outbound(lanes)
        self._contexts = {id(lane): lanes.inside(lane) for lane in lanes.computing}

    # ── a node ───────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, block: bool) -> Any:
        """The next result in order, after as many items as there is room for were put on the device."""
        flight = self._flight
        while not self._over and len(flight) < (self._limit or 1):
            # With something to deliver there is no waiting for the source: whoever feeds it may wait for a result.
            item = self._upstream.take(block and not flight)
            if item is NOTHING:
                break
            if item is END:
                self._over = True
            elif type(item) is Failure:
                self._over = True
                flight.append(item)
            else:
                flight.append(self._submit(item))
        if not flight:
            return END if self._over else NOTHING
        oldest = flight[0]
        if isinstance(oldest, Failure):
            return flight.popleft()
        if not (block or oldest.done.is_done):
            return NOTHING
        result = self._finish(oldest)
        flight.popleft()
        return result

    def stop(self) -> None:
        """Take no more items."""
        self._over = True

    def close(self) -> None:
        """Wait for what is on the device, and give the memory back."""
        self._over = True
        self._lanes.drain()
        self._flight.clear()
        for buffers in self._sets:
            buffers.close()
        self._sets.clear()
        self._free.clear()

    # ── onto the device ──────────────────────────────────────────────────────────────────────────────────────────

    def _submit(self, item: Any) -> BufferSet | Failure:
        """Put all of an item's work on the streams."""
        number, self._step = self._count, "copy to the device"
        self._count += 1
        try:
            if not number:
                self._prepare(item)
            buffers = self._free.pop() if self._free else self._new_buffers()
            lane, arriving, leaving = buffers.lane, self._lanes.arriving, self._lanes.leaving
            with self._contexts[id(lane)]:
                buffers.value = self._inbound.send(buffers, item)
                del item
                buffers.arrived = arriving.record(buffers.arrived)
                lane.wait(buffers.arrived)
                if self._graph:
                    self._step = "graph"
                    outgoing = self._replay(buffers)
                else:
                    self._work(buffers)
                    outgoing = self._outbound.settle(buffers)
                buffers.computed = lane.record(buffers.computed)
                leaving.wait(buffers.computed)
                self._outbound.send(buffers, outgoing)
                buffers.done = leaving.record(buffers.done)
            if self._limit is None:
                self._limit = self._chosen_depth(buffers)
        except Exception as error:
            self._over = True
            return Failure(self._step, number, lost_context(error) or error)
        return buffers

    def _work(self, buffers: BufferSet) -> None:
        """Call the stages, one after another."""
        value, lane = buffers.value, buffers.lane
        for name, function in self._stages:
            self._step = name
            value = function(value, lane)
            if value is None:
                raise ArgumentError(
                    "it returned None: a device stage returns the next stage's item, as in `return x`, also where a "
                    "kernel worked in place; where there is nothing to give on, return ()"
                )
        buffers.value = value
        self._step = "copy from the device"

    def _prepare(self, item: Any) -> None:
        """Make buffer sets for items like the first, if they are large, before it is worked on.

        Memory of the pool may be some that the stages have let go of and their stream still uses: what arrives in it
        waits for that stream. So early there is nothing of this run to wait for.
        """
        size = sum(array.nbytes for array in arrays_of(item))
        if size > _DEPTHS[-1][0] and not self._lanes.emulated:
            for _ in range(min(self._limit or _LEAST_DEPTH, self._most(_SPARING * size))):
                buffers = self._new_buffers()
                with self._contexts[id(buffers.lane)]:
                    self._inbound.prepare(buffers, item)
                self._free.append(buffers)

    def _new_buffers(self) -> BufferSet:
        lanes = self._lanes
        buffers = BufferSet(lanes.computing[len(self._sets) % len(lanes.computing)])
        if not lanes.emulated:
            devices.make_current(buffers.lane.device.device_id)
        self._sets.append(buffers)
        return buffers

    def _replay(self, buffers: BufferSet) -> Outgoing:
        """What the stages do, by the set's graph: captured when the set comes to work, but for the first of them.

        The first item is worked on as it is without graphs, which compiles and loads what the stages need, and shows
        which results are the stages' own and have to be copied.
        """
        keys = [room.key for room in buffers.rooms[: buffers.used]]
        self._keys = self._keys or keys
        if keys != self._keys or buffers.others:
            what = ", ".join(f"{dtype} {shape}" for shape, dtype in keys)
            first = ", ".join(f"{dtype} {shape}" for shape, dtype in self._keys)
            others = f" and {buffers.others} that are no arrays" if buffers.others else ""
            raise ArgumentError(
                f"with graph=True all items are arrays of the shapes and dtypes of the first, {first}; this one has "
                f"{what}{others}. Give equal items, or leave graph=True out"
            )
        if self._lanes.emulated or self._copied is None:
            # NumPy's operations are done when they are called: on the emulator there is nothing to replay.
            self._work(buffers)
            outgoing = self._outbound.settle(buffers)
            self._copied = [source is not array for array, source in outgoing]
            return outgoing
        if buffers.graph is None:
            from cudakit.graphs import capture

            with capture(buffers.lane) as graph:
                self._work(buffers)
                self._step = "graph"
                results = self._outbound.arrays(buffers.value)
                pairs = zip(results, self._copied, strict=True)
                outgoing = [(array, array.copy() if copied else array) for array, copied in pairs]
            graph.keep(*(room.device for room in buffers.rooms))
            buffers.graph = (graph, buffers.value, outgoing)
        graph, buffers.value, outgoing = buffers.graph
        graph.launch(buffers.lane)
        return outgoing

    def _finish(self, buffers: BufferSet) -> Any:
        """The oldest item's result, and its buffer set free for another."""
        number = self._delivered
        self._delivered += 1
        try:
            result = self._outbound.receive(buffers, 3 * (self._limit or 1))
        except Exception as error:
            self._over = True
            return Failure(self._stages[-1][0], number, lost_context(error) or error)
        self._free.append(buffers)
        return result

    def _chosen_depth(self, buffers: BufferSet) -> int:
        """Items in flight for items like the one in `buffers`."""
        if self._lanes.emulated:
            return 2
        size = sum(room.device.nbytes for room in buffers.rooms) + getattr(buffers.value, "nbytes", 0)
        return min(next((depth for most, depth in _DEPTHS if size <= most), _LEAST_DEPTH), self._most(size))

    def _most(self, size: int) -> int:
        """Items in flight that there is device memory for, where each takes up `size` bytes."""
        free, _ = self._lanes.xp.cuda.runtime.memGetInfo()
        pool = self._lanes.xp.get_default_memory_pool()
        if pool.get_limit():
            free = min(free, pool.get_limit() - pool.used_bytes())
        return max(1, int(free * _SHARE) // max(size, 1))
