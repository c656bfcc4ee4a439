"""Checks of asynchronous copies: accesses to the copied memory before a thread has waited for the copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cudakit.emulator.checks.findings import Reporter
from cudakit.emulator.checks.plans import Plan
from cudakit.emulator.checks.races import Races
from cudakit.emulator.checks.shadow import LANE_BITS, NOBODY, Shadow
from cudakit.emulator.checks.spaces import Spaces
from cudakit.emulator.instructions.access import Access
from cudakit.emulator.machine.late import Awaited, Copies, Part
from cudakit.emulator.machine.machine import Scheduler


class _Mark(NamedTuple):
    """A mark on the stamps of memory that pending copies read or write.

    `where` has the numbers of the marked stamps in `shadow`. `positions` has, for each of these, the position of its
    copy among the copies of the instruction.
    """

    shadow: Shadow
    where: np.ndarray
    positions: np.ndarray
    #: The number of the access, negative where the copies read.
    mark: int


class PendingCopies:
    """The pending copies of one interpreter; a `cudakit.emulator.machine.late.Listener`.

    Parameters
    ----------
    machine : Scheduler
        Interpreter that issues the copies.
    reporter : Reporter
        Reporter of the findings.
    races : Races
        Race check of the interpreter.
    spaces : Spaces
        Memory of the interpreter, with its stamps.
    plans : mapping
        Plans of the instructions that copy, by the ``id`` of the instruction.
    """

    def __init__(
        self, machine: Scheduler, reporter: Reporter, races: Races, spaces: Spaces, plans: Mapping[int, Plan]
    ) -> None:
        self._machine, self._reporter, self._races, self._spaces, self._plans = machine, reporter, races, spaces, plans
        self._marks: dict[int, list[_Mark]] = {}
        #: Shadows of the memory with marks.
        self._shadows: set[Shadow] = set()

    def issued(self, copies: Copies) -> None:
        """Compare the reads and writes of new copies with earlier accesses, and mark their memory as pending.

        Copies in clusters are ignored.
        """
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
            event = self._races.access(at, plan, access, None)
            if at.shadow.unwritten is not None:
                self._spaces.check_initialised(at, plan, access)
            places = at.shadow.places(at.offsets, part.size)
            positions = part.positions if at.chosen is None else part.positions[at.chosen]
            if len(places.shape) == 2:
                positions = np.repeat(positions, places.shape[1])
            mark = _Mark(at.shadow, places.numbers(), positions, event if use == "stores" else -event)
            at.shadow.begin(mark.where, mark.mark)
            self._shadows.add(at.shadow)
            marks.append(mark)

    def landed(self, copies: Copies, positions: np.ndarray, awaited: Awaited) -> None:
        """Remove the marks of the copies at `positions`, which have completed.

        A copy that its own thread waited for (`awaited` is ``"group"``) counts as a write of that thread from then on.
        A copy completed by an mbarrier counts as a write of no thread.
        """
        marks = self._marks.get(id(copies))
        if marks is None:
            return
        is_done = np.zeros(copies.lanes.size, bool)
        is_done[positions] = True
        now = self._races.next_event(self._plans[id(copies.instr)])
        for mark in marks:
            here = is_done[mark.positions]
            mark.shadow.end(mark.where[here], mark.mark)
            if mark.mark > 0:
                lanes = copies.lanes[mark.positions[here]] + self._races.base if awaited == "group" else NOBODY
                mark.shadow.written[mark.where[here]] = now << LANE_BITS | lanes
        if not copies.open.any():
            del self._marks[id(copies)]
            if not self._marks:
                # Without marks, accesses are no longer compared with copies.
                for shadow in self._shadows:
                    shadow.under_way = None
                self._shadows.clear()

    def abandoned(self, copies: Copies, positions: np.ndarray) -> None:
        """Report a thread that exits without waiting for its copies to complete.

        `positions` are the positions of these copies among `copies`. Only the thread of the first is reported.
        """
        plan = self._plans.get(id(copies.instr))
        if plan is not None and copies.writes:
            file, line = self._reporter.place(plan)
            lane = int(copies.lanes[positions[0]])
            text = f"the asynchronous copy of {self._machine.name_of(lane)} at {file}:{line} is never waited for"
            self._reporter.report("copy", plan, text, threads=[self._machine.thread_of(lane)])
