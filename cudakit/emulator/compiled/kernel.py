"""A kernel as LLVM IR: its blocks one after the other, run for each vector of each block of threads.

Where lanes part
    Each basic block that some lanes may come to without the others has a mask of those that wait for it. These blocks
    are gone through in one order, and each runs for the lanes that wait there. A loop goes round until none waits at
    its header.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cudakit.emulator.compiled import threads, verdicts
from cudakit.emulator.compiled.analysis import Analysis
from cudakit.emulator.compiled.builder import Reached, Site
from cudakit.emulator.compiled.emit.table import entry_of
from cudakit.emulator.compiled.flow import Block, ends_block, meets, named_lanes
from cudakit.emulator.compiled.guards import Guarded, check_together, guarded
from cudakit.emulator.compiled.helpers import DECLARED
from cudakit.emulator.compiled.layout import Layout
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.scaffold import Scaffold
from cudakit.emulator.compiled.shapes import UNIFORM
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.compiled.waiting import Waiting
from cudakit.emulator.isa.facts import is_atomic
from cudakit.emulator.machine.decode import Context
from cudakit.emulator.ptx.program import Immediate, Instruction


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


#: Instructions of a kernel from which on a second body for each block takes longer to compile than it gains.
_LONG = 1000


def make(context: Context, layout: Layout, quick: bool = False) -> Made:
    """The IR of a kernel for a layout: as it runs quickest, or to be compiled quickly.

    Raises
    ------
    Refusal
    """
    single = quick or len(context.function.code) > _LONG
    return _Kernel(Analysis(context, layout), single).made()


class _Kernel:
    def __init__(self, known: Analysis, single: bool) -> None:
        self.known, self.flow, self.parted, self.code = known, known.flow, known.shapes.parted, known.function.code
        self.scaffold = Scaffold(known, single)
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
        meeting = number in self.parted and block.meets
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
            meeting = flow.blocks[header].meets
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
        return "sync" not in given.modifiers or self.known.shapes.shape(named_lanes(given)) in (UNIFORM, None)

    def _come_together(self, given: Instruction, here: X) -> X:
        """Of lanes, as bits, those of which all that they name have come to an instruction, or have left."""
        b, text, scaffold = self.b, self.text, self.scaffold
        if "sync" not in given.modifiers:
            return here
        alive = text.load(b.mask_type, scaffold.alive)
        missing = text.binary("and", alive, text.binary("xor", here, constant("i32", -1)))
        value = b.read(named_lanes(given), "b32")
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
        come = text.compare("eq", wanted, constant(wanted.type, 0))
        return text.binary("and", here, b.bits(come)) if come.is_vector else text.select(come, here, constant("i32", 0))

    def _named_by_itself(self, given: Instruction) -> None:
        """Stop at a lane that is not in the mask of those that it waits for."""
        b, text = self.b, self.text
        operand = named_lanes(given)
        if isinstance(operand, Immediate) and operand.value & 0xFFFF_FFFF == 0xFFFF_FFFF:
            return
        value = b.read(operand, "b32")
        if value.shape == UNIFORM:
            beside = text.binary("xor", value.x, constant("i32", -1))
        else:
            own = text.binary("and", text.binary("lshr", b.lanes(value), b.iota("i32")), constant(b.vector("i32"), 1))
            beside = b.bits(text.compare("eq", own, constant(own.type, 0)))
        outside = b.from_bits(text.binary("and", b.bits(b.all_lanes()), beside))
        b.stop_where(outside, text.cast("zext", b.lanes(value), "i64"))

    def _instruction(self, given: Instruction, mask: X | None) -> None:
        b, text = self.b, self.text
        b.given, b.mask, b.guarded = given, mask, False
        entry = entry_of(given)
        assert entry is not None
        if given.opcode == "call" or (is_atomic(given) and "shared" not in given.modifiers):
            self.ordered = True
        of_threads = threads.shape_of(given, self.known.threads, self.known.layout.width)
        if of_threads is not None:
            threads.emit(given, b, of_threads)
            return

        def emit() -> None:
            if "sync" in given.modifiers and meets(given):
                self._named_by_itself(given)
            entry.emit(given, b)

        if given.guard is None:
            emit()
            return
        register, negated = given.guard
        chosen = b.read(register, "pred")
        held = text.binary("xor", chosen.x, constant(chosen.x.type, 1)) if negated else chosen.x
        do, skip = text.fresh("do"), text.fresh("skip")
        if chosen.shape == UNIFORM:
            text.branch(held, do, skip)
        else:
            b.mask = b.both(mask, held)
            b.guarded = True
            assert b.mask is not None
            text.branch(b.any_of(b.mask), do, skip)
        text.label(do)
        emit()
        text.jump(skip)
        text.label(skip)

    def _leave(self, place: int, number: int, mask: X | None) -> None:
        """How a block ends."""
        b, text, scaffold, flow = self.b, self.text, self.scaffold, self.flow
        block = flow.blocks[number]
        given = self.known.last_of(number)
        b.given = given
        lanes = b.bits(b.all_lanes() if mask is None else mask)
        if block.waits:
            self.waiting.wait(place, number, mask)
            return
        if given.opcode == "brx":
            raise Refusal(f"instruction {given}")
        if len(set(block.successors)) == 1:  # a branch to what comes next parts no lanes
            self._go(place, number, block.successors[0], mask)
            return
        register, negated = given.guard  # type: ignore[misc]
        chosen = b.read(register, "pred")
        held = text.binary("xor", chosen.x, constant(chosen.x.type, 1)) if negated else chosen.x
        then, otherwise = block.successors
        if chosen.shape == UNIFORM:
            self._either(held, place, number, then, mask)
            self._go(place, number, otherwise, mask)
            return
        known = verdicts.held(b, register)
        if known is not None:
            self._either(known.none if negated else known.all, place, number, then, mask)
            self._either(known.all if negated else known.none, place, number, otherwise, mask)
        bits = b.bits(held)
        if known is None and mask is None:
            self._either(text.compare("eq", bits, constant(bits.type, -1)), place, number, then, mask)
            self._either(text.compare("eq", bits, constant(bits.type, 0)), place, number, otherwise, mask)
        scaffold.send(then, text.binary("and", lanes, bits))
        scaffold.send(otherwise, text.binary("and", lanes, text.binary("xor", bits, constant(bits.type, -1))))
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
