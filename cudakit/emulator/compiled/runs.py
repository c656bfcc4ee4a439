"""Runs: threads of a row of adjacent blocks, whose last basic block runs in one loop with one check of its accesses.

Most kernels compute a position, return if it is outside, and load, compute and store in a last basic block. Over a row
the position counts on by one, so that comparisons with bounds hold for an interval of its threads. One check of each
address then shows that all of the interval's accesses are inside.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cudakit.emulator.compiled.analysis import Analysis, as_read
from cudakit.emulator.compiled.builder import Builder, X, bits_of, constant
from cudakit.emulator.compiled.emit.table import entry_of, is_integer
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape
from cudakit.emulator.isa.facts import facts_of, sources, targets
from cudakit.emulator.isa.flow import Flow, ends_block
from cudakit.emulator.ptx.program import Address, Immediate, Instruction, Operand, Register, Symbol, registers_in

#: Limit of strides: a row has at most 2¹⁶ threads, so that 32 bits hold what they add up to.
_MOST_STRIDE = 1 << 14
#: Comparisons by how they bound an affine value; and their opposites, and what they are with the sides exchanged.
_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


class Run(NamedTuple):
    """The last basic block of a kernel whose other threads only leave, and what decides which threads run it."""

    block: int
    #: Instructions that compute what the interval of the threads depends on, and what depends on its first thread.
    before: list[Instruction]
    behind: list[Instruction]
    #: Predicates on the way to the block, each with its truth on this way.
    path: list[tuple[Register, bool]]
    #: Registers with the number of the thread in the grid, from which others are computed.
    threads: list[str]
    #: Early instructions whose results differ between the lanes, so that each vector computes them.
    inside: list[Instruction]
    #: Affine registers that a vector reads other than as addresses that are checked together.
    counted: list[str]


def run_of(
    analysis: Analysis,
    b: Builder,
    number: int,
    early: Sequence[Instruction],
    rest: Sequence[Instruction],
    checked: dict[int, str],
) -> Run | None:
    """Return the run of basic block `number`, or None if its vectors have to run one by one.

    `early` has the block's instructions that run before its check, and `rest` the others. `checked` has the places in
    `rest` of the accesses that are checked together, each with its base register.
    """
    flow, code = analysis.flow, analysis.function.code
    path = _path_to(flow, number)
    if not checked or path is None or not all(_only_leaves(flow, after) for after in flow.blocks[number].successors):
        return None
    before = [instr for member in path[:-1] for instr in code[flow.blocks[member].first : flow.blocks[member].last]]
    before = [instr for instr in before if not ends_block(instr)]
    if not all(map(_computes, [*before, *early])):
        return None
    row = _Row(analysis, b, [*before, *early])
    predicates = list[tuple[Register, bool]]()
    for member, after in itertools.pairwise(path):
        guard, successors = analysis.last_of(member).guard, flow.blocks[member].successors
        others = [other for other in successors if other != after]
        if not all(_only_leaves(flow, other) for other in others):
            return None
        if others:
            if guard is None:
                return None
            predicates.append((guard[0], (successors[0] == after) != guard[1]))
    if not all(row.bounds(*predicate) for predicate in predicates):
        return None
    inside, needed = list[Instruction](), {name for instr in rest for name in sources(instr)}
    for instr in reversed(early):
        if any(name in needed and row.shape(Register(name)) == VARYING for name in targets(instr)):
            inside.insert(0, instr)
            needed |= {*sources(instr)}
    counted = row.counted([*inside, *rest], {len(inside) + place: base for place, base in checked.items()})
    # Predicates that differ between the lanes are not computed: their bounds are.
    before = [instr for instr in before if not any(row.is_varying_predicate(name) for name in targets(instr))]
    if any(not row.threads.isdisjoint(targets(instr)) for instr in early):
        before += early
    behind, moved = list[Instruction](), set(row.threads)
    for instr in [*before, *(instr for instr in early if instr not in before)]:
        is_needed = instr not in before or not moved.isdisjoint(sources(instr))
        if is_needed and instr not in inside and row.threads.isdisjoint(targets(instr)):
            behind.append(instr)
            moved |= {*targets(instr)}
    if counted is None:
        return None
    return Run(number, before, behind, predicates, sorted(row.threads), inside, sorted(counted))


def _path_to(flow: Flow, number: int) -> list[int] | None:
    """Return the blocks from the kernel's begin to a block, if only one way leads there, without loops; else None."""
    path = [number]
    while path[0] != flow.order[0]:
        before = flow.blocks[path[0]].predecessors
        if len(before) != 1 or before[0] in path:
            return None
        path.insert(0, before[0])
    blocks = [flow.blocks[member] for member in path]
    return path if not any(block.loops or block.has_barrier or block.has_collective for block in blocks) else None


def _only_leaves(flow: Flow, number: int) -> bool:
    """Return whether `number` is the kernel's end, or a block that only leaves."""
    if number == flow.end:
        return True
    block = flow.blocks[number]
    return block.successors == (flow.end,) and block.last - block.first == 1 and ends_block(flow.code[block.first])


def _computes(instr: Instruction) -> bool:
    """Return whether an instruction only computes registers from operands of its own lane."""
    facts = facts_of(instr)
    if instr.opcode == "ld":
        source = instr.operands[1]
        return "param" in instr.modifiers and isinstance(source, Address) and isinstance(source.base, Symbol)
    return facts.does == "computes" and not (facts.memory or facts.warp or facts.carry or "cc" in instr.modifiers)


class _Row:
    """Shapes of registers over the threads of a row of adjacent blocks, behind the instructions of a kernel's begin."""

    def __init__(self, analysis: Analysis, b: Builder, instructions: Iterable[Instruction]) -> None:
        self._analysis, self._b = analysis, b
        self._registers = analysis.function.registers
        self._shapes: dict[str, Shape] = {}
        #: Special registers that a register copies, or ``start``: the number of the block's first thread in the grid.
        self._origins: dict[str, str] = {}
        self.threads: set[str] = set()
        for instr in instructions:
            for name in targets(instr):
                self._shapes[name] = self._result(instr, name)

    def _result(self, instr: Instruction, name: str) -> Shape:
        """Return the shape of the result `name` of an instruction; varying if the vectors see another shape."""
        entry = entry_of(instr)
        if entry is None or instr.guard is not None or len(self._b.made_by[name]) > 1:
            return VARYING
        of_vector, origin = self._b.shapes.by_register.get(name), self._origin(instr)
        if origin == "thread":
            if not isinstance(of_vector, Affine) or of_vector.stride != 1:
                return VARYING
            self.threads.add(name)
            return of_vector
        if origin:
            self._origins[name] = origin
        shape = entry.transfer(instr, as_read(self._analysis.context, self.shape))
        if isinstance(shape, Affine):
            return shape if shape == of_vector and abs((shape.narrow or shape).stride) <= _MOST_STRIDE else VARYING
        return shape if shape == of_vector else VARYING

    def _origin(self, instr: Instruction) -> str:
        """Return the origin of an instruction's result, ``thread`` for a thread's number in the grid, or nothing."""
        origins = [
            self._origins.get(operand.name, operand.name) if isinstance(operand, Register) else ""
            for operand in instr.operands[1:]
        ]
        form, type_name = instr.modifiers[:-1], instr.modifiers[-1] if instr.modifiers else ""
        if not is_integer(type_name) or bits_of(type_name) < 32:
            return ""
        if instr.opcode == "mov" and len(origins) == 1:
            return origins[0] if origins[0] in _COPIED else ""
        if instr.opcode == "cvt" and form and is_integer(form[-1]) and bits_of(form[-1]) >= 32:
            return origins[0] if origins[0] == "%tid.x" else ""
        if (
            instr.opcode in ("mul", "mad")
            and form in (("lo",), ("wide",))
            and {*origins[:2]} == {"%ctaid.x", "%ntid.x"}
        ):
            origins = ["start", *origins[2:]]
            if instr.opcode == "mul":
                return "start"
        elif instr.opcode != "add" or form:
            return ""
        return "thread" if {*origins} == {"start", "%tid.x"} else ""

    def shape(self, operand: Operand) -> Shape:
        """Return the shape of an operand over a row."""
        if isinstance(operand, Register):
            if operand.name in self._registers:
                return self._shapes.get(operand.name, VARYING)
            return UNIFORM if operand.name in _SAME_IN_ROW else VARYING
        if isinstance(operand, Immediate):
            return UNIFORM
        return UNIFORM if all(self.shape(register) == UNIFORM for register in registers_in(operand)) else VARYING

    def is_varying_predicate(self, name: str) -> bool:
        """Return whether a register is a predicate that may differ between the threads of a row."""
        return self._registers[name] == "pred" and self.shape(Register(name)) != UNIFORM

    def bounds(self, predicate: Operand, truth: bool) -> bool:
        """Return whether `Interval.bound` takes a predicate and the truth that threads of the row must have."""
        if self.shape(predicate) == UNIFORM:
            return True
        if not isinstance(predicate, Register) or len(self._b.made_by.get(predicate.name, ())) != 1:
            return False
        (instr,) = self._b.made_by[predicate.name]
        operands = instr.operands[1:]
        if instr.guard is not None or not isinstance(instr.operands[0], Register):
            return False
        if instr.opcode == "setp":
            name, type_name = instr.modifiers[0], instr.modifiers[-1]
            shapes = [self.shape(operand) for operand in operands]
            steps = [shape.stride for shape in shapes if isinstance(shape, Affine)]
            wide = is_integer(type_name) and bits_of(type_name) >= 32
            return (
                wide and len(shapes) == 2 and UNIFORM in shapes and steps == [1] and _NAMES.get(name, name) in _OPPOSITE
            )
        if instr.opcode == "not":
            return self.bounds(operands[0], not truth)
        return instr.opcode == ("and" if truth else "or") and all(self.bounds(operand, truth) for operand in operands)

    def counted(self, rest: Sequence[Instruction], checked: dict[int, str]) -> set[str] | None:
        """Return the affine registers that instructions read other than as checked addresses.

        None if an instruction needs more than these, and registers that are the same in all threads of a row.
        """
        counted, written = set[str](), set[str]()
        for place, instr in enumerate(rest):
            if place not in checked and not _computes(instr):
                return None
            values = [operand for operand in instr.operands if place not in checked or not isinstance(operand, Address)]
            names = {register.name for operand in values for register in registers_in(operand)} & {*sources(instr)}
            # Threads for which a guard does not hold keep the former value.
            names |= set[str]() if instr.guard is None else {instr.guard[0].name, *targets(instr)}
            bases = {checked[place]} if place in checked else set[str]()
            for name in (names | bases) - written:
                shape = self.shape(Register(name))
                if shape == VARYING:
                    return None
                if isinstance(shape, Affine):
                    counted |= {name} & names
            written |= {*targets(instr)}
        return counted


#: Special registers whose copies are told apart; and those that are the same in all threads of a row.
_COPIED = frozenset({"%tid.x", "%ctaid.x", "%ntid.x"})
_SAME_IN_ROW = frozenset(
    [f"%{name}.{axis}" for name in ("tid", "ctaid") for axis in "yz"]
    + [f"%{name}.{axis}" for name in ("ntid", "nctaid") for axis in "xyz"]
)


# ── the interval of a row's threads that run the block ──


class Interval:
    """Interval of the threads of a row, as it is bounded by predicates.

    Parameters
    ----------
    b : Builder
        Builder of the kernel.
    threads : X
        Number of the row's threads, in 64 bits.

    Attributes
    ----------
    first, last : X
        Number of the first thread in the interval, and of the first thread behind it.
    conditions : list of X
        Conditions without which the interval is not known.
    """

    def __init__(self, b: Builder, threads: X) -> None:
        self._b, self._threads = b, threads
        self.first: X = constant("i64", 0)
        self.last: X = threads
        self.conditions: list[X] = []

    def bound(self, predicate: Operand, truth: bool) -> None:
        """Write code that keeps the threads for which a predicate has a truth."""
        b, text = self._b, self._b.text
        if b.shapes.shape(predicate) == UNIFORM:
            holds = b.read(predicate, "pred").x
            holds = holds if truth else text.binary("xor", holds, 1)
            self.last = text.select(holds, self.last, constant("i64", 0))
            return
        assert isinstance(predicate, Register)
        (instr,) = b.made_by[predicate.name]
        if instr.opcode != "setp":
            for operand in instr.operands[1:]:
                self.bound(operand, truth != (instr.opcode == "not"))
            return
        name, type_name = instr.modifiers[0], instr.modifiers[-1]
        x, y = (b.read(operand, type_name) for operand in instr.operands[1:3])
        how = _NAMES.get(name, name)
        if x.shape == UNIFORM:
            x, y, how = y, x, _MIRRORED[how]
        how = how if truth else _OPPOSITE[how]
        sign = "s" if type_name[0] == "s" else "u"
        last = text.binary("add", x.x, text.cast("trunc", text.binary("sub", self._threads, 1), x.x.type))
        valid = b.valid(x)
        self.conditions += [text.compare(f"{sign}le", x.x, last), *([] if valid is None else [valid])]
        # The number of threads below the bound, or with `most` up to it.
        most = int(how in ("le", "gt"))
        above = text.cast("zext", text.binary("sub", y.x, x.x), "i64")
        below = text.call("llvm.umin.i64", "i64", above, text.binary("sub", self._threads, most))
        reached = text.compare(f"{sign}ge", y.x, x.x)
        count = text.select(reached, text.binary("add", below, most), constant("i64", 0))
        if how in ("lt", "le"):
            self.last = text.call("llvm.umin.i64", "i64", self.last, count)
        else:
            self.first = text.call("llvm.umax.i64", "i64", self.first, count)
