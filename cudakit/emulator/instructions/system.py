"""What the system gives a kernel: printf, assertions, and memory of the heap and on the stack (PTX ISA 9.7.17)."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.machine.heap import device_limits
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Immediate, Instruction
from cudakit.errors import EmulationError

#: What the CUDA programming guide takes of C's conversions; anything else is printed as it stands.
_CONVERSION = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\d*|\*)(?P<precision>\.(?:\d*|\*))?(?P<size>hh|h|ll|l|L|z|t|j)?"
    rb"(?P<kind>[diouxXeEfFgGaAcsp%])"
)


def _bytes_at(machine: Machine, address: int) -> bytes:
    """The zero-ended string at a generic address."""
    out = bytearray()
    while True:
        byte = machine.memory.load("generic", np.array([address + len(out)], np.uint64), np.dtype("u1"), None)
        if byte[0] == 0:
            return bytes(out)
        out.append(int(byte[0]))


def _string(machine: Machine, address: int) -> str:
    return _bytes_at(machine, address).decode(errors="replace")


@cache
def _snprintf() -> Any:
    """C's own, which the driver prints with as well."""
    function = ctypes.CDLL(None).snprintf
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p]
    return function


def _formatted(spec: bytes, values: list[Any]) -> bytes:
    """``sprintf(spec, *values)``."""
    size = 1 + int(_snprintf()(None, 0, spec, *values))
    out = ctypes.create_string_buffer(size)
    _snprintf()(out, size, spec, *values)
    return out.raw[: size - 1]


class _Arguments:
    """The arguments of a lane's ``printf``, read one after the other."""

    def __init__(self, machine: Machine, lane: int, address: int) -> None:
        self.machine, self.lane, self.address = machine, np.array([lane]), address
        self.count = 0

    def take(self, dtype: str) -> Any:
        size = np.dtype(dtype).itemsize
        start = -(-self.address // size) * size
        self.address, self.count = start + size, self.count + 1
        return self.machine.memory.load("generic", np.array([start], np.uint64), np.dtype(dtype), self.lane)[0].item()

    def convert(self, match: re.Match[bytes]) -> bytes:
        """The text of one conversion."""
        kind = match["kind"]
        if kind == b"%":
            return b"%"
        values: list[Any] = [ctypes.c_int(self.take("i4")) for _ in range(match[0].count(b"*"))]
        size = match["size"] or b""
        if kind in b"eEfFgGaA":
            values.append(ctypes.c_double(self.take("f8")))
            size = b""
        elif kind == b"s":
            values.append(ctypes.c_char_p(_bytes_at(self.machine, self.take("u8"))))
            size = b""
        elif kind == b"p":
            values.append(ctypes.c_void_p(self.take("u8")))
        elif kind != b"c" and size not in (b"", b"h", b"hh"):
            values.append(ctypes.c_longlong(self.take("i8")))
        else:
            values.append(ctypes.c_int(self.take("i4")))
            size = b"" if kind == b"c" else size
        spec = b"%" + match["flags"] + match["width"] + (match["precision"] or b"") + size + kind
        return _formatted(spec, values)


def vprintf(machine: Machine, lanes: np.ndarray, given: list[np.ndarray]) -> Any:
    """``int vprintf(const char* format, void* arguments)``: as C's, to the launch's output, in the order of lanes."""
    formats, arguments = (rows[:, :8].copy().view(np.uint64)[:, 0] for rows in given)
    counts = np.zeros(lanes.size, np.uint32)
    for position, lane in enumerate(lanes):
        taken = _Arguments(machine, int(lane), int(arguments[position]))
        text = _CONVERSION.sub(taken.convert, _bytes_at(machine, int(formats[position])))
        machine.output(text.decode(errors="replace"))
        counts[position] = taken.count
    return counts


def assertfail(machine: Machine, lanes: np.ndarray, given: list[np.ndarray]) -> Any:
    """A failed ``assert``: the first lane's message ends the launch."""
    message, file, function = (int(given[i][0, :8].copy().view(np.uint64)[0]) for i in (0, 1, 3))
    place = machine.placed(_string(machine, file), int(given[2][0, :4].copy().view(np.uint32)[0]))
    raise EmulationError(
        f"{place}: {_string(machine, function)}: {machine.name_of(int(lanes[0]))}: assertion "
        f"`{_string(machine, message)}` failed"
    )


def _wide(rows: np.ndarray) -> list[int]:
    """An argument of eight bytes, one a lane."""
    values: list[int] = rows[:, :8].copy().view(np.uint64)[:, 0].tolist()
    return values


def malloc(machine: Machine, lanes: np.ndarray, given: list[np.ndarray]) -> Any:
    """``void* malloc(size_t)``, and for ``new`` with an alignment; a null pointer where none is left."""
    heap = device_limits().heap
    machine.memory.add_heap(heap)
    aligns = _wide(given[1]) if len(given) > 1 else [1] * lanes.size
    blocks = [heap.take(size, align) for size, align in zip(_wide(given[0]), aligns, strict=True)]
    return np.array(blocks, np.uint64)


def free(machine: Machine, lanes: np.ndarray, given: list[np.ndarray]) -> Any:
    """``void free(void*)``."""
    for lane, address in zip(lanes, _wide(given[0]), strict=True):
        try:
            device_limits().heap.give_back(address)
        except EmulationError as error:
            raise EmulationError(f"{machine.name_of(int(lane))}: {error}") from None


#: What such a function is: of the machine, the lanes that call it and their arguments' bytes, what it returns.
Call: TypeAlias = Callable[[Machine, np.ndarray, list[Any]], Any]
#: Functions that a module may call without defining them.
CALLS: dict[str, Call] = {
    "vprintf": vprintf, "__assertfail": assertfail,
    "malloc": malloc, "__cuda_syscall_aligned_malloc": malloc, "free": free,
}  # fmt: skip


# ── stack ──


@instruction("alloca", "9.7.17.3")
def alloca(given: Instruction, context: Context) -> Step:
    kind = given.modifiers[0]
    target, size, *rest = given.operands
    align = rest[0].value if rest and isinstance(rest[0], Immediate) else 8
    write, read = context.write(target, kind), context.read(size, "u32")

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        # The stack grows up here, and is freed when the function returns.
        top = machine.local_top if index is None else machine.local_top[index]
        start = -(-top // align) * align
        machine.reserve_local(index, np.asarray(start - top + read(frame, index, machine).astype(np.int64)))
        write(frame, index, start)

    return step


@instruction("stacksave", "9.7.17.1")
def stacksave(given: Instruction, context: Context) -> Step:
    write = context.write(given.operands[0], given.modifiers[0])

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        write(frame, index, machine.local_top if index is None else machine.local_top[index])

    return step


@instruction("stackrestore", "9.7.17.2")
def stackrestore(given: Instruction, context: Context) -> Step:
    read = context.read(given.operands[0], given.modifiers[0])

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        machine.local_top[slice(None) if index is None else index] = read(frame, index, machine)

    return step
