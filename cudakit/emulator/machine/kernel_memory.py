"""What a kernel takes of a GPU's memory: functions that it may come to, frames of their calls, shared variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from cudakit.emulator.isa.facts import facts_of, sources, targets
from cudakit.emulator.ptx.program import Function, Instruction, Pointer, Program, Register, Symbol, Variable, symbols_in


def reached(program: Program, function: Function) -> list[Function]:
    """The function and the device functions that it may come to.

    A function counts where code calls it by its name. Where code calls through a pointer, or takes a function's
    address, every function counts whose address the program takes. ptxas counts the same ones.
    """
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
    """The names of variables, functions and labels in a function's code."""
    for instr in function.code:
        for operand in instr.operands:
            for symbol in symbols_in(operand):
                yield symbol.name


def recurses(program: Program, entry: Function) -> bool:
    """Whether a function that `entry` reaches may call itself; one called through a pointer may."""
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
    """Functions that `function` calls by name; an empty name where it calls through a pointer."""
    names = []
    for instr in function.code:
        if instr.opcode == "call":
            # Results in brackets may stand before the function.
            target = next((item for item in instr.operands[:2] if isinstance(item, Symbol | Register)), None)
            names.append(target.name if isinstance(target, Symbol) else "")
    return names


def _address_taken(program: Program) -> set[str]:
    """Names of the device functions whose address the program takes, in code or in a variable's initialiser."""
    names = {name for variable in program.variables for name in _initialiser(program, variable)}
    for function in program.functions.values():
        names |= _addresses(program, function)
    return _functions(program, names)


def _functions(program: Program, names: set[str]) -> set[str]:
    return {name for name in names if name in program.functions and not program.functions[name].is_entry}


def _addresses(program: Program, function: Function) -> set[str]:
    """Names whose address a function takes: in its code, or in what the variables that its code names begin with."""
    # Of a function that is called by its name no address is taken.
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
    """Names of the variables and functions whose addresses a variable begins with."""
    entry = program.variables.get(variable)
    return [] if entry is None else [item.symbol.name for _, item in entry.data if isinstance(item, Pointer)]


# ── stack ──
#
# Machine code takes for a call the function's own variables and, where it calls others, what it has to keep for the
# time of the call: the place to return to, and registers whose values are needed after it. Which of them ptxas keeps is
# its own choice: for seven functions that recurse, with 16 to 320 bytes on sm_90, this was from five sixths to six
# fifths of what it took.

#: The place to return to, and the register that holds the stack of the caller's caller: words of 4 bytes.
_RETURN_WORDS = 3
#: Registers that machine code does not have: predicates have bits of one, and the stack a place of its own.
_FREE = frozenset({"%SP", "%SPL"})


def frame_bytes(function: Function, local_bytes: int) -> int:
    """Bytes of a call's frame, where the variables take `local_bytes`."""
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
    """For each instruction, the registers whose values are read after it: a bit for each number."""
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
    return sum(1 << numbers[name] for name in {*names} if name in numbers)


def _next(function: Function, code: int, instr: Instruction) -> Iterator[int]:
    """Instructions that may come after one; behind the last there is none that reads."""
    if facts_of(instr).does == "branches":
        names = [operand.name for operand in instr.operands if isinstance(operand, Symbol)]
        for name in names:
            yield from (function.labels[label] for label in function.branch_targets.get(name, (name,)))
    if facts_of(instr).does not in ("branches", "leaves", "stops") or instr.guard is not None:
        yield code + 1


# ── shared variables ──

#: What dynamic shared memory begins at a multiple of, at least.
_DYNAMIC_ALIGN = 16


class SharedLayout(NamedTuple):
    """Shared memory of a kernel's blocks, as ptxas lays it out.

    Attributes
    ----------
    offsets : dict of str to int
        Where each variable begins, by its name in the PTX; dynamic ones where dynamic shared memory does.
    end : int
        Where the variables that have a size end.
    static_bytes : int
        Static shared memory in bytes, which dynamic shared memory begins after.
    """

    offsets: dict[str, int]
    end: int
    static_bytes: int

    def total_bytes(self, dynamic: int) -> int:
        """Bytes of shared memory that a block has with `dynamic` bytes from its launch."""
        return self.static_bytes + dynamic if dynamic else self.end


def laid_out(variables: Iterable[Variable]) -> tuple[dict[str, int], int]:
    """Where each variable begins if they lie one after the other, and where the last ends."""
    offsets, end = dict[str, int](), 0
    for variable in variables:
        offsets[variable.name] = start = -(-end // variable.align) * variable.align
        end = start + variable.size
    return offsets, end


def shared_layout(program: Program, kernel: Function) -> SharedLayout:
    """The layout of a kernel: of its own variables, then the program's, then those of functions that it may come to.

    A variable of the program counts where code that the kernel may come to names it. Those that these functions declare
    always count, and lie at the end where no code names them. Compilers leave such variables out; ptxas may order
    several of them in another way.
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
    """The kernel's shared variables, in the order in which they lie."""
    functions = reached(program, kernel)
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
    return (variable for variable in variables.values() if variable.space == "shared")
