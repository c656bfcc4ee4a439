"""The code around a kernel's own: over the blocks of threads, over the vectors of each, and what these keep.

Each basic block that some lanes may come to without the others has a mask of those that wait for it, by the block's
number: `masks`. Further numbers stand for those that wait at the end of one, and for those of a loop that have yielded.
"""

from __future__ import annotations

from cudakit.emulator.compiled import barriers, turns
from cudakit.emulator.compiled.analysis import Analysis
from cudakit.emulator.compiled.builder import Builder, Value
from cudakit.emulator.compiled.layout import DONE, PARTED, Ending, Slot
from cudakit.emulator.compiled.saves import States
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape
from cudakit.emulator.compiled.text import X, constant

#: Sweeps over a block in which nothing comes on, before others are let run.
_PATIENCE = 16
#: Instructions of a kernel whose registers LLVM may take out of memory over all of it.
_SHORT = 300
_AXES = "xyz"
_TRUE, _FALSE = X("i1", "true"), X("i1", "false")


class Scaffold:
    """The code around a kernel's own, which stands between `begin` and `end`.

    Parameters
    ----------
    known : Analysis
    single : bool
        Whether blocks have one body, and none beside it for vectors all of whose lanes are there.
    """

    #: The lanes that there are; None: all.
    full: X | None
    _turns: turns.Turns

    def __init__(self, known: Analysis, single: bool) -> None:
        self.known, self.flow, self.parted = known, known.flow, known.shapes.parted
        b = self.b = Builder(known.context, known.shapes, known.layout, known.raw, single)
        b.lasting = known.lasting
        self.text = b.text
        self.states = States(b)
        self.masks: dict[int, str] = {}
        for number in self.flow.order:
            if number in self.parted or not self.parted.isdisjoint(self.flow.blocks[number].predecessors):
                self.masks[number] = f"%mask.b{number}"
        for number in known.parted_waits:
            self.masks[self.wait_of(number)] = f"%wait.b{number}"
        for number in known.parted_polls:
            self.masks[self.poll_of(number)] = f"%poll.b{number}"
        #: Lanes that have not left; whether a vector is to come again; whether lanes of a warp have come on.
        self.alive, self.again = b.alloca(b.mask_type, "alive"), b.alloca("i1", "again")
        self.moved = b.alloca("i1", "moved")
        #: Whether vectors that wait at a barrier may go on; whether one has yielded; sweeps in which nothing came on.
        self.release, self.yielded = b.alloca("i1", "release"), b.alloca("i1", "yielded")
        self.idle = b.alloca("i64", "idle")
        #: Whether one has yielded that waits for what others write.
        self.polled = b.alloca("i1", "polled")
        #: Threads that have come to a barrier that reduces, and those with a predicate that holds; and the last time.
        self.come, self.true = b.alloca("i32", "come"), b.alloca("i32", "true")
        self.last_come, self.last_true = b.alloca("i32", "last.come"), b.alloca("i32", "last.true")
        self.ticks = b.alloca("i64", "ticks")

    # ── the numbers and names of blocks ──

    def wait_of(self, number: int) -> int:
        """The number that stands for lanes that wait at the end of a block."""
        return -number - 1

    def poll_of(self, number: int) -> int:
        """The number that stands for lanes of a loop that have yielded."""
        return len(self.flow.blocks) + 2 + number

    def holds(self) -> list[tuple[int, int]]:
        """The numbers of lanes that wait while others of their vector may run, with the block they go on at."""
        held = [(self.wait_of(number), self.flow.blocks[number].successors[0]) for number in self.known.parted_waits]
        return held + [(self.poll_of(number), number) for number in self.known.parted_polls]

    def body(self, number: int) -> str:
        """Where a block begins."""
        return f"body.b{number}" if number != self.flow.end else "left"

    def whole_body(self, number: int) -> str:
        """Where a block begins for a vector all of whose lanes are there."""
        masked = not self.b.single and (number in self.parted or self.full is not None)
        return f"whole.b{number}" if masked and number != self.flow.end else self.body(number)

    def chain(self, place: int) -> str:
        """Where what goes through the blocks in their order goes on: at a place of it, or the end."""
        return f"chain.b{self.flow.order[place]}" if place < len(self.flow.order) else "chain.end"

    def behind(self, place: int) -> str:
        """What comes behind a block: the ends of loops that it is the last of, then the next block."""
        return f"behind.b{self.flow.order[place]}"

    # ── lanes ──

    def whole(self) -> X:
        """All lanes that there are, as bits."""
        return self.b.bits(self.full) if self.full is not None else constant(self.b.mask_type, -1)

    def send(self, to: int, lanes: X) -> None:
        """Let lanes, as bits, wait for a block."""
        text, b = self.text, self.b
        if to == self.flow.end:
            alive = text.load(b.mask_type, self.alive)
            gone = text.binary("xor", lanes, constant(lanes.type, -1))
            text.store(text.binary("and", alive, gone), self.alive)
            return
        place = self.masks[to]
        text.store(text.binary("or", text.load(b.mask_type, place), lanes), place)

    def tick(self) -> None:
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

    # ── what comes before ──

    def entry(self) -> list[str]:
        """Room for what is kept, which comes before all else."""
        b, known = self.b, self.known
        lines = ["entry:", *b.allocas]
        for name in known.function.registers:
            if name in known.shapes.of or name in known.shapes.live_in[0]:
                lines += [f"  {b.place_of(name, part)} = alloca {type_}, align 256" for part, type_ in b.types_of(name)]
        for number, place in self.masks.items():
            lines.append(f"  {place} = alloca {b.mask_type}, align 8 ; of block {number}")
        if len(known.function.code) > _SHORT:
            # What is live over blocks stays in memory: else LLVM hands it on wherever ways meet, which takes long.
            lines.append(f"  %kept.there = getelementptr i64, ptr %ctx, i64 {int(Slot.KEPT)}")
            lines += [f"  store ptr {place}, ptr %kept.there" for place in self._over_blocks()]
        return [*lines, *b.starts, "  br label %setup"]

    def _over_blocks(self) -> list[str]:
        """Where registers are that live from one block to another, and the lanes that wait for each."""
        live = sorted(set[str]().union(*self.known.shapes.live_in))
        registers = [self.b.place_of(name, part) for name in live for part, _ in self.b.types_of(name)]
        return [*self.masks.values(), *registers]

    def begin(self) -> None:
        """Go over blocks of threads, and over the vectors of one, up to where a vector begins, or goes on."""
        b, text, known = self.b, self.text, self.known
        b.scratch_addresses = b.alloca(b.vector("i64"), "addresses")
        b.scratch_values = b.alloca("i8", "values", b.width * 64)
        b.local_row = max(16, -(-known.context.local_bytes // 16) * 16) if known.context.local else 0
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
        fresh = _TRUE
        if known.suspends:
            resumed = text.binary(
                "and", text.compare("eq", text.load("i64", b.slot(Slot.RESUMED)), constant("i64", 1)),
                text.compare("eq", at_block, X("i64", "%first")),
            )  # fmt: skip
            text.store(resumed, self.yielded)
            fresh = text.binary("xor", resumed, _TRUE)
        text.store(constant("i64", 0), self.idle)
        text.store(constant("i32", 0), self.come)
        text.store(constant("i32", 0), self.true)
        text.branch(fresh, "fresh", "sweep")
        text.label("fresh")
        if known.uses_shared:
            text.run("llvm.memset.p0.i64", b.shared_base, X("i8", "-91"), b.shared_bytes, _FALSE)
        if b.local_row:
            size = text.binary("mul", threads, constant("i64", b.local_row))
            text.run("llvm.memset.p0.i64", text.cast("inttoptr", local, "ptr"), X("i8", "0"), size, _FALSE)
        if known.suspends:
            self._begin_each(state, vectors)
        if known.counted:
            barriers.begin(b)
        text.jump("sweep")
        text.label("sweep")
        text.store(_FALSE, self.again)
        text.store(text.binary("xor", text.load("i1", self.yielded), _TRUE), self.release)
        text.store(_FALSE, self.yielded)
        text.store(_FALSE, self.polled)
        for now, last in ((self.come, self.last_come), (self.true, self.last_true)):
            text.store(text.load("i32", now), last)
            text.store(constant("i32", 0), now)
        if known.layout.strips:
            self._turns = turns.of_strip(b, at_block, where, grid[0], vectors)
        else:
            self._turns = turns.of_block(b, at_block, where, vectors)
        vector, b.block_number, where, *_ = self._turns
        first = b.first_thread = text.binary("mul", vector, constant("i64", b.width))
        if known.layout.full:
            self.full = None
        else:
            left = text.binary("sub", threads, first)
            self.full = text.compare("ult", b.iota("i64"), b.spread(left))
        b.local_base = text.cast(
            "inttoptr", text.binary("add", local, text.binary("mul", first, constant("i64", b.local_row))), "ptr"
        )
        self.states.begin(state, vector)
        self._specials(first, where, grid, block, at, dynamic, total, threads)
        for mask in self.masks.values():
            text.store(constant(b.mask_type, 0), mask)
        text.store(self.whole(), self.alive)
        for name in sorted(known.shapes.live_in[0]):
            for part, type_ in b.types_of(name):
                text.store(constant(type_, 0), b.place_of(name, part))
        if known.suspends:
            self._go_on()

    def _begin_each(self, state: X, vectors: X) -> None:
        """Let each vector of a block begin at the beginning."""
        text = self.text
        before = text.here
        text.jump("reset")
        text.label("reset")
        n = text.phi("i64", (constant("i64", 0), before), (X("i64", "%reset.next"), "reset.one"))
        text.branch(text.compare("ult", n, vectors), "reset.one", "reset.done")
        text.label("reset.one")
        text.store(constant("i64", 0), self.states.of(state, n).name)
        text.do(f"%reset.next = add i64 {n.name}, 1")
        text.jump("reset")
        text.label("reset.done")

    def _go_on(self) -> None:
        """Go on where the vector has waited."""
        known, resume = self.known, self.text.load("i64", self.states.at.name)
        alone = [number for number in known.waiting if number not in self.parted]
        ways = " ".join(
            [f"i64 {number + 1}, label %resume.b{number}" for number in alone]
            + [f"i64 {self.poll_of(number)}, label %resume.y{number}" for number in known.lone_polls]
        )
        parted = f" i64 {PARTED}, label %resume.parted" if self.holds() else ""
        self.text.do(f"switch i64 {resume.name}, label %begin [ i64 {DONE}, label %vector.done {ways}{parted} ]")
        self.text.label("begin")

    def _specials(
        self, first: X, where: list[X], grid: list[X], block: list[X], at: X, dynamic: X, total: X, threads: X
    ) -> None:
        b, text, rows = self.b, self.text, self.known.layout.rows
        found: dict[str, Value] = {}
        short = text.cast("trunc", first, "i32")
        for axis in range(3):
            # A row of the table of threads has room for 1,024 and a vector more.
            place = text.binary("mul", constant("i64", 4), text.binary("add", first, constant("i64", axis * 1088)))
            shape: Shape = VARYING if not rows else UNIFORM if axis else Affine(1)
            type_ = "i32" if rows else b.vector("i32")
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

    # ── what comes behind ──

    def end(self) -> None:
        """Go on with the next vector, and the next block of threads."""
        b, text, known, turn = self.b, self.text, self.known, self._turns
        text.label("vector.done")
        for step in turn.steps:
            text.do(step)
        text.jump("vectors")
        text.label("swept")
        if turn.has_failed:
            text.branch(text.load("i1", turn.has_failed), "failed.out", "block.done")
        elif known.polling or known.counted:
            text.branch(text.load("i1", self.again), "more", "block.done")
            self._more()
        elif known.waiting:
            text.branch(text.load("i1", self.again), "sweep", "block.done")
        else:
            text.jump("block.done")
        text.label("block.done")
        text.do(turn.following)
        text.jump("blocks")
        text.label("finished")
        text.store(text.load("i64", self.ticks), b.slot(Slot.TICKS))
        text.do("ret i64 0")
        text.label("failed")
        if turn.failed:
            text.lines.append(turn.failed)
            text.label("failed.out")
        text.do(f"ret i64 {Ending.FAILED:d}")
        text.label("stopped")
        text.do(f"ret i64 {Ending.STOPPED:d}")
        self.states.end()

    def _more(self) -> None:
        """Sweep over the vectors that wait once more, unless nothing has come on for long."""
        b, text = self.b, self.text
        text.label("more")
        count = text.binary("add", text.load("i64", self.idle), constant("i64", 1))
        text.store(count, self.idle)
        waits_on = text.binary(
            "and", text.load("i1", self.yielded), text.compare("ugt", count, constant("i64", _PATIENCE))
        )
        text.branch(waits_on, "idle", "sweep")
        text.label("idle")
        text.branch(text.load("i1", self.polled), "idle.out", "stalled")
        text.label("stalled")
        text.store(b.block_number, b.slot(Slot.AT_BLOCK))
        text.do(f"ret i64 {Ending.STALLED:d}")
        text.label("idle.out")
        text.store(b.block_number, b.slot(Slot.AT_BLOCK))
        text.store(text.load("i64", self.ticks), b.slot(Slot.TICKS))
        text.do(f"ret i64 {Ending.IDLE:d}")
