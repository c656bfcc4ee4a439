"""Memory that a kernel uses on a GPU: reachable functions, stack frames, shared variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from cudakit.emulator.isa.facts import facts_of, sources, targets
from cudakit.emulator.ptx.program import (
    Function,
    Immediate,
    Instruction,
    Pointer,
    Program,
    Register,
    Symbol,
    Variable,
    symbols_in,
)


def reachable(program: Program, function: Function) -> list[Function]:
    """Return a function and the device functions that it may call, directly or not.

    A function counts if code calls it by name. If code calls through a pointer, or takes a function's address, every
    function counts whose address the program takes. ptxas counts in the same way.
    """
    if all(other.is_entry for other in program.functions.values()):
        return [function]
    reached, open_ = {function.name: function}, [function]
    pointees: set[str] | None = None
    while open_:
        code = open_.pop()
        callees = _callees(code)
        if pointees is None and ("" in callees or _functions(program, _addresses(program, code))):
            pointees = _address_taken(program)
            callees += sorted(pointees)
        for name in callees:
            callee = program.functions.get(name)
            if callee is not None and not callee.is_entry and callee.name not in reached:
                reached[callee.name] = callee
                open_.append(callee)
    return list(reached.values())


def names_in(function: Function) -> Iterator[str]:
    """Yield names of variables, functions and labels in a function's code."""
    for instr in function.code:
        for operand in instr.operands:
            if not isinstance(operand, Register | Immediate):  # most are, and have no symbols
                for symbol in symbols_in(operand):
                    yield symbol.name


def recurses(program: Program, entry: Function) -> bool:
    """Return whether `entry`, or any function that it may call, may call itself; a call through a pointer counts."""
    graph, open_ = dict[str, list[str]](), [entry.name]
    while open_:
        name = open_.pop()
        if name not in graph and name in program.functions:
            graph[name] = _callees(program.functions[name])
            open_ += graph[name]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return any("" in callees for callees in graph.values())


def _callees(function: Function) -> list[str]:
    """Return names of the functions that `function` calls; an empty name for a call through a pointer."""
    names = []
    for instr in function.code:
        if instr.opcode == "call":
            # Results in brackets may stand before the function.
            target = next((item for item in instr.operands[:2] if isinstance(item, Symbol | Register)), None)
            names.append(target.name if isinstance(target, Symbol) else "")
    return names


def _address_taken(program: Program) -> set[str]:
    """Return names of device functions whose address the program takes, in code or in a variable's initialiser."""
    names = {name for variable in program.variables for name in _initialiser(program, variable)}
    for function in program.functions.values():
        names |= _addresses(program, function)
    return _functions(program, names)


def _functions(program: Program, names: set[str]) -> set[str]:
    """Return the names of device functions among `names`."""
    return {name for name in names if name in program.functions and not program.functions[name].is_entry}


def _addresses(program: Program, function: Function) -> set[str]:
    """Return the names whose address a function takes, in its code or in the initialisers of variables named there."""
    # A call by name takes no address.
    operands = [operand for instr in function.code if instr.opcode != "call" for operand in instr.operands]
    open_ = [symbol.name for operand in operands for symbol in symbols_in(operand)]
    names = set[str]()
    while open_:
        name = open_.pop()
        if name not in names:
            names.add(name)
            open_ += _initialiser(program, name)
    return names


def _initialiser(program: Program, variable: str) -> list[str]:
    """Return names of variables and functions whose addresses are in a variable's initialiser."""
    entry = program.variables.get(variable)
    return [] if entry is None else [item.symbol.name for _, item in entry.data if isinstance(item, Pointer)]


# ── stack ──
#
# A stack frame holds the function's own variables. A function that calls others also saves the return address, and
# registers that are live after the call. ptxas chooses which registers it saves. For seven recursive functions with
# frames of 16 to 320 bytes on sm_90, this estimate was five sixths to six fifths of ptxas's frame.

#: Words of 4 bytes for the return address and for the saved stack register.
_RETURN_WORDS = 3
#: Registers that take no register in machine code: the stack pointers.
_FREE = frozenset({"%SP", "%SPL"})


def frame_bytes(function: Function, local_bytes: int) -> int:
    """Estimate the bytes of a function's stack frame. Parameters are not included.

    The frame holds the local variables, of `local_bytes` bytes. A function that makes calls also saves the return words
    and the registers in use over its calls. The result is then rounded up to a multiple of 8.
    """
    calls = [code for code, instr in enumerate(function.code) if instr.opcode == "call"]
    if not calls:
        return local_bytes
    words = {
        name: max(1, int("".join(filter(str.isdigit, type_name.partition("x")[0]))) // 32)
        for name, type_name in function.registers.items()
        if type_name != "pred" and name not in _FREE
    }
    numbers = {name: number for number, name in enumerate(words)}
    saved = 0
    live = _live_after(function, numbers)
    for code in calls:
        saved |= live[code]
    total = _RETURN_WORDS + sum(count for name, count in words.items() if saved >> numbers[name] & 1)
    return -(-(local_bytes + 4 * total) // 8) * 8


def _live_after(function: Function, numbers: dict[str, int]) -> list[int]:
    """Return the registers that are live after each instruction, as a bit set by register number."""
    rows = []
    for code, instr in enumerate(function.code):
        written = _bits(targets(instr), numbers) if instr.guard is None else 0
        rows.append((_bits(sources(instr), numbers), written, tuple(_next(function, code, instr))))
    live, after, changed = [0] * (len(rows) + 1), [0] * len(rows), True
    while changed:
        changed = False
        for code in range(len(rows) - 1, -1, -1):
            read, written, following = rows[code]
            out = 0
            for other in following:
                out |= live[other]
            after[code], before = out, read | out & ~written
            if before != live[code]:
                live[code], changed = before, True
    return after


def _bits(names: Iterable[str], numbers: dict[str, int]) -> int:
    """Return a bit set of the numbers that registers' names have in `numbers`."""
    return sum(1 << numbers[name] for name in {*names} if name in numbers)


def _next(function: Function, code: int, instr: Instruction) -> Iterator[int]:
    """Yield the indices of the instructions that may run next after `instr`, which has the index `code`."""
    if facts_of(instr).does == "branches":
        names = [operand.name for operand in instr.operands if isinstance(operand, Symbol)]
        for name in names:
            yield from (function.labels[label] for label in function.branch_targets.get(name, (name,)))
    if facts_of(instr).does not in ("branches", "leaves", "stops") or instr.guard is not None:
        yield code + 1


# ── shared variables ──

#: Least alignment of dynamic shared memory.
_DYNAMIC_ALIGN = 16


class SharedLayout(NamedTuple):
    """Layout of a block's shared memory, as ptxas makes it.

    Attributes
    ----------
    offsets : dict of str to int
        Offset of each variable, by its name in the PTX. Dynamic variables begin where dynamic shared memory begins.
    end : int
        Offset behind the last variable that has a size.
    static_bytes : int
        Static shared memory in bytes, which is also the offset where dynamic shared memory begins.
    """

    offsets: dict[str, int]
    end: int
    static_bytes: int

    def total_bytes(self, dynamic: int) -> int:
        """Return the shared memory of a block whose launch adds `dynamic` bytes."""
        return self.static_bytes + dynamic if dynamic else self.end


def laid_out(variables: Iterable[Variable]) -> tuple[dict[str, int], int]:
    """Return the aligned offset of each variable by name, one after the other, and the end of the last."""
    offsets, end = dict[str, int](), 0
    for variable in variables:
        offsets[variable.name] = start = -(-end // variable.align) * variable.align
        end = start + variable.size
    return offsets, end


def shared_layout(program: Program, kernel: Function) -> SharedLayout:
    """Return the layout of a kernel's shared memory.

    The kernel's variables come first, then the program's, then the variables of reachable functions. A variable of the
    program counts if reachable code names it. Variables that reachable functions declare always count. Unnamed
    variables come last. Compilers leave unnamed variables out. ptxas may order several of them in another way.
    """
    used = list(_used(program, kernel))
    offsets, end = laid_out(variable for variable in used if variable.size)
    dynamic = [variable.name for variable in used if not variable.size]
    start = end
    # ptxas rounds up for any dynamic variable of the program, whichever kernel has it.
    for variable in _shared(program.variables) if end else ():
        if not variable.size:
            align = max(_DYNAMIC_ALIGN, variable.align)
            start = -(-start // align) * align
    return SharedLayout(offsets | dict.fromkeys(dynamic, start), end, start)


def _used(program: Program, kernel: Function) -> Iterator[Variable]:
    """Yield the shared variables that a kernel uses, in the order of their addresses."""
    functions = reachable(program, kernel)
    names = {name for function in functions for name in names_in(function)}
    called = {function.name for function in functions} - {kernel.name}
    own, others = [*_shared(kernel.variables)], list[Variable]()
    for name, function in program.functions.items():
        # An alias is a further name of a function, which has its variables once.
        if name in called and name == function.name:
            others += _shared(function.variables)
    yield from (v for v in (*own, *_shared(program.variables), *others) if v.name in names)
    yield from (v for v in (*own, *others) if v.name not in names)


def _shared(variables: dict[str, Variable]) -> Iterator[Variable]:
    """Yield the variables that are in shared memory."""
    return (variable for variable in variables.values() if variable.space == "shared")
