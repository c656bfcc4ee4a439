"""Registers that are several: what one instruction writes and others alone read gets a name of its own.

A compiler gives a loop's variable and what it begins with one register. What is made of the first before the loop would
then be taken for anything that the loop may leave there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from cudakit.emulator.compiled.flow import Flow
from cudakit.emulator.isa.facts import sources, targets
from cudakit.emulator.machine.decode import STORAGE
from cudakit.emulator.ptx.program import Address, Function, Group, Instruction, Operand, Register


def split(function: Function, origins: dict[int, Function]) -> None:
    """Rename in a function, whose instructions come from others by `origins`, by their ``id``."""
    written: dict[str, list[int]] = defaultdict(list)
    guarded = set[str]()
    for number, given in enumerate(function.code):
        for name in targets(given):
            written[name].append(number)
            if given.guard is not None:
                guarded.add(name)
    several = {
        name: numbers
        for name, numbers in written.items()
        if len(numbers) == len(set(numbers)) > 1 and name not in guarded and name in function.registers
    }
    if not several:
        return
    reading = _reached(function, several)
    names: dict[tuple[int, str], str] = {}
    copied: dict[int, list[str]] = defaultdict(list)
    for name, numbers in several.items():
        for number in numbers:
            uses = [use for use, found in reading[name].items() if number in found]
            alone = [use for use in uses if reading[name][use] == {number}]
            if not alone:
                continue
            new = f"{name}.{number}"
            function.registers[new] = function.registers[name]
            names[-1 - number, name] = new
            names.update({(use, name): new for use in alone})
            if len(alone) < len(uses):
                copied[number].append(name)
    _rewrite(function, origins, names, copied)


def _reached(function: Function, several: dict[str, list[int]]) -> dict[str, dict[int, set[int]]]:
    """By register, and by the instruction that reads it: those that may have written what it reads; -1 for none."""
    flow = Flow(function)
    bit = {(name, number): 1 << at for at, (name, number) in enumerate(
        (name, number) for name, numbers in several.items() for number in (-1, *numbers))}  # fmt: skip
    of = {name: sum(bit[name, number] for number in (-1, *numbers)) for name, numbers in several.items()}
    here: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for name, numbers in several.items():
        for number in numbers:
            here[number].append((name, bit[name, number]))

    def through(number: int, held: int) -> int:
        block = flow.blocks[number]
        for at in range(block.first, block.last):
            for name, one in here.get(at, ()):
                held = held & ~of[name] | one
        return held

    into = dict.fromkeys(flow.order, 0)
    into[0] = sum(bit[name, -1] for name in several)
    changed = True
    while changed:
        changed = False
        for number in flow.order:
            out = through(number, into[number])
            for after in flow.blocks[number].successors:
                if after != flow.end and out & ~into[after]:
                    into[after] |= out
                    changed = True
    found: dict[str, dict[int, set[int]]] = {name: {} for name in several}
    for number in flow.order:
        held = into[number]
        for at in range(flow.blocks[number].first, flow.blocks[number].last):
            for name in sources(function.code[at]):
                if name in several:
                    found[name][at] = {each for each in (-1, *several[name]) if held & bit[name, each]}
            for name, one in here.get(at, ()):
                held = held & ~of[name] | one
    return found


def _rewrite(
    function: Function, origins: dict[int, Function], names: dict[tuple[int, str], str], copied: dict[int, list[str]]
) -> None:
    code, moved = list[Instruction](), list[int]()
    for number, given in enumerate(function.code):
        moved.append(len(code))
        made = _renamed(given, number, names)
        if made is not given and id(given) in origins:
            origins[id(made)] = origins[id(given)]
        code.append(made)
        for name in copied.get(number, ()):
            kind = function.registers[name]
            kind = kind if kind == "pred" else f"b{8 * STORAGE[kind].itemsize}"
            operands = (Register(name), Register(names[-1 - number, name]))
            code.append(Instruction("mov", (kind,), operands, None, given.line, given.source))
            if id(given) in origins:
                origins[id(code[-1])] = origins[id(given)]
    moved.append(len(code))
    function.labels = {label: moved[number] for label, number in function.labels.items()}
    function.code[:] = code


def _renamed(given: Instruction, number: int, names: dict[tuple[int, str], str]) -> Instruction:
    written = set(targets(given))

    def operand(each: Operand, writes: bool) -> Operand:
        if isinstance(each, Register):
            return Register(names.get((-1 - number if writes else number, each.name), each.name))
        if isinstance(each, Address):
            base = operand(each.base, False)
            assert not isinstance(base, Address | Group)
            return Address(base, each.offset, tuple(operand(one, False) for one in each.coordinates))
        if isinstance(each, Group):
            return Group(each.kind, tuple(operand(one, writes) for one in each.items))
        return each

    operands = tuple(operand(each, place == 0 and bool(written)) for place, each in enumerate(given.operands))
    guard = given.guard and (operand(given.guard[0], False), given.guard[1])
    if operands == given.operands and guard == given.guard:
        return given
    return replace(given, operands=operands, guard=guard)  # type: ignore[arg-type]
