"""Kernels as LLVM IR: their blocks one after the other, run for each vector of each block of threads.

Divergent lanes
    Each divergent basic block has a mask of the lanes that wait for the block. Divergent blocks are passed in one
    order, and each runs for the lanes that wait for it. A loop repeats until no lane waits at its header.
Accesses that are checked together
    The same lanes run each instruction of a block, so their addresses are known before it begins. The addresses of one
    register lie between two bounds, which are checked against one allocation. If they are inside, the block runs
    without further checks of these accesses. Else it runs with each access checked lane by lane, which finds the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.analysis import Analysis, emit_of_threads, thread_shape
from cudakit.emulator.compiled.builder import Builder, Checked, LaneAccess, Site, Value, X, bits_of, constant
from cudakit.emulator.compiled.emit.access import SPACES, held_range, new_range, root_of
from cudakit.emulator.compiled.emit.meanings import held_verdict
from cudakit.emulator.compiled.emit.table import entry_of
from cudakit.emulator.compiled.helpers import DECLARED, GENERIC, READ, SHARED, WRITE
from cudakit.emulator.compiled.layout import Effort, Layout, effort_of
from cudakit.emulator.compiled.runs import Interval, Run, run_of
from cudakit.emulator.compiled.scaffold import Scaffold, Waiting
from cudakit.emulator.compiled.shapes import UNIFORM, Affine
from cudakit.emulator.instructions.access import parts, space_of, type_of
from cudakit.emulator.isa.facts import facts_of, is_atomic, sources, targets, touches
from cudakit.emulator.isa.flow import Block, ends_block, is_collective, member_mask
from cudakit.emulator.machine.decode import Context
from cudakit.emulator.ptx.program import Address, Immediate, Instruction, Register

# ── accesses that are checked together ──

#: Bytes of a cache line, and the prefetch distance: memory arrives in about the time of one vector.
_LINE, _AHEAD = 64, 384
#: Limit of accesses to a row for prefetching: with more, computing takes longer than memory.
_MOST_READ = 3


@dataclass
class Reach:
    """Accesses of a block by one register: bounds of their addresses around its value, and their alignment."""

    base: Register
    code: int
    #: Whether the lanes' addresses are adjacent.
    row: bool
    use: int = READ
    low: int = 0
    high: int = 0
    #: Largest size of an access, and the offset of an access with this size.
    size: int = 1
    anchor: int = 0
    #: Places of the accesses in the block.
    accesses: list[int] = field(default_factory=list)


@dataclass
class Guarded:
    """Instructions of a block: early ones, which can run first, the rest, and the accesses checked together."""

    early: list[Instruction]
    rest: list[Instruction]
    reaches: list[Reach]

    def reach_of(self, place: int) -> int | None:
        """Return the index in `reaches` of the entry with the access at index `place` of `rest`, or None."""
        return next((number for number, reach in enumerate(self.reaches) if place in reach.accesses), None)


def guarded(b: Builder, inside: list[Instruction]) -> Guarded:
    """Split the instructions `inside` a block into early ones and the rest, whose accesses can be checked together."""
    first = next((at for at, instr in enumerate(inside) if _copies(instr) or _touches(instr)), len(inside))
    early, rest = inside[:first], list[Instruction]()
    read, written = set[str](), set[str]()
    for instr in inside[first:]:
        writes = set(targets(instr))
        if _may_be_early(instr) and written.isdisjoint([*sources(instr), *writes]) and read.isdisjoint(writes):
            early.append(instr)
        else:
            rest.append(instr)
            written |= writes
            read.update(sources(instr))
    by_register: dict[tuple[str, int], Reach] = {}
    changed: set[str] = set()
    for place, instr in enumerate(rest):
        reach = _reach(b, instr, place)
        if reach is not None and reach.base.name not in changed:
            _join(by_register.setdefault((reach.base.name, reach.code), reach), reach)
        changed.update(targets(instr))
    reaches = [reach for reach in by_register.values() if reach.accesses]
    return Guarded(early, rest, reaches)


def _touches(instr: Instruction) -> bool:
    """Return whether an instruction is a plain load or store."""
    return touches(instr) and not is_atomic(instr) and "param" not in instr.modifiers


def _copies(instruction: Instruction) -> bool:
    """Return whether an instruction copies asynchronously, or waits for copies."""
    return facts_of(instruction).does in ("copies", "commits")


def _may_be_early(instr: Instruction) -> bool:
    """Return whether an instruction may run before earlier ones, if they share no registers."""
    if instr.guard is not None:
        return False
    if instr.opcode == "ld":
        return "param" in instr.modifiers
    return (
        facts_of(instr).address != ""
        and not instr.modifiers[-1].startswith(("f", "bf", "pred"))
        and "sat" not in instr.modifiers
        and "cc" not in instr.modifiers
    )


def _reach(b: Builder, instr: Instruction, place: int) -> Reach | None:
    """Return the bounds of an access, if they are known before the block runs, else None.

    `place` is the instruction's index among the block's instructions that are not early.
    """
    if not _touches(instr) or instr.guard is not None:
        return None
    space = space_of(instr)
    code = SPACES.get(space, GENERIC)
    memory = facts_of(instr).memory[0]
    address, value_operand = instr.operands[memory.address], instr.operands[memory.value]
    if space == "local" or (space == "generic" and b.context.local) or type_of(instr) == "b128":
        return None
    if not isinstance(address, Address) or not isinstance(address.base, Register) or address.coordinates:
        return None
    if bits_of(b.function.registers.get(address.base.name, "b8")) != (32 if code == SHARED else 64):
        return None
    size = bits_of(type_of(instr)) // 8 * len(parts(value_operand))
    shape = b.shapes.shape(address.base)
    row = isinstance(shape, Affine) and shape.stride == size
    if shape != UNIFORM and not row:
        return None
    use = READ if memory.use == "loads" else WRITE
    return Reach(address.base, code, row, use, address.offset, address.offset + size, size, address.offset, [place])


def _join(into: Reach, reach: Reach) -> None:
    """Merge an access into the accesses `into` by the same register; do nothing if pattern or alignment do not fit."""
    if into is reach or into.row != reach.row:
        return
    if reach.size > into.size:
        fits, size, anchor = (into.anchor - reach.anchor) % into.size == 0, reach.size, reach.anchor
    else:
        fits, size, anchor = (reach.anchor - into.anchor) % reach.size == 0, into.size, into.anchor
    if not fits:
        return
    into.size, into.anchor = size, anchor
    into.low, into.high = min(into.low, reach.low), max(into.high, reach.high)
    into.use = max(into.use, reach.use)
    into.accesses += reach.accesses


def check_together(b: Builder, reaches: list[Reach], otherwise: str) -> list[Checked]:
    """Write the check of the accesses of all active lanes, with a jump to the label `otherwise` if one is outside.

    Return, for each of `reaches`, the range that holds and the register's value.
    """
    text, conditions = b.text, list[X]()
    values = [b.read(reach.base, f"u{bits_of(b.function.registers[reach.base.name])}") for reach in reaches]
    for reach, value in zip(reaches, values, strict=True):
        if reach.size > 1:
            odd = text.binary("add", text.cast("zext", value.x, "i64"), reach.anchor)
            odd = text.binary("and", odd, reach.size - 1)
            conditions.append(text.compare("eq", odd, 0))
        valid = b.valid(value)
        if valid is not None:
            conditions.append(valid)
    _continue_if(b, conditions, otherwise)
    first, last = _ends(b) if any(reach.row for reach in reaches) else (None, None)
    placed = [
        _check_range(b, reach, number, value.x, first if reach.row else None, last if reach.row else None, otherwise)
        for number, (reach, value) in enumerate(zip(reaches, values, strict=True))
    ]
    if b.mask is None and b.run_last is None:
        for reach, checked in zip(reaches, placed, strict=True):
            if reach.row and reach.code != SHARED and len(reach.accesses) <= _MOST_READ:
                _prefetch(b, reach, checked)
    return placed


def _prefetch(b: Builder, reach: Reach, checked: Checked) -> None:
    """Prefetch memory behind a row, which the next vectors mostly read."""
    text = b.text
    place = checked.base
    if reach.code == GENERIC:
        place = text.binary("add", place, held_range(b, checked.range, 2))
    pointer = text.cast("inttoptr", place, "ptr")
    for line in range(0, b.width * reach.size, _LINE):
        ahead = text.at(pointer, _AHEAD + reach.high - reach.size + line)
        text.run("llvm.prefetch.p0", ahead, X("i32", str(int(reach.use != READ))), X("i32", "3"), X("i32", "1"))


def _ends(b: Builder) -> tuple[X | None, X]:
    """Return the numbers of the mask's or the run's first lane, None for 0, and of its last lane."""
    if b.run_last is not None:
        return constant("i64", 0), b.run_last
    if b.mask is None:
        return None, constant("i64", b.width - 1)
    text, bits = b.text, b.bits(b.mask)
    low = text.call(f"llvm.cttz.{bits.type}", bits.type, bits, X("i1", "true"))
    high = text.call(f"llvm.ctlz.{bits.type}", bits.type, bits, X("i1", "true"))
    low, high = text.cast("zext", low, "i64"), text.cast("zext", high, "i64")
    return low, text.binary("sub", constant("i64", b.width - 1), high)


def _check_range(
    b: Builder, reach: Reach, number: int, x: X, first: X | None, last: X | None, otherwise: str
) -> Checked:
    """Write the check that a register's accesses are inside one allocation, with a jump to `otherwise` if not.

    `x` is the register's value or base. `first` and `last` are the numbers of the first and last active lane.
    `first` is None for lane 0, and both are None for a register that is the same in all lanes.
    """
    text, size = b.text, constant("i64", reach.size)
    ahead = constant("i64", reach.low)
    if first is not None:
        ahead = text.binary("add", ahead, text.binary("mul", first, size))
    # In the register's own bits, where the addresses of inactive lanes may wrap below zero.
    start = text.binary("add", x, text.cast("trunc", ahead, x.type))
    start = text.cast("zext", start, "i64")
    base = text.binary("sub", start, ahead)
    extent, need = reach.high - reach.low, constant("i64", reach.high - reach.low)
    if last is not None and first is None:
        extent += reach.size * int(last.name)
        need, last = constant("i64", extent), None
    elif last is not None and first is not None:
        steps = text.binary("mul", text.binary("sub", last, first), size)
        need, last = text.binary("add", need, steps), text.binary("add", start, steps)
    ends = [start] if last is None else [start, last]
    if reach.code == SHARED:
        room = text.binary("sub", b.shared_bytes, extent)
        fits = [text.compare("ule", end, room) for end in ends]
        _continue_if(b, [text.compare("sge", room, 0), *fits], otherwise)
        return Checked("", base)
    # A range of its own: other accesses with an equal key may be in other allocations.
    range_ = new_range(b, ("together", number, root_of(b, reach.base), reach.code, extent, reach.use))
    low, span = held_range(b, range_, 0), held_range(b, range_, 1)
    inside = b.all_of([text.compare("ule", text.binary("sub", end, low), span) for end in ends])
    miss, hit = text.fresh("miss"), text.fresh("hit")
    text.do(f"br {inside}, label %{hit}, label %{miss}, !prof !2")
    text.label(miss)
    placed = text.call(
        "place", "i1", "%ctx", range_, start, need, extent,
        reach.use, reach.code,
    )  # fmt: skip
    text.do(f"br {placed}, label %{hit}, label %{otherwise}, !prof !2")
    text.label(hit)
    return Checked(range_, base)


def _continue_if(b: Builder, conditions: list[X], otherwise: str) -> None:
    """Write code that continues if all conditions hold, else jumps to a label."""
    if conditions:
        on = b.text.fresh("on")
        b.text.do(f"br {b.all_of(conditions)}, label %{on}, label %{otherwise}, !prof !2")
        b.text.label(on)


class Facts(NamedTuple):
    """Facts of a kernel's code for its launches. Instructions are named by their numbers."""

    #: Places where errors can occur, by number.
    sites: tuple[Site, ...]
    #: Variables whose addresses the code reads, in order.
    symbols: tuple[str, ...]
    #: Bytes of a vector's saved registers, 0 where none waits; and bytes of a lane's local memory.
    state_bytes: int
    local_bytes: int
    #: Whether blocks may write memory that other blocks read, so that they run in order.
    ordered: bool
    #: Number in the state of a vector that waits at a barrier, with the barrier's instruction.
    barriers: tuple[tuple[int, int], ...]
    #: Instructions.
    size: int

    @classmethod
    def of(cls, values: Sequence[Any]) -> Facts:
        """Return the facts from lists, as JSON stores them."""
        sites, symbols, state_bytes, local_bytes, ordered, waits, size = values
        places = tuple(Site(number, lane_access and LaneAccess(*lane_access)) for number, lane_access in sites)
        barriers = tuple((state, number) for state, number in waits)
        return cls(places, tuple(symbols), state_bytes, local_bytes, ordered, barriers, size)


class KernelIR(NamedTuple):
    """IR of a kernel, of the functions that it calls beside the helpers, if any, and the facts for its launches."""

    text: str
    beside: str
    facts: Facts


def make(context: Context, layout: Layout, baseline: bool = False) -> KernelIR:
    """Write the IR of a kernel for a layout, for the optimized or the baseline tier.

    Raises
    ------
    Refusal
    """
    return _Kernel(Analysis(context, layout), effort_of(len(context.function.code), baseline)).build()


class _Kernel:
    """Writer of a kernel's IR."""

    def __init__(self, analysis: Analysis, effort: Effort) -> None:
        self.analysis, self.flow, self.divergent, self.code = (
            analysis,
            analysis.flow,
            analysis.shapes.divergent,
            analysis.function.code,
        )
        self.scaffold = Scaffold(analysis, effort)
        self.rendezvous = self.scaffold.rendezvous
        self.waiting = Waiting(self.scaffold)
        self.b, self.text = self.scaffold.b, self.scaffold.text
        self.inside = {number: self._guarded(number) for number in self.flow.order}
        self.run = None
        if analysis.layout.runs and not self.b.single:
            self.run = next((run for run in map(self._run_of, self.flow.order) if run is not None), None)
        self.ordered = bool(analysis.polling)

    def build(self) -> KernelIR:
        """Write the whole kernel."""
        b, text, scaffold, analysis = self.b, self.text, self.scaffold, self.analysis
        scaffold.begin(self.run is not None)
        if self.run is not None:
            self._row(self.run)
            # What follows runs where a row does not: it is kept short.
            b.single = True
        text.jump(scaffold.body(0))
        for place, number in enumerate(self.flow.order):
            self._block(place, number)
        self.waiting.chain_end()
        self.waiting.resumes()
        scaffold.end()
        head = "\n".join(scaffold.entry())
        body = "\n".join(text.lines)
        declared, prototypes = "\n".join(sorted(text.declared)), "\n".join(text.prototypes)
        end = (
            'attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }\n'
            '!0 = !{}\n!1 = !{!"branch_weights", i32 1, i32 10000}\n!2 = !{!"branch_weights", i32 10000, i32 1}\n'
        )
        # No unwinding: unwind tables would have to be registered and removed again.
        whole = (
            f"{DECLARED}\ndefine i64 @kernel(ptr noalias %ctx, i64 %first, i64 %last) #0 {{\n"
            f"{head}\n{body}\n}}\n{declared}\n{prototypes}\n{end}"
        )
        beside = "\n".join([DECLARED, *text.functions, declared, end]) if text.functions else ""
        facts = Facts(
            tuple(b.sites),
            tuple(b.symbols),
            scaffold.states.bytes if analysis.suspends else 0,
            analysis.context.local_bytes,
            self.ordered,
            tuple((number + 1, self.flow.blocks[number].last - 1) for number in analysis.barriers),
            len(self.code),
        )
        return KernelIR(whole, beside, facts)

    def _guarded(self, number: int) -> Guarded:
        """Return the instructions of basic block `number` before its end."""
        block = self.flow.blocks[number]
        return guarded(self.b, [instr for instr in self.code[block.first : block.last] if not ends_block(instr)])

    def _run_of(self, number: int) -> Run | None:
        """Return the run of basic block `number`, or None."""
        early, rest, reaches = self.inside[number].early, self.inside[number].rest, self.inside[number].reaches
        checked = {place: reach.base.name for reach in reaches for place in reach.accesses}
        return run_of(self.analysis, self.b, number, early, rest, checked)

    def _row(self, run: Run) -> None:
        """Write the code that runs a row of threads at once, if a vector is its first and its accesses are inside.

        Otherwise the code goes on with the vector alone.
        """
        b, text, row = self.b, self.text, self.scaffold.row
        assert row is not None
        whole, alone, some = (text.fresh(stem) for stem in ("row", "alone", "some"))
        text.branch(row.is_begun, whole, alone)
        text.label(whole)
        for instr in run.before:
            self._instruction(instr, None)
        threads = text.binary("mul", row.vectors, b.width)
        b.run_last = text.binary("sub", threads, 1)
        interval = Interval(b, threads)
        for predicate, truth in run.path:
            interval.bound(predicate, truth)
        _continue_if(b, interval.conditions, alone)
        count = text.binary("sub", interval.last, interval.first)
        text.branch(text.compare("sgt", count, 0), some, "row.done")
        text.label(some)
        # All that follows is for the threads of the interval, counted from its first.
        for name in run.threads:
            self._count_on(name, b.register_value(name), interval.first)
        for instr in run.behind:
            self._instruction(instr, None)
        b.run_last = text.binary("sub", count, 1)
        counted = [(name, b.register_value(name)) for name in run.counted]
        _continue_if(b, [valid for _, value in counted if (valid := b.valid(value)) is not None], alone)
        inside = self.inside[run.block]
        checked = check_together(b, inside.reaches, alone)
        b.run_last = None

        def vector(first: X, mask: X | None) -> None:
            for name, value in counted:
                self._count_on(name, value, first)
            here = list[Checked]()
            for reach, before in zip(inside.reaches, checked, strict=True):
                ahead = text.binary("mul", first, reach.size if reach.row else 0)
                here.append(Checked(before.range, text.binary("add", before.base, ahead)))
                if mask is None and reach.row and reach.code != SHARED:
                    _prefetch(b, reach, here[-1])
            for instr in run.inside:
                self._instruction(instr, mask)
            self._together(inside, here, mask)

        vectors, lanes_left = text.binary("udiv", count, b.width), text.binary("urem", count, b.width)
        before, loop, body, end, rest, tail = text.here, *map(text.fresh, ("loop", "body", "end", "rest", "tail"))
        following = X("i64", f"%{text.fresh('following')}")
        text.jump(loop)
        text.label(loop)
        number = text.phi("i64", (constant("i64", 0), before), (following, end))
        text.branch(text.compare("ult", number, vectors), body, rest)
        text.label(body)
        vector(text.binary("mul", number, b.width), None)
        text.jump(end)
        text.label(end)
        text.do(f"{following.name} = add {number}, 1")
        text.jump(loop)
        text.label(rest)
        text.branch(text.compare("ne", lanes_left, 0), tail, "row.done")
        text.label(tail)
        lanes = text.compare("ult", b.iota("i32"), b.spread(text.cast("trunc", lanes_left, "i32")))
        vector(text.binary("mul", vectors, b.width), lanes)
        text.jump("row.done")
        text.label(alone)

    def _count_on(self, name: str, value: Value, lanes: X) -> None:
        """Write code that sets an affine register to its value for the vector that begins `lanes` lanes further."""
        shape, text = value.shape, self.text
        assert isinstance(shape, Affine)
        for part, x, stride in (("", value.x, shape.stride), (".narrow", value.narrow, (shape.narrow or shape).stride)):
            if x is not None:
                moved = text.binary("add", x, text.binary("mul", text.cast("trunc", lanes, x.type), stride))
                text.store(moved, self.b.place_of(name, part))

    def _block(self, place: int, number: int) -> None:
        """Write basic block `number`, with its masks; `place` is its index in the order of blocks."""
        b, text, scaffold = self.b, self.text, self.scaffold
        block, is_run = self.flow.blocks[number], self.run is not None and self.run.block == number
        mask_place = scaffold.masks.get(number)
        none, every = constant(b.mask_type, 0), constant(b.mask_type, -1)
        text.label(scaffold.chain(place))
        has_divergent_collective = number in self.divergent and block.has_collective
        if mask_place is not None:
            waiting_lanes = text.load(b.mask_type, mask_place)
            if has_divergent_collective:
                waiting_lanes = self.rendezvous.ready(number, waiting_lanes)
            text.branch(text.compare("ne", waiting_lanes, none), scaffold.body(number), scaffold.behind(place))
        else:
            text.jump(scaffold.behind(place))
        text.label(scaffold.body(number))
        lanes, left = scaffold.whole(), none
        if mask_place is not None and number in self.divergent:
            lanes = text.load(b.mask_type, mask_place)
            if has_divergent_collective:
                lanes, left = self.rendezvous.go(number, lanes)
        if mask_place is not None:
            text.store(left, mask_place)
        inside = self.inside[number]
        mask = scaffold.full if number not in self.divergent else b.from_bits(lanes)
        if is_run:
            self._lane_by_lane(place, number, inside, mask)
        elif mask is None or b.single:
            self._variants(place, number, inside, mask, False)
        else:
            some = text.fresh("some")
            text.branch(text.compare("eq", lanes, every), scaffold.whole_body(number), some)
            text.label(some)
            self._variants(place, number, inside, mask, True)
            text.label(scaffold.whole_body(number))
            self._variants(place, number, inside, None, True)
        self._behind(place, block)

    def _behind(self, place: int, block: Block) -> None:
        """Write the code behind the block at index `place` of the order.

        A loop that ends there goes round again while lanes wait at its header.
        """
        b, text, scaffold, flow = self.b, self.text, self.scaffold, self.flow
        text.label(scaffold.behind(place))
        none = constant(b.mask_type, 0)
        for header in reversed(block.loops):
            body = flow.loops[header]
            if max(flow.place[member] for member in body) != place:
                break
            if header not in scaffold.masks or not body & self.divergent:
                continue
            is_collective_header = header in self.rendezvous.sites
            waiting = text.load(b.mask_type, scaffold.masks[header])
            if is_collective_header:
                waiting = self.rendezvous.ready(header, waiting)
            waits_here = text.compare("ne", waiting, none)
            around, out = text.fresh("around"), text.fresh("out")
            text.branch(waits_here, around, out)
            text.label(around)
            if header in self.analysis.polling:
                self.waiting.let_others_run(header)
                text.jump(out)
                text.label(out)
                continue
            scaffold.tick()
            text.jump(scaffold.chain(flow.place[header]) if is_collective_header else scaffold.body(header))
            text.label(out)
        text.jump(scaffold.chain(place + 1))

    def _variants(self, place: int, number: int, inside: Guarded, mask: X | None, masked: bool) -> None:
        """Write a block for the lanes of a mask, or of the vector, with accesses checked together or each by itself.

        With `masked` a block is written for both; the variant with each access checked is written once.
        """
        b, text, scaffold = self.b, self.text, self.scaffold
        b.known_here.clear()
        if self.analysis.has_divergent_collectives:
            text.store(X("i1", "true"), scaffold.moved)
        for instr in inside.early:
            self._instruction(instr, mask)
        lanes_place, each_label = f"%here.b{number}", f"each.b{number}"
        other = text.fresh("other") if masked and mask is None else each_label
        if mask is not None and inside.reaches:
            b.allocas.append(f"  {lanes_place} = alloca {mask.type}, align 8")
            text.store(mask, lanes_place)
        b.mask = mask
        self._together(inside, check_together(b, inside.reaches, other), mask)
        if inside.reaches and other == each_label:
            behind = text.fresh("behind")
            text.jump(behind)
            text.label(each_label)
            lane_mask = mask if mask is None else text.load(mask.type, lanes_place)
            self._apart(inside, lane_mask)
            text.jump(behind)
            text.label(behind)
            mask = mask if mask is None else text.load(mask.type, lanes_place)
        b.mask, b.guarded = mask, False
        self._end_block(place, number, mask)
        if inside.reaches and other != each_label:
            text.label(other)
            text.store(b.all_lanes(), lanes_place)
            text.jump(each_label)

    def _lane_by_lane(self, place: int, number: int, inside: Guarded, mask: X | None) -> None:
        """Write a block whose rows of threads did not run at once, as far as accesses go lane by lane."""
        self.b.known_here.clear()
        for instr in inside.early:
            self._instruction(instr, mask)
        self._apart(inside, mask)
        self.b.mask, self.b.guarded = mask, False
        self._end_block(place, number, mask)

    def _apart(self, inside: Guarded, mask: X | None) -> None:
        """Write the instructions behind the check of the accesses of a block, with each access checked by itself."""
        for at, instr in enumerate(inside.rest):
            self.b.unlikely = inside.reach_of(at) is not None
            self._instruction(instr, mask)
        self.b.unlikely = False

    def _together(self, inside: Guarded, checked: list[Checked], mask: X | None) -> None:
        """Write the instructions behind the check of the accesses of a block, which are `checked`."""
        for at, instr in enumerate(inside.rest):
            reach = inside.reach_of(at)
            self.b.checked = None if reach is None else checked[reach]
            self._instruction(instr, mask)
        self.b.checked = None

    def _check_own_membership(self, instr: Instruction) -> None:
        """Write code that stops with an error at a lane that is not in its own member mask."""
        b, text = self.b, self.text
        operand = member_mask(instr)
        if isinstance(operand, Immediate) and operand.value & 0xFFFF_FFFF == 0xFFFF_FFFF:
            return
        value = b.read(operand, "b32")
        if value.shape == UNIFORM:
            non_members = text.binary("xor", value.x, -1)
        else:
            own = text.binary("and", text.binary("lshr", b.lanes(value), b.iota("i32")), 1)
            non_members = b.bits(text.compare("eq", own, 0))
        outside = b.from_bits(text.binary("and", b.bits(b.all_lanes()), non_members))
        b.stop_where(outside, text.cast("zext", b.lanes(value), "i64"))

    def _instruction(self, instr: Instruction, mask: X | None) -> None:
        """Write an instruction for the lanes of a mask (None: all) for which its guard holds."""
        b, text = self.b, self.text
        b.instr, b.mask, b.guarded = instr, mask, False
        b.elsewhere = None if mask is None else self.rendezvous.elsewhere(instr)
        entry = entry_of(instr)
        assert entry is not None
        if instr.opcode == "call" or (is_atomic(instr) and "shared" not in instr.modifiers):
            self.ordered = True
        of_threads = thread_shape(instr, self.analysis.threads, self.analysis.layout.width)
        if of_threads is not None:
            emit_of_threads(instr, b, of_threads)
            return

        def emit() -> None:
            if "sync" in instr.modifiers and is_collective(instr):
                self._check_own_membership(instr)
            entry.emit(instr, b)

        if instr.guard is None:
            emit()
            return
        guard_value = b.holds(instr.guard)
        some = guard_value.x
        if guard_value.shape != UNIFORM:
            b.mask, b.guarded = guard_value.x if mask is None else text.binary("and", mask, guard_value.x), True
            some = b.any_of(b.mask)
        with text.when(some):
            emit()

    def _end_block(self, place: int, number: int, mask: X | None) -> None:
        """Write the end of basic block `number`: its barrier, or branches that send the lanes on.

        `place` is the block's index in the order of blocks, and `mask` has its lanes; None: all.
        """
        b, text, scaffold, flow = self.b, self.text, self.scaffold, self.flow
        block = flow.blocks[number]
        instr = self.analysis.last_of(number)
        b.instr = instr
        lanes = b.bits(b.all_lanes() if mask is None else mask)
        if block.has_barrier:
            self.waiting.wait(place, number, mask)
            return
        if instr.opcode == "brx":
            raise Refusal(f"instruction {instr}")
        if len(set(block.successors)) == 1:  # a branch to the following block: no lanes diverge
            self._jump_to(place, number, block.successors[0], mask)
            return
        assert instr.guard is not None
        register, negated = instr.guard
        guard_value = b.holds(instr.guard)
        then, otherwise = block.successors
        if guard_value.shape == UNIFORM:
            self._jump_if(guard_value.x, place, number, then, mask)
            self._jump_to(place, number, otherwise, mask)
            return
        verdict = held_verdict(b, register)
        if verdict is not None:
            self._jump_if(verdict.none if negated else verdict.all, place, number, then, mask)
            self._jump_if(verdict.all if negated else verdict.none, place, number, otherwise, mask)
        bits = b.bits(guard_value.x)
        if verdict is None and mask is None:
            self._jump_if(text.compare("eq", bits, -1), place, number, then, mask)
            self._jump_if(text.compare("eq", bits, 0), place, number, otherwise, mask)
        scaffold.send(then, text.binary("and", lanes, bits))
        scaffold.send(otherwise, text.binary("and", lanes, text.binary("xor", bits, -1)))
        text.jump(scaffold.behind(place))

    def _jump_if(self, condition: X, place: int, number: int, to: int, mask: X | None) -> None:
        """Write code that sends all lanes of block `number` to the block `to` if a condition holds, else continues."""
        there, here = self.text.fresh("there"), self.text.fresh("here")
        self.text.branch(condition, there, here)
        self.text.label(there)
        self._jump_to(place, number, to, mask)
        self.text.label(here)

    def _jump_to(self, place: int, number: int, to: int, mask: X | None) -> None:
        """Write code that sends all lanes of block `number`, or of a mask in it, to the block `to`."""
        text, flow, is_divergent = self.text, self.flow, number in self.divergent
        lanes = self.b.bits(self.b.all_lanes() if mask is None else mask)
        goes_back = to != flow.end and flow.place[to] <= place
        if is_divergent and (mask is not None or self.b.single or (goes_back and to in self.analysis.polling)):
            self.scaffold.send(to, lanes)
            text.jump(self.scaffold.behind(place))
            return
        if to == flow.end:
            text.jump("left")
            return
        if goes_back:
            if to in self.analysis.polling:
                self.waiting.leave_vector(to)
                return
            self.scaffold.tick()
        self.waiting.enter(number, to)
        if mask is None and not self.b.single:
            text.jump(self.scaffold.whole_body(to))
            return
        if to in self.divergent:
            text.store(lanes, self.scaffold.masks[to])
        text.jump(self.scaffold.body(to))
