"""Lines of a program's sources, and what a launch stops at: lines that threads come to, and values that change."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cudakit.emulator.debug.dwarf import Value, evaluate
from cudakit.emulator.debug.scope import Program, Scope
from cudakit.emulator.debug.timeline import Front, Stepper
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import DEEPEST, RUNNING, YIELDED, Machine
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.source.headers import search_folders
from cudakit.jit.source.source import Source as Text


class Line(NamedTuple):
    """A line of the source."""

    file: str
    line: int
    text: str


class Lines:
    """The lines of a program's functions.

    Parameters
    ----------
    module : Module
    source : Text
        The kernel's.
    text : str
        What of it was compiled.
    placed : callable
        What the user calls a file and line of the compiler.
    """

    def __init__(self, module: Module, source: Text, text: str, placed: Callable[[str, int], str]) -> None:
        self._source, self._placed = source, placed
        self._text = text.splitlines()
        self._libraries = tuple(str(folder) for folder in search_folders())
        self._known: dict[tuple[str, int], Line | None] = {}
        #: Of each function: each instruction's line, None where it is a library's or none is known.
        self.of: list[list[Line | None]] = []
        for function in module.functions:
            lines: list[Line | None] = []
            for given in function.code:
                own = None if given.source is None else self._line(given.source.file, given.source.line)
                caller = None if given.source is None else given.source.caller
                while own is None and caller is not None:
                    own, caller = self._line(caller.file, caller.line), caller.caller
                if own is None and given.source is None and lines:
                    own = lines[-1]
                lines.append(own)
            self.of.append(lines)

    @property
    def files(self) -> set[str]:
        """The files of the user's that code comes from."""
        return {line.file for line in self._known.values() if line is not None}

    def text(self, first: int, last: int) -> list[Line]:
        """Lines of the kernel's own text around the places that it has, by the user's numbers."""
        shown = [self._line(self._source.name, line) for line in range(1, len(self._text) + 1)]
        return [line for line in shown if line is not None and first <= line.line <= last]

    def _line(self, file: str, line: int) -> Line | None:
        known = self._known.get((file, line), ...)
        if known is ...:
            known = self._known[file, line] = self._made(file, line)
        return known

    def _made(self, file: str, line: int) -> Line | None:
        shown, _, number = self._placed(file, line).rpartition(":")
        if self._source.named(file) == self._source.name or file == self._source.name:
            text = self._text[line - 1] if 0 < line <= len(self._text) else ""
            return Line(shown, int(number), text)
        if file.startswith(self._libraries) or not Path(file).is_file():
            return None
        return Line(shown, int(number), linecache.getline(file, line).rstrip("\n"))

    def places(self, wanted: int | str) -> tuple[Line, frozenset[tuple[int, int]]]:
        """A line, and where it begins: (function, instruction).

        It is named by its number, ``file:number``, or a part of its text. Of a number without code, the next line that
        has any is taken.

        Raises
        ------
        ArgumentError
        """
        lines = {line for of in self.of for line in of if line is not None}
        if isinstance(wanted, str):
            file, _, number = wanted.rpartition(":")
            if number.isdigit() and (not file or any(Path(line.file).name == Path(file).name for line in lines)):
                lines = {line for line in lines if not file or Path(line.file).name == Path(file).name}
                wanted = int(number)
        if isinstance(wanted, str):
            found = min((line for line in lines if wanted in line.text), default=None, key=lambda line: line.line)
            if found is None:
                raise ArgumentError(f"no line with code has {shortened(wanted)} in it")
        else:
            after = [line for line in lines if line.line >= wanted]
            if not after:
                last = max((line.line for line in lines), default=0)
                raise ArgumentError(f"no code comes from line {wanted} or after it; the last line with any is {last}")
            found = min(after, key=lambda line: line.line)
        starts = frozenset(
            (number, code)
            for number, of in enumerate(self.of)
            for code, line in enumerate(of)
            if line == found and (code == 0 or of[code - 1] != found)
        )
        return found, starts


#: The bits of a place that say function and instruction.
_WITHIN = Machine.location(DEEPEST - 1, 0, 0) - 1


@dataclass(eq=False)
class Breakpoint:
    """A line at which threads stop.

    Attributes
    ----------
    number : int
    line : Line
    starts : frozenset of (int, int)
        The places where it begins: function and instruction.
    when : str
        A condition, for each thread; empty: always.
    block, thread : int or None
        Which alone stop, counted along x first.
    hits : int
        How often it has stopped them.
    """

    number: int
    line: Line
    starts: frozenset[tuple[int, int]]
    when: str = ""
    block: int | None = None
    thread: int | None = None
    hits: int = 0
    _standing: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    _of: Stepper | None = None

    def __str__(self) -> str:
        parts = [f"{self.number}: {self.line.file}:{self.line.line}"]
        parts += [f"when {self.when}"] if self.when else []
        parts += [f"block {self.block}"] if self.block is not None else []
        parts += [f"thread {self.thread}"] if self.thread is not None else []
        return ", ".join(parts)

    def arrived(self, stepper: Stepper, program: Program) -> int | None:
        """The first lane that has come to the line since this was asked last, and meets the conditions."""
        before = self._standing if self._of is stepper else np.zeros(stepper.lanes, bool)
        self.settle(stepper)
        come = np.flatnonzero(self._standing & ~before)
        if self.block is not None:
            come = come[stepper.block_of[come] + stepper.first_block == self.block]
        if self.thread is not None:
            come = come[come % stepper.threads == self.thread]
        if not come.size or not self.when:
            return int(come[0]) if come.size else None
        hits = list[int]()
        for place in np.unique(stepper.place[come]):
            lanes = come[stepper.place[come] == place]
            scope = Scope(program, stepper, Front(lanes, *stepper.where(int(place)), False))
            found = evaluate(self.when, scope)
            holds = np.broadcast_to(found.data.astype(bool), lanes.shape)
            holds = holds if found.known is None else holds & found.known
            hits += lanes[holds].tolist()
        return min(hits, default=None)

    def settle(self, stepper: Stepper) -> None:
        """Take who stands at the line now for known."""
        keys = [Machine.location(DEEPEST, *start) for start in self.starts]
        able = (stepper.status == RUNNING) | (stepper.status == YIELDED)
        self._standing, self._of = np.isin(stepper.place & _WITHIN, keys) & able, stepper


@dataclass(eq=False)
class Watch:
    """An expression at whose change all stop.

    Attributes
    ----------
    number : int
    text : str
    """

    number: int
    text: str
    _former: np.ma.MaskedArray | None = None

    def __str__(self) -> str:
        return f"{self.number}: watch {self.text}"

    def settle(self, scope: Scope | None) -> None:
        """Take its value now for known."""
        self._former = self._value(scope)

    def change(self, scope: Scope | None) -> str:
        """How it has changed since this was asked last; empty where it has not."""
        former, now = self._former, self._value(scope)
        if now is None:
            return ""
        self._former = now
        if former is None or former.shape != now.shape:
            return ""
        both = ~(missing(former) | missing(now))
        raw, was = (np.ascontiguousarray(each.data) for each in (now, former))
        bits = raw.view(np.uint8).reshape(32, -1) != was.view(np.uint8).reshape(32, -1)
        at = np.flatnonzero(both & bits.any(axis=1))
        return f"{self.text}: {was[at[0]]} → {raw[at[0]]}" if at.size else ""

    def _value(self, scope: Scope | None) -> np.ma.MaskedArray | None:
        try:
            return None if scope is None else by_lane(scope, evaluate(self.text, scope))
        except ArgumentError:
            return None


def missing(value: np.ma.MaskedArray) -> np.ndarray:
    """Which lanes have no value."""
    mask: np.ndarray = np.ascontiguousarray(np.ma.getmaskarray(value))
    return np.asarray(mask.view(bool).reshape(len(mask), -1).all(axis=1))


def by_lane(scope: Scope, value: Value) -> np.ma.MaskedArray:
    """A value as an array over the 32 lanes of the warp, masked where a lane has none."""
    lanes = scope.stepper.lane_id[scope.lanes].astype(np.int64)
    data = np.broadcast_to(value.data, (len(lanes), *value.data.shape[1:]))
    full = np.zeros((32, *data.shape[1:]), data.dtype)
    full[lanes] = data
    known = np.zeros(32, bool)
    known[lanes] = True if value.known is None else value.known
    descr = np.ma.make_mask_descr(full.dtype)
    mask: Any = np.zeros(full.shape, descr)
    mask[~known] = np.ones((), descr)
    # NumPy fills masked elements with 1e20, which not every type can hold.
    with np.errstate(over="ignore"):
        found: np.ma.MaskedArray = np.ma.MaskedArray(full, mask=mask)
        found.fill_value = np.zeros(1, full.dtype)[0]
    return found
