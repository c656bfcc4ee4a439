"""Where a vector waits: its live registers are saved, and the next vector of the block of threads goes on.

Once all have come, each is resumed where it was.
"""

from __future__ import annotations

from cudakit.emulator.compiled import barriers
from cudakit.emulator.compiled.builder import Value
from cudakit.emulator.compiled.layout import DONE, PARTED, Ending
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.saves import Saves
from cudakit.emulator.compiled.scaffold import Scaffold
from cudakit.emulator.compiled.shapes import UNIFORM
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.isa.facts import facts_of
from cudakit.emulator.ptx.program import Instruction

#: Numbers of the barriers that a block has.
_BARRIERS = frozenset(range(16))
_TRUE, _FALSE = X("i1", "true"), X("i1", "false")


class Waiting:
    """The code at barriers, and at loops that wait for what others write."""

    def __init__(self, scaffold: Scaffold) -> None:
        self.scaffold, self.known = scaffold, scaffold.known
        self.b, self.text, self.states = scaffold.b, scaffold.text, scaffold.states
        self.flow, self.parted = scaffold.flow, scaffold.parted
        known = self.known
        self.saves = Saves(self.flow, known.shapes, bool(known.polling or known.parted_waits or known.counted))

    # ── coming to wait ──

    def let_others_run(self, header: int) -> None:
        """Let the lanes that wait at a loop's header go round once others have run."""
        b, text, scaffold = self.b, self.text, self.scaffold
        self._note_yield(True)
        place, held = scaffold.masks[header], scaffold.masks[scaffold.poll_of(header)]
        both = text.binary("or", text.load(b.mask_type, place), text.load(b.mask_type, held))
        text.store(both, held)
        text.store(constant(both.type, 0), place)

    def enter(self, number: int, header: int) -> None:
        """Save what is to be saved on the way from a block into a loop."""
        self.states.save(self.saves.entries.get((number, header), ()))

    def leave_vector(self, header: int) -> None:
        """Let other vectors run, before this one goes round a loop again."""
        self.states.save(self.known.shapes.live_in[header])
        self.states.resume_at(self.scaffold.poll_of(header))
        self._note_yield(True)
        self.text.jump("vector.done")

    def _note_yield(self, polls: bool) -> None:
        """Note that a vector lets the others go on, and is to come again."""
        scaffold = self.scaffold
        for place in (scaffold.again, scaffold.yielded, *((scaffold.polled,) if polls else ())):
            self.text.store(_TRUE, place)

    def wait(self, place: int, number: int, mask: X | None) -> None:
        """Wait at the barrier that a block ends with."""
        b, text, scaffold, known = self.b, self.text, self.scaffold, self.known
        lanes = b.bits(b.all_lanes() if mask is None else mask)
        given = known.last_of(number)
        reduces = "red" in given.modifiers
        others = [each for each in known.function.code if facts_of(each).does in ("waits", "arrives")]
        numbers = {barriers.barrier_of(each) for each in others}
        whole = {barriers.barrier_of(each) for each in others if not barriers.is_counted(each)}
        parts = numbers if not whole else {barriers.barrier_of(each) for each in others if barriers.is_counted(each)}
        if "cluster" in given.modifiers or given.guard is not None or len(whole) > 1 or not whole.isdisjoint(parts):
            raise Refusal(f"instruction {given} with its operands, or several barriers of a block")
        if not numbers <= _BARRIERS or (reduces and (known.polling or known.counted)):
            raise Refusal(f"instruction {given} with its operands")
        if reduces:
            held = text.binary("and", b.bits(b.lanes(b.read(given.operands[-1], "pred"))), lanes)
            for place_, bits in ((scaffold.true, held), (scaffold.come, lanes)):
                count = text.call(f"llvm.ctpop.{bits.type}", bits.type, bits)
                count = text.cast("zext", count, "i32") if b.width < 32 else count
                text.store(text.binary("add", text.load("i32", place_), count), place_)
        text.store(constant("i64", 0), scaffold.idle)
        if barriers.is_counted(given):
            self._wait_for_some(number)
            return
        text.store(_TRUE, scaffold.again)
        if number in self.parted:
            text.do('fence syncscope("singlethread") seq_cst')
            waiting = scaffold.masks[scaffold.wait_of(number)]
            text.store(text.binary("or", text.load(b.mask_type, waiting), lanes), waiting)
            text.jump(scaffold.behind(place))
            return
        self.states.save(self.saves.stores[number])
        self.states.resume_at(number + 1)
        text.jump("vector.done")

    def _wait_for_some(self, number: int) -> None:
        """Wait at a barrier for a part of the block."""
        b, text, given = self.b, self.text, self.known.last_of(number)
        if number in self.parted:
            raise Refusal(f"instruction {given} where lanes part")
        before, met = barriers.come(b, given)
        on, stay = text.fresh("met"), text.fresh("stay")
        text.branch(met, on, stay)
        text.label(stay)
        self.states.save(self.saves.stores[number])
        text.store(before, self._turn_at(number))
        self.states.resume_at(number + 1)
        self._note_yield(False)
        text.jump("vector.done")
        text.label(on)
        self._go_on(number)

    def _turn_at(self, number: int) -> str:
        """Where a vector keeps how often its barrier was met before it came."""
        return self.states.place(f"turn of {number}", "", "i64")

    # ── going on ──

    def chain_end(self) -> None:
        """No block has lanes that can go on: they have left, or wait."""
        b, text, scaffold, held = self.b, self.text, self.scaffold, self.scaffold.holds()
        text.label("chain.end")
        if self.known.meets_parted:
            some = self._any_of([scaffold.masks[number] for number in self.flow.order if number in scaffold.masks])
            text.branch(some, "chain.pending", "chain.settled")
            text.label("chain.pending")
            moved = text.load("i1", scaffold.moved)
            text.store(_FALSE, scaffold.moved)
            text.branch(moved, scaffold.chain(0), "stuck")
            text.label("chain.settled")
        if held:
            text.branch(self._any_of([scaffold.masks[key] for key, _ in held]), "chain.wait", "left")
            text.label("chain.wait")
            self.states.save(self._live_over_parted())
            for key, _ in held:
                self.states.move(b.mask_type, self._mask_at(key), scaffold.masks[key], load=False)
            self.states.move(b.mask_type, self._mask_at(0), scaffold.alive, load=False)
            self.states.resume_at(PARTED)
            text.jump("vector.done")
        else:
            text.jump("left")
        text.label("left")
        if self.known.suspends:
            self.states.resume_at(DONE)
            text.store(constant("i64", 0), scaffold.idle)
        text.jump("vector.done")
        text.label("stuck")
        text.do(f"ret i64 {Ending.STUCK:d}")

    def _any_of(self, masks: list[str]) -> X:
        """Whether lanes are in one of these masks."""
        b, text = self.b, self.text
        held = none = constant(b.mask_type, 0)
        for place in masks:
            held = text.binary("or", held, text.load(b.mask_type, place))
        return text.compare("ne", held, none)

    def _live_over_parted(self) -> set[str]:
        live: set[str] = set()
        for _, after in self.scaffold.holds():
            if after != self.flow.end:
                live |= self.known.shapes.live_in[after]
        return live

    def _mask_at(self, key: int) -> str:
        return self.states.place(f"mask of {key}", "", self.b.mask_type)

    def resumes(self) -> None:
        """Where vectors go on that have waited."""
        text, scaffold, known = self.text, self.scaffold, self.known
        for number in known.waiting:
            if number not in self.parted:
                self._resume(number, known.last_of(number))
        for number in known.lone_polls:
            text.label(f"resume.y{number}")
            self.states.load(known.shapes.live_in[number])
            scaffold.tick()
            text.jump(scaffold.body(number))
        if scaffold.holds():
            self._resume_parted()

    def _resume(self, number: int, given: Instruction) -> None:
        """A vector comes again to a barrier."""
        b, text, scaffold = self.b, self.text, self.scaffold
        text.label(f"resume.b{number}")
        on, still = text.fresh("on"), text.fresh("still")
        if barriers.is_counted(given):
            now = text.load("i64", barriers.turn(b, given))
            text.branch(text.compare("ne", now, text.load("i64", self._turn_at(number))), on, still)
            text.label(still)
            self._note_yield(False)
            scaffold.tick()
        else:
            text.branch(text.load("i1", scaffold.release), on, still)
            text.label(still)
            text.store(_TRUE, scaffold.again)
        text.jump("vector.done")
        text.label(on)
        if self.flow.blocks[number].successors[0] != self.flow.end:
            self.states.load(self.saves.loads[number])
            self._reduced(number, None)
        self._go_on(number)

    def _resume_parted(self) -> None:
        """A vector comes again whose lanes wait in several places."""
        b, text, scaffold = self.b, self.text, self.scaffold
        text.label("resume.parted")
        self.states.load(self._live_over_parted())
        self.states.move(b.mask_type, self._mask_at(0), scaffold.alive, load=True)
        scaffold.tick()
        for key, after in scaffold.holds():
            place: str = scaffold.masks[key]
            self.states.move(b.mask_type, self._mask_at(key), place, load=True)
            lanes = text.load(b.mask_type, place)
            none = constant(lanes.type, 0)
            if key < 0 and self.known.polling:
                # A barrier holds those back that others have not come to.
                released = text.load("i1", scaffold.release)
                text.store(text.select(released, none, lanes), place)
                lanes = text.select(released, lanes, none)
                held_back = text.binary("xor", released, _TRUE)
                text.store(text.binary("or", text.load("i1", scaffold.again), held_back), scaffold.again)
            else:
                text.store(none, place)
            if key < 0:
                self._reduced(-key - 1, b.from_bits(lanes))
            scaffold.send(after, lanes)
        text.jump(scaffold.chain(0))

    def _reduced(self, number: int, mask: X | None) -> None:
        """Write what a barrier gives the lanes that it lets go."""
        b, text, given = self.b, self.text, self.known.last_of(number)
        if "red" not in given.modifiers:
            return
        b.given, b.mask, b.guarded = given, mask, mask is not None
        true, come = text.load("i32", self.scaffold.last_true), text.load("i32", self.scaffold.last_come)
        target = given.operands[0]
        if "popc" in given.modifiers:
            b.write(target, "u32", Value(UNIFORM, true))
        elif "and" in given.modifiers:
            b.write(target, "pred", Value(UNIFORM, text.compare("eq", true, come)))
        else:
            b.write(target, "pred", Value(UNIFORM, text.compare("ne", true, constant("i32", 0))))

    def _go_on(self, number: int) -> None:
        """A vector goes on behind the barrier that a block ends with."""
        text, scaffold, flow = self.text, self.scaffold, self.flow
        (after,) = flow.blocks[number].successors
        if after == flow.end:
            text.jump("left")
            return
        if flow.place[after] <= flow.place[number]:
            scaffold.tick()
        if after in self.parted:
            text.store(scaffold.whole(), scaffold.masks[after])
        text.jump(scaffold.body(after))
