"""Loads, stores, moves and address conversions: PTX ISA 9.7.9 (data movement).

Helpers for other families are here too: an instruction's space, type and vectors, and its accesses (`accesses_of`).
Register tables serve instructions that a warp or warpgroup runs as one (`aligned`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cudakit.emulator.instructions.words import elementwise
from cudakit.emulator.isa.facts import Memory, facts_of, is_widely_strong
from cudakit.emulator.machine.decode import DTYPES, Context, Control, Reader, Step, instruction
from cudakit.emulator.machine.memory import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    RANK_SHIFT,
    SHARED_WINDOW,
    WINDOW_BITS,
    Index,
    check_aligned,
)
from cudakit.emulator.machine.state import AT_WARP, DONE, RUNNING, Frame, Machine
from cudakit.emulator.ptx.program import Address, Group, Immediate, Instruction, Operand, Symbol
from cudakit.errors import EmulationError

#: Sixteen bytes as one element: the type of that size which NumPy moves fastest, bit for bit.
CHUNK = np.dtype("c16")
_SPACES = frozenset({"global", "shared", "local", "const", "param"})
_WINDOWS = {"shared": SHARED_WINDOW, "cluster": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


def space_of(instr: Instruction) -> str:
    """Return the state space of an access; generic if no space is named, ``cluster`` for ``shared::cluster``."""
    for modifier in instr.modifiers:
        if modifier == "shared::cluster":
            return "cluster"
        base = modifier.partition("::")[0]
        if base in _SPACES:
            return base
    return "generic"


def type_of(instr: Instruction) -> str:
    """Return the element type: the last modifier that is a type."""
    return next(modifier for modifier in reversed(instr.modifiers) if modifier in DTYPES)


def parts(operand: Operand) -> tuple[Operand, ...]:
    """Return the elements of a vector operand, or the operand itself."""
    return operand.items if isinstance(operand, Group) and operand.notation == "vector" else (operand,)


def elements(instr: Instruction, operand: Operand) -> tuple[Operand, ...]:
    """Return the elements of a load's or store's vector operand, as many as the instruction's modifier says."""
    items = parts(operand)
    count = next((int(modifier[1]) for modifier in instr.modifiers if modifier in ("v2", "v4", "v8")), 1)
    if len(items) != count:
        raise EmulationError(f"{len(items)} elements where {instr} has {count}")
    return items


@instruction("mov")
def mov(instr: Instruction, context: Context) -> Step:
    type_name = type_of(instr)
    target, source = instr.operands
    if isinstance(target, Group):
        return _unpack(target, source, type_name, context)
    if isinstance(source, Group):
        return _pack(target, source, type_name, context)
    return elementwise(instr, context, type_name, lambda values: values)


def _unpack(target: Group, source: Operand, type_name: str, context: Context) -> Step:
    """Make a step that splits a value into the registers of a vector."""
    part = np.dtype(f"u{DTYPES[type_name].itemsize // len(target.items)}")
    read = context.read(source, f"b{8 * DTYPES[type_name].itemsize}", compact=True)
    writes = [context.write(item, f"b{8 * part.itemsize}") for item in target.items]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        values = np.asarray(read(frame, index, machine))
        pieces = np.ascontiguousarray(values)[..., None].view(part)
        for number, write in enumerate(writes):
            write(frame, index, pieces[..., number])

    return step


def _pack(target: Operand, source: Group, type_name: str, context: Context) -> Step:
    """Make a step that joins the registers of a vector to one value."""
    whole = DTYPES[f"b{8 * DTYPES[type_name].itemsize}"]
    width = whole.itemsize // len(source.items)
    reads = [context.read(item, f"b{8 * width}", compact=True) for item in source.items]
    write = context.write(target, f"b{8 * whole.itemsize}")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        pieces = np.broadcast_arrays(*(read(frame, index, machine) for read in reads))
        write(frame, index, np.stack(pieces, axis=-1).view(whole)[..., 0])

    return step


@instruction("cvta")
def cvta(instr: Instruction, context: Context) -> Step:
    type_name = type_of(instr)
    shift = np.uint64(_WINDOWS.get(space_of(instr), 0))
    if not shift:
        return elementwise(instr, context, type_name, lambda values: values)
    move = np.subtract if "to" in instr.modifiers else np.add
    return elementwise(instr, context, type_name, lambda values: move(np.asarray(values).astype(np.uint64), shift))


@instruction("isspacep")
def isspacep(instr: Instruction, context: Context) -> Step:
    target, source = instr.operands
    write, read = context.write(target, "pred"), context.read(source, "u64")
    space = space_of(instr)
    constants = [(np.uint64(start), np.uint64(size)) for start, size in context.symbols.constants]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = np.asarray(read(frame, index, machine))
        window = addresses >> np.uint64(WINDOW_BITS)
        is_inside = (
            window == _WINDOWS[space] >> WINDOW_BITS if space in _WINDOWS else window < SHARED_WINDOW >> WINDOW_BITS
        )
        if space == "const":
            # An address below a variable wraps around to a huge offset.
            is_inside = np.any([addresses - start < size for start, size in constants], axis=0) | np.zeros_like(
                is_inside
            )
        if space == "shared":
            rank = addresses >> np.uint64(RANK_SHIFT) & np.uint64((1 << WINDOW_BITS - RANK_SHIFT) - 1)
            own = machine.special["cluster_ctarank"].astype(np.uint64) + np.uint64(1)
            is_inside &= (rank == 0) | (rank == (own if index is None else own[index]))
        write(frame, index, np.broadcast_to(is_inside, (machine.lanes if index is None else index.size,)))

    return step


@instruction("ld")
def ld(instr: Instruction, context: Context) -> Step:
    space, type_name = space_of(instr), type_of(instr)
    # A cache policy may follow.
    target, source = instr.operands[:2]
    dtype = DTYPES[type_name]
    items = elements(instr, target)
    writes = [context.write(item, type_name, adopts=True) for item in items]
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
    address, strong = context.address(source, space), is_widely_strong(instr)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = address(frame, index, machine)
        if len(items) > 1:
            check_vector(addresses, dtype.itemsize * len(items))
        for number, write in enumerate(writes):
            where = addresses + np.uint64(number * dtype.itemsize) if number else addresses
            write(frame, index, machine.memory.load(space, where, dtype, index, strong))

    return step


#: A vector access is aligned to its whole size.
check_vector = check_aligned


@instruction("ldu")
def ldu(instr: Instruction, context: Context) -> Step:
    return ld(instr, context)


@instruction("st")
def st(instr: Instruction, context: Context) -> Step:
    space, type_name = space_of(instr), type_of(instr)
    # A cache policy may follow.
    target, source = instr.operands[:2]
    dtype = DTYPES[type_name]
    items = elements(instr, source)
    reads = [context.read(item, type_name) for item in items]
    if space == "param" and isinstance(target, Address) and isinstance(target.base, Symbol):
        name, offset = target.base.name, target.offset
        size = context.parameter_sizes[name]

        def to_parameters(frame: Frame, index: Index, machine: Machine) -> None:
            rows = frame.bytes_of(name, size)
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
    address, strong = context.address(target, space), is_widely_strong(instr)

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        addresses = address(frame, index, machine)
        if len(items) > 1:
            check_vector(addresses, dtype.itemsize * len(items))
        for number, read in enumerate(reads):
            where = addresses + np.uint64(number * dtype.itemsize) if number else addresses
            machine.memory.store(space, where, np.asarray(read(frame, index, machine), dtype), index, strong)

    return step


@instruction("prefetch", "prefetchu", "discard", "applypriority", "cp.async.bulk.prefetch")
@instruction("membar", "fence", "pmevent", "griddepcontrol", "setmaxnreg")
def no_operation(instr: Instruction, context: Context) -> Step:
    """Make a step that does nothing: there are no caches to fetch into, and all threads see every access at once."""
    return lambda frame, index, machine: None


# ── accesses, for observers ──


class Access(NamedTuple):
    """An instruction's access to memory: its space, bytes a lane, and its use of the memory."""

    space: str
    address: Reader
    size: int
    use: str
    #: Whether lanes name rows of matrices, which the warp moves together.
    by_rows: bool = False


def by_space(
    access: Access, instr: Instruction, addresses: np.ndarray, active: Index, machine: Machine
) -> Iterator[tuple[str, np.ndarray, Index]]:
    """Yield (space, addresses, lanes) for each state space that an access touches, for observers.

    `addresses` has an address for each lane of `active`. Generic addresses may be in several spaces. Those in shared or
    local memory are yielded as offsets in this memory. Of matrix rows that a warp moves together, only the lanes that
    name a row count.
    """
    space = access.space
    if not access.by_rows and (space != "generic" or int(addresses.max()) < SHARED_WINDOW):
        yield "global" if space == "generic" else space, addresses, active
        return
    lanes = np.arange(machine.lanes) if active is None else active
    window, offsets = addresses >> np.uint64(WINDOW_BITS), addresses & np.uint64((1 << WINDOW_BITS) - 1)
    if access.by_rows:
        count = next((int(m[1:]) for m in instr.modifiers if m in ("x1", "x2", "x4")), 1)
        naming = machine.lane_id[lanes] < 8 * count
        yield "shared" if space == "generic" else space, offsets[naming], lanes[naming]
        return
    for name, inside, where in (
        ("shared", window == SHARED_WINDOW >> WINDOW_BITS, offsets),
        ("local", window == LOCAL_WINDOW >> WINDOW_BITS, offsets),
        ("global", addresses < SHARED_WINDOW, addresses),
    ):
        if inside.any():
            yield name, where[inside], lanes[inside]


def accesses_of(instr: Instruction, context: Context) -> tuple[Access, ...]:
    """Return an instruction's accesses to memory; empty if it has no access that observers count."""
    facts = facts_of(instr)
    space = space_of(instr)
    if space in ("param", "const") or "bulk" in instr.modifiers or any(memory.address < 0 for memory in facts.memory):
        return ()
    try:
        return tuple(
            Access(
                memory.space or space,
                context.address(instr.operands[memory.address], space),
                _bytes(instr, memory),
                memory.use,
                facts.warp == "all",
            )
            for memory in facts.memory
        )
    except EmulationError:
        return ()  # the interpreter raises the error when it runs the instruction


def _bytes(instruction: Instruction, memory: Memory) -> int:
    """Return the number of bytes that each lane accesses at an instruction's memory operand, described by `memory`."""
    if memory.value >= 0:
        return DTYPES[type_of(instruction)].itemsize * len(parts(instruction.operands[memory.value]))
    if memory.size < 0:
        return memory.bytes
    match instruction.operands[memory.size :]:
        case (Immediate(value=size), *_):
            return size
    raise EmulationError(f"{instruction} of a number of bytes that is no constant")


# ── instructions that a warp, or a warpgroup, runs as one (``.sync.aligned``) ──
#
# A lane waits at the instruction until all lanes of its warp (32) or warpgroup (four warps, 128) have arrived. Their
# registers do not change meanwhile, so only the arrivals are kept.

WARP, WARPGROUP = 32, 128

#: read(frame, index, machine) → raw bits of a vector operand's registers, (warps, 32, registers)
TableReader: TypeAlias = Callable[[Frame, Index, Machine], np.ndarray]
TableWriter: TypeAlias = Callable[[Frame, Index, np.ndarray], None]


def aligned(instr: Instruction, step: Step, size: int = WARP) -> Control:
    """Return a control that runs `step` for groups of `size` lanes once all lanes of a group have arrived.

    Lanes that arrive earlier wait.
    """

    def control(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> bool:
        if active is None and machine.threads % size == 0:
            step(frame, None, machine)
            return True
        lanes = np.arange(machine.lanes) if active is None else active
        waiting = machine.arrived.setdefault(position, np.zeros(machine.lanes, bool))
        waiting[lanes] = True
        arrived = np.flatnonzero(waiting)
        group = machine.warp_of if size == WARP else machine.warpgroup_of
        complete = (np.bincount(group[arrived]) == size)[group[arrived]]
        ready, late = arrived[complete], arrived[~complete]
        _refuse_missing(machine, instr, group, late, size)
        waiting[ready] = False
        machine.status[ready], machine.status[late] = RUNNING, AT_WARP
        if ready.size:
            step(frame, ready, machine)
        # Lanes that arrived earlier must be scheduled together with the lanes here now.
        return bool(ready.size == arrived.size == lanes.size)

    return control


def _refuse_missing(machine: Machine, instr: Instruction, group: np.ndarray, late: np.ndarray, size: int) -> None:
    """Raise if a lane of the group can never arrive, because it has exited or does not exist."""
    if late.size == 0:
        return
    alive = np.bincount(group[machine.status != DONE], minlength=int(group[-1]) + 1)
    short = late[alive[group[late]] < size]
    if short.size:
        lane = int(short[0])
        group_name = "warp" if size == WARP else "warpgroup (four warps)"
        raise EmulationError(
            f"{instr} needs all {size} threads of a {group_name}; of that of {machine.name_of(lane)}, only "
            f"{int(alive[group[lane]])} are there"
        )


def uniform(values: Any, description: str, size: int = WARP) -> np.ndarray:
    """Return one value for each group of `size` lanes, (groups,), and raise if lanes of a group differ."""
    table = np.asarray(values).reshape(-1, size)
    if (table != table[:, :1]).any():
        raise EmulationError(f"the {description} is not the same for all {size} threads")
    return table[:, 0]


def read_per_lane(read: Reader, frame: Frame, index: Index, machine: Machine) -> np.ndarray:
    """Read an operand as one value a lane."""
    return np.broadcast_to(read(frame, index, machine), (machine.lanes if index is None else index.size,))


def table_reader(context: Context, operand: Operand, bits: int = 32) -> TableReader:
    """Return a function that reads registers of `operand`, each of `bits`, as a table (warps, 32, registers)."""
    reads = [context.read(item, f"b{bits}") for item in parts(operand)]

    def read(frame: Frame, index: Index, machine: Machine) -> np.ndarray:
        table = np.empty((machine.lanes if index is None else index.size, len(reads)), f"u{bits // 8}")
        for number, read_register in enumerate(reads):
            table[:, number] = read_register(frame, index, machine)
        return table.reshape(-1, WARP, len(reads))

    return read


def table_writer(context: Context, operand: Operand, bits: int = 32) -> TableWriter:
    """Return a function that writes a table (warps, 32, registers) to the registers of `operand`."""
    writes = [context.write(item, f"b{bits}") for item in parts(operand)]

    def write(frame: Frame, index: Index, table: np.ndarray) -> None:
        columns = table.reshape(-1, len(writes)).T
        for write_register, values in zip(writes, columns, strict=True):
            write_register(frame, index, np.ascontiguousarray(values))

    return write
