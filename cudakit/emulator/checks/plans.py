"""What is to be done for each instruction that is checked, as its text and its function tell.

Where the value of a load goes, and which parameter the address of a store comes from, are looked for here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cudakit.emulator.instructions.access import Access, accesses_of, parts, space_of, type_of
from cudakit.emulator.isa.facts import Memory, facts_of, is_atomic, is_strong, sources, targets, touches
from cudakit.emulator.machine.decode import CARRY, DTYPES, Context, Reader
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Address, Function, Instruction, Register, Symbol, registers_in


class Uses(NamedTuple):
    """Where a value goes.

    Attributes
    ----------
    writes : frozenset of int
        The stores and atomic operations that take it, by the numbers that Python has for them.
    is_conditional : bool
        Whether nothing else takes it, and each of these has a guard that does not depend on it: a thread may load it
        and use nothing of it.
    crosses : bool
        Whether other lanes of the warp are given it.
    is_data : bool
        Whether it goes anywhere else than into comparisons.
    """

    writes: frozenset[int]
    is_conditional: bool
    crosses: bool
    is_data: bool


class Values:
    """Where the values of a launch's loads go; looked for once an instruction.

    Attributes
    ----------
    watched : set of int
        The stores and atomic operations that take a value under a condition, by the numbers that Python has for them.
    are_conditional : bool
        Whether there is a load whose value may go unused.
    """

    watched: set[int]
    are_conditional: bool

    def __init__(self) -> None:
        self.watched, self.are_conditional = set(), False
        self._readers: dict[int, tuple[dict[str, list[Instruction]], bool]] = {}
        self._uses: dict[int, Uses] = {}

    def watch(self, load: Instruction, function: Function) -> None:
        """A load is about to run for the first time."""
        if self._of(function)[1] and (uses := self.of(load, function)).is_conditional:
            self.watched |= uses.writes
            self.are_conditional = True

    def of(self, load: Instruction, function: Function) -> Uses:
        """Where the value goes that an instruction loads."""
        uses = self._uses.get(id(load))
        if uses is None:
            readers = self._of(function)[0]
            sinks, names = _reached(load, readers, "")
            is_conditional = all(
                _stores(sink) and sink.guard is not None and sink.guard[0].name not in names for sink in sinks.values()
            )
            crosses = any(_crosses(reader) for name in names for reader in readers.get(name, ()))
            is_data = bool(_reached(load, readers, "setp")[0])
            uses = self._uses[id(load)] = Uses(frozenset(sinks), is_conditional, crosses, is_data)
        return uses

    def _of(self, function: Function) -> tuple[dict[str, list[Instruction]], bool]:
        """The instructions of a function that read a register, by its name, and whether some stores have guards."""
        known = self._readers.get(id(function))
        if known is None:
            readers: dict[str, list[Instruction]] = {}
            for instruction in function.code:
                for name in _read(instruction):
                    readers.setdefault(name, []).append(instruction)
            has_guards = any(_stores(each) and each.guard is not None for each in function.code)
            known = self._readers[id(function)] = readers, has_guards
        return known


def _reached(
    load: Instruction, readers: Mapping[str, list[Instruction]], end: str
) -> tuple[dict[int, Instruction], set[str]]:
    """Instructions other than those that only compute, and the registers that hold the value or depend on it."""
    rest = [each.name for each in registers_in(load.operands[0])]
    names, sinks = set(rest), dict[int, Instruction]()
    while rest:
        for instruction in readers.get(rest.pop(), ()):
            if instruction.opcode == end:
                continue
            is_result = facts_of(instruction).does == "computes"
            if not is_result:
                sinks[id(instruction)] = instruction
            if is_result or is_atomic(instruction):
                new = _written(instruction) - names
                names |= new
                rest += new
    return sinks, names


def _stores(instruction: Instruction) -> bool:
    facts = facts_of(instruction)
    return facts.does == "sends" or (touches(instruction) and facts.memory[0].use != "loads")


def _crosses(instruction: Instruction) -> bool:
    """Whether other lanes of the warp are given what an instruction reads."""
    facts = facts_of(instruction)
    return facts.does == "computes" and facts.warp in ("mask", "all")


def _written(instruction: Instruction) -> set[str]:
    return {*targets(instruction), CARRY.name} if "cc" in instruction.modifiers else set(targets(instruction))


def _read(instruction: Instruction) -> set[str]:
    return {*sources(instruction), CARRY.name} if facts_of(instruction).carry else set(sources(instruction))


#: Bytes of a grain at the most.
_COARSE = 4


@dataclass(slots=True)
class Plan:
    """What is to be done for an instruction."""

    given: Instruction
    function: Function
    accesses: tuple[Access, ...] = ()
    #: Whether others of some scope may meet it without a race; of a narrow one too, to tell no race that is none.
    strong: bool = False
    #: Whether it orders what came before it.
    releases: bool = False
    #: Of what reads: whether what comes after it in its thread comes after what it is told of.
    acquires: bool = False
    #: ``barrier``, ``meeting``, ``fence``, ``wait``, ``copy``, ``exit``, or ``arrive`` and ``join`` of a cluster's
    #: barrier; empty for an access.
    does: str = ""
    #: Of accesses: whether they order for their own block only. Atomic operations acquire from all.
    narrow: bool = False
    is_volatile: bool = False
    #: Of fences: whether for the whole device. Of barriers: whether for all threads of a block.
    whole: bool = True
    #: Of barriers: whether all lanes of a warp must come to the same one.
    aligned: bool = False
    #: Of barriers that count threads, and whether these go on at once.
    number: Reader | None = None
    arrives: bool = False
    mask: Reader | None = None
    #: What a store stores, one by one.
    values: tuple[Reader, ...] = ()
    is_of_a_library: bool = False
    #: Bytes of an element of what is accessed; 0 where that is not known.
    itemsize: int = 0
    #: The parameter through which it writes although that is const, if there is one.
    constant: str = ""

    @property
    def is_atomic(self) -> bool:
        """Whether it is an atomic operation."""
        return is_atomic(self.given)

    @property
    def is_of_read_only(self) -> bool:
        """Whether it is a load of what nobody may write while the kernel runs."""
        return self.given.opcode == "ld" and "nc" in self.given.modifiers

    def needs_written(self, access: Access) -> bool:
        """Whether an access reads what somebody must have written; an exchange only hands on what it reads."""
        return access.use != "stores" and not self.is_of_a_library and "exch" not in self.given.modifiers

    def stored(self, frame: Frame, lanes: np.ndarray, machine: Machine) -> np.ndarray:
        """The bytes that a store stores, (lanes, bytes)."""
        values = [np.broadcast_to(np.asarray(value(frame, lanes, machine)), lanes.shape) for value in self.values]
        return np.hstack([np.ascontiguousarray(each).view(np.uint8).reshape(lanes.size, -1) for each in values])

    @staticmethod
    def nowhere(frame: Frame, index: Index, machine: Machine) -> Any:
        """In place of addresses, where these are known in another way."""


def _is_of_a_library(given: Instruction) -> bool:
    """Whether a line of a header is at work, which may read more than it uses, as CUB does."""
    innermost = own = given.source
    while own is not None and own.caller is not None:
        own = own.caller
    return innermost is not None and own is not None and innermost.file != own.file


def looked_at(module: Module, is_cluster: bool) -> tuple[int, bool]:
    """Bytes of the narrowest access of a module, and whether it writes shared memory in ways that are not seen.

    Asynchronous copies of clusters are not.
    """
    grain, unseen = _COARSE, False
    for function in module.program.functions.values():
        for given in function.code:
            facts = facts_of(given)
            if touches(given) and space_of(given) not in ("param", "const", "local"):
                grain = min(grain, DTYPES[type_of(given)].itemsize)
            unseen = unseen or any(map(_is_unseen, facts.memory)) or (is_cluster and facts.does == "copies")
    return grain, unseen


def _is_unseen(memory: Memory) -> bool:
    return memory.address < 0 and memory.use in ("stores", "atomics") and memory.space == ""


def plan_of(given: Instruction, function: Function, context: Context) -> Plan | None:
    """What is to be done for an instruction; None where nothing is."""
    facts, modifiers = facts_of(given), given.modifiers
    match facts.does:
        case "waits" | "arrives" if "cluster" in modifiers:
            does = "arrive" if facts.does == "arrives" else "join"
            return Plan(given, function, does=does, releases="relaxed" not in modifiers)
        case "waits" | "arrives":
            operands = given.operands[1:-1] if facts.result else given.operands
            counted, arrives = len(operands) > 1, facts.does == "arrives"
            return Plan(
                given,
                function,
                does="barrier",
                whole=not counted and not arrives,
                number=context.read(operands[0], "u32") if counted else None,
                arrives=arrives,
                aligned=given.opcode == "bar" or "aligned" in modifiers,
            )
        case "fences":
            return Plan(given, function, does="fence", whole="cta" not in modifiers)
        case "signals":
            # Whoever makes it stores it, and all others only need that: by waiting they are ordered.
            makes, space = modifiers[0] in ("init", "inval"), space_of(given)
            words = tuple(
                Access(space, context.address(operand, space), 8, "stores" if makes else "loads")
                for operand in given.operands
                if isinstance(operand, Address)
            )
            does = "wait" if facts.polls else "fence"
            return Plan(given, function, words, strong=not makes, does=does, is_of_a_library=True)
        case "leaves":
            return Plan(given, function, does="exit")
        case "copies":
            return Plan(given, function, does="copy", is_of_a_library=_is_of_a_library(given))
    accesses = accesses_of(given, context)
    if accesses:
        memory = facts.memory[0]
        stored = parts(given.operands[memory.value]) if memory.use == "stores" and memory.value >= 0 else ()
        return Plan(
            given,
            function,
            accesses,
            is_strong(given),
            memory.use != "loads" and not {"release", "acq_rel", "acquire"}.isdisjoint(modifiers),
            is_atomic(given) or "acquire" in modifiers,
            values=tuple(context.read(each, type_of(given)) for each in stored),
            is_of_a_library=_is_of_a_library(given),
            narrow="cta" in modifiers,
            is_volatile="volatile" in modifiers,
            itemsize=DTYPES[type_of(given)].itemsize if touches(given) else 0,
        )
    if facts.warp in ("mask", "all"):
        is_masked = facts.warp == "mask" and (facts.does == "converges" or "sync" in modifiers)
        mask = context.read(given.operands[-1], "u32") if is_masked else None
        return Plan(given, function, does="meeting", mask=mask)
    return None


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
