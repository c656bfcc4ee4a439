"""What became of a kernel in machine code: what it uses and, of tile kernels, which instructions were chosen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cudakit.jit.compile import elf
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.diagnostics import line_of_text
from cudakit.jit.source.source import Source

#: A remark as the assembler prints it.
_TOLD = re.compile(
    r'remark\[(?P<outcome>\w+)\]: (?P<what>.*)\n\s*--> "(?P<file>.*?)":(?P<line>\d+):\d+\n'
    r"(?P<notes>(?:\s*\|\n|\s*= .*\n?)*)"
)
_NOTE = re.compile(r"= note: (\w+) = (.*)")
#: The same in a log, a line each.
_KEPT = re.compile(r"^(?P<file>.*)\((?P<line>\d+)\): remark: (?P<what>.*)$", re.MULTILINE)


class Remark(NamedTuple):
    """What the assembler says of a line of the source.

    Attributes
    ----------
    file, line : str, int
    what : str
        Such as ``TMA Load instruction [64, 128]``.
    """

    file: str
    line: int
    what: str


class Explained(NamedTuple):
    """What became of a kernel.

    Attributes
    ----------
    kernel : str
    registers : int
        A thread has.
    spill_bytes : int
        Stack of a thread, to which registers are spilled; arrays that are indexed at run time are there too.
    shared_bytes : int
        Static shared memory of a block.
    remarks : tuple of Remark
        Of a tile kernel, in the order of its lines.
    arrays : tuple of str
        Of a tile kernel the arrays that it takes whole, and how they lie.
    """

    kernel: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    remarks: tuple[Remark, ...] = ()
    arrays: tuple[str, ...] = ()

    def __str__(self) -> str:
        spills = f"{self.spill_bytes} bytes of stack" if self.spill_bytes else "no spills"
        uses = f"{self.registers} registers a thread, {spills}, {self.shared_bytes} bytes of shared memory a block"
        lines = [f"{each.file}:{each.line}: {each.what}" for each in self.remarks]
        return "\n".join([f"{self.kernel}: {uses}", *self.arrays, *lines, *self.advice])

    @property
    def advice(self) -> tuple[str, ...]:
        """What mostly helps, where something is slow for sure."""
        found = []
        if self.remarks and self.spill_bytes:
            found.append(
                "advice: registers are spilled: take smaller tiles, or more warps: "
                "[[cutile::hint(0, num_worker_warps_per_cta=8)]]"
            )
        if any("Global-memory" in each.what for each in self.remarks):
            found.append(
                "advice: without TMA: it needs addresses and row pitches that are promised to be multiples of 16 "
                "bytes, as in p = ct::assume_aligned(p, 16_ic), n = ct::assume_divisible(n, 16_ic), and one stride of "
                "1; of cudakit::tensor it needs arrays that lie so"
            )
        return tuple(found)


def remarks_of(printed: str) -> Iterator[Remark]:
    """What the assembler has printed, a remark each; of what it tried, the last word only."""
    for match in _TOLD.finditer(printed):
        notes = dict(_NOTE.findall(match["notes"]))
        if match["outcome"] == "passed" and "Instruction" in notes:
            shape = f" {notes['Shape']}" if "Shape" in notes else ""
            yield Remark(match["file"], int(match["line"]), f"{notes['Instruction']}{shape}")


def as_log(remarks: Iterator[Remark]) -> str:
    """Remarks as lines of a compiler's log."""
    return "\n".join(f"{each.file}({each.line}): remark: {each.what}" for each in sorted(set(remarks)))


def explained(compiled: Compiled, expression: str, source: Source | None = None) -> Explained:
    """What became of a kernel in a cubin; lines of a text in a Python file are told as that file's."""
    symbol = compiled.lowered[expression]
    found = elf.resources(compiled.code, symbol)
    shift, shown = (0, "") if source is None else line_of_text(source)
    remarks = []
    for file, line, what in _KEPT.findall(compiled.log):
        is_own = source is not None and file == source.name
        remarks.append(Remark(shown if is_own else file, int(line) + shift * is_own, what))
    return Explained(expression, *found, tuple(remarks))
