"""Races: accesses of several threads to the same bytes that nothing orders.

A thread may load a value and use nothing of it: such a load races only once the value leaves the registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cudakit.emulator.checks.findings import Telling
from cudakit.emulator.checks.order import Order
from cudakit.emulator.checks.plans import Plan, Uses, Values
from cudakit.emulator.checks.shadow import LANE, LANE_BITS, NOBODY, Accessed, Places, Shadow, in_shared
from cudakit.emulator.instructions.access import Access
from cudakit.emulator.machine.machine import Scheduler
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine


class _Waiting(NamedTuple):
    """A race of the loads of some lanes, made with an access, and what tells it of one of them."""

    uses: Uses
    lanes: np.ndarray
    event: int
    tell: Callable[[int], None]


class Unused:
    """The loads of one machine of which threads may use nothing.

    Parameters
    ----------
    machine : Machine
    values : Values
    """

    def __init__(self, machine: Machine, values: Values) -> None:
        self._machine, self._values = machine, values
        #: By the instruction that takes such a value: the access with which each lane ran it last; what waits for it.
        self._last: dict[int, np.ndarray] = {}
        self._waiting: dict[int, list[_Waiting]] = {}
        #: Of each such load, the access with which each lane ran it last, and where.
        self._loaded: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        #: Lanes that wait, by the two instructions that race.
        self._known: dict[tuple[int, int], np.ndarray] = {}

    def writes(self, plan: Plan, lanes: Index, now: int) -> None:
        """Lanes are about to store; the races are told of those loads whose value they take."""
        taker = id(plan.given)
        if taker not in self._values.watched:
            return
        last = self._last.setdefault(taker, np.zeros(self._machine.lanes, np.int64))
        last[slice(None) if lanes is None else lanes] = now
        rest = []
        for race in self._waiting.pop(taker, ()):
            used = np.flatnonzero(self._has_run(last, race.uses, race.lanes, race.event))
            if used.size:
                race.tell(int(used[0]))
            else:
                rest.append(race)
        if rest:
            self._waiting[taker] = rest

    def among(self, load: Plan, event: int, lanes: np.ndarray) -> np.ndarray:
        """Whether lanes have used nothing of what they loaded with an access."""
        uses = self._conditional(load)
        if uses is None:
            return np.zeros(lanes.shape, bool)
        unused = np.ones(lanes.shape, bool)
        for last in (self._last[taker] for taker in uses.writes if taker in self._last):
            unused &= ~self._has_run(last, uses, lanes, event)
        return unused

    def loaded(self, load: Plan, event: int, lanes: np.ndarray, offsets: np.ndarray) -> None:
        """Lanes load; stamps keep two of those that read one place, and any of the others may use it."""
        if self._conditional(load) is not None:
            if id(load.given) not in self._loaded:
                self._loaded[id(load.given)] = (
                    np.zeros(self._machine.lanes, np.int64),
                    np.zeros(self._machine.lanes, np.uint64),
                )
            events, places = self._loaded[id(load.given)]
            events[lanes], places[lanes] = event, offsets

    def alike(self, load: Plan, event: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lanes that loaded from any of some places with an access, and the positions of these."""
        events, places = self._loaded[id(load.given)]
        lanes, order = np.flatnonzero(events == event), np.argsort(offsets, kind="stable")
        at = order[np.minimum(np.searchsorted(offsets[order], places[lanes]), offsets.size - 1)]
        same = offsets[at] == places[lanes]
        return lanes[same], at[same]

    def wait(self, load: Plan, other: Plan, event: int, lanes: np.ndarray, tell: Callable[[int], None]) -> None:
        """Loads race that nobody has used; `tell` is given the position of the first lane that does."""
        known = self._known.setdefault((id(load.given), id(other.given)), np.zeros(self._machine.lanes, bool))
        if known[lanes].all():
            return
        known[lanes] = True
        uses = self._values.of(load.given, load.function)
        race = _Waiting(uses, lanes, event, tell)
        for taker in uses.writes:
            self._waiting.setdefault(taker, []).append(race)

    def _conditional(self, load: Plan) -> Uses | None:
        uses = self._values.of(load.given, load.function) if load.given.opcode == "ld" else None
        return uses if uses is not None and uses.is_conditional else None

    def _has_run(self, last: np.ndarray, uses: Uses, lanes: np.ndarray, event: int) -> np.ndarray:
        if not uses.crosses:
            return np.asarray(last[lanes] > event)
        warp_of = self._machine.warp_of
        latest = np.zeros(int(warp_of[-1]) + 1, np.int64)
        np.maximum.at(latest, warp_of, last)
        return np.asarray(latest[warp_of[lanes]] > event)


#: Bytes of shared memory that the system may keep in every block.
_RESERVED = 1024


class Races:
    """Compares the accesses of one machine with those before.

    Parameters
    ----------
    machine : Scheduler
    telling : Telling
    events : list of Plan
        Each access of the launch, by its number.
    base : int
        Lanes of the launch that ran before the machine's.
    unseen : bool
        Whether shared memory is written in ways that are not seen.
    values : Values
        Of the launch.
    """

    base: int

    def __init__(
        self, machine: Scheduler, telling: Telling, events: list[Plan], base: int, unseen: bool, values: Values
    ) -> None:
        self._machine, self._telling, self._events, self.base = machine, telling, events, base
        self._unseen, self._values = unseen, values
        self.unused: Unused = Unused(machine, values)
        self.order: Order = Order(machine, base)
        self._is_cluster = machine.memory.cluster > 1
        #: Bytes of shared memory from one block to the next; the system's own may be put behind the block's later.
        self.row: int = machine.memory.shared.shape[1] + _RESERVED

    def at(self, at: Accessed, plan: Plan, access: Access, frame: Frame | None) -> int:
        """Compare accesses with those before, and note them; their number is returned."""
        machine, order, now = self._machine, self.order, self.next_event(plan)
        shadow, lanes, name = at.shadow, at.lanes, at.name
        places = shadow.places(at.offsets, access.size)
        if shadow.under_way is not None and self._early(at, plan, access, places):
            return now
        if access.use == "loads" and self._values.are_conditional:
            self.unused.loaded(plan, now, lanes, at.offsets)
        if name and not plan.strong:
            if shadow.defers(now, places, lanes, self.base, access.use == "stores"):
                return now
        elif name:
            shadow.defers(now, Places(lanes, places.shape), lanes, 0, True)
        each = lanes if len(places.shape) == 1 else lanes[:, None]
        # Only shared memory is one block's alone, or one cluster's.
        is_own = not name and not self._is_cluster
        floor = 0 if name else order.floor
        stamps = (now << LANE_BITS) | (each + self.base)
        written = shadow.writers(places)
        if access.use == "loads" and plan.strong:
            self._acquire(shadow, plan, now, places, lanes, is_own)
        if not name and not self._unseen and plan.needs_written(access):
            unset = written == 0 if written.ndim == 1 else (written == 0).all(axis=1)
            if unset.any():
                first = int(np.flatnonzero(unset)[0])
                text = f"{machine.name_of(int(lanes[first]))} reads {self._what(at, first)}"
                self._telling.tell("uninitialised", plan, f"{text}, which nobody wrote")
        if access.use == "loads":
            if plan.is_of_read_only:
                self._written_here(at, plan, written.reshape(lanes.size, -1))
            self._compare(at, plan, written, each, floor, False)
            shadow.read(places, stamps, floor)
            return now
        self._compare(at, plan, written, each, floor, True, frame)
        for stamps_of in shadow.readers(places):
            self._compare(at, plan, stamps_of, each, floor, True)
        shadow.write(places, stamps)
        if not plan.strong and not isinstance(places.where, slice) and frame is not None:
            # Lanes at one place share all of its bytes, so that the first of them tells.
            won = shadow.writers(places).reshape(lanes.size, -1)[:, 0]
            lost = won != stamps.reshape(lanes.size, -1)[:, 0]
            if lost.any():
                order.fences.several.add(now)
                self._at_once(at, plan, lost, won, frame)
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
                order.fences.release(lanes, bool(wide.any()), order.told)
            if wide.any():
                shadow.release(places, wide, self._numbers_of(block))
            if (near > wide).any():
                shadow.release_near(places, near, self._numbers_of(block))
            if access.use == "atomics":
                # After all of them have released: lanes of several blocks may come with one instruction.
                self._acquire(shadow, plan, now, places, lanes, is_own)
        return now

    def next_event(self, plan: Plan) -> int:
        """The number of another access."""
        self._events.append(plan)
        return len(self._events) - 1

    def _early(self, at: Accessed, plan: Plan, access: Access, places: Places) -> bool:
        """Whether accesses meet asynchronous copies that are under way, which is told."""
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
            f"{self._machine.name_of(int(at.lanes[first]))} {does} {self._what(at, first)}, which the asynchronous "
            f"copy at {'{}:{}'.format(*self._telling.place(other))} {of}, before that is waited for"
        )
        self._telling.tell("copy", plan, text, other)
        return True

    def _acquire(self, shadow: Shadow, plan: Plan, now: int, places: Places, lanes: np.ndarray, is_own: bool) -> None:
        """Strong accesses read what was published; in a block's own memory any scope is wide enough."""
        found = shadow.published(places, self._numbers_of(self._machine.block_of[lanes]))
        if found is None:
            return
        near, wide = found
        if is_own:
            near = np.maximum(near, wide)
        # Atomic operations acquire in any case.
        is_narrow = plan.narrow and plan.given.opcode == "ld"
        if plan.acquires:
            self.order.acquire(lanes, near if is_narrow else np.maximum(near, wide))
        if is_narrow or not plan.acquires:
            self.order.tell(lanes, near, wide, now)

    def _numbers_of(self, blocks: np.ndarray) -> np.ndarray:
        """Of blocks that run now, numbers among all of the launch."""
        return np.asarray(blocks + self.base // self._machine.threads)

    def _compare(
        self, at: Accessed, plan: Plan, stamps: np.ndarray, each: np.ndarray, floor: int, writes: bool,
        frame: Frame | None = None,
    ) -> None:  # fmt: skip
        """Tell a race with those accesses that the stamps stand for, if it is one.

        With a frame, who stores what is there already changes nothing.
        """
        late = stamps >= max(1, floor) << LANE_BITS
        if not late.any():
            return
        late &= (stamps & LANE) != each + self.base
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
            is_weak = self._those(events, numbers, lambda other: not other.strong)
            if plan.is_volatile and not at.name:
                warp_of = self._machine.warp_of
                same = warp_of[((others & LANE) - self.base) % warp_of.size] == warp_of[lanes[rows]]
                is_weak |= self._those(events, numbers, lambda other: self._is_tree(plan, other)) & same
            if plan.is_atomic and (plan.narrow or any(self._events[event].narrow for event in numbers)):
                is_near = self._those(events, numbers, lambda other: self._is_near(plan, other))
                is_weak |= is_near & self._of_other_blocks(others, lanes[rows])
            bad &= is_weak
            if not bad.any():
                return
        if frame is not None and plan.values:
            # Whoever comes first.
            stored = plan.stored(frame, lanes, self._machine)
            bytes_at = at.offsets.astype(np.int64)[:, None] + np.arange(stored.shape[1])
            there = at.held[bytes_at] if at.name else at.held[bytes_at // self.row, bytes_at % self.row]
            self.order.fences.several.add(len(self._events) - 1)
            bad &= (stored != there).any(axis=1)[rows]
            if not bad.any():
                return
        self._excuse(at, plan, bad, others, rows, writes)
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            self._race(at, plan, int(rows[first]), int(others[first]), writes)

    def _those(self, events: np.ndarray, numbers: list[int], holds: Callable[[Plan], bool]) -> np.ndarray:
        """Whether something holds of the instruction of each access, asked once for each of `numbers`."""
        chosen = [event for event in numbers if holds(self._events[event])]
        return np.isin(events, chosen)

    def _is_tree(self, plan: Plan, other: Plan) -> bool:
        """Whether lanes of a warp hand on data as if they ran in step; what is only compared is a flag."""
        uses = {access.use for each in (plan, other) for access in each.accesses}
        loads = (each for each in (plan, other) if each.given.opcode == "ld")
        return (
            plan.is_volatile
            and other.is_volatile
            and uses == {"loads", "stores"}
            and any(self._values.of(each.given, each.function).is_data for each in loads)
        )

    def _written_here(self, at: Accessed, plan: Plan, written: np.ndarray) -> None:
        """Tell of a load of read-only data which the kernel has written, in whatever order."""
        rows, columns = np.nonzero((written > 0) & ((written & LANE) != NOBODY))
        if rows.size:
            self._race(at, plan, int(rows[0]), int(written[rows[0], columns[0]]), False)

    @staticmethod
    def _is_near(plan: Plan, other: Plan) -> bool:
        """Whether two atomic operations are none for each other's block, for one of them is of its own block only."""
        return plan.is_atomic and other.is_atomic and (plan.narrow or other.narrow)

    def _of_other_blocks(self, stamps: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Whether accesses that stamps stand for are of other blocks than lanes."""
        machine, number = self._machine, (stamps & LANE) - self.base
        here = (number >= 0) & (number < machine.lanes)
        return np.asarray(~here | (machine.block_of[np.where(here, number, 0)] != machine.block_of[lanes]))

    def _excuse(
        self, at: Accessed, plan: Plan, bad: np.ndarray, others: np.ndarray, rows: np.ndarray, writes: bool
    ) -> None:
        """Races of loads that nobody has used are kept for later."""
        if not self._values.are_conditional:
            return
        lanes, events, numbers = at.lanes, others >> LANE_BITS, (others & LANE) - self.base
        here, now = (numbers >= 0) & (numbers < self._machine.lanes), len(self._events) - 1
        for event in np.unique(events[bad]).tolist():
            other, early = self._events[event], np.flatnonzero(bad & here & (events == event))
            load, when = (other, event) if writes else (plan, now)
            early = early[self.unused.among(load, when, numbers[early] if writes else lanes[rows[early]])]
            if not early.size:
                continue
            bad[early] = False
            places, stamps = rows[early], others[early]
            loading = lanes[places]
            if writes:
                loading, position = self.unused.alike(load, when, at.offsets[places])
                places, stamps = places[position], event << LANE_BITS | loading + self.base
                racing = self.order.unordered(stamps, lanes[places])
                loading, places, stamps = loading[racing], places[racing], stamps[racing]
                used = np.flatnonzero(~self.unused.among(load, when, loading))
                if used.size:
                    self._race(at, plan, int(places[used[0]]), int(stamps[used[0]]), writes)
                    continue

            def tell(k: int, places: np.ndarray = places, stamps: np.ndarray = stamps) -> None:
                self._race(at, plan, int(places[k]), int(stamps[k]), writes)

            self.unused.wait(load, plan if writes else other, when, loading, tell)

    def _at_once(self, at: Accessed, plan: Plan, lost: np.ndarray, won: np.ndarray, frame: Frame) -> None:
        """Several lanes store to one place with one instruction: a race where they store different values."""
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
        who = machine.name_of(lane) if 0 <= lane < machine.lanes else "a thread of an earlier block"
        file, line = self._telling.place(other)
        did = "writes" if any(each.use != "loads" for each in other.accesses) else "reads"
        text = (
            f"race: {machine.name_of(mine)} {'writes' if writes else 'reads'} "
            f"{self._what(at, row)}, which {who} {did} at {file}:{line}, and {self._why(plan, stamp, mine)}"
        )
        self._telling.tell("race", plan, text, other)

    def _why(self, plan: Plan, stamp: int, lane: int) -> str:
        order, block = self.order, self._machine.block_of[lane]
        if order.acquired[block] <= stamp >> LANE_BITS < order.told[block]:
            file, line = self._telling.place(self._events[int(order.told_by[block])])
            return f"no fence follows the read at {file}:{line}, which tells that it is there"
        if plan.is_of_read_only:
            return "a load through __ldg() or const __restrict__ need not see what its own kernel writes"
        if self._is_near(plan, self._events[stamp >> LANE_BITS]):
            return "an atomic operation of a block's scope is none for another block"
        if stamp >> LANE_BITS < order.told[block]:
            return "no fence covers it: another thread's does so only after a barrier"
        if plan.is_volatile and self._events[stamp >> LANE_BITS].is_volatile:
            return "nothing orders the two: lanes of a warp need not run in step, and volatile is no __syncwarp()"
        return "nothing orders the two"

    def _what(self, at: Accessed, row: int) -> str:
        offset = int(at.offsets[row])
        if at.name:
            return at.name.format(offset // at.itemsize)
        what = in_shared(self._machine.launch, offset % self.row, at.itemsize)
        if self._is_cluster:
            first = offset // self.row * self._machine.threads
            what = f"{what} of {self._machine.name_of(first).partition(', thread')[0]}"
        return what
