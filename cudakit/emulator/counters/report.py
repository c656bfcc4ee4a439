"""Counters for users: switching them on, and the report as fields, tables, annotated source and a page."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cudakit.emulator.counters.advice import Advice, advice_on
from cudakit.emulator.counters.cards import Roof, card_of
from cudakit.emulator.counters.counts import Atomics, Counts, Line, Memory, Shared, counts_of, lines_of
from cudakit.emulator.counters.page import Row, annotated, kernel_table, page
from cudakit.emulator.counters.tally import Kernel, Record, Tally
from cudakit.emulator.streams.stream import EVERYWHERE, EmulatedStream
from cudakit.errors import ArgumentError
from cudakit.types.shown import Part, Reported, is_coloured


class _Counted:
    """A base of reports: the counts of some records, as attributes with the names of `Counts`."""

    instructions: int
    thread_instructions: int
    active_lanes: float
    kinds: dict[str, int]
    flops: dict[str, int]
    global_: Memory
    local: Memory
    shared: Shared
    atomics: Atomics
    barrier_waits: int
    branches: int
    divergent_branches: int
    not_counted: dict[str, int]

    def _records(self) -> Iterator[Record]:
        raise NotImplementedError

    @property
    def counts(self) -> Counts:
        """Current counts."""
        return counts_of(self._records())

    def __getattr__(self, name: str) -> Any:
        if name in Counts.__slots__ or name == "active_lanes":
            return getattr(self.counts, name)
        raise AttributeError(
            f"{type(self).__name__} has no {name!r}; its counts are {', '.join(Counts.__slots__)}", name=name, obj=self
        )

    @property
    def lines(self) -> list[Line]:
        """Source lines with executed instructions, by file and number."""
        return lines_of(self._records())


class KernelReport(_Counted):
    """Counts of one kernel, over all its launches.

    Attributes
    ----------
    name : str
        Name with template arguments.
    launches, blocks, threads : int
        Number of launches, and of blocks and threads in all launches.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.name: str = kernel.name
        self.launches: int = kernel.launches
        self.blocks: int = kernel.blocks
        self.threads: int = kernel.threads

    def __repr__(self) -> str:
        return f"<{self.name}: {_plural(self.launches, 'launch', 'launches')}, {self.instructions:,} instructions>"

    def _records(self) -> Iterator[Record]:
        return iter(list(self._kernel.records.values()))

    @property
    def advice(self) -> list[Advice]:
        """Advice on the kernel, if the counts leave no doubt."""
        return list(advice_on(self._kernel))


class Report(Reported, _Counted):
    """Counts of the emulator's kernels: of all kernels together, and of each kernel and line.

    The counts are exact, of the PTX instructions. There are no times. Requests, sectors, wavefronts and bank conflicts
    are the figures of a GPU's own counters, if the compiler keeps the accesses as they are.

    Attributes
    ----------
    instructions, thread_instructions : int
        Number of instructions of warps, and of threads.
    active_lanes : float
        Number of threads that take part in an instruction, on average; at most 32.
    kinds, flops : dict of str to int
        Instructions of warps by category, and floating-point operations by precision.
    global_, local : Memory
        Requests, bytes, sectors, coalescing; in all, and of `loads`, `stores` and `copies`.
    shared : Shared
        Requests, wavefronts, bank_conflicts; in all, and of `loads`, `stores` and `copies`.
    atomics : Atomics
        Atomic operations.
    barrier_waits, branches, divergent_branches : int
        Arrivals of warps at barriers, branches of warps, and branches that only some threads of the warp took.
    not_counted : dict of str to int
        Instructions whose accesses are not in the counts of memory.

    Examples
    --------
    >>> with ck.emulator.counters(stream) as report:
    ...     transpose(stream, ck.config((8, 8), (32, 8)), x, y, 256)
    >>> report.shared.bank_conflicts
    0
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __repr__(self) -> str:
        return f"<Report of {_plural(len(self.kernels), 'kernel', 'kernels')}, {self.instructions:,} instructions>"

    def _records(self) -> Iterator[Record]:
        for kernel in list(self._tally.kernels.values()):
            yield from list(kernel.records.values())

    @property
    def kernels(self) -> dict[str, KernelReport]:
        """Report of each kernel by name, in the order of their first launches."""
        return {name: KernelReport(kernel) for name, kernel in list(self._tally.kernels.items())}

    @property
    def footprint(self) -> int:
        """Bytes of global memory that were touched, in whole sectors, each counted once."""
        return self._tally.footprint

    @property
    def advice(self) -> list[Advice]:
        """Advice on all kernels, if the counts leave no doubt."""
        return [item for kernel in self.kernels.values() for item in kernel.advice]

    def roofline(self, card: str = "H200") -> Roof:
        """Return the position of all counted work under the roofline of a card.

        Parameters
        ----------
        card : str
            Name of a card in the table: H200, H100, A100, L40S, L4, T4, RTX 4090, RTX 3090.

        Raises
        ------
        ArgumentError
            For a card that the table lacks.
        """
        counts, figures = self.counts, card_of(card)
        precision: Any = max(counts.flops, key=lambda name: counts.flops[name], default="single")
        operations = sum(counts.flops.values())
        moved, least = counts.global_.all.bytes_moved, self.footprint
        return Roof(figures, precision, operations / moved if moved else 0.0, operations / least if least else 0.0)

    def _rows(self) -> list[Row]:
        return [(kernel.name, kernel.launches, kernel.counts) for kernel in self.kernels.values()]

    def _parts(self) -> Iterator[Part]:
        yield kernel_table(self._rows(), self.counts)
        yield from map(str, self.advice)
        if missing := self.not_counted:
            listed = ", ".join(f"{name} ({count:,})" for name, count in missing.items())
            yield f"not in the counts of memory: {listed}"

    def annotated(self, colour: bool | None = None) -> str:
        """Return the source, each line with its share of the instructions and its memory traffic.

        Parameters
        ----------
        colour : bool, optional
            Whether hot lines are coloured. Default: True if standard output is a terminal and ``NO_COLOR`` is not set.
        """
        return annotated(self.lines, is_coloured(sys.stdout) if colour is None else colour)

    def to_json(self) -> str:
        """Return all counts, by kernel and line, and the advice, as JSON."""
        return json.dumps(self.to_dict(), indent=1)

    def to_dict(self) -> dict[str, Any]:
        """Return all counts, by kernel and line, and the advice, as plain values."""

        def values(of: KernelReport | Line, *names: str) -> dict[str, Any]:
            return {name: getattr(of, name) for name in names} | of.counts.to_dict()

        kernels = [
            values(kernel, "name", "launches", "blocks", "threads")
            | {"lines": [values(line, "file", "line", "text") for line in kernel.lines]}
            for kernel in self.kernels.values()
        ]
        advice = [item._asdict() for item in self.advice]
        return {"kernels": kernels, "footprint": self.footprint, "advice": advice}

    def html(self, card: str = "H200") -> str:
        """Return one page with tables, plots and the annotated source, which needs no other file.

        Parameters
        ----------
        card : str
            Name of the card whose roofline is drawn, as for `roofline`.
        """
        return page(self._rows(), self.counts, self.roofline(card), self.advice, self.lines)

    def save_html(self, path: str | os.PathLike[str], card: str = "H200") -> None:
        """Write the page of `html` to a file."""
        Path(path).write_text(self.html(card), encoding="utf-8")


def _plural(count: int, singular: str, many: str) -> str:
    return f"{count:,} {singular if count == 1 else many}"


@contextlib.contextmanager
def counters(stream: EmulatedStream | None = None) -> Iterator[Report]:
    """Count the instructions and accesses of kernels that run inside the block.

    Parameters
    ----------
    stream : EmulatedStream, optional
        Stream whose kernels are counted, with streams made like it meanwhile. Default: all streams of the emulator.

    Yields
    ------
    Report
        Counts of the block. They grow with each launch. Tile kernels are not counted.

    Raises
    ------
    ArgumentError
        For a stream of a GPU: Nsight Compute reads a GPU's counters.

    Examples
    --------
    >>> with ck.emulator.counters(stream) as report:
    ...     scale(stream, ck.cover(x.size), x, 2.0, x.size)
    >>> print(report)
    """
    if stream is not None and not isinstance(stream, EmulatedStream):
        raise ArgumentError(
            f"emulator.counters: stream is the emulator's, got {type(stream).__name__}; a GPU's counters are read by "
            "Nsight Compute (ncu)"
        )
    tally = Tally()
    if stream is None:
        EVERYWHERE.append(tally)
    else:
        stream.observers = (*stream.observers, tally)
    try:
        yield Report(tally)
    finally:
        if stream is None:
            EVERYWHERE.remove(tally)
        else:
            stream.observers = tuple(observer for observer in stream.observers if observer is not tally)
