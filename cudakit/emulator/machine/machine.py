"""Scheduler of the NumPy interpreter: lanes with program counters of their own, run in groups that stand at one place.

A lane's place is (call depth, function, instruction) in one number. The scheduler takes the lanes at one place. It runs
the instructions up to the next branch, call or barrier for all of these lanes at once. Each instruction is a few NumPy
operations over the lanes. Then the scheduler chooses again. It prefers the lowest place, where divergent lanes
converge.

A group yields when it only spins: the group went round a polling loop and no lane left the loop. A group that runs long
while others wait yields too. A group that yielded runs again when all others have yielded, wait or are done. So every
lane that can run will run, and a spinning lane does not wait long.

With `Drawn` the order is random: warps stop anywhere, and any may run next. Kernels launched by a kernel (`Children`)
run when the kernel has ended, each with its own children before the next.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from cudakit.emulator.isa.facts import facts_of
from cudakit.emulator.machine import state
from cudakit.emulator.machine.decode import Context, Decoded, failure
from cudakit.emulator.machine.heap import device_limits
from cudakit.emulator.machine.kernel_memory import SharedLayout
from cudakit.emulator.machine.late import Late
from cudakit.emulator.machine.memory import AccessError, Index, Memory
from cudakit.emulator.machine.module import MOST_BYTES, Module, blocks_at_once
from cudakit.emulator.machine.state import Frame, Geometry, Machine, SpecialRegisters, deadlocked
from cudakit.emulator.ptx.program import Function, Instruction, Source, as_compiled
from cudakit.errors import Access, EmulationError, LaunchError, named
from cudakit.jit.compile.elf import LaunchBounds
from cudakit.jit.compile.mangled import readable_name
from cudakit.jit.load.config import Config
from cudakit.jit.load.limits import bounded


def fault_of(error: AccessError | EmulationError, lanes: Index) -> tuple[int | None, str, dict[str, Any]]:
    """Return the lane of an instruction's error, the error's kind, and its other details.

    `lanes` run the instruction; the lane is None if it is not known.
    """
    if isinstance(error, AccessError):
        return error.lane, "access", error.parts
    category = error.details.kind
    first = 0 if lanes is None else int(lanes[0])
    return first if category in ("trap", "assert") else None, category, error.details._asdict()


def _use(instruction: Instruction) -> str:
    """Return whether an instruction ``reads`` or ``writes`` memory; empty for neither, and for copies."""
    uses = {memory.use for memory in facts_of(instruction).memory}
    return "writes" if uses & {"stores", "atomics"} else "reads" if "loads" in uses else ""


# ── drawn orders ──

#: Seed of a random order, or the seed and the numbers of the switches that are made.
DrawnOrder: TypeAlias = int | tuple[int, ...]

#: Probability that a group stops before an instruction, and that all warps at a place run together.
_STOPS, _TOGETHER = 0.1, 0.5


class Drawn:
    """Random choice of the lanes that run next, and of the instructions before which groups stop.

    ``code in drawn`` is drawn too: whether a group stops before an instruction.

    Parameters
    ----------
    order : int or tuple of int
        Seed, or the seed and the numbers of the switches to make. With a seed alone, all switches are made.
    first : int
        Number of the first block that runs.
    switches : int
        Number of switches before this block ran.

    Attributes
    ----------
    switches : int
        Number of switches so far: times at which the next lanes could be drawn.
    """

    switches: int

    def __init__(self, order: DrawnOrder, first: int, switches: int) -> None:
        self._seed, *switch_numbers = (order,) if isinstance(order, int) else order
        self._switches = None if isinstance(order, int) else frozenset(switch_numbers)
        self._first, self._chosen = first, np.zeros(0, np.int64)
        self._random = np.random.default_rng((self._seed, first))
        self.switches = switches

    def __contains__(self, code: object) -> bool:
        return bool(self._random.random() < _STOPS)

    def choose(self, machine: Machine) -> tuple[int, Index, bool] | None:
        """Draw the group of lanes that runs next, and count a switch.

        Return its place, its lanes (None for all lanes), and whether lanes outside the group exist. If `order` leaves
        out this switch, the former lanes go on. Return None if they cannot.
        """
        number = self.switches
        self.switches += 1
        if self._switches is not None and number not in self._switches:
            running = self._chosen[machine.status[self._chosen] == state.RUNNING]
            if not running.size:
                return None
            place = int(machine.place[running].min())
            group = running[machine.place[running] == place]
        else:
            # Each switch has a random stream of its own: it is the same where other switches are left out.
            random = np.random.default_rng((self._seed, self._first, number))
            running = np.flatnonzero(machine.status == state.RUNNING)
            place = int(machine.place[running[random.integers(running.size)]])
            group = running[machine.place[running] == place]
            if random.random() >= _TOGETHER:
                warps = np.unique(machine.warp_of[group])
                chosen = warps[random.random(warps.size) < 0.5]
                some = group[np.isin(machine.warp_of[group], chosen)]
                group = some if some.size else group
            self._chosen = group
        return place, None if group.size == machine.lanes else group, group.size < machine.lanes


# ── kernels that a kernel launches ──

#: Default limits of a device: nesting depth of launches by kernels, and pending launches.
_DEEPEST, _MOST_PENDING = 24, 2048
_MOST_THREADS = 1024
#: ``cudaStreamTailLaunch``: its launches run after all others.
_TAIL = 3


class Child(NamedTuple):
    """A kernel launch that a running kernel requested: the child kernel, its geometry, and memory for its parameters.

    The running kernel writes the parameters to this memory.
    """

    entry: Function
    geometry: Geometry
    parameters: np.ndarray


@dataclass
class Children:
    """Launches requested by one launch of a kernel.

    Attributes
    ----------
    module : Module
        Module of the kernels.
    depth : int
        Number of launches above this one: 0 for a launch by the host.
    """

    module: Module
    depth: int = 0
    _children: dict[int, Child] = field(default_factory=dict)
    _waiting: list[Child] = field(default_factory=list)
    _last: list[Child] = field(default_factory=list)

    def make(self, pointer: int, geometry: Geometry) -> int:
        """Return the address of memory for a child kernel's parameters.

        A later `launch` names the kernel by this address.

        Raises
        ------
        EmulationError
            For a launch that no device would take.
        """
        entry = self.module.program.functions[self.module.symbols.function_at(pointer)]
        if not entry.is_entry:
            raise EmulationError(f"{entry.name} is no kernel, and cannot be launched")
        if not (0 < geometry.threads <= _MOST_THREADS and geometry.blocks > 0):
            raise EmulationError(
                f"{entry.name} is launched with a grid of {geometry.grid} and blocks of {geometry.block}; a block has "
                f"1 to {_MOST_THREADS} threads, and a grid a block at least"
            )
        config = Config(geometry.grid, geometry.block, geometry.shared_bytes)
        try:
            cluster = bounded(entry.name, config, LaunchBounds.of(entry.directives)).cluster
        except LaunchError as error:
            raise EmulationError(str(error)) from None
        if cluster is not None:
            geometry = replace(geometry, cluster=cluster, has_cluster=True)
        if self.depth >= _DEEPEST:
            raise EmulationError(f"{entry.name} is launched more than {_DEEPEST} kernels deep")
        offsets = self.module.context(entry).parameter_offsets
        size = max((offsets[variable.name] + variable.size for variable in entry.parameters), default=0)
        parameters = np.zeros(size + 64, np.uint8)
        start = -int(parameters.__array_interface__["data"][0]) % 64
        child = Child(entry, geometry, parameters[start : start + max(1, size)])
        address = self.module.memory.add(child.parameters, f"the parameters of {entry.name}")
        self._children[address] = child
        return address

    def launch(self, address: int, stream: int) -> None:
        """Queue the launch of a child kernel, after its parameters have been written at `address`, a result of `make`.

        A launch in the tail stream comes after the launches in all other streams.

        Raises
        ------
        EmulationError
            For an address that `make` did not return, and for too many queued launches.
        """
        child = self._children.get(address)
        if child is None:
            raise EmulationError(f"{address:#x} is not where the parameters of a kernel were to be written")
        (self._last if stream == _TAIL else self._waiting).append(child)
        if len(self._waiting) + len(self._last) > _MOST_PENDING:
            raise EmulationError(
                f"more than {_MOST_PENDING} launches wait for their kernel to end; a device keeps no more"
            )

    def take(self) -> Iterator[Child]:
        """Yield the queued launches in the order in which they run; afterwards free the memory of their parameters."""
        try:
            yield from (*self._waiting, *self._last)
        finally:
            for address in self._children:
                self.module.memory.remove(address)


#: Steps that a group may run while others wait, before it yields.
PATIENCE = 256


class Observer(Protocol):
    """Observer of an interpreter, called before each instruction runs."""

    def instruction(
        self, machine: Scheduler, function: Function, decoded: Decoded, frame: Frame, index: Index, active: Index
    ) -> None:
        """Observe an instruction of `function` that is about to run, for the `active` lanes of `index`, if any."""


@dataclass
class Launch:
    """A launch of a kernel: kernel, grid and block, bytes of parameters, and options."""

    module: Module
    entry: Function
    geometry: Geometry
    parameters: bytes
    output: Callable[[str], None] = print
    observers: tuple[Observer, ...] = ()
    step_budget: int | None = None
    #: Name of the kernel in messages; empty: its name in the PTX.
    name: str = ""
    #: Maps the compiler's file and line to the user's, for messages.
    placed: Callable[[str, int], str] = as_compiled
    #: Name that the compiler has for the kernel's source, and the source itself.
    source: tuple[str, str] = ("", "")
    #: Random order in which lanes run, by a seed; None: lanes that are behind go first.
    schedule: DrawnOrder | None = None
    #: Switches drawn so far.
    switches: int = 0
    #: Parameters that may be pointers, by PTX name: the C++ name of a pointer to const, else empty.
    pointers: Mapping[str, str] = field(default_factory=dict)
    #: Whether asynchronous copies land when they are waited for, not at once.
    late: bool = False
    steps: int = 0
    #: Steps of the interpreter after which `outlast` is called, once.
    patience: float = math.inf
    #: Function that is called then; it may end the launch by an exception.
    outlast: Callable[[], None] = lambda: None
    #: Reason why the launch does not run as machine code.
    why: str = ""
    #: Function that runs the launch.
    runner: Callable[[Launch], None] = lambda launch: run(launch)
    #: Nesting depth: 0 for a launch by the host.
    depth: int = 0
    #: Instruction at which an error ended the launch.
    ended_at: Instruction | None = None

    @cached_property
    def children(self) -> Children:
        """Launches requested by the kernel."""
        return Children(self.module, self.depth)

    @property
    def title(self) -> str:
        """Name of the kernel in messages."""
        return self.name or self.entry.name

    @property
    def memory(self) -> Memory:
        """Memory of the kernel's module."""
        return self.module.memory

    @property
    def shared(self) -> SharedLayout:
        """Layout of shared memory in its blocks."""
        return self.module.shared(self.entry.name)

    @property
    def own_address(self) -> int:
        """Address of the words with which threads synchronise a grid; accesses to them are no races."""
        return self.module.grid_barrier_address

    def run(self) -> None:
        """Run the launch to its end, by its `runner`."""
        self.runner(self)

    def explain(
        self,
        function: Function,
        instruction: Instruction,
        problem: str,
        category: str = "",
        thread: state.Thread | None = None,
        parts: Mapping[str, Any] = MappingProxyType({}),
    ) -> EmulationError:
        """Return the error for a problem at an instruction, with the kernel's lines.

        `kind`, the thread and `parts` are details of the error. Also set `ended_at` to the instruction, as the launch
        ends there.
        """
        self.ended_at = instruction
        source = f", {instruction.source.shown(self.placed)}" if instruction.source else ""
        name = self.title if function.name == self.entry.name else f"{self.title}, in {function.name}"
        error = EmulationError(f"{name}: {instruction} (PTX line {instruction.line}{source}): {problem}")
        file, line = "", 0
        if instruction.source is not None:
            own = instruction.source.own()
            file, _, number = self.placed(own.file, own.line).rpartition(":")
            line = int(number)
        access = Access(_use(instruction) if category == "access" else "", file, line, *(thread or ()))
        error.detailed(**parts).detailed(kind=category, **named(self.title), file=file, line=line, accesses=(access,))
        if instruction.source is not None and (excerpt := self._excerpt(instruction.source.own())):
            error.add_note(excerpt)
        return error

    def _excerpt(self, source: Source) -> str:
        """Return a line of the kernel's source and the lines beside it, numbered; empty without the source."""
        name, text = self.source
        lines = text.splitlines() if source.file == name else linecache.getlines(source.file)
        shift = int(self.placed(source.file, source.line).rpartition(":")[2]) - source.line
        first = max(source.line - 1, 1, 1 - shift)
        shown = list(enumerate(lines[first - 1 : source.line + 1], first))
        return "\n".join(
            f"{'>' if number == source.line else ' '} {number + shift:5} | {line.rstrip()}" for number, line in shown
        )

    def of_child(self, child: Child) -> Launch:
        """Return the launch of a kernel that this kernel launched."""
        parent, parameters = self.title.partition(", launched by ")[0], child.parameters.tobytes()
        name = f"{readable_name(child.entry.name)}, launched by {parent}"
        return replace(
            self, entry=child.entry, geometry=child.geometry, parameters=parameters, name=name, depth=self.depth + 1,
            pointers={},
        )  # fmt: skip


def run(launch: Launch) -> None:
    """Run a launch to its end.

    Raises
    ------
    EmulationError
        For an invalid access, an unknown instruction, a failed assertion, a deadlock, or an exhausted step budget. The
        error names the instruction and its line.
    """
    geometry = launch.geometry
    launch.module.ran[launch.entry.name] = "numpy", launch.why
    at_once = blocks_at_once(launch.module, launch.entry, geometry, launch.title)
    try:
        with np.errstate(all="ignore"):
            for first in range(0, geometry.blocks, at_once):
                Scheduler(launch, range(first, min(geometry.blocks, first + at_once))).run()
    finally:
        launch.module.memory.clear_lanes()
    for child in launch.children.take():
        child_launch = launch.of_child(child)
        run(child_launch)
        launch.steps = child_launch.steps


class Scheduler(Machine):
    """Scheduler of a launch's blocks, which chooses the lanes that run next and runs them."""

    launch: Launch
    module: Module
    steps: int
    late: Late | None
    special: SpecialRegisters

    def __init__(self, launch: Launch, blocks: range) -> None:
        self.launch, self.module = launch, launch.module
        module, geometry, entry = launch.module, launch.geometry, launch.entry
        shared = launch.shared
        shared_bytes = shared.total_bytes(geometry.shared_bytes)
        super().__init__(module.memory, geometry, blocks, shared_bytes, launch.output, launch.placed)
        self.memory.shared_offsets = shared.offsets
        self.steps = launch.steps
        self.late = Late(self.lanes) if launch.late else None
        #: Whether the call depth is unknown to the compiler: a thread then has the device's stack limit.
        self.recurses: bool = module.recurses(entry)
        if self.recurses:
            self.stack_bytes: int = min(
                self.stack_bytes, max(device_limits().stack_bytes, module.context(entry).local_bytes)
            )
        module.grid_barrier[:] = 0
        # Cooperative groups read the grid barrier's address here; 0 means that the grid cannot synchronise.
        high, low = divmod(module.grid_barrier_address if geometry.cooperative else 0, 1 << 32)
        self.special |= {"envreg1": np.uint32(high), "envreg2": np.uint32(low)}
        self.spinning: dict[int, int] = {}
        self.drawn: Drawn | None = (
            None if launch.schedule is None else Drawn(launch.schedule, blocks.start, launch.switches)
        )
        self.frames: dict[tuple[int, int], Frame] = {}
        number = module.symbols.numbers[entry.name]
        frame = self.frame(0, number)
        self.memory.set_parameters(launch.parameters)
        offsets = module.context(entry).parameter_offsets
        for variable in entry.parameters:
            offset = offsets[variable.name]
            frame.parameters[variable.name] = self.memory.parameters[:, offset : offset + variable.size]
        self.place[:] = self.location(0, number, 0)

    # ── functions ──

    def frame(self, depth: int, number: int) -> Frame:
        """Return the frame of a function, by its number, at a call depth: its registers for all lanes."""
        entry = self.frames.get((depth, number))
        if entry is None:
            context = self.module.context(self.module.functions[number])
            register_bytes = (len(self.frames) + 1) * self.lanes * context.lane_bytes
            if depth and register_bytes > MOST_BYTES:
                raise EmulationError(
                    f"stack overflow: {depth} calls deep, the registers of {self.lanes} threads take "
                    f"{register_bytes} bytes, and {MOST_BYTES} are available"
                )
            entry = self.frames[depth, number] = context.make_frame(self.lanes)
            if depth == 0:
                self.reserve_local(None, context.local_bytes)
        return entry

    def call(
        self,
        name: str,
        lanes: np.ndarray,
        arguments: tuple[str, ...],
        results: tuple[str, ...],
        frame: Frame,
        position: tuple[int, int, int],
    ) -> None:
        depth, number, code = position
        function = self.module.program.functions.get(name)
        if function is None or function.is_declaration:
            raise EmulationError(f"a call to {name}, which the module does not define and the emulator does not know")
        if depth >= state.DEEPEST:
            raise EmulationError(f"{name} calls itself more than {state.DEEPEST} deep")
        callee_number = self.module.symbols.numbers[name]
        callee = self.frame(depth + 1, callee_number)
        context = self.module.context(function)
        base = self.local_top[lanes]
        if context.local_align > 8:
            base = self.local_top[lanes] = -(-base // context.local_align) * context.local_align
        callee.local_base[lanes] = base
        self.reserve_local(lanes, context.frame_bytes if self.recurses else context.local_bytes)
        for variable, argument in zip(function.parameters, arguments, strict=True):
            values = frame.bytes_of(argument, variable.size)
            callee.bytes_of(variable.name, variable.size)[lanes] = values[lanes]
        back = self.location(depth, number, code + 1)
        callee.return_to[lanes] = back
        callee.returns[back] = results
        self.set_place(lanes, self.location(depth + 1, callee_number, 0))

    def return_from(self, frame: Frame, index: Index, position: tuple[int, int, int]) -> None:
        depth, number, _ = position
        if depth == 0:
            self.finish(index)
            return
        lanes = np.arange(self.lanes) if index is None else index
        function = self.module.functions[number]
        back = frame.return_to[lanes]
        self.local_top[lanes] = frame.local_base[lanes]
        for location in np.unique(back):
            group = lanes[back == location]
            caller_depth, caller_number, _ = self.where(int(location))
            caller = self.frame(caller_depth, caller_number)
            for variable, target in zip(function.returns, frame.returns[int(location)], strict=True):
                values = frame.bytes_of(variable.name, variable.size)
                caller.bytes_of(target, variable.size)[group] = values[group]
            self.place[group] = location

    def make_child(self, pointer: int, geometry: Geometry) -> int:
        return self.launch.children.make(pointer, geometry)

    def launch_child(self, address: int, stream: int) -> None:
        self.launch.children.launch(address, stream)

    # ── scheduling ──

    def run(self) -> None:
        """Run all lanes to their end."""
        launch, turns_in_a_row = self.launch, 0
        try:
            while True:
                location, index, others_wait = self.choose()
                if location < 0:
                    break
                turns_in_a_row = turns_in_a_row + 1 if others_wait else 0
                self.steps += 1
                self.run_group(location, index)
                if self.steps > launch.patience:
                    launch.patience = math.inf
                    launch.outlast()
                if turns_in_a_row > PATIENCE:
                    turns_in_a_row = 0
                    self.pause(np.arange(self.lanes) if index is None else index)
            if self.late is not None:
                self.late.finish()
        finally:
            self.launch.steps = self.steps
            if self.drawn is not None:
                self.launch.switches = self.drawn.switches

    def choose(self) -> tuple[int, Index, bool]:
        """Return place and lanes of the group to run next, and whether other lanes could run.

        Return place −1 when all lanes are done.
        """
        if self.drawn is not None and (self.status == state.RUNNING).any():
            drawn = self.drawn.choose(self)
            if drawn is not None:
                return drawn
        if not self.status.any() and (lowest := int(self.place.min())) == int(self.place.max()):
            return lowest, None, False
        standing = np.flatnonzero(self.status < state.DONE)
        running = self.status[standing] == state.RUNNING
        yielded = np.count_nonzero(self.status == state.YIELDED)
        if not running.any():
            if not yielded:
                if standing.size:
                    self.deadlock()
                return -1, None, False
            self.status[self.status == state.YIELDED] = state.RUNNING
            return self.choose()
        places = self.place[standing]
        lowest = int(places[running].min())
        chosen = running & (places == lowest)
        group = standing[chosen]
        if group.size == self.lanes:
            return lowest, None, False
        return lowest, group, group.size < np.count_nonzero(running) + yielded

    def after_loop(self, index: Index, location: int) -> None:
        """Make lanes yield that go round a polling loop again, if their number is the same as after the last round.

        They do not yield if they are all lanes. Call this after the loop's back branch: `location` is the branch's
        place, and `index` has the lanes that ran it.
        """
        spinning = np.flatnonzero(self.place < location) if index is None else index[self.place[index] < location]
        # Where all lanes go round together, no others are left to go first.
        if 0 < spinning.size < self.lanes and self.spinning.get(location) == spinning.size:
            self.pause(spinning)
        self.spinning[location] = spinning.size

    def leaders(self, context: Context) -> Container[int]:
        """Return the indices of a function's instructions before which a group stops, so that others may go first.

        With a random order, this is the `Drawn` object, whose ``in`` draws the answer.
        """
        return context.leaders if self.drawn is None else self.drawn

    def run_group(self, location: int, index: Index) -> None:
        """Run the lanes at one place to the next instruction where they may diverge."""
        depth, number, code = self.where(location)
        function = self.module.functions[number]
        decoded, frame = self.module.decoded(function), self.frame(depth, number)
        context = self.module.context(function)
        budget, observers = self.launch.step_budget, self.launch.observers
        leaders = self.leaders(context)
        while True:
            instruction = decoded[code]
            if budget is not None and self.steps > budget:
                problem = f"the budget of {budget} steps is used up; if the kernel is not endless, give more steps"
                raise self.launch.explain(function, instruction.instruction, problem, "steps")
            try:
                active = index
                if instruction.guard is not None:
                    active = instruction.guard(frame, index)
                for observer in observers:
                    observer.instruction(self, function, instruction, frame, index, active)
                if active is not index and active is not None and active.size == 0:
                    code += 1
                    if code in leaders:
                        break
                    continue
                if instruction.control is not None:
                    self.set_place(index, self.location(depth, number, code + 1))
                    stay = instruction.control(self, frame, index, active, (depth, number, code))
                    if code in context.polling:
                        self.after_loop(index, location - self.where(location)[2] + code)
                    if not stay:
                        return
                else:
                    assert instruction.step is not None
                    instruction.step(frame, active, self)
            except (AccessError, EmulationError) as error:
                raise self.explain(function, instruction.instruction, error, active) from None
            except Exception as error:
                problem = f"cannot be executed with these operands ({failure(error)})"
                raise self.launch.explain(function, instruction.instruction, problem) from error
            self.steps += 1
            code += 1
            if code in leaders:
                break
        self.set_place(index, self.location(depth, number, code))

    def deadlock(self) -> None:
        """Raise the error of a deadlock, at the first waiting lane."""
        waiting = np.flatnonzero(self.status != state.DONE)
        barrier, warp = (int((self.status == status).sum()) for status in (state.AT_BARRIER, state.AT_WARP))
        _, number, code = self.where(int(self.place[waiting[0]]))
        function = self.module.functions[number]
        # The place of a waiting lane is behind the instruction at which it waits.
        decoded = self.module.decoded(function)[code - 1]
        problem = deadlocked(barrier, warp, self.name_of(int(waiting[0])))
        thread = self.thread_of(int(waiting[0]))
        raise self.launch.explain(function, decoded.instruction, problem, "deadlock", thread)

    def explain(
        self, function: Function, instruction: Instruction, error: AccessError | EmulationError, active: Index
    ) -> EmulationError:
        """Return the error of the launch for one that an instruction of the `active` lanes raised."""
        lane, category, parts = fault_of(error, active)
        thread = None if lane is None else self.thread_of(lane)
        return self.launch.explain(function, instruction, str(error), category, thread, parts)
