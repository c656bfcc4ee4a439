"""What the system gives a kernel: printf, assertions, and memory on the stack (PTX ISA 9.7.17)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Step, instruction
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Immediate, Instruction
from cudakit.errors import EmulationError

_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d*)(?P<precision>\.\d+)?(?:hh|h|ll|l|z|t|j)?(?P<kind>[diouxXeEfgGaAcsp%])"
)


def _string(machine: Machine, address: int) -> str:
    """The zero-ended string at a generic address."""
    out = bytearray()
    while True:
        byte = machine.memory.load("generic", np.array([address + len(out)], np.uint64), np.dtype("u1"), None)
        if byte[0] == 0:
            return out.decode(errors="replace")
        out.append(int(byte[0]))


def _number(machine: Machine, lane: int, address: int, dtype: str) -> Any:
    where = np.array([address], np.uint64)
    return machine.memory.load("generic", where, np.dtype(dtype), np.array([lane]))[0]


def vprintf(machine: Machine, lanes: np.ndarray, given: list[np.ndarray]) -> Any:
    """``int vprintf(const char* format, void* arguments)``: as C's, to the launch's output, in the order of lanes."""
    formats, arguments = (rows[:, :8].copy().view(np.uint64)[:, 0] for rows in given)
    counts = np.zeros(lanes.size, np.uint32)
    for position, lane in enumerate(lanes):
        text = _string(machine, int(formats[position]))
        place = int(arguments[position])

        def item(match: re.Match[str], lane: int = int(lane), position: int = position) -> str:
            nonlocal place
            kind = match["kind"]
            if kind == "%":
                return "%"
            counts[position] += 1
            wide = kind in "eEfgGaAsp" or re.search("ll|l|z|t|j", match[0]) is not None
            size = 8 if wide else 4
            place = -(-place // size) * size
            address, place = place, place + size
            spec = f"%{match['flags']}{match['width']}{match['precision'] or ''}"
            if kind in "eEfgGaA":
                return (spec + ("f" if kind in "aA" else kind)) % float(_number(machine, lane, address, "f8"))
            if kind == "s":
                return (spec + "s") % _string(machine, int(_number(machine, lane, address, "u8")))
            if kind == "p":
                return f"{int(_number(machine, lane, address, 'u8')):#x}"
            if kind == "c":
                return chr(int(_number(machine, lane, address, "u4")) & 255)
            signed = kind in "di"
            value = int(_number(machine, lane, address, f"{'i' if signed else 'u'}{size}"))
            return (spec + ("d" if kind in "diu" else kind)) % value

        machine.output(_CONVERSION.sub(item, text))
    return counts


def assertfail(machine: Machine, lanes: np.ndarray, given: list[np.ndarray]) -> Any:
    """A failed ``assert``: the first lane's message ends the launch."""
    message, file, function = (int(given[i][0, :8].copy().view(np.uint64)[0]) for i in (0, 1, 3))
    place = machine.placed(_string(machine, file), int(given[2][0, :4].copy().view(np.uint32)[0]))
    raise EmulationError(
        f"{place}: {_string(machine, function)}: {machine.name_of(int(lanes[0]))}: assertion "
        f"`{_string(machine, message)}` failed"
    )


#: Functions that a module may call without defining them.
CALLS: dict[str, Callable[[Machine, np.ndarray, list[Any]], Any]] = {"vprintf": vprintf, "__assertfail": assertfail}


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
