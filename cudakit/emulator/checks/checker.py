"""An observer of machines that finds races, reads of what nobody wrote, and barriers that some threads never reach."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from cudakit.emulator.checks.barriers import Barriers
from cudakit.emulator.checks.constant import origins
from cudakit.emulator.checks.copies import UnderWay
from cudakit.emulator.checks.findings import Finding
from cudakit.emulator.checks.plans import Plan, looked_at, plan_of
from cudakit.emulator.checks.races import Races
from cudakit.emulator.checks.shadow import Shadow
from cudakit.emulator.checks.spaces import Spaces
from cudakit.emulator.checks.telling import Telling
from cudakit.emulator.checks.uses import Values
from cudakit.emulator.machine.decode import Decoded
from cudakit.emulator.machine.heap import device_limits
from cudakit.emulator.machine.machine import Launch, Scheduler
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame
from cudakit.emulator.ptx.program import Function


class Checker:
    """Checks one launch and what it launches.

    Parameters
    ----------
    found : callable
        Takes what is found, and may raise.
    """

    _barriers: Barriers
    _races: Races
    _spaces: Spaces

    def __init__(self, found: Callable[[Finding], None]) -> None:
        self._telling = Telling(found)
        self._plans: dict[int, Plan | None] = {}
        self._held: list[Decoded] = []
        self._copying: dict[int, Plan] = {}
        self._values = Values()
        self._constants: tuple[Function, dict[int, str]] | None = None
        self._machine: Scheduler | None = None
        self._launch: Launch | None = None
        #: Each access of the launch, by its number.
        self._events: list[Plan] = []
        self._pieces: dict[int, Shadow] = {}

    def instruction(
        self, machine: Scheduler, function: Function, decoded: Decoded, frame: Frame, index: Index, active: Index
    ) -> None:
        """See `cudakit.emulator.machine.machine.Observer`."""
        if machine is not self._machine:
            self._begin(machine)
        known = id(decoded)
        plan = self._plans.get(known)
        if plan is None:
            if known in self._plans:
                return
            plan = self._plans[known] = plan_of(decoded.instruction, function, machine.module.context(function))
            self._held.append(decoded)
            if plan is None:
                return
            if decoded.instruction.opcode == "ld":
                self._values.watch(decoded.instruction, function)
            if function is machine.launch.entry and machine.launch.pointers:
                plan.constant = self._constant(machine).get(id(plan.given), "")
        if active is not None and active.size == 0:
            return
        if plan.constant:
            self._telling.through_const(plan, machine, active)
        if plan.does == "copy":
            self._copying[id(plan.given)] = plan
            return
        if not plan.does:
            self._races.unused.writes(plan, active, len(self._events))
        for access in plan.accesses:
            self._spaces.access(plan, access, access.address(frame, active, machine), active, frame)
        if plan.does:
            self._orders(plan, machine, frame, active)

    def _constant(self, machine: Scheduler) -> dict[int, str]:
        """Parameters that are const by the instructions that write through them, looked for once a launch."""
        launch = machine.launch
        if self._constants is None or self._constants[0] is not launch.entry:
            self._constants = (
                launch.entry,
                origins(launch.entry, {name: bool(shown) for name, shown in launch.pointers.items()}),
            )
        return self._constants[1]

    def _begin(self, machine: Scheduler) -> None:
        launch = machine.launch
        if launch is not self._launch:
            self._telling.launch = self._launch = launch
            self._base, self._events, self._pieces = 0, [Plan(launch.entry.code[0], launch.entry)], {}
            if device_limits().has_heap:
                device_limits().heap.unwritten[:] = False
            self._grain, self._unseen = looked_at(launch.module, prod(launch.geometry.cluster) > 1)
        elif self._machine is not None:
            self._base += self._machine.lanes
        self._machine = machine
        self._races = Races(machine, self._telling, self._events, self._base, self._unseen, self._values)
        self._spaces = Spaces(machine, self._telling, self._races, self._pieces, self._grain)
        self._barriers = Barriers(machine, self._telling, self._plans, self._races.order.warps)
        if machine.late is not None:
            machine.late.listeners.append(UnderWay(machine, self._telling, self._races, self._spaces, self._copying))

    def _orders(self, plan: Plan, machine: Scheduler, frame: Frame, active: Index) -> None:
        now, order = len(self._events), self._races.order
        if plan.does == "barrier":
            if plan.whole and machine.alive < machine.lanes:
                self._barriers.whole(plan, active)
            if plan.aligned:
                self._barriers.parted(plan, active)
            if plan.number is None:
                order.barrier(active, now)
            else:
                numbers = np.asarray(plan.number(frame, active, machine))
                order.groups.come(numbers, active, not plan.arrives, now)
        elif plan.does == "meeting":
            masks = None if plan.mask is None else np.asarray(plan.mask(frame, active, machine))
            if masks is not None:
                self._barriers.meeting(plan, masks, active)
            order.warps.meet(active, masks, now)
        elif plan.does == "wait":
            order.barrier(active, now)
            order.waited(active, now)
        elif plan.does == "arrive":
            order.arrive(active, now, plan.releases)
        elif plan.does == "join":
            order.join(active)
        elif plan.does == "fence":
            order.fence(active, now, plan.whole)
        elif plan.function.is_entry:
            self._barriers.exits(active)
            order.gone(active, now)
