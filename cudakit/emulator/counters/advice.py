"""Advice from the counts, if they leave no doubt: each rule holds for every request or branch that its advice names.

The rules cover three subjects:

- accesses to memory;
- other instructions: divergent branches, needless barriers, double precision, indexed local memory;
- the launch as a whole: idle lanes of a block, and idle threads of a multiprocessor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

from cudakit.emulator.counters.requests import BANK_BYTES, BANKS, SECTOR, WARP, Pattern
from cudakit.emulator.counters.tally import Kernel, Record, Space, category_of
from cudakit.emulator.instructions.access import space_of
from cudakit.emulator.isa.facts import facts_of, result_of
from cudakit.emulator.machine.kernel_memory import shared_layout
from cudakit.emulator.machine.state import RESERVED_SHARED, Geometry
from cudakit.emulator.ptx.program import Address, Function, Group, Immediate, Instruction, Operand, Register, Symbol

#: A misaligned access of four sectors touches five.
_MISALIGNED = 1.2
#: Most bytes of an element of several numbers, such as a colour.
_TOGETHER = 16
#: Atomic operations that can be reduced over a warp first.
_REDUCIBLE = frozenset(("add", "min", "max", "and", "or", "xor"))


def on_accesses(kernel: Kernel) -> Iterator[tuple[Record, str]]:
    """Yield advice on accesses to memory, each with its instruction."""
    totals: dict[tuple[tuple[str, int], str, str], tuple[Record, list[Space]]] = {}
    for record in kernel.records.values():
        for unit, counted, text in (*_on_global(record, kernel), *_on_shared(record)):
            # Instructions of one line with the same advice are counted together.
            totals.setdefault((record.where, unit, text), (record, []))[1].append(counted)
        yield from ((record, text) for text in _on_atomics(record, kernel))
    for (_, unit, text), (record, spaces) in totals.items():
        requests = sum(space.requests for space in spaces)
        used, least = (sum(getattr(space, name) for space in spaces) / requests for name in ("used", "least"))
        would = "would do" if unit != "sectors" else "suffices" if least == 1 else "suffice"
        yield record, f"{_shown(used)} {unit} a request where {_shown(least)} {would}{text}"


def _shown(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _on_global(record: Record, kernel: Kernel) -> Iterator[tuple[str, Space, str]]:
    pattern = record.patterns.get("global")
    for (space, use), counted in record.spaces.items():
        if space != "global" or use == "atomics" or counted.used <= counted.least or pattern is None:
            continue
        array, size = pattern.array or "memory", counted.bytes // counted.lanes
        if not pattern.steady or pattern.stride is None:
            if counted.used >= 4 * counted.least:
                yield "sectors", counted, f": the accesses of a warp are scattered over {array}"
        elif counted.lanes < WARP // 2 * counted.requests:
            continue  # a few threads are what they are
        elif abs(pattern.stride) == size:
            # Few row ends give no advice, and accesses to an element's neighbours cannot be aligned.
            if counted.used >= _MISALIGNED * counted.least:
                yield from (("sectors", counted, f": {remedy}") for remedy in _aligned(pattern, array))
        elif pattern.stride:
            yield "sectors", counted, _apart(pattern, array, kernel)


def _aligned(pattern: Pattern, array: str) -> Iterator[str]:
    if pattern.begins and pattern.is_aligned:
        yield (
            f"{array} begins {pattern.begins} bytes into a sector; give an array that begins at a multiple of {SECTOR} "
            "bytes"
        )
    elif pattern.pitch % SECTOR and pattern.rows_aligned and not pattern.begins:
        yield f"the rows of {array} are {pattern.pitch:,} bytes long; pad them to a multiple of {SECTOR}"


def _apart(pattern: Pattern, array: str, kernel: Kernel) -> str:
    assert pattern.stride is not None
    step = abs(pattern.stride)
    if (pattern.is_struct and _members(pattern, kernel) > 1) or step == pattern.pitch <= _TOGETHER:
        return (
            f": {array} holds {step} bytes together, of which neighbouring threads access a part at a time; have an "
            "array for each part"
        )
    if pattern.pitch and step % pattern.pitch == 0:
        runs = "threadIdx.x runs" if kernel.geometry.block[0] >= WARP else "neighbouring threads run"
        head = f"; {runs} along the slow axis of {array} ({step:,} bytes a step)"
        other = _along_rows(kernel)
        if _is_flat(kernel.geometry):
            return f"{head}: let them access neighbouring elements"
        if other:
            return f"{head}, and along the fast one of {other}: go by a tile in shared memory"
        return f"{head}: swap the indices"
    return (
        f": neighbouring threads access {array} {step:,} bytes apart; let them access neighbouring elements, or each "
        "what lies between at once"
    )


def _is_flat(geometry: Geometry) -> bool:
    """Return whether at most one axis of the launch has more than one thread, over block and grid together."""
    return sum(threads * blocks > 1 for threads, blocks in zip(geometry.block, geometry.grid, strict=True)) <= 1


def _along_rows(kernel: Kernel) -> str:
    """Return the name of an array of rows in which warps access neighbouring elements, without wasted sectors.

    The name is empty if there is no such array.
    """
    for record in kernel.records.values():
        pattern = record.patterns.get("global")
        if pattern is None or not pattern.pitch:
            continue
        for (space, use), counted in record.spaces.items():
            dense = SECTOR * counted.least >= counted.bytes > SECTOR * counted.requests
            if space == "global" and use != "atomics" and counted.used == counted.least and dense:
                return pattern.array
    return ""


def _members(pattern: Pattern, kernel: Kernel) -> int:
    """Return the number of members of an array's structs that the kernel accesses.

    Only instructions whose stride is that of `pattern` count.
    """
    members: set[int] = set()
    for record in kernel.records.values():
        other = record.patterns.get("global")
        if other is not None and other.steady and (other.array, other.stride) == (pattern.array, pattern.stride):
            members |= other.members or set()
    return len(members)


def _on_shared(record: Record) -> Iterator[tuple[str, Space, str]]:
    pattern, unit = record.patterns.get("shared"), "wavefronts of shared memory"
    for (space, use), counted in record.spaces.items():
        if space != "shared" or use == "atomics" or counted.used <= counted.least:
            continue
        if pattern is None or not pattern.steady or not pattern.stride or pattern.stride % BANK_BYTES:
            # Data-dependent accesses, as in a sort, hit a bank three or four times, which nothing can change.
            if counted.used >= 4 * counted.least:
                yield unit, counted, ": bank conflicts"
            continue
        words, size = abs(pattern.stride) // BANK_BYTES, counted.bytes // counted.lanes
        shared = gcd(words, BANKS)
        if shared == BANKS and size >= BANK_BYTES:
            element = "word" if size == BANK_BYTES else f"element of {size} bytes"
            text = f": neighbouring threads access one bank, {words} words apart; pad the rows by one {element}"
        else:
            text = f": neighbouring threads are {words} words apart, which meets {BANKS // shared} of 32 banks"
        yield unit, counted, text


def _on_atomics(record: Record, kernel: Kernel) -> Iterator[str]:
    if _REDUCIBLE.isdisjoint(record.instr.modifiers):
        return
    for (_, use), counted in record.spaces.items():
        full = counted.lanes >= WARP // 2 * counted.requests
        if use != "atomics" or not full or record.addresses != counted.requests:
            continue
        head = "all threads of a warp change the same address, one after the other: "
        if _is_used(record, kernel):
            yield (
                f"{head}let one thread do it for all and give each its part (cooperative groups' coalesced_threads and "
                "exclusive_scan)"
            )
        else:
            yield f"{head}reduce over the warp first (__reduce_add_sync, cub::WarpReduce), and let one thread do it"


def _is_used(record: Record, kernel: Kernel) -> bool:
    """Return whether the old value returned by an atomic operation is used."""
    result = result_of(record.instr)
    if not isinstance(result, Register):
        return False
    code = next((of.code for of in kernel.functions.values() if any(instr is record.instr for instr in of.code)), [])
    return any(_names(operand, result) for instr in code if instr is not record.instr for operand in instr.operands)


def _names(operand: Operand, register: Register) -> bool:
    if isinstance(operand, Group):
        return any(_names(item, register) for item in operand.items)
    return register == (operand.base if isinstance(operand, Address) else operand)


#: Categories of instructions without effects that another thread could see.
_OWN = frozenset(("single", "half", "double", "integer", "move", "convert", "compare", "logic", "special"))
#: Length from which the assembler never replaces a path by a selection.
_LONG = 6
#: A double literal of C++: it has a point or an exponent, and no suffix.
_DOUBLE = re.compile(r"(?<![\w.])(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?(?![\w.])")


def on_code(kernel: Kernel) -> Iterator[tuple[Record, str]]:
    """Yield advice on instructions other than accesses to memory, each with its instruction."""
    for record in kernel.records.values():
        yield from ((record, text) for text in (*_on_branches(record, kernel), *_on_local(record)))
    yield from _on_barriers(kernel)
    yield from _on_literals(kernel)


def _on_branches(record: Record, kernel: Kernel) -> Iterator[str]:
    if record.divergent and record.divergent == record.warps and record.alternates and _has_long_paths(record, kernel):
        yield (
            "odd and even threads of each warp go different ways, one after the other: let whole warps go one way, by "
            "the number of the warp and not of the thread"
        )


def _has_long_paths(record: Record, kernel: Kernel) -> bool:
    """Return whether both paths of a branch are too long for the assembler to replace them by a selection."""
    for function in kernel.functions.values():
        for number, instr in enumerate(function.code):
            target = instr.operands[0] if instr is record.instr else None
            if isinstance(target, Symbol) and target.name in function.labels:
                starts = function.labels[target.name], number + 1
                return all(_length(function, start) >= _LONG for start in starts)
    return False


def _length(function: Function, start: int) -> int:
    """Return the number of instructions on a path from the index `start` until the path joins another.

    The count ends at `_LONG`. The result is `_LONG` too if the path jumps back.
    """
    count, place, jumps = 0, start, 0
    while place < len(function.code) and jumps < 4 and count < _LONG:
        instr = function.code[place]
        target = instr.operands[0] if instr.opcode == "bra" and instr.guard is None else None
        if isinstance(target, Symbol):
            ahead = function.labels.get(target.name, 0)
            if ahead <= place:
                return _LONG
            # The path behind a conditional branch is its other path.
            if count and function.code[place - 1].guard is None:
                return count
            place, jumps = ahead, jumps + 1
        else:
            count, place = count + 1, place + 1
    return count


def _on_local(record: Record) -> Iterator[str]:
    if record.dynamic:
        sectors = sum(counted.used for (space, _), counted in record.spaces.items() if space == "local")
        yield (
            f"{sectors:,} sectors of local memory: the array is indexed with what is known only when the kernel runs; "
            "unroll the loop over it, or keep it in shared memory"
        )


def _on_barriers(kernel: Kernel) -> Iterator[tuple[Record, str]]:
    records = {id(record.instr): record for record in kernel.records.values()}
    for function in kernel.functions.values():
        targets = set(function.labels.values())
        before: Instruction | None = None
        for number, instr in enumerate(function.code):
            if number in targets:
                before = None
            if _is_barrier(instr):
                record = records.get(id(instr))
                if before is not None and before.operands == instr.operands and record is not None:
                    yield (
                        record,
                        "a barrier right behind a barrier, with no access to memory between them: leave one out",
                    )
                before = instr
            elif not _is_private(instr):
                before = None


def _is_barrier(instr: Instruction) -> bool:
    return (
        facts_of(instr).does == "waits"
        and "sync" in instr.modifiers
        and instr.guard is None
        and all(isinstance(operand, Immediate) for operand in instr.operands)
    )


def _is_private(instr: Instruction) -> bool:
    return category_of(instr) in _OWN or (instr.opcode == "ld" and space_of(instr) in ("param", "const"))


def _on_literals(kernel: Kernel) -> Iterator[tuple[Record, str]]:
    """Yield advice on lines that widen floats for a double literal and narrow the result."""
    by_line: dict[tuple[str, int], list[Record]] = {}
    for record in kernel.records.values():
        by_line.setdefault(record.where, []).append(record)
    for records in by_line.values():
        code = re.sub(r"//.*|/\*.*?\*/|\"[^\"]*\"", "", records[0].text)
        literal = _DOUBLE.search(code)
        if literal is None or "double" in code:
            continue
        converts = [record.instr.modifiers[-2:] for record in records if record.instr.opcode == "cvt"]
        doubles = [record for record in records if record.category == "double"]
        with_literal = [record for record in doubles if any(_is_double(operand) for operand in record.instr.operands)]
        accesses = any("f64" in record.instr.modifiers and record.category in ("load", "store") for record in records)
        if with_literal and not accesses and ("f64", "f32") in converts and ("f32", "f64") in converts:
            count = sum(record.lanes for record in doubles)
            yield (
                with_literal[0],
                f"{count:,} operations in double precision between floats, for {literal[0]} is a double: write "
                f"{literal[0]}f",
            )


def _is_double(operand: object) -> bool:
    return isinstance(operand, Immediate) and operand.float_bits == 64


class Multiprocessor(NamedTuple):
    """Capacity of a multiprocessor, from the table of technical specifications in the CUDA C++ Programming Guide."""

    threads: int
    blocks: int
    shared_bytes: int


_KB = 1024
_MULTIPROCESSORS = {
    75: Multiprocessor(1024, 16, 64 * _KB),
    80: Multiprocessor(2048, 32, 164 * _KB),
    86: Multiprocessor(1536, 16, 100 * _KB),
    87: Multiprocessor(1536, 16, 164 * _KB),
    89: Multiprocessor(1536, 24, 100 * _KB),
    90: Multiprocessor(2048, 32, 228 * _KB),
    100: Multiprocessor(2048, 32, 228 * _KB),
    103: Multiprocessor(2048, 32, 228 * _KB),
}


def on_launch(kernel: Kernel) -> Iterator[str]:
    """Yield advice on the kernel's last launch."""
    threads, blocks = kernel.geometry.threads, kernel.geometry.blocks
    if threads % WARP and (threads > WARP or blocks > 1):
        idle = -threads % WARP
        yield (
            f"blocks of {threads} threads leave {idle} of 32 lanes of their last warp idle: take a multiple of {WARP}"
        )
    target = kernel.program.target.partition(",")[0]
    number = re.match(r"sm_(\d+)", target)
    room = _MULTIPROCESSORS.get(int(number[1])) if number is not None else None
    if room is None:
        return
    shared = shared_layout(kernel.program, kernel.program.functions[kernel.entry])
    block_bytes = kernel.geometry.shared_bytes + shared.static_bytes + RESERVED_SHARED
    fits = room.shared_bytes // block_bytes
    # PTX does not say how many registers are used: fewer blocks than this may fit.
    if blocks > fits and 4 * fits * threads <= room.threads:
        yield (
            f"a block takes {block_bytes:,} bytes of shared memory, of which a multiprocessor of {target} has "
            f"{room.shared_bytes:,}: {fits} {'block' if fits == 1 else 'blocks'} at once, {fits * threads} of "
            f"{room.threads:,} threads"
        )
    elif blocks > room.blocks and 2 * room.blocks * threads <= room.threads:
        yield (
            f"a multiprocessor of {target} takes {room.blocks} blocks at once, which with {threads} threads "
            f"each are {room.blocks * threads:,} of {room.threads:,} threads"
        )


class Advice(NamedTuple):
    """Advice on one line.

    Attributes
    ----------
    kernel : str
        Name of the kernel.
    file, line : str, int
        File and number of the line. Line 0: the kernel as a whole.
    text : str
        The advice.
    """

    kernel: str
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.kernel}: {f'line {self.line}: ' if self.line else ''}{self.text}"


def advice_on(kernel: Kernel) -> Iterator[Advice]:
    """Yield all advice on a kernel, each text once a line."""
    for text in on_launch(kernel):
        yield Advice(kernel.name, "", 0, text)
    items = dict.fromkeys(
        Advice(kernel.name, *record.where, text) for record, text in (*on_accesses(kernel), *on_code(kernel))
    )
    yield from sorted(items, key=lambda item: (item.file, item.line))
