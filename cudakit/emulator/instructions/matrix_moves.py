"""Matrices of 8 × 8 halves between shared memory and a warp: PTX ISA 9.7.14.5.15 – 9.7.14.5.17.

Lane 4 · row + t of a warp holds the halves 2t and 2t + 1 of the row. A row is 16 bytes in shared memory, and lane
8 · matrix + row has its address. The sm_100 forms (m8n16, m16n16, b8) are not here.
"""

from __future__ import annotations

import numpy as np

from cudakit.emulator.instructions.access import check_vector, parts, space_of
from cudakit.emulator.instructions.aligned import WARP, aligned, table_reader, table_writer
from cudakit.emulator.machine.context import Context, Reader
from cudakit.emulator.machine.decode import Control, control
from cudakit.emulator.machine.memory import SHARED_WINDOW, AccessError, Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Instruction, Operand
from cudakit.errors import EmulationError

_ROW_BYTES = 16
_HALF_ROW = np.dtype("u8")


def _form(given: Instruction, registers: Operand) -> tuple[int, bool]:
    """Matrices that the instruction moves, and whether it transposes them."""
    count = next((int(m[1:]) for m in given.modifiers if m in ("x1", "x2", "x4")), 1)
    if "m8n8" not in given.modifiers or "b16" not in given.modifiers or len(parts(registers)) != count:
        raise EmulationError(str(given))
    return count, "trans" in given.modifiers


def _rows(
    machine: Machine, address: Reader, frame: Frame, index: Index, given: Instruction, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Addresses in shared memory of the rows of `count` matrices of each warp, and the lanes that named them."""
    lanes = np.arange(machine.lanes) if index is None else index
    addresses = address(frame, index, machine).reshape(-1, WARP)[:, : 8 * count].reshape(-1)
    if space_of(given) == "generic":
        if (addresses < np.uint64(SHARED_WINDOW)).any():
            bad = int(addresses[np.flatnonzero(addresses < np.uint64(SHARED_WINDOW))[0]])
            raise AccessError(f"address {bad:#x} is not in shared memory")
        addresses = addresses - np.uint64(SHARED_WINDOW)
    check_vector(addresses, _ROW_BYTES)
    return addresses, lanes.reshape(-1, WARP)[:, : 8 * count].reshape(-1)


def _transposed(words: np.ndarray) -> np.ndarray:
    """Tables (…, 32) of words that hold 8 × 8 halves, with the matrices transposed."""
    halves = words.view(np.uint16).reshape(*words.shape[:-1], 8, 8).swapaxes(-1, -2)
    return np.ascontiguousarray(halves).view(np.uint32).reshape(words.shape)


@control("ldmatrix", "9.7.14.5.15")
def ldmatrix(given: Instruction, context: Context) -> Control:
    target, source = given.operands
    count, transposes = _form(given, target)
    address, write = context.address(source, space_of(given)), table_writer(context, target)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses, lanes = _rows(machine, address, frame, index, given, count)
        halves = [
            machine.memory.load("shared", addresses + np.uint64(part), _HALF_ROW, lanes)
            for part in (0, _HALF_ROW.itemsize)
        ]
        words = np.stack(halves, axis=-1).view(np.uint32).reshape(-1, count, WARP)
        write(frame, index, (_transposed(words) if transposes else words).swapaxes(1, 2))

    return aligned(given, step)


@control("stmatrix", "9.7.14.5.16")
def stmatrix(given: Instruction, context: Context) -> Control:
    target, source = given.operands
    count, transposes = _form(given, source)
    address, read = context.address(target, space_of(given)), table_reader(context, source)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses, lanes = _rows(machine, address, frame, index, given, count)
        words = np.ascontiguousarray(read(frame, index, machine).swapaxes(1, 2))
        halves = (_transposed(words) if transposes else words).view(_HALF_ROW).reshape(-1, 2)
        for part in (0, 1):
            where = addresses + np.uint64(part * _HALF_ROW.itemsize)
            machine.memory.store("shared", where, np.ascontiguousarray(halves[:, part]), lanes)

    return aligned(given, step)


@control("movmatrix", "9.7.14.5.17")
def movmatrix(given: Instruction, context: Context) -> Control:
    target, source = given.operands
    if given.modifiers != ("sync", "aligned", "m8n8", "trans", "b16"):
        raise EmulationError(str(given))
    write, read = table_writer(context, target), table_reader(context, source)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        write(frame, index, _transposed(read(frame, index, machine)[..., 0]))

    return aligned(given, step)
