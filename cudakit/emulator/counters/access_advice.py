"""Rules on accesses to memory: each speaks of requests that all lie alike."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from cudakit.emulator.counters.pattern import Pattern
from cudakit.emulator.counters.requests import SECTOR, WARP
from cudakit.emulator.counters.tally import Kernel, Record, Space
from cudakit.emulator.isa.facts import result_of
from cudakit.emulator.machine.state import Geometry
from cudakit.emulator.ptx.program import Address, Group, Operand, Register

_BANK_BYTES, _BANKS = 4, 32
#: Four sectors that are not aligned are five.
_MISALIGNED = 1.2
#: Bytes of an element of several numbers, such as a colour, at most.
_TOGETHER = 16
#: Atomic operations whose results over a warp can be had before they are made.
_REDUCIBLE = frozenset(("add", "min", "max", "and", "or", "xor"))


def on_accesses(kernel: Kernel) -> Iterator[tuple[Record, str]]:
    """What to change, with the instruction that it is about."""
    found: dict[tuple[tuple[str, int], str, str], tuple[Record, list[Space]]] = {}
    for record in kernel.records.values():
        for unit, counted, text in (*_on_global(record, kernel), *_on_shared(record)):
            # The instructions of a line of which one thing is to be said are counted together.
            found.setdefault((record.where, unit, text), (record, []))[1].append(counted)
        yield from ((record, text) for text in _on_atomics(record, kernel))
    for (_, unit, text), (record, spaces) in found.items():
        requests = sum(each.requests for each in spaces)
        taken, least = (sum(getattr(each, name) for each in spaces) / requests for name in ("taken", "least"))
        would = "would do" if unit != "sectors" else "suffices" if least == 1 else "suffice"
        yield record, f"{_shown(taken)} {unit} a request where {_shown(least)} {would}{text}"


def _shown(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _on_global(record: Record, kernel: Kernel) -> Iterator[tuple[str, Space, str]]:
    pattern = record.patterns.get("global")
    for (space, use), counted in record.spaces.items():
        if space != "global" or use == "atomics" or counted.taken <= counted.least or pattern is None:
            continue
        array, size = pattern.array or "memory", counted.bytes // counted.lanes
        if not pattern.steady or pattern.stride is None:
            if counted.taken >= 4 * counted.least:
                yield "sectors", counted, f": the accesses of a warp are scattered over {array}"
        elif counted.lanes < WARP // 2 * counted.requests:
            continue  # a few threads are what they are
        elif abs(pattern.stride) == size:
            # The ends of a few rows are no reason; and what neighbours of an element are read from cannot be aligned.
            if counted.taken >= _MISALIGNED * counted.least:
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
    """Whether threads are counted along one axis only."""
    return sum(threads * blocks > 1 for threads, blocks in zip(geometry.block, geometry.grid, strict=True)) <= 1


def _along_rows(kernel: Kernel) -> str:
    """An array of rows in which warps access neighbouring elements."""
    for record in kernel.records.values():
        pattern = record.patterns.get("global")
        if pattern is None or not pattern.pitch:
            continue
        for (space, use), counted in record.spaces.items():
            dense = SECTOR * counted.least >= counted.bytes > SECTOR * counted.requests
            if space == "global" and use != "atomics" and counted.taken == counted.least and dense:
                return pattern.array
    return ""


def _members(pattern: Pattern, kernel: Kernel) -> int:
    """How many members of an array's structs the kernel's instructions access with this stride."""
    found: set[int] = set()
    for each in kernel.records.values():
        other = each.patterns.get("global")
        if other is not None and other.steady and (other.array, other.stride) == (pattern.array, pattern.stride):
            found |= other.members or set()
    return len(found)


def _on_shared(record: Record) -> Iterator[tuple[str, Space, str]]:
    pattern, unit = record.patterns.get("shared"), "wavefronts of shared memory"
    for (space, use), counted in record.spaces.items():
        if space != "shared" or use == "atomics" or counted.taken <= counted.least:
            continue
        if pattern is None or not pattern.steady or not pattern.stride or pattern.stride % _BANK_BYTES:
            # What goes by the data, as in a sort, meets a bank three or four times, and nothing can be done.
            if counted.taken >= 4 * counted.least:
                yield unit, counted, ": bank conflicts"
            continue
        words, size = abs(pattern.stride) // _BANK_BYTES, counted.bytes // counted.lanes
        shared = gcd(words, _BANKS)
        if shared == _BANKS and size >= _BANK_BYTES:
            element = "word" if size == _BANK_BYTES else f"element of {size} bytes"
            text = f": neighbouring threads access one bank, {words} words apart; pad the rows by one {element}"
        else:
            text = f": neighbouring threads are {words} words apart, which meets {_BANKS // shared} of 32 banks"
        yield unit, counted, text


def _on_atomics(record: Record, kernel: Kernel) -> Iterator[str]:
    if _REDUCIBLE.isdisjoint(record.given.modifiers):
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
    """Whether the value that an atomic operation found is used."""
    result = result_of(record.given)
    if not isinstance(result, Register):
        return False
    code = next((of.code for of in kernel.functions.values() if any(each is record.given for each in of.code)), [])
    return any(_names(operand, result) for each in code if each is not record.given for operand in each.operands)


def _names(operand: Operand, register: Register) -> bool:
    if isinstance(operand, Group):
        return any(_names(each, register) for each in operand.items)
    return register == (operand.base if isinstance(operand, Address) else operand)
