"""Asynchronous copies: what they write is read, or what they read is written, before anybody has waited for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cudakit.emulator.checks.findings import Telling
from cudakit.emulator.checks.plans import Plan
from cudakit.emulator.checks.races import Races
from cudakit.emulator.checks.shadow import LANE_BITS, NOBODY, Shadow
from cudakit.emulator.checks.spaces import Spaces
from cudakit.emulator.instructions.access import Access
from cudakit.emulator.machine.late import Awaited, Copies, Part
from cudakit.emulator.machine.machine import Scheduler


class _Mark(NamedTuple):
    """Stamps of memory that copies access: where, and the position of the copy of each."""

    shadow: Shadow
    where: np.ndarray
    positions: np.ndarray
    #: The number of the access, negative where the copies read.
    mark: int


class UnderWay:
    """The copies that are under way in one machine; a `cudakit.emulator.machine.late.Listener`.

    Parameters
    ----------
    machine : Scheduler
    telling : Telling
    races : Races
    spaces : Spaces
    plans : mapping
        Of the instructions that copy, by the numbers that Python has for them.
    """

    def __init__(
        self, machine: Scheduler, telling: Telling, races: Races, spaces: Spaces, plans: Mapping[int, Plan]
    ) -> None:
        self._machine, self._telling, self._races, self._spaces, self._plans = machine, telling, races, spaces, plans
        self._marks: dict[int, list[_Mark]] = {}
        #: Of the memory of all these.
        self._shadows: set[Shadow] = set()

    def issued(self, copies: Copies) -> None:
        """Compare what is read and written with accesses before, and mark it."""
        plan = self._plans.get(id(copies.instr))
        if plan is None or self._machine.memory.cluster > 1:
            return
        marks = self._marks[id(copies)] = []
        for part in copies.reads:
            self._mark(plan, copies, part, "loads", marks)
        for part in copies.writes:
            self._mark(plan, copies, part, "stores", marks)

    def _mark(self, plan: Plan, copies: Copies, part: Part, use: str, marks: list[_Mark]) -> None:
        if not part.positions.size:
            return  # of a tensor: all outside
        access = Access(part.space, plan.nowhere, part.size, use)
        lanes = copies.lanes[part.positions]
        for at in self._spaces.places(part.space, part.addresses, part.size, lanes):
            event = self._races.at(at, plan, access, None)
            if at.shadow.unwritten is not None:
                self._spaces.initialised(at, plan, access)
            places = at.shadow.places(at.offsets, part.size)
            positions = part.positions if at.chosen is None else part.positions[at.chosen]
            if len(places.shape) == 2:
                positions = np.repeat(positions, places.shape[1])
            mark = _Mark(at.shadow, places.numbers(), positions, event if use == "stores" else -event)
            at.shadow.begin(mark.where, mark.mark)
            self._shadows.add(at.shadow)
            marks.append(mark)

    def landed(self, copies: Copies, positions: np.ndarray, awaited: Awaited) -> None:
        """What is waited for by a thread is its own write from now on; what an mbarrier tells of is nobody's."""
        marks = self._marks.get(id(copies))
        if marks is None:
            return
        done = np.zeros(copies.lanes.size, bool)
        done[positions] = True
        now = self._races.next_event(self._plans[id(copies.instr)])
        for mark in marks:
            here = done[mark.positions]
            mark.shadow.end(mark.where[here], mark.mark)
            if mark.mark > 0:
                lanes = copies.lanes[mark.positions[here]] + self._races.base if awaited == "group" else NOBODY
                mark.shadow.written[mark.where[here]] = now << LANE_BITS | lanes
        if not copies.open.any():
            del self._marks[id(copies)]
            if not self._marks:
                # Accesses are compared with copies while there are any.
                for shadow in self._shadows:
                    shadow.under_way = None
                self._shadows.clear()

    def left(self, copies: Copies, positions: np.ndarray) -> None:
        """Somebody exits before they are done."""
        plan = self._plans.get(id(copies.instr))
        if plan is not None and copies.writes:
            file, line = self._telling.place(plan)
            lane = self._machine.name_of(int(copies.lanes[positions[0]]))
            text = f"the asynchronous copy of {lane} at {file}:{line} is never waited for"
            self._telling.tell("copy", plan, text)
