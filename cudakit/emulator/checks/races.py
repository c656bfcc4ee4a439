"""Races: accesses of several threads to the same bytes without order between the accesses.

A thread may load a value without a use: a load without a use races only once its value leaves the registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cudakit.emulator.checks.findings import Reporter
from cudakit.emulator.checks.order import Order
from cudakit.emulator.checks.plans import Plan, Uses, Values
from cudakit.emulator.checks.shadow import LANE, LANE_BITS, NOBODY, Accessed, Places, Shadow, in_shared
from cudakit.emulator.instructions.access import Access
from cudakit.emulator.machine.machine import Scheduler
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine


class _Waiting(NamedTuple):
    """A deferred race of loads whose values are unused so far, and the function that reports the race for one lane."""

    uses: Uses
    lanes: np.ndarray
    event: int
    report: Callable[[int], None]


class Unused:
    """Loads of one interpreter whose values threads may leave unused.

    Parameters
    ----------
    machine : Machine
        Interpreter of the lanes.
    values : Values
        Uses of the launch's loads.
    """

    def __init__(self, machine: Machine, values: Values) -> None:
        self._machine, self._values = machine, values
        #: By the instruction that takes a value: the last access of each lane with it, and the deferred races.
        self._last: dict[int, np.ndarray] = {}
        self._waiting: dict[int, list[_Waiting]] = {}
        #: Of each conditional load: the last access and offset of each lane.
        self._loaded: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        #: Lanes with a deferred race, by the two instructions that race.
        self._waiting_lanes: dict[tuple[int, int], np.ndarray] = {}

    def writes(self, plan: Plan, lanes: Index, now: int) -> None:
        """Record that lanes run a store in access `now`, and report the deferred races of loads whose values it takes.

        `plan` is the plan of the store or atomic operation. If no watched load gives it a value, nothing happens.
        """
        taker = id(plan.instr)
        if taker not in self._values.watched:
            return
        last = self._last.setdefault(taker, np.zeros(self._machine.lanes, np.int64))
        last[slice(None) if lanes is None else lanes] = now
        rest = []
        for race in self._waiting.pop(taker, ()):
            used = np.flatnonzero(self._has_run(last, race.uses, race.lanes, race.event))
            if used.size:
                race.report(int(used[0]))
            else:
                rest.append(race)
        if rest:
            self._waiting[taker] = rest

    def are_unused(self, load: Plan, event: int, lanes: np.ndarray) -> np.ndarray:
        """Return for each lane whether the value that it loaded in access number `event` is unused so far.

        The result is False for all lanes if the load's value never goes unused.
        """
        uses = self._conditional(load)
        if uses is None:
            return np.zeros(lanes.shape, bool)
        unused = np.ones(lanes.shape, bool)
        for last in (self._last[taker] for taker in uses.writes if taker in self._last):
            unused &= ~self._has_run(last, uses, lanes, event)
        return unused

    def record(self, load: Plan, event: int, lanes: np.ndarray, offsets: np.ndarray) -> None:
        """Record the access number and byte offset of the last load of each lane by an instruction.

        Stamps keep only two readers of a place, but any other lane may use the value. Loads whose values never go
        unused are ignored.
        """
        if self._conditional(load) is not None:
            if id(load.instr) not in self._loaded:
                self._loaded[id(load.instr)] = (
                    np.zeros(self._machine.lanes, np.int64),
                    np.zeros(self._machine.lanes, np.uint64),
                )
            events, places = self._loaded[id(load.instr)]
            events[lanes], places[lanes] = event, offsets

    def loads_at(self, load: Plan, event: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the lanes that loaded from one of `offsets` in access number `event`.

        The second array has, for each of these lanes, the position in `offsets` of the offset from which it loaded.
        """
        events, places = self._loaded[id(load.instr)]
        lanes, order = np.flatnonzero(events == event), np.argsort(offsets, kind="stable")
        at = order[np.minimum(np.searchsorted(offsets[order], places[lanes]), offsets.size - 1)]
        same = offsets[at] == places[lanes]
        return lanes[same], at[same]

    def defer(self, load: Plan, other: Plan, event: int, lanes: np.ndarray, report: Callable[[int], None]) -> None:
        """Defer a race of unused loads by `lanes` in access number `event`, until one of the lanes uses its value.

        `other` is the plan of the other instruction of the race. `report` then takes the position in `lanes` of the
        first lane that uses its value. A race of two instructions is deferred once for each lane.
        """
        waiting_lanes = self._waiting_lanes.setdefault(
            (id(load.instr), id(other.instr)), np.zeros(self._machine.lanes, bool)
        )
        if waiting_lanes[lanes].all():
            return
        waiting_lanes[lanes] = True
        uses = self._values.uses_of(load.instr, load.function)
        race = _Waiting(uses, lanes, event, report)
        for taker in uses.writes:
            self._waiting.setdefault(taker, []).append(race)

    def _conditional(self, load: Plan) -> Uses | None:
        uses = self._values.uses_of(load.instr, load.function) if load.instr.opcode == "ld" else None
        return uses if uses is not None and uses.is_conditional else None

    def _has_run(self, last: np.ndarray, uses: Uses, lanes: np.ndarray, event: int) -> np.ndarray:
        if not uses.crosses:
            return np.asarray(last[lanes] > event)
        warp_of = self._machine.warp_of
        latest = np.zeros(int(warp_of[-1]) + 1, np.int64)
        np.maximum.at(latest, warp_of, last)
        return np.asarray(latest[warp_of[lanes]] > event)


#: Bytes of shared memory that the system may reserve in every block.
_RESERVED = 1024


class Races:
    """The race check: compares the accesses of one interpreter with earlier accesses.

    Parameters
    ----------
    machine : Scheduler
        Interpreter of the lanes.
    reporter : Reporter
        Reporter of the findings.
    events : list of Plan
        Plan of each access of the launch, by the number of the access.
    base : int
        Number of lanes of the launch that ran before this interpreter's lanes.
    unseen : bool
        Whether shared memory is written in ways that checks do not see.
    values : Values
        Uses of the launch's loads.
    """

    base: int

    def __init__(
        self, machine: Scheduler, reporter: Reporter, events: list[Plan], base: int, unseen: bool, values: Values
    ) -> None:
        self._machine, self._reporter, self._events, self.base = machine, reporter, events, base
        self._unseen, self._values = unseen, values
        self.unused: Unused = Unused(machine, values)
        self.order: Order = Order(machine, base)
        self._is_cluster = machine.memory.cluster > 1
        #: Bytes from one block's shared memory to the next; the system's may be appended to the block's later.
        self.row: int = machine.memory.shared.shape[1] + _RESERVED

    def access(self, at: Accessed, plan: Plan, access: Access, frame: Frame | None) -> int:
        """Compare an access of lanes with earlier accesses, report races, and record the access.

        `at` has the lanes and the memory. With a frame, stored values are compared too: storing an equal value is no
        race. Return the number of the access.
        """
        machine, order, now = self._machine, self.order, self.next_event(plan)
        shadow, lanes, name = at.shadow, at.lanes, at.name
        places = shadow.places(at.offsets, access.size)
        if shadow.under_way is not None and self._meets_pending_copy(at, plan, access, places):
            return now
        if access.use == "loads" and self._values.are_conditional:
            self.unused.record(plan, now, lanes, at.offsets)
        if name and not plan.strong:
            if shadow.defer(now, places, lanes, self.base, access.use == "stores"):
                return now
        elif name:
            shadow.defer(now, Places(lanes, places.shape), lanes, 0, True)
        lane_rows = lanes if len(places.shape) == 1 else lanes[:, None]
        # Only shared memory belongs to one block, or to one cluster.
        is_own = not name and not self._is_cluster
        floor = 0 if name else order.floor
        stamps = (now << LANE_BITS) | (lane_rows + self.base)
        written = shadow.writers(places)
        if access.use == "loads" and plan.strong:
            self._acquire(shadow, plan, now, places, lanes, is_own)
        if not name and not self._unseen and plan.needs_written(access):
            unset = written == 0 if written.ndim == 1 else (written == 0).all(axis=1)
            if unset.any():
                first = int(np.flatnonzero(unset)[0])
                text = f"{machine.name_of(int(lanes[first]))} reads {self._place_name(at, first)}"
                thread = machine.thread_of(int(lanes[first]))
                self._reporter.report("uninitialised", plan, f"{text}, which nobody wrote", threads=[thread])
        if access.use == "loads":
            if plan.is_of_read_only:
                self._check_read_only(at, plan, written.reshape(lanes.size, -1))
            self._check_order(at, plan, written, lane_rows, floor, False)
            shadow.read(places, stamps, floor)
            return now
        self._check_order(at, plan, written, lane_rows, floor, True, frame)
        for stamps_of in shadow.readers(places):
            self._check_order(at, plan, stamps_of, lane_rows, floor, True)
        shadow.write(places, stamps)
        if not plan.strong and not isinstance(places.where, slice) and frame is not None:
            # Lanes at one place share all of its bytes, so the stamp of the first byte decides.
            won = shadow.writers(places).reshape(lanes.size, -1)[:, 0]
            lost = won != stamps.reshape(lanes.size, -1)[:, 0]
            if lost.any():
                order.fences.several.add(now)
                self._compare_within(at, plan, lost, won, frame)
        elif plan.is_atomic and plan.narrow:
            won = shadow.writers(places).reshape(lanes.size, -1)[:, 0]
            apart = np.flatnonzero(self._of_other_blocks(won, lanes))
            if apart.size:
                self._race(at, plan, int(apart[0]), int(won[apart[0]]), True)
        if plan.strong:
            block = machine.block_of[lanes]
            near = np.full(lanes.shape, now) if plan.releases else order.fenced[0, block]
            # For a block's own memory any scope is wide enough.
            wide = near if is_own or (plan.releases and not plan.narrow) else order.fenced[1, block]
            if near.any() or wide.any():
                if plan.releases:
                    order.fences.fence(lanes, now, not plan.narrow)
                order.fences.release(lanes, bool(wide.any()), order.observed)
            if wide.any():
                shadow.release(places, wide, self._numbers_of(block))
            if (near > wide).any():
                shadow.release_near(places, near, self._numbers_of(block))
            if access.use == "atomics":
                # Acquire after all lanes have released: one instruction may have lanes of several blocks.
                self._acquire(shadow, plan, now, places, lanes, is_own)
        return now

    def next_event(self, plan: Plan) -> int:
        """Return the number of a new access, and record the access's plan."""
        self._events.append(plan)
        return len(self._events) - 1

    def _meets_pending_copy(self, at: Accessed, plan: Plan, access: Access, places: Places) -> bool:
        """Report an access to memory of pending copies; return whether there was one."""
        assert at.shadow.under_way is not None
        marks = at.shadow.under_way[places.where]
        bad = marks > 0 if access.use == "loads" else marks != 0
        if not bad.any():
            return False
        place = int(np.flatnonzero(bad)[0])
        first = place // (places.shape[1] if len(places.shape) == 2 else 1)
        other = self._events[abs(int(marks[place]))]
        does = "reads" if access.use == "loads" else "writes"
        of = "writes" if marks[place] > 0 else "reads"
        text = (
            f"{self._machine.name_of(int(at.lanes[first]))} {does} {self._place_name(at, first)}, which the "
            f"asynchronous copy at {'{}:{}'.format(*self._reporter.place(other))} {of}, before that is waited for"
        )
        self._reporter.report("copy", plan, text, other, [self._machine.thread_of(int(at.lanes[first]))])
        return True

    def _acquire(self, shadow: Shadow, plan: Plan, now: int, places: Places, lanes: np.ndarray, is_own: bool) -> None:
        """Record that lanes read places at which other lanes may have released accesses.

        The lanes acquire these accesses, or only observe them if `plan` is no acquire. With `is_own` the memory is the
        block's own: any scope is wide enough.
        """
        bounds = shadow.published(places, self._numbers_of(self._machine.block_of[lanes]))
        if bounds is None:
            return
        near, wide = bounds
        if is_own:
            near = np.maximum(near, wide)
        # Atomic operations acquire at any scope.
        is_narrow = plan.narrow and plan.instr.opcode == "ld"
        if plan.acquires:
            self.order.acquire(lanes, near if is_narrow else np.maximum(near, wide))
        if is_narrow or not plan.acquires:
            self.order.observe(lanes, near, wide, now)

    def _numbers_of(self, blocks: np.ndarray) -> np.ndarray:
        """Return block numbers in the whole launch for block numbers in this interpreter, which begin at 0."""
        return np.asarray(blocks + self.base // self._machine.threads)

    def _check_order(
        self, at: Accessed, plan: Plan, stamps: np.ndarray, lane_rows: np.ndarray, floor: int, writes: bool,
        frame: Frame | None = None,
    ) -> None:  # fmt: skip
        """Report a race of an access with the earlier accesses that `stamps` name, if there is one.

        `lane_rows` has the lanes of the access, in a shape that broadcasts with `stamps`. Stamps of accesses before
        `floor` are ordered already. `writes` says whether the access writes. With a frame, a store of the value that is
        in memory already is no race.
        """
        late = stamps >= max(1, floor) << LANE_BITS
        if not late.any():
            return
        late &= (stamps & LANE) != lane_rows + self.base
        if not late.any():
            return
        late &= (stamps & LANE) != NOBODY
        chosen, lanes = np.nonzero(late), at.lanes
        rows: np.ndarray = chosen[0]
        others = stamps[chosen]
        bad = self.order.unordered(others, lanes[rows], not writes and not plan.strong)
        if not bad.any():
            return
        events = others >> LANE_BITS
        if plan.strong:
            numbers = np.unique(events[bad]).tolist()
            is_weak = self._events_where(events, numbers, lambda other: not other.strong)
            if plan.is_volatile and not at.name:
                warp_of = self._machine.warp_of
                same = warp_of[((others & LANE) - self.base) % warp_of.size] == warp_of[lanes[rows]]
                is_weak |= (
                    self._events_where(events, numbers, lambda other: self._is_warp_synchronous(plan, other)) & same
                )
            if plan.is_atomic and (plan.narrow or any(self._events[event].narrow for event in numbers)):
                is_near = self._events_where(events, numbers, lambda other: self._is_near(plan, other))
                is_weak |= is_near & self._of_other_blocks(others, lanes[rows])
            bad &= is_weak
            if not bad.any():
                return
        if frame is not None and plan.values:
            # Check the stored values, whichever thread comes first.
            stored = plan.stored(frame, lanes, self._machine)
            bytes_at = at.offsets.astype(np.int64)[:, None] + np.arange(stored.shape[1])
            there = at.data[bytes_at] if at.name else at.data[bytes_at // self.row, bytes_at % self.row]
            self.order.fences.several.add(len(self._events) - 1)
            bad &= (stored != there).any(axis=1)[rows]
            if not bad.any():
                return
        self._defer_unused(at, plan, bad, others, rows, writes)
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            self._race(at, plan, int(rows[first]), int(others[first]), writes)

    def _events_where(self, events: np.ndarray, numbers: list[int], holds: Callable[[Plan], bool]) -> np.ndarray:
        """Return a flag for each of `events`: whether `holds` is true for its plan.

        `numbers` are the distinct access numbers in `events`.
        """
        chosen = [event for event in numbers if holds(self._events[event])]
        return np.isin(events, chosen)

    def _is_warp_synchronous(self, plan: Plan, other: Plan) -> bool:
        """Return whether lanes of a warp pass data by two volatile accesses, as if the lanes ran in step.

        A value that is only compared is a flag, not data.
        """
        uses = {access.use for member in (plan, other) for access in member.accesses}
        loads = (member for member in (plan, other) if member.instr.opcode == "ld")
        return (
            plan.is_volatile
            and other.is_volatile
            and uses == {"loads", "stores"}
            and any(self._values.uses_of(load.instr, load.function).is_data for load in loads)
        )

    def _check_read_only(self, at: Accessed, plan: Plan, written: np.ndarray) -> None:
        """Report a load of read-only data that the kernel has written, in any order."""
        rows, columns = np.nonzero((written > 0) & ((written & LANE) != NOBODY))
        if rows.size:
            self._race(at, plan, int(rows[0]), int(written[rows[0], columns[0]]), False)

    @staticmethod
    def _is_near(plan: Plan, other: Plan) -> bool:
        """Return whether both plans are atomic operations, at least one of which has only a block's scope.

        Such operations are not atomic between blocks.
        """
        return plan.is_atomic and other.is_atomic and (plan.narrow or other.narrow)

    def _of_other_blocks(self, stamps: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Return for each of `lanes` whether the stamp at its position is of a lane in another block."""
        machine, number = self._machine, (stamps & LANE) - self.base
        here = (number >= 0) & (number < machine.lanes)
        return np.asarray(~here | (machine.block_of[np.where(here, number, 0)] != machine.block_of[lanes]))

    def _defer_unused(
        self, at: Accessed, plan: Plan, bad: np.ndarray, others: np.ndarray, rows: np.ndarray, writes: bool
    ) -> None:
        """Defer the races of loads whose values are unused so far, and clear their flags in `bad`.

        `others` has the stamps of earlier accesses. `rows` has, for each, the position in `at.lanes` of the lane that
        races with it, and `bad` whether the two race. `writes` says whether the current access writes.
        """
        if not self._values.are_conditional:
            return
        lanes, events, numbers = at.lanes, others >> LANE_BITS, (others & LANE) - self.base
        here, now = (numbers >= 0) & (numbers < self._machine.lanes), len(self._events) - 1
        for event in np.unique(events[bad]).tolist():
            other, early = self._events[event], np.flatnonzero(bad & here & (events == event))
            load, when = (other, event) if writes else (plan, now)
            early = early[self.unused.are_unused(load, when, numbers[early] if writes else lanes[rows[early]])]
            if not early.size:
                continue
            bad[early] = False
            places, stamps = rows[early], others[early]
            loading = lanes[places]
            if writes:
                loading, position = self.unused.loads_at(load, when, at.offsets[places])
                places, stamps = places[position], event << LANE_BITS | loading + self.base
                racing = self.order.unordered(stamps, lanes[places])
                loading, places, stamps = loading[racing], places[racing], stamps[racing]
                used = np.flatnonzero(~self.unused.are_unused(load, when, loading))
                if used.size:
                    self._race(at, plan, int(places[used[0]]), int(stamps[used[0]]), writes)
                    continue

            def report(k: int, places: np.ndarray = places, stamps: np.ndarray = stamps) -> None:
                self._race(at, plan, int(places[k]), int(stamps[k]), writes)

            self.unused.defer(load, plan if writes else other, when, loading, report)

    def _compare_within(self, at: Accessed, plan: Plan, lost: np.ndarray, won: np.ndarray, frame: Frame) -> None:
        """Report two lanes that store different values to one place with one instruction.

        `won` has the stamps of the lanes whose value stays, `lost` a flag for each lane whose value does not.
        """
        if not plan.values:
            return
        stored = plan.stored(frame, at.lanes, self._machine)
        winner = np.minimum(np.searchsorted(at.lanes, (won & LANE) - self.base), at.lanes.size - 1)
        differ = np.flatnonzero(lost & (stored != stored[winner]).any(axis=1))
        if differ.size:
            self._race(at, plan, int(differ[0]), int(won[differ[0]]), True)

    def _race(self, at: Accessed, plan: Plan, row: int, stamp: int, writes: bool) -> None:
        machine, mine = self._machine, int(at.lanes[row])
        other = self._events[stamp >> LANE_BITS]
        lane = (stamp & NOBODY) - self.base
        is_here = 0 <= lane < machine.lanes
        who = machine.name_of(lane) if is_here else "a thread of an earlier block"
        file, line = self._reporter.place(other)
        did = "writes" if any(access.use != "loads" for access in other.accesses) else "reads"
        text = (
            f"race: {machine.name_of(mine)} {'writes' if writes else 'reads'} "
            f"{self._place_name(at, row)}, which {who} {did} at {file}:{line}, and {self._reason(plan, stamp, mine)}"
        )
        threads = [machine.thread_of(mine), machine.thread_of(lane) if is_here else None]
        self._reporter.report("race", plan, text, other, threads)

    def _reason(self, plan: Plan, stamp: int, lane: int) -> str:
        order, block = self.order, self._machine.block_of[lane]
        if order.acquired[block] <= stamp >> LANE_BITS < order.observed[block]:
            file, line = self._reporter.place(self._events[int(order.observed_by[block])])
            return f"no fence follows the read at {file}:{line}, which tells that it is there"
        if plan.is_of_read_only:
            return "a load through __ldg() or const __restrict__ need not see what its own kernel writes"
        if self._is_near(plan, self._events[stamp >> LANE_BITS]):
            return "an atomic operation of a block's scope is none for another block"
        if stamp >> LANE_BITS < order.observed[block]:
            return "no fence covers it: another thread's does so only after a barrier"
        if plan.is_volatile and self._events[stamp >> LANE_BITS].is_volatile:
            return "nothing orders the two: lanes of a warp need not run in step, and volatile is no __syncwarp()"
        return "nothing orders the two"

    def _place_name(self, at: Accessed, row: int) -> str:
        offset = int(at.offsets[row])
        if at.name:
            return at.name.format(offset // at.itemsize)
        description = in_shared(self._machine.launch, offset % self.row, at.itemsize)
        if self._is_cluster:
            first = offset // self.row * self._machine.threads
            description = f"{description} of {self._machine.name_of(first).partition(', thread')[0]}"
        return description
