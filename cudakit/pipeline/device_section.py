"""Device stages that follow one another: items are copied in, worked on and copied out, several at a time.

Each item in flight has a slot: device memory and pinned memory for what comes in, and three events. A slot is used
again only after the host has seen its last copy done, so that no stream ever waits for a slot to be free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from cudakit.errors import ArgumentError, lost_context
from cudakit.pipeline.download import Outbound
from cudakit.pipeline.in_flight import Outgoing, Slot
from cudakit.pipeline.nodes import END, NOTHING, Failure, Node
from cudakit.pipeline.stages import Stage
from cudakit.pipeline.streams import Lanes
from cudakit.pipeline.upload import Inbound, arrays_of
from cudakit.streams import devices

#: Items in flight by what one takes up on the device, in bytes: small items need more of them to hide latency.
_DEPTHS = ((1 << 18, 16), (1 << 22, 8))
_LEAST_DEPTH = 4
#: Part of the free device memory that the slots may take.
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
        self._slots: list[Slot] = []
        self._free: list[Slot] = []
        self._flight: deque[Slot | Failure] = deque()
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
        for slot in self._slots:
            slot.close()
        self._slots.clear()
        self._free.clear()

    # ── onto the device ──────────────────────────────────────────────────────────────────────────────────────────

    def _submit(self, item: Any) -> Slot | Failure:
        """Put all of an item's work on the streams."""
        number, self._step = self._count, "copy to the device"
        self._count += 1
        try:
            if not number:
                self._prepare(item)
            slot = self._free.pop() if self._free else self._new_slot()
            lane, arriving, leaving = slot.lane, self._lanes.arriving, self._lanes.leaving
            with self._contexts[id(lane)]:
                slot.value = self._inbound.send(slot, item)
                del item
                slot.arrived = arriving.record(slot.arrived)
                lane.wait(slot.arrived)
                if self._graph:
                    self._step = "graph"
                    outgoing = self._replay(slot)
                else:
                    self._work(slot)
                    outgoing = self._outbound.settle(slot)
                slot.computed = lane.record(slot.computed)
                leaving.wait(slot.computed)
                self._outbound.send(slot, outgoing)
                slot.done = leaving.record(slot.done)
            if self._limit is None:
                self._limit = self._chosen_depth(slot)
        except Exception as error:
            self._over = True
            return Failure(self._step, number, lost_context(error) or error)
        return slot

    def _work(self, slot: Slot) -> None:
        """Call the stages, one after another."""
        value, lane = slot.value, slot.lane
        for name, function in self._stages:
            self._step = name
            value = function(value, lane)
            if value is None:
                raise ArgumentError(
                    "it returned None: a device stage returns the next stage's item, as in `return x`, also where a "
                    "kernel worked in place; where there is nothing to give on, return ()"
                )
        slot.value = value
        self._step = "copy from the device"

    def _prepare(self, item: Any) -> None:
        """Make slots for items like the first, if they are large, before it is worked on.

        Memory of the pool may be some that the stages have let go of and their stream still uses: what arrives in it
        waits for that stream. So early there is nothing of this run to wait for.
        """
        size = sum(array.nbytes for array in arrays_of(item))
        if size > _DEPTHS[-1][0] and not self._lanes.emulated:
            for _ in range(min(self._limit or _LEAST_DEPTH, self._most(_SPARING * size))):
                slot = self._new_slot()
                with self._contexts[id(slot.lane)]:
                    self._inbound.prepare(slot, item)
                self._free.append(slot)

    def _new_slot(self) -> Slot:
        lanes = self._lanes
        slot = Slot(lanes.computing[len(self._slots) % len(lanes.computing)])
        if not lanes.emulated:
            devices.make_current(slot.lane.device.device_id)
        self._slots.append(slot)
        return slot

    def _replay(self, slot: Slot) -> Outgoing:
        """What the stages do, by the slot's graph: captured when the slot comes to work, but for the first of them.

        The first item is worked on as it is without graphs, which compiles and loads what the stages need, and shows
        which results are the stages' own and have to be copied.
        """
        keys = [room.key for room in slot.rooms[: slot.used]]
        self._keys = self._keys or keys
        if keys != self._keys or slot.others:
            what = ", ".join(f"{dtype} {shape}" for shape, dtype in keys)
            first = ", ".join(f"{dtype} {shape}" for shape, dtype in self._keys)
            others = f" and {slot.others} that are no arrays" if slot.others else ""
            raise ArgumentError(
                f"with graph=True all items are arrays of the shapes and dtypes of the first, {first}; this one has "
                f"{what}{others}. Give equal items, or leave graph=True out"
            )
        if self._lanes.emulated or self._copied is None:
            # NumPy's operations are done when they are called: on the emulator there is nothing to replay.
            self._work(slot)
            outgoing = self._outbound.settle(slot)
            self._copied = [source is not array for array, source in outgoing]
            return outgoing
        if slot.graph is None:
            from cudakit.graphs import capture

            with capture(slot.lane) as graph:
                self._work(slot)
                self._step = "graph"
                results = self._outbound.arrays(slot.value)
                pairs = zip(results, self._copied, strict=True)
                outgoing = [(array, array.copy() if copied else array) for array, copied in pairs]
            graph.keep(*(room.device for room in slot.rooms))
            slot.graph = (graph, slot.value, outgoing)
        graph, slot.value, outgoing = slot.graph
        graph.launch(slot.lane)
        return outgoing

    def _finish(self, slot: Slot) -> Any:
        """The oldest item's result, and its slot free for another."""
        number = self._delivered
        self._delivered += 1
        try:
            result = self._outbound.receive(slot, 3 * (self._limit or 1))
        except Exception as error:
            self._over = True
            return Failure(self._stages[-1][0], number, lost_context(error) or error)
        self._free.append(slot)
        return result

    def _chosen_depth(self, slot: Slot) -> int:
        """Items in flight for items like the one in `slot`."""
        if self._lanes.emulated:
            return 2
        size = sum(room.device.nbytes for room in slot.rooms) + getattr(slot.value, "nbytes", 0)
        return min(next((depth for most, depth in _DEPTHS if size <= most), _LEAST_DEPTH), self._most(size))

    def _most(self, size: int) -> int:
        """Items in flight that there is device memory for, where each takes up `size` bytes."""
        free, _ = self._lanes.xp.cuda.runtime.memGetInfo()
        pool = self._lanes.xp.get_default_memory_pool()
        if pool.get_limit():
            free = min(free, pool.get_limit() - pool.used_bytes())
        return max(1, int(free * _SHARE) // max(size, 1))
