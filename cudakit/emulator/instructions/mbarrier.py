"""Barriers in shared memory: PTX ISA 9.7.13.15 (mbarrier).

The 64-bit word of an mbarrier: expected arrivals (bits 0 – 19), pending arrivals (20 – 39), bytes that copies still owe
(40 – 61, signed), a valid mark (62), phase (63). An arrival's token is the word before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.emulator.instructions.access import space_of
from cudakit.emulator.machine.context import Context, Reader
from cudakit.emulator.machine.decode import Control, control
from cudakit.emulator.machine.memory import RANK_SHIFT, STRONG_WRITE, WINDOW_BITS, Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Address, Instruction
from cudakit.errors import EmulationError

_WORD = np.dtype("u8")
_COUNT = (1 << 20) - 1
_BYTES = 1 << 22
_VALID = 1 << 62
_PHASE = 1 << 63


def make_word(count: Any) -> np.ndarray:
    """The word of a new mbarrier for `count` arrivals."""
    many = np.asarray(count).astype(np.uint64)
    if ((many < 1) | (many > _COUNT)).any():
        raise EmulationError(f"an mbarrier for {int(many.max())} arrivals; 1 … {_COUNT} are possible")
    return many | many << np.uint64(20) | np.uint64(_VALID)


def _pending(word: np.ndarray) -> np.ndarray:
    """Arrivals that the phase still waits for."""
    return np.asarray(word.view(np.int64) >> 20 & _COUNT)


def _transfer(word: np.ndarray) -> np.ndarray:
    """Bytes that copies still owe; negative where they came before they were expected."""
    field = word.view(np.int64) >> 40 & _BYTES - 1
    return np.asarray(field - (field >= _BYTES // 2) * _BYTES)


def _running(values: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sums of `values` from the start of each one's segment to it."""
    ends = np.cumsum(values)
    return np.asarray(ends - np.repeat((ends - values)[starts], sizes))


def update(word: np.ndarray, arrivals: Any = 0, owed: Any = 0, dropped: Any = 0) -> np.ndarray:
    """`word` after copies owe `owed` bytes more, and `arrivals` have come, `dropped` of them for good."""
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
    """Lanes in order change the mbarriers at `addresses`; the word that each found."""
    shape = addresses.shape
    arrivals, owed, dropped = (np.broadcast_to(np.asarray(x, np.int64), shape) for x in (arrivals, owed, dropped))
    tokens = np.zeros(shape, np.uint64)
    for view, elements, positions in machine.memory.views(space, addresses, _WORD, lanes, STRONG_WRITE):
        order = np.argsort(elements, kind="stable")
        found = np.zeros(order.size, np.uint64)
        counts = [x[positions][order] for x in (arrivals, owed, dropped)]
        sorted_elements = elements[order]
        left = np.arange(order.size)
        while left.size:
            # Up to the lane that completes its phase, all change a word at once; the others come in another round.
            e = sorted_elements[left]
            starts = np.flatnonzero(np.diff(e, prepend=-1))
            sizes = np.diff(starts, append=left.size)
            words = view[e]
            come, bytes_owed, gone = (x[left] for x in counts)
            pending, transfer = _pending(words) - _running(come, starts, sizes), _transfer(words)
            complete = (pending == 0) & (transfer + _running(bytes_owed, starts, sizes) == 0)
            first = np.minimum.reduceat(np.where(complete, np.arange(left.size), left.size), starts)
            now = np.arange(left.size) <= np.repeat(first, sizes)
            total = [np.add.reduceat(np.where(now, x, 0), starts) for x in (come, bytes_owed, gone)]
            found[left[now]] = words[now] - ((_pending(words) - pending - come)[now].astype(np.uint64) << np.uint64(20))
            view[e[starts]] = update(words[starts], *total)
            left = left[~now]
        back = np.empty_like(found)
        back[order] = found
        tokens[positions] = back
    return tokens


def numbers_of(machine: Machine, space: str, addresses: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """A number for each mbarrier of all blocks that run, whatever space its address is in."""
    offset = np.uint64((1 << RANK_SHIFT) - 1)
    if space == "shared":
        block = machine.block_of[lanes]
    else:
        inside = np.uint64((1 << WINDOW_BITS) - 1)
        block = machine.memory.blocks_at(addresses & inside, lanes)
    return np.asarray(block << RANK_SHIFT | (addresses & offset).view(np.int64))


@control("mbarrier", "9.7.13.15")
def mbarrier(given: Instruction, context: Context) -> Control:
    """Every mbarrier instruction, told apart by its first modifier."""
    action = given.modifiers[0]
    space = space_of(given)
    operands = list(given.operands)
    if action in ("init", "inval"):
        return _initialise(context, operands, space, action == "init")
    if action == "pending_count":
        return _pending_count(context, operands)
    if action in ("test_wait", "try_wait"):
        return _wait(context, operands, space, "parity" in given.modifiers, action == "try_wait")
    write = None
    if not isinstance(operands[0], Address):
        write = context.write(operands.pop(0), "b64")
    address = context.address(operands[0], space)
    amount: Reader | None = context.read(operands[1], "u32") if len(operands) > 1 else None
    arrives = action in ("arrive", "arrive_drop")
    sign = {"expect_tx": 1, "complete_tx": -1}.get(action, 1 if "expect_tx" in given.modifiers else 0)
    if not arrives and not sign:
        raise EmulationError(f"mbarrier.{action}")
    drops = action == "arrive_drop"

    def change(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        if active is not None and active.size == 0:
            return True
        number = np.asarray(amount(frame, active, machine) if amount else 1).astype(np.int64)
        count = (number if not sign else np.int64(1)) if arrives else np.int64(0)
        addresses = address(frame, active, machine)
        token = apply(machine, space, addresses, active, count, sign * number, count if drops else 0)
        if write is not None:
            write(frame, active, token)
        return True

    return change


def _initialise(context: Context, operands: list[Any], space: str, valid: bool) -> Control:
    address = context.address(operands[0], space)
    count = context.read(operands[1], "u32") if valid else None

    def make(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        if active is None or active.size:
            words = make_word(count(frame, active, machine)) if count else np.zeros(1, _WORD)
            machine.memory.store(space, address(frame, active, machine), np.atleast_1d(words), active)
        return True

    return make


def _pending_count(context: Context, operands: list[Any]) -> Control:
    write, read = context.write(operands[0], "b32"), context.read(operands[1], "b64")

    def count(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        write(frame, active, np.asarray(read(frame, active, machine)) >> np.uint64(20) & np.uint64(_COUNT))
        return True

    return count


def _wait(context: Context, operands: list[Any], space: str, parity: bool, patient: bool) -> Control:
    write, address = context.write(operands[0], "pred"), context.address(operands[1], space)
    state = context.read(operands[2], "b32" if parity else "b64")

    def test(machine: Machine, frame: Frame, index: Index, active: Index, here: tuple[int, int, int]) -> bool:
        if active is not None and active.size == 0:
            return True
        where = address(frame, active, machine)
        if machine.late is not None:
            lanes = np.arange(machine.lanes) if active is None else active
            machine.late.reached(numbers_of(machine, space, where, lanes))
        words = machine.memory.load(space, where, _WORD, active)
        if not (words & np.uint64(_VALID)).all():
            raise EmulationError("an mbarrier that mbarrier.init has not made, or that has been made invalid")
        told = np.asarray(state(frame, active, machine))
        before = (told & told.dtype.type(1)) if parity else told >> np.uint64(63)
        done = (words >> np.uint64(63)) != before
        write(frame, active, done)
        if not patient or done.all() or active is None:
            return True
        # try_wait may suspend the thread: whoever it waits for goes first.
        machine.pause(active[~done])
        return False

    return test
