"""Accesses of a basic block that are checked together, before the block runs.

The same lanes run each instruction of a block, so what their addresses come to is known before it begins: those of one
register lie between two bounds, which are held against one allocation. Where they lie in it, the block runs with no
further checks of these accesses; else it runs with each checked for itself, lane by lane, which finds the error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from cudakit.emulator.compiled.builder import Builder, Checked, bits_of
from cudakit.emulator.compiled.emit.access import SPACES, held_range, new_range, root_of, space_of
from cudakit.emulator.compiled.emit.common import type_of
from cudakit.emulator.compiled.helpers import GENERIC, READ, SHARED, WRITE
from cudakit.emulator.compiled.shapes import UNIFORM, Affine
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.isa.facts import facts_of, is_atomic, sources, targets, touches
from cudakit.emulator.ptx.program import Address, Group, Instruction, Register

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
    count = len(held.items) if isinstance(held, Group) and held.kind == "vector" else 1
    size = bits_of(type_of(given)) // 8 * count
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
            odd = text.binary("add", text.cast("zext", value.x, "i64"), constant("i64", each.anchor))
            odd = text.binary("and", odd, constant("i64", each.size - 1))
            good.append(text.compare("eq", odd, constant("i64", 0)))
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
        ahead = text.at(pointer.name, constant("i64", _AHEAD + each.high - each.size + line))
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
        room = text.binary("sub", b.shared_bytes, constant("i64", extent))
        fits = [text.compare("ule", end, room) for end in ends]
        _on_if(b, [text.compare("sge", room, constant("i64", 0)), *fits], otherwise)
        return Checked("", base)
    # Its own, for what is checked next to it, and what is not, may lie in other allocations, though it looks alike.
    range_ = new_range(b, ("together", number, root_of(b, each.base), each.code, extent, each.use))
    low, span = held_range(b, range_, 0), held_range(b, range_, 1)
    inside = _all(b, [text.compare("ule", text.binary("sub", end, low), span) for end in ends])
    miss, hit = text.fresh("miss"), text.fresh("hit")
    text.do(f"br {inside}, label %{hit}, label %{miss}, !prof !2")
    text.label(miss)
    placed = text.call(
        "place", "i1", X("ptr", "%ctx"), X("ptr", range_), start, need, constant("i64", extent),
        constant("i64", each.use), constant("i64", each.code),
    )  # fmt: skip
    text.do(f"br {placed}, label %{hit}, label %{otherwise}, !prof !2")
    text.label(hit)
    return Checked(range_, base)


def _all(b: Builder, good: list[X]) -> X:
    return reduce(lambda one, other: b.text.binary("and", one, other), good)


def _on_if(b: Builder, good: list[X], otherwise: str) -> None:
    """Go on where all hold, else to a label."""
    if good:
        on = b.text.fresh("on")
        b.text.do(f"br {_all(b, good)}, label %{on}, label %{otherwise}, !prof !2")
        b.text.label(on)
