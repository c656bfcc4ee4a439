"""Branches, calls and exits: PTX ISA 9.7.12 (control flow), the stack: PTX ISA 9.7.17, and functions of the system.

The system provides printf, assertions, the heap, and the parts of CUDA's device runtime that launch kernels from
kernels.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from cudakit.emulator.instructions.formats import formatted
from cudakit.emulator.machine.decode import Context, Control, Step, control, instruction
from cudakit.emulator.machine.heap import device_limits
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Geometry, Machine
from cudakit.emulator.ptx.program import Function, Group, Immediate, Instruction, Operand, Register, Symbol, symbols_in
from cudakit.errors import EmulationError

# ── printf, assertions, the heap ──

#: C's conversions that the CUDA programming guide allows; other text is printed as it is.
_CONVERSION = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\d*|\*)(?P<precision>\.(?:\d*|\*))?(?P<size>hh|h|ll|l|L|z|t|j)?"
    rb"(?P<kind>[diouxXeEfFgGaAcsp%])"
)


def _numbers(rows: np.ndarray, dtype: str, count: int = 1) -> list[Any]:
    """Return a call's numeric argument for each lane, as a list: a number, or a tuple if `count` is above 1.

    `rows` has the argument's bytes, a row a lane.
    """
    size = np.dtype(dtype).itemsize * count
    values = rows[:, :size].copy().view(dtype)
    return values[:, 0].tolist() if count == 1 else list(map(tuple, values.tolist()))


def _bytes_at(machine: Machine, address: int) -> bytes:
    """Return the zero-terminated string at a generic address."""
    out = bytearray()
    while True:
        byte = machine.memory.load("generic", np.array([address + len(out)], np.uint64), np.dtype("u1"), None)
        if byte[0] == 0:
            return bytes(out)
        out.append(int(byte[0]))


def _string(machine: Machine, address: int) -> str:
    """Return the text at a generic address."""
    return _bytes_at(machine, address).decode(errors="replace")


class _Conversion(NamedTuple):
    """A conversion of a format, with the dtypes of its arguments in memory. `dtype` is that of the value printed."""

    conversion: str
    flags: str
    width: int | None  # None: an argument, as the precision
    precision: int | None
    dtype: str
    stored: tuple[str, ...]


_BYTES: Final = {b"": 4, b"hh": 1, b"h": 2}


@cache
def _parts(text: bytes) -> list[bytes | _Conversion]:
    """Return a format in parts: text and conversions."""
    parts: list[bytes | _Conversion] = []
    end = 0
    for match in _CONVERSION.finditer(text):
        parts.append(text[end : match.start()])
        end, conversion = match.end(), match["kind"].decode()
        if conversion == "%":
            parts.append(b"%")
            continue
        if conversion in "eEfFgGaA":
            dtype = stored = "f8"
        elif conversion in "sp":
            dtype = stored = "u8"
        else:
            size = 4 if conversion == "c" else _BYTES.get(match["size"] or b"", 8)
            dtype, stored = f"{'i' if conversion in 'dic' else 'u'}{size}", f"i{max(size, 4)}"
        width, precision = match["width"], match["precision"]
        parts.append(
            _Conversion(
                conversion,
                match["flags"].decode(),
                None if width == b"*" else int(width or 0),
                None if precision in (None, b".*") else int(precision[1:] or 0),
                dtype,
                ("i4",) * match[0].count(b"*") + (stored,),
            )
        )
    return [*parts, text[end:]]


def _printed(machine: Machine, lanes: np.ndarray, text: bytes, addresses: np.ndarray) -> tuple[list[bytes], int]:
    """Return what lanes print by a format, and the number of arguments; each lane has its arguments at an address."""
    columns: list[list[bytes]] = []
    count, strings = 0, dict[int, bytes]()
    for part in _parts(text):
        if isinstance(part, bytes):
            columns.append([part] * lanes.size)
            continue
        values: list[list[Any]] = []
        for dtype in part.stored:
            size = np.dtype(dtype).itemsize
            starts = -(-addresses // size) * size
            addresses, count = starts + size, count + 1
            values.append(machine.memory.load("generic", starts.astype(np.uint64), np.dtype(dtype), lanes).tolist())
        *sizes, last = values
        last = np.array(last, part.stored[-1]).astype(part.dtype).tolist()
        if part.conversion == "s":
            strings |= {at: _bytes_at(machine, at) for at in {*last} - strings.keys()}
            last = [strings[at] for at in last]
        widths = sizes.pop(0) if part.width is None else itertools.repeat(part.width)
        precisions = sizes.pop(0) if sizes else itertools.repeat(part.precision)
        rows = zip(widths, precisions, last, strict=False)
        columns.append([formatted(part.conversion, part.flags, *row) for row in rows])
    return list(map(b"".join, zip(*columns, strict=True))), count


def vprintf(machine: Machine, lanes: np.ndarray, argument_rows: list[np.ndarray]) -> Any:
    """Run ``int vprintf(const char* format, void* arguments)``: to the launch's output, in the order of lanes."""
    formats, addresses = (np.array(_numbers(rows, "u8"), np.uint64).view(np.int64) for rows in argument_rows)
    counts = np.zeros(lanes.size, np.uint32)
    texts: list[bytes] = [b""] * lanes.size
    for place in np.unique(formats):
        chosen = np.flatnonzero(formats == place)
        printed, count = _printed(machine, lanes[chosen], _bytes_at(machine, int(place)), addresses[chosen])
        counts[chosen] = count
        for lane, text in zip(chosen.tolist(), printed, strict=True):
            texts[lane] = text
    for text in texts:
        machine.output(text.decode(errors="replace"))
    return counts


def assertfail(machine: Machine, lanes: np.ndarray, argument_rows: list[np.ndarray]) -> Any:
    """Raise for a failed ``assert``, with the first lane's message."""
    message, file, function = (_numbers(argument_rows[i], "u8")[0] for i in (0, 1, 3))
    place = machine.placed(_string(machine, file), _numbers(argument_rows[2], "u4")[0])
    raise EmulationError(
        f"{place}: {_string(machine, function)}: {machine.name_of(int(lanes[0]))}: assertion "
        f"`{_string(machine, message)}` failed"
    ).detailed(kind="assert", expected=_string(machine, message))


def malloc(machine: Machine, lanes: np.ndarray, argument_rows: list[np.ndarray]) -> Any:
    """Run ``void* malloc(size_t)``, also for ``new`` with an alignment; a null pointer if no memory is left."""
    heap = device_limits().heap
    machine.memory.add_heap(heap)
    aligns = _numbers(argument_rows[1], "u8") if len(argument_rows) > 1 else [1] * lanes.size
    blocks = [heap.allocate(size, align) for size, align in zip(_numbers(argument_rows[0], "u8"), aligns, strict=True)]
    return np.array(blocks, np.uint64)


def free(machine: Machine, lanes: np.ndarray, argument_rows: list[np.ndarray]) -> Any:
    """Run ``void free(void*)``."""
    for lane, address in zip(lanes, _numbers(argument_rows[0], "u8"), strict=True):
        try:
            device_limits().heap.free(address)
        except EmulationError as error:
            raise EmulationError(f"{machine.name_of(int(lane))}: {error}") from None


#: function(interpreter, calling lanes, bytes of each argument) → the lanes' results
Call: TypeAlias = Callable[[Machine, np.ndarray, list[Any]], Any]
#: Functions that a module may call without defining them.
CALLS: dict[str, Call] = {
    "vprintf": vprintf, "__assertfail": assertfail,
    "malloc": malloc, "__cuda_syscall_aligned_malloc": malloc, "free": free,
}  # fmt: skip


# ── stack ──


@instruction("alloca")
def alloca(instr: Instruction, context: Context) -> Step:
    type_name = instr.modifiers[0]
    target, size, *rest = instr.operands
    align = rest[0].value if rest and isinstance(rest[0], Immediate) else 8
    write, read = context.write(target, type_name), context.read(size, "u32")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        # The stack grows up here, and is freed when the function returns.
        top = machine.local_top if index is None else machine.local_top[index]
        start = -(-top // align) * align
        machine.reserve_local(index, np.asarray(start - top + read(frame, index, machine).astype(np.int64)))
        write(frame, index, start)

    return step


@instruction("stacksave")
def stacksave(instr: Instruction, context: Context) -> Step:
    write = context.write(instr.operands[0], instr.modifiers[0])

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        write(frame, index, machine.local_top if index is None else machine.local_top[index])

    return step


@instruction("stackrestore")
def stackrestore(instr: Instruction, context: Context) -> Step:
    read = context.read(instr.operands[0], instr.modifiers[0])

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        machine.local_top[slice(None) if index is None else index] = read(frame, index, machine)

    return step


# ── the device runtime ──

_FIRST_STREAM = 0x1000


def get_parameter_buffer(machine: Machine, lanes: np.ndarray, argument_rows: list[np.ndarray]) -> Any:
    """Run ``void* cudaGetParameterBufferV2(void* function, dim3 grid, dim3 block, unsigned shared)``."""
    pointers, shared = _numbers(argument_rows[0], "u8"), _numbers(argument_rows[3], "u4")
    rows = zip(pointers, _numbers(argument_rows[1], "u4", 3), _numbers(argument_rows[2], "u4", 3), shared, strict=True)
    addresses = [machine.make_child(pointer, Geometry(grid, block, dynamic)) for pointer, grid, block, dynamic in rows]
    return np.array(addresses, np.uint64)


def launch_device(machine: Machine, lanes: np.ndarray, argument_rows: list[np.ndarray]) -> Any:
    """Run ``cudaError_t cudaLaunchDeviceV2(void* parameters, cudaStream_t stream)``."""
    for address, stream in zip(_numbers(argument_rows[0], "u8"), _numbers(argument_rows[1], "u8"), strict=True):
        machine.launch_child(address, stream)
    return np.uint32(0)


def create_stream(machine: Machine, lanes: np.ndarray, argument_rows: list[np.ndarray]) -> Any:
    """Run ``cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags)``; launches keep one order."""
    handles = np.arange(_FIRST_STREAM, _FIRST_STREAM + lanes.size, dtype=np.uint64)
    machine.memory.store("generic", np.array(_numbers(argument_rows[0], "u8"), np.uint64), handles, lanes)
    return np.uint32(0)


def succeed(machine: Machine, lanes: np.ndarray, argument_rows: list[np.ndarray]) -> Any:
    """Return ``cudaSuccess`` for a call that has nothing to do here; the other calls raise if they fail."""
    return np.uint32(0)


_CALLS: dict[str, Call] = {
    "GetParameterBufferV2": get_parameter_buffer, "LaunchDeviceV2": launch_device,
    "StreamCreateWithFlags": create_stream, "StreamDestroy": succeed,
    "GetLastError": succeed, "PeekAtLastError": succeed,
}  # fmt: skip
CALLS.update({f"{prefix}{name}": function for prefix in ("cuda", "__cudaCDP2") for name, function in _CALLS.items()})
#: Functions that write a stream's handle to the address in their first argument.
STREAM_MAKERS: frozenset[str] = frozenset(name for name, function in CALLS.items() if function is create_stream)


# ── control flow ──


@control("bra")
def bra(instr: Instruction, context: Context) -> Control:
    (target,) = instr.operands
    assert isinstance(target, Symbol)
    code = context.function.labels[target.name]

    def branch(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> None:
        machine.set_place(active, machine.location(position[0], position[1], code))

    return branch


@control("brx")
def brx(instr: Instruction, context: Context) -> Control:
    selector, table = instr.operands
    assert isinstance(table, Symbol)
    targets = np.array([context.function.labels[name] for name in context.function.branch_targets[table.name]])
    read = context.read(selector, "u32")

    def branch(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> None:
        chosen = np.broadcast_to(read(frame, active, machine), (machine.lanes if active is None else active.size,))
        if (chosen >= targets.size).any():
            raise EmulationError(f"branch {int(chosen.max())} is outside the table of {targets.size}")
        machine.set_place(active, machine.location(position[0], position[1], 0) + targets[chosen.astype(np.int64)])

    return branch


@control("ret")
def ret(instr: Instruction, context: Context) -> Control:
    def leave(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> None:
        machine.return_from(frame, active, position)

    return leave


@control("exit")
def exit_(instr: Instruction, context: Context) -> Control:
    def leave(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> None:
        machine.finish(active)

    return leave


@control("trap", "brkpt")
def trap(instr: Instruction, context: Context) -> Control:
    """Make the control that ends the launch with an error."""

    def stop(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> bool:
        lane = 0 if active is None else int(active[0])
        raise EmulationError(trapped(machine.name_of(lane), context.function, machine.geometry)).detailed(kind="trap")

    return stop


def trapped(place: str, function: Function, geometry: Geometry) -> str:
    """Return the message for a trap at `place`, a block and thread in words.

    A hint on cooperative launches is added if the function may use grid barriers in a launch that is not cooperative.
    """
    hint = ""
    if not geometry.cooperative and any(Register("%envreg1") in other.operands for other in function.code):
        hint = "; a grid synchronises only in a cooperative launch: config(…, cooperative=True)"
    return f"{place} trapped{hint}"


def _variables(group: Operand) -> tuple[str, ...]:
    """Return the names of the variables in a call's brackets."""
    return tuple(symbol.name for symbol in symbols_in(group))


@control("call")
def call(instr: Instruction, context: Context) -> Control:
    operands = list(instr.operands)
    results = _variables(operands.pop(0)) if isinstance(operands[0], Group) else ()
    target = operands.pop(0)
    arguments = _variables(operands[0]) if operands and isinstance(operands[0], Group) else ()
    pointer = context.read(target, "u64") if isinstance(target, Register) else None
    name = target.name if isinstance(target, Symbol) else ""

    def go(machine: Machine, frame: Frame, name: str, lanes: np.ndarray, position: tuple[int, int, int]) -> None:
        if name not in CALLS:
            machine.call(name, lanes, arguments, results, frame, position)
            return
        answer = CALLS[name](machine, lanes, [frame.parameters[argument][lanes] for argument in arguments])
        for result in results:
            values = np.ascontiguousarray(np.broadcast_to(answer, lanes.shape))
            frame.bytes_of(result, 8)[lanes, : values.itemsize] = values[:, None].view(np.uint8)

    def enter(machine: Machine, frame: Frame, index: Index, active: Index, position: tuple[int, int, int]) -> None:
        lanes = np.arange(machine.lanes) if active is None else active
        if pointer is None:
            go(machine, frame, name, lanes, position)
            return
        chosen = np.broadcast_to(pointer(frame, active, machine), lanes.shape)
        for value in np.unique(chosen):
            go(machine, frame, context.symbols.function_at(int(value)), lanes[chosen == value], position)

    return enter
