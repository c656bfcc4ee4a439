"""Facts of PTX instructions: one table row an opcode, read by everything that asks about instructions.

A row holds for every instruction whose name begins with the row's name. A form that differs has a row of its own, with
the modifiers that make the form: ``bar.red`` is any ``bar`` or ``bar.cta`` with ``.red``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from cudakit.emulator.ptx.program import Group, Instruction, Operand, Register, registers_in

#: What an instruction does. ``computes``: writes a register from operands of its own lane, or of lanes of its warp.
#: ``accesses``: memory, at once. ``copies``: memory, asynchronously. ``sends``: a value, asynchronously.
#: ``commits``: groups asynchronous copies, or waits for them. ``maps``: tensor maps. ``discards``: memory's content.
#: ``signals``: an mbarrier. ``fences``: orders accesses. ``converges``: at a barrier of a warp.
#: ``waits``, ``arrives``: at a barrier of a block or a cluster. ``branches``, ``calls``.
#: ``leaves``: a function or the kernel. ``stops``: the kernel, as a fault. ``stack``: the thread's own stack.
#: ``hints``: changes no register and no memory.
Does: TypeAlias = Literal[
    "computes", "accesses", "copies", "sends", "commits", "maps", "discards", "signals", "fences", "converges", "waits",
    "arrives", "branches", "calls", "leaves", "stops", "stack", "hints", "",
]  # fmt: skip
#: In the order in which counters show them.
Category: TypeAlias = Literal[
    "load", "store", "atomic", "copy", "texture", "branch", "barrier", "warp", "tensor", "move", "convert", "compare",
    "logic", "special",
]  # fmt: skip
Use: TypeAlias = Literal["loads", "stores", "atomics", "copies"]


class Memory(NamedTuple):
    """Memory access of an instruction.

    Attributes
    ----------
    use : str
        Direction of the access; ``copies`` for an access that may go either way.
    address : int
        Index of the operand with the address of each lane. -1 if no operand has an address that could be watched:
        textures, fragments, descriptors, and asynchronous bulk copies.
    value, size : int
        Index of the operand whose elements are moved, and of the operand with the number of bytes; -1 for none.
    bytes : int
        Bytes a lane, if all forms move the same number.
    space : str
        State space, if all forms use the same; else the modifiers name the space.
    """

    use: Use
    address: int = -1
    value: int = -1
    size: int = -1
    bytes: int = 0
    space: str = ""


class Facts(NamedTuple):
    """Facts that hold for an instruction.

    Attributes
    ----------
    sections : str
        Sections of the PTX ISA that define the instruction.
    category : str
        Category in the counters; empty if the type decides.
    does : str
        Effect of the instruction, as `Does` lists them.
    result : tuple of type
        Class of the first operand if the instruction writes it; empty if it never does.
    updates : bool
        Whether the result is read before it is written.
    carry : bool
        Whether the carry flag is read. ``.cc`` says that the flag is written.
    memory : tuple of Memory
        Accesses to memory.
    warp : str
        Lanes of a warp that converge at the instruction: ``mask`` for the lanes in the last operand, or ``all``.
        ``active`` if the instruction reports the active lanes and waits for none.
    polls : bool
        Whether loops wait by the instruction for other threads.
    address : str
        Part in computing addresses: ``pointer`` if the result is a pointer when an operand is, or ``offset``.
    operations : int
        Floating-point operations for each number, if the type is a floating-point type.
    """

    sections: str
    category: Category | Literal[""] = ""
    does: Does = "computes"
    result: tuple[type[Operand], ...] = (Register, Group)
    updates: bool = False
    carry: bool = False
    memory: tuple[Memory, ...] = ()
    warp: Literal["", "mask", "all", "active"] = ""
    polls: bool = False
    address: Literal["", "pointer", "offset"] = ""
    operations: int = 0


_LOAD, _STORE = (Memory("loads", 1, value=0),), (Memory("stores", 0, value=1),)
_ROWS_READ, _ROWS_WRITTEN = (
    (Memory("loads", 1, bytes=16, space="shared"),),
    (Memory("stores", 0, bytes=16, space="shared"),),
)
_SMALL_COPY = (Memory("copies", 1, size=2, space="global"), Memory("copies", 0, size=2, space="shared"))
_TEXTURE = (Memory("loads", space="texture"),)

FACTS: dict[str, Facts] = {
    "add": Facts("9.7.1.1, 9.7.2.1, 9.7.3.3, 9.7.4.1", address="pointer", operations=1),
    "sub": Facts("9.7.1.2, 9.7.2.3, 9.7.3.4, 9.7.4.2", address="pointer", operations=1),
    "mul": Facts("9.7.1.3, 9.7.3.5, 9.7.4.3", address="offset", operations=1),
    "mad": Facts("9.7.1.4, 9.7.2.5, 9.7.3.7", address="pointer", operations=2),
    "mul24": Facts("9.7.1.5"),
    "mad24": Facts("9.7.1.6"),
    "sad": Facts("9.7.1.7"),
    "div": Facts("9.7.1.8, 9.7.3.8", "special", operations=1),
    "rem": Facts("9.7.1.9"),
    "abs": Facts("9.7.1.10, 9.7.3.9, 9.7.4.6"),
    "neg": Facts("9.7.1.11, 9.7.3.10, 9.7.4.5"),
    "min": Facts("9.7.1.12, 9.7.3.11, 9.7.4.7"),
    "max": Facts("9.7.1.13, 9.7.3.12, 9.7.4.8"),
    "popc": Facts("9.7.1.14", "logic"),
    "clz": Facts("9.7.1.15", "logic"),
    "bfind": Facts("9.7.1.16", "logic"),
    "fns": Facts("9.7.1.17", "logic"),
    "brev": Facts("9.7.1.18", "logic"),
    "bfe": Facts("9.7.1.19", "logic"),
    "bfi": Facts("9.7.1.20", "logic"),
    "szext": Facts("9.7.1.21", "convert"),
    "bmsk": Facts("9.7.1.22", "logic"),
    "dp4a": Facts("9.7.1.23"),
    "dp2a": Facts("9.7.1.24"),
    "addc": Facts("9.7.2.2", carry=True),
    "subc": Facts("9.7.2.4", carry=True),
    "madc": Facts("9.7.2.6", carry=True),
    "testp": Facts("9.7.3.1", "compare"),
    "copysign": Facts("9.7.3.2"),
    "fma": Facts("9.7.3.6, 9.7.4.4", operations=2),
    "rcp": Facts("9.7.3.13, 9.7.3.14", "special", operations=1),
    "sqrt": Facts("9.7.3.15", "special", operations=1),
    "rsqrt": Facts("9.7.3.16, 9.7.3.17", "special", operations=1),
    "sin": Facts("9.7.3.18", "special", operations=1),
    "cos": Facts("9.7.3.19", "special", operations=1),
    "lg2": Facts("9.7.3.20", "special", operations=1),
    "ex2": Facts("9.7.3.21, 9.7.4.10", "special", operations=1),
    "tanh": Facts("9.7.3.22, 9.7.4.9", "special", operations=1),
    "set": Facts("9.7.6.1, 9.7.7.1", "compare"),
    "setp": Facts("9.7.6.2, 9.7.7.2", "compare"),
    "selp": Facts("9.7.6.3", "move", address="pointer"),
    "slct": Facts("9.7.6.4", "move"),
    "and": Facts("9.7.8.1", "logic", address="offset"),
    "or": Facts("9.7.8.2", "logic", address="offset"),
    "xor": Facts("9.7.8.3", "logic", address="offset"),
    "not": Facts("9.7.8.4", "logic"),
    "cnot": Facts("9.7.8.5", "logic"),
    "lop3": Facts("9.7.8.6", "logic"),
    "shf": Facts("9.7.8.7", "logic"),
    "shl": Facts("9.7.8.8", "logic", address="offset"),
    "shr": Facts("9.7.8.9", "logic", address="offset"),
    "mov": Facts("9.7.9.3, 9.7.9.4", "move", address="pointer"),
    "shfl": Facts("9.7.9.5, 9.7.9.6", "warp", warp="mask"),
    "prmt": Facts("9.7.9.7", "logic"),
    "ld": Facts("9.7.9.8, 9.7.9.9", "load", "accesses", memory=_LOAD),
    "ldu": Facts("9.7.9.10", "load", "accesses", memory=_LOAD),
    "st": Facts("9.7.9.11", "store", "accesses", result=(), memory=_STORE),
    "st.async": Facts("9.7.9.12", "store", "sends", result=(), memory=(Memory("stores"),)),
    **dict.fromkeys(("prefetch", "prefetchu"), Facts("9.7.9.15", "copy", "hints", result=())),
    "applypriority": Facts("9.7.9.16", "copy", "hints", result=()),
    "discard": Facts("9.7.9.17", "copy", "discards", result=()),
    "createpolicy": Facts("9.7.9.18", "copy"),
    "isspacep": Facts("9.7.9.19", "move"),
    "cvta": Facts("9.7.9.20", "move", address="pointer"),
    "cvt": Facts("9.7.9.21, 9.7.9.22", "convert", address="pointer"),
    "mapa": Facts("9.7.9.23", "move"),
    "getctarank": Facts("9.7.9.24", "move"),
    "cp.async": Facts("9.7.9.25.3.1", "copy", "copies", result=(), memory=_SMALL_COPY),
    "cp.async.commit_group": Facts("9.7.9.25.3.2", "copy", "commits", result=()),
    **dict.fromkeys(("cp.async.wait_all", "cp.async.wait_group"), Facts("9.7.9.25.3.3", "copy", "commits", result=())),
    "cp.async.bulk": Facts("9.7.9.25.4.1", "copy", "copies", result=(), memory=(Memory("copies"),)),
    "cp.reduce.async.bulk": Facts("9.7.9.25.4.2", "copy", "copies", result=(), memory=(Memory("copies"),)),
    "cp.async.bulk.prefetch": Facts("9.7.9.25.4.3", "copy", "hints", result=()),
    "cp.async.bulk.tensor": Facts("9.7.9.27.1.2", "copy", "copies", result=(), memory=(Memory("copies"),)),
    "cp.reduce.async.bulk.tensor": Facts("9.7.9.27.1.3", "copy", "copies", result=(), memory=(Memory("copies"),)),
    "cp.async.bulk.prefetch.tensor": Facts("9.7.9.27.1.4", "copy", "hints", result=()),
    "cp.async.bulk.commit_group": Facts("9.7.9.27.2.1", "copy", "commits", result=()),
    "cp.async.bulk.wait_group": Facts("9.7.9.27.2.2", "copy", "commits", result=()),
    "tensormap.replace": Facts("9.7.9.28", "copy", "maps", result=(), memory=(Memory("copies"),)),
    "tex": Facts("9.7.10.3", "texture", "accesses", memory=_TEXTURE),
    "tld4": Facts("9.7.10.4", "texture", "accesses", memory=_TEXTURE),
    "txq": Facts("9.7.10.5", "texture"),
    "istypep": Facts("9.7.10.6"),
    "suld": Facts("9.7.11.1", "texture", "accesses", memory=_TEXTURE),
    "sust": Facts("9.7.11.2", "texture", "accesses", result=(), memory=(Memory("stores", space="texture"),)),
    "sured": Facts("9.7.11.3", "texture", "accesses", result=(), memory=(Memory("atomics", space="texture"),)),
    "suq": Facts("9.7.11.4", "texture"),
    "bra": Facts("9.7.12.3", "branch", "branches", result=()),
    "brx": Facts("9.7.12.4", "branch", "branches", result=()),
    "call": Facts("9.7.12.5", "branch", "calls", result=(Group,)),
    "ret": Facts("9.7.12.6", "branch", "leaves", result=()),
    "exit": Facts("9.7.12.7", "branch", "leaves", result=()),
    **dict.fromkeys(("bar", "barrier"), Facts("9.7.13.1", "barrier", "waits", result=())),
    **dict.fromkeys(("bar.arrive", "barrier.arrive"), Facts("9.7.13.1", "barrier", "arrives", result=())),
    **dict.fromkeys(("bar.red", "barrier.red"), Facts("9.7.13.1", "barrier", "waits")),
    **dict.fromkeys(("bar.warp", "barrier.warp"), Facts("9.7.13.2", "barrier", "converges", result=(), warp="mask")),
    "barrier.cluster.wait": Facts("9.7.13.3", "barrier", "waits", result=()),
    "barrier.cluster.arrive": Facts("9.7.13.3", "barrier", "arrives", result=()),
    **dict.fromkeys(("fence", "membar"), Facts("9.7.13.4", "barrier", "fences", result=())),
    "atom": Facts("9.7.13.5", "atomic", "accesses", memory=(Memory("atomics", 1, value=2),), polls=True),
    "red": Facts("9.7.13.6", "atomic", "accesses", result=(), memory=(Memory("atomics", 0, value=1),)),
    "red.async": Facts("9.7.13.7", "atomic", "sends", result=(), memory=(Memory("atomics"),)),
    "vote": Facts("9.7.13.8, 9.7.13.9", "warp", warp="mask"),
    "match": Facts("9.7.13.10", "warp", warp="mask"),
    "activemask": Facts("9.7.13.11", "warp", warp="active"),
    "redux": Facts("9.7.13.12", "warp", warp="mask"),
    "griddepcontrol": Facts("9.7.13.13", "barrier", "hints", result=()),
    "elect": Facts("9.7.13.14", "warp", warp="mask"),
    "mbarrier": Facts("9.7.13.15", "barrier", "signals"),
    "cp.async.mbarrier.arrive": Facts("9.7.13.15.15", "copy", "commits", result=()),
    **dict.fromkeys(
        ("mbarrier.test_wait", "mbarrier.try_wait"), Facts("9.7.13.15.16", "barrier", "signals", polls=True)
    ),
    "tensormap.cp_fenceproxy": Facts("9.7.13.16", "copy", "maps", result=(), memory=(Memory("copies"),)),
    "wmma.load": Facts("9.7.14.4.3", "tensor", "accesses", memory=(Memory("loads"),), warp="all"),
    "wmma.store": Facts("9.7.14.4.4", "tensor", "accesses", result=(), memory=(Memory("stores"),), warp="all"),
    "wmma": Facts("9.7.14.4.5", "tensor", warp="all"),
    "mma": Facts("9.7.14.5.14", "tensor", warp="all"),
    "ldmatrix": Facts("9.7.14.5.15", "load", "accesses", memory=_ROWS_READ, warp="all"),
    "stmatrix": Facts("9.7.14.5.16", "store", "accesses", result=(), memory=_ROWS_WRITTEN, warp="all"),
    "movmatrix": Facts("9.7.14.5.17", "tensor", warp="all"),
    "wgmma.mma_async": Facts("9.7.15.5.2", "tensor", "accesses", updates=True, memory=(Memory("loads"),), warp="all"),
    "wgmma": Facts("9.7.15.7.1, 9.7.15.7.2, 9.7.15.7.3", "tensor", "commits", result=(), warp="all"),
    "stacksave": Facts("9.7.17.1", "move", "stack"),
    "stackrestore": Facts("9.7.17.2", "move", "stack", result=()),
    "alloca": Facts("9.7.17.3", "move", "stack"),
    **dict.fromkeys(("vadd", "vsub", "vmin", "vmax", "vabsdiff"), Facts("9.7.18.1.1")),
    **dict.fromkeys(("vshl", "vshr"), Facts("9.7.18.1.2")),
    "vmad": Facts("9.7.18.1.3"),
    "vset": Facts("9.7.18.1.4"),
    **dict.fromkeys(("vadd2", "vsub2", "vmin2", "vmax2", "vabsdiff2", "vavrg2"), Facts("9.7.18.2.1")),
    "vset2": Facts("9.7.18.2.2"),
    **dict.fromkeys(("vadd4", "vsub4", "vmin4", "vmax4", "vabsdiff4", "vavrg4"), Facts("9.7.18.2.3")),
    "vset4": Facts("9.7.18.2.4"),
    "brkpt": Facts("9.7.19.1", "branch", "stops", result=()),
    "nanosleep": Facts("9.7.19.2", "barrier", "hints", result=(), polls=True),
    "pmevent": Facts("9.7.19.3", does="hints", result=()),
    "trap": Facts("9.7.19.4", "branch", "stops", result=()),
    "setmaxnreg": Facts("9.7.19.5", "barrier", "hints", result=()),
}
#: An instruction that the emulator does not know.
UNKNOWN = Facts("", does="")


def _forms(facts: Mapping[str, Facts]) -> dict[str, list[tuple[frozenset[str], Facts]]]:
    """Return the rows of each opcode with the modifiers in their names, most modifiers first."""
    forms: dict[str, list[tuple[frozenset[str], Facts]]] = {}
    for name in sorted(facts, key=lambda name: -name.count(".")):
        opcode, *modifiers = name.split(".")
        forms.setdefault(opcode, []).append((frozenset(modifiers), facts[name]))
    return forms


_FORMS = _forms(FACTS)
#: Qualifiers of an access that is strong (PTX ISA 8.4); one without is weak.
_STRONG = frozenset({"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"})


@lru_cache(4096)
def _facts(opcode: str, modifiers: tuple[str, ...]) -> Facts:
    """Return the row whose name has the opcode and the most modifiers, all of them in `modifiers`; else `UNKNOWN`."""
    return next((facts for form, facts in _FORMS.get(opcode, ()) if form.issubset(modifiers)), UNKNOWN)


def facts_of(instruction: Instruction) -> Facts:
    """Return the facts of an instruction: the row whose name has most of its modifiers; `UNKNOWN` without a row."""
    return _facts(instruction.opcode, instruction.modifiers)


def result_of(instruction: Instruction) -> Operand | None:
    """Return the operand that an instruction writes, which is the first; None if it writes no operand."""
    first = instruction.operands[0] if instruction.operands else None
    return first if isinstance(first, facts_of(instruction).result) else None


def targets(instruction: Instruction) -> list[str]:
    """Return names of the registers that an instruction writes."""
    result = result_of(instruction)
    if result is None:
        return []
    return [register.name for register in registers_in(result) if register.name != "_"]


def sources(instruction: Instruction) -> list[str]:
    """Return names of the registers that an instruction reads, also in its guard, and special registers."""
    operands, guard = instruction.operands, instruction.guard
    if result_of(instruction) is not None and not facts_of(instruction).updates:
        operands = operands[1:]
    names = [register.name for operand in operands for register in registers_in(operand)]
    return names if guard is None else [*names, guard[0].name]


def touches(instruction: Instruction) -> bool:
    """Return whether an instruction accesses memory lane by lane, synchronously, at an address in an operand."""
    facts = facts_of(instruction)
    return facts.does == "accesses" and facts.warp == "" and facts.memory[0].address >= 0


def is_atomic(instruction: Instruction) -> bool:
    """Return whether an instruction changes memory atomically."""
    return any(memory.use == "atomics" for memory in facts_of(instruction).memory)


def is_strong(instruction: Instruction) -> bool:
    """Return whether an access is strong: it races with no strong access of its scope.

    Atomic operations are strong.
    """
    return is_atomic(instruction) or not _STRONG.isdisjoint(instruction.modifiers)


def is_widely_strong(instruction: Instruction) -> bool:
    """Return whether an access is strong towards other kernels too: its scope is wider than a block or cluster."""
    return is_strong(instruction) and {"cta", "cluster"}.isdisjoint(instruction.modifiers)


def polls(instruction: Instruction) -> bool:
    """Return whether a loop may use an instruction to wait for other threads.

    True for a strong access with a result, and for rows with `polls`, such as ``nanosleep``.
    """
    facts = facts_of(instruction)
    return facts.polls or (facts.does == "accesses" and facts.result != () and is_strong(instruction))
