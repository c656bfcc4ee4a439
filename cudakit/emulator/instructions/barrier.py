"""Barriers of a block, of a cluster and in shared memory, and fences: PTX ISA 9.7.13.

A barrier completes when its expected threads have arrived: the instruction's count, else all threads of the block.
Exited threads count as arrived. For a barrier without a count, each exited thread counts for itself. For a barrier with
a count, an exited thread counts once all remaining threads of its warp have arrived.

The 64-bit word of an mbarrier in shared memory has these fields. An arrival's token is the word before the arrival.

- bits 0 – 19: expected arrivals
- bits 20 – 39: pending arrivals
- bits 40 – 61: bytes that copies still owe, signed
- bit 62: valid mark
- bit 63: phase
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from cudakit.emulator.instructions.access import space_of, type_of
from cudakit.emulator.instructions.atomic import apply_in_order
from cudakit.emulator.instructions.warp import warp_barrier, warp_bits
from cudakit.emulator.machine.decode import Context, Control, Reader, Step, Writer, control, instruction
from cudakit.emulator.machine.memory import RANK_SHIFT, SHARED_WINDOW, STRONG_WRITE, WINDOW_BITS, Index
from cudakit.emulator.machine.state import AT_BARRIER, DONE, RUNNING, Frame, Machine
from cudakit.emulator.ptx.program import Address, Instruction
from cudakit.errors import EmulationError

_BARRIERS = 16


_REDUCE: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "popc": lambda true_count, waiting_count: true_count.astype(np.uint32),
    "and": lambda true_count, waiting_count: true_count == waiting_count,
    "or": lambda true_count, waiting_count: true_count > 0,
}


@dataclass(slots=True)
class _Barrier:
    """A barrier of each block: lanes that have arrived, lanes that wait, expected counts, and predicates."""

    arrived: np.ndarray
    waits: np.ndarray
    expected: np.ndarray
    predicates: np.ndarray
    #: Frame, writer and reduction of each place where lanes wait for a result.
    places: dict[int, tuple[Frame, Writer, str]] = field(default_factory=dict)

    def release(self, machine: Machine) -> None:
        """Let waiting lanes go on if all expected lanes of their block have arrived."""
        arrived = np.flatnonzero(self.arrived)
        if arrived.size == 0:
            return
        alive = np.bincount(machine.block_of[machine.status != DONE], minlength=machine.blocks)
        block, expected = machine.block_of[arrived], self.expected[arrived]
        needed = np.where(expected > 0, expected, alive[block])
        # Lanes that went on behind a bar.arrive may have exited since; they still count as arrived.
        exited = np.bincount(block, (machine.status[arrived] == DONE) & (expected == 0), machine.blocks)[block]
        counted = np.bincount(block, minlength=machine.blocks)[block] - exited
        if expected.any():
            counted = np.where(expected > 0, _with_exited(machine, arrived)[block], counted)
        met = counted >= needed
        ready = arrived[met]
        if ready.size == 0:
            return
        waiting = met & self.waits[arrived]
        true = np.bincount(block[waiting], self.predicates[arrived[waiting]], machine.blocks)
        waiting_count = np.bincount(block[waiting], minlength=machine.blocks)
        places = machine.place[arrived]
        for place in np.unique(places[waiting]) if self.places else ():
            if int(place) in self.places:
                frame, write, reduction = self.places[int(place)]
                at_place = waiting & (places == place)
                write(frame, arrived[at_place], _REDUCE[reduction](true, waiting_count)[block[at_place]])
        self.arrived[ready] = False
        machine.status[arrived[waiting]] = RUNNING


def _barrier(machine: Machine, number: int) -> _Barrier:
    """Return the barriers of all running blocks with a number, as one object, made at the first use."""
    barrier = machine.waiters.get(f"barrier {number}")
    if barrier is None:
        count = machine.lanes
        barrier = _Barrier(
            np.zeros(count, bool), np.zeros(count, bool), np.zeros(count, np.int64), np.zeros(count, bool)
        )
        machine.waiters[f"barrier {number}"] = barrier
    assert isinstance(barrier, _Barrier)
    return barrier


def _is_untouched(machine: Machine) -> bool:
    """Return whether no lane has arrived at a barrier that is still incomplete."""
    return not any(isinstance(waiter, _Barrier) and waiter.arrived.any() for waiter in machine.waiters.values())


def _with_exited(machine: Machine, arrived: np.ndarray) -> np.ndarray:
    """Return how many threads of each block count as arrived; `arrived` selects the lanes that have arrived.

    A warp counts as 32 once all its lanes that have not exited have arrived.
    """
    alive, bits = warp_bits(machine, None, machine.status != DONE), warp_bits(machine, arrived)
    whole = (bits != 0) & ((alive & ~bits) == 0)
    counted: np.ndarray = np.where(whole, 32, np.bitwise_count(bits)).reshape(machine.blocks, -1).sum(1)
    return counted


@control("bar", "barrier")
def bar(instr: Instruction, context: Context) -> Control:
    if "cluster" in instr.modifiers:
        return cluster_barrier(instr, context)
    if "warp" in instr.modifiers:
        return warp_barrier(instr, context)
    operands = list(instr.operands)
    arrives, reduction = "arrive" in instr.modifiers, ""
    write: Writer | None = None
    predicate = None
    if "red" in instr.modifiers:
        reduction = next(m for m in instr.modifiers if m in _REDUCE)
        write = context.write(operands.pop(0), "u32" if reduction == "popc" else "pred")
        predicate = context.read(operands.pop(), "pred")
    number = context.read(operands[0], "u32") if operands else None
    count = context.read(operands[1], "u32") if len(operands) > 1 else None

    def wait(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> bool:
        numbers = np.asarray(number(frame, active, machine) if number else 0).astype(np.int64)
        if (numbers >= _BARRIERS).any():
            raise EmulationError(f"barrier {int(numbers.max())} of {_BARRIERS}")
        predicates = predicate(frame, active, machine) if predicate else False
        together = active is None or active.size == np.count_nonzero(machine.status != DONE)
        plain = count is None and write is None and together
        if plain and (numbers == numbers.flat[0]).all() and _is_untouched(machine):
            return True
        lanes = np.arange(machine.lanes) if active is None else active
        expected = np.asarray(count(frame, active, machine) if count else 0).astype(np.int64)
        if (expected % 32).any():
            raise EmulationError(f"a barrier for {int(expected.max())} threads: the number must be a multiple of 32")
        if not arrives:
            machine.status[lanes] = AT_BARRIER
        numbers, expected, predicates = (
            np.broadcast_to(number_here, lanes.shape) for number_here in (numbers, expected, predicates)
        )
        for number_here in np.unique(numbers):
            position = numbers == number_here
            own, barrier = lanes[position], _barrier(machine, int(number_here))
            if barrier.arrived[own].any():
                raise EmulationError("a thread reaches a barrier a second time before the other threads reach it once")
            barrier.arrived[own], barrier.waits[own] = True, not arrives
            barrier.expected[own], barrier.predicates[own] = expected[position], predicates[position]
            if write is not None:
                barrier.places[int(machine.place[lanes[0]])] = (frame, write, reduction)
            barrier.release(machine)
        return arrives

    return wait


@control("nanosleep")
def nanosleep(instr: Instruction, context: Context) -> Control:
    """Make a control that lets the other lanes go first; time is steps here."""

    def sleep(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> bool:
        if active is None:
            return True
        machine.pause(active)
        return False

    return sleep


# ── mbarrier ──

_WORD = np.dtype("u8")
#: A lane's change: arrivals at the phase, bytes that copies owe, arrivals dropped for good.
_CHANGE = np.dtype([("arrivals", "i8"), ("owed", "i8"), ("dropped", "i8")])
_COUNT = (1 << 20) - 1
_BYTES = 1 << 22
_VALID = 1 << 62
_PHASE = 1 << 63


def make_word(count: Any) -> np.ndarray:
    """Return the word of a new mbarrier for `count` arrivals."""
    many = np.asarray(count).astype(np.uint64)
    if ((many < 1) | (many > _COUNT)).any():
        raise EmulationError(f"an mbarrier for {int(many.max())} arrivals; 1 … {_COUNT} are possible")
    return many | many << np.uint64(20) | np.uint64(_VALID)


def _pending(word: np.ndarray) -> np.ndarray:
    """Return the pending arrivals in an mbarrier's word."""
    return np.asarray(word.view(np.int64) >> 20 & _COUNT)


def _transfer(word: np.ndarray) -> np.ndarray:
    """Return the bytes that copies still owe in an mbarrier's word.

    The number is negative if bytes landed before they were expected.
    """
    field = word.view(np.int64) >> 40 & _BYTES - 1
    return np.asarray(field - (field >= _BYTES // 2) * _BYTES)


def update(word: np.ndarray, arrivals: Any = 0, owed: Any = 0, dropped: Any = 0) -> np.ndarray:
    """Return an mbarrier's `word` after arrivals and after copies owe `owed` more bytes.

    `arrivals` threads have arrived, `dropped` of them for good.
    """
    if not (word & np.uint64(_VALID)).all():
        raise EmulationError("an mbarrier that mbarrier.init has not made, or that has been made invalid")
    expected = (word.view(np.int64) & _COUNT) - dropped
    pending, transfer = _pending(word) - arrivals, _transfer(word) + owed
    if (pending < 0).any():
        raise EmulationError("more arrivals at an mbarrier than its phase expects")
    if (np.abs(transfer) > _COUNT).any():
        raise EmulationError(f"copies of {int(np.abs(transfer).max())} bytes at an mbarrier, which counts to {_COUNT}")
    complete = (pending == 0) & (transfer == 0)
    pending = np.where(complete, expected, pending)
    fields = (expected | pending << 20 | (transfer & _BYTES - 1) << 40 | _VALID).view(np.uint64)
    phase = (word & np.uint64(_PHASE)) ^ np.where(complete, np.uint64(_PHASE), np.uint64(0))
    return np.asarray(fields | phase)


def apply(
    machine: Machine, space: str, addresses: np.ndarray, lanes: Index, arrivals: Any, owed: Any, dropped: Any
) -> np.ndarray:
    """Apply each lane's arrivals and owed bytes to the mbarrier at its address, in order; return the words before."""
    changes = np.empty(addresses.shape, _CHANGE)
    changes["arrivals"], changes["owed"], changes["dropped"] = arrivals, owed, dropped
    tokens = np.zeros(addresses.shape, np.uint64)

    def changed(word: np.ndarray, by: np.ndarray) -> np.ndarray:
        return update(word, by["arrivals"], by["owed"], by["dropped"])

    for view, elements, positions in machine.memory.views(space, addresses, _WORD, lanes, STRONG_WRITE):
        tokens[positions] = apply_in_order(changed, view, elements, changes[positions])
    return tokens


def numbers_of(machine: Machine, space: str, addresses: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Return a number for each mbarrier, unique among all running blocks, for addresses in any space."""
    offset = np.uint64((1 << RANK_SHIFT) - 1)
    if space == "shared":
        block = machine.block_of[lanes]
    else:
        inside = np.uint64((1 << WINDOW_BITS) - 1)
        block = machine.memory.blocks_at(addresses & inside, lanes)
    return np.asarray(block << RANK_SHIFT | (addresses & offset).view(np.int64))


@control("mbarrier")
def mbarrier(instr: Instruction, context: Context) -> Control:
    """Make the control of an mbarrier instruction, by its first modifier."""
    action = instr.modifiers[0]
    space = space_of(instr)
    operands = list(instr.operands)
    if action in ("init", "inval"):
        return _initialise(context, operands, space, action == "init")
    if action == "pending_count":
        return _pending_count(context, operands)
    if action in ("test_wait", "try_wait"):
        return _wait(context, operands, space, "parity" in instr.modifiers, action == "try_wait")
    write = None
    if not isinstance(operands[0], Address):
        write = context.write(operands.pop(0), "b64")
    address = context.address(operands[0], space)
    amount: Reader | None = context.read(operands[1], "u32") if len(operands) > 1 else None
    arrives = action in ("arrive", "arrive_drop")
    sign = {"expect_tx": 1, "complete_tx": -1}.get(action, 1 if "expect_tx" in instr.modifiers else 0)
    if not arrives and not sign:
        raise EmulationError(f"mbarrier.{action}")
    drops = action == "arrive_drop"

    def change(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> bool:
        number = np.asarray(amount(frame, active, machine) if amount else 1).astype(np.int64)
        count = (number if not sign else np.int64(1)) if arrives else np.int64(0)
        addresses = address(frame, active, machine)
        token = apply(machine, space, addresses, active, count, sign * number, count if drops else 0)
        if write is not None:
            write(frame, active, token)
        return True

    return change


def _initialise(context: Context, operands: list[Any], space: str, valid: bool) -> Control:
    """Make the control of ``mbarrier.init`` or ``mbarrier.inval``."""
    address = context.address(operands[0], space)
    count = context.read(operands[1], "u32") if valid else None

    def make(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> bool:
        words = make_word(count(frame, active, machine)) if count else np.zeros(1, _WORD)
        machine.memory.store(space, address(frame, active, machine), np.atleast_1d(words), active)
        return True

    return make


def _pending_count(context: Context, operands: list[Any]) -> Control:
    """Make the control of ``mbarrier.pending_count``."""
    write, read = context.write(operands[0], "b32"), context.read(operands[1], "b64")

    def count(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> bool:
        write(frame, active, np.asarray(read(frame, active, machine)) >> np.uint64(20) & np.uint64(_COUNT))
        return True

    return count


def _wait(context: Context, operands: list[Any], space: str, parity: bool, patient: bool) -> Control:
    """Make the control of ``mbarrier.test_wait``, or with `patient` of ``mbarrier.try_wait``.

    It writes whether the awaited phase is complete. With `parity` the phase is given by its parity, else by a token.
    With `patient`, lanes whose phase is not complete first let other lanes run.
    """
    write, address = context.write(operands[0], "pred"), context.address(operands[1], space)
    state = context.read(operands[2], "b32" if parity else "b64")

    def test(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> bool:
        where = address(frame, active, machine)
        if machine.late is not None:
            lanes = np.arange(machine.lanes) if active is None else active
            machine.late.reached(numbers_of(machine, space, where, lanes))
        words = machine.memory.load(space, where, _WORD, active)
        if not (words & np.uint64(_VALID)).all():
            raise EmulationError("an mbarrier that mbarrier.init has not made, or that has been made invalid")
        token = np.asarray(state(frame, active, machine))
        before = (token & token.dtype.type(1)) if parity else token >> np.uint64(63)
        is_complete = (words >> np.uint64(63)) != before
        write(frame, active, is_complete)
        if not patient or is_complete.all() or active is None:
            return True
        # try_wait may suspend the thread: the threads that it waits for go first.
        machine.pause(active[~is_complete])
        return False

    return test


# ── thread block clusters ──


@dataclass(slots=True)
class _Barriers:
    """Cluster barriers: cluster of each lane, completed phases, and the phase at which each lane arrived."""

    cluster_of: np.ndarray
    phase: np.ndarray
    arrived_in: np.ndarray
    arrived: np.ndarray
    waiting: np.ndarray

    def release(self, machine: Machine) -> None:
        """Complete the phases at which every lane of a cluster has arrived or exited, and let waiting lanes go on."""
        if not self.arrived.any():
            return
        missing = np.bincount(self.cluster_of, ~(self.arrived | (machine.status == DONE)), self.phase.size)
        some = np.bincount(self.cluster_of, self.arrived, self.phase.size)
        complete = (missing == 0) & (some > 0)
        if complete.any():
            self.phase[complete] += 1
            inside = complete[self.cluster_of]
            self.arrived[inside] = False
            ready = np.flatnonzero(self.waiting & inside)
            self.waiting[ready] = False
            machine.status[ready] = RUNNING


def _barriers(machine: Machine) -> _Barriers:
    """Return the cluster barriers, made at the first use."""
    barriers = machine.waiters.get("cluster")
    if barriers is None:
        cluster_of = machine.block_of // prod(machine.geometry.cluster)
        none = np.zeros(machine.lanes, bool)
        phases = np.zeros(int(cluster_of[-1]) + 1, np.int64)
        barriers = machine.waiters["cluster"] = _Barriers(
            cluster_of, phases, np.full(machine.lanes, -1), none, none.copy()
        )
    assert isinstance(barriers, _Barriers)
    return barriers


def cluster_barrier(instr: Instruction, context: Context) -> Control:
    """Make the control of ``barrier.cluster.arrive`` or ``.wait``; exited lanes count as arrived."""
    arrives = "arrive" in instr.modifiers

    def control(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> bool:
        state = _barriers(machine)
        lanes = np.arange(machine.lanes) if active is None else active
        if arrives:
            if state.arrived[lanes].any():
                raise EmulationError("a thread arrives twice at one phase of the cluster's barrier")
            state.arrived[lanes] = True
            state.arrived_in[lanes] = state.phase[state.cluster_of[lanes]]
            state.release(machine)
            return True
        if (state.arrived_in[lanes] < 0).any():
            raise EmulationError("a thread waits at the cluster's barrier where it has not arrived")
        blocked = lanes[state.phase[state.cluster_of[lanes]] <= state.arrived_in[lanes]]
        machine.status[blocked] = AT_BARRIER
        state.waiting[blocked] = True
        return not blocked.size

    return control


#: Largest rank in a 32-bit address; no cluster is as large.
_MOST_RANK = 254
_RANKS = np.uint64((1 << WINDOW_BITS) - (1 << RANK_SHIFT))


@instruction("mapa")
def mapa(instr: Instruction, context: Context) -> Step:
    """Make a step that maps an address in shared memory to the same offset in the block of a given rank in the cluster.

    `Memory` checks the address at the access.
    """
    type_name, target = type_of(instr), instr.operands[0]
    write, read, rank_of = context.write(target, type_name), *map(context.read, instr.operands[1:], (type_name, "u32"))

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = np.asarray(read(frame, index, machine)).astype(np.uint64)
        rank = np.minimum(rank_of(frame, index, machine), np.uint32(_MOST_RANK)).astype(np.uint64) + np.uint64(1)
        write(frame, index, addresses & ~_RANKS | rank << np.uint64(RANK_SHIFT))

    return step


@instruction("getctarank")
def getctarank(instr: Instruction, context: Context) -> Step:
    """Make a step that writes the rank of the block to which an address in shared memory belongs."""
    target, source = instr.operands
    write, read = context.write(target, "u32"), context.read(source, type_of(instr))
    is_generic = space_of(instr) == "generic"

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = np.asarray(read(frame, index, machine)).astype(np.uint64)
        if is_generic and (addresses >> np.uint64(WINDOW_BITS) != SHARED_WINDOW >> WINDOW_BITS).any():
            raise EmulationError("getctarank of a generic address that is not in shared memory")
        rank = (addresses & _RANKS) >> np.uint64(RANK_SHIFT)
        own = machine.special["cluster_ctarank"]
        write(frame, index, np.where(rank > 0, rank - np.uint64(1), own if index is None else own[index]))

    return step
