"""Barriers that some threads never reach, and masks that name lanes which are gone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cudakit.emulator.checks.order import first_numbers
from cudakit.emulator.checks.plans import Plan
from cudakit.emulator.checks.telling import Telling
from cudakit.emulator.checks.warps import Warps
from cudakit.emulator.machine.machine import Scheduler
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import AT_BARRIER, AT_WARP, DONE


class Barriers:
    """Checks of one machine.

    Parameters
    ----------
    machine : Scheduler
    telling : Telling
    plans : mapping
        Of instructions that lanes have come to, by the numbers that Python has for what is decoded of them.
    warps : Warps
        With the masks of lanes that wait.
    """

    def __init__(self, machine: Scheduler, telling: Telling, plans: Mapping[int, Plan | None], warps: Warps) -> None:
        self._machine, self._telling, self._plans, self._warps = machine, telling, plans, warps
        self._everybody = first_numbers(machine.lanes)

    def meeting(self, plan: Plan, masks: np.ndarray, active: Index) -> None:
        """Lanes come to an instruction of their warp, with masks."""
        if self._machine.alive < self._machine.lanes:
            self._masked(plan, masks, active)

    def whole(self, plan: Plan, active: Index) -> None:
        """Lanes come to a barrier of their whole block, of which some have exited."""
        machine = self._machine
        lanes = self._everybody if active is None else active
        gone = machine.status == DONE
        short = np.zeros(machine.blocks, bool)
        short[machine.block_of[lanes]] = True
        absent = np.flatnonzero(gone & short[machine.block_of])
        if absent.size:
            self._never_reached(plan, int(absent[0]))

    def parted(self, plan: Plan, active: Index) -> None:
        """Lanes come to a barrier of whole warps, at another one of which others of their warp wait."""
        machine = self._machine
        if active is None:
            return
        waiting = np.flatnonzero(machine.status == AT_BARRIER)
        if not waiting.size:
            return
        came = np.full(int(machine.warp_of[-1]) + 1, -1)
        came[machine.warp_of[active]] = active
        for lane in waiting[came[machine.warp_of[waiting]] >= 0].tolist():
            other = self._came_to(int(machine.place[lane]))
            if other is not None and other.given is not plan.given:
                file, line = self._telling.place(other)
                here = machine.name_of(int(came[machine.warp_of[lane]]))
                text = (
                    f"a barrier that {here} reaches while {machine.name_of(lane)}, of its warp, waits at {file}:{line}"
                )
                self._telling.tell("barrier", plan, text)
                return

    def exits(self, active: Index) -> None:
        """Others may wait for lanes that exit: at a barrier of their whole block, or for those that a mask names."""
        if active is None:
            return
        machine = self._machine
        meeting = np.flatnonzero(machine.status == AT_WARP)
        if meeting.size:
            named = self._warps.masks[meeting] & self._bits(active)[machine.warp_of[meeting]]
            for at in np.flatnonzero(named)[:1].tolist():
                lane = int(meeting[at])
                plan = self._came_to(int(machine.place[lane]))
                if plan is not None and plan.mask is not None:
                    self._names_absent(plan, lane, int(named[at]).bit_length() - 1)
        waiting = np.flatnonzero(machine.status == AT_BARRIER)
        if not waiting.size:
            return
        first = np.full(machine.blocks, -1)
        first[machine.block_of[active[::-1]]] = active[::-1]
        waiting = waiting[first[machine.block_of[waiting]] >= 0]
        for location in np.unique(machine.place[waiting]).tolist():
            plan = self._came_to(location)
            if plan is not None and plan.does == "barrier" and plan.whole:
                lane = int(first[machine.block_of[waiting[machine.place[waiting] == location][0]]])
                self._never_reached(plan, lane)

    def _bits(self, lanes: np.ndarray) -> np.ndarray:
        """A mask of those lanes for each warp."""
        machine = self._machine
        bits = np.zeros(int(machine.warp_of[-1]) + 1, np.uint32)
        np.bitwise_or.at(bits, machine.warp_of[lanes], np.uint32(1) << machine.lane_id[lanes])
        return bits

    def _came_to(self, location: int) -> Plan | None:
        """What lanes do that wait, and so stand behind it."""
        machine = self._machine
        _, number, code = machine.where(location)
        return self._plans.get(id(machine.module.decoded(machine.module.functions[number])[code - 1]))

    def _names_absent(self, plan: Plan, lane: int, absent: int) -> None:
        text = f"{self._machine.name_of(lane)}: its mask names lane {absent} of its warp, which exits before"
        self._telling.tell("mask", plan, text)

    def _never_reached(self, plan: Plan, lane: int) -> None:
        what = f"a barrier of the whole block, which {self._machine.name_of(lane)} exits without reaching"
        self._telling.tell("barrier", plan, what)

    def _masked(self, plan: Plan, masks: np.ndarray, active: Index) -> None:
        machine = self._machine
        lanes = self._everybody if active is None else active
        gone = self._bits(np.flatnonzero(machine.status == DONE))
        named = np.broadcast_to(masks, lanes.shape) & gone[machine.warp_of[lanes]]
        if named.any():
            at = int(np.flatnonzero(named)[0])
            absent = int(named[at]).bit_length() - 1
            self._names_absent(plan, int(lanes[at]), absent)
