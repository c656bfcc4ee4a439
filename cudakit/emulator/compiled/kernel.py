"""A kernel as LLVM IR: its blocks one after the other, run for each vector of each block of threads.

Where lanes part
    Each basic block that some lanes may come to without the others has a mask of those that wait for it. These blocks
    are gone through in one order, and each runs for the lanes that wait there. A loop goes round until none waits at
    its header.
Where a vector waits
    Its live registers are saved, and the next vector of the block of threads goes on. Once all have come, each is
    resumed where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cudakit.emulator.compiled import turns, verdicts
from cudakit.emulator.compiled.builder import Builder, Site, Value, bits_of
from cudakit.emulator.compiled.emit import EMITTERS  # noqa: F401 (fills the table)
from cudakit.emulator.compiled.emit.access import STRONG
from cudakit.emulator.compiled.emit.table import entry_of
from cudakit.emulator.compiled.flow import Flow, meets, named_lanes, waits
from cudakit.emulator.compiled.guards import Guarded, check_together, guarded
from cudakit.emulator.compiled.helpers import DECLARED
from cudakit.emulator.compiled.layout import Layout, Slot
from cudakit.emulator.compiled.polls import polling
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.saves import Saves
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape, Shapes, resized, sources, targets
from cudakit.emulator.compiled.text import X, constant, lanes_of
from cudakit.emulator.machine.context import STORAGE, Context
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand, Register, Symbol

_DONE = -1
#: What code comes back with: an error that is written down; told to stop; lanes of a warp that wait for each other;
#: a block whose threads wait for what others have not written yet.
FAILED, STOPPED, STUCK, IDLE = 1, 2, 3, 4
#: Sweeps over a block in which nothing comes on, before others are let run.
_PATIENCE = 16
#: Instructions of a kernel whose registers LLVM may take out of memory over all of it.
_SHORT = 300
_AXES = "xyz"


@dataclass(frozen=True, slots=True)
class Made:
    """A kernel's IR, and what a launch of it needs to know."""

    text: str
    #: Where errors can be, which they name by number.
    sites: tuple[Site, ...]
    #: Variables whose addresses it asks for, in their order.
    symbols: tuple[str, ...]
    #: Bytes that a vector's saved registers take; 0 where none waits.
    state_bytes: int
    #: Lanes of a vector.
    width: int
    #: Whether blocks may change what others read, so that their order is to be kept.
    ordered: bool
    #: Whether it runs by strips of blocks, which are not to be parted.
    strips: bool


def uses_warps(context: Context) -> bool:
    """Whether lanes of a warp meet in a kernel."""
    for given in context.function.code:
        entry = entry_of(given)
        if entry is not None and entry.warps:
            return True
        if any(isinstance(each, Register) and each.name.startswith("%lanemask") for each in given.operands):
            return True
    return False


def adds_floats(context: Context) -> bool:
    """Whether a kernel adds floats atomically, in whose sums the order of the lanes is seen."""
    return any(
        given.opcode in ("atom", "red") and "add" in given.modifiers and given.modifiers[-1].startswith(("f", "bf"))
        for given in context.function.code
    )


def is_free(context: Context) -> bool:
    """Whether the vectors of a kernel have nothing to do with each other: none waits, none sees what others do."""
    if context.local or _uses_shared(context):
        return False
    for given in context.function.code:
        if given.opcode in ("atom", "red", "call") or waits(given) or not STRONG.isdisjoint(given.modifiers):
            return False
    return True


def check(context: Context) -> None:
    """Check that all instructions of a kernel have an entry.

    Raises
    ------
    Refusal
    """
    for given in context.function.code:
        if given.opcode not in ("bra", "ret", "exit") and not waits(given) and entry_of(given) is None:
            raise Refusal(f"instruction {given}")
    if context.local_align > 64:
        raise Refusal("local memory of a large alignment")


def make(context: Context, layout: Layout, brief: bool = False) -> Made:
    """The IR of a kernel for a layout: as it runs quickest, or with as little to compile as can be, `brief`.

    Raises
    ------
    Refusal
    """
    check(context)
    return _Kernel(context, layout, brief).made()


class _Kernel:
    def __init__(self, context: Context, layout: Layout, brief: bool) -> None:
        self.context, self.layout = context, layout
        self.function = context.function
        self.flow = Flow(self.function)
        self.polling = polling(self.flow)
        self.shapes = Shapes(self.function, self.flow, self._special_shape, self._transfer, self.polling)
        self.b = Builder(context, self.shapes, layout, self._raw(), brief)
        self.text = self.b.text
        self.parted = self.shapes.parted
        self.waiting = [n for n in self.flow.order if waits(self.function.code[self.flow.blocks[n].last - 1])]
        self.parted_waits = [n for n in self.waiting if n in self.parted]
        self.parted_polls = [n for n in self.flow.order if n in self.polling and n in self.parted]
        self.lone_polls = [n for n in self.flow.order if n in self.polling and n not in self.parted]
        self.suspends = bool(self.waiting or self.polling)
        self.saves = Saves(self.flow, self.shapes, bool(self.polling or self.parted_waits))
        self.saved: dict[tuple[str, str], int] = {}
        self.state_bytes = 64
        self.masks: dict[int, str] = {}
        self.ordered = False

    # ── what is known before ──

    def _special_shape(self, name: str) -> Shape:
        base, _, axis = name.removeprefix("%").partition(".")
        if base == "tid":
            return VARYING if not self.layout.rows else Affine(1) if axis == "x" else UNIFORM
        if base == "laneid":
            return Affine(1)
        return VARYING if base.startswith("lanemask") else UNIFORM

    def _transfer(self, given: Instruction, shape: Callable[[Operand], Shape]) -> Shape:
        entry = entry_of(given)
        if entry is None:
            return VARYING  # a barrier's result

        def of(operand: Operand | None, kind: str) -> Shape:
            if operand is None:  # whether the kernel has local memory
                return UNIFORM if self.context.local else None
            held = shape(operand)
            if isinstance(held, Affine) and isinstance(operand, Register) and kind in STORAGE:
                has = self.function.registers.get(operand.name, "b32")
                return resized(held, bits_of(has), bits_of(kind), kind[0] == "s")
            return held

        return entry.transfer(given, lambda operand, kind="": of(operand, kind))

    def _raw(self) -> set[str]:
        """Registers of float32 that only arithmetic writes: their NaN are made canonical when they are read."""
        raw = set[str]()
        for given in self.function.code:
            entry = entry_of(given)
            if entry is not None and entry.makes_nan and given.opcode != "mov" and given.modifiers[-1] == "f32":
                raw.update(targets(given))
        raw |= {name for given in self.function.code if given.opcode == "mov" for name in targets(given)}
        changed = True
        while changed:
            changed = False
            for given in self.function.code:
                entry = entry_of(given)
                fits = entry is not None and entry.makes_nan and given.modifiers[-1] == "f32"
                if given.opcode == "mov":
                    source = given.operands[1]
                    same = isinstance(source, Register) and source.name in raw
                    number = isinstance(source, Immediate) and _is_number(source)
                    fits = given.modifiers[-1] in ("f32", "b32") and (same or number)
                for name in targets(given):
                    if name in raw and not fits:
                        raw.discard(name)
                        changed = True
        return raw

    # ── the text ──

    def made(self) -> Made:
        b, text = self.b, self.text
        b.starts = []
        self._before()
        text.jump(self._body(0))
        for place, number in enumerate(self.flow.order):
            self._block(place, number)
        self._chain_end()
        self._resumes()
        self._after()
        head = "\n".join(self._entry())
        body = "\n".join(text.lines)
        declared = "\n".join(sorted(text.declared))
        # Nothing unwinds: there are no tables that would have to be registered, and to be taken back.
        whole = (
            f"{DECLARED}\ndefine i64 @kernel(ptr noalias %ctx, i64 %first, i64 %last) #0 {{\n"
            f"{head}\n{body}\n}}\n{declared}\n"
            'attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }\n'
            '!0 = !{}\n!1 = !{!"branch_weights", i32 1, i32 10000}\n!2 = !{!"branch_weights", i32 10000, i32 1}\n'
        )
        return Made(
            whole,
            tuple(b.sites),
            tuple(b.symbols),
            self.state_bytes if self.suspends else 0,
            b.width,
            self.ordered or bool(self.polling),
            self.layout.strips,
        )

    def _entry(self) -> list[str]:
        b = self.b
        lines = ["entry:", *b.allocas]
        for name in self.function.registers:
            if name in self.shapes.of or name in self.shapes.live_in[0]:
                lines += [f"  {b.place_of(name, part)} = alloca {type_}, align 256" for part, type_ in b.types_of(name)]
        for number, place in self.masks.items():
            lines.append(f"  {place} = alloca {b.mask_type}, align 8 ; of block {number}")
        if len(self.function.code) > _SHORT:
            # What is live over blocks stays in memory: else LLVM hands it on wherever ways meet, which takes long.
            lines.append(f"  %kept.there = getelementptr i64, ptr %ctx, i64 {int(Slot.KEPT)}")
            lines += [f"  store ptr {place}, ptr %kept.there" for place in self._over_blocks()]
        return [*lines, *b.starts, "  br label %setup"]

    def _over_blocks(self) -> list[str]:
        """Where registers are that live from one block to another, and the lanes that wait for each."""
        live = sorted(set[str]().union(*self.shapes.live_in))
        registers = [self.b.place_of(name, part) for name in live for part, _ in self.b.types_of(name)]
        return [*self.masks.values(), *registers]

    def _before(self) -> None:
        """What comes before the kernel's own code: over blocks, and over the vectors of one."""
        b, text = self.b, self.text
        for number in self.flow.order:
            if number in self.parted or not self.parted.isdisjoint(self.flow.blocks[number].predecessors):
                self.masks[number] = f"%mask.b{number}"
        for number in self.parted_waits:
            self.masks[-number - 1] = f"%wait.b{number}"
        for number in self.parted_polls:
            self.masks[self._poll(number)] = f"%poll.b{number}"
        self.alive = b.alloca(b.mask_type, "alive")
        self.again = b.alloca("i1", "again")
        self.moved = b.alloca("i1", "moved")
        #: Whether vectors that wait at a barrier may go on; whether one has yielded; sweeps in which nothing came on.
        self.release, self.yielded, self.idle = (
            b.alloca("i1", "release"),
            b.alloca("i1", "yielded"),
            b.alloca("i64", "idle"),
        )
        #: Threads that have come to a barrier that reduces, and those with a predicate that holds; and the last time.
        self.come, self.true = b.alloca("i32", "come"), b.alloca("i32", "true")
        self.last_come, self.last_true = b.alloca("i32", "last.come"), b.alloca("i32", "last.true")
        self.ticks = b.alloca("i64", "ticks")
        b.scratch_addresses = b.alloca(b.vector("i64"), "addresses")
        b.scratch_values = b.alloca("i8", "values", b.width * 64)
        b.local_row = max(16, -(-self.context.local_bytes // 16) * 16) if self.context.local else 0
        text.label("setup")
        b.parameters = b.word(Slot.PARAMETERS, "ptr")
        b.shared_base = b.word(Slot.SHARED, "ptr")
        b.shared_bytes = b.word(Slot.SHARED_BYTES)
        local = b.word(Slot.LOCAL)
        state = b.word(Slot.STATE, "ptr")
        threads, vectors = b.word(Slot.THREADS), b.word(Slot.VECTORS)
        grid = [text.cast("trunc", b.word(Slot.GRID + axis), "i32") for axis in range(3)]
        block = [text.cast("trunc", b.word(Slot.BLOCK + axis), "i32") for axis in range(3)]
        dynamic, total = b.word(Slot.DYNAMIC_BYTES), b.word(Slot.TOTAL_BYTES)
        at = b.word(Slot.THREAD_AT, "ptr")
        text.store(text.load("i64", b.slot(Slot.TICKS)), self.ticks)
        text.jump("blocks")

        text.label("blocks")
        at_block = text.phi("i64", (X("i64", "%first"), "setup"), (X("i64", "%block.next"), "block.done"))
        text.branch(text.compare("ult", at_block, X("i64", "%last")), "block", "finished")
        text.label("block")
        short = text.cast("trunc", at_block, "i32")
        where = [text.binary("urem", short, grid[0])]
        rest = text.binary("udiv", short, grid[0])
        where += [text.binary("urem", rest, grid[1]), text.binary("udiv", rest, grid[1])]
        fresh = X("i1", "true")
        if self.suspends:
            resumed = text.binary(
                "and", text.compare("eq", text.load("i64", b.slot(Slot.RESUMED)), constant("i64", 1)),
                text.compare("eq", at_block, X("i64", "%first")),
            )  # fmt: skip
            text.store(resumed, self.yielded)
            fresh = text.binary("xor", resumed, X("i1", "true"))
        text.store(constant("i64", 0), self.idle)
        text.store(constant("i32", 0), self.come)
        text.store(constant("i32", 0), self.true)
        text.branch(fresh, "fresh", "sweep")
        text.label("fresh")
        if _uses_shared(self.context):
            text.run("llvm.memset.p0.i64", b.shared_base, X("i8", "-91"), b.shared_bytes, X("i1", "false"))
        if b.local_row:
            size = text.binary("mul", threads, constant("i64", b.local_row))
            text.run("llvm.memset.p0.i64", text.cast("inttoptr", local, "ptr"), X("i8", "0"), size, X("i1", "false"))
        if self.suspends:
            self._each_vector(state, vectors, 0)
        text.jump("sweep")
        text.label("sweep")
        text.store(X("i1", "false"), self.again)
        text.store(text.binary("xor", text.load("i1", self.yielded), X("i1", "true")), self.release)
        text.store(X("i1", "false"), self.yielded)
        for now, last in ((self.come, self.last_come), (self.true, self.last_true)):
            text.store(text.load("i32", now), last)
            text.store(constant("i32", 0), now)
        if self.layout.strips:
            self.turns = turns.of_strip(b, at_block, where, grid[0], vectors)
        else:
            self.turns = turns.of_block(b, at_block, where, vectors)
        vector, b.block_number, where, *_ = self.turns
        first = b.first_thread = text.binary("mul", vector, constant("i64", b.width))
        if self.layout.full:
            self.full: X | None = None
        else:
            left = text.binary("sub", threads, first)
            self.full = text.compare("ult", b.iota("i64"), b.spread(left))
        b.local_base = text.cast(
            "inttoptr", text.binary("add", local, text.binary("mul", first, constant("i64", b.local_row))), "ptr"
        )
        self.state = text.at(state.name, text.binary("mul", vector, X("i64", "%state.bytes")))
        self._specials(first, where, grid, block, at, dynamic, total, threads)
        for mask in self.masks.values():
            text.store(constant(b.mask_type, 0), mask)
        text.store(self._whole(), self.alive)
        for name in sorted(self.shapes.live_in[0]):
            for part, type_ in b.types_of(name):
                text.store(constant(type_, 0), b.place_of(name, part))
        if self.suspends:
            resume = text.load("i64", self.state.name)
            alone = [number for number in self.waiting if number not in self.parted]
            ways = " ".join(
                [f"i64 {number + 1}, label %resume.b{number}" for number in alone]
                + [f"i64 {self._poll(number)}, label %resume.y{number}" for number in self.lone_polls]
            )
            parted = " i64 -2, label %resume.parted" if self._parts_suspend() else ""
            text.do(f"switch i64 {resume.name}, label %begin [ i64 {_DONE}, label %vector.done {ways}{parted} ]")
            text.label("begin")

    def _poll(self, number: int) -> int:
        """The number that stands for a loop whose lanes have yielded."""
        return len(self.flow.blocks) + 2 + number

    def _parts_suspend(self) -> list[tuple[int, int]]:
        """The masks of lanes that wait while others of their vector may run, each with the block they go on at."""
        waits_ = [(-number - 1, self.flow.blocks[number].successors[0]) for number in self.parted_waits]
        return waits_ + [(self._poll(number), number) for number in self.parted_polls]

    def _each_vector(self, state: X, vectors: X, value: int) -> None:
        """Write where each vector is to go on."""
        text = self.text
        before = text.here
        text.jump("reset")
        text.label("reset")
        n = text.phi("i64", (constant("i64", 0), before), (X("i64", "%reset.next"), "reset.one"))
        text.branch(text.compare("ult", n, vectors), "reset.one", "reset.done")
        text.label("reset.one")
        text.store(constant("i64", value), text.at(state.name, text.binary("mul", n, X("i64", "%state.bytes"))).name)
        text.do(f"%reset.next = add i64 {n.name}, 1")
        text.jump("reset")
        text.label("reset.done")

    def _whole(self) -> X:
        """All lanes that there are, as bits."""
        return self.b.bits(self.full) if self.full is not None else constant(self.b.mask_type, -1)

    def _specials(
        self, first: X, where: list[X], grid: list[X], block: list[X], at: X, dynamic: X, total: X, threads: X
    ) -> None:
        b, text = self.b, self.text
        found: dict[str, Value] = {}
        short = text.cast("trunc", first, "i32")
        for axis in range(3):
            # A row of the table of threads has room for 1,024 and a vector more.
            place = text.binary("mul", constant("i64", 4), text.binary("add", first, constant("i64", axis * 1088)))
            shape: Shape = VARYING if not self.layout.rows else UNIFORM if axis else Affine(1)
            type_ = "i32" if self.layout.rows else b.vector("i32")
            more = ", align 4, !invariant.load !0"
            found[f"tid.{_AXES[axis]}"] = Value(shape, text.load(type_, text.at(at.name, place).name, more))
        for axis in range(3):
            found[f"ctaid.{_AXES[axis]}"] = Value(UNIFORM, where[axis])
            found[f"nctaid.{_AXES[axis]}"] = Value(UNIFORM, grid[axis])
            found[f"ntid.{_AXES[axis]}"] = Value(UNIFORM, block[axis])
        lane = text.binary("and", short, constant("i32", 31))
        found["laneid"] = Value(Affine(1), lane)
        found["warpid"] = Value(UNIFORM, text.binary("lshr", short, constant("i32", 5)))
        warps = text.binary("lshr", text.binary("add", threads, constant("i64", 31)), constant("i64", 5))
        found["nwarpid"] = Value(UNIFORM, text.cast("trunc", warps, "i32"))
        found["nsmid"] = Value(UNIFORM, constant("i32", 132))
        number = text.cast("trunc", b.block_number, "i32")
        found["smid"] = Value(UNIFORM, text.binary("urem", number, constant("i32", 132)))
        found["gridid"] = Value(UNIFORM, constant("i64", 1))
        found["dynamic_smem_size"] = Value(UNIFORM, text.cast("trunc", dynamic, "i32"))
        found["total_smem_size"] = Value(UNIFORM, text.cast("trunc", total, "i32"))
        barrier = b.word(Slot.GRID_BARRIER)
        found["envreg1"] = Value(UNIFORM, text.cast("trunc", text.binary("lshr", barrier, constant("i64", 32)), "i32"))
        found["envreg2"] = Value(UNIFORM, text.cast("trunc", barrier, "i32"))
        found["is_explicit_cluster"] = Value(UNIFORM, constant("i1", 0))
        if b.width == 32:
            lanes = b.iota("i32")
            one = text.binary("shl", constant(lanes.type, 1), lanes)
            less = text.binary("sub", one, constant(lanes.type, 1))
            upto = text.binary("or", one, less)
            masks = {"eq": one, "lt": less, "le": upto}
            for name, x in masks.items():
                found[f"lanemask_{name}"] = Value(VARYING, x)
            for name, x in (("gt", upto), ("ge", less)):
                found[f"lanemask_{name}"] = Value(VARYING, text.binary("xor", x, constant(x.type, -1)))
        b.specials = found

    # ── blocks ──

    def _body(self, number: int) -> str:
        return f"body.b{number}" if number != self.flow.end else "left"

    def _whole_body(self, number: int) -> str:
        """Where a block begins for a vector all of whose lanes are there."""
        masked = not self.b.brief and (number in self.parted or self.full is not None)
        return f"whole.b{number}" if masked and number != self.flow.end else self._body(number)

    def _chain(self, place: int) -> str:
        """Where what goes through the blocks in their order goes on: at a place of it, or the end."""
        return f"chain.b{self.flow.order[place]}" if place < len(self.flow.order) else "chain.end"

    def _next(self, place: int) -> str:
        """What comes behind a block: the ends of loops that it is the last of, then the next block."""
        return f"behind.b{self.flow.order[place]}"

    def _block(self, place: int, number: int) -> None:
        b, text, flow = self.b, self.text, self.flow
        block = flow.blocks[number]
        code = self.function.code
        mask_place = self.masks.get(number)
        none, every = constant(b.mask_type, 0), constant(b.mask_type, -1)
        text.label(self._chain(place))
        meeting = number in self.parted and meets(code[block.first])
        if mask_place is not None:
            here = text.load(b.mask_type, mask_place)
            if meeting:
                here = self._come_together(code[block.first], here)
            text.branch(text.compare("ne", here, none), self._body(number), self._next(place))
        else:
            text.jump(self._next(place))
        text.label(self._body(number))
        lanes, left = self._whole(), none
        if mask_place is not None and number in self.parted:
            lanes = text.load(b.mask_type, mask_place)
            if meeting and not self._same_mask(code[block.first]):
                come = self._come_together(code[block.first], lanes)
                left = text.binary("xor", lanes, come)
                lanes = come
        if mask_place is not None:
            text.store(left, mask_place)
        inside = guarded(b, [given for given in code[block.first : block.last] if not _ends(given)])
        mask = self.full if number not in self.parted else b.from_bits(lanes)
        if mask is None or b.brief:
            self._ways(place, number, inside, mask, False)
        else:
            some = text.fresh("some")
            text.branch(text.compare("eq", lanes, every), self._whole_body(number), some)
            text.label(some)
            self._ways(place, number, inside, mask, True)
            text.label(self._whole_body(number))
            self._ways(place, number, inside, None, True)
        # Loops that end here: round again while lanes wait at the header.
        text.label(self._next(place))
        for header in reversed(block.loops):
            body = flow.loops[header]
            if max(flow.place[member] for member in body) != place:
                break
            if header not in self.masks or not body & self.parted:
                continue
            waits_here = text.compare("ne", text.load(b.mask_type, self.masks[header]), none)
            around, out = text.fresh("around"), text.fresh("out")
            text.branch(waits_here, around, out)
            text.label(around)
            if header in self.polling:
                self._yield(header)
                text.jump(out)
                text.label(out)
                continue
            self._tick()
            text.jump(
                self._body(header) if not meets(code[flow.blocks[header].first]) else self._chain(flow.place[header])
            )
            text.label(out)
        text.jump(self._chain(place + 1))

    def _ways(self, place: int, number: int, inside: Guarded, mask: X | None, masked: bool) -> None:
        """A block for the lanes of a mask, or of the vector: accesses checked before, or each.

        Where a block is there for both, `masked`, that with each checked is there once.
        """
        b, text = self.b, self.text
        b.known_here.clear()
        if self._meeting_firsts():
            text.store(X("i1", "true"), self.moved)
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

    def _meeting_firsts(self) -> list[int]:
        if not hasattr(self, "_firsts"):
            firsts = [self.flow.blocks[n].first for n in self.parted]
            self._firsts = [n for n in firsts if meets(self.function.code[n])]
        return self._firsts

    def _same_mask(self, given: Instruction) -> bool:
        """Whether all lanes that come to an instruction name the same lanes."""
        return "sync" not in given.modifiers or self.shapes.shape(named_lanes(given)) in (UNIFORM, None)

    def _come_together(self, given: Instruction, here: X) -> X:
        """Of lanes, as bits, those of which all that they name have come to an instruction, or have left."""
        b, text = self.b, self.text
        if "sync" not in given.modifiers:
            return here
        alive = text.load(b.mask_type, self.alive)
        missing = text.binary("and", alive, text.binary("xor", here, constant("i32", -1)))
        value = b.read(named_lanes(given), "b32")
        named = value.x if value.shape == UNIFORM else b.lanes(value)
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
        if "sync" in given.modifiers and meets(given):
            self._named_by_itself(given)
        if given.opcode == "call" or (given.opcode in ("atom", "red") and "shared" not in given.modifiers):
            self.ordered = True
        if given.guard is None:
            entry.emit(given, b)
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
        entry.emit(given, b)
        text.jump(skip)
        text.label(skip)

    def _leave(self, place: int, number: int, mask: X | None) -> None:
        """How a block ends."""
        b, text, flow = self.b, self.text, self.flow
        block = flow.blocks[number]
        given = self.function.code[block.last - 1]
        b.given = given
        lanes = b.bits(b.all_lanes() if mask is None else mask)
        if waits(given):
            self._wait(place, number, mask)
            return
        if given.opcode == "brx":
            raise Refusal(f"instruction {given}")
        if len(block.successors) == 1:
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
        known = verdicts.held(b, register) if not b.brief else None
        if known is not None:
            self._either(known.none if negated else known.all, place, number, then, mask)
            self._either(known.all if negated else known.none, place, number, otherwise, mask)
        bits = b.bits(held)
        if known is None and mask is None and not b.brief:
            self._either(text.compare("eq", bits, constant(bits.type, -1)), place, number, then, mask)
            self._either(text.compare("eq", bits, constant(bits.type, 0)), place, number, otherwise, mask)
        self._send(then, text.binary("and", lanes, bits))
        self._send(otherwise, text.binary("and", lanes, text.binary("xor", bits, constant(bits.type, -1))))
        text.jump(self._next(place))

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
        if parted and (mask is not None or self.b.brief or (around and to in self.polling)):
            self._send(to, lanes)
            text.jump(self._next(place))
            return
        if to == flow.end:
            text.jump("left")
            return
        if around:
            if to in self.polling:
                self._save(self.shapes.live_in[to], load=False)
                text.store(constant("i64", self._poll(to)), self.state.name)
                text.store(X("i1", "true"), self.again)
                text.store(X("i1", "true"), self.yielded)
                text.jump("vector.done")
                return
            self._tick()
        self._save(self.saves.entries.get((number, to), set()), load=False)
        if mask is None and not self.b.brief:
            text.jump(self._whole_body(to))
            return
        if to in self.parted:
            text.store(lanes, self.masks[to])
        text.jump(self._body(to))

    def _send(self, to: int, lanes: X) -> None:
        """Let lanes, as bits, wait for a block."""
        text, b = self.text, self.b
        if to == self.flow.end:
            alive = text.load(b.mask_type, self.alive)
            gone = text.binary("xor", lanes, constant(lanes.type, -1))
            text.store(text.binary("and", alive, gone), self.alive)
            return
        place = self.masks[to]
        text.store(text.binary("or", text.load(b.mask_type, place), lanes), place)

    def _tick(self) -> None:
        """Count a turn of a loop; now and then, look whether to go on."""
        b, text = self.b, self.text
        left = text.binary("sub", text.load("i64", self.ticks), constant("i64", 1))
        text.store(left, self.ticks)
        ask, on = text.fresh("ask"), text.fresh("on")
        text.do(f"br {text.compare('slt', left, constant('i64', 0))}, label %{ask}, label %{on}, !prof !1")
        text.label(ask)
        callback = text.load("ptr", b.slot(Slot.TICK))
        more = text.make(f"call i64 {callback.name}()", "i64")
        text.store(more, self.ticks)
        text.do(f"br {text.compare('eq', more, constant('i64', 0))}, label %stopped, label %{on}, !prof !1")
        text.label(on)

    # ── waiting ──

    def _offset(self, name: str, part: str, type_: str) -> int:
        """Where a part of a register is saved."""
        found = self.saved.get((name, part))
        if found is None:
            element = X(type_, "").element
            bits = 8 if element == "i1" else int(element[1:])
            size = max(1, lanes_of(type_) * bits // 8)
            align = min(64, size)
            found = self.saved[name, part] = -(-self.state_bytes // align) * align
            self.state_bytes = found + size
        return found

    def _save(self, names: set[str], load: bool) -> None:
        b, text = self.b, self.text
        for name in sorted(names):
            for part, type_ in b.types_of(name):
                at = text.at(self.state.name, constant("i64", self._offset(name, part, type_))).name
                self._move(type_, at, b.place_of(name, part), load)

    def _move(self, type_: str, saved: str, place: str, load: bool) -> None:
        """A value between where it is saved and where it lives; masks as bits."""
        text, b = self.text, self.b
        if X(type_, "").element == "i1":
            bits = f"i{b.width}" if type_[0] == "<" else "i8"
            if load:
                raw = text.load(bits, saved)
                text.store(b.from_bits(raw) if type_[0] == "<" else text.cast("trunc", raw, "i1"), place)
            else:
                value = text.load(type_, place)
                text.store(b.bits(value) if type_[0] == "<" else text.cast("zext", value, "i8"), saved)
            return
        align = f", align {min(64, lanes_of(type_) * int(X(type_, '').element[1:]) // 8)}"
        if load:
            text.store(text.load(type_, saved, align), place)
        else:
            text.store(text.load(type_, place), saved, align)

    def _yield(self, header: int) -> None:
        """Let the lanes that wait at a loop's header go round once others have run."""
        b, text = self.b, self.text
        text.store(X("i1", "true"), self.again)
        text.store(X("i1", "true"), self.yielded)
        place, held = self.masks[header], self.masks[self._poll(header)]
        both = text.binary("or", text.load(b.mask_type, place), text.load(b.mask_type, held))
        text.store(both, held)
        text.store(constant(both.type, 0), place)

    def _wait(self, place: int, number: int, mask: X | None) -> None:
        b, text = self.b, self.text
        lanes = b.bits(b.all_lanes() if mask is None else mask)
        given = self.function.code[self.flow.blocks[number].last - 1]
        reduces = "red" in given.modifiers
        which = given.operands[1 if reduces else 0 :]
        numbers = {_barrier(each) for each in self.function.code if waits(each)}
        if (
            "cluster" in given.modifiers
            or given.guard is not None
            or len(which) > (2 if reduces else 1)
            or len(numbers) > 1
        ):
            raise Refusal(f"instruction {given} with its operands, or several barriers of a block")
        if None in numbers or (reduces and self.polling):
            raise Refusal(f"instruction {given} with its operands")
        if reduces:
            held = text.binary("and", b.bits(b.lanes(b.read(which[-1], "pred"))), lanes)
            for place_, bits in ((self.true, held), (self.come, lanes)):
                count = text.call(f"llvm.ctpop.{bits.type}", bits.type, bits)
                count = text.cast("zext", count, "i32") if b.width < 32 else count
                text.store(text.binary("add", text.load("i32", place_), count), place_)
        text.store(X("i1", "true"), self.again)
        text.store(constant("i64", 0), self.idle)
        if number in self.parted:
            text.do('fence syncscope("singlethread") seq_cst')
            waiting = self.masks[-number - 1]
            text.store(text.binary("or", text.load(b.mask_type, waiting), lanes), waiting)
            text.jump(self._next(place))
            return
        self._save(self.saves.stores[number], load=False)
        text.store(constant("i64", number + 1), self.state.name)
        text.jump("vector.done")

    def _chain_end(self) -> None:
        """No block has lanes that can go on: they have left, or wait."""
        b, text = self.b, self.text
        text.label("chain.end")
        if self._meeting_firsts():
            pending = none = constant(b.mask_type, 0)
            for number in self.flow.order:
                if number in self.masks:
                    pending = text.binary("or", pending, text.load(b.mask_type, self.masks[number]))
            text.branch(text.compare("ne", pending, none), "chain.pending", "chain.settled")
            text.label("chain.pending")
            moved = text.load("i1", self.moved)
            text.store(X("i1", "false"), self.moved)
            text.branch(moved, self._chain(0), "stuck")
            text.label("chain.settled")
        if self._parts_suspend():
            held = none = constant(b.mask_type, 0)
            for key, _ in self._parts_suspend():
                held = text.binary("or", held, text.load(b.mask_type, self.masks[key]))
            text.branch(text.compare("ne", held, none), "chain.wait", "left")
            text.label("chain.wait")
            self._save(self._live_over_parted(), load=False)
            for key, _ in self._parts_suspend():
                self._move(b.mask_type, self._mask_at(key), self.masks[key], load=False)
            self._move(b.mask_type, self._mask_at(0), self.alive, load=False)
            text.store(constant("i64", -2), self.state.name)
            text.jump("vector.done")
        else:
            text.jump("left")
        text.label("left")
        if self.suspends:
            text.store(constant("i64", _DONE), self.state.name)
            text.store(constant("i64", 0), self.idle)
        text.jump("vector.done")
        text.label("stuck")
        text.do(f"ret i64 {STUCK}")

    def _live_over_parted(self) -> set[str]:
        live: set[str] = set()
        for _, after in self._parts_suspend():
            if after != self.flow.end:
                live |= self.shapes.live_in[after]
        return live

    def _mask_at(self, key: int) -> str:
        offset = self._offset(f"mask of {key}", "", self.b.mask_type)
        return self.text.at(self.state.name, constant("i64", offset)).name

    def _resumes(self) -> None:
        b, text = self.b, self.text
        for number in self.waiting:
            if number in self.parted:
                continue
            (after,) = self.flow.blocks[number].successors
            text.label(f"resume.b{number}")
            on, still = text.fresh("on"), text.fresh("still")
            text.branch(text.load("i1", self.release), on, still)
            text.label(still)
            text.store(X("i1", "true"), self.again)
            text.jump("vector.done")
            text.label(on)
            if after == self.flow.end:
                text.jump("left")
                continue
            self._save(self.saves.loads[number], load=True)
            self._reduced(number, None)
            self._go_on(number, after)
        for number in self.lone_polls:
            text.label(f"resume.y{number}")
            self._save(self.shapes.live_in[number], load=True)
            self._tick()
            text.jump(self._body(number))
        if self._parts_suspend():
            text.label("resume.parted")
            self._save(self._live_over_parted(), load=True)
            self._move(b.mask_type, self._mask_at(0), self.alive, load=True)
            self._tick()
            for key, after in self._parts_suspend():
                place: str = self.masks[key]
                self._move(b.mask_type, self._mask_at(key), place, load=True)
                lanes = text.load(b.mask_type, place)
                none = constant(lanes.type, 0)
                if key < 0 and self.polling:
                    # A barrier holds those back that others have not come to.
                    released = text.load("i1", self.release)
                    text.store(text.select(released, none, lanes), place)
                    lanes = text.select(released, lanes, none)
                    held_back = text.binary("xor", released, X("i1", "true"))
                    text.store(text.binary("or", text.load("i1", self.again), held_back), self.again)
                else:
                    text.store(none, place)
                if key < 0:
                    self._reduced(-key - 1, b.from_bits(lanes))
                self._send(after, lanes)
            text.jump(self._chain(0))

    def _reduced(self, number: int, mask: X | None) -> None:
        """Write what a barrier gives the lanes that it lets go."""
        b, text = self.b, self.text
        given = self.function.code[self.flow.blocks[number].last - 1]
        if "red" not in given.modifiers:
            return
        b.given, b.mask, b.guarded = given, mask, mask is not None
        true, come = text.load("i32", self.last_true), text.load("i32", self.last_come)
        target = given.operands[0]
        if "popc" in given.modifiers:
            b.write(target, "u32", Value(UNIFORM, true))
        elif "and" in given.modifiers:
            b.write(target, "pred", Value(UNIFORM, text.compare("eq", true, come)))
        else:
            b.write(target, "pred", Value(UNIFORM, text.compare("ne", true, constant("i32", 0))))

    def _go_on(self, number: int, after: int) -> None:
        text = self.text
        if self.flow.place[after] <= self.flow.place[number]:
            self._tick()
        if after in self.parted:
            text.store(self._whole(), self.masks[after])
        text.jump(self._body(after))

    def _after(self) -> None:
        b, text = self.b, self.text
        text.label("vector.done")
        for step in self.turns.steps:
            text.do(step)
        text.jump("vectors")
        text.label("swept")
        if self.turns.has_failed:
            text.branch(text.load("i1", self.turns.has_failed), "failed.out", "block.done")
        elif self.polling:
            text.branch(text.load("i1", self.again), "more", "block.done")
            text.label("more")
            count = text.binary("add", text.load("i64", self.idle), constant("i64", 1))
            text.store(count, self.idle)
            waits_on = text.binary(
                "and", text.load("i1", self.yielded), text.compare("ugt", count, constant("i64", _PATIENCE))
            )
            text.branch(waits_on, "idle", "sweep")
            text.label("idle")
            text.store(b.block_number, b.slot(Slot.AT_BLOCK))
            text.store(text.load("i64", self.ticks), b.slot(Slot.TICKS))
            text.do(f"ret i64 {IDLE}")
        elif self.waiting:
            text.branch(text.load("i1", self.again), "sweep", "block.done")
        else:
            text.jump("block.done")
        text.label("block.done")
        text.do(self.turns.following)
        text.jump("blocks")
        text.label("finished")
        text.store(text.load("i64", self.ticks), b.slot(Slot.TICKS))
        text.do("ret i64 0")
        text.label("failed")
        if self.turns.failed:
            text.lines.append(self.turns.failed)
            text.label("failed.out")
        text.do(f"ret i64 {FAILED}")
        text.label("stopped")
        text.do(f"ret i64 {STOPPED}")
        text.lines = [line.replace("%state.bytes", str(-(-self.state_bytes // 64) * 64)) for line in text.lines]
        self.state_bytes = -(-self.state_bytes // 64) * 64


def _uses_shared(context: Context) -> bool:
    """Whether a kernel can come to shared memory."""
    shared = context.symbols.shared
    return bool(shared) and any(
        any(modifier.startswith("shared") for modifier in given.modifiers)
        or any(isinstance(each, Symbol) and each.name in shared for each in given.operands)
        for given in context.function.code
    )


def _ends(given: Instruction) -> bool:
    """Whether an instruction is how a block ends, rather than in it."""
    return given.opcode in ("bra", "brx", "ret", "exit") or waits(given)


def _barrier(given: Instruction) -> int | None:
    """The number of the barrier that an instruction waits at; None where it is in a register."""
    operands = given.operands[1:] if "red" in given.modifiers else given.operands
    if not operands or not isinstance(operands[0], Immediate):
        return 0 if not operands else None
    return operands[0].value


def _is_number(operand: Immediate) -> bool:
    """Whether the bits of a constant, as float32, are no NaN."""
    return operand.value & 0x7F80_0000 != 0x7F80_0000 or not operand.value & 0x7F_FFFF


__all__ = ["Made", "make", "sources", "uses_warps"]
