"""Code around a kernel's own: loops over blocks of threads and over their vectors, and barriers.

Each divergent basic block has a mask of the lanes that wait for it, in `masks` by the block's number. Further numbers
stand for lanes that wait at the end of a block, and for lanes of a loop that have yielded.
"""

from __future__ import annotations

from typing import NamedTuple

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.analysis import Analysis, Saves, States
from cudakit.emulator.compiled.builder import Builder, Value, X, constant
from cudakit.emulator.compiled.emit.warps import arrive_at_barrier, barrier_of, barrier_turn, begin_barriers, is_counted
from cudakit.emulator.compiled.layout import DIVERGENT, DONE, STRIP, Effort, Ending, Slot
from cudakit.emulator.compiled.rendezvous import Rendezvous
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape
from cudakit.emulator.isa.facts import facts_of
from cudakit.emulator.ptx.program import Instruction

# ── the order of vectors: block after block, or by rows of adjacent blocks ──

#: Code for a failed vector of a strip: the vectors of earlier blocks still run, so that the first block's error is
#: reported.
_FAILED = """\
  store i1 true, ptr {failed}
  store i64 {beside}, ptr {length}
  %is.first = icmp eq i64 {beside}, 0
  br i1 %is.first, label %failed.out, label %failed.on
failed.on:
  %row.after = add i64 {row}, {columns}
  br label %vectors
"""


class Row(NamedTuple):
    """A row of threads of adjacent blocks, which may run at once: its code ends with a jump to ``row.done``."""

    #: Whether the current vector is the row's first.
    is_begun: X
    #: Vectors of the row, of all blocks.
    vectors: X
    #: Code that leads to what is behind the row, and the label of the loop that goes on there.
    step: str
    loop: str


class Turns(NamedTuple):
    """A loop over vectors, from the label ``vectors`` to ``vector.done``, at its current vector."""

    vector: X
    #: Number of the vector's block, and its coordinates in the grid.
    block: X
    where: list[X]
    #: Code that leads to the next vector.
    steps: list[str]
    #: Code that leads to the block behind the loop's blocks.
    following: str
    #: Code before the end with an error; and the place that says whether a vector has failed.
    failed: str = ""
    has_failed: str = ""
    #: Row of threads with the vector, where blocks run by rows.
    row: Row | None = None


def turns_of_block(b: Builder, block: X, where: list[X], across: X, vectors: X, has_run: bool) -> Turns:
    """Write the start of a loop over all vectors of lanes in one thread block. Return the loop's names and code parts.

    `block` is the block's number in the grid, `where` its coordinates, and `vectors` the number of its vectors.
    `across` is the grid's size in x. The caller writes the loop's body for one vector. With `has_run`, adjacent blocks
    are a `Row`.
    """
    text = b.text
    length = _length(b, block, where, across) if has_run else None
    text.jump("vectors")
    text.label("vectors")
    vector = text.phi("i64", (constant("i64", 0), "sweep"), (X("i64", "%vector.next"), "vector.done"))
    text.branch(text.compare("ult", vector, vectors), "vector", "swept")
    text.label("vector")
    turns = Turns(vector, block, where, [f"%vector.next = add {vector}, 1"], _following(block, constant("i64", 1)))
    if length is None:
        return turns
    step = f"%block.behind = add {block}, {length.name}"
    return turns._replace(row=Row(text.compare("eq", vector, 0), text.binary("mul", length, vectors), step, "blocks"))


def _length(b: Builder, block: X, where: list[X], across: X) -> X:
    """Write the number of adjacent blocks in x from `block` on, up to the next strip."""
    text = b.text
    length = text.binary("sub", constant("i64", STRIP), text.binary("urem", block, STRIP))
    in_row = text.cast("zext", text.binary("sub", across, where[0]), "i64")
    for most in (in_row, text.binary("sub", X("i64", "%last"), block)):
        length = text.call("llvm.umin.i64", "i64", length, most)
    return length


def turns_of_strip(b: Builder, block: X, where: list[X], across: X, vectors: X, has_run: bool) -> Turns:
    """Write the head of a loop over the vectors of thread blocks adjacent in x; return the loop.

    The loop goes by rows of threads, and in a row by blocks. `block` and `where` are the first block's number and
    coordinates. `across` is the grid's size in x, and `vectors` the number of a block's vectors. With `has_run`, the
    rows are each a `Row`.
    """
    text, zero = b.text, constant("i64", 0)
    length = _length(b, block, where, across)
    columns = text.binary("udiv", b.word(Slot.BLOCK), b.width)
    length_place, failed = b.alloca("i64", "length"), b.alloca("i1", "failed")
    text.store(length, length_place)
    text.store(X("i1", "false"), failed)
    text.jump("vectors")
    text.label("vectors")
    row, beside, column = (
        text.phi(
            "i64",
            (zero, "sweep"),
            (X("i64", f"%{name}.next"), "vector.done"),
            (X("i64", after), "failed.on"),
            *([(X("i64", behind), "row.done")] if has_run else []),
        )
        for name, after, behind in (("row", "%row.after", "%row.behind"), ("beside", "0", "0"), ("column", "0", "0"))
    )
    text.branch(text.compare("ult", row, vectors), "vector", "swept")
    text.label("vector")
    steps = [
        f"%length.now = load i64, ptr {length_place}",
        f"%column.more = add {column}, 1",
        f"%block.through = icmp eq i64 %column.more, {columns.name}",
        "%column.next = select i1 %block.through, i64 0, i64 %column.more",
        "%beside.on = zext i1 %block.through to i64",
        f"%beside.more = add {beside}, %beside.on",
        "%row.through = icmp eq i64 %beside.more, %length.now",
        "%beside.next = select i1 %row.through, i64 0, i64 %beside.more",
        f"%row.on = select i1 %row.through, {columns}, i64 0",
        f"%row.next = add {row}, %row.on",
    ]
    ends = _FAILED.format(failed=failed, length=length_place, beside=beside.name, row=row.name, columns=columns.name)
    vector, number = text.binary("add", row, column), text.binary("add", block, beside)
    x = text.binary("add", where[0], text.cast("trunc", beside, "i32"))
    turns = Turns(vector, number, [x, *where[1:]], steps, _following(block, length), ends, failed)
    if not has_run:
        return turns
    begun = text.compare("eq", text.binary("or", beside, column), 0)
    in_blocks = text.binary("mul", text.load("i64", length_place), columns)
    return turns._replace(row=Row(begun, in_blocks, f"%row.behind = add {row}, {columns.name}", "vectors"))


def _following(block: X, count: X) -> str:
    """Return the IR instruction that makes ``%block.next``, `count` blocks behind `block`."""
    return f"%block.next = add {block}, {count.name}"


#: Passes over a block without progress before yielding to other blocks.
_PATIENCE = 16
_AXES = "xyz"
TRUE, FALSE = X("i1", "true"), X("i1", "false")


class Scaffold:
    """Code around a kernel's own code, which is written between `begin` and `end`.

    Parameters
    ----------
    analysis : Analysis
        Analysis of the kernel.
    effort : Effort
        Effort spent on the kernel's code.
    """

    #: Existing lanes of the vector; None: all.
    full: X | None
    #: Row of threads that may run at once; None where there is none.
    row: Row | None
    _turns: Turns

    def __init__(self, analysis: Analysis, effort: Effort) -> None:
        self.analysis, self.flow, self.divergent, self.effort = (
            analysis,
            analysis.flow,
            analysis.shapes.divergent,
            effort,
        )
        b = self.b = Builder(analysis.context, analysis.shapes, analysis.layout, analysis.raw, effort)
        b.lasting = analysis.lasting
        self.text = b.text
        self.states = States(b)
        self.masks: dict[int, str] = {}
        for number in self.flow.order:
            if number in self.divergent or not self.divergent.isdisjoint(self.flow.blocks[number].predecessors):
                self.masks[number] = f"%mask.b{number}"
        for number in analysis.divergent_barriers:
            self.masks[self.wait_of(number)] = f"%wait.b{number}"
        for number in analysis.divergent_polls:
            self.masks[self.poll_of(number)] = f"%poll.b{number}"
        #: Lanes that have not left; whether a vector must run again; whether lanes of a warp have made progress.
        self.alive, self.again = b.alloca(b.mask_type, "alive"), b.alloca("i1", "again")
        self.moved = b.alloca("i1", "moved")
        self.rendezvous = Rendezvous(analysis, b, self.masks, self.alive)
        #: Whether vectors at a barrier may go on; whether a vector has yielded; passes without progress.
        self.release, self.yielded = b.alloca("i1", "release"), b.alloca("i1", "yielded")
        self.idle = b.alloca("i64", "idle")
        #: Whether a vector in a polling loop has yielded.
        self.polled = b.alloca("i1", "polled")
        #: Threads at a reducing barrier, and how many predicates hold; and both numbers of the last pass.
        self.arrived, self.true = b.alloca("i32", "come"), b.alloca("i32", "true")
        self.last_arrived, self.last_true = b.alloca("i32", "last.come"), b.alloca("i32", "last.true")
        self.ticks = b.alloca("i64", "ticks")

    # ── the numbers and names of blocks ──

    def wait_of(self, number: int) -> int:
        """Return the key in `masks` for lanes that wait at the barrier that ends block `number`."""
        return -number - 1

    def poll_of(self, number: int) -> int:
        """Return the key in `masks` for lanes that have yielded in the polling loop with header `number`."""
        return len(self.flow.blocks) + 2 + number

    def holds(self) -> list[tuple[int, int]]:
        """Return the keys in `masks` of lanes that wait while others of their vector run, each with its next block."""
        barriers = [
            (self.wait_of(number), self.flow.blocks[number].successors[0])
            for number in self.analysis.divergent_barriers
        ]
        return barriers + [(self.poll_of(number), number) for number in self.analysis.divergent_polls]

    def body(self, number: int) -> str:
        """Return the label of a block."""
        return f"body.b{number}" if number != self.flow.end else "left"

    def whole_body(self, number: int) -> str:
        """Return the label of a block's code for a vector with all lanes active.

        It is the block's usual label if there is no such code.
        """
        masked = not self.b.single and (number in self.divergent or self.full is not None)
        return f"whole.b{number}" if masked and number != self.flow.end else self.body(number)

    def chain(self, place: int) -> str:
        """Return the label where the pass over the blocks continues: at index `place` of the order, or at its end."""
        return f"chain.b{self.flow.order[place]}" if place < len(self.flow.order) else "chain.end"

    def behind(self, place: int) -> str:
        """Return the name of the label behind the block at index `place` of the order. Writes no code.

        The code at this label ends the loops whose last block it is, and goes on to the next block.
        """
        return f"behind.b{self.flow.order[place]}"

    # ── lanes ──

    def whole(self) -> X:
        """Return the bits of all lanes that exist in the vector."""
        return self.b.bits(self.full) if self.full is not None else constant(self.b.mask_type, -1)

    def send(self, to: int, lanes: X) -> None:
        """Write code that adds lanes, as bits, to the lanes that wait for block `to`.

        If `to` is the function's end, the lanes leave: they are removed from the living ones.
        """
        text, b = self.text, self.b
        if to == self.flow.end:
            alive = text.load(b.mask_type, self.alive)
            gone = text.binary("xor", lanes, -1)
            text.store(text.binary("and", alive, gone), self.alive)
            return
        place = self.masks[to]
        text.store(text.binary("or", text.load(b.mask_type, place), lanes), place)

    def tick(self) -> None:
        """Write code that counts a turn of a loop, and now and then asks Python whether to stop."""
        b, text = self.b, self.text
        left = text.binary("sub", text.load("i64", self.ticks), 1)
        text.store(left, self.ticks)
        ask, on = text.fresh("ask"), text.fresh("on")
        text.do(f"br {text.compare('slt', left, 0)}, label %{ask}, label %{on}, !prof !1")
        text.label(ask)
        remaining = text.call_through(text.load("ptr", b.slot(Slot.TICK)))
        text.store(remaining, self.ticks)
        text.do(f"br {text.compare('eq', remaining, 0)}, label %stopped, label %{on}, !prof !1")
        text.label(on)

    # ── code before a kernel's own ──

    def entry(self) -> list[str]:
        """Return the lines of the entry block: memory for registers and masks."""
        b, analysis = self.b, self.analysis
        lines = ["entry:", *b.allocas]
        for name in analysis.function.registers:
            if name in analysis.shapes.by_register or name in analysis.shapes.live_in[0]:
                lines += [f"  {b.place_of(name, part)} = alloca {type_}, align 256" for part, type_ in b.types_of(name)]
        for number, place in self.masks.items():
            lines.append(f"  {place} = alloca {b.mask_type}, align 8 ; of block {number}")
        if self.effort.in_memory:
            lines.append(f"  %kept.there = getelementptr i64, ptr %ctx, i64 {int(Slot.KEPT)}")
            lines += [f"  store ptr {place}, ptr %kept.there" for place in self._over_blocks()]
        return [*lines, *b.starts, "  br label %setup"]

    def _over_blocks(self) -> list[str]:
        """Return the names of the stack memory of masks, and of registers that are live from block to block.

        In the baseline tier the scaffold's own places belong to them.
        """
        live = sorted(set[str]().union(*self.analysis.shapes.live_in))
        registers = [self.b.place_of(name, part) for name in live for part, _ in self.b.types_of(name)]
        own = [line.split()[0] for line in self.b.allocas] if self.b.shares else []
        return [*own, *self.masks.values(), *registers]

    def begin(self, has_run: bool) -> None:
        """Write the loops over blocks of threads and their vectors, up to where a vector begins or resumes.

        With `has_run`, the code may run whole rows of threads at once.
        """
        b, text, analysis = self.b, self.text, self.analysis
        b.scratch_addresses = b.alloca(b.vector("i64"), "addresses")
        b.scratch_values = b.alloca("i8", "values", b.width * 64)
        b.local_row = max(16, -(-analysis.context.local_bytes // 16) * 16) if analysis.context.local else 0
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
        if b.shares:
            text.store(X("ptr", b.scratch_addresses), b.slot(Slot.SCRATCH_ADDRESSES))
            text.store(X("ptr", b.scratch_values), b.slot(Slot.SCRATCH_VALUES))
        text.store(text.load("i64", b.slot(Slot.TICKS)), self.ticks)
        text.jump("blocks")

        text.label("blocks")
        by_rows = has_run and not analysis.layout.strips
        at_block = text.phi(
            "i64",
            (X("i64", "%first"), "setup"),
            (X("i64", "%block.next"), "block.done"),
            *([(X("i64", "%block.behind"), "row.done")] if by_rows else []),
        )
        text.branch(text.compare("ult", at_block, X("i64", "%last")), "block", "finished")
        text.label("block")
        short = text.cast("trunc", at_block, "i32")
        where = [text.binary("urem", short, grid[0])]
        rest = text.binary("udiv", short, grid[0])
        where += [text.binary("urem", rest, grid[1]), text.binary("udiv", rest, grid[1])]
        fresh = TRUE
        if analysis.suspends:
            resumed = text.binary(
                "and", text.compare("eq", text.load("i64", b.slot(Slot.RESUMED)), 1),
                text.compare("eq", at_block, X("i64", "%first")),
            )  # fmt: skip
            text.store(resumed, self.yielded)
            fresh = text.binary("xor", resumed, TRUE)
        text.store(constant("i64", 0), self.idle)
        text.store(constant("i32", 0), self.arrived)
        text.store(constant("i32", 0), self.true)
        text.branch(fresh, "fresh", "sweep")
        text.label("fresh")
        if analysis.uses_shared:
            text.run("llvm.memset.p0.i64", b.shared_base, X("i8", "-91"), b.shared_bytes, FALSE)
        if b.local_row:
            size = text.binary("mul", threads, b.local_row)
            text.run("llvm.memset.p0.i64", text.cast("inttoptr", local, "ptr"), X("i8", "0"), size, FALSE)
        if analysis.suspends:
            self._begin_each(state, vectors)
        if analysis.has_counted_barriers:
            begin_barriers(b)
        text.jump("sweep")
        text.label("sweep")
        text.store(FALSE, self.again)
        text.store(text.binary("xor", text.load("i1", self.yielded), TRUE), self.release)
        text.store(FALSE, self.yielded)
        text.store(FALSE, self.polled)
        for now, last in ((self.arrived, self.last_arrived), (self.true, self.last_true)):
            text.store(text.load("i32", now), last)
            text.store(constant("i32", 0), now)
        turns = turns_of_strip if analysis.layout.strips else turns_of_block
        self._turns = turns(b, at_block, where, grid[0], vectors, has_run)
        vector, b.block_number, where, *_ = self._turns
        self.row = self._turns.row
        first = b.first_thread = text.binary("mul", vector, b.width)
        if b.shares:
            text.store(b.first_thread, b.slot(Slot.FIRST_THREAD))
            text.store(b.block_number, b.slot(Slot.BLOCK_NUMBER))
        if analysis.layout.full:
            self.full = None
        else:
            left = text.binary("sub", threads, first)
            self.full = text.compare("ult", b.iota("i64"), b.spread(left))
        b.local_base = text.cast("inttoptr", text.binary("add", local, text.binary("mul", first, b.local_row)), "ptr")
        self.states.begin(state, vector)
        self._specials(first, where, grid, block, at, dynamic, total, threads)
        for mask in self.masks.values():
            text.store(constant(b.mask_type, 0), mask)
        text.store(self.whole(), self.alive)
        for name in sorted(analysis.shapes.live_in[0]):
            for part, type_ in b.types_of(name):
                text.store(constant(type_, 0), b.place_of(name, part))
        if analysis.suspends:
            self._go_on()

    def _begin_each(self, state: X, vectors: X) -> None:
        """Write code that sets the state of each vector of a thread block to begin at the kernel's begin."""
        text = self.text
        before = text.here
        text.jump("reset")
        text.label("reset")
        n = text.phi("i64", (constant("i64", 0), before), (X("i64", "%reset.next"), "reset.one"))
        text.branch(text.compare("ult", n, vectors), "reset.one", "reset.done")
        text.label("reset.one")
        text.store(constant("i64", 0), self.states.of(state, n))
        text.do(f"%reset.next = add i64 {n.name}, 1")
        text.jump("reset")
        text.label("reset.done")

    def _go_on(self) -> None:
        """Write the code that resumes a vector at the place where it has waited."""
        analysis, resume = self.analysis, self.text.load("i64", self.states.at)
        convergent = [number for number in analysis.barriers if number not in self.divergent]
        cases = " ".join(
            [f"i64 {number + 1}, label %resume.b{number}" for number in convergent]
            + [f"i64 {self.poll_of(number)}, label %resume.y{number}" for number in analysis.convergent_polls]
        )
        divergent_case = f" i64 {DIVERGENT}, label %resume.divergent" if self.holds() else ""
        self.text.do(
            f"switch i64 {resume.name}, label %begin [ i64 {DONE}, label %vector.done {cases}{divergent_case} ]"
        )
        self.text.label("begin")

    def _specials(
        self, first: X, where: list[X], grid: list[X], block: list[X], at: X, dynamic: X, total: X, threads: X
    ) -> None:
        """Write code for the values of special registers in a vector, and keep the values in the builder.

        `first` is the vector's first thread, and `where` its block's coordinates. `grid` and `block` have sizes.
        `at` is the address of the table of thread coordinates. `dynamic` and `total` are bytes of shared memory, and
        `threads` is the number of a block's threads.
        """
        b, text, rows = self.b, self.text, self.analysis.layout.rows
        specials: dict[str, Value] = {}
        short = text.cast("trunc", first, "i32")
        for axis in range(3):
            # A row of the table of threads has room for 1,024 and a vector more.
            place = text.binary("mul", constant("i64", 4), text.binary("add", first, axis * 1088))
            shape: Shape = VARYING if not rows else UNIFORM if axis else Affine(1)
            type_ = "i32" if rows else b.vector("i32")
            attributes = ", align 4, !invariant.load !0"
            specials[f"tid.{_AXES[axis]}"] = Value(shape, text.load(type_, text.at(at, place), attributes))
        for axis in range(3):
            specials[f"ctaid.{_AXES[axis]}"] = Value(UNIFORM, where[axis])
            specials[f"nctaid.{_AXES[axis]}"] = Value(UNIFORM, grid[axis])
            specials[f"ntid.{_AXES[axis]}"] = Value(UNIFORM, block[axis])
        lane = text.binary("and", short, 31)
        specials["laneid"] = Value(Affine(1), lane)
        specials["warpid"] = Value(UNIFORM, text.binary("lshr", short, 5))
        warps = text.binary("lshr", text.binary("add", threads, 31), 5)
        specials["nwarpid"] = Value(UNIFORM, text.cast("trunc", warps, "i32"))
        specials["nsmid"] = Value(UNIFORM, constant("i32", 132))
        number = text.cast("trunc", b.block_number, "i32")
        specials["smid"] = Value(UNIFORM, text.binary("urem", number, 132))
        specials["gridid"] = Value(UNIFORM, constant("i64", 1))
        specials["dynamic_smem_size"] = Value(UNIFORM, text.cast("trunc", dynamic, "i32"))
        specials["total_smem_size"] = Value(UNIFORM, text.cast("trunc", total, "i32"))
        barrier = b.word(Slot.GRID_BARRIER)
        specials["envreg1"] = Value(UNIFORM, text.cast("trunc", text.binary("lshr", barrier, 32), "i32"))
        specials["envreg2"] = Value(UNIFORM, text.cast("trunc", barrier, "i32"))
        specials["is_explicit_cluster"] = Value(UNIFORM, constant("i1", 0))
        if b.width == 32:
            lanes = b.iota("i32")
            lane_bit = text.binary("shl", constant(lanes.type, 1), lanes)
            less = text.binary("sub", lane_bit, 1)
            upto = text.binary("or", lane_bit, less)
            masks = {"eq": lane_bit, "lt": less, "le": upto}
            for name, x in masks.items():
                specials[f"lanemask_{name}"] = Value(VARYING, x)
            for name, x in (("gt", upto), ("ge", less)):
                specials[f"lanemask_{name}"] = Value(VARYING, text.binary("xor", x, -1))
        b.specials = specials

    # ── code behind a kernel's own ──

    def end(self) -> None:
        """Write the code that goes on with the next vector, and the next block of threads."""
        b, text, analysis, turn = self.b, self.text, self.analysis, self._turns
        text.label("vector.done")
        for step in turn.steps:
            text.do(step)
        text.jump("vectors")
        if turn.row is not None:
            text.label("row.done")
            text.do(turn.row.step)
            text.jump(turn.row.loop)
        text.label("swept")
        if turn.has_failed:
            text.branch(text.load("i1", turn.has_failed), "failed.out", "block.done")
        elif analysis.polling or analysis.has_counted_barriers:
            text.branch(text.load("i1", self.again), "more", "block.done")
            self._more()
        elif analysis.barriers:
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
        """Write another pass over the waiting vectors, unless many passes made no progress."""
        b, text = self.b, self.text
        text.label("more")
        count = text.binary("add", text.load("i64", self.idle), 1)
        text.store(count, self.idle)
        waits_on = text.binary("and", text.load("i1", self.yielded), text.compare("ugt", count, _PATIENCE))
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


# ── barriers: live registers are saved, and the next vector of the block of threads runs ──
# Once all have arrived, each vector resumes at its place.

#: Numbers of the barriers that a block has.
_BARRIERS = frozenset(range(16))


class Waiting:
    """Code at barriers, and at polling loops."""

    def __init__(self, scaffold: Scaffold) -> None:
        self.scaffold, self.analysis = scaffold, scaffold.analysis
        self.b, self.text, self.states = scaffold.b, scaffold.text, scaffold.states
        self.flow, self.divergent = scaffold.flow, scaffold.divergent
        analysis = self.analysis
        self.saves = Saves(
            self.flow,
            analysis.shapes,
            bool(analysis.polling or analysis.divergent_barriers or analysis.has_counted_barriers),
        )

    # ── arriving ──

    def let_others_run(self, header: int) -> None:
        """Write code that makes the lanes at a polling loop's header wait until other lanes and vectors have run."""
        b, text, scaffold = self.b, self.text, self.scaffold
        self._note_yield(True)
        place, polling_place = scaffold.masks[header], scaffold.masks[scaffold.poll_of(header)]
        both = text.binary("or", text.load(b.mask_type, place), text.load(b.mask_type, polling_place))
        text.store(both, polling_place)
        text.store(constant(both.type, 0), place)

    def enter(self, number: int, header: int) -> None:
        """Write code that saves registers on the way from block `number` into the loop with header `header`."""
        self.states.save(self.saves.entries.get((number, header), ()))

    def leave_vector(self, header: int) -> None:
        """Write code that suspends this vector at a polling loop's header, so that other vectors run first."""
        self.states.save(self.analysis.shapes.live_in[header])
        self.states.resume_at(self.scaffold.poll_of(header))
        self._note_yield(True)
        self.text.jump("vector.done")

    def _note_yield(self, polls: bool) -> None:
        """Write code that notes that a vector has yielded and must run again; with `polls`, in a polling loop."""
        scaffold = self.scaffold
        for place in (scaffold.again, scaffold.yielded, *((scaffold.polled,) if polls else ())):
            self.text.store(TRUE, place)

    def wait(self, place: int, number: int, mask: X | None) -> None:
        """Write the code that waits at the barrier with which block `number` of the code ends.

        `place` is the block's position in the order in which the blocks are written. `mask` holds the lanes that
        arrive, or is None for all lanes. Barriers that this back-end does not compile raise `Refusal`.
        """
        b, text, scaffold, analysis = self.b, self.text, self.scaffold, self.analysis
        lanes = b.bits(b.all_lanes() if mask is None else mask)
        instr = analysis.last_of(number)
        reduces = "red" in instr.modifiers
        barriers = [other for other in analysis.function.code if facts_of(other).does in ("waits", "arrives")]
        numbers = {barrier_of(other) for other in barriers}
        whole = {barrier_of(other) for other in barriers if not is_counted(other)}
        parts = numbers if not whole else {barrier_of(other) for other in barriers if is_counted(other)}
        if "cluster" in instr.modifiers or instr.guard is not None or len(whole) > 1 or not whole.isdisjoint(parts):
            raise Refusal(f"instruction {instr} with its operands, or several barriers of a block")
        if not numbers <= _BARRIERS or (reduces and (analysis.polling or analysis.has_counted_barriers)):
            raise Refusal(f"instruction {instr} with its operands")
        if reduces:
            truths = text.binary("and", b.bits(b.lanes(b.read(instr.operands[-1], "pred"))), lanes)
            for place_, bits in ((scaffold.true, truths), (scaffold.arrived, lanes)):
                count = text.call(f"llvm.ctpop.{bits.type}", bits.type, bits)
                count = text.cast("zext", count, "i32") if b.width < 32 else count
                text.store(text.binary("add", text.load("i32", place_), count), place_)
        text.store(constant("i64", 0), scaffold.idle)
        if is_counted(instr):
            self._wait_for_some(number)
            return
        text.store(TRUE, scaffold.again)
        if number in self.divergent:
            text.fence()
            waiting = scaffold.masks[scaffold.wait_of(number)]
            text.store(text.binary("or", text.load(b.mask_type, waiting), lanes), waiting)
            text.jump(scaffold.behind(place))
            return
        self.states.save(self.saves.stores[number])
        self.states.resume_at(number + 1)
        text.jump("vector.done")

    def _wait_for_some(self, number: int) -> None:
        """Write the wait at the barrier that ends basic block `number`, for a part of the thread block.

        Raises
        ------
        Refusal
            If the barrier is in divergent code, or its operands are not supported.
        """
        b, text, instr = self.b, self.text, self.analysis.last_of(number)
        if number in self.divergent:
            raise Refusal(f"instruction {instr} where lanes part")
        before, met = arrive_at_barrier(b, instr)
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
        """Write code for the saved address where a vector keeps the completions that its barrier had before it arrived.

        Return the address's name. `number` is the basic block that the barrier ends.
        """
        return self.states.place(f"turn of {number}", "", "i64")

    # ── resuming ──

    def chain_end(self) -> None:
        """Write the end of a pass over the blocks: all lanes have left, or wait."""
        b, text, scaffold, waiting = self.b, self.text, self.scaffold, self.scaffold.holds()
        text.label("chain.end")
        if self.analysis.has_divergent_collectives:
            some = self._any_of([scaffold.masks[number] for number in self.flow.order if number in scaffold.masks])
            text.branch(some, "chain.pending", "chain.settled")
            text.label("chain.pending")
            moved = text.load("i1", scaffold.moved)
            text.store(FALSE, scaffold.moved)
            text.branch(moved, scaffold.chain(0), "chain.meet")
            text.label("chain.meet")
            text.branch(scaffold.rendezvous.meet(), "chain.met", "chain.parted")
            text.label("chain.met")
            scaffold.tick()
            text.jump(scaffold.chain(0))
            text.label("chain.parted")
            # Lanes that poll may come to the others later.
            polls = [scaffold.masks[scaffold.poll_of(number)] for number in self.analysis.divergent_polls]
            text.branch(self._any_of(polls), "chain.wait" if polls else "stuck", "stuck")
            text.label("chain.settled")
        if waiting:
            text.branch(self._any_of([scaffold.masks[key] for key, _ in waiting]), "chain.wait", "left")
            text.label("chain.wait")
            self.states.save(self._live_over_divergent())
            for key in [*(key for key, _ in waiting), *self._sites()]:
                self.states.move(b.mask_type, self._mask_at(key), scaffold.masks[key], load=False)
            self.states.move(b.mask_type, self._mask_at(None), scaffold.alive, load=False)
            self.states.resume_at(DIVERGENT)
            text.jump("vector.done")
        else:
            text.jump("left")
        text.label("left")
        if self.analysis.suspends:
            self.states.resume_at(DONE)
            text.store(constant("i64", 0), scaffold.idle)
        text.jump("vector.done")
        text.label("stuck")
        text.do(f"ret i64 {Ending.STUCK:d}")

    def _any_of(self, masks: list[str]) -> X:
        """Return the truth that any mask has lanes; `masks` has the names of the masks' memory."""
        b, text = self.b, self.text
        lanes = none = constant(b.mask_type, 0)
        for place in masks:
            lanes = text.binary("or", lanes, text.load(b.mask_type, place))
        return text.compare("ne", lanes, none)

    def _live_over_divergent(self) -> set[str]:
        """Return the registers that are live where lanes wait in divergent code."""
        live: set[str] = set()
        for _, after in self.scaffold.holds():
            if after != self.flow.end:
                live |= self.analysis.shapes.live_in[after]
        return live.union(*(self.analysis.shapes.live_in[number] for number in self._sites()))

    def _sites(self) -> list[int]:
        """Return the blocks at whose collectives lanes may wait while others of their vector poll."""
        return self.scaffold.rendezvous.sites if self.analysis.divergent_polls else []

    def _mask_at(self, key: int | None) -> str:
        """Write code for the address where a mask is saved; return the address's name.

        `key` is the mask's key in the scaffold's `masks`; None is for the lanes that have not left.
        """
        return self.states.place(f"mask of {key}", "", self.b.mask_type)

    def resumes(self) -> None:
        """Write the places where waiting vectors resume."""
        text, scaffold, analysis = self.text, self.scaffold, self.analysis
        for number in analysis.barriers:
            if number not in self.divergent:
                self._resume(number, analysis.last_of(number))
        for number in analysis.convergent_polls:
            text.label(f"resume.y{number}")
            self.states.load(analysis.shapes.live_in[number])
            scaffold.tick()
            text.jump(scaffold.body(number))
        if scaffold.holds():
            self._resume_divergent()

    def _resume(self, number: int, instr: Instruction) -> None:
        """Write the code where a vector resumes at the barrier that ends basic block `number`.

        The vector goes on if the barrier is complete, and else waits again. `instr` is the barrier's instruction.
        """
        b, text, scaffold = self.b, self.text, self.scaffold
        text.label(f"resume.b{number}")
        on, still = text.fresh("on"), text.fresh("still")
        if is_counted(instr):
            now = text.load("i64", barrier_turn(b, instr))
            text.branch(text.compare("ne", now, text.load("i64", self._turn_at(number))), on, still)
            text.label(still)
            self._note_yield(False)
            scaffold.tick()
        else:
            text.branch(text.load("i1", scaffold.release), on, still)
            text.label(still)
            text.store(TRUE, scaffold.again)
        text.jump("vector.done")
        text.label(on)
        if self.flow.blocks[number].successors[0] != self.flow.end:
            self.states.load(self.saves.loads[number])
            self._reduced(number, None)
        self._go_on(number)

    def _resume_divergent(self) -> None:
        """Write the code where a vector resumes whose lanes wait at several barriers or loops."""
        b, text, scaffold = self.b, self.text, self.scaffold
        text.label("resume.divergent")
        self.states.load(self._live_over_divergent())
        self.states.move(b.mask_type, self._mask_at(None), scaffold.alive, load=True)
        scaffold.tick()
        for number in self._sites():
            self.states.move(b.mask_type, self._mask_at(number), scaffold.masks[number], load=True)
        for key, after in scaffold.holds():
            place: str = scaffold.masks[key]
            self.states.move(b.mask_type, self._mask_at(key), place, load=True)
            lanes = text.load(b.mask_type, place)
            none = constant(lanes.type, 0)
            if key < 0 and self.analysis.polling:
                # Lanes stay at a barrier until all others have arrived.
                released = text.load("i1", scaffold.release)
                text.store(text.select(released, none, lanes), place)
                lanes = text.select(released, lanes, none)
                held_back = text.binary("xor", released, TRUE)
                text.store(text.binary("or", text.load("i1", scaffold.again), held_back), scaffold.again)
            else:
                text.store(none, place)
            if key < 0:
                self._reduced(-key - 1, b.from_bits(lanes))
            scaffold.send(after, lanes)
        text.jump(scaffold.chain(0))

    def _reduced(self, number: int, mask: X | None) -> None:
        """Write the result of a barrier that reduces predicates, for the lanes of a mask; nothing for other barriers.

        `number` is the basic block that the barrier ends.
        """
        b, text, instr = self.b, self.text, self.analysis.last_of(number)
        if "red" not in instr.modifiers:
            return
        b.instr, b.mask, b.guarded = instr, mask, mask is not None
        true, arrived = text.load("i32", self.scaffold.last_true), text.load("i32", self.scaffold.last_arrived)
        target = instr.operands[0]
        if "popc" in instr.modifiers:
            b.write(target, "u32", Value(UNIFORM, true))
        elif "and" in instr.modifiers:
            b.write(target, "pred", Value(UNIFORM, text.compare("eq", true, arrived)))
        else:
            b.write(target, "pred", Value(UNIFORM, text.compare("ne", true, 0)))

    def _go_on(self, number: int) -> None:
        """Write code that continues a vector behind the barrier that ends basic block `number`."""
        text, scaffold, flow = self.text, self.scaffold, self.flow
        (after,) = flow.blocks[number].successors
        if after == flow.end:
            text.jump("left")
            return
        if flow.place[after] <= flow.place[number]:
            scaffold.tick()
        if after in self.divergent:
            text.store(scaffold.whole(), scaffold.masks[after])
        text.jump(scaffold.body(after))
