"""What to change, where the counts leave no doubt: each rule holds of every request that it speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod
from typing import Any, NamedTuple

from cudakit.emulator.counters.requests import SECTOR, WARP
from cudakit.emulator.counters.tally import Kernel, Pattern, Record

_BANK_BYTES, _BANKS = 4, 32
#: Four sectors that are not aligned are five.
_MISALIGNED = 1.2


class Advice(NamedTuple):
    """What could be better about a line.

    Attributes
    ----------
    kernel : str
    file, line : str, int
        Line 0: the kernel as a whole.
    text : str
    """

    kernel: str
    file: str
    line: int
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Its fields, for JSON."""
        return self._asdict()

    def __str__(self) -> str:
        return f"{self.kernel}: {f'line {self.line}: ' if self.line else ''}{self.text}"


def advice_on(kernel: Kernel) -> Iterator[Advice]:
    """Of a kernel, each thing once a line."""
    threads = prod(kernel.block)
    if threads % WARP:
        idle = -threads % WARP
        yield Advice(
            kernel.name,
            "",
            0,
            f"blocks of {threads} threads leave {idle} of 32 lanes of their last warp idle: take a multiple of 32",
        )
    given: dict[Advice, None] = {}
    for record in kernel.records.values():
        for text in (*_on_global(record, kernel.block), *_on_shared(record), *_on_atomics(record)):
            given.setdefault(Advice(kernel.name, *record.where, text))
    yield from sorted(given, key=lambda each: (each.file, each.line))


def _shown(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def _on_global(record: Record, block: tuple[int, int, int]) -> Iterator[str]:
    pattern = record.patterns.get("global")
    for (space, use), counted in record.spaces.items():
        if space != "global" or use == "atomics" or counted.taken <= counted.least:
            continue
        each, needed = counted.taken / counted.requests, counted.least / counted.requests
        head = f"{_shown(each)} sectors a request where {_shown(needed)} {'suffices' if needed == 1 else 'suffice'}"
        size = counted.bytes // counted.lanes
        if pattern is None or not pattern.steady or pattern.stride is None:
            if counted.taken >= 4 * counted.least:
                yield f"{head}: the threads of a warp access scattered addresses of {_array(pattern)}"
        elif abs(pattern.stride) == size:
            if counted.taken < _MISALIGNED * counted.least:
                continue  # the ends of a few rows
            yield (
                f"{head}: {_array(pattern)} is accessed from an address within a sector on; begin at a multiple of "
                f"{SECTOR} bytes"
            )
        elif pattern.pitch and abs(pattern.stride) % pattern.pitch == 0:
            runs = "threadIdx.x runs" if block[0] >= WARP else "neighbouring threads run"
            yield (
                f"{head}; {runs} along the slow axis of {_array(pattern)} "
                f"({abs(pattern.stride):,} bytes a step): swap the indices"
            )
        elif pattern.stride:
            yield (
                f"{head}: neighbouring threads access {_array(pattern)} {abs(pattern.stride):,} bytes apart; let "
                "them access neighbouring elements"
            )


def _array(pattern: Pattern | None) -> str:
    return pattern.array if pattern is not None and pattern.array else "memory"


def _on_shared(record: Record) -> Iterator[str]:
    pattern = record.patterns.get("shared")
    for (space, use), counted in record.spaces.items():
        if space != "shared" or use == "atomics" or counted.taken <= counted.least:
            continue
        head = (
            f"{_shown(counted.taken / counted.requests)} wavefronts of shared memory a request where "
            f"{_shown(counted.least / counted.requests)} would do"
        )
        if pattern is None or not pattern.steady or not pattern.stride or pattern.stride % _BANK_BYTES:
            yield f"{head}: bank conflicts"
            continue
        words = abs(pattern.stride) // _BANK_BYTES
        shared = gcd(words, _BANKS)
        if shared == _BANKS and counted.bytes == _BANK_BYTES * counted.lanes:
            yield f"{head}: neighbouring threads access one bank, {words} words apart; pad the rows by one word"
        else:
            yield f"{head}: neighbouring threads are {words} words apart, which meets {_BANKS // shared} of 32 banks"


def _on_atomics(record: Record) -> Iterator[str]:
    for (_, use), counted in record.spaces.items():
        full = counted.lanes >= 16 * counted.requests
        if use == "atomics" and full and record.addresses == counted.requests:
            yield (
                "all threads of a warp change the same address, one after the other: reduce over the warp first "
                "(__reduce_add_sync, cub::WarpReduce), and let one thread do it"
            )
