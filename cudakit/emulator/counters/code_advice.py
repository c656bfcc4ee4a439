"""Rules on the instructions themselves: where they part, wait for nothing, compute in double, or index local memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudakit.emulator.counters.kinds import kind_of
from cudakit.emulator.counters.tally import Kernel, Record
from cudakit.emulator.instructions.access import space_of
from cudakit.emulator.isa.facts import facts_of
from cudakit.emulator.ptx.program import Function, Immediate, Instruction, Symbol

#: Kinds of instructions that do nothing another thread could see.
_OWN = frozenset(("single", "half", "double", "integer", "move", "convert", "compare", "logic", "special"))
#: Instructions of a way at least that no assembler makes a selection of.
_LONG = 6
#: A number of C++ that is a double, for it has a point or an exponent and no suffix.
_DOUBLE = re.compile(r"(?<![\w.])(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?(?![\w.])")


def on_code(kernel: Kernel) -> Iterator[tuple[Record, str]]:
    """What to change, with the instruction that it is about."""
    for record in kernel.records.values():
        yield from ((record, text) for text in (*_on_branches(record, kernel), *_on_local(record)))
    yield from _on_barriers(kernel)
    yield from _on_literals(kernel)


def _on_branches(record: Record, kernel: Kernel) -> Iterator[str]:
    if record.parted and record.parted == record.warps and record.alternates and _ways_are_long(record, kernel):
        yield (
            "odd and even threads of each warp go different ways, one after the other: let whole warps go one way, by "
            "the number of the warp and not of the thread"
        )


def _ways_are_long(record: Record, kernel: Kernel) -> bool:
    """Whether both ways of a branch are more than the assembler would make a choice between two values of."""
    for function in kernel.functions.values():
        for number, given in enumerate(function.code):
            target = given.operands[0] if given is record.given else None
            if isinstance(target, Symbol) and target.name in function.labels:
                starts = function.labels[target.name], number + 1
                return all(_length(function, start) >= _LONG for start in starts)
    return False


def _length(function: Function, start: int) -> int:
    """Instructions from one on to where the way joins another; `_LONG` where it goes back."""
    count, place, jumps = 0, start, 0
    while place < len(function.code) and jumps < 4 and count < _LONG:
        given = function.code[place]
        target = given.operands[0] if given.opcode == "bra" and given.guard is None else None
        if isinstance(target, Symbol):
            ahead = function.labels.get(target.name, 0)
            if ahead <= place:
                return _LONG
            # One behind a branch that has a choice is its other way.
            if count and function.code[place - 1].guard is None:
                return count
            place, jumps = ahead, jumps + 1
        else:
            count, place = count + 1, place + 1
    return count


def _on_local(record: Record) -> Iterator[str]:
    if record.dynamic:
        sectors = sum(counted.taken for (space, _), counted in record.spaces.items() if space == "local")
        yield (
            f"{sectors:,} sectors of local memory: the array is indexed with what is known only when the kernel runs; "
            "unroll the loop over it, or keep it in shared memory"
        )


def _on_barriers(kernel: Kernel) -> Iterator[tuple[Record, str]]:
    records = {id(record.given): record for record in kernel.records.values()}
    for function in kernel.functions.values():
        targets = set(function.labels.values())
        before: Instruction | None = None
        for number, given in enumerate(function.code):
            if number in targets:
                before = None
            if _is_barrier(given):
                record = records.get(id(given))
                if before is not None and before.operands == given.operands and record is not None:
                    yield (
                        record,
                        "a barrier right behind a barrier, with no access to memory between them: leave one out",
                    )
                before = given
            elif not _is_own(given):
                before = None


def _is_barrier(given: Instruction) -> bool:
    return (
        facts_of(given).does == "waits"
        and "sync" in given.modifiers
        and given.guard is None
        and all(isinstance(each, Immediate) for each in given.operands)
    )


def _is_own(given: Instruction) -> bool:
    return kind_of(given) in _OWN or (given.opcode == "ld" and space_of(given) in ("param", "const"))


def _on_literals(kernel: Kernel) -> Iterator[tuple[Record, str]]:
    """Lines that widen floats for a literal, and narrow what comes of it."""
    by_line: dict[tuple[str, int], list[Record]] = {}
    for record in kernel.records.values():
        by_line.setdefault(record.where, []).append(record)
    for records in by_line.values():
        code = re.sub(r"//.*|/\*.*?\*/|\"[^\"]*\"", "", records[0].text)
        literal = _DOUBLE.search(code)
        if literal is None or "double" in code:
            continue
        converts = [record.given.modifiers[-2:] for record in records if record.given.opcode == "cvt"]
        doubles = [record for record in records if record.kind == "double"]
        with_literal = [record for record in doubles if any(_is_double(each) for each in record.given.operands)]
        accesses = [
            record for record in records if "f64" in record.given.modifiers and record.kind in ("load", "store")
        ]
        if with_literal and not accesses and ("f64", "f32") in converts and ("f32", "f64") in converts:
            count = sum(record.lanes for record in doubles)
            yield (
                with_literal[0],
                f"{count:,} operations in double precision between floats, for {literal[0]} is a double: write "
                f"{literal[0]}f",
            )


def _is_double(operand: object) -> bool:
    return isinstance(operand, Immediate) and operand.float_bits == 64
