"""The order of a launch's vectors: block after block, or by rows of blocks that lie next to each other."""

from __future__ import annotations

from typing import NamedTuple

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.layout import STRIP, Slot
from cudakit.emulator.compiled.text import X, constant

#: What is done where a vector has failed, by the strip that it is in: those of the blocks before it come still, so that
#: the error is that of the first block.
_FAILED = """\
  store i1 true, ptr {failed}
  store i64 {beside}, ptr {length}
  %is.first = icmp eq i64 {beside}, 0
  br i1 %is.first, label %failed.out, label %failed.on
failed.on:
  %row.after = add i64 {row}, {columns}
  br label %vectors
"""


class Turns(NamedTuple):
    """A loop over vectors, from the label ``vectors`` to ``vector.done``: the one that it is at."""

    vector: X
    #: The number of its block, and where that is in the grid.
    block: X
    where: list[X]
    #: What leads to the next vector.
    steps: list[str]
    #: What leads to the block behind those that it goes over.
    following: str
    #: What comes before code ends with an error, up to where it does; and where it is kept whether it has to.
    failed: str = ""
    has_failed: str = ""


def of_block(b: Builder, block: X, where: list[X], vectors: X) -> Turns:
    """The vectors of a block."""
    text = b.text
    text.jump("vectors")
    text.label("vectors")
    vector = text.phi("i64", (constant("i64", 0), "sweep"), (X("i64", "%vector.next"), "vector.done"))
    text.branch(text.compare("ult", vector, vectors), "vector", "swept")
    text.label("vector")
    return Turns(vector, block, where, [f"%vector.next = add {vector}, 1"], _following(block, constant("i64", 1)))


def of_strip(b: Builder, block: X, where: list[X], across: X, vectors: X) -> Turns:
    """The vectors of blocks next to each other in x: by rows of threads, and in a row by blocks."""
    text, zero = b.text, constant("i64", 0)
    length = text.binary("sub", constant("i64", STRIP), text.binary("urem", block, constant("i64", STRIP)))
    in_row = text.cast("zext", text.binary("sub", across, where[0]), "i64")
    for most in (in_row, text.binary("sub", X("i64", "%last"), block)):
        length = text.call("llvm.umin.i64", "i64", length, most)
    columns = text.binary("udiv", b.word(Slot.BLOCK), constant("i64", b.width))
    held, failed = b.alloca("i64", "length"), b.alloca("i1", "failed")
    text.store(length, held)
    text.store(X("i1", "false"), failed)
    text.jump("vectors")
    text.label("vectors")
    row, beside, column = (
        text.phi("i64", (zero, "sweep"), (X("i64", f"%{name}.next"), "vector.done"), (X("i64", after), "failed.on"))
        for name, after in (("row", "%row.after"), ("beside", "0"), ("column", "0"))
    )
    text.branch(text.compare("ult", row, vectors), "vector", "swept")
    text.label("vector")
    steps = [
        f"%length.now = load i64, ptr {held}",
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
    ends = _FAILED.format(failed=failed, length=held, beside=beside.name, row=row.name, columns=columns.name)
    vector, number = text.binary("add", row, column), text.binary("add", block, beside)
    x = text.binary("add", where[0], text.cast("trunc", beside, "i32"))
    return Turns(vector, number, [x, *where[1:]], steps, _following(block, length), ends, failed)


def _following(block: X, count: X) -> str:
    return f"%block.next = add {block}, {count.name}"
