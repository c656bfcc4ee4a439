"""What machine code takes of a thread's stack for a call, told from PTX.

That is the function's own variables and, where it calls others, what it has to keep for the time of the call: the place
to return to, and registers whose values are needed after it. Which of them ptxas keeps is its own choice: for seven
functions that recurse, with 16 to 320 bytes on sm_90, this was from five sixths to six fifths of what it took.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cudakit.emulator.isa.facts import facts_of, sources, targets
from cudakit.emulator.ptx.program import Function, Instruction, Symbol

#: The place to return to, and the register that holds the stack of the caller's caller: words of 4 bytes.
_RETURN_WORDS = 3
#: Registers that machine code does not have: predicates have bits of one, and the stack a place of its own.
_FREE = frozenset({"%SP", "%SPL"})


def frame_bytes(function: Function, local_bytes: int) -> int:
    """Bytes of a call's frame, where the variables take `local_bytes`."""
    calls = [code for code, given in enumerate(function.code) if given.opcode == "call"]
    if not calls:
        return local_bytes
    words = {
        name: max(1, int("".join(filter(str.isdigit, kind.partition("x")[0]))) // 32)
        for name, kind in function.registers.items()
        if kind != "pred" and name not in _FREE
    }
    numbers = {name: number for number, name in enumerate(words)}
    kept = 0
    live = _live_after(function, numbers)
    for code in calls:
        kept |= live[code]
    total = _RETURN_WORDS + sum(count for name, count in words.items() if kept >> numbers[name] & 1)
    return -(-(local_bytes + 4 * total) // 8) * 8


def _live_after(function: Function, numbers: dict[str, int]) -> list[int]:
    """For each instruction, the registers whose values are read after it: a bit for each number."""
    rows = []
    for code, given in enumerate(function.code):
        written = _bits(targets(given), numbers) if given.guard is None else 0
        rows.append((_bits(sources(given), numbers), written, tuple(_next(function, code, given))))
    live, after, changed = [0] * (len(rows) + 1), [0] * len(rows), True
    while changed:
        changed = False
        for code in range(len(rows) - 1, -1, -1):
            read, written, following = rows[code]
            out = 0
            for other in following:
                out |= live[other]
            after[code], before = out, read | out & ~written
            if before != live[code]:
                live[code], changed = before, True
    return after


def _bits(names: Iterable[str], numbers: dict[str, int]) -> int:
    bits = 0
    for name in names:
        if name in numbers:
            bits |= 1 << numbers[name]
    return bits


def _next(function: Function, code: int, given: Instruction) -> Iterator[int]:
    """Instructions that may come after one; behind the last there is none that reads."""
    if facts_of(given).does == "branches":
        names = [operand.name for operand in given.operands if isinstance(operand, Symbol)]
        for name in names:
            yield from (function.labels[label] for label in function.branch_targets.get(name, (name,)))
    if facts_of(given).does not in ("branches", "leaves", "stops") or given.guard is not None:
        yield code + 1
