"""Stores through parameters that are const: which parameter of a kernel the address of each store comes from."""

from __future__ import annotations

from collections.abc import Mapping

from cudakit.emulator.isa.facts import facts_of, sources, touches
from cudakit.emulator.ptx.program import Address, Function, Register, Symbol, registers_in


def origins(function: Function, pointers: Mapping[str, bool]) -> dict[int, str]:
    """Of each instruction that writes memory through one parameter that is const, and no other pointer: its name.

    By the number that Python has for the instruction. `pointers` says of each parameter that may be one whether it is
    const. What is loaded, or returned by a call, is followed no further.
    """
    found: dict[str, set[str]] = {}
    for given in function.code:
        # A pointer is loaded from its parameter before it is used, and the rest follows by repetition.
        if given.opcode == "ld" and "param" in given.modifiers and isinstance(given.operands[1], Address):
            target, base = given.operands[0], given.operands[1].base
            if isinstance(target, Register) and isinstance(base, Symbol) and base.name in pointers:
                found.setdefault(target.name, set()).add(base.name)
    changed = bool(found)
    while changed:
        changed = False
        for given in function.code:
            if facts_of(given).address == "pointer" and isinstance(target := given.operands[0], Register):
                come = set[str]().union(*(found.get(name, ()) for name in sources(given)))
                held = found.setdefault(target.name, set()) if come else come
                if not come <= held:
                    held |= come
                    changed = True
    written = {}
    for given in function.code:
        if not touches(given):
            continue
        memory = facts_of(given).memory[0]
        if memory.use != "loads" and isinstance(address := given.operands[memory.address], Address):
            names = {name for each in registers_in(address) for name in found.get(each.name, ())}
            if len(names) == 1 and pointers[name := names.pop()]:
                written[id(given)] = name
    return written
