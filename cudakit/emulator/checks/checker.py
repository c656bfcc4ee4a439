"""An observer of machines that finds races, reads of what nobody wrote, and barriers that some threads never reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cudakit.emulator.checks.findings import Finding
from cudakit.emulator.checks.order import Order
from cudakit.emulator.checks.shadow import LANE_BITS, NOBODY, Shadow
from cudakit.emulator.counters.tally import Access, accesses_of
from cudakit.emulator.instructions.access import is_strong, space_of, type_of
from cudakit.emulator.machine.context import DTYPES, Context, Reader
from cudakit.emulator.machine.decode import Decoded
from cudakit.emulator.machine.machine import Launch, Scheduler
from cudakit.emulator.machine.memory import LOCAL_WINDOW, READ, SHARED_WINDOW, WINDOW_BITS, Index, plain
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import AT_BARRIER, AT_WARP, DONE, Frame
from cudakit.emulator.ptx.program import Function, Instruction

_OFFSET = np.uint64((1 << WINDOW_BITS) - 1)
_ACCESSES = frozenset({"ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix"})
#: Bytes of shared memory that the system may keep in every block.
_RESERVED = 1024
#: Bytes of a grain at the most.
_COARSE = 4


@dataclass(slots=True)
class _Plan:
    """What is to be done for an instruction."""

    given: Instruction
    function: Function
    accesses: tuple[Access, ...] = ()
    #: Whether others may meet it without a race, and what it orders.
    strong: bool = False
    releases: bool = False
    #: ``barrier``, ``arrive``, ``meeting``, ``fence``, ``wait`` or ``exit``; empty for an access.
    does: str = ""
    #: Of fences: whether for the whole device. Of barriers: whether for all threads of a block.
    whole: bool = True
    mask: Reader | None = None
    #: What a store stores, where that is one value.
    value: Reader | None = None


class Checker:
    """Checks one launch and what it launches.

    Parameters
    ----------
    found : callable
        Takes what is found, and may raise.
    """

    def __init__(self, found: Callable[[Finding], None]) -> None:
        self._found = found
        self._plans: dict[int, _Plan | None] = {}
        self._held: list[Decoded] = []
        self._machine: Scheduler | None = None
        self._launch: Launch | None = None
        #: Each access of the launch, by its number.
        self._events: list[_Plan] = []
        self._pieces: dict[int, Shadow] = {}
        self._told: set[tuple[str, int, int]] = set()

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
            plan = self._plans[known] = _plan(decoded.instruction, function, machine.module.context(function))
            self._held.append(decoded)
            if plan is None:
                return
        if active is not None and active.size == 0:
            return
        if plan.does:
            self._orders(plan, machine, frame, active)
        elif not self._is_cluster:
            for access in plan.accesses:
                self._access(plan, access, access.address(frame, active, machine), active, frame)

    # ── the launch ──

    def _begin(self, machine: Scheduler) -> None:
        launch = machine.launch
        if launch is not self._launch:
            self._launch, self._base, self._events, self._pieces = launch, 0, [], {}
            self._events.append(_Plan(launch.entry.code[0], launch.entry))
            self._grain, self._unseen = _looked_at(launch.module)
        elif self._machine is not None:
            self._base += self._machine.lanes
        self._machine = machine
        self._is_cluster = machine.memory.cluster > 1
        self._order = Order(machine, self._base)
        #: The system's own shared memory may be put behind the block's later.
        self._row = machine.memory.shared.shape[1] + _RESERVED
        self._shared = Shadow(machine.blocks * self._row, self._grain)
        self._masks = np.zeros(machine.lanes, np.uint32)
        self._local: np.ndarray = np.zeros(machine.memory.local.shape, bool)

    def _orders(self, plan: _Plan, machine: Scheduler, frame: Frame, active: Index) -> None:
        now, order = len(self._events), self._order
        if plan.does == "barrier":
            if plan.whole and machine.alive < machine.lanes:
                self._whole(plan, machine, active)
            order.barrier(active, now)
        elif plan.does == "meeting":
            if plan.mask is not None and (active is not None or machine.alive < machine.lanes):
                masks = np.asarray(plan.mask(frame, active, machine))
                self._masks[slice(None) if active is None else active] = masks
                if machine.alive < machine.lanes:
                    self._masked(plan, machine, masks, active)
            order.meeting(active, now)
        elif plan.does == "wait":
            order.barrier(active, now)
        elif plan.does == "fence":
            order.fence(active, now, plan.whole)
        elif plan.function.is_entry:
            self._exits(machine, active)
            order.gone(active, now)

    # ── barriers ──

    def _whole(self, plan: _Plan, machine: Scheduler, active: Index) -> None:
        lanes = np.arange(machine.lanes) if active is None else active
        gone = machine.status == DONE
        short = np.zeros(machine.blocks, bool)
        short[machine.block_of[lanes]] = True
        absent = np.flatnonzero(gone & short[machine.block_of])
        if absent.size:
            self._never_reached(plan, machine, int(absent[0]))

    def _exits(self, machine: Scheduler, active: Index) -> None:
        """Others may wait for lanes that exit: at a barrier of their whole block, or for those that a mask names."""
        if active is None:
            return
        meeting = np.flatnonzero(machine.status == AT_WARP)
        if meeting.size:
            named = self._masks[meeting] & self._bits(machine, active)[machine.warp_of[meeting]]
            for at in np.flatnonzero(named)[:1].tolist():
                lane = int(meeting[at])
                plan = self._came_to(machine, int(machine.place[lane]))
                if plan is not None and plan.mask is not None:
                    self._names_absent(plan, machine, lane, int(named[at]).bit_length() - 1)
        waiting = np.flatnonzero(machine.status == AT_BARRIER)
        if not waiting.size:
            return
        first = np.full(machine.blocks, -1)
        first[machine.block_of[active[::-1]]] = active[::-1]
        waiting = waiting[first[machine.block_of[waiting]] >= 0]
        for location in np.unique(machine.place[waiting]).tolist():
            plan = self._came_to(machine, location)
            if plan is not None and plan.does == "barrier" and plan.whole:
                lane = int(first[machine.block_of[waiting[machine.place[waiting] == location][0]]])
                self._never_reached(plan, machine, lane)

    @staticmethod
    def _bits(machine: Scheduler, lanes: np.ndarray) -> np.ndarray:
        """A mask of those lanes for each warp."""
        bits = np.zeros(int(machine.warp_of[-1]) + 1, np.uint32)
        np.bitwise_or.at(bits, machine.warp_of[lanes], np.uint32(1) << machine.lane_id[lanes])
        return bits

    def _came_to(self, machine: Scheduler, location: int) -> _Plan | None:
        """What lanes do that wait, and so stand behind it."""
        _, number, code = machine.where(location)
        return self._plans.get(id(machine.module.decoded(machine.module.functions[number])[code - 1]))

    def _names_absent(self, plan: _Plan, machine: Scheduler, lane: int, absent: int) -> None:
        text = f"{machine.name_of(lane)}: its mask names lane {absent} of its warp, which exits before"
        self._tell("mask", plan, text)

    def _never_reached(self, plan: _Plan, machine: Scheduler, lane: int) -> None:
        what = f"a barrier of the whole block, which {machine.name_of(lane)} exits without reaching"
        self._tell("barrier", plan, what)

    def _masked(self, plan: _Plan, machine: Scheduler, masks: np.ndarray, active: Index) -> None:
        lanes = np.arange(machine.lanes) if active is None else active
        gone = self._bits(machine, np.flatnonzero(machine.status == DONE))
        named = np.broadcast_to(masks, lanes.shape) & gone[machine.warp_of[lanes]]
        if named.any():
            at = int(np.flatnonzero(named)[0])
            absent = int(named[at]).bit_length() - 1
            self._names_absent(plan, machine, int(lanes[at]), absent)

    # ── accesses ──

    def _access(self, plan: _Plan, access: Access, addresses: np.ndarray, active: Index, frame: Frame) -> None:
        machine = self._machine
        assert machine is not None
        space = access.space
        if plan.given.opcode in ("ldmatrix", "stmatrix"):
            count = next((int(m[1:]) for m in plan.given.modifiers if m in ("x1", "x2", "x4")), 1)
            lanes = np.arange(machine.lanes) if active is None else active
            naming = machine.lane_id[lanes] < 8 * count
            addresses, active = addresses[naming], lanes[naming]
            space = "shared" if space == "generic" else space
            addresses = addresses & _OFFSET
        if space == "generic" and int(addresses.max()) >= SHARED_WINDOW:
            lanes = np.arange(machine.lanes) if active is None else active
            window = addresses >> np.uint64(WINDOW_BITS)
            for name, base in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW)):
                inside = window == base >> WINDOW_BITS
                if inside.any():
                    self._in(name, plan, access, addresses[inside] & _OFFSET, lanes[inside], frame)
            inside = addresses < SHARED_WINDOW
            if inside.any():
                self._in("global", plan, access, addresses[inside], lanes[inside], frame)
            return
        self._in("global" if space == "generic" else space, plan, access, addresses, active, frame)

    def _in(self, space: str, plan: _Plan, access: Access, addresses: np.ndarray, active: Index, frame: Frame) -> None:
        machine = self._machine
        assert machine is not None
        if space == "local":
            self._in_local(plan, access, addresses, active)
        elif space == "shared":
            if int(addresses.max()) + access.size > machine.memory.shared_bytes:
                return  # the machine says so
            lanes = np.arange(machine.lanes) if active is None else active
            starts = (machine.block_of[lanes] * self._row).astype(np.uint64)
            held = machine.memory.shared
            self._at(self._shared, held, plan, access, addresses + starts, lanes, frame, "", addresses)
        elif space == "global":
            lanes = np.arange(machine.lanes) if active is None else active
            rest, where = addresses, lanes
            while rest.size:
                piece = machine.memory.piece(int(rest[0]), access.size, READ)
                if piece is None:
                    return
                name = piece.name
                inside = (rest >= np.uint64(piece.address)) & (rest <= np.uint64(piece.end - access.size))
                shadow = self._pieces.get(piece.address)
                if shadow is None or shadow.size < piece.data.size:
                    shadow = self._pieces[piece.address] = Shadow(piece.data.size, self._grain)
                everyone = inside.all()
                some = rest if everyone else rest[inside]
                offsets = some - np.uint64(piece.address)
                name = f"{name}[{{}}], which has {piece.data.size // piece.itemsize} elements"
                each = where if everyone else where[inside]
                shown = offsets // np.uint64(piece.itemsize)
                self._at(shadow, piece.data, plan, access, offsets, each, frame, name, shown)
                if everyone:
                    return
                rest, where = rest[~inside], where[~inside]

    def _in_local(self, plan: _Plan, access: Access, offsets: np.ndarray, active: Index) -> None:
        machine = self._machine
        assert machine is not None
        held = machine.memory.local
        if self._local.shape != held.shape:
            grown = np.zeros(held.shape, bool)
            grown[:, : self._local.shape[1]] = self._local
            self._local = grown
        if int(offsets.max()) + access.size > held.shape[1]:
            return
        lanes = np.arange(machine.lanes) if active is None else active
        places = offsets.astype(np.int64)[:, None] + np.arange(access.size)
        if access.use != "loads":
            self._local[lanes[:, None], places] = True
            return
        unset = ~self._local[lanes[:, None], places].any(axis=1)
        if unset.any():
            lane = machine.name_of(int(lanes[np.flatnonzero(unset)[0]]))
            self._tell("uninitialised", plan, f"{lane} reads {access.size} bytes of local memory that it never wrote")

    def _at(
        self, shadow: Shadow, held: np.ndarray, plan: _Plan, access: Access, offsets: np.ndarray, lanes: np.ndarray,
        frame: Frame, name: str, shown: np.ndarray,
    ) -> None:  # fmt: skip
        """Compare accesses with those before, and note them; without a name they are shared memory's."""
        machine, order, now = self._machine, self._order, len(self._events)
        assert machine is not None
        self._events.append(plan)
        places = shadow.places(offsets, access.size)
        each = lanes if places.ndim == 1 else lanes[:, None]
        # Only shared memory is one block's alone.
        floor = 0 if name else order.floor
        is_copy = access.use == "copies"
        if is_copy and not name:
            shadow.write(places, np.broadcast_to(np.int64(now << LANE_BITS | NOBODY), places.shape))
            return
        stamps = (now << LANE_BITS) | (each + self._base)
        written = shadow.written[places]
        if access.use == "loads" and plan.strong:
            self._acquire(shadow, places, lanes)
        if access.use in ("loads", "copies"):
            if not name and not self._unseen and not _is_of_a_library(plan.given):
                unset = written == 0 if written.ndim == 1 else (written == 0).all(axis=1)
                if unset.any():
                    at = int(np.flatnonzero(unset)[0])
                    text = f"{machine.name_of(int(lanes[at]))} reads {self._what(plan, name, shown, at)}"
                    self._tell("uninitialised", plan, f"{text}, which nobody wrote")
            self._compare(plan, written, each, lanes, floor, name, shown, False)
            shadow.read(places, stamps, floor)
            return
        self._compare(plan, written, each, lanes, floor, name, shown, True, (held, offsets, frame))
        for stamps_of in shadow.readers(places):
            self._compare(plan, stamps_of, each, lanes, floor, name, shown, True)
        shadow.write(places, stamps)
        if not plan.strong and places.ndim == 1 and lanes.size > 1:
            lost = shadow.written[places] != stamps
            if lost.any():
                self._at_once(plan, lost, shadow.written[places], lanes, frame, name, shown)
        if plan.strong:
            block = machine.block_of[lanes]
            upto = np.full(lanes.shape, now) if plan.releases else order.fenced[1 if name else 0, block]
            if upto.any():
                shadow.release(places if places.ndim == 1 else places[:, 0], upto)
            if access.use == "atomics":
                # After all of them have released: lanes of several blocks may come with one instruction.
                self._acquire(shadow, places, lanes)

    def _acquire(self, shadow: Shadow, places: np.ndarray, lanes: np.ndarray) -> None:
        if shadow.released is not None:
            upto = shadow.released[places]
            self._order.acquire(lanes, upto if upto.ndim == 1 else upto.max(axis=1))

    def _compare(
        self, plan: _Plan, stamps: np.ndarray, each: np.ndarray, lanes: np.ndarray, floor: int, name: str,
        shown: np.ndarray, writes: bool, over: tuple[np.ndarray, np.ndarray, Frame] | None = None,
    ) -> None:  # fmt: skip
        """Tell a race with those accesses that the stamps stand for, if it is one."""
        late = stamps >= max(1, floor) << LANE_BITS
        if not late.any():
            return
        late &= (stamps & np.int64(NOBODY)) != each + self._base
        if not late.any():
            return
        late &= (stamps & np.int64(NOBODY)) != NOBODY
        chosen = np.nonzero(late)
        rows: np.ndarray = chosen[0]
        others = stamps[chosen]
        bad = self._order.unordered(others, lanes[rows])
        if not bad.any():
            return
        events = others >> LANE_BITS
        if plan.strong:
            weak = {event: not self._events[event].strong for event in np.unique(events[bad]).tolist()}
            bad &= np.array([weak.get(event, False) for event in events.tolist()], bool)
            if not bad.any():
                return
        if over is not None and plan.value is not None:
            # Who stores what is there already changes nothing, whoever comes first.
            held, offsets, frame = over
            assert self._machine is not None
            values = np.broadcast_to(np.asarray(plan.value(frame, lanes, self._machine)), lanes.shape)
            stored = np.ascontiguousarray(values).view(np.uint8).reshape(lanes.size, -1)
            bytes_at = (offsets if name else shown).astype(np.int64)[:, None] + np.arange(stored.shape[1])
            there = held[bytes_at] if name else held[self._machine.block_of[lanes][:, None], bytes_at]
            bad &= (stored != there).any(axis=1)[rows]
            if not bad.any():
                return
        at = int(np.flatnonzero(bad)[0])
        self._race(plan, int(rows[at]), int(others[at]), lanes, name, shown, writes)

    def _at_once(
        self, plan: _Plan, lost: np.ndarray, won: np.ndarray, lanes: np.ndarray, frame: Frame, name: str,
        shown: np.ndarray,
    ) -> None:  # fmt: skip
        """Several lanes store to one place with one instruction: a race where they store different values."""
        machine = self._machine
        assert machine is not None
        if plan.value is None:
            return
        values = np.broadcast_to(np.asarray(plan.value(frame, lanes, machine)), lanes.shape)
        winner = np.searchsorted(lanes, (won & np.int64(NOBODY)) - self._base)
        differ = np.flatnonzero(lost & (values != values[np.minimum(winner, lanes.size - 1)]))
        if differ.size:
            self._race(plan, int(differ[0]), int(won[differ[0]]), lanes, name, shown, True)

    def _race(
        self, plan: _Plan, at: int, stamp: int, lanes: np.ndarray, name: str, shown: np.ndarray, writes: bool
    ) -> None:
        machine = self._machine
        assert machine is not None
        other = self._events[stamp >> LANE_BITS]
        lane = (stamp & NOBODY) - self._base
        who = machine.name_of(lane) if 0 <= lane < machine.lanes else "a thread of an earlier block"
        file, line = self._place(other)
        did = "writes" if any(each.use != "loads" for each in other.accesses) else "reads"
        text = (
            f"race: {machine.name_of(int(lanes[at]))} {'writes' if writes else 'reads'} "
            f"{self._what(plan, name, shown, at)}, which {who} {did} at {file}:{line}, and nothing orders the two"
        )
        self._tell("race", plan, text, other)

    def _what(self, plan: _Plan, name: str, shown: np.ndarray, at: int) -> str:
        if name:
            return name.format(int(shown[at]))
        machine = self._machine
        assert machine is not None
        offset = int(shown[at])
        before = [(start, each) for each, start in machine.memory.shared_offsets.items() if start <= offset]
        if not before:
            return f"byte {offset} of shared memory"
        start, variable = max(before)
        return f"byte {offset - start} of {plain(variable)} in shared memory"

    # ── telling ──

    def _place(self, plan: _Plan) -> tuple[str, int]:
        """The user's own line of an instruction."""
        assert self._launch is not None
        found = plan.given.source
        if found is None:
            return f"PTX of {self._launch.title}", plan.given.line
        chain = [found]
        while (caller := chain[-1].caller) is not None:
            chain.append(caller)
        own = next(source for source in chain if source.file == chain[-1].file)
        file, _, line = self._launch.placed(own.file, own.line).rpartition(":")
        return file, int(line)

    def _tell(self, kind: str, plan: _Plan, text: str, other: _Plan | None = None) -> None:
        key = kind, id(plan.given), id(other.given) if other else 0
        if key in self._told:
            return
        self._told.add(key)
        assert self._launch is not None
        file, line = self._place(plan)
        place = "{}:{}".format(*self._place(other)) if other else ""
        self._found(Finding(kind, self._launch.title, file, line, place, text))


def _is_of_a_library(given: Instruction) -> bool:
    """Whether a line of a header is at work, which may read more than it uses, as CUB does."""
    innermost = own = given.source
    while own is not None and own.caller is not None:
        own = own.caller
    return innermost is not None and own is not None and innermost.file != own.file


def _looked_at(module: Module) -> tuple[int, bool]:
    """Bytes of the narrowest access of a module, and whether it writes shared memory in ways that are not seen."""
    grain, unseen = _COARSE, False
    for function in module.program.functions.values():
        for given in function.code:
            if given.opcode in ("ld", "st", "atom", "red") and space_of(given) not in ("param", "const", "local"):
                grain = min(grain, DTYPES[type_of(given)].itemsize)
            by_copy = given.opcode in ("cp", "red") and "bulk" in given.modifiers
            by_copy |= given.opcode in ("st", "red") and "async" in given.modifiers
            unseen = unseen or by_copy or (given.opcode == "wmma" and given.modifiers[0] == "store")
    return grain, unseen


def _plan(given: Instruction, function: Function, context: Context) -> _Plan | None:
    """What is to be done for an instruction; None where nothing is."""
    modifiers = given.modifiers
    match given.opcode:
        case "bar" | "barrier" if "warp" in modifiers:
            return _Plan(given, function, does="meeting", mask=context.read(given.operands[0], "u32"))
        case "bar" | "barrier" if "cluster" not in modifiers:
            counted = len(given.operands) - (2 if "red" in modifiers else 0) > 1
            return _Plan(given, function, does="barrier", whole=not counted and "arrive" not in modifiers)
        case "membar" | "fence":
            return _Plan(given, function, does="fence", whole="cta" not in modifiers)
        case "mbarrier":
            return _Plan(given, function, does="wait" if {"test_wait", "try_wait"} & set(modifiers) else "fence")
        case "exit" | "ret":
            return _Plan(given, function, does="exit")
        case "mma" | "wmma" | "movmatrix" | "elect":
            return _Plan(given, function, does="meeting")
        case "shfl" | "vote" | "match" | "redux":
            masked = "sync" in modifiers
            return _Plan(
                given, function, does="meeting", mask=context.read(given.operands[-1], "u32") if masked else None
            )
        case opcode if opcode in _ACCESSES:
            accesses = accesses_of(given, context)
            if not accesses:
                return None
            strong = opcode in ("atom", "red") or is_strong(given)
            releases = not {"release", "acq_rel", "acquire"}.isdisjoint(modifiers) and opcode != "ld"
            value = None
            if opcode == "st" and not {"v2", "v4", "v8"} & set(modifiers):
                value = context.read(given.operands[1], type_of(given))
            return _Plan(given, function, accesses, strong, releases, value=value)
    return None
