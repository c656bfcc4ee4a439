"""Loads, stores, moves and address conversions: PTX ISA 9.7.9 (data movement)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudakit.emulator.decode import DTYPES, Context, Frame, Step, instruction
from cudakit.emulator.memory import LOCAL_WINDOW, SHARED_WINDOW, AccessError, Index
from cudakit.emulator.ptx import Address, Group, Instruction, Operand, Symbol
from cudakit.errors import EmulationError

if TYPE_CHECKING:
    from cudakit.emulator.machine import Machine

_SPACES = frozenset({"global", "shared", "local", "const", "param"})


def space_of(given: Instruction) -> str:
    """State space of an access; generic where it names none."""
    for modifier in given.modifiers:
        base = modifier.partition("::")[0]
        if base in _SPACES:
            return base
    return "generic"


def type_of(given: Instruction) -> str:
    """Element type: the last modifier that is one."""
    return next(modifier for modifier in reversed(given.modifiers) if modifier in DTYPES)


def parts(operand: Operand) -> tuple[Operand, ...]:
    """Elements of a vector operand, or the operand itself."""
    return operand.items if isinstance(operand, Group) and operand.kind == "vector" else (operand,)


@instruction("mov", "9.7.9.2")
def mov(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    target, source = given.operands
    if isinstance(target, Group):
        return _unpack(target, source, kind, context)
    if isinstance(source, Group):
        return _pack(target, source, kind, context)
    write, read = context.write(target, kind), context.read(source, kind)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        write(frame, index, read(frame, index, machine))

    return step


def _unpack(target: Group, source: Operand, kind: str, context: Context) -> Step:
    part = np.dtype(f"u{DTYPES[kind].itemsize // len(target.items)}")
    read = context.read(source, f"b{8 * DTYPES[kind].itemsize}")
    writes = [context.write(item, f"b{8 * part.itemsize}") for item in target.items]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        values = np.asarray(read(frame, index, machine))
        pieces = np.ascontiguousarray(values)[..., None].view(part)
        for number, write in enumerate(writes):
            write(frame, index, pieces[..., number])

    return step


def _pack(target: Operand, source: Group, kind: str, context: Context) -> Step:
    whole = np.dtype(f"u{DTYPES[kind].itemsize}")
    width = DTYPES[kind].itemsize // len(source.items)
    reads = [context.read(item, f"b{8 * width}") for item in source.items]
    write = context.write(target, f"b{8 * whole.itemsize}")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        values: Any = whole.type(0)
        for number, read in enumerate(reads):
            values = values | np.asarray(read(frame, index, machine)).astype(whole) << whole.type(8 * width * number)
        write(frame, index, values)

    return step


@instruction("cvta", "9.7.9.20")
def cvta(given: Instruction, context: Context) -> Step:
    kind = type_of(given)
    target, source = given.operands
    write, read = context.write(target, kind), context.read(source, kind)
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space_of(given), 0)
    shift = np.uint64(window)
    back = "to" in given.modifiers

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        values = np.asarray(read(frame, index, machine)).astype(np.uint64)
        write(frame, index, values - shift if back else values + shift)

    return step


@instruction("isspacep", "9.7.9.19")
def isspacep(given: Instruction, context: Context) -> Step:
    target, source = given.operands
    write, read = context.write(target, "pred"), context.read(source, "u64")
    space = space_of(given)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        window = np.asarray(read(frame, index, machine)) >> np.uint64(40)
        shared, local = window == SHARED_WINDOW >> 40, window == LOCAL_WINDOW >> 40
        held = {"shared": shared, "local": local}.get(space, ~(shared | local))
        write(frame, index, np.broadcast_to(held, (machine.lanes if index is None else index.size,)))

    return step


@instruction("ld", "9.7.9.8")
def ld(given: Instruction, context: Context) -> Step:
    space, kind = space_of(given), type_of(given)
    target, source = given.operands
    dtype = DTYPES[kind]
    items = parts(target)
    writes = [context.write(item, kind) for item in items]
    if space == "param" and isinstance(source, Address) and isinstance(source.base, Symbol):
        name, offset = source.base.name, source.offset

        def from_parameters(frame: Frame, index: Index, machine: Machine) -> None:
            rows = frame.parameters[name]
            if rows.shape[0] > 1 and index is not None:
                rows = rows[index]
            for number, write in enumerate(writes):
                start = offset + number * dtype.itemsize
                values = np.ascontiguousarray(rows[:, start : start + dtype.itemsize]).view(dtype)[:, 0]
                write(frame, index, values if rows.shape[0] > 1 else values[0])

        return from_parameters
    address = context.address(source, space)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = address(frame, index, machine)
        check_vector(addresses, dtype.itemsize * len(items))
        for number, write in enumerate(writes):
            where = addresses + np.uint64(number * dtype.itemsize) if number else addresses
            write(frame, index, machine.memory.load(space, where, dtype, index))

    return step


def check_vector(addresses: np.ndarray, size: int) -> None:
    """A vector access is aligned to its whole size."""
    if size > 1 and np.any(addresses & np.uint64(size - 1)):
        bad = int(addresses[np.flatnonzero(addresses & np.uint64(size - 1))[0]])
        raise AccessError(f"address {bad:#x} is not aligned to {size} bytes")


@instruction("ldu", "9.7.9.10")
def ldu(given: Instruction, context: Context) -> Step:
    return ld(given, context)


@instruction("st", "9.7.9.11")
def st(given: Instruction, context: Context) -> Step:
    space, kind = space_of(given), type_of(given)
    target, source = given.operands
    dtype = DTYPES[kind]
    items = parts(source)
    reads = [context.read(item, kind) for item in items]
    if space == "param" and isinstance(target, Address) and isinstance(target.base, Symbol):
        name, offset = target.base.name, target.offset
        size = context.parameter_sizes[name]

        def to_parameters(frame: Frame, index: Index, machine: Machine) -> None:
            from cudakit.emulator.control import _bytes_of

            rows = _bytes_of(frame, name, size, machine.lanes)
            lanes = slice(None) if index is None else index
            count = machine.lanes if index is None else index.size
            for number, read in enumerate(reads):
                values = np.broadcast_to(np.asarray(read(frame, index, machine), dtype), (count,))
                start = offset + number * dtype.itemsize
                as_bytes = np.ascontiguousarray(values)[:, None].view(np.uint8)
                rows[lanes, start : start + dtype.itemsize] = as_bytes

        return to_parameters
    if space == "const":
        raise EmulationError("constant memory cannot be stored to")
    address = context.address(target, space)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = address(frame, index, machine)
        check_vector(addresses, dtype.itemsize * len(items))
        for number, read in enumerate(reads):
            where = addresses + np.uint64(number * dtype.itemsize) if number else addresses
            machine.memory.store(space, where, np.asarray(read(frame, index, machine), dtype), index)

    return step


@instruction("prefetch", "9.7.9.17")
@instruction("prefetchu", "9.7.9.17")
@instruction("discard", "9.7.9.18")
@instruction("applypriority", "9.7.9.18")
def nothing(given: Instruction, context: Context) -> Step:
    """Hints to the caches, which there are none of."""
    return lambda frame, index, machine: None
