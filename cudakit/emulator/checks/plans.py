"""What is to be done for each instruction that is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cudakit.emulator.instructions.access import parts, space_of, type_of
from cudakit.emulator.instructions.accesses import Access, accesses_of
from cudakit.emulator.isa.facts import is_strong
from cudakit.emulator.machine.context import DTYPES, Context, Reader
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Function, Instruction

_ACCESSES = frozenset({"ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix"})
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
            if given.opcode in ("ld", "st", "atom", "red") and space_of(given) not in ("param", "const", "local"):
                grain = min(grain, DTYPES[type_of(given)].itemsize)
            copies = ("st", "red", "cp") if is_cluster else ("st", "red")
            by_copy = given.opcode in copies and "async" in given.modifiers
            unseen = unseen or by_copy or (given.opcode == "wmma" and given.modifiers[0] == "store")
    return grain, unseen


def plan_of(given: Instruction, function: Function, context: Context) -> Plan | None:
    """What is to be done for an instruction; None where nothing is."""
    modifiers = given.modifiers
    match given.opcode:
        case "bar" | "barrier" if "warp" in modifiers:
            return Plan(given, function, does="meeting", mask=context.read(given.operands[0], "u32"))
        case "bar" | "barrier" if "cluster" not in modifiers:
            operands = given.operands[1:-1] if "red" in modifiers else given.operands
            counted, arrives = len(operands) > 1, "arrive" in modifiers
            return Plan(
                given,
                function,
                does="barrier",
                whole=not counted and not arrives,
                number=context.read(operands[0], "u32") if counted else None,
                arrives=arrives,
                aligned=given.opcode == "bar" or "aligned" in modifiers,
            )
        case "barrier":
            does = "arrive" if "arrive" in modifiers else "join"
            return Plan(given, function, does=does, releases="relaxed" not in modifiers)
        case "membar" | "fence":
            return Plan(given, function, does="fence", whole="cta" not in modifiers)
        case "mbarrier":
            return Plan(given, function, does="wait" if {"test_wait", "try_wait"} & set(modifiers) else "fence")
        case "exit" | "ret":
            return Plan(given, function, does="exit")
        case "mma" | "wmma" | "movmatrix":
            return Plan(given, function, does="meeting")
        case "shfl" | "vote" | "match" | "redux" | "elect":
            masked = "sync" in modifiers
            return Plan(
                given, function, does="meeting", mask=context.read(given.operands[-1], "u32") if masked else None
            )
        case "cp" if "async" in modifiers:
            if {"commit_group", "wait_group", "wait_all", "mbarrier", "prefetch"} & set(modifiers):
                return None
            return Plan(given, function, does="copy", is_of_a_library=_is_of_a_library(given))
        case opcode if opcode in _ACCESSES:
            accesses = accesses_of(given, context)
            if not accesses:
                return None
            strong = is_strong(given)
            releases = not {"release", "acq_rel", "acquire"}.isdisjoint(modifiers) and opcode != "ld"
            values: tuple[Reader, ...] = ()
            if opcode == "st":
                values = tuple(context.read(each, type_of(given)) for each in parts(given.operands[1]))
            return Plan(
                given,
                function,
                accesses,
                strong,
                releases,
                opcode in ("atom", "red") or "acquire" in modifiers,
                values=values,
                is_of_a_library=_is_of_a_library(given),
                narrow="cta" in modifiers,
                is_volatile="volatile" in modifiers,
                itemsize=DTYPES[type_of(given)].itemsize if opcode in ("ld", "st", "atom", "red") else 0,
            )
    return None
