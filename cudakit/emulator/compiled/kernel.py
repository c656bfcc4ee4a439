"""A kernel as LLVM IR: its blocks one after the other, run for each vector of each block of threads.

Where lanes part
    Each basic block that some lanes may come to without the others has a mask of those that wait for it. These blocks
    are gone through in one order, and each runs for the lanes that wait there. A loop goes round until none waits at
    its header.
Accesses that are checked together
    The same lanes run each instruction of a block, so what their addresses come to is known before it begins: those of
    one register lie between two bounds, which are held against one allocation. Where they lie in it, the block runs
    with no further checks of these accesses; else it runs with each checked for itself, lane by lane, which finds the
    error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.analysis import Analysis, emit_of_threads, thread_shape
from cudakit.emulator.compiled.builder import Builder, Checked, Reached, Site, X, bits_of, constant
from cudakit.emulator.compiled.emit.access import SPACES, held_range, new_range, root_of
from cudakit.emulator.compiled.emit.meanings import held_verdict
from cudakit.emulator.compiled.emit.table import entry_of
from cudakit.emulator.compiled.helpers import DECLARED, GENERIC, READ, SHARED, WRITE
from cudakit.emulator.compiled.layout import Effort, Layout, effort_of
from cudakit.emulator.compiled.scaffold import Scaffold, Waiting
from cudakit.emulator.compiled.shapes import UNIFORM, Affine
from cudakit.emulator.instructions.access import parts, space_of, type_of
from cudakit.emulator.isa.facts import facts_of, is_atomic, sources, targets, touches
from cudakit.emulator.isa.flow import Block, ends_block, is_collective, member_mask
from cudakit.emulator.machine.decode import Context
from cudakit.emulator.ptx.program import Address, Immediate, Instruction, Register

# ── accesses that are checked together ──

#: Bytes of a line of the cache, and how far behind a row is fetched: about as far as a vector's time takes to arrive.
_LINE, _AHEAD = 64, 512
#: Of accesses to a row: where more neighbours of each lane are read, computing takes longer than what comes to arrive.
_MOST_READ = 3


@dataclass
class Reach:
    """The accesses by one register: their bounds around what it holds, and how they are aligned."""

    base: Register
    code: int
    #: Whether the lanes lie in a row.
    row: bool
    use: int = READ
    low: int = 0
    high: int = 0
    #: The largest size of an access, and the offset of one that has it.
    size: int = 1
    anchor: int = 0
    #: Their places in the block.
    accesses: list[int] = field(default_factory=list)


@dataclass
class Guarded:
    """The instructions of a block: those that may come first, the others, and which accesses are checked together."""

    early: list[Instruction]
    rest: list[Instruction]
    reaches: list[Reach]

    def reach_of(self, place: int) -> int | None:
        """The number of what the access at a place of `rest` is checked with."""
        return next((number for number, each in enumerate(self.reaches) if place in each.accesses), None)


def guarded(b: Builder, inside: list[Instruction]) -> Guarded:
    """The instructions of a block, with what of its accesses can be checked before them."""
    first = next((at for at, given in enumerate(inside) if _copies(given) or _touches(given)), len(inside))
    early, rest = inside[:first], list[Instruction]()
    read, written = set[str](), set[str]()
    for given in inside[first:]:
        writes = set(targets(given))
        if _may_be_early(given) and written.isdisjoint([*sources(given), *writes]) and read.isdisjoint(writes):
            early.append(given)
        else:
            rest.append(given)
            written |= writes
            read.update(sources(given))
    found: dict[tuple[str, int], Reach] = {}
    changed: set[str] = set()
    for place, given in enumerate(rest):
        reach = _reach(b, given, place)
        if reach is not None and reach.base.name not in changed:
            _join(found.setdefault((reach.base.name, reach.code), reach), reach)
        changed.update(targets(given))
    reaches = [each for each in found.values() if each.accesses]
    return Guarded(early, rest, reaches)


def _touches(given: Instruction) -> bool:
    return touches(given) and not is_atomic(given) and "param" not in given.modifiers


def _copies(instruction: Instruction) -> bool:
    return facts_of(instruction).does in ("copies", "commits")


def _may_be_early(given: Instruction) -> bool:
    """Whether it may be done earlier than it is written, as far as it reads and writes nothing that others do."""
    if given.guard is not None:
        return False
    if given.opcode == "ld":
        return "param" in given.modifiers
    return (
        facts_of(given).address != ""
        and not given.modifiers[-1].startswith(("f", "bf", "pred"))
        and "sat" not in given.modifiers
        and "cc" not in given.modifiers
    )


def _reach(b: Builder, given: Instruction, place: int) -> Reach | None:
    """What an access comes to, if that can be said before."""
    if not _touches(given) or given.guard is not None:
        return None
    space = space_of(given)
    code = SPACES.get(space, GENERIC)
    memory = facts_of(given).memory[0]
    address, held = given.operands[memory.address], given.operands[memory.value]
    if space == "local" or (space == "generic" and b.context.local) or type_of(given) == "b128":
        return None
    if not isinstance(address, Address) or not isinstance(address.base, Register) or address.coordinates:
        return None
    if bits_of(b.function.registers.get(address.base.name, "b8")) != (32 if code == SHARED else 64):
        return None
    size = bits_of(type_of(given)) // 8 * len(parts(held))
    shape = b.shapes.shape(address.base)
    row = isinstance(shape, Affine) and shape.stride == size
    if shape != UNIFORM and not row:
        return None
    use = READ if memory.use == "loads" else WRITE
    return Reach(address.base, code, row, use, address.offset, address.offset + size, size, address.offset, [place])


def _join(into: Reach, reach: Reach) -> None:
    """Take an access into those that are checked with one register."""
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
    """Go on where all accesses of the lanes of the mask are inside, else to a label; where they lie, by the reach."""
    text, good = b.text, list[X]()
    values = [b.read(each.base, f"u{bits_of(b.function.registers[each.base.name])}") for each in reaches]
    for each, value in zip(reaches, values, strict=True):
        if each.size > 1:
            odd = text.binary("add", text.cast("zext", value.x, "i64"), each.anchor)
            odd = text.binary("and", odd, each.size - 1)
            good.append(text.compare("eq", odd, 0))
        valid = b.valid(value)
        if valid is not None:
            good.append(valid)
    _on_if(b, good, otherwise)
    first, last = _ends(b) if any(each.row for each in reaches) else (None, None)
    placed = [
        _placed(b, each, number, value.x, first if each.row else None, last if each.row else None, otherwise)
        for number, (each, value) in enumerate(zip(reaches, values, strict=True))
    ]
    if b.mask is None:
        for each, checked in zip(reaches, placed, strict=True):
            if each.row and each.code != SHARED and len(each.accesses) <= _MOST_READ:
                _fetch_ahead(b, each, checked)
    return placed


def _fetch_ahead(b: Builder, each: Reach, checked: Checked) -> None:
    """Have what comes behind a row brought nearer: the next vectors have it, most of the time."""
    text = b.text
    place = checked.base
    if each.code == GENERIC:
        place = text.binary("add", place, held_range(b, checked.range, 2))
    pointer = text.cast("inttoptr", place, "ptr")
    for line in range(0, b.width * each.size, _LINE):
        ahead = text.at(pointer, _AHEAD + each.high - each.size + line)
        text.run("llvm.prefetch.p0", ahead, X("i32", str(int(each.use != READ))), X("i32", "3"), X("i32", "1"))


def _ends(b: Builder) -> tuple[X | None, X]:
    """The numbers of the first lane of the mask, None for 0, and of its last."""
    if b.mask is None:
        return None, constant("i64", b.width - 1)
    text, bits = b.text, b.bits(b.mask)
    low = text.call(f"llvm.cttz.{bits.type}", bits.type, bits, X("i1", "true"))
    high = text.call(f"llvm.ctlz.{bits.type}", bits.type, bits, X("i1", "true"))
    low, high = text.cast("zext", low, "i64"), text.cast("zext", high, "i64")
    return low, text.binary("sub", constant("i64", b.width - 1), high)


def _placed(b: Builder, each: Reach, number: int, x: X, first: X | None, last: X | None, otherwise: str) -> Checked:
    """Check that what is reached by a register lies in one piece of memory, from a first lane to a last."""
    text, size = b.text, constant("i64", each.size)
    ahead = constant("i64", each.low)
    if first is not None:
        ahead = text.binary("add", ahead, text.binary("mul", first, size))
    # In the register's own bits, where lanes that take no part may lie below nothing.
    start = text.binary("add", x, text.cast("trunc", ahead, x.type))
    start = text.cast("zext", start, "i64")
    base = text.binary("sub", start, ahead)
    extent, need = each.high - each.low, constant("i64", each.high - each.low)
    if last is not None and first is None:
        extent += each.size * int(last.name)
        need, last = constant("i64", extent), None
    elif last is not None and first is not None:
        steps = text.binary("mul", text.binary("sub", last, first), size)
        need, last = text.binary("add", need, steps), text.binary("add", start, steps)
    ends = [start] if last is None else [start, last]
    if each.code == SHARED:
        room = text.binary("sub", b.shared_bytes, extent)
        fits = [text.compare("ule", end, room) for end in ends]
        _on_if(b, [text.compare("sge", room, 0), *fits], otherwise)
        return Checked("", base)
    # Its own, for what is checked next to it, and what is not, may lie in other allocations, though it looks alike.
    range_ = new_range(b, ("together", number, root_of(b, each.base), each.code, extent, each.use))
    low, span = held_range(b, range_, 0), held_range(b, range_, 1)
    inside = b.all_of([text.compare("ule", text.binary("sub", end, low), span) for end in ends])
    miss, hit = text.fresh("miss"), text.fresh("hit")
    text.do(f"br {inside}, label %{hit}, label %{miss}, !prof !2")
    text.label(miss)
    placed = text.call(
        "place", "i1", "%ctx", range_, start, need, extent,
        each.use, each.code,
    )  # fmt: skip
    text.do(f"br {placed}, label %{hit}, label %{otherwise}, !prof !2")
    text.label(hit)
    return Checked(range_, base)


def _on_if(b: Builder, good: list[X], otherwise: str) -> None:
    """Go on where all hold, else to a label."""
    if good:
        on = b.text.fresh("on")
        b.text.do(f"br {b.all_of(good)}, label %{on}, label %{otherwise}, !prof !2")
        b.text.label(on)


class Facts(NamedTuple):
    """What a launch needs to know of a kernel's code. Instructions are named by their numbers."""

    #: Where errors can be, which they name by number.
    sites: tuple[Site, ...]
    #: Variables whose addresses it asks for, in their order.
    symbols: tuple[str, ...]
    #: Bytes that a vector's saved registers take; 0 where none waits. And those of a lane's local memory.
    state_bytes: int
    local_bytes: int
    #: Whether blocks may change what others read, so that their order is to be kept.
    ordered: bool
    #: Barriers, each with the number that a vector's state begins with where it waits.
    waits: tuple[tuple[int, int], ...]
    #: Instructions.
    size: int

    @classmethod
    def of(cls, values: Sequence[Any]) -> Facts:
        """The facts in lists, as JSON gives them."""
        sites, symbols, state_bytes, local_bytes, ordered, waits, size = values
        places = tuple(Site(number, reached and Reached(*reached)) for number, reached in sites)
        barriers = tuple((state, number) for state, number in waits)
        return cls(places, tuple(symbols), state_bytes, local_bytes, ordered, barriers, size)


class Made(NamedTuple):
    """A kernel's IR, and what a launch of it needs to know."""

    text: str
    facts: Facts


def make(context: Context, layout: Layout, quick: bool = False) -> Made:
    """The IR of a kernel for a layout: as it runs quickest, or to be compiled quickly.

    Raises
    ------
    Refusal
    """
    return _Kernel(Analysis(context, layout), effort_of(len(context.function.code), quick)).made()


class _Kernel:
    def __init__(self, known: Analysis, effort: Effort) -> None:
        self.known, self.flow, self.parted, self.code = known, known.flow, known.shapes.parted, known.function.code
        self.scaffold = Scaffold(known, effort)
        self.waiting = Waiting(self.scaffold)
        self.b, self.text = self.scaffold.b, self.scaffold.text
        self.ordered = bool(known.polling)

    def made(self) -> Made:
        b, text, scaffold, known = self.b, self.text, self.scaffold, self.known
        scaffold.begin()
        text.jump(scaffold.body(0))
        for place, number in enumerate(self.flow.order):
            self._block(place, number)
        self.waiting.chain_end()
        self.waiting.resumes()
        scaffold.end()
        head = "\n".join(scaffold.entry())
        body = "\n".join(text.lines)
        declared = "\n".join(sorted(text.declared))
        # Nothing unwinds: there are no tables that would have to be registered, and to be taken back.
        whole = (
            f"{DECLARED}\ndefine i64 @kernel(ptr noalias %ctx, i64 %first, i64 %last) #0 {{\n"
            f"{head}\n{body}\n}}\n{declared}\n"
            'attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }\n'
            '!0 = !{}\n!1 = !{!"branch_weights", i32 1, i32 10000}\n!2 = !{!"branch_weights", i32 10000, i32 1}\n'
        )
        facts = Facts(
            tuple(b.sites),
            tuple(b.symbols),
            scaffold.states.bytes if known.suspends else 0,
            known.context.local_bytes,
            self.ordered,
            tuple((number + 1, self.flow.blocks[number].last - 1) for number in known.waiting),
            len(self.code),
        )
        return Made(whole, facts)

    def _block(self, place: int, number: int) -> None:
        b, text, scaffold = self.b, self.text, self.scaffold
        block, code = self.flow.blocks[number], self.code
        mask_place = scaffold.masks.get(number)
        none, every = constant(b.mask_type, 0), constant(b.mask_type, -1)
        text.label(scaffold.chain(place))
        meeting = number in self.parted and block.has_collective
        if mask_place is not None:
            here = text.load(b.mask_type, mask_place)
            if meeting:
                here = self._come_together(code[block.first], here)
            text.branch(text.compare("ne", here, none), scaffold.body(number), scaffold.behind(place))
        else:
            text.jump(scaffold.behind(place))
        text.label(scaffold.body(number))
        lanes, left = scaffold.whole(), none
        if mask_place is not None and number in self.parted:
            lanes = text.load(b.mask_type, mask_place)
            if meeting and not self._same_mask(code[block.first]):
                come = self._come_together(code[block.first], lanes)
                left = text.binary("xor", lanes, come)
                lanes = come
        if mask_place is not None:
            text.store(left, mask_place)
        inside = guarded(b, [given for given in code[block.first : block.last] if not ends_block(given)])
        mask = scaffold.full if number not in self.parted else b.from_bits(lanes)
        if mask is None or b.single:
            self._ways(place, number, inside, mask, False)
        else:
            some = text.fresh("some")
            text.branch(text.compare("eq", lanes, every), scaffold.whole_body(number), some)
            text.label(some)
            self._ways(place, number, inside, mask, True)
            text.label(scaffold.whole_body(number))
            self._ways(place, number, inside, None, True)
        self._behind(place, block)

    def _behind(self, place: int, block: Block) -> None:
        """What comes behind a block: of the loops that end here, round again while lanes wait at the header."""
        b, text, scaffold, flow = self.b, self.text, self.scaffold, self.flow
        text.label(scaffold.behind(place))
        none = constant(b.mask_type, 0)
        for header in reversed(block.loops):
            body = flow.loops[header]
            if max(flow.place[member] for member in body) != place:
                break
            if header not in scaffold.masks or not body & self.parted:
                continue
            waits_here = text.compare("ne", text.load(b.mask_type, scaffold.masks[header]), none)
            around, out = text.fresh("around"), text.fresh("out")
            text.branch(waits_here, around, out)
            text.label(around)
            if header in self.known.polling:
                self.waiting.let_others_run(header)
                text.jump(out)
                text.label(out)
                continue
            scaffold.tick()
            meeting = flow.blocks[header].has_collective
            text.jump(scaffold.chain(flow.place[header]) if meeting else scaffold.body(header))
            text.label(out)
        text.jump(scaffold.chain(place + 1))

    def _ways(self, place: int, number: int, inside: Guarded, mask: X | None, masked: bool) -> None:
        """A block for the lanes of a mask, or of the vector: accesses checked before, or each.

        Where a block is there for both, `masked`, that with each checked is there once.
        """
        b, text, scaffold = self.b, self.text, self.scaffold
        b.known_here.clear()
        if self.known.meets_parted:
            text.store(X("i1", "true"), scaffold.moved)
        for given in inside.early:
            self._instruction(given, mask)
        here, each = f"%here.b{number}", f"each.b{number}"
        other = text.fresh("other") if masked and mask is None else each
        if mask is not None and inside.reaches:
            b.allocas.append(f"  {here} = alloca {mask.type}, align 8")
            text.store(mask, here)
        b.mask = mask
        checked = check_together(b, inside.reaches, other)
        for at, given in enumerate(inside.rest):
            reach = inside.reach_of(at)
            b.checked = None if reach is None else checked[reach]
            self._instruction(given, mask)
        b.checked = None
        if inside.reaches and other == each:
            behind = text.fresh("behind")
            text.jump(behind)
            text.label(each)
            held = mask if mask is None else text.load(mask.type, here)
            for at, given in enumerate(inside.rest):
                b.unlikely = inside.reach_of(at) is not None
                self._instruction(given, held)
            b.unlikely = False
            text.jump(behind)
            text.label(behind)
            mask = mask if mask is None else text.load(mask.type, here)
        b.mask, b.guarded = mask, False
        self._leave(place, number, mask)
        if inside.reaches and other != each:
            text.label(other)
            text.store(b.all_lanes(), here)
            text.jump(each)

    def _same_mask(self, given: Instruction) -> bool:
        """Whether all lanes that come to an instruction name the same lanes."""
        return "sync" not in given.modifiers or self.known.shapes.shape(member_mask(given)) in (UNIFORM, None)

    def _come_together(self, given: Instruction, here: X) -> X:
        """Of lanes, as bits, those of which all that they name have come to an instruction, or have left."""
        b, text, scaffold = self.b, self.text, self.scaffold
        if "sync" not in given.modifiers:
            return here
        alive = text.load(b.mask_type, scaffold.alive)
        missing = text.binary("and", alive, text.binary("xor", here, -1))
        value = b.read(member_mask(given), "b32")
        named = value.x if value.shape == UNIFORM else b.lanes(value)
        if given.guard is not None:
            # Lanes that the guard leaves out wait for none.
            register, negated = given.guard
            chosen = b.read(register, "pred")
            named = named if chosen.shape == UNIFORM else b.spread(named) if not named.is_vector else named
            none = constant(named.type, 0)
            held = chosen.x if chosen.shape == UNIFORM else b.lanes(chosen)
            named = text.select(held, none, named) if negated else text.select(held, named, none)
        wanted = text.binary("and", named, b.spread(missing) if named.is_vector else missing)
        come = text.compare("eq", wanted, 0)
        return text.binary("and", here, b.bits(come)) if come.is_vector else text.select(come, here, constant("i32", 0))

    def _named_by_itself(self, given: Instruction) -> None:
        """Stop at a lane that is not in the mask of those that it waits for."""
        b, text = self.b, self.text
        operand = member_mask(given)
        if isinstance(operand, Immediate) and operand.value & 0xFFFF_FFFF == 0xFFFF_FFFF:
            return
        value = b.read(operand, "b32")
        if value.shape == UNIFORM:
            beside = text.binary("xor", value.x, -1)
        else:
            own = text.binary("and", text.binary("lshr", b.lanes(value), b.iota("i32")), 1)
            beside = b.bits(text.compare("eq", own, 0))
        outside = b.from_bits(text.binary("and", b.bits(b.all_lanes()), beside))
        b.stop_where(outside, text.cast("zext", b.lanes(value), "i64"))

    def _instruction(self, given: Instruction, mask: X | None) -> None:
        b, text = self.b, self.text
        b.given, b.mask, b.guarded = given, mask, False
        entry = entry_of(given)
        assert entry is not None
        if given.opcode == "call" or (is_atomic(given) and "shared" not in given.modifiers):
            self.ordered = True
        of_threads = thread_shape(given, self.known.threads, self.known.layout.width)
        if of_threads is not None:
            emit_of_threads(given, b, of_threads)
            return

        def emit() -> None:
            if "sync" in given.modifiers and is_collective(given):
                self._named_by_itself(given)
            entry.emit(given, b)

        if given.guard is None:
            emit()
            return
        held = b.holds(given.guard)
        some = held.x
        if held.shape != UNIFORM:
            b.mask, b.guarded = held.x if mask is None else text.binary("and", mask, held.x), True
            some = b.any_of(b.mask)
        with text.when(some):
            emit()

    def _leave(self, place: int, number: int, mask: X | None) -> None:
        """How a block ends."""
        b, text, scaffold, flow = self.b, self.text, self.scaffold, self.flow
        block = flow.blocks[number]
        given = self.known.last_of(number)
        b.given = given
        lanes = b.bits(b.all_lanes() if mask is None else mask)
        if block.has_barrier:
            self.waiting.wait(place, number, mask)
            return
        if given.opcode == "brx":
            raise Refusal(f"instruction {given}")
        if len(set(block.successors)) == 1:  # a branch to what comes next parts no lanes
            self._go(place, number, block.successors[0], mask)
            return
        assert given.guard is not None
        register, negated = given.guard
        held = b.holds(given.guard)
        then, otherwise = block.successors
        if held.shape == UNIFORM:
            self._either(held.x, place, number, then, mask)
            self._go(place, number, otherwise, mask)
            return
        known = held_verdict(b, register)
        if known is not None:
            self._either(known.none if negated else known.all, place, number, then, mask)
            self._either(known.all if negated else known.none, place, number, otherwise, mask)
        bits = b.bits(held.x)
        if known is None and mask is None:
            self._either(text.compare("eq", bits, -1), place, number, then, mask)
            self._either(text.compare("eq", bits, 0), place, number, otherwise, mask)
        scaffold.send(then, text.binary("and", lanes, bits))
        scaffold.send(otherwise, text.binary("and", lanes, text.binary("xor", bits, -1)))
        text.jump(scaffold.behind(place))

    def _either(self, held: X, place: int, number: int, to: int, mask: X | None) -> None:
        """All lanes of a block go to another where a condition holds; else what follows is done."""
        there, here = self.text.fresh("there"), self.text.fresh("here")
        self.text.branch(held, there, here)
        self.text.label(there)
        self._go(place, number, to, mask)
        self.text.label(here)

    def _go(self, place: int, number: int, to: int, mask: X | None) -> None:
        """All lanes of a block go to another: those of a mask, or of the vector."""
        text, flow, parted = self.text, self.flow, number in self.parted
        lanes = self.b.bits(self.b.all_lanes() if mask is None else mask)
        around = to != flow.end and flow.place[to] <= place
        if parted and (mask is not None or self.b.single or (around and to in self.known.polling)):
            self.scaffold.send(to, lanes)
            text.jump(self.scaffold.behind(place))
            return
        if to == flow.end:
            text.jump("left")
            return
        if around:
            if to in self.known.polling:
                self.waiting.leave_vector(to)
                return
            self.scaffold.tick()
        self.waiting.enter(number, to)
        if mask is None and not self.b.single:
            text.jump(self.scaffold.whole_body(to))
            return
        if to in self.parted:
            text.store(lanes, self.scaffold.masks[to])
        text.jump(self.scaffold.body(to))
