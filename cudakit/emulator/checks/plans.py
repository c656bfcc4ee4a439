"""What is to be done for each instruction that is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cudakit.emulator.instructions.access import Access, accesses_of, parts, space_of, type_of
from cudakit.emulator.isa.facts import Memory, facts_of, is_atomic, is_strong, touches
from cudakit.emulator.machine.decode import DTYPES, Context, Reader
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Address, Function, Instruction

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
    if facts.warp in ("named", "all"):
        is_masked = facts.warp == "named" and (facts.does == "meets" or "sync" in modifiers)
        mask = context.read(given.operands[-1], "u32") if is_masked else None
        return Plan(given, function, does="meeting", mask=mask)
    return None
