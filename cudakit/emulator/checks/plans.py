"""Plans: how the checker handles each instruction, by the instruction's text and its function.

The module also finds where the value of a load goes, and from which parameter the address of a store comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cudakit.emulator.instructions.access import Access, accesses_of, parts, space_of, type_of
from cudakit.emulator.instructions.control import STREAM_MAKERS
from cudakit.emulator.isa.facts import Memory, facts_of, is_atomic, is_strong, sources, targets, touches
from cudakit.emulator.machine.decode import CARRY, DTYPES, Context, Reader
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Address, Function, Instruction, Register, Symbol, registers_in, symbols_in


class Uses(NamedTuple):
    """Uses of the value of a load.

    Attributes
    ----------
    writes : frozenset of int
        Stores and atomic operations that take the value, by the ``id`` of the instruction.
    is_conditional : bool
        Whether only `writes` take the value, each with a guard that does not depend on the value. A thread may then
        load the value without a use.
    crosses : bool
        Whether other lanes of the warp receive the value.
    is_data : bool
        Whether the value goes anywhere else than into comparisons.
    """

    writes: frozenset[int]
    is_conditional: bool
    crosses: bool
    is_data: bool


class Values:
    """Uses of the values of a launch's loads, computed once an instruction.

    Attributes
    ----------
    watched : set of int
        Stores and atomic operations that take a value under a condition, by the ``id`` of the instruction.
    are_conditional : bool
        Whether a load has a value that may go unused.
    """

    watched: set[int]
    are_conditional: bool

    def __init__(self) -> None:
        self.watched, self.are_conditional = set(), False
        self._readers: dict[int, tuple[dict[str, list[Instruction]], bool]] = {}
        self._uses: dict[int, Uses] = {}

    def watch(self, load: Instruction, function: Function) -> None:
        """Add the instructions that use a load's value to `watched`, if the value may go unused.

        Call it before the load runs for the first time.
        """
        if self._readers_of(function)[1] and (uses := self.uses_of(load, function)).is_conditional:
            self.watched |= uses.writes
            self.are_conditional = True

    def uses_of(self, load: Instruction, function: Function) -> Uses:
        """Return the uses of the value of a load."""
        uses = self._uses.get(id(load))
        if uses is None:
            readers = self._readers_of(function)[0]
            sinks, names = _reached(load, readers, "")
            is_conditional = all(
                _stores(sink) and sink.guard is not None and sink.guard[0].name not in names for sink in sinks.values()
            )
            crosses = any(_crosses(reader) for name in names for reader in readers.get(name, ()))
            is_data = bool(_reached(load, readers, "setp")[0])
            uses = self._uses[id(load)] = Uses(frozenset(sinks), is_conditional, crosses, is_data)
        return uses

    def _readers_of(self, function: Function) -> tuple[dict[str, list[Instruction]], bool]:
        """Return the instructions that read each register of a function, and whether any of its stores has a guard."""
        entry = self._readers.get(id(function))
        if entry is None:
            readers: dict[str, list[Instruction]] = {}
            for instruction in function.code:
                for name in _read(instruction):
                    readers.setdefault(name, []).append(instruction)
            has_guards = any(_stores(instr) and instr.guard is not None for instr in function.code)
            entry = self._readers[id(function)] = readers, has_guards
        return entry


def _reached(
    load: Instruction, readers: Mapping[str, list[Instruction]], end: str
) -> tuple[dict[int, Instruction], set[str]]:
    """Return the instructions that a loaded value reaches, by their ``id``, and the registers that depend on the value.

    `readers` has the instructions that read each register. Instructions that only compute with the value are not in the
    result, but are followed further. Instructions with the opcode `end` are not followed; an empty `end` excludes none.
    """
    rest = [register.name for register in registers_in(load.operands[0])]
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
    """Return whether other lanes of the warp receive the values that an instruction reads."""
    facts = facts_of(instruction)
    return facts.does == "computes" and facts.warp in ("mask", "all")


def _written(instruction: Instruction) -> set[str]:
    return {*targets(instruction), CARRY.name} if "cc" in instruction.modifiers else set(targets(instruction))


def _read(instruction: Instruction) -> set[str]:
    return {*sources(instruction), CARRY.name} if facts_of(instruction).carry else set(sources(instruction))


#: Most bytes of a grain.
_COARSE = 4


@dataclass(slots=True)
class Plan:
    """Plan of the checker for one instruction: its accesses, and its effect on the order of threads."""

    instr: Instruction
    function: Function
    accesses: tuple[Access, ...] = ()
    #: Whether the access is strong. A strong access of a narrow scope counts too, so that no false race is reported.
    strong: bool = False
    #: Whether the access is a release.
    releases: bool = False
    #: Of reads: whether the access is an acquire.
    acquires: bool = False
    #: ``barrier``, ``collective``, ``fence``, ``wait``, ``copy``, ``exit``, or ``arrive`` and ``join`` of a cluster's
    #: barrier; empty for an access.
    does: str = ""
    #: Of accesses: whether the scope is the block. Atomic operations acquire from all blocks.
    narrow: bool = False
    is_volatile: bool = False
    #: Of fences: whether the scope is the device. Of barriers: whether all threads of a block take part.
    whole: bool = True
    #: Of barriers: whether all lanes of a warp must reach the same one.
    aligned: bool = False
    #: Of barriers that count threads: the barrier's number, and whether threads arrive without a wait.
    number: Reader | None = None
    arrives: bool = False
    mask: Reader | None = None
    #: Values that a store stores.
    values: tuple[Reader, ...] = ()
    is_of_a_library: bool = False
    #: Bytes of an accessed element; 0 where the size is not known.
    itemsize: int = 0
    #: The const parameter through which the instruction writes, or an empty string.
    constant: str = ""

    @property
    def is_atomic(self) -> bool:
        """True if the instruction is an atomic operation."""
        return is_atomic(self.instr)

    @property
    def is_of_read_only(self) -> bool:
        """True if the instruction is a load with ``.nc``: of global memory that nothing writes while the kernel runs.

        Loads of constant memory and of parameters do not count.
        """
        return self.instr.opcode == "ld" and "nc" in self.instr.modifiers

    def needs_written(self, access: Access) -> bool:
        """Return whether an access reads memory that must have been written before.

        The result is False for stores, for exchanges, which only pass on the value that they read, and for library
        code.
        """
        return access.use != "stores" and not self.is_of_a_library and "exch" not in self.instr.modifiers

    def stored(self, frame: Frame, lanes: np.ndarray, machine: Machine) -> np.ndarray:
        """Return the bytes that a store writes, (lanes, bytes)."""
        values = [np.broadcast_to(np.asarray(value(frame, lanes, machine)), lanes.shape) for value in self.values]
        return np.hstack([np.ascontiguousarray(column).view(np.uint8).reshape(lanes.size, -1) for column in values])

    @staticmethod
    def nowhere(frame: Frame, index: Index, machine: Machine) -> Any:
        """Return None. Stand in for a function that returns addresses, where the addresses come from elsewhere."""


def _is_of_a_library(instr: Instruction) -> bool:
    """Return whether an instruction comes from a header: its line is in another file than the line where it is inlined.

    Libraries such as CUB may read more than they use.
    """
    innermost = own = instr.source
    while own is not None and own.caller is not None:
        own = own.caller
    return innermost is not None and own is not None and innermost.file != own.file


def scan_module(module: Module, is_cluster: bool) -> tuple[int, bool]:
    """Return the bytes of a module's narrowest access, and whether it writes shared memory in ways unseen by checks.

    Asynchronous copies in clusters are unseen.
    """
    grain, unseen = _COARSE, False
    for function in module.program.functions.values():
        for instr in function.code:
            facts = facts_of(instr)
            if touches(instr) and space_of(instr) not in ("param", "const", "local"):
                grain = min(grain, DTYPES[type_of(instr)].itemsize)
            unseen = unseen or any(map(_is_unseen, facts.memory)) or (is_cluster and facts.does == "copies")
    return grain, unseen


def _is_unseen(memory: Memory) -> bool:
    return memory.address < 0 and memory.use in ("stores", "atomics") and memory.space == ""


def plan_of(instr: Instruction, function: Function, context: Context) -> Plan | None:
    """Return the plan of the checker for an instruction; None if the checker ignores it."""
    facts, modifiers = facts_of(instr), instr.modifiers
    match facts.does:
        case "waits" | "arrives" if "cluster" in modifiers:
            does = "arrive" if facts.does == "arrives" else "join"
            return Plan(instr, function, does=does, releases="relaxed" not in modifiers)
        case "waits" | "arrives":
            operands = instr.operands[1:-1] if facts.result else instr.operands
            counted, arrives = len(operands) > 1, facts.does == "arrives"
            return Plan(
                instr,
                function,
                does="barrier",
                whole=not counted and not arrives,
                number=context.read(operands[0], "u32") if counted else None,
                arrives=arrives,
                aligned=instr.opcode == "bar" or "aligned" in modifiers,
            )
        case "fences":
            return Plan(instr, function, does="fence", whole="cta" not in modifiers)
        case "signals":
            # Initialising an mbarrier counts as a store, any other operation as a load: waiting orders the threads.
            makes, space = modifiers[0] in ("init", "inval"), space_of(instr)
            words = tuple(
                Access(space, context.address(operand, space), 8, "stores" if makes else "loads")
                for operand in instr.operands
                if isinstance(operand, Address)
            )
            does = "wait" if facts.polls else "fence"
            return Plan(instr, function, words, strong=not makes, does=does, is_of_a_library=True)
        case "leaves":
            return Plan(instr, function, does="exit")
        case "copies":
            return Plan(instr, function, does="copy", is_of_a_library=_is_of_a_library(instr))
    if instr.opcode == "call":
        return _plan_of_call(instr, function)
    accesses = accesses_of(instr, context)
    if accesses:
        memory = facts.memory[0]
        stored = parts(instr.operands[memory.value]) if memory.use == "stores" and memory.value >= 0 else ()
        return Plan(
            instr,
            function,
            accesses,
            is_strong(instr),
            memory.use != "loads" and not {"release", "acq_rel", "acquire"}.isdisjoint(modifiers),
            is_atomic(instr) or "acquire" in modifiers,
            values=tuple(context.read(operand, type_of(instr)) for operand in stored),
            is_of_a_library=_is_of_a_library(instr),
            narrow="cta" in modifiers,
            is_volatile="volatile" in modifiers,
            itemsize=DTYPES[type_of(instr)].itemsize if touches(instr) else 0,
        )
    if facts.warp in ("mask", "all"):
        is_masked = facts.warp == "mask" and (facts.does == "converges" or "sync" in modifiers)
        mask = context.read(instr.operands[-1], "u32") if is_masked else None
        return Plan(instr, function, does="collective", mask=mask)
    return None


def _plan_of_call(instr: Instruction, function: Function) -> Plan | None:
    """Return the plan of a call with which the device runtime writes a stream's handle; None for other calls."""
    *_, target, arguments = [instr, *instr.operands]
    if not isinstance(target, Symbol) or target.name not in STREAM_MAKERS:
        return None
    variable = next(symbol.name for symbol in symbols_in(arguments))

    def address(frame: Frame, index: Index, machine: Machine) -> Any:
        rows = frame.parameters[variable][slice(None) if index is None else index, :8]
        return np.ascontiguousarray(rows).view(np.uint64)[:, 0]

    return Plan(instr, function, (Access("generic", address, 8, "stores"),), itemsize=8)


def origins(function: Function, pointers: Mapping[str, bool]) -> dict[int, str]:
    """Return the name of the const parameter through which an instruction writes, by the instruction's ``id``.

    `pointers` has each parameter that may be a pointer, and whether it is a pointer to const. An instruction is
    included if its address comes from one const parameter and no other pointer. Addresses that are loaded, or returned
    by a call, are not followed.
    """
    origin_names: dict[str, set[str]] = {}
    for instr in function.code:
        # A pointer is loaded from its parameter first; the loop below follows it to other registers.
        if instr.opcode == "ld" and "param" in instr.modifiers and isinstance(instr.operands[1], Address):
            target, base = instr.operands[0], instr.operands[1].base
            if isinstance(target, Register) and isinstance(base, Symbol) and base.name in pointers:
                origin_names.setdefault(target.name, set()).add(base.name)
    changed = bool(origin_names)
    while changed:
        changed = False
        for instr in function.code:
            if facts_of(instr).address == "pointer" and isinstance(target := instr.operands[0], Register):
                incoming = set[str]().union(*(origin_names.get(name, ()) for name in sources(instr)))
                current = origin_names.setdefault(target.name, set()) if incoming else incoming
                if not incoming <= current:
                    current |= incoming
                    changed = True
    written = {}
    for instr in function.code:
        if not touches(instr):
            continue
        memory = facts_of(instr).memory[0]
        if memory.use != "loads" and isinstance(address := instr.operands[memory.address], Address):
            names = {name for register in registers_in(address) for name in origin_names.get(register.name, ())}
            if len(names) == 1 and pointers[name := names.pop()]:
                written[id(instr)] = name
    return written
