"""What to change, where the counts leave no doubt: each rule holds of every request or branch that it speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cudakit.emulator.counters.access_advice import on_accesses
from cudakit.emulator.counters.code_advice import on_code
from cudakit.emulator.counters.launch_advice import on_launch
from cudakit.emulator.counters.tally import Kernel


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

    def __str__(self) -> str:
        return f"{self.kernel}: {f'line {self.line}: ' if self.line else ''}{self.text}"


def advice_on(kernel: Kernel) -> Iterator[Advice]:
    """Of a kernel, each thing once a line."""
    for text in on_launch(kernel):
        yield Advice(kernel.name, "", 0, text)
    given = dict.fromkeys(
        Advice(kernel.name, *record.where, text) for record, text in (*on_accesses(kernel), *on_code(kernel))
    )
    yield from sorted(given, key=lambda each: (each.file, each.line))
