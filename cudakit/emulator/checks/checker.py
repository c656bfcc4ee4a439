"""The checker: an observer that reports races, uninitialised reads, and barriers that threads never reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from cudakit.emulator.checks.copies import PendingCopies
from cudakit.emulator.checks.findings import Finding, Reporter
from cudakit.emulator.checks.order import Warps, first_numbers
from cudakit.emulator.checks.plans import Plan, Values, origins, plan_of, scan_module
from cudakit.emulator.checks.races import Races
from cudakit.emulator.checks.shadow import Shadow
from cudakit.emulator.checks.spaces import Spaces
from cudakit.emulator.machine.decode import Decoded
from cudakit.emulator.machine.heap import device_limits
from cudakit.emulator.machine.machine import Launch, Scheduler
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import AT_BARRIER, AT_WARP, DONE, Frame
from cudakit.emulator.ptx.program import Function


class Barriers:
    """Checks of the barriers and warp collectives of one interpreter.

    Parameters
    ----------
    machine : Scheduler
        Interpreter whose lanes are checked.
    reporter : Reporter
        Reporter of the findings.
    plans : mapping
        Plans of the instructions that lanes have reached, by the ``id`` of the decoded instruction.
    warps : Warps
        Order within warps, with the masks of waiting lanes.
    """

    def __init__(self, machine: Scheduler, reporter: Reporter, plans: Mapping[int, Plan | None], warps: Warps) -> None:
        self._machine, self._reporter, self._plans, self._warps = machine, reporter, plans, warps
        self._everybody = first_numbers(machine.lanes)

    def collective(self, plan: Plan, masks: np.ndarray, active: Index) -> None:
        """Report a warp collective whose mask names a lane that has exited.

        `masks` has one mask for each of the `active` lanes, or one for all.
        """
        machine = self._machine
        if machine.alive == machine.lanes:
            return
        lanes = self._everybody if active is None else active
        gone = self._bits(np.flatnonzero(machine.status == DONE))
        missing = np.broadcast_to(masks, lanes.shape) & gone[machine.warp_of[lanes]]
        if missing.any():
            at = int(np.flatnonzero(missing)[0])
            absent = int(missing[at]).bit_length() - 1
            self._names_absent(plan, int(lanes[at]), absent)

    def block_barrier(self, plan: Plan, active: Index) -> None:
        """Report threads that reach a barrier of their whole block after some threads of the block have exited."""
        machine = self._machine
        lanes = self._everybody if active is None else active
        gone = machine.status == DONE
        short = np.zeros(machine.blocks, bool)
        short[machine.block_of[lanes]] = True
        absent = np.flatnonzero(gone & short[machine.block_of])
        if absent.size:
            self._never_reached(plan, int(absent[0]))

    def divergent(self, plan: Plan, active: Index) -> None:
        """Report lanes of one warp that wait at different barriers, where the barrier needs whole warps."""
        machine = self._machine
        if active is None:
            return
        waiting = np.flatnonzero(machine.status == AT_BARRIER)
        if not waiting.size:
            return
        came = np.full(int(machine.warp_of[-1]) + 1, -1)
        came[machine.warp_of[active]] = active
        for lane in waiting[came[machine.warp_of[waiting]] >= 0].tolist():
            other = self._plan_awaited(int(machine.place[lane]))
            if other is not None and other.instr is not plan.instr:
                file, line = self._reporter.place(other)
                came_lane = int(came[machine.warp_of[lane]])
                here = machine.name_of(came_lane)
                text = (
                    f"a barrier that {here} reaches while {machine.name_of(lane)}, of its warp, waits at {file}:{line}"
                )
                threads = [machine.thread_of(came_lane), machine.thread_of(lane)]
                self._reporter.report("barrier", plan, text, threads=threads)
                return

    def exits(self, active: Index) -> None:
        """Report lanes that exit while other lanes wait for them, at a barrier of the block or by a mask."""
        if active is None:
            return
        machine = self._machine
        at_warp = np.flatnonzero(machine.status == AT_WARP)
        if at_warp.size:
            missing = self._warps.masks[at_warp] & self._bits(active)[machine.warp_of[at_warp]]
            for at in np.flatnonzero(missing)[:1].tolist():
                lane = int(at_warp[at])
                plan = self._plan_awaited(int(machine.place[lane]))
                if plan is not None and plan.mask is not None:
                    self._names_absent(plan, lane, int(missing[at]).bit_length() - 1)
        waiting = np.flatnonzero(machine.status == AT_BARRIER)
        if not waiting.size:
            return
        first = np.full(machine.blocks, -1)
        first[machine.block_of[active[::-1]]] = active[::-1]
        waiting = waiting[first[machine.block_of[waiting]] >= 0]
        for location in np.unique(machine.place[waiting]).tolist():
            plan = self._plan_awaited(location)
            if plan is not None and plan.does == "barrier" and plan.whole:
                lane = int(first[machine.block_of[waiting[machine.place[waiting] == location][0]]])
                self._never_reached(plan, lane)

    def _bits(self, lanes: np.ndarray) -> np.ndarray:
        """Return one 32-bit mask for each warp of the interpreter.

        Bit i is set if `lanes` has lane i of the warp.
        """
        machine = self._machine
        bits = np.zeros(int(machine.warp_of[-1]) + 1, np.uint32)
        np.bitwise_or.at(bits, machine.warp_of[lanes], np.uint32(1) << machine.lane_id[lanes])
        return bits

    def _plan_awaited(self, location: int) -> Plan | None:
        """Return the plan of the instruction at which a lane waits, from the location of the lane.

        A waiting lane's location is the instruction behind that instruction. The result is None if there is no plan.
        """
        machine = self._machine
        _, number, code = machine.where(location)
        return self._plans.get(id(machine.module.decoded(machine.module.functions[number])[code - 1]))

    def _names_absent(self, plan: Plan, lane: int, absent: int) -> None:
        text = f"{self._machine.name_of(lane)}: its mask names lane {absent} of its warp, which exits before"
        self._reporter.report("mask", plan, text, threads=[self._machine.thread_of(lane)])

    def _never_reached(self, plan: Plan, lane: int) -> None:
        text = f"a barrier of the whole block, which {self._machine.name_of(lane)} exits without reaching"
        self._reporter.report("barrier", plan, text, threads=[self._machine.thread_of(lane)])


class Checker:
    """A checker of one launch, and of the launches that its kernel makes.

    Parameters
    ----------
    on_finding : callable
        Function that takes each finding and may raise.
    """

    _barriers: Barriers
    _races: Races
    _spaces: Spaces

    def __init__(self, on_finding: Callable[[Finding], None]) -> None:
        self._reporter = Reporter(on_finding)
        self._plans: dict[int, Plan | None] = {}
        self._decoded: list[Decoded] = []
        self._copying: dict[int, Plan] = {}
        self._values = Values()
        self._constants: tuple[Function, dict[int, str]] | None = None
        self._machine: Scheduler | None = None
        self._launch: Launch | None = None
        #: Plan of each access of the launch, by the number of the access.
        self._events: list[Plan] = []
        self._pieces: dict[int, Shadow] = {}

    def instruction(
        self, machine: Scheduler, function: Function, decoded: Decoded, frame: Frame, index: Index, active: Index
    ) -> None:
        """Check an instruction before it runs: see `cudakit.emulator.machine.machine.Observer`."""
        if machine is not self._machine:
            self._begin(machine)
        key = id(decoded)
        plan = self._plans.get(key)
        if plan is None:
            if key in self._plans:
                return
            plan = self._plans[key] = plan_of(decoded.instruction, function, machine.module.context(function))
            self._decoded.append(decoded)
            if plan is None:
                return
            if decoded.instruction.opcode == "ld":
                self._values.watch(decoded.instruction, function)
            if function is machine.launch.entry and machine.launch.pointers:
                plan.constant = self._constant(machine).get(id(plan.instr), "")
        if active is not None and active.size == 0:
            return
        if plan.constant:
            self._reporter.through_const(plan, machine, active)
        if plan.does == "copy":
            self._copying[id(plan.instr)] = plan
            return
        if not plan.does:
            self._races.unused.writes(plan, active, len(self._events))
        for access in plan.accesses:
            self._spaces.access(plan, access, access.address(frame, active, machine), active, frame)
        if plan.does:
            self._orders(plan, machine, frame, active)

    def _constant(self, machine: Scheduler) -> dict[int, str]:
        """Return the name of the const parameter through which an instruction writes, by the instruction's ``id``.

        Only instructions that write through a pointer to const are included. The result is cached for the launch's
        kernel.
        """
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
            self._reporter.launch = self._launch = launch
            self._base, self._events, self._pieces = 0, [Plan(launch.entry.code[0], launch.entry)], {}
            if device_limits().has_heap:
                device_limits().heap.unwritten[:] = False
            self._grain, self._unseen = scan_module(launch.module, prod(launch.geometry.cluster) > 1)
        elif self._machine is not None:
            self._base += self._machine.lanes
        self._machine = machine
        self._races = Races(machine, self._reporter, self._events, self._base, self._unseen, self._values)
        self._spaces = Spaces(machine, self._reporter, self._races, self._pieces, self._grain)
        self._barriers = Barriers(machine, self._reporter, self._plans, self._races.order.warps)
        if machine.late is not None:
            machine.late.listeners.append(
                PendingCopies(machine, self._reporter, self._races, self._spaces, self._copying)
            )

    def _orders(self, plan: Plan, machine: Scheduler, frame: Frame, active: Index) -> None:
        now, order = len(self._events), self._races.order
        if plan.does == "barrier":
            if plan.whole and machine.alive < machine.lanes:
                self._barriers.block_barrier(plan, active)
            if plan.aligned:
                self._barriers.divergent(plan, active)
            if plan.number is None:
                order.barrier(active, now)
            else:
                numbers = np.asarray(plan.number(frame, active, machine))
                order.groups.arrive(numbers, active, not plan.arrives, now)
        elif plan.does == "collective":
            masks = None if plan.mask is None else np.asarray(plan.mask(frame, active, machine))
            if masks is not None:
                self._barriers.collective(plan, masks, active)
            order.warps.converge(active, masks, now)
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
            order.exit(active, now)
